"""A source with a hundred thousand things of one kind takes seconds of processor and bounded memory.

Each test first makes the many things, and then measures the source alone. `kafka/test_many_partitions.py` has
partitions.
"""

from __future__ import annotations

import os
import resource
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from secrets import token_hex
from typing import Any

import fsspec
import pytest

from connectors.files import FileSource
from connectors.formats.files.folder import LocalFiles
from connectors.formats.files.remote import RemoteFiles
from connectors.redis_stream import RedisStream
from connectors.sql.source import SqlSource
from monitor.base.source import RawPosition, Source, records_in
from monitor.config.redis import RedisSourceConfig
from monitor.config.sql import SqlSourceConfig
from tests.services.process import wait_until
from tests.services.redis_server import RedisServer

MANY = 100_000
MIB = 1 << 20


class Measured:
    """The cost of a block of code."""

    seconds = 0.0
    """Of this process's processors."""
    mib = 0.0
    """By which the largest resident memory so far has risen."""


@contextmanager
def measured(what: str) -> Iterator[Measured]:
    cost, began, before = Measured(), time.process_time(), _peak()
    yield cost
    cost.seconds, cost.mib = time.process_time() - began, (_peak() - before) / MIB
    print(f"{what}: {cost.seconds:.1f} s of processor, {cost.mib:.0f} MiB")


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def read_until(source: Source[Any], count: int, positions: dict[str, Any]) -> None:
    """Read `count` records, and save their positions."""
    came = 0

    def all_came() -> bool:
        nonlocal came
        for raw in source.read(0.05):
            came += 0 if isinstance(raw, RawPosition) else records_in(raw)
            positions[raw.partition] = raw.after
        source.acknowledge(positions)
        assert came <= count, "a record came twice"
        return came == count

    wait_until(all_came, f"{count} records came", pause=0.001)


def known(names: list[str], mark: str) -> dict[str, Any]:
    """Return positions of files that were read."""
    return {name: {"at": 1, "mark": mark, "done": True} for name in names}


def test_of_files_in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A look at files that were read costs a listing; a new one among them is read."""
    monkeypatch.setattr(LocalFiles, "look_seconds", 0.1)
    first = tmp_path / "000000.csv"
    first.write_text("id,label\n1,yes\n")
    names = [str(first), *(f"{tmp_path}/{number:06}.csv" for number in range(1, MANY))]
    for number, name in enumerate(names[1:]):
        if number % 30_000 == 0:  # a file has no more than some ten thousand links
            file = tmp_path / f"{number}.aside"
            file.write_text("id,label\n1,yes\n")
            os.utime(file, ns=(1, 1))
        os.link(file, name)
    os.utime(first, ns=(1, 1))
    positions = known(names, f"{first.stat().st_size} 1")
    source = FileSource(f"{tmp_path}/*.csv", follow=True, complete_seconds=0.0)
    with closing(source), measured(f"{MANY:,} files") as cost:
        source.open(positions)
        wait_until(lambda: source.read(0.0) == [] and source.up, "it is up")
        (tmp_path / "new.csv").write_text("id,label\n2,yes\n")
        read_until(source, 1, positions)
    assert len(positions) == MANY + 1
    assert cost.seconds < 30
    assert cost.mib < 300


def test_of_objects_at_an_address(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bucket of S3: no object that was read is fetched again."""
    monkeypatch.setattr(RemoteFiles, "look_seconds", 0.1)
    place, files = f"many-{token_hex(4)}", fsspec.filesystem("memory")
    fetched: list[str] = []
    real = type(files).get_file

    def get_file(self: Any, path: str, *more: Any, **named: Any) -> None:
        fetched.append(path)
        real(self, path, *more, **named)

    monkeypatch.setattr(type(files), "get_file", get_file)
    for number in range(MANY):
        files.pipe_file(f"/{place}/{number:06}.csv", b"id,label\n1,yes\n")
    with closing(RemoteFiles(f"memory://{place}/*.csv", {})) as all_files:
        wait_until(lambda: all_files.marks(1.0) is not None, "they are listed")
        positions: dict[str, Any] = {
            name: {"at": 1, "mark": all_files.mark(name), "done": True} for name in all_files._known
        }
    source = FileSource(f"memory://{place}/*.csv", follow=True, complete_seconds=0.0)
    with closing(source), measured(f"{MANY:,} objects") as cost:
        source.open(positions)
        wait_until(lambda: source.read(0.05) == [] and source.up, "it is up")
        files.pipe_file(f"/{place}/new.csv", b"id,label\n2,yes\n")
        read_until(source, 1, positions)
    assert fetched == [f"/{place}/new.csv"]
    assert cost.seconds < 30
    assert cost.mib < 300


@pytest.mark.redis
def test_of_entries_that_wait_to_be_acknowledged(redis_server: RedisServer) -> None:
    """A consumer that is killed after it read them reads them once more, and acknowledges each."""
    name = f"many-{token_hex(4)}"
    settings = RedisSourceConfig(kind="redis", url=redis_server.url, stream=name)
    with redis_server.client() as client:
        for start in range(0, MANY, 10_000):
            pipe = client.pipeline(transaction=False)
            for number in range(start, start + 10_000):
                pipe.xadd(name, {"value": b"%d" % number})
            pipe.execute()
        killed, saved, read = RedisStream(settings), dict[str, Any](), 0
        killed.open({})
        wait_until(lambda: bool(killed.read(0.05)), "its name is told", pause=0.001)
        for raw in killed.read(1.0):
            saved, read = {raw.partition: raw.after}, read + records_in(raw)
        killed.acknowledge(saved)
        wait_until(lambda: not any(map(records_in, killed.read(0.05))), "the others are read", pause=0.001)
        killed._drop()
        source = RedisStream(settings)
        with closing(source), measured(f"{MANY:,} entries") as cost:
            source.open(saved)
            read_until(source, MANY - read, dict(saved))
            wait_until(lambda: source.read(0.05) == [] and source.lag == 0, "nothing is left")
        assert client.xpending(name, settings.group)["pending"] == 0
    assert cost.seconds < 60
    assert cost.mib < 300


def test_of_rows_with_one_value_of_the_rising_column(tmp_path: Path) -> None:
    """All are within the look-back; after a restart one more of them is read, and no other."""
    path = tmp_path / "labels.db"

    def insert(rows: Iterator[tuple[int]]) -> None:
        with closing(sqlite3.connect(path)) as connection:
            connection.executemany("INSERT INTO labels VALUES (?, 'ok', 7)", rows)
            connection.commit()

    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE labels (id INTEGER PRIMARY KEY, label TEXT, updated INTEGER)")
    insert((number,) for number in range(MANY))
    place = {"driver": "sqlite3", "dsn": str(path), "table": "labels", "cursor": "updated"}
    settings = SqlSourceConfig(kind="sql", poll_seconds=0.05, **place)
    positions: dict[str, Any] = {}
    with measured(f"{MANY:,} rows") as cost:
        with closing(SqlSource(settings)) as source:
            source.open({})
            read_until(source, MANY, positions)
        insert(iter([(MANY,)]))
        with closing(SqlSource(settings)) as source:
            source.open(positions)
            read_until(source, 1, positions)
            assert source.read(0.2) == []
            assert source.counts.gap_records == 0
    assert cost.seconds < 60
    assert cost.mib < 300
