"""Metrics of errors from sums over labelled rows: a slow witness, corrections, coverage, unknown results."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
import scipy.stats

from monitor.base.records import Floats
from monitor.base.results import Estimate, Reason, Result, TooFew, Unknown
from monitor.stats.estimate.hajek import hajek, weighted_counts
from monitor.stats.regression.losses import MeanLoss
from monitor.stats.regression.metrics import (
    DEFAULT_METRICS,
    ERROR_METRICS,
    FUNCTIONS,
    NO_SUMS,
    TERMS,
    added_terms,
    error_terms,
    losses_of,
    metric_of_mean,
    padded,
    realised_metric,
)
from tests.nearly import nearly


def first(errors: Floats, weights: Floats | None = None) -> Floats:
    """Return the terms of first labels."""
    weights = np.ones(len(errors)) if weights is None else weights
    return error_terms(errors, np.full(len(errors), np.nan), weights)


def all_terms(
    errors: Floats, labels: Floats, inside: Floats | None = None, weights: Floats | None = None
) -> Floats:
    """Return the terms of first labels for all metrics."""
    none, weights = np.full(len(errors), np.nan), np.ones(len(errors)) if weights is None else weights
    both = (np.column_stack((own, none)) for own in (labels, none if inside is None else inside))
    return error_terms(errors, none, weights, *both)


def realised(
    metric: str, errors: Floats, labels: Floats, inside: Floats | None = None, weights: Floats | None = None
) -> Result:
    """Return a metric of rows by their first labels."""
    return realised_metric(metric, added_terms(NO_SUMS, all_terms(errors, labels, inside, weights)), 0.95)


def sums(errors: Floats, weights: Floats | None = None) -> Floats:
    return added_terms(NO_SUMS, first(errors, weights))


def known(result: Result) -> tuple[float, float, float]:
    assert isinstance(result, Estimate), result
    return result.value, result.lower, result.upper


def witness(metric: str, errors: Floats, weights: Floats) -> tuple[float, float, float]:
    """Return a metric with Student's 95 % interval of the mean, with Kish's number of rows."""
    losses = [{"mae": abs(e), "rmse": e * e, "bias": e}[metric] for e in errors.tolist()]
    total = sum(weights.tolist())
    mean = sum(w * x for w, x in zip(weights.tolist(), losses, strict=True)) / total
    variance = sum((w * (x - mean)) ** 2 for w, x in zip(weights.tolist(), losses, strict=True)) / total**2
    effective = total**2 / sum(w * w for w in weights.tolist())
    half = scipy.stats.t.ppf(0.975, effective - 1) * math.sqrt(variance * effective / (effective - 1))
    ends = mean, mean - half, mean + half
    return tuple(math.sqrt(max(end, 0.0)) for end in ends) if metric == "rmse" else ends  # type: ignore[return-value]


@pytest.mark.parametrize("metric", DEFAULT_METRICS)
def test_metrics_are_those_of_the_slow_witness(metric: str) -> None:
    rng = np.random.default_rng(1)
    errors, weights = rng.standard_normal(40) * 3 + 1, rng.choice([1.0, 4.0, 20.0], 40)
    result = known(realised_metric(metric, sums(errors, weights), 0.95))
    assert result == nearly(witness(metric, errors, weights))


def test_neither_the_order_nor_the_number_of_calls_changes_the_sums() -> None:
    rng = np.random.default_rng(2)
    errors, replaced = rng.standard_normal((2, 100)) * 10.0 ** rng.integers(-8, 9, (2, 100))
    replaced[::3] = np.nan
    terms = error_terms(errors, replaced, rng.choice([1.0, 1 / 0.3], 100))
    whole = added_terms(NO_SUMS, terms)
    for size in (1, 7, 50):
        pieces, order = NO_SUMS, rng.permutation(100)
        for start in range(0, 100, size):
            pieces = added_terms(pieces, terms[order[start : start + size]])
        assert pieces.tolist() == whole.tolist(), size
    exact = [float(sum(map(Fraction, column))) for column in terms.reshape(-1, terms.shape[2]).T.tolist()]
    assert whole[0].tolist() == exact


def test_a_window_whose_only_label_becomes_exactly_right_goes_on() -> None:
    none, one = np.array([np.nan]), np.ones(1)
    rows = [(np.array([5.0]), none), (np.array([0.0]), np.array([5.0])), (np.array([3.0]), none)]
    steps = [error_terms(error, replaced, one) for error, replaced in rows]
    sums = NO_SUMS
    for step, reason in zip(steps, [Reason.TOO_FEW_LABELS, Reason.TOO_FEW_LABELS, None], strict=True):
        sums = added_terms(sums, step)
        result = realised_metric("mae", sums, 0.95)
        assert isinstance(result, Unknown) == (reason is not None)
        assert not isinstance(result, Unknown) or result.reason == reason
    assert known(realised_metric("mae", sums, 0.95))[0] == nearly(1.5)
    assert sums.tolist() == added_terms(NO_SUMS, np.concatenate(steps)).tolist()


def test_a_replaced_label_leaves_no_trace() -> None:
    errors = np.random.default_rng(3).standard_normal(30)
    wrong = errors.copy()
    wrong[4] = 50.0
    corrected = added_terms(sums(wrong), error_terms(errors[4:5], wrong[4:5], np.ones(1)))
    for metric in DEFAULT_METRICS:
        before, after = (known(realised_metric(metric, each, 0.95)) for each in (sums(errors), corrected))
        assert after == nearly(before), metric


def test_a_replaced_label_whose_error_has_an_infinite_power_makes_the_metrics_with_it_unknown() -> None:
    wrong = added_terms(sums(np.array([1.0, 2.0])), first(np.array([1e90])))
    lost = added_terms(wrong, error_terms(np.array([1.0]), np.array([1e90]), np.ones(1)))
    assert realised_metric("rmse", lost, 0.95) == Unknown(Reason.LABEL_TOO_LARGE)
    assert known(realised_metric("mae", lost, 0.95))[0] == nearly(4 / 3)
    older = np.full((1, NO_SUMS.size), np.nan)  # the sums that an older version stored in this case
    assert realised_metric("mae", older, 0.95) == Unknown(Reason.LABEL_TOO_LARGE)


def test_an_error_whose_square_is_infinite_gives_no_number() -> None:
    result = realised_metric("rmse", sums(np.array([1.0, 1e100, 2.0])), 0.95)
    assert isinstance(result, Estimate)
    assert not math.isfinite(result.upper)  # reports write it as unknown


def test_metrics_without_enough_labels_are_unknown() -> None:
    assert realised_metric("mae", NO_SUMS, 0.95) == Unknown(Reason.NO_LABELS)
    assert realised_metric("mae", sums(np.array([3.0])), 0.95) == TooFew(Reason.TOO_FEW_LABELS, 1)


def test_an_interval_without_width_needs_twenty_equal_errors() -> None:
    assert known(realised_metric("rmse", sums(np.full(20, -3.0)), 0.95)) == nearly((3.0, 3.0, 3.0))
    for error in (0.0, 0.1, 1e6):
        for n in (2, 19):
            few = realised_metric("mae", sums(np.full(n, error)), 0.95)
            assert few == TooFew(Reason.TOO_FEW_LABELS, n), (error, n)


def test_unequal_weights_widen_the_interval_until_one_row_decides() -> None:
    errors = 50 + np.random.default_rng(6).standard_normal(31)
    widths = []
    for weight in (1.0, 5.0, 20.0):
        _, lower, upper = known(realised_metric("mae", sums(errors, np.array([weight, *np.ones(30)])), 0.95))
        widths.append(upper - lower)
    assert widths == sorted(widths)
    one = realised_metric("mae", sums(errors, np.array([1e4, *np.ones(30)])), 0.95)
    assert one == TooFew(Reason.TOO_FEW_LABELS, 31)


def test_estimated_means_of_absolute_and_squared_errors_are_not_negative() -> None:
    mean = MeanLoss(value=0.01, variance=1.0, third=0.0, n=500)
    assert known(metric_of_mean("mae", mean, 0.95))[1] == known(metric_of_mean("rmse", mean, 0.95))[1] == 0.0
    assert known(metric_of_mean("bias", mean, 0.95))[1] < 0.0
    assert metric_of_mean("mae", Unknown(Reason.NO_OVERLAP), 0.95) == Unknown(Reason.NO_OVERLAP)


def test_the_losses_are_those_of_the_metrics() -> None:
    losses = losses_of(np.array([-2.0, 1.0]))
    assert {name: (each.values.tolist(), each.power) for name, each in losses.items()} == {
        "mae": ([2.0, 1.0], 1),
        "rmse": ([4.0, 1.0], 2),
        "bias": ([-2.0, 1.0], 1),
    }


def jackknife(metric: str, errors: Floats, labels: Floats, weights: Floats) -> tuple[float, float]:
    """Return a metric with its variance by the infinitesimal jackknife: numerical derivatives by weights."""

    def value(w: Floats) -> float:
        if metric == "mape":
            return float(np.average(np.abs(errors / labels), weights=w))
        if metric == "wape":
            return float(w @ np.abs(errors) / (w @ np.abs(labels)))
        centred = labels - np.average(labels, weights=w)
        return float(1 - w @ errors**2 / (w @ centred**2))

    steps = 1e-5 * np.eye(len(weights))
    slopes = [(value(weights + step) - value(weights - step)) / 2e-5 for step in steps]
    return value(weights), float(((weights * np.array(slopes)) ** 2).sum())


@pytest.mark.parametrize("offset", [0.0, 500.0])
@pytest.mark.parametrize("metric", ["mape", "wape", "r2"])
def test_functions_of_means_have_the_variance_of_the_infinitesimal_jackknife(
    metric: str, offset: float
) -> None:
    rng = np.random.default_rng(7)
    labels, weights = offset + rng.normal(5.0, 2.0, 40), rng.choice([1.0, 4.0, 20.0], 40)
    errors = rng.normal(0.3, 1.0, 40)
    value, variance = jackknife(metric, errors, labels, weights)
    effective = weights.sum() ** 2 / (weights**2).sum()
    half = scipy.stats.t.ppf(0.975, effective - 1) * math.sqrt(variance * effective / (effective - 1))
    own, lower, upper = known(realised(metric, errors, labels, weights=weights))
    assert own == pytest.approx(value, rel=1e-6)
    assert upper - own == pytest.approx(half, rel=1e-4)
    assert lower == pytest.approx(own - half, rel=1e-3) or lower == 0.0


def test_coverage_is_the_share_of_stated_intervals_with_the_interval_of_the_accuracy() -> None:
    rng = np.random.default_rng(8)
    inside = np.where(rng.random(60) < 0.8, 1.0, 0.0)
    unstated = np.where(np.arange(60) < 10, np.nan, inside)
    errors, labels = rng.standard_normal((2, 60))
    for weights in (np.ones(60), rng.choice([1.0, 4.0], 60)):
        result = realised("coverage", errors, labels, unstated, weights)
        expected = hajek(weighted_counts(inside[10:] == 1.0, weights[10:]))
        assert known(result) == nearly(known(expected))
        assert isinstance(result, Estimate)
        assert result.n == 50
    assert realised("coverage", errors, labels) == Unknown(Reason.NO_INTERVALS)


def test_metrics_that_labels_do_not_define_are_unknown_until_the_label_is_corrected() -> None:
    errors, labels = np.array([1.0, -2.0, 0.5]), np.array([4.0, 0.0, -3.0])
    sums = added_terms(NO_SUMS, all_terms(errors, labels))
    assert realised_metric("mape", sums, 0.95) == Unknown(Reason.LABEL_ZERO)
    assert known(realised_metric("wape", sums, 0.95))[0] == nearly(0.5)
    terms = error_terms(np.array([-4.0]), errors[1:2], np.ones(1), np.array([[2.0, 0.0]]))
    sums = added_terms(sums, terms)
    assert known(realised_metric("mape", sums, 0.95))[0] == nearly((1 / 4 + 4 / 2 + 0.5 / 3) / 3)
    assert realised("wape", errors, np.zeros(3)) == Unknown(Reason.LABELS_ZERO)
    for equal in (0.0, 1e9):
        assert realised("r2", errors, np.full(3, equal)) == Unknown(Reason.LABELS_EQUAL)


def test_sums_of_an_older_version_or_of_fewer_metrics_give_only_the_metrics_of_their_terms() -> None:
    errors, labels = np.array([1.0, -2.0, 0.5]), np.array([4.0, 1.0, -3.0])
    before = added_terms(NO_SUMS, first(errors))
    assert before.shape[1] == TERMS
    both = added_terms(before, all_terms(errors, labels, np.ones(3)))
    assert (
        both.tolist()
        == added_terms(padded(before, both.shape[1]), all_terms(errors, labels, np.ones(3))).tolist()
    )
    for metric in ("mape", "wape", "coverage", "r2"):
        for sums in (before, both):
            assert realised_metric(metric, sums, 0.95) == Unknown(Reason.OLDER_WINDOW), metric
    assert known(realised_metric("mae", added_terms(both, first(errors)), 0.95))[0] == nearly(3.5 / 3)


def test_estimated_metrics_keep_their_ranges() -> None:
    mean = MeanLoss(value=0.9, variance=1.0, third=0.0, n=500)
    for metric, ends in (("coverage", (0.0, 1.0)), ("r2", (-1.06, 1.0)), ("wape", (0.0, 2.86))):
        assert known(metric_of_mean(metric, mean, 0.95))[1:] == pytest.approx(ends, abs=0.01), metric


def test_the_losses_of_the_other_metrics_need_labels_and_intervals() -> None:
    errors, labels = np.array([-2.0, 1.0]), np.array([4.0, -2.0])
    losses = losses_of(errors, ERROR_METRICS, labels, np.array([0.0, 1.0]))
    assert {name: each.values.tolist() for name, each in losses.items()} == {
        "mae": [2.0, 1.0],
        "rmse": [4.0, 1.0],
        "bias": [-2.0, 1.0],
        "mape": [0.5, 0.5],
        "size": [4.0, 2.0],
        "coverage": [0.0, 1.0],
        "label": [3.0, -3.0],
        "square": [9.0, 9.0],
    }
    assert {name: each.power for name, each in losses.items() if each.power} == {
        "mae": 1,
        "rmse": 2,
        "bias": 1,
        "mape": 1,
    }
    assert list(losses_of(errors, ["wape"], labels)) == list(FUNCTIONS["wape"].losses)


@pytest.mark.simulation
def test_intervals_by_labels_hold_the_metrics_of_the_population() -> None:
    """Normal errors with a deviation of 2, 100 labels, 2,000 trials: the error of the test is 0.5 points."""
    rng = np.random.default_rng(4)
    mae, spread = 2 * math.sqrt(2 / math.pi), 1 / 3  # the spread of uniform labels from 9 to 11
    inverse = math.log(11 / 9) / 2
    truth = {"mae": mae, "rmse": 2.0, "bias": 0.0, "mape": mae * inverse, "wape": mae / 10}
    truth |= {"coverage": math.erf(1 / math.sqrt(2)), "r2": 1 - 4 / spread}
    held = dict.fromkeys(truth, 0)
    for _ in range(2000):
        errors, labels = 2 * rng.standard_normal(100), rng.uniform(9.0, 11.0, 100)
        inside = (np.abs(errors) <= 2.0) * 1.0
        own = added_terms(NO_SUMS, all_terms(errors, labels, inside))
        for metric, value in truth.items():
            _, lower, upper = known(realised_metric(metric, own, 0.95))
            held[metric] += lower <= value <= upper
    for metric, count in held.items():
        assert 0.925 <= count / 2000 <= 0.97, (metric, count)
