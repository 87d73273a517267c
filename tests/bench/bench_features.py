"""Cost of the drift of a window's features, and of the split of a change over them.

    python -m tests.bench.bench_features [--reference 10000] [--keep]

Milliseconds of the processor by features and rows of the window. *drift* is `drift` for each feature and
`discoveries` over all, from tables of 16 counts. An alarm costs the other three: *bins* prepares the rows of
the reference (`SplitReference.from_rows`); *ratio* is the fit of the density ratio (`SplitReference.fit`);
*split* is `WindowSplit.split` of one metric, with standard errors, beyond that fit.
Half of the features are numbers, half texts of ten categories; numbers move by half a standard deviation, two
turn their correlation, and one category comes in more than half of the rows.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from monitor.base.records import FeatureKind, Floats
from monitor.stats.features.drift import discoveries, drift
from monitor.stats.features.split import MOST_ROWS, SplitReference
from tests.bench.bench_covariates import features_of, processor
from tests.harness import run

FEATURES = (4, 8, 16)
WINDOWS = (500, 1000, 5000)
CELLS = 16


def drift_seconds(many: int, n: int) -> float:
    """Return the seconds for the drift of `many` features of a window of n rows."""
    rng = np.random.default_rng(many)
    shares = rng.dirichlet(np.full(CELLS, 5.0), many)
    before = [rng.multinomial(MOST_ROWS, each) for each in shares]
    now = [rng.multinomial(n, each) for each in shares]

    def measure() -> None:
        each = [drift(a, b) for a, b in zip(before, now, strict=True)]
        discoveries(np.array([one.p_value for one in each]))

    return processor(measure)


def split_seconds(reference: int, many: int, n: int) -> tuple[float, float, float]:
    """Seconds of the reference's preparation, of the fit of the ratio, and of the split of a change."""
    rng = np.random.default_rng(many)
    kinds: list[FeatureKind] = ["number"] * (many // 2) + ["text"] * (many // 2)
    rows, window = features_of(rng, reference, many, shifted=False), features_of(rng, n, many, shifted=True)
    names = [str(k) for k in range(many)]
    prepared = SplitReference.from_rows(rows, kinds, names)
    fitted = prepared.fit(window)
    assert fitted.reason is None
    before, now = (confidence(each) for each in (rows, window))
    return (
        processor(lambda: SplitReference.from_rows(rows, kinds, names)),
        processor(lambda: prepared.fit(window)),
        processor(lambda: fitted.split(before, now)),
    )


def confidence(features: Floats) -> Floats:
    """Return confidences that depend on the first number."""
    values: Floats = 0.8 + 0.1 * np.tanh(features[:, 0])
    return values


def table(reference: int = MOST_ROWS) -> Iterator[str]:
    """Milliseconds."""
    yield (
        f"Milliseconds of the processor a window, reference of {reference:,} rows "
        "(python -m tests.bench.bench_features)"
    )
    yield f"{'features':>8s}{'rows':>8s}{'drift':>8s}{'bins':>8s}{'ratio':>8s}{'split':>8s}"
    for many in FEATURES:
        for n in WINDOWS:
            seconds = drift_seconds(many, n), *split_seconds(reference, many, n)
            yield f"{many:8d}{n:8,}" + "".join(f"{1e3 * one:8.1f}" for one in seconds)


if __name__ == "__main__":
    run(table, keep=False)
