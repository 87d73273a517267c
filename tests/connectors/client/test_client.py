"""`blindsight-client` against a real agent: what it keeps, drops and counts, and whom it holds up."""

from __future__ import annotations

import json
import logging
import os
import pickle
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from blindsight_client import Client, Counts

from tests.accounting import assert_adds_up
from tests.daemon import DaemonProcess, configuration
from tests.posting import SECRET, Posted, posting
from tests.services.process import PATIENCE_SECONDS, free_ports, wait_until

CLIENT = Path(__file__).parents[3] / "connectors" / "client"


def client_of(posted: Posted, **settings: Any) -> Client:
    defaults = {"model": "m", "task": "spam", "flush_seconds": 0.05, "timeout_seconds": PATIENCE_SECONDS}
    return Client(f"http://127.0.0.1:{posted.source.port}", **(defaults | settings))


def assert_balanced(client: Client) -> dict[str, Counts]:
    counts = client.counts()
    for each in counts.values():
        assert each.logged == each.sent + each.rejected + each.dropped + each.pending
    return counts


class Agent:
    """An intake whose answers a test chooses: a list of (status, headers, body), the last one for ever."""

    def __init__(self, *answers: tuple[int, dict[str, str], dict[str, Any]]) -> None:
        self.answers = list(answers)
        self.posts: list[tuple[str, float, list[Any]]] = []
        agent = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                agent.posts.append((self.path, time.monotonic(), [json.loads(x) for x in body.splitlines()]))
                status, headers, content = agent.answers.pop(0) if agent.answers[1:] else agent.answers[0]
                data = json.dumps(content).encode()
                self.send_response(status)
                for key, value in {"Content-Length": str(len(data)), **headers}.items():
                    self.send_header(key, value)
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *words: Any) -> None:
                """Write nothing: the test's output is not its log."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"


@contextmanager
def answering(*answers: tuple[int, dict[str, str], dict[str, Any]]) -> Iterator[Agent]:
    agent = Agent(*answers)
    thread = threading.Thread(target=agent.server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield agent
    finally:
        agent.server.shutdown()
        thread.join()
        agent.server.server_close()


TAKEN = (202, {}, {"accepted": 1, "rejected": 0})


def test_predictions_and_labels_arrive_as_they_were_logged(tmp_path: Path) -> None:
    with posting(tmp_path / "spool") as posted, client_of(posted) as client:
        client.log("r-1", [0.25, 0.75], version="7", prediction="no", groups={"region": "eu"}, time=1.7e9)
        client.log("r-2", np.array([0.25, 0.75], dtype=np.float32), model="other")
        client.log("r-3", {"no": 0.5, "yes": np.float64(0.5)})
        client.label("r-1", "yes", probability=0.5, time=1.7e9 + 60)
        client.label("r-2", "no", model="other")
        assert client.flush(PATIENCE_SECONDS)
        records = posted.read_rows()
        first = {"id": "r-1", "scores": [0.25, 0.75], "time": 1.7e9, "task": "spam", "model": "m"}
        assert first | {"version": "7", "prediction": "no", "groups": {"region": "eu"}} in records
        assert {
            "id": "r-1",
            "time": 1.7e9 + 60,
            "task": "spam",
            "label": "yes",
            "probability": 0.5,
        } in records
        assert {each["id"]: each.get("model") for each in records if "label" in each} == {
            "r-1": None,
            "r-2": "other",
        }
        assert all(
            abs(each["time"] - time.time()) < PATIENCE_SECONDS for each in records if each["id"] == "r-3"
        )
        assert assert_balanced(client) == {"predictions": Counts(3, 3), "labels": Counts(2, 2)}


def test_a_label_of_right_or_wrong_names_the_clients_model() -> None:
    with answering(TAKEN) as agent, Client(agent.url, model="m") as client:
        client.label("r-1", correct=True)
        client.label("r-2", "yes")
        assert client.flush(PATIENCE_SECONDS)
    [(path, _, rows)] = agent.posts
    assert path == "/v1/labels"
    assert [{k: v for k, v in row.items() if k != "time"} for row in rows] == [
        {"id": "r-1", "correct": True, "model": "m"},
        {"id": "r-2", "label": "yes"},
    ]


def test_answers_of_tasks_without_classes_are_logged_without_scores() -> None:
    with answering(TAKEN) as agent, Client(agent.url, model="m") as client:
        client.log("r-1", confidence=0.9, prediction="yes")
        client.log("r-2", prediction=12.5, quantiles={"0.05": -4, "0.95": 31})
        client.log("r-3", prediction=np.float64(3.0), sigma=2.5)
        client.label("r-2", 14.0)
        assert client.flush(PATIENCE_SECONDS)
    rows = {row["id"]: row for path, _, rows in agent.posts for row in rows if path == "/v1/predictions"}
    expected: list[dict[str, Any]] = [
        {"id": "r-1", "prediction": "yes", "confidence": 0.9},
        {"id": "r-2", "prediction": 12.5, "quantiles": {"0.05": -4, "0.95": 31}},
        {"id": "r-3", "prediction": 3.0, "sigma": 2.5},
    ]
    for row in expected:
        assert {k: v for k, v in rows[row["id"]].items() if k not in ("time", "model")} == row
    assert [row["label"] for path, _, rows in agent.posts for row in rows if path == "/v1/labels"] == [14.0]


def test_what_the_agent_rejects_is_counted_and_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with posting(tmp_path / "spool") as posted, client_of(posted) as client:
        for _ in range(2):
            client.log("good", [0.25, 0.75])
            client.log("bad", [0.25, 7.5])
            client.log("worse", [0.5, 0.5], model=object())  # type: ignore[arg-type]
            assert client.flush(PATIENCE_SECONDS)
        assert assert_balanced(client)["predictions"] == Counts(logged=6, sent=2, rejected=4)
    messages = [record.getMessage() for record in caplog.records if record.name == "blindsight_client"]
    assert len(messages) == 1, messages
    assert re.match(r"A record cannot be written as JSON \(.*\); give text and numbers$", messages[0])


def test_a_post_that_no_token_allows_is_refused_and_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tokens = [{"token": SECRET, "tasks": ["ham"]}]
    with posting(tmp_path / "spool", tokens=tokens) as posted, client_of(posted, token=SECRET) as client:
        client.log("r-1", [0.25, 0.75])
        assert client.flush(PATIENCE_SECONDS)
        assert assert_balanced(client)["predictions"].rejected == 1
    assert (
        "The agent refused 1 records: 403 This token may write ham, not spam; nothing was taken"
        in caplog.text
    )
    assert SECRET not in caplog.text


def test_a_queue_that_is_full_drops_what_comes_and_counts_it() -> None:
    (port,) = free_ports(1)
    with Client(f"http://127.0.0.1:{port}", max_records=5, max_bytes=10_000, close_seconds=0.0) as client:
        for i in range(20):
            client.log(f"r-{i}", [0.5, 0.5])
            client.label(f"r-{i}", "x" * 3000)
        counts = assert_balanced(client)
        assert (counts["predictions"].dropped, counts["predictions"].pending) == (15, 5)
        assert (counts["labels"].dropped, counts["labels"].pending) == (17, 3), (
            "10,000 bytes hold three of them"
        )
    counts = assert_balanced(client)
    assert (counts["predictions"].dropped, counts["labels"].dropped) == (20, 20)
    client.log("late", [0.5, 0.5])
    assert assert_balanced(client)["predictions"].dropped == 21


def test_what_waited_for_an_agent_arrives_when_it_comes(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    client = Client(f"http://127.0.0.1:{port}", model="m", task="spam", flush_seconds=0.05)
    for i in range(50):
        client.log(f"r-{i}", [0.25, 0.75])
    wait_until(lambda: client.counts()["predictions"].retries > 0, "a try has failed")
    assert assert_balanced(client)["predictions"].pending == 50
    with posting(tmp_path / "spool", listen=f"127.0.0.1:{port}") as posted:
        wait_until(lambda: client.counts()["predictions"].sent == 50, "all is sent")
        assert {each["id"] for each in posted.read_rows()} == {f"r-{i}" for i in range(50)}
        client.close()


@pytest.mark.parametrize("status", [401, 404, 408, 429, 500, 503])
def test_a_post_that_may_be_taken_later_is_tried_again_after_what_the_answer_asks_for(status: int) -> None:
    with answering((status, {"Retry-After": "1"}, {"error": "Later."}), TAKEN) as agent:
        with Client(agent.url, flush_seconds=0.01) as client:
            client.log("r-1", [0.5, 0.5])
            wait_until(lambda: client.counts()["predictions"].sent == 1, "it is sent")
            assert assert_balanced(client)["predictions"].retries == 1
        (_, first, rows), (_, second, again) = agent.posts
        assert rows == again
        assert second - first >= 1.0


def test_a_post_that_is_too_large_is_sent_in_parts() -> None:
    with answering((413, {}, {"error": "Too large."}), TAKEN) as agent, Client(agent.url) as client:
        for i in range(4):
            client.log(f"r-{i}", [0.5, 0.5])
        assert client.flush(PATIENCE_SECONDS)
        assert assert_balanced(client)["predictions"].sent == 4
        assert [[row["id"] for row in rows] for _, _, rows in agent.posts] == [
            ["r-0", "r-1", "r-2", "r-3"],
            ["r-0", "r-1"],
            ["r-2", "r-3"],
        ]


def test_one_record_that_is_too_large_is_rejected() -> None:
    with answering((413, {}, {"error": "Too large."})) as agent, Client(agent.url) as client:
        client.log("r-1", [0.5, 0.5])
        assert client.flush(PATIENCE_SECONDS)
        assert assert_balanced(client)["predictions"].rejected == 1


def test_a_label_over_its_quota_holds_no_prediction_up() -> None:
    over = 429, {"Retry-After": "3600"}, {"error": "Quota."}
    with answering(over, TAKEN) as agent, Client(agent.url, flush_seconds=0.01, close_seconds=0.0) as client:
        client.label("r-1", "yes")
        wait_until(lambda: client.counts()["labels"].retries == 1, "the label is put off")
        client.log("r-1", [0.5, 0.5])
        wait_until(lambda: client.counts()["predictions"].sent == 1, "the prediction is sent")
        assert assert_balanced(client)["labels"].pending == 1


def test_a_connection_that_was_closed_meanwhile_costs_no_retry() -> None:
    closing = 202, {"Connection": "close"}, {"accepted": 1}
    with answering(closing, TAKEN) as agent, Client(agent.url) as client:
        for i in range(2):
            client.log(f"r-{i}", [0.5, 0.5])
            assert client.flush(PATIENCE_SECONDS)
        assert assert_balanced(client)["predictions"] == Counts(2, 2)


def test_a_frozen_agent_holds_up_no_call_and_gets_all_when_it_goes_on(tmp_path: Path) -> None:
    config = configuration(
        sources=[{"kind": "http", "listen": "127.0.0.1:0", "spool": {"path": "spool"}}],
        store={"path": "state", "every_seconds": 0.1},
    )
    with DaemonProcess(tmp_path, config) as daemon:
        port = re.compile(r"posts are taken on port (\d+)")
        daemon.until(lambda: port.search(daemon.log), "it takes posts")
        url = f"http://127.0.0.1:{port.findall(daemon.log)[0]}"
        with Client(url, model="m", flush_seconds=0.05, timeout_seconds=0.5) as client:
            client.log("r-0", [0.25, 0.75])
            assert client.flush(PATIENCE_SECONDS)
            daemon.send(signal.SIGSTOP)
            for i in range(1, 200):
                client.log(f"r-{i}", [0.25, 0.75])
            wait_until(lambda: client.counts()["predictions"].retries > 0, "a try has run out of time")
            daemon.send(signal.SIGCONT)
            wait_until(lambda: client.counts()["predictions"].sent == 200, "all is sent")
            assert_balanced(client)
        daemon.until_used(200)  # each once, also what was posted twice
        assert_adds_up(daemon)


SCRIPT = """
import os, sys, time
from blindsight_client import Client
client = Client(sys.argv[1], model="m", task="spam", close_seconds=60.0, flush_seconds=60.0)
client.log("parent", [0.25, 0.75])
child = os.fork()
client.log("child" if child == 0 else "after", [0.25, 0.75])
if child:
    os.waitpid(child, 0)
