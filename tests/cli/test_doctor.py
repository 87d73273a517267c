"""`blindsight doctor` shows the records of the sources, proposes a mapping, and refuses wrong options."""

from __future__ import annotations

import gzip
import json
import re
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pytest
import yaml

from connectors.formats.messages.proposal import propose
from monitor.base.errors import ConfigError
from monitor.base.records import TaskLayout
from monitor.cli.doctor import RECORDS
from tests.connectors.formats.test_tensors import with_binary
from tests.daemon import command_here, diagnosed, write_configuration
from tests.services.kafka_broker import KafkaBroker
from tests.services.redis_server import RedisServer

LAYOUT = TaskLayout("toxicity", ("ok", "toxic"))
Doctor = Callable[..., tuple[str, bool]]


@pytest.fixture
def doctor(tmp_path: Path) -> Doctor:
    """Examine records in a file, under a source's further settings."""

    def examined(records: list[Any], name: str = "in.ndjson", **source: Any) -> tuple[str, bool]:
        lines = [each if isinstance(each, str) else json.dumps(each) for each in records]
        (tmp_path / name).write_text("\n".join(lines) + "\n")
        sources = [{"kind": "file", "path": name, **source}]
        tasks = {"toxicity": {"classes": ["ok", "toxic"]}}
        path = write_configuration(tmp_path, {"tasks": tasks, "sources": sources, "store": {"path": "state"}})
        return diagnosed(str(path))

    return examined


def ours(n: int, seed: int = 0) -> list[dict[str, Any]]:
    toxic = np.random.default_rng(seed).uniform(size=n).round(4).tolist()
    return [
        {"id": f"r{i}", "time": 1e9 + i, "model": "erm", "scores": [round(1 - p, 4), p]}
        for i, p in enumerate(toxic)
    ]


def theirs(n: int) -> list[dict[str, Any]]:
    return [
        {
            "event": {"requestId": row["id"], "ts": 1_763_632_800_000 + i},
            "deployment": "erm",
            "out": {"probabilities": row["scores"]},
        }
        for i, row in enumerate(ours(n))
    ]


def test_records_that_can_be_read_are_counted_and_nothing_is_stored(doctor: Doctor, tmp_path: Path) -> None:
    text, well = doctor([*ours(20), {"id": "r3", "label": "ok"}])
    assert well
    assert text == (
        "in.ndjson (file):\n"
        "  20 answers, 1 labels, 0 records that cannot be used\n"
        "  task toxicity: models erm (20)\n"
        "task toxicity: 1 of 1 labels finds one of 20 answers looked at"
    )
    assert not (tmp_path / "state").exists()


def test_a_hundred_records_are_looked_at_and_no_more(doctor: Doctor) -> None:
    text, well = doctor([*ours(RECORDS), "not JSON"])
    assert well
    assert f"{RECORDS} answers" in text


def test_without_id_and_time_it_says_what_that_means(doctor: Doctor) -> None:
    text, well = doctor([{"model": "erm", "scores": 0.5}] * 3)
    assert well
    assert "some answers have no time: they count as of their arrival" in text
    assert "some answers have no id: no label can be joined to those" in text


def test_a_feature_that_no_answer_has_is_named(tmp_path: Path) -> None:
    answers = [record | {"features": {"carrier": "DL", "hr": 3.0}} for record in ours(20)]
    answers[0]["features"]["distance"] = 200.0  # one answer that has a feature suffices
    (tmp_path / "in.ndjson").write_text("".join(json.dumps(record) + "\n" for record in answers))
    features = {"hour": "number", "carrier": "text", "distance": "number"}
    task = {"classes": ["ok", "toxic"], "features": features}
    source: dict[str, Any] = {"kind": "file", "path": "in.ndjson"}
    paths = {"hour": "features.hr", "carrier": "features.carrier", "distance": "features.distance"}
    named = {name: name for name in ("id", "time", "model", "scores")} | {"features": paths}
    for mapping, well in (({}, False), ({"mapping": named}, True)):
        sources = [source | mapping]
        path = write_configuration(tmp_path, {"tasks": {"toxicity": task}, "sources": sources})
        text, fine = diagnosed(str(path))
        assert fine == well, text
        assert ("task toxicity: no answer has the feature hour, without which" in text) != well
        assert text.count("no answer has the feature") == (not well), text


def test_the_mapping_that_it_proposes_makes_the_same_records_readable(doctor: Doctor) -> None:
    text, well = doctor(theirs(30))
    assert not well
    assert "30 × no_scores, the first at" in text
    assert "with this mapping 30 can be used instead of 0:" in text
    proposed = yaml.safe_load(text.partition("instead of 0:\n")[2])
    assert proposed == {
        "mapping": {
            "id": "event.requestId",
            "time": "event.ts",
            "time_unit": "milliseconds",
            "model": "deployment",
            "scores": "out.probabilities",
        }
    }
    text, well = doctor(theirs(30), **proposed)
    assert (well, "30 answers" in text) == (True, True)


