"""Processes that decode: real ones, whose chunks are those of this process; killed, hung, ended."""

from __future__ import annotations

import os
import queue
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from connectors.build import decoders_of
from connectors.formats.decode.decoder import Decoder
from monitor.agent import decoders as decoders_module
from monitor.agent.decoders import DecoderProcess, Decoders
from monitor.agent.feeder import Feeder
from monitor.agent.shards import MovingShard, Shards
from monitor.base.records import Chunk, RejectReason, TaskLayout
from monitor.base.source import (
    Decode,
    EndOfSource,
    Input,
    Raw,
    RawBlock,
    RawDamaged,
    RawMessages,
    RawPosition,
    RawSkipped,
    RawTable,
)
from monitor.config.root import Config
from monitor.testing import ListSource, Marker
from tests.agent.test_shards import Owner
from tests.connectors.formats.test_stacks import MAPPINGS, SAMPLES
from tests.connectors.kafka.test_events import BINARY, BODY
from tests.plain_state import same
from tests.services.process import PATIENCE_SECONDS, gone, wait_until

pytestmark = pytest.mark.process

LAYOUT = TaskLayout("t", ("ok", "bad"))
LINE = b'{"id": "a", "time": 1.7e9, "model": "erm", "scores": [0.25, 0.75], "groups": {"region": "eu"}}\n'
SMALL: list[Raw] = [RawBlock(LINE, "p", 0)]
LONG: list[Raw] = [RawBlock(20_000 * LINE, "p", 0)]
"""Neither it nor its chunk fits into a pipe."""
MANY = 1000  # lines: more than what a source's thread decodes itself


def configured() -> Config:
    """Return a source for each mapping that a page shows, and one without any; rejects are redacted."""
    sources: list[dict[str, Any]] = [
        {"kind": "file", "path": name, "name": name, "mapping": yaml.safe_load(mapping)}
        for name, mapping in MAPPINGS.items()
    ]
    return Config.model_validate(
        {
            "tasks": {
                "toxicity": {"classes": ["ok", "toxic"], "groups": ["region"]},
                "chat": {"kind": "arena"},
            },
            "sources": [*sources, {"kind": "stdin"}],
            "rejects": {"path": "rejects.ndjson", "record": "redacted"},
        }
    )


READS: Mapping[str, tuple[str, list[Raw]]] = {
    **{name: (name, [RawBlock(SAMPLES[name].encode() + b"\n", "p", 7)]) for name in MAPPINGS},
    "an event in headers": (
        "kserve_events",
        [RawMessages([BODY], "t-0", [3], headers=[[(k, v.encode()) for k, v in BINARY.items()]])],
    ),
    "many lines": ("stdin", [RawBlock(LINE * MANY, "p", 0)]),
    "an array, a label, and what is none": (
        "stdin",
        [
            RawMessages(
                [
                    b"[" + LINE + b"," + LINE + b"]",
                    b'{"id": "a", "task": "toxicity", "label": "toxic"}',
                    b'{"id": "secret", "model": "erm", "task": "toxicity", "scores": [0.25, 1.75]}',
                    b"no JSON at all",
                ],
                "t-0",
                [1, 2, 3, 5],
                after_others=True,
                after={"at": 6},
            )
        ],
    ),
    "comparisons": (
        "stdin",
        [RawBlock(b'{"task": "chat", "model_a": "x", "model_b": "y", "winner": "model_a"}\n', "p", 0)],
    ),
    "a table": (
        "stdin",
        [
            RawTable(
                {
                    "task": ["toxicity", "toxicity", None],
                    "model": ["erm", None, "irm"],
                    "scores.ok": ["0.25", "0.5", None],
                    "scores.toxic": [0.75, 0.5, None],
                },
                "p.csv",
                10,
                {2: "a quote is open"},
            )
        ],
    ),
    "what holds no record": (
        "stdin",
        [
            RawSkipped(b"{", 1 << 21, "p", 0),
            RawDamaged("it ends early", b"{", "q", 9),
            RawPosition("r", None),
        ],
    ),
}


@pytest.fixture(scope="module")
def two() -> Iterator[Decoders]:
    with started(Decoders(2, decoders_of(configured()))) as decoders:
        yield decoders


@contextmanager
def started(decoders: Decoders) -> Iterator[Decoders]:
    """Start the decoders; check that their processes have gone at the end."""
    decoders.start()
    pids = decoders.pids
    yield decoders
    decoders.close()
    pids += decoders.pids
    assert pids
    assert all(map(gone, pids))


def give(to: Decoders, source: str, raws: Sequence[Raw]) -> DecoderProcess:
    """Return a process that has the read, once one is ready."""
    processes: list[DecoderProcess] = []

    def free() -> bool:
        processes.extend(filter(None, [to.give(source, raws)]))
        return bool(processes)

    wait_until(free, "a process is ready", pause=0.01)
    return processes[0]


