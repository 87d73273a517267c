"""The contract of `monitor.base.source`, held for every kind of source of the table by the same tests."""

from __future__ import annotations

import json
import os
import pickle
import queue
import sqlite3
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, closing
from pathlib import Path
from secrets import token_hex
from typing import Any, BinaryIO, get_args

import httpx
import pytest

from connectors.build import build_source
from connectors.files import FileSource
from connectors.formats.files.folder import LocalFiles
from connectors.stdin import StdinSource
from monitor.base.codec import pack, unpack
from monitor.base.records import TaskLayout
from monitor.base.registry import SOURCES, load
from monitor.base.source import Raw, RawBlock, RawMessages, RawPosition, RawTable, Source, SourceCounts
from monitor.config.root import KafkaSourceConfig
from tests.services.kafka_broker import KafkaBroker
from tests.services.kafka_reading import JOIN_FAST
from tests.services.postgres_server import PostgresServer
from tests.services.process import PATIENCE_SECONDS, wait_until
from tests.services.redis_server import RedisServer

LAYOUT = TaskLayout("t", ("no", "yes"))
Positions = dict[str, Any]


def line(number: int) -> bytes:
    record = {"id": str(number), "task": "t", "model": "m", "scores": [0.25, 0.75]}
    return json.dumps(record).encode()


class Case(ABC):
    """A feed of one kind: sources of it, which a test opens one after another, and a way to send to it."""

    kind: str
    needs = ""
    """The marker of the service that it starts."""
    goes_back = True
    """Whether what was read comes again where a source is opened before it."""
    remembers = True
    """Whether a source that is opened without a position goes on after what was acknowledged."""

    def __init__(self, request: pytest.FixtureRequest, folder: Path, stack: ExitStack) -> None:
        self.name = f"contract-{token_hex(4)}"
        self.folder, self.stack = folder, stack
        self.prepare(request)

    @abstractmethod
    def prepare(self, request: pytest.FixtureRequest) -> None:
        """Make the feed."""

    @property
    def section(self) -> Mapping[str, Any]:
        """What its section of the configuration says besides the kind."""
        return {}

    @abstractmethod
    def send(self, source: Any, numbers: Iterable[int]) -> None:
        """Send these records; `source` is open."""

    def source(self) -> Source[Any]:
        """A source of the feed, not open yet; closed in the end."""
        settings = load(SOURCES[self.kind].section)(kind=self.kind, **self.section)
        made = build_source(settings, [LAYOUT])
        assert made.name == settings.label, "decoders are found by it"
        self.stack.callback(made.close)
        return made


class FileCase(Case):
    kind, remembers = "file", False

    def prepare(self, request: pytest.FixtureRequest) -> None:
        self.path = self.folder / "records.ndjson"
        self.path.touch()

    @property
    def section(self) -> Mapping[str, Any]:
        return {"path": str(self.path), "follow": True}

    def send(self, source: Any, numbers: Iterable[int]) -> None:
        with self.path.open("ab") as file:
            file.write(b"".join(line(number) + b"\n" for number in numbers))


class FolderCase(FileCase):
    """A folder that fills with tables."""

    def prepare(self, request: pytest.FixtureRequest) -> None:
        request.getfixturevalue("monkeypatch").setattr(LocalFiles, "look_seconds", 0.05)
        self.path = self.folder / "*.csv"

    def source(self) -> Source[Any]:
        made = super().source()
        assert isinstance(made, FileSource)
        made.complete_seconds, made.missing_seconds = 0.0, PATIENCE_SECONDS
        return made

    def send(self, source: Any, numbers: Iterable[int]) -> None:
        ids = [*numbers]
        aside = self.folder / "aside"
        aside.write_text("id,label\n" + "".join(f"{number},yes\n" for number in ids))
        aside.rename(self.folder / f"{ids[0]:04}.csv")


class StdinCase(Case):
    kind, goes_back = "stdin", False

    def prepare(self, request: pytest.FixtureRequest) -> None:
        read, self.write = os.pipe()
        self.stream: BinaryIO = self.stack.enter_context(os.fdopen(read, "rb"))
        self.stack.callback(os.close, self.write)

    def source(self) -> Source[Any]:
        made = super().source()
        assert isinstance(made, StdinSource)
        made.stream = self.stream
        return made

    def send(self, source: Any, numbers: Iterable[int]) -> None:
        os.write(self.write, b"".join(line(number) + b"\n" for number in numbers))


class HttpCase(Case):
    kind = "http"

    def prepare(self, request: pytest.FixtureRequest) -> None:
        (self.folder / "spool").mkdir()

    @property
    def section(self) -> Mapping[str, Any]:
        return {"listen": "127.0.0.1:0", "spool": {"path": str(self.folder / "spool")}}

    def send(self, source: Any, numbers: Iterable[int]) -> None:
        url = f"http://127.0.0.1:{source.port}/v1/predictions"
        body = b"[%s]" % b",".join(map(line, numbers))
        httpx.post(
            url, content=body, headers={"content-type": "application/json"}, timeout=PATIENCE_SECONDS
        ).raise_for_status()


