"""Records that two owners of a partition have both used are counted; an orderly hand-over uses each once."""

from __future__ import annotations

import gc
import json
import random
import subprocess
import sys
import threading
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

from kafka import KafkaConsumer, OffsetAndMetadata, TopicPartition

from connectors.kafka import KafkaSource
from monitor.base.source import SourceCounts
from tests.services.kafka_broker import KafkaBroker
from tests.services.kafka_reading import Reader, Worker
from tests.services.process import PATIENCE_SECONDS, Driver, wait_until

Sources = Callable[..., KafkaSource]

ROOT = Path(__file__).parents[3]
SEED = 20261120
HAND_OVERS = 20
OWNER = """
import sys, warnings
warnings.simplefilter("ignore")
from tests.services.kafka_reading import Reader, make_source
source = make_source(sys.argv[1], "owned", driver=sys.argv[2], group="owned", session_timeout_ms=1500)
source.open({})
reader = Reader(source, absorb=False)
reader.until(200)
source.acknowledge({"owned-0": 100})
reader.quiet(2.0)
print(reader.count, flush=True)
while True:
    reader.once()
"""
"""An owner whose store is ahead of what it has told the group: it dies between checkpoint and commit."""


def test_what_a_killed_owner_and_its_successor_both_used_is_counted_when_the_owner_comes_back(
    kafka_broker: KafkaBroker, kafka_source: Sources, kafka_driver: Driver
) -> None:
    kafka_broker.create_topic("owned")
    kafka_broker.produce("owned", [b"%d" % i for i in range(200)])
    with subprocess.Popen(
        [sys.executable, "-c", OWNER, kafka_broker.address, kafka_driver],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    ) as owner:
        assert owner.stdout is not None
        used = int(owner.stdout.readline())
        owner.kill()
    committed = kafka_broker.committed("owned", "owned", 1)["owned-0"]
    assert (used, committed) == (200, 100)

    kafka_broker.produce("owned", [b"%d" % i for i in range(200, 300)])
    successor = kafka_source(kafka_broker.address, "owned", group="owned")
    successor.open({})
    reader = Reader(successor)
    reader.until(300 - committed)
    successor.close()
    assert reader.offsets["owned-0"] == list(range(committed, 300))
    assert successor.counts == SourceCounts()

    again = kafka_source(kafka_broker.address, "owned", group="owned")
    again.open({"owned-0": used})
    reader = Reader(again)
    reader.until_counts(SourceCounts(taken_over_records=300 - used, overlap_records=used - committed))
    kafka_broker.produce("owned", [b"new"])
    reader.until(1)
    assert reader.offsets["owned-0"] == [300]


def test_the_overlap_is_counted_also_after_the_group_divided_its_partitions_anew(
    kafka_broker: KafkaBroker, kafka_source: Sources
) -> None:
    """Each new division places a partition again with its owner, who commits from where it began."""
    kafka_broker.create_topic("divided")
    kafka_broker.produce("divided", [b"%d" % i for i in range(100)])
    source = kafka_source(kafka_broker.address, "divided", group="divided")
    source.open({"divided-0": 40})
    reader = Reader(source)
    reader.until(60)
    source.close()
    for count in (10, 20):
        kafka_broker.produce("divided", [b"more"] * 10)
        again = kafka_source(kafka_broker.address, "divided", group="divided")
        again.open({"divided-0": 90 + count})
        reader = Reader(again)
        reader.until(10)
        again.close()
        assert again.counts == SourceCounts()
    killed = kafka_source(kafka_broker.address, "divided", group="divided")
    killed.open({"divided-0": 70})
    reader = Reader(killed)
    reader.until_counts(SourceCounts(taken_over_records=50, overlap_records=30))


