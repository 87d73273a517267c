"""`blindsight replay --processes N`: every byte is that of one process, and no process is left behind."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from connectors.splits import splits_of
from monitor.base.errors import ClusterError, ConfigError, SourceError
from monitor.cli import process, replay_processes
from monitor.cli.process import cores
from monitor.cli.replay import Replayed, replay, series_of
from monitor.cli.replay_processes import replay_on_cores
from monitor.config.file import load_config
from monitor.parallel.scheduling import Scheduler
from monitor.reports.views import EngineView, LabelOutcome
from tests.cli.test_replay import WRITERS, Record
from tests.connectors.spark.streams import TASKS, comparisons, write_input
from tests.daemon import command, configuration, ndjson, write_configuration
from tests.engine.test_feature_changes import FEATURES, flights
from tests.services.process import PATIENCE_SECONDS, wait_until
from tests.streams import CLASSES, answers

pytestmark = pytest.mark.process


def nothing(path: Path, size: int) -> None:
    """Show no bar."""


def both(
    config: Path, files: Sequence[Path], processes: int = 2, piece: int | None = None
) -> tuple[Replayed, Replayed]:
    """Return a replay by one process, and by several; every file that they write is compared."""
    one, several = config.parent / "one", config.parent / "several"
    alone = replay(str(config), files, one, nothing)
    with pytest.MonkeyPatch.context() as patch:
        if piece is not None:
            patch.setattr(replay_processes, "PIECE_BYTES", piece)
        shared = replay_on_cores(str(config), files, several, nothing, processes)
    names = sorted(path.name for path in one.iterdir())
    assert sorted(path.name for path in several.iterdir()) == names
    for name in names:
        assert (several / name).read_bytes() == (one / name).read_bytes(), name
    assert shared.windows == alone.windows
    assert shared.unused == alone.unused
    assert shared.alarms == alone.alarms
    assert comparable(shared.view) == comparable(alone.view)
    assert shared.view.tasks == alone.view.tasks
    assert [path.name for path in shared.pictures] == [path.name for path in alone.pictures]
    return alone, shared


def comparable(view: EngineView) -> list[object]:
    """Return the series with the rates of their features in place of the counts, which are arrays."""
    return [(replace(one, features=None), one.feature_rates) for one in view.series]


@pytest.mark.parametrize("processes", [2, 3, 5])
def test_every_task_gets_the_bytes_of_one_process(processes: int, tmp_path: Path) -> None:
    """Labels in every order, `ssme`, an arena, groups, answers again in other pieces, rejects, four files."""
    config = write_input(tmp_path)
    files = sorted((tmp_path / "parts").iterdir())

    alone, shared = both(config, files, processes, piece=20_000)

    lines = (tmp_path / "several" / "windows.ndjson").read_bytes()
    assert all(lines.count(f'"task":"{task}"'.encode()) >= 3 for task in TASKS)
    assert b'"revision":1' in lines
    assert alone.unused.answers.total() > 10
    assert (tmp_path / "several" / "rejects.ndjson").stat().st_size > 0
    assert any(note.startswith("s is computed as a whole, by one core: ssme") for note in shared.notes)
    assert "duel is computed as a whole, by one core: its models are compared in pairs." in shared.notes
    [arena] = shared.view.tasks
    assert (arena.windows_closed, arena.pending) == (lines.count(b'"kind":"arena"'), 0)
    assert b"<h2>Arena duel</h2>" in (tmp_path / "several" / "report.html").read_bytes()
    assert shared.notes[-1].startswith(f"{processes} processes read and computed, each with at most ")
    assert len(shared.seconds) == processes


def long_stream(rows: int) -> list[Record]:
    """Return two models in turn, half a minute apart; some labels along, and groups."""
    rng = np.random.default_rng(3)
    records = answers(rng, rows, labelled=True)
    for i, record in enumerate(records):
        record |= {"id": f"r{i}", "model": ("erm", "irm")[i % 2], "groups": {"region": "eu"}}
        if i % 7:
            del record["label"]
    return records


@pytest.mark.parametrize("name", WRITERS)
def test_the_format_of_the_file_does_not_matter(name: str, tmp_path: Path) -> None:
    """More than one read of each: what cannot be cut is handed over in pieces too."""
    records = long_stream(18_000)
    for record in records:
        record["label"] = record.get("label")  # a column
    WRITERS[name](records, tmp_path / name)
    config = write_configuration(tmp_path, configuration(task={"groups": ["region"]}))
    alone, shared = both(config, [tmp_path / name])
    assert alone.windows > 300
    assert shared.unused.first == []


def test_the_features_behind_an_alarm_are_those_of_one_process(tmp_path: Path) -> None:
    reference = flights(0, 4000, start=1.6e9, labelled=True)
    (tmp_path / "reference.ndjson").write_bytes(
        ndjson([record | {"model": model} for model in ("erm", "irm") for record in reference])
    )
    late = [*flights(1, 3000), *flights(2, 1500, start=1.71e9, later=6.0)]
    stream = [record | {"id": f"r{i}", "model": ("erm", "irm")[i % 2]} for i, record in enumerate(late)]
    (tmp_path / "answers.ndjson").write_bytes(ndjson(stream))
    watched = {"features": FEATURES, "reference": {"path": "reference.ndjson"}, "window": {"size": 250}}
    config = write_configuration(tmp_path, configuration(task=watched))
    both(config, [tmp_path / "answers.ndjson"], piece=20_000)
    lines = (tmp_path / "several" / "windows.ndjson").read_bytes()
    assert lines.count(b'"features":{"window":') >= 4
    assert b'{"feature":"hour","change":-0.' in lines


def test_pieces_that_wait_until_others_are_read_are_computed_as_by_one_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workers read as much as they may, then compute several pieces at once, as on a busy machine."""
    give = Scheduler._give

    def read_first(self: Scheduler, worker: Any) -> None:
        waiting, worker.waiting = worker.waiting, deque()
        give(self, worker)
        worker.waiting = waiting
        if worker.order is None:
            give(self, worker)

    monkeypatch.setattr(Scheduler, "_give", read_first)
    rng, models = np.random.default_rng(3), ("erm", "irm")
    reference = [one for model in models for one in answers(rng, 500, model, start=1.6e9, labelled=True)]
    (tmp_path / "reference.ndjson").write_bytes(ndjson(reference))
    records = []
    for model in models:
        for i, one in enumerate(answers(rng, 3000, model)):
            label = CLASSES[int(rng.random() < one["scores"][1] ** 2)]
            delay = rng.exponential(200)
            late = {"id": one["id"], "model": model, "label": label, "time": one["time"] + delay}
            records += [(i, one), (i + delay, late)]
    stream = [one for _, one in sorted(records, key=lambda each: each[0])]
    (tmp_path / "a.ndjson").write_bytes(ndjson(stream))
    own = {"reference": {"path": "reference.ndjson"}, "calibration": {"refit_labels": 50}}
    config = write_configuration(tmp_path, configuration(task=own))

    both(config, [tmp_path / "a.ndjson"], piece=60_000)

    assert b'"version":4,"interval"' in (tmp_path / "several" / "windows.ndjson").read_bytes()


