"""The writer's promises: whole lines only, no caller waits, lost lines are counted, a disk may come back."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from monitor.base.errors import SinkError
from monitor.export.sinks.line_file import PipeWriter, cannot_write
from monitor.export.sinks.rejects_file import RejectWriter
from monitor.export.sinks.reports_file import ReportWriter, why_not_writable
from tests.services.process import PATIENCE_SECONDS


def lines(count: int, start: int = 0) -> list[bytes]:
    return [b'{"window":%d}' % n for n in range(start, start + count)]


def write_all(writer: ReportWriter, these: list[bytes]) -> None:
    for line in these:
        writer.write(line)


def written(path: Path) -> list[bytes]:
    data = path.read_bytes()
    assert data == b"" or data.endswith(b"\n")
    return data.splitlines()


def wait_for(condition: Callable[[], bool], seconds: float = PATIENCE_SECONDS) -> None:
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert condition()


@pytest.fixture
def full_disk(tmp_path: Path) -> Path:
    """Return a path whose every write fails with "no space left": a link to /dev/full."""
    if not os.path.exists("/dev/full"):
        pytest.skip("this system has no /dev/full")
    path = tmp_path / "windows.ndjson"
    path.symlink_to("/dev/full")
    return path


def mend(path: Path) -> None:
    """Give the disk room again: put an ordinary file under the name."""
    fresh = path.with_suffix(".fresh")
    fresh.touch()
    fresh.replace(path)


def test_lines_come_out_whole_and_in_order(tmp_path: Path) -> None:
    path = tmp_path / "windows.ndjson"
    writer = ReportWriter(str(path))
    writer.start()
    sent = lines(3000)
    assert all(writer.write(line) for line in sent)
    assert writer.close(timeout=PATIENCE_SECONDS)
    assert written(path) == sent
    assert (writer.written, writer.lost, writer.failures) == (3000, 0, 0)


def test_a_newline_that_is_there_is_not_doubled(tmp_path: Path) -> None:
    path = tmp_path / "windows.ndjson"
    writer = ReportWriter(str(path))
    writer.start()
    writer.write(b"a\n")
    writer.write(b"b")
    writer.close(timeout=PATIENCE_SECONDS)
    assert path.read_bytes() == b"a\nb\n"


def test_several_threads_never_mix_their_lines(tmp_path: Path) -> None:
    path = tmp_path / "windows.ndjson"
    writer = ReportWriter(str(path))
    writer.start()
    parts = [lines(500, start=1000 * n) for n in range(4)]
    threads = [
        threading.Thread(target=lambda part=part: [writer.write(line) for line in part]) for part in parts
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    writer.close(timeout=PATIENCE_SECONDS)
    assert sorted(written(path)) == sorted(line for part in parts for line in part)


@pytest.mark.parametrize(
    ("before", "after"),
    [(b"", b"new\n"), (b"old\n", b"old\nnew\n"), (b'old\n{"win', b'old\n{"win\nnew\n'), (b"{", b"{\nnew\n")],
)
def test_a_file_is_continued_and_half_lines_never_merge(tmp_path: Path, before: bytes, after: bytes) -> None:
    path = tmp_path / "windows.ndjson"
    path.write_bytes(before)
    writer = ReportWriter(str(path))
    writer.start()
    writer.write(b"new")
    writer.close(timeout=PATIENCE_SECONDS)
    assert path.read_bytes() == after


def test_a_renamed_file_is_begun_anew(tmp_path: Path) -> None:
    path, moved = tmp_path / "windows.ndjson", tmp_path / "windows.old"
    writer = ReportWriter(str(path))
    writer.start()
    writer.write(b"first")
    wait_for(lambda: writer.written == 1)
    path.rename(moved)
    writer.write(b"second")
    writer.close(timeout=PATIENCE_SECONDS)
    assert (written(moved), written(path)) == ([b"first"], [b"second"])


def test_a_pipe_takes_whole_lines_as_fast_as_its_reader_and_goes_on_in_a_long_one(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    pipe, sent = PipeWriter(str(path)), [b"%d" % n * 60_000 + b"\n" for n in range(5)]
    with pytest.raises(OSError, match="No such device or address"):
        pipe.write(sent)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    done, read = pipe.write(sent), b""
    assert done == 1, "a pipe has room for 64 KiB, so the second line went in in part"
    with pytest.raises(BlockingIOError):
        pipe.write(sent[done:])
    while done < len(sent):
        read += os.read(reader, 100_000)
        done += pipe.write(sent[done:])
    os.close(reader)
    with pytest.raises(BrokenPipeError):
        pipe.write([b"{}\n"])
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    read += os.read(reader, 100_000)
    assert (read, pipe.write([b"{}\n"]), os.read(reader, 10)) == (b"".join(sent), 1, b"{}\n")
    pipe.close()
    os.close(reader)


# --- a disk that does not take them ------------------------------------------------------------------------


def test_a_full_disk_holds_nobody_up_and_loses_only_what_has_no_room(full_disk: Path) -> None:
    writer = ReportWriter(str(full_disk), capacity=10)
    writer.start()
    assert all(writer.write(line) for line in lines(25))
    assert writer.lost == 15
    wait_for(lambda: writer.failures > 0)
    assert (writer.view.waiting, writer.view.lost, writer.view.delivered) == (10, 15, 0)
    assert "No space left on device" in (writer.view.trouble or "")
    assert 0 <= time.time() - (writer.view.failing_since or 0) < 60
    mend(full_disk)
    wait_for(lambda: writer.written == 10)
    assert writer.close(timeout=PATIENCE_SECONDS)
    # Of a full queue the oldest go, but for those that the thread has in its hands: half of it at most.
    kept = written(full_disk)
    assert set(kept) >= set(lines(5, start=20))
    assert kept == [line for line in lines(25) if line in kept]
    assert (len(kept), writer.lost) == (10, 15)
    assert (writer.view.trouble, writer.view.failing_since) == (None, None)


def test_an_outage_is_logged_once_and_so_is_its_end(
    full_disk: Path, caplog: pytest.LogCaptureFixture
) -> None:
    writer = ReportWriter(str(full_disk), capacity=10)
    with caplog.at_level(logging.INFO, logger="blindsight"):
        writer.start()
        writer.write(b"a")
        wait_for(lambda: writer.failures >= 2)
        mend(full_disk)
        assert writer.close(timeout=PATIENCE_SECONDS)
    assert [r.getMessage() for r in caplog.records] == [
        f"cannot write {str(full_disk)!r}: No space left on device; make room or give another path; "
        "up to 10 lines wait meanwhile",
        f"{full_disk} is written again; 0 lines were lost so far",
    ]


def test_closing_on_a_full_disk_gives_up_in_time_and_counts_the_rest(full_disk: Path) -> None:
    writer = ReportWriter(str(full_disk))
    writer.start()
    for line in lines(7):
        writer.write(line)
    assert not writer.close(timeout=0.3)
    assert (writer.lost, writer.written) == (7, 0)
    assert not writer.write(b"late")
    assert writer.lost == 8


def test_a_caller_that_may_wait_gets_room_once_there_is_some(full_disk: Path) -> None:
    writer = ReportWriter(str(full_disk), capacity=2)
    writer.start()
    assert [writer.write(line) for line in lines(2)] == [True, True]
    assert not writer.write(b"no", wait_seconds=0.05)
    mend(full_disk)
    assert writer.write(b"yes", wait_seconds=PATIENCE_SECONDS)
    assert writer.close(timeout=PATIENCE_SECONDS)
    assert written(full_disk) == [*lines(2), b"yes"]


PARTIAL_WRITE = """
import resource, sys, time
from pathlib import Path
from monitor.export.sinks.reports_file import ReportWriter
path = Path(sys.argv[1])
_, most = resource.getrlimit(resource.RLIMIT_FSIZE)
writer = ReportWriter(str(path))
resource.setrlimit(resource.RLIMIT_FSIZE, (1005, most))
for n in range(30):
    writer.write(b"%02d" % n + b"." * 97)
