"""The command as a process of its own: started on free ports of 127.0.0.1, stopped by its process id."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from contextlib import chdir, redirect_stderr, redirect_stdout
from pathlib import Path
from types import TracebackType
from typing import Any
from unittest.mock import patch

import msgspec
from prometheus_client.parser import text_string_to_metric_families

from monitor.cli import main
from tests.services import fork_server
from tests.services.fork_server import COMMAND, ForkedProcess
from tests.services.process import PATIENCE_SECONDS, end_of, stop, wait_until
from tests.streams import CLASSES, Record

ROOT = Path(__file__).parents[1]


def command(
    *arguments: str | Path,
    stdin: Any = subprocess.DEVNULL,
    cwd: Path | None = None,
    seconds: float = PATIENCE_SECONDS,
) -> subprocess.CompletedProcess[str]:
    """Run `blindsight` with these arguments to its end."""
    return _run(COMMAND, arguments, stdin, cwd, seconds)


def run_module(name: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a module of the tests with these arguments to its end, in a process of its own."""
    return _run(name, arguments)


def _run(
    module: str,
    arguments: Sequence[str | Path],
    stdin: Any = subprocess.DEVNULL,
    cwd: Path | None = None,
    seconds: float = PATIENCE_SECONDS,
) -> subprocess.CompletedProcess[str]:
    words, options = list(map(str, arguments)), {"stdin": stdin, "cwd": cwd, "env": _environment()}
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = _started(module, words, stdout=out, stderr=err, **options)
        try:
            code = end_of(process, seconds)
        finally:
            stop(process, kill=True)
        outputs = [file.seek(0) or file.read().decode() for file in (out, err)]
    return subprocess.CompletedProcess(words, code, *outputs)


def _started(
    module: str, words: Sequence[str], fresh: bool = False, **options: Any
) -> subprocess.Popen[bytes] | ForkedProcess:
    """Start a module with these words, as a fork where forks are wanted."""
    if fork_server.enabled and not fresh:
        return ForkedProcess(words, module=module, **options)
    return subprocess.Popen([sys.executable, "-m", module, *words], **options)


