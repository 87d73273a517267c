"""The trust that labels cost the demo's estimates, and that recalibration on labels restored."""

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
    """A loss of trust.

    Parameters
    ----------
    window : int
        The first that was not trusted.
    time : float
        Its end, seconds since the epoch.
    bias : Bias or None
        Its size, where it was known by then.
    regained : float or None
        End of the first window that was trusted again; None where none was.
    """

    window: int
    time: float
    bias: Bias | None
    regained: float | None


@dataclass(frozen=True, slots=True)
class TrustStory:
    """How one model's estimates stood with labels, over all of its windows.

    Parameters
    ----------
    model : str
    losses : tuple of Loss
        In order of time.
    trusted : float
        Share of the windows that were trusted, 0 to 1.
    calibrations : int
        Fitted on labels.
    """

    model: str
    losses: tuple[Loss, ...]
    trusted: float
    calibrations: int


class TrustStories:
    """Follows closed windows; groups and revisions are passed over."""

    def __init__(self) -> None:
        self._windows: dict[str, list[tuple[int, float, bool, Bias | None, int]]] = {}

    def add(self, reports: Sequence[WindowReport]) -> None:
        """Windows as they close."""
        for report in reports:
            if report.group or report.revision:
                continue
            lost = report.trust
            self._windows.setdefault(report.model, []).append(
                (
                    report.window,
                    report.end_time,
                    lost is None,
                    lost.bias if lost is not None else None,
                    report.calibration.version,
                )
            )

    def of(self, model: str) -> TrustStory:
        """The story of one model.

        Raises
        ------
        KeyError
            No window of it has closed.
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
    """When trust was lost and regained, and what the recalibrations were worth.

    Parameters
    ----------
    story : TrustStory
    bias, bias_before : float
        See `lasting_error`: with the recalibrations, and by the calibration on the reference alone.

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
    """One for each model; `lasting` is what `lasting_errors` gives."""
    for model, (bias, before) in zip(models, lasting, strict=True):
        yield trust_sentence(stories.of(model), bias, before)


def lasting_errors(data: DemoData, charts: Sequence[ControlChartData]) -> list[tuple[float, float]]:
    """For each model `lasting_error` with the recalibrations, and by the calibration on the reference alone.

    Parameters
    ----------
    data : DemoData
    charts : sequence of ControlChartData
        Of the accuracy, a model each, with what turned out in it.
    """
    return [
        (
            lasting_error(chart.value, chart.realised),
            lasting_error(_by_the_reference(data, column, len(chart.value)), chart.realised),
        )
        for column, chart in enumerate(charts)
    ]


def _by_the_reference(data: DemoData, column: int, windows: int) -> Floats:
    """The estimate of each window by the calibration that was fitted on the reference, (windows,)."""
    fitted = IsotonicCalibrator().fit(
        _pair(data.reference_scores[:, column]),
        (data.reference_scores[:, column] > 0.5).astype(np.int64),
        data.reference_late,
    )
    scores = data.scores[: windows * WINDOW_SIZE, column]
    confidence = confidence_of(fitted.apply(_pair(scores)), (scores > 0.5).astype(np.int64))
    found: Floats = confidence.reshape(windows, WINDOW_SIZE).mean(axis=1)
    return found


def _pair(late: Floats) -> Floats:
    return np.column_stack((1 - late, late))


def lasting_error(estimate: np.ndarray, realised: np.ndarray) -> float:
    """Mean size of the error of the mean over 20 windows in a row: what weather alone does not explain.

    Parameters
    ----------
    estimate, realised : (n,) float64
        By window, 0 to 1; the mean of all where there are fewer than 20.
    """
    together = min(_TOGETHER, len(estimate))
    means = np.convolve(estimate - realised, np.ones(together) / together, mode="valid")
    return float(np.abs(means).mean())


def _day(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%-d %B")
