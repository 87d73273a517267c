"""The promises of the folder beyond `tests/base/test_spool.py`: crashes, full disks, used files."""

from __future__ import annotations

import errno
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.http import segment
from connectors.http import spool as spool_module
from connectors.http.segment import FRAME_BYTES, name_of, pack
from connectors.http.spool import Spool
from monitor.base.errors import SourceError
from monitor.base.spool import SpoolFullError, SpoolWriteError
from tests.examples import examples
from tests.services.process import PATIENCE_SECONDS

ROOM = 1_000_000


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "spool"


@pytest.fixture
def spool(folder: Path) -> Iterator[Spool]:
    made = Spool(folder, ROOM)
    made.open(None)
    yield made
    made.close()


def again(folder: Path, position: int | None = None, room: int = ROOM) -> Spool:
    made = Spool(folder, room)
    made.open(position)
    return made


def put(spool: Spool, *lines: bytes) -> int:
    return [spool.append(line, line.count(b"\n")).result(PATIENCE_SECONDS) for line in lines][-1]


def all_of(spool: Spool) -> bytes:
    lines = b""
    while parts := spool.read(0.0):
        lines += b"".join(part.lines for part in parts)
    return lines


def files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.spool"))


def test_without_a_position_it_goes_on_after_what_was_absorbed(folder: Path, spool: Spool) -> None:
    put(spool, b"one\n", b"two\n")
    spool.absorbed(4)
    spool.close()
    resumed_spool = again(folder)
    assert (resumed_spool.lag, all_of(resumed_spool)) == (1, b"two\n")
    resumed_spool.close()


def test_the_lag_after_a_start_counts_what_was_not_read(folder: Path, spool: Spool) -> None:
    put(spool, *[b"x" * 50_000 + b"\n"] * 12)
    assert spool.read(0.0)
    spool.close()
    resumed_spool = again(folder, 50_001 * 7)
    assert resumed_spool.lag == 5
    resumed_spool.close()


def test_files_that_are_used_are_deleted_and_offsets_go_on(folder: Path, spool: Spool) -> None:
    line = b"x" * 99_999 + b"\n"
    for i in range(1, 40):
        assert put(spool, line) == i * 100_000
        assert spool.read(0.0) == [(line, (i - 1) * 100_000, False)]
        spool.absorbed(i * 100_000)
    assert len(files(folder)) <= 3
    assert spool.size <= 3 * (100_000 + FRAME_BYTES)
    spool.close()
    resumed_spool = again(folder)
    assert put(resumed_spool, b"next\n") == 3_900_005
    resumed_spool.close()


def test_files_wholly_absorbed_before_a_start_go_at_the_start(folder: Path, spool: Spool) -> None:
    put(spool, *[b"x" * 99_999 + b"\n"] * 8)
    before = files(folder)
    spool.close()
    resumed_spool = again(folder, 800_000)
    assert len(before) > 2
    assert set(files(folder)) < set(before) | {folder / name_of(800_000)}
    assert resumed_spool.size < 300_000
    resumed_spool.close()


def test_a_spool_in_one_large_file_is_given_back_too(folder: Path, spool: Spool) -> None:
    """One group may be larger than a file should be: it must not stay for ever when all of it is used."""
    put(spool, b"x" * 900_000 + b"\n")
    with pytest.raises(SpoolFullError):
        spool.append(b"x" * 200_000 + b"\n", 1)
    all_of(spool)
    spool.absorbed(900_001)
    deadline = 500
    while spool.size and deadline:
        spool._thread.join(0.01)  # type: ignore[union-attr]
        deadline -= 1
    assert spool.size == 0
    assert [path.name for path in files(folder)] == [name_of(900_001)]
    assert put(spool, b"y" * 200_000 + b"\n") == 1_100_002


def test_many_requests_share_a_frame(folder: Path, spool: Spool, monkeypatch: pytest.MonkeyPatch) -> None:
    import threading

    real, entered, leave = spool_module._sync, threading.Event(), threading.Event()

    def slow(file: int) -> None:
        entered.set()
        leave.wait(PATIENCE_SECONDS)
        real(file)

    monkeypatch.setattr(spool_module, "_sync", slow)
    first = spool.append(b"0\n", 1)
    assert entered.wait(PATIENCE_SECONDS)
    others = [spool.append(b"%d\n" % i, 1) for i in range(1, 100)]
    assert not any(each.done() for each in (first, *others))
    assert not spool.read(0.0), "what no sync has covered must not be read: a crash could take it back"
    leave.set()
    assert {each.result(PATIENCE_SECONDS) for each in others} == {2 * 10 + 3 * 90}
    assert files(folder)[0].stat().st_size == 290 + 2 * FRAME_BYTES


