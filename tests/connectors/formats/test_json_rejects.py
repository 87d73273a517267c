"""The message of each wrong record; a wrong record costs no other."""

from __future__ import annotations

import json

import numpy as np
import pytest

from connectors.formats.decode.decoder import Decoder
from monitor.base.records import NO_ID, RejectReason, TaskLayout, id_keys
from monitor.base.source import RawBlock
from tests.records import ARRIVAL, TOPIC, TOXICITY, answer, decode, message_chunk

WRONG = [
    (answer(scores=[0.1, 0.2, 0.7]), "wrong_length",
     "$.scores: expected 2 probabilities, one a class (ok, toxic), got 3"),
    (answer(scores=[]), "wrong_length",
     "$.scores: expected 2 probabilities, one a class (ok, toxic), got 0"),
    (answer(scores={"ok": 0.5}), "wrong_length",
     "$.scores: expected a probability for each class (ok, toxic), got none for toxic"),
    (answer(scores=[0.5, None]), "not_a_number",
     "$.scores[1]: expected a number from 0 to 1, got null"),
    (answer(scores=[0.5, float("nan")]), "not_a_number",
     "$.scores[1]: expected a number from 0 to 1, got NaN"),
    (answer(scores={"ok": float("-inf"), "toxic": 1}), "not_a_number",
     "$.scores.ok: expected a number from 0 to 1, got -Infinity"),
    (answer(scores=[-0.7, 1.7]), "logits",
     "$.scores[0]: expected a number from 0 to 1, got -0.7; these look like logits: "
     "send probabilities (softmax)"),
    (answer(scores=[0.3, 1.7]), "out_of_range",
     "$.scores[1]: expected a number from 0 to 1, got 1.7"),
    (answer(scores={"toxic": 1.7, "ok": 0.3}), "out_of_range",
     "$.scores.toxic: expected a number from 0 to 1, got 1.7"),
    (answer(scores=1.7), "out_of_range", "$.scores: expected a number from 0 to 1, got 1.7"),
    (answer(scores=87.5), "out_of_range",
     "$.scores: expected a number from 0 to 1, got 87.5; if these are percentages, divide them by 100"),
    (answer(prediction=0.37), "wrong_type",
     "$.prediction: expected the name of a class, got 0.37; of a regression send `confidence`, "
     "or bin its numbers into classes"),
    (b'{"model": "erm", "scores": [0.5, 1e999]}', "out_of_range",
     "$.scores[1]: expected a number from 0 to 1, got 1e999"),
    (answer(scores=[0.5, 0.52]), "wrong_sum",
     "$.scores: expected probabilities that sum to 1 within 0.001, got a sum of 1.02"),
    (answer(scores={"ok": 0.5, "toxik": 0.5}), "unknown_class",
     '$.scores: task toxicity has no class "toxik"; its classes are ok, toxic; did you mean toxic?'),
    (answer(version="a\ud83d"), "encoding",
     "$.version: text with half of a surrogate pair, as cutting it within a character leaves; "
     "send whole characters"),
    (answer(groups={"region": "a\ud83d"}), "encoding",
     "$.groups.region: text with half of a surrogate pair, as cutting it within a character leaves; "
     "send whole characters"),
    (answer(id=2.0**60), "bad_id",
     "$.id: expected text or an integer, got 1.152921504606847e+18, a float of 2^53 or more, which may stand "
     "for another number; write ids as text or integers"),
    (answer(scores=["0,5", "50 %"]), "wrong_type",
     '$.scores[0]: expected a number from 0 to 1, got "0,5"; this is a decimal comma: write 0.5'),
    (answer(time=45981.5), "time_unit",
     "$.time: 45981.5 is a date of a spreadsheet, in days, 2025-11-20; format the cells as text like "
     "2026-11-20T10:00:00Z"),
    (answer(time=float("nan")), "not_a_number",
     "$.time: expected RFC 3339 with an offset, such as 2026-11-20T10:00:00.120Z, "
     "or seconds since the epoch, got NaN"),
    (answer(prediction="spam"), "unknown_class",
     '$.prediction: task toxicity has no class "spam"; its classes are ok, toxic'),
    (answer(scores=["0.5", 0.5]), "wrong_type",
     '$.scores[0]: expected a number from 0 to 1, got "0.5"'),
    (answer(scores=True), "wrong_type",
     "$.scores: expected an array, an object or a number of probabilities, got true"),
    (answer(id=1.5), "wrong_type", "$.id: expected a string or an integer, got 1.5"),
    (answer(time=[1]), "wrong_type",
     "$.time: expected RFC 3339 text or seconds since the epoch, got an array"),
    (answer(model=7), "wrong_type", "$.model: expected a string, got 7"),
    (answer(groups=["eu"]), "wrong_type", "$.groups: expected an object, got an array"),
    (answer(groups={"region": {"a": 1}}), "wrong_type",
     "$.groups.region: expected a string, a number, true or false, got an object"),
    (answer(features=[14]), "wrong_type", "$.features: expected an object, got an array"),
    (answer(features={"hour": "noon"}), "wrong_type", '$.features.hour: expected a number, got "noon"'),
    (answer(features={"carrier": ["DL"]}), "wrong_type",
     "$.features.carrier: expected text or a number, got an array"),
    (["an", "array"], "wrong_type", "$: expected an object, got an array"),
    ({"models": [1]}, "wrong_type", "$.models: expected an object of scores by model, got an array"),
    (answer(models={"irm": [0.5, 0.5]}), "wrong_type",
     "$.model: not allowed beside models; send one record a model"),
    ({"models": {"irm": [0.5, 0.5]}, "prediction": "ok"}, "wrong_type",
     "$.prediction: not allowed beside models; send one record a model"),
    (answer(scores=None), "no_scores",
     "$.scores: expected a probability for each class (ok, toxic), got none"),
    (answer(scores=None, confidence=0.9), "no_scores",
     "$.confidence: task toxicity has classes and needs scores; "
     "leave classes out of its configuration if its models give a confidence only"),
    (answer(model=None), "no_model", "$.model: expected the name of the model, got null"),
    (answer(model=""), "no_model", '$.model: expected the name of the model, got ""'),
    ({"models": {}}, "no_model", "$.models: expected at least one model with its scores, got none"),
    (answer(id=""), "bad_id",
     '$.id: expected 1 to 512 characters, got ""; leave it out where there is none'),
    (answer(id="x" * 513), "bad_id", "$.id: expected 1 to 512 characters, got 513"),
    (answer(version="x" * 201), "too_large", "$.version: expected at most 200 characters, got 201"),
    (answer(model="x" * 201), "too_large", "$.model: expected at most 200 characters, got 201"),
    (answer(groups={"region": "x" * 201}), "too_large",
     "$.groups.region: expected at most 200 characters, got 201"),
    (answer(task="toxicty"), "unknown_task",
     '$.task: no task "toxicty" is configured; known tasks: toxicity; did you mean toxicity?'),
    (answer(time=1763632800120), "time_unit",
     "$.time: 1763632800120 can only be milliseconds since the epoch; send seconds: 1763632800.120"),
    (answer(time=1763632800120000), "time_unit",
     "$.time: 1763632800120000 can only be microseconds since the epoch; send seconds: 1763632800.120"),
    (answer(time=1.76363280012e18), "time_unit",
     "$.time: 1763632800120000000 can only be nanoseconds since the epoch; send seconds: 1763632800.120"),
    (answer(time=-0.5), "bad_time",
     "$.time: expected a time from 1970 on, got -0.5; correct the sender's clock"),
    (answer(time=1e21), "time_format",
     "$.time: expected RFC 3339 with an offset, such as 2026-11-20T10:00:00.120Z, "
     "or seconds since the epoch, got 1e+21"),
    (answer(time="2026-11-20T10:00:00"), "time_format",
     '$.time: "2026-11-20T10:00:00" has no offset from UTC; end it in Z or in +01:00'),
    (answer(time="yesterday"), "time_format",
     "$.time: expected RFC 3339 with an offset, such as 2026-11-20T10:00:00.120Z, "
     'or seconds since the epoch, got "yesterday"'),
    ({"id": "a", "task": "toxicity", "probability": 0.05}, "no_label",
     "$.label: missing, and so is everything of an answer; give `label` (or `model` with `correct`), "
     "or `model` with `scores` or `confidence`"),
    ({"id": "a", "task": "toxicity", "prediction": "ok"}, "no_scores",
     "$.scores: expected a probability for each class (ok, toxic), got none"),
    (b"\x1f\x8b\x08\x00", "encoding",
     "$: these are bytes of gzip, not JSON; end the name of such a file in .gz"),
    (b"\x28\xb5\x2f\xfd", "encoding",
     "$: these are bytes of Zstandard, not JSON; end the name of such a file in .zst"),
    (b"PAR1\x15", "encoding",
     "$: these are bytes of Parquet, not JSON; end the name of such a file in .parquet"),
    (b"\xff\xfe{}", "encoding", "$: byte 0 is not UTF-8 (0xff); send UTF-8"),
    ('{"model": "erm"}'.encode("utf-16"), "encoding",
     "$: these are bytes of UTF-16, not UTF-8; write the file as UTF-8"),
    (b'{"model":', "malformed",
     "$: not JSON at character 9: Expecting value; send one whole JSON object a line"),
    (b'{"model": "a"} {"model": "b"}', "malformed",
     "$: not JSON at character 15: Extra data; send one whole JSON object a line"),
    (b'{"x": ' + b"[" * 500_000 + b"]" * 500_000 + b"}", "malformed", "$: nested too deep"),
]  # fmt: skip


