"""Bodies of responses as the servers write them: binary tensors, protobuf, Seldon's own, classifications."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.formats.wires.kserve import RESPONSE, SELDON_RESPONSE, KserveWire
from connectors.formats.wires.protobuf import MAX_FIELDS, infer_response
from connectors.formats.wires.responses import row_values
from connectors.formats.wires.tensors import read_body
from monitor.base.records import RejectReason
from monitor.config.mapping import FieldMapping
from tests.connectors.formats.test_kserve import EVENT, ID, TWO, decoded, output
from tests.examples import examples

# `ModelInferResponse`s of NVIDIA's tritonclient 2.73 (tritonclient.grpc.service_pb2), serialised by protobuf:
# two outputs, INT64 and FP32, with contents and parameters; BYTES and FP64 as raw_output_contents; Triton's
# classification extension.
TYPED = bytes.fromhex(
    "0a0365726d1201331a043832333122110a0b73657175656e63655f6964120210072a170a056c6162656c1205494e5436341a0102"
    "2a041a0201002a430a0d70726f626162696c69746965731204465033321a02020222140a0c636f6e74656e745f7479706512041a"
    "026e702a1232100000803e0000403f0000003f0000003f"
)
RAW = bytes.fromhex(
    "0a0365726d1201331a04383233312a110a056c6162656c120542595445531a01022a190a0d70726f626162696c69746965731204"
    "465036341a020202320f05000000746f786963020000006f6b3220000000000000d03f000000000000e83f000000000000e03f00"
    "0000000000e03f"
)
CLASSES = bytes.fromhex(
    "0a0365726d1a01612a290a0163120542595445531a0201022a19420c302e37353a313a746f7869634209302e32353a303a6f6b"
)


def with_binary(*tensors: tuple[str, str, list[int], bytes], **body: Any) -> bytes:
    """Return a response of the binary tensor data extension, as in the example of Triton's and KServe's
    pages.
    """
    outputs = [
        {"name": name, "datatype": kind, "shape": shape, "parameters": {"binary_data_size": len(data)}}
        for name, kind, shape, data in tensors
    ]
    head = json.dumps({**body, "outputs": outputs}).encode()
    return head + b"".join(data for _, _, _, data in tensors)


LABELS = b"\x05\x00\x00\x00toxic\x02\x00\x00\x00ok"
NUMBERS = np.array(TWO)


@pytest.mark.parametrize(
    ("tensors", "expected"),
    [
        ([("p", "FP32", [2, 2], NUMBERS.astype("<f4").tobytes())], TWO),
        ([("p", "FP64", [2, 2], NUMBERS.tobytes())], TWO),
        ([("p", "FP16", [2, 2], NUMBERS.astype("<f2").tobytes())], TWO),
        ([("p", "FP32", [2, 1], NUMBERS[:, 1].astype("<f4").tobytes())], [0.75, 0.5]),
        (
            [
                ("label", "INT64", [2], np.array([1, 0]).tobytes()),
                ("text", "BYTES", [2], LABELS),
                ("odd", "BF16", [2], b"\x00{\xff}"),
                ("p", "FP64", [2, 2], NUMBERS.tobytes()),
            ],
            TWO,
        ),
    ],
)
def test_tensors_behind_the_json_are_read(tensors: Any, expected: Any) -> None:
    body = read_body(with_binary(*tensors, model_name="erm", id="8231"))
    assert (body["model_name"], row_values(body, "$")) == ("erm", expected)


@pytest.mark.parametrize("data", [TYPED, RAW])
def test_protobuf_of_the_official_client_is_read(data: bytes) -> None:
    body = read_body(data)
    assert (body["model_name"], body["model_version"], body["id"]) == ("erm", "3", "8231")
    assert [each["name"] for each in body["outputs"]] == ["label", "probabilities"]
    assert row_values(body, "$") == TWO


def test_texts_of_a_bytes_tensor_are_read_of_both() -> None:
    assert read_body(RAW)["outputs"][0]["data"] == ["toxic", "ok"]
    assert read_body(with_binary(("t", "BYTES", [2], LABELS)))["outputs"][0]["data"] == ["toxic", "ok"]


def test_a_name_of_123_letters_begins_like_json_and_is_protobuf_all_the_same() -> None:
    data = b"\x0a\x7b" + b"m" * 123 + TYPED[5:]
    assert data.lstrip().startswith(b"{")
    assert read_body(data)["model_name"] == "m" * 123


@pytest.mark.parametrize(
    ("data", "shape", "expected"),
    [
        (["0.75:1:toxic", "0.25:0:ok"], [1, 2], [{"toxic": 0.75, "ok": 0.25}]),
        (["0.75:1:toxic", "0.25:0:ok"], [2], [{"toxic": 0.75, "ok": 0.25}]),
        (["0.75:1", "0.25:0", "0.5:0", "0.5:1"], [2, 2], [[0.25, 0.75], [0.5, 0.5]]),
    ],
)
def test_tritons_classification_extension_gives_scores_by_class_or_by_index(
    data: list[str], shape: list[int], expected: Any
) -> None:
    """The form `value:index:label` is that of Triton's page on the extension."""
    scores = row_values({"outputs": [output(data, shape, "BYTES", "classes")]}, "$")
    assert scores == expected
    assert row_values(read_body(CLASSES), "$") == [{"toxic": 0.75, "ok": 0.25}]


