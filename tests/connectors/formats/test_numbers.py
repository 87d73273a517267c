"""Records with predicted numbers: JSON lines, tables and mappings, and the reasons of those not used."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow.parquet
import pytest

from connectors.formats.decode.decoder import Decoder
from connectors.formats.files.reference import read_reference
from connectors.formats.messages.wording import without_values
from connectors.formats.wires.choice import compiled
from monitor.base.errors import ConfigError
from monitor.base.records import Chunk, RejectReason, TaskLayout
from monitor.base.source import RawMessages, RawTable
from monitor.config.mapping import FieldMapping

DELAY = TaskLayout("delay", (), kind="regression", numeric=True, quantiles=(0.05, 0.95))
MODEL = {"id": "a", "model": "gbm"}


def decoded(*records: dict[str, Any] | bytes, layouts: tuple[TaskLayout, ...] = (DELAY,)) -> Chunk:
    values = [each if isinstance(each, bytes) else msgspec.json.encode(each) for each in records]
    return Decoder(layouts, "s").decode([RawMessages(values, "p", list(range(len(values))))])


def test_an_answer_has_its_number_its_spread_and_its_label() -> None:
    spread = {"sigma": 2, "quantiles": {"0.05": -3.5, "0.95": 4}}
    chunk = decoded(
        MODEL | {"prediction": 12.5, "label": -7} | spread,
        MODEL | {"id": "b", "prediction": 3},
        {"id": "b", "label": 4.5},
    )
    [batch], [labels] = chunk.batches, chunk.labels
    assert not chunk.rejects
    np.testing.assert_array_equal(batch.numbers, [[12.5, -7], [3, np.nan]])
    np.testing.assert_array_equal(batch.scores, [[2, -3.5, 4], [np.nan] * 3])
    assert batch.label.tolist() == [0, -1]
    assert (labels.numbers.tolist(), labels.label.tolist(), labels.model.tolist()) == ([[4.5]], [0], [-1])
    assert (chunk.answers, chunk.labels_received) == (2, 1)


def test_a_record_of_several_models_has_a_number_for_each() -> None:
    [batch] = decoded({"id": "a", "models": {"gbm": 3.5, "net": 4}, "label": 5}).batches
    np.testing.assert_array_equal(batch.numbers, [[3.5, 5], [4, 5]])
    assert batch.label.tolist() == [0, -1]  # the join gives it to the other one


@pytest.mark.parametrize(
    ("fields", "reason", "message"),
    [
        ({}, "no_scores", "$.prediction: missing; task delay needs prediction, the predicted number"),
        ({"prediction": True}, "wrong_type", "$.prediction: expected a number, got true"),
        (
            {"prediction": "12,5"},
            "wrong_type",
            '$.prediction: expected a number, got "12,5"; this is a decimal comma: write 12.5',
        ),
        ({"prediction": "late"}, "wrong_type", '$.prediction: expected a number, got "late"'),
        (
            {"prediction": 1e200},
            "out_of_range",
            "$.prediction: expected a number from -1e100 to 1e100, got 1e+200",
        ),
        ({"prediction": 1, "sigma": 0}, "out_of_range", "$.sigma: expected a number above 0, got 0"),
        (
            {"prediction": 1, "quantiles": {"0.05": 1}},
            "wrong_length",
            "$.quantiles: expected the levels 0.05, 0.95, got none for 0.95",
        ),
        (
            {"prediction": 1, "quantiles": {"0.05": 2, "0.95": 1}},
            "out_of_range",
            "$.quantiles: expected quantiles that do not decrease with their levels",
        ),
        (
            {"prediction": 1, "quantiles": [1, 2]},
            "wrong_type",
            "$.quantiles: expected an object with the levels 0.05, 0.95, got an array",
        ),
    ],
)
def test_a_number_that_cannot_be_used_is_rejected(fields: dict[str, Any], reason: str, message: str) -> None:
    chunk = decoded(MODEL | fields)
    [reject] = chunk.rejects
    assert (reject.reason, reject.answers, chunk.answers) == (RejectReason(reason), 1, 1)
    assert reject.message.startswith(message)


def test_numbers_that_are_not_finite_are_rejected() -> None:
    chunk = decoded(b'{"model": "gbm", "prediction": NaN}', b'{"model": "gbm", "prediction": 1e999}')
    assert [reject.reason for reject in chunk.rejects] == [
        RejectReason.NOT_A_NUMBER,
        RejectReason.OUT_OF_RANGE,
    ]


def test_a_wrong_label_costs_the_label_and_not_its_answer() -> None:
    chunk = decoded(MODEL | {"prediction": 3, "label": "late"}, {"id": "b", "label": "late"})
    [batch] = chunk.batches
    assert (len(batch), batch.label.tolist(), chunk.labels) == (1, [-1], ())
    assert [(reject.along, reject.answers) for reject in chunk.rejects] == [(True, 0), (False, 0)]
    assert chunk.rejects[1].message == '$.label: expected a number, got "late"'


def test_beside_a_task_of_confidences_each_reads_a_label_with_a_prediction_as_its_own() -> None:
    digits = TaskLayout("digits", (), models=("ocr",))
    record = {"id": "a", "prediction": 5, "label": 5}
    chunk = decoded(
        record | {"task": "digits", "model": "ocr"},
        record | {"task": "delay", "model": "gbm"},
        layouts=(digits, DELAY),
    )
    [batch], [labels] = chunk.batches, chunk.labels
    assert (batch.task, labels.task, labels.label.tolist()) == ("delay", "digits", [0])
    assert (chunk.answers, chunk.labels_received) == (1, 1)


CLASSES = TaskLayout("digits", ("0", "1"), models=("ocr",))
"""A task of classes beside the task of numbers, which lists a model."""


@pytest.mark.parametrize(
    ("record", "task"),
    [
        ({"model": "gbm", "prediction": 12.5}, "delay"),
        ({"model": "gbm", "prediction": 12.5, "label": 14}, "delay"),
        ({"model": "gbm", "prediction": "12.5"}, "delay"),
        ({"models": {"gbm": 3.5, "net": 4}}, "delay"),
        ({"model": "gbm", "prediction": 3, "sigma": 2.0}, "delay"),
        ({"model": "gbm", "scores": [0.3, 0.7], "prediction": 1}, "digits"),
        ({"models": {"gbm": [0.3, 0.7]}}, "digits"),
        ({"model": "ocr", "prediction": 1, "label": 1}, "digits"),
        ({"model": "gbm", "prediction": True, "label": "1"}, "digits"),
        ({"label": "1"}, "digits"),
    ],
)
def test_a_record_that_names_no_task_belongs_to_the_task_of_its_fields(
    record: dict[str, Any], task: str
) -> None:
    chunk = decoded({"id": "a"} | record, layouts=(CLASSES, DELAY))
    assert {each.task for each in (*chunk.batches, *chunk.labels)} == {task}, chunk.rejects


def test_a_model_that_a_task_of_numbers_lists_belongs_to_it() -> None:
    delay = TaskLayout("delay", (), models=("gbm",), kind="regression", numeric=True)
    chunk = decoded({"id": "a", "model": "gbm", "label": 4}, layouts=(CLASSES, delay))
    assert [labels.task for labels in chunk.labels] == ["delay"]


def test_a_number_for_one_of_several_tasks_of_numbers_needs_the_task_or_a_listed_model() -> None:
    price = TaskLayout("price", (), models=("net",), kind="regression", numeric=True)
    rows = (MODEL | {"prediction": 3.5}, MODEL | {"model": "net", "prediction": 3.5})
    chunk = decoded(*rows, layouts=(CLASSES, DELAY, price))
    assert [batch.task for batch in chunk.batches] == ["price"]
    [reject] = chunk.rejects
    assert (reject.reason, reject.message) == (
        RejectReason.NO_TASK,
        "$.task: several tasks are configured (digits, delay, price) and the record names none; name one, or "
        "list the model under one task's models",
    )


def test_a_table_has_a_column_for_each_field() -> None:
    columns: dict[str, list[object]] = {
        "id": ["a", "b"],
        "model": ["gbm", "gbm"],
        "prediction": ["12.5", "3"],
        "sigma": ["2", ""],
        "quantiles.0.05": ["-3.5", ""],
        "quantiles.0.95": ["4", ""],
        "label": ["13", ""],
    }
    [batch] = Decoder([DELAY], "s").decode([RawTable(columns, "p.csv", 0)]).batches
    np.testing.assert_array_equal(batch.numbers, [[12.5, 13], [3, np.nan]])
    np.testing.assert_array_equal(batch.scores, [[2, -3.5, 4], [np.nan] * 3])


def test_a_message_without_values_names_the_decimal_comma_alone() -> None:
    with without_values():
        [reject] = decoded(MODEL | {"prediction": "12,5"}).rejects
    assert reject.message == (
        "$.prediction: expected a number, got text of 4 characters; this is a decimal comma: write a point"
    )


@pytest.mark.parametrize("missing", [b"NaN", b'"NA"', b'""', b'"NaN"', b"null"])
def test_a_missing_value_is_no_spread(missing: bytes) -> None:
    records = (
        b'{"model": "gbm", "prediction": 1, "sigma": ' + missing + b"}",
        b'{"model": "gbm", "prediction": 1, "quantiles": {"0.05": %b, "0.95": %b}}' % (missing, missing),
    )
    chunk = decoded(*records)
    assert not chunk.rejects
    assert all(np.isnan(batch.scores).all() for batch in chunk.batches)
    [reject] = decoded(records[1].replace(missing, b"1", 1)).rejects  # one quantile alone
    assert reject.message == "$.quantiles: expected the levels 0.05, 0.95, got none for 0.95"


def test_a_column_of_quantiles_in_a_table_holds_objects(tmp_path: Path) -> None:
    quantiles = [{"0.05": -3.5, "0.95": 4.0}, {"0.05": None, "0.95": None}, None]
    table = {"model": ["gbm"] * 3, "prediction": [1.0] * 3, "quantiles": quantiles, "label": [2.0] * 3}
    path = tmp_path / "in.parquet"
    pyarrow.parquet.write_table(pyarrow.table(table), path)
    batch = read_reference(path, DELAY)
    np.testing.assert_array_equal(batch.scores, [[np.nan, -3.5, 4], [np.nan] * 3, [np.nan] * 3])
    texts: dict[str, list[object]] = {"model": ["gbm"], "prediction": ["1"], "quantiles": ['{"0.05": 1}']}
    [reject] = Decoder([DELAY], "s").decode([RawTable(texts, "p.csv", 0)]).rejects
    assert reject.message == "$.quantiles: expected the levels 0.05, 0.95, got none for 0.95"


def test_a_reference_with_labels_alone_is_refused_by_the_field_that_it_lacks(tmp_path: Path) -> None:
    path = tmp_path / "reference.ndjson"
    path.write_bytes(b'{"id": "a", "label": 3}\n')
    with pytest.raises(
        ConfigError, match="1 lines have a label and no prediction; a reference file needs both"
    ):
        read_reference(path, DELAY)


@pytest.mark.parametrize("as_table", [False, True])
def test_a_mapping_names_the_place_of_each_field(as_table: bool) -> None:
    mapping = FieldMapping(
        id="key",
        model="name",
        prediction="out.mean",
        sigma="out.std",
        quantiles={0.05: "out.low", 0.95: "out.high"},  # type: ignore[dict-item]
        label="truth",
    )
    out = {"mean": 12.5, "std": 2, "low": -3.5, "high": 4}
    decoder = Decoder([DELAY], "s", wire=compiled(mapping))
    record = {"key": "a", "name": "gbm", "out": out, "truth": 13}
    raw: Any = RawMessages([msgspec.json.encode(record)], "p", [0])
    if as_table:
        raw = RawTable({name: [value] for name, value in record.items()}, "p.csv", 0)
    [batch] = decoder.decode([raw]).batches
    assert (batch.numbers.tolist(), batch.scores.tolist()) == ([[12.5, 13]], [[2, -3.5, 4]])
