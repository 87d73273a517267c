"""A receiver of Alertmanager's webhooks that retrains a model, and notes the reason for its new baseline.

    python retrain.py [--listen HOST:PORT] [--pause HOURS] [--job-seconds N] [--wait-seconds N]
        [--state FILE] CONFIG PAGE COMMAND…

CONFIG is the agent's configuration, PAGE the address of its page, such as http://127.0.0.1:9109. COMMAND is
the job, which trains and deploys. It gets TASK, MODEL, METRIC and REASON in its environment, and the last
line of its output is the new version of the model. When the agent has answers of this version, it makes a
new baseline, and `blindsight rebaseline` notes the reason, which the chart, the reports and the store show.

One job runs at a time; while the agent has no answers of a new version yet, the jobs of other models run. A
job is ended after `--job-seconds` (6 hours), and the wait for answers after `--wait-seconds` (1 hour). A
model is not retrained again within the pause (24 hours) after its last job, also if the job failed; each
refusal and each failure is printed. The file of `--state` (retrain.json) keeps the times of the last jobs
over a restart, which forgets the jobs that wait. SIGTERM and Ctrl-C end the running job with all processes
that it started.
TOKEN in the environment is a token of `export.tokens`.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import math
import os
import queue
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

ALERTS = ("BlindsightObjectiveBreached", "BlindsightOutOfControl")
HOUR = 3600.0
MOST_BYTES = 1 << 20
MOST_JOBS = 100
REQUEST_SECONDS = 600.0
SOCKET_SECONDS = 10  # for a whole request: Alertmanager gives up after ten seconds too


class Cause(NamedTuple):
    """The model of an alert, its metric, and the sentence of the alert."""

    task: str
    model: str
    metric: str
    reason: str


def causes(notification: dict[str, Any]) -> list[Cause]:
    """Return one cause for each model of a notification, without alerts that ended and alerts of groups.

    An alert without the labels or the form of a cause is printed and skipped.
    """
    first: dict[tuple[str, str], Cause] = {}
    for alert in notification["alerts"]:
        try:
            cause = cause_of(alert)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            print(f"skipped an alert, which is not on a model of Blindsight: {error!r}"[:300], flush=True)
            continue
        if cause is not None:
            first.setdefault((cause.task, cause.model), cause)
    return list(first.values())


def cause_of(alert: dict[str, Any]) -> Cause | None:
    """Return the cause of an alert; None if it ended, concerns a group or is of another kind."""
    labels = alert["labels"]
    if alert["status"] != "firing" or labels["alertname"] not in ALERTS or labels.get("group"):
        return None
    summary = alert.get("annotations", {}).get("summary", labels["alertname"])
    cause = Cause(labels["task"], labels["model"], labels["metric"], summary)
    for name, value in cause._asdict().items():
        if not isinstance(value, str) or "\0" in value:
            raise ValueError(f"{name}: {value!r}; expected text without a NUL character")
    return cause


def say(cause: Cause, words: str) -> None:
    """Print a line about a model."""
    print(f"{time.strftime('%H:%M:%S')} {cause.task}/{cause.model}: {words}", flush=True)


def end_group(job: subprocess.Popen[str]) -> None:
    """End a job with all processes that it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(job.pid, signal.SIGKILL)


