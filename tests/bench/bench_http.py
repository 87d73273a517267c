"""Cost of posts: ``python -m tests.bench.bench_http``.

The source runs in its own process, with a thread that reads and decodes its spool, as in the agent. Clients
post 100 rows at a time over open connections, at a set rate (open loop: a post's latency counts from its due
time, so delayed posts do not hide a stall). The last round is as fast as the same clients can post.

``python -m tests.bench.bench_http formats``: the same posts, and posts of mixed formats to one port without a
mapping, in turns: our own, events of KServe in three modes, the protocols v1 and Open Inference in JSON and
with binary tensors, Seldon's, SageMaker's, inference tables', Debezium's, and one that names its source.
Processor time is that of the server, with the reading of its spool; the rows sent are compared with the rows
used.

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
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing import Pipe, get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from connectors.formats.decode.decoder import Decoder
from connectors.formats.wires.choice import wire_of
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
    sent: int = 0
    ignored: int = 0

    def line(self, seconds: float) -> str:
        latencies = sorted(self.latencies)
        p50, p99, p999 = (latencies[int(len(latencies) * q)] * 1000 for q in (0.5, 0.99, 0.999))
        return (
            f"{len(latencies) * ROWS / seconds:9,.0f} rows/s   p50 {p50:6.2f} ms   p99 {p99:6.2f} ms   "
            f"p99.9 {p999:6.2f} ms   {len(latencies)} posts, {self.refused} refused"
        )


def body(post: int) -> bytes:
    """Return 100 predictions with ids, about 130 bytes each."""
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


@dataclass(frozen=True)
class Sent:
    """A body, and how it is posted; `rows` answers are in it, beside `ignored` records without any."""

    content: bytes
    path: str = "/v1/predictions"
    headers: str = "content-type: application/json"
    rows: int = ROWS
    ignored: int = 0


SCORES = [[round(1 - i / 100, 2), round(i / 100, 2)] for i in range(ROWS)]
KIND = "org.kubeflow.serving.inference."
EVENT = {"specversion": "1.0", "type": f"{KIND}response", "inferenceservicename": "erm"}
BINARY = "\r\n".join(f"ce-{name}: {value}" for name, value in EVENT.items())
SOURCE = {"connector": "postgresql", "db": "app", "table": "answers"}


def of_formats(post: int) -> dict[str, Sent]:
    """Return a body of 100 rows of each format."""
    tens = [SCORES[start : start + 10] for start in range(0, ROWS, 10)]
    ids = [f"r-{post}-{i}" for i in range(ROWS)]
    v2 = {"model_name": "erm", "model_version": "3", "id": ids[0]}
    output = {"name": "p", "shape": [ROWS, 2], "datatype": "FP32"}
    flat = [each for row in SCORES for each in row]
    head = json.dumps({**v2, "outputs": [{**output, "parameters": {"binary_data_size": 8 * ROWS}}]}).encode()
    tensor = np.array(flat, dtype="<f4").tobytes()
    rows = [{"id": id_, "model": "erm", "scores": each} for id_, each in zip(ids, SCORES, strict=True)]
    changes = [{"before": None, "after": row, "source": SOURCE, "op": "c", "ts_ms": 1} for row in rows]
    deleted = {"before": rows[0], "after": None, "source": SOURCE, "op": "d", "ts_ms": 1}
    csv = ["".join(f"{ok},{toxic}\n" for ok, toxic in part) for part in tens]
    answers = [json.dumps({"predictions": part}) for part in tens]
    about = {"model_name": "erm", "model_version": "3"}
    names = {"content-type": "application/json", "inference-header-content-length": len(head)}
    batch = [{**EVENT, "id": ids[i], "data": {"predictions": part}} for i, part in enumerate(tens)]
    request = {**EVENT, "id": ids[0], "type": f"{KIND}request", "data": {"instances": SCORES[:10]}}
    bodies: dict[str, Any] = {
        "ours": json.loads(body(post)),
        "KServe, batched": Sent(json.dumps([*batch, request]).encode(), ignored=1),
        "KServe, structured": {**EVENT, "id": ids[0], "data": {"predictions": SCORES}},
        "KServe, binary": Sent(
            json.dumps({"predictions": SCORES}).encode(), headers=f"{BINARY}\r\nce-id: {ids[0]}"
        ),
        "V1": {"predictions": SCORES},
        "V2": {**v2, "outputs": [{**output, "data": flat}]},
        "V2, binary tensors": Sent(
            head + tensor, headers="\r\n".join(f"{name}: {value}" for name, value in names.items())
        ),
        "Seldon": {
            "data": {"names": ["t:0", "t:1"], "ndarray": SCORES},
            "meta": {"puid": ids[0], "requestPath": {"erm": "seldonio/sklearnserver:1.13.1"}},
        },
        "SageMaker": [
            {
                "captureData": {"endpointOutput": {"mode": "OUTPUT", "data": part, "encoding": "CSV"}},
                "eventMetadata": {"eventId": ids[i], "inferenceTime": "2026-02-14T17:25:49Z"},
                "eventVersion": "0",
            }
            for i, part in enumerate(csv)
        ],
        "inference table": [
            {"databricks_request_id": ids[i], "status_code": 200, "response": part, "request_metadata": about}
            for i, part in enumerate(answers)
        ],
        "Debezium": Sent(json.dumps([*changes, deleted]).encode(), ignored=1),
        "its source named": Sent(
            json.dumps([{"uuid": row["id"], "net": "erm", "p": row["scores"]} for row in rows]).encode(),
            "/v1/observe/scorer",
        ),
    }
    return {
        name: each if isinstance(each, Sent) else Sent(json.dumps(each).encode())
        for name, each in bodies.items()
    }


def connect(port: int) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def post(connection: socket.socket, content: bytes, sent: Sent | None = None) -> bool:
    """Send one post and wait for its answer; whether that was 202."""
    path, headers = ("/v1/predictions", "content-type: application/json")
    if sent is not None:
        path, headers = sent.path, sent.headers
    head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\n{headers}\r\ncontent-length: {len(content)}\r\n\r\n"
    connection.sendall(head.encode() + content)
    answer = b""
    while b"\r\n\r\n" not in answer or not answer.endswith(b"}\n"):
        part = connection.recv(65_536)
        if not part:
            raise ConnectionError("the server has hung up")
        answer += part
    return answer.startswith(b"HTTP/1.1 202")


def client(
    port: int, number: int, every: float, start: float, end: float, times: Times, posts: Sequence[Sent] = ()
) -> None:
    """Post at this client's moments (every 0: as fast as it goes) until the end."""
    bodies = posts or [Sent(body(number * 1000 + i)) for i in range(16)]
    with connect(port) as connection:
        due, i = start + every * number / CLIENTS, number
        while due < end:
            time.sleep(max(due - time.perf_counter(), 0.0))
            began = due if every else time.perf_counter()
            sent = bodies[i % len(bodies)]
            fine = post(connection, sent.content, sent)
            times.latencies.append(time.perf_counter() - began)
            times.refused += not fine
            times.sent += sent.rows
            times.ignored += sent.ignored
            i += 1
            due = due + every if every else time.perf_counter()