def test_the_overlap_is_counted_also_after_the_successor_has_handed_the_partition_on(
    kafka_broker: KafkaBroker, kafka_source: Sources
) -> None:
    kafka_broker.create_topic("passed-on")
    kafka_broker.produce("passed-on", [b"%d" % i for i in range(100)])
    committed = 30
    for count in (
        committed,
        100 - committed,
        20,
        10,
    ):  # the first one's store is ahead of what it told: it has used 50
        source = kafka_source(kafka_broker.address, "passed-on", group="passed-on")
        source.open({})
        reader = Reader(source, absorb=False)
        reader.until(count)
        source.acknowledge({"passed-on-0": reader.offsets["passed-on-0"][0] + count})
        source.close()
        kafka_broker.produce("passed-on", [b"more"] * 20)
    for used, twice in ((50, 20), (100, 0), (committed, 0)):
        back = kafka_source(kafka_broker.address, "passed-on", group="passed-on")
        back.open({"passed-on-0": used})
        Reader(back, absorb=False).until_up()
        back.close()
        assert back.counts == SourceCounts(taken_over_records=130 - used, overlap_records=twice)


def test_a_read_says_that_another_member_used_what_lies_before_it(
    kafka_broker: KafkaBroker, kafka_source: Sources
) -> None:
    kafka_broker.create_topic("between")
    kafka_broker.produce("between", [b"%d" % i for i in range(50)])
    other = kafka_source(kafka_broker.address, "between", group="between")
    other.open({})
    reader = Reader(other)
    reader.until(50)
    other.close()
    back = kafka_source(kafka_broker.address, "between", group="between", max_poll_records=5)
    back.open({"between-0": 20})
    Reader(back).until_up()
    kafka_broker.produce("between", [b"new"] * 10)
    flags: list[bool] = []
    wait_until(
        lambda: bool(flags.extend(raw.after_others for raw in back.read(0.1))) or len(flags) >= 2,
        "both are read",
    )
    assert flags[:2] == [True, False]


def test_what_the_group_was_not_told_of_may_have_been_used_twice(
    kafka_broker: KafkaBroker, kafka_source: Sources
) -> None:
    kafka_broker.create_topic("untold")
    kafka_broker.produce("untold", [b"%d" % i for i in range(60)])
    first = kafka_source(kafka_broker.address, "untold", group="untold")
    first.open({})
    reader = Reader(first, absorb=False)
    reader.until(60)
    first.acknowledge({"untold-0": 30})
    first.close()
    second = kafka_source(kafka_broker.address, "untold", group="untold")
    second.open({"untold-0": 50})
    reader = Reader(second)
    reader.until(10)
    reader.quiet(0.3)
    assert reader.offsets["untold-0"] == list(range(50, 60))
    assert second.counts == SourceCounts(overlap_records=20)


def test_commits_of_other_tools_say_nothing_of_where_they_began(
    kafka_broker: KafkaBroker, kafka_source: Sources
) -> None:
    kafka_broker.create_topic("tool")
    kafka_broker.produce("tool", [b"%d" % i for i in range(50)])
    tool = KafkaConsumer(
        "tool", bootstrap_servers=kafka_broker.address, group_id="tool", auto_offset_reset="earliest"
    )
    # One long poll: where short ones cut its joining, kafka-python alone may never read (`_see_through`).
    assert tool.poll(int(1000 * PATIENCE_SECONDS))
    tool.commit()
    tool.close()
    source = kafka_source(kafka_broker.address, "tool", group="tool")
    source.open({"tool-0": 20})
    reader = Reader(source)
    reader.until_counts(SourceCounts(taken_over_records=30))


def test_a_reset_of_the_groups_offsets_is_no_overlap(
    kafka_broker: KafkaBroker, kafka_source: Sources
) -> None:
    """We go on at our own position: nothing is read twice. What lay between was counted."""
    kafka_broker.create_topic("reset")
    kafka_broker.produce("reset", [b"%d" % i for i in range(60)])
    tool = KafkaConsumer(bootstrap_servers=kafka_broker.address, group_id="reset", enable_auto_commit=False)
    tool.assign([TopicPartition("reset", 0)])
    tool.commit({TopicPartition("reset", 0): OffsetAndMetadata(10, "", -1)})
    tool.close()
    source = kafka_source(kafka_broker.address, "reset", group="reset")
    source.open({"reset-0": 50})
    reader = Reader(source)
    reader.until(10)
    reader.quiet(0.3)
    assert reader.offsets["reset-0"] == list(range(50, 60))
    assert source.counts == SourceCounts()


