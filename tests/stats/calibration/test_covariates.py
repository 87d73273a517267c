"""The calibration weighted by features: against slow witnesses, its laws, and what it refuses."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import scipy.optimize
from sklearn.linear_model import LogisticRegression

from monitor.base.records import Floats, Ints
from monitor.base.results import Reason
from monitor.stats.calibration import covariates
from monitor.stats.calibration.base import confidence_of
from monitor.stats.calibration.covariates import (
    FEWEST_ROWS,
    Adapted,
    CovariateReference,
    CovariatesCalibration,
)
from monitor.stats.calibration.isotonic import IsotonicCalibrator
from monitor.stats.estimate.predictive import Predictive
from monitor.stats.estimate.predictive_fit import fit_predictive
from monitor.stats.features import ratio

Rows = tuple[Floats, Ints, Ints, Floats]
"""Scores of two classes, predicted, labels, features: two numbers and a text."""

KINDS: Any = ("number", "number", "text")
NAMES = ("age", "income", "segment")


def draw(
    rng: np.random.Generator,
    n: int,
    shares: tuple[float, ...] = (0.5, 0.3, 0.2),
    mean: float = 0.0,
    correlation: float = 0.0,
) -> Rows:
    """Return a score that does not see what segments and products of the numbers do."""
    segment = rng.choice(len(shares), n, p=shares)
    numbers = rng.standard_normal((n, 2))
    numbers[:, 1] = correlation * numbers[:, 0] + np.sqrt(1 - correlation**2) * numbers[:, 1]
    numbers[:, 0] += mean
    logit = numbers[:, 0] + np.array([1.0, 0.0, -2.0])[segment % 3] + 0.5 * numbers[:, 0] * numbers[:, 1]
    labels = (rng.random(n) < 1 / (1 + np.exp(-logit))).astype(np.int64)
    score = 1 / (1 + np.exp(-numbers[:, 0]))
    scores = np.column_stack((1 - score, score))
    return scores, (score > 0.5).astype(np.int64), labels, np.column_stack((numbers, 100.0 + 7 * segment))


def reference_of(rows: Rows) -> CovariateReference:
    return CovariateReference.from_rows(*rows, KINDS, NAMES)


def accuracy(adapted: Adapted, rows: Rows) -> float:
    assert adapted.calibration is not None
    return float(confidence_of(adapted.calibration.apply(rows[0]), rows[1]).mean())


def realised(rows: Rows) -> float:
    return float((rows[1] == rows[2]).mean())


def test_weights_are_the_exact_ratio_of_a_discrete_distribution() -> None:
    rng = np.random.default_rng(0)
    old, new = np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.2, 0.6])
    before, after = rng.choice(3, 10_000, p=old), rng.choice(3, 50_000, p=new)
    wrong = rng.integers(0, 2, 10_000)
    reference = CovariateReference.from_rows(
        np.full((10_000, 1), 0.5), 0 * wrong, wrong, before[:, None] * 1.0, ["text"], ["a"]
    )
    adapted = reference.adapt(after[:, None] * 1.0)
    np.testing.assert_allclose(adapted.weights, (new / old)[before], rtol=0.05)
    kish = 10_000 / float((new**2 / old).sum())
    assert adapted.effective == pytest.approx(kish, rel=0.05)


def test_the_fit_is_that_of_scikit_learn_on_the_same_design() -> None:
    rng = np.random.default_rng(1)
    before, after = rng.integers(0, 5, (800, 2)), rng.choice(5, (300, 2), p=[0.1, 0.1, 0.2, 0.2, 0.4])
    wrong = rng.integers(0, 2, 800)
    reference = CovariateReference.from_rows(
        np.full((800, 1), 0.5), 0 * wrong, wrong, before * 1.0, ["text"] * 2, ["a", "b"]
    )
    adapted = reference.adapt(after * 1.0)
    design = np.concatenate([np.eye(5)[np.concatenate([before, after])[:, k]] for k in range(2)], axis=1)
    window = np.repeat([0, 1], [800, 300])
    theirs = LogisticRegression(C=1 / ratio._CATEGORY, tol=1e-10, max_iter=10_000).fit(design, window)
    weights = np.exp(theirs.decision_function(design[:800]))
    np.testing.assert_allclose(adapted.weights, weights / weights.mean(), rtol=1e-3)


def test_the_fit_with_numbers_and_pairs_is_the_minimum_of_the_objective() -> None:
    rng = np.random.default_rng(2)
    reference = reference_of(draw(rng, 600))
    features = draw(rng, 400, (0.2, 0.3, 0.5), 0.5, 0.8)[3]
    n, parts = len(features), reference._ratio.bins
    places = [
        np.append(place, part.parameters(features[:, k]))
        for k, (place, part) in enumerate(zip(reference._ratio.places, parts, strict=True))
    ]
    blocks = [
        ratio.ParameterGroup((k,), place, part.size, part.prior())
        for k, (place, part) in enumerate(zip(places, parts, strict=True))
    ]
    pair = parts[0].coarse[places[0]] * 4 + parts[1].coarse[places[1]]
    blocks.append(ratio.ParameterGroup((0, 1), pair, 16, ratio._PAIR * np.eye(16)))
    design = np.concatenate([np.eye(block.size)[block.place] for block in blocks], axis=1)
    prior = np.zeros((design.shape[1],) * 2)
    first = 0
    for block in blocks:
        prior[first : first + block.size, first : first + block.size] = block.prior
        first += block.size

    def objective(at: Floats) -> tuple[float, Floats]:
        line = at[0] + design @ at[1:]
        residual = 1 / (1 + np.exp(-line))
        residual[-n:] -= 1
        value = np.logaddexp(0, line).sum() - line[-n:].sum() + at[1:] @ prior @ at[1:] / 2
        return float(value), np.append(residual.sum(), design.T @ residual + prior @ at[1:])

    slow = scipy.optimize.minimize(
        objective, np.zeros(len(prior) + 1), jac=True, options={"gtol": 1e-6, "maxiter": 5000}
    )
    line = ratio._line(blocks, ratio._Regression(blocks, n).fit()[0])
    np.testing.assert_allclose(line, slow.x[0] + design @ slow.x[1:], atol=1e-3)


@pytest.mark.parametrize("n", [50, 1000])
def test_without_a_shift_nothing_changes(n: int) -> None:
    rng = np.random.default_rng(3)
    rows = draw(rng, 5000)
    reference, plain = reference_of(rows), IsotonicCalibrator().fit(*rows[:3])
    effective = []
    for _ in range(10):
        window = draw(rng, n)
        adapted = reference.adapt(window[3])
        effective.append(adapted.effective)
        before = float(confidence_of(plain.apply(window[0]), window[1]).mean())
        assert accuracy(adapted, window) == pytest.approx(before, abs=0.03 if n < 1000 else 0.01)
    assert np.mean(effective) > 0.85 * len(reference)


@pytest.mark.parametrize("shares", [(0.5, 0.5), (0.1, 0.9)])
@pytest.mark.parametrize("correlation", [0.0, 0.8])
def test_a_shift_that_the_score_does_not_show_is_followed(
    shares: tuple[float, float], correlation: float
) -> None:
    """Right answers depend on the segment and on whether two numbers have one sign; the score is noise."""

    def stream(n: int, shares: tuple[float, float], correlation: float) -> tuple[Floats, Ints, Floats]:
        covariance = np.array([[1.0, correlation], [correlation, 1.0]])
        numbers = rng.multivariate_normal(np.zeros(2), covariance, n)
        segment = rng.choice(2, n, p=shares)
        chance = 0.45 + 0.25 * segment + 0.25 * (numbers.prod(axis=1) > 0)
        return rng.random((n, 1)), (rng.random(n) > chance) * 1, np.column_stack((numbers, segment))

    rng = np.random.default_rng(4)
    scores, wrong, features = stream(10_000, (0.5, 0.5), 0.0)
    reference = CovariateReference.from_rows(scores, 0 * wrong, wrong, features, KINDS, NAMES)
    scores, wrong, features = stream(4000, shares, correlation)
    calibration = reference.adapt(features).calibration
    assert calibration is not None
    sd = 0.5 * np.sqrt(1 / 4000 + 1 / calibration.effective)
    assert calibration.apply(scores).mean() == pytest.approx(1 - wrong.mean(), abs=3 * sd)


def test_a_segment_that_is_worse_than_a_coin_near_the_threshold_is_not_flattened() -> None:
    """An answer of segment 1 is right 25 points less often at each confidence: P(class 1) falls at 0.5."""
    rng = np.random.default_rng(22)

    def stream(n: int, share: float) -> Rows:
        segment = (rng.random(n) < share) * 1.0
        confidence, predicted = rng.uniform(0.5, 1.0, n), rng.integers(0, 2, n)
        labels = np.where(rng.random(n) < confidence - 0.25 * segment, predicted, 1 - predicted)
        score = np.where(predicted == 1, confidence, 1 - confidence)
        return np.column_stack((1 - score, score)), predicted, labels, segment[:, None]

    reference = CovariateReference.from_rows(*stream(5000, 0.3), ["text"], ["segment"])
    windows = [stream(250, 0.9) for _ in range(40)]
    apart = [accuracy(reference.adapt(window[3]), window) - realised(window) for window in windows]
    assert np.mean(apart) == pytest.approx(0.0, abs=3 * 0.5 * np.sqrt(1 / 10_000 + 1 / 1800))
    plain = [confidence_of(reference_plain(reference, w), w[1]).mean() - realised(w) for w in windows]
    assert np.mean(plain) > 0.1


def reference_plain(reference: CovariateReference, window: Rows) -> Floats:
    """Return the window's scores by an isotonic calibration on the reference's rows."""
    rows = reference.scores, reference.predicted, reference.labels
    return IsotonicCalibrator().fit(*rows).apply(window[0])


def test_classes_that_no_threshold_tells_apart_share_one_rising_curve() -> None:
    rng = np.random.default_rng(23)
    scores, predicted, labels, features = draw(rng, 1000)
    mixed = rng.permutation(predicted)
    apart, one = (
        CovariateReference.from_rows(scores, each, labels, features, KINDS, NAMES).adapt(features).calibration
        for each in (predicted, mixed)
    )
    assert apart is not None
    assert one is not None
    plain = IsotonicCalibrator().fit(scores, mixed, labels)
    np.testing.assert_allclose(one.apply(scores), plain.apply(scores), atol=0.02)
    for low, high in ((0.0, 0.5), (0.5, 1.0)):
        inside = (apart.curves[0].x > low) & (apart.curves[0].x < high)
        assert (np.diff(apart.curves[0].y[inside]) >= 0).all()


def test_the_order_of_rows_does_not_matter() -> None:
    rng = np.random.default_rng(5)
    rows, window = draw(rng, 1500), draw(rng, 500, (0.2, 0.2, 0.6), 0.4)
    first, mixed, turned = reference_of(rows).adapt(window[3]), rng.permutation(1500), rng.permutation(500)
    second = reference_of(tuple(each[mixed] for each in rows)).adapt(window[3][turned])  # type: ignore[arg-type]
    np.testing.assert_allclose(second.weights, first.weights[mixed], rtol=1e-9)
    assert accuracy(second, window) == pytest.approx(accuracy(first, window), abs=1e-12)


def test_what_stands_for_a_text_does_not_matter() -> None:
    rng = np.random.default_rng(6)
    rows, window = draw(rng, 1500), draw(rng, 500, (0.2, 0.2, 0.6))
    first = reference_of(rows).adapt(window[3])
    codes = {100.0: 2.0**51 - 3, 107.0: 11.0, 114.0: 2.0**40}
    renamed = [np.column_stack((f[:, :2], [codes[one] for one in f[:, 2]])) for f in (rows[3], window[3])]
    second = CovariateReference.from_rows(*rows[:3], renamed[0], KINDS, NAMES).adapt(renamed[1])
    np.testing.assert_allclose(second.weights, first.weights, rtol=1e-6)


def test_inputs_stay_and_snapshots_return() -> None:
    rng = np.random.default_rng(7)
    rows, window = draw(rng, 1000), draw(rng, 200)
    before = [each.copy() for each in (*rows, window[3])]
    calibration = reference_of(rows).adapt(window[3]).calibration
    assert all(np.array_equal(a, b) for a, b in zip(before, (*rows, window[3]), strict=True))
    assert calibration is not None
    again = CovariatesCalibration.from_snapshot(calibration.snapshot())
    assert again.snapshot() == calibration.snapshot()
    assert np.array_equal(again.apply(window[0]), calibration.apply(window[0]))


def spoilt(features: Floats, rows: slice, column: int, value: float) -> Floats:
    changed = features.copy()
    changed[rows, column] = value
    return changed


@pytest.mark.parametrize(
    ("column", "value", "reason"),
    [
        (0, np.nan, Reason.FEATURES_MISSING),
        (1, np.inf, Reason.FEATURES_MISSING),
        (2, np.nan, Reason.FEATURES_MISSING),
        (0, 99.0, Reason.FEATURES_UNSEEN),
        (0, -99.0, Reason.FEATURES_UNSEEN),
        (2, 101.0, Reason.FEATURES_UNSEEN),
        (2, 1e15, Reason.FEATURES_UNSEEN),
    ],
)
def test_rows_that_say_nothing_are_counted_and_too_many_leave_it_unknown(
    column: int, value: float, reason: Reason
) -> None:
    rng = np.random.default_rng(8)
    reference, window = reference_of(draw(rng, 1000)), draw(rng, 200)[3]
    few = reference.adapt(spoilt(window, slice(0, 10), column, value))
    many = reference.adapt(spoilt(window, slice(0, 11), column, value))
    assert (few.reason, many.reason) == (None, reason)
    assert few.calibration is not None
    assert many.calibration is None
    for adapted, rows in ((few, 10), (many, 11)):
        counted = [0, 0, 0]
        counted[column] = rows
        of_reason = reason == Reason.FEATURES_MISSING
        assert (adapted.missing if of_reason else adapted.unseen).tolist() == counted
        assert not (adapted.unseen if of_reason else adapted.missing).any()
    without = reference.adapt(window[10:])
    np.testing.assert_allclose(few.weights, without.weights, rtol=1e-9)
    assert np.array_equal(many.weights, np.ones(1000))


def test_a_window_unlike_the_reference_is_unknown() -> None:
    rng = np.random.default_rng(9)
    reference = reference_of(draw(rng, 1000, (0.6, 0.39, 0.01)))
    adapted = reference.adapt(draw(rng, 1000, (0.0, 0.0, 1.0), 1.5)[3])
    assert adapted.reason == Reason.NO_OVERLAP
    assert adapted.calibration is None
    assert adapted.effective < ratio.FEWEST_EFFECTIVE
    assert adapted.effective == pytest.approx(adapted.weights.sum() ** 2 / (adapted.weights**2).sum())


def test_weights_that_leave_a_number_apart_are_refused_whatever_their_effective_size() -> None:
    rng = np.random.default_rng(21)
    reference, window = reference_of(draw(rng, 5000)), draw(rng, 1000, mean=2.6)[3]
    adapted = reference.adapt(window[window[:, 0] < 3.5])
    assert adapted.effective > ratio.FEWEST_EFFECTIVE
    assert adapted.reason == Reason.NO_OVERLAP
    assert reference.adapt(draw(rng, 1000, mean=1.0)[3]).reason is None


def test_an_empty_window_is_unknown_and_one_row_is_not() -> None:
    rng = np.random.default_rng(10)
    reference = reference_of(draw(rng, 1000))
    assert reference.adapt(np.zeros((0, 3))).reason == Reason.NO_ROWS
    assert reference.adapt(draw(rng, 1)[3]).effective > 900


def test_a_constant_feature_and_a_window_of_one_value() -> None:
    rng = np.random.default_rng(11)
    rows = draw(rng, 1000)
    constant = CovariateReference.from_rows(*rows[:3], np.ones((1000, 1)), ["number"], ["a"])
    assert constant.adapt(np.ones((50, 1))).weights == pytest.approx(np.ones(1000))
    one = CovariateReference.from_rows(*rows[:3], rows[3][:, 2:], ["text"], ["a"]).adapt(
        np.full((3000, 1), 107.0)
    )
    assert one.weights[rows[3][:, 2] == 107.0].sum() > 0.98 * 1000


def test_more_categories_than_parameters_share_one() -> None:
    rng = np.random.default_rng(12)
    codes = np.append(np.repeat(np.arange(60.0), 10), np.arange(60.0, 300.0))
    wrong = rng.integers(0, 2, len(codes))
    reference = CovariateReference.from_rows(
        np.full((len(codes), 1), 0.5), 0 * wrong, wrong, codes[:, None], ["text"], ["user"]
    )
    adapted = reference.adapt(np.arange(100.0, 300.0)[:, None])
    assert not adapted.unseen.any()
    rare = codes >= 60
    assert np.ptp(adapted.weights[rare]) == pytest.approx(0.0, abs=1e-9)
    assert adapted.weights[rare].mean() > 1.5


def test_rows_without_a_feature_are_left_out_of_the_reference() -> None:
    rng = np.random.default_rng(13)
    rows = draw(rng, 1000)
    reference = CovariateReference.from_rows(
        *rows[:3], spoilt(rows[3], slice(0, 100), 1, np.nan), KINDS, NAMES
    )
    assert (reference.left_out, len(reference)) == (100, 900)
    assert np.array_equal(reference.labels, rows[2][100:])


def test_of_a_long_reference_evenly_spread_rows_are_used() -> None:
    rng = np.random.default_rng(14)
    rows = draw(rng, 1000)
    reference = CovariateReference.from_rows(*rows, KINDS, NAMES, most_rows=250)
    assert np.array_equal(reference.scores, rows[0][::4])
    assert len(reference.adapt(draw(rng, 100)[3]).weights) == 250


@pytest.mark.parametrize("width", [1, 3])
def test_confidences_and_three_classes(width: int) -> None:
    rng = np.random.default_rng(15)
    n = 3000
    segment = rng.integers(0, 2, n).astype(float)
    scores = rng.dirichlet((1.0,) * 3, n) if width == 3 else rng.random((n, 1))
    predicted = scores.argmax(axis=1) if width == 3 else np.zeros(n, dtype=np.int64)
    right = rng.random(n) < np.where(segment == 0, 0.9, 0.4)
    other = 1 if width == 1 else (predicted + rng.integers(1, 3, n)) % 3
    labels = np.where(right, predicted, other)
    reference = CovariateReference.from_rows(
        scores, predicted, labels, segment[:, None], ["text"], ["segment"]
    )
    for value, truth in ((0.0, 0.9), (1.0, 0.4)):
        calibration = reference.adapt(np.full((1000, 1), value)).calibration
        assert calibration is not None
        calibrated = calibration.apply(scores)
        assert calibrated.shape == (n, width)
        assert confidence_of(calibrated, predicted).mean() == pytest.approx(
            truth, abs=0.06 if width == 1 else 0.1
        )


def test_no_weight_is_above_the_root_of_the_rows() -> None:
    weights = ratio._as_weights(np.append(np.zeros(9_999), 50.0))
    assert weights.mean() == pytest.approx(1.0)
    assert weights[-1] <= 100.0 / (100.0 / 10_000)
    assert ratio._as_weights(np.log([1.0, 3.0])).tolist() == pytest.approx([0.5, 1.5], abs=0.1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"names": (), "kinds": ()}, "at least one feature, got none; name them in `features`"),
        ({"kinds": ("number", "text")}, "kinds must have one entry for each of the 3 names, got 2"),
        (
            {"kinds": ("number", "number", "word")},
            "kind of feature segment must be number or text, got 'word'",
        ),
        (
            {"features": np.zeros((5, 3))},
            "features must have the shape (400, 3), a row for each row of scores",
        ),
        (
            {"features": np.full((400, 3), np.nan)},
            f"at least {FEWEST_ROWS} rows of the reference with all features, got 0 of 400 (rows that "
            "have each: age 0, income 0, segment 0); give a longer reference, or take the features that it "
            "lacks out of the configuration",
        ),
        ({"labels": np.zeros(400, dtype=np.int64)}, "needs at least two different outcomes, got 400 rows"),
        ({"labels": np.zeros(3, dtype=np.int64)}, "labels must have the shape (400,)"),
    ],
)
def test_what_allows_no_reference_is_refused_by_name(change: dict[str, Any], message: str) -> None:
    rows = draw(np.random.default_rng(16), 400)
    arguments: dict[str, Any] = {
        **dict(zip(("scores", "predicted", "labels", "features"), rows, strict=True)),
        "kinds": KINDS,
        "names": NAMES,
        **change,
    }
    with pytest.raises(ValueError, match=re.escape(message)):
        CovariateReference.from_rows(**arguments)


def test_a_window_with_other_columns_is_refused() -> None:
    reference = reference_of(draw(np.random.default_rng(17), 400))
    message = "features must have the shape (n, 3), a column for each of age, income, segment, got (5, 2)"
    with pytest.raises(ValueError, match=re.escape(message)):
        reference.adapt(np.zeros((5, 2)))


def model_of(rows: Rows) -> Predictive:
    return fit_predictive(IsotonicCalibrator(), *rows[:3])


def spread(adapted: Adapted, reference: CovariateReference, base: Predictive, rows: Rows) -> float:
    """Return standard error of the window's accuracy from the calibration alone."""
    assert adapted.calibration is not None
    model = adapted.predictive(base, reference, 3)
    assert (model.number, model.components) == (3, base.components)
    alone = Predictive(model.edges, model.directions, None, model.strata)
    return alone.variance(confidence_of(adapted.calibration.apply(rows[0]), rows[1]), None, rows[1]) ** 0.5


