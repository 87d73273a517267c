"""Parquet input and output: a check of the types of columns, and a table with the lines of reports."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
import pyarrow
import pyarrow.parquet
from pyarrow import types

from connectors.formats.files.tables import columns_read, open_parquet
from connectors.formats.wires.marks import formats_of_table
from monitor.base.errors import ConfigError, SinkError
from monitor.export.sinks.line_file import cannot_write

_ROWS_AT_ONCE = 1000

_TEXT: tuple[Callable[[Any], bool], ...] = (types.is_string, types.is_large_string)
_NUMBER = (types.is_integer, types.is_floating, types.is_decimal, *_TEXT)  # text may be a number, like in CSV
_NAME = (*_NUMBER, types.is_boolean)
_TIME = (*_NUMBER, types.is_timestamp, types.is_date)

_ALLOWED: Mapping[str, tuple[tuple[Callable[[Any], bool], ...], str]] = {
    "scores.": (_NUMBER, "a number"),
    "groups.": (_NAME, "text or a number"),
    "features.": (_NAME, "text or a number"),
    "quantiles.": (_NUMBER, "a number"),
    "confidence": (_NUMBER, "a number"),
    "sigma": (_NUMBER, "a number"),
    "probability": (_NUMBER, "a number"),
    "draw.round": (_NAME, "text or a number"),
    **{f"draw.{field}": (_NUMBER, "a number") for field in ("number", "pool", "probability")},
    "time": (_TIME, "a time, text or a number"),
    "id": (_NAME, "text or a number"),
    "task": (_NAME, "text"),
    "model": (_NAME, "text"),
    "version": (_NAME, "text"),
    "prediction": (_NAME, "text or a number"),
    "label": (_NAME, "text or a number"),
    "correct": (_NAME, "true or false"),
}


def refuse_types(path: Path, mapped: Collection[str] = ()) -> None:
    """Raise a ConfigError if all rows of a Parquet file would be rejected.

    Call this before a long job starts.

    Parameters
    ----------
    path : Path
        A file; only Parquet files are checked.
    mapped : collection of str
        The columns that a mapping reads; if there are any, the file is not checked.

    Raises
    ------
    ConfigError
        A column has a type with which no row can be used, or no column has a known name: see `columns_read`.
    SourceError
        The file cannot be read as Parquet.
    """
    if path.suffix.lower() != ".parquet" or mapped:
        return
    with open_parquet(path) as file:
        schema = file.schema_arrow
    known = [schema.field(name) for name in columns_read(schema.names)]
    if not known:
        raise ConfigError(
            f"{path}: none of its columns is known ({', '.join(schema.names)}); name them as docs/records.md "
            "says, or write a mapping"
        )
    for column in () if formats_of_table(schema.names) else known:
        _refuse_type(path, column)


def _refuse_type(path: Path, column: Any) -> None:
    if column.name == "scores":
        allowed: tuple[Callable[[Any], bool], ...] = (*_NUMBER, _is_list_of_numbers)
        what = "a list of numbers, or a number"
    else:
        prefixes = (name for name in _ALLOWED if name.endswith(".") and column.name.startswith(name))
        allowed, what = _ALLOWED.get(next(prefixes, column.name), ((), ""))
    kind = column.type.value_type if types.is_dictionary(column.type) else column.type
    if allowed and not types.is_null(kind) and not any(is_one(kind) for is_one in allowed):
        raise ConfigError(
            f"{path}: its column {column.name} is of type {column.type}, of which no row can be used; "
            f"expected {what}; cast it, or rename the column if it means something else"
        )


def _is_list_of_numbers(kind: Any) -> bool:
    if types.is_struct(kind):
        return all(any(is_one(field.type) for is_one in _NUMBER) for field in kind)
    if types.is_map(kind):
        return any(is_one(kind.item_type) for is_one in _NUMBER)
    lists = types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)
    return bool(lists) and any(is_one(kind.value_type) for is_one in _NUMBER)


_TEXTS, _REAL, _WHOLE, _FLAG = pyarrow.string(), pyarrow.float64(), pyarrow.int64(), pyarrow.bool_()
_MOMENT = pyarrow.timestamp("ms", tz="UTC")
_COUNTS = pyarrow.map_(_TEXTS, _WHOLE)


def _list_of(**fields: Any) -> Any:
    return pyarrow.list_(pyarrow.struct(list(fields.items())))


_RANK = pyarrow.struct({"best": _WHOLE, "worst": _WHOLE})
_ESTIMATE = {
    "metric": _TEXTS,
    "estimator": _TEXTS,
    "value": _REAL,
    "lower": _REAL,
    "upper": _REAL,
    "level": _REAL,
    "size": _WHOLE,
    "labels": _WHOLE,
    "rank": _RANK,
    "rank_chi_square": _RANK,
    "at_close": pyarrow.struct({"value": _REAL, "lower": _REAL, "upper": _REAL}),
    "unknown": _TEXTS,
}

SCHEMA = pyarrow.schema(
    {
        "task": _TEXTS,
        "model": _TEXTS,
        "group": _TEXTS,
        "version": _TEXTS,
        "window": _WHOLE,
        "revision": _WHOLE,
        "size": _WHOLE,
        "closed_by": _TEXTS,
        "start_time": _MOMENT,
        "end_time": _MOMENT,
        "calibration": pyarrow.struct(
            {
                "method": _TEXTS,
                "version": _WHOLE,
                "foreign": _FLAG,
                "interval": _TEXTS,
                "effective_rows": _REAL,
                "missing": _COUNTS,
                "unseen": _COUNTS,
            }
        ),
        "estimates": _list_of(**_ESTIMATE),
        "classes": _list_of(**({"class": _TEXTS} | _ESTIMATE)),
        "charts": _list_of(
            metric=_TEXTS,
            center=_REAL,
            lower=_REAL,
            upper=_REAL,
            rules=pyarrow.list_(_TEXTS),
            out_of_control=_FLAG,
            improved=_FLAG,
            by_labels=pyarrow.struct(
                {
                    "value": _REAL,
                    "lower": _REAL,
                    "upper": _REAL,
                    "labels": _WHOLE,
                    "confidences_moved": _FLAG,
                }
            ),
            unit=_TEXTS,
        ),
        "objectives": _list_of(metric=_TEXTS, floor=_REAL, ceiling=_REAL, state=_TEXTS, unit=_TEXTS),
        "positions": pyarrow.map_(_TEXTS, pyarrow.list_(_WHOLE)),
        "rebaselined": _list_of(metric=_TEXTS, reason=_TEXTS),
        "untrusted": _list_of(
            metric=_TEXTS,
            evidence=_REAL,
            labels=_WHOLE,
            on_probation=_FLAG,
            bias=_REAL,
            lower=_REAL,
            upper=_REAL,
            level=_REAL,
            rows=_WHOLE,
            predicted=_REAL,
        ),
        "broken_features": _list_of(feature=_TEXTS, fault=_TEXTS, ratio=_REAL, expected=_REAL),
        "attributions": _list_of(
            metric=_TEXTS,
            change=_REAL,
            by=_TEXTS,
            parts=_list_of(
                part=_TEXTS,
                mix=_REAL,
                within=_REAL,
                share=_REAL,
                share_before=_REAL,
                mean=_REAL,
                mean_before=_REAL,
            ),
            alike=_FLAG,
            others=_REAL,
            remainder=_REAL,
            features=pyarrow.struct(
                {
                    "window": _WHOLE,
                    "change": _REAL,
                    "parts": _list_of(
                        feature=_TEXTS, change=_REAL, standard_error=_REAL, missing=_REAL, unseen=_REAL
                    ),
                    "others": _REAL,
                    "step": _REAL,
                    "remainder": _REAL,
                    "remainder_error": _REAL,
                    "remainder_named": _FLAG,
                    "reason": _TEXTS,
                }
            ),
            concept_drift=pyarrow.struct({"change": _REAL, "lower": _REAL, "upper": _REAL, "labels": _WHOLE}),
            unit=_TEXTS,
        ),
        # The columns of kinds of tasks whose lines omit the fields of single models.
        "kind": _TEXTS,
        "pooled": _WHOLE,
        "comparisons": pyarrow.struct([(name, _WHOLE) for name in ("human", "judge", "both", "none")]),
        "reference_model": _TEXTS,
        "judge_weight": _REAL,
        "effective_comparisons": _REAL,
        "rank_level": _REAL,
        "models": _list_of(model=_TEXTS, **_ESTIMATE),
        "values": _list_of(unit=_TEXTS, **_ESTIMATE),
    }
)
"""The columns of a window's line, with the names of its fields; an absent field is null."""


