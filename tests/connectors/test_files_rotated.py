"""The file source where its file is rotated while nobody reads it, or faster than it is read."""

from __future__ import annotations

import gzip
import json
import math
import os
import random
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from connectors.files import FileSource
from connectors.formats.files import following, rotated
from monitor.base.codec import pack, unpack
from monitor.base.errors import SourceError
from monitor.base.source import RawBlock, RawPosition, SourceCounts
from tests.connectors.file_reading import line, lines
from tests.faults.rotations import Log, write_and_rotate
from tests.services.process import PATIENCE_SECONDS, wait_until

_CLOCK_STEP = 0.02
"""Seconds: the clock of a file system moves in steps of some milliseconds."""

_POLL = 0.005
"""Seconds between two looks at a file that is followed, and at the names beside it."""

QUICK = {"follow": True, "settle_seconds": 0.0, "missing_seconds": PATIENCE_SECONDS}


class Reading:
    """A reader that works like the agent, and keeps text and newest positions as a store would."""

    made: ClassVar[list[FileSource]] = []

    def __init__(self, path: Path, positions: dict[str, Any] | None = None, **settings: Any) -> None:
        self.source = FileSource(path, **{**QUICK, **settings})
        self.made.append(self.source)
        self.positions = dict(positions or {})
        self.text = b""
        self.of: dict[str, bytes] = {}
        self.source.open(self.saved())

    def saved(self) -> dict[str, Any]:
        """Return the positions as they come back from a store."""
        return dict(unpack(pack(self.positions)))

    def once(self, timeout_seconds: float = 0.0) -> int:
        """Return one read; how many answers of the source it brought."""
        raws = self.source.read(timeout_seconds)
        for raw in raws:
            assert isinstance(raw, RawBlock | RawPosition)
            self.positions[raw.partition] = raw.after
            if raw.after is None:
                del self.positions[raw.partition]
            if isinstance(raw, RawBlock):
                self.text += raw.data
                self.of[raw.partition] = self.of.get(raw.partition, b"") + raw.data
        return len(raws)

    def wait(self, done: Callable[[], bool]) -> None:
        """Read until something is so, and what else is there."""
        what = f"it is so, with {len(self.text)} bytes read"
        wait_until(lambda: self.once(_POLL) >= 0 and done(), what, pause=_POLL)
        while self.once(3 * _POLL):
            pass

    def until(self, expected: bytes, in_order: bool = True) -> None:
        """Read until as much has come, and see that nothing follows."""
        self.wait(lambda: len(self.text) >= len(expected))
        if in_order:
            assert self.text == expected
        else:
            assert sorted(self.text.splitlines()) == sorted(expected.splitlines())

    @property
    def gaps(self) -> int:
        assert self.source.counts is not None
        return self.source.counts.gap_records

    def again(self, **settings: Any) -> Reading:
        """Return a source that goes on from here, after this one was closed."""
        self.source.close()
        return Reading(self.source.path, self.positions, **settings)


def append(path: Path, text: bytes) -> None:
    with path.open("ab") as file:
        file.write(text)


def rename(path: Path) -> None:
    """Rename p.1 to p.2 and p to p.1, as logrotate's `create` does."""
    for number in range(8, 0, -1):
        for end in ("", ".gz"):
            old = Path(f"{path}.{number}{end}")
            if old.exists():
                old.rename(f"{path}.{number + 1}{end}")
    path.rename(f"{path}.1")
    path.touch()


def copy_and_cut(path: Path) -> None:
    """Copy the file and cut it, as logrotate's `copytruncate` does."""
    for number in range(8, 0, -1):
        if Path(f"{path}.{number}").exists():
            Path(f"{path}.{number}").rename(f"{path}.{number + 1}")
    shutil.copyfile(path, f"{path}.1")
    os.truncate(path, 0)


def compress(path: Path) -> None:
    """Compress a file as gzip does it: the time of change stays."""
    now = path.stat()
    packed = Path(f"{path}.gz")
    packed.write_bytes(gzip.compress(path.read_bytes()))
    os.utime(packed, ns=(now.st_atime_ns, now.st_mtime_ns))
    path.unlink()


