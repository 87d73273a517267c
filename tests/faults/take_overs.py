"""Agents that take over from each other on one database, and what came of it.

    python -m tests.faults.take_overs [--rounds 20] [--records 200000] [--lease 6] [--seed 0]

A real PostgreSQL holds the state. One agent works, one waits as a stand-by; both read one file, which grows,
and write one reports file. In turn the one that works is killed with SIGKILL, or stopped with SIGSTOP until
the other has taken over and then continued. The reports file must equal, byte for byte, that of one agent
that ran through with its state in a folder. It prints how long nobody was ready.
"""

from __future__ import annotations

import random
import signal
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from tests.accounting import assert_adds_up
from tests.daemon import DaemonProcess
from tests.faults.kills import CONFIG, stream
from tests.harness import run
from tests.services.postgres_server import PostgresServer
from tests.services.process import end_of, free_ports, wait_until

_FILE = "{{kind: file, path: stream.ndjson}}"
GROWING = CONFIG.replace(_FILE, _FILE.replace("}}", ", follow: true}}"))
FOLDER = "store: {{path: {name}, every_seconds: {every}}}"


def configuration(address: str, prefix: str, port: int = 0, name: str = "killed", lease: float = 2.0) -> str:
    """Return the configuration of an agent with its state in PostgreSQL."""
    words = f'{{postgres: "{address}", prefix: {prefix}, every_seconds: 0.1, lease_seconds: {lease}}}'
    text = GROWING.replace(FOLDER, "store: {store}").replace("127.0.0.1:0", "127.0.0.1:{port}")
    return text.format(name=name, max_bytes="null", store=words, port=port)


class Agent:
    """An agent in a process of its own, that goes on until it is told to stop."""

    def __init__(self, folder: Path, config: str, name: str, port: int) -> None:
        (folder / name).mkdir(exist_ok=True)
        own_config = config.replace("path: ", f"path: {folder}/")
        self.daemon = DaemonProcess(folder / name, own_config, stdin=subprocess.PIPE)
        self._port = port

    def get(self, path: str) -> tuple[int, str]:
        """Return status and text of an answer; 0 where nobody answers."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._port}{path}", timeout=5) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()
        except OSError:
            return 0, ""

    @property
    def ready(self) -> bool:
        return self.get("/-/ready")[0] == 200

    @property
    def waits(self) -> bool:
        """True if it is a stand-by: alive, and not ready."""
        status, text = self.get("/-/ready")
        return status == 503 and "Stand-by: " in text and self.get("/-/healthy")[0] == 200


@dataclass(slots=True)
class Result:
    """The result of the hand-overs."""

    seconds: list[float] = field(default_factory=list)
    """Until the other was ready, of each."""
    stopped: int = 0
    """Of them those whose former owner lives on."""
    windows: int = 0
    equal: bool = False


def alone(folder: Path, records: Sequence[str]) -> bytes:
    """Return the lines of one agent that runs through, with its state in a folder."""
    (folder / "stream.ndjson").write_text("\n".join(records) + "\n", encoding="utf-8")
    config = GROWING.format(name="alone", max_bytes="null", every=0.1)
    with DaemonProcess(folder, config, stdin=subprocess.PIPE) as daemon:
        assert_adds_up(daemon, sent=len(records))
        assert daemon.end()[0] == 0, daemon.log
    return (folder / "alone.ndjson").read_bytes()


def hand_over(
    folder: Path, server: PostgresServer, records: int, rounds: int, lease: float, seed: int
) -> Result:
    """Let two agents take over from each other; compare with one that ran through."""
    lines, rng, result = list(stream(records, seed)), random.Random(seed), Result()
    expected = alone(folder, lines)
    growing = folder / "stream.ndjson"
    growing.write_bytes(b"")
    ports = free_ports(2)
    configs = [configuration(server.dsn, "taken", port, lease=lease) for port in ports]
    with ExitStack() as stack, growing.open("a", encoding="utf-8") as file:
        agents = [Agent(folder, configs[0], "first", ports[0])]
        stack.enter_context(agents[0].daemon)
        wait_until(lambda: agents[0].ready, "the first agent is ready")
        each = len(lines) // (rounds + 1)
        for number in range(rounds):
            file.write("".join(f"{line}\n" for line in lines[number * each : (number + 1) * each]))
            file.flush()
            port = ports[(number + 1) % 2]
            other = Agent(folder, configs[(number + 1) % 2], f"agent{number}", port)
            stack.enter_context(other.daemon)
            wait_until(lambda other=other: other.waits, "the other agent waits")
            time.sleep(rng.uniform(0, 0.3))
            stops = number % 2 == 1
            former = agents[-1]
            former.daemon.send(signal.SIGSTOP if stops else signal.SIGKILL)
            began = time.monotonic()
            wait_until(lambda other=other: other.ready, "the other agent has taken over", pause=0.02)
            result.seconds.append(time.monotonic() - began)
            if stops:
                former.daemon.send(signal.SIGCONT)
                code = end_of(former.daemon.process)
                assert (code, "the lease is lost" in former.daemon.log) == (1, True), former.daemon.log
                result.stopped += 1
            agents.append(other)
        file.write("".join(f"{line}\n" for line in lines[rounds * each :]))
        file.flush()
        last = agents[-1].daemon
        written = folder / "killed.ndjson"
        last.until(lambda: written.exists() and written.stat().st_size >= len(expected), "all is written")
        assert last.end()[0] == 0, last.log
    result.windows = sum(b'"revision":0' in line for line in written.read_bytes().splitlines())
    result.equal = written.read_bytes() == expected
    return result


def table(rounds: int = 20, records: int = 200_000, lease: float = 6.0, seed: int = 0) -> Iterator[str]:
    """Yield the results; the lease in seconds."""
    with tempfile.TemporaryDirectory() as name, PostgresServer() as server:
        result = hand_over(Path(name), server, records, rounds, lease, seed)
    kills = len(result.seconds) - result.stopped
    yield f"{len(result.seconds)} hand-overs: {kills} owners killed, {result.stopped} stopped for as long"
    yield f"{result.windows:,} windows closed; the reports are {'equal' if result.equal else 'DIFFERENT'}"
    yield (
        f"nobody ready for {median(result.seconds):.1f} s in the median, {max(result.seconds):.1f} s at worst"
        f" (a lease of {lease:g} s)"
    )


if __name__ == "__main__":
    run(table, keep=False)
