"""The file source while its file changes: growth, rotation, pipes, and how far behind it is."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from connectors.files import FileSource
from connectors.formats.files import following, rotated
from monitor.base.errors import SourceError
from monitor.base.source import EndOfSource, RawBlock, SourceCounts
from tests.connectors.file_reading import line, lines, opened, read_all, text
from tests.services.process import wait_until


def test_a_followed_file_is_waited_for_and_read_as_it_grows(tmp_path):
    path = tmp_path / "p.ndjson"
    with opened(path, follow=True) as source:
        assert not source.up
        assert source.read(0.0) == []
        with path.open("ab", buffering=0) as file:
            file.write(line(0) + line(1)[:20])
            assert text(source.read(0.0)) == line(0)
            assert source.up
            assert source.read(0.0) == []
            file.write(line(1)[20:])
            [raw] = source.read(0.0)
    assert (raw.data, raw.start) == (line(1), len(line(0)))


def test_a_followed_file_is_read_on_from_its_position(tmp_path):
    path = tmp_path / "p.ndjson"
    path.write_bytes(lines(0, 10))
    position = len(lines(0, 4))
    with opened(path, {str(path): position}, follow=True) as source:
        [raw] = source.read(0.0)
    assert (raw.start, raw.data) == (position, lines(4, 10))


@pytest.mark.parametrize("position", [len(lines(0, 4)) - 5, 10_000])
def test_a_position_where_no_line_ends_belongs_to_another_file(tmp_path, position):
    path = tmp_path / "p.ndjson"
    path.write_bytes(lines(0, 10))
    with opened(path, {str(path): position}, follow=True) as source:
        assert text(source.read(0.0)) == lines(0, 10)


def records(raws: list) -> list[dict]:
    """Return the records of raw blocks, of which each line is one."""
    data = b"".join(raw.data for raw in raws if isinstance(raw, RawBlock))
    return [json.loads(each) for each in data.splitlines() if each.strip()]


@pytest.mark.parametrize("indent", [None, 1])
@pytest.mark.parametrize("restarted", [False, True])
def test_a_followed_file_may_be_a_json_array_to_which_its_writer_adds(tmp_path, indent, restarted):
    path = tmp_path / "p.json"
    wanted = [{"id": i, "text": 'a "[,]" {\n} é'} for i in range(100)]

    def write(count: int) -> None:
        path.write_text(json.dumps(wanted[:count], indent=indent))

    write(40)
    source = FileSource(path, follow=True)
    source.open({})
    first = source.read(0.0)
    if restarted:
        source.close()
        source.open({str(path): first[-1].after})
    else:
        assert source.read(0.0) == []
    write(100)
    with contextlib.closing(source):
        assert (records(first), records(source.read(0.0))) == (wanted[:40], wanted[40:])
        assert source.counts == SourceCounts(gap_records=0)


def test_an_array_that_is_not_whole_yet_is_read_as_far_as_its_elements_are(tmp_path):
    path = tmp_path / "p.json"
    with opened(path, follow=True) as source, path.open("ab", buffering=0) as file:
        for data, wanted in (
            (b" [", []),
            (b'\n {"a": 1}', []),
            (b',\n {"a"', [{"a": 1}]),
            (b": 2}\n]\n", [{"a": 2}]),
        ):
            file.write(data)
            assert records(source.read(0.0)) == wanted


def test_objects_on_lines_of_their_own_may_follow_an_array(tmp_path):
    path = tmp_path / "p.json"
    path.write_bytes(b'[{"a": 1},\r\n {"a": 2}]\r\n{"a": 3}\n[{"a": 4}]\n{"a": 5}')
    for block_bytes in (1 << 20, 1, 3):
        source = FileSource(path)
        source.block_bytes = block_bytes
        source.open({})
        with contextlib.closing(source):
            assert records(read_all(source)) == [{"a": i} for i in range(1, 6)]


def test_a_renamed_file_is_read_to_its_end_before_the_new_one(tmp_path):
    path = tmp_path / "p.ndjson"
    with path.open("ab", buffering=0) as old, opened(path, follow=True, settle_seconds=0.0) as source:
        old.write(lines(0, 3))
        assert text(source.read(0.0)) == lines(0, 3)
        path.rename(tmp_path / "p.ndjson.1")
        old.write(line(3))  # the writer has not noticed yet
        path.write_bytes(lines(10, 12))
        assert text(source.read(0.0)) == line(3)
        [raw] = source.read(0.5)
    assert (raw.data, raw.start) == (lines(10, 12), 0)


def test_a_half_line_at_the_end_of_a_renamed_file_is_not_lost(tmp_path):
    path = tmp_path / "p.ndjson"
    path.write_bytes(line(0) + b'{"id":')
    with opened(path, follow=True, settle_seconds=0.0) as source:
        first = source.read(0.0)
        path.rename(tmp_path / "p.ndjson.1")
        path.write_bytes(line(1))
        second, third = source.read(0.5), source.read(0.5)
    assert [text(raws) for raws in (first, second, third)] == [line(0), b'{"id":', line(1)]


def test_a_renamed_file_is_given_time_to_settle(tmp_path):
    path = tmp_path / "p.ndjson"
    path.write_bytes(line(0))
    with opened(path, follow=True, settle_seconds=3600.0) as source:
        assert text(source.read(0.0)) == line(0)
        path.rename(tmp_path / "p.ndjson.1")
        path.write_bytes(line(1))
        assert source.read(0.05) == []
        with (tmp_path / "p.ndjson.1").open("ab") as old:
            old.write(line(2))
        assert text(source.read(0.0)) == line(2)


def test_a_removed_file_is_held_until_another_takes_its_place(tmp_path):
    path = tmp_path / "p.ndjson"
    path.write_bytes(line(0))
    with opened(path, follow=True, settle_seconds=0.0) as source:
        assert text(source.read(0.0)) == line(0)
        path.unlink()
        assert source.read(0.0) == []
        path.write_bytes(line(1))
        assert text(source.read(0.5)) == line(1)


def test_a_followed_file_that_stays_away_is_an_error_until_it_is_there(tmp_path):
    path = tmp_path / "p.ndjson"
    with opened(path, follow=True, settle_seconds=0.0, missing_seconds=0.0) as source:
        for _ in range(2):
            with pytest.raises(SourceError) as caught:
                source.read(0.0)
            assert str(caught.value) == f"There is no file {path}; it is waited for."
        path.write_bytes(line(0))
        assert text(source.read(0.0)) == line(0)
        path.rename(tmp_path / "moved")
        with pytest.raises(SourceError) as caught:
            source.read(0.0)
        assert str(caught.value) == f"There is no longer a file {path}; it is waited for."
        with (tmp_path / "moved").open("ab") as old:
            old.write(line(1))
        assert text(source.read(0.0)) == line(1), "its writer may not have noticed"
        path.write_bytes(line(2))
        assert text(source.read(0.5)) == line(2)
        assert source.read(0.0) == []


def test_a_named_pipe_is_read_until_its_last_writer_closes_it(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    with opened(path) as source:
        assert source.up
        assert source.read(0.0) == [], "no writer has come yet, which is not the end"
        with path.open("wb", buffering=0) as writer:
            writer.write(line(0) + line(1)[:9])
            assert text(source.read(5.0)) == line(0)
            writer.write(line(1)[9:] + b'{"id": 2}')
            assert text(source.read(5.0)) == line(1)
            assert source.read(0.0) == []
        assert text(source.read(5.0)) == b'{"id": 2}'
        assert not source.up
        assert source.lag is None
        with pytest.raises(EndOfSource):
            source.read(0.0)


def test_what_a_pipe_cannot_do_is_said(tmp_path):
    for name in ("pipe", "pipe.csv"):
        os.mkfifo(tmp_path / name)
    with pytest.raises(SourceError, match=r"pipe is a pipe, which is read until it is closed; leave follow"):
        FileSource(tmp_path / "pipe", follow=True).open({})
    with pytest.raises(SourceError, match=r"pipe\.csv is a pipe, .*only plain NDJSON.*; make it a file"):
        FileSource(tmp_path / "pipe.csv").open({})


def test_a_truncated_file_is_begun_again_and_that_is_said(tmp_path, caplog):
    path = tmp_path / "p.ndjson"
    path.write_bytes(lines(0, 5))
    with opened(path, follow=True) as source:
        assert text(source.read(0.0)) == lines(0, 5)
        with path.open("r+b") as file:
            file.truncate(0)
        assert text(source.read(0.0)) == b""
        assert [record.getMessage() for record in caplog.records] == [
            f"{path}: the text after byte {len(lines(0, 5))}, where reading should continue, is neither in "
            "the file nor in a rotated file beside it: this counts as one gap. Reading goes on at the start "
            f"of {path}; repeated records count once if they have an id."
        ]
        assert source.counts == SourceCounts(gap_records=1)
        with path.open("ab") as file:
            file.write(lines(7, 9))
        [raw] = source.read(0.0)
    assert (raw.data, raw.start) == (lines(7, 9), 0)


def test_lag_is_about_the_records_that_are_left(tmp_path):
    path = tmp_path / "p.ndjson"
    path.write_bytes(lines(0, 60_000))
    with opened(path) as source:
        assert source.lag is None
        [raw] = source.read(0.0)
        assert source.lag == 60_000 - raw.data.count(b"\n")
        read_all(source)
        assert source.lag == 0
    assert source.lag is None


@contextlib.contextmanager
def asked_meanwhile(source: FileSource) -> Iterator[list[object]]:
    """Query `up` and `lag` in another thread all the while, as scrapes do; yield the answers."""
    answers: list[object] = []
    stop = threading.Event()

    def ask() -> None:
        while not stop.is_set():
            try:
                source.up  # noqa: B018 - that it answers is what is tested
                answers.append(source.lag)
            except Exception as error:  # noqa: BLE001 - none may come out
                answers.append(error)

    thread = threading.Thread(target=ask)
    pause = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)  # as many changes of thread between two steps as can be had
    thread.start()
    try:
        yield answers
    finally:
        stop.set()
        thread.join()
        sys.setswitchinterval(pause)


def wait_until_answered(answers: list[object], expected: object) -> None:
    """Wait for an answer that is newer than this call."""
    begun = len(answers)
    wait_until(lambda: expected in answers[begun:], f"lag is {expected}", pause=0.0)


@pytest.mark.slow
def test_lag_may_be_asked_for_while_the_file_is_rotated(tmp_path):
    path = tmp_path / "p.ndjson"
    path.write_bytes(lines(0, 20))
    with opened(path, follow=True, settle_seconds=0.0) as source, asked_meanwhile(source) as answers:
        for number in range(60):
            assert text(source.read(1.0)) == lines(0, 20)
            wait_until_answered(answers, 0)
            path.rename(tmp_path / f"p.ndjson.{number % 4}")  # all of them are looked at
            path.write_bytes(lines(0, 20))
    assert set(answers) <= {0, None}  # whether one falls into a rotation is a matter of luck


@pytest.mark.slow
def test_lag_may_be_asked_for_while_the_file_is_closed(tmp_path):
    path = tmp_path / "p.ndjson"
    path.write_bytes(lines(0, 20))
    for follow in (False, True):
        source = FileSource(path, follow=follow)
        with asked_meanwhile(source) as answers:
            for _ in range(200):
                source.open({})
                assert text(source.read(0.0)) == lines(0, 20)
                wait_until_answered(answers, 0)
                source.close()
                wait_until_answered(answers, None)
        assert set(answers) == {0, None}


def test_a_folder_of_many_files_is_not_listed_for_each(tmp_path, monkeypatch):
    """Each was listed several times: a thousand files took half a minute, and 20,000 were never read."""
    count = 400
    for number in range(count):
        (tmp_path / f"{number:04}.log").write_bytes(lines(number, number + 1))
    os.utime(tmp_path, (time.time() - 60, time.time() - 60))
    listings, real = [], os.scandir
    monkeypatch.setattr(os, "scandir", lambda *arguments: listings.append(1) or real(*arguments))
    source = FileSource(tmp_path / "*.log", follow=True)
    source.open({})
    blocks = []
    while len(blocks) < count:
        blocks += [raw.data for raw in source.read(1.0) if isinstance(raw, RawBlock)]
    source.close()
    assert blocks == [lines(number, number + 1) for number in range(count)]
    assert len(listings) < 20, "and not several for each file"


def test_the_names_in_a_folder_are_those_of_now(tmp_path):
    """A listing is used again only while nobody can have changed the folder since."""
    path = tmp_path / "p.log"
    path.touch()
    for number in range(1, 200):
        new = tmp_path / f"p.log.{number}"
        new.touch()
        assert set(rotated._names(path)) == {"p.log", *(f"p.log.{each}" for each in range(1, number + 1))}
    new.rename(tmp_path / "other")
    assert "p.log.199" not in rotated._names(path)


def test_a_pipe_under_the_name_of_a_followed_file_is_an_error_and_not_a_wait(tmp_path):
    path = tmp_path / "p.ndjson"
    path.write_bytes(lines(0, 3))
    with opened(path, follow=True, settle_seconds=0.0) as source:
        assert text(source.read(0.0)) == lines(0, 3)
        path.unlink()
        os.mkfifo(path)
        with pytest.raises(SourceError, match="cannot be read: it is a pipe now; let it be a file"):
            source.read(5.0)
        path.unlink()
        path.write_bytes(lines(3, 6))
        assert text(source.read(5.0)) == lines(3, 6)


def gathered(source: FileSource, parts: list[bytes]) -> int:
    """Add what can be read to `parts`, and return the number of bytes of all of them."""
    with contextlib.suppress(SourceError):
        parts.append(text(source.read(0.5)))
    return sum(map(len, parts))


def test_a_file_with_two_names_of_a_pattern_is_read_once(tmp_path):
    (tmp_path / "day.log").write_bytes(lines(0, 3))
    (tmp_path / "a-latest.log").symlink_to("day.log")
    os.link(tmp_path / "day.log", tmp_path / "hard.log")
    with opened(tmp_path / "*.log", follow=True) as source:
        raws = source.read(1.5)
        assert text(raws) == lines(0, 3)
        assert {raw.partition for raw in raws} == {str(tmp_path / "day.log")}
        (tmp_path / "next.log").write_bytes(lines(3, 6))
        (tmp_path / "a-latest.log").unlink()
        (tmp_path / "a-latest.log").symlink_to("next.log")
        (tmp_path / "day.log").unlink()  # it goes on under its other name
        with (tmp_path / "hard.log").open("ab") as file:
            file.write(lines(6, 9))
        parts: list[bytes] = []
        wait_until(lambda: gathered(source, parts) >= len(lines(3, 9)), "both files are read")
        assert sorted(b"".join(parts).splitlines()) == lines(3, 9).splitlines()
        assert text(source.read(1.5)) == b""


def test_a_new_file_with_the_inode_of_one_that_was_read_and_removed_is_no_gap(tmp_path, monkeypatch):
    monkeypatch.setattr(
        following, "MOST_OPEN", 0
    )  # closed after each look: only then an inode goes to another
    (tmp_path / "a.log").write_bytes(lines(0, 3))
    with opened(tmp_path / "*.log", follow=True) as source:
        assert text(source.read(1.0)) == lines(0, 3)
        assert source.read(1.5) == []
        (tmp_path / "a.log").rename(tmp_path / "b.log")
        (tmp_path / "b.log").write_bytes(lines(3, 9))
        parts: list[bytes] = []
        wait_until(lambda: gathered(source, parts) >= len(lines(3, 9)), "the new file is read")
        assert b"".join(parts) == lines(3, 9)
        assert source.counts == SourceCounts(gap_records=0)


def test_a_folder_that_vanishes_is_said_and_its_positions_are_kept(tmp_path):
    folder = tmp_path / "mounted"
    folder.mkdir()
    (folder / "p.log").write_bytes(lines(0, 3))
    with opened(folder / "*.log", follow=True, missing_seconds=0.2, late_seconds=0.2) as source:
        assert text(source.read(0.0)) == lines(0, 3)
        folder.rename(tmp_path / "away")
        with pytest.raises(SourceError, match=r"There is no file .*\*\.log; it is waited for"):
            source.read(10.0)
        for _ in range(5):  # longer than a file that has gone is kept beside others
            with pytest.raises(SourceError, match="it is waited for"):
                source.read(1.0)
        (tmp_path / "away").rename(folder)
        with (folder / "p.log").open("ab") as file:
            file.write(lines(3, 5))
        parts: list[bytes] = []
        wait_until(lambda: gathered(source, parts) >= len(lines(3, 5)), "the file is read on")
        assert b"".join(parts) == lines(3, 5)
        assert source.counts == SourceCounts(gap_records=0)


def test_a_name_that_is_not_utf_8_is_a_partition_that_a_store_can_hold(tmp_path):
    name = os.fsencode(tmp_path) + b"/\xff%41.log"
    with open(name, "wb") as file:
        file.write(lines(0, 3))
    with opened(tmp_path / "*.log", follow=True) as source:
        [raw] = source.read(1.0)
        position = raw.after
    assert raw.partition == f"file:{tmp_path}/%FF%2541.log"
    assert raw.data == lines(0, 3)
    with open(name, "ab") as file:
        file.write(lines(3, 5))
    with opened(tmp_path / "*.log", {raw.partition: position}, follow=True) as source:
        assert text(source.read(1.0)) == lines(3, 5)
