"""`blindsight doctor`: a hundred records of each source, and what would become of them."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from connectors.build import source_class
from connectors.formats.messages.translations import translated_ids
from connectors.formats.wires.choice import RECOGNISED, own_wire
from connectors.formats.wires.wire import Wire
from connectors.http.body import BadBodyError, TooLargeError, Unpacker
from monitor.base.errors import BlindsightError, ConfigError
from monitor.base.records import Chunk, TaskLayout, id_keys, id_look, id_shape
from monitor.base.source import Raw, RawMessages
from monitor.cli.examine import Examination, Proposal, examine, refuse_reversed
from monitor.config.file import load_config
from monitor.config.layouts import layouts
from monitor.config.root import Config, SourceConfig
from monitor.engine.engine import EngineSettings
from monitor.reports.views import LabelOutcome

_MOST_BYTES = 1 << 24  # of a captured body, packed or not
_START = re.compile(rb"(?:[A-Z]+ \S+ HTTP/[\d.]+|HTTP/[\d.]+ \d{3}[^\r\n]*)\r?\n")
_HEADERS = re.compile(rb"((?:[!#$%&'*+.^_`|~0-9A-Za-z-]+:[^\r\n]*\r?\n)+)\r?\n")

RECORDS = 100
"""Looked at in each source."""


class _Join(NamedTuple):
    """Of one task: labels that find their answer, all labels, all answers, labels that name no row."""

    joined: int
    labels: int
    answers: int
    ambiguous: int = 0

    def __str__(self) -> str:
        verb = "finds" if self.labels == 1 else "find"
        told = f"{self.joined} of {self.labels} labels {verb} one of {self.answers} answers looked at"
        if not self.ambiguous:
            return told
        return f"{told}, {self.ambiguous} name a request of several rows: add a colon and the row's number"


def examine_sources(path: str) -> tuple[str, bool]:
    """What the sources of a configuration hold, and whether all is well.

    Nothing is committed, acknowledged or written: topics are read outside the group, files beside whoever
    follows them, and the store is not opened. A mapping is proposed only after it was tried on the records,
    and labels have looked for answers with it.

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
    heads = [f"{source.label} ({source.kind})" for source in config.sources]
    return _report(config, heads, [_examined(config, source) for source in config.sources])


def examine_sample(path: str, sample: Path) -> tuple[str, bool]:
    """What an `http` source would make of one captured body, and whether it could use it as it is.

    Parameters
    ----------
    path : str
        The configuration: its tasks, and the mapping of its source of kind `http`, if it has one.
    sample : Path
        The body of a post, JSON or not; perhaps with its headers before it, and a blank line between.

    Raises
    ------
    ConfigError
        The configuration or the sample cannot be used, or a task has its classes the wrong way round.
    """
    config = load_config(path)
    headers, body = _captured(sample)
    posted = [source for source in config.sources if source.kind == "http"]
    wire = own_wire(posted[0]) if len(posted) == 1 else RECOGNISED

    def read(wire: Wire) -> list[Raw]:
        value = wire.posted(headers, body)
        if value is None:  # what came without headers is read as a message of a topic is
            value = body if headers else wire.message(body, ())
        return [RawMessages([value], sample.name, [0])]

    known = layouts(config.tasks, numbered=True)
    examined = _looked_at(read(wire), known, sample.name, wire, read)
    beside = f" with {len(headers)} headers" if headers else ""
    return _report(config, [f"{sample.name} (a body{beside})"], [examined])


def _captured(sample: Path) -> tuple[dict[str, str], bytes]:
    """The headers of a captured post, names in lower case, and its body unpacked."""
    try:
        with sample.open("rb") as file:
            data = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise ConfigError(
            f"--sample: {sample} cannot be read ({error.strerror}); give a file with the body of one post"
        ) from error
    begin = _START.match(data)
    rest = data[begin.end() :] if begin else data
    head = _HEADERS.match(rest)
    if begin and not head:
        raise ConfigError(f"--sample: {sample} has no blank line between the headers and the body; add one")
    lines = head[1].splitlines() if head else []
    pairs = (line.decode("latin-1").partition(":") for line in lines)
    headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
    unpacker = Unpacker(headers.get("content-encoding") == "gzip", _MOST_BYTES)
    try:
        unpacker.feed(rest[head.end() :] if head else rest)
        body = unpacker.finish()
    except (TooLargeError, BadBodyError) as error:
        raise ConfigError(f"--sample: {sample}: {error}; capture the body of one post") from error
    if "chunked" in headers.get("transfer-encoding", ""):
        raise ConfigError(
            f"--sample: {sample} is in chunks, as on the wire; capture it as the server sees it, or send the "
            "request with a Content-Length"
        )
    if not body.strip():
        raise ConfigError(f"--sample: {sample} has no body; give a file with the body of one post")
    return headers, body


