"""The agent's output: closed windows and rejected records, each to files and topics."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from monitor.base.records import Chunk
from monitor.export.sinks.destination import CLOSE_SECONDS
from monitor.export.sinks.follower import ReportFollower
from monitor.export.sinks.queued import QueuedSink
from monitor.export.sinks.rejects_file import Rejected
from monitor.reports.views import SinkView
from monitor.reports.window_report import WindowReport, to_json

ReportSink = ReportFollower | QueuedSink[bytes]
"""A follower takes the windows from the store itself: it only has to be told."""


@dataclass(frozen=True, slots=True)
class SinkSet:
    """Every sink that the configuration names."""

    reports: Sequence[ReportSink] = field(default=())
    rejects: Sequence[QueuedSink[Rejected]] = field(default=())

    @property
    def all(self) -> list[ReportSink | QueuedSink[Rejected]]:
        """Those of reports first."""
        return [*self.reports, *self.rejects]


class AgentSinks:
    """The files and topics that the configuration names. No method but `close` waits for any of them.

    Parameters
    ----------
    sinks : SinkSet
    watch : callable, optional
        Shown the closed windows too; runs in the engine's thread, so it must be quick.
    """

    def __init__(self, sinks: SinkSet, watch: Callable[[Sequence[WindowReport]], None] | None = None) -> None:
        self._sinks = sinks
        self._watch = watch

    def start(self) -> None:
        """Open the destinations; raises `SinkError` where one cannot be had."""
        for sink in self._sinks.all:
            sink.start()

    def reports(self, reports: Sequence[WindowReport]) -> None:
        """Take closed windows."""
        if self._watch is not None:
            self._watch(reports)
        queues = []
        for sink in self._sinks.reports:
            if isinstance(sink, ReportFollower):
                sink.wake()
            else:
                queues.append(sink)
        if queues:
            for line in map(to_json, reports):
                for queue in queues:
                    queue.write(line)

    def rejects(self, chunk: Chunk) -> None:
        """Take what could not be used."""
        for sink in self._sinks.rejects:
            for reject in chunk.rejects:
                sink.write((reject, chunk.source))

    @property
    def lost(self) -> int:
        """Closed windows that are missing in a sink, counted once for each that they are missing in."""
        return sum(sink.view.lost for sink in self._sinks.reports)

    @property
    def views(self) -> tuple[SinkView, ...]:
        """How each of them stands."""
        return tuple(sink.view for sink in self._sinks.all)

    def close(self) -> None:
        """Deliver what waits, for a second at most each."""
        for sink in self._sinks.all:
            sink.close(CLOSE_SECONDS)