@pytest.mark.parametrize("name", READS)
def test_a_chunk_is_that_of_this_process(two: Decoders, name: str) -> None:
    source, raws = READS[name]
    here = decoders_of(configured())()[source](raws)
    assert here.answers or here.rejects, "it is no test"
    there = two.take(give(two, source, raws))
    assert same(there, here)


def test_two_reads_are_with_two_processes_and_a_third_with_none(two: Decoders) -> None:
    reads: list[list[Raw]] = [[RawBlock(LINE * MANY, "p", start)] for start in (0, 9)]
    processes = [give(two, "stdin", raws) for raws in reads]
    assert len({each.process.pid for each in processes}) == two.busy == 2
    assert two.give("stdin", reads[0]) is None
    chunks = [two.take(each) for each in reversed(processes)]
    assert [chunk and chunk.positions["p"] for chunk in chunks] == [9 + len(LINE) * MANY, len(LINE) * MANY]
    assert two.busy == 0


def raising(raws: Sequence[Raw]) -> Chunk:
    raise RuntimeError("a fault of ours")


def waiting(gate: Path, raws: Sequence[Raw]) -> Chunk:
    """Decode once there is a file; by the path of that, as it is another process that waits."""
    wait_until(gate.exists, "it may", pause=0.002)
    return Decoder([LAYOUT], "list").decode(raws)


def build(decode: Decode | None = None) -> dict[str, Decode]:
    return {"list": Decoder([LAYOUT], "list").decode if decode is None else decode}


@pytest.fixture
def one(monkeypatch: pytest.MonkeyPatch) -> Iterator[Decoders]:
    monkeypatch.setattr(decoders_module, "_AGAIN_SECONDS", 0.0)
    with started(Decoders(1, build)) as decoders:
        yield decoders


def test_a_read_that_fails_is_left_to_this_process() -> None:
    with started(Decoders(1, partial(build, raising))) as decoders:
        assert decoders.take(give(decoders, "list", SMALL)) is None
        assert decoders.take(give(decoders, "list", SMALL)) is None
        assert (decoders.failures, decoders.busy) == (0, 0)


def test_of_a_process_that_was_killed_nothing_comes_and_another_is_started(
    one: Decoders, caplog: pytest.LogCaptureFixture
) -> None:
    """Stopped first, so that it is killed before it can answer."""
    [killed] = one.pids
    process = give(one, "list", SMALL)
    assert one.take(process) is not None
    os.kill(killed, signal.SIGSTOP)
    process = give(one, "list", SMALL)
    os.kill(killed, signal.SIGKILL)
    assert one.take(process) is None
    assert (one.failures, one.busy) == (1, 0)
    assert caplog.messages == [
        "A process that decodes was killed (signal 9: by hand, or by the system for want of memory). The "
        "agent decodes what it had, and starts another when it needs one."
    ]
    assert one.take(give(one, "list", SMALL)) is not None
    assert one.pids != [killed]


def test_a_process_that_was_killed_amid_a_long_answer_keeps_nobody_waiting(one: Decoders) -> None:
    """An executor of `concurrent.futures` would wait for the rest of it."""
    process = give(one, "list", LONG)
    assert process.has_answered(PATIENCE_SECONDS)  # it has begun to write more than a pipe holds
    os.kill(one.pids[0], signal.SIGKILL)
    assert one.take(process) is None


