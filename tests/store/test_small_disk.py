"""A device that is really full, and one that is really read-only, under the store."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from monitor.base.state_changes import assemble
from monitor.store import Store
from tests.daemon import ROOT
from tests.services.process import PATIENCE_SECONDS
from tests.store.on_small_disk import commit
from tests.streams import Rig


def on_small_disk(folder: Path, how: str) -> dict[str, Any]:
    probe = ["unshare", "-rm", "mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    try:
        tried = subprocess.run(probe, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)
    except FileNotFoundError as error:
        pytest.skip(f"needs unshare and mount: {error}")
    if tried.returncode:
        pytest.skip(
            f"a file system cannot be mounted in a namespace of one's own here: {tried.stderr.strip()}"
        )
    words = [sys.executable, "-m", "tests.store.on_small_disk", str(folder), how]
    done = subprocess.run(
        ["unshare", "-rm", *words],
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr
    outcome: dict[str, Any] = json.loads(done.stdout)
    return outcome


def test_a_full_device_is_said_and_nothing_is_lost_once_there_is_room(tmp_path: Path) -> None:
    outcome = on_small_disk(tmp_path, "full")
    failed = [bool(message) for message in outcome["said"]]
    assert failed[0] is False, "there was room for the first"
    assert failed == [*sorted(failed[:-1]), False], "from one on all fail, until there is room again"
    assert sum(failed) > 5
    assert all("the disk is full; make room" in message for message in outcome["said"] if message)
    assert outcome["whole"]


@pytest.mark.parametrize("how", ["reports", "queued_reports"])
def test_a_partial_line_on_a_full_device_is_closed_once_there_is_room(tmp_path: Path, how: str) -> None:
    path = f"{tmp_path}/windows.ndjson"
    full = f"cannot write '{path}': No space left on device; make room or give another path"
    outcome = on_small_disk(tmp_path, how)
    assert outcome["said"] == [f"0: {full}", f"1: {full}", ""]


def test_a_device_that_is_read_only_at_the_start_is_refused_and_nothing_is_lost(tmp_path: Path) -> None:
    outcome = on_small_disk(tmp_path, "read_only")
    before, start, after = outcome["said"]
    assert (before, after) == ("", "")
    assert "cannot write" in start, start
    assert "Read-only file system" in start
    assert "give another path" in start
    assert outcome["whole"]


def test_a_store_that_becomes_read_only_under_the_agent_loses_nothing(tmp_path: Path) -> None:
    """Under an open file only the kernel makes a device so; SQLite has a switch of its own for it."""
    rig, store = Rig(), Store(tmp_path)
    assert commit(store, rig, 0) == ""
    store._connection.execute("PRAGMA query_only = 1")
    for step in (1, 2):
        message = commit(store, rig, step)
        assert message.endswith("make it writable for this user, or give another store.path"), message
    store._connection.execute("PRAGMA query_only = 0")
    assert commit(store, rig, 3) == ""
    saved = store.load()
    assert rig.settings.build(assemble(saved.parts, saved.rings)).view() == rig.engine.view()
    store.close()
