"""Kills a real daemon that reads a real Kafka broker, at random moments, and counts what came of it.

    python -m tests.faults.kafka_kills [--partitions 1] [--kills 200] [--records 100000] [--seed 0]

The stream is that of `tests.faults.kills`: answers of four models in two groups, late and early labels,
repetitions, rubbish. Over one partition the reports must equal, byte for byte, those of a daemon that was
left alone. Over several, each message goes to the partition of its id (keyed) or to any (unkeyed), and
every answer must be in exactly one window, by the positions that the windows recorded.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from pathlib import Path
from typing import Any, Protocol

import msgspec
from kafka import KafkaProducer

from tests.accounting import Accounts, accounts, assert_adds_up
from tests.daemon import DaemonProcess, configuration
from tests.faults.kills import reference, stream
from tests.faults.ranges import Account, Answer, account, parts_of, windows_of
from tests.services.kafka_broker import KafkaBroker
from tests.services.kafka_reading import JOIN_FAST
from tests.services.process import DRIVERS, PATIENCE_SECONDS, Driver, wait_until

PARTITIONS = 6
WHILE_IT_WORKS = 0.9
"""Share of the kills that wait until it has saved something; the others also hit its start."""
LONGEST_SECONDS = 0.5
CHECKPOINTS = (0.02, 0.1, 0.3)
"""Seconds between two checkpoints: one of them a stream."""


@dataclass(frozen=True, slots=True)
class Result:
    """Kills, and what became of the answers in spite of them: by the windows, and by the metrics."""

    kills: int
    account: Account
    metrics: Accounts


TASK: dict[str, Any] = {
    "classes": ["ok", "bad"],
    "window": {"size": 100, "min_size": 50, "max_age_seconds": 1_000_000},
    "groups": ["region"],
    "objective": {"accuracy": {"min": 0.8}},
    # A fit on labels is taken over whenever the worker has it ready: not the same bytes twice.
    "calibration": {"refit_labels": None},
}


TASKS: dict[str, dict[str, Any]] = {
    "classification": TASK,
    "regression": {
        "kind": "regression",
        "tolerance": 1.5,
        "reference": {"path": "reference.ndjson"},
        **{key: TASK[key] for key in ("window", "groups", "calibration")},
        "objective": {"within_tolerance": {"min": 0.8}},
    },
}
"""The task of each kind. That of numbers has the reference that `write_reference` writes."""


def write_reference(folder: Path, kind: str) -> None:
    """Write the reference of the task of this kind, if it has one."""
    if "path" in TASKS[kind].get("reference", {}):
        (folder / "reference.ndjson").write_text("\n".join(reference(1)), encoding="utf-8")


class Feed(Protocol):
    """The sent messages, and whether a store has used all of them."""

    @property
    def sent(self) -> Mapping[str, Sequence[Answer | None]]: ...

    @property
    def messages(self) -> int: ...

    def used_up(self, store: Path) -> bool: ...


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic that was filled, and what each of its messages holds.

    Parameters
    ----------
    broker : str
    name : str
    sent : mapping of str to list
        As `tests.faults.ranges.Sent`.
    """

    broker: str
    name: str
    sent: dict[str, list[Answer | None]]

    @property
    def messages(self) -> int:
        return sum(map(len, self.sent.values()))

    def config(
        self, name: str, every_seconds: float, driver: Driver = "kafka-python", **options: Any
    ) -> dict[str, Any]:
        """Return the configuration of a daemon in a group of its own, with its own store and reports file."""
        # A member with a name takes the place of the one that was killed at once, not after its session.
        member = {"group_instance_id": name, "max_poll_records": 100}
        source = {
            "kind": "kafka",
            "driver": driver,
            "brokers": [self.broker],
            "topics": [self.name],
            "group": f"{self.name}-{name}",
        }
        return configuration(
            sources=[source | {"options": JOIN_FAST | member | options}],
            reports={"path": f"{name}.ndjson"},
            store={"path": name, "every_seconds": every_seconds},
            task=TASK,
        )

    def used_up(self, store: Path) -> bool:
        """Return whether the last checkpoint holds the end of every partition."""
        return saved_offsets(store) == {name: len(rows) for name, rows in self.sent.items()}


