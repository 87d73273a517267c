"""Cost of posts: ``python -m tests.bench.bench_http``.

The source runs in its own process, with a thread that reads and decodes its spool, as in the agent. Clients
post 100 rows at a time over open connections, at a set rate (open loop: a post's latency counts from its due
time, so delayed posts do not hide a stall). The last round is as fast as the same clients can post.

``python -m tests.bench.bench_http chunks``: one client posts 20 times a second, alone, and then while others
send bodies whose chunks hold a byte each, as fast as they are taken, over and over.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing import Pipe, get_context
from multiprocessing.connection import Connection
from pathlib import Path

from connectors.formats.decode.decoder import Decoder
from connectors.http import HttpSource
from monitor.base.records import TaskLayout
from monitor.config.root import HttpSourceConfig as Settings
from tests.harness import run

ROWS = 100
CLIENTS = 8
TASK = {"toxicity": ("ok", "toxic")}


@dataclass
class Times:
    """Latencies of posts in seconds, and how many were not answered 202."""

    latencies: list[float] = field(default_factory=list)
    refused: int = 0

    def line(self, seconds: float) -> str:
        found = sorted(self.latencies)
        p50, p99, p999 = (found[int(len(found) * q)] * 1000 for q in (0.5, 0.99, 0.999))
        return (
            f"{len(found) * ROWS / seconds:9,.0f} rows/s   p50 {p50:6.2f} ms   p99 {p99:6.2f} ms   "
            f"p99.9 {p999:6.2f} ms   {len(found)} posts, {self.refused} refused"
        )


def body(post: int) -> bytes:
    """100 predictions with ids, about 130 bytes each."""
    rows = [
        {
            "id": f"req-{post * ROWS + i:09d}",
            "time": 1_795_000_000 + post,
            "task": "toxicity",
            "model": f"model-{i % 4}",
            "scores": [round(1 - (i % 97) / 100, 4), round((i % 97) / 100, 4)],
        }
        for i in range(ROWS)
    ]
    return json.dumps(rows).encode()


def connect(port: int) -> socket.socket:
    found = socket.create_connection(("127.0.0.1", port))
    found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return found


def post(connection: socket.socket, content: bytes) -> bool:
    """Send one post and wait for its answer; whether that was 202."""
    head = (
        "POST /v1/predictions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        f"content-length: {len(content)}\r\n\r\n"
    )
    connection.sendall(head.encode() + content)
    answer = b""
    while b"\r\n\r\n" not in answer or not answer.endswith(b"}\n"):
        part = connection.recv(65_536)
        if not part:
            raise ConnectionError("the server has hung up")
        answer += part
    return answer.startswith(b"HTTP/1.1 202")


def client(port: int, number: int, every: float, start: float, end: float, times: Times) -> None:
    """Post at this client's moments (every 0: as fast as it goes) until the end."""
    bodies = [body(number * 1000 + i) for i in range(16)]
    with connect(port) as connection:
        due, i = start + every * number / CLIENTS, 0
        while due < end:
            time.sleep(max(due - time.perf_counter(), 0.0))
            began = due if every else time.perf_counter()
            fine = post(connection, bodies[i % len(bodies)])
            times.latencies.append(time.perf_counter() - began)
            times.refused += not fine
            i += 1
            due = due + every if every else time.perf_counter()


def now_and_then(port: int, seconds: float) -> str:
    """A post, and the next 50 ms after its answer; a latency counts from the sending."""
    times, end = Times(), time.perf_counter() + seconds
    with connect(port) as connection:
        while time.perf_counter() < end:
            began = time.perf_counter()
            times.refused += not post(connection, body(len(times.latencies)))
            times.latencies.append(time.perf_counter() - began)
            time.sleep(0.05)
    return times.line(seconds)


