"""Chunks in pieces: nothing is lost or counted twice, and no window closes before a piece's end."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.base.records import Chunk
from monitor.base.source import RawMessages
from monitor.engine.chunks import latest_arrivals, split
from monitor.engine.windows import AnswerRows, CountWindow, WindowLogic
from tests.examples import examples
from tests.streams import Rig, task


def chunk() -> Chunk:
    """Return answers of one and of several models, labels, a broken line between, and one at the end."""
    two = b'{"id": "a%d", "time": %d, "models": {"erm": [0.4, 0.6], "irm": [0.3, 0.7]}}'
    lines = [two % (i, 1000 + i) for i in range(5)]
    lines[2:2] = [b'{"id": "a0", "label": "ok", "time": 2000}', b"broken"]
    lines += [b'{"id": "b", "model": "erm", "scores": [0.1, 0.9]}', b'{"id": "a1", "label": "x"}']
    return Rig(task(groups=["region"])).decode([RawMessages(lines, "part-0", range(len(lines)))])


@pytest.mark.parametrize("stop", range(15))
def test_the_parts_of_a_chunk_are_the_chunk(stop: int) -> None:
    whole = chunk()
    head, tail = split(whole, stop)
    assert head.answers + head.labels_received == stop, "the next piece's sequence goes on from there"
    assert head.answers + tail.answers == whole.answers
    assert head.labels_received + tail.labels_received == whole.labels_received
    assert (head.rejects, tail.rejects) == ((), whole.rejects)
    assert (head.positions, tail.positions) == ({}, whole.positions)
    orders = [
        part.order + shift
        for piece, shift in ((head, 0), (tail, stop))
        for part in (*piece.batches, *piece.labels)
    ]
    assert sorted(np.concatenate(orders).tolist()) == sorted(
        np.concatenate([part.order for part in (*whole.batches, *whole.labels)]).tolist()
    )
    keys = [batch.key for piece in (head, tail) for batch in piece.batches]
    assert np.concatenate(keys).tolist() == whole.batches[0].key.tolist()


def test_the_latest_clock_never_falls_and_a_record_without_a_time_does_not_move_it() -> None:
    arrivals = latest_arrivals(chunk(), -np.inf, event_time=True)
    assert arrivals.tolist() == [1000.0, 1000.0, 1001.0, 1001.0, *[2000.0] * 10][: len(arrivals)]
    assert set(latest_arrivals(chunk(), 7.0, event_time=False)) == {7.0}


def pushed(window: WindowLogic, arrival: np.ndarray) -> int:
    """Return the row at which the first window closes, the rows' number where none does."""
    for i, time in enumerate(arrival.tolist()):
        zero = np.zeros(1, dtype=np.int64)
        rows = AnswerRows(np.full((1, 2), 0.5), zero, np.array([time]), np.array([time]), zero, zero, zero)
        if window.push(rows, ("p",))[0]:
            return i
    return len(arrival)


@examples(200)
@given(
    gaps=st.lists(st.sampled_from([0.0, 1.0, 4.0, 20.0]), min_size=1, max_size=40),
    before=st.integers(0, 12),
    size=st.integers(2, 12),
    age=st.sampled_from([3.0, 10.0, 50.0]),
    data=st.data(),
)
def test_a_window_closes_where_it_may_or_later_and_just_there_once_it_is_open(
    gaps: list[float], before: int, size: int, age: float, data: st.DataObject
) -> None:
    window = CountWindow(size, data.draw(st.integers(1, size)), age).build()
    arrival = np.array([*itertools.accumulate(gaps)]) + 100.0
    pushed(window, np.full(min(before, size - 1), 100.0))
    may, opened = window.may_close(arrival, now=100.0), window.pending
    closed = pushed(window, arrival)
    assert may <= closed
    assert not opened or may == closed
