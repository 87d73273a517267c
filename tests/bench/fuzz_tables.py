"""Feeds random tables to the readers and the decoder: ``python -m tests.bench.fuzz_tables --tables 20000``.

Each table has some of our columns and others, every column of a random type: right values, and now and then
one that a database, pandas, Excel or a broken writer leaves there. A third of the tables each is CSV (with
quotes that are not closed, cells too many, a cut end), Parquet and SQLite. A table may be refused with a
sentence. The rows read must satisfy the accounting identity: each row is used, rejected or ignored, no row
breaks the promises of `Batch`, and what goes on to the store is text that UTF-8 can hold.
"""

from __future__ import annotations

import csv
import datetime
import decimal
import io
import random
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet

from connectors.files import FileSource
from connectors.formats.decode.decoder import Decoder
from connectors.formats.wires.mapped import MappedWire
from connectors.formats.wires.wire import PLAIN
from connectors.sql.source import SqlSource
from monitor.base.errors import SourceError
from monitor.base.records import Chunk, TaskLayout
from monitor.base.source import EndOfSource, Raw
from monitor.config.mapping import FieldMapping
from monitor.config.sql import SqlSourceConfig
from tests.bench.fuzz_decoder import check_chunk, counts_of
from tests.harness import run

FEATURES = (("hour", "number"), ("origin", "text"))
LAYOUTS = (
    TaskLayout("toxicity", ("ok", "toxic"), models=("erm",), groups=("region",), features=FEATURES),
    TaskLayout("count", ("0", "1"), models=("two",), groups=("region",)),
    TaskLayout("arrival", (), models=("eta",)),
)
NAMES = (
    *("id", "time", "task", "model", "scores", "scores.ok", "scores.toxic", "scores.0", "scores.1"),
    *("confidence", "prediction", "version", "label", "correct", "probability", "draw", "draw.round"),
    *(
        "draw.number",
        "groups.region",
        "groups.other",
        "features.hour",
        "features.origin",
        "comment",
        "e\u0301",
    ),
)
MAPPED = FieldMapping.model_validate(
    {
        "id": "id",
        "id_digits": 4,
        "time": "time",
        "time_unit": "milliseconds",
        "time_zone": "UTC",
        "model": "model",
        "scores": "scores",
        "label": "label",
        "label_values": {"1": "toxic", "yes": "toxic"},
        "where": {"comment": ["", "fine", "1", "true"]},
    }
)
WORDS = (
    *(
        "ok",
        "toxic",
        "erm",
        "eta",
        "two",
        "toxicity",
        "count",
        "eu",
        "a",
        "1",
        "0",
        "1.0",
        "true",
        "FALSE",
        "NULL",
    ),
    *(
        "NaN",
        "None",
        "\\N",
        "",
        " ",
        "0.25",
        "0,25",
        "95 %",
        "1e999",
        "-Infinity",
        "1_0",
        "9.00720E+15",
        "9" * 400,
    ),
    *("x" * 600, "e\u0301", "\u00e9", "\ud83d", "M\udcfcnchen", "a\0b", '"', "a\nb", "a,b;c", "[0.5, 0.5]"),
    *(
        "[0.5, NaN]",
        '{"ok": 0.5, "toxic": 0.5}',
        "{",
        "[" * 5000,
        "2026-11-20T10:00:00Z",
        "2026-11-20 10:00:00+00",
    ),
    *("2026-11-20 10:00:00 UTC", "10000-01-01T00:00:00Z", "45981.5", "yes", "fine"),
)
NUMBERS = (
    0.0,
    1.0,
    0.25,
    0.75,
    7.0,
    float("nan"),
    float("inf"),
    -0.5,
    1.7,
    2.0**53,
    1e300,
    45_981.5,
    1.76e9,
    1.76e12,
)
WHOLES = (0, 1, 7, 81, -1, 1_763_632_800, 1_763_632_800_000, 2**53 + 1, 2**63 - 1, -(2**63))
DAYS = (-719_163, 0, 20_000, 2**31 - 1, -(2**31))

Column = tuple[Any, list[Any]]


def _texts(rng: random.Random, rows: int) -> Column:
    values = [rng.choice(WORDS) for _ in range(rows)]
    packed = [
        value.encode("utf-8", "surrogateescape" if "\udcfc" in value else "surrogatepass") for value in values
    ]
    return pyarrow.string(), [None if rng.random() < 0.1 else value for value in packed]