class LastJobs:
    """The time of each model's last job, in a file, so that a restart keeps the pause.

    Parameters
    ----------
    path : Path

    Raises
    ------
    OSError, ValueError, TypeError, OverflowError
        The file is not one of these, or cannot be read or written.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._ended: dict[tuple[str, str], float] = {}
        if path.exists():
            for task, model, ended in json.loads(path.read_text(encoding="utf-8")):
                self._ended[task, model] = float(ended)
                if not math.isfinite(float(ended)):
                    raise ValueError(f"{task}/{model}: {ended!r}; expected a finite time in seconds")
        self._write()

    def hours_since(self, model: tuple[str, str]) -> float:
        """Return the hours since the last job of a model; infinite without one, 0 for a time ahead of now."""
        return max(time.time() - self._ended.get(model, float("-inf")), 0.0) / HOUR

    def note(self, model: tuple[str, str]) -> None:
        """Note that a job of a model has begun or ended now."""
        self._ended[model] = time.time()
        self._write()

    def _write(self) -> None:
        new = self._path.with_name(f"{self._path.name}.new")
        lines = [[*model, ended] for model, ended in self._ended.items()]
        new.write_text(json.dumps(lines), encoding="utf-8")
        new.replace(self._path)


class Retraining:
    """The jobs, one after the other, and the waits for answers of new versions."""

    def __init__(self, options: argparse.Namespace, last: LastJobs) -> None:
        self._options, self._last = options, last
        self._jobs: queue.Queue[Cause] = queue.Queue(MOST_JOBS)
        self._lock = threading.Lock()
        self._busy: set[tuple[str, str]] = set()  # models whose job waits, runs or waits for answers
        self._running: subprocess.Popen[str] | None = None
        self._stopped = False
        threading.Thread(target=self._work, daemon=True).start()

    def stop(self) -> None:
        """End the job that runs, and start no other."""
        with self._lock:
            self._stopped = True
            if self._running is not None:
                end_group(self._running)

    def start(self, cause: Cause) -> None:
        """Start a job, unless one of the model runs, waits or ended within the pause."""
        model = cause.task, cause.model
        with self._lock:
            if model in self._busy:
                say(cause, f"no job, as one runs or waits: {cause.reason}")
                return
            since = self._last.hours_since(model)
            if since < self._options.pause:
                say(cause, f"no job, as its last one was {since:.1f} hours ago: {cause.reason}")
                return
            try:
                self._jobs.put_nowait(cause)
            except queue.Full:
                say(cause, f"no job, as {MOST_JOBS} wait: {cause.reason}")
                return
            self._busy.add(model)

    def _work(self) -> None:
        while True:
            cause = self._jobs.get()
            with self._reported(cause):
                version = self._retrain(cause)
                threading.Thread(target=self._finish, args=(cause, version), daemon=True).start()

    def _finish(self, cause: Cause, version: str) -> None:
        with self._reported(cause):
            self._note_reason(cause, version)
            self._end(cause)

    @contextlib.contextmanager
    def _reported(self, cause: Cause) -> Iterator[None]:
        """Print the failure of a job, which ends it: the next job must run, whatever happens to this one."""
        try:
            yield
        except Exception as error:  # noqa: BLE001
            if not self._stopped:
                say(cause, f"failed, and the alert stays: {error or repr(error)}")
            self._end(cause)

    def _end(self, cause: Cause) -> None:
        with self._lock:
            self._busy.discard((cause.task, cause.model))
            self._note(cause)

    def _note(self, cause: Cause) -> None:
        try:
            self._last.note((cause.task, cause.model))
        except OSError as error:
            say(cause, f"the state cannot be written, so a restart forgets the pause: {error}")

    def _retrain(self, cause: Cause) -> str:
        """Return the version that a job trained."""
        say(cause, f"retraining: {cause.reason}")
        with self._lock:
            self._note(cause)
        words = dict(zip(("TASK", "MODEL", "METRIC", "REASON"), cause, strict=True))
        output = self._output(self._options.command, os.environ | words)
        version = (output.strip().splitlines() or [""])[-1]
        if not version:
            raise ValueError("the job printed no version")
        say(cause, f"version {version} is trained")
        return version

    def _output(self, command: list[str], environment: dict[str, str]) -> str:
        """Return the output of a job. After the limit, end it with all processes that it started."""
        with self._lock:
            if self._stopped:
                raise RuntimeError("the receiver ends")
            self._running = job = subprocess.Popen(
                command, env=environment, stdout=subprocess.PIPE, text=True, start_new_session=True
            )
        with job:
            try:
                output, _ = job.communicate(timeout=self._options.job_seconds)
            except subprocess.TimeoutExpired:
                end_group(job)
                raise
            finally:
                with self._lock:
                    self._running = None
        if job.returncode:
            raise subprocess.CalledProcessError(job.returncode, command)
        return output

    def _note_reason(self, cause: Cause, version: str) -> None:
        """Wait for an answer of a version, and note why it has a new baseline."""
        end = time.monotonic() + self._options.wait_seconds
        while (seen := self._version(cause)) != version:
            if time.monotonic() > end:
                raise TimeoutError(
                    f"no answer of version {version} within {self._options.wait_seconds:g} seconds, the "
                    f"agent's newest is {seen}; deploy it, or raise --wait-seconds"
                )
            time.sleep(self._options.poll)
        task, model, metric, reason = cause
        words_of_request = ["--task", task, "--model", model, "--metric", metric]
        reason = f"version {version}, retrained after: {reason}"
        command = ["blindsight", "rebaseline", self._options.config, *words_of_request, "--reason", reason]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=REQUEST_SECONDS)
        say(cause, done.stdout.strip())

    def _version(self, cause: Cause) -> str | None:
        """Return the version of the model that the agent saw last; None if the agent does not answer."""
        query = urllib.parse.urlencode({"task": cause.task, "name": cause.model, "limit": 500})
        token = os.environ.get("TOKEN")
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        address = f"{self._options.page.rstrip('/')}/api/v1/models?{query}"
        try:
            with urllib.request.urlopen(urllib.request.Request(address, headers=headers), timeout=10) as got:
                models = json.load(got)["models"]
            return next((each["version"] for each in models if each["model"] == cause.model), None)
        except (OSError, http.client.HTTPException) as error:
            say(cause, f"{address}: {error!r}; trying again")
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            say(cause, f"{address}: it is no answer of the agent's page: {error!r}; trying again")
        return None


def handler_of(retraining: Retraining) -> type[BaseHTTPRequestHandler]:
    """Return a handler of Alertmanager's notifications."""

    class Handler(BaseHTTPRequestHandler):
        timeout = SOCKET_SECONDS
        late = False

        def handle(self) -> None:
            """Handle a request, which ends as if the client had closed it if it takes too long."""
            limit = threading.Timer(SOCKET_SECONDS, self._refuse_more)
            limit.daemon = True
            limit.start()
            try:
                super().handle()
            finally:
                limit.cancel()

        def _refuse_more(self) -> None:
            self.late = True
            with contextlib.suppress(OSError):
                self.connection.shutdown(socket.SHUT_RD)

        def do_POST(self) -> None:
            try:
                size = int(self.headers.get("Content-Length") or 0)
                if not 0 < size <= MOST_BYTES:
                    raise ValueError(f"a body of {size} bytes; expected 1 to {MOST_BYTES}")
                body = self.rfile.read(size)
                if self.late:
                    raise TimeoutError
                if len(body) < size:
                    raise ValueError(f"a body of {len(body)} bytes; expected {size}")
                for cause in causes(json.loads(body)):
                    retraining.start(cause)
            except TimeoutError:
                self.send_error(408, f"no whole body within {SOCKET_SECONDS} seconds")
                return
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
                self.send_error(400, f"no notification of Alertmanager: {error!r}"[:200].replace("\n", " "))
                return
            self.send_response(200)  # before the job ends: Alertmanager waits ten seconds
            self.end_headers()

        def log_message(self, *words: Any) -> None:
            """Print nothing on the request itself."""

    return Handler


