"""Posts over real sockets: what each is answered, and that exactly what was acknowledged is handed out."""

from __future__ import annotations

import gzip
import json
import logging
import queue
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from connectors.formats.decoder import Decoder
from connectors.http import HttpSource, conversation
from connectors.http import spool as spool_module
from monitor.config import Config
from monitor.engine import EngineSettings, layouts
from monitor.errors import SourceError
from monitor.export.prometheus import BlindsightCollector
from monitor.feeder import Feeder, Input
from monitor.view import AgentView
from tests.posting import HAM, SECRET, SPAM, Posted, label, ndjson, posting, rest_of, row
from tests.services.process import wait_until


@pytest.fixture
def posted(tmp_path: Path) -> Iterator[Posted]:
    with posting(tmp_path / "spool") as made:
        yield made


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Holds every sync of a spool until it is set."""
    real, leave = spool_module._sync, threading.Event()
    leave.set()

    def slow(file: int) -> None:
        leave.wait(10)
        real(file)

    monkeypatch.setattr(spool_module, "_sync", slow)
    yield leave
    leave.set()


def status_of(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


def head(**headers: str) -> bytes:
    lines = ["POST /v1/predictions HTTP/1.1", "host: x", "content-type: application/json"]
    lines += [f"{key.replace('_', '-')}: {value}" for key, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode()


# --- what is taken --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "type_"),
    [
        (json.dumps([row(1), row(2)], indent=2).encode(), "application/json"),
        (ndjson([row(1), row(2)]), "application/x-ndjson"),
        (ndjson([row(1), row(2)]).replace(b"\n", b"\r\n\r\n"), "application/json; charset=UTF-8"),
        (b"\xef\xbb\xbf" + ndjson([row(1), row(2)])[:-1], "application/jsonl"),
    ],
)
@pytest.mark.parametrize("encoding", ["identity", "gzip"])
def test_arrays_and_ndjson_are_taken(posted: Posted, content: bytes, type_: str, encoding: str) -> None:
    packed = gzip.compress(content) if encoding == "gzip" else content
    answer = posted.post(packed, content_type=type_, content_encoding=encoding)
    assert (answer.status_code, answer.json()) == (202, {"accepted": 2, "rejected": 0})
    assert posted.taken() == [row(1), row(2)]


def test_an_object_over_several_lines_is_one_record(posted: Posted) -> None:
    assert posted.post(json.dumps(row(1), indent=4).encode()).status_code == 202
    assert posted.taken() == [row(1)]


def test_labels_are_taken_on_their_own_path(posted: Posted) -> None:
    answer = posted.post([label(1), label(2)], "/v1/labels")
    assert (answer.status_code, answer.json()["accepted"]) == (202, 2)
    assert posted.taken() == [label(1), label(2)]


def test_a_chunked_body_and_expect_100_continue(posted: Posted) -> None:
    data = json.dumps(row(1)).encode()
    answer = posted.client.post("/v1/predictions", content=iter([data[:9], data[9:]]))
    assert answer.status_code == 202
    with posted.connect() as connection:
        connection.sendall(head(content_length=str(len(data)), expect="100-continue", connection="close"))
        assert connection.recv(1000).startswith(b"HTTP/1.1 100 ")
        connection.sendall(data)
        assert status_of(rest_of(connection)) == 202
    assert len(posted.taken()) == 2


def test_requests_follow_each_other_on_one_connection_also_without_waiting(posted: Posted) -> None:
    data = json.dumps(row(1)).encode()
    one = head(content_length=str(len(data))) + data
    answers = posted.raw(one + one + head(content_length=str(len(data)), connection="close") + data)
    assert answers.count(b"HTTP/1.1 202 ") == 3
    assert len(posted.taken()) == 3


def test_many_connections_at_once_lose_and_double_nothing(posted: Posted) -> None:
    acknowledged: list[str] = []

    def work(name: int) -> None:
        with httpx.Client(base_url=posted.client.base_url, timeout=30) as client:
            for i in range(20):
                rows = [row(f"{name}-{i}-{j}") for j in range(5)]
                if client.post("/v1/predictions", json=rows).status_code == 202:
                    acknowledged.extend(each["id"] for each in rows)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(acknowledged) == 800
    assert sorted(each["id"] for each in posted.taken()) == sorted(acknowledged)


def test_nothing_is_acknowledged_before_it_rests_on_the_disk(posted: Posted, held: threading.Event) -> None:
    held.clear()
    answers: list[int] = []
    thread = threading.Thread(target=lambda: answers.append(posted.post(row(1)).status_code))
    thread.start()
    thread.join(0.3)
    assert (answers, posted.lines()) == ([], [])
    held.set()
    thread.join(10)
    assert (answers, posted.taken()) == ([202], [row(1)])


# --- what is refused ------------------------------------------------------------------------------------


def test_where_some_rows_are_good_they_are_taken_and_the_others_told(posted: Posted) -> None:
    answer = posted.post([row(1), row(2, scores=[0.5, 1.5]), row(3)])
    assert answer.status_code == 202
    message = "$.scores[1]: expected a number from 0 to 1, got 1.5"
    assert answer.json() == {
        "accepted": 2,
        "rejected": 1,
        "errors": [{"row": 1, "reason": "out_of_range", "message": message}],
    }


def test_where_none_is_good_all_are_told_and_the_engine_still_counts_them(posted: Posted) -> None:
    answer = posted.post(b'{"id": 1}\nnope\n')
    assert answer.status_code == 400
    told = answer.json()
    assert (told["error"], told["accepted"], told["rejected"]) == ("None of the rows can be used", 0, 2)
    assert [each["reason"] for each in told["errors"]] == ["no_task", "malformed"]
    wait_until(lambda: posted.source.lag == 2, 5, "the rows are kept")
    chunk = Decoder([SPAM, HAM], "http").decode(posted.source.read(1.0))
    assert (chunk.answers, [each.reason.value for each in chunk.rejects]) == (2, ["no_task", "malformed"])


@pytest.mark.parametrize(
    ("path", "rows", "sentence"),
    [
        (
            "/v1/predictions",
            [row(1), label(2)],
            "1 of 2 rows are labels; post those to /v1/labels, and only predictions here. Nothing was taken",
        ),
        (
            "/v1/labels",
            [row(1), row(3)],
            "2 of 2 rows are predictions; post those to /v1/predictions, and only labels here. "
            "Nothing was taken",
        ),
    ],
)
def test_rows_for_the_other_path_are_refused_with_a_sentence(
    posted: Posted, path: str, rows: list[dict[str, Any]], sentence: str
) -> None:
    answer = posted.post(rows, path)
    assert (answer.status_code, answer.json()) == (400, {"error": sentence})
    assert posted.taken() == []


@pytest.mark.parametrize(
    ("path", "method", "headers", "content", "status", "sentence"),
    [
        ("/", "POST", {}, b"{}", 404, "There is nothing here; post to /v1/predictions or /v1/labels"),
        ("/v1/predictions/", "POST", {}, b"{}", 404, "There is nothing here"),
        ("/v1/labels", "GET", {}, b"", 405, "Send it as a POST"),
        (
            "/v1/labels",
            "POST",
            {"content-type": "text/csv"},
            b"{}",
            415,
            "Send Content-Type: application/json",
        ),
        (
            "/v1/labels",
            "POST",
            {"content-type": "application/json; charset=latin-1"},
            b"{}",
            415,
            "Send UTF-8, not latin-1",
        ),
        (
            "/v1/labels",
            "POST",
            {"content-encoding": "br"},
            b"{}",
            415,
            "Send Content-Encoding: gzip or none, not br",
        ),
        ("/v1/labels", "POST", {"content-encoding": "gzip"}, b"{}", 400, "The body is not gzip: "),
        ("/v1/labels", "POST", {}, b" \n", 400, "The body is empty; send an object, an array of objects"),
        ("/v1/labels", "POST", {}, b"[]", 400, "The body is empty"),
        (
            "/v1/labels",
            "POST",
            {},
            b"[" + b"1," * 60_000 + b"1]",
            413,
            "The body has 60001 rows; at most 50000",
        ),
    ],
)
def test_what_is_no_post_of_rows_is_refused(
    posted: Posted,
    path: str,
    method: str,
    headers: dict[str, str],
    content: bytes,
    status: int,
    sentence: str,
) -> None:
    answer = posted.client.request(method, path, headers=headers, content=content)
    assert answer.status_code == status
    assert answer.json()["error"].startswith(sentence)
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers.get("allow") == ("POST" if status == 405 else None)
    assert posted.post(row(1)).status_code == 202, "others are served on"


def test_a_body_beyond_the_bound_is_refused_by_its_length_or_when_it_is_reached(tmp_path: Path) -> None:
    with posting(tmp_path / "spool", max_body_bytes=2048) as posted:
        big = b" " * 2049
        assert posted.post(big).status_code == 413
        assert posted.client.post("/v1/labels", content=iter([big[:1500], big[1500:]])).status_code == 413
        answer = posted.post(gzip.compress(b" " * 3000), content_encoding="gzip")
        assert answer.json() == {"error": "The body has more than 2048 bytes once unpacked; send it in parts"}
        with posted.connect() as connection:
            connection.sendall(head(content_length="999999999999"))
            assert status_of(rest_of(connection)) == 413, "it is refused before any of it is sent"
        assert posted.post(ndjson([row(1)]).rstrip() + b" " * 1900).status_code == 202


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"POST /v1/labels HTTP/1.1\r\nhost: x\r\nx: " + b"y" * 20_000 + b"\r\n\r\n", 431),
        (b"POST /v1/labels HTTP/1.1\r\nhost: x\r\nx: " + b"y" * 20_000, 431),
        (b"nonsense\r\n\r\n", 400),
        (b"POST /v1/labels HTTP/1.1\r\nhost: x\r\ncontent-length: 3\r\ncontent-length: 4\r\n\r\n", 400),
        (b"POST /v1/labels HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00", 400),
    ],
)
def test_what_is_no_http_is_refused_and_others_are_served_on(
    posted: Posted, data: bytes, status: int
) -> None:
    with posted.connect() as connection:
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        assert status_of(rest_of(connection)) == status
    assert posted.post(row(1)).status_code == 202


def test_who_leaves_in_the_middle_of_a_body_leaves_nothing(posted: Posted) -> None:
    with posted.connect() as connection:
        connection.sendall(head(content_length="1000") + b'{"id": "1"')
    assert posted.post(row(2)).status_code == 202
    assert posted.taken() == [row(2)]


# --- bounds ---------------------------------------------------------------------------------------------


def test_a_head_and_a_body_must_come_in_time(tmp_path: Path) -> None:
    with posting(tmp_path / "spool", read_seconds=0.3) as posted:
        with posted.connect() as silent:
            assert rest_of(silent) == b"", "who says nothing is let go"
        assert status_of(posted.raw(b"POST /v1/labels HT")) == 408
        answer = posted.raw(head(content_length="100") + b"[")
        assert status_of(answer) == 408
        assert b"The body did not come within 0.3 s; send it faster, or in smaller posts" in answer
        with posted.connect() as drip:
            drip.sendall(head(content_length="100"))
            began = time.monotonic()
            for _ in range(100):
                try:
                    drip.sendall(b" ")
                except OSError:
                    break
                time.sleep(0.02)
            assert time.monotonic() - began < 1.9, "a byte now and then does not count as in time"


def test_an_idle_connection_is_let_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversation, "IDLE_SECONDS", 0.2)
    with posting(tmp_path / "spool") as posted:
        data = json.dumps(row(1)).encode()
        assert posted.raw(head(content_length=str(len(data))) + data).count(b"HTTP/1.1 202") == 1


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
        wait_until(lambda: posted.source._posts._in_memory == 2, 10, "both posts wait for the disk")  # type: ignore[union-attr]
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
        assert posted.source.shed == 300
        labels = [label(i, padding="x" * 1900) for i in range(110)]
        assert posted.post(labels, "/v1/labels").status_code == 429
        assert (posted.source.shed, posted.source.labels_shed) == (300, {"spam": 110, "ham": 0})
        lines = posted.lines()
        assert len(lines) == 500
        posted.source.absorbed({"spool": sum(len(line) + 1 for line in lines)})
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
        {"error": "The disk did not take the rows; send them again"},
    )
    monkeypatch.setattr(spool_module, "_sync", real)
    assert posted.post(row(2)).status_code == 202
    assert posted.taken() == [row(2)]


def test_a_task_over_its_quota_waits_and_others_do_not(tmp_path: Path) -> None:
    with posting(tmp_path / "spool", rows_per_second=10) as posted:
        assert posted.post([row(i) for i in range(60)]).status_code == 202
        answer = posted.post(row(61))
        assert (answer.status_code, answer.headers["retry-after"]) == (429, "5")
        assert answer.json() == {"error": "More than 10 rows a second of a task; nothing was taken"}
        assert posted.post(row(1, task="ham")).status_code == 202
        assert posted.source.shed == 1
        assert len(posted.taken()) == 61


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
        wait_until(lambda: posted.source.lag == 2, 5, "the rows are kept")
        assert [each["id"] for each in posted.taken()] == ["1", "5"]
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


# --- the whole source -----------------------------------------------------------------------------------


def test_it_goes_on_where_the_engine_was_and_deletes_what_is_used(tmp_path: Path) -> None:
    with posting(tmp_path / "spool") as posted:
        posted.post([row(1), row(2)])
        (raw,) = posted.source.read(1.0)
        position = raw.start + len(raw.data)  # type: ignore[union-attr]
        posted.post(row(3))
    again = Posted(tmp_path / "spool")
    again.open({"spool": position})
    assert (again.source.lag, again.taken()) == (1, [row(3)])
    again.close()
    assert not again.source.up


def test_a_port_in_use_is_told_and_the_spool_let_go(posted: Posted, tmp_path: Path) -> None:
    other = Posted(tmp_path / "other", listen=f"127.0.0.1:{posted.source.port}")
    with pytest.raises(SourceError, match=r"listen: cannot listen on 127.0.0.1:.*: the port is in use; stop"):
        other.open()
    assert not other.source.up
    third = Posted(tmp_path / "other")
    third.open()
    third.close()


def test_a_post_in_flight_is_answered_when_it_stops(posted: Posted, held: threading.Event) -> None:
    held.clear()
    answers: list[int] = []
    thread = threading.Thread(target=lambda: answers.append(posted.post(row(1)).status_code))
    thread.start()
    wait_until(lambda: posted.source._posts._in_memory == 1, 10, "the post waits for the disk")  # type: ignore[union-attr]
    idle = posted.connect()
    timer = threading.Timer(0.2, held.set)
    timer.start()
    posted.source.close()
    thread.join()
    assert answers == [202]
    with idle:
        assert rest_of(idle) == b""


def test_a_listener_that_failed_is_started_again_by_the_next_read(posted: Posted) -> None:
    listener = posted.source._listener
    assert listener is not None
    listener.stop()
    assert not posted.source.up
    posted.source.read(0.0)
    assert posted.source.up
    assert httpx.post(f"http://127.0.0.1:{posted.source.port}/v1/predictions", json=row(1)).status_code == 202


def test_received_is_used_pending_duplicate_rejected_and_shed_in_the_metrics(tmp_path: Path) -> None:
    """The accounting identity of SPEC section 3, with posts of every kind and the real engine and feeder."""
    spam = {"classes": ["no", "yes"], "window": {"size": 10, "min_size": 10}}
    config = Config(tasks={"spam": spam, "ham": {"classes": ["no", "yes"]}})
    engine = EngineSettings(config.tasks).build()
    spool = {"path": str(tmp_path / "spool"), "max_bytes": 1_000_000}
    with posting(tmp_path, spool=spool, max_body_bytes=250_000) as posted:
        posted.post([row(i) for i in range(25)])
        posted.post([row(3), row(30, scores=[9, 9]), row(31)])
        posted.post(b"nope")
        posted.post([label(i) for i in range(4)], "/v1/labels")
        posted.post([row(40), label(41)])
        big = [row(i, padding="x" * 1900) for i in range(1000, 1100)]
        statuses = [posted.post(big).status_code for _ in range(6)]
        assert statuses.count(429) >= 1
        chunks: queue.Queue = queue.Queue()
        feeder = Feeder(Input(posted.source, Decoder(layouts(config.tasks), "http").decode), chunks, 8)
        while raws := posted.source.read(0.0):
            engine.absorb(Decoder(layouts(config.tasks), "http").decode(raws), 0.0)
        view = AgentView(engine=engine.view(), sources=(feeder.view(),), reload_time=1.0)
    families = {each.name: each for each in BlindsightCollector(lambda: view, 1000).collect()}

    def total(name: str) -> float:
        return sum(sample.value for sample in families[f"blindsight_{name}"].samples)

    shed = 100 * statuses.count(429)
    assert total("shed") == shed == posted.source.shed
    assert total("answers_received") == 25 + 3 + 1 + 600
    assert total("rejected") == 2
    assert total("duplicates") == 1 + 100 * (statuses.count(202) - 1)
    parts = ("predictions", "answers_pending", "duplicates", "rejected", "shed")
    assert total("answers_received") == sum(map(total, parts))


@settings(
    max_examples=120,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    content=st.one_of(
        st.binary(max_size=300),
        st.lists(st.sampled_from([row(1), label(2), {"id": 3}, 7, None]), max_size=4).map(
            lambda rows: json.dumps(rows).encode()
        ),
        st.lists(st.sampled_from([row(1), row(2, scores=[1, 1])]), max_size=4).map(ndjson),
    ),
    path=st.sampled_from(["/v1/predictions", "/v1/labels"]),
    packed=st.booleans(),
    cut=st.integers(0, 20),
)
def test_whatever_is_posted_is_answered_and_handed_out_if_acknowledged(
    posted: Posted, content: bytes, path: str, packed: bool, cut: int
) -> None:
    data = gzip.compress(content, mtime=0) if packed else content
    data = data[: len(data) - cut] if cut < len(data) else data
    answer = posted.post(data, path, content_encoding="gzip" if packed else "identity")
    assert answer.status_code in (202, 400)
    told = answer.json()
    if "accepted" not in told:
        assert answer.status_code == 400
        assert posted.lines() == []
        return
    assert (told["accepted"] > 0) == (answer.status_code == 202)
    raws = posted.source.read(5.0)
    chunk = Decoder([SPAM, HAM], "http").decode(raws)
    good = chunk.labels if path == "/v1/labels" else chunk.batches
    assert told["accepted"] == sum(map(len, good))
    assert told["rejected"] == sum(max(each.answers, 1) for each in chunk.rejects)


def test_it_is_a_source_without_state_before_it_is_opened(tmp_path: Path) -> None:
    source = HttpSource(Posted(tmp_path / "spool").settings, [SPAM])
    assert (source.up, source.lag, source.shed, source.labels_shed) == (False, 0, 0, {})
    assert not (tmp_path / "spool").exists()
