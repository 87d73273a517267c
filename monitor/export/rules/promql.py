"""Pieces of PromQL: durations, and the matchers of series."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from monitor.base.errors import ConfigError

REPLICA = "instance, pod, container, endpoint"
"""Labels of whoever was scraped. A model's alerts leave them out: a rolled-over pod is no new incident."""

_SHORTEST_SECONDS = 3.0  # of a scaled duration: a range must hold a few scrapes, one a second at most
_UNITS = (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1))
_MATCHER = r'[a-zA-Z_][a-zA-Z0-9_]*\s*(?:=~|!~|!=|=)\s*"(?:[^"\\\n`]|\\[^\n`])*"'


def duration(seconds: float) -> str:
    """A duration as Prometheus writes it.

    Examples
    --------
    >>> duration(1800), duration(5400), duration(4.5), duration(86400)
    ('30m', '1h30m', '4s500ms', '1d')
    """
    left, text = round(seconds * 1000), ""
    for unit, size in _UNITS:
        count, left = divmod(left, size)
        text += f"{count}{unit}" if count else ""
    return text or "0s"


def seconds_of(text: str) -> float:
    """The seconds of a duration of one unit.

    Examples
    --------
    >>> seconds_of("15m"), seconds_of("1d")
    (900.0, 86400.0)
    """
    return int(text[:-1]) * dict(_UNITS)[text[-1]] / 1000


def checked_selector(text: str) -> str:
    """The label matchers that pick the agents, as they were given.

    Raises
    ------
    ConfigError
        They are none.

    Examples
    --------
    >>> checked_selector('job="blindsight",cluster=~"eu-.*"')
    'job="blindsight",cluster=~"eu-.*"'
    """
    if re.fullmatch(rf"\s*{_MATCHER}(?:\s*,\s*{_MATCHER})*\s*", text) is None:
        raise ConfigError(
            "--selector: expected label matchers with values in double quotes, such as "
            f'job="blindsight",cluster="eu", got {text!r}; they pick the agents\' series'
        )
    return text.strip()


@dataclass(frozen=True, slots=True)
class Scope:
    """Which series rules are about, and in what time.

    Parameters
    ----------
    selector : str
        Label matchers without braces.
    task : str
        All of them if empty.
    scale : float
        Factor of every duration, above 0. Below 1 no duration is less than 3 s.
    """

    selector: str
    task: str = ""
    scale: float = 1.0

    def seconds(self, real: float) -> float:
        """A duration, scaled."""
        return real if self.scale == 1 else max(_SHORTEST_SECONDS, real * self.scale)

    @property
    def agents(self) -> str:
        """Matchers of the agents' series, and of the task's.

        Examples
        --------
        >>> Scope('job="b"', "spam").agents
        'job="b",task="spam"'
        """
        # JSON's way to quote is Go's and PromQL's, too.
        return (
            f"{self.selector},task={json.dumps(self.task, ensure_ascii=False)}"
            if self.task
            else self.selector
        )
