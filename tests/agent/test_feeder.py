"""One source in its thread: when it is up, when it has ended, what it says when it fails."""

from __future__ import annotations

import queue
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest

from connectors.formats.decode.decoder import Decoder
from monitor.agent import feeder as feeder_module
from monitor.agent.feeder import Feeder
from monitor.base.errors import SourceError
from monitor.base.records import Chunk, TaskLayout
from monitor.base.source import Input, Raw, SourceCounts
from monitor.reports.views import EngineView, SourceView
from monitor.testing import ListSource, Marker
from tests.services.process import PATIENCE_SECONDS, wait_until

LAYOUT = TaskLayout("t", ("ok", "bad"))
RECORDS = [{"id": str(i), "model": "erm", "scores": [0.25, 0.75]} for i in range(20)]


class Fed:
    """A feeder and its queue."""

    def __init__(self, source: ListSource, most_chunks: int = 4) -> None:
        self.source = source
        self.chunks: queue.Queue[tuple[None, Chunk]] = queue.Queue()
        decode = Decoder([LAYOUT], source.name).decode
        self.feeder = Feeder(Input(source, decode), self.chunks, most_chunks)

    def start(self, positions: Mapping[str, int] | None = None) -> None:
        self.feeder.open(positions or {})
        self.feeder.start()

    def finish(self) -> None:
        self.feeder.stop()
        self.feeder.join(PATIENCE_SECONDS)

    def take_chunks(self) -> list[Chunk]:
        return [self.chunks.get_nowait()[1] for _ in range(self.chunks.qsize())]


def until(done: Any, what: str) -> None:
    wait_until(done, what, pause=0.002)


@pytest.fixture
def fed() -> Iterator[Any]:
    made: list[Fed] = []

    def new(records: Sequence[Any], most_chunks: int = 4, **rest: Any) -> Fed:
        made.append(Fed(ListSource(records, **rest), most_chunks))
        return made[-1]

    yield new
    for each in made:
        each.finish()


def test_chunks_come_in_order_decoded_from_where_the_source_was_opened(fed: Any) -> None:
    one = fed([*RECORDS, Marker.END], per_read=6)
    one.start({"list": 5})
    until(lambda: one.feeder.ended, "the source has ended")
    chunks = one.take_chunks()
    assert [chunk.answers for chunk in chunks] == [6, 6, 3]
    assert [dict(chunk.positions) for chunk in chunks] == [{"list": 11}, {"list": 17}, {"list": 20}]


def test_a_source_that_has_ended_counts_as_up(fed: Any) -> None:
    one = fed([Marker.END])
    one.start()
    until(lambda: one.feeder.ended, "the source has ended")
    one.feeder.close()
    assert not one.source.up
    assert one.feeder.view().up


