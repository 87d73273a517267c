"""The join of labels against a join that takes one record after another, in plain dictionaries."""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from monitor.base.records import NO_ID, mix
from monitor.engine.labels.columns import answer_keys, weights
from monitor.engine.labels.join import LabelJoin, Matches
from monitor.reports.views import LabelOutcome
from tests.examples import examples
from tests.plain_state import same, through_msgpack
from tests.slow_join import (
    HORIZON,
    MODELS,
    SETTINGS,
    Answer,
    Label,
    Record,
    confidence_of,
    key_of,
    no_zeros,
    rows_counted,
    run,
    step,
)

PROBABILITIES = (math.nan, 1.0, 0.5, 0.25)
"""Their weights add up exactly."""

BIT = (0, 1)


_kinds = st.one_of(
    st.sampled_from([*product([Answer], range(5), range(3), range(MODELS), (-1, 0, 1))]),
    st.sampled_from([*product([Label], range(1, 5), range(3), range(-1, MODELS), PROBABILITIES)]),
)
"""Every record that there may be, but for its time, so that two draws bring it: more take longer than the
join does. Answer or label, name, class, model; an answer's group, a label's probability."""
_within = st.integers(0, 800)


@st.composite
def _streams(draw: st.DrawFn) -> list[Record]:
    """Return requests 1,500 seconds apart, each answered and labelled within 800: no id is used again.

    Labels of one request may all be early or late by up to three horizons.
    """
    late = draw(st.lists(st.integers(-2000, 2500), min_size=5, max_size=5))
    records: list[Record] = []
    for after, (kind, name, value, model, more) in draw(st.lists(st.tuples(_within, _kinds), max_size=40)):
        time = name * 1500.0 + after
        if kind is Answer:
            records.append(Answer(f"request-{name}" if name else "", model, time, value, int(more)))
        else:
            records.append(Label(f"request-{name}", value, time + late[name], model, more))
    return records


_cuts = st.sets(st.integers(0, 40))


@pytest.mark.slow
@examples(300)
@given(_streams(), _cuts)
@example([Label("x", 1, 0.0), Label("x", 1, 0.0, model=0), Answer("x", 0, 0.0)], {2})
@example([Answer("x", 0, 0.0), Label("x", 1, 0.0, model=0), Label("x", 0, 0.0), Label("x", 1, 0.0)], set())
@example([Label("x", 1, 0.0), Answer("y", 0, 900.0), Answer("x", 1, 10.0)], set())
@example(
    [
        Label("x", 1, 0.0, probability=0.5),
        Label("x", 1, 0.0, model=0, probability=0.25),
        Label("x", 0, 0.0),
        Answer("x", 0, 0.0),
    ],
    {3},
)
def test_any_cutting_into_steps_gives_what_one_record_at_a_time_gives(
    records: list[Record], cuts: set[int]
) -> None:
    run(records, {cut for cut in cuts if cut <= len(records)})


# Every record that there may be, so that one draw brings it.
_rows = st.sampled_from(
    [
        Answer(f"{name}:{min(row, rows - 1)}", model, time, predicted, rows=rows)
        for name, row, rows, model, time, predicted in product("xy", BIT, (1, 2), BIT, (0.0, 300.0), BIT)
    ]
)
_named = st.sampled_from(
    [Label(*each) for each in product(["x", "y", "x:0", "x:1"], BIT, [0.0, 600.0], (-1, 0, 1), PROBABILITIES)]
)
_whole = st.sampled_from(
    [Answer(name, model, 0.0, predicted) for name, model, predicted in product("xy", BIT, BIT)]
)


