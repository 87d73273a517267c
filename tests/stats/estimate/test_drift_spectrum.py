"""Contrasts of neighbouring blocks: a slow witness, what they find, and where they are not used."""

from __future__ import annotations

import numpy as np
import pytest

from monitor.stats.estimate.drift_spectrum import SHORTEST_REFERENCE, Spectrum, drift_spectrum
from monitor.stats.estimate.variance_components import Components, variance_components
from tests.fidelity.predictive import ornstein_uhlenbeck
from tests.fidelity.simulated import ORIGINAL, confidences
from tests.plain_state import through_msgpack


def stream(rng, n, bias):
    chance = confidences(rng, ORIGINAL, (n,)).clip(1e-6, 1 - 1e-6)
    odds = chance / (1 - chance) * np.exp(bias)
    return chance, rng.random(n) < odds / (1 + odds)


def slow_contrast(confidence, right, m):
    """S(m) pair by pair: squared differences of two biases less chance, weighted by what each tells."""
    top = bottom = 0.0
    for start in range(0, len(right) - 2 * m + 1, 2 * m):
        biases, informations = [], []
        for block in (slice(start, start + m), slice(start + m, start + 2 * m)):
            information = float((confidence[block] * (1 - confidence[block])).sum())
            biases.append(float((right[block] - confidence[block]).sum()) / information)
            informations.append(information)
        weight = 1 / (1 / informations[0] + 1 / informations[1])
        top += weight * ((biases[0] - biases[1]) ** 2 - 1 / weight)
        bottom += weight
    return top / bottom


def test_a_contrast_is_what_pairs_of_blocks_say():
    """800 rows, one fold: blocks of 25 and 50 have eight pairs, those of 100 only four."""
    rng = np.random.default_rng(1)
    confidence, right = stream(rng, 800, np.repeat([1.5, -1.5], 25).repeat(1).tolist() * 16)
    spectrum = drift_spectrum(confidence, right, folds=1)
    lengths, smooth = zip(*spectrum.contrasts, strict=True)
    assert lengths == (25, 50)
    raw = [slow_contrast(confidence, right, m) for m in (25, 50)]
    # Their means by precision, hardly shrunk, lie between the two; the contrast at 25 rows is 3², at 50 none.
    assert raw[0] > 4
    assert min(raw) < min(smooth) <= max(smooth) < max(raw)


def test_noise_of_every_octave_is_found_in_every_octave_and_a_stable_stream_has_little():
    """40,000 rows; ten processes of variance 0.009 each."""
    rng, n = np.random.default_rng(2), 40_000
    lengths = 100.0 * 2.0 ** np.arange(10)
    drift = np.sum([ornstein_uhlenbeck(rng, n, k, 0.3 / np.sqrt(10)) for k in lengths], axis=0)
    stable = drift_spectrum(*stream(rng, n, np.zeros(n)), folds=2)
    moving = drift_spectrum(*stream(rng, n, drift), folds=2)
    assert stable.moving(500) + stable.beyond < 0.01
    assert 0.02 < moving.moving(500) + moving.beyond < 0.2


def test_longer_windows_vary_less_and_none_beyond_the_reference():
    spectrum = Spectrum(((25, 0.1), (50, 0.1), (100, 0.1)), beyond=0.05, rows=6400)
    values = [spectrum.moving(n) for n in (1, 25, 100, 1000, 6399, 6400, 50_000)]
    assert values == sorted(values, reverse=True)
    assert values[-2:] == [0.0, 0.0]
    # At 100 rows: one octave of 0.1 as measured, five beyond that take the last ones' average.
    assert spectrum.moving(100) == pytest.approx((0.1 + 5 * 0.05) / 4)


@pytest.mark.parametrize("n", [1, 24, 25, 26, 70, 399, 400, 5000])
def test_between_known_lengths_a_contrast_is_linear_in_the_logarithm(n):
    known = {25: 0.01, 50: 0.04, 100: 0.02, 200: 0.05}
    spectrum = Spectrum(tuple(known.items()), beyond=0.07, rows=400)
    lengths = [n * 2**k for k in range(20) if n * 2**k < 400]
    contrasts = np.interp(np.log(lengths), np.log(list(known)), list(known.values()), right=0.07)
    assert spectrum.moving(n) == pytest.approx(contrasts.sum() / 4, abs=1e-15)


def test_the_larger_of_components_and_contrasts_holds_part_by_part():
    spectrum = Spectrum(((25, 0.08), (50, 0.08)), beyond=0.02, rows=20_000)
    small, large = ((1000.0, 1e-4),), ((1000.0, 4.0),)
    for variances, other in ((small, spectrum), (large, None)):
        both = Components(0.0, variances, 20_000, spectrum)
        alone = Components(0.0, variances, 20_000)
        expected = spectrum.moving(500) if other else alone.moving(500, 20.0)
        assert both.moving(500, 20.0) == pytest.approx(expected)
        assert both.of_bias(500, 20.0) >= alone.of_bias(500, 20.0)
        assert alone.of_bias(500, 20.0) == pytest.approx(alone.moving(500, 20.0) + alone.lasting)
        assert both.lasting >= alone.lasting


def test_a_short_reference_goes_without_and_a_snapshot_keeps_it():
    rng = np.random.default_rng(3)
    confidence, right = stream(rng, SHORTEST_REFERENCE, rng.choice([-1.0, 1.0], 100).repeat(100))
    without = variance_components({2: confidence[:-1]}, right[:-1])
    components = variance_components({2: confidence}, right)
    assert without.spectrum is None
    assert through_msgpack(without) == without
    assert dict(components.spectrum.contrasts)[100] > 0.3
    assert through_msgpack(components) == components


@pytest.mark.parametrize("confidence", [np.ones(2000), np.full(30, 0.9), np.zeros(0)])
def test_certain_or_few_rows_show_nothing(confidence):
    spectrum = drift_spectrum(confidence, np.ones(len(confidence), dtype=bool), folds=1)
    assert (dict(spectrum.contrasts), spectrum.beyond, spectrum.moving(100)) == ({}, 0.0, 0.0)
