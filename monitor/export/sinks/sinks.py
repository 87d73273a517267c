"""The sinks of the agent, which write closed windows and rejected records to files and topics."""

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
"""A sink of reports: a follower of the store, which only needs to be woken, or a queue of lines."""


@dataclass(frozen=True, slots=True)
class SinkSet:
    """The sinks that a configuration names: for reports and for rejected records."""

    reports: Sequence[ReportSink] = field(default=())
    rejects: Sequence[QueuedSink[Rejected]] = field(default=())

    @property
    def all(self) -> list[ReportSink | QueuedSink[Rejected]]:
        """All sinks, beginning with the sinks of reports."""
        return [*self.reports, *self.rejects]


class AgentSinks:
    """The sinks of a running agent. Only `close` waits for a sink.

    Parameters
    ----------
    sinks : SinkSet
    watch : callable, optional
        A function that also receives the closed windows. It runs in the engine's thread, so it must be quick.
    """

    def __init__(self, sinks: SinkSet, watch: Callable[[Sequence[WindowReport]], None] | None = None) -> None:
        self._sinks = sinks
        self._watch = watch

    def start(self) -> None:
        """Open the destinations. Raise `SinkError` if any of them cannot be used."""
        for sink in self._sinks.all:
            sink.start()

    def reports(self, reports: Sequence[WindowReport]) -> None:
        """Pass closed windows to the sinks of reports."""
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
        """Pass the rejected records of a chunk to the sinks of rejects."""
        for sink in self._sinks.rejects:
            for reject in chunk.rejects:
                sink.write((reject, chunk.source))

    @property
    def lost(self) -> int:
        """The number of closed windows that sinks have lost. A window that two sinks lost counts twice."""
        return sum(sink.view.lost for sink in self._sinks.reports)

    @property
    def views(self) -> tuple[SinkView, ...]:
        """The state of each sink, such as the numbers of waiting and delivered items."""
        return tuple(sink.view for sink in self._sinks.all)

    def close(self) -> None:
        """Deliver the waiting items, for at most a second for each sink, and stop."""
        for sink in self._sinks.all:
            sink.close(CLOSE_SECONDS)
