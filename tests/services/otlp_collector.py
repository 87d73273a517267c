"""An OpenTelemetry collector by the protocol's own definitions: it keeps the requests posted to it."""

from __future__ import annotations

import gzip
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import DataPointFlags, Metric

from tests.services.webhook import LocalServer

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]

ENDED = DataPointFlags.DATA_POINT_FLAGS_NO_RECORDED_VALUE_MASK
_SUFFIXES = {"s": "seconds", "By": "bytes", "1": "ratio"}


class OtlpCollector(LocalServer):
    """A collector that takes posts on a free port of 127.0.0.1. A context manager.

    Attributes
    ----------
    requests : list of ExportMetricsServiceRequest
    headers : list of mappings
        Of each.
    answer : pair of int and bytes
        What each post gets.
    """

    def __init__(self) -> None:
        self.requests: list[ExportMetricsServiceRequest] = []
        self.headers: list[Mapping[str, str]] = []
        self.answer: tuple[int, bytes] = (200, b"")
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = gzip.decompress(self.rfile.read(int(self.headers["Content-Length"])))
                collector.headers.append(dict(self.headers))
                collector.requests.append(ExportMetricsServiceRequest.FromString(body))
                status, answer = collector.answer
                self.send_response(status)
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *words: Any) -> None:
                """Write nothing on standard error."""

        super().__init__(Handler)

    @property
    def url(self) -> str:
        """The address that metrics are posted to."""
        return f"{super().url}/v1/metrics"


def metrics_of(request: ExportMetricsServiceRequest) -> list[Metric]:
    """Return the metrics of a request."""
    (resource,) = request.resource_metrics
    (scope,) = resource.scope_metrics
    return list(scope.metrics)


def labels_of(attributes: Any) -> dict[str, str]:
    """Return attributes as labels."""
    return {pair.key: pair.value.string_value for pair in attributes}


def as_prometheus(request: ExportMetricsServiceRequest) -> Samples:
    """Return the data points that have a value as samples of Prometheus.

    Names by the specification *Prometheus and OpenMetrics compatibility*, section *OTLP metric points to
    Prometheus*.
    """
    samples: Samples = {}
    for metric in metrics_of(request):
        kind, points = _data(metric)
        name = _prometheus_name(metric, kind)
        for point in points:
            if not point.flags & ENDED:
                labels = frozenset(labels_of(point.attributes).items())
                is_histogram = kind == "histogram"
                samples |= (
                    _histogram(name, labels, point) if is_histogram else {(name, labels): point.as_double}
                )
    return samples


def ended(request: ExportMetricsServiceRequest) -> set[tuple[str, frozenset[tuple[str, str]]]]:
    """Return metric and attributes of the data points that say that there is no value any more."""
    return {
        (metric.name, frozenset(labels_of(point.attributes).items()))
        for metric in metrics_of(request)
        for point in _data(metric)[1]
        if point.flags & ENDED
    }


def _data(metric: Metric) -> tuple[str, Any]:
    kind = metric.WhichOneof("data")
    assert kind is not None, metric.name
    return kind, getattr(metric, kind).data_points


def _prometheus_name(metric: Metric, kind: str) -> str:
    name = metric.name.replace(".", "_")
    suffix = _SUFFIXES.get(metric.unit, "")
    if suffix and (suffix != "ratio" or kind == "gauge") and not name.endswith(f"_{suffix}"):
        name = f"{name}_{suffix}"
    return f"{name}_total" if kind == "sum" and metric.sum.is_monotonic else name


def _histogram(name: str, labels: frozenset[tuple[str, str]], point: Any) -> Samples:
    samples: Samples = {(f"{name}_sum", labels): point.sum, (f"{name}_count", labels): point.count}
    total = 0
    for end, count in zip([*point.explicit_bounds, float("inf")], point.bucket_counts, strict=True):
        total += count
        samples[f"{name}_bucket", labels | {("le", str(end))}] = total
    return samples
