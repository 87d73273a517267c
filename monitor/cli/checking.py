"""The command `blindsight check`, which reads a configuration like `run` and predicts its false alarms."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import date

from connectors.build import build_lines_topic, build_rejects_topic, build_source
from monitor.base.errors import SourceError
from monitor.cli.check.calibrations import (
    calibration_warnings,
    choice_lines,
    interval_sentences,
    surprise_warnings,
)
from monitor.cli.check.check import CheckReport
from monitor.cli.check.features import untested_features
from monitor.cli.check.season import season_sentences
from monitor.cli.outputs import OTLP
from monitor.cli.trial import ReferenceTrial
from monitor.config.file import load_config
from monitor.config.http import HttpSourceConfig
from monitor.config.layouts import layouts
from monitor.config.root import Config, Export
from monitor.export.http.gate import Gate
from monitor.export.http.tls import watched_context
from monitor.export.sinks.reports_file import why_not_writable


def check_configuration(path: str) -> CheckReport:
    """Read a configuration and its references, and return the forecast with all warnings.

    Raises
    ------
    ConfigError
        The configuration or a reference cannot be used.
    MissingExtraError
        A source, an output or an estimator needs an extra that is not installed.
    """
    config = load_config(path)
    known = layouts(config.tasks)
    for source in config.sources:
        build_source(source, known)
    _check_topics(config)
    if config.export.otlp is not None:
        OTLP.require("export.otlp")
    trial = ReferenceTrial(config)
    tasks, references, report = config.scored_tasks, trial.references, trial.report
    weaknesses = [*surprise_warnings(tasks, references), *calibration_warnings(tasks, references)]
    intervals = interval_sentences(tasks, references)
    features = untested_features(tasks, references)
    seasons = season_sentences(tasks, references, date.today())
    unusable = (*_unwritable(config), *_unusable(config))
    return replace(
        report,
        warnings=(*report.warnings, *weaknesses, *intervals, *features, *seasons, *unusable),
        calibrations=tuple(choice_lines(tasks, references)),
    )


def _check_topics(config: Config) -> None:
    """Build the Kafka topics, to raise `ConfigError` if their options cannot be used."""
    if config.reports and config.reports.kafka:
        build_lines_topic(config.reports.kafka)
    if config.rejects and config.rejects.kafka:
        build_rejects_topic(config.rejects.kafka)


def _unwritable(config: Config) -> Iterator[str]:
    """Yield a warning for each file that cannot be written.

    This is not an error, because the agent may run on another machine or as another user.
    """
    for key, section in (("reports", config.reports), ("rejects", config.rejects)):
        problem = why_not_writable(section.path) if section and section.path else None
        if problem is not None:
            yield f"{key}.path: {problem}"


def _unusable(config: Config) -> Iterator[str]:
    """Yield a warning for each file of tokens or certificates that `run` could not read."""
    guarded: list[tuple[str, HttpSourceConfig | Export]] = [("export", config.export)]
    guarded += [(f"sources[{i}]", s) for i, s in enumerate(config.sources) if isinstance(s, HttpSourceConfig)]
    for key, section in guarded:
        try:
            Gate(section.tokens)
        except SourceError as error:
            yield f"{key}.tokens: {error}"
        try:
            if section.tls is not None:
                watched_context(section.tls)
        except SourceError as error:
            yield f"{key}.{error}"
