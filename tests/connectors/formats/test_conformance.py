"""The same value has the same outcome and the same reason in every format and every column."""

from __future__ import annotations

import csv
import io
import json
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from connectors.files import FileSource
from connectors.formats.decode.decoder import Decoder
from connectors.http.body import lines_of
from connectors.sql.source import SqlSource
from monitor.base.records import Chunk, TaskLayout
from monitor.base.source import Raw, RawBlock, RawMessages
from monitor.config.sql import SqlSourceConfig
from tests.bench.fuzz_decoder import check_chunk

FEATURES = (("hour", "number"), ("origin", "text"))
LAYOUTS = {
    "names": TaskLayout("names", ("ok", "toxic"), groups=("region",), features=FEATURES),
    "numbers": TaskLayout("numbers", ("0", "1")),
    "sure": TaskLayout("sure", ()),
}
NAN, ENDLESS = float("nan"), float("inf")
CP1252 = "M\udcfcnchen"
"""A text with a byte that is no UTF-8."""

Row = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """A value in a column, what becomes of its row, and another value of its type.

    Parameters
    ----------
    column : str
    value : object
    outcome : str
        "used", the reason of the row, or of its label alone, "label: " before it.
    beside : object, optional
        A right value of the type of this one, for the rows beside; without it they have none.
    task : str
    without : tuple of str
        Formats that have no such value.
    """

    column: str
    value: Any
    outcome: str
    beside: Any = None
    task: str = "names"
    without: tuple[str, ...] = ()

    @property
    def rows(self) -> list[Row]:
        """Three rows, of which the second has the value."""
        scores: Row = {"confidence": 0.5} if self.task == "sure" else {"scores": 0.75}
        good = {"model": "erm", **scores, self.column: self.beside}
        rows = [{"id": name, **good} for name in ("a", "b", "c")]
        if self.column == "id":
            rows = [{**good, "id": None} for _ in range(3)]
        if self.column == "probability":
            rows = [{**row, "label": "ok"} for row in rows]
        rows[1][self.column] = self.value
        return rows


