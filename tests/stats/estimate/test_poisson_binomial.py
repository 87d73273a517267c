"""The Poisson binomial against four witnesses, and its laws."""

from __future__ import annotations

from functools import reduce
from itertools import product

import numpy as np
import pytest
import scipy.fft
import scipy.signal
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from monitor import PoissonBinomial, TrimmedPmf, pmf_many, trim, trimmed_pmf_many
from monitor.base.records import Floats
from monitor.stats.estimate._convolution import BLOCK, GROUP, convolve, fast_length, fold_many
from tests.examples import examples

EXACT = 1e-14  # the promise of the docstring
CHANCE = st.one_of(st.sampled_from([0.0, 0.5, 1.0]), st.floats(0.0, 1.0))
CHANCES = arrays(np.float64, st.integers(0, 40), elements=CHANCE)


def by_enumeration(p: Floats) -> Floats:
    """Return every outcome of n trials, one by one."""
    pmf = np.zeros(len(p) + 1)
    for outcome in product((0, 1), repeat=len(p)):
        pmf[sum(outcome)] += np.prod([x if hit else 1 - x for x, hit in zip(p, outcome, strict=True)])
    return pmf


def by_convolution(p: Floats) -> Floats:
    """Return one trial after the other."""
    return reduce(lambda pmf, x: np.convolve(pmf, [1 - x, x]), p, np.ones(1))


def chances(kind: str, n: int) -> Floats:
    rng = np.random.default_rng(n)
    return {
        "confident": lambda: rng.beta(20, 1, n),
        "uniform": lambda: rng.random(n),
        "fair": lambda: np.full(n, 0.5),
        "certain": lambda: (rng.random(n) < 0.5).astype(float),
        "rare": lambda: rng.beta(1, 200, n),
        "extreme": lambda: rng.beta(0.01, 0.01, n),
    }[kind]()


KINDS = ["confident", "uniform", "fair", "certain", "rare", "extreme"]


@pytest.mark.parametrize("n", range(13))
def test_equals_the_enumeration_of_all_outcomes(n: int) -> None:
    p = np.random.default_rng(n).random(n)
    np.testing.assert_allclose(PoissonBinomial(p).pmf, by_enumeration(p), rtol=0, atol=EXACT)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", [1, GROUP - 1, GROUP, GROUP + 1, 100, 500, 575, 577, BLOCK, BLOCK + 1, 5000])
def test_equals_direct_convolution_on_every_path(kind: str, n: int) -> None:
    p = chances(kind, n)
    np.testing.assert_allclose(PoissonBinomial(p).pmf, by_convolution(p), rtol=0, atol=EXACT)


@pytest.mark.parametrize("n", [33, 90, 500])
@pytest.mark.parametrize("few", [1, 3, 4, 20, 200])
def test_rows_on_either_side_of_a_half_share_a_block_without_a_loss(n: int, few: int) -> None:
    other = min(few, n)
    for near in (2.0**-40, 2.0**-7):  # exact in 1 - p too: the witness adds up what is rounded there
        p = np.concatenate([np.full(other, near), np.full(n - other, 1 - near)])
        for either in (p, 1 - p):
            np.testing.assert_allclose(
                PoissonBinomial(either).pmf, by_convolution(either), rtol=0, atol=EXACT
            )


def test_one_window_is_what_it_is_among_others() -> None:
    p = np.random.default_rng(5).beta(4, 2, (3, 500))
    start, mass = fold_many(p)
    for row, at, among in zip(p, start, mass, strict=True):
        alone = PoissonBinomial(row).pmf[at : at + len(among)]
        np.testing.assert_allclose(alone, among, rtol=0, atol=EXACT)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_equals_scipy_and_fast_poibin(kind: str) -> None:
    from fast_poibin import PoiBin  # it imports numba, so not at the top: each worker imports all modules

    p = chances(kind, 300)
    pmf = PoissonBinomial(p).pmf
    np.testing.assert_allclose(pmf, scipy.stats.poisson_binom(p).pmf(np.arange(301)), rtol=0, atol=1e-12)
    np.testing.assert_allclose(pmf, PoiBin(p).pmf, rtol=0, atol=1e-12)


def test_quantiles_are_those_of_scipy() -> None:
    p = chances("confident", 25)  # with numpy 1, SciPy takes no more than 29 here
    ours, theirs = PoissonBinomial(p), scipy.stats.poisson_binom(p)
    for q in (0.001, 0.025, 0.3, 0.5, 0.9, 0.975, 0.9999):
        assert ours.quantile(q) == int(theirs.ppf(q))


