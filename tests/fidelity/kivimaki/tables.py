"""The tables as text: ours / the paper's in every cell, in percent or percentage points."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from monitor.base.records import Floats
from tests.fidelity.kivimaki.data import CIRCLE, CIRCLE_AS_PRINTED, LINEAR, SHIFTS
from tests.fidelity.kivimaki.exact import Best, best
from tests.fidelity.kivimaki.measure import Line, correlations
from tests.fidelity.kivimaki.printed import (
    BAYES,
    CELLS,
    COLUMNS,
    CORRELATIONS,
    ESTIMATORS,
    MEANS,
    MODELS,
    POSITIVES,
)

BOUNDARY = {"linear": "linear boundary", "circle": "non-linear boundary"}
NUMBER = {"linear": 5, "circle": 7}


def table4(exact: Mapping[str, Sequence[Best]]) -> str:
    """Return the best classifier by integration, beside print."""
    out = [
        "Table 4: the Bayes optimal classifier, exact / printed; ACE: what 25,000 rows show by chance",
        f"{'shift':>5s}  " + "".join(f"{f'{BOUNDARY[name]}: accuracy':>34s}{'ACE':>14s}" for name in exact),
    ]
    for shift in SHIFTS:
        row = f"{shift:5d}  "
        for name, bests in exact.items():
            accuracy, error = BAYES[name][shift]
            row += f"{100 * bests[shift].accuracy:27.2f} /{accuracy:5.1f}"
            row += f"{100 * bests[shift].sampling_error:8.2f} /{error:4.1f}"
        out.append(row)
    return "\n".join(out) + "\n"


def table8(exact: Sequence[Best]) -> str:
    """Return shares of positive labels in the second scenario, with both radii."""
    out = [
        "Table 8: positive labels in the second scenario, in %",
        f"{'shift':>5s}{'exact, radius 5':>18s}{'exact, radius √5':>18s}{'printed':>10s}",
    ]
    as_printed = best(CIRCLE_AS_PRINTED)
    for shift in SHIFTS:
        out.append(
            f"{shift:5d}{100 * exact[shift].positives:18.2f}{100 * as_printed[shift].positives:18.2f}"
            f"{POSITIVES[shift]:10.2f}"
        )
    return "\n".join(out) + "\n"


def main_table(name: str, lines: Sequence[Line], exact: Sequence[Best]) -> str:
    """Return Table 5 or 7: accuracy, calibration errors and mean absolute errors."""
    out = [
        f"Table {NUMBER[name]}: mean absolute error of estimated accuracy, {BOUNDARY[name]}, ours / printed",
        f"{'shift':>5s} {'model':6s}{'true':>6s}" + "".join(f"{column:>13s}" for column in COLUMNS),
    ]
    for shift in SHIFTS:
        for line in (x for x in lines if x.shift == shift):
            theirs = CELLS[name][shift, MODELS.index(line.model)]
            cells = "".join(map(_pair, line.values(), theirs))
            out.append(f"{shift:5d} {line.model:6s}{100 * line.true_accuracy:6.1f}{cells}")
        of = exact[shift]
        floor = 100 * np.array([of.accuracy, of.sampling_error, of.average_confidence_error])
        out.append(f"{shift:5d} {'best':6s}{floor[0]:6.1f}{'':13s}{floor[1]:7.1f}{'':19s}{floor[2]:7.1f}")
    if {line.model for line in lines} == set(MODELS):
        mean = np.mean([line.values() for line in lines], axis=0)
        out.append(f"{'':5s} {'mean':6s}{'':6s}" + "".join(map(_pair, mean, MEANS[name])))
    return "\n".join(out) + "\n"


def _pair(ours: float, theirs: float) -> str:
    return f"{ours:7.1f} /{theirs:4.1f}"


def table6(by_scenario: Mapping[str, Sequence[Line]]) -> str:
    """Return correlations with the calibration error, also from the paper's own printed cells."""
    out = [
        "Table 6: correlation of estimation and calibration error over models and shifts: "
        "ours / printed (from the cells they print)",
        f"{'estimator':10s}" + "".join(f"{BOUNDARY[name]:>28s}" for name in by_scenario),
    ]
    ours = {name: correlations(lines) for name, lines in by_scenario.items()}
    for at, estimator in enumerate(ESTIMATORS):
        row = f"{estimator:10s}"
        for name in by_scenario:
            row += (
                f"{ours[name][at]:13.3f} /{CORRELATIONS[name][at]:6.3f} ({printed_correlation(name, at):.3f})"
            )
        out.append(row)
    return "\n".join(out) + "\n"


def printed_correlation(name: str, at: int) -> float:
    """Return the correlation of one estimator from the cells of Table 5 or 7 as they are printed."""
    cells: Floats = CELLS[name].reshape(-1, len(COLUMNS))
    return float(np.corrcoef(cells[:, 1 + at % 2], cells[:, 3 + at])[0, 1])


def calibration_table(by_method: Mapping[str, Mapping[str, Sequence[Line]]]) -> str:
    """Return means over models and shifts with each of our calibrations; the paper shows isotonic only."""
    shown = ("ACEc", "ACc", "DOCc", "ATCc")
    out = [
        "With other calibrations: means over models and shifts, in points",
        f"{'calibration':12s}"
        + "".join(f"{f'{name} {column}':>13s}" for name in BOUNDARY for column in shown),
    ]
    for method, by_scenario in by_method.items():
        row = f"{method:12s}"
        for name in BOUNDARY:
            mean = np.mean([line.values() for line in by_scenario[name]], axis=0)
            row += "".join(f"{mean[COLUMNS.index(column)]:13.2f}" for column in shown)
        out.append(row)
    return "\n".join(out) + "\n"


def spread_table(spreads: Mapping[tuple[str, str], Floats], runs: int) -> str:
    """Return the table of how much a cell of Tables 5 and 7 moves with the data set."""
    out = [
        f"Standard deviation between {runs} data sets, in points (mean of variances over the shifts)",
        f"{'boundary':16s} {'model':6s}" + "".join(f"{column:>8s}" for column in COLUMNS),
    ]
    for (name, model), values in spreads.items():
        out.append(f"{BOUNDARY[name]:16s}  {model:6s}" + "".join(f"{value:8.2f}" for value in values))
    return "\n".join(out) + "\n"


def exact_figures() -> dict[str, tuple[Best, ...]]:
    """Return the figures of both scenarios, by name."""
    return {LINEAR.name: best(LINEAR), CIRCLE.name: best(CIRCLE)}
