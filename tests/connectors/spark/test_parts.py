"""The parts of a replay on Spark, without Spark: splits, units, work of executors, tables, sentences."""

from __future__ import annotations

import importlib
import json
import os
import stat
import subprocess
import sys
import zipfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from msgspec.inspect import StructType, UnionType, VarTupleType, type_info

pyarrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")

from connectors.files import FileSource  # noqa: E402
from connectors.formats.files.line_cutter import BLOCK_BYTES  # noqa: E402
from connectors.formats.files.tables import ROWS  # noqa: E402
from connectors.spark.computing import lines_of  # noqa: E402 - these need pyarrow
from connectors.spark.inputs import files_of  # noqa: E402
from connectors.spark.job import (  # noqa: E402
    ENDED_UNIT,
    BlockKind,
    Computing,
    Job,
    begin_task,
    packed,
    unpacked,
)
from connectors.spark.reading import blocks_of  # noqa: E402
from connectors.spark.session import TOO_NEW, check_ready, meaning, refuse_java, settings_from  # noqa: E402
from connectors.spark.tables import SCHEMA, WindowTable, refuse_types  # noqa: E402
from connectors.splits import Split, read_split, splits_of  # noqa: E402
from monitor.base.errors import ClusterError, ConfigError, MissingExtraError, SinkError, SourceError  # noqa: E402
from monitor.base.records import DRAW  # noqa: E402
from monitor.cli.replay import replay  # noqa: E402
from monitor.cli.trial import ReferenceTrial  # noqa: E402
from monitor.config.file import load_config  # noqa: E402
from monitor.parallel.partitioning import begins  # noqa: E402
from monitor.parallel.planning import (  # noqa: E402
    Facts,
    Unit,
    notes_of,
    notes_of_order,
    rows_of,
    spread,
    units_of,
    why_whole,
)
from monitor.reports.arena_report import ArenaLine  # noqa: E402
from monitor.reports.window_report import WindowLine  # noqa: E402
from tests.connectors.spark.routing import wanted  # noqa: E402
from tests.connectors.spark.streams import SETTINGS, TASKS, records, write_input  # noqa: E402
from tests.daemon import ndjson  # noqa: E402
from tests.services.process import PATIENCE_SECONDS  # noqa: E402


def in_parts(config: Path, splits: Sequence[Split]) -> tuple[list[bytes], list[Unit]]:
    """Return the stages of a replay in this process; units one after the other."""
    loaded = load_config(str(config))
    job = Job(loaded, ReferenceTrial(loaded).engine_settings(event_time=True), tuple(splits))
    blocks = [block for number in range(len(splits)) for block in blocks_of(job, number)]
    facts = [unpacked(block.data) for block in blocks if block.kind == BlockKind.FACTS]
    times = [unpacked(block.data) for block in blocks if block.kind == BlockKind.TIMES]
    units = units_of(facts, why_whole(job.settings, facts))
    computing = Computing(tuple(units), tuple(begins([f.stretch for f in facts], times.__getitem__)))
    rows = [
        row
        for number, unit in enumerate(units)
        for row in lines_of(job, computing, number, [b[4:] for b in blocks if wanted(b, unit)])
    ]
    lines = sorted((row for row in rows if row.stage != ENDED_UNIT), key=lambda row: row[:8])
    return [row.line for row in lines], units


def one_process(config: Path, files: Sequence[Path], out: Path) -> list[bytes]:
    replay(str(config), files, out, lambda path, size: None)
    return (out / "windows.ndjson").read_bytes().splitlines()


def test_splits_and_units_give_the_lines_of_one_process(tmp_path: Path) -> None:
    config = write_input(tmp_path, files=3)
    files = files_of([tmp_path / "parts"])
    splits = [split for path in files for split in splits_of(path, size=60_000)]

    lines, units = in_parts(config, splits)

    assert lines == one_process(config, files, tmp_path / "out")
    assert len(splits) > 6
    assert [unit.model for unit in units if unit.task == "s"] == [None], "`ssme` estimates models together"
    assert sorted(unit.model or "" for unit in units if unit.task == "t") == ["coral", "erm", "irm"]


