"""Keys that need a restart: a reload that changes one is refused by its name."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from monitor.cli.daemon import Daemon
from monitor.config.file import load_config
from tests.daemon import configuration, ndjson, write_configuration
from tests.numbers import predictions

# ── restart: a daemon in this process refuses them by name ──


def base(folder: Path) -> dict[str, Any]:
    (folder / "in.ndjson").touch()
    settings = configuration(
        task={"models": {"erm": {}}},
        sources=[{"kind": "file", "path": "in.ndjson", "follow": True}],
        reports={"path": "windows.ndjson"},
        rejects={"path": "rejects.ndjson"},
        store={"path": "state"},
        alertmanager={"urls": ["http://127.0.0.1:1"], "labels": {"job": "b"}},
    )
    (folder / "delays.ndjson").write_bytes(ndjson(predictions(1, 300)))
    settings["tasks"]["delay"] = {
        "kind": "regression",
        "tolerance": 1.5,
        "window": {"size": 50},
        "reference": {"path": "delays.ndjson"},
    }
    settings["tasks"]["chat"] = {"kind": "arena", "models": ["x", "y"]}
    settings["export"]["otlp"] = {"url": "http://127.0.0.1:1/v1/metrics", "interval_seconds": 60}
    return settings


BY_FEATURES = {
    "features": {"hour": "number"},
    "calibration": {"method": "covariates"},
    "reference": {"path": "in.ndjson"},
}
TOPIC = {"brokers": ["127.0.0.1:1"], "topic": "out"}


def _update_otlp(change: dict[str, Any], config: dict[str, Any]) -> None:
    config["export"]["otlp"].update(change)


RESTART: dict[str, tuple[str, Callable[[dict[str, Any]], None]]] = {
    # the path that is named, the change
    "tasks.*": ("tasks.u", lambda c: c["tasks"].update(u={})),
    "tasks.*.models.*": ("tasks.t.models.irm", lambda c: c["tasks"]["t"]["models"].update(irm={})),
    "tasks.*.kind": ("tasks.chat.kind", lambda c: c["tasks"].update(chat={"kind": "classification"})),
    "tasks.*.models": ("tasks.chat.models", lambda c: c["tasks"]["chat"].update(models=["x", "y", "z"])),
    "tasks.*.classes": ("tasks.t.classes", lambda c: c["tasks"]["t"].update(classes=["bad", "ok"])),
    "tasks.*.positive": ("tasks.t.positive", lambda c: c["tasks"]["t"].update(positive="ok")),
    "tasks.*.features.*": ("tasks.t.features.hour", lambda c: c["tasks"]["t"].update(BY_FEATURES)),
    "tasks.*.tolerance": ("tasks.delay.tolerance", lambda c: c["tasks"]["delay"].update(tolerance=2)),
    "tasks.*.relative_tolerance": (
        "tasks.delay.tolerance, tasks.delay.relative_tolerance",
        lambda c: c["tasks"]["delay"].update(tolerance=None, relative_tolerance=0.1),
    ),
    "tasks.*.quantiles": (
        "tasks.delay.quantiles",
        lambda c: c["tasks"]["delay"].update(quantiles=[0.05, 0.95]),
    ),
    "tasks.*.groups": ("tasks.t.groups", lambda c: c["tasks"]["t"].update(groups=["region"])),
    "sources": ("sources", lambda c: c["sources"][0].update(follow=False)),
    "decoders": ("decoders", lambda c: c.update(decoders=1)),
    "reports.path": ("reports.path", lambda c: c["reports"].update(path="other")),
    "reports.max_bytes": ("reports.max_bytes", lambda c: c["reports"].update(max_bytes=None)),
    "reports.keep": ("reports.keep", lambda c: c["reports"].update(keep=3)),
    "reports.kafka": ("reports.kafka", lambda c: c["reports"].update(kafka=TOPIC)),
    "rejects.kafka": ("rejects.kafka", lambda c: c["rejects"].update(kafka=TOPIC)),
    "rejects.path": ("rejects.path", lambda c: c["rejects"].update(path="other")),
    "rejects.max_bytes": ("rejects.max_bytes", lambda c: c["rejects"].update(max_bytes=5_000_000)),
    "rejects.retention_days": ("rejects.retention_days", lambda c: c["rejects"].update(retention_days=3)),
    "rejects.record": ("rejects.record", lambda c: c["rejects"].update(record="none")),
    "store.path": ("store.path", lambda c: c["store"].update(path="other")),
    "store.postgres": (
        "store.path, store.postgres",
        lambda c: c.update(store={"postgres": "postgresql://db/m"}),
    ),
    "store.prefix": ("store.prefix", lambda c: c["store"].update(prefix="other")),
    "store.password_file": ("store.password_file", lambda c: c["store"].update(password_file="p")),
    "store.by_partition": (
        "sources, store.path, store.postgres, store.by_partition",
        lambda c: c.update(
            store={"postgres": "postgresql://db/m", "by_partition": True},
            sources=[{"kind": "kafka", "brokers": ["broker:9092"], "topics": ["t"]}],
        ),
    ),
    "store.lease_seconds": ("store.lease_seconds", lambda c: c["store"].update(lease_seconds=9)),
    "store.every_seconds": ("store.every_seconds", lambda c: c["store"].update(every_seconds=7)),
    "store.keep_reports": ("store.keep_reports", lambda c: c["store"].update(keep_reports=2000)),
    "alertmanager.urls": ("alertmanager.urls", lambda c: c["alertmanager"].update(urls=["http://a"])),
    "alertmanager.resend_seconds": (
        "alertmanager.resend_seconds",
        lambda c: c["alertmanager"].update(resend_seconds=5),
    ),
    "alertmanager.labels.*": (
        "alertmanager.labels.job",
        lambda c: c["alertmanager"]["labels"].update(job="c"),
    ),
    "alertmanager.runbooks": ("alertmanager.runbooks", lambda c: c["alertmanager"].update(runbooks="r")),
    "alertmanager.token_file": (
        "alertmanager.token_file",
        lambda c: c["alertmanager"].update(token_file="t"),
    ),
    "alertmanager.basic_auth": (
        "alertmanager.basic_auth",
        lambda c: c["alertmanager"].update(basic_auth={"username": "u", "password_file": "p"}),
    ),
    "alertmanager.tls": (
        "alertmanager.tls, alertmanager.urls",
        lambda c: c["alertmanager"].update(urls=["https://a"], tls={"ca": "ca.pem"}),
    ),
    "alertmanager.headers.*": (
        "alertmanager.headers.X-Scope-OrgID",
        lambda c: c["alertmanager"].update(headers={"X-Scope-OrgID": "x"}),
    ),
    "alertmanager.external_url": (
        "alertmanager.external_url",
        lambda c: c["alertmanager"].update(external_url="http://a"),
    ),
    "export.listen": ("export.listen", lambda c: c["export"].update(listen="127.0.0.1:1")),
    "export.external_url": ("export.external_url", lambda c: c["export"].update(external_url="http://a")),
    "export.max_series": ("export.max_series", lambda c: c["export"].update(max_series=500)),
    "export.max_bytes": ("export.max_bytes", lambda c: c["export"].update(max_bytes=200_000)),
    "export.distributions": ("export.distributions", lambda c: c["export"].update(distributions=False)),
    "export.tokens": (
        "export.tokens",
        lambda c: c["export"].update(tokens=[{"token": "0123456789abcdef"}]),
    ),
    "export.tls": ("export.tls", lambda c: c["export"].update(tls={"cert": "c.pem", "key": "k.pem"})),
    **{
        f"export.otlp.{key}": (f"export.otlp.{named}", partial(_update_otlp, change))
        for key, named, change in (
            ("url", "url", {"url": "http://b/v1/metrics"}),
            ("interval_seconds", "interval_seconds", {"interval_seconds": 5}),
            ("resource.*", "resource.team", {"resource": {"team": "a"}}),
            ("token_file", "token_file", {"token_file": "token"}),
            ("basic_auth", "basic_auth", {"basic_auth": {"username": "u", "password_file": "p"}}),
            ("tls", "tls, export.otlp.url", {"url": "https://a/v1/metrics", "tls": {"ca": "ca.pem"}}),
            ("headers.*", "headers.X-Scope-OrgID", {"headers": {"X-Scope-OrgID": "x"}}),
        )
    },
}


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Daemon, Path]]:
    folder = tmp_path_factory.mktemp("restart")
    path = write_configuration(folder, base(folder))
    agent = Daemon(load_config(str(path)))
    with agent.running():
        yield agent, folder


@pytest.mark.parametrize("key", RESTART)
def test_what_needs_a_restart_is_refused_by_its_name_and_changes_nothing(
    daemon: tuple[Daemon, Path], key: str, caplog: pytest.LogCaptureFixture
) -> None:
    agent, folder = daemon
    before = agent.config
    named, change = RESTART[key]
    config = base(folder)
    change(config)
    caplog.set_level(logging.INFO, "blindsight")
    agent.reload(str(write_configuration(folder, config)))
    refused = f"{named}: cannot change while the agent runs; restart it, or put the old value back"
    assert f"The configuration was not reloaded, the old one stays in use: {refused}" in caplog.text
    assert agent.config is before
    assert (agent.agent.view().reload_successful, agent.agent.view().healthy) == (False, True)
    agent.reload(str(write_configuration(folder, base(folder))))
    assert agent.agent.view().reload_successful
