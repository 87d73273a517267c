"""Distributions of the number of successes in many windows at once, by short Fourier transforms.

The distribution of a sum of n independent trials is the product of n polynomials `(1 − p) + p z`. A window of
500 rows has all but 1e-16 of its mass on about 140 of its 501 counts. So about 140 roots of unity determine
the product, because the aliased mass of the other counts is negligible. Bernstein's inequality gives the
number of roots, and the first of the 140 counts. High frequencies can be left out too, because the transform
falls off like that of a normal distribution.

`fast_length` and `convolve` are copies of functions of `scipy.fft` and `scipy.signal`. The import of
`scipy.signal`, at the first window, took as long as the whole start of the agent.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from monitor.base.records import Floats, Ints

GROUP = 8  # a power of 2; polynomials multiplied before the transform: measured, 4 is slower and 16 no faster
BLOCK = 2048  # rows of one window at a time: for larger matrix products OpenBLAS starts threads
_FEW = 3.0  # expected rows of a block's other outcome, each of which costs 1e-15 of the largest mass
_NATS = 37.0  # exp(-37) = 8.5e-17 of the mass folds back from each side: below one rounding error
_PRODUCT_GROUPS = 72  # groups in a matrix product: for more, OpenBLAS starts threads, which costs far more
_SPECTRUM_DOUBLES = 1 << 17  # in a step: 1 MiB stays in the second-level cache
_FEW_ROOTS = 256  # up to here the matrix of the inverse transform takes half a MiB or less

Complexes = NDArray[np.complex128]


@lru_cache(maxsize=1024)
def fast_length(least: int) -> int:
    """Return the smallest product of powers of 2, 3 and 5 that is at least `least`.

    Fourier transforms of this length are fast. The result equals `scipy.fft.next_fast_len(least, real=True)`.

    Parameters
    ----------
    least : int
        1 or more.
    """
    best = 1 << (least - 1).bit_length()
    five = 1
    while five < best:
        odd = five
        while odd < best:
            best = min(best, odd << (-(-least // odd) - 1).bit_length())
            odd *= 3
        five *= 5
    return best


def convolve(a: Floats, b: Floats) -> Floats:
    """Return the full convolution of two vectors by Fourier transforms, like `scipy.signal.fftconvolve`.

    Parameters
    ----------
    a, b : (m,), (n,) float64

    Returns
    -------
    (m + n - 1,) float64
    """
    length = len(a) + len(b) - 1
    size = fast_length(length)
    product: Floats = np.fft.irfft(np.fft.rfft(a, size) * np.fft.rfft(b, size), size)[:length]
    return product


def _half_width(variance: float) -> int:
    """Return the number of counts on either side of the mean that hold all but exp(-_NATS) of the mass.

    Bernstein: P(K − μ ≥ t) ≤ exp(−t²/(2(σ² + t/3))) for a sum of independent trials; solved for t, plus one
    because the window is centred on the rounded mean.
    """
    third = _NATS / 3
    return math.ceil(third + math.sqrt(third * third + 2 * _NATS * variance)) + 1


def _roots(variance: float, n: int) -> int:
    """Return the number of roots of unity that determine n trials with at most this variance."""
    return fast_length(min(2 * _half_width(variance) + 1, n + 1))


def _frequencies(variance: float, roots: int) -> int:
    """Return how many of the roots' frequencies have a transform above exp(-_NATS).

    The trials have at least this variance.

    The transform of a trial has the square |1 − p + p e^(iω)|² = 1 − 2 p (1 − p)(1 − cos ω), so that of all
    is at most exp(−σ² (1 − cos ω)).
    """
    every = roots // 2 + 1
    if 2 * variance <= _NATS:
        return every
    return min(int(math.acos(1.0 - _NATS / variance) * roots / (2 * math.pi)) + 1, every)


@lru_cache(maxsize=64)
def _transform(roots: int) -> Floats:
    """Return the (GROUP + 1, 2·frequencies) matrix of the Fourier transform.

    It is faster than an FFT here.
    """
    angles = -2 * np.pi * np.outer(np.arange(GROUP + 1), np.arange(roots // 2 + 1)) / roots
    matrix = np.stack([np.cos(angles), np.sin(angles)], axis=-1).reshape(GROUP + 1, -1)
    matrix.flags.writeable = False
    return matrix


def _products(p: Floats) -> Floats:
    """Return (GROUP + 1, groups) coefficients of the products of (GROUP, groups) polynomials by group."""
    coefficients = np.empty((GROUP + 1, p.shape[1]))
    np.subtract(1.0, p[0], out=coefficients[0])
    coefficients[1] = p[0]
    for j in range(1, GROUP):
        moved = coefficients[: j + 1] * p[j]
        coefficients[: j + 1] -= moved
        coefficients[1 : j + 1] += moved[:-1]
        coefficients[j + 1] = moved[-1]
    return coefficients


def _unfold(folded: Floats, origin: Ints, mean: Floats, n: int) -> tuple[Ints, Floats]:
    """Unfold masses (entry r: counts `origin + r` modulo roots), clip them at 0, and normalise."""
    roots = folded.shape[1]
    width = min(roots, n + 1)
    start = np.clip(np.rint(mean).astype(np.int64) - (width - 1) // 2, 0, n + 1 - width)
    places = (start - origin)[:, None] + np.arange(width)
    mass = np.take_along_axis(folded, places % roots, axis=1)
    np.maximum(mass, 0.0, out=mass)
    mass /= mass.sum(axis=1, keepdims=True)
    return start, mass


def _grouped(p: Floats) -> tuple[Floats, Ints]:
    """Sort each window's trials, and pad them to whole groups with probabilities on one side of one half.

    Groups below one half are padded with trials that never succeed, and groups above with trials that always
    succeed. Return the trials, (windows, groups, GROUP), and the number of certain successes, which shifts
    each window's count.
    """
    windows, n = p.shape
    groups = -(-(n + GROUP - 1) // GROUP) or 1
    batches = -(-groups // _PRODUCT_GROUPS)
    groups = -(-groups // batches) * batches
    padded = np.empty((windows, groups * GROUP))
    padded[:, :n] = p
    never = -(p <= 0.5).sum(axis=1) % GROUP
    padded[:, n:] = np.arange(groups * GROUP - n) >= never[:, None]
    padded.sort(axis=1)
    return padded.reshape(windows, groups, GROUP), groups * GROUP - n - never


def _spectra(trials: Floats, roots: int, frequencies: int) -> Complexes:
    """Return (windows, groups, frequencies) transforms of the groups' products, at low frequencies."""
    windows, groups, _ = trials.shape
    coefficients = _products(np.ascontiguousarray(trials.reshape(-1, GROUP).T))
    batch = groups // -(-groups // _PRODUCT_GROUPS)
    batches = coefficients.T.reshape(-1, batch, GROUP + 1)
    matrix = _transform(roots)[:, : 2 * frequencies]
    return (batches @ matrix).view(np.complex128).reshape(windows, groups, frequencies)


