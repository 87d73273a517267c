"""A feed of each kind of source, for the tests of all kinds, and a reader that does as the agent does.

Records with even numbers belong to a task of classes, those with odd ones to a task of predicted numbers.

`test_contract.py` needs the abstract methods of `Case`, of every kind. `test_edges.py` runs for each kind
that has the hook which a test needs: `calls`, `still` or `losses`; `Case.lacks` says why a kind has none.
`memory` names the tests of a kind's bound of memory, and `many` those of a hundred thousand partitions, files
or rows.
"""

from __future__ import annotations

import csv
import errno
import json
import os
import pickle
import selectors
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing
from pathlib import Path
from secrets import token_hex
from typing import Any, BinaryIO, NamedTuple

import httpx
import psycopg
import pyarrow
import pyarrow.parquet
import pytest
from confluent_kafka import KafkaError as NativeError
from confluent_kafka import KafkaException
from fsspec.implementations.memory import MemoryFileSystem
from kafka import KafkaConsumer
from kafka.errors import KafkaConnectionError, KafkaError
from redis import Redis
from redis.client import Pipeline
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ReadOnlyError

from connectors.build import build_source
from connectors.files import FileSource
from connectors.formats.decode.decoder import Decoder
from connectors.formats.files.folder import LocalFiles
from connectors.formats.files.remote import RemoteFiles
from connectors.http import spool as spool_module
from connectors.kafka.drivers import native
from connectors.stdin import StdinSource
from monitor.base.codec import pack, unpack
from monitor.base.errors import BlindsightError
from monitor.base.records import Chunk, TaskLayout
from monitor.base.registry import SOURCES, load
from monitor.base.source import Raw, RawBlock, RawMessages, RawPosition, RawTable, Source, open_source
from monitor.base.spool import Spools
from monitor.store.postgres import PostgresConnection, PostgresDatabase, PostgresStore
from monitor.store.spool_table import SpoolTable
from tests.services.kafka_broker import KafkaBroker
from tests.services.kafka_reading import JOIN_FAST
from tests.services.postgres_server import PostgresServer
from tests.services.process import PATIENCE_SECONDS, wait_until
from tests.services.redis_server import RedisServer

LAYOUT = TaskLayout("t", ("no", "yes"))
LAYOUTS = (LAYOUT, TaskLayout("n", (), kind="regression", numeric=True))
UNREADABLE_PARQUET = (pyarrow.ArrowInvalid("no Parquet"), pyarrow.ArrowMemoryError("no room"))
ONE_LOG = "it is one log, which has one position"
Positions = dict[str, Any]


def line(number: int) -> bytes:
    answer = {"prediction": number + 0.5} if number % 2 else {"scores": [0.25, 0.75]}
    record = {"id": str(number), "task": "tn"[number % 2], "model": "m", **answer}
    return json.dumps(record).encode()


def label(number: int) -> tuple[str, str | float]:
    """Return the task and the label of a record."""
    return ("n", number + 0.5) if number % 2 else ("t", "yes")


def table(ids: Iterable[int]) -> str:
    """Return a table of labels as CSV."""
    rows = (f"{number},{','.join(map(str, label(number)))}\n" for number in ids)
    return "id,task,label\n" + "".join(rows)


class Call(NamedTuple):
    """A call into a library, which a test replaces by one that raises.

    Parameters
    ----------
    owner : object
        A class, a module or an object that lets its attributes be replaced.
    name : str
        Of the attribute that the source calls.
    raises : tuple of exceptions
        Some that the library raises itself. The tests add exceptions that no library should raise.
    """

    owner: Any
    name: str
    raises: tuple[Exception, ...] = ()


class Loss(NamedTuple):
    """The records that a log has lost while nobody read it.

    Parameters
    ----------
    gap : int
        Records that `SourceCounts.gap_records` must count.
    ids : sequence of int
        The records that are still to come, in any order.
    """

    gap: int
    ids: Sequence[int]


