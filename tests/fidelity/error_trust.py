"""Trust in the estimated errors of regressors: how often it is lost without a cause, and how soon with one.

    python -m tests.fidelity.error_trust [size | bias] [--lives N]

Rows of `tests.fidelity.regression`, with a reference of 1,000 or 5,000 rows, and 40 windows of 500 rows
through the estimates and the test of an agent. Labels of a fifth of the rows come before their window closes,
or two windows later. `weighted` labels are picked more often where larger errors are expected, and state
their probability. `moved` has its first number moved by one standard deviation from window 10 on, without
another change. `+30 %` and `+50 %` are errors that grow by so much at window 10 and stay so; `gone` ones
until window 25. `size` is the test of the sizes, and `bias` the one of the errors with their signs: its
changes move all errors by so much of the mean absolute error.

`lose` is the share of lives that lose trust: of those with a change, at or after window 10. `labels` are the
labels from the change until the window in which trust is lost has closed, mean and 90 %. `back` is the share
of windows after the first loss in which trust is back although the errors are still larger; `again` the
windows from the end of a change until trust is back, mean.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from monitor.base.records import Floats, Ints
from monitor.engine.error_estimates import ErrorEstimator
from monitor.engine.labels.error_trust import ErrorTest, ExpectedError, compare_errors
from monitor.engine.regression import NumberReference
from tests.fidelity.regression import Rows, simulated_rows
from tests.harness import run
from tests.numbers import regression

WINDOWS, SIZE = 40, 500
CHANGE, GONE = 10, 25
FIRST_REPORTED = 5000  # the first seed; the test was tried on seeds below 1000


class Case(NamedTuple):
    """A stream and its labels: the growth of the errors, and the windows after which labels come."""

    name: str
    reference: int
    growth: float = 0.0
    late: int = 0
    moved: bool = False
    weighted: bool = False
    gone: bool = False
    signed: bool = False


CASES = (
    Case("no change", 1000),
    Case("no change", 5000),
    Case("no change", 5000, late=2),
    Case("no change, weighted", 5000, weighted=True),
    Case("moved", 1000, moved=True),
    Case("moved", 5000, moved=True),
    Case("moved, weighted", 5000, moved=True, weighted=True),
    Case("+30 %", 1000, 0.3),
    Case("+30 %", 5000, 0.3),
    Case("+30 %, weighted", 5000, 0.3, weighted=True),
    Case("+50 %", 1000, 0.5),
    Case("+50 %", 5000, 0.5),
    Case("+50 %", 5000, 0.5, late=2),
    Case("+50 %, gone", 5000, 0.5, gone=True),
)

BIAS_CASES = (
    Case("no change", 1000, signed=True),
    Case("no change", 5000, signed=True),
    Case("moved", 1000, moved=True, signed=True),
    Case("moved", 5000, moved=True, signed=True),
    Case("+50 %", 1000, 0.5, signed=True),
    Case("+50 %", 5000, 0.5, signed=True),
    Case("-50 %", 5000, -0.5, signed=True),
)


class Stream(NamedTuple):
    """The windows of a stream, with the estimate of each and the errors that the reference lets expect."""

    rows: list[Rows]
    expected: list[dict[str, ExpectedError]]


def stream_of(seed: int, reference: int, moved: bool) -> Stream:
    """Return a stream without a change of the errors; its estimates need no labels."""
    rng = np.random.default_rng([47, seed, reference])
    kinds = {"a": "number", "b": "number", "c": "number", "segment": "text"}
    known = simulated_rows(rng, reference, 0.0)
    numbers = np.column_stack((known.columns[:, 0], known.columns[:, 0] - known.errors))
    zeros = np.zeros(reference, dtype=np.int64)
    rows = NumberReference(
        known.columns[:, :1], zeros, zeros, np.arange(reference) * 1.0, "", {}, known.columns[:, 1:], numbers
    )
    estimator = ErrorEstimator(regression(features=kinds), rows, "")
    windows = [
        simulated_rows(rng, SIZE, 1.0 if moved and window >= CHANGE else 0.0) for window in range(WINDOWS)
    ]
    expected = [estimator.expected(estimator.means(np.roll(each.columns, -1, axis=1))) for each in windows]
    return Stream(windows, expected)


def life(case: Case, stream: Stream, seed: int) -> tuple[NDArray[np.bool_], Ints]:
    """Return whether the errors are trusted as each window closes, and the labels since the change."""
    rng = np.random.default_rng([48, seed])
    test, labels = ErrorTest(keep=100, signed=case.signed), np.zeros(WINDOWS, dtype=np.int64)
    chosen: list[tuple[Floats, Floats]] = []
    trusted = np.zeros(WINDOWS, dtype=np.bool_)
    for window, rows in enumerate(stream.rows):
        grown = CHANGE <= window < (GONE if case.gone else WINDOWS)
        growth = case.growth * grown
        errors = (
            rows.errors + growth * np.abs(rows.errors).mean() if case.signed else rows.errors * (1 + growth)
        )
        chance = np.full(SIZE, 0.2)
        if case.weighted:
            chance = np.clip(0.2 * np.exp(0.5 * rows.columns[:, 1]), 0.05, 0.8)
        picked = rng.random(SIZE) < chance
        chosen.append((errors[picked], 1.0 / chance[picked] if case.weighted else np.ones(picked.sum())))
        if window >= case.late:
            of, (shown, weight) = window - case.late, chosen[window - case.late]
            compare_errors([test], np.zeros(len(shown), np.int64), np.full(len(shown), of), shown, weight)
            labels[window] = len(shown) * (of >= CHANGE)
        test.close(window, stream.expected[window].get("bias" if case.signed else "mae"))
        trusted[window] = test.test.trusted
    return trusted, labels.cumsum()


def size(lives: int = 200) -> Iterator[str]:
    """Yield the table of the test of sizes."""
    yield f"Trust in estimated errors, {lives} lives a row (python -m tests.fidelity.error_trust size)"
    yield from _rows(CASES, lives)


def bias(lives: int = 60) -> Iterator[str]:
    """Yield the table of the test of the bias."""
    yield f"Trust in the estimated bias, {lives} lives a row (python -m tests.fidelity.error_trust bias)"
    yield from _rows(BIAS_CASES, lives)


def _rows(cases: Sequence[Case], lives: int) -> Iterator[str]:
    yield f"{'':24}{'reference':>10}{'late':>6}{'lose':>9}{'labels':>9}{'90 %':>7}{'back':>9}{'again':>8}"
    results: dict[Case, list[tuple[NDArray[np.bool_], Ints]]] = {case: [] for case in cases}
    for seed in range(FIRST_REPORTED, FIRST_REPORTED + lives):
        streams: dict[tuple[int, bool], Stream] = {}
        for case in cases:
            key = case.reference, case.moved
            if key not in streams:
                streams[key] = stream_of(seed, *key)
            results[case].append(life(case, streams[key], seed))
    for case, lived in results.items():
        yield row_of(case, lived)


def row_of(case: Case, lived: list[tuple[NDArray[np.bool_], Ints]]) -> str:
    """Return one line of the table."""
    begin = CHANGE if case.growth else 0
    after = [one for one in lived if not one[0][begin:].all()]
    lost = [trusted for trusted, _ in after]
    line = f"{case.name:24}{case.reference:>10,}{case.late:>6}{100 * len(lost) / len(lived):>7.1f} %"
    if not case.growth:
        return line
    stop = GONE if case.gone else WINDOWS
    first = [begin + int(np.argmin(each[begin:])) for each in lost]
    labels = [many[at] for (_, many), at in zip(after, first, strict=True)]
    back = np.concatenate([each[at:stop] for each, at in zip(lost, first, strict=True)])
    line += f"{np.mean(labels):>9.0f}{np.quantile(labels, 0.9):>7.0f}{100 * back.mean():>7.1f} %"
    again = [int(np.argmax(np.append(each[GONE:], True))) for each in lost]
    return line + (f"{np.mean(again):>8.1f}" if case.gone else "")


if __name__ == "__main__":
    run({"size": size, "bias": bias})