def test_the_columns_of_a_table_are_mapped_too(doctor: Doctor) -> None:
    rows = [f"u{i},erm,0.25,0.75" for i in range(8)]
    text, _ = doctor(["uuid,model,p_ok,p_toxic", *rows], name="in.csv")
    numbered, _ = doctor(["uuid,model,p_ok,p_toxic", *(f"{i},erm,0.4,0.6" for i in range(8))], name="n.csv")
    assert "id: uuid" in numbered
    assert "with this mapping 8 can be used instead of 0" in text
    assert "class_scores:\n        ok: p_ok\n        toxic: p_toxic" in text
    assert "id: uuid" in text
    text, well = doctor(
        ["uuid,model,p_ok,p_toxic", *rows],
        name="in.csv",
        mapping={"id": "uuid", "model": "model", "class_scores": {"ok": "p_ok", "toxic": "p_toxic"}},
    )
    assert (well, "8 answers" in text) == (True, True)


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        ({"uuid": "a", "score": 0.7}, {"id": "uuid", "scores": "score"}),
        ({"p": {"ok": 0.25, "toxic": 0.75}}, {"scores": "p"}),
        ({"probs": [0.25, 0.75], "target": "ok"}, {"scores": "probs", "label": "target"}),
        (
            {"a": {"p_ok": 0.25, "p_toxic": 0.75}},
            {"class_scores": {"ok": "a.p_ok", "toxic": "a.p_toxic"}},
        ),
        ({"batch": [{"probs": [0.25, 0.75]}]}, {"scores": "batch[0].probs"}),
        ({"ts": "2026-01-01T10:00:00", "proba": 0.5}, {"time": "ts", "time_zone": "UTC", "scores": "proba"}),
        ({"my probs": {"p.x": [0.25, 0.75]}}, {"scores": '["my probs"]["p.x"]'}),
        ({"request_id": "r", "truth": "ok"}, {"id": "request_id", "label": "truth"}),
    ],
)
def test_what_is_proposed_for_a_record(record: Any, expected: Any) -> None:
    proposal = propose([record], LAYOUT, {})
    assert proposal is not None
    assert proposal.model_dump(exclude_defaults=True) == expected


@pytest.mark.parametrize("record", [{}, {"a": 1}, {"x": [0.2, 0.3]}, {"x": [0.5, 0.5, 0.0]}, {"age": 0.5}])
def test_nothing_is_proposed_where_nothing_looks_like_scores_or_a_label(record: Any) -> None:
    assert propose([record], LAYOUT, {}) is None


@pytest.mark.parametrize(
    ("of", "word"),
    [
        (lambda p: [np.log(1 - p) + 1, np.log(p) + 1], "got -"),
        (lambda p: [np.log(1 - p) + 1, np.log(p) + 1], "they look like logits; send the softmax of them"),
        (lambda p: [np.log(1 - p), np.log(p)], "they look like logarithms of probabilities; send exp() of"),
        (lambda p: [100 * (1 - p), 100 * p], "they look like percent; divide by 100 where they are sent"),
    ],
)
@pytest.mark.parametrize("name", ["scores", "out"])
def test_scores_that_are_no_probabilities_are_said_to_be_so(
    doctor: Doctor, of: Callable[[float], list[float]], word: str, name: str
) -> None:
    chances = np.random.default_rng(1).uniform(0.05, 0.95, size=40)
    rows = [{"model": "erm", name: [float(x) for x in of(p)]} for p in chances]
    mapping = {} if name == "scores" else {"mapping": {"model": "model", "scores": "out"}}
    text, well = doctor(rows, **mapping)
    assert not well
    assert f"{word}" in text
    assert "with this mapping" not in text


@pytest.mark.parametrize(
    ("scale", "word"), [(1.0, "look like logits"), (100.0, "look like percent"), (0.01, None)]
)
def test_numbers_under_another_name_that_are_no_probabilities_are_named_by_their_path(
    doctor: Doctor, scale: float, word: str | None
) -> None:
    p = np.random.default_rng(3).uniform(0.2, 0.8, size=20)
    pairs = (
        np.column_stack((np.log(1 - p), np.log(p))) + 1 if scale == 1 else np.column_stack((1 - p, p)) * scale
    )
    text, well = doctor([{"model": "erm", "net": {"output": row}, "box": [3, 4]} for row in pairs.tolist()])
    assert not well
    if word is None:  # from 0 to 1, though no distribution: nothing is known of them
        assert "net.output" not in text
    else:
        assert f"{word}" in text.partition("net.output: expected probabilities from 0 to 1, got ")[2]
    assert "box" not in text


def labelled(n: int, turned: bool) -> list[dict[str, Any]]:
    """Return records of a calibrated model that is right in 97 %."""
    rng = np.random.default_rng(5)
    rows = ours(n)
    for row in rows:
        toxic = float(rng.beta(30, 1) if rng.random() < 0.5 else rng.beta(1, 30))
        row["label"] = "toxic" if rng.random() < toxic else "ok"
        row["scores"] = [toxic, 1 - toxic] if turned else [1 - toxic, toxic]
    return rows