@pytest.mark.slow
@examples(400)
@given(st.lists(st.one_of(_rows, _named, _whole), max_size=20), _cuts)
@example([Answer("x:0", 0, 0.0, rows=1), Label("x", 0, 0.0)], {1})
@example([Label("x", 0, 0.0), Answer("x:0", 0, 0.0, rows=1)], {1})
@example([Label("x", 0, 0.0), Answer("x:0", 0, 0.0, rows=2), Answer("x:0", 1, 0.0, rows=1)], {1})
@example([Answer("x:0", 0, 0.0, rows=1), Label("x", 0, 0.0), Answer("x", 0, 0.0)], set())
@example([Answer("x:0", 0, 0.0, rows=1), Answer("x", 0, 0.0), Label("x", 0, 0.0)], {1})
def test_labels_of_requests_whose_rows_are_numbered_join_however_it_is_cut(
    records: list[Record], cuts: set[int]
) -> None:
    run(records, {cut for cut in cuts if cut <= len(records)}, resume_at=1)


ROW = Answer("r-1:0", 0, 0.0, rows=1)
ROWS = [Answer(f"r-1:{row}", 0, 0.0, rows=2) for row in (0, 1)]
NAMED = Label("r-1", 0, 60.0)


@pytest.mark.parametrize(
    ("records", "outcome", "joined"),
    [
        ([ROW, NAMED], LabelOutcome.MATCHED, [0]),
        ([NAMED, ROW], LabelOutcome.MATCHED, [1]),
        ([ROW, Label("r-1", 0, 60.0, model=0)], LabelOutcome.MATCHED, [0]),
        ([Label("r-1", 0, 60.0, model=0), ROW], LabelOutcome.MATCHED, [1]),
        ([ROW, Label("r-1", 0, 60.0, model=1)], None, []),
        ([ROW, Label("r-1", 0, 2000.0)], LabelOutcome.EXPIRED, []),
        ([Answer("r-1:0", 0, 0.0), NAMED], None, []),  # a whole id that looks like a row's
        ([ROW, Answer("r-1", 0, 0.0), NAMED], LabelOutcome.MATCHED, [1]),  # the exact id wins
        ([Answer("r-1", 0, 0.0), NAMED, ROW], LabelOutcome.MATCHED, [0]),
        ([*ROWS, NAMED], LabelOutcome.AMBIGUOUS, []),
        ([NAMED, *ROWS], LabelOutcome.AMBIGUOUS, []),
        ([ROWS[0], NAMED], LabelOutcome.AMBIGUOUS, []),  # the other row could not be used
        ([*ROWS, Label("r-1:1", 0, 60.0)], LabelOutcome.MATCHED, [1]),
    ],
)
@pytest.mark.parametrize("cuts", [set(), {1}, {1, 2}])
def test_a_label_may_name_the_request_of_an_answer_that_is_its_only_row(
    records: list[Record], outcome: LabelOutcome | None, joined: list[int], cuts: set[int]
) -> None:
    join = run(records, cuts, resume_at=0)
    assert no_zeros(join.outcomes) == ({} if outcome is None else {outcome: 1})
    assert join.waiting == int(outcome is None)
    answers = join.rings["answers"]
    assert [i for i in range(len(answers)) if answers["label"][i] >= 0] == [
        sum(isinstance(record, Answer) for record in records[:place]) for place in joined
    ]


_times = (0.0, 300.0, 600.0, 900.0, 1200.0, 1500.0, 1800.0, 4000.0)
_any_records = st.lists(
    st.one_of(
        st.sampled_from([Answer(*each) for each in product("xy", BIT, _times, BIT)]),
        st.sampled_from([Label(*each) for each in product("xy", BIT, _times, (-1, 0, 1), PROBABILITIES)]),
    ),
    max_size=25,
)


LATE = Label("x", 1, 1200.0, model=1)