def _short(p: Floats, roots: int, frequencies: int) -> tuple[Ints, Floats]:
    """Return `fold_many` of windows short enough for one transform, whose spectra fit a cache.

    For trials that mostly succeed, the function counts failures, so that every group's transform is near 1.
    Otherwise the rounding errors of the roots, which are the same in every group, would add up to 1e-12.
    Because the trials are sorted, the result does not depend on the order of the rows, to the last bit.
    """
    n = p.shape[1]
    trials, always = _grouped(p)
    by_failures = trials[:, :, 0] > 0.5
    np.subtract(1.0, trials, out=trials, where=by_failures[:, :, None])
    spectra = _spectra(trials, roots, frequencies)
    np.negative(spectra.imag, out=spectra.imag, where=by_failures[:, :, None])
    folded = np.fft.irfft(np.multiply.reduce(spectra, axis=1), roots, axis=1)
    origin = GROUP * by_failures.sum(axis=1) - always
    below_origin = np.where(by_failures[:, :, None], trials, -trials).sum(axis=(1, 2))
    return _unfold(folded, origin, origin - below_origin, n)


def _less_one(angles: Floats) -> Complexes:
    """Return exp(i·angles) − 1 with all its digits near 0."""
    less: Complexes = -2.0 * np.sin(angles / 2) ** 2 + 1j * np.sin(angles)
    return less


