"""Hands a topic over between two real daemons of one consumer group, and counts what came of it.

    python -m tests.faults.hand_overs [--hand-overs 20] [--kills 3] [--seed 0] [--driver confluent]

Two daemons with a store each share six partitions. One of them is stopped (SIGTERM) and started again,
over and over, while answers keep coming: each time its partitions go to the other, and half of them come
back. What a stopped daemon had in open windows stays in its store, and it goes on from there. Then every
answer must be in exactly one window of one of them, by the positions that their windows recorded.

With `--kills`, one of them is then killed (SIGKILL) while it reads: what both have used is at most what
it had saved and not yet committed, and counted by the one that was killed when it comes back.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from operator import add
from pathlib import Path

from kafka import KafkaProducer

from tests.accounting import Accounts, accounts, assert_adds_up
from tests.daemon import DaemonProcess
from tests.faults.kafka_kills import PARTITIONS, Topic, saved_offsets
from tests.faults.kills import MODELS
from tests.faults.ranges import Account, Answer, Window, account, parts_of, windows_of
from tests.services.kafka_broker import KafkaBroker
from tests.services.process import DRIVERS, PATIENCE_SECONDS, Driver, wait_until

NAMES = ("one", "two", "three")
ROWS_PER_SECOND = 2000
CHECKPOINT_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class Result:
    """The result of the hand-overs.

    Parameters
    ----------
    hand_overs : int
        Stops and starts, each of which moved partitions.
    account : Account
    taken_over, overlap : int
        As the daemons counted, in their metrics.
    ahead : tuple of int
        For each kill, the records that the killed one had saved and not committed.
    split : int
        Windows that hold several stretches of one partition.
    metrics : Accounts
        What all of them counted, by their last scrapes.
    """

    hand_overs: int
    account: Account
    taken_over: int
    overlap: int
    ahead: tuple[int, ...]
    split: int
    metrics: Accounts


class Pour(threading.Thread):
    """A thread that sends answers until it is stopped.

    Parameters
    ----------
    topic : Topic
        Keeps the sent answers.
    seed : int
    keyed : bool
        Whether a model has a partition of its own; else round robin over the partitions.
    rate : float
        Answers a second.
    """

    def __init__(self, topic: Topic, seed: int, keyed: bool = False, rate: float = ROWS_PER_SECOND) -> None:
        super().__init__(daemon=True)
        self._topic = topic
        self._keyed = keyed
        self._rate = rate
        self._random = random.Random(seed)
        self._halt = threading.Event()
        self.error: BaseException | None = None

    def run(self) -> None:
        producer = KafkaProducer(bootstrap_servers=self._topic.broker, acks="all", linger_ms=5)
        try:
            began, sent = time.monotonic(), 0
            while not self._halt.wait(0.02):
                due = int((time.monotonic() - began) * self._rate)
                for i in range(sent, due):
                    self._send(producer, i)
                sent = max(sent, due)
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

    def _send(self, producer: KafkaProducer, i: int) -> None:
        score = round(self._random.betavariate(8, 1), 6)
        model = MODELS[self._random.randrange(len(MODELS))]
        record = {"id": f"r{i}", "time": 1.7e9 + i / 10, "model": model, "scores": [1 - score, score]}
        partition = MODELS.index(model) if self._keyed else i % PARTITIONS
        self._topic.sent[f"{self._topic.name}-{partition}"].append(Answer(f"r{i}", ((model, ""),)))
        producer.send(self._topic.name, json.dumps(record).encode(), partition=partition)


@contextmanager
def pouring(topic: Topic, seed: int, keyed: bool = False, rate: float = ROWS_PER_SECOND) -> Iterator[None]:
    """Let answers keep coming inside the block; after it all have arrived."""
    pour = Pour(topic, seed, keyed, rate)
    pour.start()
    try:
        yield
    finally:
        pour.finish()


class Agents:
    """Daemons of one group, each in a folder of its own.

    Parameters
    ----------
    folder : Path
    broker : KafkaBroker
    name : str
        Of the topic, which is made.
    driver : {"kafka-python", "confluent"}
    count : int
    options : int
        More of the Kafka client's.
    """

    def __init__(
        self, folder: Path, broker: KafkaBroker, name: str, driver: Driver, count: int = 2, **options: int
    ) -> None:
        broker.create_topic(name, PARTITIONS)
        self.names = NAMES[:count]
        self._broker = broker
        self.topic = Topic(broker.address, name, {f"{name}-{i}": [] for i in range(PARTITIONS)})
        self.folders = {each: folder / each for each in self.names}
        self.config = self.topic.config("own", CHECKPOINT_SECONDS, driver, **options)
        del self.config["sources"][0]["options"]["group_instance_id"]  # a member that stops is to leave
        self.group = self.config["sources"][0]["group"]
        self.daemons: dict[str, DaemonProcess] = {}
        self.taken_over = self.overlap = 0
        self.ahead: list[int] = []
        self.counted: dict[str, Accounts] = {}

    def __enter__(self) -> Agents:
        for folder in self.folders.values():
            folder.mkdir()
        return self

    def __exit__(self, *_: object) -> None:
        for daemon in self.daemons.values():
            daemon.__exit__(None, None, None)

    def start(self, name: str) -> None:
        """Start a daemon, and wait until it reads some partitions."""
        before = self.saved(name)
        daemon = self.launch(name)
        daemon.until(lambda: self.saved(name) != before, "it uses something")

    def launch(self, name: str) -> DaemonProcess:
        """Start a daemon."""
        # Members are given partitions in the order of their names: each comes back to those that it had.
        [source] = self.config["sources"]
        named = source | {"options": source["options"] | {"client_id": name}}
        self.daemons[name] = daemon = DaemonProcess(self.folders[name], self.config | {"sources": [named]})
        return daemon

    def stop(self, name: str) -> None:
        """Send SIGTERM: it saves and commits its positions, and leaves the group."""
        daemon = self.daemons[name]
        self._count(name)
        code, _ = daemon.end()
        assert code == 0, daemon.log

    def kill(self, name: str) -> None:
        """Send SIGKILL."""
        self._count(name)
        self.daemons[name].process.kill()
        self.daemons[name].process.wait()
        committed = self.committed()
        self.ahead.append(sum(max(at - committed.get(each, 0), 0) for each, at in self.saved(name).items()))

    def saved(self, name: str) -> dict[str, int]:
        """Return, by partition, the position that a daemon has saved."""
        return saved_offsets(self.folders[name] / self.config["store"]["path"])

    def committed(self) -> dict[str, int]:
        """Return, by partition, the position that the group has committed."""
        return self._broker.committed(self.group, self.topic.name, PARTITIONS)

    def until_all_move(self, name: str) -> None:
        """Wait until a daemon has gone on in every partition that is written to, from where the group was."""
        before = {each: at for each, at in self.committed().items() if self.topic.sent[each]}
        self.daemons[name].until(
            lambda: all(self.saved(name).get(each, 0) > at for each, at in before.items()), "it has them all"
        )

    def until_used_up(self) -> None:
        """Wait until one of them has saved the end of each partition, and the group knows it."""
        ends = {name: len(rows) for name, rows in self.topic.sent.items()}

        def reached() -> dict[str, int]:
            saved = [self.saved(name) for name in self.names]
            return {name: max(positions.get(name, 0) for positions in saved) for name in ends}

        wait_until(lambda: reached() == ends, "all is used")
        wait_until(lambda: self.committed() == ends, "the group knows it", pause=0.3)
        for name, daemon in self.daemons.items():
            if daemon.process.poll() is None:
                daemon.until(lambda name=name: self._shows_all(name), "its metrics show it")  # type: ignore[misc]

    def windows(self) -> list[Window]:
        """Return the windows of both, closed and open; to be asked for once both have ended."""
        return [
            window
            for name, folder in self.folders.items()
            for window in windows_of(name, folder / self.config["reports"]["path"], folder / "own")
        ]

    def _shows_all(self, name: str) -> bool:
        saved = parts_of(self.folders[name] / self.config["store"]["path"])["engine"]
        counts = (*saved["received"].values(), *saved["labels_received"].values())
        return accounts(self.daemons[name].metrics()).received == sum(counts)

    @property
    def metrics(self) -> Accounts:
        """The accounts of all of them, each by its last scrape before it ended."""
        return reduce(add, self.counted.values())

    def _count(self, name: str) -> None:
        scrape = assert_adds_up(self.daemons[name])
        self.counted[name] = accounts(scrape)
        self.taken_over += int(scrape.total("source_taken_over_records_total"))
        self.overlap += int(scrape.total("source_overlap_records_total"))


def hand_over(
    folder: Path,
    broker: KafkaBroker,
    name: str,
    hand_overs: int,
    driver: Driver = "kafka-python",
    seed: int = 0,
    rate: float = ROWS_PER_SECOND,
) -> Result:
    """Stop one of two daemons and start it again, `hand_overs` times, in turn.

    Raises
    ------
    AssertionError
        An answer is not in exactly one window, or the accounting of a daemon does not add up.
    """
    with Agents(folder, broker, name, driver) as agents:
        with pouring(agents.topic, seed, rate=rate):
            for each in agents.names:
                agents.start(each)
            for i in range(hand_overs):
                moving, staying = NAMES[i % 2], NAMES[1 - i % 2]
                agents.stop(moving)
                agents.until_all_move(staying)
                agents.start(moving)
        agents.until_used_up()
        for each in agents.names:
            agents.stop(each)
        windows = agents.windows()
    tally = account(agents.topic.sent, windows)
    assert tally.exact, tally
    assert agents.overlap == 0, "nothing may be used twice"
    assert agents.metrics.received == agents.topic.messages, "each message is counted once"
    return Result(hand_overs, tally, agents.taken_over, agents.overlap, (), split(windows), agents.metrics)


def split(windows: list[Window]) -> int:
    """Return how many windows hold several stretches of one partition."""
    return sum(any(len(ends) > 2 for ends in window.positions.values()) for window in windows)


def kill_owners(
    folder: Path,
    broker: KafkaBroker,
    name: str,
    kills: int,
    driver: Driver = "kafka-python",
    seed: int = 0,
    rate: float = ROWS_PER_SECOND,
) -> Result:
    """Kill one of two daemons, `kills` times, in turn; it comes back, and takes everything over.

    Raises
    ------
    AssertionError
        An answer is lost, or the answers in two windows are not those that were counted.
    """
    with Agents(folder, broker, name, driver, session_timeout_ms=4000) as agents:
        with pouring(agents.topic, seed, rate=rate):
            for each in agents.names:
                agents.start(each)
            for i in range(kills):
                dying, staying = NAMES[i % 2], NAMES[1 - i % 2]
                agents.kill(dying)
                agents.until_all_move(staying)
                agents.start(dying)
                agents.stop(staying)  # so that the other meets again every partition that it had
                agents.until_all_move(dying)
                agents.start(staying)
        agents.until_used_up()
        for each in agents.names:
            agents.stop(each)
        windows = agents.windows()
    tally = account(agents.topic.sent, windows)
    assert tally.lost == 0, tally
    assert tally.doubled <= min(sum(agents.ahead), agents.overlap), (tally, agents.ahead, agents.overlap)
    metrics, ahead = agents.metrics, tuple(agents.ahead)
    assert metrics.received == agents.topic.messages + tally.doubled, "what is in two windows came twice"
    return Result(kills, tally, agents.taken_over, agents.overlap, ahead, split(windows), metrics)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--hand-overs", type=int, default=20)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--driver", choices=DRIVERS, default=DRIVERS[0])
    options = parser.parse_args()
    driver, seed = options.driver, options.seed
    with KafkaBroker() as broker, tempfile.TemporaryDirectory() as folder:
        for name in ("handed", "killed"):
            (Path(folder) / name).mkdir()
        handed = hand_over(Path(folder) / "handed", broker, "handed", options.hand_overs, driver, seed)
        killed = kill_owners(Path(folder) / "killed", broker, "killed", options.kills, driver, seed)
    tally = handed.account
    print(
        f"{handed.hand_overs} hand-overs of {PARTITIONS} partitions at {ROWS_PER_SECOND:,} answers/s: "
        f"{tally.answers:,} answers, {tally.lost} lost, {tally.doubled} doubled"
    )
    print(f"{tally.windows:,} windows, {handed.split} of them of several stretches of a partition")
    print(handed.metrics)
    tally = killed.account
    print(
        f"{killed.hand_overs} owners killed with -9: {tally.answers:,} answers, {tally.lost} lost, "
        f"{tally.doubled} doubled; {killed.overlap} counted as perhaps doubled"
    )
    most = max(killed.ahead, default=0)
    print(
        f"saved and not committed at a kill: at most {most} answers, {most / ROWS_PER_SECOND:.2f} s of them"
    )
    print(killed.metrics)


if __name__ == "__main__":
    main()