@pytest.mark.slow
@examples(400)
@given(_any_records, _cuts)
@example([Label("x", 1, 0.0), Label("x", 0, 0.0), Answer("x", 0, 0.0)], set())
@example([Label("x", 1, 0.0), Label("x", 1, 600.0), Label("x", 1, 1200.0)], {1})
@example([Label("x", 1, 0.0), Label("x", 0, 1000.0), Label("x", 1, 500.0), Answer("x", 0, 0.0)], {1})
@example([Label("x", 1, 0.0), Label("x", 1, 0.0, model=0), Label("x", 0, 0.0), Answer("x", 0, 0.0)], set())
@example(
    [Label("x", 1, 0.0), Label("x", 1, 0.0, model=0), Label("x", 0, 0.0), Answer("x", 0, 0.0)], {1, 2, 3}
)
@example([LATE, Answer("x", 1, 0.0), Label("x", 0, 1800.0, model=1), LATE], set())
def test_ids_used_again_are_told_apart_where_answers_and_labels_come_in_steps_of_their_own(
    records: list[Record], cuts: set[int]
) -> None:
    turns = {i for i in range(1, len(records)) if type(records[i]) is not type(records[i - 1])}
    run(records, turns | {cut for cut in cuts if cut <= len(records)})


@examples(100)
@given(_streams(), _cuts, st.integers(0, 5))
def test_a_snapshot_through_msgpack_changes_nothing(
    records: list[Record], cuts: set[int], resume_at: int
) -> None:
    cuts = {cut for cut in cuts if cut <= len(records)}
    interrupted = run(records, cuts, resume_at)
    assert same(interrupted.snapshot(), run(records, cuts).snapshot())


@examples(100)
@given(_streams())
def test_a_snapshot_shares_nothing_with_the_join(records: list[Record]) -> None:
    half = len(records) // 2
    join = SETTINGS.build()
    step(join, list(enumerate(records[:half])))
    snapshot = join.snapshot()
    before = through_msgpack(snapshot)
    step(join, list(enumerate(records))[half:])
    assert same(snapshot, before)


def test_a_label_matches_the_answers_of_all_models_to_its_id() -> None:
    join = SETTINGS.build()
    step(join, [(0, Answer("x", 0, 0.0, predicted=1)), (1, Answer("x", 2, 0.0, predicted=0))])
    assert rows_counted(step(join, [(7, Label("x", 1, 60.0))])) == {(7, 0, 0): (1, 1), (7, 2, 0): (1, 0)}
    assert no_zeros(join.outcomes) == {LabelOutcome.MATCHED: 1}
    assert join.lag_seconds == 60.0


def test_a_label_for_one_model_leaves_the_others_alone() -> None:
    join = SETTINGS.build()
    step(join, [(0, Answer("x", 0, 0.0)), (1, Answer("x", 1, 0.0))])
    assert rows_counted(step(join, [(2, Label("x", 0, 0.0, model=1))])) == {(2, 1, 0): (1, 1)}


def test_a_corrected_label_counts_with_the_weight_of_the_rows_first_label() -> None:
    join = SETTINGS.build()
    step(join, [(5, Answer("x", 0, 0.0, predicted=1))])
    (first,) = step(join, [(6, Label("x", 0, 0.0, probability=0.05))])
    (second,) = step(join, [(7, Label("x", 1, 0.0, probability=0.5))])
    again = Matches.join(step(join, [(8, Label("x", 1, 0.0, probability=0.1))]))
    assert (first.labelled.tolist(), first.correct.tolist(), first.right.tolist()) == ([1], [0], [False])
    assert (second.labelled.tolist(), second.correct.tolist(), second.right.tolist()) == ([0], [1], [True])
    assert first.weight == pytest.approx([20.0], rel=1e-6)
    assert (second.weight == first.weight).all()
    assert len(again.series) == 0


def test_a_match_carries_the_confidence_of_its_answer_whichever_came_first() -> None:
    join = SETTINGS.build()
    step(join, [(3, Answer("x", 0, 0.0, group=1)), (4, Label("y", 0, 0.0))])
    (early,) = step(join, [(9, Answer("y", 1, 0.0))])
    (late,) = step(join, [(10, Label("x", 1, 0.0))])
    assert early.confidence.tolist() == [confidence_of(9)]
    assert (late.confidence.tolist(), late.series.tolist()) == ([confidence_of(3)] * 2, [0, 11])


