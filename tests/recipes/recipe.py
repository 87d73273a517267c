"""One stack's recipe: install what its page names, run the page, and count what became of every request."""

from __future__ import annotations

import http.client
import os
import random
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.accounting import Accounts, accounts
from tests.daemon import DaemonProcess
from tests.harness import ROOT
from tests.recipes.page import Call, Page
from tests.recipes.recorded import record
from tests.services.kafka_broker import KafkaBroker
from tests.services.process import PATIENCE_SECONDS, free_ports, stop, tail, wait_until

WINDOW, REQUESTS, LABELS, AWAY, AWAY_SECONDS, QUIET_SECONDS = 50, 200, 100, 50, 5.0, 10.0
"""Requests of the first window and in all, labels, requests while the agent is away, for so long; then the
time without a further record after which nothing more is waited for."""
_START_SECONDS, _STOP_SECONDS = 120.0, 30.0
_KEPT_SECONDS = 2.0
"""After a pause as long, a caller opens another connection: the service may have closed it."""
_LIBRARIES = "usr/lib/x86_64-linux-gnu", "lib/x86_64-linux-gnu", "usr/lib/syslog-ng"
_SETTINGS = {
    "PIP_QUIET": "1",
    "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    "TZ": "UTC",
    "BENTOML_DO_NOT_TRACK": "True",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "RAY_USAGE_STATS_ENABLED": "0",
}
"""The environment of the stacks: it stops their telemetry, and sets the time zone of the pages."""


@dataclass(frozen=True)
class Stack:
    """The parts of a recipe that its page does not name.

    Parameters
    ----------
    name : str
        Of the page.
    packages : sequence of str
        Whose versions are told.
    own : sequence of str
        Files of the page that are there for monitoring alone.
    id_header : str, optional
        The header of a response that has its id, where the service chooses it.
    version : str, optional
        A command that prints the version, where it is no package of Python.
    proxies : mapping of str to str
        Ports of what stands before the service for monitoring alone: without it, the service is asked itself.
    topics : sequence of str
        Of Kafka: they are made, with a broker for them.
    lost : int
        Of the requests while the agent was away, those that a page says are lost.
    """

    name: str
    packages: Sequence[str] = ()
    own: Sequence[str] = ("agent.yaml",)
    id_header: str | None = None
    version: str = ""
    proxies: Mapping[str, str] = field(default_factory=dict)
    topics: Sequence[str] = ()
    lost: int = 0


