"""`blindsight check`: a configuration read as `run` would, and what its charts will do."""

from __future__ import annotations

from connectors.build import build_source
from monitor.check import check, render
from monitor.commands.daemon import engine_settings, reference_windows
from monitor.configfile import load_config


def check_file(path: str) -> str:
    """Read a configuration with the references that it names; what to print of it.

    Raises
    ------
    ConfigError
        It cannot be used, and why.
    """
    config = load_config(path)
    for source in config.sources:
        build_source(source)
    settings = engine_settings(config)
    return render(check(config, reference_windows(settings)))