@pytest.fixture(autouse=True)
def closed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Look again after milliseconds, and close what a test has opened."""
    monkeypatch.setattr(following, "_POLL_SECONDS", _POLL)
    monkeypatch.setattr(following, "_LOOK_SECONDS", _POLL)
    yield
    while Reading.made:
        Reading.made.pop().close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "p.ndjson"


def test_a_file_that_was_rotated_while_nobody_read_is_read_to_its_end_first(path: Path) -> None:
    append(path, lines(0, 4400))
    first = Reading(path)
    first.until(lines(0, 4400))
    append(path, lines(4400, 7000))
    rename(path)
    append(path, lines(7000, 9100))
    again = first.again()
    again.until(lines(4400, 9100))
    assert again.gaps == 0


def test_a_file_that_is_copied_and_cut_in_a_stall_is_read_to_its_end_in_the_copy(path: Path) -> None:
    append(path, lines(0, 3100))
    reading = Reading(path)
    reading.until(lines(0, 3100))
    append(path, lines(3100, 4500))
    copy_and_cut(path)
    append(path, lines(4500, 5600))
    reading.until(lines(0, 5600))
    assert reading.gaps == 0


def test_two_renames_in_a_stall_leave_nothing_out(path: Path) -> None:
    append(path, lines(0, 4600))
    reading = Reading(path)
    reading.until(lines(0, 4600))
    for number in (4600, 5600):
        append(path, lines(number, number + 1000))
        rename(path)
    append(path, lines(6600, 7000))
    reading.until(lines(0, 7000))
    assert reading.gaps == 0


def test_a_file_that_was_cut_and_has_grown_past_the_position_is_known_by_its_beginning(path: Path) -> None:
    append(path, lines(0, 100))
    reading = Reading(path)
    reading.until(lines(0, 100))
    os.truncate(path, 0)
    append(path, lines(500, 800))
    reading.until(lines(0, 100) + lines(500, 800))
    assert reading.gaps == 1


Rotate = Callable[[Path], None]


def dated(form: str) -> Rotate:
    def rotate(path: Path) -> None:
        count = len(list(path.parent.iterdir()))
        name = form.format(stem=path.stem, name=path.name, day=count)
        path.rename(path.parent / name)
        path.touch()

    return rotate


def packed(rotate: Rotate) -> Rotate:
    def and_pack(path: Path) -> None:
        before = {each.name for each in path.parent.iterdir()}
        rotate(path)
        after = [each for each in path.parent.iterdir() if each != path and each.suffix != ".gz"]
        for each in after:
            if each.name not in before or each.name.endswith(".1"):
                compress(each)

    return and_pack


WAYS: dict[str, Rotate] = {
    "rename": rename,
    "copytruncate": copy_and_cut,
    "rename-gz": packed(rename),
    "dateext": dated("{name}-202601{day:02d}"),
    "dateext-extension": dated("{stem}-202601{day:02d}.ndjson"),
    "timed": dated("{name}.2026-01-01_{day:02d}-00-00"),
    "dateext-gz": packed(dated("{name}-202601{day:02d}")),
}


@pytest.mark.parametrize("way", [*WAYS])
@pytest.mark.parametrize("down", [True, False], ids=["down", "stalled"])
def test_every_way_of_rotating_is_followed_through_several_rotations(
    path: Path, way: str, down: bool
) -> None:
    rotate, sent = WAYS[way], 0
    reading = Reading(path)
    expected = b""
    for rotations in (0, 1, 3, 0, 2, 1):
        for _ in range(rotations):
            append(path, lines(sent, sent + 70))
            sent += 70
            rotate(path)
        append(path, lines(sent, sent + 40))
        sent += 40
        expected = lines(0, sent)
        reading.until(expected)
        if down:
            text = reading.text
            reading = reading.again()
            reading.text = text
    assert reading.gaps == 0


def test_a_file_that_is_rotated_before_anything_was_read_of_it_is_not_passed_over(path: Path) -> None:
    """Nothing is known of an empty file but its inode, which a cut file keeps."""
    for rotate in (rename, copy_and_cut):
        for down in (False, True):
            path.write_bytes(lines(0, 10))
            reading = Reading(path)
            reading.until(lines(0, 10))
            rotate(path)
            while reading.once(0.1) or reading.positions[str(path)]["at"] != 0:
                pass
            append(path, lines(10, 20))
            rotate(path)
            append(path, lines(20, 30))
            if down:
                reading = reading.again()
                reading.until(lines(10, 30))
            else:
                reading.until(lines(0, 30))
            assert reading.gaps == 0
            reading.source.close()
            for each in path.parent.iterdir():
                each.unlink()


def at_an_empty_file(path: Path) -> Reading:
    """Return a reading that has gone over to a file that was cut, in which nothing stands yet."""
    path.write_bytes(lines(0, 10))
    reading = Reading(path)
    reading.until(lines(0, 10))
    copy_and_cut(path)
    while reading.once(0.1) or reading.positions[str(path)]["at"] != 0:
        pass
    time.sleep(_CLOCK_STEP)
    return reading


def test_what_came_and_was_cut_between_two_looks_at_an_empty_file_is_read(path: Path) -> None:
    reading = at_an_empty_file(path)
    append(path, lines(10, 20))
    copy_and_cut(path)
    reading.once(0.1)  # it is as empty as before
    append(path, lines(20, 30))
    reading.until(lines(0, 30))
    assert reading.gaps == 0


@pytest.mark.parametrize("renamed", [False, True])
def test_what_is_cut_just_before_it_is_read_for_the_first_time_is_read(
    path: Path, monkeypatch: pytest.MonkeyPatch, renamed: bool
) -> None:
    reading = at_an_empty_file(path)
    append(path, lines(10, 20))
    take, cut = rotated.OpenFile.take, threading.Event()

    def late(file: rotated.OpenFile) -> bytes | None:
        if not cut.is_set():
            cut.set()
            time.sleep(_CLOCK_STEP)
            copy_and_cut(path)
            append(path, lines(20, 30))
            if renamed:
                rename(path)
        return take(file)

    monkeypatch.setattr(rotated.OpenFile, "take", late)
    reading.until(lines(0, 30))
    assert cut.is_set()
    assert reading.gaps == 0


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_rotations_at_random_moments_leave_nothing_out(tmp_path: Path, seed: int) -> None:
    log, choices = Log(tmp_path), random.Random(seed)
    ways = (log.rename, log.copy_and_cut, log.rename_and_compress)
    log.write(1)
    reading = Reading(log.path)
    reading.wait(lambda: bool(reading.text))
    for _ in range(25):
        for _ in range(choices.choice((0, 0, 1, 1, 2, 3))):
            log.write(choices.randint(0, 60))
            choices.choice(ways)()
        log.write(choices.randint(0, 30))
        for _ in range(choices.choice((0, 0, 1, 3, 6))):
            reading.once()
        if choices.random() < 0.4:
            text = reading.text
            reading = reading.again()
            reading.text = text
    reading.wait(lambda: reading.text.count(b"\n") >= log.sent)
    seen = [json.loads(each)["id"] for each in reading.text.splitlines()]
    assert seen == [f"r{number}" for number in range(log.sent)]
    assert reading.gaps == 0


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_a_writer_that_rotates_all_the_while_loses_no_line(tmp_path: Path, seed: int) -> None:
    log, choices = Log(tmp_path), random.Random(seed)
    log.write(100)
    # Without time to settle, a copy that is being made on a busy machine is taken for a file that has ended.
    settling = {"settle_seconds": 0.1}
    reading = Reading(log.path, **settling)
    reading.wait(lambda: bool(reading.text))
    ended = threading.Event()
    writer = threading.Thread(target=write_and_rotate, args=(log, ended, random.Random(seed), 0.04))
    writer.start()
    try:
        while log.sent < 8_000:
            reading.once(0.05)
            if choices.random() < 0.1:
                kept = reading.text
                reading = reading.again(**settling)
                reading.text = kept
    finally:
        ended.set()
        writer.join()
    reading.wait(lambda: reading.text.count(b"\n") >= log.sent)
    assert sorted(json.loads(each)["id"] for each in reading.text.splitlines()) == sorted(
        f"r{number}" for number in range(log.sent)
    )
    assert reading.gaps == 0


@pytest.mark.slow
def test_a_start_while_the_file_has_no_name_for_a_moment_goes_on_in_the_rotated_one(path: Path) -> None:
    append(path, lines(0, 10))
    first = Reading(path)
    first.until(lines(0, 10))
    rename(path)
    ended, away = threading.Event(), path.with_name("away")

    def move() -> None:
        while not ended.is_set():
            path.rename(away)
            away.rename(path)

    mover = threading.Thread(target=move)
    mover.start()
    try:
        for _ in range(200):
            first = first.again()
    finally:
        ended.set()
        mover.join()
    assert first.gaps == 0
    first.text = b""
    append(path, lines(10, 20))
    first.until(lines(10, 20))


def test_what_cannot_be_found_is_counted_once_and_told(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    append(path, lines(0, 50))
    first = Reading(path)
    first.until(lines(0, 50))
    append(path, lines(50, 60))
    rename(path)
    append(path, lines(60, 70))
    rename(path)
    append(path, lines(70, 80))
    Path(f"{path}.2").unlink()
    again = first.again()
    again.until(lines(60, 80))
    assert again.source.counts == SourceCounts(gap_records=1)
    assert [record.getMessage() for record in caplog.records] == [
        f"{path}: the text after byte {len(lines(0, 50))}, where reading should continue, is neither in the "
        "file nor in a rotated file beside it: this counts as one gap. Reading goes on at the start of "
        f"{path}.1; repeated records count once if they have an id."
    ]
    third = again.again()
    append(path, lines(80, 90))
    third.until(lines(80, 90))
    assert third.gaps == 0, "a gap is counted where it is found"


def test_an_inode_that_went_to_a_newer_file_does_not_hide_the_files_before_it(path: Path) -> None:
    append(path, lines(0, 50))
    first = Reading(path)
    first.until(lines(0, 50))
    first.source.close()
    path.unlink()
    for number in range(50, 80, 10):
        append(path, lines(number, number + 10))
        rename(path)
    [position] = first.positions.values()
    position = {**position, "inode": Path(f"{path}.1").stat().st_ino}
    again = Reading(path, {str(path): position})
    again.until(lines(50, 80))
    assert again.gaps == 1


def test_an_older_rotated_file_is_not_read_again_where_the_place_is_lost(path: Path) -> None:
    append(path, lines(0, 10))
    reading = Reading(path)
    reading.until(lines(0, 10))
    rename(path)
    append(path, lines(10, 20))
    reading.until(lines(0, 20))
    os.truncate(path, 0)
    append(path, lines(20, 22))
    reading.until(lines(0, 22))
    assert reading.gaps == 1


def test_a_damaged_rotated_file_is_counted_and_the_next_one_is_read(path: Path) -> None:
    append(path, lines(0, 20))
    first = Reading(path)
    first.until(lines(0, 20))
    append(path, lines(20, 5000))
    rename(path)
    compress(Path(f"{path}.1"))
    whole = Path(f"{path}.1.gz").read_bytes()
    Path(f"{path}.1.gz").write_bytes(whole[: len(whole) // 2])
    append(path, lines(9000, 9010))
    again = first.again()
    again.wait(lambda: again.text.endswith(lines(9000, 9010)))
    assert again.gaps == 1


def test_a_line_that_comes_late_into_a_file_that_was_left_is_read(path: Path) -> None:
    append(path, lines(0, 10))
    with path.open("ab", buffering=0) as writer:
        reading = Reading(path)
        reading.until(lines(0, 10))
        rename(path)
        append(path, lines(20, 30))
        reading.until(lines(0, 10) + lines(20, 30))
        writer.write(line(10))
        reading.until(lines(0, 10) + lines(20, 30) + line(10))
        writer.write(line(11))
        again = reading.again()
        again.until(line(11))
        third = again.again(late_seconds=0.0)
        third.until(b"")
        assert "late" in again.positions[str(path)]
        append(path, line(31))
        third.until(line(31))
        assert "late" not in third.positions[str(path)]


def test_a_record_overwritten_with_blanks_leaves_the_file_the_same(path: Path) -> None:
    append(path, lines(0, 100))
    reading = Reading(path)
    reading.until(lines(0, 100))
    for number in (0, 1):
        with path.open("r+b") as file:
            file.seek(number * len(line(0)))
            file.write(b" " * (len(line(0)) - 1))
        if number:
            reading = reading.again()
            reading.text = lines(0, 101)
        append(path, line(100 + number))
        reading.until(lines(0, 101 + number))
    assert reading.gaps == 0


def test_a_position_of_an_older_version_is_read_on_from(path: Path) -> None:
    append(path, lines(0, 10))
    reading = Reading(path, {str(path): len(lines(0, 4))})
    reading.until(lines(4, 10))
    assert reading.gaps == 0
    assert reading.positions[str(path)]["at"] == len(lines(0, 10))


def test_a_position_of_a_followed_file_serves_one_that_is_not_followed(path: Path) -> None:
    append(path, lines(0, 10))
    reading = Reading(path)
    reading.until(lines(0, 10))
    reading.source.close()
    append(path, lines(10, 12))
    source = FileSource(path)
    source.open(reading.saved())
    [raw] = source.read(0.0)
    source.close()
    assert raw.data == lines(10, 12)
    assert source.counts is None


@pytest.mark.parametrize("rotate", [rename, copy_and_cut])
def test_the_place_is_found_after_a_move_to_another_disk(path: Path, rotate: Rotate) -> None:
    """Every inode is another one; the text is the same."""
    append(path, lines(0, 50))
    first = Reading(path)
    first.until(lines(0, 50))
    first.source.close()
    append(path, lines(50, 60))
    rotate(path)
    append(path, lines(60, 70))
    for each in list(path.parent.iterdir()):
        copy = each.with_name("copy")
        shutil.copy2(each, copy)
        copy.replace(each)
    again = first.again()
    again.until(lines(50, 70))
    assert again.gaps == 0


# Vector's test harness, https://github.com/vectordotdev/vector-test-harness: a subject passes where each of
# three lines arrives once. The second writes a longer line into the cut file than was in it, and one into the
# copy.


def vectors_case(path: Path, rotate: Rotate) -> Reading:
    """Its steps: a line, the rotation to `NAME0`, a longer line in the file, and later one in `NAME0`."""
    record = b'{"id": "%s", "model": "erm", "scores": [0.25, 0.75]}\n'
    path.write_bytes(record % b"First line")
    reading = Reading(path, settle_seconds=0.1)
    reading.until(record % b"First line")
    rotate(path)
    append(path, record % b"New file line")
    reading.until(record % b"First line" + record % b"New file line")
    append(Path(f"{path}0"), record % b"Last line")
    reading.until(b"".join(record % each for each in (b"First line", b"New file line", b"Last line")))
    return reading


def test_file_rotate_create_correctness(path: Path) -> None:
    def rotate(path: Path) -> None:
        path.rename(f"{path}0")

    assert vectors_case(path, rotate).gaps == 0


def test_file_rotate_truncate_correctness(path: Path) -> None:
    def rotate(path: Path) -> None:
        shutil.copyfile(path, f"{path}0")
        os.truncate(path, 0)

    assert vectors_case(path, rotate).gaps == 0


def worker(folder: Path, number: int) -> Path:
    return folder / f"data.{number}.log"


def test_each_file_of_a_pattern_is_a_partition_and_a_new_one_is_taken_up(tmp_path: Path) -> None:
    append(worker(tmp_path, 1), lines(0, 10))
    append(worker(tmp_path, 2), lines(10, 20))
    append(tmp_path / "data.1.log.1", lines(90, 99))
    reading = Reading(tmp_path / "data.*.log*")
    reading.until(lines(0, 20))
    append(worker(tmp_path, 3), lines(20, 30))
    rename(worker(tmp_path, 1))
    append(worker(tmp_path, 1), lines(30, 33))
    reading.until(lines(0, 33), in_order=False)
    assert reading.of == {
        str(worker(tmp_path, 1)): lines(0, 10) + lines(30, 33),
        str(worker(tmp_path, 2)): lines(10, 20),
        str(worker(tmp_path, 3)): lines(20, 30),
    }
    again = reading.again()
    append(worker(tmp_path, 2), lines(40, 41))
    again.until(lines(40, 41))
    assert (reading.gaps, again.gaps) == (0, 0)


def test_a_file_of_a_pattern_that_has_gone_is_let_go_and_its_position_with_it(tmp_path: Path) -> None:
    for number in range(3):
        append(worker(tmp_path, number), lines(number, number + 1))
    reading = Reading(tmp_path / "data.*.log", late_seconds=0.1)
    reading.until(lines(0, 3))
    worker(tmp_path, 1).unlink()
    reading.wait(lambda: len(reading.positions) == 2)
    assert str(worker(tmp_path, 1)) not in reading.positions
    append(worker(tmp_path, 1), lines(7, 8))
    reading.until(lines(0, 3) + lines(7, 8))
    assert reading.gaps == 0


@pytest.mark.parametrize(("most_open", "read", "gaps"), [(64, line(9).rstrip(), 0), (0, b"", 1)])
def test_the_last_line_of_a_file_that_has_gone_is_used_or_counted_without_a_newline(
    most_open: int, read: bytes, gaps: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "MOST_OPEN", most_open)
    append(worker(tmp_path, 0), line(0))
    append(worker(tmp_path, 1), line(1) + line(9).rstrip())
    reading = Reading(tmp_path / "data.*.log", late_seconds=0.1)
    reading.until(lines(0, 2))
    worker(tmp_path, 1).unlink()
    reading.wait(lambda: len(reading.positions) == 1)
    assert (reading.text, reading.gaps) == (lines(0, 2) + read, gaps)


def test_a_file_of_a_pattern_goes_on_under_another_name_of_it(tmp_path: Path) -> None:
    append(tmp_path / "app.log", lines(0, 10))
    for down in (False, True):
        reading = Reading(tmp_path / "app*.log")
        reading.until(lines(0, 10))
        if down:
            reading.source.close()
        append(tmp_path / "app.log", lines(10, 12))
        (tmp_path / "app.log").rename(tmp_path / "app.old.log")
        append(tmp_path / "app.log", lines(20, 22))
        if down:
            reading = reading.again()
        reading.until(lines(10 if down else 0, 12) + lines(20, 22), in_order=False)
        assert reading.gaps == 0
        reading.source.close()
        for each in tmp_path.iterdir():
            each.unlink()
        append(tmp_path / "app.log", lines(0, 10))


def test_a_file_that_was_left_before_its_other_name_was_seen_is_not_read_twice(tmp_path: Path) -> None:
    append(tmp_path / "app.log", lines(0, 10))
    reading = Reading(tmp_path / "app*.log")
    reading.until(lines(0, 10))
    pattern = reading.source._reader
    assert isinstance(pattern, following.FollowingPattern)
    pattern._next_look = math.inf
    (tmp_path / "app.log").rename(tmp_path / "app.old.log")
    append(tmp_path / "app.log", lines(20, 22))
    reading.until(lines(0, 10) + lines(20, 22))
    pattern._next_look = 0.0
    append(tmp_path / "app.old.log", lines(10, 12))
    reading.until(lines(0, 10) + lines(20, 22) + lines(10, 12))
    reading = reading.again()
    append(tmp_path / "app.log", lines(22, 23))
    reading.until(lines(22, 23))
    assert reading.gaps == 0


def test_the_files_of_a_pattern_that_are_open_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "MOST_OPEN", 4)
    for number in range(40):
        append(worker(tmp_path, number), line(number))
    reading = Reading(tmp_path / "data.*.log")
    most: list[int] = []

    def read_all(expected: int) -> None:
        def done() -> bool:
            most.append(sum(str(tmp_path) in name for name in open_files()))
            return reading.text.count(b"\n") >= expected

        reading.wait(done)

    read_all(40)
    for number in range(40):
        append(worker(tmp_path, number), line(100 + number))
    rename(worker(tmp_path, 7))
    append(worker(tmp_path, 7), line(500))
    read_all(81)
    reading.until(lines(0, 40) + lines(100, 140) + line(500), in_order=False)
    assert max(most) <= 6
    assert reading.gaps == 0


def open_files() -> list[str]:
    targets = []
    for each in os.listdir("/proc/self/fd"):
        try:
            targets.append(os.readlink(f"/proc/self/fd/{each}"))
        except OSError:
            continue
    return targets


def test_what_a_pattern_cannot_do_is_said(tmp_path: Path) -> None:
    with pytest.raises(SourceError) as caught:
        FileSource(tmp_path / "*.log").open({})
    assert str(caught.value) == (
        f"{tmp_path}/*.log: a pattern stands for files only where they are followed; set follow"
    )
    waiting = Reading(tmp_path / "*.log", missing_seconds=0.0)
    with pytest.raises(SourceError) as caught:
        waiting.once()
    assert str(caught.value) == f"There is no file {tmp_path}/*.log; it is waited for."