class Caller:
    """One kept connection to a service."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_SECONDS)
        self._last = time.monotonic()

    def ask(self, call: Call) -> tuple[float, http.client.HTTPMessage] | None:
        """Return the seconds of a response, and its headers; None for a failure."""
        if time.monotonic() - self._last > _KEPT_SECONDS:
            self._connection.close()
        began = time.perf_counter()
        try:
            self._connection.request("POST", call.path, call.body, call.headers)
            response = self._connection.getresponse()
            response.read()
        except (OSError, http.client.HTTPException):
            self._connection.close()
            return None
        finally:
            self._last = time.monotonic()
        return (time.perf_counter() - began, response.headers) if 200 <= response.status < 300 else None


class Environment:
    """A virtual environment for what a page installs; Debian's packages are unpacked beside it.

    Parameters
    ----------
    folder : Path
    """

    def __init__(self, folder: Path) -> None:
        self._venv, self._root = folder / "venv", folder / "root"
        path = [self._venv / "bin", self._root / "usr" / "bin", self._root / "usr" / "sbin"]
        go = {
            "GOPATH": f"{folder}/go",
            "GOCACHE": f"{folder}/go-cache",
            "GOFLAGS": "-modcacherw -buildvcs=false",
        }
        self.variables = {
            **go,
            **{k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONHOME")},
            **_SETTINGS,
            "VIRTUAL_ENV": str(self._venv),
            "LD_LIBRARY_PATH": ":".join(str(self._root / each) for each in _LIBRARIES),
            "PATH": ":".join([*map(str, path), os.environ["PATH"]]),
        }
        self._folder = folder

    def install(self, block: str) -> None:
        """Run the commands of a page; packages of Debian are unpacked, and change nothing of the machine."""
        self._run([sys.executable, "-m", "venv", str(self._venv)])
        packages = re.findall(r"^apt-get install (.*)$", block, flags=re.MULTILINE)
        if packages:
            self._unpack(packages[0].split())
        rest = re.sub(r"^apt-get .*$", "", block, flags=re.MULTILINE)
        self.shell(rest.replace("./connectors/", f"{ROOT}/connectors/"), self._folder)

    def _unpack(self, packages: Sequence[str]) -> None:
        archives = self._folder / "archives"
        (archives / "partial").mkdir(parents=True)
        words = ["apt-get", "install", "--download-only", "-y", "-q", "--no-install-recommends"]
        self._run([*words, "-o", f"Dir::Cache::archives={archives}", *packages])
        for archive in archives.glob("*.deb"):
            self._run(["dpkg", "-x", str(archive), str(self._root)])
        # It expects its modules at the place of the package.
        for modules in self._root.glob("usr/lib/syslog-ng/*/"):
            script = self._venv / "bin" / "syslog-ng"
            program = self._root / "usr" / "sbin" / "syslog-ng"
            script.write_text(f'#!/bin/sh\nexec {program} --module-path={modules} "$@"\n', encoding="utf-8")
            script.chmod(0o755)

    def versions(self, stack: Stack) -> str:
        """Return the installed versions of the stack itself."""
        if stack.version:
            return self.shell(stack.version, self._folder).strip()
        statement = f"print(*(f'{{p}} {{version(p)}}' for p in {list(stack.packages)}), sep=', ')"
        return self.python(f"from importlib.metadata import version\n{statement}", self._folder).strip()

    def shell(self, script: str, cwd: Path) -> str:
        """Return the output of a script in it."""
        return self._run(["bash", "-e", "-o", "pipefail", "-c", script], cwd)

    def python(self, script: str, cwd: Path) -> str:
        """Return the output of a Python script in it."""
        return self._run([str(self._venv / "bin" / "python"), "-c", script], cwd)

    def _run(self, words: Sequence[str], cwd: Path | None = None) -> str:
        done = subprocess.run(words, cwd=cwd, env=self.variables, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{words[:4]}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
        return done.stdout


class Recipe:
    """A run of a page. A context manager: outside it all that it started is gone.

    Parameters
    ----------
    stack : Stack
    folder : Path
    """

    def __init__(self, stack: Stack, folder: Path) -> None:
        self.stack, self.folder = stack, folder
        self._running = ExitStack()
        named = Page(stack.name).ports
        ports = [dict(zip(named, free_ports(len(named)), strict=True)) for _ in range(2)]
        self.broker: KafkaBroker | None = None
        if stack.topics:
            self.broker = self._running.enter_context(KafkaBroker())
            ports[1]["9092"] = self.broker.port
            for topic in stack.topics:
                self.broker.create_topic(topic)
        for proxy, service in stack.proxies.items():
            ports[0][proxy] = ports[0][service]
        self.pages = {True: Page(stack.name, ports[1]), False: Page(stack.name, ports[0])}
        self.page = self.pages[True]
        self.environment = Environment(folder)
        self.answered: list[tuple[str, float, str]] = []
        """The id that a label names, the score and the class, of each response of the service."""
        self.failed = 0
        self._random = random.Random(1)
        self._callers: dict[bool, Caller] = {}
        self._daemon: DaemonProcess | None = None

    def __enter__(self) -> Recipe:
        return self

    def __exit__(self, *error: object) -> None:
        if self._daemon is not None:
            stop(self._daemon.process, kill=True)
        self._running.close()

    @property
    def place(self) -> Path:
        """The folder of the service with monitoring, and of the agent."""
        return self.folder / "with"

    @property
    def daemon(self) -> DaemonProcess:
        """The agent."""
        assert self._daemon is not None, "no agent was started"
        return self._daemon

    def start_agent(self) -> None:
        """Run the agent of the page, or run it again."""
        self.place.mkdir(exist_ok=True)
        self._daemon = DaemonProcess(self.place, self.page.blocks["agent.yaml"])
        self.daemon.until(lambda: "Running: metrics on port" in self.daemon.log, "it runs")

    def stop_agent(self) -> None:
        """Kill the agent with -9."""
        stop(self.daemon.process, kill=True)

    def serve(self) -> None:
        """Write the files, and start the service twice: with monitoring, and without."""
        for monitored, page in self.pages.items():
            folder = self.place if monitored else self.folder / "without"
            page.write(folder, monitored)
            if "prepare" in page.blocks:
                self.environment.shell(page.blocks["prepare"], folder)
            if "serve" in page.blocks:
                self._start(page, folder, monitored)
            if page.call("r-0", 0.5) is not None:
                port = int(page.address.rpartition(":")[2])
                self._callers[monitored] = Caller(port)
        for monitored in self._callers:
            try:
                wait_until(lambda m=monitored: self._ask(m) is not None, "it answers", seconds=_START_SECONDS)
            except AssertionError as error:
                raise AssertionError(f"{error}\n{tail(self.place / 'service.log', 40)}") from None
        self.failed = 0

    def ask(self, count: int) -> dict[bool, list[float]]:
        """Send requests to both services in turns, which of them first by turns too.

        Returns
        -------
        dict of bool to list of float
            The seconds of the responses, with monitoring and without.
        """
        if not self._callers:
            self._write(count)
            return {}
        times: dict[bool, list[float]] = {True: [], False: []}
        for i in range(count):
            for monitored in (True, False) if i % 2 else (False, True):
                seconds = self._ask(monitored)
                if seconds is not None:
                    times[monitored].append(seconds)
        return times

    def label(self, rows: Sequence[tuple[str, float, str]]) -> None:
        """Send the labels of responses."""
        run = self.environment.python if self.page.languages["label"] == "python" else self.environment.shell
        run(self.page.script("label", rows), self.place)

    def accounts(self) -> Accounts:
        """Return the agent's accounts of the records that came."""
        return accounts(self.daemon.metrics())

    def until_received(self, answers: int, labels: int) -> None:
        """Wait for `answers` answers and `labels` labels; where some are lost, also until none has come for a
        while.
        """
        newest, since = -1, time.monotonic()

        def came_or_quiet() -> bool:
            nonlocal newest, since
            current = self.accounts()
            if current.received != newest:
                newest, since = current.received, time.monotonic()
            came = current.answers.received >= answers and current.labels.received >= labels
            return came and (not self.stack.lost or time.monotonic() - since > QUIET_SECONDS)

        self.daemon.until(came_or_quiet, f"{answers} answers and {labels} labels came")

    def until_window(self) -> None:
        """Wait for the first window."""
        self.daemon.until(lambda: self.daemon.metrics().total("windows_closed_total"), "a window closed")

    def _ask(self, monitored: bool) -> float | None:
        name, (score, label) = f"r-{len(self.answered) + 1}", self._draw_row()
        call = self.pages[monitored].call(name, score)
        assert call is not None
        answer = self._callers[monitored].ask(call)
        if answer is None:
            self.failed += monitored
            return None
        if monitored:
            header = self.stack.id_header
            self.answered.append((answer[1][header] if header else name, score, label))
        return answer[0]

    def _write(self, count: int) -> None:
        """Write requests by a script, where there is no service to ask."""
        first = len(self.answered) + 1
        rows = [(f"r-{i}", *self._draw_row()) for i in range(first, first + count)]
        self.environment.shell(self.page.script("ask", rows), self.place)
        self.answered += rows

    def _draw_row(self) -> tuple[float, str]:
        score = round(self._random.betavariate(0.5, 0.5) * 0.98 + 0.01, 4)
        return score, "toxic" if self._random.random() < score else "ok"

    def _start(self, page: Page, folder: Path, monitored: bool) -> None:
        log = self._running.enter_context((folder / "service.log").open("wb"))
        process = subprocess.Popen(
            ["bash", "-c", page.text("serve", monitored)],
            cwd=folder,
            env=self.environment.variables,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        self._running.callback(_stop_all, process)


def _stop_all(process: subprocess.Popen[bytes]) -> None:
    """End a script and what it has started, which are a group of their own."""
    with suppress(ProcessLookupError, subprocess.TimeoutExpired):
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(_STOP_SECONDS)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def report_lines(stack: Stack, keeps_payloads: bool = False) -> Iterator[str]:
    """Run a stack's recipe, and tell its figures."""
    began = time.monotonic()
    yield f"python -m tests.recipes {stack.name}"
    with tempfile.TemporaryDirectory() as folder, Recipe(stack, Path(folder)) as recipe:
        recipe.environment.install(recipe.page.blocks["install"])
        installed = time.monotonic() - began
        yield f"versions: {recipe.environment.versions(stack)}"
        recipe.start_agent()
        recipe.serve()
        times = recipe.ask(WINDOW)
        recipe.until_window()
        minutes = (time.monotonic() - began) / 60
        yield f"minutes to the first window: {minutes:.1f}, {installed / 60:.1f} of them to install"
        own, marked = recipe.page.lines(stack.own)
        yield f"lines of configuration: {own}, and {marked} in the service"
        for key, seconds in recipe.ask(REQUESTS - WINDOW).items():
            times[key] += seconds
        recipe.until_received(len(recipe.answered), 0)
        recipe.label(recipe.answered[:LABELS])
        recipe.until_received(len(recipe.answered), LABELS)
        recipe.stop_agent()
        before = len(recipe.answered)
        recipe.ask(AWAY)
        away = len(recipe.answered) - before
        time.sleep(AWAY_SECONDS)
        recipe.start_agent()
        recipe.until_received(len(recipe.answered) - stack.lost, LABELS)
        yield from _counted(recipe, away)
        yield _added(times)
        if keeps_payloads:
            recipe.stop_agent()
            record(recipe)


def _counted(recipe: Recipe, away: int) -> Iterator[str]:
    balances = recipe.accounts()
    balances.answers.assert_adds_up()
    balances.labels.assert_adds_up()
    parts, sent = balances.answers.parts, len(recipe.answered)
    used, rejected = parts["used"] + parts["pending"], parts["rejected"]
    lost = sent - used - rejected
    again = f"; {parts['duplicate']} came twice, and were counted once" if parts["duplicate"] else ""
    yield f"sent {sent} = used {used} + rejected {rejected} + lost {lost}{again}"
    yield f"labels joined: {balances.labels.parts['matched']} of {LABELS}"
    yield f"while the agent was away: {lost} of {away} lost, {recipe.failed} responses failed"
    assert (lost, rejected, recipe.failed) == (recipe.stack.lost, 0, 0), recipe.daemon.log
    assert balances.labels.parts["matched"] == LABELS, balances


def _added(times: dict[bool, list[float]]) -> str:
    if not times:
        return "p50 of a response: none"
    with_, without = (1000 * statistics.median(times[monitored]) for monitored in (True, False))
    return (
        f"p50 of a response, ms: {with_:.2f} with monitoring, {without:.2f} without: {with_ - without:+.2f}"
    )
