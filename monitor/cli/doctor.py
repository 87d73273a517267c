"""The command `blindsight doctor`, which reports how a hundred records of each source would be used."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
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
from monitor.cli.check.calibrations import References
from monitor.cli.examine import Examination, Proposal, examine, refuse_reversed
from monitor.cli.trial import read_references
from monitor.config.file import load_config
from monitor.config.layouts import layouts
from monitor.config.root import Config, SourceConfig
from monitor.engine.engine import EngineSettings
from monitor.reports.views import LabelOutcome

_MOST_BYTES = 1 << 24  # the largest captured body, compressed or not
_START = re.compile(rb"(?:[A-Z]+ \S+ HTTP/[\d.]+|HTTP/[\d.]+ \d{3}[^\r\n]*)\r?\n")
_HEADERS = re.compile(rb"((?:[!#$%&'*+.^_`|~0-9A-Za-z-]+:[^\r\n]*\r?\n)+)\r?\n")

RECORDS = 100
"""The number of records that are read from each source."""


class Join(NamedTuple):
    """The numbers of joined labels, of all labels, and of all answers of one task.

    `ambiguous` is the number of labels that name a request of several rows, but not the row.
    """

    joined: int
    labels: int
    answers: int
    ambiguous: int = 0

    def __str__(self) -> str:
        verb = "finds" if self.labels == 1 else "find"
        text = f"{self.joined} of {self.labels} labels {verb} one of {self.answers} answers looked at"
        if not self.ambiguous:
            return text
        return f"{text}, {self.ambiguous} name a request of several rows: add a colon and the row's number"


@dataclass(frozen=True, slots=True)
class SourceDiagnosis:
    """The diagnosis of one source.

    Parameters
    ----------
    name, kind : str
        The name of the source, and its kind or a description of the captured body.
    examination : Examination
    proposal : Proposal or None
        The best mapping; None if the records need none, or no mapping is known.
    joins : str
        A clause about the labels that join answers with the proposed mapping.
    losses : tuple of str
        Clauses about the joins of labels that are lost with the proposed mapping.
    """

    name: str
    kind: str
    examination: Examination
    proposal: Proposal | None
    joins: str = ""
    losses: tuple[str, ...] = ()

    def __str__(self) -> str:
        lines = [f"{self.name} ({self.kind}):", *self.examination.lines]
        if self.proposal is not None:
            lines += self.proposal.lines(self.examination.records, self.joins, self.losses)
        return "\n  ".join(lines)


@dataclass(frozen=True, slots=True)
class JoinDiagnosis:
    """The diagnosis of one task's labels, read with the proposed mappings.

    Parameters
    ----------
    task : str
    join : Join
    comparison : str
        A sentence that compares the ids of answers and labels; "" if any label joins an answer.
    """

    task: str
    join: Join
    comparison: str


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The result of `doctor`. `str` gives its text for a terminal.

    Parameters
    ----------
    sources : tuple of SourceDiagnosis
    joins : tuple of JoinDiagnosis
        A diagnosis for each task that has answers and labels.
    """

    sources: tuple[SourceDiagnosis, ...]
    joins: tuple[JoinDiagnosis, ...]

    @property
    def well(self) -> bool:
        """True if all records can be used."""
        return not any(each.examination.wrong for each in self.sources)

    def __str__(self) -> str:
        proposed = any(each.proposal is not None for each in self.sources)
        mapped = ", with the mappings proposed" if proposed else ""
        paragraphs = [str(each) for each in self.sources]
        for each in self.joins:
            comparison = f": {each.comparison}" if each.comparison else ""
            paragraphs.append(f"task {each.task}{mapped}: {each.join}{comparison}")
        return "\n".join(paragraphs)


def diagnose_sources(path: str) -> Diagnosis:
    """Return a diagnosis of the records of a configuration's sources.

    Nothing is committed, acknowledged or written: topics are read outside the consumer group, files are read
    without effect on other readers, and the store is not opened. A mapping is proposed only after a trial on
    the records. The trial also joins labels to answers.

    Parameters
    ----------
    path : str
        The configuration.

    Raises
    ------
    ConfigError
        The configuration cannot be used, names no source, or has the classes of a task in the wrong order.
    """
    config = load_config(path)
    if not config.sources:
        raise ConfigError("sources: there are none to examine; configure one")
    names = [(source.label, source.kind) for source in config.sources]
    return _diagnose(config, names, [_examine_source(config, source) for source in config.sources])


