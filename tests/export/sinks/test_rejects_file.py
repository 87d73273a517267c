"""Lines leave the rejects files by id and by age, and none is lost that is written meanwhile."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path

import pytest

from monitor.agent.forget import RecordsOf
from monitor.base.errors import SinkError
from monitor.base.records import Reject, RejectReason
from monitor.export.sinks.rejects_file import RejectsRetention, RejectWriter, previous, remove_lines
from monitor.reports.window_report import rfc3339
from tests.daemon import read_windows
from tests.services.process import PATIENCE_SECONDS, wait_until

NOW = 1_795_168_800.0
HOUR = 3600.0


def written(path: Path, *ages: float | None) -> None:
    lines = [{} if age is None else {"time": rfc3339(NOW - age)} for age in ages]
    path.write_text("".join(json.dumps({**line, "raw": str(i)}) + "\n" for i, line in enumerate(lines)))


def ages(path: Path) -> list[str]:
    return [line["raw"] for line in read_windows(path)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "rejects.ndjson"


def test_what_would_be_too_old_by_the_next_look_goes_from_both_files(path: Path) -> None:
    written(previous(path), 30 * HOUR, 25 * HOUR, 23.5 * HOUR)
    written(path, 23.5 * HOUR, 22.5 * HOUR, HOUR, 0)
    retention = RejectsRetention(path, 24 * HOUR, clock=lambda: NOW)
    assert retention.sweep() == 4
    assert (ages(previous(path)), ages(path)) == ([], ["1", "2", "3"])
    kept = path.stat()
    assert retention.sweep() == 0
    assert path.stat().st_ino == kept.st_ino, "what need not be written anew is not"


def test_a_line_of_unknown_age_goes_and_a_draft_of_a_killed_process_too(path: Path) -> None:
    written(path, None, HOUR)
    path.with_name(f".{path.name}.forgetting").write_text("left behind")
    with path.open("a") as file:
        file.write("not ours\n")
    assert RejectsRetention(path, 24 * HOUR, clock=lambda: NOW).sweep() == 2
    assert ages(path) == ["1"]
    assert [each.name for each in path.parent.iterdir()] == [path.name]


def test_the_thread_looks_at_the_start_and_again_while_nothing_comes(path: Path) -> None:
    now = NOW
    written(path, 2.0, 0.0)
    retention = RejectsRetention(path, 2.4, clock=lambda: now)
    retention.start()
    wait_until(lambda: ages(path) == ["0", "1"], "nothing is too old yet")
    now += 1.0
    wait_until(lambda: ages(path) == ["1"], "the first has grown old")
    now += 3.0
    wait_until(lambda: ages(path) == [], "so has the second")
    retention.stop()


def test_the_files_need_not_be_there(path: Path) -> None:
    assert RejectsRetention(path, HOUR).sweep() == 0
    assert remove_lines(path, lambda record: True) == 0
    assert list(path.parent.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_told(path: Path) -> None:
    written(path, 0)
    path.with_name(f".{path.name}.forgetting").mkdir()
    with pytest.raises(SinkError, match=r"^rejects\.path: cannot write .*: it is a folder"):
        remove_lines(path, lambda record: True)
    assert ages(path) == ["0"]


@pytest.mark.slow
def test_no_line_is_lost_that_is_written_while_lines_are_removed(path: Path) -> None:
    """Every tenth record is of the id that is removed, over and over, through several rotations."""
    writer = RejectWriter(str(path), max_bytes=100_000, capacity=100_000, clock=time.time)
    writer.start()
    removed, stopping = 0, threading.Event()

    def remove() -> None:
        nonlocal removed
        while not stopping.is_set():
            removed += remove_lines(path, RecordsOf(["gone"]))

    remover = threading.Thread(target=remove)
    remover.start()
    for n in range(1500):
        raw = json.dumps({"id": "gone" if n % 10 == 0 else f"kept-{n}"}).encode()
        assert writer.write((Reject(RejectReason.LOGITS, "", raw, "p", n), "s"))
        if n % 50 == 0:
            time.sleep(0.01)
    assert writer.close(PATIENCE_SECONDS)
    stopping.set()
    remover.join()
    removed += remove_lines(path, RecordsOf(["gone"]))
    positions = [line["position"] for line in read_windows(previous(path)) + read_windows(path)]
    assert removed == 150, "each once"
    assert positions == [n for n in range(1500) if n % 10][-len(positions) :]
    assert len(positions) > 600, "the newest, as far as the bound allows"


@pytest.mark.parametrize(
    ("record", "is_held"),
    [
        (b'{"id": "req-8"}', True),
        (b'{"id": "req-81"}', False),
        (b'{"id": "req-81", "ID": "req-8"}', False),
        (b'{"ID": "req-8"}', True),
        (b'{"id": ["req-8"]}', True),
        (b'["x", {"y": "req-8"}]', True),
        (b'{"id": "req-8", "scores": [NaN]}', True),
        (b'{"id": "req-8", "sco', True),
        (b'{"id": "req-81", "sco', False),
        (b'{"id": "xreq-8b", "sco', False),
        (b'\xff{"id": "req-8"}', True),
        (b'{"id": 8}', True),
        (b'{"id": 88}', False),
        ('{"id": "Zoë", '.encode(), True),
        (b'{"id": "Zo\\u00eb", ', True),
        (b'{"id": "Zo\\u00eb"}', True),
        (b'{"id": "req-8", "task": "other"}', False),
        (b'{"id": "req-8", "task": 5}', True),
        (b"", False),
        (b"[" * 5000 + b'"req-8"', True),
    ],
)
def test_a_record_is_known_by_its_id_or_by_what_stands_in_it_where_that_cannot_be_read(
    record: bytes, is_held: bool
) -> None:
    assert RecordsOf(["req-8", "8", "Zoë"], task="t")(record) is is_held
