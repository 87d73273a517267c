"""A store's agent tries each reference once: again where the file, the task or the version is another."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from monitor.base.errors import ConfigError
from monitor.cli import tried as tried_module
from monitor.cli.daemon import Daemon
from monitor.cli.trial import ReferenceTrial
from monitor.cli.tried import FILE, Tried
from monitor.config.root import Config
from tests.daemon import configuration
from tests.engine.test_promises import SHORT, labelled, referenced
from tests.streams import CLASSES

ROWS = 600


def write(path: Path, labels: Callable[[float], str]) -> None:
    """Write a reference of one size whatever its labels; its time is always the same."""
    scores = np.random.default_rng(0).random(ROWS).round(6)
    rows = [
        {"id": f"{i:04}", "time": 1e9 + i, "model": "erm", "scores": f"{s:.6f}", "label": labels(s)}
        for i, s in enumerate(scores)
    ]
    lines = [json.dumps({**row, "scores": float(row["scores"])}).ljust(200) for row in rows]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    os.utime(path, ns=(10**18, 10**18))


def good(score: float) -> str:
    return "toxic" if score > 0.5 else "benign"


def one_class(score: float) -> str:
    return "benign"


def config(folder: Path, **task: Any) -> Config:
    config = configuration(
        task={
            "classes": ["benign", "toxic"],
            "window": {"size": 100, "min_size": 20},
            "reference": {"path": str(folder / "reference.ndjson")},
            **task,
        },
        store={"path": str(folder / "state")},
        sources=[{"kind": "stdin"}],
    )
    return Config.model_validate(config)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return the folder of a daemon that has started once, with a good reference."""
    write(tmp_path / "reference.ndjson", good)
    daemon = Daemon(config(tmp_path))
    with daemon.running() as agent:
        agent.stop()
    return tmp_path


def start(folder: Path, **task: Any) -> None:
    """Do the first steps of a start."""
    settings = config(folder, **task)
    ReferenceTrial(settings, Tried(settings)).engine_settings()


def test_what_was_good_is_not_tried_again(folder: Path) -> None:
    # As nothing can be told apart from before, this passes: nobody looked.
    write(folder / "reference.ndjson", one_class)
    start(folder)
    with pytest.raises(ConfigError, match="only the label benign"):
        ReferenceTrial(config(folder)).engine_settings()


def test_another_file_another_task_another_version_or_no_memory_is_tried(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(folder / "reference.ndjson", one_class)
    with pytest.raises(ConfigError, match="only the label benign"):
        start(folder, metrics=["accuracy", "auroc"])
    with monkeypatch.context() as patch:
        patch.setattr(tried_module, "__version__", "0.0.0")
        with pytest.raises(ConfigError, match="only the label benign"):
            start(folder)
    memory = folder / "state" / FILE
    kept = memory.read_bytes()
    for damaged in (b"", b"[]", kept[:-20]):
        memory.write_bytes(damaged)
        with pytest.raises(ConfigError, match="only the label benign"):
            start(folder)
    memory.write_bytes(kept)
    os.utime(folder / "reference.ndjson", ns=(10**18, 10**18 + 1))
    with pytest.raises(ConfigError, match="only the label benign"):
        start(folder)


def test_the_charts_that_were_tried_are_the_engines(tmp_path: Path) -> None:
    write(tmp_path / "reference.ndjson", good)
    settings = ReferenceTrial(config(tmp_path)).engine_settings()
    [(name, task)] = settings.tasks.items()
    known = settings.references[name]["erm"]
    baselines, *_ = known.cached_baselines(task, "", lambda: pytest.fail("the engine would draw them again"))
    assert len(baselines["accuracy"].values) == ROWS // 100


def test_a_task_that_was_warned_of_is_warned_of_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    many = labelled(2000, groups={"region": "eu"})
    few = labelled(600, seed=5, start=1.6e9, groups={"region": "us"})
    referenced(tmp_path, [*few, *many])
    reference = {"path": str(tmp_path / "reference.ndjson")}
    task = SHORT | {"classes": CLASSES, "reference": reference}
    tasks = {"t": task | {"groups": ["region"]}, "u": task}
    config = Config.model_validate({"tasks": tasks, "store": {"path": str(tmp_path)}})
    for _ in range(2):
        tried = Tried(config)
        caplog.clear()
        ReferenceTrial(config, tried).engine_settings()
        tried.save()
        assert [line.startswith("tasks.t.reference, erm region=us") for line in waits(caplog)] == [True]
        assert list(json.loads((tmp_path / FILE).read_bytes())) == ["u"]


def waits(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [message for message in caplog.messages if "Its charts wait" in message]
