"""Metrics over OTLP: decoded by the protocol's own definitions, they are the samples of a scrape."""

from __future__ import annotations

import dataclasses
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsPartialSuccess,
    ExportMetricsServiceResponse,
)

from monitor import __version__
from monitor.base.errors import ConfigError, SinkError
from monitor.base.registry import Extra
from monitor.config.file import config_from
from monitor.config.otlp import Otlp
from monitor.export.prometheus.collector import registry
from monitor.export.push.otlp import OtlpPusher, points_of
from monitor.reports.views import AgentView
from tests.daemon import DaemonProcess, command_here, configuration, ndjson, write_configuration
from tests.export.prometheus.scrape import RICH, WATCHED, crowd, exposed, samples
from tests.services.otlp_collector import OtlpCollector, as_prometheus, ended, labels_of, metrics_of
from tests.services.process import wait_until
from tests.streams import Record

NOW = 1_795_169_000.5


@pytest.fixture
def collector() -> Iterator[OtlpCollector]:
    with OtlpCollector() as made:
        yield made


def pusher(collector: OtlpCollector, view: AgentView = RICH, **settings: Any) -> OtlpPusher:
    return OtlpPusher(Otlp(url=collector.url, **settings), exposed(view), "host:9109")


def showing(collector: OtlpCollector, views: list[AgentView]) -> OtlpPusher:
    """Return a pusher that shows the last of the views."""
    return OtlpPusher(
        Otlp(url=collector.url), registry(lambda: views[-1], 100_000, distributions=True), "host:9109"
    )


def test_a_collector_gets_every_sample_of_a_scrape_under_its_own_name(collector: OtlpCollector) -> None:
    pusher(collector).push(NOW)
    (request,) = collector.requests
    scraped = as_prometheus(request)
    expected = {
        (name, frozenset((key, str(float(text)) if key == "le" else text) for key, text in labels)): value
        for (name, labels), value in samples(RICH).items()
    }
    assert len(expected) > 300
    assert scraped == expected


def test_names_units_and_resource_are_by_the_conventions(collector: OtlpCollector) -> None:
    pusher(collector, resource={"deployment.environment.name": "test", "service.name": "own"}).push(NOW)
    (request,) = collector.requests
    assert labels_of(request.resource_metrics[0].resource.attributes) == {
        "service.name": "own",
        "service.version": __version__,
        "service.instance.id": "host:9109",
        "deployment.environment.name": "test",
    }
    assert request.resource_metrics[0].scope_metrics[0].scope.name == "blindsight"
    by_name = {metric.name: metric for metric in metrics_of(request)}
    estimate = by_name["blindsight.estimate"]
    assert (estimate.unit, estimate.WhichOneof("data")) == ("1", "gauge")
    assert estimate.description == "Estimate for the last closed window, 0 to 1."
    assert by_name["blindsight.window_end_timestamp"].unit == "s"
    assert by_name["blindsight.group.estimate_lower"].unit == "1"
    assert by_name["blindsight.refit_rows"].unit == "{row}"
    used = by_name["blindsight.predictions"]
    assert used.sum.is_monotonic
    # A store's counters go on after a restart: a start time would make an increase of all that they hold.
    assert {point.start_time_unix_nano for point in used.sum.data_points} == {0}
    assert {point.time_unix_nano for point in used.sum.data_points} == {int(NOW * 1e9)}
    (curve,) = [p for p in by_name["blindsight.refit_duration"].histogram.data_points if p.count]
    assert (curve.count, sum(curve.bucket_counts)) == (4, 4)
    assert collector.headers[0]["Content-Type"] == "application/x-protobuf"
    assert collector.headers[0]["Content-Encoding"] == "gzip"


def test_the_process_has_the_names_of_the_conventions(collector: OtlpCollector) -> None:
    showing(collector, [RICH]).push(NOW)
    units = {m.name: m.unit for m in metrics_of(collector.requests[0]) if not m.name.startswith("blindsight")}
    assert units == {
        "process.cpu.time": "s",
        "process.memory.usage": "By",
        "process.open_file_descriptor.count": "{file_descriptor}",
    }


def test_what_ended_is_said_once_and_has_no_value(collector: OtlpCollector) -> None:
    without = dataclasses.replace(
        RICH, engine=dataclasses.replace(RICH.engine, series=(WATCHED,), refits={}, tasks=())
    )
    views = [RICH]
    push = showing(collector, views)
    push.push(NOW)
    views.append(without)
    push.push(NOW)
    push.push(NOW)
    before, after = (
        {(f.name, frozenset(labels)) for f in exposed(view).collect() for labels in points_of(f)}
        for view in (RICH, without)
    )
    _, second, third = collector.requests
    stale = {(name.replace(".", "_"), labels) for name, labels in ended(second)}
    assert len(stale) == len(before - after) >= 100
    assert {labels for _, labels in stale} == {labels for _, labels in before - after}
    assert not ended(third)


def test_what_was_not_delivered_is_said_to_have_ended_later(collector: OtlpCollector) -> None:
    views = [RICH]
    push = showing(collector, views)
    push.push(NOW)
    views.append(dataclasses.replace(RICH, engine=dataclasses.replace(RICH.engine, tasks=())))
    collector.answer = (503, b"\x08\x0e\x12\x06later.")
    with pytest.raises(SinkError) as caught:
        push.push(NOW)
    assert str(caught.value) == (
        f"export.otlp.url: {collector.url} refuses the metrics (503: later.); correct the address, which "
        "ends in /v1/metrics"
    )
    collector.answer = (200, b"")
    push.push(NOW)
    assert any(name.startswith("blindsight.arena") for name, _ in ended(collector.requests[-1]))


