"""The files that a configuration names, from the folder of the configuration."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, TypeVar

from monitor.config.root import (
    Alertmanager,
    Config,
    HttpSource,
    KafkaSink,
    KafkaSource,
    SourceConfig,
    Task,
    TaskConfig,
)

_KAFKA_FILES = (
    *("ssl_cafile", "ssl_certfile", "ssl_keyfile", "ssl_crlfile"),
    *("ssl_password_file", "sasl_plain_password_file"),
)


def resolve_paths(config: Config, folder: str | Path) -> Config:
    """The same configuration, its relative paths taken from `folder`.

    It touches `reference.path`, the files of `sources` (also certificates, tokens, the spool of HTTP),
    the paths of `reports` and `rejects` (and their topics' certificates), `store.path`, and what
    `alertmanager` is logged in to with.

    Examples
    --------
    >>> config = Config(tasks={"t": {}}, reports={"path": "windows.ndjson"})
    >>> resolve_paths(config, "/etc/blindsight").reports.path
    '/etc/blindsight/windows.ndjson'
    """
    base = os.path.abspath(folder)
    return config.model_copy(
        update={
            "tasks": {name: _resolve_task(task, base) for name, task in config.tasks.items()},
            "sources": tuple(_resolve_source(source, base) for source in config.sources),
            "reports": _resolve_sink(config.reports, base),
            "rejects": _resolve_sink(config.rejects, base),
            "store": _resolve_path(config.store, base),
            "alertmanager": _resolve_alertmanager(config.alertmanager, base),
        }
    )


def _resolve_path(section: Any, base: str) -> Any:
    """A section's `path`, where it has one."""
    if section is None or section.path is None:
        return section
    return section.model_copy(update={"path": _under(base, section.path)})


def _resolve_task(task: TaskConfig, base: str) -> TaskConfig:
    if not isinstance(task, Task):
        return task
    return task.model_copy(update={"reference": _resolve_path(task.reference, base)})


def _resolve_source(source: SourceConfig, base: str) -> SourceConfig:
    if source.kind == "file":
        resolved: SourceConfig = _resolve_path(source, base)
        return resolved
    if source.kind == "kafka":
        return _resolve_kafka(source, base)
    if source.kind == "http":
        return _resolve_http(source, base)
    return source


_Kafka = TypeVar("_Kafka", KafkaSink, KafkaSource)


def _resolve_sink(section: Any, base: str) -> Any:
    """The path of `reports` or `rejects`, and the certificates of its topic."""
    if section is None:
        return None
    kafka = section.kafka and _resolve_kafka(section.kafka, base)
    return _resolve_path(section, base).model_copy(update={"kafka": kafka})


def _resolve_kafka(section: _Kafka, base: str) -> _Kafka:
    """A section's `options` for Kafka, those that name a file."""
    files = {
        key: _under(base, value)
        for key, value in section.options.items()
        if key in _KAFKA_FILES and isinstance(value, str)
    }
    return section.model_copy(update={"options": {**section.options, **files}})


def _resolve_http(source: HttpSource, base: str) -> HttpSource:
    return source.model_copy(
        update={
            "spool": _resolve_path(source.spool, base),
            "tls": _resolve_keys(source.tls, ("cert", "key", "client_ca"), base),
            "tokens": tuple(_resolve_keys(token, ("token_file",), base) for token in source.tokens),
        }
    )


def _resolve_alertmanager(section: Alertmanager | None, base: str) -> Alertmanager | None:
    if section is None:
        return None
    basic_auth = _resolve_keys(section.basic_auth, ("password_file",), base)
    tls = _resolve_keys(section.tls, ("ca", "cert", "key"), base)
    found: Alertmanager = _resolve_keys(section, ("token_file",), base)
    return found.model_copy(update={"basic_auth": basic_auth, "tls": tls})


def _resolve_keys(section: Any, keys: tuple[str, ...], base: str) -> Any:
    """A section, if there is one, with those of its keys that name a file."""
    if section is None:
        return None
    files = {key: _under(base, value) for key in keys if (value := getattr(section, key)) is not None}
    return section.model_copy(update=files)


def _under(base: str, path: str) -> str:
    return os.path.normpath(os.path.join(base, path))
