"""The file source on real files: formats, positions, growth, rotation, lines without end."""

from __future__ import annotations

import os
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from connectors.files import FileSource
from connectors.formats.decode.decoder import Decoder
from connectors.formats.files import tables
from connectors.formats.files.line_cutter import LineCutter
from monitor.base.errors import MissingExtraError, SourceError
from monitor.base.records import RejectReason, id_keys
from monitor.base.source import EndOfSource, Raw, RawDamaged, RawSkipped, RawTable
from tests.connectors.file_reading import LAYOUT, compressed, drain, line, lines, opened, read_all, text


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


@pytest.mark.parametrize("package", ["zstandard", "pyarrow", "gzip"])
def test_a_compressed_file_that_was_cut_anywhere_is_an_error_and_never_a_short_file(
    tmp_path, monkeypatch, package
):
    kind = ".gz" if package == "gzip" else ".zst"
    if package == "pyarrow":
        monkeypatch.setitem(sys.modules, "zstandard", None)
    data = lines(0, 40)
    first = compressed(kind, data[:300])
    whole = first + compressed(kind, data[300:])
    path = tmp_path / f"p.ndjson{kind}"
    for size in range(len(whole) + 1):
        path.write_bytes(whole[:size])
        with opened(path) as source:
            if size in (0, len(first), len(whole)):
                assert text(read_all(source)) == {0: b"", len(first): data[:300], len(whole): data}[size]
            else:
                with pytest.raises(SourceError, match=r"p\.ndjson\..* is damaged after byte \d+ of its unc"):
                    read_all(source)


def test_the_error_of_a_cut_file_says_where_it_ends_and_how_much_it_lacks(tmp_path):
    path = tmp_path / "p.ndjson.zst"
    path.write_bytes(compressed(".zst", os.urandom(5000).hex().encode())[:-100])
    with opened(path) as source, pytest.raises(SourceError) as caught:
        read_all(source)
    message = (
        f"it ends within a frame, at byte {path.stat().st_size}, where at least 100 more must follow; copy"
    )
    assert message in str(caught.value)


def test_a_cut_table_is_an_error_too(tmp_path):
    path = tmp_path / "p.csv.zst"
    whole = compressed(".zst", f"id,model,scores\n{os.urandom(300_000).hex()},erm,0.5\n".encode())
    for lacking, message in (
        (9, "is damaged after row"),
        (len(whole) - 9, "name its columns, but it is damaged"),
    ):
        path.write_bytes(whole[:-lacking])
        with opened(path) as source, pytest.raises(SourceError, match=f"{message}.* more must follow"):
            read_all(source)


@pytest.mark.parametrize("kind", [".gz", ".zst"])
def test_every_whole_line_before_the_damage_is_used(tmp_path, kind):
    path = tmp_path / f"p.ndjson{kind}"
    data = b"".join(b'{"id": "%s"}\n' % os.urandom(300).hex().encode() for _ in range(3_000))
    whole = compressed(kind, data)
    half = len(whole) // 2
    cut = whole[:half] if kind == ".gz" else whole[:half] + bytes(100) + whole[half:]
    path.write_bytes(cut)
    raws: list[Raw] = []
    with opened(path) as source:
        with pytest.raises(SourceError, match="is damaged after byte") as caught:
            drain(source, raws)
        with pytest.raises(SourceError, match="is damaged after byte"):
            source.read(0.0)
    *raws, rest = raws
    assert data.startswith(text(raws))
    assert len(data) // 3 < len(text(raws)) < len(data)
    place = int(str(caught.value).partition("after byte ")[2].split()[0])
    assert 0 <= place - len(text(raws)) < len(data) // 3_000, "it says where the good text ends"
    assert rest == RawDamaged(str(caught.value), data[len(text(raws)) : place], str(path), len(text(raws)))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["p.ndjson.gz", "p.ndjson.zst", "p.csv.gz", "p.parquet"])
def test_what_a_fault_takes_counts_as_one_record_and_reading_goes_on_there_once_it_is_mended(tmp_path, name):
    path, decoder = tmp_path / name, Decoder([LAYOUT], "file")
    ids = [os.urandom(50).hex() for _ in range(40_000)]
    whole = packed(path, ids)
    middle = len(whole) // 2
    path.write_bytes(whole[:middle] + (bytes(200_000) + whole[middle + 200_000 :] if "parq" in name else b""))
    raws: list[Raw] = []
    source = FileSource(path)
    source.open({})
    with pytest.raises(SourceError) as caught:
        drain(source, raws)
    source.close()
    chunk = decoder.decode(raws)
    [reject], used = chunk.rejects, sum(map(len, chunk.batches))
    assert (reject.reason, reject.message) == (RejectReason.MALFORMED, f"$: {caught.value}")
    assert 0 < used < len(ids)
    assert chunk.answers == used + 1
    path.write_bytes(whole)
    source.open(chunk.positions)
    rest = decoder.decode(read_all(source))
    source.close()
    keys = [key for each in (chunk, rest) for batch in each.batches for key in batch.key.tolist()]
    assert keys == id_keys(ids).tolist()


def packed(path: Path, ids: list[str]) -> bytes:
    """Return a file of answers with these ids, as its name says."""
    if path.suffix == ".parquet":
        table = pyarrow.table({"id": ids, "model": ["erm"] * len(ids), "scores": [0.5] * len(ids)})
        pyarrow.parquet.write_table(table, path, row_group_size=8192)
        return path.read_bytes()
    if ".csv" in path.name:
        rows = ["id,model,scores", *(f"{each},erm,0.5" for each in ids)]
    else:
        rows = [f'{{"id": "{each}", "model": "erm", "scores": 0.5}}' for each in ids]
    return compressed(path.suffix, "\n".join(rows).encode())


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


def test_a_source_keeps_settings_only_until_it_is_opened(tmp_path):
    source = FileSource(tmp_path / "p.ndjson", name="mine")
    assert (source.name, source.up, source.lag) == ("mine", False, None)
    source.close()
    with pytest.raises(EndOfSource):
        source.read(0.0)
    assert FileSource(Path("a/b.ndjson")).name == "b.ndjson"


def test_a_reader_that_fails_is_begun_again_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file does not end silently: what follows is read, once."""
    monkeypatch.setattr(tables, "ROWS", 10)
    path = tmp_path / "p.parquet"
    pyarrow.parquet.write_table(pyarrow.table({"id": [str(number) for number in range(35)]}), path)
    real, left = tables._cells, [3]

    def cells(*arguments: Any) -> Any:
        left[0] -= 1
        if left[0] == 0:
            raise OverflowError("date value out of range")
        return real(*arguments)

    monkeypatch.setattr(tables, "_cells", cells)
    source = FileSource(path)
    source.open({})
    assert len(source.read(0.0)) == len(source.read(0.0)) == 1
    with pytest.raises(SourceError) as error:
        source.read(0.0)
    assert str(error.value) == (
        f"{path}: reading fails, and is tried again from where it was: OverflowError: date value out of range"
    )
    assert not source.up
    [table] = source.read(0.0)
    assert isinstance(table, RawTable)
    assert (table.start, table.columns["id"][0]) == (20, "20")
    [last] = source.read(0.0)
    assert isinstance(last, RawTable)
    assert len(last) == 5
    with pytest.raises(EndOfSource):
        source.read(0.0)
