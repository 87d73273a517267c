"""A real Apache Kafka broker for tests: one Java process (KRaft), its data in a temporary folder.

The jars come from Maven Central into a cache outside the repository,
``~/.cache/blindsight-test/kafka-<version>``, or lie in the folder that ``BLINDSIGHT_KAFKA_LIBS`` names.
"""

from __future__ import annotations

import base64
import os
import shutil
import signal
import subprocess
import tempfile
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from xml.etree import ElementTree

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import KafkaError, TopicAlreadyExistsError

from tests.services.process import (
    CACHE,
    PATIENCE_SECONDS,
    SHORT_LIVED_JAVA,
    ServiceUnavailable,
    answers,
    free_ports,
    java_words,
    locked,
    started,
    stop,
    wait_until,
)

POM = Path(__file__).with_name("pom.xml")
OLD_POM = Path(__file__).with_name("old-kafka.xml")
_blank: dict[str, bytes] = {}
"""The files of a formatted folder, once one broker of this process has made them."""


def kafka_version() -> str:
    """Return the version that `pom.xml` names."""
    version = ElementTree.parse(POM).findtext("{*}properties/{*}kafka.version")
    assert version, "pom.xml names no kafka.version"
    return version


def kafka_libs() -> Path:
    """Return the folder with the broker's jars, fetched by Maven where they are not there yet.

    Raises
    ------
    ServiceUnavailable
        Java or Maven is missing, or the jars cannot be fetched.
    """
    if shutil.which("java") is None:
        raise ServiceUnavailable("a Kafka broker needs `java` 17: run .ci/install-services.sh")
    named = os.environ.get("BLINDSIGHT_KAFKA_LIBS")
    folder = Path(named) if named else CACHE / f"kafka-{kafka_version()}"
    if list(folder.glob("kafka_2.13-*.jar")):
        return folder
    if named:
        raise ServiceUnavailable(f"BLINDSIGHT_KAFKA_LIBS={named} holds no kafka_2.13-*.jar")
    return fetched(POM, folder)


def fetched(pom: Path, folder: Path) -> Path:
    """Return the folder with the jars of a POM, fetched by Maven where it is not there yet.

    Raises
    ------
    ServiceUnavailable
        Maven is missing, or they cannot be fetched.
    """
    if folder.exists():
        return folder
    if shutil.which("mvn") is None:
        raise ServiceUnavailable(f"the jars of {pom.name} come by `mvn`: run .ci/install-services.sh")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with locked(folder.parent / f"{folder.name}.lock"):
        return folder if folder.exists() else _download(pom, folder)


