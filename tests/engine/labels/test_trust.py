"""The test of trust on labelled rows: its promise, what it finds, cuts, restarts, and the way back."""

from __future__ import annotations

import itertools
import math

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit, logit
from scipy.stats import binom

from monitor.base.errors import ConfigError
from monitor.engine.labels.bias import bias
from monitor.engine.labels.trust import (
    ALARM,
    ROWS_KEPT,
    SHIFTS,
    TrustState,
    TrustTest,
    add_together,
    epsilon_of,
    ratio,
)
from monitor.reports.trust import Bias
from tests.examples import examples
from tests.fidelity.simulated import ORIGINAL, confidences
from tests.nearly import nearly
from tests.plain_state import same, through_msgpack

EPSILON = 0.1


def rows(n, seed=0, shift=0.0):
    """Return answers that are right with their confidence, shifted by `shift` logits."""
    rng = np.random.default_rng(seed)
    confidence = confidences(rng, ORIGINAL, (n,))
    return np.zeros(n, dtype=np.int64), confidence, rng.random(n) < expit(logit(confidence) + shift)


def examined(*columns, epsilon=EPSILON):
    test = TrustTest(epsilon)
    test.add(*columns)
    return test


def lost(seed=1):
    """Return a test that has lost trust to a shift of -1.2 logits."""
    test = examined(*rows(600, seed, shift=-1.2))
    assert not test.trusted
    return test


def slow_evidence(confidence, right, epsilon, planned):
    """Return E after each row by the module's docstring: a sum over every start, row by row."""
    weights = [0.2 * planned / ((planned + s) * (planned + s + 1)) for s in range(len(right))]
    weights[0] += 0.8  # a bias from the first row on
    stakes = (0.1, 0.2, 0.3, 0.2, *[0.05] * 4)
    path = []
    for t in range(1, len(right) + 1):
        total = 0.0
        for stake, (sign, shift) in zip(stakes, itertools.product((-1, 1), SHIFTS), strict=True):
            logs = [
                math.log(p / q) if hit else math.log((1 - p) / (1 - q))
                for c, hit in zip(confidence[:t], right[:t], strict=True)
                for p in (expit(logit(c) + sign * (epsilon + shift)),)
                for q in (expit(logit(c) + sign * epsilon),)
            ]
            total += stake * sum(w * math.exp(sum(logs[s:])) for s, w in enumerate(weights[:t]))
        path.append(total + 0.2 * planned / (planned + t))
    return path


def test_the_evidence_is_the_sum_over_all_bets_and_starts():
    window, confidence, right = rows(25, seed=3, shift=-0.5)
    test, evidence = TrustTest(EPSILON, planned=10), []
    for i in range(25):
        test.add(window[i : i + 1], confidence[i : i + 1], right[i : i + 1])
        evidence.append(test.evidence)
    assert evidence == pytest.approx(slow_evidence(confidence, right, EPSILON, 10), rel=1e-9)


@pytest.mark.parametrize("b", [-EPSILON, 0.0, EPSILON])
@pytest.mark.parametrize("c", [0.02, 0.6, 0.95])
def test_no_bet_gains_on_average_while_the_shift_is_excused(b, c):
    p = expit(logit(c) + b)
    for sign, shift in itertools.product((-1, 1), SHIFTS):
        hit, miss = ratio(np.array([c, c]), np.array([True, False]), sign * EPSILON, sign * (EPSILON + shift))
        assert p * hit + (1 - p) * miss <= 1 + 1e-12
        if b == sign * EPSILON:  # at the edge the bet is fair, not merely unfavourable
            assert p * hit + (1 - p) * miss == pytest.approx(1)


@pytest.mark.simulation
def test_an_estimate_that_is_right_to_its_excused_edge_loses_trust_in_five_percent_of_lives_at_most():
    """400 lives of 3,000 labels; at a rate of exactly 5 % more than 29 have a chance of 1 %."""
    assert binom.sf(29, 400, 0.05) < 0.02
    alarms = sum(not examined(*rows(3000, [seed, 1], shift=-EPSILON)).trusted for seed in range(400))
    assert alarms <= 29


def test_a_bias_of_ten_points_costs_the_trust_within_a_few_hundred_labels_and_none_does_not():
    """20 lives each; on average it takes about 100 labels (tests/fidelity/output/trust.txt)."""
    assert all(not examined(*rows(600, [seed, 2], shift=-1.2)).trusted for seed in range(20))
    assert all(not examined(*rows(1200, [seed, 2], shift=1.5)).trusted for seed in range(20))
    assert sum(examined(*rows(400, [seed, 2])).trusted for seed in range(20)) >= 18


