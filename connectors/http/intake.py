"""The validation of posted rows before they are stored.

The validation uses the same decoder as the later reading of the stored rows. Therefore both have the same
result.
"""

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
"""The largest number of faults that an answer lists. Further faults are only counted."""


_SCORED = frozenset(("scores", "models", "confidence"))  # one of them is in each answer of our own format
_MOST_TRIED, _MOST_TRIED_BYTES = 4, 4096  # limits of rows for a proposal, and of bytes in each
_MOST_PROPOSED_BYTES = 1000


class PostKind(StrEnum):
    """The kind of records that a path accepts: predictions, labels, or both."""

    PREDICTIONS = "predictions"
    LABELS = "labels"
    OBSERVED = "observed"
    """Predictions and labels. The wire of ``/v1/observe/<name>`` distinguishes them."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """The result of validating a post: its usable rows and its faults.

    Parameters
    ----------
    lines : bytes
        The rows as NDJSON; each line ends in a newline.
    rows : int
        The number of lines.
    accepted, rejected : int
        The numbers of usable and unusable records. `accepted` counts only records of the kind that the path
        accepts: answers, labels, or both. An answer with an unusable label is accepted.
    answers : int
        The number of answers, usable or not; an unreadable row counts as one answer.
    tasks : mapping of str to int
        The number of rows by task. Rows without a known task count under ``""``.
    labels : mapping of str to int
        The number of labels by task, usable or not.
    labels_accepted : int
        The number of usable labels, including labels in the rows of answers.
    misplaced : int
        The number of labels in a post of predictions, or of answers in a post of labels.
    errors : tuple of mapping
        The first faults, at most `MOST_ERRORS`: `row` (its index in the post), `reason` and `message`.
    errors_omitted : int
        The number of further faults.
    ignored : int
        The number of events without answers, which `lines` and `rows` do not include.
    scored : bool
        True if one of the first rows seems to have scores in a field with a name other than `scores`.
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
    """A validator of posted rows, which decodes them. It has no state and may be used by several threads.

    Parameters
    ----------
    layouts : sequence of TaskLayout
        The configured tasks.
    wire : Wire, optional
        The reader of the rows' format, by default the reader of Blindsight's own format. Also an attribute.

    Examples
    --------
    >>> intake = Intake([TaskLayout("spam", ("no", "yes"))])
    >>> good, bad = b'{"model": "a", "scores": [0.5, 0.5]}', b'{"model": "a", "scores": [0.5, 1.5]}'
    >>> judgement = intake.judge([good, bad], PostKind.PREDICTIONS)
    >>> judgement.accepted, judgement.rejected, judgement.errors[0]["row"], judgement.errors[0]["message"]
    (1, 1, 1, '$.scores[1]: expected a number from 0 to 1, got 1.5')
    """

    def __init__(self, layouts: Sequence[TaskLayout], wire: Wire = PLAIN) -> None:
        self._layouts = layouts
        self._decoder = Decoder(layouts, "http", wire=wire, clock=time.time)
        self.wire = wire

    def judge(self, lines: Sequence[bytes], kind: PostKind) -> Judgement:
        """Validate the rows of a post.

        Parameters
        ----------
        lines : sequence of bytes
            The rows, each as one line without its newline. No line is blank.
        kind : PostKind
            The kind of records that the path of the post accepts.
        """
        block = b"".join(line + b"\n" for line in lines)
        # The block starts at 1: at 0 the decoder would skip a byte-order mark, but not later in the spool.
        is_labels = kind is PostKind.LABELS
        chunk = self._decoder.decode([RawBlock(block, "http", 1, is_labels)])
        kept = lines
        if chunk.ignored:  # these events are counted here and not stored
            kept = [line for line in lines if all(outcome is not None for _, outcome in self.wire.read(line))]
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
            scored=bool(misplaced) and _has_scores_elsewhere(lines[:_MOST_TRIED]),
        )

    def proposal(self, lines: bytes) -> Mapping[str, object] | None:
        """Return the keys of a mapping with which some of these rows can be read, or None if there is none.

        The function proposes a mapping like `blindsight doctor`. It examines only the first few rows, and
        only if they are small. The proposal contains names of fields, and no values of rows.

        Parameters
        ----------
        lines : bytes
            The rows as NDJSON.

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
            chunk = Decoder(self._layouts, "http", wire=compiled(mapping), clock=time.time).decode([block])
            if chunk.batches or any(len(batch) for batch in chunk.labels):
                keys = written(mapping)
                return keys if len(json.dumps(keys)) <= _MOST_PROPOSED_BYTES else None
        return None

    def _candidates(self, lines: Sequence[bytes]) -> Iterator[FieldMapping]:
        """Yield mappings to try, for each of the first tasks: known formats, then one guessed from names."""
        tags = dict.fromkeys(tag for line in lines if (tag := RECOGNISED.format_of(line)) is not None)
        values = [value for line in lines if isinstance(value := _decoded(line), dict)]
        for layout in self._layouts[:_MOST_TRIED]:
            task = {"task": layout.name} if len(self._layouts) > 1 else {}
            for tag in tags:
                yield FieldMapping.model_validate(
                    {"format": tag, "constants": {"model": NAME_OF_MODEL, **task}}
                )
            mapping = propose(values, layout, {"model": NAME_OF_MODEL}) if values else None
            if mapping is not None and (task and mapping.task is None):
                constants = mapping.constants.model_dump(exclude_defaults=True) | task
                mapping = FieldMapping.model_validate({**mapping.model_dump(), "constants": constants})
            if mapping is not None:
                yield mapping


def _decoded(line: bytes) -> object:
    """Return the value of a line of JSON, or None if it is invalid."""
    try:
        return msgspec.json.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def _has_scores_elsewhere(lines: Sequence[bytes]) -> bool:
    """Return whether a row without our fields of scores seems to have scores under another name."""
    values = [value for line in lines if isinstance(value := _decoded(line), dict)]
    return looks_scored([value for value in values if _SCORED.isdisjoint(value)])


def _errors(rejects: Sequence[Reject], lines: Sequence[bytes]) -> Iterator[Mapping[str, object]]:
    """Yield the index of the row, the reason and the message of each reject.

    The positions of the rejects are bytes in a block of these lines that starts at byte 1.
    """
    starts = np.cumsum([1] + [len(line) + 1 for line in lines])
    for reject in rejects:
        row = int(np.searchsorted(starts, reject.position, side="right")) - 1
        yield {"row": row, "reason": reject.reason.value, "message": reject.message}


def _rows_by_task(chunk: Chunk) -> Mapping[str, int]:
    rows = Counter({batch.task: len(batch) for batch in chunk.batches})
    for batch in chunk.labels:
        rows[batch.task] += len(batch)
    for reject in chunk.rejects:
        rows[reject.task] += 0 if reject.along else max(reject.answers, 1)
    return rows


def _labels_by_task(chunk: Chunk) -> Mapping[str, int]:
    labels = Counter({batch.task: len(batch) for batch in chunk.labels})
    labels.update(
        reject.task for reject in chunk.rejects if reject.answers == 0 and reject.task and not reject.along
    )
    return labels
