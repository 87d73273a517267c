"""Each right form of a record gives the same row."""

from __future__ import annotations

import json

import numpy as np
import pytest

from connectors.formats.decode.decoder import Decoder
from connectors.formats.files.joining import join_batches, take
from monitor.base.records import RejectReason, TaskLayout, id_keys, text_codes
from monitor.base.source import RawBlock, RawMessages, RawSkipped
from tests.bench.fuzz_decoder import check_chunk
from tests.records import ARRIVAL, TOXICITY, answer, decode, message_chunk


def test_a_model_leads_to_its_task_and_a_model_of_two_tasks_to_none():
    other = TaskLayout("spam", ("ok", "toxic"), models=("irm",))
    chunk = decode(answer(), answer(model="irm"), answer(task="spam"), layouts=(TOXICITY, other))
    assert [(batch.task, batch.models) for batch in chunk.batches] == [
        ("toxicity", ("erm",)),
        ("spam", ("erm",)),
    ]
    assert [r.reason for r in chunk.rejects] == [RejectReason.NO_TASK]


@pytest.mark.parametrize(
    "scores", [[0.25, 0.75], {"toxic": 0.75, "ok": 0.25}, 0.75, [0.25, 0.7500009], [0.25, 0.75 - 9e-4]]
)
def test_every_form_of_scores_gives_the_same_row(scores):
    [batch] = decode(answer(scores=scores)).batches
    assert batch.scores[0] == pytest.approx([0.25, 0.75], abs=1e-3)
    assert batch.predicted.tolist() == [1]


def test_what_float32_rounding_leaves_outside_is_cut_off():
    [batch] = decode(answer(scores=[-1.2e-7, 1.0000001192])).batches
    assert batch.scores.tolist() == [[0.0, 1.0]]


def test_equal_scores_predict_the_first_class_and_a_prediction_overrules():
    [batch] = decode(answer(scores=0.5), answer(scores=0.3, prediction="toxic")).batches
    assert batch.predicted.tolist() == [0, 1]


def test_classes_that_look_like_numbers_and_booleans_are_met_by_both():
    layout = TaskLayout("t", ("0", "true"))
    [batch] = decode(answer(label=0), answer(label=True), answer(label="true"), layouts=(layout,)).batches
    assert batch.label.tolist() == [0, 1, 1]


def test_one_record_of_several_models_is_one_answer_a_model_in_their_order():
    record = {"id": "a", "models": {"irm": [0.9, 0.1], "erm": [0.5, 0.6], "coral": 0.7}, "label": "toxic"}
    chunk = decode(record, answer(id="b"))
    [batch] = chunk.batches
    assert [batch.models[i] for i in batch.model] == ["irm", "coral", "erm"]
    assert batch.order.tolist() == [0, 2, 3]
    assert batch.key.tolist() == id_keys(["a", "a", "b"]).tolist()
    assert batch.label.tolist() == [1, -1, -1]
    [reject] = chunk.rejects
    assert (reject.message[:12], reject.answers, chunk.answers) == ("$.models.erm", 1, 4)


@pytest.mark.parametrize(
    ("wrong", "labels"),
    [((), [1, -1, -1]), ((0,), [1, -1]), ((0, 1), [1]), ((1,), [1, -1]), ((0, 1, 2), [])],
)
def test_the_label_of_several_models_stands_on_the_first_answer_that_is_kept(wrong, labels):
    models = {name: [0.5, 9.0] if i in wrong else [0.25, 0.75] for i, name in enumerate(("a", "b", "c"))}
    chunk = decode(answer(label="ok"), {"id": "x", "models": models, "label": "toxic"}, answer(label="ok"))
    assert chunk.batches[0].label.tolist() == [0, *labels, 0]
    assert (chunk.labels_received, len(chunk.rejects)) == (0, len(wrong))