writer.start()
deadline = time.monotonic() + 300
while not writer.failures and time.monotonic() < deadline:
    time.sleep(0.01)
full = path.read_bytes()
resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
drained = writer.close(timeout=300)
whole = path.read_bytes()
print(len(full), full.endswith(b"\\n"), drained, writer.lost, whole.count(b"\\n"), len(whole))
print([line[:2] for line in whole.split()] == [b"%02d" % n for n in range(30)])
"""


def test_a_write_cut_short_by_the_system_leaves_no_half_line(tmp_path: Path) -> None:
    # A process of its own, as the limit on file sizes holds for all its threads.
    command = [sys.executable, "-W", "error", "-c", PARTIAL_WRITE, str(tmp_path / "windows.ndjson")]
    root = Path(__file__).parents[3]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False, cwd=root
    )
    assert done.stdout.splitlines() == ["1000 True True 0 30 3000", "True"], done.stderr


# --- refused at the start ----------------------------------------------------------------------------------


def refused(path: Path) -> str:
    with pytest.raises(SinkError) as error:
        ReportWriter(str(path)).start()
    assert isinstance(error.value.__cause__, OSError)
    return str(error.value)


def test_a_missing_folder_is_a_sentence(tmp_path: Path) -> None:
    folder = tmp_path / "none"
    assert refused(folder / "windows.ndjson") == (
        f"reports.path: cannot write '{folder}/windows.ndjson': there is no folder '{folder}'; "
        "make it or give another path"
    )


def test_a_folder_in_place_of_the_file_is_a_sentence(tmp_path: Path) -> None:
    assert (
        refused(tmp_path)
        == f"reports.path: cannot write '{tmp_path}': it is a folder; give the path of a file"
    )


def test_a_file_in_place_of_the_folder_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert refused(tmp_path / "file" / "x").endswith(f"'{tmp_path}/file' is not a folder; give another path")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_permission_is_a_sentence(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    assert "this user may not; change the permissions" in refused(tmp_path / "windows.ndjson")


def test_other_causes_are_passed_on_in_the_sentence() -> None:
    message = cannot_write("w", OSError(30, "Read-only file system"))
    assert message == "cannot write 'w': Read-only file system; make room or give another path"


def test_closing_what_never_started_loses_what_was_queued_and_hangs_not(tmp_path: Path) -> None:
    writer = ReportWriter(str(tmp_path / "windows.ndjson"))
    writer.write(b"a")
    assert not writer.close(timeout=1)
    assert writer.lost == 1


def test_closing_twice_is_no_error(tmp_path: Path) -> None:
    writer = ReportWriter(str(tmp_path / "windows.ndjson"))
    writer.start()
    assert writer.close(timeout=PATIENCE_SECONDS)
    assert writer.close(timeout=PATIENCE_SECONDS)


@pytest.mark.parametrize(("umask", "reports", "rejects"), [(0o022, 0o644, 0o640), (0o077, 0o600, 0o600)])
def test_new_files_follow_the_umask_and_rejects_are_not_for_everyone(
    tmp_path: Path, umask: int, reports: int, rejects: int
) -> None:
    before = os.umask(umask)
    try:
        for writer in (
            ReportWriter(str(tmp_path / "windows.ndjson")),
            RejectWriter(str(tmp_path / "rejects.ndjson"), max_bytes=10_000),
        ):
            writer.start()
            assert writer.close(PATIENCE_SECONDS)
    finally:
        os.umask(before)
    modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
    assert modes == {"windows.ndjson": reports, "rejects.ndjson": rejects}


def test_whether_a_file_can_be_written_is_seen_without_touching_it(tmp_path: Path) -> None:
    file, there = tmp_path / "windows.ndjson", tmp_path / "there"
    there.write_bytes(b"x")
    assert why_not_writable(str(file)) is None
    assert why_not_writable(str(there)) is None
    assert [path.name for path in tmp_path.iterdir()] == ["there"]
    for path, why in (
        (tmp_path, "it is a folder; give the path of a file"),
        (tmp_path / "no" / "w", f"there is no folder '{tmp_path}/no'; make it or give another path"),
        (there / "w", f"'{there}' is not a folder; give another path"),
    ):
        assert why_not_writable(str(path)) == f"cannot write '{path}': {why}"