def diagnose_sample(path: str, sample: Path) -> Diagnosis:
    """Return a diagnosis of the saved body of a post to an `http` source.

    Parameters
    ----------
    path : str
        The configuration, whose tasks and mapping of the `http` source (if any) are used.
    sample : Path
        The body of a post, JSON or not. The file may begin with the headers of the post and a blank line.

    Raises
    ------
    ConfigError
        The configuration or the sample cannot be used, or the classes of a task are in the wrong order.
    """
    config = load_config(path)
    headers, body = _read_capture(sample)
    posted = [source for source in config.sources if source.kind == "http"]
    wire = own_wire(posted[0]) if len(posted) == 1 else RECOGNISED

    def read(wire: Wire) -> list[Raw]:
        value = wire.convert_post(headers, body)
        if value is None:  # a body without headers is read as if it were a message of a topic
            value = body if headers else wire.convert_message(body, ())
        return [RawMessages([value], sample.name, [0])]

    known = layouts(config.tasks, numbered=True)
    examination = _examine_raws(read(wire), known, sample.name, wire, read)
    beside = f" with {len(headers)} headers" if headers else ""
    return _diagnose(config, [(sample.name, f"a body{beside}")], [examination])


def _read_capture(sample: Path) -> tuple[dict[str, str], bytes]:
    """Return the headers of a captured post, with names in lower case, and its decompressed body."""
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


def _diagnose(
    config: Config, names: Sequence[tuple[str, str]], examinations: Sequence[Examination]
) -> Diagnosis:
    """Return the diagnosis of sources, which have these names and kinds, with proposed mappings and joins."""
    # The joins of predicted numbers need them, because they show which ones are right.
    references = read_references(config, only=lambda task: task.layout.numeric)
    proposals = _best_proposals(config, references, examinations)
    now = _joins(config, references, [each.chunk for each in examinations])
    chunks = [
        each.chunk if best is None else best.chunk for each, best in zip(examinations, proposals, strict=True)
    ]
    then = _joins(config, references, chunks)
    sources = (
        SourceDiagnosis(*name, each, best, *(() if best is None else _trial(best, chunks, now, then)))
        for name, each, best in zip(names, examinations, proposals, strict=True)
    )
    joins = (
        JoinDiagnosis(task, join, "" if join.joined else _compare_ids(task, chunks))
        for task, join in then.items()
    )
    return Diagnosis(tuple(sources), tuple(joins))


def _best_proposals(
    config: Config, references: References, examinations: Sequence[Examination]
) -> list[Proposal | None]:
    """Return the best mapping of each source, or None if it has none.

    The best mapping makes the most records usable. Among equal mappings, the most joined labels decide, and
    then the most ids. The labels of a source may belong to the answers of another source, so each mapping is
    judged together with the best mappings of the other sources.
    """
    best_of_each = [
        max(each.proposals, key=lambda proposal: (proposal.used, proposal.labelled), default=None)
        for each in examinations
    ]
    for place, each in enumerate(examinations):
        if len(each.proposals) < 2:
            continue
        chunks = [
            one.chunk if best is None else best.chunk
            for one, best in zip(examinations, best_of_each, strict=True)
        ]

        def worth(
            proposal: Proposal, chunks: list[Chunk] = chunks, place: int = place
        ) -> tuple[int, int, int, int]:
            beside = [*chunks[:place], proposal.chunk, *chunks[place + 1 :]]
            joined = sum(join.joined for join in _joins(config, references, beside).values())
            return proposal.used, joined, proposal.labelled, proposal.with_id

        best_of_each[place] = max(each.proposals, key=worth)
    return best_of_each


def _joins(config: Config, references: References, chunks: Sequence[Chunk]) -> dict[str, Join]:
    """Return the joins of each task with answers and labels, counted by an engine like that of `run`."""
    known = [replace(batch, label=np.full(len(batch), -1)) for chunk in chunks for batch in chunk.batches]
    label_batches = [batch for chunk in chunks for batch in chunk.labels]
    tasks = dict.fromkeys(batch.task for batch in known)
    # No window closes, because an estimator may need an extra, and no estimate is reported.
    windows = {
        name: task.window.model_copy(update={"size": sys.maxsize})
        for name, task in config.scored_tasks.items()
    }
    open_ended = {
        name: task.model_copy(update={"window": windows[name]}) for name, task in config.scored_tasks.items()
    }
    settings = EngineSettings({**config.tasks, **open_ended}, references, event_time=True, numbered=True)
    engine = settings.build()
    now = time.time()
    for chunk in chunks:  # the answers first: a label without a time gets the time of the newest answer
        answers = tuple(replace(batch, label=np.full(len(batch), -1)) for batch in chunk.batches)
        engine.absorb(replace(chunk, batches=answers, labels=(), rejects=()), now)
    for chunk in chunks:
        engine.absorb(replace(chunk, batches=(), rejects=()), now)
    outcomes = engine.view().labels
    return {
        task: Join(
            outcomes.get((task, LabelOutcome.MATCHED), 0),
            sum(len(batch) for batch in label_batches if batch.task == task),
            sum(len(batch) for batch in known if batch.task == task),
            outcomes.get((task, LabelOutcome.AMBIGUOUS), 0),
        )
        for task in tasks
        if any(batch.task == task for batch in label_batches)
    }


