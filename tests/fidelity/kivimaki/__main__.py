"""Print Tables 4 to 8 of Kivimäki et al., ours beside theirs.

    python -m tests.fidelity.kivimaki  # as the paper has it, 8 minutes of a core; kept
    python -m tests.fidelity.kivimaki --rows 10000 --models NB LR KNN RF  # shorter; printed only

The whole of it needs XGBoost and LightGBM: pip install 'blindsight[fidelity]'.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from monitor.base.errors import MissingExtraError
from monitor.base.records import Floats
from tests.fidelity.kivimaki import tables
from tests.fidelity.kivimaki.data import OTHER_ROWS, TRAIN_ROWS
from tests.fidelity.kivimaki.measure import TRIALS, Found, Sizes, measure, spread
from tests.fidelity.kivimaki.notes import header
from tests.fidelity.kivimaki.printed import MODELS

OUTPUT = Path(__file__).parents[1] / "output" / "kivimaki.txt"
METHODS = ("isotonic", "beta", "platt", "auto")
SEED = 1
SPREAD_SEEDS = range(2, 8)
SLOW = ("SVM", "RF")
"""Left out of the spread between data sets: they take minutes each."""


def parts(found: Found, moved: Mapping[tuple[str, str], Floats], sizes: Sizes) -> Iterator[str]:
    """The tables, a text each."""
    exact, isotonic = tables.exact_figures(), found["isotonic"]
    yield header(isotonic, exact, sizes)
    yield tables.table4(exact)
    for name, each in isotonic.items():
        yield tables.main_table(name, each, exact[name])
    yield tables.table6(isotonic)
    yield tables.table8(exact["circle"])
    yield tables.calibration_table(found)
    if moved:
        yield tables.spread_table(moved, len(SPREAD_SEEDS))


def main() -> None:
    """Measure, print, and keep the tables of a whole run."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.fidelity.kivimaki", description=__doc__.splitlines()[0] if __doc__ else None
    )
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--rows", type=int, default=TRAIN_ROWS, help="to train on; a quarter in other sets")
    parser.add_argument("--trials", type=int, default=TRIALS, help="windows of 500 rows a cell")
    parser.add_argument("--seed", type=int, default=SEED)
    options = parser.parse_args()
    sizes = Sizes(options.rows, options.rows * OTHER_ROWS // TRAIN_ROWS, options.trials)
    fast = [model for model in options.models if model not in SLOW]
    try:
        found = measure(options.models, sizes, options.seed, METHODS)
        moved = spread(fast, sizes, SPREAD_SEEDS) if fast else {}
    except MissingExtraError as error:
        print(error, file=sys.stderr)
        raise SystemExit(2) from None
    text = "\n".join(parts(found, moved, sizes))
    print(text, end="")
    if (sizes, options.models, options.seed) == (Sizes(), list(MODELS), SEED):  # only a whole run is kept
        OUTPUT.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
