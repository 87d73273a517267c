"""CloudEvents in topics of a real broker: in binary mode, structured, and as Seldon's logger writes them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from connectors.formats.decode.decoder import Decoder
from connectors.formats.wires.beside import beside
from connectors.formats.wires.choice import wire_of
from connectors.formats.wires.cloudevents import kafka_attributes
from connectors.kafka import KafkaSource
from monitor.base.records import Chunk, TaskLayout, id_keys
from monitor.base.source import RawMessages
from monitor.config.root import KafkaSourceConfig as KafkaSettings
from tests.connectors.formats.test_tensors import RAW, TYPED, with_binary
from tests.daemon import diagnosed, write_configuration
from tests.services.kafka_broker import KafkaBroker
from tests.services.kafka_reading import JOIN_FAST
from tests.services.process import wait_until

LAYOUT = TaskLayout("toxicity", ("ok", "toxic"))
TWO = [[0.25, 0.75], [0.5, 0.5]]
BODY = b'{\n "predictions": [[0.25, 0.75],\n [0.5, 0.5]]\n}'
# Of the Kafka protocol binding for CloudEvents 1.0, section 3.2, with the attributes of KServe's logger: what
# a broker of Knative keeps of its post.
BINARY = {
    "ce_specversion": "1.0",
    "ce_id": "a",
    "ce_source": "http://localhost:9081/",
    "ce_type": "org.kubeflow.serving.inference.response",
    "ce_time": "2026-07-01T12:00:00.5Z",
    "ce_inferenceservicename": "erm ü",
    "content-type": "application/json",
}
# Of Seldon Core's executor/logger/worker.go, sendKafkaEvent: no prefix, no id, no version.
SELDON = {
    "type": "io.seldon.serving.inference.response",
    "content-type": "application/json",
    "modelid": "classifier",
    "requestid": "b",
    "inferenceservicename": "model-logs",
    "namespace": "seldon",
    "endpoint": "default",
    "protocol": "seldon",
}
STRUCTURED = {"content-type": "application/cloudevents+json; charset=UTF-8", "ce_id": "repeated"}


SettingsOf = Callable[[KafkaBroker, str, dict[str, Any]], KafkaSettings]


@pytest.fixture
def settings_of(kafka_driver: str) -> SettingsOf:
    """Return the settings of a source by each driver: broker, topic and mapping."""

    def settings(broker: KafkaBroker, topic: str, mapping: dict[str, Any]) -> KafkaSettings:
        return KafkaSettings.model_validate(
            {
                "kind": "kafka",
                "driver": kafka_driver,
                "brokers": [broker.address],
                "topics": [topic],
                "options": JOIN_FAST,
                "mapping": mapping,
            }
        )

    return settings


@contextmanager
def opened(settings: KafkaSettings) -> Iterator[KafkaSource]:
    source = KafkaSource(settings)
    source.open({})
    try:
        yield source
    finally:
        source.close()


def raws_of(settings: KafkaSettings, messages: int) -> list[RawMessages]:
    raws: list[RawMessages] = []

    def enough() -> bool:
        raws.extend(raw for raw in source.read(0.2) if isinstance(raw, RawMessages))
        return sum(len(raw.values) for raw in raws) >= messages

    with opened(settings) as source:
        wait_until(enough, "the messages are there")
    return raws


def decoded(settings: KafkaSettings, messages: int) -> Chunk:
    decoder = Decoder([LAYOUT], "kafka", wire=wire_of(settings))
    chunk = decoder.decode(raws_of(settings, messages))
    assert {name: place["at"] for name, place in chunk.positions.items()} == {
        f"{settings.topics[0]}-0": messages
    }
    return chunk


def test_every_mode_of_an_event_is_read_the_same_and_labels_come_beside(
    kafka_broker: KafkaBroker, settings_of: SettingsOf
) -> None:
    kafka_broker.create_topic("modes")
    event = {"specversion": "1.0", "id": "c", "type": BINARY["ce_type"], "inferenceservicename": "erm ü"}
    request = {**BINARY, "ce_type": "org.kubeflow.serving.inference.request"}
    kafka_broker.produce("modes", [BODY], headers=BINARY)
    kafka_broker.produce("modes", [b"anything", None], headers=request)
    seldon = json.dumps({"data": {"names": ["t:0", "t:1"], "ndarray": TWO}, "meta": {}}).encode()
    kafka_broker.produce("modes", [seldon], headers=SELDON)
    structured = json.dumps({**event, "data": json.loads(BODY)}).encode()
    kafka_broker.produce("modes", [structured], headers=STRUCTURED)
    kafka_broker.produce("modes", [b'{"id": "a:1", "label": "toxic"}'])
    chunk = decoded(settings_of(kafka_broker, "modes", {"format": "kserve"}), 6)
    assert chunk.rejects == ()
    (batch,) = chunk.batches
    assert batch.scores.tolist() == TWO * 3
    assert batch.key.tolist() == id_keys([f"{name}:{row}" for name in "abc" for row in (0, 1)]).tolist()
    assert [batch.models[i] for i in batch.model[::2]] == ["erm ü", "classifier", "erm ü"]
    assert batch.time[:2].tolist() == [1782907200.5] * 2
    assert batch.position.tolist() == [0, 0, 3, 3, 4, 4]
    assert chunk.labels[0].key[0] == batch.key[1]


@pytest.mark.parametrize(
    ("data", "type_"),
    [
        (TYPED, "application/protobuf"),
        (RAW, "application/octet-stream"),
        (with_binary(("p", "FP64", [2, 2], RAW[-32:])), "application/octet-stream"),
    ],
    ids=["typed", "raw", "tensors"],
)
def test_bytes_that_are_no_json_are_read_with_an_event_and_without(
    kafka_broker: KafkaBroker, settings_of: SettingsOf, data: bytes, type_: str
) -> None:
    topic = f"bytes-{len(data)}"
    kafka_broker.create_topic(topic)
    kafka_broker.produce(topic, [data], headers={**BINARY, "content-type": type_})
    kafka_broker.produce(topic, [data])
    mapping = {"format": "kserve", "constants": {"model": "erm"}}
    chunk = decoded(settings_of(kafka_broker, topic, mapping), 2)
    assert chunk.rejects == ()
    assert chunk.batches[0].scores.tolist() == TWO * 2
    assert chunk.batches[0].key[:2].tolist() == id_keys(["a:0", "a:1"]).tolist()


def test_paths_of_a_mapping_are_of_the_event_in_both_modes(
    kafka_broker: KafkaBroker, settings_of: SettingsOf
) -> None:
    kafka_broker.create_topic("mapped")
    data = {"probs": [0.25, 0.75], "net": "erm"}
    attributes = {
        "specversion": "1.0",
        "id": "a",
        "type": "com.example.scored",
        "time": "2026-07-01T12:00:00Z",
    }
    binary = {f"ce_{name}": value for name, value in attributes.items()}
    kafka_broker.produce("mapped", [json.dumps(data).encode()], headers=binary)
    kafka_broker.produce(
        "mapped", [json.dumps({**attributes, "id": "b", "data": data}).encode()], headers=STRUCTURED
    )
    kafka_broker.produce("mapped", [b"\x00\x01"], headers=binary)
    paths = {"id": "id", "time": "time", "scores": "data.probs", "constants": {"model": "erm"}}
    chunk = decoded(settings_of(kafka_broker, "mapped", {"format": "cloudevents", **paths}), 3)
    assert chunk.batches[0].scores.tolist() == [[0.25, 0.75]] * 2
    assert chunk.batches[0].key.tolist() == id_keys(["a", "b"]).tolist()
    assert "reads scores at data.probs, but the record has only" in chunk.rejects[0].message
    assert "data_base64" in chunk.rejects[0].message


def test_without_the_format_no_header_is_handed_on(
    kafka_broker: KafkaBroker, settings_of: SettingsOf
) -> None:
    kafka_broker.create_topic("plain")
    record = b'{"id": "a", "p": [0.25, 0.75]}'
    kafka_broker.produce("plain", [record], headers=BINARY)
    settings = settings_of(kafka_broker, "plain", {"id": "id", "scores": "p", "constants": {"model": "m"}})
    (raw,) = raws_of(settings, 1)
    assert (raw.headers, raw.values) == (None, [record])
    assert Decoder([LAYOUT], "k", wire=wire_of(settings)).decode([raw]).rejects == ()


BESIDE = {
    "id": "$key",
    "time": "$timestamp",
    "model": "$headers.model",
    "version": '$headers["model.version"]',
    "scores": "p",
    "label": "truth",
}


def test_key_headers_and_timestamp_of_a_message_are_fields_of_its_records(
    kafka_broker: KafkaBroker, settings_of: SettingsOf
) -> None:
    kafka_broker.create_topic("beside")
    named = {"headers": {"model": "erm", "model.version": "7"}, "milliseconds": 1782907200500}
    send = partial(kafka_broker.produce, "beside")
    send([b'{"p": 0.75}'], key="ü-1".encode(), **named)
    send([b' {"p": 0.5, "$key": "forged", "$headers": {"model": "forged"}} \n'], key=b"r-2", **named)
    send([b'[{"p": 0.25}, {"p": 0.5}]'], key=b"r-3", **named)
    send([b'{"p": 0.5}\n\n{"p": 0.75}'], key=b"r-4", **named)
    send([b'{"truth": "toxic"}'], key=b"r-2", milliseconds=1782907201000)
    send([b'{"p": 0.5}'], key=None, headers={"$key": "forged", "model": "erm"}, milliseconds=1782907200500)
    send([None], key=b"r-2")
    chunk = decoded(settings_of(kafka_broker, "beside", BESIDE), 7)
    assert chunk.rejects == ()
    (batch,), (labels,) = chunk.batches, chunk.labels
    assert batch.key.tolist() == id_keys(["ü-1", "r-2", "r-3", "r-3", "r-4", "r-4", ""]).tolist()
    assert batch.time.tolist() == [1782907200.5] * 7
    assert (batch.models, batch.versions) == (("erm",), ("7", ""))
    assert batch.scores[:, 1].tolist() == [0.75, 0.5, 0.25, 0.5, 0.5, 0.75, 0.5]
    assert labels.key.tolist() == id_keys(["r-2"]).tolist()
    assert labels.time.tolist() == [1782907201.0]


def test_a_key_that_is_no_text_is_rejected_and_a_missing_header_named(
    kafka_broker: KafkaBroker, settings_of: SettingsOf
) -> None:
    kafka_broker.create_topic("odd-keys")
    named = {"headers": {"model": "erm"}}
    kafka_broker.produce("odd-keys", [b'{"p": 0.75}'], key=b"\x00\x00\xfe", **named)
    kafka_broker.produce("odd-keys", [b'{"p": 0.75}', b"[1", b'{"p": }'], key=b"r-1")
    chunk = decoded(settings_of(kafka_broker, "odd-keys", BESIDE), 4)
    assert [(each.position, each.reason.value) for each in chunk.rejects] == [
        *((0, "encoding"), (1, "no_model"), (2, "malformed"), (3, "malformed"))
    ]
    assert "the mapping reads model at $headers.model" in chunk.rejects[1].message


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({}, {}),
        ({"type": "order"}, {}),
        ({"content-type": "application/json"}, {}),
        ({**BINARY, "content-type": "application/CloudEvents+json"}, {}),
        ({"CE_specversion": "1.0", "ce_data": "x", "other": "y"}, {"specversion": "1.0"}),
        (
            {"type": "io.seldon.serving.feedback", "requestid": "b"},
            {"specversion": "1.0", "type": "io.seldon.serving.feedback", "requestid": "b"},
        ),
    ],
)
def test_headers_tell_the_mode(headers: dict[str, str], expected: dict[str, str]) -> None:
    assert kafka_attributes([(name, value.encode()) for name, value in headers.items()]) == expected
    assert kafka_attributes([("ce_specversion", None)]) == {}
    assert kafka_attributes(beside([("type", b"io.seldon.x")], b"k", 5)) == {
        "specversion": "1.0",
        "type": "io.seldon.x",
    }


def test_doctor_looks_at_events_as_the_source_would(
    kafka_broker: KafkaBroker, kafka_driver: str, tmp_path: Path
) -> None:
    kafka_broker.create_topic("looked")
    kafka_broker.produce("looked", [BODY], headers=BINARY)
    source = {
        "kind": "kafka",
        "driver": kafka_driver,
        "brokers": [kafka_broker.address],
        "topics": ["looked"],
    }
    tasks = {"toxicity": {"classes": ["ok", "toxic"]}}
    path = write_configuration(
        tmp_path, {"tasks": tasks, "sources": [{**source, "mapping": {"format": "kserve"}}]}
    )
    text, well = diagnosed(str(path))
    assert (well, "2 answers, 0 labels, 0 records that cannot be used" in text) == (True, True)
    kafka_broker.produce("looked", [TYPED, b"\x00\x00\x00\x00\x07" + RAW, b"\x1f\x8b\x08\x00"])
    path = write_configuration(tmp_path, {"tasks": tasks, "sources": [source]})
    text, well = diagnosed(str(path))
    assert (well, "4 answers, 0 labels, " in text) == (False, True)  # by their shape, as `run` reads them
    paths = {**source, "mapping": {"id": "uuid", "scores": "p"}}
    text, well = diagnosed(str(write_configuration(tmp_path, {"tasks": tasks, "sources": [paths]})))
    assert not well
    assert "with this mapping 4 can be used instead of 0:\n" in text
    assert text.rstrip().endswith("mapping:\n      format: kserve")
    assert "1 messages are inference responses as protobuf, or with binary tensors: mapping: {for" in text
    assert "1 messages begin with a schema registry's header, so they are Avro" in text
    assert "1 messages are packed by gzip, by their producer and not by Kafka" in text