def _download(pom: Path, folder: Path) -> Path:
    # Into a folder beside and renamed at the end: an interrupted download must not look complete.
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        goal = ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={scratch}/libs"]
        done = subprocess.run(
            ["mvn", "-q", "-B", "-f", str(pom), *goal],
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        if done.returncode != 0:
            raise ServiceUnavailable(
                f"mvn could not fetch the jars of {pom.name}: {done.stdout[-500:]}{done.stderr[-500:]}"
            )
        return Path(scratch, "libs").rename(folder)


class KafkaBroker:
    """One broker. A context manager: it answers inside, and is gone with its data outside.

    Parameters
    ----------
    told : sequence of str, optional
        What its Java is told.
    """

    def __init__(self, words: Sequence[str] | None = None) -> None:
        self._libs = kafka_libs()
        self._words = java_words(f"kafka-{kafka_version()}", self._libs, _use) if words is None else words
        self.port, self._controller_port = free_ports(2)
        self._process: subprocess.Popen[bytes] | None = None
        self._folder: Path | None = None

    @property
    def address(self) -> str:
        """``host:port`` for clients."""
        return f"127.0.0.1:{self.port}"

    @property
    def data(self) -> Path:
        """The folder with the partitions' logs."""
        assert self._folder is not None, "the broker has no data before its first start"
        return self._folder / "data"

    def __enter__(self) -> KafkaBroker:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def start(self) -> None:
        """Start it, or start it again on the same ports and data, and wait until it answers."""
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="blindsight-kafka-"))
            self._format()
        log = self._folder / "broker.log"
        words = self._java("kafka.Kafka", str(self._folder / "server.properties"))
        self._process = started("the Kafka broker", words, log, self._ready)

    def stop(self) -> None:
        """Send SIGTERM: the broker closes its logs cleanly."""
        stop(self._process)

    def kill(self) -> None:
        """SIGKILL: as a crash would."""
        stop(self._process, kill=True)

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Hold its process still inside the block: connections stay open and nothing answers."""
        assert self._process is not None, "the broker has not been started"
        self._process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)

    def close(self) -> None:
        """Stop it and remove its data."""
        stop(self._process, kill=True)
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def create_topic(self, name: str, partitions: int = 1, **config: str) -> None:
        """Make a topic, and wait until its partitions have leaders."""
        admin = KafkaAdminClient(bootstrap_servers=self.address)
        try:
            admin.create_topics(
                {name: {"num_partitions": partitions, "replication_factor": 1, "configs": config}}
            )
            wait_until(lambda: len(self._leaders(admin, name)) >= partitions, f"topic {name} has leaders")
        finally:
            admin.close()

    def delete_topic(self, name: str) -> None:
        """Delete a topic, and wait until the broker lists none of this name."""
        admin = KafkaAdminClient(bootstrap_servers=self.address)
        try:
            admin.delete_topics([name])
            wait_until(lambda: name not in admin.list_topics(), f"topic {name} is gone")
        finally:
            admin.close()

    def recreate_topic(self, name: str, partitions: int = 1) -> None:
        """Delete a topic and make it again: another log under its name."""
        self.delete_topic(name)
        self.create_topic(name, partitions)

    def add_partitions(self, name: str, count: int) -> None:
        """Let a topic grow to `count` partitions, and wait until they have leaders."""
        admin = KafkaAdminClient(bootstrap_servers=self.address)
        try:
            admin.create_partitions({name: count})
            wait_until(lambda: len(self._leaders(admin, name)) >= count, f"topic {name} has {count} leaders")
        finally:
            admin.close()

    def delete_records(self, topic: str, partition: int, before: int) -> None:
        """Delete a partition's records before an offset, as retention would."""
        admin = KafkaAdminClient(bootstrap_servers=self.address)
        try:
            admin.delete_records({TopicPartition(topic, partition): before})
        finally:
            admin.close()

    def topics(self) -> set[str]:
        """Return names of the topics that exist."""
        admin = KafkaAdminClient(bootstrap_servers=self.address)
        try:
            return set(admin.list_topics())
        finally:
            admin.close()

    def committed(self, group: str, topic: str, partitions: int) -> dict[str, int]:
        """Return the positions that a consumer group has committed, by ``topic-partition``; absent where none
        is.
        """
        reader = KafkaConsumer(bootstrap_servers=self.address, group_id=group, enable_auto_commit=False)
        try:
            positions = {
                n: reader.committed(TopicPartition(topic, n), timeout_ms=int(1000 * PATIENCE_SECONDS))
                for n in range(partitions)
            }
        finally:
            reader.close(autocommit=False)
        return {f"{topic}-{n}": position for n, position in positions.items() if position is not None}

    def members(self, group: str) -> set[str]:
        """Return ids of a consumer group's members: one that left and came back has another."""
        admin = KafkaAdminClient(bootstrap_servers=self.address)
        try:
            return {member["member_id"] for member in admin.describe_groups([group])[group]["members"]}
        finally:
            admin.close()

    def produce(
        self,
        topic: str,
        values: Iterable[bytes | None],
        *,
        partition: int | None = None,
        partitions: int | None = None,
        compression: str | None = None,
        headers: Mapping[str, str] | None = None,
        key: bytes | None = b"k",
        milliseconds: int | None = None,
    ) -> None:
        """Send these values, with these headers, key and time each, and wait until the broker has them all.

        They go to one `partition`, or round robin over `partitions` partitions (value i to i mod partitions).
        """
        producer = KafkaProducer(
            bootstrap_servers=self.address,
            acks="all",
            linger_ms=20,
            batch_size=1 << 18,
            compression_type=compression,
        )
        try:
            sent = [
                producer.send(
                    topic,
                    value,
                    key=key,
                    timestamp_ms=milliseconds,
                    headers=[(name, text.encode()) for name, text in (headers or {}).items()],
                    partition=i % partitions if partitions else partition,
                )
                for i, value in enumerate(values)
            ]
            producer.flush(timeout=PATIENCE_SECONDS)
            for each in sent:
                each.get(timeout=PATIENCE_SECONDS)
        finally:
            producer.close()

    @contextmanager
    def transaction(self) -> Iterator[KafkaProducer]:
        """Yield a producer in a transaction, which is committed at the end of the block."""
        producer = KafkaProducer(bootstrap_servers=self.address, transactional_id=uuid.uuid4().hex)
        try:
            producer.init_transactions()
            producer.begin_transaction()
            yield producer
            producer.commit_transaction()
        finally:
            producer.close()

    def _ready(self) -> bool:
        if not answers(self.port):
            return False
        try:
            admin = KafkaAdminClient(bootstrap_servers=self.address, bootstrap_timeout_ms=20_000)
        except KafkaError:
            return False
        admin.close()
        return True

    @staticmethod
    def _leaders(admin: KafkaAdminClient, topic: str) -> list[int]:
        described = admin.describe_topics([topic])
        return [p["leader_id"] for t in described for p in t["partitions"] if p["leader_id"] >= 0]

    def _java(self, main: str, *arguments: str) -> list[str]:
        return [
            "java",
            "-Xmx512m",
            *self._words,
            "-cp",
            f"{self._libs}/*",
            main,
            *arguments,
        ]

    def _settings(self) -> dict[str, str]:
        """Return the settings of `server.properties`."""
        listeners = f"PLAINTEXT://{self.address},CONTROLLER://127.0.0.1:{self._controller_port}"
        return {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@127.0.0.1:{self._controller_port}",
            "listeners": listeners,
            "advertised.listeners": listeners,
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "PLAINTEXT",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "log.dirs": str(self.data),
            "num.partitions": "3",
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "2",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
            # A broker killed with -9 is let back in only when its old session has ended: 9 s by default.
            # Much less, and on a busy machine one that lives is shut out.
            "broker.session.timeout.ms": "5000",
            "broker.heartbeat.interval.ms": "1000",
            # The controller writes a record twice a second by default, to show that it lives.
            "metadata.max.idle.interval.ms": "10000",
            "log.cleaner.backoff.ms": "2000",
            # Each thread wakes up now and then: a broker that is idle takes half as much with fewer.
            "num.network.threads": "1",
            "num.io.threads": "2",
            "background.threads": "1",
            # Tests shorten a member's session, so that a killed one is missed soon.
            "group.min.session.timeout.ms": "1000",
        }

    def _format(self, *more: str) -> None:
        assert self._folder is not None
        properties = self._folder / "server.properties"
        properties.write_text("".join(f"{key}={value}\n" for key, value in self._settings().items()))
        # A Java less: nothing in them is one broker's own, and a user whom no listener asks for does no harm.
        if not more and _blank:
            self.data.mkdir()
            for name, content in _blank.items():
                (self.data / name).write_bytes(content)
            return
        cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        # One word: an id may begin with a hyphen.
        arguments = ["format", f"--cluster-id={cluster}", "-c", str(properties), *more]
        done = subprocess.run(
            self._java("kafka.tools.StorageTool", *arguments),
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
            check=False,
        )
        if done.returncode != 0:
            raise AssertionError(f"Kafka's StorageTool failed: {done.stdout[-800:]}{done.stderr[-800:]}")
        _blank.update((path.name, path.read_bytes()) for path in self.data.iterdir())


