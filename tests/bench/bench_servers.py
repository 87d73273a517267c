"""The bounds on posts that HTTP servers keep: ``python -m tests.bench.bench_servers [--servers granian]``.

It compares our own server over h11 with uvicorn (on httptools and on h11), hypercorn and granian, each with
its best settings, before the same handler and spool. The three are in no extra: ``pip install uvicorn
httptools hypercorn granian``; one that is missing is left out.

Each server runs in a process of its own. The time for a head, a body and an answer is 5 s, and 288
connections are the most that may be held (`max_requests` and 256 more). 2,000 sockets send a byte a second,
first of a head, then of a body, while one client posts 20 times a second over a new connection each time.
Processor time is the server's; wall milliseconds depend on other load.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import logging
import re
import selectors
import socket
import ssl
import tempfile
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from connectors.formats.decode.decoder import Decoder
from connectors.http import HttpSource
from monitor.base.records import TaskLayout
from monitor.config.root import HttpSourceConfig as Settings
from monitor.export.http.messages import BodyError, HttpRequest
from tests.bench.bench_http import TASK, body, load, post
from tests.harness import processor_seconds, resident, run
from tests.services.authority import Authority
from tests.services.process import free_ports, wait_until

SECONDS = 5.0
MOST_REQUESTS = 32
MOST_CONNECTIONS = MOST_REQUESTS + 256
SLOW_SECONDS = 9
BYTE_CHUNKS = 60_000
REQUEST_LINE = b"POST /v1/predictions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"

Tls = tuple[str, str] | None


# --- the servers, each in a process of its own ------------------------------------------------------------


def opened(port: int, folder: str, tls: Tls) -> HttpSource:
    """Return our source, whose spool a thread reads and decodes as the agent does."""
    layouts = [TaskLayout(name, classes) for name, classes in TASK.items()]
    settings = Settings(
        kind="http",
        listen=f"127.0.0.1:{port}",
        spool={"path": folder},
        read_seconds=SECONDS,
        max_requests=MOST_REQUESTS,
        **({"tls": {"cert": tls[0], "key": tls[1]}} if tls else {}),
    )
    source = HttpSource(settings, layouts)
    source.open({})

    def use() -> None:
        decoder = Decoder(layouts, source.name)
        while True:
            if raws := source.read(0.1):
                source.acknowledge(decoder.decode(raws).positions)

    threading.Thread(target=use, daemon=True).start()
    return source


def asgi(folder: str) -> Callable[..., Any]:
    """Return the handler of posts as an ASGI application, which bounds the time of a body beneath any
    server.
    """
    posts = opened(0, folder, None)._posts

    async def app(scope: dict[str, Any], receive: Callable[..., Any], send: Callable[..., Any]) -> None:
        async def parts() -> AsyncIterator[bytes]:
            by, more = asyncio.get_running_loop().time() + SECONDS, True
            while more:
                try:
                    async with asyncio.timeout_at(by):
                        message = await receive()
                except TimeoutError:
                    raise BodyError(408, "The body is late") from None
                if message["type"] == "http.disconnect":
                    raise BodyError(400, "The body is broken off")
                more = message.get("more_body", False)
                yield message.get("body", b"")

        if scope["type"] != "http":
            return
        headers = {name.decode("ascii"): text.decode("latin-1") for name, text in scope["headers"]}
        response = await posts(HttpRequest(scope["method"], scope["path"], headers, parts))
        named = {"content-length": str(len(response.body)), **response.headers}
        pairs = [(name.encode(), text.encode()) for name, text in named.items()]
        await send({"type": "http.response.start", "status": response.status, "headers": pairs})
        await send({"type": "http.response.body", "body": response.body})

    return app


def serve_own(port: int, folder: str, tls: Tls) -> None:
    opened(port, folder, tls)
    threading.Event().wait()


def serve_uvicorn(http: str) -> Callable[[int, str, Tls], None]:
    def serve(port: int, folder: str, tls: Tls) -> None:
        import uvicorn

        uvicorn.run(
            asgi(folder),
            port=port,
            http=http,
            loop="asyncio",
            ws="none",
            lifespan="off",
            log_level="critical",
            access_log=False,
            timeout_keep_alive=int(SECONDS),
            limit_concurrency=MOST_CONNECTIONS,
            h11_max_incomplete_event_size=16 << 10,
            ssl_certfile=tls and tls[0],
            ssl_keyfile=tls and tls[1],
        )

    return serve


def serve_hypercorn(port: int, folder: str, tls: Tls) -> None:
    import hypercorn.asyncio
    from hypercorn.config import Config

    config = Config()
    config.bind = [f"127.0.0.1:{port}"]
    config.keep_alive_timeout = config.ssl_handshake_timeout = SECONDS
    config.loglevel = "CRITICAL"
    if tls:
        config.certfile, config.keyfile = tls
    asyncio.run(hypercorn.asyncio.serve(asgi(folder), config))  # type: ignore[arg-type]


def serve_granian(port: int, folder: str, tls: Tls) -> None:
    from granian.constants import HTTPModes, Interfaces
    from granian.http import HTTP1Settings
    from granian.server.embed import Server

    async def serve() -> None:
        await Server(
            asgi(folder),
            port=port,
            interface=Interfaces.ASGINL,
            http=HTTPModes.http1,
            websockets=False,
            log_enabled=False,
            backpressure=MOST_CONNECTIONS,
            http1_settings=HTTP1Settings(header_read_timeout=int(SECONDS * 1000), max_buffer_size=16 << 10),
            ssl_cert=Path(tls[0]) if tls else None,
            ssl_key=Path(tls[1]) if tls else None,
        ).serve()

    asyncio.run(serve())


SERVERS: dict[str, tuple[str, Callable[[int, str, Tls], None]]] = {
    "own h11": ("h11", serve_own),
    "uvicorn": ("httptools", serve_uvicorn("httptools")),
    "uvicorn h11": ("uvicorn", serve_uvicorn("h11")),
    "hypercorn": ("hypercorn", serve_hypercorn),
    "granian": ("granian", serve_granian),
}


# --- what is measured ------------------------------------------------------------------------------------


@dataclass
class Server:
    """One that runs."""

    port: int
    pid: int

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=30)

    @property
    def memory(self) -> float:
        """MiB resident."""
        return resident(self.pid) / (1 << 20)

    @property
    def processor(self) -> float:
        return processor_seconds(self.pid)

    @property
    def sockets(self) -> int:
        """The number of sockets that the process holds."""
        return sum(link.startswith("socket") for link in self._links())

    @property
    def listens(self) -> bool:
        """True if this process has the port (`man 5 proc`: 0A is listening)."""
        rows = [row.split() for row in Path("/proc/net/tcp").read_text(encoding="ascii").splitlines()[1:]]
        inodes = [row[9] for row in rows if row[1].endswith(f":{self.port:04X}") and row[3] == "0A"]
        return any(f"socket:[{inode}]" in self._links() for inode in inodes)

    def _links(self) -> list[str]:
        links = []
        for each in Path(f"/proc/{self.pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                links.append(str(each.readlink()))
        return links

    def ask(self, data: bytes, seconds: float = 30) -> bytes:
        """Return all bytes of the answer until the other side closes, or for these seconds."""
        with self.connect() as connection:
            connection.settimeout(seconds)
            sending = threading.Thread(target=_send, args=(connection, data))
            sending.start()
            received = b""
            with contextlib.suppress(OSError):
                while part := connection.recv(65_536):
                    received += part
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            sending.join()
            return received


def _send(connection: socket.socket, data: bytes) -> None:
    with contextlib.suppress(OSError):
        connection.sendall(data)


@contextmanager
def running(name: str, tls: Tls = None) -> Iterator[Server]:
    [port] = free_ports(1)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        process = get_context("spawn").Process(target=_serve, args=(name, port, folder, tls))
        process.start()
        assert process.pid is not None
        server = Server(port, process.pid)
        try:
            wait_until(lambda: server.listens, "it listens", 0.01)
            yield server
        finally:
            process.kill()
            process.join()


def _serve(name: str, port: int, folder: str, tls: Tls) -> None:
    logging.disable()  # of each refusal the handler writes a line
    SERVERS[name][1](port, folder, tls)


@dataclass
class Fast:
    """A client that goes on as it should: a post each 50 ms, on a new connection."""

    latencies: list[float] = field(default_factory=list)
    failed: int = 0

    @contextmanager
    def beside(self, server: Server) -> Iterator[None]:
        ended = threading.Event()

        def work() -> None:
            while not ended.is_set():
                began = time.monotonic()
                fine = False
                with contextlib.suppress(OSError), server.connect() as connection:
                    connection.settimeout(10)
                    fine = post(connection, body(0))
                self.latencies.append(time.monotonic() - began)
                self.failed += not fine
                ended.wait(0.05)

        thread = threading.Thread(target=work)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def __str__(self) -> str:
        latencies = sorted(self.latencies)
        middle, worst = latencies[len(latencies) // 2], latencies[-1]
        times = f"p50 {middle * 1e3:.0f} ms, worst {worst * 1e3:,.0f} ms"
        return f"{times}, {self.failed} of {len(latencies)} refused"


@dataclass
class Slow:
    """The fate of sockets that send a byte a second."""

    held: int
    mib: float
    processor: float
    ends: Counter[str]
    fast: Fast

    def rows(self, what: str) -> dict[str, str]:
        ends = ", ".join(f"{count} {how}" for how, count in self.ends.most_common())
        held = f"{self.held} sockets, {self.mib:+.0f} MiB, {self.processor:.1f} s of processor"
        return {
            f"{what}: held at most": held,
            f"{what}: by {SLOW_SECONDS} s": ends,
            f"{what}: a fast client": str(self.fast),
        }


def slowly(server: Server, head: bytes, dripped: bytes, count: int) -> Slow:
    """Open `count` connections; each sends `head` at once, and then a byte a second."""
    fast, ends, selector = Fast(), Counter[str](), selectors.DefaultSelector()
    with fast.beside(server):
        time.sleep(0.5)
        before, worked, memory, held = server.memory, server.processor, 0.0, 0
        open_ = {}
        for _ in range(count):
            each = socket.socket()
            each.setblocking(False)
            each.connect_ex(("127.0.0.1", server.port))
            open_[each] = 0
            selector.register(each, selectors.EVENT_READ)
        start = time.monotonic()
        for second in range(SLOW_SECONDS):
            for each in list(open_):
                with contextlib.suppress(OSError):
                    each.send(head + dripped[:1] if not open_[each] else dripped[second : second + 1])
                    open_[each] = 1
            while (left := start + second + 1 - time.monotonic()) > 0:
                for key, _ in selector.select(left):
                    ends[_end_of(key.fileobj)] += 1  # type: ignore[arg-type]
                    selector.unregister(key.fileobj)
                    del open_[key.fileobj]  # type: ignore[arg-type]
                if not open_:
                    time.sleep(max(left, 0))
            memory, held = max(memory, server.memory), max(held, server.sockets)
        ends["still held or queued"] = len(open_)
        worked = server.processor - worked
        for each in open_:
            each.close()
    return Slow(held, memory - before, worked, +ends, fast)


def _end_of(connection: socket.socket) -> str:
    with connection:
        try:
            answer = connection.recv(1000)
        except OSError:
            return "cut"
    return f"answered {answer.split(b' ', 2)[1].decode()}" if answer else "closed"


def bytewise(server: Server) -> dict[str, str]:
    """Return a valid post, in chunks of one byte."""
    content = body(0)
    content += b" " * (BYTE_CHUNKS - len(content))
    data = REQUEST_LINE + b"transfer-encoding: chunked\r\nconnection: close\r\n\r\n"
    data += b"".join(b"1\r\n%c\r\n" % byte for byte in content) + b"0\r\n\r\n"
    fast = Fast()
    with fast.beside(server):
        time.sleep(0.5)
        worked = server.processor
        status = _statuses(server.ask(data))
        worked = server.processor - worked
    return {
        f"{BYTE_CHUNKS:,} chunks of one byte": f"{status}, {worked * 1e3:.0f} ms of processor",
        "  a fast client beside": str(fast),
    }


def _statuses(answer: bytes) -> str:
    return " and ".join(status.decode() for status in re.findall(rb"HTTP/1.1 (\d+) ", answer)) or "no answer"


def oddities(server: Server) -> dict[str, str]:
    smuggled = REQUEST_LINE + b"content-length: 2\r\nconnection: close\r\n\r\n[]"
    both = REQUEST_LINE + b"content-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n" + smuggled
    large = REQUEST_LINE + b"content-length: 6000000\r\n\r\n" + b" " * 6_000_000
    head = REQUEST_LINE + b"x: " + b"y" * 20_000 + b"\r\n\r\n"
    return {
        "Content-Length and Transfer-Encoding": _statuses(server.ask(both, 7)),
        "a head of 20 kB": _statuses(server.ask(head, 7)),
        "a body too large, sent whole": _statuses(server.ask(large, 7)),
        "an answer that nobody takes": _never_read(server),
    }


def _never_read(server: Server) -> str:
    """Ask on and on for answers of 8 kB, and read nothing."""
    request = REQUEST_LINE + b"content-length: 201\r\n\r\n[" + b"1," * 99 + b"1]"
    with server.connect() as connection:
        connection.setblocking(False)
        before, start, sent = server.memory, time.monotonic(), 0
        while time.monotonic() < start + 4 * SECONDS:
            try:
                sent += connection.send(request[sent % len(request) :] + request * 100)
            except BlockingIOError:
                time.sleep(0.05)
            except OSError:
                return f"cut after {time.monotonic() - start:.0f} s, {server.memory - before:+.0f} MiB"
        return f"held after {4 * SECONDS:.0f} s, {server.memory - before:+.0f} MiB"


def secured(name: str, folder: Path) -> dict[str, str]:
    """Return whether a handshake has a time limit, and whether the server shows a new certificate."""
    authority = Authority(folder / name.replace(" ", "-"))
    cert, key = authority.sign("before")
    with running(name, (str(cert), str(key))) as server:
        trusting = ssl.create_default_context(cafile=str(authority.cert))
        start = time.monotonic()
        with server.connect() as silent:
            silent.settimeout(3 * SECONDS)
            try:
                silent.recv(1)
                waited = f"closed after {time.monotonic() - start:.0f} s"
            except OSError:
                waited = f"held after {3 * SECONDS:.0f} s"
        cert.write_bytes(authority.sign("after")[0].read_bytes())
        key.write_bytes((authority.folder / "after.key").read_bytes())
        time.sleep(2.5)
        with trusting.wrap_socket(server.connect(), server_hostname="127.0.0.1") as shown:
            subject: Any = (shown.getpeercert() or {}).get("subject")
        return {
            "a handshake that does not go on": waited,
            "a certificate renewed": f"{subject[0][0][1]} is shown",
        }


def measured(name: str, slow: int, seconds: float, folder: Path) -> dict[str, str]:
    rows = {}
    with running(name) as server:
        rows["until it listens"] = f"{server.processor:.2f} s of processor, {server.memory:.0f} MiB"
        load(server.port, 0.0, 1.0)
        worked = server.processor
        line = load(server.port, 0.0, seconds)
        posts = int(line.rpartition(" posts")[0].split()[-1])
        rows["posts of 100 rows"] = f"{(server.processor - worked) / posts * 1e3:.2f} ms of processor"
        rows["  as fast as it goes"] = line.partition("   p99.9")[0].strip()
    for what, head, dripped in (
        ("heads", b"", REQUEST_LINE),
        ("bodies", REQUEST_LINE + b"content-length: 1000\r\n\r\n", b" " * 100),
    ):
        with running(name) as server:
            rows |= slowly(server, head, dripped, slow).rows(f"slow {what}")
    with running(name) as server:
        rows |= bytewise(server) | oddities(server)
    return rows | secured(name, folder)


def table(
    servers: tuple[str, ...] = tuple(SERVERS), slow: int = 2_000, seconds: float = 5.0
) -> Iterator[str]:
    """Yield a block of lines a server."""
    with tempfile.TemporaryDirectory() as folder:
        for name in servers:
            if importlib.util.find_spec(SERVERS[name][0]) is None:
                yield f"{name}: not installed"
                continue
            yield name
            for what, how in measured(name, slow, seconds, Path(folder)).items():
                yield f"  {what:38s} {how}"


if __name__ == "__main__":
    run(table, keep=False)