def test_one_that_stands_still_before_it_takes_a_long_read_is_ended(
    one: Decoders, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The pipe holds less than the read, so that its writer would wait for ever."""
    assert one.take(give(one, "list", SMALL)) is not None
    [hung] = one.pids
    os.kill(hung, signal.SIGSTOP)
    monkeypatch.setattr(decoders_module, "SILENT_SECONDS", 0.05)
    assert one.give("list", LONG) is None
    wait_until(lambda: gone(hung), "it was killed")
    assert (one.failures, one.busy) == (1, 0)
    assert caplog.messages[0].startswith("A process that decodes took nothing for 0 s. The agent decodes")
    monkeypatch.undo()
    assert one.take(give(one, "list", LONG)) is not None


def test_one_that_stands_still_amid_a_long_answer_is_ended(
    one: Decoders, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = give(one, "list", LONG)
    [hung] = one.pids
    assert process.has_answered(PATIENCE_SECONDS)  # it has begun to write more than a pipe holds
    os.kill(hung, signal.SIGSTOP)
    monkeypatch.setattr(decoders_module, "SILENT_SECONDS", 0.05)
    assert one.take(process) is None
    wait_until(lambda: gone(hung), "it was killed")
    assert (one.failures, one.busy) == (1, 0)


def test_one_that_died_idle_is_replaced(one: Decoders) -> None:
    assert one.take(give(one, "list", SMALL)) is not None
    [killed] = one.pids
    os.kill(killed, signal.SIGKILL)
    wait_until(lambda: gone(killed), "it has gone")
    assert one.take(give(one, "list", SMALL)) is not None
    assert (one.failures, one.pids != [killed]) == (1, True)


def test_one_that_does_not_answer_is_ended(
    one: Decoders, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert one.take(give(one, "list", SMALL)) is not None
    [hung] = one.pids
    os.kill(hung, signal.SIGSTOP)
    process = give(one, "list", SMALL)
    monkeypatch.setattr(decoders_module, "SILENT_SECONDS", 0.05)
    assert one.take(process) is None
    wait_until(lambda: gone(hung), "it was killed")
    assert caplog.messages[0].startswith(
        "A process that decodes did not answer within 0 s. The agent decodes"
    )


def test_decoders_that_cannot_be_made_leave_all_to_this_process(caplog: pytest.LogCaptureFixture) -> None:
    decoders = Decoders(1, partial(dict, 3))  # type: ignore[arg-type]
    decoders.start()
    wait_until(lambda: decoders.give("list", SMALL) or decoders.failures, "it has ended", pause=0.01)
    assert decoders.give("list", SMALL) is None
    assert "A process that decodes ended with exit code 1. " in caplog.text
    decoders.close()


class Fed:
    """A feeder with processes, and its queue."""

    def __init__(
        self, decoders: Decoders, source: ListSource, most_chunks: int = 100, shards: Shards | None = None
    ) -> None:
        self.source = source
        self.chunks: queue.Queue[tuple[MovingShard | None, Chunk]] = queue.Queue()
        self.decoded_here = 0
        here = Decoder([LAYOUT], source.name).decode

        def decode(raws: Sequence[Raw]) -> Chunk:
            self.decoded_here += 1
            return here(raws)

        self.feeder = Feeder(Input(source, decode), self.chunks, most_chunks, shards, decoders)
        self.feeder.open({})

    def run(self) -> list[Chunk]:
        """Run until the source has ended; return its chunks."""
        self.feeder.start()
        wait_until(lambda: self.feeder.ended, "the source has ended", pause=0.002)
        return self.take_chunks()

    def take_chunks(self) -> list[Chunk]:
        return [self.chunks.get_nowait()[1] for _ in range(self.chunks.qsize())]


def records(n: int) -> list[dict[str, Any]]:
    return [{"id": str(i), "model": "erm", "scores": [0.25, 0.75]} for i in range(n)]


def ready(decoders: Decoders) -> None:
    """Wait until every process is."""
    processes = [give(decoders, "list", SMALL) for _ in decoders.pids]
    for each in processes:
        decoders.take(each)


@pytest.fixture(scope="module")
def pair() -> Iterator[Decoders]:
    with started(Decoders(2, build)) as decoders:
        ready(decoders)
        yield decoders


def test_chunks_come_in_the_order_of_the_reads_and_small_reads_are_decoded_here(pair: Decoders) -> None:
    """The first read is small; so is the last, but others are before it."""
    fed = Fed(pair, ListSource([*records(10), Marker.PAUSE, *records(24_010), Marker.END], per_read=3000))
    chunks = fed.run()
    assert [chunk.answers for chunk in chunks] == [10, *[3000] * 8, 10]
    assert [chunk.positions["list"] for chunk in chunks][-1] == 24_021
    assert 1 <= fed.decoded_here <= 2


def test_what_is_being_decoded_counts_to_the_lag_and_to_the_bound(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    with started(Decoders(2, partial(build, partial(waiting, gate)))) as two:
        fed = Fed(two, ListSource([*records(30_000), Marker.END], per_read=3000), most_chunks=2)
        gate.touch()
        ready(two)
        gate.unlink()
        fed.feeder.start()
        wait_until(lambda: two.busy == 2, "both have a read", pause=0.002)
        wait_until(lambda: fed.feeder.view().lag == 30_001, "all wait", pause=0.002)
        assert (fed.chunks.qsize(), fed.source.lag) == (0, 24_001)
        gate.touch()
        for _ in range(10):
            fed.chunks.get(timeout=PATIENCE_SECONDS)
            fed.feeder.absorbed()
        wait_until(lambda: fed.feeder.ended, "the source has ended", pause=0.002)
    assert fed.feeder.view().lag == 0, "no record waits in a source that has ended"


class Draining(ListSource):
    """A source that waits in a read until its rows are used, as Kafka's does where it loses a partition."""

    chunks: queue.Queue[Any]

    def read(self, timeout_seconds: float) -> list[Raw]:
        if self.lag == 1:  # the marker
            wait_until(lambda: self.chunks.qsize() == 2, "both are handed on", pause=0.002)
        return super().read(timeout_seconds)


def test_a_source_that_waits_in_a_read_for_what_it_has_read_does_not_wait_in_vain(pair: Decoders) -> None:
    source = Draining([*records(6000), Marker.END], per_read=3000)
    fed = Fed(pair, source)
    source.chunks = fed.chunks
    assert [chunk.answers for chunk in fed.run()] == [3000, 3000]
    assert fed.decoded_here == 0


class Leaving(ListSource):
    """Two partitions, of which one is taken away in the third read; then it has ended."""

    shards: Shards
    reads = 0

    def read(self, timeout_seconds: float) -> list[Raw]:
        self.reads += 1
        if self.reads > 2:
            self.shards.give_up(["t-0"])
            wait_until(lambda: self.shards.given_up(["t-0"]), "it is given up", pause=0.002)
            raise EndOfSource
        [raw] = super().read(timeout_seconds)
        assert isinstance(raw, RawMessages)
        return [replace(raw, partition=f"t-{number}") for number in (0, 1)]


def test_a_shard_that_leaves_is_saved_with_all_that_was_read_of_it(pair: Decoders, tmp_path: Path) -> None:
    """Each read has a part for each of two shards."""
    owner = Owner(tmp_path)
    leaving, staying = owner.take("t-0"), owner.take("t-1")
    assert leaving is not None
    assert staying is not None
    source = Leaving(records(6000), per_read=3000)
    source.shards = owner.shards
    fed = Fed(pair, source, shards=owner.shards)
    fed.feeder.start()
    order = []
    while not (fed.feeder.ended and fed.chunks.empty()):
        with suppress(queue.Empty):
            shard, chunk = fed.chunks.get(timeout=0.002)
            assert shard is not None
            order.append((shard.number, chunk.positions[f"t-{shard.number}"]))
            shard.used += 1
            shard.delivery.reports(shard.engine.absorb(chunk, 0.0))
            shard.delivery.absorbed("kafka", chunk.positions)
        owner.shards.step()
    assert order == [(0, 3000), (1, 3000), (0, 6000), (1, 6000)]
    assert fed.decoded_here == 0
    assert (leaving.ended, leaving.queued, leaving.used) == (True, 2, 2)
    assert (staying.ended, staying.queued, staying.used) == (False, 2, 2)
    again = owner.take("t-0")
    assert again is not None
    assert again.engine.positions("list") == {"t-0": 6000}
    assert owner.shards.finish(save=True)


def test_a_source_that_is_stopped_hands_on_what_it_has_read(pair: Decoders) -> None:
    fed = Fed(pair, ListSource(records(12_000), per_read=3000))
    fed.feeder.start()
    wait_until(lambda: fed.source.lag == 0, "all is read", pause=0.002)
    fed.feeder.stop()
    fed.feeder.join(PATIENCE_SECONDS)
    assert [chunk.answers for chunk in fed.take_chunks()] == [3000] * 4
    assert pair.busy == 0


def test_reads_that_killed_processes_had_are_decoded_here_in_their_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decoders_module, "_AGAIN_SECONDS", PATIENCE_SECONDS)
    gate = tmp_path / "gate"
    with started(Decoders(2, partial(build, partial(waiting, gate)))) as two:
        gate.touch()
        ready(two)
        gate.unlink()
        fed = Fed(two, ListSource([*records(12_000), Marker.END], per_read=3000))
        fed.feeder.start()
        wait_until(lambda: two.busy == 2, "both have a read", pause=0.002)
        for pid in two.pids:
            os.kill(pid, signal.SIGKILL)
        wait_until(lambda: fed.feeder.ended, "the source has ended", pause=0.002)
        assert (two.failures, two.pids) == (2, [])
    assert [chunk.positions["list"] for chunk in fed.take_chunks()] == [3000, 6000, 9000, 12_000]
    assert fed.decoded_here == 4


def test_a_decoder_that_fails_rejects_its_read_alone_and_is_told(
    pair: Decoders, caplog: pytest.LogCaptureFixture
) -> None:
    """The agent decodes as without processes; it was handed the later reads before the failure, and returns
    them.
    """
    fed = Fed(pair, ListSource([*records(9000), Marker.END], per_read=3000))
    with started(Decoders(1, partial(build, raising))) as each:
        ready(each)
        fed.feeder._decoders, fed.feeder._decode = each, raising
        chunks = fed.run()
    assert [chunk.positions["list"] for chunk in chunks] == [3000, 6000, 9000]
    for chunk in chunks:
        [reject] = chunk.rejects
        assert (chunk.answers, reject.answers, reject.reason) == (3000, 3000, RejectReason.MALFORMED)
        assert reject.message == "the agent could not decode what it read: RuntimeError('a fault of ours')"
    assert caplog.text.count("list: 3000 records could not be decoded and are counted as malformed") == 3
    assert fed.feeder.failure == "it failed with RuntimeError('a fault of ours')"