def test_times_that_leap_move_the_clock_of_the_whole_stream(tmp_path: Path) -> None:
    """One is an error, and ages nothing; then all are a month later, also for a model that comes back."""
    records = long_stream(3000)
    records[700]["time"] += 400 * 86_400.0
    for record in records[1500:]:
        record["time"] += 30 * 86_400.0
    records = [r for i, r in enumerate(records) if r["model"] == "erm" or not 1000 <= i < 2000]
    path = tmp_path / "a.ndjson"
    path.write_bytes(ndjson(records))
    config = write_configuration(tmp_path, configuration(task={"window": {"max_age_seconds": 600}}))
    both(config, [path], piece=30_000)
    assert b'"closed_by":"age"' in (tmp_path / "several" / "windows.ndjson").read_bytes()


def test_models_that_turn_out_to_share_a_full_memory_are_computed_together(tmp_path: Path) -> None:
    """The labels come after the first MiB of the file, of which the models are shared out."""
    records = long_stream(12_000)
    for record in records:
        record.pop("label", None)
    late = [{"id": r["id"], "label": CLASSES[0], "time": r["time"]} for r in records[8000:]]
    path = tmp_path / "a.ndjson"
    path.write_bytes(ndjson([*records, *late]))
    assert path.stat().st_size > 1.2 * 2**20
    config = write_configuration(tmp_path, configuration(task={"labels": {"max_answers": 5000}}))

    both(config, [path])

    progress: Counter[Path] = Counter()
    replayed = replay_on_cores(
        str(config), [path], tmp_path / "told", lambda file, size: progress.update({file: size}), 2
    )
    assert progress == {path: path.stat().st_size}, "the bar went back as all was begun anew"
    assert any("t is computed as a whole, by one core: its labels are awaited" in n for n in replayed.notes)


