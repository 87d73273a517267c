"""The content of a checkpoint: the parts of the state that changed since the previous checkpoint.

The state consists of pieces and ring tables. A piece is a named part of the state, such as ``engine``,
``task/toxicity``, ``revisions/toxicity`` or ``series/0/toxicity``. A ring table is a table of limited size,
in which new rows overwrite the oldest. Examples of its name are ``answers/toxicity`` and ``pool/toxicity``.
Some kinds of tasks use other names (`monitor.base.registry.TaskKind`). `assemble` makes a snapshot of the
engine from all saved pieces and ring tables.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from monitor.base.records import Ints, Keys
from monitor.base.registry import TASK_KINDS, WHOLE_TASKS, TaskKind

_BEYOND_EVERY_ROW = 1 << 62
JOIN_RINGS = ("answers", "labels")
"""The rings of a label join, which `TaskKind.rings` names."""
POOL = "pool"
"""The first part of the name of the ring with the labelled rows for a task's refits."""
DRAWS = "draws"
"""The first part of the name of the ring with the draws by which a task's rows were sampled for labelling."""


class RingRows(msgspec.Struct, frozen=True):
    """Rows of a ring table: their keys, and the other columns by name."""

    keys: Keys
    columns: dict[str, NDArray[Any]]


class ChangedRows(RingRows, frozen=True):
    """Rows of a ring table that changed after they were saved.

    `rows` contains the absolute number of each row: its number among all rows that the table ever had.
    """

    rows: Ints


class RingState(RingRows, frozen=True):
    """All rows of a ring table, oldest first. `first` is the absolute number of the oldest row."""

    first: int


@dataclass(frozen=True, slots=True)
class RingChange:
    """The changes of a ring table since the previous checkpoint.

    Parameters
    ----------
    name : str
        The name of the table, such as ``answers/toxicity``.
    first : int
        Absolute number of the first added row.
    added : RingRows
        The new rows; there may be none.
    changed : ChangedRows or None
        Older rows whose values changed, with the new values.
    oldest : int
        Absolute number of the oldest row that is still needed. Rows before it may be deleted.
    wiped : (n,) uint64 or None
        The keys of rows that must be erased from all saved data.
    """

    name: str
    first: int
    added: RingRows
    changed: ChangedRows | None
    oldest: int
    wiped: Keys | None = None

    @classmethod
    def nothing_left(cls, name: str) -> RingChange:
        """Return a change after which a ring table (a table of limited size) has no rows."""
        empty = RingRows(np.zeros(0, dtype=np.uint64), {})
        return cls(name, first=0, added=empty, changed=None, oldest=_BEYOND_EVERY_ROW)


@dataclass(frozen=True, slots=True)
class Changes:
    """The changes of an engine since its last checkpoint.

    Parameters
    ----------
    parts : mapping of str to state
        The pieces of the state that changed, by name. Each piece replaces its saved version.
    rings : sequence of RingChange
    """

    parts: Mapping[str, Any] = field(default_factory=dict)
    rings: Sequence[RingChange] = ()


def assemble(parts: Mapping[str, Any], rings: Mapping[str, RingState]) -> dict[str, Any] | None:
    """Return a snapshot of the engine from its saved pieces and ring tables; None if nothing was saved.

    Examples
    --------
    >>> assemble({}, {}) is None
    True
    """
    if "engine" not in parts:
        return None
    tasks: dict[str, dict[str, Any]] = {}
    kept = {name.partition("/")[2]: state for name, state in parts.items() if name.startswith("revisions/")}
    for name, state in parts.items():
        kind, _, task = name.partition("/")
        if kind == "task":
            join = {ring: rings.get(f"{ring}/{task}") for ring in JOIN_RINGS}
            tasks[task] = state | {"join": state["join"] | join, "series": []}
            tasks[task] |= {"revisions": kept[task]} if task in kept else {}
            if "refits" in state or f"{POOL}/{task}" in rings:
                own = {kind: rings.get(f"{kind}/{task}") for kind in (POOL, DRAWS)}
                tasks[task]["refits"] = state.get("refits", {}) | own
    series = [(*name.split("/", 2)[1:], state) for name, state in parts.items() if name.startswith("series/")]
    for _, task, state in sorted(series, key=lambda piece: int(piece[0])):
        if task in tasks:
            tasks[task]["series"].append(state)
    whole = {f"{kind.piece}s": _whole_tasks(kind, parts, rings) for kind in WHOLE_TASKS.values()}
    return {**parts["engine"], "tasks": tasks, **whole}


def _whole_tasks(
    kind: TaskKind, parts: Mapping[str, Any], rings: Mapping[str, RingState]
) -> dict[str, dict[str, Any]]:
    """Return the snapshot of each task of a kind without series, by task."""
    tasks = {}
    for name, state in parts.items():
        piece, _, task = name.partition("/")
        if piece == kind.piece:
            join = {
                ring: rings.get(f"{saved}/{task}") for ring, saved in zip(JOIN_RINGS, kind.rings, strict=True)
            }
            tasks[task] = state | {"join": state["join"] | join}
    return tasks


def piece_names(task: str, parts: Mapping[str, Any]) -> list[str]:
    """Return the names under which the store may have saved the state of a task.

    The names are those of its pieces among `parts`, and of all ring tables (tables of limited size) that a
    task may have.
    """
    whole = (f"revisions/{task}", *(f"{kind.piece}/{task}" for kind in TASK_KINDS.values()))
    own = [name for name in parts if name in whole or name.split("/", 2)[2:] == [task]]
    rings = [ring for kind in TASK_KINDS.values() for ring in kind.rings]
    return [*own, *(f"{ring}/{task}" for ring in dict.fromkeys((*rings, POOL, DRAWS)))]
