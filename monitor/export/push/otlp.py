"""Metrics over OTLP: the content of a scrape, posted to an OpenTelemetry collector at regular intervals."""

from __future__ import annotations

import gzip
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope, KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    AggregationTemporality,
    DataPointFlags,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric as Family
from prometheus_client.samples import Sample

from monitor import __version__
from monitor.base.errors import SinkError
from monitor.config.otlp import Otlp
from monitor.export.prometheus.families import PREFIX
from monitor.export.push.access import Access, Endpoint
from monitor.export.push.pusher import Pusher

COLLECTOR = Endpoint("export.otlp", "url", "the metrics", "the address, which ends in /v1/metrics")

_TIMEOUT_SECONDS = 10.0
_MOST_POINTS = 10_000  # in one request: about 2 MB uncompressed, below every collector's default limit
_HEADERS = {"Content-Type": "application/x-protobuf", "Content-Encoding": "gzip"}
_UNITS = {"ratio": "1", "seconds": "s", "rows": "{row}", "records": "{record}"}
# A translation into Prometheus's names adds these endings again, from the unit.
_ENDINGS = ("ratio", "seconds")
_PROCESS = {
    "process_cpu_seconds": ("process.cpu.time", "s"),
    "process_resident_memory_bytes": ("process.memory.usage", "By"),
    "process_open_fds": ("process.open_file_descriptor.count", "{file_descriptor}"),
}
"""OpenTelemetry's names for the metrics of the process. Metrics without such a name are not sent."""

_CUMULATIVE = AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE
_ENDED = DataPointFlags.DATA_POINT_FLAGS_NO_RECORDED_VALUE_MASK

Labels = tuple[tuple[str, str], ...]
Points = dict[Labels, dict[str, Any]]
"""The values of each data point by its labels, under the names of the protocol's fields."""


class OtlpPusher(Pusher):
    """A thread that sends all metrics to an OpenTelemetry collector.

    The numbers of delivered and lost items in `view` are numbers of data points. When a series has ended
    since the last push, one data point without a value (`NO_RECORDED_VALUE`) marks the end, so that no reader
    extends the last value.

    Parameters
    ----------
    settings : Otlp
    metrics : CollectorRegistry
        The metrics that scrapes return.
    instance : str
        The value of ``service.instance.id``. It is the same after a restart, and differs between agents.

    Notes
    -----
    OTLP 1.x over HTTP, binary protobuf: opentelemetry.io/docs/specs/otlp; data model, *Metrics Data Model*,
    section *Data point flags*; names, *Semantic conventions*, and *Prometheus and OpenMetrics compatibility*.
    """

    def __init__(self, settings: Otlp, metrics: CollectorRegistry, instance: str) -> None:
        super().__init__(
            "otlp",
            Access(settings, COLLECTOR),
            settings.url,
            "metrics",
            seconds=settings.interval_seconds,
            timeout_seconds=_TIMEOUT_SECONDS,
        )
        self._url, self._metrics = settings.url, metrics
        own = {"service.name": "blindsight", "service.version": __version__, "service.instance.id": instance}
        self._resource = own | settings.resource
        self._shown: dict[str, tuple[Family, set[Labels]]] = {}

    def push(self, now: float) -> None:
        """Send the present values of all metrics to the collector."""
        families = {
            family.name: (_bare(family), points_of(family))
            for family in self._metrics.collect()
            if name_of(family) is not None
        }
        shown = {name: (family, set(points)) for name, (family, points) in families.items()}
        for name, (family, before) in self._shown.items():
            points = families.setdefault(name, (family, {}))[1]
            points.update((labels, {"flags": _ENDED}) for labels in before - points.keys())
        for body, count in requests(families.values(), self._resource, now):
            answer = self._access.post(self._url, gzip.compress(body, 1), self._timeout, headers=_HEADERS)
            lost, why = _rejected(self._url, answer)
            self._delivered += count - lost
            self._lost += lost
            if lost:
                raise SinkError(f"export.otlp.url: {self._url} rejects {lost} data points: {why}")
        self._shown = shown
        self._succeeded()


def name_of(family: Family) -> tuple[str, str] | None:
    """Return a family's name and unit by OpenTelemetry's conventions, or None if the family is not sent.

    If the name is translated back by Prometheus' conventions, the result is the family's original name.

    Examples
    --------
    >>> name_of(Family("blindsight_estimate_lower_ratio", "", "gauge"))
    ('blindsight.estimate_lower', '1')
    >>> name_of(Family("blindsight_group_windows_closed", "", "counter"))
    ('blindsight.group.windows_closed', '')
    >>> name_of(Family("process_cpu_seconds", "", "counter"))
    ('process.cpu.time', 's')
    """
    if not family.name.startswith(PREFIX):
        return _PROCESS.get(family.name)
    key = family.name.removeprefix(PREFIX)
    rest, _, unit = key.rpartition("_")
    # Only for gauges is "1" translated into "ratio".
    if unit in _ENDINGS and (unit != "ratio" or family.type == "gauge"):
        key = rest
    key = f"{key}_info" if family.type == "info" else key
    return PREFIX.replace("_", ".") + key.replace("group_", "group.", 1), _UNITS.get(unit, "")


