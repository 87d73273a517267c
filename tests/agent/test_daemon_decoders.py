"""`blindsight run` with processes that decode: the bytes of `run` without them, and none is left behind."""

from __future__ import annotations

import gzip
import json
import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from monitor.cli.replay import replay
from tests.accounting import assert_adds_up
from tests.cli.test_replay import as_csv, as_parquet
from tests.daemon import DaemonProcess, configuration, ndjson
from tests.faults.kills import stream
from tests.records import kserve_event
from tests.services.process import descendants, end_of, gone, wait_until
from tests.streams import answers

LINES = [line.encode() for line in stream(30_000, 5)]
"""Answers of four models, groups, labels before and after them, duplicates and rubbish: 4 MiB."""


def config(decoders: int, path: Path, **rest: Any) -> dict[str, Any]:
    task = {
        "window": {"size": 250, "min_size": 50, "max_age_seconds": 1e9},
        "calibration": {"refit_labels": None},  # a fit is taken over when it is ready, at no fixed record
        "groups": ["region"],
        "objective": {"accuracy": {"min": 0.8}},
    }
    settings = {
        "decoders": decoders,
        "sources": [{"kind": "file", "path": str(path)}],
        "reports": {"path": "windows.ndjson"},
        "rejects": {"path": "rejects.ndjson", "record": "redacted"},
    }
    return configuration(task=task, **settings) | rest


