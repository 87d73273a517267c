"""Payloads that the agent got from a stack: a few requests and labels, kept for tests without the stack."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any

import yaml

from tests.services.kafka_topics import read_topic
from tests.services.process import wait_until

if TYPE_CHECKING:
    from tests.recipes.recipe import Recipe

RECORDED = Path(__file__).with_name("recorded")
REQUESTS = 3
_QUIET_SECONDS = 3.0
_LEFT_OUT = {"host", "connection", "content-length", "accept-encoding", "user-agent", "accept", "traceparent"}
"""Headers that say nothing of the records."""

Payloads = dict[str, list[Any]]
"""What came by kind of source: ``http`` posts (path, headers, body), ``file`` lines, ``kafka`` messages."""


def recorded(stack: str) -> Payloads:
    """Return the kept payloads of a stack."""
    payloads: Payloads = json.loads((RECORDED / f"{stack}.json").read_text(encoding="utf-8"))
    return payloads


def record(recipe: Recipe) -> None:
    """Keep what a few requests and their labels bring to a listener in place of the agent."""
    sources = yaml.safe_load(recipe.page.blocks["agent.yaml"])["sources"]
    (listen,) = [each["listen"] for each in sources if each["kind"] == "http"] or [""]
    payloads: Payloads = {}
    with _listening(listen) as posts:
        first = len(recipe.answered)
        recipe.ask(REQUESTS)
        recipe.label(recipe.answered[first:])
        _until_quiet(posts)
    for source in sources:
        if source["kind"] == "file":
            payloads["file"] = _last_lines(recipe.place, source["path"])
        elif source["kind"] == "kafka":
            payloads.setdefault("kafka", []).extend(_last_messages(recipe, *source["topics"]))
    payloads["http"] = posts
    text = json.dumps({kind: each for kind, each in payloads.items() if each}, indent=1)
    (RECORDED / f"{recipe.stack.name}.json").write_text(text + "\n", encoding="utf-8")


@contextmanager
def _listening(listen: str) -> Iterator[list[Any]]:
    """Take every post for a while; nothing where there is no address."""
    posts: list[Any] = []

    class Taking(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"])).decode()
            headers = {k.lower(): v for k, v in self.headers.items() if k.lower() not in _LEFT_OUT}
            posts.append({"path": self.path, "headers": headers, "body": body})
            answer = b'{"accepted": 1, "rejected": 0}'
            self.send_response(202)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: object) -> None:
            """Write nothing."""

    if not listen:
        yield posts
        return
    host, _, port = listen.rpartition(":")
    server = ThreadingHTTPServer((host, int(port)), Taking)
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield posts
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _until_quiet(posts: list[Any]) -> None:
    newest, since = -1, time.monotonic()

    def quiet() -> bool:
        nonlocal newest, since
        if len(posts) != newest:
            newest, since = len(posts), time.monotonic()
        return time.monotonic() - since > _QUIET_SECONDS

    wait_until(quiet, "nothing more is posted")


def _last_messages(recipe: Recipe, topic: str) -> list[dict[str, Any]]:
    assert recipe.broker is not None
    return [
        {
            "topic": topic,
            "key": (each.key or b"").decode(),
            "headers": {name: value.decode() for name, value in each.headers.items()},
            "milliseconds": each.milliseconds,
            "value": each.value.decode(),
        }
        for each in read_topic(recipe.broker, topic)[-REQUESTS:]
    ]


def _last_lines(folder: Path, pattern: str) -> list[str]:
    lines = [line for path in sorted(folder.glob(pattern)) for line in path.read_text("utf-8").splitlines()]
    return lines[-REQUESTS:]
