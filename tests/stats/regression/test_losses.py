"""Means of losses without labels: a slow witness, the laws, the reasons, and the texts of errors."""

from __future__ import annotations

import functools
import math

import numpy as np
import pytest

from monitor.base.records import FeatureKind, Floats
from monitor.base.results import Reason, TooFew, Unknown
from monitor.stats.regression.losses import FEWEST_ROWS, LossFunction, LossReference, MeanLoss, RowLosses
from tests.nearly import nearly

KINDS: tuple[FeatureKind, ...] = ("number", "text")


def rows(seed: int, n: int, move: float = 0.0) -> tuple[Floats, Floats]:
    """Return columns (n, 2) and errors (n,), which grow with the number and with the category."""
    rng = np.random.default_rng(seed)
    number, text = rng.normal(size=n) + move, rng.integers(0, 3, n)
    errors = rng.standard_normal(n) * np.exp(0.3 * number + 0.2 * text) + 0.3 * number
    return np.column_stack((number, text)), errors


def losses_of(errors: Floats) -> dict[str, RowLosses]:
    return {
        "mae": RowLosses(np.abs(errors), 1),
        "mse": RowLosses(errors**2, 2),
        "bias": RowLosses(errors, 1, signed=True),
        "within": RowLosses((np.abs(errors) < 1.0) * 1.0, 0),
    }


def reference_of(seed: int, n: int = 2000, unit: float = 1.0) -> LossReference:
    columns, errors = rows(seed, n)
    losses = {
        name: loss._replace(values=loss.values * unit**loss.power) for name, loss in losses_of(errors).items()
    }
    return LossReference.from_rows(columns, KINDS, unit * errors, losses)


def mean_of(results: dict[str, MeanLoss | Unknown], name: str) -> MeanLoss:
    result = results[name]
    assert isinstance(result, MeanLoss), result
    return result


def hats(values: Floats, knots: Floats) -> Floats:
    """Return the piecewise linear functions by interpolation of unit vectors; values lie between the ends."""
    return np.column_stack([np.interp(values, knots, unit) for unit in np.eye(len(knots))])


