"""The records that a real daemon keeps because it could not use them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.accounting import assert_adds_up
from tests.daemon import DaemonProcess, configuration, ndjson, read_windows

SECRET = "alice@example.org"


def config(**rejects: Any) -> dict[str, Any]:
    return configuration(
        sources=[{"kind": "file", "path": "in.ndjson", "follow": True}],
        rejects={"path": "rejects.ndjson", **rejects},
    )


@pytest.mark.parametrize(
    ("record", "raw", "message"),
    [
        (
            "redacted",
            {"id": f"text of {len(SECRET)} characters", "model": "erm", "scores": ["a number", "a number"]},
            "$.scores[1]: expected a number from 0 to 1, got a number",
        ),
        ("none", None, None),
        (
            "whole",
            {"id": SECRET, "model": "erm", "scores": [0.5, 1.75]},
            "$.scores[1]: expected a number from 0 to 1, got 1.75",
        ),
    ],
)
def test_neither_the_file_nor_the_log_holds_more_than_was_asked_for(
    tmp_path: Path, record: str, raw: Any, message: str | None
) -> None:
    bad = {"id": SECRET, "model": "erm", "scores": [0.5, 1.75]}
    (tmp_path / "in.ndjson").write_bytes(ndjson([bad, b'{"id": "' + SECRET.encode()]))
    with DaemonProcess(tmp_path, config(record=record)) as daemon:
        daemon.until(lambda: len(read_windows(tmp_path / "rejects.ndjson")) == 2, "both are written")
        assert_adds_up(daemon)
        assert daemon.end()[0] == 0
    first, second = read_windows(tmp_path / "rejects.ndjson")
    assert [line["reason"] for line in (first, second)] == ["out_of_range", "malformed"]
    assert (json.loads(first["raw"]) if first["raw"] else None) == raw
    assert first["message"] == (message or "")
    kept = (tmp_path / "rejects.ndjson").read_text()
    assert (SECRET in kept) == (record == "whole")
    assert SECRET not in daemon.log
    assert ("1.75" in daemon.log) == (record == "whole")
    place = f"The first: {tmp_path}/in.ndjson, position 0"
    assert f"{place}{f': {message}' if message else ''}\n" in daemon.log


def test_lines_that_are_too_old_go_as_the_daemon_starts_and_new_ones_bear_a_time(tmp_path: Path) -> None:
    (tmp_path / "in.ndjson").write_bytes(b"{ broken\n")
    (tmp_path / "rejects.ndjson").write_bytes(ndjson([{"time": "2020-01-01T00:00:00.000Z", "raw": SECRET}]))
    with DaemonProcess(tmp_path, config(retention_days=30)) as daemon:
        daemon.until(lambda: SECRET not in (tmp_path / "rejects.ndjson").read_text(), "the old one goes")
        daemon.until(lambda: len(read_windows(tmp_path / "rejects.ndjson")) == 1, "the new one stays")
        assert daemon.end()[0] == 0
    (line,) = read_windows(tmp_path / "rejects.ndjson")
    assert line["raw"] == "{ broken"
    assert line["time"] > "2026"