@pytest.mark.parametrize(("record", "reason", "message"), WRONG)
def test_each_wrong_record_is_told_what_is_wrong_and_where(record, reason, message):
    chunk = decode(answer(id="before"), record, answer(id="after"))
    assert [(r.reason.value, r.message) for r in chunk.rejects] == [(reason, message)]
    [batch] = chunk.batches
    assert batch.key.tolist() == id_keys(["before", "after"]).tolist()
    [reject] = chunk.rejects
    raw = record if isinstance(record, bytes) else json.dumps(record).encode()
    assert reject.raw == raw[:2000]
    assert (reject.partition, reject.position) == ("p.ndjson", len(json.dumps(answer(id="before"))) + 1)


@pytest.mark.parametrize(("probability", "got"), [(0, "0.0"), (1.5, "1.5"), (-0.25, "-0.25")])
@pytest.mark.parametrize("models", [1, 2])
def test_a_wrong_probability_costs_the_label_and_not_its_prediction(probability, got, models):
    several = {"model": None, "scores": None, "models": {"erm": 0.25, "irm": 0.75}}
    record = answer(label="ok", probability=probability, **(several if models == 2 else {}))
    chunk = decode(answer(id="before"), record, answer(id="after", label="ok", probability=1))
    message = f"$.probability: expected a number above 0 and at most 1, got {got}"
    rejects = [(r.reason.value, r.message, r.answers, r.along) for r in chunk.rejects]
    assert rejects == [("out_of_range", message, 0, True)]
    [batch] = chunk.batches
    assert batch.key.tolist() == id_keys(["before", *["a"] * models, "after"]).tolist()
    np.testing.assert_array_equal(batch.label, [-1] * (1 + models) + [0])
    np.testing.assert_array_equal(batch.probability, [np.nan] * (1 + models) + [1.0])


