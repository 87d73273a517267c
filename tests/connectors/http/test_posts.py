"""Posts over real sockets: the answer to each, and that exactly the acknowledged records are handed out."""

from __future__ import annotations

import gzip
import json
import socket
import threading
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from connectors.formats.decode.decoder import Decoder
from tests.posting import HAM, SECRET, SPAM, Posted, head, label, ndjson, posting, rest_of, row, status_of
from tests.services.process import PATIENCE_SECONDS, wait_until

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
    assert posted.read_rows() == [row(1), row(2)]


def test_an_object_over_several_lines_is_one_record(posted: Posted) -> None:
    assert posted.post(json.dumps(row(1), indent=4).encode()).status_code == 202
    assert posted.read_rows() == [row(1)]


def test_labels_are_taken_on_their_own_path(posted: Posted) -> None:
    answer = posted.post([label(1), label(2)], "/v1/labels")
    assert (answer.status_code, answer.json()["accepted"]) == (202, 2)
    assert posted.read_rows() == [label(1), label(2)]


def test_a_chunked_body_and_expect_100_continue(posted: Posted) -> None:
    data = json.dumps(row(1)).encode()
    answer = posted.client.post(
        "/v1/predictions", content=iter([data[:9], data[9:]]), headers={"content-type": "application/json"}
    )
    assert answer.status_code == 202
    with posted.connect() as connection:
        connection.sendall(head(content_length=str(len(data)), expect="100-continue", connection="close"))
        assert connection.recv(1000).startswith(b"HTTP/1.1 100 ")
        connection.sendall(data)
        assert status_of(rest_of(connection)) == 202
    assert len(posted.read_rows()) == 2


def test_requests_follow_each_other_on_one_connection_also_without_waiting(posted: Posted) -> None:
    data = json.dumps(row(1)).encode()
    one = head(content_length=str(len(data))) + data
    answers = posted.raw(one + one + head(content_length=str(len(data)), connection="close") + data)
    assert answers.count(b"HTTP/1.1 202 ") == 3
    assert len(posted.read_rows()) == 3


@pytest.mark.slow
def test_many_connections_at_once_lose_and_double_nothing(posted: Posted) -> None:
    acknowledged: list[str] = []

    def work(name: int) -> None:
        with httpx.Client(base_url=posted.client.base_url, timeout=PATIENCE_SECONDS) as client:
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
    assert sorted(each["id"] for each in posted.read_rows()) == sorted(acknowledged)


def test_nothing_is_acknowledged_before_it_rests_on_the_disk(posted: Posted, held: threading.Event) -> None:
    held.clear()
    answers: list[int] = []
    thread = threading.Thread(target=lambda: answers.append(posted.post(row(1)).status_code))
    thread.start()
    thread.join(0.3)
    assert (answers, posted.lines()) == ([], [])
    held.set()
    thread.join(PATIENCE_SECONDS)
    assert (answers, posted.read_rows()) == ([202], [row(1)])


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


def test_a_time_more_than_a_day_ahead_of_the_clock_is_refused(posted: Posted) -> None:
    now = time.time()
    answer = posted.post([row(1, time=now + 80_000), row(2, time=now + 90_000), row(3, time=-1)])
    assert (answer.status_code, answer.json()["accepted"]) == (202, 1)
    assert [(each["row"], each["reason"]) for each in answer.json()["errors"]] == [
        (1, "bad_time"),
        (2, "bad_time"),
    ]


