"""Folders that fill with tables, here and at addresses: each file once, when it is complete."""

from __future__ import annotations

import glob
import os
import re
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from secrets import token_hex
from typing import Any, ClassVar

import fsspec
import pyarrow
import pyarrow.parquet
import pytest
from dateutil.parser import isoparse
from fsspec import register_implementation
from fsspec.implementations.memory import MemoryFileSystem

from connectors.files import FileSource
from connectors.formats.files import folder, remote, tables
from connectors.formats.files.folder import LocalFiles
from connectors.formats.files.listing import listed
from connectors.formats.files.remote import RemoteFiles
from monitor.base.codec import pack, unpack
from monitor.base.errors import MissingExtraError, SourceError
from monitor.base.source import RawDamaged, RawPosition, RawTable, SourceCounts
from monitor.config.sources import FileSourceConfig
from tests.services.process import answers, free_ports, started, stop, wait_until

New = Callable[..., FileSource]


class Reader:
    """A reader of a source that keeps rows and the newest positions, as a store would have them."""

    def __init__(self, source: FileSource, at: dict[str, Any] | None = None) -> None:
        self.source, self.positions = source, dict(at or {})
        self.ids: list[str] = []
        self.damaged: list[str] = []
        source.open(self.positions)

    def once(self, timeout_seconds: float = 0.0) -> None:
        for raw in self.source.read(timeout_seconds):
            if isinstance(raw, RawTable):
                self.ids += map(str, raw.columns["id"])
            else:
                assert isinstance(raw, RawDamaged | RawPosition)
                self.damaged += [raw.why] if isinstance(raw, RawDamaged) else []
            self.positions = unpack(pack({**self.positions, raw.partition: raw.after}))

    def until(self, *ids: str) -> None:
        """Read until these came, in this order, and their files are done with."""

        def all_done() -> bool:
            self.once()
            return self.ids == [*ids] and all(at is None or at["done"] for at in self.positions.values())

        wait_until(all_done, f"{ids} came, and not {self.ids}", pause=0.005)
        for _ in range(5):
            self.once(0.02)
        assert self.ids == [*ids]


def csv(path: Path, *ids: str) -> Path:
    path.write_text("id,label\n" + "".join(f"{each},yes\n" for each in ids))
    return path


def parquet(path: Any, *ids: str) -> None:
    table = pyarrow.table({"id": [*ids], "label": ["yes"] * len(ids)})
    pyarrow.parquet.write_table(table, path)


@pytest.fixture
def new(monkeypatch: pytest.MonkeyPatch) -> Iterator[New]:
    """Yield a function that makes sources that read a file as complete at once; close them in the end."""
    monkeypatch.setattr(LocalFiles, "look_seconds", 0.01)
    monkeypatch.setattr(RemoteFiles, "look_seconds", 0.01)
    with ExitStack() as stack:

        def make(path: str | Path, **more: Any) -> FileSource:
            source = FileSource(path, **{"follow": True, "complete_seconds": 0.0, **more})
            stack.callback(source.close)
            return source

        yield make


def test_each_file_of_a_folder_is_read_once_as_it_fills_and_over_restarts(tmp_path: Path, new: New) -> None:
    parquet(tmp_path / "b.parquet", "b1", "b2")
    parquet(tmp_path / "a.parquet", "a1")
    csv(tmp_path / "c.csv", "not of the pattern")
    reader = Reader(new(tmp_path / "*.parquet"))
    reader.until("a1", "b1", "b2")
    assert (reader.source.up, reader.source.lag) == (True, None)
    parquet(tmp_path / "0.parquet", "later")
    reader.until("a1", "b1", "b2", "later")
    again = Reader(new(tmp_path / "*.parquet"), reader.positions)
    parquet(tmp_path / "d.parquet", "d1")
    again.until("d1")


