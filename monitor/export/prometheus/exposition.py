"""The two text formats of a scrape. The bytes are those of prometheus_client, but are written faster.

The client library escapes every label of every sample. This module escapes each pair of a label and a value
once, and writes labels that samples share once. The collector provides the lines of models and groups as
text. The client library still writes the head of each family, values that need escapes, and samples with
more than a name, labels and a value.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.exposition import generate_latest as _text
from prometheus_client.openmetrics.exposition import generate_latest as _openmetrics
from prometheus_client.samples import Sample

from monitor.export.prometheus.collector import SeriesFamily, left_out
from monitor.export.prometheus.families import importance
from monitor.export.prometheus.lines import PLAIN_NAME, Client, EscapedLabels, by_client, number

_EOF = "# EOF\n"
_LEFT_OUT = left_out(0).name
_PLAIN_TYPES = frozenset({"counter", "gauge", "info", "histogram"})
_NO_MORE = Sample("", {}, 0.0)[3:]  # no timestamp, no exemplar, and no other field that the client adds
_MOVED = ("_created", "_gsum", "_gcount")  # the text format shows these samples as separate families


def text(registry: CollectorRegistry, max_bytes: int | None = None) -> bytes:
    """Return all registered metrics in Prometheus's text format 0.0.4.

    Parameters
    ----------
    registry : CollectorRegistry
        The registered metrics, which are collected once.
    max_bytes : int, optional
        The largest size of the result. If it is exceeded, whole families are left out, the least important
        first (`families.importance`). `blindsight_families_left_out` counts the omitted families.

    Returns
    -------
    bytes
        The same bytes as `prometheus_client.exposition.generate_latest`, except for omitted families.

    Examples
    --------
    >>> from prometheus_client import Gauge
    >>> registry = CollectorRegistry()
    >>> Gauge("lag_seconds", "How late.", ["source"], registry=registry).labels(source="kafka").set(2.5)
    >>> print(text(registry).decode(), end="")
    # HELP lag_seconds How late.
    # TYPE lag_seconds gauge
    lag_seconds{source="kafka"} 2.5
    """
    return b"".join(_written(registry, _text, max_bytes))


def openmetrics(registry: CollectorRegistry, max_bytes: int | None = None) -> bytes:
    """Return all registered metrics in OpenMetrics 1.0.

    Parameters
    ----------
    registry : CollectorRegistry
        The registered metrics, which are collected once.
    max_bytes : int, optional
        See `text`.

    Returns
    -------
    bytes
        The same bytes as `prometheus_client.openmetrics.exposition.generate_latest`, except for omitted
        families.

    Examples
    --------
    >>> openmetrics(CollectorRegistry())
    b'# EOF\\n'
    """
    room = None if max_bytes is None else max_bytes - len(_EOF)
    return b"".join([*_written(registry, _openmetrics, room), _EOF.encode()])


def _written(registry: CollectorRegistry, client: Client, max_bytes: int | None) -> list[bytes]:
    labels = _Labels(client)
    # One family at a time, because many live samples trigger full garbage collections, which took most
    # of the time.
    families = [(metric.name, _family(metric, client, labels)) for metric in registry.collect()]
    parts = [part for _, part in families]
    if max_bytes is None or sum(map(len, parts)) <= max_bytes:
        return parts
    kept = _fitting(families, max_bytes - len(by_client(client, left_out(len(families)))))
    count_text = by_client(client, left_out(len(families) - len(kept))).encode()
    return [count_text if name == _LEFT_OUT else part for name, part in families if name in kept]


def _fitting(families: Sequence[tuple[str, bytes]], room: int) -> set[str]:
    """Return the names of the kept families: all families before the first one that does not fit."""
    kept = {_LEFT_OUT}
    for name, part in sorted(families, key=lambda family: importance(family[0])):
        if name != _LEFT_OUT:
            room -= len(part)
            if room < 0:
                break
            kept.add(name)
    return kept


def _family(metric: Metric, client: Client, labels: _Labels) -> bytes:
    if isinstance(metric, SeriesFamily):
        lines, more = metric.part.lines(metric.key), metric.part.more(metric.key)
    elif _is_plain(metric):
        lines, more = [], metric.samples
    else:
        return by_client(client, metric).encode()
    head = by_client(client, Metric(metric.name, metric.documentation, metric.type, metric.unit))
    return b"".join([head.encode(), *lines, _samples(more, labels).encode()])


def _samples(samples: Iterable[Sample], labels: _Labels) -> str:
    label_text = labels.text
    return "".join([f"{sample[0]}{label_text(sample[1])} {number(sample[2])}\n" for sample in samples])


def _is_plain(metric: Metric) -> bool:
    names = {sample[0] for sample in metric.samples}
    return (
        metric.type in _PLAIN_TYPES
        and all(map(PLAIN_NAME.fullmatch, names))
        and not any(name == metric.name + suffix for name in names for suffix in _MOVED)
        and all(sample[3:] == _NO_MORE for sample in metric.samples)
    )


class _Labels:
    """The text of label sets, cached for one scrape."""

    def __init__(self, client: Client) -> None:
        self._pairs = EscapedLabels(client)
        self._sets: dict[int, str] = {}
        self._kept: list[Mapping[str, str]] = []  # keeps the objects alive, so that their ids stay unique

    def text(self, labels: Mapping[str, str]) -> str:
        written = self._sets.get(id(labels))
        if written is None:
            written = self._sets[id(labels)] = self.joined(labels)
            self._kept.append(labels)
        return written

    def joined(self, labels: Mapping[str, str]) -> str:
        if not labels:
            return ""
        return "{" + ",".join([self._pairs[pair] for pair in sorted(labels.items())]) + "}"
