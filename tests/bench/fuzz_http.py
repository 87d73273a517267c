"""Posts wrong input: ``python -m tests.bench.fuzz_http [--bodies 100000] [--requests 4000]``.

Bodies are made of the mutated records of `tests.bench.fuzz_decoder`, our own and those of serving stacks: as
NDJSON, arrays and mixtures; nested
deeply, with numbers of a thousand digits, in wrong UTF-8; packed by gzip and then cut, damaged, doubled or
said to be what they are not. Most go to the real handler with its decoder and its spool. Some thousands go
over a socket to a real agent, with wrong lengths, broken chunks, half requests and a trickle of bytes.

None may be answered 500 or with anything that the table in `connectors.http.handler` does not name. The spool
must contain exactly the accepted records, and the accounting identities must hold.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import random
import socket
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from connectors.formats.decode.decoder import Decoder
from connectors.formats.wires.choice import wire_of
from connectors.http import HttpSource
from connectors.http.access import Quota
from connectors.http.handler import Posts
from connectors.http.intake import Intake
from connectors.http.spool import Spool
from monitor.agent.agent import Agent
from monitor.base.source import Input, RawBlock
from monitor.config.layouts import layouts
from monitor.config.root import HttpSourceConfig as HttpSettings
from monitor.config.root import Task
from monitor.engine.engine import EngineSettings
from monitor.export.http.gate import Gate
from monitor.export.http.messages import HttpRequest, Response
from monitor.testing import ListSinks
from tests.accounting import assert_adds_up
from tests.bench.fuzz_decoder import GOOD, LAYOUTS, STACKS, check_chunk, mutate
from tests.harness import run
from tests.services.process import wait_until

PATHS = ("/v1/predictions", "/v1/labels", "/v1/observe/kserve", "/v1/observe/scorer")
OBSERVED = {"scorer": {"id": "id", "model": "model_name", "scores": "predictions[0]", "label": "label"}}
TYPES = (
    "application/json",
    "application/x-ndjson; charset=utf-8",
    "application/json; charset=latin-1",
    "text/xml",
)
ALLOWED = {202, 400, 404, 405, 408, 411, 413, 414, 415, 429, 431, 501, 503}
AT_ONCE = 64
MOST_BYTES = 200_000
SLOW_EVERY = 500


@dataclass(frozen=True, slots=True)
class Post:
    """One request to be made."""

    path: str
    headers: dict[str, str]
    body: bytes


def body_of(rng: random.Random) -> bytes:
    """Return bytes that resemble a body."""
    records = [mutate(rng, GOOD if rng.random() < 0.5 else STACKS) for _ in range(rng.randrange(1, 6))]
    shapes = (
        lambda: b"\n".join(records),
        lambda: b"[" + b",".join(records) + b"]",
        lambda: b"[" + b",".join([*records, b"1", b"null", b'"x"', b"[]", b"{}"][: rng.randrange(9)]) + b"]",
        lambda: b"[" * (depth := rng.choice((10, 500, 2000, 50_000))) + b"]" * rng.choice((0, depth)),
        lambda: b'{"groups":' * rng.choice((5, 900, 20_000)) + records[0],
        lambda: records[0].replace(b"0.", b"1" * rng.choice((30, 1000, 5000)) + b"."),
        lambda: records[0] + b"e" + b"9" * rng.randrange(1, 400),
        lambda: rng.randbytes(rng.randrange(200)),
        lambda: records[0].replace(b"req", b"\xc3\x28\xed\xa0\x80"),
        lambda: b"\xef\xbb\xbf" + records[0],
        lambda: rng.choice((b"", b" \n\r\n ", b"null", b"[]", b"{}", b'"', b"[{}", b"\x00" * 40)),
        lambda: b"\r\n".join(records) + b"\r\n" * 3,
        lambda: b"[" + b",".join(records)[: rng.randrange(400)],
    )
    return rng.choices(shapes, weights=(30, 30, 10, *[2] * (len(shapes) - 3)))[0]()


def packed(rng: random.Random, body: bytes) -> bytes:
    """Return a body as gzip, whole or not."""
    whole = gzip.compress(body, 1)
    at = rng.randrange(len(whole))
    shapes = (
        lambda: whole,
        lambda: whole[:at],
        lambda: whole[:at] + bytes([whole[at] ^ (1 << rng.randrange(8))]) + whole[at + 1 :],
        lambda: whole + gzip.compress(b"\n" + body, 1),
        lambda: whole + b"rest",
        lambda: gzip.compress(b" " * rng.choice((10_000, 10 * MOST_BYTES))),
        lambda: body,
    )
    return rng.choices(shapes, weights=(40, 20, 20, 5, 5, 5, 5))[0]()


def post_of(rng: random.Random) -> Post:
    """Return a request that a client might make that is broken."""
    body, headers = body_of(rng), {"host": "localhost", "content-type": "application/json"}
    if rng.random() < 0.3:
        body = packed(rng, body)
        headers["content-encoding"] = "gzip"
    if rng.random() < 0.2:
        headers["content-type"] = rng.choice(TYPES)
    headers["content-length"] = str(len(body))
    if rng.random() < 0.1:
        kind = rng.choice(("response", "request", "", "\xff"))
        headers |= {
            "ce-specversion": "1.0",
            "ce-id": "e",
            "ce-type": f"org.kubeflow.serving.inference.{kind}",
        }
    return Post(rng.choices(PATHS, weights=(6, 2, 1, 1))[0], headers, body)


class Tally:
    """The answers: how often each status, and how much was accepted on each path."""

    def __init__(self) -> None:
        self.statuses: Counter[int] = Counter()
        self.accepted: Counter[str] = Counter()

    def add(self, post: Post, status: int, content: dict[str, object]) -> None:
        """Count an answer; AssertionError for one that nobody should get."""
        assert status in ALLOWED, f"{status} {content} to {post.path} {post.headers} {post.body[:300]!r}"
        self.statuses[status] += 1
        if status == 202:
            assert content["accepted"] or content["ignored"], content
            self.accepted[post.path] += int(str(content["accepted"]))


def settings_of(folder: Path) -> HttpSettings:
    spool = {"path": str(folder / "spool"), "max_bytes": 1 << 30}
    return HttpSettings(
        kind="http",
        listen="127.0.0.1:0",
        spool=spool,
        max_body_bytes=MOST_BYTES,
        max_requests=2 * AT_ONCE,
        read_seconds=1.0,
        observe=OBSERVED,
    )


def into_handler(folder: Path, bodies: int, seed: int) -> Tally:
    """Give bodies to the handler, and compare its answers with the rows read back."""
    settings, tally, rng = settings_of(folder), Tally(), random.Random(seed)
    spool = Spool(folder / "spool", 1 << 30)
    spool.open(None)
    with ThreadPoolExecutor(1) as workers:
        names = tuple(layout.name for layout in LAYOUTS)
        posts = Posts(
            settings, Gate([]), Quota(None), Intake(LAYOUTS, wire_of(settings)), spool, workers, names
        )
        # In a thread of its own: Playwright's loop runs in that of the tests once one has had a browser.
        with ThreadPoolExecutor(1) as own:
            own.submit(asyncio.run, _all(posts, bodies, rng, tally)).result()
    read: Counter[str] = Counter()
    decoder = Decoder(
        LAYOUTS, "http", wire=wire_of(settings), clock=time.time
    )  # as the intake: what is a day ahead is bad_time
    while parts := spool.read(0.0):
        chunk = decoder.decode([RawBlock(each.lines, "spool", each.start, each.labels) for each in parts])
        check_chunk(chunk)
        assert not chunk.ignored  # what holds no answer is counted by the handler, and not kept
        read["rows"] += sum(map(len, chunk.batches)) + sum(map(len, chunk.labels))
    spool.close()
    accepted = sum(tally.accepted.values())
    assert read["rows"] == accepted, f"answered that {tally.accepted} were accepted, and kept {read}"
    assert sum(tally.statuses.values()) == bodies
    return tally


async def _all(posts: Posts, bodies: int, rng: random.Random, tally: Tally) -> None:
    for start in range(0, bodies, AT_ONCE):
        group = [post_of(rng) for _ in range(min(AT_ONCE, bodies - start))]
        for post, answer in zip(group, await asyncio.gather(*(_give(posts, p) for p in group)), strict=True):
            tally.add(post, answer.status, json.loads(answer.body))


async def _give(posts: Posts, post: Post) -> Response:
    async def parts() -> AsyncIterator[bytes]:
        for start in range(0, len(post.body), 50_000):
            yield post.body[start : start + 50_000]

    return await posts(HttpRequest("POST", post.path, post.headers, parts))


def on_the_wire(rng: random.Random, post: Post) -> list[bytes]:
    """Return a request as bytes, in the pieces in which it is sent: as it should be, or broken."""
    headers, body = dict(post.headers), post.body
    kind = rng.randrange(8)
    if kind == 0:
        headers["content-length"] = str(max(0, len(body) + rng.choice((-9, -1, 1, 50, 10**9))))
    elif kind == 1:
        headers["content-length"] = rng.choice(("-1", "x", "1e3", "9" * 30, "1, 2"))
    elif kind == 2:
        del headers["content-length"]
        headers["transfer-encoding"] = "chunked"
        size = rng.choice((b"%x" % len(body), b"%x" % (len(body) + 3), b"zz", b"f" * 40))
        body = size + b"\r\n" + body + b"\r\n" + rng.choice((b"0\r\n\r\n", b"0\r\n", b""))
    elif kind == 3:
        headers["x-" + "a" * rng.choice((10, 70_000))] = "b"
    lines = [f"{name}: {value}" for name, value in {"connection": "close", **headers}.items()]
    method = rng.choice(("POST", "POST", "POST", "GET", "BREW"))
    data = "\r\n".join([f"{method} {post.path} HTTP/1.1", *lines, "", ""]).encode() + body
    if kind == 4:
        data = data[: rng.randrange(len(data))]
    return [data]


def exchange(port: int, pieces: list[bytes], pause_seconds: float = 0.0) -> bytes:
    """Send these bytes and nothing more, and return the answer."""
    received = b""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        try:
            for piece in pieces:
                connection.sendall(piece)
                time.sleep(pause_seconds)
            connection.shutdown(socket.SHUT_WR)
            while part := connection.recv(65_536):
                received += part
        except (ConnectionResetError, BrokenPipeError):
            pass  # it may refuse while we still send
    return received


def over_the_socket(folder: Path, requests: int, seed: int) -> Tally:
    """Give requests to a real agent over TCP; it must be there, and whole, at the end."""
    tally, rng = Tally(), random.Random(seed)
    tasks = {
        layout.name: Task(classes=list(layout.classes), models={name: {} for name in layout.models})
        for layout in LAYOUTS
    }
    known, settings = layouts(tasks, numbered=True), settings_of(folder)
    source, decoder = HttpSource(settings, known), Decoder(known, "http", wire=wire_of(settings))
    engine = EngineSettings(tasks, numbered=True).build()
    agent = Agent(engine, [Input(source, decoder.decode)], ListSinks())
    agent.start()
    try:
        for number in range(requests):
            post = post_of(rng)
            pieces = on_the_wire(rng, post)
            slow = number % SLOW_EVERY == 0
            if slow:
                pieces = [pieces[0][i : i + 40] for i in range(0, 800, 40)]
            _hear(tally, post, exchange(source.port, pieces, 0.07 if slow else 0.0))
        wait_until(lambda: not source.lag, "all is read")
        wanted = sum(tally.accepted.values())
        wait_until(lambda: _used(agent) >= wanted, f"{wanted} are used, not {_used(agent)}")
        assert agent.view().ready
        assert_adds_up(agent.view())
    finally:
        agent.stop()
        agent.wait(10)
    return tally


def _used(agent: Agent) -> int:
    view = agent.view().engine
    return (
        sum(s.predictions + s.pending + s.duplicates for s in view.series if not s.group)
        + sum(count for (_, outcome), count in view.labels.items() if outcome != "rejected")
        + sum(view.labels_waiting.values())
    )


def _hear(tally: Tally, post: Post, answer: bytes) -> None:
    """Count an answer; none at all, where the request was not whole, is one too."""
    if not answer:
        tally.statuses[0] += 1
        return
    head, _, rest = answer.partition(b"\r\n\r\n")
    status = int(head.split(b" ", 2)[1])
    tally.add(post, status, json.loads(rest) if status == 202 else {})


def table(bodies: int = 100_000, requests: int = 4_000, seed: int = 0) -> Iterator[str]:
    """Yield the counts of the answers."""
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as two:
        handler = into_handler(Path(one), bodies, seed)
        wire = over_the_socket(Path(two), requests, seed + 1)
    for name, tally in (("to the handler", handler), ("over a socket", wire)):
        shown = ", ".join(
            f"{status or 'closed'}: {count:,}" for status, count in sorted(tally.statuses.items())
        )
        yield f"{sum(tally.statuses.values()):,} bodies {name} (seed {seed}): {shown}"
        accepted = tally.accepted
        observed = accepted[PATHS[2]] + accepted[PATHS[3]]
        yield (
            f"  accepted {accepted[PATHS[0]]:,} answers, {accepted[PATHS[1]]:,} labels and {observed:,} "
            "of both at /v1/observe, every one kept"
        )
    yield "no 500, no crash, both accounting identities held"


if __name__ == "__main__":
    run(table, keep=False)
