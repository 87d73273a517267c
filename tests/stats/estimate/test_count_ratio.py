"""The distribution of a ratio of counts, beside the whole joint grid and drawn counts."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor import CountRatio, PoissonBinomial, TrimmedPmf, trim, trimmed_pmf_many
from monitor.base.records import Floats
from monitor.stats.estimate import count_ratio as module
from monitor.stats.estimate.count_ratio import mirrored, nothing

chances = st.lists(st.sampled_from([0.0, 0.05, 0.3, 0.5, 0.9, 1.0]), max_size=7)
KINDS = {"precision": (1, 0), "recall": (1, 1), "f1": (2, 1)}


def count(p: list[float] | Floats) -> TrimmedPmf:
    return trim(PoissonBinomial(p).pmf) if len(p) else nothing()


def ratio(kind: str, flagged: list[float], missed: list[float]) -> CountRatio:
    weight, own = KINDS[kind]
    rest = count(missed) if own else nothing()
    fixed = 0 if kind == "recall" else len(flagged)
    return CountRatio(count(flagged), rest, weight, own, fixed, len(flagged) + len(missed))


def grid(of: CountRatio) -> tuple[Floats, Floats, float]:
    """Return every value in order, its mass, and the mass that is undefined: the slow witness."""
    hits = of.hits.offset + np.arange(len(of.hits.mass))[:, None]
    rest = of.rest.offset + np.arange(len(of.rest.mass))[None, :]
    below = of.own * hits + rest + of.fixed
    mass = np.outer(of.hits.mass, of.rest.mass)
    known = below > 0
    values = np.broadcast_to(of.weight * hits, below.shape)[known] / below[known]
    order = np.argsort(values, kind="stable")
    return values[order], mass[known][order], float(mass[~known].sum())


@pytest.mark.parametrize("kind", KINDS)
@given(flagged=chances, missed=chances, level=st.sampled_from([0.1, 0.5, 0.8, 0.95]))
def test_quantiles_are_those_of_the_joint_grid(
    kind: str, flagged: list[float], missed: list[float], level: float
) -> None:
    of = ratio(kind, flagged, missed)
    values, mass, undefined = grid(of)
    assert of.undefined == pytest.approx(undefined, abs=1e-13)
    if undefined > 1 - 1e-9:
        return
    cdf = np.cumsum(mass) / (1 - undefined)
    ends = [
        values[min(np.searchsorted(cdf, q - 1e-12), len(values) - 1)]
        for q in ((1 - level) / 2, (1 + level) / 2)
    ]
    assert of.interval(level) == pytest.approx(tuple(ends), abs=1e-12)
    inside = (values >= ends[0] - 1e-12) & (values <= ends[1] + 1e-12)
    assert of.holds(*of.interval(level)) == pytest.approx(mass[inside].sum() / (1 - undefined), abs=1e-11)


@pytest.mark.parametrize("kind", KINDS)
def test_a_large_grid_is_cut_down_before_it_is_sorted(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    of = ratio(kind, rng.beta(3, 1, 300).tolist(), rng.beta(1, 9, 700).tolist())
    whole = of.interval(0.95)
    monkeypatch.setattr(module, "_FEW_CELLS", 0.02)
    assert of.interval(0.95) == whole
    values, mass, _ = grid(of)
    cdf = np.cumsum(mass)
    assert whole == pytest.approx(tuple(values[np.searchsorted(cdf, q)] for q in (0.025, 0.975)))


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_value_standard_error_and_interval_agree_with_drawn_counts(kind: str) -> None:
    rng = np.random.default_rng(2)
    flagged, missed = rng.beta(3, 1, 900), rng.beta(1, 9, 1100)
    of = ratio(kind, flagged.tolist(), missed.tolist())
    hits = (rng.random((20_000, 900), np.float32) < flagged).sum(axis=1)
    rest = (rng.random((20_000, 1100), np.float32) < missed).sum(axis=1) * of.own
    ratios = of.weight * hits / (of.own * hits + rest + of.fixed)
    sd = ratios.std()
    assert abs(of.value - ratios.mean()) < 4 * sd / np.sqrt(20_000) + sd**2  # a ratio of means: O(1/n) off
    assert of.standard_error == pytest.approx(sd, rel=0.03)  # a drawn sd has a relative error of 0.5 %
    # A drawn 2.5 % quantile of 20,000 has a standard error of 0.019 sd.
    assert of.interval(0.95) == pytest.approx(tuple(np.quantile(ratios, [0.025, 0.975])), abs=0.08 * sd)


def test_pooling_convolves_both_counts() -> None:
    rng = np.random.default_rng(3)
    windows = [ratio("recall", rng.random(9).tolist(), rng.random(8).tolist()) for _ in range(2)]
    both = windows[0].convolve(windows[1])
    hits = np.convolve(windows[0].hits.mass, windows[1].hits.mass)
    assert both.hits.mass == pytest.approx(hits, abs=1e-14)
    assert (both.rows, both.fixed, both.rest.n) == (34, 0, 16)
    with pytest.raises(ValueError, match="pools with the same kind only, got weight 2 and own 1"):
        windows[0].convolve(ratio("f1", [0.5], [0.5]))


def test_the_trials_that_fail() -> None:
    chance = np.random.default_rng(4).random(30)
    other = mirrored(count(chance))
    assert (other.offset, other.n) == (count(1 - chance).offset, 30)
    assert other.mass == pytest.approx(count(1 - chance).mass, abs=1e-13)


def test_a_surely_undefined_ratio_has_no_interval() -> None:
    empty = ratio("precision", [], [0.5])
    assert (empty.undefined, empty.value, empty.standard_error) == (1.0, 0.0, 0.0)
    with pytest.raises(ValueError, match="the ratio has no interval, as its denominator is certainly 0"):
        empty.interval(0.95)


@pytest.mark.parametrize(
    ("weight", "own", "fixed", "message"),
    [
        (3, 1, 9, "weight must be 1 or 2 and own 0 or 1, got 3 and 1"),
        (1, 0, 1, r"fixed must be at least \(weight − own\)·hits.n = 2, or the ratio could exceed 1, got 1"),
    ],
)
def test_what_is_no_ratio_is_refused(weight: int, own: int, fixed: int, message: str) -> None:
    hits = trimmed_pmf_many([[0.5, 0.5]])[0]
    with pytest.raises(ValueError, match=message):
        CountRatio(hits, nothing(), weight, own, fixed, 2)
