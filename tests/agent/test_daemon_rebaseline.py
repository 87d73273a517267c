"""`blindsight rebaseline` on a daemon that runs, on one that was stopped, and where nothing can be asked."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.daemon import DaemonProcess, command, configuration, ndjson, read_windows, write_configuration
from tests.streams import answers

SERIES = {"task": "t", "model": "erm"}
WORSE = (0.4, 0.5, 0.1)


def config(**rest: Any) -> dict[str, Any]:
    return configuration(
        sources=[{"kind": "file", "path": "in.ndjson", "follow": True}],
        reports={"path": "windows.ndjson"},
        store={"path": "state", "every_seconds": 0.1},
        **rest,
    )


def rebaseline(folder: Path, *words: str, model: str = "erm", reason: str = "new threshold") -> Any:
    options = ["--model", model, "--metric", "accuracy", "--reason", reason, *words]
    return command("rebaseline", "config.yaml", *options, cwd=folder)


def alarming(folder: Path) -> None:
    rng = np.random.default_rng(3)
    stream = answers(rng, 1000) + answers(rng, 200, weights=WORSE, start=1.71e9)
    (folder / "in.ndjson").write_bytes(ndjson(stream))


def append(folder: Path, n: int) -> None:
    with (folder / "in.ndjson").open("ab") as file:
        file.write(ndjson(answers(np.random.default_rng(9), n, weights=WORSE, start=1.72e9)))


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    alarming(tmp_path)
    return tmp_path


def test_a_running_daemon_is_told_says_so_and_keeps_it_through_a_kill(here: Path) -> None:
    with DaemonProcess(here, config()) as daemon:
        daemon.until_value(1, "out_of_control", **SERIES, metric="accuracy")
        done = rebaseline(here)
        assert (done.returncode, done.stderr) == (0, "")
        message = "t, erm, accuracy: the next 5 windows complete its new baseline; its alarm is off.\n"
        assert done.stdout == message
        daemon.until_value(None, "out_of_control", **SERIES, metric="accuracy")
        daemon.end(signal.SIGKILL)
    append(here, 700)
    with DaemonProcess(here, config()) as daemon:
        daemon.until(lambda: len(read_windows(here / "windows.ndjson")) == 19, "all windows are written")
        daemon.until_value(0, "out_of_control", **SERIES, metric="accuracy")
    windows = read_windows(here / "windows.ndjson")
    rebaselined = {w["window"]: w["rebaselined"] for w in windows if "rebaselined" in w}
    assert rebaselined == {12: [{"metric": "accuracy", "reason": "new threshold"}]}
    assert [bool(w["charts"]) for w in windows[12:]] == [False] * 5 + [True] * 2
    assert not any((here / "state" / "requests").iterdir())


def test_a_stopped_daemon_takes_it_up_when_it_starts(here: Path) -> None:
    with DaemonProcess(here, config()) as daemon:
        daemon.until_value(1, "out_of_control", **SERIES, metric="accuracy")
        assert daemon.end()[0] == 0
    done = rebaseline(here)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"No agent runs on {here / 'state'}. The request waits there (requests/")
    with DaemonProcess(here, config()) as daemon:
        daemon.until_value(None, "out_of_control", **SERIES, metric="accuracy")
        daemon.until(lambda: "Asked for rebaseline: t, erm, accuracy: the next 5" in daemon.log, "it says so")


def test_a_model_that_is_not_there_is_refused_by_the_daemon(here: Path) -> None:
    with DaemonProcess(here, config()) as daemon:
        daemon.until_value(1, "out_of_control", **SERIES, metric="accuracy")
        done = rebaseline(here, model="erms")
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr == "blindsight: model: there is no 'erms'; did you mean 'erm'?\n"
        assert "Asked for rebaseline, refused: model: there is no 'erms'; did you mean 'erm'?\n" in daemon.log
        assert daemon.metrics().value("out_of_control", **SERIES, metric="accuracy") == 1


@pytest.mark.parametrize(
    ("words", "code", "why"),
    [
        (["--task", "tt"], 1, "task: there is no 'tt'; there is only 't'"),
        (["--metric", "acuracy"], 1, "metric: there is no 'acuracy'; did you mean 'accuracy'?"),
        (["--reason", " "], 2, "--reason: it is empty; give the reason in a few words"),
        (["--reason", "\udcfc"], 2, "--reason: expected UTF-8, got '\\udcfc'; set the terminal to UTF-8"),
    ],
)
def test_what_the_configuration_lacks_is_refused_without_asking(
    here: Path, words: list[str], code: int, why: str
) -> None:
    write_configuration(here, config())
    done = rebaseline(here, *words)
    assert (done.returncode, done.stdout) == (code, "")
    assert why in done.stderr
    assert not (here / "state").exists()


def test_without_a_store_there_is_nowhere_to_ask(here: Path) -> None:
    without = {key: value for key, value in config().items() if key != "store"}
    (here / "config.yaml").write_text(json.dumps(without))
    done = rebaseline(here)
    assert done.returncode == 2
    assert "store: there is none in this configuration; requests reach the agent through it" in done.stderr


def test_a_daemon_that_does_not_answer_is_told_apart_from_none(here: Path) -> None:
    with DaemonProcess(here, config()) as daemon:
        daemon.until_value(1, "out_of_control", **SERIES, metric="accuracy")
        daemon.send(signal.SIGSTOP)
        done = rebaseline(here, "--wait", "0.5")
        daemon.send(signal.SIGCONT)
        assert done.returncode == 1
        assert "has not answered within 0.5 s; the request waits there (requests/" in done.stderr
        daemon.until_value(None, "out_of_control", **SERIES, metric="accuracy")