@pytest.mark.parametrize("n", [1, 50, 500])
def test_equal_chances_are_the_binomial(n: int) -> None:
    ours, theirs = PoissonBinomial([0.9] * n), scipy.stats.binom(n, 0.9)
    np.testing.assert_allclose(ours.cdf, theirs.cdf(np.arange(n + 1)), rtol=0, atol=1e-13)
    assert ours.interval(0.95) == (int(theirs.ppf(0.025)), int(theirs.ppf(0.975)))


def test_many_windows_are_what_each_is_alone() -> None:
    p = np.random.default_rng(3).beta(8, 1, (700, 40))  # more than one step of the batch
    alone = np.stack([PoissonBinomial(row).pmf for row in p])
    np.testing.assert_allclose(pmf_many(p), alone, rtol=0, atol=EXACT)


def test_windows_of_very_different_spread_share_a_batch() -> None:
    p = np.stack([np.zeros(400), np.ones(400), np.full(400, 0.5), chances("extreme", 400)])
    np.testing.assert_allclose(pmf_many(p), [by_convolution(row) for row in p], rtol=0, atol=EXACT)


@pytest.mark.parametrize("n", [60, 500, 1900])
def test_with_bounds_on_the_variance_a_window_is_what_it_is_alone_to_the_last_bit(n: int) -> None:
    p = np.random.default_rng(9).beta(8, 2, (40, n))
    variances = (p * (1 - p)).sum(axis=1)
    bounds = 0.9 * float(variances.min()), 1.1 * float(variances.max())
    start, mass = fold_many(p, bounds)
    for i in (0, 17, 39):
        [at], [alone] = fold_many(p[i : i + 1], bounds)
        assert at == start[i]
        np.testing.assert_array_equal(alone, mass[i])
        direct = by_convolution(p[i])[at : at + len(alone)]
        np.testing.assert_allclose(alone, direct, atol=1e-14, rtol=0)


def test_no_windows_and_no_trials() -> None:
    assert pmf_many(np.zeros((0, 5))).shape == (0, 6)
    assert trimmed_pmf_many(np.zeros((0, 5))) == []
    assert PoissonBinomial([]).pmf.tolist() == [1.0]
    assert PoissonBinomial([]).interval(0.95) == (0, 0)
    assert pmf_many(np.zeros((3, 0))).tolist() == [[1.0]] * 3


def test_certain_trials_are_counted_exactly() -> None:
    certain = PoissonBinomial([1.0] * 700 + [0.0] * 300)
    assert certain.interval(0.999) == (700, 700)
    assert certain.pmf[700] == 1.0
    assert certain.variance == 0.0


def test_a_long_window_is_exact_too() -> None:
    p = np.full(100_000, 0.9)
    ours, theirs = PoissonBinomial(p), scipy.stats.binom(100_000, 0.9)
    np.testing.assert_allclose(ours.pmf, theirs.pmf(np.arange(100_001)), rtol=0, atol=1e-13)
    assert ours.interval(0.99) == (int(theirs.ppf(0.005)), int(theirs.ppf(0.995)))


def test_ties_between_cdf_and_q_do_not_hang_on_rounding() -> None:
    fair = PoissonBinomial([0.5] * 4)  # the CDF is 1/16, 5/16, 11/16, 15/16, 1
    assert [fair.quantile(q) for q in (0.0, 1 / 16, 5 / 16, 11 / 16, 15 / 16, 1.0)] == [0, 0, 1, 2, 3, 4]


def test_quantile_one_is_the_largest_possible_count() -> None:
    assert PoissonBinomial([1e-300] * 3 + [0.0]).quantile(1.0) == 3


@given(CHANCES)
def test_mean_and_variance_are_those_of_the_pmf(p: Floats) -> None:
    window = PoissonBinomial(p)
    counts = np.arange(len(p) + 1)
    assert window.pmf.sum() == pytest.approx(1.0, abs=1e-12)
    assert counts @ window.pmf == pytest.approx(window.mean, abs=1e-10)
    assert (counts - window.mean) ** 2 @ window.pmf == pytest.approx(window.variance, abs=1e-9)


@given(CHANCES, st.floats(0.01, 0.98))
def test_the_interval_widens_with_the_level_and_holds_it(p: Floats, level: float) -> None:
    window = PoissonBinomial(p)
    low, high = window.interval(level)
    wider_low, wider_high = window.interval(level + 0.01)
    assert wider_low <= low <= high <= wider_high
    assert window.pmf[low : high + 1].sum() >= level - 1e-12


@given(CHANCES, st.randoms(use_true_random=False))
def test_the_order_of_rows_is_irrelevant_to_the_last_bit(p: Floats, random) -> None:  # type: ignore[no-untyped-def]
    order = list(range(len(p)))
    random.shuffle(order)
    assert PoissonBinomial(p[order]).pmf.tolist() == PoissonBinomial(p).pmf.tolist()