def ran(folder: Path, settings: dict[str, Any]) -> DaemonProcess:
    """Return the agent, after the end of its sources."""
    folder.mkdir()
    with DaemonProcess(folder, settings) as daemon:
        assert end_of(daemon.process) == 0, daemon.log
    return daemon


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of an agent that decodes in its own process."""
    folder = tmp_path_factory.mktemp("decoders")
    (folder / "in.ndjson").write_bytes(b"".join(line + b"\n" for line in LINES))
    ran(folder / "alone", config(0, folder / "in.ndjson"))
    return folder / "alone"


def decoders(daemon: DaemonProcess, count: int) -> list[int]:
    """Return the processes that decode, once they are there."""

    def there() -> list[int]:
        return [pid for pid in descendants(daemon.process.pid) if b"--multiprocessing-fork" in words(pid)]

    daemon.until(lambda: len(there()) == count, "they decode")
    return there()


def words(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


@pytest.mark.parametrize("count", [1, 2])
def test_the_windows_are_those_of_an_agent_that_decodes_itself_and_of_replay(alone: Path, count: int) -> None:
    folder = alone.parent / f"with-{count}"
    daemon = ran(folder, config(count, alone.parent / "in.ndjson"))
    written = (folder / "windows.ndjson").read_bytes()
    assert written == (alone / "windows.ndjson").read_bytes()
    assert written.count(b'"revision":0') > 200
    assert b'"revision":1' in written
    assert "A process that decodes" not in daemon.log
    out = folder / "replayed"
    replay(str(daemon.config), [folder.parent / "in.ndjson"], out, lambda *_: None)
    assert (out / "windows.ndjson").read_bytes() == written


def test_rejects_are_redacted_alike_by_all_processes(alone: Path) -> None:
    """Every process redacts equal records to the same hash."""
    folder = alone.parent / "rejects"
    ran(folder, config(2, alone.parent / "in.ndjson"))
    rejects = [json.loads(line) for line in (folder / "rejects.ndjson").read_bytes().splitlines()]
    expected = [json.loads(line) for line in (alone / "rejects.ndjson").read_bytes().splitlines()]
    assert [each["position"] for each in rejects] == [each["position"] for each in expected]
    assert len({each["raw"] for each in rejects}) == len({each["raw"] for each in expected}) < len(expected)


def test_files_of_every_format_are_used_as_without(tmp_path: Path) -> None:
    """Each source has a model of its own: of several sources no order is kept, of each it is."""
    rng = np.random.default_rng(4)
    for name in ("lines", "csv", "parquet", "packed", "mapped", "kserve"):
        records = answers(rng, 8000, model=name, labelled=True)
        (tmp_path / f"{name}.ndjson").write_bytes(ndjson(records))
    as_csv(read(tmp_path / "csv.ndjson"), tmp_path / "in.csv")
    as_parquet(read(tmp_path / "parquet.ndjson"), tmp_path / "in.parquet")
    (tmp_path / "in.ndjson.gz").write_bytes(gzip.compress((tmp_path / "packed.ndjson").read_bytes()))
    records = read(tmp_path / "mapped.ndjson")
    mapped = [{"at": r["time"], "who": {"name": "mapped"}, "p": r["scores"]} for r in records]
    (tmp_path / "mapped.ndjson").write_bytes(ndjson(mapped))
    events = [
        kserve_event(r | {"time": "2026-07-01T12:00:00.5Z", "model": "kserve"})
        for r in read(tmp_path / "kserve.ndjson")
    ]
    (tmp_path / "kserve.ndjson").write_bytes(ndjson(events))
    names = ["lines.ndjson", "in.csv", "in.parquet", "in.ndjson.gz", "kserve.ndjson"]
    sources: list[dict[str, Any]] = [{"kind": "file", "path": str(tmp_path / name)} for name in names]
    mapping = {"time": "at", "model": "who.name", "scores": "p"}
    sources.append({"kind": "file", "path": str(tmp_path / "mapped.ndjson"), "mapping": mapping})
    for count in (0, 2):
        ran(tmp_path / str(count), config(count, tmp_path, sources=sources))
    here, there = (
        sorted((tmp_path / str(count) / "windows.ndjson").read_bytes().splitlines()) for count in (0, 2)
    )
    assert here == there
    assert {json.loads(line)["model"] for line in there} == {
        *("lines", "csv", "parquet", "packed", "mapped", "kserve")
    }


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def following(folder: Path, count: int) -> dict[str, Any]:
    path = folder / "in.ndjson"
    return config(
        count,
        path,
        sources=[{"kind": "file", "path": str(path), "follow": True}],
        store={"path": "state", "every_seconds": 0.05},
    )


def give(folder: Path, lines: Sequence[bytes]) -> None:
    with (folder / "in.ndjson").open("ab") as file:
        file.write(b"".join(line + b"\n" for line in lines))


def test_killed_decoders_lose_nothing_and_use_nothing_twice(alone: Path, tmp_path: Path) -> None:
    """One is stopped amid a read and killed; then all are, while they have nothing."""
    (tmp_path / "in.ndjson").touch()
    with DaemonProcess(tmp_path, following(tmp_path, 2)) as daemon:
        first, second = decoders(daemon, 2)
        give(tmp_path, LINES[:500])
        daemon.until(lambda: daemon.metrics().used > 400, "the first are used")
        os.kill(first, signal.SIGSTOP)
        give(tmp_path, LINES[500:12_000])
        wait_until(lambda: not gone(first), "it is there")
        os.kill(first, signal.SIGKILL)
        give(tmp_path, LINES[12_000:20_000])
        daemon.until(lambda: "A process that decodes was killed" in daemon.log, "its loss is told")
        os.kill(second, signal.SIGKILL)
        give(tmp_path, LINES[20_000:])
        assert_adds_up(daemon, sent=len(LINES))
        daemon.until_value(2, "decoder_failures_total")
        daemon.end()
    windows = (tmp_path / "windows.ndjson").read_bytes()
    expected = (alone / "windows.ndjson").read_bytes()
    expected = expected.replace(str(alone.parent).encode(), str(tmp_path).encode())
    assert expected.startswith(windows)
    assert windows.count(b"\n") > 200


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_no_process_is_left_whatever_ended_the_agent(tmp_path: Path, number: signal.Signals) -> None:
    (tmp_path / "in.ndjson").write_bytes(b"".join(line + b"\n" for line in LINES[:5000]))
    with DaemonProcess(tmp_path, following(tmp_path, 2)) as daemon:
        decoders(daemon, 2)
        daemon.until(lambda: daemon.metrics().used > 100, "it works")
        left = descendants(daemon.process.pid)
        code, _ = daemon.end(number)
        assert code == (-9 if number == signal.SIGKILL else 0)
        wait_until(lambda: all(map(gone, left)), "all have gone")
        assert "Traceback" not in daemon.log
