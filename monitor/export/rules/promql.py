"""Pieces of PromQL: series with their matchers, ranges, and what bridges a missed scrape."""

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

    def series(self, name: str, *matchers: str) -> str:
        """A selector of one of our metrics, `name` without its prefix.

        Examples
        --------
        >>> Scope('job="b"', "spam").series("state", 'state="silent"')
        'blindsight_state{job="b",task="spam",state="silent"}'
        """
        # JSON's way to quote is Go's and PromQL's, too.
        task = [f"task={json.dumps(self.task, ensure_ascii=False)}"] if self.task else []
        return f"blindsight_{name}{{{','.join([self.selector, *task, *matchers])}}}"

    def over(self, function: str, real_seconds: float, series: str, offset_seconds: float = 0.0) -> str:
        """A function of a range of a series.

        Examples
        --------
        >>> Scope('job="b"').over("increase", 600, "blindsight_shed_total", offset_seconds=3600)
        'increase(blindsight_shed_total[10m] offset 1h)'
        """
        offset = f" offset {duration(self.seconds(offset_seconds))}" if offset_seconds else ""
        return f"{function}({series}[{duration(self.seconds(real_seconds))}]{offset})"


def indented(text: str) -> str:
    """Every line two columns further in."""
    return "\n".join(f"  {line}" for line in text.splitlines())


def parted(text: str) -> str:
    """In parentheses of its own lines."""
    return f"(\n{indented(text)}\n)"


def without(aggregate: str, labels: str, expr: str) -> str:
    """An aggregation over several lines.

    Examples
    --------
    >>> print(without("max", "pod", "a > 1"))
    max without (pod) (
      a > 1
    )
    """
    return f"{aggregate} without ({labels}) {parted(expr)}"
