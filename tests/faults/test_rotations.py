"""Rotations of a file that a real daemon follows, and the short form of the kills meanwhile."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.rotations import CASES, case, killed

pytestmark = pytest.mark.process


@pytest.mark.parametrize("name", [*CASES])
def test_each_line_is_used_once_or_its_loss_is_counted(tmp_path: Path, name: str) -> None:
    result = case(tmp_path, name)
    gone = 900 if "deleted" in name or "without a copy" in name else 0
    assert (result.used, result.duplicates, result.gaps) == (result.sent - gone, 0, int(gone > 0))


def test_kills_while_a_file_is_rotated_lose_no_line_and_use_none_twice(tmp_path: Path) -> None:
    result = killed(tmp_path, kills=3, seed=1)
    assert result.sent > 1000
    assert (result.used, result.duplicates, result.gaps) == (result.sent, 0, 0)
