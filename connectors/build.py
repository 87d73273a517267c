"""From sections of the configuration to sources, decoders and topics: where parts are joined."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from connectors.formats.wires.choice import wire_of
from monitor.base.records import TaskLayout
from monitor.base.registry import SOURCES, load
from monitor.base.source import Decode, Input, ShardOwner, Source
from monitor.base.spool import Spools
from monitor.config.layouts import layouts
from monitor.config.root import Config, KafkaSink, SourceConfig
from monitor.export.sinks.destination import Destination, FollowedDestination
from monitor.export.sinks.rejects_file import Rejected
from monitor.reports.views import EngineView


def source_class(settings: SourceConfig) -> type[Source[Any]]:
    """What reads the source of a section. A client library is imported only where it is needed.

    Raises
    ------
    MissingExtraError
        The client library is an extra that is not installed.
    """
    entry = SOURCES[settings.kind]
    if entry.extra is not None:
        entry.extra.require(f"A source of kind {settings.kind}")
    found: type[Source[Any]] = load(entry.path)
    return found


def build_source(
    settings: SourceConfig, known: Sequence[TaskLayout], spools: Spools | None = None
) -> Source[Any]:
    """The source that a section describes.

    Parameters
    ----------
    settings : SourceConfig
    known : sequence of TaskLayout
        The configured tasks, for a source that judges what it takes.
    spools : Spools, optional
        Where the store's database can keep what a source acknowledges.

    Raises
    ------
    MissingExtraError
        The client library is an extra that is not installed.
    """
    return source_class(settings).from_settings(settings, known, spools)


def build_inputs(
    config: Config,
    state: EngineView | None = None,
    spools: Spools | None = None,
    shards: ShardOwner | None = None,
) -> list[Input]:
    """Every configured source with a decoder of its own.

    Parameters
    ----------
    config : Config
    state : EngineView, optional
        What the agent goes on from: its names go on, however long they are.
    spools : Spools, optional
        As for `build_source`.
    shards : ShardOwner, optional
        Has the state of the partitions, where it moves with them.
    """
    known = layouts(config.tasks, _known_names(state), config.numbers_rows)
    decoders = decoders_of(config, state)()
    inputs = []
    for settings in config.sources:
        source = build_source(settings, known, spools)
        if shards is not None:
            source.share(shards)
        inputs.append(Input(source, decoders[settings.label], settings.reads_events))
    return inputs


def decoders_of(config: Config, state: EngineView | None = None) -> Callable[[], Mapping[str, Decode]]:
    """What makes the decoder of each configured source, by its name, in this process or in another.

    Parameters
    ----------
    config : Config
    state : EngineView, optional
        As for `build_inputs`.
    """
    from connectors.formats.messages.redaction import SECRET

    return partial(_decoders, config, _known_names(state), SECRET)


def _decoders(config: Config, names: frozenset[str], secret: bytes) -> dict[str, Decode]:
    from connectors.formats.decode.decoder import Decoder

    known, keep = layouts(config.tasks, names, config.numbers_rows), config.keep_of_rejects
    found: dict[str, Decode] = {}
    for settings in config.sources:
        name, wire = settings.label, wire_of(settings)
        found[name] = Decoder(known, name, keep=keep, wire=wire, clock=time.time, secret=secret).decode
    return found


def _known_names(state: EngineView | None) -> frozenset[str]:
    return frozenset() if state is None else long_names(names_in(state))


def names_in(state: EngineView) -> Iterator[str]:
    """Of models, groups and versions."""
    for one in state.series:
        yield from (one.model, one.version, one.group.partition("=")[2])
    for arena in state.arenas:
        yield from (one.model for one in (arena.standing.models if arena.standing else ()))


def long_names(names: Iterable[str]) -> frozenset[str]:
    """Those of these names of models, groups and versions that would be rejected if they were new."""
    from connectors.formats.decode.structs import MAX_NAME

    return frozenset(name for name in names if len(name) > MAX_NAME)


def build_reports_topic(settings: KafkaSink, store: str, lease: int | None = None) -> FollowedDestination:
    """The topic that follows a store's reports; `store` is its identity, `lease` the number of one on it."""
    from connectors.kafka.sink.sink import ReportsTopic
    from connectors.kafka.sink.topic import Topic

    return ReportsTopic(Topic(settings, "reports.kafka"), store, lease)


def build_lines_topic(settings: KafkaSink) -> Destination[bytes]:
    """The topic of closed windows, where no store keeps them."""
    from connectors.kafka.sink.sink import lines_topic

    return lines_topic(settings)


def build_rejects_topic(settings: KafkaSink) -> Destination[Rejected]:
    """The topic of records that could not be used."""
    from connectors.kafka.sink.sink import rejects_topic

    return rejects_topic(settings)
