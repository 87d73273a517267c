"""How the label-free calibration error of the demo's models did, beside what all labels say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from monitor.base.records import Floats, Ints
from monitor.base.results import Estimate
from monitor.cli.demo.stream import WINDOW_SIZE, DemoData
from monitor.export.charts.svg import ControlChartData
from monitor.stats.estimate.calibration_error import labelled_calibration_error

CALIBRATION_WHY = (
    "Why: the label-free ECE holds a model's scores against confidences that were calibrated on the winter "
    "and on labels since. Where those are wrong themselves it cannot see the error; and the weather that "
    "the flights of a window share moves every window off calibration, those of the reference too."
)

_STANDARD_ERRORS = 2.0


@dataclass(frozen=True, slots=True)
class CalibrationSummary:
    """The calibration error of one model, means over whole windows, 0 to 1.

    Parameters
    ----------
    model : str
    estimate : float
        What was estimated without labels.
    realised, reference : (windows,), (reference windows,) float64
        What turned out by all labels, with the bias of label noise taken off: of the stream's windows
        and of the reference's.
    alarmed : (windows,) bool
        Whether the alarm of this metric stood.
    """

    model: str
    estimate: float
    realised: Floats
    reference: Floats
    alarmed: np.ndarray[tuple[int], np.dtype[np.bool_]]


def turned_out_calibration(data: DemoData, model: int, windows: int) -> Floats:
    """Calibration error of every window over all of its flights whose outcome is known, (windows,)."""
    rows = windows * WINDOW_SIZE
    return _by_window(data.scores[:rows, model], data.late[:rows])


def _by_window(score: Floats, late: Ints) -> Floats:
    starts = range(0, len(late) - WINDOW_SIZE + 1, WINDOW_SIZE)
    windows = (slice(start, start + WINDOW_SIZE) for start in starts)
    return np.array([_calibration_error(score[one], late[one]) for one in windows], dtype=np.float64)


def _calibration_error(score: Floats, late: Ints) -> float:
    """NaN where too few outcomes are known."""
    known = late >= 0
    said = score[known] > 0.5
    confidence = np.where(said, score[known], 1.0 - score[known])
    found = labelled_calibration_error(confidence, said == (late[known] == 1)).corrected.result
    return found.value if isinstance(found, Estimate) else float("nan")


def summarise_calibration(data: DemoData, charts: Sequence[ControlChartData]) -> list[CalibrationSummary]:
    """Hold each model's chart of the calibration error, with what turned out in it, against the truth."""
    found = []
    for column, (model, chart) in enumerate(zip(data.models, charts, strict=True)):
        known = np.isfinite(chart.value) & np.isfinite(chart.realised)
        found.append(
            CalibrationSummary(
                model=model,
                estimate=float(chart.value[known].mean()),
                realised=chart.realised[known],
                reference=_by_window(data.reference_scores[:, column], data.reference_late),
                alarmed=chart.out_of_control[known],
            )
        )
    return found


def calibration_sentence(found: CalibrationSummary) -> str:
    """Estimated, turned out, what the reference showed, and whether the alarms were right."""
    return (
        f"{found.model}: estimated {_points(found.estimate)} %, turned out {_mean(found.realised)} % "
        f"a window; in the reference {_mean(found.reference)} %. {_judged(found)}"
    )


def _judged(found: CalibrationSummary) -> str:
    """Differences within two standard errors of the means count as none; windows are taken as independent,
    which they are not quite, so that a difference called one may still be the weather's."""
    inside, outside = found.realised[found.alarmed], found.realised[~found.alarmed]
    if not found.alarmed.any():
        rose = _above(found.realised, found.reference)
        return "No alarm, which missed the rise." if rose else "No alarm, and no rise either."
    stood = f"The alarm stood in {100 * found.alarmed.mean():.0f} % of the windows, with {_mean(inside)} %"
    if not len(outside):
        right = _above(inside, found.reference)
        return f"{stood}: {'rightly' if right else 'wrongly, as the reference had no less'}."
    verdict = "rightly" if _above(inside, outside) else "wrongly, as they were no worse"
    return f"{stood}, against {_mean(outside)} % in the others: {verdict}."


def _above(left: Floats, right: Floats) -> bool:
    error = np.sqrt(
        sum(values.var(ddof=1) / len(values) if len(values) > 1 else 0.0 for values in (left, right))
    )
    return bool(left.mean() - right.mean() > _STANDARD_ERRORS * error)


def _mean(values: Floats) -> str:
    return _points(float(values.mean()))


def _points(ratio: float) -> str:
    return f"{100 * ratio:.1f}"