def test_a_file_that_was_read_in_part_goes_on_behind_the_last_row(
    tmp_path: Path, new: New, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("connectors.formats.files.tables.ROWS", 2)
    ids = [str(number) for number in range(7)]
    csv(tmp_path / "a.csv", *ids)
    reader = Reader(new(tmp_path / "*.csv"))
    wait_until(lambda: reader.once() is None and len(reader.ids) == 4, "two tables came")
    Reader(new(tmp_path / "*.csv"), reader.positions).until(*ids[4:])


def test_a_file_that_is_overwritten_while_it_is_read_counts_as_a_gap(
    tmp_path: Path, new: New, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("connectors.formats.files.tables.ROWS", 2)
    monkeypatch.setattr("connectors.formats.files.folder.ROWS", 2)
    path = csv(tmp_path / "a.csv", *(f"{number:0500}" for number in range(1000)))
    reader = Reader(new(tmp_path / "*.csv"))
    wait_until(lambda: reader.once() is None and len(reader.ids) >= 2, "the first rows came")
    csv(path, "other")
    wait_until(lambda: reader.once() is None and reader.ids[-1] == "other", "the other row came")
    assert len(reader.ids) < 1000
    wait_until(lambda: reader.once() is None and reader.positions[str(path)]["done"], "it is read")
    assert reader.source.counts == SourceCounts(1)


def test_a_file_that_grows_while_it_is_read_is_read_on(
    tmp_path: Path, new: New, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("connectors.formats.files.tables.ROWS", 2)
    monkeypatch.setattr("connectors.formats.files.folder.ROWS", 2)
    ids = [str(number) for number in range(7)]
    path = csv(tmp_path / "a.csv", *ids)
    reader = Reader(new(tmp_path / "*.csv"))
    wait_until(lambda: reader.once() is None and len(reader.ids) >= 2, "the first rows came")
    with path.open("a") as file:
        file.write("7,yes\n")
    reader.until(*ids, "7")
    assert reader.source.counts == SourceCounts(0)


def test_a_file_is_read_once_it_has_not_changed_for_a_while(tmp_path: Path, new: New) -> None:
    path = csv(tmp_path / "a.csv", "1")
    reader = Reader(new(tmp_path / "*.csv", complete_seconds=0.5))
    began = time.monotonic()
    for number in range(2, 8):  # as a slow writer does
        reader.once()
        with path.open("a") as file:
            file.write(f"{number},yes\n")
        if time.monotonic() < began + 0.4:
            assert reader.ids == []
    reader.until(*"1234567")


def test_a_file_that_changes_later_is_read_on_and_that_is_said(
    tmp_path: Path, new: New, caplog: pytest.LogCaptureFixture
) -> None:
    path = csv(tmp_path / "a.csv", "1")
    reader = Reader(new(tmp_path / "*.csv"))
    reader.until("1")
    csv(path, "1", "2")
    reader.until("1", "2")
    assert f"{path} has changed after it was read; it is read on after row 1: write each file" in caplog.text


def test_a_damaged_file_is_tried_for_a_minute_then_counted_and_holds_up_no_other(
    tmp_path: Path, new: New, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.parquet").write_bytes(b"PAR1 half")
    parquet(tmp_path / "b.parquet", "b1")
    reader = Reader(new(tmp_path / "*.parquet"))
    wait_until(lambda: reader.once() is None and reader.ids == ["b1"], "the other came")
    assert reader.damaged == []
    monkeypatch.setattr(folder, "DAMAGED_SECONDS", 0.0)
    wait_until(lambda: bool(reader.once() or reader.damaged), "it is counted")
    reader.until("b1")
    [why] = reader.damaged
    assert why.startswith(f"{tmp_path}/a.parquet cannot be read as Parquet: ")
    parquet(tmp_path / "a.parquet", "a1")
    reader.until("b1", "a1")
    assert len(reader.damaged) == 1


def test_a_file_without_known_columns_is_counted_and_not_asked_for_again(
    tmp_path: Path, new: New, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder, "DAMAGED_SECONDS", 0.0)
    (tmp_path / "a.csv").write_text("what;ever\n1;2\n")
    csv(tmp_path / "b.csv", "b1")
    reader = Reader(new(tmp_path / "*.csv"))
    reader.until("b1")
    assert len(reader.damaged) == 1
    assert (
        "the first line of a CSV file must name its columns, but none of them is known" in reader.damaged[0]
    )


def test_the_position_of_a_file_that_has_gone_is_let_go_but_not_where_all_have(
    tmp_path: Path, new: New
) -> None:
    for name in "ab":
        csv(tmp_path / f"{name}.csv", name)
    reader = Reader(new(tmp_path / "*.csv", late_seconds=0.0, missing_seconds=60.0))
    reader.until("a", "b")
    (tmp_path / "a.csv").unlink()
    wait_until(
        lambda: reader.once() is None and reader.positions[f"{tmp_path}/a.csv"] is None, "it is let go"
    )
    os.rename(tmp_path / "b.csv", tmp_path / "aside")  # as where a folder is not mounted
    for _ in range(5):
        reader.once(0.06)
    os.rename(tmp_path / "aside", tmp_path / "b.csv")
    reader.until("a", "b")


def test_what_spark_has_not_moved_yet_is_left_and_folders_are_no_files(tmp_path: Path, new: New) -> None:
    (tmp_path / "day=1" / "_temporary" / "0").mkdir(parents=True)
    (tmp_path / "x.csv").mkdir()
    csv(tmp_path / "day=1" / "_temporary" / "0" / "p.csv", "not yet")
    csv(tmp_path / "day=1" / "q.csv", "q")
    Reader(new(f"{tmp_path}/**/*.csv")).until("q")


def test_a_folder_without_files_is_an_error_until_there_is_one(tmp_path: Path, new: New) -> None:
    reader = Reader(new(tmp_path / "*.csv", missing_seconds=0.0))
    with pytest.raises(SourceError) as error:
        reader.once()
    assert str(error.value) == f"There is no file {tmp_path}/*.csv; it is waited for."
    assert not reader.source.up
    csv(tmp_path / "a.csv", "1")
    wait_until(lambda: reader.source._reader is not None and _read(reader) == ["1"], "it came")


def _read(reader: Reader) -> list[str]:
    try:
        reader.once()
    except SourceError:
        return []
    return reader.ids


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="other systems refuse such names")
def test_a_table_whose_name_is_not_utf_8_is_read_and_a_damaged_one_is_counted(
    tmp_path: Path, new: New, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder, "DAMAGED_SECONDS", 0.0)
    monkeypatch.setattr(folder.log, "disabled", True)  # pytest-xdist cannot pass such names on
    parquet(tmp_path / "small", "1")
    pyarrow.parquet.write_table(
        pyarrow.table({"id": ["2"], "label": ["yes"], "text": [os.urandom(1 << 20).hex()]}),
        tmp_path / "large",
    )
    (tmp_path / "damaged").write_bytes(b"PAR1 half")
    csv(tmp_path / "plain", "3")
    names = {"small": b"a\xff.parquet", "large": b"b\xff.parquet", "damaged": b"c\xff.parquet"}
    for name, other in {**names, "plain": b"a\xff.csv"}.items():
        os.rename(tmp_path / name, os.fsencode(tmp_path) + b"/" + other)
    reader = Reader(new(tmp_path / "*.parquet"))
    reader.until("1", "2")
    assert [why.encode("utf-8", "replace").count(b"/c?.parquet cannot be") for why in reader.damaged] == [1]
    assert set(reader.positions) == {f"file:{tmp_path}/{name}%FF.parquet" for name in "abc"}
    Reader(new(tmp_path / "*.csv")).until("3")


# ── addresses ──


def test_files_at_an_address_are_read_as_they_come(new: New) -> None:
    place = f"memory://{token_hex(4)}"
    files = fsspec.filesystem("memory")
    for name in ("a", "b"):
        with files.open(f"{place}/{name}.parquet", "wb") as file:
            parquet(file, f"{name}1", f"{name}2")
    reader = Reader(new(f"{place}/*.parquet"))
    reader.until("a1", "a2", "b1", "b2")
    again = Reader(new(f"{place}/*.parquet"), reader.positions)
    with files.open(f"{place}/c.parquet", "wb") as file:
        parquet(file, "c1")
    again.until("c1")
    assert set(again.positions) == {f"{place.replace('//', '///')}/{name}.parquet" for name in "abc"}


def test_a_store_that_is_away_is_an_error_and_reading_goes_on(
    new: New, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = f"memory://{token_hex(4)}"
    files = fsspec.filesystem("memory")
    with files.open(f"{place}/a.parquet", "wb") as file:
        parquet(file, "a1")

    def fails(*arguments: Any, **named: Any) -> None:
        raise ConnectionError("the line is cut.")

    for step, message in (("glob", "cannot be listed"), ("get_file", "cannot be fetched")):
        reader = Reader(new(f"{place}/*.parquet"))
        with monkeypatch.context() as patched:
            patched.setattr(type(files), step, fails)
            with pytest.raises(SourceError, match=f"{message}: the line is cut$"):
                reader.once(1.0)
            assert not reader.source.up
        reader.until("a1")
        assert reader.damaged == []


@pytest.mark.process
def test_a_bucket_of_s3_is_read_as_it_fills(new: New, monkeypatch: pytest.MonkeyPatch) -> None:
    import s3fs  # not at the top: each worker imports all modules, and these take most of a second
    from moto.server import ThreadedMotoServer

    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        options = {"endpoint_url": f"http://{host}:{port}"}
        files = s3fs.S3FileSystem(**options)
        files.mkdir("labels")
        with files.open("labels/a.parquet", "wb") as file:
            parquet(file, "a1", "a2")
        reader = Reader(new("s3://labels/*.parquet", options=options))
        reader.until("a1", "a2")
        with files.open("labels/b.parquet", "wb") as file:
            parquet(file, "b1")
        reader.until("a1", "a2", "b1")
        monkeypatch.setattr("dateutil.parser.parse", refuse)  # it takes most of a listing
        Reader(new("s3://labels/*.parquet", options=options), reader.positions).until()
        assert set(reader.positions) == {"s3://labels/a.parquet", "s3://labels/b.parquet"}
        with closing(RemoteFiles("s3://labels/*.parquet", options)) as remote_files:
            wait_until(lambda: remote_files.marks(0.1), "they are listed")
            assert remote_files._store._system is not None
            assert not remote_files._store._system[0].dircache, "the store's listing stays in memory"
    finally:
        server.stop()


def refuse(text: str, **options: Any) -> Any:
    """Parse for moto, and refuse to parse for s3fs."""
    assert threading.current_thread().name != "fsspecIO", f"{text} is parsed slowly"
    return isoparse(text)


def test_what_an_address_cannot_do_is_said(new: New, monkeypatch: pytest.MonkeyPatch) -> None:
    for path, more, message in (
        ("memory://a/*.csv", {"follow": False}, "files at an address are read as they come; set follow"),
        (
            "memory://a/*.log",
            {},
            "of an address only .parquet and .csv can be read, perhaps .csv.gz or .csv.zst",
        ),
        ("nothing://a/*.csv", {}, "Protocol not known: nothing; correct path or options"),
    ):
        with pytest.raises(SourceError) as error:
            new(path, **more).open({})
        assert message in str(error.value)
    monkeypatch.setitem(sys.modules, "gcsfs", None)
    with pytest.raises(MissingExtraError, match=r"Reading gs:// needs .*pip install 'blindsight\[gs\]'"):
        new("gs://a/*.csv").open({})


def test_an_address_is_not_taken_for_a_path_and_options_are_not_shown() -> None:
    section = FileSourceConfig(kind="file", path="s3://b/*.csv", follow=True, options={"secret": "hunter2"})
    assert section.resolve("/etc").path == "s3://b/*.csv"
    assert "hunter2" not in repr(section)


def test_a_sample_of_a_folder_is_of_its_first_file(tmp_path: Path) -> None:
    csv(tmp_path / "a.csv", *map(str, range(9)))
    settings = FileSourceConfig(kind="file", path=f"{tmp_path}/*.csv", follow=True)
    [raw] = FileSource.sample(settings, 5)
    assert isinstance(raw, RawTable)
    assert raw.columns["id"] == [*"01234"]


# ── what goes wrong ──


def test_links_that_lead_in_circles_give_each_file_once(tmp_path: Path, new: New) -> None:
    inner = tmp_path / "day=1"
    inner.mkdir()
    csv(inner / "a.csv", "a")
    csv(tmp_path / "b.csv", "b")
    for name in ("0", "loop", "z"):
        (tmp_path / name).symlink_to(tmp_path)
        (inner / name).symlink_to(tmp_path)
    (tmp_path / "self.csv").symlink_to("self.csv")
    reader = Reader(new(f"{tmp_path}/**/*.csv"))
    reader.until("b", "a")
    assert set(reader.positions) == {f"{tmp_path}/b.csv", f"{inner}/a.csv"}


def test_names_are_those_of_glob(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a.csv", "d/b.csv", "d/e/c.csv", "d/.hidden/h.csv", ".x.csv", "d/[1].csv"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        csv(path, "1")
    (tmp_path / "d" / "link").symlink_to(tmp_path / "d" / "e")
    monkeypatch.chdir(tmp_path)
    for pattern in (
        "*.csv",
        "d/*.csv",
        "./d/*.csv",
        "*/*.csv",
        ".*.csv",
        "**/c.csv",
        "d//*.csv",
        "d/*/c.csv",
    ):
        for each in (pattern, f"{tmp_path}/{pattern}"):
            known = {name for name in glob.glob(each, recursive=True) if "link" not in name}
            assert {name for name, _ in listed(each) if "link" not in name} == known, each


@pytest.mark.slow
def test_a_folder_is_listed_once_for_all_of_its_files(
    tmp_path: Path, new: New, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not once a file: then 100,000 files take days."""
    ids = [f"{number:04}" for number in range(1500)]
    for each in ids:
        csv(tmp_path / f"{each}.csv", each)
    monkeypatch.setattr(LocalFiles, "look_seconds", 3600.0)
    listings, real = [], LocalFiles.marks
    monkeypatch.setattr(LocalFiles, "marks", lambda *arguments: listings.append(1) or real(*arguments))  # type: ignore[func-returns-value]
    reader, reads = Reader(new(tmp_path / "*.csv", missing_seconds=60.0)), 0
    while len(reader.ids) < len(ids):
        reader.once(60.0)
        reads += 1
    assert reader.ids == ids
    assert reads == 3, "a thousand positions and tables at a time"
    assert len(listings) < 30


def test_a_reader_that_fails_costs_no_row_and_holds_up_no_file(
    tmp_path: Path, new: New, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Unread rows are counted after a minute, once, and are read as soon as possible."""
    ids = [str(number) for number in range(20_000)]
    parquet(tmp_path / "a.parquet", *ids)
    parquet(tmp_path / "b.parquet", "b1")
    fails = [True]
    real = tables._cells

    def cells(column: Any) -> Any:
        if fails[0] and len(column) < tables.ROWS:
            raise OverflowError("date value out of range")
        return real(column)

    monkeypatch.setattr(tables, "_cells", cells)
    reader = Reader(new(tmp_path / "*.parquet"))
    fails[0] = True
    wait_until(lambda: reader.once() is None and "b.parquet: reading fails after row 0" in caplog.text, "b")
    assert len(reader.ids) == 2 * tables.ROWS
    assert reader.damaged == []
    assert (
        "a.parquet: reading fails after row 16384, and is tried again from there: OverflowError"
        in caplog.text
    )
    monkeypatch.setattr(folder, "DAMAGED_SECONDS", 0.0)
    wait_until(lambda: reader.once() is None and len(reader.damaged) == 2, "each is counted")
    assert reader.damaged[0] == (
        "the rows from number 16384 on were not read, and are tried again: OverflowError: date value out of "
        "range"
    )
    again = Reader(new(tmp_path / "*.parquet"), reader.positions)
    for _ in range(20):
        again.once(0.01)
    assert again.damaged == [], "it was counted before"
    fails[0] = False
    wait_until(lambda: again.once() is None and len(again.ids) == 20_001 - 2 * tables.ROWS, "the rest came")
    assert sorted(reader.ids + again.ids) == sorted([*ids, "b1"])


def test_a_file_that_cannot_be_opened_is_told_and_holds_up_no_other(
    tmp_path: Path, new: New, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [csv(tmp_path / f"{number:02}.csv", str(number)) for number in range(30)]
    real, shut = os.open, {str(path) for path in paths[:20]}

    def opened(path: Any, *rest: Any) -> int:
        if str(path) in shut:
            raise PermissionError(13, "Permission denied")
        return real(path, *rest)

    monkeypatch.setattr(os, "open", opened)
    reader = Reader(new(tmp_path / "*.csv"))
    reader.once(60.0)
    assert reader.ids == [str(number) for number in range(20, 30)], "in one read"
    assert reader.source.trouble == f"{paths[0]} cannot be read: Permission denied"
    assert not reader.source.up
    with pytest.raises(SourceError, match="cannot be read: Permission denied"):
        reader.once()
    shut.clear()
    wait_until(lambda: _read(reader) is not None and len(reader.ids) == 30, "the others came")
    wait_until(lambda: _read(reader) is not None and reader.source.up, "it is up")


def test_a_file_that_goes_before_its_last_row_was_read_counts_as_a_gap(
    tmp_path: Path, new: New, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("connectors.formats.files.tables.ROWS", 2)
    csv(tmp_path / "a.csv", *"12345")
    csv(tmp_path / "b.csv", "b")
    reader = Reader(new(tmp_path / "*.csv"))
    wait_until(lambda: reader.once() is None and len(reader.ids) == 4, "two tables came")
    (tmp_path / "a.csv").unlink()
    again = Reader(new(tmp_path / "*.csv", late_seconds=0.0), reader.positions)
    again.until("b")
    assert again.source.counts == SourceCounts(gap_records=1)


def test_files_at_an_address_are_fetched_several_at_once_and_a_bad_one_alone_waits(
    new: New, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = token_hex(4)
    files = fsspec.filesystem("memory")
    for number in range(9):
        files.pipe_file(f"/{place}/{number}/part.csv", f"id,label\n{number},yes\n".encode())
    fetched: list[int] = []
    real, shut = type(files).get_file, [f"/{place}/4/part.csv"]

    def get(self: Any, paths: list[str], *rest: Any, **more: Any) -> None:
        fetched.append(len(paths))
        for path, here in zip(paths, *rest, strict=True):
            if path in shut:
                raise PermissionError("no")
            real(self, path, here)

    monkeypatch.setattr(type(files), "get", get)
    reader = Reader(new(f"memory://{place}/*/part.csv"))
    wait_until(lambda: _read(reader) is not None and len(reader.ids) == 8, "all others came")
    assert reader.source.trouble is not None
    assert reader.source.trouble.endswith("4/part.csv cannot be fetched: no")
    assert fetched[0] == 9
    shut.clear()
    wait_until(lambda: _read(reader) is not None and sorted(reader.ids) == [*"012345678"], "it came too")
    assert reader.source.trouble is None


@pytest.mark.process
def test_a_store_that_stands_still_is_told_and_reads_do_not_wait_for_it(
    new: New, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import s3fs

    monkeypatch.setattr(remote, "ANSWER_SECONDS", 0.5)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    [port] = free_ports(1)
    words = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    process = started("moto", words, tmp_path / "log", lambda: answers(port))
    try:
        options = {"endpoint_url": f"http://127.0.0.1:{port}"}
        files = s3fs.S3FileSystem(**options)
        files.mkdir("labels")
        files.pipe_file("labels/a.csv", b"id,label\n1,yes\n")
        reader = Reader(new("s3://labels/*.csv", options=options))
        reader.until("1")
        process.send_signal(signal.SIGSTOP)

        def is_told() -> bool:
            before = time.monotonic()
            reader.once(0.05)
            assert time.monotonic() - before < 10, "a read waits"
            return not reader.source.up

        wait_until(is_told, "it is told")
        assert "s3://labels/*.csv has not answered for " in str(reader.source.trouble)
        process.send_signal(signal.SIGCONT)
        files.pipe_file("labels/b.csv", b"id,label\n2,yes\n")
        reader.until("1", "2")
        assert reader.source.up
    finally:
        process.send_signal(signal.SIGCONT)
        stop(process)


@pytest.mark.process
def test_a_store_that_accepts_and_never_answers_is_told_and_its_answer_has_a_limit(
    new: New, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A half-open connection: s3fs gives a request up, and then the next listing asks again."""
    import s3fs

    monkeypatch.setattr(s3fs.S3FileSystem, "retries", 1)
    monkeypatch.setattr(remote, "ANSWER_SECONDS", 0.5)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        options = {
            "endpoint_url": f"http://127.0.0.1:{silent.getsockname()[1]}",
            "config_kwargs": {"read_timeout": 1, "retries": {"max_attempts": 1}},
        }
        reader = Reader(new("s3://labels/*.csv", options=options))

        def is_told() -> bool:
            before = time.monotonic()
            reader.once(0.05)
            assert time.monotonic() - before < 10, "a read waits"
            return reader.source.trouble is not None

        wait_until(is_told, "it is told")
        assert not reader.source.up
        wait_until(lambda: fails(reader), "the request is given up")


class HalfOpen(SimpleHTTPRequestHandler):
    """A server that never answers the first request of each address, as through a half-open connection."""

    opened: ClassVar[set[str]] = set()
    shut = threading.Event()

    def do_GET(self) -> None:
        if self.path not in self.opened:
            self.opened.add(self.path)
            self.shut.wait()
            return
        super().do_GET()

    def log_message(self, *words: object) -> None:
        """Say nothing."""


@pytest.fixture
def half_open(tmp_path: Path) -> Iterator[str]:
    HalfOpen.opened.clear()
    HalfOpen.shut.clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(HalfOpen, directory=str(tmp_path))) as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        yield f"http://127.0.0.1:{server.server_port}"
        HalfOpen.shut.set()
        server.shutdown()
        serving.join()


def test_a_call_of_any_store_that_hangs_is_given_up_and_made_again(
    new: New, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, half_open: str
) -> None:
    monkeypatch.setattr(remote, "ANSWER_SECONDS", 0.2)
    monkeypatch.setattr(remote, "LOST_SECONDS", 1.0)
    csv(tmp_path / "a.csv", "1", "2")
    reader, messages = Reader(new(f"{half_open}/*.csv")), set[str]()

    def has_come() -> bool:
        before = time.monotonic()
        try:
            reader.once(0.05)
        except SourceError as error:
            messages.add(re.sub(r"\d+ seconds", "N seconds", str(error)))
        assert time.monotonic() - before < 10, "a read waits"
        return reader.ids == ["1", "2"]

    wait_until(has_come, "the file comes")
    assert HalfOpen.opened == {"/", "/a.csv"}
    assert messages == {f"{half_open}/*.csv has not answered for N seconds; it is asked again"}
    wait_until(lambda: reader.once(0.05) is None and reader.source.up, "it is up")


class OneAtATime(MemoryFileSystem):
    """A store whose connection serves one call at a time, and whose fetches fail at times."""

    protocol = "alone"
    busy = threading.Lock()
    full = cut = False

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return str(super()._strip_protocol(path.removeprefix("alone://")))

    @contextmanager
    def used(self) -> Iterator[None]:
        assert self.busy.acquire(blocking=False), "two calls at once"
        try:
            time.sleep(0.02)
            yield
        finally:
            self.busy.release()

    def glob(self, path: str, **options: Any) -> Any:
        with self.used():
            return super().glob(path, **options)

    def get(self, names: Any, paths: Any, **options: Any) -> None:
        with self.used():
            super().get(names, paths, **options)
            if self.full:
                raise OSError("the disk is full")
            for path in paths if self.cut else ():
                os.truncate(path, os.path.getsize(path) // 2)


@pytest.fixture
def one_at_a_time() -> Iterator[OneAtATime]:
    register_implementation("alone", OneAtATime, clobber=True)
    system = OneAtATime()
    system.makedirs("/labels")
    yield system
    system.rm("/labels", recursive=True)
    OneAtATime.full = OneAtATime.cut = False


def test_a_file_of_which_only_a_part_came_is_fetched_again(
    new: New, monkeypatch: pytest.MonkeyPatch, one_at_a_time: OneAtATime
) -> None:
    monkeypatch.setattr(folder, "_WAIT_LONGEST", 0.01)
    one_at_a_time.pipe_file("/labels/a.csv", b"id,label\n1,yes\n2,yes\n3,yes\n4,yes\n")
    OneAtATime.cut = True
    reader = Reader(new("alone://labels/*.csv"))

    def is_told() -> bool:
        try:
            reader.once(0.05)
        except SourceError as error:
            return str(error).endswith("/labels/a.csv cannot be fetched: only 16 of its 33 bytes came")
        return False

    wait_until(is_told, "it is told")
    assert reader.ids == []
    OneAtATime.cut = False
    reader.until("1", "2", "3", "4")


def test_a_store_that_takes_one_call_at_a_time_gets_one_at_a_time(
    new: New, monkeypatch: pytest.MonkeyPatch, one_at_a_time: OneAtATime
) -> None:
    monkeypatch.setattr(RemoteFiles, "look_seconds", 0.0)
    monkeypatch.setattr(folder, "_LOOKING", 0)
    monkeypatch.setattr(remote, "_BYTES_AT_ONCE", 0)
    ids = [str(number) for number in range(20)]
    for each in ids:
        one_at_a_time.pipe_file(f"/labels/{each:>02}.csv", f"id,label\n{each},yes\n".encode())
    Reader(new("alone://labels/*.csv")).until(*ids)


def test_fetches_that_fail_leave_nothing_on_the_disk(
    new: New, monkeypatch: pytest.MonkeyPatch, one_at_a_time: OneAtATime, tmp_path: Path
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(folder, "_WAIT_LONGEST", 0.01)
    OneAtATime.full = True
    one_at_a_time.pipe_file("/labels/a.csv", b"id,label\n1,yes\n")
    reader, failed = Reader(new("alone://labels/*.csv")), 0
    while failed < 5:
        try:
            reader.once(0.05)
        except SourceError as error:
            failed += str(error).endswith("/labels/a.csv cannot be fetched: the disk is full")
    assert len([*tmp_path.rglob("*.csv")]) <= 1
    OneAtATime.full = False
    reader.until("1")
    assert [*tmp_path.rglob("*.csv")] == []


def test_a_store_that_is_away_at_the_start_is_waited_for(new: New, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    reader = Reader(new(f"ftp://127.0.0.1:{port}/*.csv"))

    def is_told() -> bool:
        try:
            reader.once(0.05)
        except SourceError as error:
            return f"ftp://127.0.0.1:{port}/*.csv cannot be listed: " in str(error)
        return False

    wait_until(is_told, "it is told")
    assert not reader.source.up


def fails(reader: Reader) -> bool:
    try:
        reader.once(0.05)
    except SourceError as error:
        return "s3://labels/*.csv cannot be listed: " in str(error)
    return False