def fill(broker: KafkaBroker, name: str, partitions: int, lines: Iterator[str], keyed: bool) -> Topic:
    """Make a topic of these messages; by the hash of their id, or anywhere."""
    broker.create_topic(name, partitions)
    anywhere = random.Random(name)
    places: list[tuple[Any, int]] = []
    topic = Topic(broker.address, name, {f"{name}-{i}": [] for i in range(partitions)})
    producer = KafkaProducer(bootstrap_servers=broker.address, acks="all", linger_ms=20, batch_size=1 << 18)
    try:
        for line in lines:
            record = decoded(line)
            key = zlib.crc32(str(record.get("id")).encode()) if keyed else anywhere.randrange(partitions)
            rows = topic.sent[f"{name}-{key % partitions}"]
            places.append((producer.send(name, line.encode(), partition=key % partitions), len(rows)))
            rows.append(answer_of(record))
        producer.flush(timeout=PATIENCE_SECONDS)
        assert all(sent.get(1).offset == place for sent, place in places), "a message was sent twice"
    finally:
        producer.close()
    return topic


def decoded(line: str) -> dict[str, Any]:
    try:
        return dict(msgspec.json.decode(line))
    except msgspec.DecodeError:
        return {}


def answer_of(record: dict[str, Any]) -> Answer | None:
    if "model" not in record:
        return None
    model = record["model"]
    return Answer(record["id"], ((model, ""), (model, f"region={record['groups']['region']}")))


def saved_positions(store: Path) -> dict[str, Any]:
    """Return, by partition, the position up to which the last checkpoint of a store has used it."""
    saved = parts_of(store).get("engine", {"positions": {}})["positions"]
    return {name: position for positions in saved.values() for name, position in positions.items()}


def saved_offsets(store: Path) -> dict[str, int]:
    """Return `saved_positions` of a source of Kafka, or of files, as numbers."""
    return {name: position["at"] for name, position in saved_positions(store).items()}


def finish(folder: Path, config: dict[str, Any], topic: Feed) -> Accounts:
    """Run the daemon until the topic is used up and saved, and stop it; what it counted of all of it."""
    store = folder / config["store"]["path"]
    with DaemonProcess(folder, config) as daemon:
        try:
            wait_until(lambda: topic.used_up(store), "all is used", pause=0.2)
        except AssertionError as error:
            sent = {name: len(rows) for name, rows in topic.sent.items()}
            feed = {name: daemon.metrics().all(name) for name in ("source_up", "source_lag_records")}
            text = f"{error}: of {sent} used {saved_positions(store)}; {feed}\n{daemon.log}"
            raise AssertionError(text) from None
        balance = accounts(assert_adds_up(daemon, sent=topic.messages))
        code, _ = daemon.end()
    assert code == 0, daemon.log
    return balance


def killed(
    folder: Path, config: dict[str, Any], topic: Feed, kills: int, moments: random.Random
) -> tuple[int, Accounts]:
    """Kill and start again until the topic is used up; return the number of kills before that, and the
    accounts.
    """
    store = folder / config["store"]["path"]
    count = 0
    while count < kills and not topic.used_up(store):
        before = saved_positions(store)
        with DaemonProcess(folder, config) as daemon:  # leaving it kills it
            if moments.random() < WHILE_IT_WORKS:
                daemon.until(lambda before=before: saved_positions(store) != before, "it saves")  # type: ignore[misc]
            time.sleep(moments.uniform(0.0, LONGEST_SECONDS))
        count += 1
    # Also where all is used: the last kill may have come before the file.
    return count, finish(folder, config, topic)


def exact(folder: Path, topic: Feed) -> Account:
    """Return the account of the answers; raise AssertionError unless each is in exactly one window."""
    tally = account(topic.sent, windows_of("killed", folder / "killed.ndjson", folder / "killed"))
    assert tally.exact, tally
    return tally


