"""The agent's handler of requests to delete records by id, and a search for ids in the bytes of records."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator
from typing import Any

import msgspec
import numpy as np

from monitor.agent.requests import OperatorRequest
from monitor.base.errors import RequestError
from monitor.engine.engine import Engine
from monitor.engine.labels.columns import Forgotten
from monitor.reports.statements import count

KIND = "forget"


class ForgetRequest(msgspec.Struct, forbid_unknown_fields=True):
    """The body of a request to delete the records with some ids.

    Parameters
    ----------
    keys : list of int
        The hashes of the ids (`monitor.base.records.id_keys`). The request must not contain the ids
        themselves.
    task : str
        The task; ``""`` for every task.
    """

    keys: list[int]
    task: str = ""


def forget(engine: Engine, request: OperatorRequest) -> str:
    """Delete all records with the requested ids, and return a sentence with the number of deleted records.

    Raises
    ------
    RequestError
        The request is damaged, or names an unknown task.
    """
    try:
        body = msgspec.convert(request.body, ForgetRequest)
        keys = np.unique(np.array(body.keys, dtype=np.uint64))
    except (msgspec.ValidationError, OverflowError) as error:
        raise RequestError(f"the request is damaged: {error}; ask again with the command itself") from error
    try:
        return sentence(engine.forget(keys, body.task))
    except KeyError as error:
        raise RequestError(f"task: the agent has no task {body.task!r}; reload its configuration") from error


def sentence(forgotten: Forgotten) -> str:
    """Return a sentence with the numbers of deleted records, for the answer to the request.

    Examples
    --------
    >>> sentence(Forgotten(answers=2, labels=1, waiting=1))
    '2 answers and 1 label removed; 1 label of these waited for its answer, and counts as expired.'
    >>> sentence(Forgotten(answers=0, labels=3, waiting=2))
    '0 answers and 3 labels removed; 2 labels of these waited for their answers, and count as expired.'
    >>> sentence(Forgotten())
    'nothing was known by these ids.'
    """
    if not forgotten.answers and not forgotten.labels:
        return "nothing was known by these ids."
    ends = "its answer, and counts" if forgotten.waiting == 1 else "their answers, and count"
    waited = f"; {count(forgotten.waiting, 'label')} of these waited for {ends} as expired"
    return f"{count(forgotten.answers, 'answer')} and {count(forgotten.labels, 'label')} removed" + (
        f"{waited}." if forgotten.waiting else "."
    )


class _Number(str):
    """A JSON number as its original text. An id may be a number."""

    __slots__ = ()


class RecordsOf:
    """A predicate on the bytes of a record: whether the record belongs to one of some ids.

    A JSON object matches if its `id` is one of the ids. An object without an `id`, or with an `id` that is
    not a text, matches if one of its keys or values is one of the ids. Other bytes, such as a truncated
    record, match if they contain one of the ids as a whole word or number. So too many records may match.
    This is harmless for rejected records.

    Parameters
    ----------
    ids : collection of str
    task : str
        Only records of this task match; ``""`` for every task. A record without a task matches any task.

    Examples
    --------
    >>> mine = RecordsOf(["req-8"])
    >>> [mine(raw) for raw in (b'{"id": "req-8"}', b'{"id": "req-81"}', b'{"id": "req-8", "sco')]
    [True, False, True]
    """

    def __init__(self, ids: Collection[str], task: str = "") -> None:
        self._ids = frozenset(ids)
        self._task = task
        spelt = {form for each in self._ids for form in (each, json.dumps(each)[1:-1])}
        longest_first = sorted(spelt, key=len, reverse=True)
        self._text = re.compile(rf"(?<![^\W_])(?:{'|'.join(map(re.escape, longest_first))})(?![^\W_])")

    def __call__(self, record: bytes) -> bool:
        """Return whether a record has one of the ids."""
        text = record.decode("utf-8", errors="backslashreplace")
        try:
            value = json.loads(text, parse_int=_Number, parse_float=_Number)
        except (ValueError, RecursionError):
            return self._text.search(text) is not None
        if not isinstance(value, dict):
            return self._is_among(value)
        named = value.get("task")
        if self._task and isinstance(named, str) and named != self._task and not isinstance(named, _Number):
            return False
        id_ = value.get("id")
        return id_ in self._ids if isinstance(id_, str) else self._is_among(value)

    def _is_among(self, value: Any) -> bool:
        """Return whether any key or text within a JSON value is one of the ids."""
        return any(leaf in self._ids for leaf in _leaves(value))


def _leaves(value: Any) -> Iterator[str]:
    """Yield all keys and texts within a JSON value. Numbers are texts of the class `_Number`."""
    pending = [value]
    while pending:
        value = pending.pop()
        if isinstance(value, dict):
            pending += [*value, *value.values()]
        elif isinstance(value, list):
            pending += value
        elif isinstance(value, str):
            yield value
