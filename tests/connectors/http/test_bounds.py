"""The bounds on posts: their time, size and number, room, quota, and who may write what."""

from __future__ import annotations

import json
import logging
import socket
import threading
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import httpx
import pytest

from connectors.http import source as source_module
from connectors.http import spool as spool_module
from monitor.export.http.bounds import Bounds
from tests.posting import SECRET, Posted, head, label, posting, rest_of, row, status_of
from tests.services.process import PATIENCE_SECONDS, wait_until

# --- bounds ---------------------------------------------------------------------------------------------


def test_a_head_and_a_body_must_come_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("monitor.export.http.connection._LINGER_SECONDS", 0.1)
    with posting(tmp_path / "spool", read_seconds=0.3) as posted:
        with posted.connect() as silent:
            assert rest_of(silent) == b"", "who says nothing is let go"
        assert status_of(posted.raw(b"POST /v1/labels HT")) == 408
        answer = posted.raw(head(content_length="100") + b"[")
        assert status_of(answer) == 408
        assert b"The body did not come within 0.3 s; send it faster, or in smaller posts" in answer
        with posted.connect() as drip:
            drip.sendall(head(content_length="10000"))
            with pytest.raises(ConnectionError):
                drip_bytes(drip, 30)


def drip_bytes(connection: socket.socket, seconds: float) -> None:
    """Send a byte now and then, which must not count as in time."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        connection.sendall(b" ")
        time.sleep(0.02)


def test_an_idle_connection_is_let_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_module, "Bounds", partial(Bounds, idle_seconds=0.2))
    with posting(tmp_path / "spool") as posted:
        data = json.dumps(row(1)).encode()
        assert posted.raw(head(content_length=str(len(data))) + data).count(b"HTTP/1.1 202") == 1


def test_slow_heads_and_slow_bodies_keep_nobody_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_module, "_IDLE_CONNECTIONS", 2)
    with posting(tmp_path / "spool", max_requests=2) as posted, ExitStack() as stack:
        for number, begun in enumerate((b"POST", head(content_length="100") + b"[") * 10):
            slow = stack.enter_context(posted.connect())
            slow.sendall(begun)
            answer = httpx.post(f"http://127.0.0.1:{posted.source.port}/v1/predictions", json=row(number))
            assert answer.status_code == 202
        assert posted.source._server is not None
        assert posted.source._server.view.waiting <= 4
        assert posted.source._server.view.lost >= 16
        assert len(posted.read_rows()) == 20


def turns_of(posted: Posted, ended: threading.Event) -> list[float]:
    """Let the server note the processor time of each turn of its loop."""
    loop = posted.source._server._loop  # type: ignore[union-attr]
    assert loop is not None
    delays: list[float] = []

    def note(before: float) -> None:
        now = time.thread_time()  # of the loop's thread
        delays.append(now - before)
        if not ended.is_set():
            loop.call_soon(note, now)

    loop.call_soon_threadsafe(lambda: note(time.thread_time()))
    return delays


@pytest.mark.slow
def test_bodies_in_tiny_chunks_keep_nobody_waiting(tmp_path: Path) -> None:
    """Each took 20 ms at a time, and all of them one after another, before anybody else was served."""
    with posting(tmp_path / "spool", read_seconds=600.0) as posted, ExitStack() as stack:
        sending = [stack.enter_context(posted.connect()) for _ in range(16)]
        for each in sending:
            each.sendall(head(transfer_encoding="chunked", connection="close"))
        ended = threading.Event()
        turns = turns_of(posted, ended)
        data = json.dumps(row(1)).encode() + b" " * 2500
        for each in sending:
            each.sendall(b"".join(b"1\r\n%c\r\n" % byte for byte in data) + b"0\r\n\r\n")
        assert [status_of(rest_of(each)) for each in sending] == [202] * 16
        ended.set()
        # Not the longest: the garbage collector may run in any of them.
        long = [turn for turn in turns if turn > 0.015]
        assert sum(long) < sum(turns) / 2, "turns in which nobody else is served for long"
        assert len(posted.read_rows()) == 16


@pytest.mark.slow
def test_an_answer_that_nobody_takes_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("monitor.export.http.connection._LINGER_SECONDS", 0.1)
    bad = head(content_length="201") + b"[" + b"1," * 99 + b"1]"
    with posting(tmp_path / "spool", read_seconds=0.3) as posted, socket.socket() as hanging:
        hanging.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)  # full after few answers
        hanging.settimeout(PATIENCE_SECONDS)
        hanging.connect(("127.0.0.1", posted.source.port))
        with pytest.raises(ConnectionError):
            hanging.sendall(bad * 100_000)


def test_a_large_body_counts_as_a_post_before_it_is_whole(tmp_path: Path) -> None:
    with posting(tmp_path / "spool", max_requests=1) as posted, posted.connect() as large:
        large.sendall(head(content_length="200000") + b" " * 100_000)
        wait_until(lambda: posted.source._posts._in_memory == 1, "it counts")  # type: ignore[union-attr]
        assert posted.post(row(1)).status_code == 503


def test_no_more_than_so_many_posts_are_held(tmp_path: Path, held: threading.Event) -> None:
    with posting(tmp_path / "spool", max_requests=2) as posted:
        held.clear()
        answers: list[int] = []
        url = f"http://127.0.0.1:{posted.source.port}/v1/predictions"
        threads = [
            threading.Thread(target=lambda: answers.append(httpx.post(url, json=row(1)).status_code))
            for _ in range(2)
        ]
        for thread in threads:
            thread.start()
        wait_until(lambda: posted.source._posts._in_memory == 2, "both posts wait for the disk")  # type: ignore[union-attr]
        answer = posted.post(row(2))
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
        assert answer.json()["error"] == "2 posts are being taken already; send this one again"
        held.set()
        for thread in threads:
            thread.join()
        assert answers == [202, 202]
        assert posted.post(row(3)).status_code == 202


def test_a_full_spool_sheds_says_when_to_come_back_and_counts(tmp_path: Path) -> None:
    spool = {"path": str(tmp_path / "spool"), "max_bytes": 1_000_000}
    with posting(tmp_path, spool=spool, max_body_bytes=250_000) as posted:
        rows = [row(i, padding="x" * 1900) for i in range(100)]
        statuses = [posted.post(rows).status_code for _ in range(7)]
        assert statuses == [202] * 5 + [429] * 2
        answer = posted.post(rows)
        assert answer.headers["retry-after"] == "5"
        assert answer.json() == {"error": "There is no room until something is used; nothing was taken"}
        assert posted.source.refusals.shed == 300
        labels = [label(i, padding="x" * 1900) for i in range(110)]
        assert posted.post(labels, "/v1/labels").status_code == 429
        refusals = posted.source.refusals
        assert (refusals.shed, refusals.labels_shed) == (300, {"spam": 110, "ham": 0})
        lines = posted.lines()
        assert len(lines) == 500
        posted.source.acknowledge({"spool": sum(len(line) + 1 for line in lines)})
        assert posted.post(rows).status_code == 202


def test_a_disk_that_does_not_take_it_is_told_and_recovered_from(
    posted: Posted, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(file: int) -> None:
        raise OSError(5, "Input/output error")

    real = spool_module._sync
    monkeypatch.setattr(spool_module, "_sync", fails)
    answer = posted.post(row(1))
    assert (answer.status_code, answer.json()) == (
        503,
        {"error": "The rows could not be kept; send them again"},
    )
    monkeypatch.setattr(spool_module, "_sync", real)
    assert posted.post(row(2)).status_code == 202
    assert posted.read_rows() == [row(2)]


def test_what_fails_here_is_counted_with_the_refused(posted: Posted) -> None:
    workers = posted.source._workers
    assert workers is not None
    workers.shutdown()  # so that a body which is too large to be decoded at once fails
    answer = posted.post([row(1, padding="x" * 70_000)])
    assert (answer.status_code, answer.json()) == (500, {"error": "This failed here; the log says why"})
    assert posted.source.refusals.requests["500"] == 1
    assert posted.post(row(2)).status_code == 202


def test_a_task_over_its_quota_waits_and_others_do_not(tmp_path: Path) -> None:
    with posting(tmp_path / "spool", rows_per_second=10) as posted:
        assert posted.post([row(i) for i in range(60)]).status_code == 202
        answer = posted.post(row(61))
        assert (answer.status_code, answer.headers["retry-after"]) == (429, "5")
        assert answer.json() == {"error": "More than 10 rows a second of a task; nothing was taken"}
        assert posted.post(row(1, task="ham")).status_code == 202
        assert posted.source.refusals.shed == 1
        assert len(posted.read_rows()) == 61


def test_labels_of_a_token_over_its_quota_wait_and_each_tokens_are_counted_by_its_name(
    tmp_path: Path,
) -> None:
    other_secret = "another-token-0123456789"
    tokens = [
        {"token": SECRET, "name": "annotators", "labels_per_day": 100},
        {"token": other_secret, "tasks": ["spam"]},
    ]
    with posting(tmp_path / "spool", tokens=tokens) as posted:
        first, second = ({"authorization": f"Bearer {one}"} for one in (SECRET, other_secret))
        answer = posted.post([label(i) for i in range(101)], "/v1/labels", **first)
        assert answer.status_code == 413
        sentence = "The post has 101 labels, this token may send 100 a day; send fewer at once"
        assert answer.json() == {"error": f"{sentence}. Nothing was taken"}
        assert posted.post([label(i) for i in range(100)], "/v1/labels", **first).status_code == 202
        assert posted.post([row(i, label="yes") for i in range(50)], **first).status_code == 202
        answer = posted.post(label(1), "/v1/labels", **first)
        half_a_day = pytest.approx(43_200, abs=PATIENCE_SECONDS)
        assert (answer.status_code, int(answer.headers["retry-after"])) == (429, half_a_day)
        assert answer.json() == {"error": "This token has sent its 100 labels a day; nothing was taken"}
        assert posted.post(row(99), **first).status_code == 202, "answers without labels are no labels"
        assert posted.post([label(i) for i in range(200)], "/v1/labels", **second).status_code == 202
        refusals = posted.source.refusals
        assert refusals.labels_by_token == {"annotators": 150, "2": 200}
        assert refusals.labels_shed == {"spam": 102, "ham": 0}


# --- who may --------------------------------------------------------------------------------------------


def test_a_token_may_write_its_tasks_and_no_others(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with posting(tmp_path / "spool", tokens=[{"token": SECRET, "tasks": ["spam"]}]) as posted:
        for authorization in ("", "Bearer wrong-token-0123456789", f"Basic {SECRET}"):
            answer = posted.post(row(1), authorization=authorization)
            assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
        bearer = f"Bearer {SECRET}"
        assert posted.post(row(1), authorization=bearer).status_code == 202
        answer = posted.post([row(2), row(3, task="ham")], authorization=bearer)
        assert answer.status_code == 403
        assert answer.json() == {"error": "This token may write spam, not ham; nothing was taken"}
        bad = row(4, task="ham", scores=[3, 3])
        assert posted.post(bad, authorization=bearer).status_code == 403
        assert posted.post(row(5, task="eggs"), authorization=bearer).status_code == 400
        wait_until(lambda: posted.source.lag == 2, "the rows are kept")
        assert [each["id"] for each in posted.read_rows()] == ["1", "5"]
    assert "wrong-token" not in caplog.text
    assert SECRET not in caplog.text
    assert SECRET not in repr(posted.settings)


def test_a_body_without_a_token_is_not_read(tmp_path: Path) -> None:
    with (
        posting(tmp_path / "spool", tokens=[{"token": SECRET}]) as posted,
        posted.connect() as connection,
    ):
        connection.sendall(head(content_length="1000000"))
        assert status_of(rest_of(connection)) == 401


def test_refusals_are_logged_once_and_then_counted(posted: Posted, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(5):
        posted.post(b"")
    assert caplog.text.count("http: a request of 127.0.0.1 was answered 400: The body is empty") == 1
