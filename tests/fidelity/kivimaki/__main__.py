"""Print Tables 4 to 8 of Kivimäki et al., ours beside theirs.

    python -m tests.fidelity.kivimaki  # as the paper has it, 8 minutes of a core; kept
    python -m tests.fidelity.kivimaki --rows 10000 --models NB LR KNN RF  # shorter; printed only

The whole of it needs XGBoost and LightGBM: pip install 'blindsight[fidelity]'.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Literal

from monitor.base.errors import MissingExtraError
from monitor.base.records import Floats
from tests.fidelity.kivimaki import tables
from tests.fidelity.kivimaki.data import OTHER_ROWS, TRAIN_ROWS
from tests.fidelity.kivimaki.measure import TRIALS, Found, Sizes, measure, spread
from tests.fidelity.kivimaki.notes import header
from tests.fidelity.kivimaki.printed import MODELS
from tests.harness import run

METHODS = ("isotonic", "beta", "platt", "auto")
SEED = 1
SPREAD_SEEDS = range(2, 8)
SLOW = ("SVM", "RF")
"""Left out of the spread between data sets: they take minutes each."""


def parts(by_method: Found, moved: Mapping[tuple[str, str], Floats], sizes: Sizes) -> Iterator[str]:
    """Yield the tables, a text each."""
    exact, isotonic = tables.exact_figures(), by_method["isotonic"]
    yield header(isotonic, exact, sizes)
    yield tables.table4(exact)
    for name, each in isotonic.items():
        yield tables.main_table(name, each, exact[name])
    yield tables.table6(isotonic)
    yield tables.table8(exact["circle"])
    yield tables.calibration_table(by_method)
    if moved:
        yield tables.spread_table(moved, len(SPREAD_SEEDS))


def table(
    models: tuple[Literal[MODELS], ...] = MODELS,  # type: ignore[valid-type]
    rows: int = TRAIN_ROWS,
    trials: int = TRIALS,
    seed: int = SEED,
) -> str:
    """Print all tables: `rows` rows to train on and a quarter in other sets, `trials` windows of 500 rows a
    cell.
    """
    sizes = Sizes(rows, rows * OTHER_ROWS // TRAIN_ROWS, trials)
    fast = [model for model in models if model not in SLOW]
    try:
        by_method = measure(models, sizes, seed, METHODS)
        moved = spread(fast, sizes, SPREAD_SEEDS) if fast else {}
    except MissingExtraError as error:
        print(error, file=sys.stderr)
        raise SystemExit(2) from None
    return "\n".join(parts(by_method, moved, sizes))


if __name__ == "__main__":
    run(table)