def _trial(
    best: Proposal, chunks: Sequence[Chunk], now: Mapping[str, Join], then: Mapping[str, Join]
) -> tuple[str, tuple[str, ...]]:
    """Return a clause about the labels that join with a proposal, and a clause about each loss of joins."""
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
    return "".join(f"; {join}" for join in here.values()), tuple(losses)


def _ids(task: str, chunks: Sequence[Chunk]) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Return an example of an answer's id and of a label's id from each source that has one, as two lists."""
    ids = [(chunk.source, chunk.ids[task]) for chunk in chunks if task in chunk.ids]
    answers = [(source, each.answer) for source, each in ids if each.answer is not None]
    return answers, [(source, each.label) for source, each in ids if each.label is not None]


def _alike(task: str, chunks: Sequence[Chunk]) -> bool:
    """Return whether a label's id has the shape of an answer's id."""
    answers, labels = _ids(task, chunks)
    return bool({id_shape(id_) for _, id_ in answers} & {id_shape(id_) for _, id_ in labels})


def _compare_ids(task: str, chunks: Sequence[Chunk]) -> str:
    """Return a sentence that compares the ids of answers and labels in each source."""
    answers, labels = _ids(task, chunks)
    of_answers = " and ".join(f"{source} have {id_look(id_)}" for source, id_ in answers)
    of_labels = " and ".join(f"{source} {id_look(id_)}" for source, id_ in labels)
    text = f"answers of {of_answers}, labels of {of_labels}"
    if translated := _translated(task, chunks):
        return f"{text}; {translated}"
    if _alike(task, chunks):
        return f"{text}; they look alike, and may join beyond these samples"
    shapes = [{id_shape(id_) for _, id_ in side} for side in (answers, labels)]
    if {"9"} in shapes and {"hex"} in shapes:
        return f"{text}; a number in decimal and in hexadecimal digits may be the same: see `id_hex_digits`"
    return f"{text}; give labels the id of their answer, or `mapping.id` another path"


def _translated(task: str, chunks: Sequence[Chunk]) -> str:
    """Return a sentence on the mapping keys with which a label joins its answer, or "" if there are none."""
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


def _examine_source(config: Config, source: SourceConfig) -> Examination:
    try:
        sample = source_class(source).sample(source, RECORDS)
    except ConfigError:
        raise
    except BlindsightError as error:
        return _refusal(config, source, str(error))
    if isinstance(sample, str):
        return _without_records(source, sample)
    if not sample:
        return _without_records(source, "nothing is there yet")
    return _examine_raws(sample, layouts(config.tasks, numbered=True), source.label, own_wire(source))


def _refusal(config: Config, source: SourceConfig, why: str) -> Examination:
    """Return why a source refuses a table, with mappings that would read the table."""
    examination = _without_records(source, why, wrong=True)
    with suppress(BlindsightError):
        raws = source_class(source).sample_every_column(source, RECORDS)
        known = layouts(config.tasks, numbered=True)
        tried = examine(raws, known, source.label, own_wire(source)) if raws else examination
        examination = replace(tried, lines=examination.lines, wrong=True)
    return examination


def _examine_raws(
    raws: Sequence[Raw],
    known: Sequence[TaskLayout],
    name: str,
    wire: Wire,
    read: Callable[[Wire], Sequence[Raw]] | None = None,
) -> Examination:
    examination = examine(raws, known, name, wire, read)
    for layout in known:
        refuse_reversed(examination.chunk, layout, name)
    return examination


def _without_records(source: SourceConfig, why: str, wrong: bool = False) -> Examination:
    return Examination(0, 0, 0, (why,), wrong, Chunk(source.label))
