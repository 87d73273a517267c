"""Comparisons and verdicts on the wire: their columns, and the reasons of the rejected ones."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from connectors.formats.decode.decoder import Decoder
from monitor.base.records import NO_ID, Chunk, RejectReason, TaskLayout, id_keys
from monitor.base.source import RawBlock, RawMessages, RawTable

ARENA = TaskLayout("chat", (), models=("x", "y"), kind="arena")
TOXICITY = TaskLayout("toxicity", ("ok", "toxic"))


def decoded(*records: dict[str, Any], layouts: tuple[TaskLayout, ...] = (ARENA,)) -> Chunk:
    lines = b"".join(json.dumps(record).encode() + b"\n" for record in records)
    return Decoder(layouts, "f").decode([RawBlock(lines, "p", 0)])


def pair(**more: Any) -> dict[str, Any]:
    return {"model_a": "x", "model_b": "y", **more}


def test_a_comparison_becomes_a_row_of_a_batch() -> None:
    chunk = decoded(
        pair(id="1", time=5.0, winner="model_b", judge_winner="model_a", probability=0.25),
        {"model_a": "y", "model_b": "z", "judge_b": 0.75},
    )
    [batch] = chunk.batches
    assert (batch.models, batch.model.tolist(), batch.other.tolist()) == (("x", "y", "z"), [0, 1], [1, 2])
    assert batch.scores.tolist() == [[0.0], [0.75]]
    assert batch.label.tolist() == [2, -1]
    assert batch.key.tolist() == [int(id_keys(["1"])[0]), int(NO_ID)]
    np.testing.assert_array_equal(batch.probability, [0.25, np.nan])
    np.testing.assert_array_equal(batch.time, [5.0, np.nan])
    assert (chunk.answers, chunk.labels_received) == (2, 0)


@pytest.mark.parametrize(
    ("winner", "label"),
    [("model_a", 0), ("x", 0), ("tie", 1), ("tie (bothbad)", 1), ("y", 2), ("model_b", 2), (None, -1)],
)
def test_winners_may_be_named_by_side_or_by_model(winner: str | None, label: int) -> None:
    [batch] = decoded(pair(winner=winner, judge_winner=winner)).batches
    assert batch.label.tolist() == [label]
    share = {0: 0.0, 1: 0.5, 2: 1.0, -1: np.nan}[label]
    np.testing.assert_array_equal(batch.scores, [[share]])


def test_a_model_may_be_called_tie() -> None:
    [batch] = decoded({"model_a": "x", "model_b": "tie", "winner": "tie"}).batches
    assert batch.label.tolist() == [2]


def test_a_probability_of_the_judge_goes_before_its_winner() -> None:
    [batch] = decoded(pair(judge_winner="model_a", judge_b=0.6)).batches
    assert batch.scores.tolist() == [[0.6]]


def test_a_verdict_by_itself_becomes_a_label() -> None:
    chunk = decoded({"id": "1", "winner": "tie", "time": 3.0, "probability": 0.1})
    [labels] = chunk.labels
    assert (labels.task, labels.label.tolist(), labels.model.tolist()) == ("chat", [1], [-1])
    assert (labels.probability.tolist(), labels.time.tolist()) == ([0.1], [3.0])
    assert (chunk.answers, chunk.labels_received, chunk.batches) == (0, 1, ())


@pytest.mark.parametrize(
    ("record", "reason", "message", "answers"),
    [
        (pair(winner="z"), "unknown_class",
         '$.winner: expected model_a, model_b, tie or one of the two models\' names, got "z"', 1),
        (pair(judge_winner=1), "unknown_class",
         "$.judge_winner: expected model_a, model_b, tie or one of the two models' names, got 1", 1),
        ({"id": "1", "winner": "x"}, "unknown_class",
         '$.winner: expected model_a, model_b, tie, got "x"', 0),
        ({"winner": "tie"}, "no_id", "$.id: a verdict needs the id of its comparison, got none", 0),
        (pair(judge_b=1.5), "out_of_range", "$.judge_b: expected a number from 0 to 1, got 1.5", 1),
        (pair(judge_b="high"), "wrong_type", '$.judge_b: expected a number from 0 to 1, got "high"', 1),
        (pair(judge_b=True), "wrong_type", "$.judge_b: expected a number from 0 to 1, got true", 1),
        (pair(winner="x", probability=0), "out_of_range",
         "$.probability: expected a number above 0 and at most 1, got 0.0", 1),
        ({"model_a": "x", "model_b": "x"}, "no_model",
         '$.model_b: expected another model than model_a, got "x" twice', 1),
        ({"model_a": "x"}, "no_model", "$.model_b: expected the name of the model, got null", 1),
        ({"model_a": 3, "model_b": "x"}, "wrong_type", "$.model_a: expected a string, got 3", 1),
        ({"model_a": "x" * 600, "model_b": "x"}, "too_large",
         "$.model_a: expected at most 200 characters, got 600", 1),
        ({"model": "x", "scores": [0.5, 0.5]}, "no_model",
         "$.model_a: expected the name of the model, got null", 1),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said(record: dict[str, Any], reason: str, message: str, answers: int) -> None:
    chunk = decoded(record, pair())
    [reject] = chunk.rejects
    assert (reject.reason, reject.answers, reject.task) == (RejectReason(reason), answers, "chat")
    assert reject.message == message
    assert sum(map(len, chunk.batches)) == 1, "the good one beside it is used"
    assert chunk.answers == 1 + answers


def test_a_record_that_names_no_task_is_of_the_only_one_of_its_kind() -> None:
    chunk = decoded(
        pair(), {"model": "m", "scores": [0.5, 0.5]},
        {"id": "1", "winner": "tie"}, {"id": "2", "label": "ok"},
        layouts=(TOXICITY, ARENA),
    )  # fmt: skip
    assert [(b.task, b.order.tolist()) for b in chunk.batches] == [("toxicity", [1]), ("chat", [0])]
    assert [(b.task, b.order.tolist()) for b in chunk.labels] == [("toxicity", [3]), ("chat", [2])]
    other = TaskLayout("music", (), kind="arena")
    [reject] = decoded(pair(), layouts=(ARENA, other)).rejects
    assert reject.reason is RejectReason.NO_TASK


def test_without_an_arena_its_fields_are_passed_over_whatever_they_hold() -> None:
    record = {"model": "m", "scores": [0.5, 0.5], "winner": {"a": 1}, "model_a": 3, "judge_b": "?"}
    chunk = decoded(record, layouts=(TOXICITY,))
    assert (len(chunk.batches[0]), chunk.rejects) == (1, ())


def test_messages_and_tables_give_the_same_rows() -> None:
    records = [
        pair(id="1", winner="y", judge_b=0.25),
        pair(id="2", judge_winner="tie"),
        {"id": "2", "winner": "model_a", "probability": 0.5},
    ]
    decoder = Decoder([ARENA], "f")
    values = [json.dumps(record).encode() for record in records]
    names = sorted({name for record in records for name in record})
    columns = {name: [str(record.get(name, "")) for record in records] for name in names}
    ways = [
        decoder.decode([RawMessages(values, "t-0", [0, 1, 2])]),
        decoder.decode([RawTable(columns, "f.csv", 0)]),
    ]
    for chunk in ways:
        assert chunk.rejects == ()
        [batch], [labels] = chunk.batches, chunk.labels
        assert (batch.label.tolist(), batch.scores.ravel().tolist()) == ([2, -1], [0.25, 0.5])
        assert (labels.label.tolist(), labels.probability.tolist()) == ([0], [0.5])