def requests(
    families: Iterable[tuple[Family, Points]], resource: Mapping[str, str], now: float
) -> Iterator[tuple[bytes, int]]:
    """Yield the encoded requests for a collector, each with the number of its data points.

    Parameters
    ----------
    families : iterable of pairs
        Families for which `name_of` returns a name, each with its data points.
    resource : mapping of str to str
        Attributes of the agent.
    now : float
        Seconds since the epoch.
    """
    agent = Resource(attributes=[_attribute(*pair) for pair in resource.items()])
    scope = InstrumentationScope(name="blindsight", version=__version__)
    count, metrics = 0, list[Metric]()
    for metric, points in _metrics(families, int(now * 1e9)):
        if count and count + points > _MOST_POINTS:
            yield _request(agent, scope, metrics), count
            count, metrics = 0, []
        metrics.append(metric)
        count += points
    if metrics:
        yield _request(agent, scope, metrics), count


def _request(resource: Resource, scope: InstrumentationScope, metrics: Sequence[Metric]) -> bytes:
    scoped = ScopeMetrics(scope=scope, metrics=metrics)
    request = ExportMetricsServiceRequest(
        resource_metrics=[ResourceMetrics(resource=resource, scope_metrics=[scoped])]
    )
    return bytes(request.SerializeToString())


def _metrics(families: Iterable[tuple[Family, Points]], nanoseconds: int) -> Iterator[tuple[Metric, int]]:
    """Yield metrics of at most `_MOST_POINTS` data points, each with the number of its points."""
    pairs: dict[tuple[str, str], KeyValue] = {}
    for family, points in families:
        kind = HistogramDataPoint if family.type == "histogram" else NumberDataPoint
        data_points = [
            kind(time_unix_nano=nanoseconds, attributes=_attributes(labels, pairs), **values)
            for labels, values in points.items()
        ]
        for first in range(0, len(data_points), _MOST_POINTS):
            part = data_points[first : first + _MOST_POINTS]
            yield _metric(family, part), len(part)


def _metric(family: Family, points: Sequence[Any]) -> Metric:
    """Return a metric without a start time, because the store's counters continue after a restart."""
    name, unit = name_of(family) or ("", "")
    metric = Metric(name=name, unit=unit, description=family.documentation)
    if family.type == "histogram":
        metric.histogram.CopyFrom(Histogram(data_points=points, aggregation_temporality=_CUMULATIVE))
    elif family.type == "counter":
        metric.sum.CopyFrom(Sum(data_points=points, aggregation_temporality=_CUMULATIVE, is_monotonic=True))
    else:
        metric.gauge.CopyFrom(Gauge(data_points=points))
    return metric


def _bare(family: Family) -> Family:
    return Family(family.name, family.documentation, family.type, family.unit)


def points_of(family: Family) -> Points:
    """Return the data points of a family.

    Examples
    --------
    >>> family = Family("blindsight_predictions", "Used answers.", "counter")
    >>> family.add_sample("blindsight_predictions_total", {"model": "erm"}, 500)
    >>> points_of(family)
    {(('model', 'erm'),): {'as_double': 500}}
    """
    if family.type == "histogram":
        return _histograms(family.samples)
    return {tuple(sample.labels.items()): {"as_double": sample.value} for sample in family.samples}


def _histograms(samples: Iterable[Sample]) -> Points:
    """Return the samples of classic histograms as bounds and counts; buckets must be in ascending order."""
    points: Points = {}
    for sample in samples:
        labels = tuple(pair for pair in sample.labels.items() if pair[0] != "le")
        point = points.setdefault(
            labels, {"explicit_bounds": [], "bucket_counts": [], "count": 0, "sum": 0.0}
        )
        if sample.name.endswith("_sum"):
            point["sum"] = sample.value
        elif sample.name.endswith("_bucket"):
            point["bucket_counts"].append(int(sample.value) - point["count"])
            point["count"] = int(sample.value)  # the last bucket's count is the total
            if math.isfinite(end := float(sample.labels["le"])):
                point["explicit_bounds"].append(end)
    return points


def _attributes(labels: Labels, pairs: dict[tuple[str, str], KeyValue]) -> list[KeyValue]:
    """Return labels as attributes, each pair encoded only once in a push."""
    for pair in labels:
        if pair not in pairs:
            pairs[pair] = _attribute(*pair)
    return [pairs[pair] for pair in labels]


def _attribute(name: str, value: str) -> KeyValue:
    return KeyValue(key=name, value=AnyValue(string_value=value))


def _rejected(url: str, answer: bytes) -> tuple[int, str]:
    """Return the number of data points that the collector rejected, and its reason.

    Raises
    ------
    SinkError
        The answer is not that of a collector.
    """
    try:
        partial = ExportMetricsServiceResponse.FromString(answer).partial_success
    except DecodeError as error:
        raise SinkError(
            f"export.otlp.url: {url} answers with something else than OTLP; correct {COLLECTOR.remedy}"
        ) from error
    return partial.rejected_data_points, partial.error_message