CASES = [
    Case("id", "r-1", "used"),
    Case("id", 81, "used"),
    Case("id", 81.0, "used"),
    Case("id", 2.0**60, "bad_id"),
    Case("id", "x" * 513, "bad_id"),
    Case("id", CP1252, "encoding"),
    Case("id", "NULL", "used"),
    Case("id", NAN, "used", 1.0, without=("sqlite",)),
    Case("id", ENDLESS, "not_a_number", 1.0, without=("csv",)),
    Case("time", "2026-11-20T10:00:00Z", "used"),
    Case("time", "2026-11-20 10:00:00+00", "used"),
    Case("time", "2026-11-20 10:00:00.5+0000", "used"),
    Case("time", "2026-11-20 10:00:00 UTC", "used"),
    Case("time", "2026-11-20 10:00:00 +0000", "used"),
    Case("time", 1_763_632_800.5, "used"),
    Case("time", 45_981.5, "time_unit"),
    Case("time", 1_763_632_800_000, "time_unit"),
    Case("time", -1.0, "bad_time"),
    Case("time", NAN, "not_a_number", without=("sqlite",)),
    Case("time", ENDLESS, "not_a_number"),
    Case("time", "10000-01-01T00:00:00Z", "time_format"),
    Case("time", "noon", "time_format"),
    Case("time", CP1252, "encoding"),
    Case("model", CP1252, "encoding", "erm"),
    Case("model", "x" * 201, "too_large", "erm"),
    Case("version", "7", "used"),
    Case("version", CP1252, "encoding"),
    Case("task", "nmaes", "unknown_task"),
    Case("task", CP1252, "encoding"),
    Case("scores", NAN, "not_a_number", 0.5, without=("sqlite",)),
    Case("scores", ENDLESS, "not_a_number", 0.5),
    Case("scores", 1.7, "out_of_range", 0.5),
    Case("scores", -0.5, "logits", 0.5),
    Case("scores", [0.25, 0.75], "used", [0.5, 0.5]),
    Case("scores", [0.5], "wrong_length", [0.5, 0.5]),
    Case("scores", [NAN, 1.0], "not_a_number", [0.5, 0.5]),
    Case("scores", [0.5, 0.6], "wrong_sum", [0.5, 0.5]),
    Case("scores", {"ok": 0.25, "toxic": 0.75}, "used", {"ok": 0.5, "toxic": 0.5}),
    Case("scores", {"ok": 0.25, "toxic": NAN}, "not_a_number", {"ok": 0.5, "toxic": 0.5}),
    Case(  # a struct has the same names in each row
        "scores",
        {"ok": 0.25, "no": 0.75},
        "unknown_class",
        {"ok": 0.5, "toxic": 0.5},
        without=("parquet",),
    ),
    Case("confidence", 1.7, "out_of_range", 0.5, "sure"),
    Case("confidence", NAN, "not_a_number", 0.5, "sure", without=("sqlite",)),
    Case("prediction", "toxic", "used"),
    Case("prediction", "Toxic", "unknown_class"),
    Case("prediction", CP1252, "encoding"),
    Case("prediction", 1.0, "used", task="numbers"),
    Case("prediction", NAN, "not_a_number", 1.0, "numbers", without=("sqlite",)),
    Case("label", "toxic", "used"),
    Case("label", "NULL", "used"),
    Case("label", "\\N", "used"),
    Case("label", "none", "used"),
    Case("label", "Null ", "used"),
    Case("label", " ", "used"),
    Case("label", 1.0, "label: unknown_class"),
    Case("label", "01", "label: unknown_class", task="numbers"),
    Case("label", NAN, "used", 1.0, "numbers"),
    Case("label", 1.0, "used", task="numbers"),
    Case("label", "1.0", "used", task="numbers"),
    Case("label", "Toxic", "label: unknown_class"),
    Case("label", True, "label: unknown_class", task="numbers", without=("sqlite",)),
    Case("label", 0.7, "label: wrong_type", task="numbers"),
    Case("label", CP1252, "label: encoding"),
    Case("correct", True, "used", task="sure"),
    Case("correct", "maybe", "label: wrong_type", task="sure"),
    Case("correct", "NA", "used", task="sure"),
    Case("correct", "yes", "used", task="sure"),
    Case("probability", 0.5, "used"),
    Case("probability", 1.5, "label: out_of_range"),
    Case("probability", NAN, "label: not_a_number", 0.5, without=("sqlite",)),
    Case("probability", "often", "label: wrong_type"),
    Case("groups.region", "eu", "used"),
    Case("groups.region", CP1252, "encoding"),
    Case("groups.region", "x" * 201, "too_large"),
    Case("groups.region", NAN, "not_a_number", 1.0, without=("csv", "sqlite")),
    Case("groups.other", CP1252, "used"),
    Case("groups.other", NAN, "used", 1.0),
    Case("features.hour", NAN, "used", 1.0),
    Case("features.hour", ENDLESS, "used", 1.0),
    Case("features.hour", "noon", "wrong_type"),
    Case("features.origin", CP1252, "encoding"),
    Case("features.origin", NAN, "used", 1.0),
    Case("comment", CP1252, "used"),
    Case("comment", NAN, "used", 1.0),
    Case("comment", ENDLESS, "used", 1.0),
    Case("a\0b", "x", "used"),
]


def _record(row: Row) -> bytes:
    record: Row = {}
    for name, value in row.items():
        parent, _, key = name.partition(".")
        if value is not None:
            record |= {parent: {key: value}} if key else {name: value}
    return json.dumps(record, ensure_ascii=False).encode("utf-8", "surrogateescape")


def _ndjson(rows: Sequence[Row], folder: Path) -> list[Raw]:
    return [RawBlock(b"".join(_record(row) + b"\n" for row in rows), "p", 0)]


def _messages(rows: Sequence[Row], folder: Path) -> list[Raw]:
    return [RawMessages(list(map(_record, rows)), "topic-0", range(len(rows)))]


def _array(rows: Sequence[Row], folder: Path) -> list[Raw]:
    return [RawMessages([b"[%s]" % b", ".join(map(_record, rows))], "topic-0", [0])]


def _posted(rows: Sequence[Row], folder: Path) -> list[Raw]:
    lines = lines_of(b"[\n%s]" % b",\n".join(map(_record, rows)))
    assert lines == lines_of(b"\n".join(map(_record, rows)))
    return [RawBlock(b"".join(line + b"\n" for line in lines), "http", 1)]