class OldKafkaBroker(KafkaBroker):
    """A broker of 2.7, whose topics have no ids, and the ZooKeeper that it needs."""

    def __init__(self) -> None:
        super().__init__(SHORT_LIVED_JAVA)
        self._libs = fetched(OLD_POM, CACHE / "kafka-2.7.2")
        self._zookeeper: subprocess.Popen[bytes] | None = None

    def close(self) -> None:
        """Stop both and remove their data."""
        stop(self._zookeeper, kill=True)
        super().close()

    def create_topic(self, name: str, partitions: int = 1, **config: str) -> None:
        """Create a topic as for any broker, once a deleted one of this name has gone from ZooKeeper, too."""

        def is_made() -> bool:
            try:
                super(OldKafkaBroker, self).create_topic(name, partitions, **config)
            except TopicAlreadyExistsError:
                return False
            return True

        wait_until(is_made, f"topic {name} can be made")

    def _settings(self) -> dict[str, str]:
        return {
            "broker.id": "1",
            "zookeeper.connect": f"127.0.0.1:{self._controller_port}",
            "listeners": f"PLAINTEXT://{self.address}",
            "log.dirs": str(self.data),
            "auto.create.topics.enable": "false",
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "2",
            "group.initial.rebalance.delay.ms": "0",
        }

    def _format(self, *more: str) -> None:
        folder = self.data.parent
        settings = {
            "dataDir": str(folder / "zookeeper"),
            "clientPort": str(self._controller_port),
            "clientPortAddress": "127.0.0.1",
            "admin.enableServer": "false",
        }
        for name, values in (("server", self._settings()), ("zookeeper", settings)):
            text = "".join(f"{key}={value}\n" for key, value in values.items())
            (folder / f"{name}.properties").write_text(text, encoding="utf-8")
        main = "org.apache.zookeeper.server.ZooKeeperServerMain"
        words = self._java(main, str(folder / "zookeeper.properties"))
        log, port = folder / "zookeeper.log", self._controller_port
        self._zookeeper = started("ZooKeeper", words, log, lambda: answers(port))


def _use(words: Sequence[str]) -> None:
    """Do a broker's work in small, with these options of Java."""
    with KafkaBroker(words) as broker:
        broker.create_topic("used", 2)
        broker.produce("used", [b"1", b"2"])
        with broker.transaction() as producer:
            producer.send("used", b"3")
        broker.committed("users", "used", 2)
        assert broker._process is not None
        broker._process.terminate()
        broker._process.wait(PATIENCE_SECONDS)