def test_a_weight_stays_finite_however_small_the_probability() -> None:
    probabilities = np.array([1.0, 0.25, math.nan, 5e-324])
    assert weights(probabilities).tolist() == [1.0, 4.0, 1.0, 1e12]
    assert weights(probabilities.astype(np.float32)).tolist() == [1.0, 4.0, 1.0, 1e12]


def test_an_early_label_waits_and_counts_when_its_answer_comes() -> None:
    join = SETTINGS.build()
    assert rows_counted(step(join, [(0, Label("x", 1, 0.0))])) == {}
    assert (join.waiting, sum(join.outcomes.values())) == (1, 0)
    assert rows_counted(step(join, [(9, Answer("x", 0, 5.0, predicted=1))])) == {(9, 0, 3): (1, 1)}
    assert (join.waiting, join.outcomes[LabelOutcome.MATCHED], join.lag_seconds) == (0, 1, -5.0)


def test_one_early_label_serves_every_model_but_is_matched_once() -> None:
    join = SETTINGS.build()
    step(join, [(0, Label("x", 1, 0.0))])
    step(join, [(1, Answer("x", 0, 0.0))])
    assert rows_counted(step(join, [(2, Answer("x", 1, 0.0))])) == {(2, 1, 0): (1, 0)}
    assert no_zeros(join.outcomes) == {LabelOutcome.MATCHED: 1}


@pytest.mark.parametrize(("lag", "outcome"), [(HORIZON, "matched"), (HORIZON + 1, "expired")])
def test_a_label_later_than_the_horizon_is_expired_at_once(lag: float, outcome: str) -> None:
    join = SETTINGS.build()
    step(join, [(0, Answer("x", 0, 1000.0))])
    matches = rows_counted(step(join, [(1, Label("x", 0, 1000.0 + lag))]))
    assert (len(matches), no_zeros(join.outcomes), join.waiting) == (outcome == "matched", {outcome: 1}, 0)


def test_a_waiting_label_expires_when_the_answers_have_passed_it_by_the_horizon() -> None:
    join = SETTINGS.build()
    step(join, [(0, Label("x", 1, 0.0))])
    step(join, [(1, Answer("y", 0, HORIZON))])
    assert join.waiting == 1
    step(join, [(2, Answer("z", 0, HORIZON * 1.02))])
    assert (join.waiting, no_zeros(join.outcomes)) == (0, {LabelOutcome.EXPIRED: 1})


def test_the_last_of_conflicting_labels_wins_and_counts_by_the_difference() -> None:
    join = SETTINGS.build()
    step(join, [(0, Answer("x", 0, 0.0, predicted=1))])
    steps = [step(join, [(i + 1, Label("x", value, 0.0))]) for i, value in enumerate((1, 0, 2, 1))]
    assert [rows_counted(one) for one in steps] == [
        {(1, 0, 0): (1, 1)},
        {(2, 0, 0): (0, -1)},
        {},
        {(4, 0, 0): (0, 1)},
    ]
    assert no_zeros(join.outcomes) == {LabelOutcome.MATCHED: 1, LabelOutcome.CONFLICTING: 3}


def test_repeated_labels_in_one_batch_take_effect_one_after_another() -> None:
    join = SETTINGS.build()
    step(join, [(0, Answer("x", 0, 0.0, predicted=1))])
    labels = [(i + 1, Label("x", value, 0.0)) for i, value in enumerate((1, 1, 0, 0, 1))]
    assert rows_counted(step(join, labels)) == {(1, 0, 0): (1, 1), (3, 0, 0): (0, -1), (5, 0, 0): (0, 1)}
    expected = {LabelOutcome.MATCHED: 1, LabelOutcome.DUPLICATE: 2, LabelOutcome.CONFLICTING: 2}
    assert no_zeros(join.outcomes) == expected