LABELS_THAT_CANNOT_BE_USED = [
    ({"label": 1}, "unknown_class",
     "$.label: task toxicity has no class 1; its classes are ok, toxic; send names, not numbers: "
     'class 1 is toxic; or translate it: label_values: {"1": "toxic"} in the mapping'),
    ({"label": 3}, "unknown_class", "$.label: task toxicity has no class 3; its classes are ok, toxic"),
    ({"label": "Toxic"}, "unknown_class",
     '$.label: task toxicity has no class "Toxic"; its classes are ok, toxic; did you mean toxic?; or '
     'translate it: label_values: {"Toxic": "toxic"} in the mapping'),
    ({"label": 0.7}, "wrong_type",
     "$.label: expected the name of a class, got 0.7; of a regression send `confidence`, or bin its numbers "
     "into classes"),
    ({"label": ["toxic"]}, "wrong_type", "$.label: expected the name of a class, got an array"),
    ({"label": float("inf")}, "not_a_number", "$.label: expected the name of a class, got Infinity"),
    ({"label": "a\ud83d"}, "encoding",
     "$.label: text with half of a surrogate pair, as cutting it within a character leaves; "
     "send whole characters"),
    ({"label": "ok", "probability": "often"}, "wrong_type",
     '$.probability: expected a number above 0 and at most 1, got "often"'),
    ({"label": "ok", "probability": float("nan")}, "not_a_number",
     "$.probability: expected a number above 0 and at most 1, got NaN"),
    ({"correct": True}, "no_label", "$.correct: task toxicity has classes; send label, one of ok, toxic"),
]  # fmt: skip


