"""The bias by predicted class against a slow witness, its sums, and what it leaves alone."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from monitor.stats.estimate import class_bias
from monitor.stats.estimate.class_bias import CLASSES, WINDOWS, ClassErrors, ShownErrors
from tests.plain_state import through_msgpack


def density(value, variance):
    return np.exp(-(value**2) / (2 * variance)) / np.sqrt(2 * np.pi * variance)


def witness(shown: ShownErrors, usual: float) -> tuple[float, float]:
    """Return mean and mean square of the newest bias beyond the usual, by sums over a fine lattice of s
    and of b.
    """
    s = np.linspace(-12, 12, 1201)
    error, information = shown.error[0], shown.information[0]
    z, noise = error / information, 1 / information
    still = np.prod(density(z, noise + usual))
    pairs = list(product(class_bias._VARIANCES, repeat=2))[1:]
    began, mean, square = 0.0, 0.0, 0.0
    share = (1 - class_bias._STILL) / (len(pairs) * len(z))
    for start, (lasting, passing) in product(range(len(z)), pairs):
        prior = density(s, lasting) * (s[1] - s[0]) if lasting else (s == 0.0).astype(float)
        before = np.prod(density(z[:start], noise[:start] + usual))
        spread = usual + passing
        others = prior * before
        for one in range(start, len(z) - shown.own):
            others = others * density(z[one] - s, noise[one] + spread)
        if shown.own:
            b = np.linspace(-12, 12, 401)
            own = density(b - s[:, None], spread) * (b[1] - b[0]) * density(z[-1] - b, noise[-1])
            joint = share * others[:, None] * own
            began, mean = began + joint.sum(), mean + (joint @ b).sum()
            square += max((joint @ b**2).sum() - usual * joint.sum(), 0.0)
        else:
            joint = share * others
            began, mean = began + joint.sum(), mean + joint @ s
            square += joint @ (s**2 + passing)
    posterior = began / (began + class_bias._STILL * still)
    gained = max((posterior - (1 - class_bias._STILL)) / class_bias._STILL, 0.0)
    b = np.linspace(-12, 12, 2401)
    logs = -(b**2) / (2 * class_bias._RECENT)  # each window counts less than the next
    for one in range(len(z)):
        age = len(z) - 1 - one
        logs = logs - class_bias._KEPT**age * (z[one] - b) ** 2 / (2 * (noise[one] + usual))
    recent = float(np.average(b, weights=np.exp(logs - logs.max())))
    rest = 1 - gained
    return gained * mean / began + rest * recent, gained * square / began + rest * recent**2


@pytest.mark.slow
@pytest.mark.parametrize("last", [-0.9, 0.2])
@pytest.mark.parametrize("own", [False, True])
def test_the_moments_are_those_of_a_slow_witness(own, last):
    """After a jump, and where one window was off."""
    information = np.array([[40.0, 25.0, 60.0]])
    shown = ShownErrors(information * [0.1, -0.8, last], information, 500, own)
    moments = [each.item() for each in shown.moments(np.array([0.05]))]
    assert moments == pytest.approx(witness(shown, 0.05), rel=0.02, abs=1e-4)


def labelled(rng, windows, bias=0.0, rows=100):
    """Labelled rows of two predicted classes; the second has a bias in logits."""
    many = windows * rows
    confidence = rng.beta(8, 2, many)
    predicted = rng.integers(0, 2, many)
    odds = confidence / (1 - confidence) * np.exp(bias * predicted)
    return np.repeat(np.arange(windows), rows), predicted, confidence, rng.random(many) < odds / (1 + odds)


def moments(errors, window):
    shown = errors.shown(np.arange(2), window)
    assert shown is not None
    return shown.moments(np.zeros(2))


def test_labels_that_bear_out_the_reference_add_little_and_a_bias_shows():
    """100 streams of 10 windows with 100 labels each: right confidences, or a bias of 0.8 logits."""
    right, wrong = [], []
    for seed in range(100):
        for bias, samples in ((0.0, right), (-0.8, wrong)):
            errors = ClassErrors()
            errors.add(*labelled(np.random.default_rng(seed), 10, bias))
            samples.append(moments(errors, 10))
    squares = np.array([square for _, square in right])
    assert squares.mean() < 0.02
    assert (squares > 0.05).mean() < 0.05
    assert np.array([mean for mean, _ in wrong]).mean(axis=0) == pytest.approx([0, -0.8], abs=0.1)


def test_labels_count_in_any_order_and_in_any_pieces():
    rng = np.random.default_rng(3)
    rows = labelled(rng, 8, -0.5)
    whole, pieces = ClassErrors(), ClassErrors()
    whole.add(*rows)
    order = rng.permutation(len(rows[0]))
    for some in np.array_split(order, 90):
        pieces.add(*(column[some] for column in rows))
    first, second = whole.snapshot(), pieces.snapshot()
    assert np.array_equal(first.sums, second.sums)
    assert np.array_equal(first.labels, second.labels)


def test_it_goes_on_from_a_snapshot():
    rows, more = (labelled(np.random.default_rng(seed), 8, -0.5) for seed in (4, 5))
    whole, before = ClassErrors(), ClassErrors()
    whole.add(*rows)
    before.add(*rows)
    after = ClassErrors(through_msgpack(before.snapshot()))
    for each in (whole, after):
        each.add(*more)
    assert np.array_equal(moments(whole, 8), moments(after, 8))


def test_old_windows_unknown_confidences_and_rare_classes_are_left_out():
    errors = ClassErrors()
    ones = np.ones(1)
    for window in range(WINDOWS + 5):
        errors.add(np.array([window]), np.zeros(1, int), 0.8 * ones, ones > 0)
    errors.add(np.array([3]), np.zeros(1, int), 0.8 * ones, ones > 0)
    errors.add(np.array([9]), np.zeros(1, int), np.nan * ones, ones > 0)
    errors.add(np.array([9]), np.array([CLASSES]), 0.8 * ones, ones > 0)
    state = errors.snapshot()
    assert state.windows.tolist() == list(range(5, WINDOWS + 5))
    assert state.labels.tolist() == [1] * WINDOWS
    assert errors.shown(np.zeros(1, int), 4) is None


def test_another_calibration_forgets_earlier_windows():
    errors = ClassErrors()
    rows = labelled(np.random.default_rng(6), 8)
    errors.add(*rows)
    errors.restart(6)
    errors.add(*rows)
    state = errors.snapshot()
    assert (state.since, state.windows.tolist(), state.labels.tolist()) == (6, [6, 7], [200, 200])