def test_the_calibrations_error_grows_as_the_effective_size_falls() -> None:
    rng = np.random.default_rng(18)
    rows = draw(rng, 2000)
    reference, base = reference_of(rows), model_of(rows)
    errors = []
    for shares in ((0.5, 0.3, 0.2), (0.1, 0.2, 0.7), (0.02, 0.08, 0.9)):
        window = draw(rng, 2000, shares)
        adapted = reference.adapt(window[3])
        errors.append(spread(adapted, reference, base, window))
        claimed = confidence_of(adapted.calibration.apply(window[0]), window[1])  # type: ignore[union-attr]
        binomial = np.sqrt((claimed * (1 - claimed)).mean() / adapted.effective)
        assert errors[-1] == pytest.approx(binomial, rel=0.2)
    assert errors[0] < errors[1] < errors[2]


def test_errors_of_windows_with_one_number_add_up() -> None:
    rng = np.random.default_rng(19)
    rows = draw(rng, 2000)
    reference, base = reference_of(rows), model_of(rows)
    shapes, exposures = set(), []
    for mean in (0.0, 0.6):
        window = draw(rng, 1000, mean=mean)
        adapted = reference.adapt(window[3])
        assert adapted.calibration is not None
        model = adapted.predictive(base, reference, 3)
        shapes.add(model.directions.shape[0])
        claimed = confidence_of(adapted.calibration.apply(window[0]), window[1])
        exposures.append(model.exposure(model.place(claimed, window[1])))
    assert len(shapes) == 1
    alone = [float(one.along @ one.along) for one in exposures]
    together = exposures[0].along + exposures[1].along
    assert float(together @ together) / 4 > 0.8 * min(alone)


def test_an_unknown_calibration_has_no_error() -> None:
    rng = np.random.default_rng(20)
    rows = draw(rng, 400)
    reference = reference_of(rows)
    adapted = reference.adapt(np.full((10, 3), np.nan))
    with pytest.raises(
        ValueError, match=r"the window has no calibration \(features missing\), so it has no error"
    ):
        adapted.predictive(model_of(rows), reference, 1)


def test_bins_that_a_flat_curve_joins_keep_each_its_error() -> None:
    raw = np.arange(1000.0)
    confidence = np.repeat([0.2, 0.8], [900, 100])
    edges, error = covariates._bin_errors(raw, confidence, np.ones(1000), 10)
    assert edges.tolist() == [0.2, 0.8]
    assert error.shape == (10, 3)
    assert (error**2).sum(axis=0) == pytest.approx([0.0, 0.16 / 900, 0.16 / 100], rel=0.02)
    assert error[:, 1] == pytest.approx(np.append(np.full(9, np.sqrt(0.16 * 100) / 900), 0.0), rel=0.02)
