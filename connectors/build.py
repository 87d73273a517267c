"""The construction of sources, decoders and Kafka topics from the sections of the configuration."""

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
    """Import and return the class of source that a section of the configuration needs.

    Raises
    ------
    MissingExtraError
        The client library is an extra that is not installed.
    """
    entry = SOURCES[settings.kind]
    if entry.extra is not None:
        entry.extra.require(f"A source of kind {settings.kind}")
    reader: type[Source[Any]] = load(entry.path)
    return reader


def build_source(
    settings: SourceConfig, known: Sequence[TaskLayout], spools: Spools | None = None
) -> Source[Any]:
    """Return the source that a section of the configuration describes.

    Parameters
    ----------
    settings : SourceConfig
        The section.
    known : sequence of TaskLayout
        The configured tasks. A source that validates records before it accepts them needs the tasks.
    spools : Spools, optional
        The object that makes spools in the store's database. A source that acknowledges posts needs a spool.

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
    """Return the configured sources, each with its decoder.

    Parameters
    ----------
    config : Config
    state : EngineView, optional
        The state in which the agent starts. The decoders accept every name in this state, even if a new name
        of the same length would be rejected.
    spools : Spools, optional
        See `build_source`.
    shards : ShardOwner, optional
        The owner of each partition's state, if partitions move between agents.

    Raises
    ------
    MissingExtraError
        The client library of a source is an extra that is not installed.
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
    """Return a function that makes one decoder for each configured source.

    The function returns a mapping from the name of a source to its decoder. The function can be pickled, so
    another process can call it.

    Parameters
    ----------
    config : Config
    state : EngineView, optional
        See `build_inputs`.
    """
    from connectors.formats.messages.redaction import SECRET

    return partial(_decoders, config, _known_names(state), SECRET)


def _decoders(config: Config, names: frozenset[str], secret: bytes) -> dict[str, Decode]:
    from connectors.formats.decode.decoder import Decoder

    known, keep = layouts(config.tasks, names, config.numbers_rows), config.keep_of_rejects
    decoders: dict[str, Decode] = {}
    for settings in config.sources:
        name, wire = settings.label, wire_of(settings)
        decoders[name] = Decoder(known, name, keep=keep, wire=wire, clock=time.time, secret=secret).decode
    return decoders


def _known_names(state: EngineView | None) -> frozenset[str]:
    return frozenset() if state is None else long_names(names_in(state))


def names_in(state: EngineView) -> Iterator[str]:
    """Yield the models, versions and group values in a state.

    The function may yield a name more than once.
    """
    for one in state.series:
        yield from (one.model, one.version, one.group.partition("=")[2])
    for one_task in state.tasks:
        yield from one_task.models


def long_names(names: Iterable[str]) -> frozenset[str]:
    """Return the names that are longer than `MAX_NAME`, the limit for new names."""
    from connectors.formats.decode.structs import MAX_NAME

    return frozenset(name for name in names if len(name) > MAX_NAME)


def build_reports_topic(settings: KafkaSink, store: str, lease: int | None = None) -> FollowedDestination:
    """Return the Kafka topic that receives the reports of an agent with a store.

    Parameters
    ----------
    settings : KafkaSink
    store : str
        The identity of the store.
    lease : int, optional
        The number of this agent's lease on the store.
    """
    from connectors.kafka.sink.sink import ReportsTopic
    from connectors.kafka.sink.topic import Topic

    return ReportsTopic(Topic(settings, "reports.kafka"), store, lease)


def build_lines_topic(settings: KafkaSink) -> Destination[bytes]:
    """Return the Kafka topic that receives the reports of an agent without a store."""
    from connectors.kafka.sink.sink import lines_topic

    return lines_topic(settings)


def build_rejects_topic(settings: KafkaSink) -> Destination[Rejected]:
    """Return the Kafka topic that receives rejected records."""
    from connectors.kafka.sink.sink import rejects_topic

    return rejects_topic(settings)
