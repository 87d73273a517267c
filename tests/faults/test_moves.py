"""A model moves with its state between agents of one consumer group: docs/several-agents.md."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.moves import PARTITIONS, Group, moved
from tests.services.kafka_broker import KafkaBroker
from tests.services.kafka_reading import Driver
from tests.services.postgres_server import PostgresServer

pytestmark = pytest.mark.process


def test_windows_over_moves_are_those_of_one_agent_alone(
    kafka_broker: KafkaBroker, kafka_driver: Driver, postgres_server: PostgresServer, tmp_path: Path
) -> None:
    """One owner is killed, one stopped, one paused until its leases are others'; one agent comes."""
    topic = f"moves_{kafka_driver.replace('-', '_')}"
    result = moved(
        tmp_path, kafka_broker, postgres_server, topic, 3, 1, 300.0, kafka_driver, pauses=1, seed=1
    )
    assert result.equal, (tmp_path / "differences.txt").read_text(encoding="utf-8")
    assert (result.kills, result.stops, result.starts, result.pauses) == (1, 1, 1, 1)
    assert result.counted.received == result.messages, "each message is counted once"
    assert result.leases >= PARTITIONS
    assert result.windows > 50
    assert result.revisions > 50


def test_topics_that_are_not_divided_alike_are_refused(
    kafka_broker: KafkaBroker, postgres_server: PostgresServer, tmp_path: Path
) -> None:
    with Group(tmp_path, kafka_broker, postgres_server, "uneven", "kafka-python") as group:
        kafka_broker.create_topic("uneven_labels", PARTITIONS + 1)
        source = group.config["sources"][0] | {"topics": ["uneven", "uneven_labels"]}
        daemon = group.launch(sources=[source])
        message = (
            "source kafka: with store.by_partition all topics need equally many partitions, got uneven 6, "
            "uneven_labels 7; add partitions to the topic that has fewer"
        )
        daemon.until(lambda: message in daemon.get("/-/ready")[1], "it says why it does not read")
        assert group.leases() == {}


def test_a_reload_holds_for_the_next_owner_too(
    kafka_broker: KafkaBroker, postgres_server: PostgresServer, tmp_path: Path
) -> None:
    with Group(tmp_path, kafka_broker, postgres_server, "reloaded", "kafka-python") as group:
        daemon = group.launch()
        group.until_settled()
        task = group.config["tasks"]["t"]
        tasks = {"t": task | {"window": task["window"] | {"size": 200}}}
        assert "The configuration was reloaded: tasks.t.window.size." in daemon.reload(
            group.config | {"tasks": tasks}
        )
        other = group.launch(tasks=tasks)
        group.until_settled()
        assert "A new baseline begins" not in other.log
        assert other.end()[0] == 0
        group.until_settled()
        assert "A new baseline begins" not in daemon.log
