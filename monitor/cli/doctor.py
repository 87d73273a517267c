"""`blindsight doctor`: a hundred records of each source, and what would become of them."""

from __future__ import annotations

from collections.abc import Sequence

from connectors.build import source_class
from connectors.formats.wires.choice import wire_of
from monitor.base.errors import BlindsightError, ConfigError
from monitor.cli.examine import examine
from monitor.config.file import load_config
from monitor.config.layouts import layouts
from monitor.config.root import Config, SourceConfig

RECORDS = 100
"""Looked at in each source."""


def examine_sources(path: str) -> tuple[str, bool]:
    """What the sources of a configuration hold, and whether all is well.

    Nothing is committed, acknowledged or written: topics are read outside the group, files beside whoever
    follows them, and the store is not opened.

    Parameters
    ----------
    path : str
        The configuration.

    Raises
    ------
    ConfigError
        It cannot be used, names no source, or has a task's classes the wrong way round.
    """
    config = load_config(path)
    if not config.sources:
        raise ConfigError("sources: there are none to examine; configure one")
    told, well = [], True
    for source in config.sources:
        lines, good = _examined(config, source)
        told.append("\n  ".join([f"{source.label} ({source.kind}):", *lines]))
        well &= good
    return "\n".join(told), well


def _examined(config: Config, source: SourceConfig) -> tuple[Sequence[str], bool]:
    try:
        found = source_class(source).sample(source, RECORDS)
    except ConfigError:
        raise
    except BlindsightError as error:
        return [str(error)], False
    if isinstance(found, str):
        return [found], True
    if not found:
        return ["nothing is there yet"], True
    examined = examine(found, layouts(config.tasks), source.label, wire_of(source))
    return examined.lines, not examined.wrong
