"""The two texts of a scrape, the same bytes as prometheus_client writes, in a fraction of its time.

The client escapes every name and every value of every label of every sample. Here it does so once for each
pair of a label and a value, and the labels that samples share are written once. What a family says of
itself, every escape, and whatever is more than a name, labels and a value, is still the client's own text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.exposition import generate_latest as _text
from prometheus_client.openmetrics.exposition import generate_latest as _openmetrics
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample
from prometheus_client.utils import floatToGoString

from monitor.export.prometheus.collector import Exported, SeriesFamily, family_of, left_out, sample_name
from monitor.export.prometheus.distributions import (
    DISTRIBUTION_ROWS,
    distribution_rows,
    distribution_values,
)
from monitor.export.prometheus.families import importance
from monitor.export.prometheus.rows import Row

_EOF = "# EOF\n"
_LEFT_OUT = left_out(0).name
_PLAIN_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_PLAIN_TYPES = frozenset({"counter", "gauge", "info", "histogram"})
_NO_MORE = Sample("", {}, 0.0)[3:]  # no timestamp, no exemplar, and whatever else the client knows of
_MOVED = ("_created", "_gsum", "_gcount")  # samples that the text format shows as families of their own


def text(registry: CollectorRegistry, max_bytes: int | None = None) -> bytes:
    """Everything that is registered, as Prometheus's text format 0.0.4.

    Parameters
    ----------
    registry : CollectorRegistry
        Collected once.
    max_bytes : int, optional
        Whole families are left out, the least important first (`families.importance`), until the rest is no
        larger; `blindsight_families_left_out` counts them.

    Returns
    -------
    bytes
        What `prometheus_client.exposition.generate_latest` gives.

    Examples
    --------
    >>> from prometheus_client import Gauge
    >>> found = CollectorRegistry()
    >>> Gauge("lag_seconds", "How late.", ["source"], registry=found).labels(source="kafka").set(2.5)
    >>> print(text(found).decode(), end="")
    # HELP lag_seconds How late.
    # TYPE lag_seconds gauge
    lag_seconds{source="kafka"} 2.5
    """
    return b"".join(_written(registry, _text, max_bytes))


def openmetrics(registry: CollectorRegistry, max_bytes: int | None = None) -> bytes:
    """Everything that is registered, as OpenMetrics 1.0.

    Parameters
    ----------
    registry : CollectorRegistry
        Collected once.
    max_bytes : int, optional
        As of `text`.

    Returns
    -------
    bytes
        What `prometheus_client.openmetrics.exposition.generate_latest` gives.

    Examples
    --------
    >>> openmetrics(CollectorRegistry())
    b'# EOF\\n'
    """
    room = None if max_bytes is None else max_bytes - len(_EOF)
    return b"".join([*_written(registry, _openmetrics, room), _EOF.encode()])


_Client = Callable[[Collector], bytes]
_number: Callable[[float], str] = floatToGoString


class _Only(Collector):
    """One family, for the client to write."""

    def __init__(self, metric: Metric) -> None:
        self._metric = metric

    def collect(self) -> Iterable[Metric]:
        return [self._metric]


def _written(registry: CollectorRegistry, client: _Client, max_bytes: int | None) -> list[bytes]:
    labels = _Labels(client)
    # One family at a time: many samples that wait for their turn set off full garbage collections, which
    # took most of the time.
    found = [(metric.name, _family(metric, client, labels).encode()) for metric in registry.collect()]
    parts = [part for _, part in found]
    if max_bytes is None or sum(map(len, parts)) <= max_bytes:
        return parts
    kept = _fitting(found, max_bytes - len(_by(client, left_out(len(found)))))
    told = _by(client, left_out(len(found) - len(kept))).encode()
    return [told if name == _LEFT_OUT else part for name, part in found if name in kept]


def _fitting(families: Sequence[tuple[str, bytes]], room: int) -> set[str]:
    """Which families stay: the first that does not fit is left out, and all after it."""
    kept = {_LEFT_OUT}
    for name, part in sorted(families, key=lambda family: importance(family[0])):
        if name != _LEFT_OUT:
            room -= len(part)
            if room < 0:
                break
            kept.add(name)
    return kept


def _family(metric: Metric, client: _Client, labels: _Labels) -> str:
    if isinstance(metric, SeriesFamily):
        part, key = metric.part, metric.key
        head = _by(client, Metric(metric.name, metric.documentation, metric.type, metric.unit))
        lines = (_lines(one, part.prefix, labels).get(key, "") for one in part.series)
        return "".join([head, *lines, *_samples(part.more(key), labels)])
    if not _is_plain(metric):
        return _by(client, metric)
    head = _by(client, Metric(metric.name, metric.documentation, metric.type, metric.unit))
    return "".join([head, *_samples(metric.samples, labels)])


def _samples(samples: Iterable[Sample], labels: _Labels) -> list[str]:
    of = labels.text
    return [f"{sample[0]}{of(sample[1])} {_number(sample[2])}\n" for sample in samples]


def _lines(one: Exported, prefix: str, labels: _Labels) -> dict[str, str]:
    """The samples of a series as text, by family: the same in both formats, and kept with it."""
    if one.lines is not None:
        return one.lines
    spread, rows, found = one.spread, one.rows(), one.distributions
    if found is None:
        spread = {}
    elif "group" in one.who:  # which stands between the labels of a histogram
        rows, spread = [*rows, *distribution_rows(found, one.who)], {}
    elif spread is None:
        who, begin = labels.joined(one.who)[1:], _distributions(prefix)
        values = map(_number, distribution_values(found))
        spread = _by_family(
            (key, f"{text}{who} {value}\n") for (key, text), value in zip(begin, values, strict=True)
        )
    lines = ((family_of(row), _line(prefix, row, labels)) for row in rows)
    return one.written(_by_family(lines), spread)


def _line(prefix: str, row: Row, labels: _Labels) -> str:
    return f"{_name(prefix, row[0])}{labels.joined(row[1])} {_number(row[2])}\n"


def _by_family(lines: Iterable[tuple[str, str]]) -> dict[str, str]:
    found: dict[str, list[str]] = {}
    for key, line in lines:
        found.setdefault(key, []).append(line)
    return {key: "".join(lines) for key, lines in found.items()}


_name = lru_cache(maxsize=None)(sample_name)


@lru_cache(maxsize=2)
def _distributions(prefix: str) -> tuple[tuple[str, str], ...]:
    """Of each row of a model's distributions the family, and the text before the labels of the model.

    By the alphabet its own label comes before those.
    """
    return tuple(
        (family, "".join([_name(prefix, key), "{", *(f'{name}="{value}",' for name, value in own)]))
        for key, own in DISTRIBUTION_ROWS
        for family in (key.partition(":")[0],)
    )


def _by(client: _Client, metric: Metric) -> str:
    return client(_Only(metric)).decode().removesuffix(_EOF)


def _is_plain(metric: Metric) -> bool:
    names = {sample[0] for sample in metric.samples}
    return (
        metric.type in _PLAIN_TYPES
        and all(map(_PLAIN_NAME.fullmatch, names))
        and not any(name == metric.name + suffix for name in names for suffix in _MOVED)
        and all(sample[3:] == _NO_MORE for sample in metric.samples)
    )


class _Labels:
    """Label sets as text, for one writing: nothing of it outlives the scrape."""

    def __init__(self, client: _Client) -> None:
        self._client = client
        self._pairs: dict[tuple[str, str], str] = {}
        self._sets: dict[int, str] = {}
        self._kept: list[Mapping[str, str]] = []  # an identity is one only while its owner lives

    def text(self, labels: Mapping[str, str]) -> str:
        found = self._sets.get(id(labels))
        if found is None:
            found = self._sets[id(labels)] = self.joined(labels)
            self._kept.append(labels)
        return found

    def joined(self, labels: Mapping[str, str]) -> str:
        if not labels:
            return ""
        pairs = self._pairs
        for pair in labels.items():
            if pair not in pairs:
                pairs[pair] = self._escaped(*pair)
        return "{" + ",".join([pairs[pair] for pair in sorted(labels.items())]) + "}"

    def _escaped(self, name: str, value: str) -> str:
        """Asked of the client, which knows the rules: what stands in the braces of a sample of its."""
        metric = Metric("a", "", "gauge")
        metric.samples = [Sample("a", {name: value}, 0.0)]
        written = _by(self._client, metric)
        return written[written.index("a{") + 2 : written.rindex("} ")]