class Case(ABC):
    """A feed of one kind: sources of it, which a test opens one after another, and a way to send to it."""

    kind: str
    needs = ""
    """The marker of the service that it starts."""
    goes_back = True
    """Whether what was read comes again where a source is opened before it."""
    remembers = True
    """Whether a source that is opened without a position goes on after what was acknowledged."""

    lacks: Mapping[str, str] = {}
    """Why there is no such hook, by its name."""

    def __init__(self, request: pytest.FixtureRequest, folder: Path, stack: ExitStack) -> None:
        self.name = f"contract-{token_hex(4)}"
        self.folder, self.stack = folder, stack
        self.prepare(request)

    @abstractmethod
    def prepare(self, request: pytest.FixtureRequest) -> None:
        """Make the feed."""

    spool: Spools | None = None
    """Where the store's database can keep what a source acknowledges."""

    @property
    def section(self) -> Mapping[str, Any]:
        """Return the section of the configuration without the kind."""
        return {}

    @abstractmethod
    def send(self, source: Any, numbers: Iterable[int]) -> None:
        """Send these records; `source` is open."""

    def source(self) -> Source[Any]:
        """Return a source of the feed, not open yet; closed in the end."""
        settings = load(SOURCES[self.kind].section)(kind=self.kind, **self.section)
        made = build_source(settings, LAYOUTS, self.spool)
        assert made.name == settings.label, "decoders are found by it"
        self.stack.callback(made.close)
        self.adapt(made)
        return made

    def adapt(self, source: Any) -> None:  # noqa: B027 - most need nothing
        """Prepare a source that is not open yet, so that tests need not wait."""

    def calls(self) -> Sequence[Call]:
        """Return the calls into libraries and the system that the source makes while it reads and
        acknowledges.
        """
        raise NotImplementedError

    def still(self, source: Any) -> AbstractContextManager[None]:
        """Hold the peer still inside the block: connections stay open, and nothing answers."""
        raise NotImplementedError

    losses: tuple[str, ...] = ()
    """Names of methods (`trimmed`, `emptied`, `replaced`) that have the log lose records and return a `Loss`.

    No source is open. The records 0 to 9 were used and saved before, 10 to 19 were sent and not read.
    """

    memory: tuple[str, ...] = ()
    """The tests, `module.function`, that read huge records, and many of them, within a bound of memory."""

    many: tuple[str, ...] = ()
    """The tests, `module.function`, that read a hundred thousand of what a feed of this kind has many of."""

    @classmethod
    def has(cls, hook: str) -> bool:
        """Return whether this kind has a hook that not every kind has."""
        return getattr(cls, hook) is not getattr(Case, hook)


class FileCase(Case):
    kind, remembers = "file", False
    memory = ("test_edges_memory.test_of_a_followed_file",)
    lacks: Mapping[str, str] = {
        "still": "a disk that hangs holds its reader in the system",
        "many": ONE_LOG,
    }

    def prepare(self, request: pytest.FixtureRequest) -> None:
        self.path = self.folder / "records.ndjson"
        self.path.touch()

    @property
    def section(self) -> Mapping[str, Any]:
        return {"path": str(self.path), "follow": True}

    def send(self, source: Any, numbers: Iterable[int]) -> None:
        with self.path.open("ab") as file:
            file.write(b"".join(line(number) + b"\n" for number in numbers))

    def calls(self) -> Sequence[Call]:
        failed = OSError(errno.EIO, "I/O error")
        return (Call(os, "pread", (failed,)), Call(os, "fstat", (failed,)))

    def emptied(self) -> Loss:
        os.truncate(self.path, 0)
        return Loss(1, ())  # files count gaps, not records

    def replaced(self) -> Loss:
        self.path.unlink()
        self.send(None, range(20, 26))
        return Loss(1, range(20, 26))

    def rewritten(self) -> Loss:
        os.truncate(self.path, 0)
        self.send(None, range(20, 23))
        return Loss(1, range(20, 23))

    losses: tuple[str, ...] = ("emptied", "replaced", "rewritten")