def test_a_change_after_a_long_good_life_is_found_all_the_same():
    test = examined(*rows(25_000, seed=4))
    assert test.trusted
    test.add(*rows(500, seed=5, shift=-0.9))
    assert not test.trusted
    bias = test.trust().bias
    assert 100 < bias.rows <= 600  # the bias is that of the rows since the change, not of all those kept
    _, confidence, _ = rows(100_000, seed=6)
    truth = float((expit(logit(confidence) - 0.9) - confidence).mean())
    assert bias.lower < truth < bias.upper < 0


@examples(40)
@given(cuts=st.lists(st.integers(0, 1500), max_size=8), restart=st.booleans(), recalibrated=st.booleans())
def test_the_pieces_in_which_rows_come_change_nothing(cuts, restart, recalibrated):
    bad, good = rows(700, seed=1, shift=-0.7), rows(800, seed=2)
    columns = tuple(np.concatenate(pair) for pair in zip(bad, good, strict=True))
    whole, pieces = TrustTest(EPSILON), TrustTest(EPSILON)
    for test, edges in ((whole, [0, 700, 1500]), (pieces, sorted({0, 700, 1500, *cuts}))):
        for start, stop in itertools.pairwise(edges):
            if start == 700 and recalibrated:
                test.change_calibration(0)
            test.add(*(column[start:stop] for column in columns))
            if restart and test is pieces:
                pieces = test = TrustTest(EPSILON, resume=through_msgpack(test.snapshot()))
    assert pieces.trust() == whole.trust()
    assert whole.trusted is recalibrated  # 800 good labels, but only a recalibration makes them count
    assert same(through_msgpack(pieces.snapshot()), through_msgpack(whole.snapshot()))


def test_one_by_one_gives_the_same_to_the_last_bit():
    columns = rows(900, seed=9, shift=-0.3)
    whole, single = examined(*columns), TrustTest(EPSILON)
    for i in range(900):
        single.add(*(column[i : i + 1] for column in columns))
    assert single.evidence == whole.evidence
    assert same(single.snapshot(), whole.snapshot())


def test_trust_does_not_come_back_by_itself():
    test = lost()
    test.add(*rows(5000, seed=2))
    assert test.evidence < ALARM
    assert not test.trusted
    assert not test.trust().on_probation


def test_after_a_recalibration_a_fresh_test_on_new_rows_brings_it_back():
    test = lost()
    test.change_calibration(window=7)
    assert test.trust() == test.trust().__class__(False, 1.0, 0, None, on_probation=True)
    test.add(*rows(2000, seed=2))  # of windows before the recalibration: they count for nothing
    assert test.trust().labels == 0
    window, confidence, right = rows(2000, seed=2)
    test.add(window + 7, confidence, right)
    assert test.trusted
    assert test.trust().bias is None


@pytest.mark.slow
def test_a_recalibration_that_mends_nothing_does_not_bring_it_back():
    """60 lives that stay as wrong as they were; at 5 % more than 7 have a chance of 1.4 %."""
    back = 0
    for seed in range(60):
        test = examined(*rows(1000, [seed, 8], shift=-1.2))
        beyond = test.snapshot().beyond
        shift = beyond + math.copysign(EPSILON, beyond)
        test.change_calibration(0)
        for start in range(0, 3000, 100):
            test.add(*rows(100, [seed, 9, start], shift=shift))
            if test.trusted:
                back += 1
                break
            if not test.trust().on_probation:
                break  # the fresh test alarmed: another recalibration is waited for
    assert binom.sf(7, 60, 0.05) < 0.02
    assert back <= 7


def test_a_second_recalibration_does_not_begin_the_fresh_test_again():
    test = lost()
    test.change_calibration(1)
    window, confidence, right = rows(20, seed=2)
    test.add(window + 1, confidence, right)
    test.change_calibration(2)
    assert test.trust().labels == 20


def test_a_recalibration_while_trusted_goes_on_testing_by_its_own_uncertainty():
    test = examined(*rows(100))
    test.change_calibration(3, epsilon=0.4)
    assert test.trust().labels == 100
    test.add(*rows(100, seed=1))
    assert (test.trust().labels, test.snapshot().epsilon) == (200, 0.4)