def test_classes_the_wrong_way_round_are_refused_by_labels_in_the_records(doctor: Doctor) -> None:
    assert doctor(labelled(100, turned=False))[1]
    message = r"tasks.toxicity.classes: \[ok, toxic\] seems to be in reverse order: of the 100 "
    message += "labelled answers of erm in .*in.ndjson, the class"
    with pytest.raises(ConfigError, match=message):
        doctor(labelled(100, turned=True))


def test_labels_of_their_own_tell_the_order_too(doctor: Doctor) -> None:
    rows = labelled(50, turned=True)
    labels = [{"id": row["id"], "label": row.pop("label")} for row in rows]
    with pytest.raises(ConfigError, match="seems to be in reverse order"):
        doctor([*rows, *labels])


def test_exit_codes_and_what_is_not_looked_at(tmp_path: Path) -> None:
    sources: list[dict[str, Any]] = [
        {"kind": "stdin"},
        {"kind": "file", "path": "later.ndjson", "follow": True},
        {"kind": "http", "listen": "127.0.0.1:0", "spool": {"path": "spool"}},
    ]
    tasks = {"toxicity": {"classes": ["ok", "toxic"]}}
    path = write_configuration(tmp_path, {"tasks": tasks, "sources": sources})
    code, text = outcome("doctor", path)
    assert code == 0
    assert "stdin (stdin):\n  not looked at: what is read of a pipe is gone" in text
    assert "The configuration is valid." in text, "check follows"
    assert "later.ndjson (file):\n  not there yet; it is waited for" in text
    assert "http (http):\n  not looked at: it holds what is posted while the agent runs" in text
    missing = write_configuration(
        tmp_path, {"tasks": tasks, "sources": [{"kind": "file", "path": "no.ndjson"}]}
    )
    code, text = outcome("doctor", missing)
    assert (code, "There is no file" in text, "The configuration" in text) == (1, True, False)
    (tmp_path / "no.ndjson").write_text("".join(json.dumps(x) + "\n" for x in labelled(60, turned=True)))
    code, text = outcome("doctor", missing)
    assert (code, "reverse `classes`" in text) == (2, True)
    code, text = outcome("doctor", write_configuration(tmp_path, {"tasks": tasks}))
    assert (code, "sources: there are none to examine; configure one" in text) == (2, True)


def outcome(*arguments: Any) -> tuple[int, str]:
    done = command_here(*map(str, arguments))
    return done.returncode, done.stdout + done.stderr


def test_a_topic_is_looked_at_without_joining_the_group(
    kafka_broker: KafkaBroker, kafka_driver: str, tmp_path: Path
) -> None:
    kafka_broker.create_topic("events", 2)
    kafka_broker.produce("events", [json.dumps(row).encode() for row in theirs(300)], partitions=2)
    source = {"kind": "kafka", "brokers": [kafka_broker.address], "topics": ["events"], "group": "watch"}
    source["driver"] = kafka_driver
    tasks = {"toxicity": {"classes": ["ok", "toxic"]}}
    path = write_configuration(tmp_path, {"tasks": tasks, "sources": [source]})
    text, well = diagnosed(str(path))
    assert not well
    assert f"with this mapping {RECORDS} can be used instead of 0" in text
    assert kafka_broker.committed("watch", "events", 2) == {}


def test_a_stream_of_redis_is_looked_at_without_its_group(redis_server: RedisServer, tmp_path: Path) -> None:
    source = {"kind": "redis", "url": redis_server.url, "stream": "looked-at"}
    tasks = {"toxicity": {"classes": ["ok", "toxic"]}}
    path = write_configuration(tmp_path, {"tasks": tasks, "sources": [source]})
    with redis_server.client() as client:
        client.delete("looked-at")
        assert diagnosed(str(path)) == ("looked-at (redis):\n  nothing is there yet", True)
        for row in theirs(300):
            client.xadd("looked-at", {"value": json.dumps(row)})
        text, well = diagnosed(str(path))
        assert not well
        assert f"with this mapping {RECORDS} can be used instead of 0" in text
        assert client.xinfo_groups("looked-at") == []
        client.delete("looked-at")
        client.set("looked-at", "text")
        text, well = diagnosed(str(path))
        client.delete("looked-at")
    assert (well, "WRONGTYPE" in text, "; name the key of a stream" in text) == (False, True, True)


# Bodies of the Open Inference Protocol, as MLServer writes predict_proba of scikit-learn and Triton two
# outputs, and of protocol v1.
MLSERVER = {
    "model_name": "erm",
    "model_version": "v0.1.0",
    "id": "c9d1f6f4-6f8c-4a2a-9d0c-3e6f6f1f5a{:02d}",
    "parameters": {},
    "outputs": [
        {
            "name": "predict_proba",
            "shape": [2, 2],
            "datatype": "FP64",
            "parameters": {"content_type": "np"},
            "data": [0.12, 0.88, 0.75, 0.25],
        }
    ],
}
TRITON = {
    "id": "r{:02d}",
    "model_name": "erm",
    "model_version": "1",
    "outputs": [
        {"name": "label", "datatype": "INT64", "shape": [2], "data": [1, 0]},
        {"name": "probabilities", "datatype": "FP32", "shape": [2, 2], "data": [0.12, 0.88, 0.75, 0.25]},
    ],
}
V1 = {"predictions": [[0.12, 0.88], [0.75, 0.25]]}


