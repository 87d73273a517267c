"""A daemon that waits for its store: it says so over HTTP, and takes nothing in."""

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
    """What a stand-by is to the outside. A context manager: its port is free again outside.

    Its `/-/healthy` answers 200, its `/-/ready` 503 with the reason. Its metrics have no model, so that
    nothing of it is taken for the state of one.

    Parameters
    ----------
    config : Config
    stopping : threading.Event or None
        Ends the wait; None for no wait at all.
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
        """Wait a moment, as `monitor.cli.state.Wait`."""
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
