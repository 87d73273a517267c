"""CSV and Parquet files, and labelled reference files of every format, give the same rows as NDJSON."""

from __future__ import annotations

import contextlib
import csv
import datetime
import decimal
import gzip
import json
import sys
from functools import cache

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from connectors.files import FileSource
from connectors.formats.decode.decoder import Decoder
from connectors.formats.files.joining import join_batches
from connectors.formats.files.reference import read_reference
from connectors.formats.wires.mapped import MappedWire
from connectors.formats.wires.wire import PLAIN
from monitor.base.errors import ConfigError, MissingExtraError, SourceError
from monitor.base.records import Batch, Chunk, TaskLayout, text_codes
from monitor.base.source import EndOfSource, RawTable
from monitor.config.mapping import FieldMapping
from tests.bench.fuzz_decoder import check_chunk

LAYOUT = TaskLayout("toxicity", ("ok", "toxic"), groups=("region",))
BEGIN = datetime.datetime(2026, 11, 20, 10, tzinfo=datetime.UTC)


@cache
def rows() -> list[dict[str, object]]:
    """Return 20,000 rows as a table has them; gaps in some columns."""
    rng = np.random.default_rng(7)
    toxic = rng.random(20_000).round(4).tolist()
    return [
        {
            "id": f"r{i}" if i % 5 else None,
            "time": BEGIN + datetime.timedelta(seconds=i),
            "task": "toxicity",
            "model": "erm" if i % 3 else "irm",
            "label": ("ok", "toxic", None)[i % 3],
            "probability": 0.25 if i % 2 else None,
            "groups.region": "eu" if i % 2 else None,
            "scores.ok": 1 - p,
            "scores.toxic": p,
            "comment": "passed over",
        }
        for i, p in enumerate(toxic)
    ]


@pytest.mark.parametrize("name", ["t.csv", "t.parquet"])
def test_columns_of_features_are_read_as_the_task_says(tmp_path, name) -> None:
    layout = TaskLayout(
        "toxicity", ("ok", "toxic"), features=(("hour", "number"), ("origin", "text"), ("gate", "text"))
    )
    features = [
        {
            "features.hour": i + 0.5,
            "features.origin": ("JFK", "LGA")[i % 2],
            "features.gate": (7, None)[i % 2],
        }
        for i in range(4)
    ]
    write(
        tmp_path / name, [row | {"label": "ok"} | more for row, more in zip(rows(), features, strict=False)]
    )
    batch = read_reference(tmp_path / name, layout)
    jfk, lga, seven = text_codes(["JFK", "LGA", "7"]).tolist()
    wanted = [[0.5, jfk, seven], [1.5, lga, np.nan], [2.5, jfk, seven], [3.5, lga, np.nan]]
    np.testing.assert_array_equal(batch.features, wanted)


def as_record(row: dict[str, object]) -> dict[str, object]:
    record = {name: row[name] for name in ("id", "task", "model", "label", "probability")}
    record["time"] = row["time"].isoformat()
    record["scores"] = [row["scores.ok"], row["scores.toxic"]]
    record["groups"] = {"region": row["groups.region"]}
    return record


def write(path, table: list[dict[str, object]]) -> None:
    """Write rows in the format that the name says."""
    if path.suffix == ".csv":
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(table[0]))
            writer.writeheader()
            writer.writerows({**row, "time": row["time"].isoformat()} for row in table)
    elif path.suffix == ".parquet":
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(table), path, row_group_size=3000)
    else:
        data = b"".join(json.dumps(as_record(row)).encode() + b"\n" for row in table)
        path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)


def chunks_of(path, positions=None, layout: TaskLayout = LAYOUT) -> list[Chunk]:
    source = FileSource(path)
    source.open(positions or {})
    decoder = Decoder([layout], source.name)
    chunks = []
    with contextlib.closing(source), contextlib.suppress(EndOfSource):
        while True:
            chunks.append(decoder.decode(source.read(0.0)))
            check_chunk(chunks[-1])
    return chunks


def joined(chunks: list[Chunk]) -> Batch:
    return join_batches([batch for chunk in chunks for batch in chunk.batches])


