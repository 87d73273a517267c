"""Topics as sinks, at a real broker: each window once, whatever happens; nobody waits for a broker."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import msgspec
import pytest
from kafka import errors as kafka_errors

from connectors.build import build_lines_topic, build_rejects_topic, build_reports_topic
from connectors.kafka.sink.clients import explain_sink
from connectors.kafka.sink.producer_options import PRODUCER_REFUSED, producer_options, tail_options
from monitor.base.errors import ConfigError, SinkError
from monitor.base.records import Reject, RejectReason
from monitor.config.root import KafkaSink
from monitor.export.sinks.destination import Mark, Row, Sink
from monitor.export.sinks.follower import ReportFollower
from monitor.export.sinks.queued import QueuedSink
from tests.daemon import slowness
from tests.services.kafka_broker import KafkaBroker
from tests.services.kafka_topics import read_topic
from tests.services.process import PATIENCE_SECONDS, wait_until

MODELS = ("erm", "irm", "coral")
Brokers = Callable[[], KafkaBroker]


class Reports:
    """A store's table of reports, in memory: windows of three models in turn."""

    def __init__(self, count: int) -> None:
        self.rows: list[Row] = []
        self.add(count)

    def add(self, count: int) -> None:
        for number in range(len(self.rows) + 1, len(self.rows) + 1 + count):
            line = {"task": "t", "model": MODELS[number % 3], "group": "", "window": number // 3}
            self.rows.append((number, msgspec.json.encode(line)))

    def reports_after(self, last: int, most: int) -> list[Row]:
        return [row for row in self.rows if row[0] > last][:most]

    def newest_report(self) -> int:
        return self.rows[-1][0]


@pytest.fixture
def started() -> Iterator[Callable[[Sink], Sink]]:
    """Yield a function that starts a sink; close all of them after the test."""
    with ExitStack() as stack:

        def start(sink: Sink) -> Sink:
            stack.callback(sink.close, 5.0)
            sink.start()
            return sink

        yield start


Started = Callable[[Sink], Sink]


def follower(
    broker: KafkaBroker,
    topic: str,
    reports: Reports,
    saved: dict[str, Mark] | None = None,
    store: str = "s1",
    lease: int | None = None,
) -> ReportFollower:
    destination = build_reports_topic(settings(broker, topic), store, lease)
    return ReportFollower(destination, reports, saved or {})


def settings(broker: KafkaBroker, topic: str, **options: object) -> KafkaSink:
    return KafkaSink(brokers=(broker.address,), topic=topic, options=options)


def delivered(sink: Sink, count: int) -> None:
    try:
        wait_until(lambda: sink.view.delivered >= count, f"{count} are delivered")
    except AssertionError as error:
        raise AssertionError(f"{error}: {sink.view}") from None


def ids(broker: KafkaBroker, topic: str) -> list[int]:
    return sorted(int(each.headers["blindsight-report"]) for each in read_topic(broker, topic))


def test_each_window_is_a_message_with_its_series_as_key(kafka_broker: KafkaBroker, started: Started) -> None:
    kafka_broker.create_topic("sink-plain", 3)
    reports = Reports(1200)
    sink = started(follower(kafka_broker, "sink-plain", reports))
    delivered(sink, 1200)
    assert sink.close(PATIENCE_SECONDS)
    messages = read_topic(kafka_broker, "sink-plain")
    assert {each.headers["blindsight-store"] for each in messages} == {b"s1"}
    assert not any("blindsight-lease" in each.headers for each in messages), "there is no lease on a folder"
    by_id = {int(each.headers["blindsight-report"]): each.value for each in messages}
    assert by_id == dict(reports.rows)
    assert len(messages) == 1200
    for model in MODELS:
        own = [each for each in messages if each.key == f"t/{model}/".encode()]
        windows = [msgspec.json.decode(each.value)["window"] for each in own]
        assert windows == sorted(windows)
        assert len({each.partition for each in own}) == 1
    marks = sink.marks
    assert {name: last for name, (last, _) in marks.items()} == {
        f"reports.kafka/sink-plain-{n}": 1200 for n in range(3)
    }
    assert sum(place for _, place in marks.values()) == 1200


def test_a_message_names_the_lease_that_it_was_sent_under(
    kafka_broker: KafkaBroker, started: Started
) -> None:
    kafka_broker.create_topic("sink-lease", 1)
    reports = Reports(3)
    first = started(follower(kafka_broker, "sink-lease", reports, lease=7))
    delivered(first, 3)
    saved = dict(first.marks)
    first.close(5)
    reports.add(2)
    second = started(follower(kafka_broker, "sink-lease", reports, saved, lease=8))
    delivered(second, 2)
    messages = read_topic(kafka_broker, "sink-lease")
    assert [each.headers["blindsight-lease"] for each in messages] == [b"7"] * 3 + [b"8"] * 2
    assert ids(kafka_broker, "sink-lease") == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("partitions", [1, 3])
def test_what_was_sent_after_the_last_checkpoint_is_not_sent_again(
    kafka_broker: KafkaBroker, started: Started, partitions: int
) -> None:
    topic = f"sink-again-{partitions}"
    kafka_broker.create_topic(topic, partitions)
    kafka_broker.produce(topic, [b"of another program"] * 10, partitions=partitions)
    reports = Reports(40)
    first = started(follower(kafka_broker, topic, reports))
    delivered(first, 40)
    saved = dict(first.marks)
    reports.add(700)
    first.wake()
    delivered(first, 740)
    first.close(5)
    # As after a kill -9: the checkpoint knows of 40, the topic has 740. Another store has the same ids.
    other = started(follower(kafka_broker, topic, Reports(5), store="s2"))
    delivered(other, 5)
    reports.add(60)
    second = started(follower(kafka_broker, topic, reports, saved))
    delivered(second, 760)
    assert second.close(PATIENCE_SECONDS)
    messages = [
        each for each in read_topic(kafka_broker, topic) if each.headers.get("blindsight-store") == b"s1"
    ]
    assert sorted(int(each.headers["blindsight-report"]) for each in messages) == list(range(1, 801))
    assert {last for last, _ in second.marks.values()} == {800}
    assert second.view.lost == 0


def test_a_kill_before_the_first_checkpoint_sends_nothing_twice(
    kafka_broker: KafkaBroker, started: Started
) -> None:
    kafka_broker.create_topic("sink-first", 2)
    reports = Reports(30)
    delivered(first := started(follower(kafka_broker, "sink-first", reports)), 30)
    first.close(5)
    reports.add(3)
    delivered(started(follower(kafka_broker, "sink-first", reports)), 33)
    assert ids(kafka_broker, "sink-first") == list(range(1, 34))


def test_an_unsaved_window_that_came_out_otherwise_is_sent(
    kafka_broker: KafkaBroker, started: Started
) -> None:
    """A store that was put back from a backup counts on from there: the same ids, other windows."""
    kafka_broker.create_topic("sink-backup")
    delivered(first := started(follower(kafka_broker, "sink-backup", Reports(3))), 3)
    first.close(5)
    changed = Reports(3)
    changed.rows[2] = (3, msgspec.json.encode({"task": "t", "model": "erm", "group": "g", "window": 0}))
    delivered(started(follower(kafka_broker, "sink-backup", changed)), 3)
    messages = read_topic(kafka_broker, "sink-backup")
    assert [each.key for each in messages] == [b"t/irm/", b"t/coral/", b"t/erm/", b"t/erm/g"]


def test_a_topic_that_was_made_anew_is_read_from_its_start(
    kafka_broker: KafkaBroker, started: Started
) -> None:
    kafka_broker.create_topic("sink-anew")
    reports = Reports(5)
    saved = {"reports.kafka/sink-anew-0": (3, 700), "reports": (5, 1), "reports.kafka/sink-anew-x": (9, 9)}
    sink = started(follower(kafka_broker, "sink-anew", reports, saved))
    delivered(sink, 2)
    assert ids(kafka_broker, "sink-anew") == [4, 5]
    assert sink.marks == {"reports.kafka/sink-anew-0": (5, 2)}


def test_a_window_too_large_for_the_topic_is_counted_and_the_next_ones_come(
    kafka_broker: KafkaBroker, started: Started
) -> None:
    kafka_broker.create_topic("sink-large", **{"max.message.bytes": "20000"})
    reports = Reports(9)
    line = {"task": "t", "model": "erm", "group": "", "window": 0, "pad": "x" * 30_000}
    reports.rows[4] = (5, msgspec.json.encode(line))
    reports.rows[6] = (7, msgspec.json.encode(line | {"pad": "x" * 2_000_000}))
    sink = started(follower(kafka_broker, "sink-large", reports))
    delivered(sink, 7)
    assert ids(kafka_broker, "sink-large") == [1, 2, 3, 4, 6, 8, 9]
    wait_until(lambda: sink.view.lost == 2, f"two were counted: {sink.view}")


def test_rejected_records_are_messages_too(kafka_broker: KafkaBroker, started: Started) -> None:
    kafka_broker.create_topic("sink-rejects")
    sink = QueuedSink(build_rejects_topic(settings(kafka_broker, "sink-rejects")), 100)
    started(sink)
    assert sink.write((Reject(RejectReason.ENCODING, "no UTF-8", b"\xff", "t-3", 7), "feed"))
    delivered(sink, 1)
    (message,) = read_topic(kafka_broker, "sink-rejects")
    assert message.key == b"feed"
    assert msgspec.json.decode(message.value) == {
        "reason": "encoding",
        "message": "no UTF-8",
        "source": "feed",
        "partition": "t-3",
        "position": 7,
        "raw": "\\xff",
    }


def test_a_missing_topic_is_waited_for_and_never_made(
    kafka_broker: KafkaBroker, started: Started, caplog: pytest.LogCaptureFixture
) -> None:
    sinks = [
        started(follower(kafka_broker, "sink-late", Reports(2))),
        started(QueuedSink(build_lines_topic(settings(kafka_broker, "sink-late")), 10)),
    ]
    assert isinstance(sinks[1], QueuedSink)
    sinks[1].write(Reports(1).rows[0][1])
    wait_until(lambda: all(sink.view.trouble for sink in sinks), "both are in trouble")
    for sink in sinks:
        assert "no such topic" in (sink.view.trouble or "")
        assert "create it, or correct the name" in (sink.view.trouble or "")
    assert "sink-late" not in kafka_broker.topics()
    kafka_broker.create_topic("sink-late")
    delivered(sinks[0], 2)
    delivered(sinks[1], 1)
    assert [sink.view.trouble for sink in sinks] == [None, None]


def test_a_broker_that_stands_still_or_dies_delays_windows_and_loses_none(
    new_kafka_broker: Brokers, started: Started, caplog: pytest.LogCaptureFixture
) -> None:
    broker = new_kafka_broker()
    reports = Reports(10)
    began = time.monotonic()
    sink = started(follower(broker, "sink-away", reports))
    assert time.monotonic() - began < slowness(), "it waits for no broker"
    wait_until(lambda: sink.view.trouble is not None, "it is in trouble")
    assert f"no Kafka broker answers ({broker.address}: Connection refused)" in (sink.view.trouble or "")
    assert (sink.view.waiting, sink.view.lost) == (10, 0)

    broker.start()
    broker.create_topic("sink-away")
    delivered(sink, 10)
    assert (sink.view.trouble, sink.view.failing_since) == (None, None)

    with broker.frozen():
        reports.add(20)
        sink.wake()
        wait_until(lambda: sink.view.trouble is not None, "it is in trouble again")
        assert "no acknowledgement came within 3 s" in (sink.view.trouble or "")
        assert sink.view.waiting == 20
    delivered(sink, 30)

    broker.kill()
    reports.add(30)
    sink.wake()
    wait_until(lambda: sink.view.trouble is not None, "it is in trouble once more")
    broker.start()
    delivered(sink, 60)
    assert sink.close(PATIENCE_SECONDS)
    assert ids(broker, "sink-away") == list(range(1, 61))
    ours = [r for r in caplog.records if r.name == "blindsight" and r.levelno == logging.ERROR]
    assert len(ours) == 3  # one an outage


def test_without_a_store_the_oldest_windows_go_first_and_are_counted(
    new_kafka_broker: Brokers, started: Started
) -> None:
    broker = new_kafka_broker()
    sink = QueuedSink(build_lines_topic(settings(broker, "sink-queue")), 10, drop_oldest=True)
    started(sink)
    lines = [line for _, line in Reports(50).rows]
    assert all(sink.write(line) for line in lines)
    assert (sink.view.waiting, sink.view.lost) == (10, 40)
    broker.start()
    broker.create_topic("sink-queue")
    delivered(sink, 10)
    values = [each.value for each in read_topic(broker, "sink-queue")]
    assert len(values) == 10
    assert set(values) >= set(lines[-5:])
    assert values == [line for line in lines if line in values]


def test_closing_while_no_broker_answers_ends_soon(new_kafka_broker: Brokers) -> None:
    broker = new_kafka_broker()
    sink = QueuedSink(build_lines_topic(settings(broker, "nowhere")), 10)
    sink.start()
    sink.write(Reports(1).rows[0][1])
    began = time.monotonic()
    assert not sink.close(0.5)
    assert time.monotonic() - began < 2 * slowness()
    assert sink.view.lost == 1
    wait_until(lambda: not sink._thread.is_alive(), "its thread has ended")


# --- options and errors -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"acks": 1}, "reports.kafka.options.acks: cannot be set here: Blindsight sets it, so that nothing"),
        (
            {"linger": 1},
            "reports.kafka.options.linger: not an option of kafka-python's KafkaProducer; did you",
        ),
        ({"linger_ms": "5"}, "reports.kafka.options.linger_ms: expected a whole number, got '5'"),
        (
            {"compression_type": "zip"},
            "reports.kafka.options.compression_type: expected one of gzip, snappy, lz4, zstd, got 'zip'",
        ),
    ],
)
def test_an_option_that_cannot_be_used_is_told_by_its_path(options: dict[str, object], sentence: str) -> None:
    with pytest.raises(ConfigError) as error:
        producer_options(KafkaSink(brokers=("b:1",), topic="t", options=options), "reports.kafka")
    assert str(error.value).startswith(sentence)


