"""Letting go of records by id: what the agent does when asked, and how an id is found in a record's bytes."""

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

KIND = "forget"


class ForgetRequest(msgspec.Struct, forbid_unknown_fields=True):
    """What a request to forget says.

    Parameters
    ----------
    keys : list of int
        See `monitor.base.records.id_keys`: the ids themselves need not rest in a request too.
    task : str
        ``""`` for every task.
    """

    keys: list[int]
    task: str = ""


def forget(engine: Engine, request: OperatorRequest) -> str:
    """Let go of what is known by these ids; what was found, in a sentence.

    Raises
    ------
    RequestError
        The request is damaged, or names a task that is not there.
    """
    try:
        asked = msgspec.convert(request.body, ForgetRequest)
        keys = np.unique(np.array(asked.keys, dtype=np.uint64))
    except (msgspec.ValidationError, OverflowError) as error:
        raise RequestError(f"the request is damaged: {error}; ask again with the command itself") from error
    try:
        return sentence(engine.forget(keys, asked.task))
    except KeyError as error:
        raise RequestError(f"task: the agent has no task {asked.task!r}; reload its configuration") from error


def sentence(found: Forgotten) -> str:
    """What was let go of.

    Examples
    --------
    >>> sentence(Forgotten(answers=2, labels=1, waiting=1))
    '2 answers and 1 label removed; 1 label of these waited for its answer, and counts as expired.'
    >>> sentence(Forgotten(answers=0, labels=3, waiting=2))
    '0 answers and 3 labels removed; 2 labels of these waited for their answers, and count as expired.'
    >>> sentence(Forgotten())
    'nothing was known by these ids.'
    """
    if not found.answers and not found.labels:
        return "nothing was known by these ids."
    ends = "its answer, and counts" if found.waiting == 1 else "their answers, and count"
    waited = f"; {count(found.waiting, 'label')} of these waited for {ends} as expired"
    return f"{count(found.answers, 'answer')} and {count(found.labels, 'label')} removed" + (
        f"{waited}." if found.waiting else "."
    )


def count(n: int, what: str) -> str:
    """So many of something.

    Examples
    --------
    >>> count(1, "line"), count(1200, "line")
    ('1 line', '1,200 lines')
    """
    return f"{n:,} {what}{'' if n == 1 else 's'}"


class _Number(str):
    """A number as it was spelt: an id may be one."""

    __slots__ = ()


class RecordsOf:
    """Tells records of certain ids by their bytes.

    A JSON object is one of them where its `id` is, or, if it has none that can be read, where any of its
    values or keys is. What is no JSON (broken, or cut off) is looked through as text: an id that stands
    there between other characters than letters and digits. That may find too much; what is looked through
    are rejected records, of which nothing depends.

    Parameters
    ----------
    ids : collection of str
    task : str
        ``""`` for every task. A record that names none may be of any.

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
        found = value.get("id")
        return found in self._ids if isinstance(found, str) else self._is_among(value)

    def _is_among(self, value: Any) -> bool:
        return any(leaf in self._ids for leaf in _leaves(value))


def _leaves(value: Any) -> Iterator[str]:
    """Keys and values of a tree; numbers are text already."""
    pending = [value]
    while pending:
        value = pending.pop()
        if isinstance(value, dict):
            pending += [*value, *value.values()]
        elif isinstance(value, list):
            pending += value
        elif isinstance(value, str):
            yield value
