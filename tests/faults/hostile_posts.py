"""The most memory that an agent takes while posts attack it.

    python -m tests.faults.hostile_posts [--connections 2000] [--posts 64]

Each attack meets an agent of its own, with an `http` source as it is without settings: connections that send
a byte of a head, or all but the end of a body, and then nothing; bodies of a few kilobytes that unpack to a
hundred megabytes; bodies as large as may be of brackets, of one name, and of records of no use. While each
lasts, another client's answer is taken; then the metrics must add up.
"""

from __future__ import annotations

import gzip
import json
import re
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path

import httpx

from tests.accounting import accounts, assert_adds_up
from tests.daemon import DaemonProcess, configuration
from tests.harness import resident, run
from tests.posting import head
from tests.services.process import PATIENCE_SECONDS

_MOST_BYTES = 4 << 20  # of a body
_SENDERS = 8

Attack = Callable[[int, ExitStack], None]


def silent(begun: bytes, connections: int, port: int, lasting: ExitStack) -> None:
    """Hold connections that begin with `begun`, and go on for as long as the server lets them."""
    for _ in range(connections):
        connection = lasting.enter_context(socket.create_connection(("127.0.0.1", port), PATIENCE_SECONDS))
        with suppress(OSError):  # it was let go
            connection.sendall(begun)


def bodies(content: bytes, posts: int, port: int, lasting: ExitStack, **headers: str) -> None:
    """Send `posts` posts of a body, several at a time."""
    address = f"http://127.0.0.1:{port}/v1/predictions"
    named = {"content-type": "application/json", **headers}

    def send() -> None:
        for _ in range(posts // _SENDERS):
            with suppress(httpx.TransportError):  # it hung up on a body that is too large
                httpx.post(address, content=content, headers=named, timeout=PATIENCE_SECONDS)

    senders = [threading.Thread(target=send) for _ in range(_SENDERS)]
    for sender in senders:
        sender.start()
    for sender in senders:
        sender.join()


def attacks(connections: int, posts: int) -> dict[str, Attack]:
    """Return the attacks by name."""
    bomb = gzip.compress(bytes(100 << 20))
    useless = b"[" + b",".join([b"{}"] * (_MOST_BYTES // 3 - 1)) + b"]"
    name = b'[{"' + b"x" * (_MOST_BYTES - 10) + b'":1}]'
    return {
        "none": lambda port, lasting: None,
        f"{connections:,} heads that stop": partial(silent, b"P", connections),
        f"{connections:,} bodies that stop": partial(
            silent, head(content_length=str(_MOST_BYTES)) + b"x" * 100_000, connections
        ),
        f"{posts} bodies of {len(bomb) / 1000:,.0f} kB, 100 MiB unpacked": partial(
            bodies, bomb, posts, **{"content-encoding": "gzip"}
        ),
        f"{posts} bodies of 4 MiB of brackets": partial(bodies, b"[" * _MOST_BYTES, posts),
        f"{posts} bodies of 4 MiB, one name": partial(bodies, name, posts),
        f"{_SENDERS} bodies of 4 MiB, empty records": partial(bodies, useless, _SENDERS),
    }


def peak(folder: Path, attack: Attack) -> tuple[float, str]:
    """Return the most memory at once in MB, and what the metrics count of answers."""
    sources = [{"kind": "http", "listen": "127.0.0.1:0", "spool": {"path": "spool"}}]
    with DaemonProcess(folder, configuration(sources=sources)) as daemon, ExitStack() as lasting:
        daemon.until(lambda: "posts are taken on port" in daemon.log, "it listens")
        [port] = map(int, re.findall(r"posts are taken on port (\d+)", daemon.log))
        attack(port, lasting)
        fine = json.dumps([{"id": "fine", "task": "t", "model": "m", "scores": [0.5, 0.5]}])
        answer = partial(
            httpx.post, content=fine, headers={"content-type": "application/json"}, timeout=PATIENCE_SECONDS
        )
        address = f"http://127.0.0.1:{port}/v1/predictions"
        daemon.until(lambda: answer(address).status_code == 202, "another client's answer is taken")
        daemon.until(lambda: accounts(daemon.metrics()).answers.parts["pending"] > 0, "it is used")
        balance = accounts(assert_adds_up(daemon))
        return resident(daemon.process.pid, most=True) / 1e6, str(balance.answers)


def measure(connections: int = 2000, posts: int = 64) -> Iterator[str]:
    """Yield the most memory at once of an agent under each attack."""
    yield f"{'attack':<45} MB at most"
    with tempfile.TemporaryDirectory() as name:
        for number, (what, attack) in enumerate(attacks(connections, posts).items()):
            folder = Path(name, str(number))
            folder.mkdir()
            most, counted = peak(folder, attack)
            yield f"{what:<45} {most:10.0f}   {counted}"


if __name__ == "__main__":
    run(measure, keep=False)