def _points() -> Floats:
    """Return the (2, GROUP + 2) matrix from `(p + q, p q)` to `(1 + p (z − 1)) (1 + q (z − 1)) − 1`.

    The points z are half of the GROUP + 1 roots of unity (the conjugates have conjugate values) and the root
    1, where the value is 0: they determine a product of GROUP trials. Real and imaginary parts are side by
    side.
    """
    less = np.append(_less_one(-2 * np.pi * np.arange(1, GROUP // 2 + 1) / (GROUP + 1)), 0.0)
    return np.stack([less, less * less]).view(np.float64)


_POINTS = _points()


@lru_cache(maxsize=64)
def _to_counts(roots: int) -> Floats:
    """Return the (2·frequencies, roots) matrix of the inverse transform, fast for few roots."""
    units = np.eye(roots // 2 + 1)
    real, imaginary = np.fft.irfft(units, roots), np.fft.irfft(1j * units, roots)
    return np.stack([real, imaginary], axis=1).reshape(-1, roots)


@lru_cache(maxsize=64)
def _from_points(roots: int) -> Floats:
    """Return the (GROUP + 2, 2·frequencies) matrix from a product at the points to its transform.

    The function subtracts 1 from each product, and adds 1 at the end. The stored values, and so their
    rounding errors, are then as small as the probabilities. Otherwise the errors, which are the same in every
    group, would add up.
    """
    coefficients = _to_counts(GROUP + 1)[2:]
    turns = np.outer(np.arange(GROUP + 1), np.arange(roots // 2 + 1))
    turns = (turns + roots // 2) % roots - roots // 2  # angles beyond a turn would cost a digit
    angles = -2 * np.pi * turns / roots
    matrix = np.zeros((GROUP + 2, 2 * (roots // 2 + 1)))
    matrix[-2, ::2] = 1.0
    matrix[:-2] = coefficients @ _less_one(angles).view(np.float64)
    matrix.flags.writeable = False
    return matrix


def fold_one(p: Floats) -> tuple[int, Floats]:
    """Return the distribution of the number of successes in one window, faster than `fold_many`.

    The rows are divided into blocks. In each block, the function counts the rarer outcome: successes or
    failures. A block may have probabilities on both sides of one half if the more frequent outcome is then
    counted for only a few rows.

    Parameters
    ----------
    p : (n,) float64
        Probabilities of success from 0 to 1, sorted.

    Returns
    -------
    start : int
    mass : (width,) float64
        As in `fold_many`, but neither clipped nor normalised. A probability of 0 may become as low as -1e-14.

    Examples
    --------
    >>> start, mass = fold_one(np.array([0.5, 1.0]))
    >>> start, mass.round(6).tolist()
    (1, [0.5, 0.5])
    """
    certain = 0
    if len(p) and (p[0] == 0.0 or p[-1] == 1.0):
        certain = len(p) - int(p.searchsorted(1.0))
        p = p[p.searchsorted(0.0, "right") : len(p) - certain]
    n = len(p)
    mean = float(np.add.reduce(p))
    variance = max(mean - float(p @ p), 0.0)
    roots = _roots(variance, n)
    matrix = _from_points(roots)[:, : 2 * _frequencies(variance, roots)]
    turn = _turn(p, mean, variance)
    spectrum: Complexes = np.ones(1, dtype=np.complex128)
    failures = 0
    for first in (*range(0, turn, BLOCK), *range(turn, n, BLOCK)):
        rows = p[first : min(first + BLOCK, turn if first < turn else n)]
        by_failures = bool(rows[len(rows) // 2] > 0.5)
        block = _block_transform(rows, by_failures, matrix)
        failures += by_failures * len(rows)
        spectrum = spectrum * (block.conj() if by_failures else block)
    if roots > _FEW_ROOTS:
        folded = np.fft.irfft(spectrum, roots)
    else:
        folded = spectrum.view(np.float64) @ _to_counts(roots)[: 2 * len(spectrum)]
    width = min(roots, n + 1)
    start = min(max(round(mean) - (width - 1) // 2, 0), n + 1 - width)
    at = (start - failures) % roots
    return start + certain, np.concatenate((folded[at:], folded[:at]))[:width]


def _turn(p: Floats, mean: float, variance: float) -> int:
    """Return the index in sorted rows from which blocks are counted by failures.

    The index is the number of rows if successes are counted in all blocks.
    """
    n, low = len(p), int(p.searchsorted(0.5, "right"))
    if not 0 < low < n:
        return n
    below = float(np.add.reduce(p[:low]))
    others = low - below if low <= n // 2 else mean - below
    # The largest mass is about 0.4 over the standard deviation, at most 1.
    return low if others > _FEW * math.sqrt(1.0 + 4.0 * variance) else n


def _block_transform(rows: Floats, by_failures: bool, matrix: Floats) -> Complexes:
    """Return the (frequencies,) transform of the number of successes, or failures, in a block of rows."""
    groups = -(-len(rows) // GROUP)
    trials = np.zeros((2, GROUP * groups // 2))
    flat = trials.reshape(-1)
    if by_failures:
        np.subtract(1.0, rows, out=flat[: len(rows)])
    else:
        flat[: len(rows)] = rows
    pairs = np.empty_like(trials)
    np.add(trials[0], trials[1], out=pairs[0])
    np.multiply(trials[0], trials[1], out=pairs[1])
    less = (pairs.T @ _POINTS).view(np.complex128).reshape(GROUP // 2, -1)
    while len(less) > 1:
        one, other = less[: len(less) // 2], less[len(less) // 2 :]
        less = one * other
        less += one
        less += other
    products = less.view(np.float64).reshape(groups, -1)
    products[:, -2] = 1.0
    transform: Complexes = np.multiply.reduce((products @ matrix).view(np.complex128))
    return transform


def fold_many(p: Floats, variances: tuple[float, float] | None = None) -> tuple[Ints, Floats]:
    """Return the distributions of the number of successes in windows of n rows, without negligible counts.

    Parameters
    ----------
    p : (windows, n) float64
        Probabilities of success from 0 to 1; not checked.
    variances : (float, float), optional
        A lower and an upper bound of the windows' variances. With these bounds, the result of a window does
        not depend on the other windows, to the last bit. Without them, this holds only for windows of more
        than `BLOCK` rows.

    Returns
    -------
    start : (windows,) int64
        The first count of each row of `mass`.
    mass : (windows, width) float64
        Probabilities of the counts from `start` on; each row sums to 1. The omitted probability is below
        1e-16 on either side, and the errors are below 1e-14.

    Examples
    --------
    >>> start, mass = fold_many(np.array([[0.5, 0.5], [1.0, 1.0]]))
    >>> start.tolist(), mass.round(6).tolist()
    ([0, 0], [[0.25, 0.5, 0.25], [0.0, 0.0, 1.0]])
    """
    windows, n = p.shape
    if n > BLOCK:
        return _stack([fold_one(row) for row in np.sort(p, axis=1)], n)
    if not windows:
        return np.zeros(0, dtype=np.int64), np.zeros((0, min(n + 1, 3)))
    if variances is None:
        each = np.einsum("wn,wn->w", p, 1.0 - p)
        variances = float(each.min()), float(each.max())
    least, most = variances
    roots = _roots(most, n)
    frequencies = _frequencies(least, roots)
    step = max(_SPECTRUM_DOUBLES * GROUP // (2 * max(n, 1) * frequencies), 1)
    parts = [_short(p[first : first + step], roots, frequencies) for first in range(0, windows, step)]
    starts, masses = zip(*parts, strict=True)
    return np.concatenate(starts), np.concatenate(masses)


def _stack(rows: list[tuple[int, Floats]], n: int) -> tuple[Ints, Floats]:
    """Return one matrix with rows of different widths. A start moves down if its row would exceed n."""
    width = max((len(mass) for _, mass in rows), default=1)
    starts = np.zeros(len(rows), dtype=np.int64)
    masses = np.zeros((len(rows), width))
    for i, (start, mass) in enumerate(rows):
        starts[i] = min(start, n + 1 - width)
        at = start - starts[i]
        masses[i, at : at + len(mass)] = mass
    np.maximum(masses, 0.0, out=masses)
    masses /= masses.sum(axis=1, keepdims=True)
    return starts, masses