@pytest.mark.parametrize(("label", "reason", "message"), LABELS_THAT_CANNOT_BE_USED)
def test_a_label_that_cannot_be_used_costs_the_label_and_not_its_answer(label, reason, message):
    chunk = decode(answer(id="a"), answer(id="b", **label), answer(id="c", label="toxic"))
    rejects = [(r.reason.value, r.message, r.answers, r.along, r.task) for r in chunk.rejects]
    assert rejects == [(reason, message, 0, True, "toxicity")]
    [batch] = chunk.batches
    assert batch.key.tolist() == id_keys(["a", "b", "c"]).tolist()
    assert (batch.label.tolist(), chunk.answers, chunk.labels_received) == ([-1, -1, 1], 3, 0)


def test_a_bad_label_of_a_bad_answer_is_not_counted_beside_it():
    chunk = decode(answer(label="Toxic", scores=[0.5, 0.9]))
    assert [(r.reason.value, r.answers, r.along) for r in chunk.rejects] == [("wrong_sum", 1, False)]


def test_a_class_is_known_by_its_number_and_its_characters_however_they_are_written():
    numbers = TaskLayout("numbers", ("0", "1"))
    labels = [1, 1.0, "1.0", True, "true", "TRUE", 0.0]
    chunk = decode(*(answer(label=label) for label in labels), layouts=(numbers,))
    assert chunk.batches[0].label.tolist() == [1, 1, 1, -1, -1, -1, 0]
    hint = "; send 1 for true and 0 for false, or translate them by label_values of a mapping"
    assert [reject.message.endswith(hint) for reject in chunk.rejects] == [True] * 3
    floats = TaskLayout("floats", ("0.0", "1.0"))
    chunk = decode(*(answer(label=label) for label in labels[:3]), layouts=(floats,))
    assert (chunk.batches[0].label.tolist(), chunk.rejects) == ([1, 1, 1], ())
    composed, parts = "d\u00e9grad\u00e9", "de\u0301grade\u0301"
    for names, name in ((("ok", composed), parts), (("ok", parts), composed)):
        record = answer(label=name, prediction=name, scores={"ok": 0.25, name: 0.75})
        chunk = decode(record, layouts=(TaskLayout("t", names),))
        assert (chunk.rejects, chunk.batches[0].label.tolist()) == ((), [1])
        assert chunk.batches[0].scores.tolist() == [[0.25, 0.75]]


def test_what_says_that_there_is_no_label_is_none_unless_it_is_a_class():
    missing = ["NULL", "NaN", "None", "NA", "\\N", "", None, float("nan")]
    chunk = decode(*(answer(label=each) for each in missing))
    assert (chunk.rejects, chunk.batches[0].label.tolist()) == ((), [-1] * len(missing))
    alone = decode(*({"id": "a", "label": each} for each in missing))
    assert {(r.reason.value, r.answers) for r in alone.rejects} == {("no_label", 1)}
    chunk = decode(answer(label="NA"), layouts=(TaskLayout("t", ("NA", "EU")),))
    assert (chunk.rejects, chunk.batches[0].label.tolist()) == ((), [0])


UNREAD = [
    b'{"model": "erm", "scores": [0.25, 0.75], "latency": NaN}',
    b'{"model": "erm", "scores": [0.25, 0.75], "deep": [{"x": -Infinity}]}',
    b'{"model": "erm", "scores": [0.25, 0.75], "note": "a\\ud83d"}',
    b'{"model": "erm", "scores": [0.25, 0.75], "groups": {"city": "M\xfcnchen", "region": "eu"}}',
    b'{"model": "erm", "scores": [0.25, 0.75], "features": {"x": NaN}}',
    b'{"model": "erm", "scores": [0.25, 0.75], "id": 81.0}',
]


