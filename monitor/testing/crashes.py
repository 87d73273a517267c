"""An agent with a store, on a list, that dies between two chosen steps of a checkpoint."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any

from connectors.formats.decode.decoder import Decoder
from monitor.agent.agent import Agent
from monitor.agent.checkpoints import CheckpointWriter
from monitor.agent.resume import resume, tasks_as_json
from monitor.agent.shards import Kept
from monitor.base.source import Input
from monitor.base.state_changes import Changes
from monitor.config.layouts import layouts
from monitor.engine.engine import EngineSettings
from monitor.export.sinks.follower import ReportFollower
from monitor.export.sinks.line_file import rotate
from monitor.export.sinks.reports_file import ReportsFile
from monitor.reports.window_report import WindowReport
from monitor.store import Store, StoreReader
from monitor.testing.lists import KILLED, ListSinks, ListSource, Marker

_WAIT_SECONDS = 300.0  # on a busy machine


class CrashPoint(StrEnum):
    """Where in a checkpoint that holds closed windows a `StoredAgent` may die, in the order of things."""

    BEGUN = "begun"
    """The transaction has begun, and nothing is written."""
    STATE = "state"
    """The pieces of the state are written, source positions among them."""
    RINGS = "rings"
    """So are the rows of answers and labels."""
    REPORTS = "reports"
    """So are the closed windows."""
    NOTED = "noted"
    """So is how far the reports file had come."""
    TRIMMED = "trimmed"
    """So is what is out of bounds; nothing is committed yet."""
    COMMITTED = "committed"
    """The transaction is committed; neither the reports file nor the source has heard of it."""
    IN_LINE = "in line"
    """Half of what the reports file gets is written to it."""
    WRITTEN_NOT_TOLD = "written, not told"
    """The reports file has the windows; the source has not heard that its records are used."""
    TOLD_NOT_WRITTEN = "told, not written"
    """The source has heard that its records are used; the reports file has none of the windows yet."""
    RENAMED = "renamed"
    """The reports file is full and was renamed, and none is begun under its name; needs `max_bytes`."""


class Crash:
    """Ends the process at a point of a checkpoint, as kill -9 would: nothing is flushed or closed.

    Parameters
    ----------
    point : CrashPoint
    nth : int
        Which of the checkpoints that hold closed windows, counted from 1.

    Examples
    --------
    >>> crash = Crash(CrashPoint.COMMITTED, nth=2)
    >>> crash.due(CrashPoint.BEGUN), crash.due(CrashPoint.COMMITTED), crash.due(CrashPoint.COMMITTED)
    (False, False, True)
    """

    def __init__(self, point: CrashPoint, nth: int = 1) -> None:
        self.point = point
        self._left = nth
        self.written, self.told = threading.Event(), threading.Event()

    def due(self, point: CrashPoint) -> bool:
        """Whether this is the moment; each call with its own point counts."""
        self._left -= point is self.point
        return point is self.point and self._left == 0

    def reached(self, point: CrashPoint) -> None:
        """End the process where this is the moment."""
        if self.due(point):
            os._exit(KILLED)


_STEPS = {
    "BEGIN IMMEDIATE": CrashPoint.BEGUN,
    "INSERT INTO ring_rows": CrashPoint.STATE,
    "INSERT INTO report": CrashPoint.RINGS,
    "INSERT INTO sink": CrashPoint.REPORTS,
    "DELETE FROM report": CrashPoint.NOTED,
    "COMMIT": CrashPoint.TRIMMED,
}
"""How the first statement after each step of the store's transaction begins."""


class _CrashingStore(Store):
    def __init__(self, folder: Path, crash: Crash) -> None:
        super().__init__(folder)
        self._crash = crash
        self._ahead: set[CrashPoint] = set()
        self._connection.set_trace_callback(self._see)  # SQLite calls it before each statement

    def commit(
        self,
        changes: Changes,
        reports: Sequence[WindowReport] = (),
        written: Mapping[str, tuple[int, int]] | None = None,
        config: str | None = None,
    ) -> int:
        self._ahead = set(_STEPS.values()) if reports else set()
        if reports:  # before the transaction: once it is committed, the file may have them at any moment
            self._crash.written.clear()
            self._crash.told.clear()
        newest = super().commit(changes, reports, written, config)
        if reports:
            self._crash.reached(CrashPoint.COMMITTED)
        return newest

    def _see(self, statement: str) -> None:
        point = next((point for start, point in _STEPS.items() if statement.startswith(start)), None)
        if point in self._ahead:
            self._ahead.discard(point)
            self._crash.reached(point)