def disk(folder: str, seconds: float) -> str:
    """What the disk alone takes: as many appends of a post's bytes, each synced, at the same pace."""
    times, content = Times(), body(0)
    every = ROWS / 20_000
    with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
        start = due = time.perf_counter()
        while due < start + seconds:
            time.sleep(max(due - time.perf_counter(), 0.0))
            file.write(content)
            os.fdatasync(file.fileno())
            times.latencies.append(time.perf_counter() - due)
            due += every
    return times.line(time.perf_counter() - start)


def load(port: int, rows_per_second: float, seconds: float) -> str:
    """One round; 0 rows a second: as fast as it goes."""
    times = Times()
    every = CLIENTS * ROWS / rows_per_second if rows_per_second else 0.0
    start = time.perf_counter() + 0.2
    threads = [
        threading.Thread(target=client, args=(port, i, every, start, start + seconds, times))
        for i in range(CLIENTS)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return times.line(time.perf_counter() - start)


@contextmanager
def served(folder: str) -> Iterator[int]:
    """The port of a server in a process of its own."""
    ours, theirs = Pipe()
    server = get_context("spawn").Process(target=serve, args=(folder, theirs))
    server.start()
    try:
        yield ours.recv()
    finally:
        ours.send("enough")
        server.join()


def serve(folder: str, told: Connection) -> None:
    """The server's process: tells its port, ends when it is told anything."""
    layouts = [TaskLayout(name, classes) for name, classes in TASK.items()]
    source = HttpSource(Settings(kind="http", listen="127.0.0.1:0", spool={"path": folder}), layouts)
    source.open({})
    decoder, ended = Decoder(layouts, source.name), threading.Event()

    def use() -> None:
        while not ended.is_set():
            if raws := source.read(0.1):
                source.acknowledge(decoder.decode(raws).positions)

    thread = threading.Thread(target=use)
    thread.start()
    told.send(source.port)
    told.recv()
    ended.set()
    thread.join()
    source.close()


def table(
    seconds: float = 15.0, rows_per_second: float = 20_000.0, folder: Path | None = None
) -> Iterator[str]:
    """The disk alone, then posts; the spool rests in the folder, a temporary one if none is given."""
    with tempfile.TemporaryDirectory(dir=folder) as spool, served(spool) as port:
        load(port, rows_per_second, 1.0)
        yield f"Append and sync alone, 200 a second:  {disk(spool, seconds / 3)}"
        yield f"Posts of {ROWS} rows, {len(body(0))} bytes, over {CLIENTS} connections:"
        yield f"  at {rows_per_second:,.0f} rows/s:      {load(port, rows_per_second, seconds)}"
        yield f"  as fast as it goes:   {load(port, 0.0, seconds / 3)}"


@contextmanager
def tiny_chunks(port: int, connections: int) -> Iterator[None]:
    """So many connections send bodies in chunks of one byte until this is left; none of them ends."""
    head = b"POST /v1/predictions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    ended = threading.Event()

    def send() -> None:
        while not ended.is_set():
            with contextlib.suppress(OSError), connect(port) as connection:
                connection.settimeout(1.0)
                connection.sendall(head + b"transfer-encoding: chunked\r\n\r\n")
                while not ended.is_set():
                    with contextlib.suppress(TimeoutError):
                        connection.sendall(b"1\r\n \r\n" * 10_000)

    threads = [threading.Thread(target=send) for _ in range(connections)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ended.set()
        for thread in threads:
            thread.join()


def chunks(seconds: float = 20.0, connections: int = 16) -> Iterator[str]:
    """What others notice of bodies in chunks of one byte."""
    with tempfile.TemporaryDirectory() as spool, served(spool) as port:
        yield f"A client that posts {ROWS} rows 20 times a second:"
        yield f"  alone:                                    {now_and_then(port, seconds / 2)}"
        with tiny_chunks(port, connections):
            time.sleep(1.0)
            yield f"  beside {connections:3} bodies in chunks of one byte: {now_and_then(port, seconds)}"


if __name__ == "__main__":
    run({"posts": table, "chunks": chunks}, keep=False)