def assert_same(one: Batch, other: Batch) -> None:
    for name in ("scores", "predicted", "model", "version", "time", "key", "label", "probability"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)
    assert one.models == other.models
    assert one.groups["region"][0] == other.groups["region"][0]
    np.testing.assert_array_equal(one.groups["region"][1], other.groups["region"][1])


@pytest.fixture(scope="module")
def lines_batch(tmp_path_factory) -> Batch:
    """Return all rows out of lines."""
    path = tmp_path_factory.mktemp("lines") / "p.ndjson"
    write(path, rows())
    return joined(chunks_of(path))


@pytest.mark.slow
@pytest.mark.parametrize("kind", [".csv", ".parquet"])
def test_a_table_gives_the_rows_that_lines_give(tmp_path, kind, lines_batch):
    write(tmp_path / f"p{kind}", rows())
    chunks = chunks_of(tmp_path / f"p{kind}")
    assert len(chunks) >= 3
    assert all(chunk.rejects == () for chunk in chunks)
    assert_same(joined(chunks), lines_batch)
    np.testing.assert_array_equal(joined(chunks).position, np.arange(20_000))


@pytest.mark.slow
@pytest.mark.parametrize("kind", [".csv", ".parquet"])
def test_a_table_is_read_on_from_any_row(tmp_path, kind):
    path = tmp_path / f"p{kind}"
    write(path, rows()[:10_000])
    for start in (1, 2999, 3000, 8192, 9999):
        joined_rows = joined(chunks_of(path, {str(path): start}))
        np.testing.assert_array_equal(joined_rows.position, np.arange(start, 10_000))
    assert chunks_of(path, {str(path): 10_000}) == []
    assert chunks_of(path)[-1].positions == {str(path): 10_000}


def test_parquet_may_hold_scores_as_lists_and_types_of_its_own(tmp_path):
    path = tmp_path / "p.parquet"
    table = {
        "id": [1, 2, 3],
        "time": pyarrow.array([1.0, 2.0, None]),
        "model": pyarrow.array(["erm", "erm", "irm"]).dictionary_encode(),
        "scores": [[0.25, 0.75], [0.5, 0.5], None],
        "label": pyarrow.array([0.0, 1.0, None]),
        "version": pyarrow.array([datetime.date(2026, 11, 20)] * 3),
    }
    pyarrow.parquet.write_table(pyarrow.table(table), path)
    [chunk] = chunks_of(path, layout=TaskLayout("t", ("0", "1")))
    [batch] = chunk.batches
    assert batch.scores.tolist() == [[0.25, 0.75], [0.5, 0.5]]
    assert (batch.label.tolist(), batch.time.tolist()) == ([0, 1], [1.0, 2.0])
    assert batch.versions == ("2026-11-20",)
    assert [r.message for r in chunk.rejects] == [
        "$.scores: expected a probability for each class (0, 1), got none"
    ]


def test_a_parquet_time_without_a_zone_is_refused(tmp_path):
    path = tmp_path / "p.parquet"
    table = {"model": ["erm"], "time": [datetime.datetime(2026, 11, 20, 10)], "scores": [[0.5, 0.5]]}
    pyarrow.parquet.write_table(pyarrow.table(table), path)
    [reject] = chunks_of(path)[0].rejects
    assert reject.message == '$.time: "2026-11-20T10:00:00" has no offset from UTC; end it in Z or in +01:00'
    assert json.loads(reject.raw) == {"model": "erm", "time": "2026-11-20T10:00:00", "scores": [0.5, 0.5]}


def csv_chunk(tmp_path, text: str | bytes, layout: TaskLayout = LAYOUT) -> Chunk:
    path = tmp_path / "p.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    [chunk] = chunks_of(path, layout=layout)
    return chunk