class FolderCase(FileCase):
    """A folder that fills with tables."""

    many = ("test_edges_many.test_of_files_in_a_folder",)
    lacks: Mapping[str, str] = {"still": FileCase.lacks["still"]}
    memory = ("formats.test_tables_bounds.test_a_row_of_csv_without_an_end_is_broken_in_bounded_memory",)

    def prepare(self, request: pytest.FixtureRequest) -> None:
        request.getfixturevalue("monkeypatch").setattr(LocalFiles, "look_seconds", 0.05)
        self.path = self.folder / "*.csv"

    def adapt(self, source: Any) -> None:
        assert isinstance(source, FileSource)
        source.complete_seconds, source.missing_seconds = 0.0, PATIENCE_SECONDS

    def send(self, source: Any, numbers: Iterable[int]) -> None:
        ids = [*numbers]
        self.write(f"{ids[0]:04}", ids)

    def write(self, name: str, ids: Sequence[int]) -> None:
        """Write a table of these ids at once."""
        aside = self.folder / "aside"
        aside.write_text(table(ids))
        aside.rename(self.folder / f"{name}.csv")

    def shorter(self) -> Loss:
        """Replace a file that was read by one with fewer rows."""
        self.write("0000", range(20, 23))
        return Loss(0, range(10, 23))

    losses = ("shorter",)

    def calls(self) -> Sequence[Call]:
        failed = OSError(errno.EIO, "I/O error")
        return (Call(csv, "reader", (csv.Error("no CSV"),)), Call(os, "scandir", (failed,)))


class ParquetCase(FolderCase):
    """A folder of Parquet files."""

    memory = (
        "formats.test_tables_bounds.test_a_small_file_that_unpacks_to_gigabytes_is_read_in_bounded_memory",
    )

    def prepare(self, request: pytest.FixtureRequest) -> None:
        super().prepare(request)
        self.path = self.folder / "*.parquet"

    def write(self, name: str, ids: Sequence[int]) -> None:
        pyarrow.parquet.write_table(pyarrow.table(self.columns(ids)), self.folder / "aside")
        (self.folder / "aside").rename(self.folder / f"{name}.parquet")

    def columns(self, ids: Sequence[int]) -> dict[str, list[Any]]:
        """Return the columns of a file, with a number where a row is one of numbers."""
        records = [json.loads(line(number)) for number in ids]
        names = ("id", "task", "model", "scores", "prediction")
        return {name: [record.get(name) for record in records] for name in names}

    def calls(self) -> Sequence[Call]:
        return (
            Call(pyarrow.parquet, "ParquetFile", UNREADABLE_PARQUET),
            Call(pyarrow.parquet.ParquetFile, "read", UNREADABLE_PARQUET),
        )


class WideParquetCase(ParquetCase):
    """A folder of Parquet files that are not read whole."""

    def columns(self, ids: Sequence[int]) -> dict[str, list[Any]]:
        return super().columns(ids) | {"text": [os.urandom(256 << 10).hex() for _ in ids]}

    def calls(self) -> Sequence[Call]:
        return (Call(pyarrow.parquet.ParquetFile, "iter_batches", UNREADABLE_PARQUET),)


class AddressCase(FolderCase):
    """A folder of tables at an address of fsspec."""

    many = ("test_edges_many.test_of_objects_at_an_address",)
    lacks: Mapping[str, str] = {"still": "`test_folders.py` stops a server of S3"}

    def prepare(self, request: pytest.FixtureRequest) -> None:
        request.getfixturevalue("monkeypatch").setattr(RemoteFiles, "look_seconds", 0.05)
        self.path = Path(self.name)
        self.files = MemoryFileSystem()

    @property
    def section(self) -> Mapping[str, Any]:
        return {"path": f"memory://{self.name}/*.csv", "follow": True}

    def write(self, name: str, ids: Sequence[int]) -> None:
        self.files.pipe_file(f"/{self.name}/{name}.csv", table(ids).encode())

    def calls(self) -> Sequence[Call]:
        away = ConnectionError("the line is cut")
        return [Call(MemoryFileSystem, name, (away,)) for name in ("glob", "get_file")]