def test_the_files_of_splits_are_counted_for_the_note_about_their_order(tmp_path: Path) -> None:
    config = write_input(tmp_path, {"u": TASKS["u"]}, files=1)
    labels = tmp_path / "labels.ndjson"
    labels.write_bytes(ndjson([{"id": f"r{i}", "task": "u", "label": "ok"} for i in range(300)]))
    splits = [s for p in (tmp_path / "parts" / "part-000.ndjson", labels) for s in splits_of(p, 8_000)]
    loaded = load_config(str(config))
    job = Job(loaded, ReferenceTrial(loaded).engine_settings(event_time=True), tuple(splits))

    blocks = [block for number in range(len(splits)) for block in blocks_of(job, number)]
    facts = [unpacked(block.data) for block in blocks if block.kind == BlockKind.FACTS]

    assert sum(each.files.get(str(labels), [0, 0])[1] for each in facts) == 300
    assert f"the labels of {labels} came after all answers of" in notes_of_order(facts)[0]


@pytest.mark.parametrize(
    ("values", "least"),
    [
        (np.full(1000, np.nan), 1000),
        (np.array([0.0, -0.0] * 500), 0),
        (np.random.default_rng(0).random((500, 2)), 0),
        (np.asfortranarray(np.random.default_rng(0).random((50, 2))), 0),
        (np.arange(10**12, 10**12 + 1000), 5000),
        (np.arange(0, 3000, 3)[::-1], 5000),
        (np.arange(2000).reshape(1000, 2)[:, 1], 5000),
        (np.array([-(2**63), 2**63 - 1]), 0),
        (np.array([-(2**63), 7 - 2**63] * 500), 6000),
        (np.array([2**64 - 1, 2**64 - 300] * 500, dtype=np.uint64), 5000),
        (np.array([True, False]), 0),
        (np.zeros(1000, dtype=bool), 700),
        (np.zeros((0, 4)), 0),
        (np.array(3), 0),
        (np.array(["a", "bc"]), 0),
        (np.zeros(200, dtype=DRAW), 6000),
        (np.array([(0, 0, 0, 0.0), (1, 2, 3, 0.5)], dtype=DRAW), -300),
    ],
)
def test_arrays_are_packed_in_few_bytes_and_come_out_bit_for_bit(values: Any, least: int) -> None:
    data = packed([values, values])
    unpacked_values, again = unpacked(data)
    assert (unpacked_values.dtype, unpacked_values.shape, unpacked_values.tobytes()) == (
        values.dtype,
        values.shape,
        values.tobytes(),
    )
    assert unpacked_values.flags.writeable
    assert again is unpacked_values, "what stands there twice is packed once"
    assert len(data) <= values.nbytes + 300 - least