def test_each_wrong_row_of_a_csv_file_is_told_what_is_wrong(tmp_path):
    chunk = csv_chunk(
        tmp_path,
        b"\xef\xbb\xbfmodel,label,scores.ok,scores.toxic,time\n"
        b"erm,ok,0.5,0.5,\n"
        b"erm,ok,half,0.5,\n"
        b"erm,ok,0.5,0.5,5,6\n"
        b"erm,ok,0.5\n"
        b"\n"
        b"erm,ok,0.5,nan,\n"
        b"\xff,ok,0.5,0.5,\n"
        b'"erm,ok,0.5,0.5,\n' + b"x" * 140_000 + b"\n"
        b"erm,ok,0.5,0.5,1763632800120\n"
        b"erm,toxic,0.25,0.75,2026-11-20T10:00:00Z\n",
    )
    assert [(r.reason.value, r.message, r.position) for r in chunk.rejects] == [
        ("wrong_type", '$.scores.ok: expected a number from 0 to 1, got "half"', 1),
        ("malformed", "$: expected 5 cells, got 6", 2),
        (
            "wrong_length",
            "$.scores: expected a probability for each class (ok, toxic), got none for toxic",
            3,
        ),
        ("not_a_number", "$.scores.toxic: expected a number from 0 to 1, got NaN", 4),
        ("encoding", "$.model: not UTF-8; send UTF-8", 5),
        ("malformed", "$: in line 9 a quote opens a cell that does not end before the file does", 6),
        ("no_scores", "$.scores: expected a probability for each class (ok, toxic), got none", 7),
        (
            "time_unit",
            "$.time: 1763632800120 can only be milliseconds since the epoch; send seconds: 1763632800.120",
            8,
        ),
    ]
    assert chunk.batches[0].position.tolist() == [0, 9]


def test_a_csv_row_without_end_is_cut_in_bounded_memory(tmp_path):
    text = "model,scores.ok,scores.toxic\n" + "x," * 2_000_000 + "\nerm,0.5,0.5\n"
    chunk = csv_chunk(tmp_path, text)
    [reject] = chunk.rejects
    assert reject.message == "$: a row of more than 1048576 characters; send one record a row"
    assert len(chunk.batches[0]) == 1


def test_csv_columns_for_confidences_and_right_or_wrong(tmp_path):
    text = "id,model,confidence,correct\na,eta,0.9,TRUE\nb,eta,0.8,0\nc,eta,0.7,\nd,eta,0.7,maybe\n"
    chunk = csv_chunk(tmp_path, text, TaskLayout("arrival", ()))
    [batch], [reject] = chunk.batches, chunk.rejects
    assert (batch.scores[:, 0].tolist(), batch.label.tolist()) == (
        [0.9, 0.8, 0.7, 0.7],
        [0, 1, -1, -1],
    )
    assert reject.along
    assert reject.message == '$.correct: expected true or false, got "maybe"'


def test_one_csv_column_of_scores_may_hold_a_number_or_a_list(tmp_path):
    [batch] = csv_chunk(tmp_path, 'model,scores\nerm,0.75\nerm,"[0.25, 0.75]"\n').batches
    assert batch.scores.tolist() == [[0.25, 0.75], [0.25, 0.75]]


@pytest.mark.parametrize(
    ("text", "why"), [("", "it is empty"), ("id,model,id\n", "two columns are called id; rename one")]
)
def test_a_csv_file_must_name_its_columns(tmp_path, text, why):
    (tmp_path / "p.csv").write_text(text)
    with pytest.raises(SourceError, match=f"the first line of a CSV file must name its columns, but {why}"):
        chunks_of(tmp_path / "p.csv")


def test_what_is_no_parquet_is_an_error_and_so_is_a_missing_package(tmp_path, monkeypatch):
    path = tmp_path / "p.parquet"
    path.write_bytes(b"no table")
    with pytest.raises(SourceError, match=r"p\.parquet cannot be read as Parquet: "):
        chunks_of(path)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingExtraError, match="Reading Parquet files needs an optional package"):
        chunks_of(path)