def numbered(payload: dict[str, Any], n: int) -> list[dict[str, Any]]:
    return [payload | ({"id": payload["id"].format(i)} if "id" in payload else {}) for i in range(n)]


def mapping_in(text: str) -> dict[str, Any]:
    """Return the block that is proposed, as a person copies it."""
    begin = text.index("    mapping:\n")
    rest = text[begin:].splitlines()
    lines = [line for i, line in enumerate(rest) if all(each.startswith("    ") for each in rest[: i + 1])]
    proposal: dict[str, Any] = yaml.safe_load("\n".join(lines))
    return proposal


@pytest.mark.parametrize("payload", [MLSERVER, TRITON], ids=["mlserver", "triton"])
def test_several_rows_in_one_record_are_all_read_by_their_shape_and_by_the_format(
    doctor: Doctor, payload: dict[str, Any]
) -> None:
    for settings in ({}, {"mapping": {"format": "kserve"}}):
        text, well = doctor(numbered(payload, 8), **settings)
        assert (well, "16 answers, 0 labels, 0 records that cannot be used" in text) == (True, True)
        assert "mapping:" not in text
    text, well = doctor(numbered(payload, 8), mapping={"id": "id", "scores": "outputs[0].data"})
    assert not well
    assert mapping_in(text) == {"mapping": {"format": "kserve"}}
    assert "tried on 8 records: 16 answers, 16 with an id, 0 labels, 0 records that cannot be used" in text
    assert "with this mapping 16 can be used instead of 0:" in text


def test_a_placeholder_is_refused_until_it_is_filled_in(doctor: Doctor, tmp_path: Path) -> None:
    text, _ = doctor([V1] * 8)
    assert "tried on 8 records: 16 answers, 0 with an id" in text
    proposal = mapping_in(text)
    assert proposal == {"mapping": {"format": "kserve", "constants": {"model": "<name of the model>"}}}
    with pytest.raises(
        ConfigError, match=r"constants\.model: expected the model of every record, got the place"
    ):
        doctor([V1] * 8, **proposal)
    code, output = outcome("check", tmp_path / "config.yaml")
    assert (code, "'<name of the model>': write its name here" in output) == (2, True)
    proposal["mapping"]["constants"]["model"] = "erm"
    text, well = doctor([V1] * 8, **proposal)
    assert (well, "task toxicity: models erm (16)" in text) == (True, True)


def test_the_zone_of_times_without_one_is_not_guessed(doctor: Doctor) -> None:
    # As BentoML 1.4 writes its log of inference data.
    rows = [
        {
            "p_ok": 0.25,
            "p_toxic": 0.75,
            "timestamp": f"2026-07-01T12:00:0{i}.120000",
            "request_id": str(12345678901234567890 + i),
        }
        for i in range(8)
    ]
    proposal = mapping_in(doctor(rows)[0])
    proposal["mapping"]["constants"] = {"model": "erm"}
    with pytest.raises(
        ConfigError, match="time_zone: expected the name of a time zone such as Europe/Berlin"
    ):
        doctor(rows, **proposal)
    proposal["mapping"]["time_zone"] = "Europe/Berlin"
    assert doctor(rows, **proposal)[1]


def test_a_mapping_that_leaves_rows_is_said_to_and_another_proposed(doctor: Doctor) -> None:
    rows = [{**V1, "id": f"r{i}"} for i in range(8)]
    mapping = {"id": "id", "scores": "predictions[0]", "constants": {"model": "erm"}}
    text, well = doctor(rows, mapping=mapping)
    assert not well
    assert "8 answers, 0 labels, 0 records that cannot be used" in text
    assert "the mapping reads predictions[0] alone, and leaves 8 rows that stand beside it" in text
    assert "with this mapping 16 can be used instead of 8:" in text
    assert mapping_in(text)["mapping"]["format"] == "kserve"


def test_a_proposal_that_leaves_rows_is_not_good(doctor: Doctor) -> None:
    batch = [{"probs": [0.25, 0.75]}, {"probs": [0.5, 0.5]}]
    text, _ = doctor([{"uuid": f"r{i}", "batch": batch} for i in range(8)])
    assert (
        "not good yet, as it loses some: with this mapping 8 can be used instead of 0, but it reads " in text
    )
    assert (
        "reads batch[0].probs alone, and leaves 8 rows that stand beside it; write one row a record" in text
    )


class Two(Protocol):
    def __call__(self, answers: list[Any], labels: list[Any], /, mapping: Any = None) -> tuple[str, bool]: ...