def test_without_an_id_the_label_stands_on_every_answer():
    models = {"a": 0.25, "b": [0.5, 9.0], "c": 0.75}
    [batch] = decode({"models": models, "label": "toxic"}, answer(label="ok")).batches
    assert batch.label.tolist() == [1, 1, 0]


def test_two_records_of_one_id_keep_a_label_each():
    several = {"id": "a", "models": {"erm": 0.25, "irm": 0.75}}
    [batch] = decode(several | {"label": "ok"}, several | {"label": "toxic"}).batches
    assert batch.label.tolist() == [0, -1, 1, -1]


def test_labels_and_answers_share_one_order():
    label = {"id": "a", "label": "toxic", "probability": 0.05, "time": "2026-11-20T10:00:00Z"}
    chunk = decode(answer(), label, answer(id=81), {"id": 81, "label": "ok", "model": "erm"})
    [batch], [labels] = chunk.batches, chunk.labels
    assert (batch.order.tolist(), labels.order.tolist()) == ([0, 2], [1, 3])
    assert (labels.key == batch.key).all()
    assert labels.label.tolist() == [1, 0]
    assert labels.model.tolist() == [-1, 0]
    assert labels.models == ("erm",)
    np.testing.assert_array_equal(labels.probability, [0.05, np.nan])


def test_a_label_along_brings_the_probability_of_its_row():
    several = {"id": "b", "models": {"erm": 0.25, "irm": 0.75}, "probability": 0.5}
    records = (
        answer(label="ok", probability=0.05),
        answer(label="ok"),
        answer(probability=7),  # of no label: it means nothing
        several | {"label": "toxic"},
        {name: value for name, value in several.items() if name != "id"} | {"label": "toxic"},
    )
    [batch] = decode(*records).batches
    np.testing.assert_array_equal(batch.label, [0, 0, -1, 1, -1, 1, 1])
    expected = [0.05, np.nan, np.nan, 0.5, np.nan, 0.5, 0.5]
    np.testing.assert_array_equal(batch.probability, expected)
    np.testing.assert_array_equal(take(batch, np.array([3, 0])).probability, [0.5, 0.05])
    np.testing.assert_array_equal(join_batches([batch, batch]).probability, expected * 2)
    [plain] = decode(answer(label="ok"), answer()).batches
    np.testing.assert_array_equal(plain.probability, [np.nan, np.nan])


def test_a_confidence_task_takes_confidences_and_right_or_wrong():
    chunk = decode(
        {"id": "a", "model": "eta", "confidence": 0.9, "correct": False},
        {"id": "b", "models": {"eta": 1, "eta2": 0.5}},
        {"id": "a", "model": "eta", "correct": True},
        layouts=(ARRIVAL,),
    )
    [batch], [labels] = chunk.batches, chunk.labels
    assert batch.scores.tolist() == [[0.9], [1.0], [0.5]]
    assert (batch.predicted.tolist(), batch.label.tolist()) == ([0, 0, 0], [1, -1, -1])
    assert labels.label.tolist() == [0]


def test_only_watched_groups_are_kept_as_text():
    [batch] = decode(
        answer(groups={"region": "eu", "plan": "x"}),
        answer(groups={"region": 7}),
        answer(groups={"region": None}),
    ).batches
    assert list(batch.groups) == ["region"]
    values, code = batch.groups["region"]
    assert (values, code.tolist()) == (("eu", "7"), [0, 1, -1])


def test_features_are_numbers_and_codes_of_texts_in_the_order_of_the_task():
    [batch] = decode(
        answer(features={"carrier": "DL", "hour": 14, "seat": "2A"}),
        answer(features={"carrier": 7.0, "hour": "14.5"}),
        {"models": {"erm": 0.25, "irm": 0.75}, "features": {"carrier": 7, "hour": True}},
        answer(features={"carrier": None, "hour": "inf"}),
        answer(features={}),
        answer(),
    ).batches
    delta, seven = text_codes(["DL", "7"]).tolist()
    wanted = [[14, delta], [14.5, seven], [1, seven], [1, seven], *[[np.nan, np.nan]] * 3]
    np.testing.assert_array_equal(batch.features[:3], wanted[:3])
    np.testing.assert_array_equal(batch.features[3:], wanted[3:])