def test_row_groups_do_not_show_in_what_a_full_memory_lets_go_of(tmp_path: Path) -> None:
    """The labels that find an answer depend on how many records came in the same read; row groups end within
    one.
    """
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    records: list[Record] = []
    for i, record in enumerate(long_stream(30_000)):
        records.append({**record, "label": None})
        if i > 4000 and i % 3 == 0:
            late = {
                "id": f"r{i - 100 - (i > 6000) * (2800 + i * 7 % 2000)}",
                "label": CLASSES[i % 2],
                "time": record["time"],
            }
            records.append({**late, "model": None, "scores": None})
    keys = ["id", "time", "model", "scores", "label"]
    table = arrow.table({key: arrow.array([record[key] for record in records]) for key in keys})
    parquet.write_table(table, tmp_path / "a.parquet", row_group_size=5000)
    config = write_configuration(tmp_path, configuration(task={"labels": {"max_answers": 3000}}))
    splits = splits_of(tmp_path / "a.parquet", 200_000)
    assert [split.start for split in splits] == [0, 8192, 16_384, 24_576, 32_768]

    alone, _ = both(config, [tmp_path / "a.parquet"], piece=200_000)

    matched = alone.view.labels["t", LabelOutcome.MATCHED]
    assert 0 < matched < sum(record["model"] is None for record in records)


def test_files_without_a_record_and_a_file_twice(tmp_path: Path) -> None:
    records = long_stream(400)
    (tmp_path / "empty.ndjson").write_bytes(b"")
    (tmp_path / "blank.ndjson").write_bytes(b"\n\n")
    (tmp_path / "a.ndjson").write_bytes(ndjson(records))
    config = write_configuration(tmp_path, configuration())
    files = [tmp_path / f"{name}.ndjson" for name in ("empty", "a", "blank", "a")]
    both(config, files, processes=3, piece=9000)


def test_labels_after_all_windows_are_noted_as_by_one_process(tmp_path: Path) -> None:
    records = long_stream(400)
    labels = [{"id": r["id"], "label": CLASSES[0], "time": r["time"]} for r in records]
    for record in records:
        record.pop("label", None)
    (tmp_path / "a.ndjson").write_bytes(ndjson(records))
    (tmp_path / "labels.ndjson").write_bytes(ndjson(labels))
    config = write_configuration(tmp_path, configuration())
    alone, shared = both(config, [tmp_path / "a.ndjson", tmp_path / "labels.ndjson"], piece=9000)
    assert "labels.ndjson came after all answers of" in alone.notes[0]
    assert alone.notes[0] in shared.notes


def test_nothing_but_rejects_is_told_as_by_one_process(tmp_path: Path) -> None:
    (tmp_path / "a.ndjson").write_bytes(b'{"id": 1}\n' * 300)
    config = write_configuration(tmp_path, configuration(rejects={"path": "rejects.ndjson"}))
    alone, shared = both(config, [tmp_path / "a.ndjson"], piece=500)
    assert shared.unused.everything
    assert alone.unused.first == shared.unused.first


def test_a_model_that_never_answered_shows_as_in_one_process(tmp_path: Path) -> None:
    (tmp_path / "a.ndjson").write_bytes(ndjson(long_stream(400)))
    config = write_configuration(
        tmp_path, configuration(task={"models": {"silent": {}, "irm": {}}, "groups": ["region"]})
    )
    _, shared = both(config, [tmp_path / "a.ndjson"], piece=9000)
    names = [(one.model, one.group) for one in shared.view.series]
    assert names == [*((m, "") for m in ("silent", "irm", "erm")), ("irm", "region=eu"), ("erm", "region=eu")]
    unnamed = series_of(load_config(str(config)), [shared.view], [("t", "erm")])
    assert [one.model for one in unnamed if not one.group] == ["erm", "silent", "irm"]