@pytest.mark.parametrize("name", ["t.csv", "t.parquet"])
@pytest.mark.parametrize("mapping", [None, {"model": "model"}, {"constants": {"model": "erm"}}])
def test_a_row_of_a_model_without_scores_is_an_answer_without_them(tmp_path, name, mapping):
    scored = {"id": "a", "model": "erm", "scores.ok": 0.25, "scores.toxic": 0.75, "label": "toxic"}
    failed = dict.fromkeys(("scores.ok", "scores.toxic"))
    table = [{**scored, **failed, "id": "b"}, scored, {**scored, **failed, "id": None}]
    label_alone = {**scored, **failed, "id": "c", "model": None}
    write(tmp_path / name, [{"time": BEGIN, **row} for row in [*table, label_alone]])
    wire = PLAIN
    if mapping is not None:
        classes = {each: f'["scores.{each}"]' for each in ("ok", "toxic")}
        wire = MappedWire(
            FieldMapping.model_validate({"id": "id", "class_scores": classes, "label": "label", **mapping})
        )
    source = FileSource(tmp_path / name, mapped=wire.columns if mapping else ())
    source.open({})
    chunk = Decoder([LAYOUT], "t", wire=wire).decode(source.read(0.0))
    source.close()
    check_chunk(chunk)
    assert [len(batch) for batch in chunk.batches] == [1]
    # A model that the mapping gives to every row does not make an answer of a row with a label alone.
    constant = mapping is not None and "constants" in mapping
    assert [reject.position for reject in chunk.rejects] == ([2] if constant else [0, 2])
    message = "$.scores: expected a probability for each class (ok, toxic), got none"
    assert {(reject.answers, reject.message.partition(";")[0]) for reject in chunk.rejects} == {(1, message)}
    assert sum(map(len, chunk.labels)) == (2 if constant else 1)


def test_a_parquet_file_of_which_nothing_can_be_used_is_refused(tmp_path):
    path = tmp_path / "p.parquet"
    pyarrow.parquet.write_table(pyarrow.table({"p_ok": [0.5], "net": ["erm"]}), path)
    with pytest.raises(SourceError) as unknown:
        chunks_of(path)
    assert str(unknown.value) == (
        f"{path}: none of its columns is known (p_ok, net); name them as docs/records.md says"
    )
    twice = pyarrow.Table.from_arrays([pyarrow.array([0.5])] * 2, names=["scores", "scores"])
    pyarrow.parquet.write_table(twice, path)
    with pytest.raises(SourceError) as alike:
        chunks_of(path)
    assert str(alike.value) == f"{path}: two columns are called scores; rename one, or leave it out"


@pytest.mark.parametrize(
    ("times", "settings"),
    [
        ([BEGIN.replace(tzinfo=None)], {"time_zone": "UTC"}),
        ([BEGIN.replace(tzinfo=None) + datetime.timedelta(hours=1)], {"time_zone": "Europe/Berlin"}),
        ([BEGIN], {"time_zone": "Europe/Berlin"}),
        ([decimal.Decimal(int(BEGIN.timestamp() * 1000))], {"time_unit": "milliseconds"}),
    ],
)
def test_a_mapping_says_how_the_times_of_a_parquet_file_are_read(tmp_path, times, settings):
    path = tmp_path / "p.parquet"
    pyarrow.parquet.write_table(pyarrow.table({"t": times, "p": [0.5], "m": ["erm"]}), path)
    wire = MappedWire(FieldMapping(time="t", scores="p", model="m", **settings))
    source = FileSource(path, mapped=wire.columns)
    source.open({})
    chunk = Decoder([LAYOUT], source.name, wire=wire).decode(source.read(0.0))
    assert chunk.rejects == ()
    assert chunk.batches[0].time.tolist() == [BEGIN.timestamp()]


def test_a_mapping_refuses_times_that_are_true_or_false():
    wire = MappedWire(FieldMapping(time="t", time_unit="milliseconds", scores="p", model="m"))
    raw = RawTable({"t": [False, True], "p": [0.5, 0.5], "m": ["erm", "erm"]}, "p", 0)
    chunk = Decoder([LAYOUT], "test", wire=wire).decode([raw])
    assert [reject.reason.value for reject in chunk.rejects] == ["wrong_type"] * 2