def test_a_broker_that_cannot_be_one_is_told_by_its_path() -> None:
    with pytest.raises(ConfigError, match=r"rejects\.kafka\.brokers: expected host:port, got 'a b'"):
        producer_options(KafkaSink(brokers=("a b",), topic="t"), "rejects.kafka")


@pytest.mark.parametrize("key", sorted(PRODUCER_REFUSED))
def test_what_blindsight_sets_itself_is_refused_with_the_reason(key: str) -> None:
    with pytest.raises(ConfigError, match=f"options.{key}: cannot be set here: "):
        producer_options(KafkaSink(brokers=("b",), topic="t", options={key: 1}), "reports.kafka")


def test_the_reader_of_the_tail_shares_the_login_and_nothing_of_the_producers() -> None:
    options = {"security_protocol": "SASL_SSL", "compression_type": "gzip", "sasl_plain_password": "x"}
    tail = tail_options(KafkaSink(brokers=("b",), topic="t", options=options))
    assert (tail["security_protocol"], tail["sasl_plain_password"]) == ("SASL_SSL", "x")
    assert {"compression_type", "linger_ms", "batch_size"} & set(tail) == set()


def test_a_certificate_that_is_not_there_is_told_at_the_start() -> None:
    options = {"ssl_cafile": "no/ca.pem"}
    sink = QueuedSink(build_lines_topic(KafkaSink(brokers=("b",), topic="t", options=options)), 10)
    with pytest.raises(SinkError) as error:
        sink.start()
    assert (
        str(error.value) == "reports.kafka.options.ssl_cafile: there is no file no/ca.pem; correct the path"
    )


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (
            kafka_errors.TopicAuthorizationFailedError("t"),
            "allow it to WRITE, READ and DESCRIBE the topic (t)",
        ),
        (kafka_errors.ClusterAuthorizationFailedError("c"), "allow it IDEMPOTENT_WRITE on the cluster (c)"),
        (kafka_errors.SaslAuthenticationFailedError("s"), "the brokers refused the login; check options."),
        (kafka_errors.UnknownTopicOrPartitionError("t"), "there is no such topic; create it"),
        (ValueError("odd"), "it cannot be written: ValueError: odd"),
    ],
)
def test_errors_of_the_client_are_sentences(error: Exception, sentence: str) -> None:
    message = str(explain_sink(error, KafkaSink(brokers=("b:1",), topic="t")))
    assert message.startswith("topic t of Kafka at b:1: ")
    assert sentence in message
