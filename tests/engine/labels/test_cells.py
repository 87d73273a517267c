"""Matches taken cell by cell, a part at a time, against the sums of the rows taken one by one."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from monitor.engine.labels.columns import Matches
from monitor.engine.labels.tally import Cells
from monitor.stats.estimate.hajek import Excess, excess

NEWEST = (1 << 40) - 1
ROW = st.tuples(
    st.integers(0, 3),  # series
    st.sampled_from([0, 1, NEWEST]),  # window
    st.integers(0, 1),
    st.integers(-1, 1),
    st.integers(0, 9),  # sequence: several rows at one place
    st.sampled_from([1.0, 1.0, 4.0]),
)


def matches(rows) -> Matches:
    columns = [np.array(column) for column in zip(*rows, strict=True)] or [np.zeros(0, dtype=np.int64)] * 6
    unknown, none = np.full(len(rows), np.nan), np.zeros(len(rows), dtype=np.int64)
    return Matches(
        *columns, unknown, np.isfinite(unknown), none.astype(np.uint64), none, none > 0, none, none
    )


def totals(rows) -> tuple[int, int, Excess, None]:
    total = Excess()
    for *_, labelled, correct, _, weight in rows:
        total = total.plus(excess(weight, labelled, correct)) if weight != 1.0 else total
    return sum(row[2] for row in rows), sum(row[3] for row in rows), total, None


@given(st.lists(ROW, max_size=30), st.lists(st.integers(-1, 10), max_size=3))
def test_the_parts_of_a_cell_are_the_sums_of_its_rows(rows, stops) -> None:
    rows.sort(key=lambda row: row[4])
    cells = Cells(matches(rows))
    assert list(cells) == sorted({row[:2] for row in rows})
    for cell in cells:
        left = [row for row in rows if row[:2] == cell]
        for stop in sorted(stops):
            assert cells.newly_labelled(cell) == [row[4] for row in left if row[2]]
            assert cells.take(cell, up_to=stop) == totals([row for row in left if row[4] <= stop])
            left = [row for row in left if row[4] > stop]
        assert cells.take(cell) == totals(left)
        assert cells.take(cell) == (0, 0, Excess(), None)  # nothing is taken twice