def test_where_none_is_good_all_are_told_and_the_engine_still_counts_them(posted: Posted) -> None:
    answer = posted.post(b'{"id": 1}\nnope\n')
    assert answer.status_code == 400
    content = answer.json()
    assert (content["error"], content["accepted"], content["rejected"]) == (
        "None of the rows can be used",
        0,
        2,
    )
    assert [each["reason"] for each in content["errors"]] == ["no_task", "malformed"]
    wait_until(lambda: posted.source.lag == 2, "the rows are kept")
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
            "/v1/predictions",
            [{**label(2), "model": "m", "score": 0.75}],
            "1 of 1 rows have no scores where they are looked for, so they are labels, but scores under "
            "another name: name their fields in the source's mapping, which `blindsight doctor "
            "--sample FILE` proposes. If they are the truth, post them to /v1/labels. Nothing was taken",
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
    assert posted.read_rows() == []


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
            "Content-Type: got 'text/csv', expected application/json or application/x-ndjson, of events",
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
    headers = {"content-type": "application/json", **headers}
    answer = posted.client.request(method, path, headers=headers, content=content)
    assert answer.status_code == status
    assert answer.json()["error"].startswith(sentence)
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers.get("allow") == ("POST" if status == 405 else None)
    assert posted.post(row(1)).status_code == 202, "others are served on"
    requests = posted.source.refusals.requests
    assert {code: count for code, count in requests.items() if count} == {str(status): 1}


@pytest.mark.parametrize(
    ("content_type", "got"),
    [
        (None, "none"),
        ("", "none"),
        ("application/x-www-form-urlencoded", "'application/x-www-form-urlencoded'"),
        ("multipart/form-data; boundary=x", "'multipart/form-data'"),
        ("text/plain;charset=UTF-8", "'text/plain'"),
    ],
)
def test_what_the_page_of_another_site_may_send_unasked_is_refused(
    posted: Posted, content_type: str | None, got: str
) -> None:
    """A browser asks before it sends any other type to another site; without one, a post was taken."""
    headers = {} if content_type is None else {"content-type": content_type}
    answer = posted.client.post("/v1/predictions", content=json.dumps(row(1)).encode(), headers=headers)
    assert answer.status_code == 415
    assert answer.json()["error"] == (
        f"Content-Type: got {got}, expected application/json or application/x-ndjson, of events also "
        "application/cloudevents+json; send this header with each post"
    )
    assert (
        posted.client.options("/v1/predictions", headers={"origin": "https://evil.example"}).status_code
        == 405
    )
    assert posted.read_rows() == []


OTHERS_PAGE = "page of another {} may not write; post from a program"


@pytest.mark.parametrize(
    ("headers", "sentence"),
    [
        (
            {"origin": "https://evil.example"},
            "Origin: got 'https://evil.example', expected http://{host}, https://{host} or no such header: a "
            + OTHERS_PAGE.format("origin"),
        ),
        (
            {"origin": "null"},
            "Origin: got 'null', expected http://{host}, https://{host} or no such header: a "
            + OTHERS_PAGE.format("origin"),
        ),
        (
            {"origin": "http://127.0.0.1:1"},
            "Origin: got 'http://127.0.0.1:1', expected http://{host}, https://{host} or no such header: a "
            + OTHERS_PAGE.format("origin"),
        ),
        (
            {"sec-fetch-site": "cross-site"},
            "Sec-Fetch-Site: got 'cross-site', expected same-origin, none or no such header: the "
            + OTHERS_PAGE.format("site"),
        ),
        (
            {"host": "evil.example:9108", "origin": "http://evil.example:9108"},
            "Host: got 'evil.example:9108', expected localhost or 127.0.0.1 or [::1], with any port; "
            "address this source so, or name the host in its allowed_hosts",
        ),
    ],
)
def test_a_page_of_another_site_may_not_write(
    posted: Posted, headers: dict[str, str], sentence: str, caplog: pytest.LogCaptureFixture
) -> None:
    answer = posted.post(row(1), **headers)
    host = f"127.0.0.1:{posted.source.port}"
    assert (answer.status_code, answer.json()) == (403, {"error": sentence.format(host=host)})
    assert posted.read_rows() == []
    assert posted.source.refusals.requests["403"] == 1
    assert "was answered 403: " in caplog.text


