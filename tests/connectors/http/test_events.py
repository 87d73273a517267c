"""CloudEvents over real sockets: in HTTP binary mode, as KServe's logger posts, and in structured JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from connectors.formats.decode.decoder import Decoder
from connectors.formats.wires.choice import wire_of
from monitor.base.errors import ConfigError
from monitor.base.records import Chunk, TaskLayout, id_keys
from monitor.base.source import RawBlock
from monitor.config.file import config_from
from monitor.config.root import HttpSourceConfig as HttpSettings
from tests.connectors.formats.test_tensors import RAW, with_binary
from tests.posting import SPAM, Posted, posting
from tests.services.process import wait_until

KIND = "org.kubeflow.serving.inference."
HEAD = {
    "ce_specversion": "1.0",
    "ce_id": "2d30169c",
    "ce_source": "http://localhost:9081/",
    "ce_type": f"{KIND}response",
    "ce_time": "2026-07-01T12:00:00.5Z",
    "ce_inferenceservicename": "erm%20%C3%BC",
    "ce_namespace": "default",
    "ce_endpoint": "default",
}
EVENT = {
    "specversion": "1.0",
    "id": "e",
    "type": f"{KIND}response",
    "inferenceservicename": "erm",
    "data": {"predictions": [[0.25, 0.75]]},
}
BODY = b'{\n "predictions": [[0.25, 0.75],\n [0.5, 0.5]]\n}'


@pytest.fixture
def posted(tmp_path: Path) -> Iterator[Posted]:
    with posting(tmp_path / "spool", mapping={"format": "kserve", "constants": {"task": "spam"}}) as made:
        yield made


def handed_out(posted: Posted) -> Chunk:
    block = b"".join(line + b"\n" for line in posted.lines())
    return Decoder([SPAM], "http", wire=wire_of(posted.settings)).decode([RawBlock(block, "spool", 0)])


@pytest.mark.parametrize("type_", ["application/json", "application/x-www-form-urlencoded", ""])
def test_a_response_in_binary_mode_is_kept_row_by_row(posted: Posted, type_: str) -> None:
    answer = posted.post(BODY, **HEAD, content_type=type_)
    assert (answer.status_code, answer.json()) == (202, {"accepted": 2, "rejected": 0})
    (batch,) = handed_out(posted).batches
    assert batch.scores.tolist() == [[0.25, 0.75], [0.5, 0.5]]
    assert batch.key.tolist() == id_keys(["2d30169c:0", "2d30169c:1"]).tolist()
    assert batch.models == ("erm ü",)
    assert batch.time.tolist() == [1782907200.5] * 2


@pytest.mark.parametrize("tensors", [RAW, with_binary(("p", "FP64", [2, 2], RAW[-32:]))])
def test_bytes_in_binary_mode_are_read_like_json(posted: Posted, tensors: bytes) -> None:
    answer = posted.post(tensors, **HEAD, content_type="application/octet-stream")
    assert (answer.status_code, answer.json()) == (202, {"accepted": 2, "rejected": 0})
    (batch,) = handed_out(posted).batches
    assert batch.scores.tolist() == [[0.25, 0.75], [0.5, 0.5]]
    assert batch.key.tolist() == id_keys(["2d30169c:0", "2d30169c:1"]).tolist()


def test_a_response_of_triton_is_taken_as_it_was_sent(posted: Posted) -> None:
    body = with_binary(("p", "FP64", [2, 2], RAW[-32:]), model_name="erm", id="a")
    head = {"inference_header_content_length": str(len(body) - 32)}
    answer = posted.post(body, **head, content_type="application/octet-stream")
    assert (answer.status_code, answer.json()["accepted"]) == (202, 2)
    (batch,) = handed_out(posted).batches
    assert (batch.models, batch.key.tolist()) == (("erm",), id_keys(["a:0", "a:1"]).tolist())
    assert posted.post(body, content_type="application/octet-stream").status_code == 415


def test_paths_of_a_mapping_lead_into_an_event_of_either_mode(tmp_path: Path) -> None:
    paths = {"id": "id", "scores": "data.probs", "model": "data.net"}
    with posting(
        tmp_path / "mapped", mapping={"format": "cloudevents", **paths, "constants": {"task": "spam"}}
    ) as mapped:
        data = {"probs": [0.25, 0.75], "net": "erm"}
        event = {"specversion": "1.0", "id": "b", "type": "com.example.scored", "data": data}
        binary = {"ce_specversion": "1.0", "ce_id": "a", "ce_type": "com.example.scored"}
        answers = [
            mapped.post(data, **binary),
            mapped.post(event, content_type="application/cloudevents+json"),
        ]
        assert [(each.status_code, each.json()["accepted"]) for each in answers] == [(202, 1), (202, 1)]
        assert handed_out(mapped).batches[0].key.tolist() == id_keys(["a", "b"]).tolist()


@pytest.mark.parametrize("body", [b'{"instances": [[1.0]]}', b"no JSON", b""])
def test_a_request_is_ignored_and_counted_in_the_answer(posted: Posted, body: bytes) -> None:
    answer = posted.post(body, **{**HEAD, "ce_type": f"{KIND}request"})
    assert (answer.status_code, answer.json()) == (202, {"accepted": 0, "rejected": 0, "ignored": 1})
    assert posted.lines() == []
    assert posted.source.refusals.ignored == 1


@pytest.mark.parametrize(
    ("content", "type_", "accepted", "ignored"),
    [
        (EVENT, "application/cloudevents+json", 1, None),
        (
            [EVENT, {**EVENT, "type": f"{KIND}request"}],
            "application/cloudevents-batch+json; charset=utf-8",
            1,
            1,
        ),
        ([EVENT, {**EVENT, "id": "f"}], "application/json", 2, None),
    ],
)
def test_structured_events_are_taken(
    posted: Posted, content: Any, type_: str, accepted: int, ignored: int | None
) -> None:
    answer = posted.post(json.dumps(content, indent=1).encode(), content_type=type_)
    assert (answer.status_code, answer.json()["accepted"], answer.json().get("ignored")) == (
        *(202, accepted),
        ignored,
    )
    assert handed_out(posted).answers == accepted
    assert posted.source.refusals.ignored == (ignored or 0)


def test_labels_join_by_the_id_of_a_row(posted: Posted) -> None:
    posted.post(BODY, **HEAD)
    answer = posted.post({"id": "2d30169c:1", "task": "spam", "label": "yes"}, "/v1/labels")
    assert (answer.status_code, answer.json()["accepted"]) == (202, 1)
    chunk = handed_out(posted)
    assert chunk.labels[0].key[0] == chunk.batches[0].key[1]


@pytest.mark.parametrize(
    ("body", "path", "message"),
    [
        (
            b"\x00\x01",
            "/v1/predictions",
            "None of the rows can be used",
        ),
        (BODY, "/v1/labels", "2 of 1 rows are predictions; post those to /v1/predictions"),
        (b'{"instances": []}', "/v1/predictions", "None of the rows can be used"),
    ],
)
def test_what_cannot_be_used_is_refused_with_a_sentence(
    posted: Posted, body: bytes, path: str, message: str
) -> None:
    answer = posted.post(body, path, **HEAD)
    assert answer.status_code == 400
    assert message in answer.json()["error"]


def test_a_structured_event_needs_its_content_type_and_no_page_of_another_site_sends_a_binary_one(
    posted: Posted,
) -> None:
    answer = posted.post(json.dumps(EVENT).encode(), content_type="text/plain")
    assert (answer.status_code, answer.json()["error"]) == (
        415,
        "Content-Type: got 'text/plain', expected application/json or application/x-ndjson, of events also "
        "application/cloudevents+json; send this header with each post",
    )
    assert posted.post(BODY, **HEAD, origin="https://evil.example").status_code == 403


def test_a_source_with_paths_takes_no_events_and_one_without_a_mapping_does(tmp_path: Path) -> None:
    with posting(tmp_path / "paths", mapping={"id": "id", "scores": "p"}) as paths:
        assert paths.post(EVENT, content_type="application/cloudevents+json").status_code == 415
        assert paths.post(BODY, **HEAD).status_code == 400
    with posting(tmp_path / "plain", layouts=[SPAM]) as plain:
        answers = [
            plain.post(EVENT, content_type="application/cloudevents+json"),
            plain.post(BODY, **HEAD, content_type="application/x-www-form-urlencoded"),
            plain.post({**EVENT, "type": f"{KIND}request"}, content_type="application/cloudevents+json"),
        ]
        assert [(each.status_code, each.json()) for each in answers] == [
            (202, {"accepted": 1, "rejected": 0}),
            (202, {"accepted": 2, "rejected": 0}),
            (202, {"accepted": 0, "rejected": 0, "ignored": 1}),
        ]
        assert len(plain.lines()) == 2


OBSERVED = {
    "scorer": {"id": "uuid", "model": "net", "scores": "p", "label": "truth"},
    "rows": {"scores": "p[0]", "constants": {"model": "erm"}},
    "seldon": {"format": "kserve", "constants": {"model": "irm"}},
}


@pytest.fixture
def observing(tmp_path: Path) -> Iterator[Posted]:
    layout = TaskLayout("spam", ("no", "yes"), models=("erm",))
    with posting(tmp_path / "observing", layouts=[layout], observe=OBSERVED) as made:
        yield made


def test_a_post_to_a_source_is_read_by_its_mapping_beside_all_others(observing: Posted) -> None:
    theirs = {"uuid": "a", "net": "m", "p": [0.25, 0.75]}
    seldon = {"data": {"names": ["t:0", "t:1"], "ndarray": [[0.25, 0.75]]}, "meta": {}}
    answers = [
        observing.post([theirs, {"uuid": "a", "truth": "yes"}], "/v1/observe/scorer"),
        observing.post(seldon, "/v1/observe/seldon"),
        observing.post(seldon, "/v1/observe/kserve"),
        observing.post({"id": "b", "model": "m", "scores": [0.25, 0.75]}),
        observing.post({"predictions": [[0.5, 0.5]], "id": "c"}),
        observing.post(BODY, "/v1/observe/kserve", **HEAD, content_type="application/x-www-form-urlencoded"),
        observing.post({**theirs, "p": [0.5, 0.75]}, "/v1/observe/scorer"),
    ]
    assert [(each.status_code, each.json()["accepted"]) for each in answers] == [
        *((202, 2), (202, 1), (202, 1), (202, 1), (202, 1), (202, 2), (400, 0))
    ]
    assert "the mapping reads scores at p" in answers[-1].json()["errors"][0]["message"]
    layout = TaskLayout("spam", ("no", "yes"), models=("erm",))
    # Rejected rows rest on the disk after their answer.
    wait_until(lambda: observing.source.lag == 8, "all rows are kept")
    blocks = [RawBlock(line + b"\n", "spool", 0) for line in observing.lines()]
    whole = RawBlock(b"".join(block.data for block in blocks), "spool", 0)
    for raws in ([whole], blocks):  # however the spool is cut
        chunk = Decoder([layout], "http", wire=wire_of(observing.settings)).decode(raws)
        (batch,) = chunk.batches
        assert [batch.models[i] for i in batch.model] == ["m", "irm", "erm", "m", "erm", "erm ü", "erm ü"]
        ids = ["a", None, None, "b", "c:0", "2d30169c:0", "2d30169c:1"]
        assert batch.key.tolist() == [0 if each is None else id_keys([each])[0] for each in ids]
        assert (len(chunk.labels[0]), chunk.answers, len(chunk.rejects)) == (1, 8, 1)


def test_rows_that_a_path_leaves_are_counted_of_what_is_observed_too(observing: Posted) -> None:
    answer = observing.post({"p": [[0.25, 0.75], [0.5, 0.5]]}, "/v1/observe/rows")
    assert answer.json() == {"accepted": 1, "rejected": 0}
    block = RawBlock(b"".join(line + b"\n" for line in observing.lines()), "spool", 0)
    chunk = Decoder([SPAM], "http", wire=wire_of(observing.settings)).decode([block])
    assert chunk.rows_left == {"p[0]": 1}


def test_what_is_no_json_is_rejected_as_it_came(observing: Posted) -> None:
    answer = observing.post(b"\xff{no JSON", "/v1/observe/scorer")
    assert (answer.status_code, answer.json()["rejected"]) == (400, 1)


def test_only_what_is_configured_or_a_format_is_observed(observing: Posted) -> None:
    answer = observing.post({}, "/v1/observe/scorr")
    assert (answer.status_code, answer.json()["error"]) == (
        404,
        'No source "scorr" is observed here; known are kserve, sagemaker, inference_table, debezium, scorer, '
        "rows, seldon; did you mean scorer?",
    )
    assert observing.client.get("/v1/observe/scorer").status_code == 405
    answer = observing.post(EVENT, "/v1/observe/scorer", content_type="application/cloudevents+json")
    assert answer.status_code == 415


def test_a_source_that_was_observed_before_is_rejected_and_counted() -> None:
    settings = HttpSettings(kind="http", listen="127.0.0.1:0", spool={"path": "x"})
    line = b'{"$observe":"gone","record":{"uuid": "a"}}\n'
    chunk = Decoder([SPAM], "http", wire=wire_of(settings)).decode([RawBlock(line, "spool", 0)])
    assert chunk.answers == 1
    assert chunk.rejects[0].message == (
        '$.$observe: no source "gone" is known any more; send the record again'
    )


@pytest.mark.parametrize(
    ("observe", "message"),
    [
        ({"a/b": {"id": "id"}}, "observe: expected names of at most 100 letters, digits, dots"),
        ({"a": {"id": "$key"}}, "observe.a.id: expected a path into the records, got $key: only messages of"),
    ],
)
def test_what_cannot_be_observed_is_refused_by_its_key(observe: Any, message: str) -> None:
    source = {"kind": "http", "listen": "127.0.0.1:0", "spool": {"path": "x"}, "observe": observe}
    with pytest.raises(ConfigError) as caught:
        config_from({"tasks": {"t": {"classes": ["a", "b"]}}, "sources": [source]})
    assert message in str(caught.value)