def test_small_input_is_not_worth_a_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.ndjson"
    path.write_bytes(ndjson(long_stream(300)))
    config = str(write_configuration(tmp_path, configuration()))
    monkeypatch.setattr(process, "cores", lambda: 3)
    assert replay_on_cores(config, [path], tmp_path / "out", nothing).seconds == ()
    monkeypatch.setattr(process, "BYTES_A_PROCESS", path.stat().st_size // 2)
    assert len(replay_on_cores(config, [path], tmp_path / "out", nothing).seconds) == 2


def test_what_cannot_be_shared_out_says_so(tmp_path: Path) -> None:
    pipe = tmp_path / "p.ndjson"
    os.mkfifo(pipe)
    config = str(write_configuration(tmp_path, configuration()))
    records = ndjson(long_stream(300))
    with subprocess.Popen(
        [sys.executable, "-c", "import sys; open(sys.argv[1], 'wb').write(sys.stdin.buffer.read())", pipe],
        stdin=subprocess.PIPE,
    ) as writer:
        assert writer.stdin is not None
        writer.stdin.write(records)
        writer.stdin.close()
        replayed = replay_on_cores(config, [pipe], tmp_path / "out", nothing, 2)
    assert replayed.windows > 0
    assert replayed.notes == (
        f"One process computed everything: {pipe} is a pipe, which only one process can read.",
    )


def test_arenas_alone_are_spread_over_processes_one_without_a_record(tmp_path: Path) -> None:
    """At the end of the input their lines are in the order of the configuration."""
    config = tmp_path / "config.yaml"
    arena = {"kind": "arena", "window": {"size": 110}}
    config.write_text(json.dumps({"tasks": dict.fromkeys(("z", "a", "silent"), arena)}))
    for i, name in enumerate(("z", "a")):
        records = [record | {"task": name} for record in comparisons(i, 3000)]
        (tmp_path / f"{name}.ndjson").write_bytes(ndjson(records))

    alone, shared = both(config, [tmp_path / "z.ndjson", tmp_path / "a.ndjson"], piece=20_000)

    assert alone.windows == 56
    assert [one.task for one in shared.view.tasks] == ["z", "a", "silent"]


def test_a_damaged_file_ends_it_as_in_one_process(tmp_path: Path) -> None:
    path = tmp_path / "a.ndjson.gz"
    path.write_bytes(gzip.compress(ndjson(long_stream(20_000)))[:-2000])
    config = str(write_configuration(tmp_path, configuration()))
    with pytest.raises(SourceError) as alone:
        replay(config, [path], tmp_path / "one", nothing)
    with pytest.raises(SourceError) as several:
        replay_on_cores(config, [path], tmp_path / "several", nothing, 2)
    assert str(several.value) == str(alone.value)


def test_an_input_among_the_output_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "windows.ndjson"
    path.write_bytes(ndjson(long_stream(10)))
    config = str(write_configuration(tmp_path, configuration()))
    with pytest.raises(ConfigError, match=r"--out: windows.ndjson would replace"):
        replay_on_cores(config, [path], tmp_path, nothing, 2)
    assert path.stat().st_size > 0


def big_input(folder: Path) -> tuple[Path, Path]:
    """Return the input of some seconds of work."""
    path = folder / "a.ndjson"
    path.write_bytes(ndjson(long_stream(40_000)) * 8)
    return write_configuration(folder, configuration()), path


def started(folder: Path) -> tuple[subprocess.Popen[bytes], list[int]]:
    """Return a replay at work by two processes, and those of them that read and compute.

    These are stopped, so that the replay cannot end before the test does something to it.
    """
    config, path = big_input(folder)
    words = [sys.executable, "-m", "monitor.cli", "replay", str(config), str(path)]
    out = folder / "out"
    program = subprocess.Popen(
        [*words, "--out", str(out), "--processes", "2"],
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )
    lines = out / "windows.ndjson"
    try:
        wait_until(lambda: lines.exists() and lines.stat().st_size > 0, "the first window is written", 0.01)
        working = [pid for pid in session_of(program.pid) if pid != program.pid and is_worker(pid)]
        assert len(working) == 2
        for pid in working:
            os.kill(pid, signal.SIGSTOP)
        assert program.poll() is None, "it ended before its processes were stopped"
    except BaseException:
        program.kill()
        program.communicate()
        raise
    return program, working


def session_of(leader: int) -> list[int]:
    """Return every process of a session."""
    pids = []
    for path in Path("/proc").iterdir():
        if path.name.isdigit():
            try:
                if os.getsid(int(path.name)) == leader:
                    pids.append(int(path.name))
            except ProcessLookupError:
                continue
    return pids


def is_worker(pid: int) -> bool:
    """Return whether the process is a child of the server of forks, which is the leader's own."""
    status = Path(f"/proc/{pid}/status").read_text()
    parent = int(status.partition("PPid:")[2].split()[0])
    return b"forkserver" in Path(f"/proc/{parent}/cmdline").read_bytes()


def test_a_killed_process_ends_the_replay_with_a_sentence(tmp_path: Path) -> None:
    program, working = started(tmp_path)
    os.kill(working[1], signal.SIGKILL)
    _, stderr = program.communicate(timeout=PATIENCE_SECONDS)
    assert program.returncode == 1
    assert stderr.decode() == (
        "blindsight: a process of the replay was killed (signal 9: by hand, or by the system for want of "
        "memory): the output is not complete; run it again, with fewer --processes if memory is short\n"
    )
    wait_until(lambda: not session_of(program.pid), "its processes are gone")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_no_process_is_left_behind(number: signal.Signals, tmp_path: Path) -> None:
    """Ctrl-C in a terminal goes to each of its processes; a killed process cannot say goodbye."""
    program, working = started(tmp_path)
    if number == signal.SIGINT:
        os.killpg(program.pid, number)
    else:
        program.send_signal(number)
        for pid in working:  # nobody else is left to end them
            os.kill(pid, signal.SIGCONT)
    _, stderr = program.communicate(timeout=PATIENCE_SECONDS)
    assert program.returncode == (130 if number == signal.SIGINT else -9)
    assert b"Traceback" not in stderr
    wait_until(lambda: not session_of(program.pid), "its processes are gone")


def test_a_process_that_dies_is_no_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that crashes in our code, as only a crash inside it would."""
    monkeypatch.setattr(replay_processes, "serve", os._exit)
    monkeypatch.setattr(replay_processes.Owners, "models", lambda self, number: {})
    path = tmp_path / "a.ndjson"
    path.write_bytes(ndjson(long_stream(300)))
    config = str(write_configuration(tmp_path, configuration()))
    with pytest.raises(ClusterError, match=r"a process of the replay ended with exit code 1: the output is"):
        replay_on_cores(config, [path], tmp_path / "out", nothing, 2)


def test_wrong_numbers_of_processes_are_refused(tmp_path: Path) -> None:
    config = write_configuration(tmp_path, configuration())
    words = ["replay", str(config), "a.ndjson", "--out", str(tmp_path / "out"), "--processes"]
    none = command(*words, "0")
    assert none.returncode == 2
    assert (
        "--processes: expected 1 to 1024, got 0; leave it out for as many as there are cores" in none.stderr
    )
    spark = command(*words, "2", "--engine", "spark")
    assert spark.returncode == 2
    assert "--processes is not for Spark; leave it out, or leave --engine spark out" in spark.stderr


def test_a_container_with_a_share_of_the_processor_counts_as_so_many_cores(tmp_path: Path) -> None:
    limit = tmp_path / "cpu.max"
    most = cores(tmp_path / "absent")
    for text, expected in (("max 100000\n", most), ("100000 100000\n", 1), ("50000 100000\n", 1)):
        limit.write_text(text)
        assert cores(limit) == expected
    limit.write_text(f"{100_000 * (most + 3)} 100000\n")
    assert cores(limit) == most
