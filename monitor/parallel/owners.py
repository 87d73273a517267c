"""Assigns models to the processes of a replay, and sends each model's records to its process."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence

from monitor.engine.engine import EngineSettings
from monitor.parallel.orders import Piece, Slice
from monitor.parallel.planning import Facts, configured, rows_of, why_whole


class Together(Exception):  # noqa: N818 - not an error: the replay starts again
    """An exception that restarts the replay, because models in different processes are not independent.

    Parameters
    ----------
    tasks : mapping of str to str
        The tasks whose models must stay in one process, each with the reason.
    """

    def __init__(self, tasks: Mapping[str, str]) -> None:
        super().__init__(tasks)
        self.tasks = dict(tasks)


class Owners:
    """The assignment of models to processes.

    If a process has a model of a task, it gets all labels of this task. A model that first appears after a
    label is assigned to one of these processes, because only they have the label.

    Parameters
    ----------
    settings : EngineSettings
    processes : int
        The number of processes.
    sampled : sequence of Facts
        Facts about samples of the input.
    whole : mapping of str to str
        The tasks whose models must stay in one process, each with the reason.

    Attributes
    ----------
    order : dict of (task, model) to int
        The number of each model's process. The configured models come first, then other models in the order
        of their first answers.
    whole : dict of str to str
        The tasks of the parameter `whole`, and further tasks according to `sampled`.
    """

    def __init__(
        self, settings: EngineSettings, processes: int, sampled: Sequence[Facts], whole: Mapping[str, str]
    ) -> None:
        self.settings = settings
        self.whole = {**why_whole(settings, [_configured(settings), *sampled]), **whole}
        self.processes = processes
        self._loads = [0] * processes
        self._labelled: set[str] = set()
        self._homes: dict[str, list[int]] = {}
        rows = rows_of([_configured(settings), *sampled])
        by_task: Counter[str] = Counter()
        for (task, _), count in rows.items():
            by_task[task] += count
        self.order: dict[tuple[str, str], int] = dict.fromkeys(rows, -1)
        for key in sorted(rows, key=lambda key: -(by_task[key[0]] if key[0] in self.whole else rows[key])):
            self.order[key] = self._place(key[0], rows[key])

    def _place(self, task: str, rows: int) -> int:
        homes = self._homes.setdefault(task, [])
        bound = homes and (task in self.whole or task in self._labelled)
        process = min(homes if bound else range(len(self._loads)), key=lambda i: self._loads[i])
        if process not in homes:
            homes.append(process)
        self._loads[process] += rows
        return process

    def models(self, process: int) -> dict[str, list[str]]:
        """Return the configured models of a process, by task."""
        return {
            name: [model for model in models if self.order[name, model] == process]
            for name, models in configured(self.settings).items()
        }

    def own(self, process: int, known: int) -> tuple[tuple[str, str], ...]:
        """Return the models that were assigned to a process after the first `known` assignments.

        The assignments to all processes count. A model never moves to another process.
        """
        later = itertools.islice(self.order.items(), known, None)
        return tuple(name for name, owner in later if owner == process)

    def routed(self, piece: Piece) -> dict[int, tuple[Slice, ...]]:
        """Return the shares of a piece by the process that computes them, and assign new models to processes.

        A share of a whole task goes to every process that has a model of the task, unless the process already
        has these labels in another share.
        """
        for (task, model), (_, rows) in sorted(piece.facts.models.items(), key=lambda item: item[1][0]):
            if (task, model) not in self.order:
                self.order[task, model] = self._place(task, rows)
        by_process: dict[int, list[Slice]] = {}
        for share in piece.shares:
            if share.model:
                by_process.setdefault(self.order[share.task, share.model], []).append(share)
                continue
            if not self._homes.get(share.task):
                self._place(share.task, 0)
            self._labelled.add(share.task)
            # Labels that came in an answer's record are already in the share with the answer.
            own = self.order[share.task, share.besides] if share.besides else None
            for process in self._homes[share.task]:
                if process != own:
                    by_process.setdefault(process, []).append(share)
        return {process: tuple(shares) for process, shares in by_process.items()}


def _configured(settings: EngineSettings) -> Facts:
    """Return facts that contain the configured models, without answers."""
    return Facts(
        models={(name, model): [0, 0] for name, models in configured(settings).items() for model in models}
    )
