"""`blindsight replay --engine spark` on real Sparks: the bytes of one process, whatever dies on the way."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from monitor.base.errors import ClusterError, ConfigError, SourceError
from monitor.cli.replay import replay
from monitor.cli.replay_spark import OnSpark, replay_on_spark
from tests.connectors.spark.streams import TASKS, write_input
from tests.daemon import command, command_here, configuration, ndjson, write_configuration
from tests.engine.test_covariates import FEATURES, flights
from tests.engine.test_engine import requests
from tests.services.process import PATIENCE_SECONDS, wait_until
from tests.services.spark_cluster import SparkCluster, kill_an_executor, kill_pythons

pytestmark = [
    pytest.mark.usefixtures("spark"),
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]

HERE = OnSpark("local[2]", split_bytes=60_000)


def one_process(config: Path, out: Path) -> bytes:
    files = sorted((config.parent / "parts").iterdir())
    replay(str(config), files, out, lambda path, size: None)
    return (out / "windows.ndjson").read_bytes()


def test_every_task_gets_the_bytes_of_one_process(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    config = write_input(tmp_path)
    expected = one_process(config, tmp_path / "one")
    out = tmp_path / "spark"

    done = replay_on_spark(str(config), [tmp_path / "parts"], out, HERE)

    lines = (out / "windows.ndjson").read_bytes()
    assert lines == expected
    assert lines.count(b'"task":"s"') > 10, "the task with `ssme` is there too"
    assert lines.count(b'"kind":"arena"') > 5
    assert lines.count(b'"unit":"minutes","value":') > 20
    assert (out / "rejects.ndjson").read_bytes() == (tmp_path / "one" / "rejects.ndjson").read_bytes()
    rows = parquet.read_table(out / "windows.parquet").to_pylist()
    assert [(row["task"], row["model"], row["group"], row["window"], row["revision"]) for row in rows] == [
        tuple(json.loads(line).get(name) for name in ("task", "model", "group", "window", "revision"))
        for line in lines.splitlines()
    ]
    assert (out / "_SUCCESS").exists()
    assert not (out / ".unfinished").exists()
    assert done.windows == lines.count(b'"revision":0,')
    assert {(one.task, one.model) for one in done.view.series if not one.group} == {
        (task, model) for task in TASKS if task != "duel" for model in ("erm", "irm", "coral")
    }
    assert [(one.task, one.windows_closed) for one in done.view.tasks] == [
        ("duel", lines.count(b'"kind":"arena"'))
    ]
    assert (out / "report.html").read_text().count("<h2>Arena duel</h2>") == 1
    assert done.unused.answers == {"malformed": lines_of(tmp_path / "one" / "rejects.ndjson")}
    assert any(note.startswith("s is computed as a whole, by one core: ssme") for note in done.notes)
    assert "duel is computed as a whole, by one core: its models are compared in pairs." in done.notes


def test_labels_by_the_requests_id_join_as_in_one_process(tmp_path: Path) -> None:
    config = write_configuration(
        tmp_path,
        configuration(sources=[{"kind": "file", "path": "parts/0.ndjson", "mapping": {"format": "kserve"}}]),
    )
    records = requests(n=1500)
    (tmp_path / "parts").mkdir()
    for part in range(3):
        (tmp_path / "parts" / f"{part}.ndjson").write_bytes(ndjson(records[part::3]))
    expected = one_process(config, tmp_path / "one")
    assert expected.count(b'"estimator":"realised","value":') > 10
    replay_on_spark(str(config), [tmp_path / "parts"], tmp_path / "spark", HERE)
    assert (tmp_path / "spark" / "windows.ndjson").read_bytes() == expected


def test_windows_with_calibrations_of_their_own_are_those_of_one_process(tmp_path: Path) -> None:
    (tmp_path / "reference.ndjson").write_bytes(ndjson(flights(0, 2000, 0.3, start=1.6e9)))
    config = write_configuration(
        tmp_path,
        configuration(
            task={
                "features": FEATURES,
                "calibration": {"method": "covariates"},
                "reference": {"path": "reference.ndjson"},
                "groups": ["region"],
            },
            sources=[{"kind": "file", "path": "parts/0.ndjson"}],
        ),
    )
    stream = [
        r | {"groups": {"region": "eu" if i % 3 else "us"}} for i, r in enumerate(flights(1, 3000, 0.7))
    ]
    (tmp_path / "parts").mkdir()
    for part in range(3):
        (tmp_path / "parts" / f"{part}.ndjson").write_bytes(ndjson(stream[part * 1000 : (part + 1) * 1000]))
    expected = one_process(config, tmp_path / "one")
    assert expected.count(b'"effective_rows":') > 10
    replay_on_spark(str(config), [tmp_path / "parts"], tmp_path / "spark", HERE)
    assert (tmp_path / "spark" / "windows.ndjson").read_bytes() == expected


def lines_of(path: Path) -> int:
    return len(path.read_bytes().splitlines())


def test_killed_executors_change_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One is killed as splits are read, and one as engines compute: what it held is made again."""
    from connectors.spark import replaying

    config = write_input(tmp_path, requests=1000)
    expected = one_process(config, tmp_path / "one")
    killed: list[int] = []

    def kill_once_tasks_are_done(session: Any) -> threading.Thread:
        def watch() -> None:
            tracker = session.sparkContext.statusTracker()

            def some_done() -> bool:
                stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
                return any(0 < stage.numCompletedTasks < stage.numTasks for stage in stages if stage)

            wait_until(some_done, "a stage is half done", pause=0.005)
            killed.append(kill_an_executor())

        thread = threading.Thread(target=watch)
        thread.start()
        return thread

    def around(inner: Callable[..., Any], session_of: Callable[..., Any]) -> Callable[..., Any]:
        def with_a_kill(*arguments: Any) -> Any:
            thread = kill_once_tasks_are_done(session_of(*arguments))
            result = inner(*arguments)
            thread.join(PATIENCE_SECONDS)
            return result

        return with_a_kill

    for name in ("_facts", "_ended"):
        monkeypatch.setattr(
            replaying, name, around(getattr(replaying, name), lambda rows, *_: rows.sparkSession)
        )
    where = OnSpark("local-cluster[2,1,1024]", split_bytes=30_000)
    replay_on_spark(str(config), [tmp_path / "parts"], tmp_path / "out", where)

    assert len(set(killed)) == 2
    assert (tmp_path / "out" / "windows.ndjson").read_bytes() == expected