class StdinCase(Case):
    kind, goes_back = "stdin", False
    memory = ("test_edges_memory.test_of_standard_input",)
    lacks: Mapping[str, str] = {
        "still": "a writer that stands still is one that has nothing to say",
        "losses": "nothing of a pipe can be taken back",
        "many": ONE_LOG,
    }

    def prepare(self, request: pytest.FixtureRequest) -> None:
        read, self.write = os.pipe()
        self.stream: BinaryIO = self.stack.enter_context(os.fdopen(read, "rb"))
        self.stack.callback(os.close, self.write)

    def adapt(self, source: Any) -> None:
        assert isinstance(source, StdinSource)
        source.stream = self.stream

    def send(self, source: Any, numbers: Iterable[int]) -> None:
        os.write(self.write, b"".join(line(number) + b"\n" for number in numbers))

    def calls(self) -> Sequence[Call]:
        failed = OSError(errno.EIO, "I/O error")
        return (Call(os, "read", (failed,)), Call(selectors.SelectSelector, "select", (failed,)))


class HttpCase(Case):
    kind = "http"
    memory = ("test_edges_memory.test_of_posts",)
    lacks: Mapping[str, str] = {
        "still": "a disk that hangs holds its writer in the system; `test_bounds.py` has clients that do",
        "losses": "nobody but the agent deletes a post",
        "many": ONE_LOG,
    }

    def prepare(self, request: pytest.FixtureRequest) -> None:
        (self.folder / "spool").mkdir()

    @property
    def section(self) -> Mapping[str, Any]:
        return {"listen": "127.0.0.1:0", "spool": {"path": str(self.folder / "spool")}}

    def send(self, source: Any, numbers: Iterable[int]) -> None:
        url = f"http://127.0.0.1:{source.port}/v1/predictions"
        body = b"[%s]" % b",".join(map(line, numbers))
        self.post(url, body)

    def post(self, url: str, body: bytes) -> None:
        """Post until it is acknowledged, as a client does that is answered 503."""
        headers = {"content-type": "application/json"}

        def acknowledged() -> bool:
            answer = httpx.post(url, content=body, headers=headers, timeout=PATIENCE_SECONDS / 5)
            assert answer.status_code in (httpx.codes.ACCEPTED, httpx.codes.SERVICE_UNAVAILABLE), answer.text
            return answer.status_code == httpx.codes.ACCEPTED

        wait_until(acknowledged, "a post is acknowledged", pause=0.01)

    def calls(self) -> Sequence[Call]:
        no_space, failed = OSError(errno.ENOSPC, "No space left on device"), OSError(errno.EIO, "I/O error")
        return (
            Call(os, "write", (no_space, failed)),
            Call(spool_module, "_sync", (failed,)),
            Call(os, "pread", (failed,)),
            Call(os, "replace", (failed,)),
        )


class TableCase(HttpCase):
    """Posts that rest in the database of the store."""

    needs = "postgres"
    memory = ("test_edges_memory.test_of_posts_that_rest_in_a_database",)
    lacks: Mapping[str, str] = {"losses": HttpCase.lacks["losses"], "many": ONE_LOG}

    def prepare(self, request: pytest.FixtureRequest) -> None:
        self.server: PostgresServer = request.getfixturevalue("postgres_server")
        database = PostgresDatabase(self.server.dsn, f"contract_{token_hex(4)}")
        self.store = PostgresStore(database, lease_seconds=PATIENCE_SECONDS)
        self.stack.callback(self.store.close)

    @property
    def section(self) -> Mapping[str, Any]:
        return {"listen": "127.0.0.1:0"}

    def spool(self, name: str, max_bytes: int) -> SpoolTable:
        return SpoolTable(self.store, name, max_bytes)

    def still(self, source: Any) -> AbstractContextManager[None]:
        return self.server.frozen()

    def calls(self) -> Sequence[Call]:
        away = psycopg.OperationalError("the connection is lost")
        return (
            Call(PostgresConnection, "executemany", (away,)),
            Call(PostgresConnection, "execute", (away, psycopg.DatabaseError("no"))),
        )