def test_many_series_go_in_several_requests(collector: OtlpCollector) -> None:
    view = crowd(models=120, groups=2)
    expected = {family.name: len(points_of(family)) for family in exposed(view, 100_000).collect()}
    push = OtlpPusher(Otlp(url=collector.url), exposed(view, 100_000), "host:9109")
    push.push(NOW)
    assert len(collector.requests) > 1
    counts = [sum(_points(metric) for metric in metrics_of(request)) for request in collector.requests]
    assert sum(counts) == sum(expected.values()) == push.view.delivered
    assert max(counts) <= 10_000


def _points(metric: Any) -> int:
    return len(getattr(metric, metric.WhichOneof("data")).data_points)


def test_rejected_data_points_are_counted_and_told(collector: OtlpCollector) -> None:
    partial_success = ExportMetricsPartialSuccess(rejected_data_points=3, error_message="out of order")
    collector.answer = (
        200,
        ExportMetricsServiceResponse(partial_success=partial_success).SerializeToString(),
    )
    push = pusher(collector)
    with pytest.raises(SinkError) as caught:
        push.push(NOW)
    assert str(caught.value) == (f"export.otlp.url: {collector.url} rejects 3 data points: out of order")
    assert push.view.lost == 3
    collector.answer = (200, b"<html>not a collector</html>")
    with pytest.raises(SinkError, match="answers with something else than OTLP; correct the address"):
        push.push(NOW)


def test_an_agent_posts_until_its_end_and_waits_for_a_collector(tmp_path: Path) -> None:
    with socket.socket() as held:  # bound and not listening: nobody answers there yet
        held.bind(("127.0.0.1", 0))
        away = f"http://127.0.0.1:{held.getsockname()[1]}/v1/metrics"
        config = configuration(sources=[{"kind": "file", "path": "in.ndjson", "follow": True}])
        config["export"]["otlp"] = {"url": away, "interval_seconds": 1}
        (tmp_path / "in.ndjson").write_bytes(b"")
        with DaemonProcess(tmp_path, config) as daemon:
            daemon.until_value(0, "sink_up", sink="otlp")
            assert f"export.otlp.url: {away} does not answer" in daemon.log
            assert daemon.end(signal.SIGTERM)[0] == 0


def test_the_last_post_has_what_the_last_windows_brought(tmp_path: Path, collector: OtlpCollector) -> None:
    config = configuration(sources=[{"kind": "file", "path": "in.ndjson", "follow": True}])
    config["export"]["otlp"] = {"url": collector.url, "interval_seconds": 3600}
    stream: list[Record] = [
        {"task": "t", "model": "erm", "id": str(i), "scores": [0.1, 0.9]} for i in range(200)
    ]
    (tmp_path / "in.ndjson").write_bytes(ndjson(stream[:100]))
    with DaemonProcess(tmp_path, config) as daemon:
        daemon.until_value(1, "windows_closed_total", task="t", model="erm")
        wait_until(lambda: collector.requests, "the first post")
        with (tmp_path / "in.ndjson").open("ab") as more:
            more.write(ndjson(stream[100:]))
        daemon.until_value(2, "windows_closed_total", task="t", model="erm")
        assert daemon.end(signal.SIGTERM)[0] == 0
    closed = {
        value
        for (name, _), value in as_prometheus(collector.requests[-1]).items()
        if "windows_closed" in name
    }
    assert closed == {2}


@pytest.mark.parametrize(
    ("section", "message"),
    [
        *(
            (
                {"url": url},
                "export.otlp.url: expected an address with its path, such as "
                "'http://127.0.0.1:4318/v1/metrics', got another; give a login as basic_auth or token_file",
            )
            for url in ("127.0.0.1:4317", "http://collector:4318", "http://agent:secret@collector/v1/metrics")
        ),
        (
            {"url": "http://collector:4318/v1/metrics", "resource": {"": "x"}},
            "export.otlp.resource: expected names such as deployment.environment.name, got an empty one",
        ),
        (
            {"url": "http://collector:4318/v1/metrics", "tls": {"ca": "ca.pem"}},
            "export.otlp.tls: expected an https address as url, got none: write https://, or leave tls out",
        ),
    ],
)
def test_a_section_that_cannot_be_is_refused(section: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        config_from(configuration(export={"otlp": section}))
    assert message in str(caught.value)
    assert "secret" not in str(caught.value)


def test_check_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_configuration(
        tmp_path, configuration(export={"otlp": {"url": "http://127.0.0.1:4318/v1/metrics"}})
    )
    assert command_here("check", path).returncode == 0
    monkeypatch.setattr("monitor.cli.outputs.OTLP", Extra("otlp", ("no_such_package.proto",)))
    monkeypatch.setattr("monitor.cli.checking.OTLP", Extra("otlp", ("no_such_package.proto",)))
    done = command_here("check", path)
    assert done.returncode == 2
    assert "export.otlp needs an optional package: pip install 'blindsight[otlp]'" in done.stderr