@pytest.fixture
def two(tmp_path: Path) -> Two:
    """Examine answers in one file and labels in another."""

    def examined(answers: list[Any], labels: list[Any], mapping: Any = None) -> tuple[str, bool]:
        for name, rows in (("answers", answers), ("labels", labels)):
            (tmp_path / f"{name}.ndjson").write_text("".join(json.dumps(row) + "\n" for row in rows))
        sources = [{"kind": "file", "name": n, "path": f"{n}.ndjson"} for n in ("answers", "labels")]
        sources[0] |= {"mapping": mapping} if mapping else {}
        tasks = {"toxicity": {"classes": ["ok", "toxic"]}}
        path = write_configuration(tmp_path, {"tasks": tasks, "sources": sources, "store": {"path": "state"}})
        return diagnosed(str(path))

    return examined


def test_labels_get_no_constant_model_and_join(two: Two) -> None:
    labels = [{"request_id": f"r{i}", "truth": "toxic"} for i in range(20)]
    text, well = two(theirs(20), labels)
    assert not well
    of_labels = text[text.index("labels (file)") :]
    assert mapping_in(of_labels) == {"mapping": {"id": "request_id", "label": "truth"}}
    assert (
        "tried on 20 records: 0 answers, 0 with an id, 20 labels, 0 records that cannot be used; 20 of 20 "
        "labels find one of 20 answers looked at"
    ) in of_labels
    assert text.splitlines()[-1].startswith("task toxicity, with the mappings proposed: 20 of 20 labels find")
    assert "not good" not in text


@pytest.mark.parametrize("id_", ["r{:02d}", "r{:02d}:0"])
def test_answers_of_one_row_told_by_their_shape_join_by_either_id(two: Two, id_: str) -> None:
    answers = numbered(
        TRITON | {"outputs": [{**TRITON["outputs"][1], "shape": [1, 2], "data": [0.12, 0.88]}]}, 20
    )
    labels = [{"id": id_.format(i), "label": "toxic"} for i in range(20)]
    text, _ = two(answers, labels)
    assert "task toxicity: 20 of 20 labels find one of 20 answers" in text
    # Of the mappings for a source whose own reads none, the one that joins is taken.
    text, _ = two(answers, labels, mapping={"id": "uuid", "scores": "p"})
    assert "task toxicity, with the mappings proposed: 20 of 20 labels find one of 20 answers" in text


def test_a_proposal_by_which_no_label_joins_is_not_good(two: Two) -> None:
    text, _ = two(theirs(20), [{"id": f"order-{i}", "label": "ok"} for i in range(20)])
    assert (
        "not good yet, as it loses some: with this mapping 20 can be used instead of 0, but no label of task "
        "toxicity joins, as ids differ:"
    ) in text
    assert "0 of 20 labels find one of 20 answers looked at: answers of answers have " in text


def test_labels_of_requests_with_several_rows_are_said_to_name_no_row(two: Two) -> None:
    text, _ = two(numbered(TRITON, 20), [{"id": f"r{i:02d}", "label": "toxic"} for i in range(20)])
    assert (
        "0 of 20 labels find one of 40 answers looked at, 20 name a request of several rows: add a colon "
        "and the row's number"
    ) in text
    text, _ = two(numbered(TRITON, 20), [{"id": f"r{i:02d}:1", "label": "toxic"} for i in range(20)])
    assert text.splitlines()[-1] == "task toxicity: 20 of 20 labels find one of 40 answers looked at"
    assert "not good" not in text


def test_a_proposal_that_loses_labels_which_are_read_now_is_not_good(doctor: Doctor) -> None:
    labels = [{"id": f"r{i}", "label": "ok"} for i in range(5)]
    text, _ = doctor([*theirs(20), *labels])
    assert (
        "not good yet, as it loses some: with this mapping 20 can be used instead of 5, but 5 records that "
        "can be used now cannot any more (give them a source of their own; $.scores: expected a probability"
    ) in text


Sample = Callable[..., tuple[str, bool]]


@pytest.fixture
def sample(tmp_path: Path) -> Sample:
    """Examine a captured body, which may have lines of headers before it."""

    def examined(body: bytes, *headers: str, sources: Any = ()) -> tuple[str, bool]:
        head = "".join(f"{line}\r\n" for line in (*headers, "") if headers)
        (tmp_path / "body.txt").write_bytes(head.encode() + body)
        tasks = {"toxicity": {"classes": ["ok", "toxic"]}}
        path = write_configuration(tmp_path, {"tasks": tasks, "sources": list(sources)})
        return diagnosed(str(path), tmp_path / "body.txt")

    return examined


# By CloudEvents' HTTP binding, with the attributes that KServe's logger gives a response.
LOGGED = (
    "POST / HTTP/1.1",
    "Host: blindsight:9108",
    "User-Agent: Go-http-client/1.1",
    "Ce-Id: 9e2c2c7a-0d60-4d3a-9d17-8b3a8b7d6f01",
    "Ce-Inferenceservicename: erm",
    "Ce-Namespace: default",
    "Ce-Source: http://localhost:9081/",
    "Ce-Specversion: 1.0",
    "Ce-Time: 2026-07-01T12:00:00.123456789Z",
    "Ce-Type: org.kubeflow.serving.inference.response",
    "Content-Type: application/json",
)
KSERVE = {"mapping": {"format": "kserve"}}
NAMED = {"mapping": {"format": "kserve", "constants": {"model": "<name of the model>"}}}
TENSOR = np.array([[0.12, 0.88], [0.75, 0.25]], dtype="<f4").tobytes()
BINARY = with_binary(("probabilities", "FP32", [2, 2], TENSOR), model_name="erm", id="r1")


