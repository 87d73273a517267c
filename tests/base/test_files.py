"""Files that are whole or not there."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from monitor.base.files import put


def test_a_file_takes_the_place_of_the_last_and_is_its_owners(tmp_path: Path) -> None:
    path = tmp_path / "mark"
    path.write_bytes(b"old and long")
    put(path, b"new")
    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_what_cannot_be_written_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(number: int) -> None:
        raise OSError(28, os.strerror(28))

    path = tmp_path / "mark"
    put(path, b"old")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        put(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_draft_that_a_kill_left_is_written_over(tmp_path: Path) -> None:
    (tmp_path / ".mark.unfinished").write_bytes(b"half of something longer")
    put(tmp_path / "mark", b"new")
    assert (tmp_path / "mark").read_bytes() == b"new"
    assert [path.name for path in tmp_path.iterdir()] == ["mark"]