def test_another_version_begins_anew_and_lost_trust_must_be_regained():
    test = examined(*rows(100))
    test.restart(4)
    assert test.trust() is None
    test = lost()
    test.restart(4)
    assert (test.trusted, test.trust().on_probation) == (False, True)


def test_certain_answers_that_are_wrong_are_evidence_and_nothing_becomes_infinite():
    n = 3000
    window, sure = np.zeros(n, dtype=np.int64), np.ones(n)
    right = np.arange(n) % 2 == 0
    trust = examined(window, sure, right).trust()
    assert (trust.trusted, math.isfinite(trust.evidence)) == (False, True)
    assert trust.bias.value == pytest.approx(-0.5, abs=0.01)
    assert examined(window, sure, np.ones(n, dtype=bool)).trusted


def test_rows_without_a_confidence_are_passed_over_and_memory_is_bounded():
    window, confidence, right = rows(3 * ROWS_KEPT)
    confidence[::3] = np.nan
    test = examined(window, confidence, right)
    assert test.trust().labels == 2 * ROWS_KEPT
    assert len(test.snapshot().right) == ROWS_KEPT


def test_epsilon_is_the_standard_error_of_a_shift_and_certain_references_excuse_one_row():
    assert epsilon_of(np.full(400, 0.5)) == 0.1
    assert epsilon_of(np.ones(400)) == 1.0
    assert epsilon_of(np.zeros(0)) == 0.0


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"epsilon": -0.1}, "epsilon must be 0 or more logits, got -0.1; see epsilon_of"),
        ({"epsilon": math.nan}, "epsilon must be 0 or more logits, got nan; see epsilon_of"),
        ({"level": 1.0}, "level must be above 0 and below 1, got 1.0"),
        ({"planned": 0}, "planned must be 1 label or more, got 0"),
    ],
)
def test_impossible_settings_are_refused(wrong, message):
    with pytest.raises(ConfigError) as error:
        TrustTest(**wrong)
    assert str(error.value) == message


class TestBias:
    @pytest.mark.slow
    def test_its_interval_holds_the_true_bias_as_often_as_it_says(self):
        """1,000 samples of 200 labels; at 95 % a share outside 93 to 97 has a chance of 0.4 %."""
        held, widths = 0, []
        for seed in range(1000):
            _, confidence, right = rows(200, [seed, 5], shift=-0.6)
            estimate = bias(confidence, right)
            truth = float((expit(logit(confidence) - 0.6) - confidence).mean())
            held += estimate.lower <= truth <= estimate.upper
            widths.append(estimate.upper - estimate.lower)
        assert 930 <= held <= 970
        share = (expit(logit(confidence) - 0.6)).mean()
        assert np.mean(widths) < 0.85 * 2 * 1.96 * math.sqrt(share * (1 - share) / 200)

    def test_it_is_wilsons_where_all_confidences_are_equal(self):
        from monitor.stats.estimate.proportion import wilson

        estimate, share = bias(np.full(50, 0.9), np.arange(50) < 41), wilson(41, 50)
        assert (estimate.lower + 0.9, estimate.upper + 0.9) == pytest.approx(
            (share.lower, share.upper), abs=1e-9
        )

    @pytest.mark.parametrize("c", [0.0, 1.0, 0.5])
    @pytest.mark.parametrize("hit", [True, False])
    def test_certain_confidences_and_single_rows_stay_within_bounds(self, c, hit):
        estimate = bias(np.array([c]), np.array([hit]))
        assert -1 <= estimate.lower <= estimate.value <= estimate.upper <= 1
        assert estimate.value == nearly(hit - c)

    def test_it_widens_with_the_level_and_refuses_nothing_and_nonsense(self):
        _, confidence, right = rows(100)
        narrow, wide = (bias(confidence, right, level) for level in (0.8, 0.99))
        assert wide.lower < narrow.lower < narrow.upper < wide.upper
        assert isinstance(narrow, Bias)
        with pytest.raises(ValueError, match="one labelled row or more, got none"):
            bias(confidence[:0], right[:0])
        with pytest.raises(ValueError, match="level must be above 0 and below 1, got 2"):
            bias(confidence, right, 2)


