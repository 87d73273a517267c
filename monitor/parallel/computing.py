"""Computes the windows of the models that are assigned to a worker process, with one engine for each task."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from monitor.engine.engine import Engine, EngineSettings
from monitor.engine.report_order import OrderedReport
from monitor.export.page.period import Period
from monitor.parallel.orders import ComputedLine, ComputePieces, EndedStream
from monitor.parallel.partitioning import Begin, Partition, joined
from monitor.parallel.planning import Unit, settings_of


class Computer:
    """The engines of a worker process, and the records that they have not processed yet.

    A share is the records of one model in a part of the stream.

    Parameters
    ----------
    settings : EngineSettings
        Settings of all tasks.
    models : mapping of str to sequence of str
        The configured models that are assigned to the worker, by task.
    period : Period
        Collects the reports of the worker's windows for the report of the whole replay.
    """

    def __init__(self, settings: EngineSettings, models: Mapping[str, Sequence[str]], period: Period) -> None:
        self._settings, self._models, self._period = settings, models, period
        self._engines: dict[str, Engine] = {}
        self._kept: dict[tuple[Path, str, str], Partition] = {}

    def keep(self, path: Path, shares: Mapping[tuple[str, str], Partition]) -> None:
        """Keep shares in memory, by task and model, because this worker will process them.

        The worker has written the other shares of the same piece to the file `path`.
        """
        self._kept.update(((path, *name), share) for name, share in shares.items())

    def compute(self, order: ComputePieces) -> list[ComputedLine]:
        """Process the shares of an order, and return the reports of the windows that closed."""
        together: dict[tuple[str, int], list[tuple[Partition, Begin]]] = {}
        for number, piece in enumerate(order.pieces):
            with piece.path.open("rb") as file:
                for share in piece.shares:
                    name = piece.path, share.task, share.model
                    partition = share.read(file) if share.stop else self._kept.pop(name)
                    step = share.task, number if share.task in order.one_by_one else 0
                    together.setdefault(step, []).append((partition, piece.begin))
        return [
            line
            for (task, _), shares in together.items()
            for line in self._lines(self._engine(task).take(joined(shares, "replay"), 0.0))
        ]

    def _lines(self, reports: Sequence[OrderedReport]) -> list[ComputedLine]:
        self._period.add([ordered.report for ordered in reports])
        return [ComputedLine.from_report(ordered) for ordered in reports]

    def _engine(self, name: str) -> Engine:
        if name not in self._engines:
            settings = settings_of(self._settings, Unit(name, None, 0))
            own = {task: each.with_models(self._models[name]) for task, each in settings.tasks.items()}
            self._engines[name] = replace(settings, tasks=own).build()
        return self._engines[name]

    def end(self) -> EndedStream:
        """Close the open windows, and return their reports and the worker's results."""
        for name, own in self._models.items():
            if own:
                self._engine(name)  # so that models that never answered are listed as silent
        engines = self._engines.values()
        lines = [line for engine in engines for line in self._lines(engine.end())]
        labelled = {series: rows for engine in engines for series, rows in engine.labelled().items()}
        waiting = [engine.waiting_labels() for engine in engines]
        views = [engine.view() for engine in engines]
        return EndedStream(lines, self._period, views, waiting, labelled, *used())


def used() -> tuple[int, float]:
    """Return the largest memory of this process in bytes, and its processor time in seconds."""
    try:
        import resource
    except ImportError:  # Windows
        return 0, 0.0
    usage = resource.getrusage(resource.RUSAGE_SELF)
    unit = 1 if sys.platform == "darwin" else 1024
    return usage.ru_maxrss * unit, usage.ru_utime + usage.ru_stime
