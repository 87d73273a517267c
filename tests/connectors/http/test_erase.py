"""Lines are taken out of a spool that nobody uses, and the others stay where they were."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path

import pytest

from connectors.http import spool as spool_module
from connectors.http.erase import erase, idle_spool
from connectors.http.segment import segments_in
from connectors.http.spool import Spool
from monitor.base.errors import SourceError
from tests.services.process import wait_until

ROWS = [b'{"id": "%d", "x": "%s"}\n' % (i, b"y" * i) for i in range(40)]


def gone(line: bytes) -> bool:
    return b'"id": "7"' in line or b'"id": "39"' in line


def spooled(folder: Path) -> bytes:
    """Return the content of a spool's files; one may be deleted while they are listed."""
    data = b""
    for segment in segments_in(folder):
        with suppress(FileNotFoundError):
            data += segment.path.read_bytes()
    return data


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a spool of a frame a row, in several files."""
    spool = Spool(tmp_path / "spool", max_bytes=4_000)
    spool.open(None)
    for row in ROWS:
        spool.append(row, rows=1).result()
    spool.close()
    assert len(segments_in(spool.folder)) > 1
    return spool.folder


def read(folder: Path, position: int = 0) -> tuple[bytes, int]:
    spool = Spool(folder, max_bytes=4_000)
    spool.open(position)
    data = b""
    while parts := spool.read(0.0):
        data += b"".join(part.lines for part in parts)
    rows = spool.lag
    spool.close()
    return data, rows


def test_offsets_and_counts_stay_and_the_lines_are_nowhere(folder: Path) -> None:
    assert erase(folder, gone) == 2
    expected = b"".join(b" " * (len(row) - 1) + b"\n" if gone(row) else row for row in ROWS)
    assert read(folder) == (expected, 0)
    assert not any(gone(path.read_bytes()) for path in folder.iterdir())
    assert erase(folder, gone) == 0
    assert read(folder, position=len(b"".join(ROWS[:20])))[0] == expected[len(b"".join(ROWS[:20])) :]


def test_labels_stay_labels(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool", max_bytes=4_000)
    spool.open(None)
    for labels in (False, True):
        spool.append(b"".join(ROWS[:3]), 3, labels).result()
    spool.close()
    assert erase(spool.folder, lambda line: line == ROWS[0].strip()) == 2
    spool.open(0)
    assert [part.labels for part in spool.read(0.0)] == [False, True]
    spool.close()


def test_what_a_crash_left_torn_goes_with_them_and_damage_is_told(folder: Path) -> None:
    last = segments_in(folder)[-1].path
    with last.open("ab") as file:
        file.write(last.read_bytes()[:30])
    assert erase(folder, gone) == 2
    first = segments_in(folder)[0].path
    first.write_bytes(first.read_bytes()[:-5])
    with pytest.raises(SourceError, match="is damaged"):
        erase(folder, gone)


def test_a_spool_in_use_is_left_alone(folder: Path) -> None:
    spool = Spool(folder, max_bytes=4_000)
    spool.open(0)
    with idle_spool(folder) as idle:
        assert not idle
    spool.close()
    with idle_spool(folder) as idle:
        assert idle
    with idle_spool(folder / "absent") as idle:
        assert idle
    assert erase(folder / "absent", gone) == 0


def test_lines_that_are_used_leave_the_disk_though_nothing_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spool_module, "_SEGMENT_SECONDS", 0.2)
    spool = Spool(tmp_path / "spool", max_bytes=100_000_000)
    spool.open(None)
    end = spool.append(ROWS[0], rows=1).result()
    time.sleep(0.5)
    assert spooled(spool.folder), "it is not used yet"
    assert spool.read(0.0) == [(ROWS[0], 0, False)]
    spool.absorbed(end)
    wait_until(lambda: not spooled(spool.folder), "used lines are gone")
    assert spool.append(ROWS[1], rows=1).result() == end + len(ROWS[1])
    assert spool.read(1.0) == [(ROWS[1], end, False)]
    spool.close()
