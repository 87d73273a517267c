"""Sinks of reports behind a store: every closed window once, whatever was killed when.

The store has the windows; a thread copies what is new there to a file or a topic. How far it came is
saved with the next checkpoint, and after a crash the destination is asked what it has from there on.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping

from monitor.base.errors import SinkError, StoreError
from monitor.export.sinks.destination import FollowedDestination, Mark, ReportStore, Row, Sink
from monitor.reports.views import SinkView

log = logging.getLogger("blindsight")

_AT_ONCE = 500
_RETRY_SECONDS = 1.0


class ReportFollower(Sink):
    """Delivers the store's reports, in order.

    What the destination cannot take waits in the store, which keeps `keep_reports`: of those beyond, the
    oldest are dropped there, and counted here as lost.

    Parameters
    ----------
    destination : FollowedDestination
    store : ReportStore
        Read by this thread alone, once started.
    saved : mapping of str to (int, int)
        What the destination's `marks` were at the last checkpoint.
    """

    def __init__(
        self, destination: FollowedDestination, store: ReportStore, saved: Mapping[str, Mark]
    ) -> None:
        self._destination = destination
        self._store = store
        self._saved = saved
        self._resumed = False
        self._rows: list[Row] = []  # on their way: the store may drop them meanwhile
        self._last = self._newest = destination.last_of(saved)
        self._delivered = self._lost = 0
        self._wake = threading.Event()
        self._stop = threading.Event()
        self._failing: str | None = None
        self._failing_since: float | None = None
        name = f"blindsight-{destination.name}"
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    @property
    def marks(self) -> Mapping[str, Mark]:
        """How far the destination was written, to be saved with the next checkpoint."""
        return self._destination.marks

    @property
    def view(self) -> SinkView:
        """How it stands; what waits, as of the last look at the store."""
        return SinkView(
            name=self._destination.name,
            waiting=max(0, self._newest - self._last),
            delivered=self._delivered - self._destination.refused,
            lost=self._lost + self._destination.refused,
            trouble=self._failing,
            failing_since=self._failing_since,
        )

    def start(self) -> None:
        """Open the destination, and begin with what it does not have yet.

        Raises
        ------
        SinkError
            It cannot be had.
        """
        self._destination.open()
        self._thread.start()
        self.wake()

    def wake(self) -> None:
        """There may be new reports."""
        self._wake.set()

    def close(self, timeout: float) -> bool:
        """Deliver what is there, for so many seconds at most; the rest stays in the store."""
        self._stop.set()
        self._wake.set()
        if self._thread.ident is not None:
            self._thread.join(timeout)
            if self._thread.is_alive():
                self._destination.interrupt()
        return self._thread.ident is not None and not self._thread.is_alive() and self._failing is None

    def _run(self) -> None:
        while True:
            self._wake.wait()
            self._wake.clear()
            stopping = self._stop.is_set()  # a stop amid a copy leads to another: it may have looked too soon
            while not (complete := self._copy()) and not self._stop.wait(_RETRY_SECONDS):
                pass
            if stopping or not complete:
                self._destination.close(0.0)
                return

    def _copy(self) -> bool:
        """Deliver everything new; whether that went well."""
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
        """The next reports; whether there are any."""
        self._rows = self._store.reports_after(self._last, _AT_ONCE)
        if self._rows and self._last:  # before the first, older ones were never meant for it
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

    def _fails(self, why: str) -> None:
        if self._failing is None:
            self._failing_since = time.time()
            log.error("%s: %s. It is tried again.", self._destination.setting, why)
        self._failing = why
        try:
            self._newest = max(self._newest, self._store.newest_report())
        except StoreError as error:
            log.debug("How much waits is not known: %s.", error)

    def _works(self) -> None:
        if self._failing is not None:
            log.info("%s: %s takes windows again.", self._destination.setting, self._destination.where)
        self._failing = self._failing_since = None