def command_here(*arguments: str | Path, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run `blindsight` with these arguments in this process, for what starts none and needs none.

    Parameters
    ----------
    *arguments : str or Path
    cwd : Path, optional
        The folder that it runs in.
    """
    words = ["blindsight", *map(str, arguments)]
    out, err, code = io.StringIO(), io.StringIO(), 0
    environment = patch.dict(os.environ, _environment())
    with environment, patch.object(sys, "argv", words), chdir(cwd or Path()):
        try:
            with redirect_stdout(out), redirect_stderr(err):
                main._command()
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else bool(end.code)
    return subprocess.CompletedProcess(words, code, out.getvalue(), err.getvalue())


def diagnosed(config: str, sample: Path | None = None) -> tuple[str, bool]:
    """Return what `doctor` prints about the sources or a captured body, and whether all is well."""
    from monitor.cli.doctor import diagnose_sample, diagnose_sources

    diagnosis = diagnose_sources(config) if sample is None else diagnose_sample(config, sample)
    return str(diagnosis), diagnosis.well


def configuration(**rest: Any) -> dict[str, Any]:
    """Return one task of two classes in windows of 100, served on a free port; `task` changes the task.

    A task of another kind has neither classes nor metrics but those that it names.
    """
    own = rest.pop("task", {})
    task = {
        "window": {"size": 100, "min_size": 20, "max_age_seconds": 3600},
        "reference": {"first_windows": 5},
        "chart": {"sigmas": 3},
        **({} if "kind" in own else {"classes": CLASSES, "metrics": ["accuracy"]}),
    } | own
    return {"tasks": {"t": task}, "export": {"listen": "127.0.0.1:0"}} | rest


def write_configuration(folder: Path, config: Mapping[str, Any] | str, name: str = "config.yaml") -> Path:
    """Write it where a daemon looks for it; JSON is YAML."""
    path = folder / name
    path.write_text(config if isinstance(config, str) else json.dumps(config), encoding="utf-8")
    return path


def ndjson(records: Sequence[Record | bytes]) -> bytes:
    """Return records as lines."""
    return b"".join(
        (record if isinstance(record, bytes) else msgspec.json.encode(record)) + b"\n" for record in records
    )


def read_windows(path: Path) -> list[dict[str, Any]]:
    """Return the windows of a reports file, each once, as it closed; a half-written last line is left out."""
    return [line for line in read_lines(path) if not line.get("revision")]


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Return the lines of a reports file, revisions among them; a half-written last one is left out."""
    text = path.read_bytes() if path.exists() else b""
    return [json.loads(line) for line in text[: text.rfind(b"\n") + 1].splitlines()]


class Metrics:
    """One scrape in the text format.

    Parameters
    ----------
    text : str
    """

    def __init__(self, text: str) -> None:
        self.text = text

    def all(self, name: str, **labels: str) -> dict[tuple[tuple[str, str], ...], float]:
        """Return the samples of a name that have these labels, by their labels."""
        starts = f"blindsight_{name}{{", f"blindsight_{name} "
        # The parser is slow, and tests that wait ask for one name many times.
        lines = "".join(line for line in self.text.splitlines(keepends=True) if line.startswith(starts))
        return {
            tuple(sorted(sample.labels.items())): sample.value
            for family in text_string_to_metric_families(lines)
            for sample in family.samples
            if labels.items() <= sample.labels.items()
        }

    def value(self, name: str, **labels: str) -> float | None:
        """Return the only sample of a name that has these labels; None where there is none."""
        samples = list(self.all(name, **labels).values())
        assert len(samples) <= 1, f"{name} {labels}: {len(samples)} samples"
        return samples[0] if samples else None

    @property
    def used(self) -> float:
        """Answers in windows, closed or open, of all models."""
        return self.total("predictions_total") + self.total("answers_pending")

    def total(self, name: str, **labels: str) -> float:
        """Return the sum over the samples of a name that have these labels."""
        return sum(self.all(name, **labels).values())


def slowness() -> float:
    """Return how many times as long a piece of work takes now as alone on a core: 1 where a core is idle."""
    began, used = time.monotonic(), time.thread_time()
    while (spent := time.thread_time() - used) < 0.1:
        pass
    return (time.monotonic() - began) / spent


class DaemonProcess:
    """`blindsight run` at work. A context manager: outside it is gone, however the test ended.

    Parameters
    ----------
    folder : Path
        Where its log goes, and `config.yaml`.
    config : mapping or str
        As YAML where it is text.
    stdin : optional
        What its standard input is.
    program : sequence of str, optional
        In place of the command.
    fresh : bool
        Start a Python of its own in tests too: where its start or its memory is measured, or the
        environment says how numpy computes.
    """

    def __init__(
        self,
        folder: Path,
        config: Mapping[str, Any] | str,
        stdin: Any = subprocess.DEVNULL,
        program: Sequence[str] | None = None,
        fresh: bool = False,
    ) -> None:
        self.folder = folder
        self.config = write_configuration(folder, config)
        self._log = folder / "daemon.log"
        words = ["run", str(self.config)]
        self.process: subprocess.Popen[bytes] | ForkedProcess
        with self._log.open("wb") as log:
            streams: Any = {"stdin": stdin, "stdout": log, "stderr": log, "env": _environment()}
            if program is not None:
                self.process = subprocess.Popen(program, **streams)
            else:
                self.process = _started(COMMAND, words, fresh, **streams)

    def __enter__(self) -> DaemonProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        stop(self.process, kill=True)
        if self.process.stdin is not None:
            self.process.stdin.close()

    @property
    def log(self) -> str:
        """Everything that it wrote to its standard output and error."""
        return self._log.read_text(encoding="utf-8", errors="replace")

    @property
    def port(self) -> int:
        """The port that it serves on, as it says itself; waits for that."""
        self.until(lambda: "Running: metrics on port" in self.log, "it runs")
        match = re.search(r"Running: metrics on port (\d+) of 127\.0\.0\.1\.", self.log)
        assert match is not None, self.log
        return int(match[1])

    def until(self, done: Callable[[], object], what: str, pause: float = 0.05) -> None:
        """Wait until something is so; AssertionError with the log if it never is, or the process ended."""

        def so_or_ended() -> bool:
            if done():
                return True
            ended = self.process.poll() is not None
            assert not ended or done(), f"it ended with {self.process.returncode} before {what}:\n{self.log}"
            return False

        try:
            wait_until(so_or_ended, what, pause)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.log}") from None

    def get(self, path: str) -> tuple[int, str]:
        """Return status and text of an HTTP answer."""
        try:
            with urllib.request.urlopen(
                f"http://127.0.0.1:{self.port}{path}", timeout=PATIENCE_SECONDS
            ) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def metrics(self) -> Metrics:
        """Return a scrape."""
        status, text = self.get("/metrics")
        assert status == 200
        return Metrics(text)

    def until_value(self, wanted: float | None, name: str, **labels: str) -> None:
        """Wait until a sample has this value."""
        self.until(lambda: self.metrics().value(name, **labels) == wanted, f"{name} {labels} is {wanted}")

    def until_used(self, answers: int) -> None:
        """Wait until `answers` answers are in windows, closed or open, since its counts began."""
        self.until(lambda: self.metrics().used == answers, f"{answers} answers are used")

    def send(self, number: signal.Signals) -> None:
        """Send a signal."""
        self.process.send_signal(number)

    def end(self, number: signal.Signals = signal.SIGTERM) -> tuple[int, float]:
        """Send a signal that ends it; the exit code, and the seconds: more than 2 are those of idle cores."""
        began = time.monotonic()
        self.send(number)
        code = end_of(self.process)
        passed = time.monotonic() - began
        return code, passed if passed <= 2 else passed / slowness()

    def reload(self, config: Mapping[str, Any] | str) -> str:
        """Change the configuration, send SIGHUP, and wait for what it logs of it, which is returned."""
        before = len(self.log)
        write_configuration(self.folder, config)
        self.send(signal.SIGHUP)
        self.until(lambda: re.search(r"The configuration was .*\n", self.log[before:]), "it was reloaded")
        return self.log[before:]


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1", "COLUMNS": "80"}
