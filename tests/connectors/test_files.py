"""The file source on real files: formats, positions, growth, rotation, lines without end."""

from __future__ import annotations

import contextlib
import gzip
import os
import sys
import threading
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest
import zstandard

from connectors.base import EndOfSource, Raw, RawBlock, RawSkipped
from connectors.files import FileSource
from connectors.formats.decoder import Decoder
from connectors.formats.line_cutter import LineCutter
from monitor.errors import MissingExtraError, SourceError
from monitor.records import RejectReason, TaskLayout, id_keys
from tests.services.process import wait_until

LAYOUT = TaskLayout("toxicity", ("ok", "toxic"))


def line(number: int) -> bytes:
    return b'{"id": "r%05d", "model": "erm", "scores": [0.25, 0.75]}\n' % number


def lines(first: int, last: int) -> bytes:
    return b"".join(map(line, range(first, last)))


@contextlib.contextmanager
def opened(path, positions=None, **settings):
    source = FileSource(path, **settings)
    source.open(positions or {})
    try:
        yield source
    finally:
        source.close()


def read_all(source: FileSource) -> list[Raw]:
    found: list[Raw] = []
    with contextlib.suppress(EndOfSource):
        drain(source, found)
    return found


def drain(source: FileSource, found: list[Raw]) -> None:
    """Read until an error comes."""
    while True:
        found += source.read(0.0)


def text(raws: list[Raw]) -> bytes:
    assert all(isinstance(raw, RawBlock) for raw in raws), raws
    return b"".join(raw.data for raw in raws)


def compressed(kind: str, data: bytes) -> bytes:
    if kind == ".gz":
        return gzip.compress(data)
    return zstandard.ZstdCompressor().compress(data) if kind == ".zst" else data


@pytest.mark.parametrize("kind", ["", ".gz", ".zst"])
def test_a_file_is_read_whole_in_blocks_of_whole_lines(tmp_path, kind):
    data = lines(0, 60_000) + line(60_000).rstrip()
    path = tmp_path / f"p.ndjson{kind}"
    # Two members one after the other, as when a log is appended to after compression.
    path.write_bytes(compressed(kind, data[:1000]) + compressed(kind, data[1000:]))
    with opened(path) as source:
        assert source.up
        raws = read_all(source)
        assert not source.up
    assert text(raws) == data
    assert len(raws) > 2
    assert all(raw.data.endswith(b"\n") for raw in raws[:-1])
    assert [raw.start for raw in raws] == [data.index(raw.data[:24]) for raw in raws]
    assert max(len(raw.data) for raw in raws) <= 2 << 20


@pytest.mark.parametrize("kind", ["", ".gz", ".zst"])
def test_reading_goes_on_after_the_position(tmp_path, kind):
    data = lines(0, 40_000)
    path = tmp_path / f"p.ndjson{kind}"
    path.write_bytes(compressed(kind, data))
    decoder = Decoder([LAYOUT], "file")
    with opened(path) as source:
        positions = decoder.decode(source.read(0.0)).positions
    assert 0 < positions[str(path)] < len(data)
    with opened(path, positions) as source:
        assert text(read_all(source)) == data[positions[str(path)] :]
    with opened(path, {str(path): len(data)}) as source:
        assert read_all(source) == []


def test_zstandard_is_read_by_pyarrow_where_its_own_package_is_missing(tmp_path, monkeypatch):
    data = lines(0, 30_000)
    path = tmp_path / "p.ndjson.zst"
    path.write_bytes(compressed(".zst", data[:999]) + compressed(".zst", data[999:]))
    monkeypatch.setitem(sys.modules, "zstandard", None)
    with opened(path) as source:
        assert text(read_all(source)) == data
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(
        MissingExtraError, match=r"Reading \.zst files needs an optional package: pip install"
    ):
        FileSource(path).open({})


def test_a_missing_file_is_an_error_that_says_what_to_do(tmp_path):
    with pytest.raises(SourceError) as caught:
        FileSource(tmp_path / "none.ndjson").open({})
    expected = f"There is no file {tmp_path}/none.ndjson; correct the path, or set follow to wait for it"
    assert str(caught.value) == expected


def test_a_folder_cannot_be_read(tmp_path):
    for follow in (False, True):
        with pytest.raises(SourceError) as caught:
            FileSource(tmp_path, follow=follow).open({})
        assert str(caught.value) == f"{tmp_path} is a folder; name a file in it"


def test_only_plain_files_can_be_followed(tmp_path):
    with pytest.raises(SourceError, match=r"p\.csv: only plain NDJSON can be followed; leave follow out"):
        FileSource(tmp_path / "p.csv", follow=True).open({})


