"""The demo's calibration errors estimated without labels, compared with the errors from all labels."""

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
    """The calibration error of one model, from 0 to 1.

    Parameters
    ----------
    model : str
    estimate : float
        The mean of the estimates without labels.
    realised, reference : (windows,), (reference windows,) float64
        The error computed from all labels, corrected for the bias of label noise, in each window of the
        stream and of the reference.
    alarmed : (windows,) bool
        True for the windows in which the alarm of this metric was on.
    """

    model: str
    estimate: float
    realised: Floats
    reference: Floats
    alarmed: np.ndarray[tuple[int], np.dtype[np.bool_]]


def turned_out_calibration(data: DemoData, model: int, windows: int) -> Floats:
    """Return the true calibration error of each window, from all flights with a known outcome, (windows,)."""
    rows = windows * WINDOW_SIZE
    return _by_window(data.scores[:rows, model], data.late[:rows])


def _by_window(score: Floats, late: Ints) -> Floats:
    starts = range(0, len(late) - WINDOW_SIZE + 1, WINDOW_SIZE)
    windows = (slice(start, start + WINDOW_SIZE) for start in starts)
    return np.array([_calibration_error(score[one], late[one]) for one in windows], dtype=np.float64)


def _calibration_error(score: Floats, late: Ints) -> float:
    """Return the error, or NaN if too few outcomes are known."""
    known = late >= 0
    predicted = score[known] > 0.5
    confidence = np.where(predicted, score[known], 1.0 - score[known])
    error = labelled_calibration_error(confidence, predicted == (late[known] == 1)).corrected.result
    return error.value if isinstance(error, Estimate) else float("nan")


def summarise_calibration(data: DemoData, charts: Sequence[ControlChartData]) -> list[CalibrationSummary]:
    """Return a summary of each model's calibration errors. `charts` are the models' charts of this error."""
    summaries = []
    for column, (model, chart) in enumerate(zip(data.models, charts, strict=True)):
        known = np.isfinite(chart.value) & np.isfinite(chart.realised)
        summaries.append(
            CalibrationSummary(
                model=model,
                estimate=float(chart.value[known].mean()),
                realised=chart.realised[known],
                reference=_by_window(data.reference_scores[:, column], data.reference_late),
                alarmed=chart.out_of_control[known],
            )
        )
    return summaries


def calibration_sentence(summary: CalibrationSummary) -> str:
    """Return a sentence with a model's estimated, true and reference error, and a verdict on its alarms."""
    return (
        f"{summary.model}: estimated {_points(summary.estimate)} %, turned out {_mean(summary.realised)} % "
        f"a window; in the reference {_mean(summary.reference)} %. {_verdict(summary)}"
    )


def _verdict(summary: CalibrationSummary) -> str:
    """Return a sentence on whether the alarms were right.

    A difference within two standard errors of the means does not count. The standard error assumes
    independent windows. The weather makes windows dependent, so some counted differences may still be due to
    chance.
    """
    inside, outside = summary.realised[summary.alarmed], summary.realised[~summary.alarmed]
    if not summary.alarmed.any():
        rose = _above(summary.realised, summary.reference)
        return "No alarm, which missed the rise." if rose else "No alarm, and no rise either."
    stood = f"The alarm stood in {100 * summary.alarmed.mean():.0f} % of the windows, with {_mean(inside)} %"
    if not len(outside):
        right = _above(inside, summary.reference)
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
