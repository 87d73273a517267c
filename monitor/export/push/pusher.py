"""The base class of pushers: threads that keep one server up to date."""

from __future__ import annotations

import logging
import threading
import time
from abc import ABC, abstractmethod
from contextlib import suppress

from monitor.base.errors import SinkError
from monitor.export.push.access import Access
from monitor.export.sinks.destination import CLOSE_SECONDS
from monitor.reports.views import SinkView

log = logging.getLogger("blindsight")

_FIRST_LOOK_SECONDS = 1.0
_TIMEOUT_SECONDS = 5.0
_LONGEST_WAIT_SECONDS = 30.0
_STOP_SECONDS = 2.0


class Pusher(ABC):
    """A thread that sends the present state to one server at regular intervals.

    The thread and the rest of the agent never wait for each other. There is no queue: after an outage, the
    server receives the present state.

    Parameters
    ----------
    name : str
        The label `sink` of the metrics.
    access : Access
    where : str
        Key and address of the server, for the log.
    items : str
        The name of the sent items, for the log.
    seconds : float
        Time between two pushes.
    timeout_seconds : float
        Time limit of one request.
    """

    def __init__(
        self,
        name: str,
        access: Access,
        where: str,
        items: str,
        *,
        seconds: float,
        timeout_seconds: float = _TIMEOUT_SECONDS,
    ) -> None:
        self._name, self._access, self._where, self._items = name, access, where, items
        self._seconds, self._timeout = seconds, timeout_seconds
        self._wait = min(seconds, _FIRST_LOOK_SECONDS)
        self._delivered = self._waiting = self._lost = 0
        self._trouble: str | None = None
        self._failing_since: float | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"blindsight-{name}", daemon=True)

    @abstractmethod
    def push(self, now: float) -> None:
        """Send everything that is due at the time `now`.

        Raises
        ------
        SinkError
            The server cannot be reached, or has refused.
        """

    @property
    def view(self) -> SinkView:
        """The state of the pusher, which the page and the metrics list among the agent's sinks."""
        return SinkView(
            self._name, self._waiting, self._delivered, self._lost, self._trouble, self._failing_since
        )

    def start(self) -> None:
        """Start the thread. If the server is down, the thread tries again until the server accepts requests.

        Raises
        ------
        SinkError
            A file of the login or of the certificates cannot be used.
        """
        self._access.check()
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread within two seconds. Before, send the newest state, unless the last push failed."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join(_STOP_SECONDS)

    def _run(self) -> None:
        while not self._stopping.wait(self._wait):
            try:
                self.push(time.time())
            except SinkError as error:
                self._failed(str(error))
            except Exception as error:
                log.exception("%s: %s could not be told; it is tried again.", self._where, self._items)
                self._failed(str(error))
        self._timeout = CLOSE_SECONDS
        if self._trouble is None:
            # The results of the last windows; if this fails, the next start sends them.
            with suppress(SinkError):
                self.push(time.time())

    def _failed(self, why: str) -> None:
        if self._trouble is None:
            self._failing_since = time.time()
            log.warning("%s; it is tried again, with all that holds by then", why)
        self._trouble = why
        self._wait = min(2 * self._wait, max(self._seconds, _LONGEST_WAIT_SECONDS))

    def _succeeded(self) -> None:
        if self._trouble is not None:
            log.warning("%s takes %s again", self._where, self._items)
        self._trouble = self._failing_since = None
        self._wait = self._seconds
