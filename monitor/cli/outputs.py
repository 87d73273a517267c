"""The outputs of a daemon: queues for files and topics, alerts, and the page with the metrics."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from prometheus_client import CollectorRegistry

from connectors.build import build_lines_topic, build_rejects_topic
from monitor.base.errors import ConfigError, SourceError
from monitor.base.registry import Extra
from monitor.config.root import Config, Export
from monitor.config.section import listen_address
from monitor.export.alertmanager.pusher import AlertPusher
from monitor.export.http.app import Handler, build_app
from monitor.export.http.gate import Gate
from monitor.export.http.server import HttpServer
from monitor.export.http.tls import watched_context
from monitor.export.page.document import shown_page
from monitor.export.push.pusher import Pusher
from monitor.export.rules import RUNBOOKS, RuleSettings, paces
from monitor.export.sinks.line_file import is_pipe
from monitor.export.sinks.queued import QueuedSink
from monitor.export.sinks.rejects_file import QUEUED_REJECTS, Rejected, RejectsRetention, RejectWriter
from monitor.export.sinks.reports_file import QUEUED_REPORTS, ReportWriter
from monitor.reports.views import AgentView

OTLP = Extra("otlp", ("opentelemetry.proto", "google.protobuf"))
"""The extra that `export.otlp` needs."""


def report_queues(config: Config) -> list[QueuedSink[bytes]]:
    """Return the sinks of closed windows for an agent without a store.

    A full queue drops the oldest window.
    """
    queues: list[QueuedSink[bytes]] = []
    if config.reports and config.reports.path:
        writer = ReportWriter(
            config.reports.path, max_bytes=config.reports.max_bytes, keep=config.reports.keep
        )
        queues.append(writer)
    if config.reports and config.reports.kafka:
        topic = build_lines_topic(config.reports.kafka)
        queues.append(QueuedSink(topic, QUEUED_REPORTS, drop_oldest=True))
    return queues


def reject_queues(config: Config) -> list[QueuedSink[Rejected]]:
    """Return the sinks of records that could not be used. A full queue drops new records."""
    queues: list[QueuedSink[Rejected]] = []
    if config.rejects and config.rejects.path:
        queues.append(RejectWriter(config.rejects.path, config.rejects.max_bytes, clock=time.time))
    if config.rejects and config.rejects.kafka:
        queues.append(QueuedSink(build_rejects_topic(config.rejects.kafka), QUEUED_REJECTS))
    return queues


def exporter(
    export: Export,
    view: Callable[[], AgentView],
    metrics: CollectorRegistry,
    routes: Mapping[str, Handler],
) -> HttpServer:
    """Return the server of the page and the metrics, with the configured tokens and certificates.

    Raises
    ------
    ConfigError
        A file of tokens or certificates cannot be used.
    """
    try:
        gate = Gate(export.tokens)
        context = watched_context(export.tls).current if export.tls else None
    except SourceError as error:
        raise ConfigError(f"export: {error}") from error
    app = build_app(view, metrics, shown_page, routes, export.max_bytes, gate)
    return HttpServer(app, export.listen, context=context)


def alert_pushers(config: Config, view: Callable[[], AgentView]) -> list[AlertPusher]:
    """Return a pusher for each Alertmanager of the configuration."""
    settings = config.alertmanager
    if settings is None:
        return []
    names = (
        [f"alertmanager_{i}" for i in range(len(settings.urls))] if settings.urls[1:] else ["alertmanager"]
    )
    page = f"{'https' if config.export.tls else 'http'}://{config.export.listen}/"
    outside = config.export.external_url
    runbooks = "" if settings.runbooks == RUNBOOKS else settings.runbooks
    rules = RuleSettings(runbooks=runbooks, external_url=outside or "")
    waits = {pace.task: 2 * pace.window_seconds for pace in paces(config)}

    def patience(task: str) -> float:
        return waits.get(task, waits.get("", 0.0))

    return [
        AlertPusher(url, settings, view, outside or page, rules, patience, name)
        for url, name in zip(settings.urls, names, strict=True)
    ]


def otlp_pushers(config: Config, metrics: CollectorRegistry) -> list[Pusher]:
    """Return a list with the pusher for the configured OpenTelemetry collector; [] without a collector.

    Raises
    ------
    MissingExtraError
        The extra with the protocol's definitions is not installed.
    """
    if config.export.otlp is None:
        return []
    OTLP.require("export.otlp")
    from monitor.export.push.otlp import OtlpPusher

    _, port = listen_address(config.export.listen)
    return [OtlpPusher(config.export.otlp, metrics, f"{socket.gethostname()}:{port}")]


def retention(config: Config) -> RejectsRetention | None:
    """Return the thread that removes old lines from the rejects file, or None if lines are kept."""
    rejects = config.rejects
    if rejects is None or rejects.path is None or rejects.retention_days is None or is_pipe(rejects.path):
        return None
    return RejectsRetention(Path(rejects.path), rejects.retention_days * 86_400.0)
