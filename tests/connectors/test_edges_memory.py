"""The memory that a source needs is bounded, whatever comes: one huge record, many, a batch that unpacks."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from secrets import token_hex
from typing import Any

import httpx
import pytest
from kafka import KafkaProducer

from tests.services.kafka_broker import KafkaBroker
from tests.services.kafka_reading import JOIN_FAST
from tests.services.postgres_server import PostgresServer
from tests.services.process import PATIENCE_SECONDS, Driver, stop

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc: needs Linux")

MIB = 1 << 20
ROOM = 400
"""MiB of address space beyond what an open source has: threads take 8 of it each, and touch little."""


DECODING = """
import resource, sys
from pathlib import Path
from connectors.formats.decode.decoder import Decoder
from monitor.base.source import RawBlock, RawMessages
from tests.connectors.cases import LAYOUT
from tests.connectors.reading_within import status
decoder = Decoder([LAYOUT], "file")
data = sys.stdin.buffer.read()
raw = RawMessages([data], "p", [0]) if data.startswith(b"[") else RawBlock(data, "p", 0)
decoder.decode([RawBlock(b"x\\n{}\\n", "p", 0)])
room = status("VmSize") + int(sys.argv[1]) * (1 << 20)
resource.setrlimit(resource.RLIMIT_AS, (room, room))
chunk = decoder.decode([raw])
kept = sum(len(each.raw) + len(each.message) + 300 for each in chunk.rejects)
print(chunk.answers, sum(each.answers for each in chunk.rejects), chunk.rejected, kept)
"""


@pytest.mark.parametrize(
    ("data", "count"),
    [(b"{}\n" * 340_000, 340_000), (b"x\n" * 200_000, 200_000), (b"[" + b"{}," * 300_000 + b"{}]", 300_001)],
    ids=["objects", "no JSON", "one message"],
)
def test_of_rejects(data: bytes, count: int) -> None:
    """Each of the shortest records of a mebibyte is rejected, and counted, within 230 MiB."""
    words = [sys.executable, "-c", DECODING, "230"]
    limits: Any = {"timeout": PATIENCE_SECONDS, "env": {**os.environ, "MALLOC_ARENA_MAX": "1"}}
    done = subprocess.run(words, input=data, capture_output=True, check=False, **limits)
    assert done.returncode == 0, done.stderr.decode()[-2000:]
    *counted, kept = map(int, done.stdout.split())
    assert counted == [count] * 3
    assert kept < 17 * MIB


@contextmanager
def reading(
    section: Mapping[str, Any], count: int, room: int = ROOM, database: Sequence[str] = ()
) -> Iterator[Any]:
    """Run a program that reads `count` records of a source within its bound; yield its port."""
    words = [
        sys.executable,
        "-m",
        "tests.connectors.reading_within",
        json.dumps(section),
        str(count),
        str(room),
        *database,
    ]
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    process = subprocess.Popen(words, env={**os.environ, "MALLOC_ARENA_MAX": "1"}, **pipes)
    try:
        assert process.stdin is not None
        assert process.stdout is not None
        process.port = int(process.stdout.readline())  # type: ignore[attr-defined]
        yield process
    finally:
        stop(process, kill=True)
        process.stdin.close()  # type: ignore[union-attr]
        process.stdout.close()  # type: ignore[union-attr]


def outcome(process: Any) -> dict[str, Any]:
    figures: dict[str, Any] = json.loads(process.stdout.readline())
    print(f"{figures['records']} records, peak {figures['peak']:.0f} MiB, errors {figures['errors']}")
    return figures


def record(number: int, size: int) -> bytes:
    return b'{"id": "%d", "model": "m", "scores": [0.25, 0.75], "note": "%s"}' % (number, b"x" * size)


def pour(process: Any, lines: Callable[[], Iterator[bytes]]) -> None:
    for line in lines():
        process.stdin.write(line)
    process.stdin.close()


def one_long_line() -> Iterator[bytes]:
    yield from (b"x" * MIB for _ in range(300))
    yield b"\n" + record(1, 10) + b"\n"


def many_large_lines() -> Iterator[bytes]:
    yield from (record(number, 900_000) + b"\n" for number in range(300))


@pytest.mark.parametrize(("lines", "count"), [(one_long_line, 2), (many_large_lines, 300)])
def test_of_standard_input(lines: Callable[[], Iterator[bytes]], count: int) -> None:
    with reading({"kind": "stdin"}, count) as process:
        pour(process, lines)
        figures = outcome(process)
    assert figures["records"] == count
    assert figures["peak"] < 100


@pytest.mark.parametrize(("lines", "count"), [(one_long_line, 2), (many_large_lines, 300)])
def test_of_a_followed_file(lines: Callable[[], Iterator[bytes]], count: int, tmp_path: Path) -> None:
    path = tmp_path / "records.ndjson"
    with path.open("wb") as file:
        file.writelines(lines())
    with reading({"kind": "file", "path": str(path), "follow": True}, count) as process:
        figures = outcome(process)
    assert figures["records"] == count
    assert figures["peak"] < 100


def test_of_posts(tmp_path: Path) -> None:
    """Large posts, and posts that unpack to a hundred times their size."""
    read_posts({"spool": {"path": str(tmp_path / "spool")}})


@pytest.mark.postgres
def test_of_posts_that_rest_in_a_database(postgres_server: PostgresServer) -> None:
    read_posts({}, (postgres_server.dsn, f"memory_{token_hex(4)}"))


def read_posts(section: Mapping[str, Any], database: Sequence[str] = ()) -> None:
    whole = {"kind": "http", "listen": "127.0.0.1:0", **section}
    with reading(whole, 100, database=database) as process:
        url = f"http://127.0.0.1:{process.port}/v1/predictions"
        headers = {"content-type": "application/x-ndjson"}
        body = b"".join(record(number, 900_000) + b"\n" for number in range(4))
        packed = {**headers, "content-encoding": "gzip"}
        bomb = gzip.compress(bytes(64 * MIB), 1)
        with httpx.Client(timeout=PATIENCE_SECONDS) as client:
            for number in range(25):
                assert client.post(url, content=body, headers=headers).status_code == 202
                if number % 10 == 0:
                    assert client.post(url, content=bomb, headers=packed).status_code == 413
        figures = outcome(process)
    assert figures["records"] == 100
    assert figures["peak"] < 200


@pytest.mark.parametrize(
    ("count", "size", "batch"),
    [(1, 900_000, MIB), (100, 900_000, MIB), (30_000, 1000, 60 * MIB)],
    ids=["one huge", "many huge", "unpacks to a hundred times"],
)
def test_of_a_topic(
    kafka_broker: KafkaBroker,
    kafka_driver: Driver,
    request: pytest.FixtureRequest,
    count: int,
    size: int,
    batch: int,
) -> None:
    topic = f"memory-{count}-{kafka_driver}"
    kafka_broker.create_topic(topic, 1)
    packed = {"compression_type": "gzip"} if batch > MIB else {}
    limits = {"batch_size": batch, "max_request_size": 200 * MIB, "linger_ms": 5000 if packed else 0}
    producer = KafkaProducer(bootstrap_servers=kafka_broker.address, acks="all", **limits, **packed)
    for number in range(count):
        producer.send(topic, record(number, size))
    producer.flush(timeout=PATIENCE_SECONDS)
    producer.close()
    place = {"brokers": [kafka_broker.address], "topics": [topic], "group": topic}
    section = {"kind": "kafka", "driver": kafka_driver, "options": JOIN_FAST, **place}
    with reading(section, count) as process:
        figures = outcome(process)
    assert figures["records"] == count
    assert figures["peak"] < 300