class _CrashingFile(ReportsFile):
    def __init__(self, path: str, max_bytes: int | None, keep: int, crash: Crash) -> None:
        super().__init__(path, max_bytes, keep)
        self.crash = crash

    def _rotate(self) -> None:
        if self.crash.due(CrashPoint.RENAMED):
            rotate(self._path, self._keep)
            os._exit(KILLED)
        super()._rotate()

    def _append(self, data: bytes) -> None:
        if self.crash.point is CrashPoint.TOLD_NOT_WRITTEN:
            self.crash.told.wait(_WAIT_SECONDS)
            self.crash.reached(CrashPoint.TOLD_NOT_WRITTEN)
        if self.crash.due(CrashPoint.IN_LINE):
            os.write(self._file, data[: len(data) // 2])
            os._exit(KILLED)
        super()._append(data)
        self.crash.written.set()


class _FileSinks(ListSinks):
    """Lists, and the reports file behind the store."""

    def __init__(self, follower: ReportFollower, crash: Crash | None) -> None:
        super().__init__()
        self._follower, self._crash = follower, crash

    def reports(self, reports: Sequence[WindowReport]) -> None:
        super().reports(reports)
        self._follower.wake()
        if self._crash is not None and reports and self._crash.point is CrashPoint.WRITTEN_NOT_TOLD:
            self._crash.written.wait(_WAIT_SECONDS)
            self._crash.reached(CrashPoint.WRITTEN_NOT_TOLD)


class _ToldSource(ListSource):
    crash: Crash | None = None

    def acknowledge(self, positions: Mapping[str, int]) -> None:
        super().acknowledge(positions)
        if self.crash is not None:
            self.crash.told.set()


class StoredAgent:
    """What `blindsight run` is made of, on a list: an agent with a store and a reports file in a folder.

    Made again on the same folder, it goes on where the one before it ended, however that ended.

    Parameters
    ----------
    folder : Path
        Gets `store` and `windows.ndjson`.
    settings : EngineSettings
    records : sequence
        As for `ListSource`.
    crash : Crash, optional
        Where it dies.
    per_read : int
        Records a read; a checkpoint follows each.
    max_bytes, keep
        As of the configuration's `reports`.

    Raises
    ------
    StoreError
        The store cannot be used.
    """

    def __init__(
        self,
        folder: Path,
        settings: EngineSettings,
        records: Sequence[Mapping[str, Any] | bytes | Marker],
        crash: Crash | None = None,
        per_read: int = 50,
        max_bytes: int | None = None,
        keep: int = 1,
    ) -> None:
        self.path = folder / "windows.ndjson"
        store = Store(folder / "store") if crash is None else _CrashingStore(folder / "store", crash)
        resumed = resume(settings, store.load())
        store.forget(resumed.forgotten)
        self._reader = StoreReader(store.path)
        bounds = (str(self.path), max_bytes, keep)
        file = ReportsFile(*bounds) if crash is None else _CrashingFile(*bounds, crash)
        self._follower = ReportFollower(file, self._reader, store.marks())
        self._keeper = CheckpointWriter(store, lambda: self._follower.marks)
        self.source = _ToldSource(records, per_read)
        if crash is not None:
            self.source.crash = crash
        self.sinks = _FileSinks(self._follower, crash)
        kept = Kept(self._keeper, 0.0, tasks_as_json(dict(settings.tasks)), tuple(resumed.reports))
        decode = Decoder(layouts(settings.tasks), self.source.name).decode
        self.agent = Agent(resumed.engine, [Input(self.source, decode)], self.sinks, store=kept)

    def run(self, timeout_seconds: float = 60.0) -> bool:
        """Run to `Marker.END`, or until the time is up, and close; whether it came to the end."""
        self._keeper.start()
        self._follower.start()
        self.agent.start()
        ended = self.agent.wait(timeout_seconds)
        self.agent.stop()
        self.agent.wait(timeout_seconds)
        self._follower.wake()
        self._follower.close(timeout_seconds)
        self._reader.close()
        self._keeper.close(timeout_seconds)
        return ended
