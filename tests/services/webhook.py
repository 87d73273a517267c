"""Somebody who is paged: an HTTP server that keeps what it is told."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

Notice = dict[str, Any]
"""A notification as Alertmanager's webhooks have it: `status`, `alerts`, `groupLabels`, …"""


class LocalServer:
    """An HTTP server in a thread of its own, on a free port of 127.0.0.1. A context manager.

    Parameters
    ----------
    handler : type
        Of one request.
    """

    def __init__(self, handler: type[BaseHTTPRequestHandler]) -> None:
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    @property
    def url(self) -> str:
        """``http://host:port``."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class Webhook(LocalServer):
    """A server that takes every POST, and answers 200."""

    def __init__(self) -> None:
        notices: list[tuple[str, Notice]] = []

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                notices.append((self.path, json.loads(body)))
                self.send_response(200)
                self.end_headers()

            def log_message(self, *words: Any) -> None:
                """Write nothing on standard error."""

        self._notices = notices
        super().__init__(Handler)

    def matching(self, path: str, status: str, **labels: str) -> list[Notice]:
        """Return notifications to a path that hold an alert with this status and these labels, in order."""
        return [
            notice
            for where, notice in list(self._notices)
            if where == path and any(_fits(alert, status, labels) for alert in notice["alerts"])
        ]


def _fits(alert: Mapping[str, Any], status: str, labels: Mapping[str, str]) -> bool:
    return bool(alert["status"] == status and labels.items() <= alert["labels"].items())
