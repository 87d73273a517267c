"""Shards on real stores: each is saved, given up and taken as one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import numpy as np
import pytest

from connectors.formats.decode.decoder import Decoder
from monitor.agent.checkpoints import CheckpointWriter
from monitor.agent.resume import resume, tasks_as_json
from monitor.agent.shards import Kept, MovingShard, OpenedShard, Shards
from monitor.base.source import RawMessages
from monitor.config.layouts import layouts
from monitor.engine.engine import Engine
from monitor.reports.union import since, twice, union
from monitor.reports.views import EngineView, RefitView
from monitor.store import Store
from monitor.testing import ListSinks
from tests.services.process import PATIENCE_SECONDS, wait_until
from tests.streams import Record, Rig, answers, lines

SETTINGS = Rig().settings
DECODER = Decoder(layouts(dict(SETTINGS.tasks)), "kafka")


class Owner:
    """Shards whose stores are in folders, by their numbers, and the positions that they reported."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.reported: list[tuple[str, dict[str, object]]] = []
        self.sinks: dict[int, ListSinks] = {}
        self.shards = Shards(self._open, "kafka")
        self.shards.bind(lambda source, positions: self.reported.append((source, dict(positions))))

    def take(self, partition: str) -> MovingShard | None:
        number = int(partition.rpartition("-")[2])
        if self.shards.take(partition, number) is None:
            return None
        [shard] = [each for each in self.shards.live() if each.number == number]
        return shard

    def use(self, partition: str, records: list[Record], first: int = 0) -> None:
        """Split, decode and absorb the records, like the reading thread and the thread of the engine."""
        values = [msgspec.json.encode(record) for record in records]
        offsets = range(first, first + len(values))
        raw = RawMessages(values, partition, offsets, False, None, first + len(values))
        for shard, raws in self.shards.split([raw]):
            chunk = DECODER.decode(raws)
            shard.queued += 1
            shard.used += 1
            shard.delivery.reports(shard.engine.absorb(chunk, 0.0))
            shard.delivery.absorbed("kafka", chunk.positions)

    def until_given_up(self, partition: str) -> None:
        def given_up() -> bool:
            self.shards.step()
            return self.shards.given_up([partition])

        wait_until(given_up, "it is given up", pause=0.01)

    def _open(self, number: int) -> OpenedShard:
        store = Store(self.folder / str(number))
        resumed = resume(SETTINGS, store.load())
        keeper, sinks = CheckpointWriter(store), self.sinks.setdefault(number, ListSinks())
        keeper.start()
        kept = Kept(keeper, 0.01, tasks_as_json(dict(SETTINGS.tasks)), tuple(resumed.reports))
        return OpenedShard(resumed.engine, kept, sinks, lambda: keeper.close(PATIENCE_SECONDS))


@contextmanager
def owners(folder: Path, count: int) -> Iterator[list[Owner]]:
    owners = [Owner(folder) for _ in range(count)]
    try:
        yield owners
    finally:
        for owner in owners:
            owner.shards.finish(save=False)


def test_a_shard_that_is_given_up_goes_on_where_it_was(tmp_path: Path) -> None:
    records = answers(np.random.default_rng(0), 250)
    with owners(tmp_path, 2) as (one, two):
        assert one.take("clicks-3") is one.take("labels-3"), "partitions of one number have one state"
        one.use("clicks-3", records[:130])
        assert one.shards.held() == {"clicks-3", "labels-3"}
        assert two.take("clicks-3") is None
        assert "partition 3 waits: " in (two.shards.waiting or "")
        one.shards.give_up(["clicks-3"])
        assert one.shards.held() == set()
        assert one.take("labels-3") is None, "what is given up is not taken again before it is gone"
        one.until_given_up("clicks-3")
        assert one.reported[-1] == ("kafka", {"clicks-3": 130})
        shard = two.take("clicks-3")
        assert shard is not None
        assert two.shards.waiting is None
        assert shard.engine.positions("kafka") == {"clicks-3": 130}
        two.use("clicks-3", records[130:], first=130)
        two.shards.give_up(["clicks-3"])
        two.until_given_up("clicks-3")
        windows = [window for owner in (one, two) for window in owner.sinks[3].windows]
    with owners(tmp_path / "alone", 1) as (alone,):
        alone.take("clicks-3")
        alone.use("clicks-3", records)
        alone.shards.give_up(["clicks-3"])
        alone.until_given_up("clicks-3")
    assert len(windows) == 2
    assert lines(windows) == lines(alone.sinks[3].windows)