def test_20_hand_overs_between_two_sources_of_a_group_lose_and_double_nothing(
    kafka_broker: KafkaBroker, kafka_source: Sources
) -> None:
    """A second member comes and goes ten times: each time partitions move over, and each time back."""
    kafka_broker.create_topic("handed", 4)
    generator = random.Random(SEED)
    sent = 0
    workers = [Worker(kafka_source(kafka_broker.address, "handed", group="handed", max_poll_records=50))]
    workers[0].start()
    visitor_knows: dict[str, int] = {}

    def send() -> None:
        nonlocal sent
        more = generator.randrange(200, 1500)
        kafka_broker.produce("handed", [b"%d" % i for i in range(sent, sent + more)], partitions=4)
        sent += more

    send()
    wait_until(lambda: workers[0].reader.count == sent, "all is read")
    for _ in range(HAND_OVERS // 2):
        send()
        visitor = Worker(
            kafka_source(kafka_broker.address, "handed", group="handed", max_poll_records=50), visitor_knows
        )
        workers.append(visitor)
        visitor.start()
        wait_until(lambda visitor=visitor: visitor.source.up, "it is up")
        send()
        time.sleep(generator.uniform(0.0, 0.3))
        visitor.finish()
        visitor_knows |= {name: offsets[-1] + 1 for name, offsets in visitor.reader.offsets.items()}
    wait_until(lambda: sum(worker.reader.count for worker in workers) >= sent, "all is read")
    # The last partitions come back in their own time, and are counted as they are placed.
    visited = sum(worker.reader.count for worker in workers[1:])
    wait_until(
        lambda: workers[0].source.counts.taken_over_records >= visited, "the visitors' part is counted"
    )
    time.sleep(0.5)  # for what would come twice
    workers[0].finish()

    every = [int(v) for w in workers for values in w.reader.values.values() for v in values]
    assert len(every) == sent
    assert set(every) == set(range(sent))
    assert sum(bool(worker.reader.count) for worker in workers[1:]) >= HAND_OVERS // 4
    counts = [worker.source.counts for worker in workers]
    assert [(c.gap_records, c.overlap_records, c.rebuilds) for c in counts] == [(0, 0, 0)] * len(counts)
    assert counts[0].taken_over_records == visited


def test_a_storm_of_rebalances_leaves_memory_and_threads_as_they_were(
    kafka_broker: KafkaBroker, kafka_source: Sources
) -> None:
    kafka_broker.create_topic("storm", 8)
    options = {"heartbeat_interval_ms": 100}
    steady = Worker(kafka_source(kafka_broker.address, "storm", group="storm", **options))
    steady.start()
    wait_until(lambda: steady.source.up, "it is up")

    def storm(gusts: int) -> None:
        for _ in range(gusts):
            visitor = Worker(kafka_source(kafka_broker.address, "storm", group="storm", **options))
            visitor.start()
            wait_until(lambda visitor=visitor: visitor.source.up, "it is up")
            visitor.finish()

    storm(3)
    gc.collect()
    tracemalloc.start()
    try:
        storm(2)
        gc.collect()
        before, threads = tracemalloc.get_traced_memory()[0], threading.active_count()
        storm(8)
        gc.collect()
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    wait_until(lambda: steady.source.up, "it is up")
    kafka_broker.produce("storm", [b"after"] * 8, partitions=8)
    wait_until(lambda: steady.reader.count == 8, "all is read")
    steady.finish()
    print(json.dumps({"grown_bytes": grown}))
    # The fixture keeps each closed source (a few kB); a consumer that stayed alive would be some 100 kB.
    assert grown < 8 * 40_000
    assert threading.active_count() <= threads
