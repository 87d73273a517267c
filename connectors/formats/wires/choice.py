"""Chooses the wire of a source by the source's `mapping`. A wire is the reader of one format of records."""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import PurePath

from connectors.formats.wires.observed import ObservedWire
from connectors.formats.wires.recognised import RecognisedWire
from connectors.formats.wires.wire import Wire
from monitor.base.registry import FORMATS, load
from monitor.config.http import HttpSourceConfig
from monitor.config.mapping import FieldMapping
from monitor.config.root import Config
from monitor.config.sources import SourceSection

_MAPPED = "connectors.formats.wires.mapped:MappedWire"


RECOGNISED = RecognisedWire()
"""The wire of a source without a mapping."""


def own_wire(settings: SourceSection) -> Wire:
    """Return the wire that a source's own mapping describes, or `RECOGNISED` without a mapping."""
    return RECOGNISED if settings.mapping is None else compiled(settings.mapping)


def wire_of(settings: SourceSection) -> Wire:
    """Return the wire of a source, which is the reader of its records' format.

    The wire of an `http` source also reads posts to `/v1/observe/<name>`.
    """
    base = own_wire(settings)
    if not isinstance(settings, HttpSourceConfig):
        return base
    known = {tag: FieldMapping(format=tag) for tag, entry in FORMATS.items() if entry.needs_no_mapping}
    return ObservedWire(base, {name: compiled(each) for name, each in {**known, **settings.observe}.items()})


def compiled(mapping: FieldMapping) -> Wire:
    """Return the wire that reads records with a mapping."""
    path = _MAPPED if mapping.format is None else FORMATS[mapping.format].path
    wire: Wire = load(path)(mapping)
    return wire


def wire_for(config: Config, name: str) -> Wire:
    """Return the wire of a file that holds records of one of the configured sources.

    If no source matches the file and all sources have the same mapping, the file has the wire of this
    mapping. If the mappings differ, the format of each record is recognised by its fields.

    Parameters
    ----------
    config : Config
    name : str
        The path or name of a configured file, a file that matches a configured pattern, a topic, or a
        partition of a topic.
    """
    for source in config.sources:
        topic = name.rpartition("-")[0]  # the topic of a partition such as topic-3
        known = {name, PurePath(name).name, topic}
        if any(fnmatchcase(each, origin) or each == origin for each in known for origin in source.origins):
            return wire_of(source)
    kinds = [source.mapping for source in config.sources]
    return wire_of(config.sources[0]) if kinds and kinds.count(kinds[0]) == len(kinds) else RECOGNISED