class KafkaCase(Case):
    kind = needs = "kafka"
    memory = ("test_edges_memory.test_of_a_topic",)
    many = (
        "kafka.test_many_partitions.test_a_hundred_thousand_partitions_take_ten_times_as_long_as_ten_thousand",
    )
    driver = "kafka-python"

    def prepare(self, request: pytest.FixtureRequest) -> None:
        self.broker: KafkaBroker = request.getfixturevalue("kafka_broker")
        self.broker.create_topic(self.name, 2)

    @property
    def section(self) -> Mapping[str, Any]:
        place = {"brokers": [self.broker.address], "topics": [self.name], "group": self.name}
        return {**place, "driver": self.driver, "stall_seconds": 30, "options": JOIN_FAST}

    def send(self, source: Any, numbers: Iterable[int]) -> None:
        self.broker.produce(self.name, [line(number) for number in numbers], partitions=2)

    def still(self, source: Any) -> AbstractContextManager[None]:
        return self.broker.frozen()

    def calls(self) -> Sequence[Call]:
        away = KafkaConnectionError("the broker hangs up")
        names = ("poll", "position", "highwater", "assignment", "commit_async", "end_offsets")
        return [Call(KafkaConsumer, name, (away, KafkaError("no"))) for name in names]

    def trimmed(self) -> Loss:
        for partition in range(2):
            self.broker.delete_records(self.name, partition, before=7)
        return Loss(4, range(14, 20))

    def emptied(self) -> Loss:
        for partition in range(2):
            self.broker.delete_records(self.name, partition, before=10)
        return Loss(10, ())

    def replaced(self) -> Loss:
        self.broker.recreate_topic(self.name, 2)
        self.send(None, range(20, 26))
        return Loss(0, range(20, 26))

    losses = ("trimmed", "emptied", "replaced")


class ConfluentCase(KafkaCase):
    driver = "confluent"

    def prepare(self, request: pytest.FixtureRequest) -> None:
        super().prepare(request)
        request.getfixturevalue("monkeypatch").setattr(native, "Consumer", OpenConsumer)

    def calls(self) -> Sequence[Call]:
        away = KafkaException(NativeError(NativeError._TRANSPORT))
        names = ("poll", "consume", "get_watermark_offsets", "commit")
        return [
            Call(OpenConsumer, name, (away, KafkaException(NativeError(NativeError._FAIL)))) for name in names
        ]


class OpenConsumer(native.Consumer):  # type: ignore[misc]
    """A consumer whose methods can be replaced."""


class RedisCase(Case):
    kind = needs = "redis"
    many = ("test_edges_many.test_of_entries_that_wait_to_be_acknowledged",)
    memory = ("test_redis_stream.test_a_stream_of_large_entries_is_read_in_bounded_memory",)

    def prepare(self, request: pytest.FixtureRequest) -> None:
        self.server: RedisServer = request.getfixturevalue("redis_server")

    @property
    def section(self) -> Mapping[str, Any]:
        return {"url": self.server.url, "stream": self.name, "claim_seconds": 4}

    def send(self, source: Any, numbers: Iterable[int]) -> None:
        with self.server.client() as client:
            for number in numbers:
                client.xadd(self.name, {"value": line(number)})

    def still(self, source: Any) -> AbstractContextManager[None]:
        return self.server.frozen()

    def calls(self) -> Sequence[Call]:
        away = RedisConnectionError("the server hangs up")
        of_client = [Call(Redis, name, (away,)) for name in ("xreadgroup", "xinfo_consumers", "xack")]
        return [*of_client, Call(Pipeline, "execute", (away, ReadOnlyError("a replica")))]

    def trimmed(self) -> Loss:
        with self.server.client() as client:
            client.xtrim(self.name, maxlen=4, approximate=False)
        return Loss(6, range(16, 20))

    def emptied(self) -> Loss:
        with self.server.client() as client:
            client.xtrim(self.name, maxlen=0, approximate=False)
        return Loss(10, ())

    def replaced(self) -> Loss:
        with self.server.client() as client:
            client.delete(self.name)
        self.send(None, range(20, 26))
        return Loss(0, range(20, 26))  # how many it had is known up to the last read alone

    def behind(self) -> Loss:
        """Replace the stream by one whose ids are smaller."""
        with self.server.client() as client:
            client.delete(self.name)
            for number in range(20, 26):
                client.xadd(self.name, {"value": line(number)}, id=f"{number}-0")
        return Loss(0, range(20, 26))

    losses = ("trimmed", "emptied", "replaced", "behind")