@given(CHANCES)
def test_failures_are_the_mirror_image(p: Floats) -> None:
    np.testing.assert_allclose(PoissonBinomial(1 - p).pmf, PoissonBinomial(p).pmf[::-1], rtol=0, atol=EXACT)


@given(CHANCES, CHANCES)
def test_merging_windows_is_convolution(first: Floats, second: Floats) -> None:
    together = PoissonBinomial(np.concatenate([first, second]))
    pooled = trim(PoissonBinomial(first).pmf).convolve(trim(PoissonBinomial(second).pmf))
    assert pooled.n == together.n
    whole = np.zeros(pooled.n + 1)
    whole[pooled.offset : pooled.offset + len(pooled.mass)] = pooled.mass
    np.testing.assert_allclose(whole, together.pmf, rtol=0, atol=EXACT)
    assert pooled.mean == pytest.approx(together.mean, abs=1e-10)
    assert pooled.interval(0.95) == together.interval(0.95)


@examples(25)
@given(st.integers(1, 4000), st.floats(0.05, 0.95))
def test_trimming_keeps_all_but_a_negligible_mass(n: int, p: float) -> None:
    whole = PoissonBinomial(np.full(n, p)).pmf
    trimmed = trim(whole)
    dropped = whole[: trimmed.offset].sum(), whole[trimmed.offset + len(trimmed.mass) :].sum()
    assert max(dropped) <= 1e-15
    assert trimmed.mass.sum() == pytest.approx(1.0, abs=1e-13)


def test_five_windows_of_500_pool_as_one_window_of_2500() -> None:
    p = np.random.default_rng(8).beta(20, 1, (5, 500))
    pooled = reduce(TrimmedPmf.convolve, trimmed_pmf_many(p))
    assert pooled.interval(0.95) == PoissonBinomial(p.ravel()).interval(0.95)
    assert pooled.quantile(0.5) == PoissonBinomial(p.ravel()).quantile(0.5)


def test_long_windows_pool_by_transforms_as_by_hand() -> None:
    wide = trim(PoissonBinomial(np.full(40_000, 0.5)).pmf)
    assert len(wide.mass) > 600
    np.testing.assert_allclose(
        wide.convolve(wide).interval(0.9), PoissonBinomial(np.full(80_000, 0.5)).interval(0.9)
    )


def test_input_is_left_alone_and_output_cannot_be_changed() -> None:
    p = chances("confident", 50)
    before = p.copy()
    window = PoissonBinomial(p)
    fold_many(p[None])
    pmf = window.pmf
    np.testing.assert_array_equal(p, before)
    p[:] = 0.0
    assert window.mean == pytest.approx(before.sum())
    for array in (pmf, window.cdf, trim(pmf).mass):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1.0


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ([0.5, float("nan")], r"p\[1\] must be a probability from 0 to 1, got nan"),
        ([0.5, 0.5, 1.2], r"p\[2\] must be a probability from 0 to 1, got 1.2; .* logits or percentages"),
        ([-1e-9], r"p\[0\] must be a probability from 0 to 1, got -1e-09"),
        ([[0.5]], r"p must be a one-dimensional array of probabilities, got the shape \(1, 1\)"),
    ],
)
def test_bad_chances_are_named(bad: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PoissonBinomial(bad)  # type: ignore[arg-type]


def test_bad_settings_are_named() -> None:
    window = PoissonBinomial([0.5])
    with pytest.raises(ValueError, match=r"q must be a probability from 0 to 1, got 1\.5"):
        window.quantile(1.5)
    for level in (0.0, 1.0, float("nan")):
        with pytest.raises(ValueError, match=rf"level must lie between 0 and 1, .* got {level}"):
            window.interval(level)
    with pytest.raises(
        ValueError, match=r"p must be an array of 2 dimensions of probabilities, got .*\(1,\)"
    ):
        pmf_many([0.5])
    with pytest.raises(ValueError, match=r"p\[0, 1\] must be .* got 2\.0"):
        pmf_many([[0.5, 2.0]])
    with pytest.raises(ValueError, match=r"pmf must sum to 1 within 1e-9, got a sum of 0\.5"):
        trim([0.25, 0.25])


def test_fast_lengths_are_scipys() -> None:
    for least in (*range(1, 5000), *np.random.default_rng(1).integers(5000, 10**9, 200).tolist()):
        assert fast_length(least) == scipy.fft.next_fast_len(least, real=True)


@pytest.mark.parametrize(("m", "n"), [(1, 1), (1, 7), (140, 139), (3000, 800)])
def test_a_convolution_is_scipys(m: int, n: int) -> None:
    rng = np.random.default_rng(m)
    a, b = rng.random(m), rng.random(n)
    np.testing.assert_allclose(convolve(a, b), scipy.signal.fftconvolve(a, b), rtol=1e-12)
