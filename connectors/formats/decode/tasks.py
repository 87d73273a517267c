"""Finds the task of a record.

A record may name its task. Otherwise its task is the only configured task, the only task of the kind that the
record's fields show, or the only task that lists the record's model.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from connectors.formats.decode.structs import Faults
from connectors.formats.messages.wording import as_json, listing, nearest
from monitor.base.records import Ints, RejectReason, TaskLayout
from monitor.base.registry import TASK_KINDS


class TaskFinder:
    """An index of the configured tasks, which finds the task of each record.

    Parameters
    ----------
    layouts : sequence of TaskLayout
        The configured tasks. Records of a model that two tasks list must name their task.
    """

    def __init__(self, layouts: Sequence[TaskLayout]) -> None:
        self._names = tuple(layout.name for layout in layouts)
        self._index: Mapping[str | None, int] = {name: i for i, name in enumerate(self._names)}
        owners: dict[str, set[int]] = {}
        for i, layout in enumerate(layouts):
            for model in layout.models:
                owners.setdefault(model, set()).add(i)
        kinds = [layout.kind if TASK_KINDS[layout.kind].marks else "" for layout in layouts]
        self._only = {kind: i for i, kind in enumerate(kinds) if kinds.count(kind) == 1}
        self._of_model = {model: min(tasks) for model, tasks in owners.items() if len(tasks) == 1}
        self._numeric = [i for i, layout in enumerate(layouts) if layout.numeric]

    def find(
        self,
        tasks: Sequence[str | None],
        model: Sequence[str | None],
        models: Sequence[Mapping[str, object] | None],
        faults: Faults,
        kinds: Sequence[str] = (),
        numbers: Sequence[bool] = (),
    ) -> Ints:
        """Return the index of each record's task in the layouts, (n,); -1 for a record with a fault.

        Parameters
        ----------
        tasks, model, models : sequence
            The fields `task`, `model` and `models` of the records.
        faults : Faults
            Receives the faults `NO_TASK` and `UNKNOWN_TASK`.
        kinds : sequence of str
            The kind of task that the fields of each record show, or ``""``: see `Columns.kinds`. A record
            that names no task belongs to the only task of the kind that its fields show. With ``""``, it
            belongs to the only task of a kind without fields of its own.
        numbers : sequence of bool
            True for records with a predicted number and no field of classes: see `Columns.numbers`. Such a
            record belongs to the only task whose models predict numbers, unless another task lists its model.

        Examples
        --------
        >>> finder = TaskFinder([TaskLayout("a", ("x", "y"), models=("m",)), TaskLayout("b", ("x", "y"))])
        >>> finder.find(["b", None], ["m", "m"], [None, None], Faults(2))
        array([1, 0])
        """
        # Nearly always all are equal, and comparing costs half as much as hashing.
        alike = bool(tasks) and tasks.count(tasks[0]) == len(tasks)
        distinct = set(tasks[:1] if alike else tasks)
        if distinct == {None} and len(self._names) == 1:
            return np.zeros(len(tasks), dtype=np.int64)
        if distinct <= self._index.keys():
            if len(distinct) == 1:
                return np.full(len(tasks), self._index[distinct.pop()], dtype=np.int64)
            return np.fromiter(map(self._index.__getitem__, tasks), dtype=np.int64, count=len(tasks))
        index_of_row = np.full(len(tasks), -1, dtype=np.int64)
        for row, task in enumerate(tasks):
            if task is None:
                kind = kinds[row] if kinds else ""
                own = self._unnamed(kind, bool(numbers) and numbers[row], models[row] or [model[row]])
                index_of_row[row] = own
                if own < 0:
                    message = (
                        f"$.task: several tasks are configured ({listing(self._names)}) and the record names "
                        "none; name one, or list the model under one task's models"
                    )
                    faults.add(row, RejectReason.NO_TASK, message)
            elif task in self._index:
                index_of_row[row] = self._index[task]
            else:
                known, hint = listing(self._names), nearest(task, self._names)
                message = f"$.task: no task {as_json(task)} is configured; known tasks: {known}{hint}"
                faults.add(row, RejectReason.UNKNOWN_TASK, message)
        return index_of_row

    def _unnamed(self, kind: str, has_number: bool, models: Iterable[str | None]) -> int:
        """Return the index of the task of a record that names none, or -1."""
        if len(self._names) == 1:
            return 0
        owners = {self._of_model.get(name, -1) for name in models if name is not None}
        listed = owners.pop() if len(owners) == 1 else -1
        if listed in self._numeric or (has_number and self._numeric):
            return self._numeric[0] if listed < 0 and len(self._numeric) == 1 else listed
        return self._only.get(kind, listed)