def test_what_was_read_is_used_before_a_shard_leaves_and_nothing_after(
    tmp_path: Path,
) -> None:
    records = answers(np.random.default_rng(0), 30)
    with owners(tmp_path, 1) as (one,):
        shard = one.take("clicks-0")
        assert shard is not None
        shard.queued += 1  # the reading thread has handed a chunk over
        one.shards.give_up(["clicks-0"])
        one.shards.step()
        assert not shard.ended
        shard.used += 1
        one.until_given_up("clicks-0")
        assert shard.ended
        one.use("clicks-0", records)
        assert one.shards.live() == []
        again = one.take("clicks-0")
        assert again is not None
        assert again is not shard
        assert again.engine.positions("kafka") == {}


def test_counts_of_tasks_and_sources_are_of_this_agent_and_never_fall(tmp_path: Path) -> None:
    records = answers(np.random.default_rng(0), 250)
    with owners(tmp_path, 2) as (one, two):
        one.take("clicks-3")
        one.use("clicks-3", records[:130])
        assert one.shards.view().received == {"kafka": 130}
        one.shards.give_up(["clicks-3"])
        one.until_given_up("clicks-3")
        left = one.shards.view()
        assert (left.received, left.series) == ({"kafka": 130}, ())
        two.take("clicks-3")
        assert two.shards.view().received == {"kafka": 0}
        two.use("clicks-3", records[130:], first=130)
        came = two.shards.view()
        assert came.received == {"kafka": 120}
        assert sum(series.predictions + series.pending for series in came.series) == 250
        assert two.shards.saved_time is None or two.shards.failing is None


def test_no_count_falls_while_a_shard_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A scrape comes at each moment of the end, from another thread."""
    with owners(tmp_path, 1) as (one,):
        shard = one.take("clicks-3")
        assert shard is not None
        one.use("clicks-3", answers(np.random.default_rng(0), 250))
        monkeypatch.setattr(type(shard.delivery), "failures", 7)
        seen: list[int] = []
        real = type(shard.engine).view

        def view(engine: Engine) -> EngineView:
            seen.append(one.shards.failures)
            return real(engine)

        monkeypatch.setattr(type(shard.engine), "view", view)
        close = one.shards._close

        def count_and_close(shard: MovingShard) -> None:
            seen.append(one.shards.failures)
            close(shard)

        monkeypatch.setattr(one.shards, "_close", count_and_close)
        assert one.shards.finish(save=True)
        assert len(seen) > 1
        assert {*seen, one.shards.failures} == {7}


def test_a_model_in_several_partitions_is_shown_once_and_told_of_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    records = answers(np.random.default_rng(0), 250)
    with owners(tmp_path, 1) as (one,):
        for partition, some in (("clicks-0", records[:30]), ("clicks-1", records[30:])):
            one.take(partition)
            one.use(partition, some)
        for _ in range(2):
            view = one.shards.view()
        assert [series.windows_closed for series in view.series] == [2]
        series = view.series[0]
        assert one.shards.number_of(series.task, series.model, series.group) == 1
        assert one.shards.number_of(series.task, "another", "") is None
    messages = [record.message for record in caplog.records if "come in several partitions" in record.message]
    assert len(messages) == 1
    assert "Give each message its model, or its task, as key." in messages[0]


def test_several_views_are_one() -> None:
    one = EngineView(
        received={"kafka": 3},
        rejected={("kafka", "no_id"): 1},
        labels_waiting={"t": 2},
        label_lag_seconds={"t": 5.0},
        refits={"t": RefitView(number=1)},
        series_dropped=1,
    )
    other = EngineView(
        received={"kafka": 4},
        labels_waiting={"t": 5},
        label_lag_seconds={"t": 3.0},
        refits={"t": RefitView(number=3)},
        series_dropped=2,
    )
    both = union([one, other])
    assert (both.received, both.rejected) == ({"kafka": 7}, {("kafka", "no_id"): 1})
    assert (both.labels_waiting, both.label_lag_seconds) == ({"t": 7}, {"t": 5.0})
    assert (both.refits["t"].number, both.series_dropped) == (3, 3)
    assert since(both, one).received == {"kafka": 4}
    assert since(both, one).series_dropped == 2
    assert twice([one, other]) == []
