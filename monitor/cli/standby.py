"""The HTTP side of a daemon that waits for its store and reads no records yet."""

from __future__ import annotations

import logging
import threading
from contextlib import ExitStack
from types import TracebackType

from monitor.cli.outputs import exporter
from monitor.config.root import Config
from monitor.export.prometheus.collector import registry
from monitor.reports.views import AgentView

log = logging.getLogger("blindsight")

_LOOK_SECONDS = 0.5


class StandBy:
    """A context manager that serves the health checks of a waiting daemon, and frees the port at its exit.

    `/-/healthy` answers 200, and `/-/ready` answers 503 with the reason. `/metrics` holds no model, because
    the state of models is not known yet.

    Parameters
    ----------
    config : Config
    stopping : threading.Event or None
        An event that ends the wait; None if the daemon must not wait.
    """

    def __init__(self, config: Config, stopping: threading.Event | None) -> None:
        self._config = config
        self._stopping = stopping
        self._view = AgentView()
        self._open = ExitStack()

    def __enter__(self) -> StandBy:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.close()

    def wait(self, reason: str) -> bool:
        """Wait a moment, and return whether to try to open the store again; see `monitor.cli.state.Wait`."""
        if self._stopping is None:
            return False
        first = not self._view.reasons
        self._view = AgentView(reasons=(f"Stand-by: {reason}.",))
        if first:
            self._serve()
            log.info("Stand-by: %s. It is tried again every %.1f s.", reason, _LOOK_SECONDS)
        return not self._stopping.wait(_LOOK_SECONDS)

    def _serve(self) -> None:
        export = self._config.export
        metrics = registry(lambda: self._view, export.max_series, distributions=export.distributions)
        server = exporter(export, lambda: self._view, metrics, {})
        server.start()
        self._open.callback(server.stop)
        log.info("Stand-by: health on port %d of %s.", server.port, export.listen.rsplit(":", 1)[0])