@pytest.mark.parametrize("record", UNREAD)
def test_what_nobody_reads_costs_nothing(record):
    chunk = decode(answer(id="before"), record, answer(id="after"))
    assert (len(chunk.batches[0]), chunk.rejects) == (3, ())


@pytest.mark.parametrize(
    "fields", [{"label": "ok"}, {"label": "ok", "scores": None}, {"label": "ok", "scores": {}}]
)
def test_a_record_of_a_model_without_scores_and_id_is_no_label(fields):
    chunk = decode({"model": "erm", **fields}, {"model": "erm", "id": "a", "label": "ok"})
    assert [(reject.reason.value, reject.answers) for reject in chunk.rejects] == [("no_scores", 1)]
    assert sum(map(len, chunk.labels)) == 1


@pytest.mark.parametrize(
    ("label", "hint"),
    [
        ("TOXIC", '; or translate it: label_values: {"TOXIC": "toxic"} in the mapping'),
        (
            " toxic",
            '; did you mean toxic?; or translate it: label_values: {" toxic": "toxic"} in the mapping',
        ),
        ("yes", '; or translate it: label_values: {"yes": "toxic"} in the mapping'),
        (False, '; or translate it: label_values: {"false": "ok"} in the mapping'),
        (
            1,
            ': class 1 is toxic; or translate it: label_values: {"1": "toxic"} in the mapping',
        ),
        ("spam", "; its classes are ok, toxic"),
    ],
)
def test_a_label_that_means_a_class_gets_the_translation_as_hint(label, hint):
    (reject,) = decode({"id": "a", "label": label}).rejects
    assert reject.message.endswith(hint), reject.message


WRONG_LABELS = [
    ({"label": "ok"}, "no_id", "$.id: a label needs the id of its prediction, got none"),
    ({"id": "a", "label": "okay"}, "unknown_class",
     '$.label: task toxicity has no class "okay"; its classes are ok, toxic; did you mean ok?'),
    ({"id": "a", "label": "ok", "probability": 0}, "out_of_range",
     "$.probability: expected a number above 0 and at most 1, got 0.0"),
    ({"id": "a", "correct": True, "model": "erm"}, "no_label",
     "$.correct: task toxicity has classes; send label, one of ok, toxic"),
    ({"id": "a", "label": ["ok"]}, "wrong_type", "$.label: expected the name of a class, got an array"),
    ({"id": "a", "label": "ok", "time": "noon"}, "time_format",
     "$.time: expected RFC 3339 with an offset, such as 2026-11-20T10:00:00.120Z, "
     'or seconds since the epoch, got "noon"'),
]  # fmt: skip


@pytest.mark.parametrize(("record", "reason", "message"), WRONG_LABELS)
def test_a_wrong_label_counts_as_a_label_and_as_no_answer(record, reason, message):
    chunk = decode(record)
    assert [(r.reason.value, r.message, r.answers) for r in chunk.rejects] == [(reason, message, 0)]
    assert (chunk.answers, chunk.labels_received, chunk.labels) == (0, 1, ())
    assert chunk.rejects[0].task == "toxicity"


def test_a_label_of_a_classification_that_names_a_winner_only_is_none():
    layouts = (TOXICITY, TaskLayout("chat", (), kind="arena"))
    verdict, label = {"id": "a", "winner": "tie"}, {"id": "a", "label": "ok"}
    chunk = decode({**verdict, "task": "toxicity"}, {**label, "task": "chat"}, layouts=layouts)
    assert [(r.reason.value, r.message, r.answers) for r in chunk.rejects] == [
        ("no_label", "$.label: missing; give the true class, or `model` with `correct`: true or false", 0),
        ("no_label", "$.winner: missing; give model_a, model_b or tie", 0),
    ]
    assert chunk.labels == ()


WRONG_CONFIDENCES = [
    ({"model": "eta", "confidence": 1.5}, "out_of_range",
     "$.confidence: expected a number from 0 to 1, got 1.5"),
    ({"model": "eta", "scores": [0.5, 0.5]}, "no_scores",
     "$.confidence: task arrival has no classes; send confidence, a number from 0 to 1"),
    ({"models": {"eta": [0.5, 0.5]}}, "no_scores",
     "$.models.eta: task arrival has no classes; expected a confidence, got an array"),
    ({"id": "a", "model": "eta", "label": "ok"}, "no_label",
     "$.label: task arrival has no classes; send correct, true or false"),
    ({"id": "a", "correct": True}, "no_model", "$.model: expected the name of the model, got null"),
    ({"models": {"eta": 0.5}, "correct": True}, "wrong_type",
     "$.correct: not allowed beside models; send one record a model"),
]  # fmt: skip


