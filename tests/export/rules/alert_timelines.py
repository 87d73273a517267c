"""The parts of the cases of alerts: timelines, their series, and the questions to promtool.

A timeline is a text with a letter a minute: ``H`` healthy, ``S`` sick, ``x`` a failed scrape (Prometheus
marks every series stale), ``.`` no sample at all.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

Values = Callable[[str], list[float | None]]


"""Samples of a series for the letters of a timeline; None where it has none."""


def gauge(healthy: float | None, sick: float | None) -> Values:
    """Return one value in health, another one in sickness."""
    return lambda letters: [sick if letter in "Sx." else healthy for letter in letters]


def counter(healthy: float, sick: float) -> Values:
    """Return a counter that grows by these amounts each minute; whole numbers."""

    def values(letters: str) -> list[float | None]:
        total, counts = 0.0, list[float | None]()
        for letter in letters:
            total += sick if letter in "Sx." else healthy
            counts.append(float(int(total + 1e-9)))
        return counts

    return values


def piling(healthy: float, a_minute: float) -> Values:
    """Return a queue: it grows in sickness, and is empty again at once in health."""

    def values(letters: str) -> list[float | None]:
        now, counts = healthy, list[float | None]()
        for letter in letters:
            now = now + a_minute if letter in "Sx." else healthy
            counts.append(now)
        return counts

    return values


def once_mended(a_minute: float) -> Values:
    """Return a counter that stands at 0 until health follows on sickness, and grows from then on."""

    def values(letters: str) -> list[float | None]:
        first = letters.find("S")
        mended = letters.find("H", first) if first >= 0 else -1
        return [max(0.0, (at - mended + 1) * a_minute) if mended >= 0 else 0.0 for at in range(len(letters))]

    return values


def only_healthy(values: Values) -> Values:
    """Return values that are absent in sickness."""
    return lambda letters: [
        value if letter == "H" else None for value, letter in zip(values(letters), letters, strict=True)
    ]


def stopped_clock(letters: str) -> list[float | None]:
    """Seconds since the start, which stand still in sickness."""
    now, times = 0.0, list[float | None]()
    for minute, letter in enumerate(letters):
        now = now if letter in "Sx." else 60.0 * minute
        times.append(now)
    return times


def begun_anew(values: Values, minute: int) -> Values:
    """Return a counter of an agent that starts without its state in that minute: from 0 again."""

    def after(letters: str) -> list[float | None]:
        counts = values(letters)
        lost = counts[minute - 1] or 0.0
        return [v if v is None or at < minute else v - lost for at, v in enumerate(counts)]

    return after


def states(name: str, who: str, healthy: str, sick: str, *others: str) -> dict[str, Values]:
    """Return a set of 0 and 1."""
    every = dict.fromkeys([healthy, sick, *others])
    return {
        f'{name}{{{who},state="{state}"}}': gauge(float(state == healthy), float(state == sick))
        for state in every
    }


@dataclass(frozen=True)
class Case:
    """One alert with one cause.

    Parameters
    ----------
    alert, severity : str
    labels : mapping
        Its identity, beside name and severity.
    description : str
        What it says when it begins to fire.
    series : mapping of selector to Values
    healthy : int
        Minutes before it goes wrong.
    fires : int
        Minutes after that, within which it must fire; and not in the minute before.
    blip : int
        Minutes of the fault that must not fire.
    recovers : int or None
        Minutes of health after which it no longer fires.
    lives_on : int
        Minutes without any data after which it still fires.
    ends : int or None
        Minutes without any data after which it no longer fires; None where that is what it is about.
    summary : str
        The summary of the alert when it begins to fire; by default that of the rule, without templates.
    """

    alert: str
    severity: str
    labels: Mapping[str, str]
    description: str
    series: Mapping[str, Values]
    healthy: int
    fires: int
    blip: int
    recovers: int | None
    lives_on: int
    ends: int | None
    scrapes: bool = field(default=True)
    summary: str = field(default="")

    @property
    def id(self) -> str:
        """For pytest."""
        return "-".join([self.alert, *self.labels.values()])

    def identity(self) -> dict[str, str]:
        """Return all labels of the alert."""
        return {"severity": self.severity, "job": "blindsight", **self.labels}


def samples(case: Case, timeline: str) -> list[dict[str, str]]:
    """Return `input_series` of promtool."""
    return [
        {"series": series, "values": " ".join(map(_sample, values(timeline), timeline))}
        for series, values in case.series.items()
    ]


def _sample(value: float | None, letter: str) -> str:
    if letter == "x":
        return "stale"
    return "_" if letter == "." or value is None else f"{value:g}" if abs(value) < 1e6 else repr(value)


def firing(alert: str, identity: Mapping[str, str]) -> str:
    """Return the series that Prometheus keeps of a firing alert."""
    labels = {"alertname": alert, "alertstate": "firing", **identity}
    return "ALERTS{" + ",".join(f'{key}="{value}"' for key, value in sorted(labels.items())) + "}"


Question = tuple[str, str]
"""For promtool: a rule file's text, and the test file's in JSON."""


def question(rules: str, series: list[dict[str, str]], tests: Mapping[str, object]) -> Question:
    """Return the question whether these rules do on these series what the tests say."""
    case = {"interval": "1m", "input_series": series, **tests}
    return rules, json.dumps({"evaluation_interval": "1m", "tests": [case]})


def promql_test(expression: str, minute: int, *expected: str) -> dict[str, object]:
    """Return one `promql_expr_test`: these series and no others, each with the value 1."""
    samples = [{"labels": each, "value": 1} for each in expected]
    return {"expr": expression, "eval_time": f"{minute}m", "exp_samples": samples}
