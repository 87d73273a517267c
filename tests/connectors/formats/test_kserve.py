"""The events of KServe's logger: a row of a response is an answer, a request none."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.formats.decode.decoder import Decoder
from connectors.formats.wires.choice import wire_for
from connectors.formats.wires.kserve import RESPONSE, SELDON_RESPONSE, KserveWire
from monitor.base.records import Chunk, RejectReason, TaskLayout, id_keys
from monitor.base.source import Raw, RawBlock, RawMessages
from monitor.cli.examine import examine
from monitor.config.mapping import FieldMapping
from monitor.config.root import Config
from tests.examples import examples

LAYOUT = TaskLayout("toxicity", ("ok", "toxic"))
ID = "0009174a-24a8-4603-b098-09c8799950e9"
# What the logger's message dumper shows, in structured JSON, with probabilities in place of classes.
EVENT: dict[str, Any] = {
    "specversion": "1.0",
    "id": ID,
    "source": "http://localhost:9081/",
    "type": RESPONSE,
    "datacontenttype": "application/json",
    "time": "2026-07-01T12:00:00.123456789Z",
    "inferenceservicename": "erm",
    "namespace": "default",
    "component": "predictor",
    "endpoint": "default",
    "data": {"predictions": [[0.25, 0.75], [0.5, 0.5]]},
}
REQUEST = {**EVENT, "type": "org.kubeflow.serving.inference.request", "data": {"instances": [[6.8, 2.8]]}}
TWO = [[0.25, 0.75], [0.5, 0.5]]


LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3)
NAMES = st.sampled_from(["predictions", "outputs", "shape", "datatype", "data", "name", "model_name"])
VALUES = st.recursive(
    LEAVES | st.sampled_from(["FP32", [2], [2, 2]]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=12,
)


def output(data: object, shape: object = (2, 2), datatype: str = "FP32", name: str = "p") -> dict[str, Any]:
    return {"name": name, "shape": shape, "datatype": datatype, "data": data}


def decoded(*events: object, messages: bool = False, **constants: str) -> Chunk:
    wire = KserveWire(FieldMapping.model_validate({"format": "kserve", "constants": constants}))
    each = [json.dumps(event).encode() for event in events]
    raw: Raw = RawBlock(b"\n".join(each) + b"\n", "p", 0)
    if messages:
        raw = RawMessages(each, "p-0", list(range(len(each))))
    return Decoder([LAYOUT], "test", wire=wire).decode([raw])


@pytest.mark.parametrize(
    "data",
    [
        {"predictions": TWO},
        {"predictions": [{"toxic": 0.75, "ok": 0.25}, {"ok": 0.5, "toxic": 0.5}]},
        {"predictions": [0.75, 0.5]},
        {"predictions": [[0.75], [0.5]]},
        {"model_name": "other", "id": "8231", "outputs": [output(TWO)]},
        {"outputs": [output([0.25, 0.75, 0.5, 0.5], datatype="FP64")]},
        {"outputs": [output([1, 0], (2,), "INT64", "label"), output([0.25, 0.75, 0.5, 0.5])]},
        {"outputs": [output([0.75, 0.5], [2])]},
        {"outputs": [output([[0.75], [0.5]], [2, 1])]},
        json.dumps({"predictions": TWO}),
    ],
)
def test_a_response_is_an_answer_a_row(data: object) -> None:
    chunk = decoded({**EVENT, "data": data})
    (batch,) = chunk.batches
    assert chunk.rejects == ()
    assert batch.scores.tolist() == TWO
    assert batch.key.tolist() == id_keys([f"{ID}:0", f"{ID}:1"]).tolist()
    assert batch.models == ("erm",)
    at = datetime.fromisoformat("2026-07-01T12:00:00.123+00:00").timestamp()
    assert batch.time.tolist() == pytest.approx([at, at], abs=1e-3)


def test_the_id_of_the_body_may_count_for_that_of_the_event() -> None:
    wire = KserveWire(FieldMapping(format="kserve", id="body"))
    by_client = {"id": "r-1", "outputs": [output([0.75], [1])]}
    seldon = {**EVENT, "type": SELDON_RESPONSE, "requestid": "q", "data": {**by_client, "id": "r-2"}}
    events = [
        {**EVENT, "data": by_client},
        {**EVENT, "id": None, "data": {"id": "r-3", "outputs": [output(TWO)]}},
        seldon,
        EVENT,
        {**EVENT, "data": "no JSON"},
        {"id": "r-1", "label": "toxic"},
    ]
    data = b"".join(json.dumps(event).encode() + b"\n" for event in events)
    chunk = Decoder([LAYOUT], "test", wire=wire).decode([RawBlock(data, "p", 0)])
    assert chunk.batches[0].key.tolist() == id_keys(["r-1:0", "r-3:0", "r-3:1", "r-2:0", "", ""]).tolist()
    assert chunk.batches[0].request.tolist() == id_keys(["r-1", "r-3", "", "r-2", "", ""]).tolist()
    assert [(each.reason.value, each.position) for each in chunk.rejects] == [
        ("wrong_type", sum(len(line) + 1 for line in data.split(b"\n")[:4]))
    ]
    assert chunk.labels[0].key.tolist() == id_keys(["r-1"]).tolist()


def test_the_first_row_names_its_request_and_a_label_its_first_row() -> None:
    one = {**EVENT, "id": "b", "data": {"predictions": [[0.25, 0.75]]}}
    bare = {"id": "c", "model_name": "erm", "predictions": [[0.25, 0.75]]}
    plain = {"id": "d:0", "model": "erm", "scores": 0.5, "rows": 1}
    refused = {**EVENT, "id": "e", "data": {"predictions": [[0.25, 0.75], [7, 7]]}}
    chunk = decoded(EVENT, one, bare, plain, refused, {"id": "b", "label": "ok"}, {"id": 7, "label": "ok"})
    batch, labels = chunk.batches[0], chunk.labels[0]
    assert batch.request.tolist() == id_keys([ID, "", "b", "c", "", "e"]).tolist()
    assert batch.alone.tolist() == [False, False, True, True, False, False]
    assert labels.first_row.tolist() == [0, 0]  # no source numbers rows
    wire, numbered = KserveWire(FieldMapping(format="kserve")), replace(LAYOUT, numbered=True)
    data = b'{"id": "b", "label": "ok"}\n{"label": "ok"}\n{"id": 7, "label": "ok"}\n'
    decoded_chunk = Decoder([numbered], "test", wire=wire).decode([RawBlock(data, "p", 0)])
    assert decoded_chunk.labels[0].first_row.tolist() == id_keys(["b:0", "7:0"]).tolist()


@pytest.mark.parametrize("messages", [False, True])
def test_requests_are_no_answers_and_take_nobody_with_them(messages: bool) -> None:
    label = {"id": f"{ID}:1", "label": "toxic"}
    events = [REQUEST, EVENT, REQUEST, label, *[REQUEST] * 9, {**EVENT, "id": "b"}]
    chunk = decoded(*events, messages=messages)
    assert (chunk.answers, chunk.labels_received, chunk.rejects) == (4, 1, ())
    assert chunk.ignored == 11
    assert chunk.labels[0].key.tolist() == id_keys([f"{ID}:1"]).tolist() == [int(chunk.batches[0].key[1])]


def test_a_message_that_is_a_batch_of_events_is_read() -> None:
    chunk = decoded([REQUEST, EVENT, {**EVENT, "id": "b"}], messages=True)
    assert chunk.batches[0].key.tolist() == id_keys([f"{ID}:0", f"{ID}:1", "b:0", "b:1"]).tolist()
    assert (chunk.rejects, chunk.ignored) == ((), 1)


def test_constants_come_before_the_event_and_the_event_before_the_body() -> None:
    body = {"model_name": "irm", "model_version": "3", "outputs": [output(TWO)]}
    unnamed = {key: value for key, value in EVENT.items() if key != "inferenceservicename"}
    batch = decoded({**EVENT, "data": body}, model="mine", version="7", task="toxicity").batches[0]
    assert (batch.models, batch.versions) == (("mine",), ("7",))
    assert (decoded({**EVENT, "data": body}).batches[0].models) == ("erm",)
    alone = decoded({**unnamed, "data": body}).batches[0]
    assert (alone.models, alone.versions) == (("irm",), ("3",))


def test_one_bad_row_takes_no_other_with_it() -> None:
    chunk = decoded({**EVENT, "data": {"predictions": [[0.25, 0.75], [0.25, 1.75], "x", [0.5, 0.5]]}})
    assert chunk.batches[0].key.tolist() == id_keys([f"{ID}:0", f"{ID}:3"]).tolist()
    assert [reject.answers for reject in chunk.rejects] == [1, 1]
    assert chunk.answers == 4


@pytest.mark.parametrize(
    ("change", "reason", "message"),
    [
        ({"type": None}, "wrong_type", "$.type: expected the type of an event, such as org.kubeflow"),
        ({"id": ""}, "bad_id", "$.id: expected the text of an event's id, by which labels are joined"),
        (
            {"data": None, "data_base64": "AAA="},
            "wrong_type",
            "$.data_base64: expected a response as JSON, as JSON with binary tensors behind it, or as",
        ),
        ({"data": "no JSON"}, "wrong_type", "ModelInferResponse, but it is not a protobuf message"),
        ({"data": {"instances": []}}, "no_scores", "with ndarray or tensor (Seldon), got only instances"),
        ({"data": {}}, "no_scores", "with ndarray or tensor (Seldon), got an empty object"),
        ({"data": {"predictions": [1, 0]}}, "no_scores", "got whole numbers only, which are classes: let"),
        (
            {"data": {"outputs": []}},
            "no_scores",
            "one output of FP16, FP32 or FP64, the probabilities, got none",
        ),
        (
            {"data": {"outputs": [output(TWO), output(TWO, name="q")]}},
            "no_scores",
            "$.data.outputs: expected one output of FP16, FP32 or FP64, the probabilities, got 2: p, q; have",
        ),
        ({"data": {"outputs": [output(TWO, [1, 2, 2])]}}, "wrong_length", "expected the shape [rows] or"),
        ({"data": {"outputs": [output(TWO, [2, 0])]}}, "wrong_length", "expected the shape [rows] or"),
        ({"data": {"outputs": [output([0.5], [2, 2])]}}, "wrong_length", "expected 4 numbers, as the shape"),
        ({"data": {"outputs": [output(None)]}}, "no_scores", "as an array or as binary data, got neither"),
        ({"inferenceservicename": None}, "no_model", "; an event gives it as inferenceservicename: let it"),
    ],
)
def test_what_cannot_be_read_is_said_in_a_sentence(change: Any, reason: str, message: str) -> None:
    chunk = decoded({**EVENT, **change}, EVENT)
    assert sum(map(len, chunk.batches)) == 2
    assert {reject.reason.value for reject in chunk.rejects} == {reason}
    assert message in chunk.rejects[0].message


@pytest.mark.slow
@examples(200)
@given(VALUES, st.sampled_from(["data", "id", "type", "time", "inferenceservicename", "specversion"]))
def test_nothing_in_an_event_raises_and_all_answers_are_accounted_for(value: object, field: str) -> None:
    chunk = decoded({**EVENT, field: value}, EVENT)
    used = sum(map(len, chunk.batches))
    assert chunk.answers == used + sum(reject.answers for reject in chunk.rejects)
    assert used >= 2


@pytest.mark.slow
@examples(200)
@given(st.dictionaries(NAMES, VALUES, max_size=4))
def test_no_output_raises(value: dict[str, Any]) -> None:
    chunk = decoded({**EVENT, "data": {"outputs": [{"datatype": "FP32", **value}]}}, EVENT)
    assert chunk.answers >= 2


@pytest.mark.parametrize(
    "change",
    [
        {"inferenceservicename": "\ud83d"},
        {"time": "\ud83d"},
        {"id": "\ud83d"},
        {"data": {"predictions": TWO, "model_version": "\ud83d"}},
        {"data": {"predictions": [["\ud83d", 1]] * 2}},
        {"data": {"predictions": [{"ok\ud83d": 0.5, "toxic": 0.5}] * 2}},
        {"data": {"\ud83d": TWO}},
        {"data": {"outputs": [output(TWO, name="\ud83d"), output(TWO)]}},
    ],
)
def test_half_of_a_surrogate_pair_is_told_and_takes_nobody_with_it(change: dict[str, Any]) -> None:
    chunk = decoded({**EVENT, **change}, EVENT)
    used = sum(map(len, chunk.batches))
    assert (used, chunk.answers) == (2, used + sum(reject.answers for reject in chunk.rejects))
    assert all(reject.message.isprintable() and reject.message.encode() for reject in chunk.rejects)
    assert chunk.rejects


def test_broken_json_is_malformed() -> None:
    wire = KserveWire(FieldMapping(format="kserve"))
    chunk = Decoder([LAYOUT], "test", wire=wire).decode([RawBlock(b'{"specversion": "1.0", \n', "p", 0)])
    assert [reject.reason.value for reject in chunk.rejects] == ["malformed"]


def test_the_doctor_and_a_replay_read_what_the_source_reads() -> None:
    source = {"kind": "stdin", "mapping": {"format": "kserve"}}
    wire = wire_for(Config(tasks={"toxicity": {}}, sources=[source]), "anything")
    assert isinstance(wire, KserveWire)
    block = b"\n".join(json.dumps(event).encode() for event in (EVENT, {**EVENT, "data": {}}))
    examined = examine([RawBlock(block, "p", 0)], [LAYOUT], "stdin", wire)
    assert (examined.answers, examined.rejected) == (2, 1)
    assert not any("mapping" in line for line in examined.lines)


@pytest.mark.parametrize("field", ["inferenceservicename", "model_name", "model_version"])
def test_names_that_are_too_long_are_rejected(field: str) -> None:
    body = {"model_name": "erm", "model_version": "3", "outputs": [output(TWO)]}
    if field == "inferenceservicename":
        chunk = decoded({**EVENT, field: "x" * 201, "data": body})
    else:  # bare, as Triton's and MLServer's own logs have them
        chunk = decoded({**body, field: "x" * 201, "id": "8231"})
    assert chunk.batches == ()
    assert {reject.reason for reject in chunk.rejects} == {RejectReason.TOO_LARGE}
    assert all(": expected at most 200 characters, got 201" in reject.message for reject in chunk.rejects)
    assert sum(reject.answers for reject in chunk.rejects) == chunk.answers == 2