def _report(config: Config, heads: Sequence[str], looked: Sequence[Examination]) -> tuple[str, bool]:
    """What was found under each head, the mappings proposed, and how labels join; whether all is well."""
    chosen = _chosen(config, looked)
    now = _joins(config, [each.chunk for each in looked])
    chunks = [each.chunk if best is None else best.chunk for each, best in zip(looked, chosen, strict=True)]
    then = _joins(config, chunks)
    told = []
    for head, each, best in zip(heads, looked, chosen, strict=True):
        lines = [*each.lines, *([] if best is None else _tried(each, best, chunks, now, then))]
        told.append("\n  ".join([f"{head}:", *lines]))
    proposed = ", with the mappings proposed" if any(chosen) else ""
    for task, join in then.items():
        compared = "" if join.joined else f": {_compared(task, chunks)}"
        told.append(f"task {task}{proposed}: {join}{compared}")
    return "\n".join(told), not any(each.wrong for each in looked)


def _chosen(config: Config, looked: Sequence[Examination]) -> list[Proposal | None]:
    """Of each source's mappings the one by which most records are used, most labels join, most ids are known.

    A source's labels may want another source's answers: each is chosen beside what was chosen of the others.
    """
    chosen = [
        max(each.proposals, key=lambda found: (found.used, found.labelled), default=None) for each in looked
    ]
    for place, each in enumerate(looked):
        if len(each.proposals) < 2:
            continue
        chunks = [one.chunk if best is None else best.chunk for one, best in zip(looked, chosen, strict=True)]

        def worth(
            found: Proposal, chunks: list[Chunk] = chunks, place: int = place
        ) -> tuple[int, int, int, int]:
            beside = [*chunks[:place], found.chunk, *chunks[place + 1 :]]
            joined = sum(join.joined for join in _joins(config, beside).values())
            return found.used, joined, found.labelled, found.with_id

        chosen[place] = max(each.proposals, key=worth)
    return chosen


def _joins(config: Config, chunks: Sequence[Chunk]) -> dict[str, _Join]:
    """By task with answers and labels, how many labels find their answer: by the engine that `run` has."""
    known = [replace(batch, label=np.full(len(batch), -1)) for chunk in chunks for batch in chunk.batches]
    given = [batch for chunk in chunks for batch in chunk.labels]
    tasks = dict.fromkeys(batch.task for batch in known)
    # No window closes: an estimator may want an extra, and nobody reads what it says of a sample.
    windows = {
        name: task.window.model_copy(update={"size": sys.maxsize})
        for name, task in config.scored_tasks.items()
    }
    open_ended = {
        name: task.model_copy(update={"window": windows[name]}) for name, task in config.scored_tasks.items()
    }
    engine = EngineSettings(open_ended, event_time=True, arenas=config.arenas, numbered=True).build()
    now = time.time()
    for chunk in chunks:  # the answers first: a label without a time has that of the newest answer
        answers = tuple(replace(batch, label=np.full(len(batch), -1)) for batch in chunk.batches)
        engine.absorb(replace(chunk, batches=answers, labels=(), rejects=()), now)
    for chunk in chunks:
        engine.absorb(replace(chunk, batches=(), rejects=()), now)
    outcomes = engine.view().labels
    return {
        task: _Join(
            outcomes.get((task, LabelOutcome.MATCHED), 0),
            sum(len(batch) for batch in given if batch.task == task),
            sum(len(batch) for batch in known if batch.task == task),
            outcomes.get((task, LabelOutcome.AMBIGUOUS), 0),
        )
        for task in tasks
        if any(batch.task == task for batch in given)
    }