@pytest.mark.parametrize(
    ("headers", "body", "expected"),
    [
        ((), json.dumps(V1).encode(), NAMED),
        ((), json.dumps(V1, indent=2).encode(), NAMED),
        (LOGGED, json.dumps(V1).encode(), KSERVE),
        (LOGGED[1:], json.dumps(V1).encode(), KSERVE),
        ((), json.dumps(MLSERVER).encode(), KSERVE),
        ((), BINARY, KSERVE),
        (
            (
                "HTTP/1.1 200 OK",
                "Content-Type: application/octet-stream",
                f"Inference-Header-Content-Length: {BINARY.index(TENSOR)}",
            ),
            BINARY,
            KSERVE,
        ),
        (("Content-Encoding: gzip",), gzip.compress(json.dumps(MLSERVER).encode(), mtime=0), KSERVE),
    ],
)
def test_a_captured_body_is_read_by_its_shape_or_gets_a_proposal(
    sample: Sample, headers: tuple[str, ...], body: bytes, expected: dict[str, Any]
) -> None:
    text, well = sample(body, *headers)
    assert (well, "mapping:\n" in text) == (expected == KSERVE, expected != KSERVE)
    posted = {"kind": "http", "listen": "127.0.0.1:0", "spool": {"path": "spool"}}
    text, well = sample(body, *headers, sources=[{**posted, "mapping": {"id": "uuid", "scores": "p"}}])
    assert not well
    named = len([line for line in headers if ": " in line])
    assert text.startswith(f"body.txt (a body{f' with {named} headers' if named else ''}):\n")
    assert mapping_in(text) == expected
    assert "tried on 1 record: 2 answers, " in text
    assert "with this mapping 2 can be used instead of 0:" in text
    ids = 0 if expected == NAMED else 2
    assert f"2 answers, {ids} with an id, 0 labels, 0 records that cannot be used" in text
    if expected == KSERVE:
        text, well = sample(body, *headers, sources=[{**posted, **expected}])
        assert (well, "2 answers" in text) == (True, True)


def test_a_captured_event_of_another_kind_is_mapped_with_its_attributes(sample: Sample) -> None:
    head = ("ce-specversion: 1.0", "ce-id: 8231", "ce-type: com.example.scored", "ce-source: /scoring")
    body = {"probs": [0.12, 0.88], "net": "erm"}
    text, _ = sample(json.dumps(body).encode(), *head, "ce-time: 2026-07-01T12:00:00Z")
    assert mapping_in(text)["mapping"] == {
        "format": "cloudevents",
        "id": "id",
        "time": "time",
        "model": "data.net",
        "scores": "data.probs",
    }
    assert "tried on 1 record: 1 answer, 1 with an id" in text


def test_a_captured_body_that_is_as_it_should_be_and_one_that_nothing_reads(sample: Sample) -> None:
    text, well = sample(
        "\n".join(json.dumps(row) for row in ours(3)).encode(), "Content-Type: application/json"
    )
    assert (well, "3 answers, 0 labels, 0 records that cannot be used" in text) == (True, True)
    # As SageMaker's data capture writes a line for a model that answers in CSV.
    captured = {
        "captureData": {
            "endpointOutput": {
                "observedContentType": "text/csv; charset=utf-8",
                "mode": "OUTPUT",
                "data": "0.0174",
                "encoding": "CSV",
            }
        },
        "eventMetadata": {
            "eventId": "34b69f4f-2c1d-4b2b-a3c5-4f6f0ad6f4c5",
            "inferenceTime": "2026-07-01T12:00:00Z",
        },
        "eventVersion": "0",
    }
    text, well = sample(json.dumps(captured).encode())
    assert not well
    assert "no mapping is known that reads them: see docs/records.md for what a record needs" in text


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot be read (No such file or directory); give a file with the body of one post"),
        (b"", "has no body; give a file with the body of one post"),
        (b"POST / HTTP/1.1\r\nHost: a\r\n\r\n", "has no body; give"),
        (b"POST / HTTP/1.1\r\n{}", "has no blank line between the headers and the body; add one"),
        (
            b"Transfer-Encoding: chunked\n\n2\r\n{}\r\n0\r\n",
            "is in chunks, as on the wire; capture it as the",
        ),
        (b"Content-Encoding: gzip\n\n{}", "the body is not gzip: "),
    ],
)
def test_a_sample_that_cannot_be_used(tmp_path: Path, content: bytes | None, message: str) -> None:
    path = write_configuration(tmp_path, {"tasks": {"toxicity": {"classes": ["ok", "toxic"]}}})
    if content is not None:
        (tmp_path / "sample").write_bytes(content)
    code, text = outcome("doctor", path, "--sample", tmp_path / "sample")
    assert (code, "blindsight: --sample: " in text, message in text) == (2, True, True)


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        (
            "order-{}",
            '0 of 20 labels find one of 20 answers looked at: answers of answers have "r0" (a9), labels of '
            'labels "order-0" (a-9); give labels the id of their answer, or `mapping.id` another path',
        ),
        ("r{}", "20 of 20 labels find one of 20 answers looked at"),
        (
            "r9{}",
            '0 of 20 labels find one of 20 answers looked at: answers of answers have "r0" (a9), labels of '
            'labels "r90" (a9); they look alike, and may join beyond these samples',
        ),
    ],
)
def test_the_ids_of_labels_are_compared_with_those_of_answers_of_another_source(
    tmp_path: Path, ids: str, message: str
) -> None:
    labels = [{"id": ids.format(i), "label": "toxic"} for i in range(20)]
    for name, rows in (("answers", ours(20)), ("labels", labels)):
        (tmp_path / f"{name}.ndjson").write_text("".join(json.dumps(row) + "\n" for row in rows))
    sources = [{"kind": "file", "name": n, "path": f"{n}.ndjson"} for n in ("answers", "labels")]
    tasks = {"toxicity": {"classes": ["ok", "toxic"]}}
    path = write_configuration(tmp_path, {"tasks": tasks, "sources": sources, "store": {"path": "state"}})
    text, well = diagnosed(str(path))
    assert text.splitlines()[-1] == f"task toxicity: {message}"
    assert well