"""


def test_what_is_left_is_sent_as_a_process_ends_and_a_fork_sends_nothing_twice(tmp_path: Path) -> None:
    with posting(tmp_path / "spool") as posted:
        url = f"http://127.0.0.1:{posted.source.port}"
        words = [sys.executable, "-W", "error", "-c", SCRIPT, url]
        environment = {**os.environ, "PYTHONPATH": str(CLIENT)}
        subprocess.run(words, env=environment, check=True, timeout=PATIENCE_SECONDS)
        assert sorted(each["id"] for each in posted.read_rows()) == ["after", "child", "parent"]


def test_it_goes_to_another_process_with_its_settings_and_without_its_queue() -> None:
    (port,) = free_ports(1)
    with Client(f"http://127.0.0.1:{port}", model="m", max_records=3, close_seconds=0.0) as client:
        client.log("r-1", [0.5, 0.5])
        with pickle.loads(pickle.dumps(client)) as copy:
            assert copy.counts()["predictions"] == Counts()
            for i in range(5):
                copy.log(f"r-{i}", [0.5, 0.5])
            assert copy.counts()["predictions"].dropped == 2


def test_many_threads_lose_no_count() -> None:
    with answering(TAKEN) as agent, Client(agent.url, max_records=500, flush_seconds=0.01) as client:
        threads = [
            threading.Thread(target=lambda: [client.log("r", [0.5, 0.5]) for _ in range(500)])
            for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            assert_balanced(client)
        assert client.flush(PATIENCE_SECONDS)
        counts = assert_balanced(client)["predictions"]
        assert counts.logged == 4000
        assert counts.sent == sum(len(rows) for _, _, rows in agent.posts)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"url": "127.0.0.1:9108"},
            "url: expected http://host:port or https://host:port, got '127.0.0.1:9108'",
        ),
        (
            {"url": "http://ann:hunter2@agent/x"},
            "url: expected http://host:port or https://host:port, got 'http://…@agent'",
        ),
        ({"max_records": 0}, "max_records: expected a number above 0, got 0"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        Client(**({"url": "http://127.0.0.1:9108"} | settings))


def test_it_needs_the_standard_library_alone() -> None:
    code = "import sys, blindsight_client; print(*sorted({m.partition('.')[0] for m in sys.modules}))"
    words = [sys.executable, "-I", "-c", f"import sys; sys.path.insert(0, {str(CLIENT)!r}); {code}"]
    done = subprocess.run(words, check=True, capture_output=True, text=True, timeout=PATIENCE_SECONDS)
    foreign = {name for name in done.stdout.split() if name not in sys.stdlib_module_names}
    assert {name for name in foreign if not name.startswith(("_", "sitecustomize"))} == {"blindsight_client"}
    assert logging.getLogger("blindsight_client").handlers == []
