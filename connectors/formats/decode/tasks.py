"""Which task a record belongs to: the one it names, the only one there is, or its model's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from connectors.formats.decode.structs import Faults
from connectors.formats.messages.wording import as_json, listing, nearest
from monitor.base.records import Ints, RejectReason, TaskLayout


class TaskFinder:
    """Finds records' tasks.

    Parameters
    ----------
    layouts : sequence of TaskLayout
        A model that two of them list belongs to neither, until the record names its task.
    """

    def __init__(self, layouts: Sequence[TaskLayout]) -> None:
        self._names = tuple(layout.name for layout in layouts)
        self._index: Mapping[str | None, int] = {name: i for i, name in enumerate(self._names)}
        owners: dict[str, set[int]] = {}
        for i, layout in enumerate(layouts):
            for model in layout.models:
                owners.setdefault(model, set()).add(i)
        kinds = [[i for i, layout in enumerate(layouts) if layout.arena is arena] for arena in (False, True)]
        self._only = [found[0] if len(found) == 1 else None for found in kinds]
        self._of_model = {model: min(found) for model, found in owners.items() if len(found) == 1}

    def find(
        self,
        tasks: Sequence[str | None],
        model: Sequence[str | None],
        models: Sequence[Mapping[str, object] | None],
        faults: Faults,
        compares: Sequence[bool] | None = None,
    ) -> Ints:
        """(n,) indices into the layouts, -1 with a fault.

        Parameters
        ----------
        tasks, model, models : sequence
            The records' fields of these names.
        faults : Faults
            Takes `NO_TASK` and `UNKNOWN_TASK`.
        compares : sequence of bool, optional
            Whether each is of an arena by its fields; none is if absent. One that names no task belongs to
            the only task of its kind.

        Examples
        --------
        >>> finder = TaskFinder([TaskLayout("a", ("x", "y"), models=("m",)), TaskLayout("b", ("x", "y"))])
        >>> finder.find(["b", None], ["m", "m"], [None, None], Faults(2))
        array([1, 0])
        """
        # Nearly always one name: comparing costs half of what hashing does.
        alike = bool(tasks) and tasks.count(tasks[0]) == len(tasks)
        distinct = set(tasks[:1] if alike else tasks)
        if distinct == {None} and len(self._names) == 1:
            return np.zeros(len(tasks), dtype=np.int64)
        if distinct <= self._index.keys():
            if len(distinct) == 1:
                return np.full(len(tasks), self._index[distinct.pop()], dtype=np.int64)
            return np.fromiter(map(self._index.__getitem__, tasks), dtype=np.int64, count=len(tasks))
        found = np.full(len(tasks), -1, dtype=np.int64)
        for row, task in enumerate(tasks):
            if task is None:
                kind = self._only[bool(compares and compares[row])]
                found[row] = (
                    self._without_name(row, model[row], models[row], faults) if kind is None else kind
                )
            elif task in self._index:
                found[row] = self._index[task]
            else:
                known, hint = listing(self._names), nearest(task, self._names)
                message = f"$.task: no task {as_json(task)} is configured; known tasks: {known}{hint}"
                faults.add(row, RejectReason.UNKNOWN_TASK, message)
        return found

    def _without_name(self, row: int, model: str | None, models: Iterable[str] | None, faults: Faults) -> int:
        if len(self._names) == 1:
            return 0
        named = list(models) if models else [model]
        found = {self._of_model.get(name, -1) for name in named if name is not None}
        if len(found) == 1 and -1 not in found:
            return found.pop()
        message = (
            f"$.task: several tasks are configured ({listing(self._names)}) and the record names none; "
            "name one, or list the model under one task's models"
        )
        faults.add(row, RejectReason.NO_TASK, message)
        return -1
