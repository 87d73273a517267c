"""Models that move with their state between agents of one consumer group, and what came of it.

    python -m tests.faults.moves [--hand-overs 30] [--kills 10] [--pauses 2] [--rate 300]

Three agents share six partitions, keyed by model, of a real Kafka broker; a real PostgreSQL holds the state
of each partition (`store.by_partition`). While answers and labels keep coming, one agent after another is
killed with SIGKILL or stopped with SIGTERM, and another one is started in its place: each is a hand-over,
after which every partition's lease must be one of an agent that lives. At the end the lines of each model's
windows must equal, byte for byte, those of one agent that read the topic alone, with its state in a folder;
and what the states in the database count must be the messages that were sent.
"""

from __future__ import annotations

import random
import re
import signal
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import msgspec
import psycopg
from kafka import KafkaProducer

from monitor.base.codec import unpack
from monitor.base.state_changes import assemble
from monitor.cli.trial import ReferenceTrial
from monitor.config.file import load_config
from monitor.reports.union import union
from monitor.reports.views import AgentView
from monitor.store.postgres import PostgresDatabase, PostgresStore
from tests.accounting import Accounts, accounts, assert_adds_up
from tests.daemon import DaemonProcess, configuration
from tests.faults.kafka_kills import TASK, decoded
from tests.faults.kills import stream
from tests.harness import run
from tests.services import fork_server
from tests.services.kafka_broker import KafkaBroker
from tests.services.kafka_reading import JOIN_FAST, Driver
from tests.services.postgres_server import PostgresServer
from tests.services.process import PATIENCE_SECONDS, end_of, wait_until

PARTITIONS = 6
MODELS = tuple(f"m{i}" for i in range(12))
AGENTS = 3
SESSION_MILLISECONDS = 6000
_MOST_RECORDS = 10_000_000

Lines = dict[tuple[str, str], list[bytes]]
"""By model and group, the lines of its windows in order."""


@dataclass(frozen=True, slots=True)
class Result:
    """The result of the hand-overs.

    Parameters
    ----------
    kills, stops, starts : int
        Hand-overs, by what brought them.
    seconds : list of float
        Of each, until every partition had its owner.
    pauses : int
        Agents stopped with SIGSTOP until the others had all, and continued: two more hand-overs each.
    leases : int
        How often the state of a partition was taken over: the leases after each partition's first.
    messages, windows, revisions : int
    equal : bool
        Whether the lines of every series are those of one agent alone.
    counted : Accounts
        Of the states in the database.
    """

    kills: int
    stops: int
    starts: int
    seconds: list[float]
    pauses: int
    leases: int
    messages: int
    windows: int
    revisions: int
    equal: bool
    counted: Accounts


class Pour(threading.Thread):
    """A thread that sends records, each with its model as key, until it is stopped."""

    def __init__(self, broker: str, topic: str, rate: float, seed: int) -> None:
        super().__init__(daemon=True)
        self._broker, self._topic, self._rate = broker, topic, rate
        self._records = stream(_MOST_RECORDS, seed, MODELS)
        self._halt = threading.Event()
        self.sent = dict.fromkeys(range(PARTITIONS), 0)
        self.error: BaseException | None = None

    @property
    def messages(self) -> int:
        return sum(self.sent.values())

    def run(self) -> None:
        producer = KafkaProducer(bootstrap_servers=self._broker, acks="all", linger_ms=5)
        try:
            began = time.monotonic()
            while not self._halt.wait(0.02):
                for _ in range(int((time.monotonic() - began) * self._rate) - self.messages):
                    line = next(self._records)
                    model = model_of(line)
                    number = MODELS.index(model) % PARTITIONS
                    producer.send(self._topic, line.encode(), key=model.encode(), partition=number)
                    self.sent[number] += 1
            producer.flush(timeout=PATIENCE_SECONDS)
        except BaseException as error:  # noqa: BLE001 - shown by `finish`
            self.error = error
        finally:
            producer.close()

    def finish(self) -> None:
        """Stop, once all that was sent has arrived."""
        self._halt.set()
        self.join(PATIENCE_SECONDS)
        assert not self.is_alive()
        assert self.error is None, self.error


