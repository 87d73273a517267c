"""The files that a configuration names, from the folder of the configuration."""

from __future__ import annotations

import os
from pathlib import Path

from monitor.config.root import Config


def resolve_paths(config: Config, folder: str | Path) -> Config:
    """The same configuration, its relative paths taken from `folder`; each section says which keys are files.

    Examples
    --------
    >>> config = Config(tasks={"t": {}}, reports={"path": "windows.ndjson"})
    >>> resolve_paths(config, "/etc/blindsight").reports.path
    '/etc/blindsight/windows.ndjson'
    """
    return config.placed(os.path.abspath(folder))
