"""Sinks that copy reports from the store, so that every closed window arrives once, even after a kill.

A thread copies new reports from the store to a file or a topic. The next checkpoint saves the position of the
copy. After a crash, the destination determines which later reports it already has.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping

from monitor.base.errors import SinkError, StoreError
from monitor.export.sinks.destination import FollowedDestination, Mark, ReportStore, Row, Sink

log = logging.getLogger("blindsight")

_AT_ONCE = 500
_RETRY_SECONDS = 1.0


class ReportFollower(Sink):
    """A sink that delivers the store's reports in order.

    While the destination accepts no items, reports wait in the store. The store keeps the newest
    `keep_reports` reports and drops older ones. Reports that are dropped before their delivery count as lost.

    Parameters
    ----------
    destination : FollowedDestination
    store : ReportStore
        After the start, only the sink's thread reads it.
    saved : mapping of str to (int, int)
        The destination's `marks` at the last checkpoint.
    """

    _destination: FollowedDestination

    def __init__(
        self, destination: FollowedDestination, store: ReportStore, saved: Mapping[str, Mark]
    ) -> None:
        super().__init__(destination)
        self._store = store
        self._saved = saved
        self._resumed = False
        self._rows: list[Row] = []  # under delivery; the store may drop them meanwhile
        self._last = self._newest = destination.last_of(saved)
        self._wake = threading.Event()
        self._stop = threading.Event()

    @property
    def marks(self) -> Mapping[str, Mark]:
        """The `marks` of the destination, to save with the next checkpoint."""
        return self._destination.marks

    def start(self) -> None:
        """Open the destination, and begin to deliver the missing reports.

        Raises
        ------
        SinkError
            The destination cannot be opened.
        """
        super().start()
        self.wake()

    def wake(self) -> None:
        """Wake the thread, because the store has new reports."""
        self._wake.set()

    def close(self, timeout: float) -> bool:
        """Deliver reports for at most `timeout` seconds, and stop. Return whether all were delivered.

        Undelivered reports stay in the store.
        """
        self._stop.set()
        self._wake.set()
        self._join(timeout)
        return self._thread.ident is not None and not self._thread.is_alive() and self._failing is None

    def _waiting(self) -> int:
        """Return the number of waiting reports, as of the newest reading of the store."""
        return max(0, self._newest - self._last)

    def _run(self) -> None:
        while True:
            self._wake.wait()
            self._wake.clear()
            # A stop during a copy leads to another copy, for the newest reports.
            stopping = self._stop.is_set()
            while not (complete := self._copy()) and not self._stop.wait(_RETRY_SECONDS):
                pass
            if stopping or not complete:
                self._destination.close(0.0)
                return

    def _copy(self) -> bool:
        """Deliver all new reports, and return whether the delivery succeeded."""
        try:
            self._newest = self._store.newest_report()
            if not self._resumed:
                self._last = self._destination.resume(self._saved, self._store.reports_after)
                self._resumed = True
            while self._rows or self._fetch():
                done = self._destination.deliver(self._rows)
                self._last = self._rows[done - 1][0]
                self._delivered += done
                self._rows = self._rows[done:]
                self._newest = max(self._newest, self._last)
                self._works()
        except (SinkError, StoreError) as error:
            self._fails(str(error))
            return False
        except Exception as error:
            log.exception("%s: has failed; it is tried again.", self._destination.setting)
            self._fails(str(error))
            return False
        self._works()
        return True

    def _fetch(self) -> bool:
        """Read the next reports, and return whether there are any."""
        self._rows = self._store.reports_after(self._last, _AT_ONCE)
        if self._rows and self._last:  # before the first report, the sink has missed none
            gone = self._rows[0][0] - self._last - 1
            if gone:
                self._lost += gone
                log.error(
                    "%s: %d windows were dropped from the store before %s could take them; raise "
                    "store.keep_reports to outlast longer outages.",
                    self._destination.setting,
                    gone,
                    self._destination.where,
                )
        return bool(self._rows)

    def _fails(self, why: str) -> bool:
        is_new = super()._fails(why)
        if is_new:
            log.error("%s: %s. It is tried again.", self._destination.setting, why)
        try:
            self._newest = max(self._newest, self._store.newest_report())
        except StoreError as error:
            log.debug("How much waits is not known: %s.", error)
        return is_new

    def _works(self) -> bool:
        had_failed = super()._works()
        if had_failed:
            log.info("%s: %s takes windows again.", self._destination.setting, self._destination.where)
        return had_failed