def test_a_table_of_unknown_columns_is_rows_of_nothing():
    raw = RawTable({"x": [1, 2]}, "p", 0)
    chunk = Decoder([LAYOUT], "test").decode([raw])
    check_chunk(chunk)
    assert ([r.reason.value for r in chunk.rejects], chunk.positions) == (["no_scores"] * 2, {"p": 2})


@pytest.mark.parametrize("kind", [".ndjson", ".ndjson.gz", ".csv", ".parquet"])
def test_a_reference_is_its_labelled_rows_in_order_of_time(tmp_path, kind):
    table = rows()[:6000]
    shuffled = [table[i] for i in np.random.default_rng(1).permutation(len(table))]
    path = tmp_path / f"reference{kind}"
    write(path, shuffled)
    batch = read_reference(path, LAYOUT)
    labelled = [row for row in table if row["label"] is not None]
    assert [batch.models[i] for i in batch.model] == [row["model"] for row in labelled]
    assert [LAYOUT.classes[i] for i in batch.label] == [row["label"] for row in labelled]
    np.testing.assert_array_equal(batch.scores[:, 1], [row["scores.toxic"] for row in labelled])
    np.testing.assert_array_equal(batch.time, [row["time"].timestamp() for row in labelled])
    np.testing.assert_array_equal(batch.order, np.arange(len(labelled)))
    for name in ("key", "partition", "position", "probability", "other", "request", "alone"):
        column = getattr(batch, name)
        assert (len(column), column.strides) == (len(labelled), (0,)), f"{name} takes memory"


def test_reference_rows_without_a_time_stay_behind_the_row_before_them(tmp_path):
    path = tmp_path / "reference.ndjson"
    times = [None, 50, None, 20, None, "1970-01-01T00:02:00Z", None]
    path.write_bytes(
        b"".join(
            json.dumps({"model": "erm", "scores": i / 10, "label": "ok"}
                       | ({} if time is None else {"time": time})).encode() + b"\n"
            for i, time in enumerate(times)
        )
    )  # fmt: skip
    batch = read_reference(path, LAYOUT)
    assert batch.scores[:, 1].tolist() == [0.0, 0.3, 0.1, 0.2, 0.4, 0.5, 0.6]
    assert batch.time.tolist() == [0.0, 20.0, 50.0, 50.0, 50.0, 120.0, 120.0]


def test_a_reference_without_any_time_is_in_the_order_of_the_file(tmp_path):
    path = tmp_path / "reference.csv"
    path.write_text("model,label,scores\n" + "".join(f"erm,ok,{i / 20_000}\n" for i in range(20_000)))
    batch = read_reference(path, LAYOUT)
    np.testing.assert_array_equal(batch.scores[:, 1], np.arange(20_000) / 20_000)
    assert batch.time.tolist() == [0.0] * 20_000


@pytest.mark.parametrize("ids", [True, False])
def test_a_reference_record_of_several_models_gives_its_label_to_each(tmp_path, ids):
    path = tmp_path / "reference.ndjson"
    records = [
        {"models": {"erm": 0.25, "irm": 0.5}, "label": "toxic"},
        {"models": {"irm": 0.75, "erm": 0.5}},
        {"models": {"erm": 0.25, "irm": 0.5}, "label": "ok"},
    ]
    named = [{"id": "same"} | record if ids else record for record in records]
    path.write_text("".join(json.dumps(record) + "\n" for record in named))
    batch = read_reference(path, LAYOUT)
    assert [batch.models[i] for i in batch.model] == ["erm", "irm", "erm", "irm"]
    assert batch.label.tolist() == [1, 1, 0, 0]


def test_a_reference_may_be_shared_with_other_tasks(tmp_path):
    path = tmp_path / "reference.ndjson"
    mine = {"task": "toxicity", "model": "erm", "scores": [0.5, 0.5], "label": "ok"}
    other = {"task": "topic", "model": "erm", "scores": [1.0], "label": "a"}
    path.write_text("".join(json.dumps(r) + "\n" for r in (mine, other, mine)))
    assert len(read_reference(path, LAYOUT)) == 2


