"""The join's memory is bounded by its settings: what goes first, and that it is counted."""

from __future__ import annotations

import numpy as np
import pytest

from monitor.base.records import LabelBatch
from monitor.engine.labels.join import Answers, LabelJoin
from monitor.reports.views import LabelOutcome
from tests.plain_state import through_msgpack
from tests.slow_join import (
    HORIZON,
    HORIZON_DAYS,
    MODELS,
    SETTINGS,
    Answer,
    Label,
    Record,
    key_of,
    no_zeros,
    rows_counted,
    step,
)


def test_more_answers_than_the_ring_holds_keep_the_newest() -> None:
    join = LabelJoin(HORIZON_DAYS, max_answers=3, max_waiting=0, series_per_answer=2).build()
    step(join, [(i, Answer(f"r{i}", 0, 0.0)) for i in range(8)])
    counted = rows_counted(step(join, [(8 + i, Label(f"r{i}", 0, 0.0)) for i in range(8)]))
    assert counted == {(13, 0, 1): (1, 1), (14, 0, 2): (1, 1), (15, 0, 2): (1, 1)}
    assert (no_zeros(join.outcomes), join.waiting) == ({LabelOutcome.MATCHED: 3}, 5)


def test_labels_pushed_out_while_they_wait_are_expired() -> None:
    join = LabelJoin(HORIZON_DAYS, max_answers=10, max_waiting=0, series_per_answer=2).build()
    step(join, [(i, Label(f"r{i}", 0, 0.0)) for i in range(2500)])
    assert (no_zeros(join.outcomes), join.waiting) == ({LabelOutcome.EXPIRED: 1500}, 1000)
    late = rows_counted(step(join, [(2500, Answer("r1499", 0, 0.0)), (2501, Answer("r1500", 0, 0.0))]))
    assert late == {(2501, 0, 833): (1, 1)}


def test_a_changed_label_reaches_its_own_answer_when_the_same_batch_pushes_it_out() -> None:
    join = LabelJoin(HORIZON_DAYS, max_answers=10, max_waiting=1000, series_per_answer=2).build()
    step(join, [(0, Answer("old", 0, 0.0, predicted=1)), (1, Label("old", 0, 0.0))])
    step(join, [(2 + i, Label(f"r{i}", 0, 0.0)) for i in range(999)])
    batch = [(2000, Label("old", 1, 0.0)), *((2001 + i, Label(f"s{i}", 0, 0.0)) for i in range(5))]
    assert rows_counted(step(join, batch)) == {(2000, 0, 0): (0, 1)}
    assert (join.outcomes[LabelOutcome.CONFLICTING], join.outcomes[LabelOutcome.EXPIRED]) == (1, 4)


@pytest.mark.parametrize("seed", range(3))
def test_every_label_is_accounted_for_while_both_rings_overflow(seed: int) -> None:
    rng = np.random.default_rng(seed)
    join = LabelJoin(HORIZON_DAYS, max_answers=50, max_waiting=0, series_per_answer=2).build()
    received = sequence = 0
    for _ in range(30):
        records: list[tuple[int, Record]] = []
        for _ in range(int(rng.integers(1, 400))):
            name, time = f"r{rng.integers(2000)}", float(rng.integers(3000))
            model = int(rng.integers(-1, MODELS))
            if rng.random() < 0.3:
                records.append((sequence, Answer(name, abs(model), time)))
            else:
                records.append((sequence, Label(name, int(rng.integers(2)), time, model)))
                received += 1
            sequence += 1
        step(join, records)
        assert received == sum(join.outcomes.values()) + join.waiting
        state = join.snapshot()
        assert (len(state.answers.keys) <= 50, len(state.labels.keys) <= 1000) == (True, True)
        assert join.waiting == int((~state.labels.columns["settled"]).sum())
    assert min(join.outcomes[one] for one in LabelOutcome if one not in ("rejected", "shed", "ambiguous")) > 0


@pytest.mark.parametrize("groups", [0, 2])
@pytest.mark.parametrize("max_bytes", [200_000, 1_000_000, 10**9])
def test_full_rings_take_no_more_than_max_bytes_and_most_of_it(max_bytes: int, groups: int) -> None:
    settings = LabelJoin(HORIZON_DAYS, 20_000, 5000, series_per_answer=1 + groups, max_bytes=max_bytes)
    join = settings.build()
    for start in range(0, 25_000, 1000):
        ids = key_of(f"r{i}" for i in range(start, start + 1000))
        zeros, ones, scores = np.zeros(1000, dtype=np.int64), np.ones(1000), np.zeros((1000, 2))
        cells = np.zeros((1000, 1 + groups), dtype=np.int64)
        join.add_answers(Answers(ids, zeros, zeros, ones, zeros + start, cells, cells, ones, scores))
        batch = LabelBatch("t", ids, zeros, zeros - 1, (), ones, ones, np.arange(1000))
        join.add_labels(batch, zeros - 1, np.array([7]), zeros + start)
    used = sum(ring.nbytes for ring in join.rings.values())
    assert used <= max_bytes
    answers, labels = settings.rows
    assert (len(join.rings["answers"]), len(join.rings["labels"])) == (answers, labels)
    if max_bytes == 10**9:
        assert (answers, labels) == (20_000, 5000)
    else:
        assert used >= 0.6 * max_bytes  # the tables are rounded up to a power of two, at most twofold
        assert answers < 20_000


def test_answers_pushed_out_before_their_label_can_no_longer_come_are_counted() -> None:
    join = LabelJoin(HORIZON_DAYS, max_answers=4, max_waiting=0, series_per_answer=2).build()
    step(join, [(i, Answer(f"r{i}", 0, 0.0)) for i in range(4)])
    step(join, [(4, Label("r0", 0, 0.0))])
    step(join, [(5, Answer("r5", 0, 1.0)), (6, Answer("r6", 0, 1.0))])
    assert join.forgotten == 1  # r1; r0 had its label
    join = SETTINGS.build(through_msgpack(join.snapshot()))
    assert join.forgotten == 1
    small = LabelJoin(HORIZON_DAYS, max_answers=4, max_waiting=0, series_per_answer=2)
    join = small.build(join.snapshot())
    step(join, [(7, Answer("r7", 0, 2 * HORIZON))])
    assert join.forgotten == 1  # r2 was past the horizon by then
    step(join, [(8 + i, Answer(f"s{i}", 0, 2 * HORIZON)) for i in range(6)])
    assert join.forgotten == 1 + 1 + 2  # r7, and the first two of the six; the others were too old


def test_resuming_with_smaller_rings_keeps_the_newest() -> None:
    join = SETTINGS.build()
    step(join, [(i, Answer(f"r{i}", 0, 0.0)) for i in range(8)])
    small = LabelJoin(HORIZON_DAYS, max_answers=2, max_waiting=0, series_per_answer=2)
    resumed = small.build(through_msgpack(join.snapshot()))
    counted = rows_counted(step(resumed, [(8 + i, Label(f"r{i}", 0, 0.0)) for i in range(8)]))
    assert [sequence for sequence, _, _ in counted] == [14, 15]