def _as_pairs(values: dict[str, Any], *names: str) -> None:
    """Replace these mappings by lists of pairs, the form of a map in pyarrow."""
    values |= {name: list(values[name].items()) for name in names if name in values}


class WindowTable:
    """A writer of the lines of reports to a Parquet file.

    Raises
    ------
    SinkError
        The file cannot be written; any method may raise it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        with self._ours():
            self._writer = pyarrow.parquet.ParquetWriter(path, SCHEMA, compression="zstd")
        self._rows: list[dict[str, Any]] = []

    def __enter__(self) -> WindowTable:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self._flush()
            with self._ours():
                self._writer.close()
        else:
            with suppress(OSError):  # the first error is raised already
                self._writer.close()

    def add(self, line: bytes) -> None:
        """Add a report, as the line that `monitor.reports.window_report.to_json` returns."""
        row = msgspec.json.decode(line)
        row["start_time"], row["end_time"] = map(datetime.fromisoformat, (row["start_time"], row["end_time"]))
        _as_pairs(row, "positions")
        _as_pairs(row.get("calibration", {}), "missing", "unseen")
        self._rows.append(row)
        if len(self._rows) >= _ROWS_AT_ONCE:
            self._flush()

    def _flush(self) -> None:
        if self._rows:
            with self._ours():
                self._writer.write_batch(pyarrow.RecordBatch.from_pylist(self._rows, SCHEMA))
            self._rows = []

    @contextmanager
    def _ours(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise SinkError(cannot_write(str(self._path), error)) from error
