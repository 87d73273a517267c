"""The results of a backtest: alarms on the history as it was, and how soon injected drops were detected."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Literal

import msgspec
import numpy as np
from msgspec import Meta

ACCURACY = "accuracy"
MONTH_SECONDS = 30.4375 * 86_400.0


class Injection(msgspec.Struct, frozen=True, order=True):
    """A drop of accuracy, and what the model and the agent know of it.

    Parameters
    ----------
    drop : float
        The drop as a ratio: 0.05 is five points.
    known : bool
        Whether the model knows, and gives lower confidences.
    labelled : bool
        Whether the agent gets the files' labels.
    """

    drop: float
    known: bool
    labelled: bool


WAYS = ((True, False), (True, True), (False, True))
"""What the model knows, and whether the agent has labels; without both, nothing could show a drop."""


def way_words(known: bool, labelled: bool) -> str:
    """Describe an injection: whether the model knows of the drop, and whether the agent gets labels.

    Examples
    --------
    >>> way_words(True, False)
    'model knows, no labels'
    """
    return f"model {'knows' if known else 'does not know'}, {'labels' if labelled else 'no labels'}"


Outcome = Literal["detected", "missed", "alarm_before"]


class Detection(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of one injected drop for one model.

    `windows` counts the windows that closed from the drop to the alarm, or to the end if the drop was missed.
    The window in which the drop begins does not count; an alarm in it counts as one in the first window.
    `hours` begin with the drop; they are null without times, and if the drop was missed.
    """

    task: str
    model: str
    start: Annotated[str, Meta(description="Where the drop begins, as requested.")]
    start_time: Annotated[str | None, Meta(description="The time where the drop begins.")]
    drop: float
    known: Annotated[bool, Meta(description="Whether the model gives lower confidences.")]
    labelled: Annotated[bool, Meta(description="Whether the agent gets the files' labels.")]
    outcome: Annotated[
        Outcome, Meta(description="alarm_before: an alarm of the history was on from the drop to the end.")
    ]
    windows: int
    hours: float | None
    labels: Annotated[int, Meta(description="Labels of the model's answers after the drop until then.")]
    signals: Annotated[list[str], Meta(description="What was raised: charts, objectives, labels.")]
    fact: Annotated[str, Meta(description="The sentence of the alarm.")]


class Delay(msgspec.Struct, frozen=True, kw_only=True):
    """The time until a drop of one size is detected, over the starting points; null if missed that often.

    Starting points at which an alarm was on already do not count.
    """

    task: str
    model: str
    drop: float
    known: bool
    labelled: bool
    detected: int
    starts: int
    windows_median: float | None
    windows_90: float | None
    hours_median: float | None
    hours_90: float | None
    labels_median: float | None
    signals: Annotated[dict[str, int], Meta(description="How often each signal was raised first.")]


class HistoricAlarm(msgspec.Struct, frozen=True, kw_only=True):
    """An alarm of a chart on the history as it was."""

    metric: str
    window: int
    time: str


class HistoryOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """The alarms of a model's charts on the history as it was, which are false unless something changed."""

    task: str
    model: str
    windows: Annotated[int, Meta(description="Windows after the reference.")]
    accuracy: Annotated[float | None, Meta(description="The mean estimated accuracy of these windows.")]
    months: Annotated[float | None, Meta(description="Months of these windows; null without times.")]
    alarms: list[HistoricAlarm]
    per_month: Annotated[float | None, Meta(description="Alarms a month; null without times.")]
    predicted: Annotated[
        float | None,
        Meta(
            description="The number of false signals that `check` predicts for these windows: alarms, and "
            "changes for the better."
        ),
    ]
    improvements: Annotated[int, Meta(description="Signals of a change for the better, which is no alarm.")]
    alarms_without_labels: Annotated[int, Meta(description="Alarms if the agent gets no labels.")]
    groups_alarms: Annotated[int, Meta(description="Alarms of the model's groups.")]


class DropStart(msgspec.Struct, frozen=True, kw_only=True):
    """A point from which drops were injected."""

    name: str
    time: str | None
    record: Annotated[int, Meta(description="Number of answers and labels before the drop.")]


Sight = Literal["seen", "seen_after_end", "missed", "alarm_before", "no_baseline", "no_answers"]


class Sighting(msgspec.Struct, frozen=True, kw_only=True):
    """The first alarm of one model or its groups that begins in the incident, as configured."""

    task: str
    model: str
    outcome: Annotated[
        Sight,
        Meta(
            description="seen_after_end: the first alarm began after the end, when labels of the incident "
            "came. alarm_before: an alarm was on before, and no other began. no_baseline: the incident "
            "begins in the first windows, which become the baseline."
        ),
    ]
    time: Annotated[str | None, Meta(description="The end of the window of the alarm.")]
    windows: Annotated[int | None, Meta(description="Windows since the start of the incident.")]
    hours: Annotated[float | None, Meta(description="Hours since the start of the incident.")]
    signals: Annotated[list[str], Meta(description="What was raised, with the group.")]
    later: Annotated[list[str], Meta(description="What was raised later in the incident.")]
    fact: Annotated[str, Meta(description="The sentence of the alarm.")]
    cause: Annotated[str, Meta(description="The parts and features of the largest change; may be empty.")]


class SettingOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """The alarms of one task in one replay of the history, with other settings."""

    task: str
    today: Annotated[bool, Meta(description="Whether these are the settings of the configuration.")]
    window_size: int
    chart: str
    season: Annotated[bool, Meta(description="Whether limits differ by hour of the week.")]
    label_share: Annotated[float, Meta(description="The share of the files' labels that the agent gets.")]
    labels_a_day: Annotated[float, Meta(description="Labels of all tasks a day.")]
    changes: Annotated[int, Meta(description="Number of changes of the configuration.")]
    refused: Annotated[str, Meta(description="Why the settings cannot be used; empty if they can.")]
    models: Annotated[int, Meta(description="Models with answers in the incident.")]
    seen: Annotated[int, Meta(description="Models in which an alarm of the incident begins.")]
    hours: Annotated[float | None, Meta(description="Hours until the first alarm; null if missed.")]
    windows: Annotated[int | None, Meta(description="Windows since the start of the incident.")]
    signals: Annotated[list[str], Meta(description="What was raised first.")]
    other_alarms: Annotated[int, Meta(description="Alarms that begin outside of the incident.")]
    other_alarms_a_month: float | None
    predicted: Annotated[
        float | None, Meta(description="False signals outside of the incident that `check` predicts.")
    ]


class Recommendation(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a task that see the incident sooner, without more alarms outside of it."""

    task: str
    reason: Annotated[str, Meta(description="What they would have changed, or why nothing is better.")]
    configuration: Annotated[
        str | None, Meta(description="The sections to replace, as YAML; null if nothing is better.")
    ]


class IncidentOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """The alarms of an incident, as configured and with other settings, and the recommended configuration."""

    start: str
    end: str
    sightings: list[Sighting]
    settings: list[SettingOutcome]
    recommendations: list[Recommendation]


class BacktestDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The document of `backtest --json`."""

    starts: list[DropStart]
    history: list[HistoryOutcome]
    delays: list[Delay]
    detections: list[Detection]
    incident: Annotated[
        IncidentOutcome | None, Meta(description="The outcome of --incident, without drops; else null.")
    ]
    picture: Annotated[str | None, Meta(description="The picture of the delays.")]
    page: Annotated[str | None, Meta(description="The report as HTML.")]
    notes: list[str]


def delays_of(detections: Iterable[Detection]) -> list[Delay]:
    """Return how soon each drop is detected: by task, model, size of the drop and way."""
    cases: dict[tuple[str, str, float, bool, bool], list[Detection]] = {}
    for each in detections:
        place = each.task, each.model, each.drop, each.known, each.labelled
        cases.setdefault(place, []).append(each)
    return [_delay(place, each) for place, each in cases.items()]


def _delay(place: tuple[str, str, float, bool, bool], cases: Sequence[Detection]) -> Delay:
    task, model, drop, known, labelled = place
    counted = [each for each in cases if each.outcome != "alarm_before"]
    detected = [each for each in counted if each.outcome == "detected"]
    missed = len(counted) - len(detected)
    windows = [float(each.windows) for each in detected] + [math.inf] * missed
    hours = [math.inf if each.hours is None else each.hours for each in detected] + [math.inf] * missed
    return Delay(
        task=task,
        model=model,
        drop=drop,
        known=known,
        labelled=labelled,
        detected=len(detected),
        starts=len(counted),
        windows_median=quantile(windows, 0.5),
        windows_90=quantile(windows, 0.9),
        hours_median=quantile(hours, 0.5),
        hours_90=quantile(hours, 0.9),
        labels_median=quantile([float(each.labels) for each in detected] + [math.inf] * missed, 0.5),
        signals=dict(Counter(signal for each in detected for signal in each.signals)),
    )


def quantile(values: Sequence[float], level: float) -> float | None:
    """Return the smallest value that at least this share of the values does not exceed.

    The result is None without values, or if it is infinite.

    Examples
    --------
    >>> quantile([1.0, 7.0, math.inf], 0.5), quantile([1.0, 7.0, math.inf], 0.9)
    (7.0, None)
    """
    if not values:
        return None
    value = float(np.sort(values)[math.ceil(level * len(values)) - 1])
    return value if math.isfinite(value) else None


def false_alarms_predicted(
    rates: Mapping[tuple[str, str | None], float], task: str, model: str, windows: int
) -> float | None:
    """Return the number of false alarms that `check` predicts for a model's windows; None without a rate.

    Parameters
    ----------
    rates : mapping of (task, model or None) to float
        The number of false alarms per window of all charts of the model together. A key with None applies
        to each model of the task that has no key of its own.
    task, model : str
    windows : int

    Examples
    --------
    >>> false_alarms_predicted({("delay", None): 0.002}, "delay", "erm", 1000)
    2.0
    """
    rate = rates.get((task, model), rates.get((task, None)))
    return None if rate is None else rate * windows
