"""The errors of `replay --engine spark` for unusable input, and the files that it leaves behind."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

pyarrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")

from connectors.spark.inputs import files_of, mounted  # noqa: E402
from connectors.spark.session import meaning  # noqa: E402 - these need pyarrow
from connectors.spark.tables import WindowTable  # noqa: E402
from monitor.base.errors import ClusterError, ConfigError, SinkError  # noqa: E402
from monitor.cli.replay_spark import OnSpark, replay_on_spark  # noqa: E402
from tests.connectors.spark.streams import TASKS, write_input  # noqa: E402
from tests.services.process import PATIENCE_SECONDS, descendants, wait_until  # noqa: E402
from tests.services.spark_cluster import words_of  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")

ADVICE = "install Java 17 or later and set JAVA_HOME to its folder\n"
VERSION = '[ "$1" = -version ] && {{ echo \'openjdk version "{}"\' >&2; exit 0; }}\n'


def replayed(config: Path, *files: Path | str, **environment: str) -> tuple[int, str]:
    """Return the command in a process of its own, with another environment: its exit code, and what it
    said.
    """
    words: Sequence[str] = [
        *(sys.executable, "-m", "monitor.cli", "replay", str(config), *map(str, files)),
        *("--out", str(config.parent / "out"), "--engine", "spark", "--master", "local[1]"),
    ]
    there = {key: value for key, value in os.environ.items() if key != "JAVA_HOME"} | environment
    done = subprocess.run(
        words, capture_output=True, text=True, check=False, timeout=PATIENCE_SECONDS, env=there
    )
    return done.returncode, done.stderr


def fake(folder: Path, script: str) -> str:
    """Return a PATH with a `java` of our own in front."""
    folder.mkdir(exist_ok=True)
    java = folder / "java"
    java.write_text(script)
    java.chmod(java.stat().st_mode | stat.S_IXUSR)
    return f"{folder}{os.pathsep}{os.environ['PATH']}"


def spark_of(folder: Path, version: str) -> str:
    """Return a PYTHONPATH on which a pyspark stands that says that it is of this version."""
    (folder / "pyspark").mkdir(parents=True)
    (folder / "pyspark" / "__init__.py").write_text(f"__version__ = {version!r}\n")
    here = str(Path(__file__).parents[3])
    return os.pathsep.join([str(folder), here])


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return write_input(tmp_path, {"u": TASKS["u"]}, files=1, requests=200)


def test_a_spark_of_another_major_version_is_refused_with_what_to_install(config: Path) -> None:
    path = spark_of(config.parent / "old", "3.5.1")
    assert replayed(config, config.parent / "parts", PYTHONPATH=path) == (
        2,
        "blindsight: --engine spark: pyspark 3.5.1 is installed, 4.x is needed: pip install "
        "'blindsight[spark]'\n",
    )
    assert not (config.parent / "out").exists()


@pytest.mark.parametrize(
    ("script", "says"),
    [
        ("#!/bin/sh\n" + VERSION.format("11.0.2"), "needs Java 17 or later, but {java} is of version 11; "),
        ("#!/bin/sh\nexit 1\n", "needs Java 17 or later, but {java} does not tell its version; "),
        ("no program", ": {java} cannot be run (Exec format error); "),
    ],
)
def test_a_java_that_will_not_do_is_named_before_anything_starts(
    config: Path, script: str, says: str
) -> None:
    """Behind a Spark that is right: one that says so."""
    path = spark_of(config.parent / "new", "4.0.0")
    outcome = replayed(
        config, config.parent / "parts", PYTHONPATH=path, PATH=fake(config.parent / "j", script)
    )
    java = config.parent / "j" / "java"
    gap = "" if says.startswith(":") else " "
    assert outcome == (2, f"blindsight: --engine spark{gap}{says.format(java=java)}{ADVICE}")
    assert not (config.parent / "out").exists()


@pytest.mark.usefixtures("spark")
def test_a_java_that_ends_as_it_starts_is_told_with_what_it_said(config: Path) -> None:
    script = "#!/bin/sh\n" + VERSION.format("17.0.2") + "echo 'Could not reserve enough space' >&2\nexit 1\n"
    code, output = replayed(config, config.parent / "parts", PATH=fake(config.parent / "j", script))
    assert code == 1
    assert "Could not reserve enough space\n" in output
    last = output.splitlines()[-1]
    assert last.startswith("blindsight: Spark's Java ended as it was started; above stands what it said: ")
    assert "spark.driver.memory=1g" in last
    assert list((config.parent / "out").iterdir()) == []


@pytest.mark.usefixtures("spark")
def test_a_parquet_file_of_other_types_is_refused_among_good_ones(config: Path) -> None:
    """The last file of a folder may be hours away."""
    parts = config.parent / "parts"
    columns: dict[str, Any] = {"model": ["m"], "scores.ok": [0.9], "scores.bad": [0.1]}
    parquet.write_table(pyarrow.table(columns), parts / "part-001.parquet")
    columns["scores.bad"] = pyarrow.array([b"0.1"], pyarrow.binary())
    parquet.write_table(pyarrow.table(columns), parts / "part-002.parquet")
    code, output = replayed(config, parts)
    assert code == 2
    assert output == (
        f"blindsight: {parts}/part-002.parquet: its column scores.bad is of type binary, of which no row can "
        "be used; expected a number; cast it, or rename the column if it means something else\n"
    )
    assert not (config.parent / "out").exists()


def test_a_file_uri_is_its_path_and_other_file_systems_are_refused_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "a month").mkdir()
    (tmp_path / "a month" / "p.ndjson").write_bytes(b"{}\n")
    uri = (tmp_path / "a month").as_uri()
    assert "%20" in uri
    assert files_of([Path(uri)]) == [tmp_path / "a month" / "p.ndjson"]
    for scheme in ("s3a", "hdfs", "gs", "abfss"):
        with pytest.raises(ConfigError) as caught:
            files_of([Path(f"{scheme}://logs/2026/11")])
        assert str(caught.value) == (
            f"{scheme}://logs/2026/11: Spark's file systems are not read; mount {scheme}://logs on the "
            "driver and on every executor, by one path, and give that path"
        )
    for plain in ("p.ndjson", "C:/p.ndjson", "day=2/p.ndjson", "/data/s3a"):
        assert mounted(Path(plain)) == Path(plain)


@pytest.mark.usefixtures("spark")
def test_an_out_of_another_file_system_is_no_folder_of_that_name_here(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(config.parent)
    with pytest.raises(
        ConfigError, match="hdfs://nn:8020/out: Spark's file systems are not read; mount hdfs"
    ):
        replay_on_spark(
            str(config), [config.parent / "parts"], Path("hdfs://nn:8020/out"), OnSpark("local[1]")
        )
    assert not (config.parent / "hdfs:").exists()


def test_a_full_disk_is_told_of_the_table_too(tmp_path: Path) -> None:
    path = tmp_path / "windows.parquet"
    path.symlink_to("/dev/full")
    says = r"cannot write '.*windows\.parquet': .*No space left on device; make room or give another path"
    with pytest.raises(SinkError, match=says), WindowTable(path):
        pass


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "java.io.IOException: No space left on device\n\tat java.base/java.io.FileOutputStream",
            "or the one where Spark keeps what it moves (spark.local.dir); make room and start again",
        ),
        (
            "Traceback (most recent call last):\n  File 'a.py', line 1\n    x\nKeyError: 'k'\n\n"
            "\tat org.apache.spark.api.python.BasePythonRunner",
            "an executor's Python failed: KeyError: 'k'; --debug shows where; please report it",
        ),
    ],
)
def test_what_else_spark_says_becomes_a_sentence(text: str, says: str) -> None:
    error = meaning(f"Job aborted: {text}", "local[1]")
    assert type(error) is ClusterError
    assert says in str(error)


@pytest.mark.usefixtures("spark")
def test_a_skewed_model_is_told(tmp_path: Path) -> None:
    """Nine answers in ten are one model's: computed all the same, and said."""
    config = write_input(tmp_path, {"u": TASKS["u"]}, files=1, requests=20)
    lines = [
        {
            "id": f"a{i}",
            "task": "u",
            "time": 1.7e9 + i,
            "model": "few" if i % 10 == 0 else "many",
            "scores": 0.7,
        }
        for i in range(400)
    ]
    path = tmp_path / "skewed.ndjson"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    done = replay_on_spark(str(config), [path], tmp_path / "out", OnSpark("local[2]", split_bytes=10_000))
    assert done.windows == 400 // 40
    assert done.notes == (
        "u many has 90% of the answers: its windows follow on each other, so one core computes them while "
        "others wait; more of them make only the reading faster.",
    )


@pytest.mark.usefixtures("spark")
def test_a_driver_killed_as_it_writes_leaves_nothing_that_looks_whole_and_the_next_run_clears_it(
    tmp_path: Path,
) -> None:
    config = write_input(tmp_path, {"u": TASKS["u"]}, files=2)
    out = tmp_path / "out"
    words = [sys.executable, "-m", "monitor.cli", "replay", str(config), str(tmp_path / "parts")]
    words += ["--out", str(out), "--engine", "spark", "--master", "local[1]"]
    driver = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_until((out / ".unfinished" / "windows.ndjson").exists, "lines are written", pause=0.002)
        started = descendants(driver.pid)
    finally:
        driver.kill()
        driver.wait()
    assert [path.name for path in out.iterdir()] == [".unfinished"]
    wait_until(lambda: not any(map(words_of, started)), "what it started has ended")

    done = replay_on_spark(str(config), [tmp_path / "parts"], out, OnSpark("local[1]"))

    assert (out / "_SUCCESS").exists()
    assert not (out / ".unfinished").exists()
    assert (out / "windows.ndjson").read_bytes().count(b'"revision":0,') == done.windows > 0