def test_columns_of_features_are_read_alike_with_gaps_and_without():
    full = [{"carrier": "DL", "hour": 3}, {"carrier": "AA", "hour": 4.5}, {"carrier": "DL", "hour": 5}]
    [batch] = decode(*(answer(features=each) for each in full)).batches
    for gap in ({}, {"hour": 7}, None):
        records = [*(answer(features=each) for each in full), answer(features=gap)]
        [other] = decode(*records).batches
        np.testing.assert_array_equal(other.features[:3], batch.features)
        assert np.isnan(other.features[3, 1])
    assert batch.features[0, 1] == batch.features[2, 1] != batch.features[1, 1]


def test_each_row_with_a_text_that_is_no_unicode_is_rejected():
    spoilt = answer(features={"carrier": "\ud83d", "hour": 3})
    for carrier in ("DL", 7):
        chunk = decode(spoilt, answer(features={"carrier": carrier, "hour": 4}), spoilt)
        assert [reject.message.partition(":")[0] for reject in chunk.rejects] == ["$.features.carrier"] * 2
        assert len(chunk.batches[0]) == 1


def test_a_record_s_features_are_no_field_where_the_task_has_none():
    layout = TaskLayout("toxicity", ("ok", "toxic"), models=("erm",))
    [batch] = decode(answer(features=[0.5, "x"]), answer(features=3), layouts=(layout,)).batches
    assert batch.features.shape == (2, 0)


def test_batches_are_joined_and_taken_from_with_their_features():
    [first] = decode(answer(features={"hour": 1})).batches
    [second] = decode(answer(features={"hour": 2}), answer(features={"hour": 3})).batches
    joined = join_batches([first, second])
    assert joined.features[:, 0].tolist() == [1, 2, 3]
    assert take(joined, np.array([2, 0])).features[:, 0].tolist() == [3, 1]


def test_versions_are_text_and_empty_where_absent():
    [batch] = decode(answer(version=2), answer(), answer(version="2")).batches
    assert [batch.versions[i] for i in batch.version] == ["2", "", "2"]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2026-11-20T10:00:00Z", 1795168800.0),
        ("2026-11-20T10:00:00.120Z", 1795168800.12),
        ("2026-11-20t10:00:00.123456789z", 1795168800.123456789),
        ("2026-11-20 11:00:00.5+01:00", 1795168800.5),
        ("2026-11-20T04:30:00-05:30", 1795168800.0),
        ("2024-02-29T00:00:00Z", 1709164800.0),
        ("2016-12-31T23:59:60Z", 1483228800.0),
        ("1970-01-01T00:00:00.25Z", 0.25),
        (1795168800.25, 1795168800.25),
        (1795168800, 1795168800.0),
        (None, np.nan),
        (0, 0.0),
        ("9999-12-31T23:59:59.9994Z", 253402300799.9994),
        ("9999-12-31T23:59:59.999+00:00", 253402300799.999),
    ],
)
def test_times(text, seconds):
    [batch] = decode(answer(time=text), answer(time="2020-01-01T00:00:00.1+00:00"), answer()).batches
    np.testing.assert_array_equal(batch.time, [seconds, 1577836800.1, np.nan])
    [alone] = decode(answer(time=text)).batches
    np.testing.assert_array_equal(alone.time, [seconds])


def test_a_label_without_a_time_has_none():
    [labels] = decode({"id": "a", "label": "ok"}, {"id": "b", "label": "ok", "time": 5}).labels
    np.testing.assert_array_equal(labels.time, [np.nan, 5.0])


