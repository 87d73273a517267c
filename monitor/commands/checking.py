"""`blindsight check`: a configuration read as `run` would, and what its charts will do."""

from __future__ import annotations

from connectors.build import build_source, read_references
from monitor.check import check, render
from monitor.commands.daemon import built
from monitor.configfile import load_config
from monitor.engine import EngineSettings


def check_file(path: str) -> str:
    """Read a configuration with the references that it names; what to print of it.

    Raises
    ------
    ConfigError
        It cannot be used, and why.
    """
    config = load_config(path)
    for settings in config.sources:
        build_source(settings)
    references = read_references(config)
    built(EngineSettings(config.tasks, references))
    windows = {
        name: min(len(reference.labels) for reference in models.values()) // config.tasks[name].window.size
        for name, models in references.items()
    }
    return render(check(config, windows))
