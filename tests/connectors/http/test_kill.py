"""Kill -9 of a real process in the middle of posts: acknowledged records are used exactly once."""

from __future__ import annotations

import json
import os
import random
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path

import httpx
import pytest

from connectors.http import HttpSource
from monitor.base.source import RawBlock
from tests.posting import Posted, row
from tests.services.fork_server import ForkedProcess
from tests.services.process import PATIENCE_SECONDS, stop, wait_until

KILLS = 6


def use(source: HttpSource, used: sqlite3.Connection) -> int:
    """Read once; ids and position go into one transaction, as an engine's state and positions do."""
    raws = source.read(0.05)
    for raw in raws:
        assert isinstance(raw, RawBlock)
        with used:
            rows = [(json.loads(line)["id"], raw.start) for line in raw.data.splitlines()]
            used.executemany("INSERT INTO used VALUES (?, ?)", rows)
            used.execute("UPDATE position SET at = ?", (raw.start + len(raw.data),))
        source.acknowledge({"spool": raw.start + len(raw.data)})
    return len(raws)


def store(path: Path) -> sqlite3.Connection:
    used = sqlite3.connect(path)
    used.execute("CREATE TABLE IF NOT EXISTS used (id TEXT, at INTEGER)")
    if (
        not used.execute("CREATE TABLE IF NOT EXISTS position (at INTEGER)")
        .execute("SELECT 1 FROM position")
        .fetchone()
    ):
        with used:
            used.execute("INSERT INTO position VALUES (0)")
    return used


def resumed(folder: Path, used: sqlite3.Connection, **settings: str) -> Posted:
    posted = Posted(folder / "spool", **settings)
    (position,) = used.execute("SELECT at FROM position").fetchone()
    posted.open({"spool": position})
    return posted


def serve(folder: Path) -> None:
    """Run the process that is killed: take posts and use them until then."""
    used = store(folder / "used.sqlite")
    posted = resumed(folder, used)
    draft = folder / "port.new"
    draft.write_text(str(posted.source.port))
    os.replace(draft, folder / "port")
    while True:
        use(posted.source, used)


class Client(threading.Thread):
    """A client that posts rows one group after another; it gives an unanswered group up, without a
    repetition.
    """

    def __init__(self, folder: Path, name: str, acknowledged: list[str], stopping: threading.Event) -> None:
        super().__init__(daemon=True)
        self._folder, self._prefix = folder, name
        self._acknowledged, self._stopping = acknowledged, stopping

    def run(self) -> None:
        number = 0
        client, port = httpx.Client(timeout=PATIENCE_SECONDS), ""
        while not self._stopping.is_set():
            number += 1
            rows = [row(f"{self._prefix}-{number}-{i}") for i in range(20)]
            try:
                now = (self._folder / "port").read_text()
                if now != port:
                    client.close()
                    client, port = httpx.Client(timeout=PATIENCE_SECONDS), now
                answer = client.post(f"http://127.0.0.1:{port}/v1/predictions", json=rows)
            except (httpx.TransportError, FileNotFoundError):
                time.sleep(0.02)
                continue
            assert answer.status_code == 202
            self._acknowledged.extend(each["id"] for each in rows)
        client.close()


@pytest.mark.skipif(os.name != "posix", reason="kill -9 is a POSIX signal")
def test_what_was_acknowledged_is_used_once_however_often_the_process_is_killed(tmp_path: Path) -> None:
    acknowledged: list[str] = []
    stopping = threading.Event()
    clients = [Client(tmp_path, f"c{i}", acknowledged, stopping) for i in range(4)]
    for client in clients:
        client.start()
    moments = random.Random(7)
    for _ in range(KILLS):
        (tmp_path / "port").unlink(missing_ok=True)
        before = len(acknowledged)
        process = ForkedProcess(
            [str(tmp_path)],
            stdin=subprocess.DEVNULL,
            stdout=sys.__stdout__,
            stderr=sys.__stderr__,
            env=os.environ,
            module="tests.connectors.http.test_kill",
        )
        try:
            wait_until(lambda before=before: len(acknowledged) > before, "posts are acknowledged")  # type: ignore[misc]
            time.sleep(moments.uniform(0.0, 0.25))
        finally:
            stop(process, kill=True)
    stopping.set()
    for client in clients:
        client.join(PATIENCE_SECONDS)

    used = store(tmp_path / "used.sqlite")
    posted = resumed(tmp_path, used)
    while use(posted.source, used):
        pass
    posted.close()
    ids = [each for (each,) in used.execute("SELECT id FROM used")]
    used.close()
    assert len(acknowledged) >= KILLS * 20
    assert len(ids) == len(set(ids)), "a row was used twice"
    assert set(acknowledged) <= set(ids), "an acknowledged row was lost"
    # A post that was cut off before its answer may be there or not, but never in part.
    groups: dict[str, int] = {}
    for each in ids:
        group = each.rpartition("-")[0]
        groups[group] = groups.get(group, 0) + 1
    assert set(groups.values()) == {20}


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