def _tried(
    looked: Examination,
    best: Proposal,
    chunks: Sequence[Chunk],
    now: Mapping[str, _Join],
    then: Mapping[str, _Join],
) -> Iterable[str]:
    """What the trial of a proposal gave, and the proposal."""
    chunk = best.chunk
    tasks = {batch.task for batch in chunk.batches} | {batch.task for batch in chunk.labels}
    here = {task: join for task, join in then.items() if task in tasks}
    losses = [
        f"of task {task} {join.joined} labels join, and {now[task].joined} do now"
        for task, join in here.items()
        if task in now and join.joined < now[task].joined
    ]
    losses += [
        f"{join.ambiguous} labels of task {task} name no row"
        if join.ambiguous
        else f"no label of task {task} joins, as ids differ"
        for task, join in here.items()
        if join.ambiguous or (not join.joined and not _alike(task, chunks))
    ]
    joined = "".join(f"; {join}" for join in here.values())
    return best.lines(looked.records, joined, losses)


def _ids(task: str, chunks: Sequence[Chunk]) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """By source an id of an answer, and one of a label."""
    ids = [(chunk.source, chunk.ids[task]) for chunk in chunks if task in chunk.ids]
    answers = [(source, each.answer) for source, each in ids if each.answer is not None]
    return answers, [(source, each.label) for source, each in ids if each.label is not None]


def _alike(task: str, chunks: Sequence[Chunk]) -> bool:
    """Whether any label's id has the shape of any answer's."""
    answers, labels = _ids(task, chunks)
    return bool({id_shape(id_) for _, id_ in answers} & {id_shape(id_) for _, id_ in labels})


def _compared(task: str, chunks: Sequence[Chunk]) -> str:
    """What the ids of each source look like."""
    answers, labels = _ids(task, chunks)
    of_answers = " and ".join(f"{source} have {id_look(id_)}" for source, id_ in answers)
    of_labels = " and ".join(f"{source} {id_look(id_)}" for source, id_ in labels)
    told = f"answers of {of_answers}, labels of {of_labels}"
    if translated := _translated(task, chunks):
        return f"{told}; {translated}"
    if _alike(task, chunks):
        return f"{told}; they look alike, and may join beyond these samples"
    shapes = [{id_shape(id_) for _, id_ in side} for side in (answers, labels)]
    if {"9"} in shapes and {"hex"} in shapes:
        return f"{told}; a number in decimal and in hexadecimal digits may be the same: see `id_hex_digits`"
    return f"{told}; give labels the id of their answer, or `mapping.id` another path"


def _translated(task: str, chunks: Sequence[Chunk]) -> str:
    """Return the sentence about mapping keys with which a label finds its answer; "" if none helps."""
    answers, labels = _ids(task, chunks)
    batches = [batch for chunk in chunks for batch in chunk.batches if batch.task == task]
    label_batches = [batch for chunk in chunks for batch in chunk.labels if batch.task == task]
    for ours, others, side in ((labels, answers, batches), (answers, labels, label_batches)):
        known = frozenset(key for batch in side for key in batch.key.tolist())

        def knows(text: str, known: frozenset[int] = known) -> bool:
            return int(id_keys([text])[0]) in known

        for source, id_ in ours:
            keys = translated_ids([id_], [each for _, each in others], knows)
            if keys:
                written = ", ".join(f"{key}: {value}" for key, value in keys.items())
                return f"with {{{written}}} beside id in the mapping of {source}, {id_look(id_)} joins"
    return ""


def _examined(config: Config, source: SourceConfig) -> Examination:
    try:
        found = source_class(source).sample(source, RECORDS)
    except ConfigError:
        raise
    except BlindsightError as error:
        return _refused(config, source, str(error))
    if isinstance(found, str):
        return _nothing(source, found)
    if not found:
        return _nothing(source, "nothing is there yet")
    return _looked_at(found, layouts(config.tasks, numbered=True), source.label, own_wire(source))


def _refused(config: Config, source: SourceConfig, why: str) -> Examination:
    """Return why a source refuses a table, with mappings that would read it."""
    looked = _nothing(source, why, wrong=True)
    with suppress(BlindsightError):
        raws = source_class(source).sample_every_column(source, RECORDS)
        known = layouts(config.tasks, numbered=True)
        tried = examine(raws, known, source.label, own_wire(source)) if raws else looked
        looked = replace(tried, lines=looked.lines, wrong=True)
    return looked


def _looked_at(
    raws: Sequence[Raw],
    known: Sequence[TaskLayout],
    name: str,
    wire: Wire,
    read: Callable[[Wire], Sequence[Raw]] | None = None,
) -> Examination:
    found = examine(raws, known, name, wire, read)
    for layout in known:
        refuse_reversed(found.chunk, layout, name)
    return found


def _nothing(source: SourceConfig, why: str, wrong: bool = False) -> Examination:
    return Examination(0, 0, 0, (why,), wrong, Chunk(source.label))