@pytest.mark.parametrize(("record", "reason", "message"), WRONG_CONFIDENCES)
def test_a_task_without_classes_takes_a_confidence_only(record, reason, message):
    chunk = decode(record, layouts=(ARRIVAL,))
    assert [(r.reason.value, r.message) for r in chunk.rejects] == [(reason, message)]


def test_every_reason_is_tested_here():
    tested = {reason for _, reason, _ in WRONG + WRONG_LABELS + WRONG_CONFIDENCES}
    assert tested | {"no_task"} == {reason.value for reason in RejectReason}


def test_no_task_where_several_are_configured_and_neither_record_nor_model_names_one():
    layouts = (TOXICITY, TOPIC)
    chunk = decode(answer(model="stranger"), {"id": "a", "label": "ok"}, layouts=layouts)
    message = (
        "$.task: several tasks are configured (toxicity, topic) and the record names none; "
        "name one, or list the model under one task's models"
    )
    assert [(r.reason, r.message) for r in chunk.rejects] == [(RejectReason.NO_TASK, message)] * 2
    assert [(r.answers, r.task) for r in chunk.rejects] == [(1, ""), (0, "")]


@pytest.mark.parametrize(
    "text",
    [
        "2026-02-29T00:00:00Z", "2026-13-01T00:00:00Z", "2026-00-01T00:00:00Z", "2026-11-20T24:00:00Z",
        "2026-11-20T10:60:00Z", "2026-11-20T10:00:61Z", "2026-11-20T10:00:00.Z", "2026-11-20T10:00:00+01:0",
        "2026-11-20T10:00:00+24:00", "0000-01-01T00:00:00Z", "9999-12-31T23:59:59-01:00", "20261120T100000Z",
        "9999-12-31T23:59:59.9995Z", "9999-12-31T23:59:59.9999Z", "9999-12-31T23:59:60Z",
        "9999-12-31T23:59:59.999999999999Z", "9999-12-31T23:00:00.9-01:00", "0001-01-01T00:00:00.1+00:01",
        -62135596801, -62135596800.001, -1e11, -1e300, 1e300,
        "2026-11-20T10:00Z", "٢٠٢٦-11-20T10:00:00Z", "2026-11-20T10:00:00.12x456Z", "", "Z" * 70,
    ],
)  # fmt: skip
def test_what_is_no_time_is_refused_and_its_neighbours_are_not(text):
    chunk = decode(answer(time=text), answer(time="2026-11-20T10:00:00Z"))
    assert [r.reason for r in chunk.rejects] == [RejectReason.TIME_FORMAT]
    assert [len(batch) for batch in chunk.batches] == [1]


EARLY = "$.time: expected a time from 1970 on, got {}; correct the sender's clock"
AHEAD = (
    "$.time: expected at most a day ahead of this machine's clock, 2026-11-20T10:00:00Z, got {}; correct the "
    "sender's clock, or this one"
)


@pytest.mark.parametrize(
    ("time", "message"),
    [
        ("1969-12-31T23:59:59.75Z", EARLY.format('"1969-12-31T23:59:59.75Z"')),
        (-0.25, EARLY.format("-0.25")),
        ("0001-01-01T00:00:00Z", EARLY.format('"0001-01-01T00:00:00Z"')),
        (1795255201, AHEAD.format("1795255201.0")),
        ("2026-11-21T10:00:00.001Z", AHEAD.format('"2026-11-21T10:00:00.001Z"')),
        (4e9, AHEAD.format("4000000000.0")),
    ],
)
def test_a_time_before_1970_or_more_than_a_day_ahead_is_refused(time, message):
    records = [
        answer(time=time),
        {"id": "a", "label": "ok", "time": time},
        answer(time="2026-11-21T10:00:00Z"),
    ]
    live = decode(*records, clock=lambda: 1795168800.0)
    assert [(r.reason.value, r.message, r.answers) for r in live.rejects] == [
        ("bad_time", message, 1),
        ("bad_time", message, 0),
    ]
    assert [len(batch) for batch in live.batches] == [1]
    replayed = decode(*records)
    assert [r.reason.value for r in replayed.rejects] == (
        [] if "at most a day" in message else ["bad_time"] * 2
    )