@pytest.mark.parametrize(
    ("rows", "per_read", "received", "expected"),
    [
        ([*RECORDS, Marker.END], 20, 20, "was read to its end at {}: 20 answers and 1 label."),
        ([Marker.END], 20, 0, "was read to its end at {}: no record."),
        (RECORDS, 20, 20, "was read to its end at {}: 20 answers and 1 label."),  # no record waited
        (RECORDS, 5, 5, "was closed at {}, 15 records before its end: 5 answers and 1 label."),
    ],
)
def test_a_sentence_says_how_far_it_was_read(
    fed: Any,
    rows: list[Any],
    per_read: int,
    received: int,
    expected: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(feeder_module.time, "time", lambda: 1_795_168_800.9)
    ends = Marker.END in rows
    one = fed(rows, per_read=per_read, most_chunks=4 if ends else 1)
    one.start()
    until(lambda: one.feeder.ended if ends else one.chunks.qsize() == 1, "it has read")
    one.finish()
    one.feeder.close()
    assert one.feeder.view().ended_time == 1_795_168_800.9
    counts = EngineView(received={"list": received}, labels_received={"list": min(received, 1)})
    moment = "2026-11-20 10:00:00 UTC"
    assert one.feeder.how_ended(counts) == f"Source list {expected.format(moment)}"


def test_it_is_not_up_before_it_is_open(fed: Any) -> None:
    one = fed(RECORDS)
    assert not one.feeder.view().up
    assert one.feeder.why_down() == "Source list is not connected."
    one.start()
    assert one.feeder.view().up


def test_the_lag_is_what_waits_in_the_source_and_what_was_read_and_not_used(fed: Any) -> None:
    one = fed([*RECORDS, Marker.END], per_read=7)
    assert one.feeder.view().lag == 21
    one.start()
    until(lambda: one.feeder.ended, "the source has ended")
    assert one.source.lag == 1, "the marker stays"
    seen = []
    for _ in range(3):
        seen.append(one.feeder.view().lag)
        one.feeder.absorbed()
    assert seen == [20, 13, 6]
    assert one.feeder.view().lag == 0


def test_what_could_not_be_decoded_waits_no_longer(fed: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeder_module, "_REOPEN_SECONDS", 0.01)
    one = fed([*RECORDS, Marker.END], per_read=10)

    def fail(raws: Sequence[Raw]) -> Chunk:
        raise RuntimeError("a fault of ours")

    one.feeder._decode = fail
    one.start()
    until(lambda: one.feeder.ended, "the source has ended")
    chunks = one.take_chunks()
    assert sum(reject.answers for chunk in chunks for reject in chunk.rejects) == len(RECORDS)
    for _ in chunks:
        one.feeder.absorbed()
    assert one.feeder.view().lag == 0


def test_nothing_is_read_while_the_queue_is_full(fed: Any) -> None:
    one = fed(RECORDS, per_read=1)
    one.start()
    until(lambda: one.chunks.qsize() == 4, "the queue is full")
    one.chunks.get_nowait()
    until(lambda: one.chunks.qsize() == 4, "the queue is full again")
    assert one.source.lag == 15


def test_what_was_absorbed_is_told_to_the_source(fed: Any) -> None:
    one = fed(RECORDS)
    one.feeder.acknowledge({"list": 7})
    assert one.source.used == 7


def test_a_failure_is_shown_until_a_read_succeeds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeder_module, "_REOPEN_SECONDS", 0.01)

    class Failing(ListSource):
        failing = True

        def read(self, timeout_seconds: float) -> list[Raw]:
            if self.failing:
                raise SourceError("No such topic.")
            return super().read(timeout_seconds)

    source = Failing(RECORDS)
    one = Fed(source)
    one.start()
    until(lambda: one.feeder.failure, "it fails")
    assert not one.feeder.view().up
    assert one.feeder.why_down() == "Source list is not connected: No such topic."
    source.failing = False
    until(lambda: one.feeder.view().up, "it is up")
    assert one.feeder.failure is None
    one.finish()


def test_a_stuck_source_says_what_is_stuck_and_what_it_counted() -> None:
    class Stuck(ListSource):
        up = False
        trouble = "list-0 has delivered nothing for 60 s"
        counts = SourceCounts(gap_records=3, rebuilds=1)

    one = Fed(Stuck(RECORDS))
    assert one.feeder.view() == SourceView("list", False, 20, SourceCounts(3, 0, 0, 1))
    assert one.feeder.why_down() == "Source list is stuck: list-0 has delivered nothing for 60 s."
    assert Fed(ListSource(RECORDS)).feeder.view().counts is None


def test_it_stops_while_it_waits_to_try_again() -> None:
    class Failing(ListSource):
        def read(self, timeout_seconds: float) -> list[Raw]:
            raise SourceError("gone")

    one = Fed(Failing(RECORDS))
    one.start()
    until(lambda: one.feeder.failure, "it fails")
    one.feeder.stop()
    one.feeder.join(feeder_module._REOPEN_SECONDS / 2)
    assert not one.feeder._thread.is_alive()
