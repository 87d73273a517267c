"""What a few records of a source hold: what can be used, what cannot and why, which mapping would help."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import yaml

from connectors.base import Raw, RawBlock, RawMessages, RawTable
from connectors.formats.decoder import Decoder
from connectors.formats.kserve import KserveWire
from connectors.formats.mapped import MappedWire
from connectors.formats.proposal import propose
from connectors.formats.wire import Wire
from monitor.classorder import refuse_reversed_classes
from monitor.config_mapping import FieldMapping
from monitor.records import NO_ID, Chunk, TaskLayout
from monitor.reference import Reference

_FEWEST = 5  # vectors that are no probabilities, before it is said of all of them


@dataclass(frozen=True, slots=True)
class Examination:
    """What was found.

    Parameters
    ----------
    answers, labels, rejected : int
        Usable answers and labels, and what cannot be used.
    lines : tuple of str
        What to tell, a sentence each; a proposed mapping is one of several lines.
    wrong : bool
        Whether the source should not be run like this.
    """

    answers: int
    labels: int
    rejected: int
    lines: tuple[str, ...]
    wrong: bool


def examine(raws: Sequence[Raw], layouts: Sequence[TaskLayout], name: str, wire: Wire) -> Examination:
    """Decode what was read of a source, as `run` would, and say what it is.

    Parameters
    ----------
    raws : sequence of Raw
        Some records; labels among them are joined by id.
    layouts : sequence of TaskLayout
    name : str
        Of the source.
    wire : Wire
        As it is configured.

    Raises
    ------
    ConfigError
        A task's classes are the wrong way round, as at least 50 labelled answers tell.
    """
    chunk = Decoder(layouts, name, wire=wire).decode(raws)
    labels = sum(map(len, chunk.labels))
    lines = [*_held(chunk), *_faults(chunk)]
    values = list(_values(raws))
    shaped = [wire.shaped(value) for value in values] if isinstance(wire, MappedWire) else values
    odd = _no_probabilities([value.get("scores") for value in shaped])
    lines += odd
    if chunk.rejects and not odd and not isinstance(wire, KserveWire):
        lines += _proposed(raws, values, layouts, name, _used(chunk))
    for layout in layouts:
        _refuse_reversed(chunk, layout)
    found = sum(map(len, chunk.batches))
    return Examination(found, labels, len(chunk.rejects), tuple(lines), bool(chunk.rejects or odd))


def _held(chunk: Chunk) -> Iterable[str]:
    answers = sum(map(len, chunk.batches))
    given = sum(int((batch.label >= 0).sum()) for batch in chunk.batches)
    labels = sum(map(len, chunk.labels))
    yield f"{answers} answers, {labels + given} labels, {len(chunk.rejects)} records that cannot be used"
    for batch in chunk.batches:
        often = Counter(np.asarray(batch.models)[batch.model].tolist())
        models = ", ".join(f"{model} ({times})" for model, times in often.most_common(5))
        yield f"task {batch.task}: models {models}"
        if np.isnan(batch.time).any():
            yield "some answers have no time: they count as of their arrival"
        if (batch.key == NO_ID).any():
            yield "some answers have no id: no label can be joined to those"


def _faults(chunk: Chunk) -> Iterable[str]:
    often = Counter(reject.reason for reject in chunk.rejects)
    for reason, times in often.most_common():
        first = next(reject for reject in chunk.rejects if reject.reason is reason)
        yield f"{times} × {reason.value}, the first at {first.partition}:{first.position}: {first.message}"


def _used(chunk: Chunk) -> int:
    return sum(map(len, chunk.batches)) + sum(map(len, chunk.labels))


def _values(raws: Sequence[Raw]) -> Iterable[dict[str, Any]]:
    """The records as they are, objects only."""
    for raw in raws:
        if isinstance(raw, RawTable):
            rows = zip(*raw.columns.values(), strict=False)
            yield from (dict(zip(raw.columns, row, strict=True)) for row in rows)
        else:
            texts = raw.values if isinstance(raw, RawMessages) else ()
            texts = raw.data.splitlines() if isinstance(raw, RawBlock) else texts
            for text in texts:
                yield from _objects(text)


def _objects(text: bytes) -> Iterable[dict[str, Any]]:
    try:
        value = msgspec.json.decode(text)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return
    for each in value if isinstance(value, list) else [value]:
        if isinstance(each, dict):
            yield each


def _no_probabilities(scores: Sequence[Any]) -> list[str]:
    """The sentence about scores that are some other function of the model's output."""
    rows = [list(each.values()) if isinstance(each, dict) else each for each in scores]
    vectors = [
        row for row in rows if isinstance(row, list) and row and all(type(x) in (int, float) for x in row)
    ]
    if len(vectors) < _FEWEST:
        return []
    low, high = min(map(min, vectors)), max(map(max, vectors))
    if low >= 0 and high <= 1:
        return []
    got = f"scores: expected probabilities from 0 to 1, got {low:.4g} to {high:.4g}: they look like "
    if low >= 0 and high <= 100.1 and all(abs(sum(row) - 100) < 0.5 for row in vectors):
        return [got + "percent; divide by 100 where they are sent"]
    if high <= 0 and all(abs(sum(np.exp(row)) - 1) < 0.01 for row in vectors):
        return [got + "logarithms of probabilities; send exp() of them"]
    return [got + "logits; send the softmax of them (of a single number the sigmoid)"]


def _proposed(
    raws: Sequence[Raw], values: Sequence[Any], layouts: Sequence[TaskLayout], name: str, used: int
) -> Iterable[str]:
    """A mapping by which more of the records can be used, as lines of a configuration."""
    best, most = None, used
    for layout in layouts:
        constants = {"model": layout.models[0] if len(layout.models) == 1 else "name-of-the-model"}
        mapping = propose(values, layout, constants) if values else None
        if mapping is None:
            continue
        if len(layouts) > 1 and mapping.task is None:
            told = {**mapping.constants.model_dump(exclude_none=True), "task": layout.name}
            mapping = FieldMapping(**{**mapping.model_dump(exclude_defaults=True), "constants": told})
        count = _used(Decoder(layouts, name, wire=MappedWire(mapping)).decode(raws))
        if count > most:
            best, most = mapping, count
    if best is None:
        return []
    text = yaml.safe_dump(
        {"mapping": best.model_dump(mode="json", exclude_defaults=True)}, sort_keys=False, width=100
    )
    indented = "\n".join(f"    {line}" for line in text.splitlines())
    return [f"with this mapping {most} can be used instead of {used}:\n{indented}"]


def _refuse_reversed(chunk: Chunk, layout: TaskLayout) -> None:
    """Hold the classes' order against the labels in the sample."""
    known = {
        int(key): int(label)
        for batch in chunk.labels
        if batch.task == layout.name
        for key, label in zip(batch.key, batch.label, strict=True)
    }
    for batch in chunk.batches:
        if batch.task != layout.name:
            continue
        label = np.array(
            [
                own if own >= 0 else known.get(int(key), -1)
                for own, key in zip(batch.label.tolist(), batch.key.tolist(), strict=True)
            ],
            dtype=np.int64,
        )
        for i, model in enumerate(batch.models):
            rows = np.flatnonzero((batch.model == i) & (label >= 0))
            reference = Reference(
                batch.scores[rows], batch.predicted[rows], label[rows], batch.time[rows], "", {}
            )
            refuse_reversed_classes(layout.name, layout.classes, model, reference)
