"""Helpers of the HTTP source's tests: a source on a free port, raw requests, rows."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from connectors.http import HttpSource
from monitor.base.records import TaskLayout
from monitor.base.source import RawBlock
from monitor.config.root import HttpSourceConfig as HttpSettings
from tests.services.process import PATIENCE_SECONDS

SPAM = TaskLayout("spam", ("no", "yes"))
HAM = TaskLayout("ham", ("no", "yes"))
SECRET = "spam-token-0123456789"


def row(number: int | str = 0, **more: Any) -> dict[str, Any]:
    return {"id": str(number), "task": "spam", "model": "m", "scores": [0.25, 0.75], **more}


def label(number: int | str = 0, **more: Any) -> dict[str, Any]:
    return {"id": str(number), "task": "spam", "label": "yes", **more}


def ndjson(rows: Sequence[dict[str, Any]]) -> bytes:
    return b"".join(json.dumps(each).encode() + b"\n" for each in rows)


class Posted:
    """A source that listens, and a client of it."""

    def __init__(self, folder: Path, layouts: Sequence[TaskLayout] = (SPAM, HAM), **settings: Any) -> None:
        section = {"kind": "http", "listen": "127.0.0.1:0", "spool": {"path": str(folder)}, **settings}
        self.settings = HttpSettings(**section)
        self.source = HttpSource(self.settings, layouts)
        self.client = httpx.Client()

    def open(self, positions: dict[str, int] | None = None) -> None:
        self.source.open(positions or {})
        self.client = httpx.Client(base_url=f"http://127.0.0.1:{self.source.port}", timeout=PATIENCE_SECONDS)

    def close(self) -> None:
        self.client.close()
        self.source.close()

    def post(self, content: Any, path: str = "/v1/predictions", **headers: str) -> httpx.Response:
        named = {key.replace("_", "-"): value for key, value in headers.items()}
        if not isinstance(content, bytes):
            content = json.dumps(content).encode()
        return self.client.post(path, content=content, headers={"content-type": "application/json", **named})

    def read_rows(self) -> list[dict[str, Any]]:
        """Return the records that the source hands out now."""
        return [json.loads(line) for line in self.lines()]

    def lines(self) -> list[bytes]:
        lines: list[bytes] = []
        while raws := self.source.read(0.0):
            for raw in raws:
                assert isinstance(raw, RawBlock)
                lines += raw.data.splitlines()
        return lines

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.source.port), timeout=PATIENCE_SECONDS)

    def raw(self, data: bytes) -> bytes:
        """Return everything that is answered to these bytes until the other side closes."""
        with self.connect() as connection:
            connection.sendall(data)
            return rest_of(connection)


def rest_of(connection: socket.socket) -> bytes:
    received = b""
    try:
        while part := connection.recv(65_536):
            received += part
    except ConnectionResetError:
        pass
    return received


@contextmanager
def posting(folder: Path, layouts: Sequence[TaskLayout] = (SPAM, HAM), **settings: Any) -> Iterator[Posted]:
    made = Posted(folder, layouts, **settings)
    made.open()
    try:
        yield made
    finally:
        made.close()


def status_of(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


def head(**headers: str) -> bytes:
    lines = ["POST /v1/predictions HTTP/1.1", "host: 127.0.0.1", "content-type: application/json"]
    lines += [f"{key.replace('_', '-')}: {value}" for key, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode()
