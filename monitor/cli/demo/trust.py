"""Reports the times when labels contradicted the demo's estimates, and the benefit of recalibrations.

The agent trusts the estimates of a model until labels contradict them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np

from monitor.base.records import Floats
from monitor.cli.demo.stream import WINDOW_SIZE, DemoData
from monitor.export.charts.svg import ControlChartData
from monitor.reports.trust import Bias
from monitor.reports.window_report import WindowReport
from monitor.stats.calibration.base import confidence_of
from monitor.stats.calibration.isotonic import IsotonicCalibrator

TRUST_WHY = (
    "Why: each labelled flight is a bet against what earlier labels predicted. Once the bets are won at "
    "odds of 20 to 1 the estimate is not trusted, and only a fresh test of later predictions brings trust "
    "back. A bias that the corrected accuracy follows costs none: it is shown, and the calibration is fitted "
    "again on the labels since the change."
)

_TOGETHER = 20


@dataclass(frozen=True, slots=True)
class Loss:
    """A loss of trust: labels contradict the estimates of a model.

    Parameters
    ----------
    window : int
        The number of the first window that was not trusted.
    time : float
        End of this window, in seconds since the epoch.
    bias : Bias or None
        The bias of the estimates; None if it was not known at the end of this window.
    regained : float or None
        End of the first window that was trusted again; None if trust was not regained.
    """

    window: int
    time: float
    bias: Bias | None
    regained: float | None


@dataclass(frozen=True, slots=True)
class TrustStory:
    """The losses of trust in the estimates of one model, over all of its windows.

    Parameters
    ----------
    model : str
    losses : tuple of Loss
        The losses of trust in order of time.
    trusted : float
        Share of the windows that were trusted, 0 to 1.
    calibrations : int
        The number of calibrations fitted on labels.
    """

    model: str
    losses: tuple[Loss, ...]
    trusted: float
    calibrations: int


class TrustStories:
    """A collector of the windows in which each model was trusted. It ignores groups and revisions."""

    def __init__(self) -> None:
        self._windows: dict[str, list[tuple[int, float, bool, Bias | None, int]]] = {}

    def add(self, reports: Sequence[WindowReport]) -> None:
        """Record for closed windows whether the agent trusted the model's estimates."""
        for report in reports:
            if report.group or report.revision:
                continue
            trust = report.trust
            self._windows.setdefault(report.model, []).append(
                (
                    report.window,
                    report.end_time,
                    trust is None,
                    trust.bias if trust is not None else None,
                    report.calibration.version,
                )
            )

    def story(self, model: str) -> TrustStory:
        """Return the losses of trust in the estimates of one model, over all of its windows.

        Raises
        ------
        KeyError
            The model has no closed window.
        """
        windows = self._windows[model]
        losses: list[Loss] = []
        before = True
        for number, time, trusted, bias, _ in windows:
            if before and not trusted:
                losses.append(Loss(number, time, bias, None))
            elif trusted and not before:
                last = losses.pop()
                losses.append(Loss(last.window, last.time, last.bias, time))
            before = trusted
        share = float(np.mean([trusted for _, _, trusted, *_ in windows]))
        return TrustStory(model, tuple(losses), share, max(0, windows[-1][-1] - 1))


def trust_sentence(story: TrustStory, bias: float, bias_before: float) -> str:
    """Return a sentence on the losses of trust of a model and on the benefit of its recalibrations.

    Parameters
    ----------
    story : TrustStory
    bias, bias_before : float
        The `lasting_error` with the recalibrations, and with the calibration on the reference alone.

    Examples
    --------
    >>> lost = Loss(7, 1365724800.0, Bias(-0.052, -0.081, -0.024, 0.95, 310), 1366000000.0)
    >>> trust_sentence(TrustStory("forest", (lost,), 0.9, 1), 0.012, 0.024)
    "forest: lost on 12 April, off by -5.2 points in 310 labelled flights; trusted again by 15 April.
    Lost 1 time in all, trusted in 90 % of the windows, 1 calibration from labels. ...
    """
    fits = story.calibrations
    lasting = (
        f"{fits} calibration{'s' if fits != 1 else ''} from labels. Over {_TOGETHER} windows the estimate "
        f"is off by {100 * bias:.1f} points on average; the winter's calibration alone by "
        f"{100 * bias_before:.1f}."
    )
    if not story.losses:
        return f"{story.model}: labels never contradicted what was predicted; {lasting}"
    first = story.losses[0]
    size = ""
    if first.bias is not None:
        size = f", off by {100 * first.bias.value:+.1f} points in {first.bias.rows:,} labelled flights"
    again = f"trusted again by {_day(first.regained)}" if first.regained else "not trusted since"
    times = len(story.losses)
    return (
        f"{story.model}: lost on {_day(first.time)}{size}; {again}. Lost {times} "
        f"time{'s' if times > 1 else ''} in all, trusted in {100 * story.trusted:.0f} % of the windows, "
        f"{lasting}"
    )


def trust_sentences(
    models: Sequence[str], stories: TrustStories, lasting: Sequence[tuple[float, float]]
) -> Iterator[str]:
    """Yield the `trust_sentence` of each model. `lasting` is the result of `lasting_errors`."""
    for model, (bias, before) in zip(models, lasting, strict=True):
        yield trust_sentence(stories.story(model), bias, before)


def lasting_errors(data: DemoData, charts: Sequence[ControlChartData]) -> list[tuple[float, float]]:
    """Return the `lasting_error` of each model with recalibrations, and with the first calibration alone.

    Parameters
    ----------
    data : DemoData
    charts : sequence of ControlChartData
        One chart of the accuracy for each model, with the true values.
    """
    return [
        (
            lasting_error(chart.value, chart.realised),
            lasting_error(_by_the_reference(data, column, len(chart.value)), chart.realised),
        )
        for column, chart in enumerate(charts)
    ]


def _by_the_reference(data: DemoData, column: int, windows: int) -> Floats:
    """Return the estimate of each window by the calibration that was fitted on the reference, (windows,)."""
    fitted = IsotonicCalibrator().fit(
        _pair(data.reference_scores[:, column]),
        (data.reference_scores[:, column] > 0.5).astype(np.int64),
        data.reference_late,
    )
    scores = data.scores[: windows * WINDOW_SIZE, column]
    confidence = confidence_of(fitted.apply(_pair(scores)), (scores > 0.5).astype(np.int64))
    means: Floats = confidence.reshape(windows, WINDOW_SIZE).mean(axis=1)
    return means


def _pair(late: Floats) -> Floats:
    return np.column_stack((1 - late, late))


def lasting_error(estimate: np.ndarray, realised: np.ndarray) -> float:
    """Return the mean absolute error of the estimates' means over 20 consecutive windows.

    Such means hardly depend on the weather, so the result is the lasting part of the error.

    Parameters
    ----------
    estimate, realised : (n,) float64
        The estimates and the true values of n windows, 0 to 1. With fewer than 20 windows, the mean is over
        all windows.
    """
    width = min(_TOGETHER, len(estimate))
    means = np.convolve(estimate - realised, np.ones(width) / width, mode="valid")
    return float(np.abs(means).mean())


def _day(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%-d %B")
