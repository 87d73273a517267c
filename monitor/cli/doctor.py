"""`blindsight doctor`: a hundred records of each source, and what would become of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from connectors.build import source_class
from connectors.formats.wires.choice import wire_of
from monitor.base.errors import BlindsightError, ConfigError
from monitor.base.records import NO_ID, Chunk, id_look, id_shape
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
    chunks: list[Chunk] = []
    for source in config.sources:
        lines, good = _examined(config, source, chunks)
        told.append("\n  ".join([f"{source.label} ({source.kind}):", *lines]))
        well &= good
    return "\n".join([*told, *_joins(chunks)]), well


def _joins(chunks: Sequence[Chunk]) -> Iterable[str]:
    """By task, how many labels find an answer; where none does, what the ids of both look like."""
    for task in dict.fromkeys(name for chunk in chunks for name in chunk.ids):
        answers = [batch.key for chunk in chunks for batch in chunk.batches if batch.task == task]
        labels = [batch.key for chunk in chunks for batch in chunk.labels if batch.task == task]
        if not answers or not labels:
            continue
        given, known = np.concatenate(labels), np.concatenate(answers)
        joined = int(np.isin(given, known[known != NO_ID]).sum())
        verb = "finds" if len(given) == 1 else "find"
        line = f"task {task}: {joined} of {len(given)} labels {verb} one of {len(known)} answers looked at"
        yield line if joined else f"{line}: {_compared(task, chunks)}"


def _compared(task: str, chunks: Sequence[Chunk]) -> str:
    """What the ids of each source look like."""
    ids = [(chunk.source, chunk.ids[task]) for chunk in chunks if task in chunk.ids]
    answers = [(source, each.answer) for source, each in ids if each.answer is not None]
    labels = [(source, each.label) for source, each in ids if each.label is not None]
    of_answers = " and ".join(f"{source} have {id_look(id_)}" for source, id_ in answers)
    of_labels = " and ".join(f"{source} {id_look(id_)}" for source, id_ in labels)
    told = f"answers of {of_answers}, labels of {of_labels}"
    if {id_shape(id_) for _, id_ in answers} & {id_shape(id_) for _, id_ in labels}:
        return f"{told}; they look alike, and may join beyond these samples"
    return f"{told}; give labels the id of their answer, or `mapping.id` another path"


def _examined(config: Config, source: SourceConfig, chunks: list[Chunk]) -> tuple[Sequence[str], bool]:
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
    chunks.append(examined.chunk)
    return examined.lines, not examined.wrong
