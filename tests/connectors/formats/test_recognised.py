"""Bodies of serving stacks are read without a mapping, each by its shape; ambiguous bodies are rejected.

The payloads have the shape that the stacks' documentation or source code shows, with two classes: KServe's
logger and its binary mode, MLServer's and Triton's answers, Seldon Core's answer with its `requestPath`,
SageMaker's capture files (AWS, model-monitor-data-capture), Databricks' inference tables of both generations,
Debezium's envelope with and without a schema (debezium.io), BentoML's monitoring log (`default.py`).
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

import pytest

from connectors.formats.decode.decoder import Decoder
from connectors.formats.decode.json_lines import read_block
from connectors.formats.wires.choice import RECOGNISED, compiled
from connectors.formats.wires.recognised import RecognisedWire
from connectors.http.body import event_lines
from connectors.http.intake import Intake, PostKind
from monitor.base.records import Chunk, TaskLayout, id_keys
from monitor.base.source import RawBlock, RawMessages, RawTable
from monitor.config.mapping import FieldMapping
from tests.bench.fuzz_decoder import check_chunk
from tests.connectors.formats.test_tensors import RAW, TYPED, with_binary

LAYOUT = TaskLayout("toxicity", ("ok", "toxic"), models=("erm",), numbered=True)
TWO = [[0.25, 0.75], [0.5, 0.5]]
KSERVE = "org.kubeflow.serving.inference."
EVENT: dict[str, Any] = {
    "specversion": "1.0",
    "id": "e",
    "source": "http://localhost:9081/",
    "type": f"{KSERVE}response",
    "datacontenttype": "application/json",
    "time": "2026-07-01T12:00:00.123456789Z",
    "inferenceservicename": "irm",
    "data": {"predictions": TWO},
}
BINARY = {
    "ce-specversion": "1.0",
    "ce-id": "e",
    "ce-source": "http://localhost:9081/",
    "ce-type": f"{KSERVE}response",
    "ce-inferenceservicename": "irm",
}
V2 = {
    "model_name": "irm",
    "model_version": "3",
    "id": "e",
    "outputs": [{"name": "p", "shape": [2, 2], "datatype": "FP32", "data": [0.25, 0.75, 0.5, 0.5]}],
}
TENSORS = with_binary(("p", "FP64", [2, 2], RAW[-32:]), model_name="irm", id="e")
CE = [(name.replace("ce-", "ce_"), value.encode()) for name, value in sorted(BINARY.items())]
SELDON = {"names": ["t:0", "t:1"], "ndarray": TWO}
CAPTURE: dict[str, Any] = {
    "captureData": {
        "endpointInput": {
            "observedContentType": "text/csv",
            "mode": "INPUT",
            "data": "69,0,153.7\n94,23,197.1\n",
            "encoding": "CSV",
        },
        "endpointOutput": {
            "observedContentType": "text/csv; charset=utf-8",
            "mode": "OUTPUT",
            "data": "0.25,0.75\n0.5,0.5\n",
            "encoding": "CSV",
        },
    },
    "eventMetadata": {"eventId": "aaaa", "inferenceId": "e", "inferenceTime": "2022-02-14T17:25:49Z"},
    "eventVersion": "0",
}
LOGGED: dict[str, Any] = {
    "databricks_request_id": "d",
    "client_request_id": "e",
    "date": "2026-07-01",
    "timestamp_ms": 1782907200123,
    "status_code": 200,
    "sampling_fraction": 1.0,
    "execution_time_ms": 12,
    "request": '{"dataframe_records": [{"x": 1.0}, {"x": 2.0}]}',
    "response": json.dumps({"predictions": TWO}),
    "request_metadata": {"endpoint_name": "toxicity", "model_name": "irm", "model_version": "3"},
}
ROW = {"id": "e", "model": "irm", "scores": [0.25, 0.75]}
SOURCE = {"version": "2.7.0.Final", "connector": "postgresql", "db": "app", "table": "answers", "ts_ms": 1}
CHANGE: dict[str, Any] = {"before": None, "after": ROW, "source": SOURCE, "op": "c", "ts_ms": 1782907200123}
SCHEMA = {"type": "struct", "name": "app.public.answers.Envelope", "fields": [], "optional": False}


def captured(data: str, encoding: str = "CSV", kind: str = "text/csv", rows: str = "1\n") -> dict[str, Any]:
    """Return a capture of `rows` rows with another output."""
    output = {"observedContentType": kind, "mode": "OUTPUT", "data": data, "encoding": encoding}
    captured_input = {"observedContentType": "text/csv", "mode": "INPUT", "data": rows, "encoding": "CSV"}
    return {**CAPTURE, "captureData": {"endpointInput": captured_input, "endpointOutput": output}}


@dataclass(frozen=True)
class Body:
    """One body and what it holds."""

    content: Any
    ids: tuple[str | None, ...] = ("e:0", "e:1")
    model: str = "irm"
    headers: dict[str, str] = field(default_factory=dict)
    scores: Any = None
    ignored: int = 0
    labels: int = 0

    @property
    def data(self) -> bytes:
        return self.content if isinstance(self.content, bytes) else json.dumps(self.content).encode()


BODIES = {
    "ours": Body(ROW, ("e",), scores=[[0.25, 0.75]]),
    "our label": Body({"id": "e", "label": "toxic"}, (), labels=1),
    "kserve, structured": Body(EVENT),
    "kserve, binary": Body({"predictions": TWO}, headers=BINARY),
    "kserve, binary, tensors": Body(TENSORS, headers=BINARY),
    "kserve, batched": Body([EVENT, {**EVENT, "id": "f"}], ("e:0", "e:1", "f:0", "f:1"), scores=TWO * 2),
    "kserve, a request": Body({**EVENT, "type": f"{KSERVE}request"}, (), ignored=1),
    "mlserver": Body({**EVENT, "type": "io.seldon.serving.inference.response", "modelid": "irm", "data": V2}),
    "an event with a record of ours": Body(
        {"specversion": "1.0", "id": "e", "type": "com.example.scored", "data": {**ROW, "id": None}},
        ("e",),
        scores=[[0.25, 0.75]],
    ),
    "v1": Body({"predictions": TWO}, (None, None), "erm"),
    "v1, with an id": Body({"predictions": TWO, "id": "e"}, model="erm"),
    "mlflow, objects by class": Body(
        {"predictions": [{"ok": 0.25, "toxic": 0.75}, {"ok": 0.5, "toxic": 0.5}]}, (None, None), "erm"
    ),
    "v2": Body(V2),
    "v2, binary tensors": Body(TENSORS, headers={"inference-header-content-length": str(len(TENSORS) - 32)}),
    "triton, classification": Body(
        {
            **V2,
            "outputs": [
                {
                    "name": "p",
                    "datatype": "BYTES",
                    "shape": [2, 2],
                    "data": ["0.75:1:toxic", "0.25:0:ok", "0.5:0:ok", "0.5:1:toxic"],
                }
            ],
        }
    ),
    "seldon": Body(
        {"data": SELDON, "meta": {"puid": "e", "requestPath": {"irm": "seldonio/sklearnserver:1.13.1"}}}
    ),
    "seldon, tensor": Body(
        {
            "data": {"names": [], "tensor": {"shape": [2, 2], "values": [0.25, 0.75, 0.5, 0.5]}},
            "meta": {"metrics": [], "puid": "e"},
        },
        model="erm",
    ),
    "sagemaker": Body(CAPTURE, model="erm"),
    "sagemaker, one row of two classes": Body(captured("0.25,0.75"), ("e:0",), "erm", scores=[[0.25, 0.75]]),
    "sagemaker, a number a row": Body(captured("0.75,0.5", rows="1\n2\n"), model="erm"),
    "sagemaker, JSON": Body(
        captured(json.dumps({"predictions": TWO}), "JSON", "application/json"), model="erm"
    ),
    "sagemaker, linear learner": Body(
        captured('{"predictions": [{"score": 0.75, "predicted_label": 1}]}', "JSON", "application/json"),
        ("e:0",),
        "erm",
        scores=[[0.25, 0.75]],
    ),
    "sagemaker, base64": Body(
        captured(base64.b64encode(b"0.25,0.75\n0.5,0.5").decode(), "BASE64", rows="1\n2"), model="erm"
    ),
    "sagemaker, tensors in base64": Body(
        captured(base64.b64encode(TENSORS).decode(), "BASE64", "application/octet-stream"), model="erm"
    ),
    "sagemaker, an input": Body(
        {**CAPTURE, "captureData": {"endpointInput": CAPTURE["captureData"]["endpointInput"]}}, (), ignored=1
    ),
    "sagemaker, ground truth": Body(
        {
            "groundTruthData": {"data": "toxic", "encoding": "CSV"},
            "eventMetadata": {"eventId": "e"},
            "eventVersion": "0",
        },
        (),
        labels=1,
    ),
    "inference table": Body(LOGGED),
    "inference table, metadata as text": Body(
        {**LOGGED, "request_metadata": json.dumps(LOGGED["request_metadata"]), "status_code": "200"}
    ),
    "inference table of the gateway": Body(
        {
            "databricks_request_id": "e",
            "client_request_id": None,
            "request_time": "2026-07-01T12:00:00.123Z",
            "status_code": 200,
            "request": "{}",
            "response": LOGGED["response"],
            "served_entity_id": "7",
        },
        model="erm",
    ),
    "inference table, an error": Body({**LOGGED, "status_code": 500, "response": None}, (), ignored=1),
    "debezium": Body(CHANGE, ("e",), scores=[[0.25, 0.75]]),
    "debezium, with a schema": Body(
        {"schema": SCHEMA, "payload": {**CHANGE, "op": "u", "before": ROW}}, ("e",), scores=[[0.25, 0.75]]
    ),
    "debezium, JSON columns as text": Body(
        {**CHANGE, "after": {**ROW, "scores": "[0.25, 0.75]"}}, ("e",), scores=[[0.25, 0.75]]
    ),
    "debezium, MongoDB": Body({**CHANGE, "after": json.dumps(ROW), "op": "r"}, ("e",), scores=[[0.25, 0.75]]),
    "debezium, an inference table": Body({**CHANGE, "after": LOGGED}),
    "debezium, a delete": Body({**CHANGE, "before": ROW, "after": None, "op": "d"}, (), ignored=1),
    "debezium, a label": Body({**CHANGE, "after": {"id": 7, "label": "ok"}}, (), labels=1),
    "debezium, in an event": Body(
        {
            "specversion": "1.0",
            "id": "name:postgresql;lsn:29274832",
            "type": "io.debezium.connector.postgresql.DataChangeEvent",
            "data": CHANGE,
        },
        ("e",),
        scores=[[0.25, 0.75]],
    ),
    "kafka connect, with a schema": Body({"schema": SCHEMA, "payload": ROW}, ("e",), scores=[[0.25, 0.75]]),
}

CHOICES = {
    "an event of another type": (
        {"specversion": "1.0", "id": "e", "type": "com.example.scored", "data": {"p": 0.5}},
        "mapping.format: cloudevents",
    ),
    "predictions beside outputs": (
        {"predictions": TWO, "outputs": V2["outputs"]},
        "predictions and outputs stand beside each other, and each may be the answers",
    ),
    "seldon's request or answer": ({"data": SELDON, "meta": {}}, "only the answer's meta has requestPath"),
    "marks of two formats": (
        {**LOGGED, "predictions": TWO},
        "this may be a record of the formats kserve or inference_table",
    ),
    "classes or rows": (
        captured("0.75,0.5", rows=""),
        "whether they are classes of a row or rows is not known",
    ),
    "bentoml's log": (
        {
            "p_ok": 0.25,
            "p_toxic": 0.75,
            "timestamp": "2026-07-01T12:00:00.120000",
            "request_id": "4151694932783368069",
            "trace_id": "67131233608323295915755120473254509377",
        },
        "this looks like BentoML's log, whose columns have names of their own and whose times have no zone",
    ),
    "classes and no probabilities": (
        captured('{"predictions":[1],"probabilities":[0.85]}', "JSON", "application/json"),
        "expected probabilities, got whole numbers only",
    ),
}


def read(chunk: Chunk, body: Body) -> None:
    """Compare the columns with the content of the body."""
    check_chunk(chunk)
    assert chunk.rejects == ()
    assert (chunk.answers, chunk.labels_received) == (len(body.ids), body.labels)
    if not body.ids:
        return
    (batch,) = chunk.batches
    assert batch.key.tolist() == [0 if id_ is None else id_keys([id_])[0] for id_ in body.ids]
    assert batch.models == (body.model,)
    wanted = TWO if body.scores is None else body.scores
    assert batch.scores.tolist() == wanted


@pytest.mark.parametrize("name", BODIES)
def test_a_post_is_told_by_its_shape_and_its_headers(name: str) -> None:
    body = BODIES[name]
    lines = event_lines(body.headers, body.data, RECOGNISED)
    kind = PostKind.LABELS if body.labels else PostKind.PREDICTIONS
    judged = Intake([LAYOUT], RECOGNISED).judge(lines, kind)
    assert (judged.accepted, judged.rejected, judged.misplaced) == (len(body.ids) or body.labels, 0, 0)
    assert judged.ignored == body.ignored
    # What is kept of it is read again as it was judged; its headers are not kept.
    read(Decoder([LAYOUT], "http", wire=RECOGNISED).decode([RawBlock(judged.lines, "spool", 0)]), body)


@pytest.mark.parametrize("name", [name for name, body in BODIES.items() if not body.headers])
@pytest.mark.parametrize("messages", [False, True])
def test_files_and_topics_are_told_the_same_way(name: str, messages: bool) -> None:
    body = BODIES[name]
    value = body.content if isinstance(body.content, list) else [body.content]
    lines = [json.dumps(each).encode() for each in value]
    raw = RawMessages([body.data], "p", [0]) if messages else RawBlock(b"\n".join(lines) + b"\n", "p", 0)
    chunk = Decoder([LAYOUT], "test", wire=RECOGNISED).decode([raw])
    read(chunk, body)
    assert chunk.ignored == body.ignored


@pytest.mark.slow
def test_one_block_of_all_formats_is_read_as_its_lines_are() -> None:
    plain = [body for body in BODIES.values() if not body.headers and not isinstance(body.content, list)]
    lines = [json.dumps(body.content).encode() for body in plain] * 20
    chunk = Decoder([LAYOUT], "test", wire=RECOGNISED).decode([RawBlock(b"\n".join(lines) + b"\n", "p", 0)])
    check_chunk(chunk)
    assert chunk.rejects == ()
    assert chunk.answers == 20 * sum(len(body.ids) for body in plain)
    assert chunk.labels_received == 20 * sum(body.labels for body in plain)
    assert chunk.ignored == 20 * sum(body.ignored for body in plain)
    apart = [
        Decoder([LAYOUT], "test", wire=RECOGNISED).decode([RawBlock(line + b"\n", "p", 0)]) for line in lines
    ]
    keys = [key for each in apart for batch in each.batches for key in batch.key.tolist()]
    assert chunk.batches[0].key.tolist() == keys


def test_a_block_of_numbers_is_read_as_its_lines_are_with_foreign_and_escaped_ones_between_them() -> None:
    numbers = [b'{"id": "r%d", "model": "gbm", "prediction": %d.5}' % (i, i) for i in range(600)]
    foreign = b'{"\\u0070redictions": [2.5], "id": "other"}', b'{"predictions": [2.5], "id": "another"}'
    escaped = b'{"id": "q\\u0041", "model": "gbm", "\\u0070rediction": 7.5}'
    for between in ((), foreign[1:], (*foreign, escaped)):
        wire = RecognisedWire([DELAYS])
        lines = [*numbers[:300], *between, *numbers[300:]]
        together = read_block(RawBlock(b"\n".join(lines) + b"\n", "p", 0), 10_000, wire)
        alone = [record for line in lines for _, record in wire.read(line)]
        fields = attrgetter("id", "model", "prediction")
        assert [*map(fields, together.records)] == [*map(fields, alone)]
        assert len(together.records) == len(lines)


@pytest.mark.parametrize("headers", [False, True])
def test_messages_are_told_whether_others_beside_them_have_headers_or_not(headers: bool) -> None:
    """Messages of one topic may be mixed: the kind of each must not depend on the others."""
    stand = [("$key", None), ("$timestamp", b"1")]
    of = {
        "v2, binary tensors": (TENSORS, []),
        "protobuf": (TYPED, []),
        "ours": (json.dumps(ROW).encode(), [("trace", b"t")]),
        "ours, as an event": (json.dumps({**ROW, "id": "o"}).encode(), CE),
        "kserve": (json.dumps({"predictions": TWO}).encode(), CE),
    }
    values, header_lists = [value for value, _ in of.values()], [[*head, *stand] for _, head in of.values()]
    wire = Decoder([LAYOUT], "test", wire=RECOGNISED)
    beside = [wire.decode([RawMessages(values, "p", list(range(len(values))), headers=header_lists)])]
    alone = []
    for i, (value, (_, own)) in enumerate(zip(values, of.values(), strict=True)):
        head = [[*own, *stand]] if own or headers else None
        alone.append(wire.decode([RawMessages([value], "p", [i], headers=head)]))
    keys = [
        [key for each in chunks for batch in each.batches for key in batch.key.tolist()]
        for chunks in (beside, alone)
    ]
    assert keys[0] == keys[1]
    assert [each.rejects for each in (*beside, *alone)] == [()] * 6
    assert len(keys[0]) == 8


@pytest.mark.parametrize("name", CHOICES)
def test_what_may_be_two_things_is_refused_with_the_choice(name: str) -> None:
    content, message = CHOICES[name]
    raw = RawBlock(json.dumps(content).encode() + b"\n", "p", 0)
    chunk = Decoder([LAYOUT], "test", wire=RECOGNISED).decode([raw])
    check_chunk(chunk)
    assert chunk.batches == ()
    assert message in chunk.rejects[0].message


def test_no_model_is_guessed_where_a_task_lists_none_or_several() -> None:
    for models in ((), ("erm", "irm")):
        layout = TaskLayout("toxicity", ("ok", "toxic"), models=models)
        raw = RawBlock(json.dumps(CAPTURE).encode() + b"\n", "p", 0)
        chunk = Decoder([layout], "test", wire=RECOGNISED).decode([raw])
        assert len(chunk.rejects) == 2
        assert "name it in mapping.constants.model, beside format: sagemaker" in chunk.rejects[0].message


@pytest.mark.parametrize("time", [10**400, -(10**400), 1e300])
def test_a_time_of_hundreds_of_digits_is_rejected(time: float) -> None:
    raw = RawBlock(json.dumps({**LOGGED, "timestamp_ms": time}).encode() + b"\n", "p", 0)
    chunk = Decoder([LAYOUT], "test", wire=RECOGNISED, clock=lambda: 1.8e9).decode([raw])
    check_chunk(chunk)
    assert len(chunk.rejects) == 2


def test_paths_of_debezium_refer_to_the_row_and_deletes_are_passed_over() -> None:
    wire = compiled(FieldMapping(format="debezium", id="request_id", label="truth"))
    rows = [{"request_id": f"r-{i}", "truth": "toxic"} for i in range(9)]
    lines = [json.dumps({**CHANGE, "after": row}).encode() for row in rows]
    lines.insert(3, json.dumps({**CHANGE, "before": rows[0], "after": None, "op": "d"}).encode())
    lines.append(json.dumps({**CHANGE, "after": {"request_id": "r-9"}}).encode())
    chunk = Decoder([LAYOUT], "test", wire=wire).decode([RawBlock(b"\n".join(lines) + b"\n", "p", 0)])
    check_chunk(chunk)
    assert chunk.labels[0].key.tolist() == id_keys([f"r-{i}" for i in range(9)]).tolist()
    assert (chunk.ignored, len(chunk.rejects)) == (1, 1)


def test_constants_of_debezium_stand_for_what_a_row_lacks() -> None:
    wire = compiled(FieldMapping.model_validate({"format": "debezium", "constants": {"model": "irm"}}))
    row = {"id": "e", "scores": [0.25, 0.75]}
    lines = [json.dumps({**CHANGE, "after": each}).encode() for each in (row, {**row, "model": "erm"})]
    chunk = Decoder([LAYOUT], "test", wire=wire).decode([RawBlock(b"\n".join(lines) + b"\n", "p", 0)])
    assert chunk.batches[0].models == ("irm", "erm")


def test_what_stands_beside_a_message_is_no_path_into_a_row() -> None:
    with pytest.raises(ValueError, match="expected a path into the row, which format: debezium reads, got"):
        FieldMapping(format="debezium", id="$key", label="truth")


def test_half_a_character_in_a_cell_of_a_table_costs_its_row() -> None:
    row = {"eventId": "a", "inferenceTime": "\ud800"}
    table = RawTable(
        {"captureData": [CAPTURE["captureData"]] * 2, "eventMetadata": [row, {"eventId": "b"}]}, "t", 0
    )
    chunk = Decoder([LAYOUT], "test", wire=RECOGNISED).decode([table])
    assert [(r.reason.value, r.position) for r in chunk.rejects] == [("encoding", 0)]
    assert [batch.position.tolist() for batch in chunk.batches] == [[1, 1]]


DELAYS = TaskLayout("delay", (), models=("gbm",), kind="regression", numeric=True, numbered=True)
TENSOR = {"name": "predict", "shape": [2, 1], "datatype": "FP64", "data": [12.5, -3.0]}
BENTOML = {"minutes": 12.5, "sd": 2.0, "timestamp": "2026-07-01T12:00:00.12", "request_id": "255"}
NUMBERS: dict[str, Any] = {
    "Open Inference Protocol": {**V2, "outputs": [TENSOR]},
    "one dimension": {**V2, "outputs": [{**TENSOR, "shape": [2], "datatype": "FP32"}]},
    "whole numbers": {**V2, "outputs": [{**TENSOR, "datatype": "INT64", "data": [12, -3]}]},
    "a class beside the number": {**V2, "outputs": [TENSOR, {**TENSOR, "datatype": "INT32", "name": "bin"}]},
    "MLflow": {"id": "e", "predictions": [12.5, -3.0]},
    "v1, whole numbers": {"id": "e", "predictions": [12, -3]},
    "v1, lists": {"id": "e", "predictions": [[12.5], [-3.0]]},
    "KServe's event": {**EVENT, "data": {"predictions": [12.5, -3.0]}},
    "Seldon": {"data": {"ndarray": [[12.5], [-3.0]]}, "meta": {"puid": "e", "requestPath": {"irm": "i"}}},
    "inference table": {**LOGGED, "response": '{"predictions": [12.5, -3.0]}'},
    "SageMaker, lines": captured("12.5\n-3\n", rows="1\n2\n"),
    "SageMaker, one line": captured("12.5,-3", rows="1\n2\n"),
    "SageMaker, JSON": captured("[[12.5], [-3]]", "JSON", "application/json"),
    "SageMaker, built-in": captured('{"predictions": [{"score": 12.5}, {"score": -3}]}', "JSON"),
}


def read_numbers(value: object, *layouts: TaskLayout) -> Chunk:
    return Decoder(layouts or (DELAYS,), "test", wire=RECOGNISED).decode(
        [RawBlock(json.dumps(value).encode() + b"\n", "p", 0)]
    )


@pytest.mark.parametrize("name", NUMBERS)
def test_a_task_of_numbers_reads_one_number_a_row(name: str) -> None:
    chunk = read_numbers(NUMBERS[name])
    assert chunk.rejects == ()
    (batch,) = chunk.batches
    expected = [12.0, -3.0] if "whole" in name else [12.5, -3.0]
    assert batch.numbers[:, 0].tolist() == expected
    assert batch.key.tolist() == id_keys(["e:0", "e:1"]).tolist()


@pytest.mark.parametrize("datatype", ["INT8", "INT16", "INT64", "UINT8", "UINT64"])
def test_whole_numbers_of_each_type_are_predicted_numbers(datatype: str) -> None:
    chunk = read_numbers({**V2, "outputs": [{**TENSOR, "datatype": datatype, "data": [12, 3]}]})
    assert chunk.rejects == ()
    assert chunk.batches[0].numbers[:, 0].tolist() == [12, 3]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (
            {**V2, "outputs": [{**TENSOR, "shape": [1, 2]}]},
            "the shape [rows] or [rows, 1] of the predicted num",
        ),
        (
            {**V2, "outputs": [TENSOR, {**TENSOR, "name": "std"}]},
            "expected one output of FP16, FP32, FP64 or of integers, the predicted numbers, got 2: predict, "
            "std; have the",
        ),
        ({**V2, "outputs": [{**TENSOR, "data": [1.0]}]}, "expected 2 numbers, as the shape says, got 1"),
        ({**V2, "outputs": [{**TENSOR, "data": None}]}, "expected the data of the predicted numbers, as an"),
        ({"predictions": [[0.25, 0.75]]}, "expected one number a row, the prediction, got an array in row 0"),
        (
            {"predictions": [{"mean": 1.0}]},
            "expected one number a row, the prediction, got an object in row 0",
        ),
        ({"predictions": ["toxic"]}, '$.prediction: expected a number, got "toxic"'),
        ({"predictions": [None]}, "$.prediction: missing; task delay needs prediction, the predicted number"),
        (captured("1.5,2.5"), "expected one number a row, the prediction, got 2 numbers for 1 row of input"),
        (captured("1.5,2.5\n3,4\n"), "expected one number a row, the prediction, got an array in row 0"),
        (captured("late"), "expected a predicted number a row as CSV, JSON or base64 of these or of tensors"),
    ],
)
def test_another_shape_than_a_number_a_row_is_rejected(value: object, message: str) -> None:
    chunk = read_numbers(value)
    assert not chunk.batches
    assert message in chunk.rejects[0].message


def test_a_row_that_is_no_number_takes_no_other_with_it() -> None:
    chunk = read_numbers({"id": "e", "predictions": [12.5, [1, 2], "x", -3.0]})
    assert chunk.batches[0].key.tolist() == id_keys(["e:0", "e:3"]).tolist()
    assert (chunk.answers, [reject.answers for reject in chunk.rejects]) == (4, [1, 1])


def test_the_task_that_lists_the_model_says_whether_rows_are_numbers() -> None:
    both = LAYOUT, DELAYS
    numbers = read_numbers({**V2, "model_name": "gbm", "outputs": [TENSOR]}, *both)
    scores = read_numbers({**V2, "model_name": "erm"}, *both)
    assert [batch.task for batch in (*numbers.batches, *scores.batches)] == ["delay", "toxicity"]


def test_ground_truth_of_sagemaker_may_be_a_number() -> None:
    truth = {"groundTruthData": {"data": "31.5", "encoding": "CSV"}, "eventMetadata": {"eventId": "e:0"}}
    (labels,) = read_numbers(truth).labels
    assert labels.numbers.tolist() == [[31.5]]


def test_a_mapping_reads_a_number_of_bentoml() -> None:
    mapping = {"id": "request_id", "id_hex_digits": 16, "time": "timestamp", "time_zone": "UTC"}
    fields = {**mapping, "prediction": "minutes", "sigma": "sd", "constants": {"model": "gbm"}}
    wire = compiled(FieldMapping.model_validate(fields))
    line = json.dumps(BENTOML).encode() + b"\n"
    (batch,) = Decoder([DELAYS], "test", wire=wire).decode([RawBlock(line, "p", 0)]).batches
    assert (batch.numbers[0, 0], batch.scores.tolist()) == (12.5, [[2.0]])
    unmapped = read_numbers({**BENTOML, "trace_id": "7"})
    assert (
        "this looks like BentoML's log, whose columns have names of their own" in unmapped.rejects[0].message
    )