@pytest.mark.parametrize("kind", [".gz", ".zst"])
def test_a_damaged_file_is_an_error_after_what_could_be_read(tmp_path, kind):
    path = tmp_path / f"p.ndjson{kind}"
    whole = compressed(kind, os.urandom(3_000_000).hex().encode() + b"\n")
    path.write_bytes(lines(0, 3) if kind == ".gz" else b"not zstd at all")
    with opened(path) as source, pytest.raises(SourceError, match="is damaged after byte 0 of its uncomp"):
        read_all(source)
    if kind == ".gz":
        path.write_bytes(whole[: len(whole) // 2])
        with opened(path) as source, pytest.raises(SourceError, match=r"is damaged after byte [1-9]"):
            read_all(source)


@pytest.mark.parametrize("kind", [".gz", ".zst"])
def test_every_whole_line_before_the_damage_is_used(tmp_path, kind):
    path = tmp_path / f"p.ndjson{kind}"
    data = b"".join(b'{"id": "%s"}\n' % os.urandom(300).hex().encode() for _ in range(3_000))
    whole = compressed(kind, data)
    half = len(whole) // 2
    cut = whole[:half] if kind == ".gz" else whole[:half] + bytes(100) + whole[half:]
    path.write_bytes(cut)
    found: list[Raw] = []
    with opened(path) as source:
        with pytest.raises(SourceError, match="is damaged after byte") as caught:
            drain(source, found)
        with pytest.raises(SourceError, match="is damaged after byte"):
            source.read(0.0)
    assert data.startswith(text(found))
    assert len(data) // 3 < len(text(found)) < len(data)
    place = int(str(caught.value).partition("after byte ")[2].split()[0])
    assert 0 <= place - len(text(found)) < len(data) // 3_000, "it says where the good text ends"


def test_a_line_of_ten_million_bytes_is_counted_in_bounded_memory(tmp_path):
    path = tmp_path / "p.ndjson"
    with path.open("wb") as file:
        file.write(line(0))
        for _ in range(10):
            file.write(b"x" * 1_000_000)
        file.write(b"\n" + line(1))
    decoder = Decoder([LAYOUT], "file")
    tracemalloc.start()
    with opened(path) as source:
        raws = read_all(source)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    chunk = decoder.decode(raws)
    [reject], [batch] = chunk.rejects, chunk.batches
    assert reject.reason is RejectReason.TOO_LARGE
    assert (reject.position, reject.raw) == (len(line(0)), b"x" * 2000)
    assert reject.message.startswith("$: a record of 10000001 bytes; at most 1048576 are read")
    assert batch.key.tolist() == id_keys(["r00000", "r00001"]).tolist()
    assert chunk.positions == {str(path): path.stat().st_size}
    assert peak < 5 << 20


def test_a_last_line_too_long_and_without_end_is_counted_too(tmp_path):
    path = tmp_path / "p.ndjson"
    path.write_bytes(line(0) + b"y" * 3_000_000)
    with opened(path) as source:
        raws = read_all(source)
    assert isinstance(raws[-1], RawSkipped)
    assert (raws[-1].start, raws[-1].size) == (len(line(0)), 3_000_000)


@pytest.mark.parametrize("size", [1, 7, 60, 10_000])
def test_a_cutter_gives_the_same_lines_however_the_bytes_come(size):
    data = lines(0, 20) + b"z" * 400 + b"\n" + lines(20, 30) + b"half"
    cutter = LineCutter("p", 100, max_line_bytes=120)
    raws: list[Raw] = []
    for i in range(0, len(data), size):
        raws += cutter.feed(data[i : i + size])
        assert cutter.fed == 100 + min(i + size, len(data))
    raws += cutter.finish()
    ends = [raw.start + (raw.size if isinstance(raw, RawSkipped) else len(raw.data)) for raw in raws]
    assert [raw.start for raw in raws] == [100, *ends[:-1]]
    assert ends[-1] == 100 + len(data)
    chunk = Decoder([LAYOUT], "file", max_line_bytes=120).decode(raws)
    assert [r.reason.value for r in chunk.rejects] == ["too_large", "malformed"]
    assert [r.position for r in chunk.rejects] == [100 + len(lines(0, 20)), 100 + len(data) - 4]
    assert len(chunk.batches[0]) == 30


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
        assert source.read(0.0) == []
        assert [record.getMessage() for record in caplog.records] == [
            f"{path}: it is shorter than what was read of it, so it was cut or written anew: it is read from "
            "its start. What it repeats counts once where it has an id."
        ]
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
    """Another thread asks for `up` and `lag` all the while, as scrapes do; gives what it was answered."""
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
    wait_until(lambda: expected in answers[begun:], 10.0, f"lag is {expected}", pause=0.0)


def test_lag_may_be_asked_for_while_the_file_is_rotated(tmp_path):
    path = tmp_path / "p.ndjson"
    path.write_bytes(lines(0, 20))
    with opened(path, follow=True, settle_seconds=0.0) as source, asked_meanwhile(source) as answers:
        for number in range(200):
            assert text(source.read(1.0)) == lines(0, 20)
            wait_until_answered(answers, 0)
            path.rename(tmp_path / f"p.ndjson.{number}")
            path.write_bytes(lines(0, 20))
            assert source.read(0.0) == []
    assert set(answers) == {0, None}


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


def test_a_source_keeps_settings_only_until_it_is_opened(tmp_path):
    source = FileSource(tmp_path / "p.ndjson", name="mine")
    assert (source.name, source.up, source.lag) == ("mine", False, None)
    source.close()
    with pytest.raises(EndOfSource):
        source.read(0.0)
    assert FileSource(Path("a/b.ndjson")).name == "b.ndjson"
