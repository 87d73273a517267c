"""A stream's windows to a topic of a real broker: each once, whatever the driver died between."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

pytest.importorskip("pyarrow")

from connectors.build import build_reports_topic
from connectors.spark.ledger import CheckpointLedger
from connectors.spark.streaming import MicroBatch
from monitor.base.errors import SinkError
from monitor.cli.spark_outputs import Outputs, OutTopic
from monitor.config.file import load_config
from monitor.config.root import KafkaSink
from monitor.export.sinks.destination import Mark
from tests.connectors.spark.messages import stream_config
from tests.services.kafka_broker import KafkaBroker
from tests.services.kafka_topics import read_topic
from tests.services.process import PATIENCE_SECONDS, free_ports, wait_until

LINES = [
    b'{"task": "t", "model": "%s", "group": "", "window": %d}' % (name, i)
    for i in range(300)
    for name in (b"erm", b"irm", b"coral", b"mmd")
]
NewTopic = Callable[[KafkaSink, dict[str, Mark]], OutTopic]


@pytest.fixture
def topic_of() -> Iterator[NewTopic]:
    """Yield outputs of the stream `s`, as its drivers make them one after the other."""
    with ExitStack() as stack:

        def new(settings: KafkaSink, saved: dict[str, Mark]) -> OutTopic:
            topic = OutTopic(build_reports_topic(settings, "s"), saved, threading.Event())
            stack.callback(topic.close)
            topic.open()
            return topic

        yield new


def test_a_batch_that_was_written_and_not_committed_comes_once(
    kafka_broker: KafkaBroker, topic_of: NewTopic
) -> None:
    kafka_broker.create_topic("spark-out", 3)
    kafka_broker.produce("spark-out", [b"another's"], partition=1)
    settings = KafkaSink(brokers=(kafka_broker.address,), topic="spark-out")
    first, second = MicroBatch(0, LINES[:400], [], 1), MicroBatch(1, LINES[400:], [], 401)
    marks = dict(topic_of(settings, {}).write(first))
    topic_of(settings, marks).write(second)  # and it dies before the commit

    again = topic_of(settings, marks)
    marks = dict(again.write(second))
    third = MicroBatch(2, [LINES[0].replace(b": 0}", b": 300}")], [], 1201)
    again.write(third)
    topic_of(settings, marks).write(third)

    messages = [each for each in read_topic(kafka_broker, "spark-out") if each.headers]
    by_number = {int(each.headers["blindsight-report"]): each.value for each in messages}
    assert by_number == dict(enumerate([*LINES, *third.lines], 1))
    assert len(messages) == len(by_number) == 1201
    assert {each.headers["blindsight-store"] for each in messages} == {b"s"}
    assert again.view.delivered == 801
    assert (again.view.waiting, again.view.lost, again.view.trouble) == (0, 0, None)


def test_a_batch_waits_for_brokers_that_are_away_until_it_is_to_stop(tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_ports(1)[0]}"
    kafka = {"brokers": [address], "topic": "w", "options": {"bootstrap_timeout_ms": 200}}
    config = load_config(str(stream_config(tmp_path, "b:1", reports={"kafka": kafka}, rejects=None)))
    stopping = threading.Event()
    outputs = Outputs(None, config, CheckpointLedger(tmp_path / "state", config), stopping)
    raised: list[SinkError] = []

    def write() -> None:
        try:
            outputs.write(MicroBatch(0, [], [], 1))
            outputs.write(MicroBatch(1, LINES[:3], []))
        except SinkError as error:
            raised.append(error)

    thread = threading.Thread(target=write)
    thread.start()
    wait_until(lambda: outputs.views[0].trouble is not None, "it is told that no broker answers")
    (view,) = outputs.views
    assert (view.name, view.waiting, view.delivered) == ("reports_topic", 3, 0)
    stopping.set()
    outputs.interrupt()
    thread.join(PATIENCE_SECONDS)
    outputs.close()
    assert not thread.is_alive()
    assert "no Kafka broker answers" in str(raised[0])