def test_decimal_and_hexadecimal_ids_are_told_apart(tmp_path: Path) -> None:
    numbers = [4151694932783368069 + 7919 * i for i in range(20)]
    answers = [{**row, "id": str(n)} for row, n in zip(ours(20), numbers, strict=True)]
    labels = [{"id": f"{n:016x}", "label": "toxic"} for n in numbers]
    for name, rows in (("answers", answers), ("labels", labels)):
        (tmp_path / f"{name}.ndjson").write_text("".join(json.dumps(row) + "\n" for row in rows))
    mapping = {name: name for name in ("id", "time", "model", "scores")} | {"id_hex_digits": 16}

    def last_line(**of_answers: Any) -> str:
        sources = [
            {"kind": "file", "name": "answers", "path": "answers.ndjson", **of_answers},
            {"kind": "file", "name": "labels", "path": "labels.ndjson"},
        ]
        tasks = {"toxicity": {"classes": ["ok", "toxic"]}}
        config = {"tasks": tasks, "sources": sources, "store": {"path": "state"}}
        return diagnosed(str(write_configuration(tmp_path, config)))[0].splitlines()[-1]

    message = last_line()
    assert "a number in decimal and in hexadecimal digits may be the same: see `id_hex_digits`" in message
    assert '"4151694932783368069" (9), labels of labels "399dc88b74578785" (hex)' in message
    assert "20 of 20 labels" in last_line(mapping=mapping)


@pytest.mark.parametrize(
    ("label", "keys"),
    [
        ("{}", "{id_digits: 4, id_prefix: req-}"),
        ("{}.0", "{id_digits: 4, id_prefix: req-}"),
        ("REQ-{:04d}", "{id_case: lower}"),
    ],
)
def test_translations_of_ids_are_proposed_where_they_make_labels_join(
    tmp_path: Path, label: str, keys: str
) -> None:
    answers = [{"id": f"req-{i:04d}", "model": "erm", "scores": [0.5, 0.5]} for i in range(50)]
    labels = [{"id": label.format(i), "label": "ok"} for i in reversed(range(50))]
    sources = []
    for name, records in (("answers", answers), ("labels", labels)):
        path = tmp_path / f"{name}.ndjson"
        path.write_text("".join(json.dumps(record) + "\n" for record in records))
        sources.append({"kind": "file", "path": str(path)})
    path = tmp_path / "c.yaml"
    path.write_text(json.dumps({"tasks": {"t": {"classes": ["ok", "toxic"]}}, "sources": sources}))
    output, _ = diagnosed(str(path))
    assert f"; with {keys} beside id in the mapping of labels.ndjson, " in output, output
    sources[1]["mapping"] = {"id": "id", "label": "label", **yaml.safe_load(keys)}
    path.write_text(json.dumps({"tasks": {"t": {"classes": ["ok", "toxic"]}}, "sources": sources}))
    assert "50 of 50 labels find one of 50 answers" in diagnosed(str(path))[0]


