"""The middleware and the decorator: they log answers, and change, delay and break none of them."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from blindsight_client import Client, Counts, Exchange, Middleware, observed


@pytest.fixture
def client() -> Any:
    """Return one that sends nothing while a test looks at what waits."""
    with Client("http://127.0.0.1:9", model="m", flush_seconds=600.0, close_seconds=0.0) as client:
        yield client


def logged(client: Client) -> list[dict[str, Any]]:
    records = [json.loads(line) for line in client._predictions.lines]
    return [{key: value for key, value in record.items() if key != "time"} for record in records]


def serving(
    *parts: bytes, status: int = 200, headers: dict[str, str] | None = None, fails: bool = False
) -> Callable[..., Any]:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        while (await receive()).get("more_body"):
            pass
        named = [(k.encode(), v.encode()) for k, v in (headers or {}).items()]
        await send({"type": "http.response.start", "status": status, "headers": named})
        for i, part in enumerate(parts):
            await send({"type": "http.response.body", "body": part, "more_body": i + 1 < len(parts)})
        if fails:
            raise RuntimeError("the app has failed")

    return app


def run_in_thread(work: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine in a thread, because the loop of a browser that other tests use runs in this one."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, work).result()


def send_request(
    app: Any, body: bytes = b"{}", path: str = "/predict", **headers: str
) -> list[dict[str, Any]]:
    """Return the messages sent in answer to one request, whose body comes in two parts."""
    sent: list[dict[str, Any]] = []
    waiting = [{"type": "http.request", "body": body[:1], "more_body": True}]
    waiting.append({"type": "http.request", "body": body[1:]})

    async def receive() -> dict[str, Any]:
        return waiting.pop(0)

    async def send(message: Any) -> None:
        sent.append(dict(message))

    named = [(k.replace("_", "-").encode(), v.encode()) for k, v in headers.items()]
    run_in_thread(app({"type": "http", "path": path, "headers": named}, receive, send))
    return sent


ANSWER = b'{"id": "r-1", "scores": [0.1, 0.9], "version": "7", "took_ms": 3}'


@pytest.mark.parametrize(
    ("body", "records"),
    [
        (ANSWER, [{"id": "r-1", "scores": [0.1, 0.9], "model": "m", "version": "7"}]),
        (b'[{"id": "a", "scores": 0.9}, {"id": "b", "scores": 0.1, "model": "n"}, {"id": "c"}, 5]',
         [{"id": "a", "scores": 0.9, "model": "m"}, {"id": "b", "scores": 0.1, "model": "n"}]),
        (b'{"predictions": [{"scores": 0.5}]}', [{"id": "header", "scores": 0.5, "model": "m"}]),
        (b'{"predictions": [{"scores": 0.5}, {"scores": 0.6}]}', []),
        (b'{"detail": "none"}', []),
    ],
)  # fmt: skip
def test_answers_in_json_are_logged(client: Client, body: bytes, records: list[Any]) -> None:
    plain = serving(body[:5], body[5:], headers={"content-type": "application/json"})
    assert send_request(Middleware(plain, client), x_request_id="header") == send_request(plain), (
        "as without it"
    )
    assert logged(client) == records


def test_an_answer_takes_the_id_that_bentoml_gives_its_client(client: Client) -> None:
    app = serving(b'{"scores": 0.5}', headers={"X-BentoML-Request-ID": "399dc88b74578785"})
    send_request(Middleware(app, client))
    assert [record["id"] for record in logged(client)] == ["399dc88b74578785"]


@pytest.mark.parametrize(
    ("changes", "settings", "path"),
    [
        ({"status": 500}, {}, "/predict"),
        ({}, {"paths": ["/other"]}, "/predict"),
        ({}, {"max_bytes": len(ANSWER) - 1}, "/predict"),
    ],
)
def test_others_are_passed_on_and_not_logged(client: Client, changes: Any, settings: Any, path: str) -> None:
    plain = serving(ANSWER, **changes)
    assert send_request(Middleware(plain, client, **settings), path=path) == send_request(plain)
    assert logged(client) == []


def test_what_cannot_be_read_is_told_once_and_answered_all_the_same(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    app = Middleware(serving(b"no JSON"), client)
    for _ in range(2):
        assert [message["type"] for message in send_request(app)] == [
            "http.response.start",
            "http.response.body",
        ]
    warnings = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert [record.getMessage() for record in warnings] == [
        "No record was made of a response of /predict. This is told once."
    ]


def test_a_failure_of_the_service_stays_its_own(client: Client) -> None:
    with pytest.raises(RuntimeError, match="the app has failed"):
        send_request(Middleware(serving(ANSWER, fails=True), client))
    assert logged(client) == []


def test_own_records_come_from_the_whole_exchange(client: Client) -> None:
    def records(exchange: Exchange) -> list[dict[str, Any]]:
        text = json.loads(exchange.request)["text"]
        assert (exchange.path, exchange.status) == ("/predict", 200)
        return [{"id": exchange.response_headers["x-id"], "scores": 0.5, "groups": {"first": text[:1]}}]

    app = Middleware(serving(b"yes", headers={"X-Id": "r-1"}), client, records)
    send_request(app, b'{"text": "abc"}')
    assert logged(client) == [{"id": "r-1", "scores": 0.5, "model": "m", "groups": {"first": "a"}}]


def test_other_protocols_are_let_through(client: Client) -> None:
    seen: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append(scope["type"])

    for kind in ("lifespan", "websocket"):
        run_in_thread(Middleware(app, client)({"type": kind}, None, None))  # type: ignore[arg-type]
    assert seen == ["lifespan", "websocket"]


def test_methods_and_coroutines_are_observed_with_their_arguments(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    def records(answer: Any, model: Any, request: dict[str, Any]) -> list[dict[str, Any]]:
        return [{"id": request["id"], "scores": answer}]

    class Model:
        @observed(client, records)
        def plain(self, request: dict[str, Any]) -> list[float]:
            """Answer no."""
            return [0.1, 0.9]

        @observed(client, records)
        async def waiting(self, request: dict[str, Any]) -> list[float]:
            return [0.2, 0.8]

        @observed(client, records)
        def fails(self, request: dict[str, Any]) -> list[float]:
            raise RuntimeError("the model has failed")

    model = Model()
    assert (model.plain({"id": "a"}), model.plain.__doc__) == ([0.1, 0.9], "Answer no.")
    assert run_in_thread(model.waiting({"id": "b"})) == [0.2, 0.8]
    with pytest.raises(RuntimeError, match="the model has failed"):
        model.fails({"id": "c"})
    for _ in range(2):
        assert model.plain({}) == [0.1, 0.9]
    assert [(each["id"], each["scores"]) for each in logged(client)] == [("a", [0.1, 0.9]), ("b", [0.2, 0.8])]
    assert caplog.text.count("No record was made of an answer. This is told once.") == 1
    assert client.counts()["labels"] == Counts()