class KafkaCase(Case):
    kind = needs = "kafka"
    driver = "kafka-python"

    def prepare(self, request: pytest.FixtureRequest) -> None:
        self.broker: KafkaBroker = request.getfixturevalue("kafka_broker")
        self.broker.create_topic(self.name, 2)

    @property
    def section(self) -> Mapping[str, Any]:
        place = {"brokers": [self.broker.address], "topics": [self.name], "group": self.name}
        return {**place, "driver": self.driver, "options": JOIN_FAST}

    def send(self, source: Any, numbers: Iterable[int]) -> None:
        self.broker.produce(self.name, [line(number) for number in numbers], partitions=2)


class ConfluentCase(KafkaCase):
    driver = "confluent"


class RedisCase(Case):
    kind = needs = "redis"

    def prepare(self, request: pytest.FixtureRequest) -> None:
        self.server: RedisServer = request.getfixturevalue("redis_server")

    @property
    def section(self) -> Mapping[str, Any]:
        return {"url": self.server.url, "stream": self.name}

    def send(self, source: Any, numbers: Iterable[int]) -> None:
        with self.server.client() as client:
            for number in numbers:
                client.xadd(self.name, {"value": line(number)})


class SqlCase(Case):
    kind, remembers = "sql", False

    def prepare(self, request: pytest.FixtureRequest) -> None:
        self.path = self.folder / "labels.db"
        self.execute("CREATE TABLE labels (id INTEGER, label TEXT, updated INTEGER)")

    def execute(self, statement: str, rows: Iterable[tuple[Any, ...]] = ((),)) -> None:
        with closing(sqlite3.connect(self.path)) as connection:
            connection.executemany(statement, rows)
            connection.commit()

    @property
    def section(self) -> Mapping[str, Any]:
        place = {"driver": "sqlite3", "dsn": str(self.path), "table": "labels"}
        return {**place, "cursor": "updated", "poll_seconds": 0.05}

    def send(self, source: Any, numbers: Iterable[int]) -> None:
        self.execute("INSERT INTO labels VALUES (?, 'ok', ?)", [(number, number) for number in numbers])


class PostgresCase(SqlCase):
    needs = "postgres"

    def prepare(self, request: pytest.FixtureRequest) -> None:
        self.server: PostgresServer = request.getfixturevalue("postgres_server")
        self.table = f"contract_{token_hex(4)}"
        columns = "id bigint, label text, updated timestamptz DEFAULT clock_timestamp()"
        self.server.execute(f"CREATE TABLE {self.table} ({columns})")

    @property
    def section(self) -> Mapping[str, Any]:
        return {"dsn": self.server.dsn, "table": self.table, "cursor": "updated", "poll_seconds": 0.05}

    def send(self, source: Any, numbers: Iterable[int]) -> None:
        with self.server.connection() as connection:
            for number in numbers:
                connection.execute(f"INSERT INTO {self.table} VALUES (%s, 'ok')".encode(), [number])


CASES: tuple[type[Case], ...] = (
    FileCase,
    FolderCase,
    StdinCase,
    HttpCase,
    KafkaCase,
    ConfluentCase,
    RedisCase,
    SqlCase,
    PostgresCase,
)