def test_answers_without_an_id_are_always_new_and_no_label_reaches_them() -> None:
    join = SETTINGS.build()
    assert join.is_new(key_of(["", "", "x"]), np.array([0, 0, 0]), np.zeros(3)).tolist() == [True] * 3
    step(join, [(0, Answer("", 0, 0.0)), (1, Answer("", 0, 0.0))])
    state = join.snapshot()
    assert (len(state.answers.keys), state.newest) == (0, -math.inf)


def test_answers_of_a_model_that_is_not_watched_hide_no_others() -> None:
    join = SETTINGS.build()
    assert join.is_new(key_of(["x", "x", "x"]), np.array([-1, -1, 0]), np.zeros(3)).tolist() == [True] * 3


def test_an_answer_is_a_duplicate_within_the_horizon_and_new_after_it() -> None:
    join = SETTINGS.build()
    step(join, [(0, Answer("x", 0, 0.0))])
    again = join.is_new(key_of("xx"), np.array([0, 1]), np.array([HORIZON, HORIZON]))
    assert again.tolist() == [False, True]
    times = np.array([HORIZON, HORIZON + 1, HORIZON + 2, 2 * HORIZON + 2, 0.0])
    new = join.is_new(key_of("xxxxx"), np.zeros(5, dtype=int), times)
    assert new.tolist() == [False, True, False, True, False]


def test_an_id_used_again_after_the_horizon_is_answered_and_labelled_anew() -> None:
    later = 3 * HORIZON
    uses: list[Record] = [
        Answer("x", 0, 0.0),
        Label("x", 0, 1.0),
        Answer("x", 0, later),
        Label("x", 1, later),
    ]
    join = run(uses, cuts=range(5))
    assert no_zeros(join.outcomes) == {LabelOutcome.MATCHED: 2}


def test_an_id_used_again_within_one_step_keeps_both_uses_apart() -> None:
    later = 3 * HORIZON
    join = run([Label("x", 0, 0.0), Answer("x", 0, 0.0), Answer("y", 0, 0.0), Answer("x", 0, later)], {1})
    labels = [Label("x", 1, 10.0), Label("x", 0, later), Label("x", 1, later), Label("x", 1, 2 * later)]
    assert rows_counted(step(join, list(enumerate(labels, start=4)))) == {
        (5, 0, 1): (1, 1),
        (6, 0, 1): (0, -1),
    }
    expected = {"matched": 2, "conflicting": 2, "expired": 1}
    assert no_zeros(join.outcomes) == expected


def test_answer_keys_tell_models_apart_and_keep_no_id() -> None:
    keys = np.concatenate([mix(np.arange(1, 1001, dtype=np.uint64)), [NO_ID]])
    salted = np.stack([answer_keys(keys, np.full(1001, model)) for model in range(-1, 4)])
    assert (salted[:, -1] == NO_ID).all()
    assert len(np.unique(np.concatenate([salted[:, :-1].ravel(), keys[:-1]]))) == 6000


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"horizon_days": 0.0}, "horizon_days must be above 0, got 0.0"),
        ({"horizon_days": math.nan}, "horizon_days must be above 0, got nan"),
        ({"max_answers": 0}, "max_answers must be from 1 to 500,000,000, got 0"),
        ({"max_answers": 10**9}, "max_answers must be from 1 to 500,000,000, got 1,000,000,000"),
        ({"max_waiting": -1}, "max_waiting must be from 0 to 500,000,000, got -1"),
        ({"series_per_answer": 0}, "series_per_answer must be at least 1, got 0"),
    ],
)
def test_settings_out_of_range_are_refused_by_name(changes: dict[str, Any], message: str) -> None:
    usual = {"horizon_days": 30.0, "max_answers": 10, "max_waiting": 10}
    with pytest.raises(ValueError) as refused:
        LabelJoin(**{**usual, **changes})
    assert str(refused.value) == message