@examples(60)
@given(
    sizes=st.lists(st.integers(1, 300), min_size=1, max_size=12),
    cut=st.floats(0, 1),
    junk=st.binary(max_size=40),
)
def test_a_torn_end_is_cut_off_and_every_whole_frame_stays(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], cut: float, junk: bytes
) -> None:
    folder = tmp_path_factory.mktemp("torn")
    whole, frames = b"", []
    for i, size in enumerate(sizes):
        lines = bytes([65 + i]) * size + b"\n"
        frames.append(pack(len(whole), 1, lines))
        whole += lines
    data = b"".join(frames)
    kept = data[: int(len(data) * cut)]
    (folder / name_of(0)).write_bytes(kept + junk)
    count = next(
        i for i in range(len(frames) + 1) if i == len(frames) or len(b"".join(frames[: i + 1])) > len(kept)
    )
    expected = b"".join(frame[FRAME_BYTES:] for frame in frames[:count])
    if kept + junk == b"".join(frames[: count + 1]):  # the junk happened to complete the frame
        return
    spool = again(folder)
    assert (all_of(spool), spool.lag) == (expected, 0)
    assert put(spool, b"next\n") == len(expected) + 5
    spool.close()
    spool = again(folder, 0)
    assert all_of(spool) == expected + b"next\n"
    spool.close()


def test_damage_before_the_end_is_told_and_nothing_is_cut(folder: Path, spool: Spool) -> None:
    put(spool, b"one\n", b"two\n", b"three\n")
    spool.close()
    path = files(folder)[0]
    data = bytearray(path.read_bytes())
    data[FRAME_BYTES + 1] ^= 1
    path.write_bytes(data)
    with pytest.raises(SourceError, match="is damaged at byte 0; restore it from a backup, or move the"):
        again(folder)
    assert path.read_bytes() == data


