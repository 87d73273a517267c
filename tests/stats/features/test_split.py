"""The split of a change over features: against slow witnesses, its laws, and what it refuses."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.integrate

from monitor.base.records import FeatureKind, Floats
from monitor.base.results import Reason
from monitor.stats.features import split as split_module
from monitor.stats.features.ratio import CROWDED, Ratio, RatioReference
from monitor.stats.features.split import FEWEST_ROWS, FEWEST_USABLE, FeatureSplit, SplitReference

KINDS: tuple[FeatureKind, ...] = ("number", "number", "text")
NAMES = ("hour", "distance", "segment")
REMAINDER = len(NAMES)


def draw(
    rng: np.random.Generator, n: int, moved: float = 0.0, shares: tuple[float, ...] = (0.5, 0.3, 0.2)
) -> Floats:
    """Draw two correlated numbers and a text."""
    hour = rng.normal(size=n) - moved
    distance = 0.6 * hour + 0.8 * rng.normal(size=n)
    return np.column_stack([hour, distance, 10.0 + rng.choice(len(shares), n, p=shares)])


def confidence(features: Floats) -> Floats:
    """The model does not use `distance`."""
    values: Floats = 0.8 + 0.1 * np.tanh(features[:, 0]) - 0.04 * (features[:, 2] - 10.0)
    return np.where(np.isfinite(values) & (features[:, 2] < 20.0), values, 0.55)


def prepared(features: Floats) -> SplitReference:
    return SplitReference.from_rows(features, KINDS, NAMES)


def split_of(before: Floats, now: Floats) -> FeatureSplit:
    return prepared(before).fit(now).split(confidence(before), confidence(now))


def fitted(before: Floats, now: Floats) -> Ratio:
    ratio = prepared(before).fit(now).ratio
    assert ratio is not None
    return ratio


def log_ratio(ratio: Ratio, feature: int, row: int) -> float:
    """g_j of one row, parameter by parameter."""
    total, first = 0.0, 1
    for block in ratio.blocks:
        if feature in block.features:
            total += ratio.share(feature, block) * float(ratio.at[first + block.place[row]])
        first += block.size
    return total


def test_the_parts_are_the_integral_of_the_covariance() -> None:
    rng = np.random.default_rng(0)
    before, now = draw(rng, 400), draw(rng, 300, 0.8, (0.2, 0.3, 0.5))
    ratio, terms = fitted(before, now), confidence(before)
    logs = np.array([[log_ratio(ratio, j, i) for i in range(400)] for j in range(3)])

    def covariance(t: float, j: int) -> float:
        weights = np.exp(t * logs.sum(axis=0))
        mean = np.average(terms, weights=weights)
        return float(np.average((terms - mean) * logs[j], weights=weights))

    slow = [scipy.integrate.quad(covariance, 0, 1, args=(j,), epsabs=1e-13)[0] for j in range(3)]
    assert split_of(before, now).parts == pytest.approx(slow, abs=1e-12)


@pytest.mark.parametrize("moved", [0.0, 0.5, 1.0, 1.4])
def test_the_parts_add_up_to_the_step_that_the_ratio_predicts(moved: float) -> None:
    rng = np.random.default_rng(1)
    before = draw(rng, 3000)
    now = draw(rng, 500, moved, (0.3, 0.3, 0.4)).clip(before.min(axis=0), before.max(axis=0))
    ratio, terms, split = fitted(before, now), confidence(before), split_of(before, now)
    logs = [sum(log_ratio(ratio, j, i) for j in range(3)) for i in range(3000)]
    predicted = np.average(terms, weights=np.exp(np.array(logs) - max(logs)))
    assert split.parts.sum() == pytest.approx(predicted - terms.mean(), abs=1e-9)
    assert split.parts.sum() + split.remainder == pytest.approx(split.change, abs=1e-15)
    assert split.change == pytest.approx(confidence(now).mean() - terms.mean())


def test_rows_that_lack_features_are_compared_with_those_that_have_all() -> None:
    rng = np.random.default_rng(2)
    before, now = draw(rng, 2000), draw(rng, 500)
    before[:20, 1], before[10:40, 0] = np.nan, np.nan
    now[:150, 0], now[100:200, 2] = np.nan, 99.0  # 99 is no category of the reference
    result = split_of(before, now)
    terms = confidence(before), confidence(now)
    slow = np.zeros((2, 3))
    for side, lacks in enumerate((~np.isfinite(before), ~np.isfinite(now) | (now == 99.0))):
        level = terms[side][[not row.any() for row in lacks]].mean()
        for row, term in zip(lacks, terms[side], strict=True):
            for j in range(3):
                slow[side, j] += row[j] * (term - level) / max(row.sum(), 1) / len(lacks)
    whole = np.isfinite(before).all(axis=1)
    alone = split_of(before[whole], now[200:])  # rows with all features: the same ratio
    assert result.parts == pytest.approx(alone.parts + slow[1] - slow[0], abs=1e-12)
    assert result.missing.tolist() == [0.3, 0.0, 0.0]
    assert result.unseen.tolist() == [0.0, 0.0, 0.2]
    assert result.reason is None
    assert result.named[0] == 0


def test_the_errors_are_those_of_the_delta_method_with_numeric_slopes() -> None:
    """For a small shift, where the middle of the path stands for all of it."""
    rng = np.random.default_rng(3)
    before, now = draw(rng, 1500), draw(rng, 400, 0.3)
    ratio, terms, result = fitted(before, now), confidence(before), split_of(before, now)
    step = 1e-5
    slopes = np.empty((len(ratio.at), 3))
    for p in range(len(ratio.at)):
        ends = []
        for sign in (1, -1):
            at = ratio.at.copy()
            at[p] += sign * step
            ends.append(split_module._along_path(replace(ratio, at=at), terms, 3)[0])
        slopes[p] = (ends[0] - ends[1]) / (2 * step)
    covariance = np.linalg.inv(np.triu(ratio.curvature) + np.triu(ratio.curvature, 1).T)
    logs = np.array([[log_ratio(ratio, j, i) for i in range(1500)] for j in range(3)])
    weights = np.exp(0.5 * logs.sum(axis=0))
    weights /= weights.sum()
    apart = weights * (terms - weights @ terms) * (logs - (logs @ weights)[:, None])
    scatter = ((apart - apart.sum(axis=1)[:, None] * weights) ** 2).sum(axis=1)
    slow = np.sqrt(np.diag(slopes.T @ covariance @ slopes) + scatter)
    assert result.errors == pytest.approx(slow, rel=0.03)


@pytest.mark.simulation
@pytest.mark.parametrize("moved", [0.0, 0.8])
def test_the_errors_are_the_scatter_of_the_parts_over_references_and_windows(moved: float) -> None:
    """200 pairs of samples; the standard deviation of a scatter of 200 is 5 % of it."""
    rng = np.random.default_rng(4)
    result = [split_of(draw(rng, 3000), draw(rng, 500, moved)) for _ in range(200)]
    scatter = np.std([each.parts for each in result], axis=0)
    claimed = np.sqrt(np.mean([each.errors**2 for each in result], axis=0))
    assert np.all((claimed / scatter > 0.8) & (claimed / scatter < 1.5)), claimed / scatter
    remainder = np.std([each.remainder for each in result])
    assert np.mean([each.remainder_error for each in result]) > 0.9 * remainder  # cautious


def test_the_errors_of_a_thinned_reference_are_those_of_all_its_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(16)
    before, now = draw(rng, 4000), draw(rng, 400, 0.5)
    thinned = split_of(before, now).errors
    monkeypatch.setattr(split_module, "_ERROR_ROWS", 4000)
    assert thinned == pytest.approx(split_of(before, now).errors, rel=0.1)


def test_a_feature_that_is_only_correlated_with_the_cause_has_no_part() -> None:
    rng = np.random.default_rng(5)
    result = split_of(draw(rng, 5000), draw(rng, 2000, 1.0))
    assert result.named == [0]
    assert abs(result.parts[1]) < 0.05 * abs(result.parts[0])


def test_other_scores_at_the_same_features_are_the_remainder() -> None:
    rng = np.random.default_rng(6)
    before, now = draw(rng, 5000), draw(rng, 500)
    result = prepared(before).fit(now).split(confidence(before), confidence(now) - 0.08)
    assert result.named == [REMAINDER]
    assert result.remainder == pytest.approx(-0.08, abs=0.01)


def test_a_window_without_change_names_nothing() -> None:
    rng = np.random.default_rng(7)
    assert split_of(draw(rng, 5000), draw(rng, 500)).named == []


def test_a_constant_term_has_no_change() -> None:
    rng = np.random.default_rng(8)
    before, now = draw(rng, 1000), draw(rng, 500, 1.0)
    result = prepared(before).fit(now).split(np.full(1000, 0.7), np.full(500, 0.7))
    assert result.parts == pytest.approx(np.zeros(3), abs=1e-15)
    assert result.named == []


def test_the_order_of_rows_and_features_does_not_matter() -> None:
    rng = np.random.default_rng(9)
    before, now = draw(rng, 2000), draw(rng, 500, 0.7, (0.2, 0.3, 0.5))
    result = split_of(before, now)
    shuffled = split_of(rng.permutation(before), rng.permutation(now))
    assert shuffled.parts == pytest.approx(result.parts, abs=1e-7)
    order = [2, 0, 1]
    swapped = SplitReference.from_rows(before[:, order], [KINDS[k] for k in order], list("abc"))
    parts = swapped.fit(now[:, order]).split(confidence(before), confidence(now)).parts
    assert parts == pytest.approx(result.parts[order], abs=1e-7)


@pytest.mark.parametrize(
    ("lost", "reason"), [(np.nan, Reason.FEATURES_MISSING), (1e6, Reason.FEATURES_UNSEEN)]
)
def test_a_window_without_usable_rows_names_the_feature_and_not_the_remainder(
    lost: float, reason: Reason
) -> None:
    rng = np.random.default_rng(10)
    before, now = draw(rng, 3000), draw(rng, 500)
    now[:460, 0] = lost
    result = prepared(before).fit(now).split(confidence(before), np.full(500, 0.6))
    assert result.reason is reason
    assert result.named == [0]
    assert result.parts.sum() + result.remainder == pytest.approx(result.change, abs=1e-15)


def test_a_window_of_few_rows_is_not_split() -> None:
    rng = np.random.default_rng(17)
    before, now = draw(rng, 1000), draw(rng, FEWEST_USABLE - 1, 1.0)
    result = split_of(before, now)
    assert result.reason is Reason.TOO_FEW_ROWS
    assert result.named == []


def test_a_window_unlike_the_reference_names_the_feature_that_is_crowded_most() -> None:
    rng = np.random.default_rng(11)
    before, now = draw(rng, 5000), draw(rng, 500)
    now[:, 0] = now[:, 0] / 3 - 3.0
    result = split_of(before, now)
    assert result.reason is Reason.NO_OVERLAP
    assert result.named == [0]


def test_crowded_values_are_those_of_bins_that_are_far_more_frequent() -> None:
    rng = np.random.default_rng(12)
    before, now = draw(rng, 1000), draw(rng, 200, 2.0, (0.1, 0.1, 0.8))
    now[0, 0], now[1, 2] = np.nan, 99.0
    reference = RatioReference.from_rows(before, KINDS)
    old, new = reference.crowded(now)
    for j, bins in enumerate(reference.bins):
        usable = np.isfinite(now[:, j]) & ~reference.unseen(now)[:, j]
        places = [int(each) for each in bins.parameters(now[usable, j])]
        for values, result in ((before[:, j], old[:, j]), (now[:, j], new[:, j])):
            for value, times in zip(values[:100], result[:100], strict=True):
                expected = 0.0
                if np.isfinite(value) and not bins.unseen(np.array([value]))[0]:
                    place = int(bins.parameters(np.array([value]))[0])
                    share = sum(each == place for each in places) / len(places)
                    expected = share / np.mean(reference.places[j] == place)
                assert times == pytest.approx(expected if expected > CROWDED else 0.0)


def test_a_pair_belongs_to_the_feature_that_moved() -> None:
    """The correlation of the numbers turns while one of them moves: the pair's share goes with the move."""
    rng = np.random.default_rng(13)
    before, now = draw(rng, 5000), draw(rng, 1000)
    now[:, 1] = rng.normal(size=1000)
    even = fitted(before, now)
    pairs = [block for block in even.blocks if len(block.features) == 2]
    assert [block.features for block in pairs] == [(0, 1)]
    assert even.share(0, pairs[0]) == pytest.approx(0.5, abs=0.35)
    now[:, 0] -= 0.7
    moved = fitted(before, now)
    [pair] = [block for block in moved.blocks if len(block.features) == 2]
    assert moved.share(0, pair) > 0.85
    assert moved.share(0, pair) + moved.share(1, pair) == pytest.approx(1.0)


