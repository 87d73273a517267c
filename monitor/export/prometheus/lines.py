"""Writes samples as the same lines as the client library. Parts that series share are written only once."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from operator import itemgetter
from typing import Any

from prometheus_client.core import Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample
from prometheus_client.utils import floatToGoString

from monitor.export.prometheus.families import FAMILIES, GROUP_PREFIX
from monitor.export.prometheus.rows import Row

SUFFIX = {"gauge": "", "counter": "_total", "info": "_info", "histogram": "_"}
"""The suffix of a sample's name after the name of its family, by kind."""

Client = Callable[[Collector], bytes]
"""The client library's writer of a format."""

PLAIN_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_ESCAPED = re.compile(r'[\\"\n]')
_EOF = "# EOF\n"
_MILLION = 1e6
_WHO = ("group", "model", "task")
_client_number: Callable[[float], str] = floatToGoString


class _Only(Collector):
    """A collector of one family, which the client library writes."""

    def __init__(self, metric: Metric) -> None:
        self._metric = metric

    def collect(self) -> Iterable[Metric]:
        return [self._metric]


def by_client(client: Client, metric: Metric) -> str:
    """Return the text of a family as the client library writes it."""
    return client(_Only(metric)).decode().removesuffix(_EOF)


def number(value: float) -> str:
    """Format a number like the client library: below a million as Python, otherwise as Go.

    Examples
    --------
    >>> number(400), number(0.5), number(2e6), number(float("nan"))
    ('400.0', '0.5', '2e+06', 'NaN')
    """
    return repr(float(value)) if -_MILLION < value < _MILLION else _client_number(value)


class EscapedLabels(dict[tuple[str, str], str]):
    """A cache of labels as text, ``name="value"``, with the pair of name and value as the key.

    If a value may need escaping, the client library escapes it.
    """

    def __init__(self, client: Client = generate_latest) -> None:
        super().__init__()
        self._client = client

    def __missing__(self, pair: tuple[str, str]) -> str:
        name, value = pair
        if PLAIN_NAME.fullmatch(name) and not _ESCAPED.search(value):
            escaped = self[pair] = f'{name}="{value}"'
            return escaped
        metric = Metric("a", "", "gauge")
        metric.samples = [Sample("a", dict([pair]), 0.0)]
        written = by_client(self._client, metric)
        escaped = self[pair] = written[written.index("a{") + 2 : written.rindex("} ")]
        return escaped


Lines = tuple[tuple[str, ...], tuple[bytes, ...], int]
"""The rows of one series as text: the keys of the families, the lines of each family, and the row count.

All series with the same keys share one tuple of keys.
"""

_Shape = tuple[tuple[str, ...], tuple[dict[str, str], ...]]
_Template = tuple[str, Callable[[Sequence[str]], Any]]


class SeriesLines(dict[_Shape, tuple[tuple[str, ...], list[_Template]]]):
    """A writer of the rows of models or of groups as text lines, for one scrape.

    Thousands of models and groups have rows with the same keys and labels. Only the task, the model, the
    group and the numbers differ. For each set of keys and labels, the writer keeps one template of the lines
    for each metric family.

    Parameters
    ----------
    prefix : str
        The prefix of metric names: that for models, or that for groups.
    """

    def __init__(self, prefix: str) -> None:
        super().__init__()
        self._prefix, self._pairs = prefix, EscapedLabels()
        self._own = _WHO if prefix == GROUP_PREFIX else _WHO[1:]

    def written(self, who: dict[str, str], rows: Sequence[Row]) -> Lines:
        """Return the lines of one model or group, which are the same in both text formats.

        Parameters
        ----------
        who : dict
            The labels that all rows have.
        rows : sequence of Row
        """
        keys, labels, values = zip(*rows, strict=True) if rows else ((), (), ())
        families, templates = self[keys, labels]
        cells = [self._pairs[name, who[name]] for name in self._own]
        cells += [
            repr(value) if -_MILLION < value < _MILLION else _client_number(value)
            for value in map(float, values)
        ]
        texts = [(template % own(cells)).encode() for template, own in templates]
        return families, tuple(texts), len(rows)

    def __missing__(self, shape: _Shape) -> tuple[tuple[str, ...], list[_Template]]:
        lines: dict[str, list[str]] = {}
        cells: dict[str, list[int]] = {}
        for place, (key, own) in enumerate(zip(*shape, strict=True), len(self._own)):
            pairs = {name: self._pairs[name, value].replace("%", "%%") for name, value in own.items()}
            pairs |= dict.fromkeys(self._own, "%s")  # these names are in alphabetical order
            text = ",".join(pairs[name] for name in sorted(pairs))
            family = family_of(key)
            lines.setdefault(family, []).append(f"{sample_name(self._prefix, key)}{{{text}}} %s\n")
            cells.setdefault(family, []).extend((*range(len(self._own)), place))
        templates: list[_Template] = [
            ("".join(each), itemgetter(*cells[family])) for family, each in lines.items()
        ]
        family_templates = self[shape] = _one_object(tuple(lines)), templates
        return family_templates


@cache
def _one_object(families: tuple[str, ...]) -> tuple[str, ...]:
    """Return the same object for equal tuples, which are compared thousands of times in a scrape."""
    return families


def family_of(key: str) -> str:
    """Return the key in `FAMILIES` for a row's key, which may end in a part such as ``:bucket``."""
    return key.partition(":")[0]


def sample_name(prefix: str, key: str) -> str:
    """Return the name of the samples for rows with this key."""
    family, _, part = key.partition(":")
    return prefix + family + SUFFIX[FAMILIES[family].kind] + part
