"""From a source's `mapping` to the wire that reads it."""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import PurePath
from typing import Protocol

from connectors.formats.wires.observed import ObservedWire
from connectors.formats.wires.recognised import RecognisedWire
from connectors.formats.wires.wire import Wire
from monitor.base.registry import FORMATS, load
from monitor.config.http import HttpSourceConfig
from monitor.config.mapping import FieldMapping
from monitor.config.root import Config

_MAPPED = "connectors.formats.wires.mapped:MappedWire"


RECOGNISED = RecognisedWire()
"""The wire of a source that has no mapping."""


class HasWire(Protocol):
    """A section of the configuration that says how its records are written."""

    @property
    def mapping(self) -> FieldMapping | None:
        """Where they keep each field."""
        ...


def own_wire(settings: HasWire) -> Wire:
    """The wire of a source's own mapping; without one, records are told by their shape."""
    return RECOGNISED if settings.mapping is None else compiled(settings.mapping)


def wire_of(settings: HasWire) -> Wire:
    """The wire of a source, compiled once: its own, and of `http` those that are posted to by their names."""
    base = own_wire(settings)
    if not isinstance(settings, HttpSourceConfig):
        return base
    told = {tag: FieldMapping(format=tag) for tag, entry in FORMATS.items() if entry.needs_no_mapping}
    return ObservedWire(base, {name: compiled(each) for name, each in {**told, **settings.observe}.items()})


def compiled(mapping: FieldMapping) -> Wire:
    """The wire of a mapping."""
    path = _MAPPED if mapping.format is None else FORMATS[mapping.format].path
    wire: Wire = load(path)(mapping)
    return wire


def wire_for(config: Config, name: str) -> Wire:
    """The wire of a file that holds what one of the configured sources brought.

    Parameters
    ----------
    config : Config
    name : str
        The file, or the partition that it is: a file of the configuration by its path or its name, or by
        its pattern, a topic
        or one of its partitions. Any other is read as the sources are, where they are all read alike, and
        else by the shape of its records.
    """
    for source in config.sources:
        topic = name.rpartition("-")[0]  # of a partition, topic-3
        known = {name, PurePath(name).name, topic}
        if any(fnmatchcase(each, origin) or each == origin for each in known for origin in source.origins):
            return wire_of(source)
    kinds = [source.mapping for source in config.sources]
    return wire_of(config.sources[0]) if kinds and kinds.count(kinds[0]) == len(kinds) else RECOGNISED


def columns_of(wire: Wire) -> frozenset[str]:
    """The columns of a table that a wire's mapping reads; none where there is no mapping."""
    columns: frozenset[str] = getattr(wire, "columns", frozenset())
    return columns