def model_of(line: str) -> str:
    """Return the model of an answer, or of the answer that a label is of; rubbish goes with the first."""
    number = decoded(line).get("id", "r0")
    return MODELS[int(number[1:]) % len(MODELS)]


class Group:
    """Agents of one consumer group on one database, each in a folder and a process of its own.

    Parameters
    ----------
    folder : Path
        The reports of all of them come here.
    broker : KafkaBroker
    server : PostgresServer
    topic : str
        Made here; also the prefix of the schemas.
    driver : {"kafka-python", "confluent"}
    **store : object
        More of the store's section.
    """

    def __init__(
        self,
        folder: Path,
        broker: KafkaBroker,
        server: PostgresServer,
        topic: str,
        driver: Driver,
        **store: Any,
    ) -> None:
        broker.create_topic(topic, PARTITIONS)
        self.folder, self.topic, self._server = folder, topic, server
        self._section = {"postgres": server.dsn, "prefix": topic, "by_partition": True, **store}
        self._source = {
            "kind": "kafka",
            "driver": driver,
            "brokers": [broker.address],
            "topics": [topic],
            "group": topic,
            "options": JOIN_FAST
            | {"auto_offset_reset": "earliest", "session_timeout_ms": SESSION_MILLISECONDS},
        }
        self._stack = ExitStack()
        self.all: list[DaemonProcess] = []

    def __enter__(self) -> Group:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def living(self) -> list[DaemonProcess]:
        return [daemon for daemon in self.all if daemon.process.poll() is None]

    @property
    def config(self) -> dict[str, Any]:
        """The configuration of each agent."""
        store = {"every_seconds": 0.2, "lease_seconds": 2} | self._section
        reports = {"path": str(self.folder / "windows.ndjson")}
        return configuration(sources=[self._source], store=store, reports=reports, task=TASK)

    def launch(self, **changes: Any) -> DaemonProcess:
        """Start an agent."""
        folder = self.folder / f"agent{len(self.all)}"
        folder.mkdir()
        daemon = self._stack.enter_context(DaemonProcess(folder, self.config | changes))
        self.all.append(daemon)
        return daemon

    def alone(self) -> DaemonProcess:
        """Start one that reads the topic alone, with its state in a folder."""
        folder = self.folder / "alone"
        folder.mkdir()
        store = {"path": str(folder / "store"), "every_seconds": 0.2}
        source = self._source | {"group": f"{self.topic}-alone"}
        reports = {"path": str(folder / "windows.ndjson")}
        config = self.config | {"sources": [source], "store": store, "reports": reports}
        return self._stack.enter_context(DaemonProcess(folder, config))

    def leases(self) -> dict[int, tuple[int, str]]:
        """Return, by partition number, the lease that holds: its number and its owner."""
        leases = {}
        with closing(psycopg.connect(self._server.dsn, autocommit=True)) as connection:
            for number in self._numbers(connection):
                lease = f'"{self.topic}_{number}".lease'
                query = f"SELECT number, owner FROM {lease} WHERE expires > clock_timestamp()"
                row = connection.execute(query).fetchone()
                if row is not None:
                    leases[number] = (int(row[0]), str(row[1]))
        return leases

    def count_moves(self) -> int:
        """Return how often a partition's state was taken, its first time left out."""
        with closing(psycopg.connect(self._server.dsn, autocommit=True)) as connection:
            rows = [
                connection.execute(f'SELECT number FROM "{self.topic}_{number}".lease').fetchone()
                for number in self._numbers(connection)
            ]
        return sum(row[0] - 1 for row in rows if row is not None)

    def settled(self, without: DaemonProcess | None = None) -> bool:
        """Return whether each living agent but `without` is ready and has partitions, and together all."""
        leases, wanted = self.leases(), [daemon for daemon in self.living if daemon is not without]
        owners = {int(owner.rpartition(" ")[2]) for _, owner in leases.values()}
        return (
            len(leases) == PARTITIONS
            and owners == {daemon.process.pid for daemon in wanted}
            and all(daemon.get("/-/ready")[0] == 200 for daemon in wanted)
        )

    def until_settled(self, without: DaemonProcess | None = None) -> float:
        """Wait for that; the seconds."""
        began = time.monotonic()
        try:
            wait_until(lambda: self.settled(without), "every partition has its owner", pause=0.1)
        except AssertionError as error:
            logs = "\n".join(daemon.log[-3000:] for daemon in self.living)
            raise AssertionError(f"{error}: {self.leases()}\n{logs}") from None
        return time.monotonic() - began

    def positions(self) -> dict[int, int]:
        """Return, by partition number, the position up to which its state has used it."""
        positions = {}
        with closing(psycopg.connect(self._server.dsn, autocommit=True)) as connection:
            for number in self._numbers(connection):
                query = f"SELECT state FROM \"{self.topic}_{number}\".part WHERE name = 'engine'"
                row = connection.execute(query).fetchone()
                if row is not None:
                    places = unpack(row[0])["positions"].get("kafka", {})
                    positions[number] = sum(place["at"] for place in places.values())
        return positions

    def counted(self) -> Accounts:
        """Return the accounts of the states in the database together; raise AssertionError where they do not
        add up.
        """
        settings = ReferenceTrial(load_config(self.all[0].config)).engine_settings()
        views = []
        for number in range(PARTITIONS):
            store = PostgresStore(PostgresDatabase(self._server.dsn, f"{self.topic}_{number}"))
            with closing(store):
                saved = store.load()
            views.append(settings.build(assemble(saved.parts, saved.rings)).view())
        return accounts(assert_adds_up(AgentView(engine=union(views))))

    def _numbers(self, connection: psycopg.Connection[Any]) -> list[int]:
        query = "SELECT nspname FROM pg_namespace JOIN pg_class ON relnamespace = pg_namespace.oid "
        rows = connection.execute(f"{query} WHERE relname = 'lease' AND nspname LIKE %s", (f"{self.topic}%",))
        return sorted(int(name.rpartition("_")[2]) for (name,) in rows)