def test_a_sum_is_judged_alike_whatever_stands_beside_it():
    alone = decode(answer(scores=[0.0, 1.0005]))
    beside = decode(answer(scores=[0.0, 1.0005]), answer(scores=[-1, 2]))
    assert [r.reason for r in alone.rejects] == [RejectReason.OUT_OF_RANGE]
    assert [r.reason for r in beside.rejects] == [RejectReason.OUT_OF_RANGE, RejectReason.LOGITS]


def test_a_fault_of_a_whole_record_takes_all_its_answers():
    chunk = decode({"id": "a", "models": {"irm": 0.5, "erm": 0.5}, "time": "noon"})
    assert ([r.answers for r in chunk.rejects], chunk.answers) == ([2], 2)


def test_a_path_quotes_names_that_are_no_words():
    [reject] = decode({"models": {"erm v2.1": [0.5, None]}}).rejects
    assert reject.message == '$.models["erm v2.1"][1]: expected a number from 0 to 1, got null'


@pytest.mark.parametrize("before", [1, 20])
def test_a_line_over_the_limit_is_rejected_unread_and_its_neighbours_are_not(before):
    long = b'{"model": "erm", "scores": [0.5, 0.5], "x": "' + b"y" * 2_000_000 + b'"}'
    chunk = decode(*[answer()] * before, long, answer())
    [reject] = chunk.rejects
    assert reject.reason is RejectReason.TOO_LARGE
    assert reject.message == (
        f"$: a record of {len(long)} bytes; at most 1048576 are read; send one record a line"
    )
    assert reject.raw == long[:2000]
    assert len(chunk.batches[0]) == before + 1


def test_a_bad_record_within_a_message_takes_no_other_with_it():
    good = json.dumps(answer()).encode()
    bad = b'{"model": "erm", "scores": ["x"]}'
    chunk = message_chunk(
        b"[" + good + b"," + bad + b",5]", good + b"\n" + bad + b"\n{\n" + good, b"[" + good, good
    )
    assert [(r.reason.value, r.position, r.raw) for r in chunk.rejects] == [
        ("wrong_type", 10, bad),
        ("wrong_type", 10, b"5"),
        ("wrong_type", 11, bad),
        ("malformed", 11, b"{"),
        ("malformed", 12, b"[" + good),
    ]
    assert chunk.batches[0].position.tolist() == [10, 11, 11, 13]


class _Unsearched(tuple[str, ...]):
    """Classes that nobody may look through one by one, which takes seconds of thousands of them."""

    def __contains__(self, name: object) -> bool:
        raise AssertionError(name)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"c99": None}, "got none for c99"),
        ({"c99": None, "d": 0.01}, '$.scores: task many has no class "d"; its classes are c0, c1,'),
    ],
)
def test_of_many_classes_none_is_looked_for_among_all_the_others(change, message):
    names = _Unsearched(f"c{i}" for i in range(100))
    scores = dict.fromkeys(names, 0.01) | change
    record = {"model": "erm", "scores": {name: p for name, p in scores.items() if p is not None}}
    data = json.dumps(record).encode()
    (reject,) = Decoder([TaskLayout("many", names)], "test").decode([RawBlock(data, "p", 0)]).rejects
    assert message in reject.message


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"id\tmodel\nr1\tm", "a table of text must be CSV with commas, in a file whose name ends in .csv"),
        (
            b"PK\x03\x04...",
            "an Excel workbook or a zip archive, not JSON; end the name of such a file in .csv",
        ),
    ],
)
def test_bytes_of_another_kind_of_file_are_named(data, message):
    assert message in decode(data).rejects[0].message


def test_ids_that_say_that_there_is_none_are_none():
    missing = ["NULL", "None", "nan", "\\N"]
    chunk = decode(*(answer(id=each) for each in missing), b'{"id": NaN, "model": "m", "scores": [0.5, 0.5]}')
    assert (chunk.rejects, chunk.batches[0].key.tolist()) == ((), [int(NO_ID)] * 5)