def _most(right: Sequence[Any], odd: Sequence[Any]) -> Callable[[random.Random, int], list[Any]]:
    def draw(rng: random.Random, rows: int) -> list[Any]:
        share = rng.choice((0.0, 0.1, 0.5))
        values = [rng.choice(odd) if rng.random() < share else rng.choice(right) for _ in range(rows)]
        return [None if rng.random() < share / 2 else value for value in values]

    return draw


def _right(name: str, rng: random.Random, rows: int) -> list[Any]:
    """Return values that a column of this name should have, most of them."""
    field = name.partition(".")[0]
    right: dict[str, Sequence[Any]] = {
        "id": (*(f"r{i}" for i in range(9)), 81),
        "time": (1_763_632_800.5, "2026-11-20T10:00:00Z"),
        "task": ("toxicity", "count", "arrival"),
        "model": ("erm", "two", "eta"),
        "scores": (0.5,),
        "confidence": (0.9, 0.25),
        "prediction": ("ok", "toxic", 1),
        "label": ("ok", "toxic", "1", 0),
        "correct": (True, False),
        "probability": (0.5, 1.0),
    }
    return _most(right.get(field, ("eu", 7)), (*WORDS, *NUMBERS, *WHOLES))(rng, rows)


def _as_text(value: Any) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return text.encode("utf-8", "surrogateescape" if "\udcfc" in text else "surrogatepass")


def _column(name: str, rng: random.Random, rows: int) -> Column:
    """Return a type of Arrow, and values of it as Python has them; a text as its bytes."""
    kind = rng.randrange(16) if rng.random() < 0.3 else 0
    if kind < 5:
        return pyarrow.string(), [_as_text(value) for value in _right(name, rng, rows)]
    if kind < 8:
        return _texts(rng, rows)
    if kind == 8:
        return pyarrow.float64(), _most((0.5, 1.0, 7.0), NUMBERS)(rng, rows)
    if kind == 9:
        return pyarrow.int64(), _most((0, 1, 81), WHOLES)(rng, rows)
    if kind == 10:
        unit = rng.choice(("s", "ms", "us", "ns"))
        return pyarrow.timestamp(unit, tz=rng.choice((None, "UTC", "+01:00"))), _most((1, 10**9), WHOLES)(
            rng, rows
        )
    if kind == 11:
        return pyarrow.date32(), _most((20_000,), DAYS)(rng, rows)
    if kind == 12:
        numbers = [decimal.Decimal(text) for text in ("0.5", "1", "81", "12345678901234567890")]
        return pyarrow.decimal128(38, 4), _most(numbers[:1], numbers)(rng, rows)
    if kind == 13:
        return pyarrow.bool_(), _most((True, False), (True,))(rng, rows)
    if kind == 14:
        lists = ([0.25, 0.75], [0.5], [], [float("nan"), 1.0], [None, 0.5])
        return pyarrow.list_(pyarrow.float64()), _most(lists[:1], lists)(rng, rows)
    maps = ([("ok", 0.25), ("toxic", 0.75)], [("ok", 1.0)], [], [("ok", None), ("toxic", 0.5)])
    return pyarrow.map_(pyarrow.string(), pyarrow.float64()), _most(maps[:1], maps)(rng, rows)


def _table(rng: random.Random, rows: int) -> dict[str, Column]:
    chosen = rng.sample(NAMES, rng.randrange(3, len(NAMES)))
    if rng.random() < 0.7:
        chosen = ["id", "model", rng.choice(("scores", "scores.ok", "scores.0", "confidence")), *chosen]
    return {name: _column(name, rng, rows) for name in chosen}


def _array(kind: Any, values: list[Any]) -> Any:
    if kind == pyarrow.string():  # whatever the bytes are
        made = pyarrow.array(values, pyarrow.binary())
        return pyarrow.Array.from_buffers(kind, len(values), made.buffers())
    if pyarrow.types.is_timestamp(kind):
        return (
            pyarrow.array(values, pyarrow.int64()).cast(pyarrow.timestamp(kind.unit)).cast(kind, safe=False)
        )
    if pyarrow.types.is_date32(kind):
        return pyarrow.array(values, pyarrow.int32()).cast(kind)
    return pyarrow.array(values, kind)


def _cell(value: Any) -> bytes:
    return value if isinstance(value, bytes) else b"" if value is None else str(value).encode("utf-8")


