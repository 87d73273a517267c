"""`blindsight doctor`: a hundred records of each source, and what would become of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from connectors.build import build_source
from connectors.files import FileSource, is_pipe, why_not_a_file
from connectors.formats.wires.choice import columns_of, wire_of
from monitor.base.errors import BlindsightError, ConfigError, SourceError
from monitor.base.source import EndOfSource, Raw, RawBlock, RawMessages, RawTable
from monitor.cli.examine import examine
from monitor.config.file import load_config
from monitor.config.layouts import layouts
from monitor.config.redis import RedisSourceConfig
from monitor.config.root import Config, KafkaSourceConfig, SourceConfig, StdinSourceConfig
from monitor.config.root import FileSourceConfig as FileSection

RECORDS = 100
"""Looked at in each source."""

_READ_SECONDS = 1.0


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
        raise ConfigError("sources: there are none to look at; name one")
    told, well = [], True
    for source in config.sources:
        lines, good = _examined(config, source)
        told.append("\n  ".join([f"{source.label} ({source.kind}):", *lines]))
        well &= good
    return "\n".join(told), well


def _examined(config: Config, source: SourceConfig) -> tuple[Sequence[str], bool]:
    reason = _not_looked_at(source)
    if reason is not None:
        return [reason], True
    try:
        raws = _sample(source)
    except ConfigError:
        raise
    except BlindsightError as error:
        return [str(error)], False
    if not raws:
        return ["nothing is there yet"], True
    found = examine(raws, layouts(config.tasks), source.label, wire_of(source))
    return found.lines, not found.wrong


def _not_looked_at(source: SourceConfig) -> str | None:
    """Why a source cannot be read without taking records from the agent."""
    if isinstance(source, StdinSourceConfig) or (
        isinstance(source, FileSection) and is_pipe(Path(source.path))
    ):
        return "not looked at: what is read of a pipe is gone; name a file with some of its records instead"
    if source.kind == "http":
        return "not looked at: it holds what is posted while the agent runs, and answers say what is wrong"
    if isinstance(source, FileSection) and source.follow and why_not_a_file(Path(source.path)):
        return "not there yet; it is waited for"
    return None


def _sample(source: SourceConfig) -> list[Raw]:
    if isinstance(source, KafkaSourceConfig):
        from connectors.kafka.drivers.peek import peek

        return list(peek(source, RECORDS))
    if isinstance(source, RedisSourceConfig):
        return _newest(source)
    if not isinstance(source, FileSection):
        return []
    file = FileSource(source.path, mapped=columns_of(wire_of(source)))
    try:
        file.open({})
        return list(_first(file.read(_READ_SECONDS)))
    except EndOfSource:
        return []
    except SourceError as error:
        # The columns that a mapping misses are the very thing that is asked for here.
        raise SourceError(f"{error}; see docs/serving/mapping.md") from error
    finally:
        file.close()


def _newest(source: RedisSourceConfig) -> list[Raw]:
    """The newest entries of a stream, read outside of the group."""
    build_source(source, ())  # which tells where the client library is missing
    from redis.exceptions import RedisError

    from connectors.redis_stream import connected, explained, messages

    try:
        with connected(source) as client:
            entries = client.xrevrange(source.stream, count=RECORDS)
    except (RedisError, OSError) as error:
        raise explained(source, error) from error
    return [messages(source, entries[::-1])] if entries else []


def _first(raws: Sequence[Raw]) -> Iterable[Raw]:
    """The first records of what was read."""
    left = RECORDS
    for raw in raws:
        if left <= 0:
            return
        if isinstance(raw, RawBlock):
            lines = raw.data.splitlines(keepends=True)[:left]
            left -= len(lines)
            yield replace(raw, data=b"".join(lines))
        elif isinstance(raw, RawTable):
            columns = {name: column[:left] for name, column in raw.columns.items()}
            yield replace(raw, columns=columns, broken={k: v for k, v in raw.broken.items() if k < left})
            left = 0
        elif not isinstance(raw, RawMessages):
            left -= 1
            yield raw
