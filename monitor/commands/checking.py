"""`blindsight check`: a configuration read as `run` would, and what its charts will do."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from connectors.build import build_source
from monitor.check import check
from monitor.checktext import render
from monitor.commands.daemon import engine_settings, reference_windows
from monitor.config import Config
from monitor.configfile import load_config
from monitor.engine import layouts
from monitor.export.reports import why_not_writable


def check_file(path: str) -> str:
    """Read a configuration with the references that it names; what to print of it.

    Raises
    ------
    ConfigError
        It cannot be used, and why.
    """
    config = load_config(path)
    known = layouts(config.tasks)
    for source in config.sources:
        build_source(source, known)
    settings = engine_settings(config)
    report = check(config, reference_windows(settings))
    return render(replace(report, warnings=(*report.warnings, *_unwritable(config))))


def _unwritable(config: Config) -> Iterator[str]:
    """A warning and no refusal: the agent may run on another machine, or as another user."""
    for key, section in (("reports", config.reports), ("rejects", config.rejects)):
        problem = None if section is None else why_not_writable(section.path)
        if problem is not None:
            yield f"{key}.path: {problem}"
