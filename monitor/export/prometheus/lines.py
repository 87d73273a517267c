"""Samples as lines of text: what the client writes, with what thousands of series share written once."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

from prometheus_client.core import Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample
from prometheus_client.utils import floatToGoString

from monitor.export.prometheus.families import FAMILIES, GROUP_PREFIX
from monitor.export.prometheus.rows import Row

SUFFIX = {"gauge": "", "counter": "_total", "info": "_info", "histogram": "_"}
"""What follows the name of a family in the names of its samples, by kind."""

Client = Callable[[Collector], bytes]
"""The client's own writer of a format."""

PLAIN_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_ESCAPED = re.compile(r'[\\"\n]')
_EOF = "# EOF\n"
_MILLION = 1e6
_WHO = ("group", "model", "task")
_client_number: Callable[[float], str] = floatToGoString


class _Only(Collector):
    """One family, for the client to write."""

    def __init__(self, metric: Metric) -> None:
        self._metric = metric

    def collect(self) -> Iterable[Metric]:
        return [self._metric]


def by_client(client: Client, metric: Metric) -> str:
    """A family as the client writes it."""
    return client(_Only(metric)).decode().removesuffix(_EOF)


def number(value: float) -> str:
    """As the client writes it: below a million as Python does, from there on as Go does.

    Examples
    --------
    >>> number(400), number(0.5), number(2e6), number(float("nan"))
    ('400.0', '0.5', '2e+06', 'NaN')
    """
    return repr(float(value)) if -_MILLION < value < _MILLION else _client_number(value)


class EscapedLabels(dict[tuple[str, str], str]):
    """By name and value of a label, what stands in the braces of a sample.

    The client, which knows the rules, is asked wherever something may have to be escaped.
    """

    def __init__(self, client: Client = generate_latest) -> None:
        super().__init__()
        self._client = client

    def __missing__(self, pair: tuple[str, str]) -> str:
        name, value = pair
        if PLAIN_NAME.fullmatch(name) and not _ESCAPED.search(value):
            found = self[pair] = f'{name}="{value}"'
            return found
        metric = Metric("a", "", "gauge")
        metric.samples = [Sample("a", dict([pair]), 0.0)]
        written = by_client(self._client, metric)
        found = self[pair] = written[written.index("a{") + 2 : written.rindex("} ")]
        return found


class SeriesLines(dict[tuple[str, dict[str, str]], tuple[str, str, str, str, str]]):
    """Writes the rows of series, for one scrape.

    By key and labels of a row it holds the family, and the line around group, model and task: what thousands
    of series share is written once.

    Parameters
    ----------
    prefix : str
        Of models or of groups.
    """

    def __init__(self, prefix: str) -> None:
        super().__init__()
        self._prefix, self._pairs = prefix, EscapedLabels()

    def written(self, who: dict[str, str], rows: Iterable[Row]) -> dict[str, str]:
        """The lines of a series, the same in both formats, by family.

        Parameters
        ----------
        who : dict
            The labels that all rows have.
        rows : iterable of Row
        """
        group, model, task = (self._pairs[name, who[name]] if name in who else "" for name in _WHO)
        lines: dict[str, list[str]] = {}
        for key, own, value in rows:
            family, a, b, c, d = self[key, own]
            line = f"{a}{group}{b}{model}{c}{task}{d}{number(value)}\n"
            if family in lines:
                lines[family].append(line)
            else:
                lines[family] = [line]
        return {family: "".join(each) for family, each in lines.items()}

    def __missing__(self, row: tuple[str, dict[str, str]]) -> tuple[Any, ...]:
        key, own = row
        pairs = {name: self._pairs[name, value] for name, value in own.items()}
        # A line's end: what an escaped text never holds.
        pairs |= dict.fromkeys(_WHO if self._prefix == GROUP_PREFIX else _WHO[1:], "\n")
        text = ",".join(pairs[name] for name in sorted(pairs))
        *begin, middle, end = f"{sample_name(self._prefix, key)}{{{text}}} ".split("\n")
        first, second = begin if len(begin) == 2 else ("", *begin)
        found = self[row] = family_of(key), first, second, middle, end
        return found


def family_of(key: str) -> str:
    """The key in `FAMILIES` of the family that rows of this key are part of."""
    return key.partition(":")[0]


def sample_name(prefix: str, key: str) -> str:
    """The name of the samples that are rows of this key."""
    family, _, part = key.partition(":")
    return prefix + family + SUFFIX[FAMILIES[family].kind] + part
