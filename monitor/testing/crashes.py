"""An agent with a store that reads a list, and crashes at a chosen step of a checkpoint."""

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
from monitor.export.sinks.reports_file import ReportsFile
from monitor.reports.window_report import WindowReport
from monitor.store import Store, StoreReader
from monitor.testing.lists import KILLED, ListSinks, ListSource, Marker

_WAIT_SECONDS = 300.0  # on a busy machine


class CrashPoint(StrEnum):
    """The moments of a checkpoint with closed windows at which a `StoredAgent` can crash, in order."""

    BEGUN = "begun"
    """The transaction has begun, and nothing is written."""
    STATE = "state"
    """The pieces of the state are written, including the positions of sources."""
    RINGS = "rings"
    """The rows of answers and labels are written, too."""
    REPORTS = "reports"
    """The closed windows are written, too."""
    NOTED = "noted"
    """The progress of the reports file is written, too."""
    TRIMMED = "trimmed"
    """Old rows and reports are deleted, too; nothing is committed yet."""
    COMMITTED = "committed"
    """The transaction is committed; neither the reports file nor the source is notified."""
    IN_LINE = "in line"
    """Half of the data for the reports file is written to it."""
    WRITTEN_NOT_ACKNOWLEDGED = "written, not acknowledged"
    """The reports file has the windows; the records are not acknowledged to the source."""
    ACKNOWLEDGED_NOT_WRITTEN = "acknowledged, not written"
    """The records are acknowledged to the source; the reports file has none of the windows yet."""
    RENAMED = "renamed"
    """The full reports file is renamed, and no new one exists; needs `max_bytes`."""


class Crash:
    """A crash of the process at a point of a checkpoint, like kill -9: nothing is flushed or closed.

    Parameters
    ----------
    point : CrashPoint
    nth : int
        The number of the checkpoint, from 1. Only checkpoints with closed windows count.

    Examples
    --------
    >>> crash = Crash(CrashPoint.COMMITTED, nth=2)
    >>> crash.is_due(CrashPoint.BEGUN), crash.is_due(CrashPoint.COMMITTED), crash.is_due(CrashPoint.COMMITTED)
    (False, False, True)
    """

    def __init__(self, point: CrashPoint, nth: int = 1) -> None:
        self.point = point
        self._left = nth
        self.written, self.acknowledged = threading.Event(), threading.Event()

    def is_due(self, point: CrashPoint) -> bool:
        """Return whether the crash is due at this point now.

        Each call with the `point` of the crash counts as one checkpoint.
        """
        self._left -= point is self.point
        return point is self.point and self._left == 0

    def reach(self, point: CrashPoint) -> None:
        """End the process if the crash is due at this point."""
        if self.is_due(point):
            os._exit(KILLED)


_STEPS = {
    "BEGIN IMMEDIATE": CrashPoint.BEGUN,
    "INSERT INTO ring_rows": CrashPoint.STATE,
    "INSERT INTO report": CrashPoint.RINGS,
    "INSERT INTO sink": CrashPoint.REPORTS,
    "DELETE FROM report": CrashPoint.NOTED,
    "COMMIT": CrashPoint.TRIMMED,
}
"""The beginning of the first statement after each step of the store's transaction."""


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
        if reports:  # before the transaction, because after its commit the file may have them at any moment
            self._crash.written.clear()
            self._crash.acknowledged.clear()
        newest = super().commit(changes, reports, written, config)
        if reports:
            self._crash.reach(CrashPoint.COMMITTED)
        return newest

    def _see(self, statement: str) -> None:
        point = next((point for start, point in _STEPS.items() if statement.startswith(start)), None)
        if point in self._ahead:
            self._ahead.discard(point)
            self._crash.reach(point)


class _CrashingFile(ReportsFile):
    def __init__(self, path: str, max_bytes: int | None, keep: int, crash: Crash) -> None:
        super().__init__(path, max_bytes, keep)
        self.crash = crash

    def rotate(self) -> None:
        super().rotate()
        self.crash.reach(CrashPoint.RENAMED)

    def write(self, data: bytes) -> int:
        if self.crash.point is CrashPoint.ACKNOWLEDGED_NOT_WRITTEN:
            self.crash.acknowledged.wait(_WAIT_SECONDS)
            for _ in range(data.count(b"\n")):  # on a busy machine all lines may come at once
                self.crash.reach(CrashPoint.ACKNOWLEDGED_NOT_WRITTEN)
        if self.crash.is_due(CrashPoint.IN_LINE):
            super().write(data[: len(data) // 2])
            os._exit(KILLED)
        written = super().write(data)
        self.crash.written.set()
        return written


class _FileSinks(ListSinks):
    """Sinks with lists, and the reports file that follows the store."""

    def __init__(self, follower: ReportFollower, crash: Crash | None) -> None:
        super().__init__()
        self._follower, self._crash = follower, crash

    def reports(self, reports: Sequence[WindowReport]) -> None:
        super().reports(reports)
        self._follower.wake()
        if self._crash is not None and reports and self._crash.point is CrashPoint.WRITTEN_NOT_ACKNOWLEDGED:
            self._crash.written.wait(_WAIT_SECONDS)
            self._crash.reach(CrashPoint.WRITTEN_NOT_ACKNOWLEDGED)


class _AcknowledgedSource(ListSource):
    crash: Crash | None = None

    def acknowledge(self, positions: Mapping[str, int]) -> None:
        super().acknowledge(positions)
        if self.crash is not None:
            self.crash.acknowledged.set()


class StoredAgent:
    """The agent of `blindsight run`, with a list as its source, and a store and a reports file in a folder.

    A second agent in the same folder resumes from the state of the first one, even after a crash.

    Parameters
    ----------
    folder : Path
        The folder, in which `store` and `windows.ndjson` are created.
    settings : EngineSettings
    records : sequence
        The records and markers; see `ListSource`.
    crash : Crash, optional
        The crash of this agent; none by default.
    per_read : int
        The number of records of one read; a checkpoint follows each read.
    max_bytes, keep
        The settings `reports.max_bytes` and `reports.keep` of the configuration.

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
        self.source = _AcknowledgedSource(records, per_read)
        if crash is not None:
            self.source.crash = crash
        self.sinks = _FileSinks(self._follower, crash)
        kept = Kept(self._keeper, 0.0, tasks_as_json(dict(settings.tasks)), tuple(resumed.reports))
        decode = Decoder(layouts(settings.tasks), self.source.name).decode
        self.agent = Agent(resumed.engine, [Input(self.source, decode)], self.sinks, store=kept)

    def run(self, timeout_seconds: float = 60.0) -> bool:
        """Run until `Marker.END` or a timeout, close the agent, and return whether the end was reached."""
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