def now_and_then(port: int, seconds: float) -> str:
    """Return a post, and the next 50 ms after its answer; a latency counts from the sending."""
    times, end = Times(), time.perf_counter() + seconds
    with connect(port) as connection:
        while time.perf_counter() < end:
            began = time.perf_counter()
            times.refused += not post(connection, body(len(times.latencies)))
            times.latencies.append(time.perf_counter() - began)
            time.sleep(0.05)
    return times.line(seconds)


def disk(folder: str, seconds: float) -> str:
    """Return the time of the disk alone: as many appends of a post's bytes, each synced, at the same pace."""
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
    """Return one round; 0 rows a second: as fast as it goes."""
    return loaded(port, rows_per_second, seconds).line(seconds)


def loaded(port: int, rows_per_second: float, seconds: float, posts: Sequence[Sent] = ()) -> Times:
    """Return the latencies and the costs of one round."""
    times = Times()
    every = CLIENTS * ROWS / rows_per_second if rows_per_second else 0.0
    start = time.perf_counter() + 0.2
    threads = [
        threading.Thread(target=client, args=(port, i, every, start, start + seconds, times, posts))
        for i in range(CLIENTS)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return times


@contextmanager
def served(folder: str, used: Counter[str] | None = None) -> Iterator[int]:
    """Yield the port of a server in a process of its own; `used` gets what it used in the end."""
    ours, theirs = Pipe()
    server = get_context("spawn").Process(target=serve, args=(folder, theirs))
    server.start()
    try:
        yield ours.recv()
    finally:
        ours.send("enough")
        counts = ours.recv()
        server.join()
        if used is not None:
            used.update(counts)


def serve(folder: str, connection: Connection) -> None:
    """Run the server's process: send its port, wait for a message, and send its costs."""
    layouts = [TaskLayout(name, classes, models=("erm",)) for name, classes in TASK.items()]
    settings = Settings(
        kind="http",
        listen="127.0.0.1:0",
        spool={"path": folder},
        observe={"scorer": {"id": "uuid", "model": "net", "scores": "p"}},
    )
    source, used = HttpSource(settings, layouts), Counter[str]()
    source.open({})
    decoder, ended = Decoder(layouts, source.name, wire=wire_of(settings)), threading.Event()

    def use() -> None:
        while not ended.is_set() or source.lag:
            if raws := source.read(0.1):
                chunk = decoder.decode(raws)
                used["used"] += sum(map(len, chunk.batches))
                used["rejected"] += sum(reject.answers for reject in chunk.rejects)
                source.acknowledge(chunk.positions)

    thread = threading.Thread(target=use)
    thread.start()
    connection.send(source.port)
    before = time.process_time()
    connection.recv()
    ended.set()
    thread.join()
    used["ignored"] = source.refusals.ignored
    used["milliseconds"] = round(1000 * (time.process_time() - before))
    connection.send(used)
    source.close()


def table(
    seconds: float = 15.0, rows_per_second: float = 20_000.0, folder: Path | None = None
) -> Iterator[str]:
    """Yield the disk alone, then posts; the spool rests in the folder, a temporary one if none is given."""
    with tempfile.TemporaryDirectory(dir=folder) as spool, served(spool) as port:
        load(port, rows_per_second, 1.0)
        yield f"Append and sync alone, 200 a second:  {disk(spool, seconds / 3)}"
        yield f"Posts of {ROWS} rows, {len(body(0))} bytes, over {CLIENTS} connections:"
        yield f"  at {rows_per_second:,.0f} rows/s:      {load(port, rows_per_second, seconds)}"
        yield f"  as fast as it goes:   {load(port, 0.0, seconds / 3)}"


def formats(seconds: float = 15.0, rows_per_second: float = 20_000.0) -> Iterator[str]:
    """Yield posts of mixed formats on one port, beside posts of our own."""
    names = of_formats(0)
    mixed = [each for i in range(8) for each in of_formats(i).values()]
    own = [of_formats(i)["ours"] for i in range(16)]
    yield f"Posts of {ROWS} rows over {CLIENTS} connections at {rows_per_second:,.0f} rows/s, in turns:"
    cost: dict[str, list[float]] = {"our own": [], "mixed": []}
    for name, posts in (("our own", own), ("mixed", mixed)) * 2:
        used: Counter[str] = Counter()
        with tempfile.TemporaryDirectory() as spool, served(spool, used) as port:
            times = loaded(port, rows_per_second, seconds / 3, posts)
        assert (times.sent, times.ignored) == (used["used"] + used["rejected"], used["ignored"]), used
        cost[name].append(1000 * used["milliseconds"] / times.sent)
        yield f"  {name + ':':9} {times.line(seconds / 3)}"
        yield (
            f"            {times.sent:,} rows sent = {used['used']:,} used + {used['rejected']:,} rejected; "
            f"{used['ignored']:,} records without an answer passed over"
        )
    ours, others = (min(each) for each in cost.values())
    yield f"Processor time of a row, intake and reading: {ours:.1f} µs our own, {others:.1f} mixed"
    yield f"The formats: {', '.join(names)}"


@contextmanager
def tiny_chunks(port: int, connections: int) -> Iterator[None]:
    """Let `connections` connections send bodies in chunks of one byte, none of which ends."""
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
    """Yield the latency of other clients beside bodies in chunks of one byte."""
    with tempfile.TemporaryDirectory() as spool, served(spool) as port:
        yield f"A client that posts {ROWS} rows 20 times a second:"
        yield f"  alone:                                    {now_and_then(port, seconds / 2)}"
        with tiny_chunks(port, connections):
            time.sleep(1.0)
            yield f"  beside {connections:3} bodies in chunks of one byte: {now_and_then(port, seconds)}"


if __name__ == "__main__":
    run({"posts": table, "formats": formats, "chunks": chunks}, keep=False)