def witness(window: Floats, level: float) -> dict[str, tuple[float, float, float]]:
    """Return value, lower and upper of each loss: rows one by one, least squares of a stacked system."""
    columns, errors = rows(1, 2000)
    reference = reference_of(1)
    shares = reference._ratio.fit(window).weights
    shares = shares / shares.sum()
    quantiles = (0.0, 0.02, 0.1, 0.25, 0.5, 0.75, 0.9, 0.98, 1.0)
    knots = np.quantile(columns[:, 0], quantiles, method="inverted_cdf")
    slopes = np.diff(np.eye(9), axis=0) / np.diff(knots)[:, None]
    # Rows of the prior: those of the bends, the heights, and one for each category.
    bends = np.zeros((7, 13))
    bends[:, 1:10] = 0.05 * (knots[-1] - knots[0]) * np.diff(slopes, axis=0)
    ridge = np.diag([0.0] + [1e-3**0.5] * 9 + [1.0] * 3)
    count = np.bincount(columns[:, 1].astype(int))
    order = np.argsort(-count, kind="stable").tolist()

    def functions(some: Floats) -> Floats:
        texts = np.array([[float(order.index(int(text)) == k) for k in range(3)] for text in some[:, 1]])
        return np.column_stack((np.ones(len(some)), hats(some[:, 0], knots), texts))

    def solve(design: Floats, outcome: Floats) -> Floats:
        stacked = np.vstack((design, bends, ridge))
        target = np.concatenate((outcome, np.zeros(len(bends) + len(ridge))))
        return np.linalg.lstsq(stacked, target, rcond=None)[0]

    def crossed(design: Floats, outcome: Floats) -> Floats:
        fitted = np.empty(len(outcome))
        for k in range(5):
            others = np.arange(len(outcome)) % 5 != k
            fitted[~others] = design[~others] @ solve(design[others], outcome[others])
        return fitted

    design, own = functions(columns), functions(window)
    inverse = np.linalg.inv(design.T @ design + bends.T @ bends + ridge.T @ ridge)
    logs = np.log(np.abs(errors) + 0.1 * np.abs(errors).mean())
    ends = np.quantile(design @ solve(design, logs), (0.01, 1.0))
    line, own_line = np.clip(crossed(design, logs), *ends), np.clip(own @ solve(design, logs), *ends)
    n, results = len(window), {}
    for name, loss in losses_of(errors).items():
        unit, own_unit = np.exp(loss.power * line), np.exp(loss.power * own_line)
        residual = loss.values - unit * crossed(design, loss.values / unit)
        at, squared = solve(design, loss.values / unit), solve(design, (residual / unit) ** 2)
        moved = sum(share * each for share, each in zip(shares, residual, strict=True))
        value = sum(own_unit[i] * (own[i] @ at) for i in range(n)) / n + moved
        relative = own @ squared
        variances = own_unit**2 * np.maximum(relative, 0.1 * max(relative.mean(), 0.0))
        apart = residual - moved
        unbalanced = (own_unit @ own) / n - (shares * unit) @ design
        variance = variances.sum() / n**2 + (shares**2 * apart**2).sum()
        variance += ((residual / unit) ** 2).mean() * (unbalanced @ inverse @ unbalanced)
        parts = np.array_split(residual, max(2000 // n, 8))
        spread = np.var([part.mean() for part in parts], ddof=1)
        variance += max(spread - np.mean([(part**2).sum() / len(part) ** 2 for part in parts]), 0.0)
        skewness = (shares * apart**3).sum() / (shares * apart**2).sum() ** 1.5
        third = skewness * variances.mean() ** 1.5 / n**2 - (shares**3 * apart**3).sum()
        results[name] = (value, *MeanLoss(value, variance, third, n).interval(level))
    return results


def test_estimates_are_those_of_the_slow_witness() -> None:
    window = rows(2, 250, 0.4)[0]
    window = window[np.abs(window[:, 0]) < 3]  # the witness's functions end at the last knots
    results = reference_of(1).estimate(window)
    for name, (value, lower, upper) in witness(window, 0.9).items():
        mean = mean_of(results, name)
        assert (mean.value, *mean.interval(0.9)) == pytest.approx((value, lower, upper), rel=1e-6), name


def test_few_rows_of_a_skewed_feature_never_give_a_mean_of_zero() -> None:
    rng = np.random.default_rng(5)

    def sample(n: int) -> tuple[Floats, Floats]:
        columns = np.column_stack((rng.normal(12, 4, n), rng.gamma(4, 200, n)))
        return columns, rng.normal(size=n) * (5 + 0.8 * np.clip(columns[:, 0], 0, 23))

    for _ in range(40):
        columns, errors = sample(200)
        squared = {"mse": RowLosses(errors**2, 2)}
        reference = LossReference.from_rows(columns, ["number", "number"], errors, squared)
        columns, errors = sample(500)
        assert mean_of(reference.estimate(columns), "mse").value > 0.25 * (errors**2).mean()


def test_units_of_the_target_scale_estimates_and_intervals() -> None:
    window = rows(3, 400, 0.5)[0]
    minutes, seconds = reference_of(1).estimate(window), reference_of(1, unit=60.0).estimate(window)
    for name, power in (("mae", 1), ("mse", 2), ("bias", 1), ("within", 0)):
        one, other = mean_of(minutes, name), mean_of(seconds, name)
        scale = 60.0**power
        expected = tuple(scale * each for each in (one.value, *one.interval(0.95)))
        assert (other.value, *other.interval(0.95)) == pytest.approx(expected, rel=1e-6), name


def test_joined_windows_have_the_error_of_their_reference_in_common() -> None:
    """The reference is alike for all windows, so its error stays; that of the windows' rows averages out."""
    reference = reference_of(1)
    pieces = [rows(seed, 400, 0.5)[0] for seed in range(10, 15)]
    together = reference.estimate(np.concatenate(pieces))
    for name in ("mae", "mse", "bias", "within"):
        each = [mean_of(reference.estimate(piece), name) for piece in pieces]
        pooled, whole = functools.reduce(MeanLoss.joined, each), mean_of(together, name)
        assert pooled.n == 2000
        assert pooled.value == pytest.approx(np.mean([one.value for one in each]))
        assert pooled.shared_variance == pytest.approx(whole.shared_variance, rel=0.25), name
        own = np.mean([one.variance - one.shared_variance for one in each])
        assert pooled.variance - pooled.shared_variance == pytest.approx(own / 5), name
        backwards = functools.reduce(MeanLoss.joined, each[::-1])
        assert (backwards.variance, backwards.third) == pytest.approx((pooled.variance, pooled.third))


def test_the_order_of_a_windows_rows_does_not_matter() -> None:
    window = rows(3, 300)[0]
    first, second = reference_of(1).estimate(window), reference_of(1).estimate(window[::-1])
    for name in first:
        one, other = mean_of(first, name), mean_of(second, name)
        assert one.interval(0.95) == pytest.approx(other.interval(0.95), rel=1e-9), name


def test_a_wider_level_gives_a_wider_interval_around_the_narrower_one() -> None:
    mean = mean_of(reference_of(1).estimate(rows(3, 300)[0]), "mse")
    narrow, wide = mean.interval(0.8), mean.interval(0.99)
    assert wide[0] < narrow[0] < mean.value < narrow[1] < wide[1]


def test_a_constant_loss_is_estimated_without_error() -> None:
    columns, errors = rows(1, 1000)
    losses = {"one": RowLosses(np.ones(1000), 0)}
    mean = mean_of(LossReference.from_rows(columns, KINDS, errors, losses).estimate(rows(2, 200)[0]), "one")
    assert mean.value == pytest.approx(1.0, abs=1e-4)
    assert mean.interval(0.95) == pytest.approx((1.0, 1.0), abs=1e-3)


def test_a_reference_without_an_error_expects_none() -> None:
    columns, _ = rows(1, 1000)
    none = np.zeros(1000)
    mean = mean_of(
        LossReference.from_rows(columns, KINDS, none, losses_of(none)).estimate(rows(2, 200)[0]), "mae"
    )
    assert (mean.value, *mean.interval(0.95)) == pytest.approx((0.0, 0.0, 0.0), abs=1e-9)


def test_an_outlier_of_the_reference_changes_the_estimate_little() -> None:
    window = rows(2, 500)[0]
    for seed in range(3, 8):
        columns, errors = rows(seed, 3000)
        columns[1234, 0] = 2.5
        clean = LossReference.from_rows(columns, KINDS, errors, losses_of(errors)).estimate(window)
        columns[1234, 0] *= 1000.0
        spoiled = LossReference.from_rows(columns, KINDS, errors, losses_of(errors)).estimate(window)
        for name, allowed in (("mae", 0.03), ("mse", 0.05), ("within", 0.03)):
            one, other = mean_of(clean, name), mean_of(spoiled, name)
            expected = (one.value, *one.interval(0.95))
            assert (other.value, *other.interval(0.95)) == pytest.approx(expected, rel=allowed), (seed, name)


def test_an_outlier_of_the_window_counts_as_the_limit_of_the_reference() -> None:
    columns, errors = rows(1, 3000)
    columns[1234, 0] = 1000.0
    reference = LossReference.from_rows(columns, KINDS, errors, losses_of(errors))
    near, far = rows(2, 500)[0], rows(2, 500)[0]
    near[7, 0], far[7, 0] = 10.0, 900.0
    one, other = reference.estimate(near), reference.estimate(far)
    for name in one:
        assert mean_of(other, name).value == pytest.approx(mean_of(one, name).value), name


def test_the_mean_of_a_loss_without_sign_is_not_below_zero() -> None:
    mean = MeanLoss(value=0.1, variance=1.0, third=0.0, n=100, least=0.0)
    assert mean.interval(0.95) == pytest.approx((0.0, 2.06), abs=0.001)
    columns, errors = rows(1, 2000)
    above = (columns[:, 0] > 1.0) * 1.0
    losses = {"share": RowLosses(above, 0), "signed": RowLosses(above, 0, signed=True)}
    window = rows(2, 200, -0.5)[0]
    window[:, 0] = np.clip(window[:, 0], -3.0, 0.5)
    results = LossReference.from_rows(columns, KINDS, errors, losses).estimate(window)
    share, signed = mean_of(results, "share"), mean_of(results, "signed")
    assert signed.interval(0.95)[0] < signed.value < 0.0
    assert (share.value, share.interval(0.95)[0]) == (0.0, 0.0)
    assert share.interval(0.95)[1] > signed.interval(0.95)[1] > 0.0


def test_rows_that_are_not_finite_are_left_out() -> None:
    columns, errors = rows(1, 1000)
    spoiled, spoiled_errors = np.vstack((columns, columns[:3])), np.append(errors, errors[:3])
    spoiled[1000, 0], spoiled[1001, 1], spoiled_errors[1002] = np.nan, np.inf, np.nan
    clean = LossReference.from_rows(columns, KINDS, errors, losses_of(errors))
    other = LossReference.from_rows(spoiled, KINDS, spoiled_errors, losses_of(spoiled_errors))
    assert len(other) == len(clean) == 1000
    window = rows(2, 200)[0]
    assert clean.estimate(window) == other.estimate(window)


def test_a_window_without_an_estimate_gives_the_reason() -> None:
    reference, window = reference_of(1), rows(2, 200)[0]
    missing, beyond, unseen = window.copy(), window + np.array([9.0, 0.0]), window.copy()
    missing[:20, 0], unseen[:, 1] = np.nan, 7.0
    cases = {
        "no rows": window[:0],
        "too few rows": window[:29],
        "features missing": missing,
        "features beyond the reference": beyond,
        "reference too unlike the window": window[:1] + np.zeros((200, 2)),
    }
    for reason, columns in cases.items():
        for result in reference.estimate(columns).values():
            assert isinstance(result, Unknown), (reason, result)
            assert result.reason == reason
    few = reference.estimate(window[:29])["mae"]
    assert isinstance(few, TooFew)
    assert few.n == 29
    assert {
        str(each.reason) for each in reference.estimate(unseen).values() if isinstance(each, Unknown)
    } == {"features beyond the reference"}


def test_a_window_may_have_a_few_rows_without_a_column() -> None:
    reference, window = reference_of(1), rows(2, 200)[0]
    window[:10, 0] = np.nan
    assert mean_of(reference.estimate(window), "mae").n == 190


def test_errors_name_the_shapes() -> None:
    columns, errors = rows(1, 500)
    losses = losses_of(errors)
    with pytest.raises(ValueError, match=r"^columns must have the shape \(500, 2\), a row for each error"):
        LossReference.from_rows(columns[:, :1], KINDS, errors, losses)
    with pytest.raises(ValueError, match=r"^the loss mae must have the shape \(500,\), got \(499,\)$"):
        LossReference.from_rows(columns, KINDS, errors, {"mae": RowLosses(errors[1:], 1)})
    with pytest.raises(
        ValueError, match=r"^the loss bias must be at least 0, got -[0-9.]+; give signed=True"
    ):
        LossReference.from_rows(columns, KINDS, errors, {"bias": RowLosses(errors, 1)})
    with pytest.raises(ValueError, match=r"^losses must have at least one entry, got none$"):
        LossReference.from_rows(columns, KINDS, errors, {})
    few = FEWEST_ROWS - 1
    with pytest.raises(ValueError, match=r"needs at least 200 rows of the reference .* got 199 of 199; give"):
        LossReference.from_rows(columns[:few], KINDS, errors[:few], losses_of(errors[:few]))
    with pytest.raises(ValueError, match=r"^columns must have the shape \(n, 2\), got \(500, 1\)$"):
        reference_of(1).estimate(columns[:, :1])


def test_a_linear_function_of_means_is_the_mean_of_the_combined_loss() -> None:
    columns, errors = rows(1, 2000)
    pair = {"size": RowLosses(np.abs(errors), 0, signed=True), "bias": RowLosses(errors, 0, signed=True)}
    combined = RowLosses(2 * np.abs(errors) - 3 * errors, 0, signed=True)
    reference = LossReference.from_rows(columns, KINDS, errors, pair | {"combined": combined})
    slopes = np.array([2.0, -3.0])
    linear = LossFunction(("size", "bias"), lambda means: (float(slopes @ means), slopes), Reason.NOT_DEFINED)
    results = reference.estimate(rows(2, 500, 0.5)[0], {"linear": linear})
    function, witness = mean_of(results, "linear"), mean_of(results, "combined")
    for name in ("value", "variance", "third", "n", "least"):
        assert getattr(function, name) == nearly(getattr(witness, name)), name


def test_a_function_that_is_not_defined_gives_its_reason_and_other_losses_stay() -> None:
    reference = reference_of(1)
    nowhere = LossFunction(("mae",), lambda means: (math.nan, np.full(1, math.nan)), Reason.LABELS_EQUAL)
    window = rows(2, 500)[0]
    results = reference.estimate(window, {"nowhere": nowhere})
    assert results["nowhere"] == Unknown(Reason.LABELS_EQUAL)
    assert results["mae"] == reference.estimate(window)["mae"]
    assert reference.estimate(window[:5], {"nowhere": nowhere})["nowhere"] == TooFew(Reason.TOO_FEW_ROWS, 5)