@pytest.mark.parametrize("own", [True, False], ids=["with a mapping", "without one"])
@pytest.mark.parametrize(
    ("of_classes", "values"),
    [
        (("OK", "TOXIC"), {"OK": "ok", "TOXIC": "toxic"}),
        ((0, 1), {"0": "ok", "1": "toxic"}),
        ((False, True), {"false": "ok", "true": "toxic"}),
        (("ok", "Toxic"), {"Toxic": "toxic"}),
    ],
)
@pytest.mark.parametrize("beside", [True, False], ids=["beside answers", "alone"])
def test_values_of_labels_that_are_no_classes_are_translated_where_they_join(
    doctor: Doctor, of_classes: tuple[Any, Any], values: dict[str, str], beside: bool, own: bool
) -> None:
    names = np.random.default_rng(6).integers(2, size=30).tolist()
    answers = [{**row, "groups": {"region": "eu"}} for row in ours(30)]
    labels = [{"id": row["id"], "label": of_classes[k]} for row, k in zip(answers, names, strict=True)]
    rows = [a | b for a, b in zip(answers, labels, strict=True)] if beside else [*answers, *labels]
    mapping: dict[str, Any] = {name: name for name in ("id", "time", "model", "scores", "label")}
    mapping |= {"groups": {"region": "groups.region"}} if own else {}
    text, well = doctor(rows, **({"mapping": mapping} if own else {}))
    assert not well
    gain = "30 labels can be used instead of" if beside else "60 can be used instead of"
    assert f"with this mapping {gain} " in text
    assert "not good yet" not in text
    proposed = mapping_in(text)
    assert proposed["mapping"]["label_values"] == values
    assert [*proposed["mapping"]["groups"]] == ["region"]
    text, well = doctor(rows, **proposed)
    assert (well, "30 answers, 30 labels, 0 records that cannot be used" in text) == (True, True)


def test_no_translation_is_proposed_for_a_value_that_may_be_any_class(doctor: Doctor) -> None:
    rows = [{**row, "label": ("TOXIC", "spam")[i % 2]} for i, row in enumerate(ours(30))]
    text, _ = doctor(rows)
    assert "no mapping is known that reads them" in text
    assert "label_values:\n" not in text


def test_labels_of_a_file_of_their_own_are_translated_and_join(tmp_path: Path) -> None:
    labels = [{"id": f"r{i}", "verdict": ("YES", "no", "")[i % 3]} for i in range(30)]
    files: dict[str, list[dict[str, Any]]] = {"answers.ndjson": ours(30), "labels.ndjson": labels}
    for name, rows in files.items():
        (tmp_path / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    sources: list[dict[str, Any]] = [{"kind": "file", "path": name} for name in files]
    sources[1] |= {"mapping": {"id": "id", "label": "verdict"}}
    tasks = {"toxicity": {"classes": ["ok", "toxic"]}}
    path = write_configuration(tmp_path, {"tasks": tasks, "sources": sources})
    text, well = diagnosed(str(path))
    assert not well
    assert "with this mapping 20 can be used instead of 0:" in text
    assert mapping_in(text)["mapping"]["label_values"] == {"YES": "toxic", "no": "ok"}
    message = "task toxicity, with the mappings proposed: 20 of 20 labels find one of 30 answers looked at"
    assert text.splitlines()[-1] == message


@pytest.mark.parametrize("kind", ["csv", "parquet", "sql"])
def test_a_mapping_is_proposed_for_a_table_of_which_no_column_is_known(tmp_path: Path, kind: str) -> None:
    columns: dict[str, list[Any]] = {
        "seq": list(range(30)),
        "uid": [f"r{i}" for i in range(30)],
        "net": ["m"] * 30,
        "p_ok": [row["scores"][0] for row in ours(30)],
        "p_toxic": [row["scores"][1] for row in ours(30)],
        "truth": [("ok", "toxic")[i % 2] for i in range(30)],
    }
    source: dict[str, Any] = {"kind": "file", "path": f"t.{kind}"}
    if kind == "csv":
        lines = zip(*columns.values(), strict=True)
        text = "\n".join(",".join(map(str, line)) for line in [columns, *lines])
        (tmp_path / "t.csv").write_text(text + "\n")
    elif kind == "parquet":
        pyarrow = pytest.importorskip("pyarrow")
        pytest.importorskip("pyarrow.parquet").write_table(pyarrow.table(columns), tmp_path / "t.parquet")
    else:
        source = {
            "kind": "sql",
            "driver": "sqlite3",
            "dsn": "t.db",
            "table": "t",
            "cursor": "seq",
            "id": "seq",
        }
        source["dsn"] = str(tmp_path / "t.db")
        with closing(sqlite3.connect(tmp_path / "t.db")) as base:
            base.execute(f"CREATE TABLE t ({', '.join(columns)})")
            base.executemany("INSERT INTO t VALUES (?, ?, ?, ?, ?, ?)", zip(*columns.values(), strict=True))
            base.commit()
    tasks = {"toxicity": {"classes": ["ok", "toxic"]}}
    path = write_configuration(tmp_path, {"tasks": tasks, "sources": [source]})
    text, well = diagnosed(str(path))
    assert not well
    assert re.search("none of (them|its columns|the columns) is known", text)
    assert "with this mapping 30 can be used instead of 0:" in text
    assert text.endswith(
        "id: uid\n      model: net\n      class_scores:\n        ok: p_ok\n        toxic: p_toxic\n"
        "      label: truth"
    )