def _write_csv(path: Path, columns: dict[str, Column], rows: int, rng: random.Random) -> None:
    text = io.StringIO()
    writer = csv.writer(text)
    names = list(columns) + [""] * rng.choice((0, 0, 2))
    writer.writerow(names)
    for i in range(rows):
        cells = [_cell(values[i]).decode("utf-8", "surrogateescape") for _, values in columns.values()]
        writer.writerow(cells + [""] * (len(names) - len(cells)) + ["x"] * (rng.random() < 0.01))
    data = bytearray(text.getvalue().encode("utf-8", "surrogateescape"))
    for _ in range(rng.choice((0, 0, 1, 3))):
        at = rng.randrange(len(data) + 1)
        data[at:at] = rng.choice((b'"', b",", b"\xfc", b"\0", b"\r", b'""'))
    path.write_bytes(data[: rng.randrange(len(data))] if rng.random() < 0.1 else data)


def _plain(value: Any) -> Any:
    if isinstance(value, decimal.Decimal | datetime.date):
        return str(value)
    return repr(value) if isinstance(value, list) else value


def _write_sqlite(path: Path, columns: dict[str, Column], rows: int) -> None:
    names = ", ".join(f'"{name}"' for name in columns)
    with closing(sqlite3.connect(path)) as base:
        base.execute("PRAGMA synchronous = OFF")
        base.execute("PRAGMA journal_mode = OFF")
        base.execute(f"CREATE TABLE t (rising, {names})")
        # Bytes are no text to SQLite unless they are cast, whatever they hold.
        casts = ", ".join(
            "CAST(? AS TEXT)" if kind == pyarrow.string() else "?" for kind, _ in columns.values()
        )
        for i in range(rows):
            base.execute(
                f"INSERT INTO t VALUES (?, {casts})", [i, *(_plain(v[i]) for _, v in columns.values())]
            )
        base.commit()


def _read(path: Path, mapped: FieldMapping | None) -> list[Raw]:
    """Return all that the source of this file yields."""
    if path.suffix == ".db":
        settings = SqlSourceConfig.model_validate(
            {
                "kind": "sql",
                "driver": "sqlite3",
                "dsn": str(path),
                "table": "t",
                "cursor": "rising",
                "id": "rising",
            }
            | ({} if mapped is None else {"mapping": mapped})
        )
        source = SqlSource(settings)
        source.open({})
        with closing(source):
            return source.read(0.0)
    columns = MappedWire(mapped).columns if mapped is not None else frozenset()
    with closing(FileSource(path, mapped=columns)) as file:
        file.open({})
        raws: list[Raw] = []
        while True:
            try:
                raws += file.read(0.0)
            except EndOfSource:
                return raws


def feed(rng: random.Random, number: int, folder: Path) -> tuple[str, Chunk | None]:
    """Feed one random table; return its format, and the chunk if it was not refused."""
    rows = rng.choice((1, 3, 20))
    columns = _table(rng, rows)
    suffix = (".csv", ".parquet", ".db")[number % 3]
    path = folder / f"t{suffix}"
    path.unlink(missing_ok=True)
    if suffix == ".csv":
        _write_csv(path, columns, rows, rng)
    elif suffix == ".parquet":
        arrays = [_array(kind, values) for kind, values in columns.values()]
        pyarrow.parquet.write_table(pyarrow.table(arrays, names=list(columns)), path)
    else:
        _write_sqlite(path, columns, rows)
    mapped = MAPPED if rng.random() < 0.3 else None
    try:
        raws = _read(path, mapped)
    except SourceError:
        return suffix, None
    chunk = Decoder(LAYOUTS, "fuzz", wire=PLAIN if mapped is None else MappedWire(mapped)).decode(raws)
    check_chunk(chunk)
    if suffix != ".csv":  # each row is an answer, a label or ignored; a damaged CSV may have other rows
        assert chunk.answers + chunk.labels_received + chunk.ignored == rows, (number, suffix)
    return suffix, chunk


def table(tables: int = 20_000, seed: int = 0) -> Iterator[str]:
    """Return the outcomes of the tables."""
    rng = random.Random(seed)
    counts: Counter[str] = Counter()
    kinds: Counter[str] = Counter()
    received = np.zeros(3, dtype=np.int64)
    begun = time.perf_counter()
    with TemporaryDirectory() as folder:
        for number in range(tables):
            suffix, chunk = feed(rng, number, Path(folder))
            kinds[suffix if chunk is not None else f"{suffix}, refused"] += 1
            if chunk is not None:
                counts += counts_of([chunk])
                received += chunk.answers, chunk.labels_received, chunk.ignored
    seconds = time.perf_counter() - begun
    for name, count in (*kinds.most_common(), *counts.most_common()):
        yield f"{name:18s} {count:9d}"
    answers, labels, ignored = received.tolist()
    yield f"{tables} tables (seed {seed}) in {seconds:.0f} s:"
    yield f"{answers} answers, {labels} labels and {ignored} ignored rows, every one accounted for"


if __name__ == "__main__":
    run(table, keep=False)
