"""The cost of logging for a service that answers: its responses with the agent up, frozen and away.

    PYTHONPATH=connectors/client python -m tests.bench.bench_client [--seconds 60]

Three services on uvicorn answer the same: one logs nothing, one has the middleware of `blindsight-client`,
one posts each answer itself before it responds, as a first script does. A caller asks them in turns, a second
each, over connections that it keeps. The agent is a real one: first it runs, then it is frozen (SIGSTOP),
then killed; each state lasts `--seconds` of each service. At last it is started again, and what waited
arrives.
"""

from __future__ import annotations

import http.client
import json
import re
import signal
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import uvicorn
from blindsight_client import Client, Middleware

from tests.accounting import assert_adds_up
from tests.daemon import DaemonProcess, configuration
from tests.harness import run
from tests.services.process import free_ports, wait_until

KINDS = ("none", "client", "own post")
TURN_SECONDS = 1.0
GIVES_UP_SECONDS = 1.0
"""The time limit of the service that posts itself, and of its caller for each response."""


async def answered(scope: Any, receive: Any, send: Any, record: bytes) -> None:
    """One response in JSON."""
    while (await receive()).get("more_body"):
        pass
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(record)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": record})


def serve(kind: str, port: int, agent: str) -> None:
    """Run one service until it is ended; `/counts` tells the fate of its records."""
    client = Client(agent, model="erm", task="t", timeout_seconds=1.0)
    number = 0

    async def app(scope: Any, receive: Any, send: Any) -> None:
        nonlocal number
        if scope["path"] == "/counts":
            await answered(scope, receive, send, json.dumps(asdict(client.counts()["predictions"])).encode())
            return
        number += 1
        row = {"id": f"{kind}-{number}", "model": "erm", "task": "t", "scores": [0.12, 0.88]}
        record = json.dumps(row).encode()
        if kind == "own post":
            headers = {"Content-Type": "application/json"}
            request = urllib.request.Request(f"{agent}/v1/predictions", record, headers)
            urllib.request.urlopen(request, timeout=GIVES_UP_SECONDS).read()
        await answered(scope, receive, send, record)

    served = Middleware(app, client, paths=["/predict"]) if kind == "client" else app
    uvicorn.run(served, host="127.0.0.1", port=port, log_level="critical", lifespan="off")


@contextmanager
def services(agent: str) -> Iterator[dict[str, int]]:
    """Yield the three, by the ports that they answer on."""
    ports = dict(zip(KINDS, free_ports(len(KINDS)), strict=True))
    made = [get_context("spawn").Process(target=serve, args=(k, port, agent)) for k, port in ports.items()]
    for process in made:
        process.start()
    try:
        for port in ports.values():
            wait_until(lambda port=port: get_json(Caller(port), "/counts") is not None, "the service answers")
        yield ports
    finally:
        for process in made:
            process.terminate()
            process.join()


class Caller:
    """One kept connection to a service."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2 * GIVES_UP_SECONDS)

    def get(self, path: str) -> bytes | None:
        """Return the body of a response; None for a failure."""
        try:
            self._connection.request("GET", path)
            response = self._connection.getresponse()
            body = response.read()
        except (OSError, http.client.HTTPException):
            self._connection.close()
            return None
        return body if response.status == 200 else None


def get_json(caller: Caller, path: str) -> Any:
    body = caller.get(path)
    return None if body is None else json.loads(body)


def measured(callers: dict[str, Caller], seconds: float) -> Iterator[str]:
    """Ask all in turns, each for this many seconds in all."""
    times: dict[str, list[float]] = {kind: [] for kind in callers}
    failed = dict.fromkeys(callers, 0)
    for _ in range(max(round(seconds / TURN_SECONDS), 1)):
        for kind, caller in callers.items():
            until = time.perf_counter() + TURN_SECONDS
            while (began := time.perf_counter()) < until:
                if caller.get("/predict") is None:
                    failed[kind] += 1
                times[kind].append(time.perf_counter() - began)
    for kind, latencies in times.items():
        p50, p99 = (1000 * sorted(latencies)[int(len(latencies) * share)] for share in (0.5, 0.99))
        yield f"  {kind:<9} {p50:8.3f} {p99:8.3f} {len(latencies):10,} {failed[kind]:8,}"


def table(seconds: int = 60) -> Iterator[str]:
    """Yield the times of the three services, in each state of the agent, and what became of the records."""
    (port,) = free_ports(1)
    config = configuration(
        sources=[{"kind": "http", "listen": f"127.0.0.1:{port}", "spool": {"path": "spool"}}],
        store={"path": "state"},
    )
    yield "  service     p50 ms   p99 ms    answers   failed"
    with tempfile.TemporaryDirectory() as folder, services(f"http://127.0.0.1:{port}") as ports:
        callers = {kind: Caller(each) for kind, each in ports.items()}
        with DaemonProcess(Path(folder), config) as daemon:
            daemon.until(lambda: re.search("posts are taken", daemon.log), "it takes posts")
            for state, number in (("up", None), ("frozen", signal.SIGSTOP), ("away", signal.SIGKILL)):
                if number is not None:
                    daemon.send(number)
                yield f"the agent is {state}"
                yield from measured(callers, seconds)
        with DaemonProcess(Path(folder), config) as daemon:
            wait_until(
                lambda: get_json(callers["client"], "/counts")["pending"] == 0, "all that waited is sent"
            )
            counts = get_json(callers["client"], "/counts")
            yield "the agent is up again; records of the client: " + ", ".join(
                f"{name} {count:,}" for name, count in counts.items()
            )
            assert counts["logged"] == counts["sent"] + counts["rejected"] + counts["dropped"]
            assert_adds_up(daemon)


if __name__ == "__main__":
    run(table, keep=False)