def test_a_skipped_line_is_counted_and_moves_the_position():
    chunk = Decoder([TOXICITY], "test").decode([RawSkipped(b"x" * 2000, 5_000_000, "p", 100)])
    check_chunk(chunk)
    assert [(r.reason, r.position) for r in chunk.rejects] == [(RejectReason.TOO_LARGE, 100)]
    assert (chunk.answers, chunk.positions) == (1, {"p": 5_000_100})


def test_blank_lines_returns_and_a_byte_order_mark_are_no_records():
    line = json.dumps(answer()).encode()
    data = b"\xef\xbb\xbf" + line + b"\r\n\r\n  " + line + b"  \n\n" + line
    chunk = Decoder([TOXICITY], "test").decode([RawBlock(data, "p", 0)])
    check_chunk(chunk)
    [batch] = chunk.batches
    assert (len(batch), chunk.rejects, chunk.positions) == (3, (), {"p": len(data)})
    assert [data[i : i + 60].lstrip().startswith(b'{"id"') for i in batch.position.tolist()] == [True] * 3


def test_a_record_spread_over_two_lines_shifts_no_position():
    # Two lines, two records for a parser that takes any white space for the end of a line.
    line = json.dumps(answer()).encode()
    half = line.index(b", ") + 1
    chunk = decode(line[:half], line[half:] + line)
    assert [r.reason for r in chunk.rejects] == [RejectReason.MALFORMED] * 2


@pytest.mark.parametrize("pretty", [None, 2])
def test_a_message_holds_one_record_an_array_or_lines(pretty):
    one = [json.dumps(answer(id=f"r{i}"), indent=pretty).encode() for i in range(5)]
    flat = [json.dumps(json.loads(x)).encode() for x in one]
    chunk = message_chunk(
        one[0], b"[" + one[1] + b"," + one[2] + b"]", flat[3] + b"\n" + flat[4] + b"\n", b"", b" [] "
    )
    [batch] = chunk.batches
    assert batch.key.tolist() == id_keys([f"r{i}" for i in range(5)]).tolist()
    assert batch.position.tolist() == [10, 11, 11, 12, 12]
    assert (chunk.positions, chunk.partitions) == ({"topic-3": 15}, ("topic-3",))


def test_an_array_may_be_longer_than_a_record_and_its_elements_may_not():
    limit = 100
    good = [json.dumps(answer(id=f"r{i}")).encode() for i in range(5)]
    long = json.dumps(answer(id="x" * limit)).encode()
    assert max(map(len, good)) <= limit < len(long)
    raw = RawMessages([b"[" + b",".join([*good, long]) + b"]"], "t-0", [7])
    chunk = Decoder([TOXICITY], "test", max_line_bytes=limit).decode([raw])
    check_chunk(chunk)
    assert chunk.batches[0].key.tolist() == id_keys([f"r{i}" for i in range(5)]).tolist()
    assert [(r.reason, r.position, r.raw) for r in chunk.rejects] == [(RejectReason.TOO_LARGE, 7, long)]


def test_many_parts_make_one_chunk():
    line = json.dumps(answer()).encode() + b"\n"
    raws = [
        RawBlock(line, "a", 5),
        RawMessages([line], "t-0", [7]),
        RawBlock(line + line, "a", 5 + len(line)),
    ]
    chunk = Decoder([TOXICITY], "test").decode(raws)
    [batch] = chunk.batches
    assert chunk.partitions == ("a", "t-0")
    assert batch.partition.tolist() == [0, 1, 0, 0]
    assert batch.position.tolist() == [5, 7, 5 + len(line), 5 + 2 * len(line)]
    assert chunk.positions == {"a": 5 + 3 * len(line), "t-0": 8}


def test_nothing_makes_an_empty_chunk():
    chunk = Decoder([TOXICITY], "test").decode([])
    assert (chunk.batches, chunk.labels, chunk.answers, chunk.positions) == ((), (), 0, {})


def test_layouts_must_have_names_of_their_own():
    with pytest.raises(ValueError, match=r"layouts: expected one or more tasks, each name once, got \[\]"):
        Decoder([], "test")
