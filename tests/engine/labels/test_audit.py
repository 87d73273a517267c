"""The audit of intervals on labelled rows: batches, coverage, versions, cuts."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import poisson_binom

from monitor.base.names import BATCH_ROWS
from monitor.engine.labels.audit import BATCHES_KEPT, IntervalAudit, covered, first_labelled, judge_together
from monitor.engine.labels.columns import Matches
from monitor.reports.views import Coverage
from tests.examples import examples
from tests.plain_state import same, through_msgpack
from tests.streams import CLASSES, Rig, answers, task


def rows(n, seed=0, shift=0.0):
    rng = np.random.default_rng(seed)
    confidence = rng.beta(20, 2, n)
    return np.zeros(n, dtype=np.int64), confidence, rng.random(n) < confidence - shift


def audited(*columns, level=0.95):
    audit = IntervalAudit(level)
    audit.add(*columns)
    return audit


def test_the_interval_is_that_of_scipys_poisson_binomial():
    rng = np.random.default_rng(1)
    confidence = rng.random((40, BATCH_ROWS))
    for level in (0.8, 0.95):
        tail = (1 - level) / 2
        for p in confidence:
            cdf = poisson_binom(p).cdf(np.arange(BATCH_ROWS + 1))
            low, high = np.searchsorted(cdf, tail), np.searchsorted(cdf, 1 - tail)
            counts = np.arange(BATCH_ROWS + 1)
            inside = covered(np.tile(p, (len(counts), 1)), counts, level)
            assert np.flatnonzero(inside).tolist() == list(range(low, high + 1))


def test_nothing_is_said_before_the_first_batch_is_full():
    assert audited(*rows(BATCH_ROWS - 1)).coverage() is None
    assert audited(*rows(BATCH_ROWS)).coverage() == Coverage(1.0, 30, 0.95)


def test_the_share_rests_on_the_newest_two_hundred_batches():
    audit = audited(*rows(30 * 150))
    audit.add(np.zeros(30 * 100, dtype=np.int64), np.full(30 * 100, 0.9), np.zeros(30 * 100, dtype=bool))
    coverage = audit.coverage()
    assert coverage.rows == 30 * BATCHES_KEPT
    assert 0.45 < coverage.ratio <= 0.5  # the hundred newest are all wrong, a hundred older ones are left


@examples(50)
@given(cuts=st.lists(st.integers(0, 5000), max_size=8), restart=st.booleans())
def test_the_pieces_in_which_rows_come_change_nothing(cuts, restart):
    columns = rows(5000, shift=0.1)
    whole, pieces = audited(*columns), IntervalAudit(0.95)
    for start, stop in itertools.pairwise([0, *sorted(cuts), 5000]):
        pieces.add(*(column[start:stop] for column in columns))
        if restart:
            pieces = IntervalAudit(0.95, through_msgpack(pieces.snapshot()))
    assert pieces.coverage() == whole.coverage()
    assert same(through_msgpack(pieces.snapshot()), through_msgpack(whole.snapshot()))


def test_many_audits_judged_at_once_are_each_judged_alone():
    some = [
        rows(count, shift=shift) for count, shift in ((29, 0.0), (150, 0.1), (0, 0.0), (61, 0.2), (3000, 0.1))
    ]
    together, alone = ([audited(*columns) for columns in some] for _ in range(2))
    judge_together(together)
    for one, other in zip(together, alone, strict=True):
        assert one.coverage() == other.coverage()
        assert same(through_msgpack(one.snapshot()), through_msgpack(other.snapshot()))
    judge_together([])


def test_another_level_begins_anew_and_keeps_out_what_an_older_baseline_left():
    audit = audited(*rows(300))
    audit.restart(7)
    again = IntervalAudit(0.9, audit.snapshot())
    again.add(*rows(60))
    assert again.coverage() is None
    again.add(rows(60)[0] + 7, *rows(60)[1:])
    assert (again.coverage().rows, again.coverage().level) == (60, 0.9)


def test_rows_whose_confidence_is_not_known_are_passed_over():
    window, confidence, right = rows(90)
    confidence[::3] = np.nan
    assert audited(window, confidence, right).coverage().rows == 60


def matches(sequence, labelled, correct, confidence):
    n = len(sequence)
    zeros = np.zeros(n, dtype=np.int64)
    return Matches(
        zeros, zeros, np.array(labelled), np.array(correct), np.array(sequence), np.ones(n),
        np.array(confidence), zeros > 0, np.zeros(n, dtype=np.uint64), zeros, zeros > 0, zeros, zeros,
    )  # fmt: skip


def test_a_row_counts_once_with_its_first_label_as_it_stood_in_the_end_at_that_place():
    audit = IntervalAudit(0.95)
    # At 5 a label that is changed at once, to right; at 6 a wrong one, changed later, which is too late.
    matched = matches([5, 5, 6, 8], [1, 0, 1, 0], [0, 1, 0, 1], [0.9, 0.9, 0.7, 0.7])
    first, right = first_labelled(matched)
    audit.add(matched.window[first], matched.confidence[first], right)
    state = audit.snapshot()
    assert (state.confidence.tolist(), state.right.tolist()) == ([0.9, 0.7], [True, False])


def labels_of(records, right):
    return [
        {"id": r["id"], "time": r["time"], "label": CLASSES[int((r["scores"][1] > 0.5) == ok)]}
        for r, ok in zip(records, right, strict=True)
    ]


def test_a_new_version_of_the_model_begins_anew_and_labels_of_the_old_one_stay_out():
    rig, rng = Rig(), np.random.default_rng(3)
    old = answers(rng, 200, version="1")
    new = answers(rng, 200, start=1.7e9 + 3600, version="2")
    rig.feed(old + labels_of(old[:120], [False] * 120))
    (series,) = rig.engine.view().series
    assert series.coverage == Coverage(0.0, 120, 0.95)
    rig.feed(new[:100] + labels_of(old[120:], [False] * 80))
    assert rig.engine.view().series[0].coverage is None
    rig.feed(labels_of(new[:60], [max(r["scores"]) > 0.6 for r in new[:60]]))
    assert rig.engine.view().series[0].coverage == Coverage(1.0, 60, 0.95)


def test_a_new_baseline_begins_anew_too():
    rig = Rig(task(reference={"first_windows": 5}))
    records = answers(np.random.default_rng(3), 150)
    rig.feed(records + labels_of(records[:90], [True] * 90))
    assert rig.engine.view().series[0].coverage.rows == 90
    rig.engine, _ = rig.engine.reconfigured(rig.settings, fresh=("t",))
    rig.feed(labels_of(records[90:], [True] * 60))
    assert rig.engine.view().series[0].coverage is None