def test_a_standalone_master_with_two_workers_gives_the_same(
    tmp_path: Path, spark_cluster: SparkCluster
) -> None:
    config = write_input(tmp_path, requests=1000)
    expected = one_process(config, tmp_path / "one")
    done = command_here(
        "replay", config, tmp_path / "parts", "--out", tmp_path / "out", "--engine", "spark",
        "--master", spark_cluster.master, "--spark-conf", "spark.executor.memory=512m",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out" / "windows.ndjson").read_bytes() == expected
    assert "Windows: " in done.stdout


def test_what_fails_midway_leaves_nothing_that_looks_whole(tmp_path: Path) -> None:
    config = write_input(tmp_path, {"u": TASKS["u"]})
    out = tmp_path / "out"
    out.mkdir()
    for name in ("windows.ndjson", "_SUCCESS"):
        (out / name).write_text("of an earlier replay")
    (tmp_path / "parts" / "part-002.ndjson.gz").write_bytes(b"\x1f\x8b no gzip")
    with pytest.raises(SourceError, match=r"part-002\.ndjson\.gz is damaged"):
        replay_on_spark(str(config), [tmp_path / "parts"], out, HERE)
    assert list(out.iterdir()) == []


def test_a_python_that_is_killed_for_its_memory_is_told_with_what_helps(tmp_path: Path) -> None:
    """The kernel kills it; Spark tries no task twice here, as `local` does not."""
    config = write_input(tmp_path, {"u": TASKS["u"]})
    enough = threading.Event()
    thread = threading.Thread(target=kill_pythons, args=(enough,))
    thread.start()
    try:
        with pytest.raises(
            ClusterError, match=r"an executor ran out of memory: give each more \(--spark-conf"
        ):
            replay_on_spark(str(config), [tmp_path / "parts"], tmp_path / "out", HERE)
    finally:
        enough.set()
        thread.join(PATIENCE_SECONDS)
    assert list((tmp_path / "out").iterdir()) == []


def test_wrong_use_is_a_sentence_before_spark_starts(tmp_path: Path) -> None:
    config = write_input(tmp_path, {"u": TASKS["u"]}, files=1)
    (tmp_path / "plain").write_text("no folder")
    with pytest.raises(ConfigError, match=r"--out: .*plain' is not a folder; give another path"):
        replay_on_spark(str(config), [tmp_path / "parts"], tmp_path / "plain", HERE)
    target = tmp_path / "parts" / "windows.ndjson"
    (tmp_path / "parts" / "part-000.ndjson").rename(target)
    with pytest.raises(ConfigError, match=r"--out: windows\.ndjson would replace a file that is to be read"):
        replay_on_spark(str(config), [target], tmp_path / "parts", HERE)
    done = command("replay", config, target, "--out", tmp_path / "o", "--master", "local[2]")
    assert (done.returncode, done.stderr) == (
        2,
        "blindsight: --master and --spark-conf are Spark's; add --engine spark\n",
    )