def compared(folder: Path, feed: Feed, kills: int, seed: int, **more: Any) -> Result:
    """Return kills over a feed in order; the reports are compared with those of a daemon that was left alone.

    Raises
    ------
    AssertionError
        They differ, or an answer is not in exactly one window.
    """
    every = CHECKPOINTS[seed % len(CHECKPOINTS)]
    finish(folder, feed.config("alone", every, **more), feed)
    count, counted = killed(folder, feed.config("killed", every, **more), feed, kills, random.Random(seed))
    expected, actual = ((folder / f"{name}.ndjson").read_bytes() for name in ("alone", "killed"))
    assert actual == expected, f"seed {seed}: the reports differ after {count} kills"
    return Result(count, exact(folder, feed), counted)


def one_partition(
    broker: KafkaBroker,
    folder: Path,
    name: str,
    records: int,
    kills: int,
    seed: int,
    driver: Driver = "kafka-python",
) -> Result:
    """Compare as `compared` does, over one partition."""
    topic = fill(broker, name, 1, stream(records, seed), keyed=True)
    return compared(folder, topic, kills, seed, driver=driver)


def many_partitions(
    broker: KafkaBroker,
    folder: Path,
    name: str,
    records: int,
    kills: int,
    seed: int,
    driver: Driver = "kafka-python",
) -> Result:
    """Return kills over six partitions, keyed where the seed is even, else unkeyed.

    Raises
    ------
    AssertionError
        An answer is not in exactly one window, by the recorded positions.
    """
    topic = fill(broker, name, PARTITIONS, stream(records, seed), keyed=seed % 2 == 0)
    every = CHECKPOINTS[seed % len(CHECKPOINTS)]
    count, counted = killed(folder, topic.config("killed", every, driver), topic, kills, random.Random(seed))
    return Result(count, exact(folder, topic), counted)


def kill_until_enough(
    options: argparse.Namespace, one: Callable[[Path, str, int, int], Result], streams: str
) -> None:
    """Kill over one stream after the other, and print the results.

    Parameters
    ----------
    options : Namespace
        Those of `parser_of_kills`.
    one : callable
        Kills over a stream: folder, its name, how often, its seed.
    streams : str
        The streams, and the figures shown of each.
    """
    began = time.monotonic()
    results: list[Result] = []
    while (done := sum(result.kills for result in results)) < options.kills:
        seed = options.seed + len(results)
        kills = min(options.kills - done, options.kills_a_stream)
        with tempfile.TemporaryDirectory() as folder:
            results.append(one(Path(folder), f"s{seed}", kills, seed))
    windows = sum(result.account.windows for result in results)
    answers = sum(result.account.answers for result in results)
    print(f"{done} kills over {len(results)} streams of {streams}")
    print(f"{windows:,} windows; each of {answers:,} answers in exactly one, each window's line once")
    print(reduce(add, [result.metrics for result in results]))
    print(f"in {time.monotonic() - began:.0f} s")


def parser_of_kills(description: str | None) -> argparse.ArgumentParser:
    """Return a parser of the number of kills, the size of the stream, and the seed."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--kills-a-stream", type=int, default=100)
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kind", choices=tuple(TASKS), default="classification")
    return parser


def main() -> None:
    parser = parser_of_kills(__doc__)
    parser.add_argument("--partitions", type=int, choices=(1, PARTITIONS), default=1)
    parser.add_argument("--driver", choices=DRIVERS, default=DRIVERS[0])
    options = parser.parse_args()
    run = one_partition if options.partitions == 1 else many_partitions
    claim = ", reports equal byte for byte" if options.partitions == 1 else ", keyed and unkeyed in turn"
    with KafkaBroker() as broker:
        kill_until_enough(
            options,
            lambda folder, name, kills, seed: run(
                broker, folder, name, options.records, kills, seed, options.driver
            ),
            f"{options.partitions} partition(s){claim}",
        )


if __name__ == "__main__":
    main()