def lines_of(*paths: Path) -> Lines:
    """Return the lines of reports files, by series."""
    by_series: Lines = {}
    for path in paths:
        for line in path.read_bytes().splitlines():
            shown = msgspec.json.decode(line)
            by_series.setdefault((shown["model"], shown["group"]), []).append(line)
    return by_series


def differences(
    one: Mapping[tuple[str, str], list[bytes]], other: Mapping[tuple[str, str], list[bytes]]
) -> str:
    """Return where the lines of two sets of files differ first, by series; empty where they do not."""
    parts = []
    for series in sorted(one.keys() | other.keys()):
        mine, theirs = one.get(series, []), other.get(series, [])
        if mine != theirs:
            at = next((i for i, (a, b) in enumerate(zip(mine, theirs, strict=False)) if a != b), None)
            parts.append(f"{series}: {len(mine)} and {len(theirs)} lines, the first that differs: {at}")
            if at is not None:
                parts += [mine[at].decode(), theirs[at].decode()]
    return "\n".join(parts)


def pause(group: Group, rng: random.Random) -> list[float]:
    """Stop an agent until the others have all partitions, then let it go on; the seconds of each."""
    paused = rng.choice(group.living)
    paused.send(signal.SIGSTOP)
    pauses = [group.until_settled(without=paused)]
    paused.send(signal.SIGCONT)
    pauses.append(group.until_settled())
    assert re.search(r"Partition \d: .*the lease is lost", paused.log), paused.log
    return pauses