def test_a_task_makes_python_read_no_archive_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark has Python look for modules again before each task; an archive can still be imported from."""
    archive = tmp_path / "modules.zip"
    with zipfile.ZipFile(archive, "w") as file:
        for name in ("of_an_archive_a", "of_an_archive_b"):
            file.writestr(f"{name}.py", f"NAME = {name!r}")
    monkeypatch.syspath_prepend(archive)
    assert importlib.import_module("of_an_archive_a").NAME == "of_an_archive_a"
    assert str(archive) in sys.path_importer_cache

    begin_task()

    assert str(archive) not in sys.path_importer_cache
    importlib.invalidate_caches()
    assert importlib.import_module("of_an_archive_b").NAME == "of_an_archive_b"


@pytest.mark.parametrize("size", [1, 50, 333, 10**6])
def test_splits_of_lines_hold_each_line_once(tmp_path: Path, size: int) -> None:
    path = tmp_path / "p.ndjson"
    rng = np.random.default_rng(0)
    lines = [b"x" * int(n) + b"\n" for n in rng.integers(0, 90, 60)]
    path.write_bytes(b"".join(lines)[:-1])  # the last line has no newline

    splits = splits_of(path, size)

    assert splits[0].start == 0
    assert splits[-1].stop is None
    assert all(a.stop == b.start for a, b in pairwise(splits))
    ends = set(np.cumsum([len(line) for line in lines]).tolist())
    assert {split.stop for split in splits[:-1]} <= ends
    assert len(splits) <= len(lines)
    assert (len(splits) > 5) == (size < 500)


def test_a_split_of_a_block_of_lines_is_one_read(tmp_path: Path) -> None:
    """Reading beyond a split wastes the work."""
    path = tmp_path / "p.ndjson"
    sizes = np.random.default_rng(0).integers(1, 2000, 4000)
    path.write_bytes(b"".join(b"x" * int(n) + b"\n" for n in sizes))
    splits = splits_of(path, BLOCK_BYTES)

    splits_read = [list(read_split(FileSource(path), split, 1)) for split in splits]

    assert len(splits) == 4
    assert [len(raws) for reads in splits_read for raws in reads] == [1] * len(splits)
    assert b"".join(raws[0].data for (raws,) in splits_read) == path.read_bytes()


def test_parquet_is_split_between_row_groups_and_read_from_there(tmp_path: Path) -> None:
    config = write_input(tmp_path, {"u": TASKS["u"]}, files=1)
    rng = np.random.default_rng(1)
    rows = 4 * ROWS + 100
    scores = rng.random(rows)
    table = pyarrow.table(
        {
            "id": [f"a{i}" for i in range(rows)],
            "time": 1.7e9 + np.arange(float(rows)),
            "model": rng.choice(["erm", "irm"], rows),
            "scores.ok": 1 - scores,
            "scores.bad": scores,
            "label": np.where(rng.random(rows) < 0.1, "bad", None),
        }
    )
    path = tmp_path / "u.parquet"
    parquet.write_table(table, path, row_group_size=700)

    splits = splits_of(path, size=40_000)
    lines, _ = in_parts(config, splits)

    assert [split.start for split in splits] == list(range(0, rows, ROWS)), "where one reader cuts, too"
    assert lines == one_process(config, [path], tmp_path / "out")
    assert len(lines) > 100


def test_files_without_a_record_give_no_line(tmp_path: Path) -> None:
    config = write_input(tmp_path, {"u": TASKS["u"]}, files=1)
    for name in ("empty.ndjson", "blank.ndjson"):
        (tmp_path / name).write_bytes(b"\n" * (name == "blank.ndjson"))
    splits = [split for name in ("empty", "blank") for split in splits_of(tmp_path / f"{name}.ndjson")]
    assert in_parts(config, splits) == ([], [])


def test_what_is_compressed_or_quoted_is_one_split(tmp_path: Path) -> None:
    for name in ("a.csv", "a.ndjson.gz", "a.ndjson.zst"):
        (tmp_path / name).write_bytes(b"x\n" * 1000)
        assert splits_of(tmp_path / name, size=10) == [Split(str(tmp_path / name), 0, None)]


def test_a_folder_is_its_files_in_order_without_the_marks_of_a_job(tmp_path: Path) -> None:
    for name in ("b.ndjson", "a.ndjson", "_SUCCESS", ".a.crc", "day=2/c.ndjson", "_temporary/0.ndjson"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"{}\n")
    names = [str(path.relative_to(tmp_path)) for path in files_of([tmp_path])]
    assert names == ["a.ndjson", "b.ndjson", "day=2/c.ndjson"]
    (tmp_path / "nothing").mkdir()
    with pytest.raises(ConfigError, match="is a folder without a file in it; correct the path"):
        files_of([tmp_path / "nothing"])
    with pytest.raises(ConfigError, match=r"There is no file .*absent.ndjson; correct the path"):
        files_of([tmp_path / "absent.ndjson"])


def test_a_file_that_shrank_meanwhile_is_not_begun_anew(tmp_path: Path) -> None:
    config = write_input(tmp_path, files=1)
    path = tmp_path / "parts" / "part-000.ndjson"
    splits = splits_of(path, size=60_000)
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(SourceError, match="it has become shorter while it was read; run it again"):
        in_parts(config, splits)


def facts(models: dict[tuple[str, str], int], labels: int = 0, task: str = "t") -> Facts:
    facts = Facts(labels=Counter({task: labels}))
    facts.models = {name: [i, rows] for i, (name, rows) in enumerate(models.items())}
    return facts


def settings(tmp_path: Path, **task: Any) -> Any:
    text = {"tasks": {"t": SETTINGS | {"metrics": ["accuracy"]} | task}}
    path = tmp_path / "config.yaml"
    path.write_text(json.dumps(text))
    return ReferenceTrial(load_config(str(path))).engine_settings(event_time=True)


def test_models_go_side_by_side_unless_they_share_what_is_full(tmp_path: Path) -> None:
    many = {("t", "a"): 900_000, ("t", "b"): 900_000}
    job_settings = settings(tmp_path, window={"size": 500})
    assert why_whole(job_settings, [facts(many)]) == {}
    assert why_whole(job_settings, [facts({("t", "a"): 400_000, ("t", "b"): 500_000}, labels=9)]) == {}
    why = why_whole(job_settings, [facts(many, labels=9)])["t"]
    assert "labels.max_answers, 1,000,000, keeps" in why
    assert "with 1,800,000 or more its models go side by side" in why
    larger = settings(tmp_path, window={"size": 500}, labels={"max_answers": 1_800_000})
    assert why_whole(larger, [facts(many, labels=9)]) == {}
    capped = settings(tmp_path, max_series=1)
    assert "more models or groups than max_series, 1, allows" in why_whole(capped, [facts(many)])["t"]


def test_a_whole_task_is_one_unit_and_others_have_one_a_model() -> None:
    all_facts = [facts({("t", "b"): 3, ("t", "a"): 5}), facts({("t", "c"): 1, ("u", "a"): 7, ("t", "a"): 1})]
    assert rows_of(all_facts) == {("t", "b"): 3, ("t", "a"): 6, ("t", "c"): 1, ("u", "a"): 7}
    assert units_of(all_facts, {"t"}) == [Unit("t", None, 10), Unit("u", "a", 7)]
    assert len(units_of(all_facts, ())) == 4


def test_units_are_spread_by_their_rows_and_a_skewed_one_is_told() -> None:
    units = [Unit("t", "big", 900), *(Unit("t", f"m{i}", 10) for i in range(10))]
    parts = spread(units, 3)
    assert parts.count(parts[0]) == 1, "the largest stands alone"
    assert sorted(Counter(parts[1:]).values()) == [5, 5]
    (note,) = notes_of(units, {}, cores=2)
    assert note.startswith("t big has 90% of the answers: its windows follow on each other, so one core")
    assert notes_of(units, {}, cores=1) == []
    assert notes_of(units[1:], {"u": "why"}, cores=2) == ["u is computed as a whole, by one core: why."]


@pytest.mark.parametrize(
    ("column", "kind", "expected"),
    [
        ("scores.ok", pyarrow.binary(), "a number"),
        ("scores.ok", pyarrow.list_(pyarrow.float64()), "a number"),
        ("scores", pyarrow.list_(pyarrow.string()), None),
        ("scores", pyarrow.map_(pyarrow.string(), pyarrow.float64()), None),
        ("id", pyarrow.struct([("a", pyarrow.int32())]), "text or a number"),
        ("time", pyarrow.time32("s"), "a time, text or a number"),
        ("time", pyarrow.timestamp("us"), None),
        ("label", pyarrow.dictionary(pyarrow.int8(), pyarrow.string()), None),
        ("probability", pyarrow.decimal128(5, 3), None),
        ("draw", pyarrow.struct([("round", pyarrow.string())]), None),
        ("draw.number", pyarrow.binary(), "a number"),
        ("comment", pyarrow.binary(), None),
    ],
)
def test_columns_of_which_no_row_can_be_used_are_refused(
    tmp_path: Path, column: str, kind: Any, expected: str | None
) -> None:
    path = tmp_path / "p.parquet"
    other = {"model": pyarrow.array([], pyarrow.string())}
    parquet.write_table(pyarrow.table(other | {column: pyarrow.array([], kind)}), path)
    if expected is None:
        refuse_types(path)
        return
    with pytest.raises(ConfigError) as caught:
        refuse_types(path)
    assert f"p.parquet: its column {column} is of type {str(kind)[:4]}" in str(caught.value)
    assert f", of which no row can be used; expected {expected}; cast it, or rename" in str(caught.value)


def test_a_table_without_a_known_column_is_refused(tmp_path: Path) -> None:
    parquet.write_table(pyarrow.table({"prob": [0.1]}), tmp_path / "p.parquet")
    with pytest.raises(
        ConfigError, match=r"none of its columns is known \(prob\); name them as docs/records"
    ):
        refuse_types(tmp_path / "p.parquet")
    (tmp_path / "q.parquet").write_bytes(b"PAR1")
    with pytest.raises(SourceError, match="cannot be read as Parquet"):
        refuse_types(tmp_path / "q.parquet")


def test_the_table_of_windows_holds_what_their_lines_hold(tmp_path: Path) -> None:
    config = write_input(tmp_path, files=1, requests=3000)
    lines = one_process(config, files_of([tmp_path / "parts"]), tmp_path / "out")
    odd = json.loads(lines[-1]) | {
        "calibration": {
            "method": "none",
            "version": 0,
            "foreign": True,
            "effective_rows": 7.5,
            "missing": {"age": 3},
            "unseen": {"plan": 1},
        },
        "rebaselined": [{"metric": "accuracy", "reason": "asked"}],
        "untrusted": [{"metric": "accuracy", "evidence": 2.5, "labels": 9, "on_probation": False, "rows": 3}],
        "classes": [{"class": "ok", "metric": "recall", "estimator": "e", "unknown": "no"}],
        "objectives": [{"metric": "ece", "ceiling": 0.1, "state": "met"}],
    }
    lines.append(json.dumps(odd).encode())
    with WindowTable(tmp_path / "w.parquet") as table:
        for line in lines:
            table.add(line)

    rows = parquet.read_table(tmp_path / "w.parquet").to_pylist()

    assert len(rows) == len(lines)
    assert [as_line(row) for row in rows] == [without_nulls(json.loads(line)) for line in lines]


@pytest.mark.parametrize("line", [WindowLine, ArenaLine])
def test_the_table_has_a_column_for_all_that_a_line_may_say(line: type[msgspec.Struct]) -> None:
    """Estimates leave out what their list does not need: those of a series name neither model nor class."""
    never = {
        "estimates": {"model", "class", "unit"},
        "classes": {"model", "unit"},
        "models": {"class", "unit"},
        "values": {"model", "class"},
    }

    def missing(field_type: Any, fields: Any, where: str) -> list[str]:
        types: list[Any] = list(field_type.types) if isinstance(field_type, UnionType) else [field_type]
        types = [one.item_type if isinstance(one, VarTupleType) else one for one in types]
        lacking = []
        for struct in (one for one in types if isinstance(one, StructType)):
            if pyarrow.types.is_list(fields):
                fields = fields.value_type
            names = {field.name: field.type for field in fields}
            for each in struct.fields:
                path = f"{where}.{each.encode_name}"
                if each.encode_name in never.get(where.rpartition(".")[2], ()):
                    continue
                lacking += (
                    missing(each.type, names[each.encode_name], path) if each.encode_name in names else [path]
                )
        return lacking

    assert missing(type_info(line), pyarrow.struct(list(SCHEMA)), line.__name__) == []
    assert len(SCHEMA.field("calibration").type) == 7


def as_line(row: dict[str, Any]) -> Any:
    times = {
        name: row[name].isoformat(timespec="milliseconds").replace("+00:00", "Z")
        for name in ("start_time", "end_time")
    }
    calibration = row["calibration"] and {
        name: dict(value) if isinstance(value, list) else value for name, value in row["calibration"].items()
    }
    return without_nulls(row | times | {"positions": dict(row["positions"]), "calibration": calibration})


def without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: without_nulls(v) for k, v in value.items() if v is not None}
    return [without_nulls(v) for v in value] if isinstance(value, list) else value


needs_an_old_python = pytest.mark.skipif(
    sys.version_info >= TOO_NEW, reason="on Python 3.14 the extra spark is empty"
)


@needs_an_old_python
@pytest.mark.parametrize("missing", ["pyspark", "pyarrow"])
def test_a_spark_that_is_not_installed_is_named_with_its_extra(
    missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(MissingExtraError, match=r"--engine spark needs an optional package: .*\[spark\]"):
        check_ready()


def test_a_python_that_is_too_new_for_spark_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    monkeypatch.setattr(sys, "version_info", (3, 14, 0))
    with pytest.raises(
        ConfigError, match=r"cannot be installed on Python 3\.14; use Python 3\.11, 3\.12 or 3\.13"
    ):
        check_ready()


@needs_an_old_python
@pytest.mark.parametrize(
    "words",
    [
        ("replay", "{}", "answers.ndjson", "--out", "out"),
        ("run", "{}", "--checkpoint", "state", "--out", "out"),
    ],
)
def test_a_command_where_the_extra_is_missing_says_so_and_starts_nothing(
    words: tuple[str, ...], tmp_path: Path
) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(
        "tasks: {toxicity: {classes: [ok, toxic]}}\n"
        'sources: [{kind: kafka, brokers: ["127.0.0.1:1"], topics: [predictions]}]\n'
    )
    hide = (
        "import sys; sys.modules['pyspark'] = sys.modules['pyarrow'] = None\n"
        "from monitor.cli.main import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", hide, *(word.format(config) for word in words), "--engine", "spark"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr == (
        "blindsight: --engine spark needs an optional package: pip install 'blindsight[spark]' "
        "(from a checkout: pip install '.[spark]')\n"
    )
    assert [path.name for path in tmp_path.iterdir()] == ["config.yaml"]


def test_java_that_is_missing_or_too_old_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="needs Java, and there is none on PATH; install Java 17 or later"):
        refuse_java({"PATH": str(tmp_path)})
    with pytest.raises(
        ConfigError, match=r"there is none in JAVA_HOME, .*; install Java 17 or later and set"
    ):
        refuse_java({"JAVA_HOME": str(tmp_path)})
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    for version, says in (("11.0.2", "is of version 11"), ("", "does not tell its version")):
        command = f"echo 'openjdk version \"{version}\"' >&2" if version else "exit 1"
        java.write_text(f"#!/bin/sh\n{command}\n")
        java.chmod(java.stat().st_mode | stat.S_IXUSR)
        with pytest.raises(ConfigError, match=f"needs Java 17 or later, but .*bin/java {says}"):
            refuse_java({"JAVA_HOME": str(tmp_path)})
    java.write_text("#!/bin/sh\necho 'openjdk version \"21.0.1\"' >&2\n")
    refuse_java({"JAVA_HOME": str(tmp_path)})


@pytest.mark.parametrize(
    ("text", "kind", "says"),
    [
        ("...\nmonitor.base.errors.SourceError: p: damaged\n at x", SourceError, "p: damaged"),
        ("ExecutorLostFailure ... Exit status: 137.", ClusterError, "spark.executor.memory=4g"),
        ("java.lang.OutOfMemoryError: Java heap space", ClusterError, "an executor ran out of memory"),
        ("MemoryError: Unable to allocate", ClusterError, "labels.max_answers"),
        ("java.io.EOFException\n\tat java.base/java.io.DataInputStream.readInt(DataInputStream.java:386)\n"
         "\tat org.apache.spark.api.python.PythonWorkerFactory.createWorker$1(PythonWorkerFactory.scala:157)",
         ClusterError, "an executor ran out of memory"),
        ("Master removed our application: FAILED", ClusterError, "could not start an executor"),
        ("All masters are unresponsive! Giving up.", ClusterError, "no Spark master answers at spark://h:1"),
        ("java.io.InvalidClassException: local class", ClusterError, "both must be the same 4.x"),
        ("ModuleNotFoundError: No module named 'monitor'", ClusterError, "the executors have no Blindsight"),
        ("[PYTHON_VERSION_MISMATCH] Python in worker", ClusterError, "run another Python than this one"),
        ("Could not parse Master URL: 'x'", ClusterError, "Spark cannot read 'spark://h:1'"),
        ("SparkException: Job aborted: java.io.IOException: No space left on device", ClusterError,
         "a disk is full: that of --checkpoint, or the one where Spark keeps"),
        ("org.apache.kafka.common.errors.SaslAuthenticationException: Authentication failed", ClusterError,
         "the Kafka brokers refuse the login"),
        ("org.apache.kafka.common.errors.UnknownTopicOrPartitionException: This server", ClusterError,
         "a topic of the source is not there"),
        ("KafkaException ... TimeoutException: Timed out waiting for a node assignment", ClusterError,
         "no Kafka broker of the source answers"),
        ("monitor.base.errors.SinkError: the topic is full", SinkError, "the topic is full"),
        ("Job aborted due to stage failure: ExecutorLostFailure", ClusterError, "lost more often than"),
        ("\n  something else\nmore", ClusterError, "Spark gave up: something else; --debug shows all"),
        ("An error occurred while calling o64.collectToPython.\n: java.io.IOException: odd\n\tat x",
         ClusterError, "Spark gave up: java.io.IOException: odd; --debug"),
        ("", ClusterError, "no reason given"),
    ],
)  # fmt: skip
def test_what_spark_says_becomes_a_sentence(text: str, kind: type[Exception], says: str) -> None:
    error = meaning(text, "spark://h:1")
    assert type(error) is kind
    assert says in str(error)


def test_settings_of_spark_are_key_and_value() -> None:
    assert settings_from(["spark.a=b=c", "spark.d="]) == {"spark.a": "b=c", "spark.d": ""}
    for wrong in ("executor.memory=4g", "spark.executor.memory"):
        with pytest.raises(
            ConfigError, match=f"--spark-conf: expected KEY=VALUE with a key .* got '{wrong}'"
        ):
            settings_from([wrong])


def test_a_time_that_leaps_between_splits_is_found(tmp_path: Path) -> None:
    config = write_input(tmp_path, {"u": TASKS["u"]}, files=1)
    of_task = [r for r in records() if isinstance(r, dict) and r.get("task") == "u"]
    for i, record in enumerate(of_task):
        record["time"] = 1.7e9 + i + (40 * 86_400 if i > len(of_task) // 2 else 0)
    of_task[9]["time"] = 9e9
    path = tmp_path / "leap.ndjson"
    path.write_bytes(ndjson(of_task))

    lines, _ = in_parts(config, splits_of(path, size=path.stat().st_size // 4))

    assert lines == one_process(config, [path], tmp_path / "out")
    assert len(lines) > 5


def test_replaced_units_name_their_own_model_only(tmp_path: Path) -> None:
    job_settings = replace(settings(tmp_path, models={"a": {}, "b": {}}))
    computing = Computing((Unit("t", "a", 0),), ())
    *_, ended = lines_of(Job(load_config(str(tmp_path / "config.yaml")), job_settings, ()), computing, 0, [])
    assert [series.model for series in unpacked(ended.line).view.series] == ["a"]
