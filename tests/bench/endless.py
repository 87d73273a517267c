"""A stream of any length, written as fast as it is read: predictions of four models, and labels for some.

Lines of one length in a matrix of bytes, into which numpy writes the figures: millions a second, where
formatting each line would take longer than the agent takes to use it.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from tests.streams import confidences

MODELS = ("m0", "m1", "m2", "m3")
BLOCK = 20_000
"""Records made at a time; the labels of a block's rows come with the next block."""

_STEP_MILLIS = 20
_START_MILLIS = 1_700_000_000_000
_SCORE = 1_000_000

_PREDICTION = b'{"id":"r0000000000","time":1000000000.000,"model":"m0","scores":[0.111111,0.222222]}\n'
_LABEL = b'{"id":"r0000000000","time":1000000000.000,"label":"??????}\n'

Matrix = NDArray[np.uint8]


def stream(stop: int, start: int = 0, labelled: float = 0.05, seed: int = 0) -> Iterator[bytes]:
    """Yield the predictions from `start` to `stop`, with labels for a share of the previous block.

    Parameters
    ----------
    stop, start : int
        Numbers of predictions, whole blocks: the same range, the same bytes, however it is asked for.
    labelled : float
        Share of the rows that get a label, a block later.
    seed : int

    Raises
    ------
    ValueError
        A range that is not of whole blocks.
    """
    if start % BLOCK or stop % BLOCK:
        raise ValueError(f"start and stop must be multiples of {BLOCK:,}, got {start:,} and {stop:,}")
    for first in range(start, stop, BLOCK):
        yield _predictions(first, _scores(first, seed)).tobytes()
        if first:
            yield _labels(first - BLOCK, labelled, seed).tobytes()


def _scores(first: int, seed: int) -> NDArray[np.float64]:
    return confidences(np.random.default_rng((seed, first)), BLOCK)


def _predictions(first: int, score: NDArray[np.float64]) -> Matrix:
    numbers = first + np.arange(BLOCK)
    lines = _lines(_PREDICTION, numbers, numbers)
    _write(lines, _PREDICTION.index(b"m0") + 1, 1, numbers % len(MODELS))
    parts = np.clip(np.rint(score * _SCORE).astype(np.int64), 1, _SCORE - 1)
    _write(lines, _PREDICTION.index(b"111111"), 6, _SCORE - parts)
    _write(lines, _PREDICTION.index(b"222222"), 6, parts)
    return lines


def _labels(first: int, share: float, seed: int) -> Matrix:
    """Return drawn from the scores: right as often as they say."""
    rng = np.random.default_rng((seed, first, 1))
    rows = np.flatnonzero(rng.random(BLOCK) < share)
    lines = _lines(_LABEL, first + rows, np.full(len(rows), first + 2 * BLOCK - 1))
    toxic = rng.random(len(rows)) < _scores(first, seed)[rows]
    words = np.frombuffer(b'ok"   toxic"', dtype=np.uint8).reshape(2, 6)
    start = _LABEL.index(b"??????")
    lines[:, start : start + 6] = words[toxic.astype(int)]
    return lines


def _lines(line: bytes, numbers: NDArray[np.int64], steps: NDArray[np.int64]) -> Matrix:
    lines = np.tile(np.frombuffer(line, dtype=np.uint8), (len(numbers), 1))
    millis = _START_MILLIS + steps * _STEP_MILLIS
    _write(lines, line.index(b"r0") + 1, 10, numbers)
    _write(lines, line.index(b"1000000000"), 10, millis // 1000)
    _write(lines, line.index(b".") + 1, 3, millis % 1000)
    return lines


def _write(lines: Matrix, place: int, digits: int, values: NDArray[np.int64]) -> None:
    for i in reversed(range(digits)):
        values, digit = np.divmod(values, 10)
        lines[:, place + i] = ord("0") + digit
