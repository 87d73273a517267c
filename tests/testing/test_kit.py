"""The public test kit does what its users build on."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from monitor.base.source import EndOfSource, RawMessages
from monitor.testing import DelayedLabels, HandClock, ListSinks, ListSource, Marker
from tests.daemon import ROOT
from tests.services.process import PATIENCE_SECONDS
from tests.streams import Rig, answers


def read_all(source: ListSource, reads: int = 50) -> list[Any]:
    """Return the results of `reads` reads: lists of values, or "end"."""
    batches: list[Any] = []
    for _ in range(reads):
        try:
            raws = source.read(0.0)
        except EndOfSource:
            return [*batches, "end"]
        assert all(isinstance(raw, RawMessages) for raw in raws)
        batches.append([value for raw in raws for value in raw.values])  # type: ignore[union-attr]
    return batches


def opened(*records: Any, at: int = 0, **rest: Any) -> ListSource:
    source = ListSource(records, **rest)
    source.open({"list": at})
    return source


def test_a_read_ends_before_a_marker_and_the_marker_takes_a_read_of_its_own() -> None:
    source = opened(b"1", b"2", b"3", Marker.PAUSE, Marker.PAUSE, b"4", Marker.END, per_read=2)
    assert read_all(source) == [[b"1", b"2"], [b"3"], [], [], [b"4"], "end"]


def test_the_end_is_for_ever() -> None:
    source = opened(Marker.END)
    assert read_all(source) == read_all(source) == ["end"]


def test_a_list_without_an_end_stays_silent() -> None:
    assert read_all(opened(b"1"), reads=3) == [[b"1"], [], []]


def test_a_source_resumed_at_any_position_gives_each_record_after_it_once() -> None:
    records = [b"0", b"1", Marker.PAUSE, b"3", b"4", Marker.END]
    for at in range(len(records)):
        *batches, end = read_all(opened(*records, at=at, per_read=3))
        values = [value for batch in batches for value in batch]
        assert values == [record for record in records[at:] if isinstance(record, bytes)]
        assert end == "end"


def test_offsets_count_markers_so_that_positions_are_places_in_the_list() -> None:
    source = opened(b"0", Marker.PAUSE, b"2")
    offsets = [list(raw.offsets) for _ in range(3) for raw in source.read(0.0)]  # type: ignore[union-attr]
    assert offsets == [[0], [2]]


def test_it_is_up_while_it_is_open() -> None:
    source = ListSource([])
    assert not source.up
    source.open({})
    assert source.up
    source.close()
    assert not source.up


def test_a_crash_is_that_of_kill_9() -> None:
    script = (
        "import atexit; from monitor.testing import ListSource, Marker\n"
        "atexit.register(print, 'said goodbye')\n"
        "try:\n"
        "    source = ListSource([Marker.CRASH]); source.open({}); source.read(0)\n"
        "finally:\n"
        "    print('cleaned up')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (137, "", "")


def test_the_hand_clock_moves_both_ways_and_only_by_hand() -> None:
    clock = HandClock(10.0)
    assert (clock(), clock()) == (10.0, 10.0)
    clock.advance(-4)
    assert clock() == 6.0


def test_the_list_sinks_keep_what_an_engine_gives() -> None:
    rig, sinks = Rig(), ListSinks()
    stream = answers(np.random.default_rng(1), 100)
    sinks.reports(rig.feed(stream))
    assert [window.size for window in sinks.windows] == [100]
    source = opened(b"not JSON")
    sinks.rejects(rig.decode(source.read(0.0)))
    assert [reject.raw for reject in sinks.rejected] == [b"not JSON"]


@pytest.mark.parametrize("delay", [0.0, 2.5, 1e6])
def test_delayed_labels_come_in_the_order_of_time_and_none_is_lost(delay: float) -> None:
    rng = np.random.default_rng(4)
    pairs = [(record | {"task": "t"}, "ok" if rng.random() < 0.5 else None) for record in answers(rng, 200)]
    stream = list(DelayedLabels(delay)(pairs))
    times = [record["time"] for record in stream]
    assert times == sorted(times)
    predictions = [record for record in stream if "scores" in record]
    labels = [record for record in stream if "scores" not in record]
    assert predictions == [record for record, _ in pairs]
    due = [(r["id"], r["time"] + delay) for r, label in pairs if label]
    assert [(record["id"], record["time"]) for record in labels] == due
    assert all(record["task"] == "t" and record["label"] == "ok" for record in labels)


def test_a_label_never_comes_before_its_prediction_even_without_delay() -> None:
    pairs = [({"id": str(i), "time": 5.0}, "ok") for i in range(3)]
    seen: set[str] = set()
    for record in DelayedLabels(0.0)(pairs):
        if "label" in record:
            assert record["id"] in seen
        seen.add(record["id"])
