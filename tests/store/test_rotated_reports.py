"""The reports file in bounded space: renamed at a window's border, each window once whatever was killed."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.export.sinks.destination import Mark, Row
from monitor.export.sinks.follower import ReportFollower
from monitor.export.sinks.line_file import rotate
from monitor.export.sinks.reports_file import MARK, ReportsFile
from tests.examples import examples
from tests.services.process import PATIENCE_SECONDS, wait_until


class Reports:
    """A store's table of reports, in memory; those below `first` are dropped."""

    def __init__(self, lengths: Sequence[int], first: int = 1) -> None:
        rows = [(i, b'{"window":%d,"x":"%s"}' % (i, b"x" * n)) for i, n in enumerate(lengths, start=1)]
        self.rows: list[Row] = rows
        self.first = first

    def newest_report(self) -> int:
        return self.rows[-1][0]

    def reports_after(self, last: int, most: int) -> list[Row]:
        return [row for row in self.rows if row[0] > last and row[0] >= self.first][:most]

    def text(self, up_to: int | None = None) -> bytes:
        return b"".join(line + b"\n" for _, line in self.rows[:up_to])


def follow(
    path: Path, reports: Reports, noted: Mark | None, max_bytes: int | None, keep: int
) -> ReportFollower:
    """Deliver everything that is due, and end."""
    file = ReportsFile(str(path), max_bytes, keep)
    follower = ReportFollower(file, reports, {MARK: noted} if noted else {})
    follower.start()
    assert follower.close(PATIENCE_SECONDS)
    return follower


def files(path: Path) -> list[Path]:
    """Return the files, the oldest first."""
    return sorted(path.parent.iterdir(), key=lambda file: -int(file.suffix[1:] if file != path else 0))


def written(path: Path) -> bytes:
    return b"".join(file.read_bytes() for file in files(path))


def test_a_full_file_is_renamed_between_two_windows_and_the_oldest_goes(tmp_path: Path) -> None:
    path, reports = tmp_path / "w", Reports([10] * 9)
    line = len(reports.rows[0][1]) + 1
    follow(path, reports, None, max_bytes=3 * line, keep=1)
    assert [file.name for file in files(path)] == ["w.1", "w"]
    assert written(path) == reports.text()[3 * line :]


def test_a_window_that_is_longer_than_a_file_may_be_is_written_alone(tmp_path: Path) -> None:
    path, reports = tmp_path / "w", Reports([1, 2000, 1])
    follow(path, reports, None, max_bytes=1000, keep=5)
    assert [file.read_bytes().count(b"\n") for file in files(path)] == [1, 1, 1]
    assert written(path) == reports.text()


def test_what_was_there_before_the_store_counts_towards_the_bound(tmp_path: Path) -> None:
    path, reports = tmp_path / "w", Reports([10])
    path.write_bytes(b"y" * 999 + b"\n")
    follow(path, reports, None, max_bytes=1000, keep=1)
    assert (tmp_path / "w.1").read_bytes() == b"y" * 999 + b"\n"
    assert path.read_bytes() == reports.text()


def test_without_a_bound_nothing_is_renamed(tmp_path: Path) -> None:
    path, reports = tmp_path / "w", Reports([1000] * 50)
    follow(path, reports, None, max_bytes=None, keep=1)
    assert files(path) == [path]


def test_a_device_is_written_to_and_never_renamed(tmp_path: Path) -> None:
    path, reports = tmp_path / "w", Reports([1000] * 5)
    path.symlink_to("/dev/null")
    assert follow(path, reports, (2, 5000), max_bytes=1000, keep=1).view.delivered == 3
    assert files(path) == [path]


def test_a_stump_that_a_crash_left_before_the_store_was_begun_is_closed(tmp_path: Path) -> None:
    path, reports = tmp_path / "w", Reports([10] * 3)
    path.write_bytes(b'old\n{"win')
    follow(path, reports, None, max_bytes=None, keep=1)
    assert path.read_bytes() == b'old\n{"win\n' + reports.text()
    follow(path, reports, (3, path.stat().st_size), max_bytes=None, keep=1)
    assert path.read_bytes() == b'old\n{"win\n' + reports.text(), "its size after the newline was noted"


@pytest.mark.parametrize("new_file", [False, True], ids=["in the file", "in the one that took its place"])
def test_a_stump_of_another_program_between_two_windows_is_closed(tmp_path: Path, new_file: bool) -> None:
    path, reports = tmp_path / "w", Reports([10] * 3)
    file = ReportsFile(str(path))
    file.open()
    file.resume({}, reports.reports_after)
    assert file.deliver(reports.rows[:2]) == 2
    if new_file:
        path.rename(tmp_path / "w.1")
    with path.open("ab") as other:
        other.write(b"{ cut off")
    assert file.deliver(reports.rows[2:]) == 1
    marks = file.marks
    file.close(0.0)
    expected = (b"" if new_file else reports.text(2)) + b"{ cut off\n" + reports.rows[2][1] + b"\n"
    assert path.read_bytes() == expected
    assert marks == {MARK: (3, len(expected))}


def test_a_store_that_dropped_the_noted_window_knows_the_file_begun_just_then(tmp_path: Path) -> None:
    path, reports = tmp_path / "w", Reports([10] * 6, first=4)
    (tmp_path / "w.1").write_bytes(reports.text(3))
    path.write_bytes(reports.text(5)[len(reports.text(3)) :])
    follow(path, reports, (3, len(reports.text(3))), max_bytes=1000, keep=1)
    assert written(path) == reports.text()