def test_a_torn_post_that_holds_the_bytes_of_frames_is_cut_off(
    folder: Path, spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(spool, b"one\n")
    spool.close()
    forged = b"".join(pack(start, 1, b"x" * 50) for start in range(0, 1 << 40, 1 << 30))
    with files(folder)[0].open("ab") as file:
        file.write(pack(4, 1, forged + b"\n")[:-5])
    checked: list[int] = []

    def unpack(data: bytes | memoryview, offset: int, place: int) -> object:
        checked.append(place)
        return segment.unpack_head(data, offset, place) if place == 0 else None

    monkeypatch.setattr(segment, "unpack", unpack)
    resumed_spool = again(folder, 0)
    monkeypatch.undo()
    assert all_of(resumed_spool) == b"one\n"
    assert put(resumed_spool, b"next\n") == 9
    resumed_spool.close()
    assert checked == [0, FRAME_BYTES + 4]  # no checksum of what lies where no frame can


def test_a_file_that_is_missing_in_the_middle_is_told(folder: Path, spool: Spool) -> None:
    put(spool, *[b"x" * 199_999 + b"\n"] * 4)
    spool.close()
    files(folder)[1].unlink()
    with pytest.raises(SourceError, match="is damaged at byte"):
        again(folder, 0)


def test_damage_found_while_reading_is_told(folder: Path, spool: Spool) -> None:
    put(spool, b"one\n")
    path = files(folder)[0]
    data = bytearray(path.read_bytes())
    data[-2] ^= 1
    path.write_bytes(data)
    with pytest.raises(SourceError, match="is damaged at byte 0"):
        spool.read(0.0)


def test_a_spool_older_than_the_state_is_refused(folder: Path, spool: Spool) -> None:
    put(spool, b"one\n")
    spool.close()
    with pytest.raises(SourceError, match="ends at 4, and 5000 bytes of it are used already: it is an"):
        again(folder, 5000)


def test_two_processes_cannot_have_one_spool(folder: Path, spool: Spool) -> None:
    with pytest.raises(SourceError, match="is used by another process; stop it, or give each its own folder"):
        again(folder)
    put(spool, b"one\n")
    assert spool.read(0.0) == [(b"one\n", 0, False)]


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(SourceError, match="cannot be used: Not a directory; give a folder that this"):
        again(tmp_path / "file" / "spool")


def test_a_full_disk_fails_the_request_and_the_next_goes_on(
    folder: Path, spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(spool, b"one\n")
    real = os.write

    def half(file: int, data: memoryview) -> int:
        real(file, data[: len(data) // 2])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(spool_module.os, "write", half)
    size = spool.size
    with pytest.raises(SpoolWriteError, match="could not be written: No space left on device"):
        put(spool, b"two\n")
    assert spool.size == size
    monkeypatch.setattr(spool_module.os, "write", real)
    assert put(spool, b"three\n") == 10
    assert all_of(spool) == b"one\nthree\n"
    spool.close()
    resumed_spool = again(folder, 0)
    assert all_of(resumed_spool) == b"one\nthree\n"
    resumed_spool.close()


@pytest.mark.parametrize(
    ("take_away", "why"),
    [
        (shutil.rmtree, "No such file or directory"),
        (lambda folder: folder.rename(folder.with_name("moved")), "No such file or directory"),
        (lambda folder: _put_copies_in_place(folder), "its file was replaced"),
    ],
)
def test_posts_are_not_acknowledged_into_a_file_that_is_not_in_its_place(
    take_away: Callable[[Path], object], why: str, folder: Path, spool: Spool
) -> None:
    put(spool, b"one\n")
    take_away(folder)
    with pytest.raises(SpoolWriteError, match=f"the spool could not be written: {why}"):
        put(spool, b"two\n")
    assert str(spool.trouble).endswith(why)
    folder.mkdir(exist_ok=True)
    assert put(spool, b"four\n") == 9
    spool.close()
    resumed_spool = again(folder, 4)
    assert all_of(resumed_spool) == b"four\n"
    resumed_spool.close()


def _put_copies_in_place(folder: Path) -> None:
    """Replace each file of a folder by a copy, as a backup does that is restored."""
    for path in files(folder):
        path.with_suffix(".copy").write_bytes(path.read_bytes())
        path.with_suffix(".copy").replace(path)


def test_a_disk_that_stays_full_is_logged_once_until_a_post_is_written(
    spool: Spool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    real = os.write

    def full(file: int, data: memoryview) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    for turn in (1, 2):
        monkeypatch.setattr(spool_module.os, "write", full)
        for _ in range(5):
            with pytest.raises(SpoolWriteError, match="No space left on device"):
                put(spool, b"two\n")
        warnings = [each for each in caplog.records if each.levelname == "WARNING"]
        assert [each.getMessage() for each in warnings if "cannot be written" in each.msg] == [
            f"The spool {spool.folder} cannot be written: No space left on device."
        ] * turn
        monkeypatch.setattr(spool_module.os, "write", real)
        put(spool, b"three\n")


def test_after_a_failed_sync_what_follows_is_written_elsewhere(
    folder: Path, spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second sync of the same file would report success for pages that the first one lost."""
    put(spool, b"one\n")
    real = spool_module._sync

    def fails(file: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(spool_module, "_sync", fails)
    with pytest.raises(SpoolWriteError):
        put(spool, b"two\n")
    monkeypatch.setattr(spool_module, "_sync", real)
    assert put(spool, b"three\n") == 10
    assert [path.name for path in files(folder)] == [name_of(0), name_of(4)]
    assert all_of(spool) == b"one\nthree\n"


def test_a_last_file_that_cannot_be_replaced_is_tried_again_later_not_at_once(
    folder: Path, spool: Spool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The thread went round without a pause, a core and thousands of lines in the log a second."""
    put(spool, b"one\n")
    assert all_of(spool) == b"one\n"
    tried = threading.Event()
    attempts = 0

    def fails(start: int) -> None:
        nonlocal attempts
        attempts += 1
        tried.set()
        raise OSError(errno.EROFS, "Read-only file system")

    with monkeypatch.context() as patch:
        patch.setattr(spool, "_begin_segment", fails)
        spool._began -= 2 * spool_module._SEGMENT_SECONDS  # it is old
        spool.absorbed(4)
        assert tried.wait(PATIENCE_SECONDS)
        time.sleep(0.5)
    assert attempts == 1
    assert "cannot be written: Read-only file system." in caplog.text
    assert put(spool, b"two\n") == 8
    assert all_of(spool) == b"two\n"


def test_a_used_file_that_cannot_be_deleted_is_told_and_stops_nothing(
    folder: Path, spool: Spool, caplog: pytest.LogCaptureFixture
) -> None:
    put(spool, b"one\n")
    assert all_of(spool) == b"one\n"
    spool._began -= 2 * spool_module._SEGMENT_SECONDS
    put(spool, b"two\n")
    (first, _) = files(folder)
    first.unlink()
    first.mkdir()  # which cannot be deleted as a file is, whoever tries
    spool.absorbed(4)
    assert f"{first} is used and cannot be deleted:" in caplog.text
    assert all_of(spool) == b"two\n"


def resting(folder: Path) -> int:
    """Return bytes on the disk; the spool's thread may remove a file while they are counted."""
    total = 0
    for path in files(folder):
        with suppress(FileNotFoundError):
            total += path.stat().st_size
    return total


def test_a_spool_that_is_read_as_it_is_written_stays_small_for_ever(folder: Path, spool: Spool) -> None:
    """Twenty times what it may hold goes through it."""
    line, used, largest = b"x" * 49_999 + b"\n", 0, 0
    for _ in range(20 * ROOM // len(line)):
        put(spool, line)
        used += len(all_of(spool))
        spool.absorbed(used)
        largest = max(largest, resting(folder))
    assert used == 20 * ROOM
    assert largest <= ROOM