def test_this_machine_and_its_own_pages_may_write(posted: Posted) -> None:
    for host in ("localhost", "LOCALHOST:9108", "127.0.0.1", "[::1]:1", "[::1]"):
        assert posted.post(row(1), host=host, origin=f"http://{host}").status_code == 202
        assert posted.post(row(1), host=host, sec_fetch_site="same-origin").status_code == 202


def test_allowed_hosts_are_allowed_and_others_are_not(tmp_path: Path) -> None:
    with posting(tmp_path / "a", allowed_hosts=["Intake.example", "[2001:db8::1]"]) as here:
        for host in ("intake.example", "INTAKE.example:80", "[2001:db8::1]:9108", "localhost"):
            assert here.post(row(1), host=host).status_code == 202
        assert here.post(row(1), host="intake.example.evil.example").status_code == 403
    settings: dict[str, Any] = {"listen": "0.0.0.0:0", "tokens": [{"token": SECRET}]}
    bearer = f"Bearer {SECRET}"
    with posting(tmp_path / "b", **settings) as open_:
        assert open_.post(row(1), host="any.example", authorization=bearer).status_code == 202
    with posting(tmp_path / "c", **settings, allowed_hosts=["intake.example"]) as named:
        assert named.post(row(1), host="intake.example:9108", authorization=bearer).status_code == 202
        answer = named.post(row(1), host="any.example", authorization=bearer)
        assert (answer.status_code, answer.json()["error"]) == (
            403,
            "Host: got 'any.example', expected intake.example, with any port; address this source so, or "
            "name the host in its allowed_hosts",
        )


def test_head_is_answered_without_a_body(posted: Posted, caplog: pytest.LogCaptureFixture) -> None:
    """Load balancers ask so; each time the connection broke, unanswered, with a traceback in the log."""
    answer = posted.raw(b"HEAD /v1/predictions HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
    assert status_of(answer) == 405
    assert answer.endswith(b"\r\n\r\n"), "the head alone"
    assert posted.client.head("/").status_code == 404
    assert "A connection failed" not in caplog.text


def test_a_body_beyond_the_bound_is_refused_by_its_length_or_when_it_is_reached(tmp_path: Path) -> None:
    with posting(tmp_path / "spool", max_body_bytes=2048) as posted:
        big = b" " * 2049
        assert posted.post(big).status_code == 413
        parts = iter([big[:1500], big[1500:]])
        headers = {"content-type": "application/json"}
        assert posted.client.post("/v1/labels", content=parts, headers=headers).status_code == 413
        answer = posted.post(gzip.compress(b" " * 3000), content_encoding="gzip")
        assert answer.json() == {"error": "The body has more than 2048 bytes once unpacked; send it in parts"}
        with posted.connect() as connection:
            connection.sendall(head(content_length="999999999999"))
            assert status_of(rest_of(connection)) == 413, "it is refused before any of it is sent"
        assert posted.post(ndjson([row(1)]).rstrip() + b" " * 1900).status_code == 202


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"POST /v1/labels HTTP/1.1\r\nhost: localhost\r\nx: " + b"y" * 20_000 + b"\r\n\r\n", 431),
        (b"POST /v1/labels HTTP/1.1\r\nhost: localhost\r\nx: " + b"y" * 20_000, 431),
        (b"nonsense\r\n\r\n", 400),
        (
            b"POST /v1/labels HTTP/1.1\r\nhost: localhost\r\ncontent-length: 3\r\ncontent-length: 4\r\n\r\n",
            400,
        ),
        (head(transfer_encoding="chunked") + b"zz\r\n", 400),
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


def test_a_request_of_two_lengths_is_refused_and_what_follows_is_no_request(posted: Posted) -> None:
    data = json.dumps(row(1)).encode()
    within = head(content_length=str(len(data))) + data
    both = head(content_length="5", transfer_encoding="chunked") + b"0\r\n\r\n"
    answer = posted.raw(both + within)
    assert answer.count(b"HTTP/1.1 ") == 1
    assert status_of(answer) == 400
    assert b"Send Content-Length or Transfer-Encoding, not both" in answer
    assert posted.read_rows() == []