def listen_address(text: str) -> tuple[str, int]:
    """Return the host and the port of an address such as ``127.0.0.1:9096`` or ``[::1]:9096``."""
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
        raise argparse.ArgumentTypeError(
            f"{text!r}; expected HOST:PORT, such as 127.0.0.1:9096 or [::1]:9096"
        )
    return host, int(port)


def positive(text: str) -> float:
    """Return a number that is positive and finite."""
    if not 0 < float(text) < threading.TIMEOUT_MAX:
        raise argparse.ArgumentTypeError(f"{text!r}; expected a number above 0")
    return float(text)


def not_negative(text: str) -> float:
    """Return a number that is finite and not below 0."""
    if not 0 <= float(text) < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r}; expected a finite number, 0 or above")
    return float(text)


def parser_of_options() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(
        usage=(__doc__ or "").partition("python ")[2].partition("\n\n")[0],
        description=(__doc__ or "").partition("\n")[0],
        epilog="A restart forgets the jobs that wait.",
    )
    parser.add_argument("--listen", type=listen_address, default="127.0.0.1:9096", metavar="HOST:PORT")
    parser.add_argument(
        "--pause", type=not_negative, default=24.0, metavar="HOURS", help="between jobs of a model"
    )
    seconds: dict[str, Any] = {"type": positive, "metavar": "SECONDS"}
    parser.add_argument("--job-seconds", default=6 * HOUR, help="the longest time of a job", **seconds)
    parser.add_argument(
        "--wait-seconds", default=HOUR, help="the longest wait for answers of the new version", **seconds
    )
    parser.add_argument("--poll", default=10.0, help="between looks at the page", **seconds)
    parser.add_argument(
        "--state", type=Path, default=Path("retrain.json"), metavar="FILE", help="the times of the last jobs"
    )
    parser.add_argument("config")
    parser.add_argument("page")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    return parser


def main() -> None:
    """Serve until the process is ended."""
    parser = parser_of_options()
    options = parser.parse_args()
    if not options.command:
        parser.error("expected the command of the job after the page")
    if not options.page.startswith(("http://", "https://")):
        parser.error(f"page: {options.page!r}; expected its address, such as http://127.0.0.1:9109")
    for command in (options.command[0], "blindsight"):
        if shutil.which(command) is None:
            parser.error(f"there is no command {command!r}; install it, or add its folder to PATH")
    try:
        last = LastJobs(options.state)
    except (OSError, ValueError, TypeError, OverflowError) as error:
        parser.error(f"--state: {options.state} cannot be used: {error}; correct it, or give another file")
    host, port = options.listen
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    retraining = Retraining(options, last)

    class Server(ThreadingHTTPServer):
        address_family = socket.AF_INET6 if ":" in host else socket.AF_INET

    try:
        with Server((host, port), handler_of(retraining)) as server:
            print(f"Waiting for notifications on {host}, port {port}.", flush=True)
            server.serve_forever()
    except KeyboardInterrupt:
        pass
    finally:
        retraining.stop()


if __name__ == "__main__":
    sys.exit(main())