class SqlCase(Case):
    kind, remembers = "sql", False
    many = ("test_edges_many.test_of_rows_with_one_value_of_the_rising_column",)
    memory: tuple[str, ...] = ("sql.test_edges.test_memory_of_sqlite_rows_is_bounded_by_bytes",)
    lacks: Mapping[str, str] = {
        "calls": "`sql/test_edges.py` has a driver that fails at each of its calls",
        "still": "`sql/test_edges.py` stops a server; a look waits for it in the driver",
    }

    def prepare(self, request: pytest.FixtureRequest) -> None:
        self.path = self.folder / "labels.db"
        self.execute("CREATE TABLE labels (id INTEGER, task TEXT, label, updated INTEGER)")

    def execute(self, statement: str, rows: Iterable[tuple[Any, ...]] = ((),)) -> None:
        with closing(sqlite3.connect(self.path)) as connection:
            connection.executemany(statement, rows)
            connection.commit()

    @property
    def section(self) -> Mapping[str, Any]:
        place = {"driver": "sqlite3", "dsn": str(self.path), "table": "labels"}
        return {**place, "cursor": "updated", "poll_seconds": 0.05}

    def send(self, source: Any, numbers: Iterable[int]) -> None:
        rows = [(number, *label(number), number) for number in numbers]
        self.execute("INSERT INTO labels VALUES (?, ?, ?, ?)", rows)

    def delete(self, number: int) -> None:
        """Delete a row, as its owner does."""
        self.execute("DELETE FROM labels WHERE id = ?", [(number,)])

    def behind(self) -> Loss:
        """Empty the table, and fill it with rows whose rising column begins again."""
        self.execute("DELETE FROM labels")
        rows = [(number, *label(number), number - 20) for number in range(20, 26)]
        self.execute("INSERT INTO labels VALUES (?, ?, ?, ?)", rows)
        return Loss(0, range(20, 26))  # within the look-back; what was deleted unread nobody knew

    losses: tuple[str, ...] = ("behind",)


class PostgresCase(SqlCase):
    needs = "postgres"
    memory = ("sql.test_edges.test_memory_of_postgresql_rows_is_bounded_by_bytes",)
    lacks: Mapping[str, str] = {**SqlCase.lacks, "losses": "as of `SqlCase`, in the source's own code"}
    losses = ()

    def prepare(self, request: pytest.FixtureRequest) -> None:
        self.server: PostgresServer = request.getfixturevalue("postgres_server")
        self.table = f"contract_{token_hex(4)}"
        columns = "id bigint, task text, label text, updated timestamptz DEFAULT clock_timestamp()"
        self.server.execute(f"CREATE TABLE {self.table} ({columns})")

    @property
    def section(self) -> Mapping[str, Any]:
        return {"dsn": self.server.dsn, "table": self.table, "cursor": "updated", "poll_seconds": 0.05}

    def send(self, source: Any, numbers: Iterable[int]) -> None:
        with self.server.connection() as connection:
            for number in numbers:
                row = [number, *map(str, label(number))]
                connection.execute(f"INSERT INTO {self.table} VALUES (%s, %s, %s)".encode(), row)

    def delete(self, number: int) -> None:
        with self.server.connection() as connection:
            connection.execute(f"DELETE FROM {self.table} WHERE id = %s".encode(), [number])


