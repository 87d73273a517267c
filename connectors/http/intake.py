"""Judges posted rows before they are kept, by the decoder that will read them again for the engine."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import msgspec
import numpy as np

from connectors.formats.decode.decoder import Decoder
from connectors.formats.messages.proposal import NAME_OF_MODEL, looks_scored, propose, written
from connectors.formats.wires.choice import RECOGNISED, compiled
from connectors.formats.wires.wire import PLAIN, Wire
from monitor.base.records import Chunk, Reject, TaskLayout
from monitor.base.source import RawBlock
from monitor.config.mapping import FieldMapping

MOST_ERRORS = 100
"""Rows that an answer names; the rest is counted."""


_SCORED = frozenset(("scores", "models", "confidence"))  # an answer under our names has one of them
_MOST_TRIED, _MOST_TRIED_BYTES = 4, 4096  # rows that a proposal is made of, and bytes of each
_MOST_PROPOSED_BYTES = 1000


class PostKind(StrEnum):
    """What a path takes."""

    PREDICTIONS = "predictions"
    LABELS = "labels"
    OBSERVED = "observed"
    """Both, as the wire of what is observed tells them."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """What a post holds.

    Parameters
    ----------
    lines : bytes
        The rows as NDJSON, each line ended.
    rows : int
        Lines.
    accepted, rejected : int
        Answers (or labels) that can be used, and that cannot. An answer whose label alone cannot be used is
        accepted.
    answers : int
        Answers in the accounting, used or not.
    tasks : mapping of str to int
        Rows by task; those of none that is known under ``""``.
    labels : mapping of str to int
        Labels among them, used or not.
    labels_accepted : int
        Labels that can be used, with those that came along with their answers.
    misplaced : int
        Rows that belong to the other path.
    errors : tuple of mapping
        Of the first rows with a fault: `row` (counted from 0), `reason`, `message`.
    errors_omitted : int
        Faults beyond those.
    ignored : int
        Events without answers, which are not among the rows.
    scored : bool
        Whether one of the first rows that have no scores has them under another name.
    """

    lines: bytes
    rows: int
    accepted: int
    rejected: int
    answers: int
    tasks: Mapping[str, int]
    labels: Mapping[str, int]
    labels_accepted: int
    misplaced: int
    errors: tuple[Mapping[str, object], ...]
    errors_omitted: int
    ignored: int = 0
    scored: bool = False


class Intake:
    """Decodes rows to see what they hold. It keeps nothing, and may be used by several threads.

    Parameters
    ----------
    layouts : sequence of TaskLayout
    wire : Wire, optional
        How rows are read; it is an attribute too.

    Examples
    --------
    >>> intake = Intake([TaskLayout("spam", ("no", "yes"))])
    >>> good, bad = b'{"model": "a", "scores": [0.5, 0.5]}', b'{"model": "a", "scores": [0.5, 1.5]}'
    >>> found = intake.judge([good, bad], PostKind.PREDICTIONS)
    >>> found.accepted, found.rejected, found.errors[0]["row"], found.errors[0]["message"]
    (1, 1, 1, '$.scores[1]: expected a number from 0 to 1, got 1.5')
    """

    def __init__(self, layouts: Sequence[TaskLayout], wire: Wire = PLAIN) -> None:
        self._layouts = layouts
        self._decoder = Decoder(layouts, "http", wire=wire, clock=time.time)
        self.wire = wire

    def judge(self, lines: Sequence[bytes], kind: PostKind) -> Judgement:
        """What these rows, one a line and none of them blank, hold.

        Parameters
        ----------
        lines : sequence of bytes
            Without newlines.
        kind : PostKind
            The path that they were posted to.
        """
        block = b"".join(line + b"\n" for line in lines)
        # Not from 0, where the decoder would pass over a byte-order mark that it will not when reading.
        is_labels = kind is PostKind.LABELS
        chunk = self._decoder.decode([RawBlock(block, "http", 1, is_labels)])
        kept = lines
        if chunk.ignored:  # they are counted here, and not kept
            kept = [line for line in lines if not self.wire.passes_over(line)]
            block = b"".join(line + b"\n" for line in kept)
        answers = sum(len(batch) for batch in chunk.batches)
        labels = sum(len(batch) for batch in chunk.labels)
        of_kind = {PostKind.LABELS: (labels, answers), PostKind.PREDICTIONS: (answers, chunk.labels_received)}
        accepted, misplaced = of_kind.get(kind, (answers + labels, 0))
        return Judgement(
            lines=block,
            rows=len(kept),
            accepted=accepted,
            rejected=sum(max(reject.answers, reject.records) for reject in chunk.rejects if not reject.along),
            answers=chunk.answers,
            tasks=_rows_by_task(chunk),
            labels=_labels_by_task(chunk),
            labels_accepted=labels + sum(int((batch.label >= 0).sum()) for batch in chunk.batches),
            misplaced=misplaced,
            errors=tuple(_errors(chunk.rejects[:MOST_ERRORS], lines)),
            errors_omitted=max(chunk.rejected - MOST_ERRORS, 0),
            ignored=len(lines) - len(kept),
            scored=bool(misplaced) and _scored_elsewhere(lines[:_MOST_TRIED]),
        )

    def proposal(self, lines: bytes) -> Mapping[str, object] | None:
        """A mapping that reads some of these rows: what `blindsight doctor` would propose, with less care.

        It looks at the first few, if they are small, and has names of fields, and nothing of what they hold.

        Examples
        --------
        >>> intake = Intake([TaskLayout("spam", ("no", "yes"))])
        >>> intake.proposal(b'{"uuid": "a", "probs": [0.25, 0.75]}\\n')
        {'id': 'uuid', 'scores': 'probs', 'constants': {'model': '<name of the model>'}}
        """
        first = lines.split(b"\n", _MOST_TRIED)[:_MOST_TRIED]
        few = [line for line in first if line and len(line) <= _MOST_TRIED_BYTES]
        block = RawBlock(b"".join(line + b"\n" for line in few), "http", 1)
        for mapping in self._candidates(few):
            tried = Decoder(self._layouts, "http", wire=compiled(mapping), clock=time.time).decode([block])
            if tried.batches or any(len(batch) for batch in tried.labels):
                found = written(mapping)
                return found if len(json.dumps(found)) <= _MOST_PROPOSED_BYTES else None
        return None

    def _candidates(self, lines: Sequence[bytes]) -> Iterator[FieldMapping]:
        tags = dict.fromkeys(tag for line in lines if (tag := RECOGNISED.format_of(line)) is not None)
        values = [value for line in lines if isinstance(value := _decoded(line), dict)]
        for layout in self._layouts[:_MOST_TRIED]:
            task = {"task": layout.name} if len(self._layouts) > 1 else {}
            for tag in tags:
                yield FieldMapping.model_validate(
                    {"format": tag, "constants": {"model": NAME_OF_MODEL, **task}}
                )
            found = propose(values, layout, {"model": NAME_OF_MODEL}) if values else None
            if found is not None and (task and found.task is None):
                constants = found.constants.model_dump(exclude_defaults=True) | task
                found = FieldMapping.model_validate({**found.model_dump(), "constants": constants})
            if found is not None:
                yield found


def _decoded(line: bytes) -> object:
    try:
        return msgspec.json.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def _scored_elsewhere(lines: Sequence[bytes]) -> bool:
    values = [value for line in lines if isinstance(value := _decoded(line), dict)]
    return looks_scored([value for value in values if _SCORED.isdisjoint(value)])


def _errors(rejects: Sequence[Reject], lines: Sequence[bytes]) -> Iterator[Mapping[str, object]]:
    starts = np.cumsum([1] + [len(line) + 1 for line in lines])
    for reject in rejects:
        row = int(np.searchsorted(starts, reject.position, side="right")) - 1
        yield {"row": row, "reason": reject.reason.value, "message": reject.message}


def _rows_by_task(chunk: Chunk) -> Mapping[str, int]:
    found = Counter({batch.task: len(batch) for batch in chunk.batches})
    for batch in chunk.labels:
        found[batch.task] += len(batch)
    for reject in chunk.rejects:
        found[reject.task] += 0 if reject.along else max(reject.answers, 1)
    return found


def _labels_by_task(chunk: Chunk) -> Mapping[str, int]:
    found = Counter({batch.task: len(batch) for batch in chunk.labels})
    found.update(
        reject.task for reject in chunk.rejects if reject.answers == 0 and reject.task and not reject.along
    )
    return found