def _text(value: Any) -> str:
    if isinstance(value, str) or value is None:
        return value or ""
    return json.dumps(value)


def _csv(rows: Sequence[Row], folder: Path) -> list[Raw]:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]))
    writer.writeheader()
    writer.writerows({name: _text(value) for name, value in row.items()} for row in rows)
    path = folder / "t.csv"
    path.write_bytes(text.getvalue().encode("utf-8", "surrogateescape"))
    return _of_file(path)


def _of_file(path: Path) -> list[Raw]:
    with closing(FileSource(path)) as source:
        source.open({})
        return source.read(0.0)


def _arrow(values: list[Any], as_map: bool) -> Any:
    if any(isinstance(value, str) for value in values):
        data = [None if value is None else value.encode("utf-8", "surrogateescape") for value in values]
        made = pyarrow.array(data, pyarrow.binary())
        return pyarrow.Array.from_buffers(pyarrow.string(), len(values), made.buffers())
    if as_map and any(isinstance(value, dict) for value in values):
        pairs = [None if value is None else list(value.items()) for value in values]
        return pyarrow.array(pairs, pyarrow.map_(pyarrow.string(), pyarrow.float64()))
    return pyarrow.array(values, from_pandas=False)


def _parquet(rows: Sequence[Row], folder: Path, as_map: bool = False) -> list[Raw]:
    columns = {name: _arrow([row[name] for row in rows], as_map) for name in rows[0]}
    path = folder / "t.parquet"
    pyarrow.parquet.write_table(pyarrow.table(columns), path)
    return _of_file(path)


def _sqlite(rows: Sequence[Row], folder: Path) -> list[Raw]:
    path = folder / "t.db"
    names = [name for name in rows[0] if "\0" not in name]
    with closing(sqlite3.connect(path)) as base:
        base.execute(f"CREATE TABLE t (rising, {', '.join(map(_quoted, names))})")
        for i, row in enumerate(rows):
            values = [_sql_value(row[name]) for name in names]
            marks = ["CAST(? AS TEXT)" if isinstance(value, bytes) else "?" for value in values]
            base.execute(f"INSERT INTO t VALUES (?, {', '.join(marks)})", [i, *values])
        base.commit()
    settings = {"kind": "sql", "driver": "sqlite3", "dsn": str(path), "table": "t"}
    source = SqlSource(SqlSourceConfig.model_validate(settings | {"cursor": "rising", "id": "rising"}))
    source.open({})
    with closing(source):
        return source.read(0.0)


def _quoted(name: str) -> str:
    return f'"{name}"'


def _sql_value(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "surrogateescape")
    return json.dumps(value) if isinstance(value, list | dict) else value


FORMATS: dict[str, Callable[[Sequence[Row], Path], list[Raw]]] = {
    "ndjson": _ndjson,
    "messages": _messages,
    "array": _array,
    "posted": _posted,
    "csv": _csv,
    "parquet": _parquet,
    "parquet with maps": partial(_parquet, as_map=True),
    "sqlite": _sqlite,
}


def _outcome(chunk: Chunk) -> str:
    check_chunk(chunk)
    used = sum(map(len, chunk.batches))
    if not chunk.rejects:
        return "used" if used == 3 else f"{used} used"
    [reject] = chunk.rejects
    assert used == (3 if reject.along else 2), "it costs its row alone"
    return f"label: {reject.reason}" if reject.along else str(reject.reason)


@pytest.mark.slow
@pytest.mark.parametrize("name", FORMATS)
def test_a_value_has_the_same_outcome_in_every_format(name: str, tmp_path: Path) -> None:
    for i, case in enumerate(CASES):
        folder = tmp_path / str(i)
        folder.mkdir()
        if name in case.without:
            continue
        raws = FORMATS[name](case.rows, folder)
        chunk = Decoder([LAYOUTS[case.task]], "test").decode(raws)
        outcome = _outcome(chunk)
        assert outcome == case.outcome, f"{case.column}: {case.value!a}: {[r.message for r in chunk.rejects]}"


def test_every_column_is_tried() -> None:
    tried = {case.column.partition(".")[0] for case in CASES}
    assert tried >= {"id", "time", "task", "model", "scores", "confidence", "prediction", "version"}
    assert tried >= {"label", "correct", "probability", "groups", "features"}