@pytest.fixture(autouse=True)
def lively(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are looked at after milliseconds."""
    monkeypatch.setattr("connectors.formats.files.following._POLL_SECONDS", 0.01)


@pytest.fixture(
    params=[
        pytest.param(each, marks=getattr(pytest.mark, each.needs) if each.needs else ()) for each in CASES
    ],
    ids=lambda each: each.__name__,
)
def case(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Case]:
    with ExitStack() as stack:
        yield request.param(request, tmp_path, stack)


class Reader:
    """Reads a source as the agent does, and keeps what came with the newest positions, as a store would."""

    def __init__(self, source: Source[Any], positions: Positions | None = None) -> None:
        self.source = source
        self.ids: list[int] = []
        self.positions = dict(positions or {})
        source.open(self.saved())
        wait_until(lambda: self.once(0.01) >= 0 and source.up, "it is up", pause=0.001)

    def saved(self) -> Positions:
        """The positions as they come back from a store."""
        return dict(unpack(pack(self.positions)))

    def once(self, timeout_seconds: float = 0.1) -> int:
        # As on its way to a process that decodes, and its positions back.
        raws: list[Raw] = pickle.loads(pickle.dumps(self.source.read(timeout_seconds), protocol=5))
        found = [number for raw in raws for number in ids_of(raw)]
        self.positions.update({raw.partition: raw.after for raw in raws})
        if raws and not found:  # a position alone: nothing of it is left to be used
            self.source.acknowledge(self.saved())
        self.ids += found
        return len(found)

    def until(self, count: int) -> list[int]:
        """Read until so many came in all, and no more; in the order of their ids."""
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


def test_every_kind_of_the_table_has_a_case() -> None:
    assert {each.kind for each in CASES} == {*SOURCES}
    drivers = get_args(KafkaSourceConfig.model_fields["driver"].annotation)
    assert {each.driver for each in CASES if issubclass(each, KafkaCase)} == {*drivers}


def test_reading_goes_on_after_each_position_that_was_handed_out(case: Case) -> None:
    """The order of positions is that in which the source gave them: nobody else compares two."""
    first, positions = Reader(case.source()), []
    for start in (0, 10, 20):
        case.send(first.source, range(start, start + 10))
        assert first.until(start + 10) == [*range(start + 10)]
        positions.append(first.saved())
    first.source.close()
    for count, saved in zip((10, 20, 30), positions, strict=True):
        again = Reader(case.source(), saved)
        assert again.until(30 - count if case.goes_back else 0) == ([*range(count, 30)] * case.goes_back)
        assert (again.source.counts or SourceCounts()).gap_records == 0
        again.source.close()
    last = Reader(case.source(), again.saved() or positions[-1])
    case.send(last.source, range(30, 40))
    assert last.until(10) == [*range(30, 40)]


def test_after_a_restart_nothing_acknowledged_comes_again_and_nothing_else_is_lost(case: Case) -> None:
    first = Reader(case.source())
    case.send(first.source, range(10))
    first.until(10)
    saved = first.saved()
    first.source.acknowledge(saved)
    case.send(first.source, range(10, 20))
    first.until(20)
    first.source.close()
    second = Reader(case.source(), saved)
    held = [*range(10, 20)] * case.goes_back
    assert second.until(len(held)) == held
    case.send(second.source, range(20, 30))
    assert second.until(len(held) + 10) == [*held, *range(20, 30)]


def test_without_a_position_a_feed_that_remembers_goes_on_and_another_begins_anew(case: Case) -> None:
    first = Reader(case.source())
    case.send(first.source, range(10))
    first.until(10)
    first.source.acknowledge(first.saved())
    first.source.close()
    second = Reader(case.source())
    case.send(second.source, range(10, 15))
    start = 10 if case.remembers else 0
    assert second.until(15 - start) == [*range(start, 15)]


def test_a_read_waits_at_most_its_timeout_and_not_where_something_is_there(case: Case) -> None:
    reader = Reader(case.source())
    for timeout in (0.0, 0.2):
        began = time.monotonic()
        assert reader.once(timeout) == 0
        assert time.monotonic() - began < timeout + 10
    case.send(reader.source, range(3))
    began = time.monotonic()
    while len(reader.ids) < 3:
        assert reader.once(PATIENCE_SECONDS) > 0
    assert time.monotonic() - began < PATIENCE_SECONDS
    reader.source.keep_alive()


def test_closing_twice_is_fine_and_ends_what_was_up(case: Case) -> None:
    source = case.source()
    assert not source.up
    reader = Reader(source)
    case.send(source, range(3))
    reader.until(3)
    wait_until(lambda: reader.once() == 0 and source.lag in (None, 0), "nothing waits")
    assert (source.up, source.trouble) == (True, None)
    assert source.counts in (None, SourceCounts())
    refusals = source.refusals
    assert not any([*refusals.requests.values(), *refusals.labels_shed.values()])
    assert (refusals.shed, refusals.ignored) == (0, 0)
    for _ in range(2):
        source.close()
        assert not source.up
    assert source.name


def test_acknowledge_and_the_properties_are_used_by_other_threads_while_it_reads(case: Case) -> None:
    reader = Reader(case.source())
    used: queue.Queue[Positions] = queue.Queue()
    ended, errors = threading.Event(), []

    def in_a_thread(step: Callable[[], object]) -> threading.Thread:
        def run() -> None:
            try:
                while not ended.is_set():
                    step()
            except Exception as error:  # noqa: BLE001 - shown below
                errors.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        return thread

    def acknowledge() -> None:
        try:
            reader.source.acknowledge(used.get(timeout=0.05))
        except queue.Empty:
            return

    def look() -> None:
        source = reader.source
        assert isinstance(source.up, bool)
        assert (source.lag or 0) >= 0
        assert (source.trouble, source.name, bool(source.refusals)) == (None, reader.source.name, True)
        assert source.counts in (None, SourceCounts())
        time.sleep(0.001)

    threads = [in_a_thread(acknowledge), in_a_thread(acknowledge), in_a_thread(look)]
    try:
        for start in range(0, 200, 20):
            case.send(reader.source, range(start, start + 20))
            reader.until(start + 20)
            used.put(reader.saved())
        wait_until(used.empty, "all is acknowledged")
    finally:
        ended.set()
        for thread in threads:
            thread.join(PATIENCE_SECONDS)
    assert errors == []
    assert sorted(reader.ids) == [*range(200)]
    reader.source.close()
    again = Reader(case.source(), reader.saved())
    case.send(again.source, [200])
    assert again.until(1) == [200]