def move(group: Group, pour: Pour, hand_overs: int, kills: int, pauses: int, seed: int) -> Result:
    """Take agents away and start others, so often, and compare with one that read alone."""
    rng, seconds = random.Random(seed), []
    counts = {"kill": 0, "stop": 0, "start": 0}
    for _ in range(AGENTS):
        group.launch()
    group.until_settled()
    for number in range(hand_overs):
        time.sleep(rng.uniform(0.2, 1.0))
        if number % 2:
            what = "start"
            group.launch()
        else:
            leaving = rng.choice(group.living)
            left = (hand_overs - number + 1) // 2
            what = "kill" if rng.random() < (kills - counts["kill"]) / left else "stop"
            if what == "kill":
                leaving.process.kill()
                end_of(leaving.process)
            else:
                assert leaving.end()[0] == 0, leaving.log
        counts[what] += 1
        seconds.append(group.until_settled())
    for _ in range(pauses):
        seconds += pause(group, rng)
    pour.finish()
    wait_until(lambda: group.positions() == pour.sent, "all is used and saved", pause=0.2)
    for daemon in group.living:
        assert daemon.end()[0] == 0, daemon.log
    alone = group.alone()
    alone.until(lambda: accounts(alone.metrics()).received >= pour.messages, "one agent alone has read all")
    assert alone.end()[0] == 0, alone.log
    expected = lines_of(group.folder / "alone" / "windows.ndjson")
    actual = lines_of(*group.folder.glob("windows-*.ndjson"))
    difference = differences(actual, expected)
    if difference:
        (group.folder / "differences.txt").write_text(difference, encoding="utf-8")
    lines = [line for each in actual.values() for line in each]
    closed = sum(b'"revision":0' in line for line in lines)
    return Result(
        counts["kill"],
        counts["stop"],
        counts["start"],
        seconds,
        pauses,
        group.count_moves(),
        pour.messages,
        closed,
        len(lines) - closed,
        not difference,
        group.counted(),
    )


def moved(
    folder: Path,
    broker: KafkaBroker,
    server: PostgresServer,
    topic: str,
    hand_overs: int,
    kills: int,
    rate: float,
    driver: Driver = "kafka-python",
    pauses: int = 0,
    seed: int = 0,
) -> Result:
    """Return `move`, with a topic and a group made for it."""
    with Group(folder, broker, server, topic, driver) as group:
        pour = Pour(broker.address, topic, rate, seed)
        pour.start()
        return move(group, pour, hand_overs, kills, pauses, seed)


def table(
    hand_overs: int = 30,
    kills: int = 10,
    pauses: int = 2,
    rate: float = 300.0,
    driver: Driver = "kafka-python",
    seed: int = 0,
) -> Iterator[str]:
    """Yield the results; the rate in answers and labels a second."""
    with tempfile.TemporaryDirectory() as name, KafkaBroker() as broker, PostgresServer() as server:
        result = moved(Path(name), broker, server, "moves", hand_overs, kills, rate, driver, pauses, seed)
    yield (
        f"{len(result.seconds)} hand-overs between {AGENTS} agents: {result.kills} killed, {result.stops} "
        f"stopped, {result.starts} added, {result.pauses} paused and continued; the state of a partition was "
        f"taken over {result.leases} times"
    )
    yield (
        f"{result.windows:,} windows closed, {result.revisions:,} revisions; the lines of each series are "
        f"{'equal to' if result.equal else 'DIFFERENT from'} those of one agent alone"
    )
    yield f"{result.messages:,} messages sent at {rate:,.0f} a second; counted in the database:"
    yield from str(result.counted).splitlines()
    yield (
        f"every partition had its owner after {median(result.seconds):.1f} s in the median, "
        f"{max(result.seconds):.1f} s at worst (session {SESSION_MILLISECONDS / 1000:g} s, lease 2 s)"
    )


if __name__ == "__main__":
    fork_server.enabled = True  # an agent is to be there at once, also on busy cores
    run(table, keep=False)
