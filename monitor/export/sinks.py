"""Where the agent's output goes: closed windows and rejected records, each to its file."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from monitor.export.follower import ReportFollower
from monitor.export.rejects import RejectWriter
from monitor.export.reports import ReportWriter
from monitor.records import Chunk
from monitor.report import WindowReport, to_json

_CLOSE_SECONDS = 1.0


class FileSinks:
    """The files that the configuration names. No method but `close` waits for a disk.

    Parameters
    ----------
    report_writer : ReportWriter, ReportFollower or None
        A follower takes the windows from the store itself: it only has to be told.
    reject_writer : RejectWriter or None
    watch : callable, optional
        Shown the closed windows too; runs in the engine's thread, so it must be quick.
    """

    def __init__(
        self,
        report_writer: ReportWriter | ReportFollower | None,
        reject_writer: RejectWriter | None,
        watch: Callable[[Sequence[WindowReport]], None] | None = None,
    ) -> None:
        self._reports = report_writer
        self._rejects = reject_writer
        self._watch = watch

    def start(self) -> None:
        """Open the files; raises `SinkError` where one cannot be written."""
        for writer in (self._reports, self._rejects):
            if writer is not None:
                writer.start()

    def reports(self, reports: Sequence[WindowReport]) -> None:
        """Take closed windows."""
        if self._watch is not None:
            self._watch(reports)
        if isinstance(self._reports, ReportFollower):
            self._reports.wake()
        elif self._reports is not None:
            for report in reports:
                self._reports.write(to_json(report))

    def rejects(self, chunk: Chunk) -> None:
        """Take what could not be used."""
        if self._rejects is not None:
            for reject in chunk.rejects:
                self._rejects.add(reject, chunk.source)

    @property
    def lost(self) -> int:
        """Reports that could not be written."""
        return self._reports.lost if isinstance(self._reports, ReportWriter) else 0

    def close(self) -> None:
        """Write what waits, for a second at most each."""
        for writer in (self._reports, self._rejects):
            if writer is not None:
                writer.close(_CLOSE_SECONDS)
