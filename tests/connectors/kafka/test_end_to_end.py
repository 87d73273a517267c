"""The whole agent on a real broker: every answer is used once, whatever shape messages have."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from monitor.cli.daemon import Daemon
from monitor.config.file import config_from, resolve_paths
from tests.accounting import assert_adds_up
from tests.daemon import DaemonProcess, configuration, read_windows
from tests.services.kafka_broker import KafkaBroker
from tests.services.kafka_reading import JOIN_FAST
from tests.services.process import Driver
from tests.streams import answers

Brokers = Callable[[], KafkaBroker]
encode = msgspec.json.encode
PARTITIONS = 6
MESSAGES = 100_000
PART = 1_000
"""Windows are this long in the long run, so that the reports file stays short."""


def config(
    broker: str, topic: str, group: str = "blindsight", size: int = 100, driver: Driver = "kafka-python"
) -> dict[str, Any]:
    source = {"kind": "kafka", "brokers": [broker], "topics": [topic], "group": group, "options": JOIN_FAST}
    source["driver"] = driver
    return configuration(
        sources=[source],
        reports={"path": "windows.ndjson"},
        rejects={"path": "rejects.ndjson"},
        task={"window": {"size": size, "min_size": 20, "max_age_seconds": 3600}},
    )


def stream(n: int, **more: Any) -> list[dict[str, Any]]:
    return answers(np.random.default_rng(8), n, **more)


def label_of(record: dict[str, Any]) -> dict[str, Any]:
    """Return an hour later: by the clock of today it would be years late, and expired."""
    return {"id": record["id"], "label": "ok", "time": record["time"] + 3600}


@pytest.mark.parametrize("decoders", [0, 2])
def test_each_of_100_000_messages_over_6_partitions_is_used_once(
    kafka_broker: KafkaBroker, kafka_driver: Driver, tmp_path: Path, decoders: int
) -> None:
    topic = f"whole-{decoders}"
    kafka_broker.create_topic(topic, PARTITIONS)
    rows = stream(MESSAGES - 2)
    values = [encode(record) for record in rows]
    values.insert(500, encode(label_of(rows[0])))
    values.insert(700, b"not JSON")
    kafka_broker.produce(topic, values, partitions=PARTITIONS)
    settings = config(kafka_broker.address, topic, topic, PART, kafka_driver)
    with DaemonProcess(tmp_path, settings | {"decoders": decoders}) as daemon:
        daemon.until(lambda: daemon.metrics().used >= MESSAGES - 2, "all is used")
        scrape = assert_adds_up(daemon)
        assert daemon.get("/-/ready")[0] == 200
        code, seconds = daemon.end()
    assert (code, seconds < 5) == (0, True)
    assert scrape.total("answers_received_total") == MESSAGES - 1, "all but the label"
    assert scrape.used == MESSAGES - 2
    assert scrape.total("rejected_total") == 1
    assert scrape.total("duplicates_total") == scrape.total("shed_total") == 0
    assert scrape.value("labels_total", task="t", outcome="matched") == 1

    windows = read_windows(tmp_path / "windows.ndjson")
    assert sum(window["size"] for window in windows) == MESSAGES - 2
    assert [window["window"] for window in windows] == list(range(MESSAGES // PART))
    assert covered(windows, topic, values) == MESSAGES
    committed = kafka_broker.committed(topic, topic, PARTITIONS)
    assert sum(committed.values()) == MESSAGES, "the next agent begins after the last"


def covered(windows: Sequence[dict[str, Any]], topic: str, values: Sequence[bytes]) -> int:
    """Check that the windows' ranges cover each partition without a gap or an overlap; return the offsets'
    count.

    Only records that are no answers, the label and the broken one, may lie between two ranges or at an end.
    """
    ranges: dict[str, list[list[int]]] = defaultdict(list)
    for window in windows:
        for partition, offsets in window["positions"].items():
            ranges[partition].append(offsets)
    assert sorted(ranges) == [f"{topic}-{n}" for n in range(PARTITIONS)]
    for n in range(PARTITIONS):
        own = values[n::PARTITIONS]
        after = 0
        for first, last in ranges[f"{topic}-{n}"]:
            assert first >= after, f"partition {n}: offset {first} is in two windows"
            assert all(b"scores" not in own[offset] for offset in range(after, first))
            after = last + 1
        assert all(b"scores" not in value for value in own[after:])
    return len(values)


def test_a_message_may_hold_one_record_an_array_or_lines_and_labels_among_them(
    kafka_broker: KafkaBroker, kafka_driver: Driver, tmp_path: Path
) -> None:
    kafka_broker.create_topic("shapes", 2)
    rows = stream(300)
    labels = [label_of(record) for record in rows[:150]]
    messages = [encode(record) for record in rows[:100]]
    messages += [encode(rows[100:200]), b"\n".join(map(encode, rows[200:300]))]
    messages += [encode([*labels[:50], rows[0]]), b"\n".join(map(encode, labels[50:140]))]
    messages += [*map(encode, labels[140:]), b"[]", b"", b"\xff\xfe", b'{"id": "x", "model": "erm"}']
    kafka_broker.produce("shapes", messages, partitions=2)
    with DaemonProcess(
        tmp_path, config(kafka_broker.address, "shapes", group="shapes", driver=kafka_driver)
    ) as daemon:
        daemon.until(lambda: daemon.metrics().used >= 300, "all is used")
        daemon.until_value(150, "labels_total", task="t", outcome="matched")
        daemon.until_value(1, "duplicates_total", task="t", model="erm")
        daemon.until(lambda: daemon.metrics().total("rejected_total") >= 2, "what is broken is counted")
        scrape = assert_adds_up(daemon)
        assert daemon.end()[0] == 0
    assert scrape.used == 300
    assert scrape.total("duplicates_total") == 1
    assert scrape.value("rejected_total", source="kafka", reason="encoding") == 1
    assert scrape.value("rejected_total", source="kafka", reason="no_scores") == 1
    assert scrape.total("answers_received_total") == 301 + scrape.total("rejected_total")
    assert [window["size"] for window in read_windows(tmp_path / "windows.ndjson")] == [100] * 3
    rejected = read_windows(tmp_path / "rejects.ndjson")
    assert {line["source"] for line in rejected} == {"kafka"}
    assert all(line["partition"].startswith("shapes-") for line in rejected)


@pytest.mark.parametrize("decoders", [0, 2])
def test_two_agents_of_one_group_share_the_answers_and_one_takes_over(
    kafka_broker: KafkaBroker, kafka_driver: Driver, tmp_path: Path, decoders: int
) -> None:
    topic = f"shared-by-agents-{decoders}"
    kafka_broker.create_topic(topic, 4)
    rows = stream(6_000)
    values = [encode(record) for record in rows]
    folders = [tmp_path / "one", tmp_path / "two"]
    for folder in folders:
        folder.mkdir()
    settings = config(kafka_broker.address, topic, topic, driver=kafka_driver) | {"decoders": decoders}
    with DaemonProcess(folders[0], settings) as first, DaemonProcess(folders[1], settings) as second:
        for daemon in (first, second):
            daemon.until_value(1, "source_up", source="kafka")
        kafka_broker.produce(topic, values[:4_000], partitions=4)
        first.until(lambda: first.metrics().used + second.metrics().used >= 4_000, "all is used")
        assert min(first.metrics().used, second.metrics().used) > 0, "both work"
        assert assert_adds_up(first).used + assert_adds_up(second).used == 4_000
        assert first.end()[0] == 0
        kafka_broker.produce(topic, values[4_000:], partitions=4)
        by_first = sum(window["size"] for window in read_windows(folders[0] / "windows.ndjson"))
        second.until(lambda: second.metrics().used >= 6_000 - by_first, "the second takes over")
        assert_adds_up(second)
        assert second.end()[0] == 0
    windows = [window for folder in folders for window in read_windows(folder / "windows.ndjson")]
    assert sum(window["size"] for window in windows) == 6_000


def test_an_agent_runs_without_its_broker_says_so_and_uses_its_other_source_meanwhile(
    new_kafka_broker: Brokers, tmp_path: Path
) -> None:
    broker = new_kafka_broker()
    settings = config(broker.address, "late", group="late")
    settings["sources"].append({"kind": "file", "path": "in.ndjson", "follow": True})
    (tmp_path / "in.ndjson").write_bytes(b"".join(encode(r) + b"\n" for r in stream(130, model="irm")))
    with DaemonProcess(tmp_path, settings) as daemon:
        daemon.until(lambda: daemon.metrics().used == 130, "the file is used")
        assert daemon.get("/-/ready") == (
            503,
            "Blindsight is not ready.\nSource kafka is not connected.\n",
        )
        assert daemon.get("/-/healthy")[0] == 200
        assert daemon.metrics().value("source_up", source="kafka") == 0
        assert daemon.metrics().value("source_up", source="in.ndjson") == 1
        assert daemon.log.count(f"no Kafka broker answers ({broker.address}: Connection refused)") == 1
        assert "Traceback" not in daemon.log
        broker.start()
        broker.create_topic("late", 2)
        broker.produce("late", [encode(record) for record in stream(250)], partitions=2)
        daemon.until(lambda: daemon.metrics().used == 380, "the topic is used")
        assert_adds_up(daemon)
        assert daemon.get("/-/ready")[0] == 200
        counters = ("gap_records", "taken_over_records", "overlap_records", "rebuilds")
        assert [daemon.metrics().value(f"source_{key}_total", source="kafka") for key in counters] == [0] * 4
        assert daemon.end()[0] == 0
    assert sum(window["size"] for window in read_windows(tmp_path / "windows.ndjson")) == 380


def test_an_agent_ends_within_five_seconds_though_its_broker_never_came(
    new_kafka_broker: Brokers, tmp_path: Path
) -> None:
    absent = new_kafka_broker()
    with DaemonProcess(tmp_path, config(absent.address, "never")) as daemon:
        assert daemon.get("/-/healthy")[0] == 200
        code, seconds = daemon.end()
    assert (code, seconds < 5) == (0, True), daemon.log


def test_the_daemon_in_this_process_names_a_source_by_its_topics_only_where_nothing_else_does(
    kafka_broker: KafkaBroker, tmp_path: Path
) -> None:
    """Metrics have the label that `Daemon` builds from a section."""
    settings = resolve_paths(config_from(config(kafka_broker.address, "named")), tmp_path)
    assert [source.name for source in Daemon(settings).agent.view().sources] == [
        source.label for source in settings.sources
    ]