def test_texts_that_are_no_classification_are_no_scores() -> None:
    scores = row_values({"outputs": [output(["toxic", "ok"], [2], "BYTES", "t")]}, "$")
    assert scores[0] is RejectReason.NO_SCORES
    odd = row_values({"outputs": [output(["1.2.3:0:ok"], [1, 1], "BYTES", "t")]}, "$")
    assert odd == [[]]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\x00\x01", "is not a protobuf message"),
        (TYPED[:-1], "is incomplete"),
        (RAW[:-40], "is not a protobuf message, or is incomplete"),
        (b"", "has no outputs"),
        (b"\x0a\x03erm", "is not a ModelInferResponse: it has no outputs"),
        (
            with_binary(("p", "FP64", [1, 2], bytes(16)))[:-1],
            "has 15 bytes after its JSON, where binary_data",
        ),
        (
            with_binary(("p", "FP32", [1, 2], bytes(7))),
            "has 7 bytes of FP32, which is not a whole number of values",
        ),
        (with_binary(("t", "BYTES", [1], b"\x09\x00\x00\x00abc")), "has a BYTES tensor that is cut off"),
        (b'{"outputs": [] ', "is not JSON: Expecting"),
        (b'{"a": 1} and more', "has 9 bytes after its JSON, where binary_data_size says 0"),
    ],
)
def test_what_is_no_response_is_said(data: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_body(data)


def message(number: int, content: bytes) -> bytes:
    """Return a field of protobuf that holds bytes."""
    size, length = len(content), bytearray()
    while size >= 0x80:
        length.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes([number << 3 | 2, *length, size]) + content


@pytest.mark.slow
@pytest.mark.parametrize(
    "nested",
    [
        lambda fields: b"\x0a\x00" * fields,
        lambda fields: message(5, b"\x18\x01" * fields),
        lambda fields: message(5, message(3, b"\x01" * fields)),
        lambda fields: message(5, message(5, b"\x42\x00" * fields)),
        lambda fields: message(5, b"") * fields,
    ],
    ids=["names", "shapes", "packed shapes", "texts", "outputs"],
)
def test_a_message_of_too_many_fields_is_left_soon(nested: Callable[[int], bytes]) -> None:
    """Python needs a microsecond for a field, so that a message of megabytes would take seconds."""
    with pytest.raises(ValueError, match="has more than 100,000 fields"):
        read_body(nested(MAX_FIELDS + 1))


def test_text_is_no_message_from_its_first_byte_on() -> None:
    with pytest.raises(ValueError, match=r"is not a protobuf message$"):
        infer_response(b"x y z ")


def test_a_response_of_tens_of_thousands_of_rows_is_read() -> None:
    texts = [b"%05d" % number for number in range(50_000)]
    contents = b"".join(message(8, text) for text in texts)
    body = message(1, b"erm") + message(5, message(2, b"BYTES") + message(5, contents))
    assert read_body(body)["outputs"][0]["data"] == [text.decode() for text in texts]


@examples(300)
@given(
    st.binary(max_size=60) | st.builds(lambda n, b: TYPED[:n] + b, st.integers(0, len(TYPED)), st.binary())
)
def test_no_bytes_raise_anything_else(data: bytes) -> None:
    try:
        body = read_body(data)
    except ValueError:
        return
    assert isinstance(body, dict)
    row_values(body, "$")


@pytest.mark.parametrize("data", [TYPED, RAW, with_binary(("p", "FP64", [2, 2], NUMBERS.tobytes()))])
def test_an_event_holds_them_in_base64(data: bytes) -> None:
    event = {key: value for key, value in EVENT.items() if key != "data"}
    chunk = decoded({**event, "data_base64": base64.b64encode(data).decode()})
    assert chunk.rejects == ()
    assert chunk.batches[0].scores.tolist() == TWO
    assert chunk.batches[0].models == ("erm",)


# ── Seldon ──

# Of Seldon Core's documentation, "Payload Logging": the headers and the body of a logged response.
SELDON: dict[str, Any] = {
    "specversion": "1.0",
    "id": "68345c32-d144-4e21-a840-55e7e809c002",
    "requestid": "33fb419e-8d6b-44e0-a084-8bd4bd4dbf7b",
    "source": "http://:8000/",
    "type": SELDON_RESPONSE,
    "time": "2020-11-06T09:35:09.180317759Z",
    "inferenceservicename": "model-logs",
    "modelid": "classifier",
    "endpoint": "logging",
    "namespace": "seldon",
    "data": {"data": {"names": ["proba"], "ndarray": [[0.43782349911420193]]}, "meta": {}},
}


def test_a_response_of_seldon_is_joined_by_its_request_and_named_by_its_model() -> None:
    (batch,) = decoded(SELDON).batches
    assert batch.scores[0, 1] == 0.43782349911420193
    assert batch.models == ("classifier",)
    label = {"id": "33fb419e-8d6b-44e0-a084-8bd4bd4dbf7b:0", "label": "ok"}
    chunk = decoded(SELDON, {**SELDON, "type": "io.seldon.serving.inference.request"}, label)
    assert chunk.labels[0].key[0] == batch.key[0]
    assert (chunk.answers, chunk.rejects) == (1, ())


@pytest.mark.parametrize(
    "data",
    [
        {"names": ["t:0", "t:1"], "ndarray": TWO},
        {"names": ["t:0", "t:1"], "tensor": {"shape": [2, 2], "values": [0.25, 0.75, 0.5, 0.5]}},
    ],
)
def test_both_forms_of_seldons_protocol_are_read(data: dict[str, Any]) -> None:
    assert decoded({**SELDON, "data": {"data": data, "meta": {}}}).batches[0].scores.tolist() == TWO
    body = {"model_name": "erm", "outputs": [output(TWO)]}  # with MLServer it is the Open Inference Protocol
    assert decoded({**SELDON, "data": body}).batches[0].scores.tolist() == TWO


def test_what_seldon_cannot_have_meant_as_scores_is_said() -> None:
    chunk = decoded({**SELDON, "data": {"strData": "toxic", "meta": {}}})
    assert "with ndarray or tensor (Seldon), got only strData, meta" in chunk.rejects[0].message
    classes = decoded({**SELDON, "data": {"data": {"ndarray": [1, 0]}}})
    assert "$.data.data.ndarray: expected probabilities, got whole numbers only" in classes.rejects[0].message


# ── without an event ──


def test_a_response_without_an_event_is_read_by_its_own_id() -> None:
    body = {"model_name": "erm", "model_version": "3", "id": ID, "outputs": [output(TWO)]}
    bare, event = decoded(body), decoded({**EVENT, "data": {"outputs": [output(TWO)]}})
    assert bare.batches[0].key.tolist() == event.batches[0].key.tolist()
    assert (bare.batches[0].models, bare.batches[0].versions) == (("erm",), ("3",))
    nameless = decoded({"predictions": TWO}, model="mine")
    assert nameless.batches[0].models == ("mine",)
    assert len(set(nameless.batches[0].key.tolist())) == 1  # none


@pytest.mark.parametrize("data", [TYPED, RAW, with_binary(("p", "FP32", [2, 2], bytes(16)), id="a")])
def test_a_bare_message_in_bytes_becomes_json_on_one_line(data: bytes) -> None:
    line = KserveWire(FieldMapping(format="kserve")).convert_message(data, [])
    assert json.loads(line)["outputs"][-1]["data"]
    assert b"\n" not in line


@pytest.mark.parametrize("data", [b"", b"\xff\x00{", b'{"id": 1}\n{"id": 2}', b"[1]", RESPONSE.encode()])
def test_all_else_is_left_as_it_is(data: bytes) -> None:
    assert KserveWire(FieldMapping(format="kserve")).convert_message(data, []) == data
