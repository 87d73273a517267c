"""The content of one checkpoint: the pieces of the state that changed since the last one.

A piece has a name: ``engine``, ``task/toxicity``, ``revisions/toxicity``, ``series/0/toxicity``,
``arena/chat``; a ring ``answers/toxicity``, ``pool/toxicity``, ``comparisons/chat``. `assembled` makes a
snapshot of them again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from monitor.base.records import Ints, Keys

_BEYOND_EVERY_ROW = 1 << 62
ARENA_RINGS = {"answers": "comparisons", "labels": "verdicts"}
"""The rings of a join of labels, by the names that they have as an arena's."""
POOL = "pool"
"""Kind of the ring that holds the labelled rows of a task's refits."""
DRAWS = "draws"
"""Kind of the ring that holds how such rows were drawn for labelling."""


class RingRows(msgspec.Struct, frozen=True):
    """Rows of a bounded ring: the key of each, and what it carries beside that, by name."""

    keys: Keys
    columns: dict[str, NDArray[Any]]


class ChangedRows(RingRows, frozen=True):
    """Rows that changed after they were saved; `rows` are their absolute numbers."""

    rows: Ints


class RingState(RingRows, frozen=True):
    """A whole ring, oldest rows first; `first` is the absolute number of the oldest."""

    first: int


@dataclass(frozen=True, slots=True)
class RingChange:
    """What happened to one bounded ring of rows.

    Parameters
    ----------
    name : str
        ``answers/toxicity``.
    first : int
        Absolute number of the first row added.
    added : RingRows
        Empty arrays for none.
    changed : ChangedRows or None
        Of older rows; None for none.
    oldest : int
        Absolute number of the oldest row still there: what lies before may be dropped.
    wiped : (n,) uint64 or None
        Keys of which nothing may stay, wherever they were saved before; None for none.
    """

    name: str
    first: int
    added: RingRows
    changed: ChangedRows | None
    oldest: int
    wiped: Keys | None = None

    @classmethod
    def nothing_left(cls, name: str) -> RingChange:
        """Every row of a ring goes."""
        empty = RingRows(np.zeros(0, dtype=np.uint64), {})
        return cls(name, first=0, added=empty, changed=None, oldest=_BEYOND_EVERY_ROW)


@dataclass(frozen=True, slots=True)
class Changes:
    """The changes of an engine since its last checkpoint.

    Parameters
    ----------
    parts : mapping of str to state
        Pieces that are replaced whole.
    rings : sequence of RingChange
    """

    parts: Mapping[str, Any] = field(default_factory=dict)
    rings: Sequence[RingChange] = ()


def assembled(parts: Mapping[str, Any], rings: Mapping[str, RingState]) -> dict[str, Any] | None:
    """The values of the engine's snapshot from its saved pieces; None where nothing was saved.

    Examples
    --------
    >>> assembled({}, {}) is None
    True
    """
    if "engine" not in parts:
        return None
    tasks: dict[str, dict[str, Any]] = {}
    kept = {name.partition("/")[2]: state for name, state in parts.items() if name.startswith("revisions/")}
    for name, state in parts.items():
        kind, _, task = name.partition("/")
        if kind == "task":
            join = {ring: rings.get(f"{ring}/{task}") for ring in ("answers", "labels")}
            tasks[task] = state | {"join": state["join"] | join, "series": []}
            tasks[task] |= {"revisions": kept[task]} if task in kept else {}
            if "refits" in state or f"{POOL}/{task}" in rings:
                own = {kind: rings.get(f"{kind}/{task}") for kind in (POOL, DRAWS)}
                tasks[task]["refits"] = state.get("refits", {}) | own
    series = [(*name.split("/", 2)[1:], state) for name, state in parts.items() if name.startswith("series/")]
    for _, task, state in sorted(series, key=lambda found: int(found[0])):
        if task in tasks:
            tasks[task]["series"].append(state)
    return {**parts["engine"], "tasks": tasks, "arenas": _arenas(parts, rings)}


def _arenas(parts: Mapping[str, Any], rings: Mapping[str, RingState]) -> dict[str, dict[str, Any]]:
    """The arenas' snapshots: the rings of their joins have names of their own in the store."""
    found = {}
    for name, state in parts.items():
        kind, _, task = name.partition("/")
        if kind == "arena":
            join = {of: rings.get(f"{ring}/{task}") for of, ring in ARENA_RINGS.items()}
            found[task] = state | {"join": state["join"] | join}
    return found


def pieces_of(task: str, parts: Mapping[str, Any]) -> list[str]:
    """The names of a task's pieces and rings."""
    whole = (f"task/{task}", f"revisions/{task}", f"arena/{task}")
    own = [name for name in parts if name in whole or name.split("/", 2)[2:] == [task]]
    kinds = ("answers", "labels", POOL, DRAWS, *ARENA_RINGS.values())
    return [*own, *(f"{kind}/{task}" for kind in kinds)]