CASES: tuple[type[Case], ...] = (
    FileCase,
    FolderCase,
    ParquetCase,
    WideParquetCase,
    AddressCase,
    StdinCase,
    HttpCase,
    TableCase,
    KafkaCase,
    ConfluentCase,
    RedisCase,
    SqlCase,
    PostgresCase,
)


class Reader:
    """A reader of a source that works like the agent and keeps records and newest positions, as a store
    would.
    """

    def __init__(self, source: Source[Any], positions: Positions | None = None) -> None:
        self.source = source
        self.decoder = Decoder(LAYOUTS, source.name)
        self.ids: list[int] = []
        self.errors: list[BlindsightError] = []
        self.positions = dict(positions or {})
        open_source(source, self.saved())
        wait_until(lambda: self.once(0.01) >= 0 and source.up, "it is up", pause=0.001)

    def saved(self) -> Positions:
        """Return the positions as they come back from a store."""
        return dict(unpack(pack(self.positions)))

    def once(self, timeout_seconds: float = 0.1) -> int:
        # As on its way to a process that decodes, and its positions back.
        try:
            read = self.source.read(timeout_seconds)
        except BlindsightError as error:  # the agent tells of it, and reads on; any other error is a fault
            self.errors.append(error)
            return 0
        raws: list[Raw] = pickle.loads(pickle.dumps(read, protocol=5))
        ids = [number for raw in raws for number in ids_of(raw)]
        check_used(self.decoder.decode(raws), ids)
        self.positions.update({raw.partition: raw.after for raw in raws})
        if raws and not ids:  # a position alone: nothing of it is left to be used
            self.source.acknowledge(self.saved())
        self.ids += ids
        return len(ids)

    def until(self, count: int) -> list[int]:
        """Read until `count` records came in all, and no more; return them in the order of their ids."""
        wait_until(lambda: self.once() >= 0 and len(self.ids) >= count, f"{count} came", pause=0.001)
        assert self.once(0.05) == 0
        return sorted(self.ids)


def ids_of(raw: Raw) -> list[int]:
    if isinstance(raw, RawPosition):
        return []
    if isinstance(raw, RawTable):
        return [int(str(value)) for value in raw.columns["id"]]
    assert isinstance(raw, RawBlock | RawMessages)
    values = raw.data.splitlines() if isinstance(raw, RawBlock) else raw.values
    return [int(json.loads(value)["id"]) for value in values]


def check_used(chunk: Chunk, ids: Sequence[int]) -> None:
    """Check that each record is used, with the number of its prediction or label where it has one."""
    assert chunk.rejects == ()
    batches = [*chunk.batches, *chunk.labels]
    assert sum(map(len, batches)) == len(ids)
    numbers = [value for batch in batches for value in batch.numbers[:, :1].ravel().tolist()]
    assert sorted(numbers) == [number + 0.5 for number in sorted(ids) if number % 2]


def cases(kinds: Iterable[type[Case]]) -> list[Any]:
    """Return the parameters of the fixture `case`, each with the marker of its service."""
    return [
        pytest.param(each, marks=getattr(pytest.mark, each.needs) if each.needs else (), id=each.__name__)
        for each in kinds
    ]


def case_losses() -> pytest.MarkDecorator:
    """Run a test for each way in which a kind of log can lose records."""
    params = [
        pytest.param(*each.values, word, marks=each.marks, id=f"{each.id}-{word}")
        for each in cases(CASES)
        for word in each.values[0].losses
    ]
    return pytest.mark.parametrize(("case", "loss"), params, indirect=["case"])


def cases_with(hook: str) -> pytest.MarkDecorator:
    """Run a test for each kind that has this hook."""
    having = [each for each in CASES if each.has(hook)]
    return pytest.mark.parametrize("case", cases(having), indirect=True)