def test_a_broken_body_is_counted_as_what_it_is(posted: Posted) -> None:
    answer = posted.raw(head(transfer_encoding="chunked") + b"zz\r\n")
    assert status_of(answer) == 400
    assert b"The body is broken off, or no HTTP/1.1" in answer
    assert {code: count for code, count in posted.source.refusals.requests.items() if count} == {"400": 1}


def test_what_is_refused_without_a_body_leaves_the_connection_in_use(posted: Posted) -> None:
    nothing = b"GET /v1/labels HTTP/1.1\r\nhost: x\r\n\r\n"
    data = json.dumps(row(1)).encode()
    answers = posted.raw(nothing + nothing + head(content_length=str(len(data)), connection="close") + data)
    assert answers.count(b"HTTP/1.1 405 ") == 2
    assert answers.count(b"HTTP/1.1 202 ") == 1


def test_who_leaves_in_the_middle_of_a_body_leaves_nothing(posted: Posted) -> None:
    with posted.connect() as connection:
        connection.sendall(head(content_length="1000") + b'{"id": "1"')
    assert posted.post(row(2)).status_code == 202
    assert posted.read_rows() == [row(2)]


@pytest.mark.parametrize(
    ("body", "path", "proposal"),
    [
        (
            {"uuid": "a-secret", "net": "m", "probs": [0.25, 0.75]},
            "/v1/predictions",
            {"id": "uuid", "model": "net", "scores": "probs"},
        ),
        (
            [{"uuid": i, "out": {"p_no": 0.25, "p_yes": 0.75}, "at": 1782907200500} for i in range(9)],
            "/v1/predictions",
            {
                "id": "uuid",
                "time": "at",
                "time_unit": "milliseconds",
                "class_scores": {"no": "out.p_no", "yes": "out.p_yes"},
                "constants": {"model": "<name of the model>"},
            },
        ),
        ({"uuid": "a", "truth": "yes"}, "/v1/labels", {"id": "uuid", "label": "truth"}),
        (
            {"predictions": [[0.25, 0.75]]},
            "/v1/predictions",
            {"format": "kserve", "constants": {"model": "<name of the model>"}},
        ),
        (
            {
                "p_no": 0.25,
                "p_yes": 0.75,
                "timestamp": "2026-07-01T12:00:00.1",
                "request_id": "4151",
                "trace_id": "67",
            },
            "/v1/predictions",
            {
                "id": "request_id",
                "time": "timestamp",
                "time_zone": "<zone of times without an offset, such as UTC or Europe/Berlin>",
                "class_scores": {"no": "p_no", "yes": "p_yes"},
                "constants": {"model": "<name of the model>"},
            },
        ),
        ({"uuid": "a", "x": [3, 4]}, "/v1/predictions", None),
        ({"uuid": "a", "probs": [0.25, 0.75], "more": "x" * 4096}, "/v1/predictions", None),
        ({"p" * 490 + str(i): {"q" * 490: 0.5} for i in range(3)}, "/v1/predictions", None),
    ],
)
def test_a_400_proposes_a_mapping_and_quotes_no_value(
    tmp_path: Path, body: Any, path: str, proposal: Any
) -> None:
    with posting(tmp_path / "one", layouts=[SPAM]) as one:
        answer = one.post(body, path)
        assert answer.status_code == 400
        assert answer.json().get("proposal") == proposal
        assert "a-secret" not in json.dumps(answer.json().get("proposal"))
        if proposal is not None and "constants" not in proposal:
            with posting(tmp_path / "two", layouts=[SPAM], mapping=proposal) as two:
                assert two.post(body, path).status_code == 202


def test_a_400_of_several_tasks_proposes_one_of_them(posted: Posted) -> None:
    answer = posted.post({"uuid": "a", "net": "m", "probs": [0.25, 0.75]})
    assert answer.json()["proposal"] == {
        "id": "uuid",
        "model": "net",
        "scores": "probs",
        "constants": {"task": "spam"},
    }
