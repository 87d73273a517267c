"""The two texts of a scrape, the same bytes as prometheus_client writes, in a fraction of its time.

The client escapes every name and every value of every label of every sample. Here it does so once for each
pair of a label and a value, and the labels that samples share are written once. What a family says of
itself, every escape, and whatever is more than a name, labels and a value, is still the client's own text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.exposition import generate_latest as _text
from prometheus_client.openmetrics.exposition import generate_latest as _openmetrics
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample
from prometheus_client.utils import floatToGoString

from monitor.export.prometheus.collector import Part, SeriesFamily, family_of, left_out, sample_name
from monitor.export.prometheus.families import GROUP_PREFIX, importance

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
_client_number: Callable[[float], str] = floatToGoString
_MILLION = 1e6
_WHO = ("group", "model", "task")


def _number(value: float) -> str:
    """As the client writes it: below a million as Python does, from there on as Go does."""
    return repr(float(value)) if -_MILLION < value < _MILLION else _client_number(value)


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
        if part.lines is None:
            part.lines = _lines(part, labels)
        lines = [each[key] for each in part.lines if key in each]
        return "".join([head, *lines, *_samples(part.more(key), labels)])
    if not _is_plain(metric):
        return _by(client, metric)
    head = _by(client, Metric(metric.name, metric.documentation, metric.type, metric.unit))
    return "".join([head, *_samples(metric.samples, labels)])


def _samples(samples: Iterable[Sample], labels: _Labels) -> list[str]:
    of = labels.text
    return [f"{sample[0]}{of(sample[1])} {_number(sample[2])}\n" for sample in samples]


def _lines(part: Part, labels: _Labels) -> list[dict[str, str]]:
    """The samples of each series of a part as text, by family: the same in both formats, and kept with it."""
    templates = _Templates(part.prefix, labels)
    for one in part.series:
        if (fresh := one.fresh) is not None:
            who = {name: labels.pair(name, value) for name, value in one.who.items()}
            group, model, task = who.get("group", ""), who["model"], who["task"]
            lines: dict[str, list[str]] = {}
            for key, own, value in fresh:
                family, a, b, c, d = templates[key, own]
                line = f"{a}{group}{b}{model}{c}{task}{d}{_number(value)}\n"
                if family in lines:
                    lines[family].append(line)
                else:
                    lines[family] = [line]
            one.write({family: "".join(each) for family, each in lines.items()})
    return [one.lines for one in part.series]


class _Templates(dict[tuple[str, dict[str, str]], tuple[str, str, str, str, str]]):
    """By key and labels of a row of a series its family, and its line around group, model and task.

    What thousands of series share is written once: all but the labels that tell them apart, and the value.
    """

    def __init__(self, prefix: str, labels: _Labels) -> None:
        super().__init__()
        self._prefix, self._labels = prefix, labels

    def __missing__(self, row: tuple[str, dict[str, str]]) -> tuple[str, str, str, str, str]:
        key, own = row
        pairs = {name: self._labels.pair(name, value) for name, value in own.items()}
        # A line's end: what an escaped text never holds.
        pairs |= dict.fromkeys(_WHO if self._prefix == GROUP_PREFIX else _WHO[1:], "\n")
        text = ",".join(pairs[name] for name in sorted(pairs))
        *begin, middle, end = f"{sample_name(self._prefix, key)}{{{text}}} ".split("\n")
        first, second = begin if len(begin) == 2 else ("", *begin)
        found = self[row] = family_of(key), first, second, middle, end
        return found


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
        return "{" + ",".join([self.pair(*pair) for pair in sorted(labels.items())]) + "}"

    def pair(self, name: str, value: str) -> str:
        """Asked of the client, which knows the rules: what stands in the braces of a sample of its."""
        found = self._pairs.get((name, value))
        if found is None:
            metric = Metric("a", "", "gauge")
            metric.samples = [Sample("a", {name: value}, 0.0)]
            written = _by(self._client, metric)
            found = self._pairs[name, value] = written[written.index("a{") + 2 : written.rindex("} ")]
        return found
