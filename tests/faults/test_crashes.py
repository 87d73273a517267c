"""A crash between each two steps of a checkpoint, with the public test kit: the reports stay the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from monitor.export.sinks.line_file import files_of
from monitor.store import Store, StoreReader
from monitor.testing import CrashPoint, StoredAgent
from tests.accounting import assert_adds_up
from tests.daemon import run_module
from tests.faults.crashes import KEEP, KINDS, records, settings
from tests.services.process import PATIENCE_SECONDS

NTH = 2
MAX_BYTES = 2000
"""A window's line is about half of that: nearly every checkpoint renames the file."""
BEFORE_COMMIT = set(CrashPoint) - {
    CrashPoint.COMMITTED,
    CrashPoint.IN_LINE,
    CrashPoint.WRITTEN_NOT_ACKNOWLEDGED,
    CrashPoint.ACKNOWLEDGED_NOT_WRITTEN,
    CrashPoint.RENAMED,
}


@pytest.fixture(scope="module", params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    """Return the kind of the task."""
    return str(request.param)


@pytest.fixture(scope="module")
def expected(kind: str, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Return the lines of an agent that is left alone."""
    agent = StoredAgent(tmp_path_factory.mktemp("alone"), settings(kind), records(kind))
    assert agent.run(PATIENCE_SECONDS)
    return agent.path.read_bytes()


def test_an_agent_of_the_kit_that_is_left_alone_writes_each_window_once(expected: bytes) -> None:
    closed = [line for line in expected.splitlines() if b'"revision":0' in line]
    assert len(closed) == len(set(closed)) == 2 * 7, (
        "400 answers of two models, 60 a window, the last incomplete"
    )
    assert sum(b'"closed_by":"end"' in line for line in closed) == 2
    assert sum(b'"labels":' in line for line in closed) >= 4, "windows whose interval labels moved"


def die(folder: Path, kind: str, point: CrashPoint, *bound: str) -> None:
    died = run_module("tests.faults.crashes", folder, kind, point.value, str(NTH), *bound)
    assert died.returncode == 137, died.stderr


@pytest.mark.parametrize(
    "point",
    [
        CrashPoint.COMMITTED,
        CrashPoint.IN_LINE,
        CrashPoint.WRITTEN_NOT_ACKNOWLEDGED,
        CrashPoint.ACKNOWLEDGED_NOT_WRITTEN,
        CrashPoint.RENAMED,
    ],
)
def test_a_crash_around_the_renaming_of_a_full_file_changes_no_byte_of_all_files_together(
    tmp_path: Path, kind: str, expected: bytes, point: CrashPoint
) -> None:
    die(tmp_path, kind, point, str(MAX_BYTES))
    path = tmp_path / "windows.ndjson"
    if point is CrashPoint.RENAMED:
        assert not path.exists()
        assert (tmp_path / "windows.ndjson.1").stat().st_size <= MAX_BYTES
    resumed = StoredAgent(tmp_path, settings(kind), records(kind), max_bytes=MAX_BYTES, keep=KEEP)
    assert resumed.run(PATIENCE_SECONDS)
    assert_adds_up(resumed.agent.view(), sent=len(records(kind)) - 1)  # without the marker of the end
    files = files_of(str(path), KEEP)
    assert len(files) > 5
    assert b"".join(file.read_bytes() for file in reversed(files)) == expected


@pytest.mark.parametrize("point", sorted(set(CrashPoint) - {CrashPoint.RENAMED}))
def test_a_crash_at_any_point_of_a_checkpoint_changes_no_byte(
    tmp_path: Path, kind: str, expected: bytes, point: CrashPoint
) -> None:
    die(tmp_path, kind, point)
    check_what_stands(tmp_path, point)
    resumed = StoredAgent(tmp_path, settings(kind), records(kind))
    assert resumed.run(PATIENCE_SECONDS)
    assert_adds_up(resumed.agent.view(), sent=len(records(kind)) - 1)  # without the marker of the end
    assert resumed.path.read_bytes() == expected


def check_what_stands(folder: Path, point: CrashPoint) -> None:
    """Check that it died at the point: the store and the file hold the state of that point."""
    store = Store(folder / "store")
    reader = StoreReader(store.path)
    saved = len(reader.reports_after(0, 1000))
    reader.close()
    store.close()
    text = (folder / "windows.ndjson").read_bytes()
    lines = text.count(b"\n")
    if point in BEFORE_COMMIT:
        assert saved > 0, "those of the first checkpoint"
        assert lines <= saved
    elif point is CrashPoint.WRITTEN_NOT_ACKNOWLEDGED:
        assert lines == saved > 0
    else:
        assert lines < saved
    if point is not CrashPoint.IN_LINE:  # half of several lines may end with one
        assert text in (b"", text[: text.rfind(b"\n") + 1])