@pytest.mark.parametrize("new", [None, b""], ids=["no new file yet", "a new one, empty"])
@pytest.mark.parametrize("first", [1, 4], ids=["the store has every line", "it dropped those of the file"])
def test_a_kill_between_the_renaming_and_the_new_file_doubles_nothing(
    tmp_path: Path, new: bytes | None, first: int
) -> None:
    path, reports = tmp_path / "w", Reports([10] * 6, first)
    (tmp_path / "w.1").write_bytes(reports.text(4))
    if new is not None:
        path.write_bytes(new)
    follow(path, reports, (3, len(reports.text(3))), max_bytes=1000, keep=1)
    assert written(path) == reports.text()


def test_windows_written_before_the_first_mark_was_saved_are_not_written_again(tmp_path: Path) -> None:
    path, reports = tmp_path / "w", Reports([10] * 6)
    path.write_bytes(reports.text(4)[:-3])
    follow(path, reports, None, max_bytes=None, keep=1)
    assert path.read_bytes() == reports.text()


def test_a_file_that_another_program_renamed_is_gone_on_behind(tmp_path: Path) -> None:
    path, reports = tmp_path / "w", Reports([10] * 8)
    (tmp_path / "w.1").write_bytes(reports.text(4))  # logrotate, with `create`
    path.write_bytes(reports.text(6)[len(reports.text(4)) :])
    follow(path, reports, (2, len(reports.text(2))), max_bytes=None, keep=1)
    assert written(path) == reports.text()


def test_one_that_was_packed_away_is_told_by_the_first_line_of_the_new(tmp_path: Path) -> None:
    path, reports = tmp_path / "w", Reports([10] * 8)
    path.write_bytes(reports.text(6)[len(reports.text(4)) :])  # the others are in w.1.gz
    follow(path, reports, (2, len(reports.text(2))), max_bytes=None, keep=1)
    assert path.read_bytes() == reports.text()[len(reports.text(4)) :]


def test_a_file_that_is_emptied_while_it_is_followed_goes_on_at_its_start(tmp_path: Path) -> None:
    path, reports = tmp_path / "w", Reports([10] * 4)
    file = ReportsFile(str(path), max_bytes=100, keep=1)
    file.open()
    file.resume({}, reports.reports_after)
    assert file.deliver(reports.rows[:3]) == 3
    os.truncate(path, 0)  # logrotate, with `copytruncate`
    assert file.deliver(reports.rows[3:]) == 1
    assert file.marks == {MARK: (4, len(reports.rows[3][1]) + 1)}
    assert path.read_bytes() == reports.rows[3][1] + b"\n"
    file.close(0.0)


def test_a_name_that_cannot_be_taken_is_a_failure_and_the_windows_wait(tmp_path: Path) -> None:
    path, reports = tmp_path / "w", Reports([10] * 4)
    line = len(reports.rows[0][1]) + 1
    (tmp_path / "w.1" / "full").mkdir(parents=True)
    file = ReportsFile(str(path), max_bytes=2 * line, keep=1)
    follower = ReportFollower(file, reports, {})
    follower.start()
    wait_until(lambda: follower.view.trouble, "it fails")
    assert not follower.close(0.1)
    assert (follower.view.delivered, follower.view.waiting, follower.view.lost) == (2, 2, 0)
    assert "cannot write" in str(follower.view.trouble)
    assert path.read_bytes() == reports.text(2)


@examples(150)
@given(
    lengths=st.lists(st.integers(0, 60), min_size=2, max_size=25),
    batches=st.lists(st.integers(1, 7), min_size=1, max_size=12),
    max_bytes=st.integers(30, 300),
    keep=st.integers(1, 4),
    noted=st.integers(0, 12),
    torn=st.integers(0, 40),
    renamed=st.booleans(),
)
def test_each_window_is_written_once_however_often_files_were_renamed_since_the_checkpoint(
    lengths: list[int],
    batches: list[int],
    max_bytes: int,
    keep: int,
    noted: int,
    torn: int,
    renamed: bool,
) -> None:
    with TemporaryDirectory() as folder:
        path, reports = Path(folder, "w"), Reports(lengths)
        mark, last = write_until_killed(path, reports, batches, max_bytes, keep, noted)
        if renamed:
            rotate(str(path), keep)
        elif last < len(lengths):
            line = reports.rows[last][1] + b"\n"
            if path.stat().st_size and path.stat().st_size + len(line) > max_bytes:
                rotate(str(path), keep)
            with path.open("ab") as file:
                file.write(line[:torn])
        follow(path, reports, mark, max_bytes, keep)
        remaining = written(path)
        assert reports.text().endswith(remaining)
        assert len(files(path)) <= keep + 1
        if len(files(path)) <= keep:
            assert remaining == reports.text(), "nothing was pruned"
        assert all(
            file.stat().st_size <= max_bytes or file.read_bytes().count(b"\n") == 1 for file in files(path)
        )


def write_until_killed(
    path: Path, reports: Reports, batches: Sequence[int], max_bytes: int, keep: int, noted: int
) -> tuple[Mark, int]:
    """Deliver some; the mark as a checkpoint saved it after one of them, and the last report written."""
    file = ReportsFile(str(path), max_bytes, keep)
    file.open()
    last = file.resume({}, reports.reports_after)
    marks = [file.marks[MARK]]
    for batch in batches:
        rows = reports.reports_after(last, batch)
        if not rows:
            break
        last = rows[file.deliver(rows) - 1][0]
        marks.append(file.marks[MARK])
    file.close(0.0)
    return marks[min(noted, len(marks) - 1)], last
