"""A receiver of Alertmanager's webhooks that retrains a model, and notes the reason for its new baseline.

    python retrain.py [--listen HOST:PORT] [--pause HOURS] CONFIG PAGE COMMAND…

CONFIG is the agent's configuration, PAGE the address of its page, such as http://127.0.0.1:9109. COMMAND is
the job, which trains and deploys. It gets TASK, MODEL, METRIC and REASON in its environment, and the last
line of its output is the new version of the model. When the agent has answers of this version, it makes a
new baseline, and `blindsight rebaseline` notes the reason, which the chart, the reports and the store show.

One job runs at a time. A model is not retrained again within the pause (24 hours) after its last job, also
if the job failed; each refusal and each failure is printed. TOKEN in the environment is a token of
`export.tokens`.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import subprocess
import sys
import threading
import time
import urllib.parse
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

ALERTS = ("BlindsightObjectiveBreached", "BlindsightOutOfControl")
HOUR = 3600.0
MOST_BYTES = 1 << 20
MOST_JOBS = 100


class Cause(NamedTuple):
    """The model of an alert, its metric, and the sentence of the alert."""

    task: str
    model: str
    metric: str
    reason: str


def causes(notification: dict[str, Any]) -> list[Cause]:
    """Return one cause for each model of a notification, without alerts that ended and alerts of groups."""
    first: dict[tuple[str, str], Cause] = {}
    for alert in notification["alerts"]:
        labels = alert["labels"]
        if alert["status"] == "firing" and labels["alertname"] in ALERTS and not labels.get("group"):
            summary = alert["annotations"].get("summary", labels["alertname"])
            cause = Cause(labels["task"], labels["model"], labels["metric"], summary)
            first.setdefault((cause.task, cause.model), cause)
    return list(first.values())


def say(cause: Cause, words: str) -> None:
    """Print a line about a model."""
    print(f"{time.strftime('%H:%M:%S')} {cause.task}/{cause.model}: {words}", flush=True)


class Retraining:
    """The jobs, one after the other."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._jobs: queue.Queue[Cause] = queue.Queue(MOST_JOBS)
        self._lock = threading.Lock()
        self._last: dict[tuple[str, str], float] = {}  # the start or the end of each model's last job
        threading.Thread(target=self._work, daemon=True).start()

    def start(self, cause: Cause) -> None:
        """Start a job, unless one of the model runs, waits or ended within the pause."""
        model = cause.task, cause.model
        with self._lock:
            since = (time.monotonic() - self._last.get(model, float("-inf"))) / HOUR
            if since < self._options.pause:
                say(cause, f"no job, as its last one was {since:.1f} hours ago: {cause.reason}")
                return
            try:
                self._jobs.put_nowait(cause)
            except queue.Full:
                say(cause, f"no job, as {MOST_JOBS} wait: {cause.reason}")
                return
            self._last[model] = float("inf")

    def _work(self) -> None:
        while True:
            cause = self._jobs.get()
            try:
                self._retrain(cause)
            except (OSError, ValueError, subprocess.SubprocessError) as error:
                say(cause, f"failed, and the alert stays: {error}")
            with self._lock:
                self._last[cause.task, cause.model] = time.monotonic()

    def _retrain(self, cause: Cause) -> None:
        say(cause, f"retraining: {cause.reason}")
        words = dict(zip(("TASK", "MODEL", "METRIC", "REASON"), cause, strict=True))
        job = subprocess.run(
            self._options.command, env=os.environ | words, stdout=subprocess.PIPE, text=True, check=True
        )
        version = (job.stdout.strip().splitlines() or [""])[-1]
        if not version:
            raise ValueError("the job printed no version")
        say(cause, f"version {version} is trained")
        while self._version(cause) != version:
            time.sleep(self._options.poll)
        task, model, metric, reason = cause
        words_of_request = ["--task", task, "--model", model, "--metric", metric]
        reason = f"version {version}, retrained after: {reason}"
        command = ["blindsight", "rebaseline", self._options.config, *words_of_request, "--reason", reason]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
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
        except OSError as error:
            say(cause, f"{address}: {error}; trying again")
            return None
        return next((each["version"] for each in models if each["model"] == cause.model), None)


def handler_of(retraining: Retraining) -> type[BaseHTTPRequestHandler]:
    """Return a handler of Alertmanager's notifications."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            size = int(self.headers.get("Content-Length") or 0)
            try:
                if not 0 < size <= MOST_BYTES:
                    raise ValueError(f"a body of {size} bytes; expected 1 to {MOST_BYTES}")
                for cause in causes(json.loads(self.rfile.read(size))):
                    retraining.start(cause)
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                self.send_error(400, f"no notification of Alertmanager: {error!r}"[:200].replace("\n", " "))
                return
            self.send_response(200)  # before the job ends: Alertmanager waits ten seconds
            self.end_headers()

        def log_message(self, *words: Any) -> None:
            """Print nothing on the request itself."""

    return Handler


def main() -> None:
    """Serve until the process is ended."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--listen", default="127.0.0.1:9096", metavar="HOST:PORT")
    parser.add_argument("--pause", type=float, default=24.0, metavar="HOURS")
    parser.add_argument(
        "--poll", type=float, default=10.0, metavar="SECONDS", help="between looks at the page"
    )
    parser.add_argument("config")
    parser.add_argument("page")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    if not options.command:
        parser.error("expected the command of the job after the page")
    host, _, port = options.listen.rpartition(":")
    with ThreadingHTTPServer((host, int(port)), handler_of(Retraining(options))) as server:
        print(f"Waiting for notifications on {options.listen}.", flush=True)
        server.serve_forever()


if __name__ == "__main__":
    sys.exit(main())