def test_what_is_wrong_in_a_reference_is_said_with_its_line(tmp_path):
    path = tmp_path / "reference.ndjson"
    good = '{"model": "erm", "scores": [0.5, 0.5], "label": "ok"}\n'
    bad = '{"model": "erm", "scores": [0.5, 0.6], "label": "ok"}\n'
    path.write_text(good * 30_000 + bad + good * 2 + "{\n" + bad * 3)
    with pytest.raises(ConfigError) as caught:
        read_reference(path, LAYOUT)
    wrong_sum = "$.scores: expected probabilities that sum to 1 within 0.001, got a sum of 1.1"
    expected = (
        f"{path}: 5 rows of the reference cannot be used: line 30001: {wrong_sum}; line 30004: $: not JSON "
        "at character 1: Expecting property name enclosed in double quotes; "
        "send one whole JSON object a line; "
        f"line 30005: {wrong_sum}; and 2 more"
    )
    assert str(caught.value) == expected


def test_what_is_wrong_in_a_reference_table_is_said_with_its_row(tmp_path):
    path = tmp_path / "reference.csv"
    path.write_text("model,label,scores.ok,scores.toxic\nerm,ok,0.5,0.5\nerm,okay,0.5,0.5\n")
    with pytest.raises(ConfigError) as caught:
        read_reference(path, LAYOUT)
    expected = (
        f"{path}: 1 row of the reference cannot be used: row 2: "
        '$.label: task toxicity has no class "okay"; its classes are ok, toxic; did you mean ok?'
    )
    assert str(caught.value) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no row of task toxicity has a label; a reference file needs label on every line"),
        ('{"model": "erm", "scores": [0.5, 0.5]}\n', "no row of task toxicity has a label"),
        ('{"id": "a", "label": "ok"}\n', "1 lines have a label and no scores"),
    ],
)
def test_a_reference_without_labelled_scores_is_refused(tmp_path, text, message):
    path = tmp_path / "reference.ndjson"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message):
        read_reference(path, LAYOUT)


def test_a_missing_reference_is_refused(tmp_path):
    expected = rf"^tasks\.toxicity\.reference\.path: There is no file {tmp_path}/none\.csv; correct the path$"
    with pytest.raises(ConfigError, match=expected):
        read_reference(tmp_path / "none.csv", LAYOUT)


@pytest.mark.parametrize("column", ["model", "version", "groups.region"])
def test_a_name_in_a_table_has_at_most_200_characters(column):
    table = {"id": ["a", "b"], "model": ["erm", "erm"], "scores.ok": [0.5, 0.5], "scores.toxic": [0.5, 0.5]}
    table[column] = ["n" * 200, "n" * 201]
    chunk = Decoder([LAYOUT], "files").decode([RawTable(table, "a.parquet", 0)])
    assert sum(map(len, chunk.batches)) == 1
    [reject] = chunk.rejects
    assert reject.reason == "too_large"
    assert reject.message.endswith("expected at most 200 characters, got 201")


def test_bytes_that_are_no_utf_8_cost_their_row_in_a_column_of_bytes(tmp_path):
    ids = [b"a", b"\xfcb", b"c"]
    table = pyarrow.table({"id": ids, "model": [b"m"] * 3, "scores": [[0.25, 0.75]] * 3})
    pyarrow.parquet.write_table(table, tmp_path / "t.parquet")
    (chunk,) = chunks_of(tmp_path / "t.parquet")
    assert [(r.position, r.message) for r in chunk.rejects] == [(1, "$.id: not UTF-8; send UTF-8")]
    assert (len(chunk.batches[0]), chunk.batches[0].models) == (2, ("m",))


def test_lists_of_half_floats_are_read(tmp_path):
    scores = pyarrow.array([[np.float16(0.25), np.float16(0.75)]] * 2, pyarrow.list_(pyarrow.float16()))
    pyarrow.parquet.write_table(pyarrow.table({"model": ["m"] * 2, "scores": scores}), tmp_path / "t.parquet")
    (chunk,) = chunks_of(tmp_path / "t.parquet")
    assert chunk.batches[0].scores.tolist() == [[0.25, 0.75]] * 2