def test_a_long_reference_is_thinned_and_takes_the_terms_of_all_its_rows() -> None:
    rng = np.random.default_rng(14)
    before, now = draw(rng, 3000), draw(rng, 500, 0.8)
    thinned = SplitReference.from_rows(before, KINDS, NAMES, most_rows=1000)
    assert thinned.rows.tolist() == list(range(0, 3000, 3))
    assert thinned.fit(now).split(confidence(before), confidence(now)).parts == pytest.approx(
        split_of(before[::3], now).parts
    )


def test_what_cannot_be_split_is_refused() -> None:
    rng = np.random.default_rng(15)
    features = draw(rng, 1000)
    with pytest.raises(ValueError, match=r"got the shape \(1000, 3\), 2 names and 3 kinds"):
        SplitReference.from_rows(features, KINDS, NAMES[:2])
    lost = features.copy()
    lost[FEWEST_ROWS - 1 :, 1] = np.nan
    with pytest.raises(ValueError, match=r"needs at least 200 rows .* got 199 of 1,000 .*distance 199"):
        prepared(lost)
    reference = prepared(features)
    with pytest.raises(ValueError, match=r"shape \(n, 3\), a column for each of hour, distance, segment"):
        reference.fit(features[:, :2])
    with pytest.raises(ValueError, match=r"at least one row, got \(0, 3\)"):
        reference.fit(features[:0])
    with pytest.raises(ValueError, match=r"of the reference \(1,000 or more\) .* got 10 and 1,000"):
        reference.fit(features).split(np.ones(10), np.ones(1000))