@pytest.mark.parametrize("seed", range(4))
def test_many_tests_at_once_are_what_each_is_alone(seed):
    """Witness: `add`, row by row; also where trust is lost, on probation, or rows are passed over."""
    rng = np.random.default_rng([seed, 11])

    def of_all():
        tests = [TrustTest(epsilon) for epsilon in (0.0, 0.1, 0.1, 0.3, 0.1)]
        tests.append(lost())
        tests.append(lost())
        tests[-1].change_calibration(0)
        return tests

    together, alone = of_all(), of_all()
    for _ in range(5):
        of = np.sort(rng.integers(len(alone), size=rng.integers(120)))
        window, confidence = np.zeros(len(of), dtype=np.int64), confidences(rng, ORIGINAL, (len(of),))
        confidence[rng.random(len(of)) < 0.05] = np.nan
        right = rng.random(len(of)) < np.where(of == 2, 0.5, confidence)
        cost = add_together(together, of, window, confidence, right)
        each = [
            [
                test.add(*(c[of == i][j : j + 1] for c in (window, confidence, right)))
                for j in range(sum(of == i))
            ]
            for i, test in enumerate(alone)
        ]
        assert cost == [i for i, one in enumerate(each) if any(one)]
        for one, other in zip(together, alone, strict=True):
            np.testing.assert_equal(
                msgspec.structs.asdict(one.snapshot()), msgspec.structs.asdict(other.snapshot())
            )
            assert one.trust() == other.trust()
    assert not together[2].trusted


def test_no_rows_for_many_tests_change_none():
    empty = np.zeros(0, dtype=np.int64)
    test = TrustTest()
    assert add_together([test], empty, empty, np.zeros(0), np.zeros(0, dtype=bool)) == []
    assert test.trust() is None


def test_another_prediction_gives_a_fresh_test_that_forgets_what_spoke_against_the_one_before():
    test = lost()
    assert test.lost
    test.begin_prediction(1.0)
    assert (test.lost, test.trusted, test.epsilon) == (False, False, 1.0)
    test.add(*rows(20, seed=2, shift=-2.5))
    against = test.snapshot().regained
    assert against < 1
    test.begin_prediction(0.3)
    assert test.snapshot().regained == 1.0
    assert test.snapshot().seen == 20, "the fresh test goes on"
    test.add(*rows(600, seed=3))
    assert test.trusted


def test_trust_comes_back_where_a_bias_is_left_that_is_excused():
    """20 lives with a bias of a logit, of which 1.5 are excused: a test against no bias never ended."""
    needed = []
    for seed in range(20):
        test = examined(*rows(600, [seed, 8], shift=-1.0))
        test.begin_prediction(1.5)
        for many in range(1, 31):
            test.add(*rows(10, [seed, 9, many], shift=-1.0))
            if test.trusted:
                break
        needed.append(10 * many)
        assert test.trusted, seed
    assert np.median(needed) <= 100


def test_the_slow_form_of_what_brings_trust_back():
    """Witness: odds of the edge of the excused shifts now to the shift beyond it, row by row."""
    test = lost()
    beyond = test.snapshot().beyond
    assert -beyond in SHIFTS
    test.begin_prediction(0.4)
    window, confidence, right = rows(15, seed=2, shift=-1.0)
    evidence = 1.0
    for i in range(15):
        test.add(window[i : i + 1], confidence[i : i + 1], right[i : i + 1])
        edge, shift = (expit(logit(confidence[i]) - 0.4 + each) for each in (0.0, beyond))
        evidence *= edge / shift if right[i] else (1 - edge) / (1 - shift)
        assert test.snapshot().regained == pytest.approx(evidence, rel=1e-9)
    assert evidence < ALARM


@pytest.mark.parametrize(
    ("excused", "whole_shift", "beyond"), [(0.1, -1.3, -1.2), (2.0, -1.3, -0.15), (0.1, 0.4, 0.3)]
)
def test_a_state_of_an_older_version_that_has_lost_trust_goes_on(excused, whole_shift, beyond):
    """The state keeps the whole shift, and the excused shift may have changed since."""
    old = TrustState(epsilon=excused, whole_shift=whole_shift, regained=1.0)
    test = TrustTest(EPSILON, resume=through_msgpack(old))
    assert (test.trusted, test.snapshot().beyond) == (False, beyond)
    test.add(*rows(3000, seed=2))
    assert test.trusted


def test_a_prediction_that_is_trusted_goes_on_with_what_is_at_stake():
    test = examined(*rows(100))
    before = test.evidence
    test.begin_prediction(0.5)
    assert (test.evidence, test.epsilon, test.trusted) == (before, 0.5, True)
