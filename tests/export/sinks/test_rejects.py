"""The rejects file: what a line holds, and that the file never outgrows its bound."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from monitor.base.errors import SinkError
from monitor.base.records import Reject, RejectReason
from monitor.export.sinks.rejects_file import RejectWriter
from tests.services.process import PATIENCE_SECONDS


def reject(raw: bytes = b'{"id":1}', message: str = "$.id: expected text", position: int = 7) -> Reject:
    return Reject(RejectReason.BAD_ID, message, raw, "predictions-3", position)


def write(path: Path, rejects: list[Reject], max_bytes: int = 1_000_000) -> RejectWriter:
    writer = RejectWriter(str(path), max_bytes)
    writer.start()
    assert all(writer.write((one, "kafka")) for one in rejects)
    assert writer.close(timeout=PATIENCE_SECONDS)
    return writer


def test_a_line_holds_the_reason_the_place_and_the_record(tmp_path: Path) -> None:
    path = tmp_path / "rejects.ndjson"
    write(path, [reject()])
    assert path.read_text() == (
        '{"reason":"bad_id","message":"$.id: expected text","source":"kafka",'
        '"partition":"predictions-3","position":7,"raw":"{\\"id\\":1}"}\n'
    )


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        (b"", ""),
        (b"\xff\xfe{", "\\xff\\xfe{"),
        ("é\n".encode(), "é\n"),
        (b"\x00\x1f", "\x00\x1f"),
        (b"\xed\xa0\x80", "\\xed\\xa0\\x80"),
    ],
)
def test_any_bytes_can_be_shown_on_one_line(tmp_path: Path, raw: bytes, shown: str) -> None:
    path = tmp_path / "rejects.ndjson"
    write(path, [reject(raw)])
    (line,) = path.read_bytes().splitlines()
    assert json.loads(line)["raw"] == shown


def test_names_that_are_no_unicode_do_not_stop_the_writer(tmp_path: Path) -> None:
    path = tmp_path / "rejects.ndjson"
    odd = Reject(RejectReason.ENCODING, "x\ud800", b"", os.fsdecode(b"a\xff"), 0)
    write(path, [odd, reject()])
    first, second = (json.loads(line) for line in path.read_bytes().splitlines())
    assert (first["message"], first["partition"]) == ("x\\ud800", "a\\udcff")
    assert second["reason"] == "bad_id"


def test_the_file_is_rotated_before_it_outgrows_its_bound(tmp_path: Path) -> None:
    path, older = tmp_path / "rejects.ndjson", tmp_path / "rejects.ndjson.1"
    write(path, [reject(position=n) for n in range(100)], max_bytes=2000)
    assert 0 < path.stat().st_size <= 2000
    assert 1800 < older.stat().st_size <= 2000
    kept = [json.loads(line)["position"] for line in (older.read_bytes() + path.read_bytes()).splitlines()]
    assert kept == list(range(100 - len(kept), 100)), "the newest, whole and in order"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["rejects.ndjson", "rejects.ndjson.1"]


def test_a_file_of_an_earlier_run_counts_towards_the_bound(tmp_path: Path) -> None:
    path, older = tmp_path / "rejects.ndjson", tmp_path / "rejects.ndjson.1"
    path.write_bytes(b"x" * 1990 + b"\n")
    write(path, [reject()], max_bytes=2000)
    assert older.stat().st_size == 1991
    assert len(path.read_bytes().splitlines()) == 1


def test_a_line_longer_than_the_bound_is_still_written_alone(tmp_path: Path) -> None:
    path, older = tmp_path / "rejects.ndjson", tmp_path / "rejects.ndjson.1"
    write(path, [reject(), reject(b"y" * 2000), reject(position=9)], max_bytes=1000)
    assert json.loads(older.read_bytes())["raw"] == "y" * 2000
    assert json.loads(path.read_bytes())["position"] == 9


def test_a_flood_is_dropped_and_counted_not_waited_for(tmp_path: Path) -> None:
    if not os.path.exists("/dev/full"):
        pytest.skip("this system has no /dev/full")
    path = tmp_path / "rejects.ndjson"
    path.symlink_to("/dev/full")
    writer = RejectWriter(str(path), max_bytes=1000, capacity=3)
    writer.start()
    assert [writer.write((reject(), "kafka")) for _ in range(5)] == [True, True, True, False, False]
    assert writer.lost == 2
    assert not writer.close(timeout=0.1)
    assert writer.lost == 5


def test_a_missing_folder_names_the_setting(tmp_path: Path) -> None:
    with pytest.raises(SinkError, match=r"^rejects\.path: cannot write .*: there is no folder "):
        RejectWriter(str(tmp_path / "none" / "rejects.ndjson"), 1000).start()
