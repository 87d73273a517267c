"""The hooks: an alert retrains a model, and the reason for its new baseline stands in its timeline."""

from __future__ import annotations

import json
import os
import re
import runpy
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import reduce
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import numpy as np
import pytest
import yaml

from tests.daemon import DaemonProcess, configuration, ndjson, read_windows
from tests.export.rules.test_end_to_end import DEGRADED
from tests.harness import ROOT
from tests.recipes.page import blocks
from tests.services.alertmanager_server import AlertmanagerServer, example
from tests.services.process import PATIENCE_SECONDS, free_ports, stop, wait_until
from tests.services.webhook import LocalServer, Webhook
from tests.streams import ORIGINAL, answers

FOLDER = ROOT / "deploy" / "hooks"
JOB = """\
import os
import sys

with open(sys.argv[2], "rb") as new, open(sys.argv[1], "ab") as stream:
    stream.write(new.read())  # version 2 begins to answer
print("trained", os.environ["TASK"], os.environ["MODEL"], os.environ["METRIC"])
print(2)
"""


@contextmanager
def hook(
    folder: Path, *words: str, page: str = "http://127.0.0.1:9", limits: Sequence[str] = ()
) -> Iterator[tuple[str, Callable[[], str]]]:
    """Run the receiver; yield its address, and a function that returns what it printed."""
    programs = folder / "bin"
    programs.mkdir(exist_ok=True)
    (programs / "blindsight").write_text(f'#!/bin/sh\nexec {sys.executable} -m monitor.cli "$@"\n')
    (programs / "blindsight").chmod(0o755)
    listen = f"127.0.0.1:{free_ports(1)[0]}"
    state = ["--state", str(folder / "retrain.json")]
    options = ["--listen", listen, "--poll", "0.2", *state, *limits, str(folder / "config.yaml"), page]
    path = f"{programs}:{os.environ['PATH']}"
    log = folder / "hook.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, str(FOLDER / "retrain.py"), *options, *words],
            env={**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)},
            stdout=out,
            stderr=subprocess.STDOUT,
        )
    try:
        wait_until(lambda: "Waiting for notifications" in log.read_text(), "it listens")
        yield f"http://{listen}", log.read_text
    finally:
        stop(process)


def notification(**labels: object) -> dict[str, Any]:
    """Return a notification of Alertmanager about one alert on the accuracy of a model."""
    own: dict[str, object] = {
        "alertname": "BlindsightOutOfControl",
        "task": "t",
        "model": "erm",
        "metric": "accuracy",
    } | labels
    summary = "t/erm: accuracy about 76 % (70 to 80)"
    alert = {"status": "firing", "labels": own, "annotations": {"summary": summary}}
    return {"version": "4", "status": "firing", "groupLabels": {}, "alerts": [alert]}


def post(address: str, body: object) -> int:
    """Post a body as JSON, and return the status of the answer."""
    request = urllib.request.Request(address, json.dumps(body).encode(), {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_SECONDS) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def routes_to(address: str, webhook: Webhook) -> str:
    """Return the shipped example of Alertmanager with the receivers of docs/alerts.md and a webhook's."""
    routes = yaml.safe_load(example(webhook.url))
    (text,) = (b.text for b in blocks(ROOT / "docs" / "alerts.md") if b.text.startswith("receivers:"))
    shown = yaml.safe_load(text.replace("http://127.0.0.1:9096", address))["receivers"]
    names = {each["name"] for each in shown}
    routes["receivers"] = [*(each for each in routes["receivers"] if each["name"] not in names), *shown]
    for receiver in routes["receivers"]:
        receiver.setdefault("webhook_configs", []).append(
            {"url": f"{webhook.url}/seen", "send_resolved": True}
        )
    return yaml.safe_dump(routes)


def is_running(process: int) -> bool:
    """Return whether a process runs; one that has ended, but has not been waited for, does not."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(") ")[2][0] != "Z"
    except OSError:
        return False


def value_at(notice: dict[str, Any], key: str) -> Any:
    """Return the value at a key of an Argo sensor, such as ``body.alerts.0.labels.model``."""
    event: Any = {"body": notice}
    return reduce(lambda part, name: part[int(name) if name.isdigit() else name], key.split("."), event)


def test_an_alert_retrains_the_model_and_the_reason_is_in_its_timeline(
    tmp_path: Path, alertmanager: Callable[[str], AlertmanagerServer], webhook: Webhook
) -> None:
    rng, stream = np.random.default_rng(20), tmp_path / "in.ndjson"

    def rows(n: int, start: float, version: int, weights: tuple[float, ...] = ORIGINAL) -> bytes:
        return ndjson(answers(rng, n, "erm", weights, start=start, version=str(version)))

    stream.write_bytes(rows(800, 1.7e9, 1))
    (tmp_path / "version-2.ndjson").write_bytes(rows(150, 1.7e9 + 2000, 2))
    (tmp_path / "job.py").write_text(JOB)
    page, job = free_ports(1)[0], [sys.executable, str(tmp_path / "job.py"), str(stream)]
    with hook(tmp_path, *job, str(tmp_path / "version-2.ndjson"), page=f"http://127.0.0.1:{page}") as (
        address,
        log,
    ):
        server = alertmanager(routes_to(address, webhook))
        settings = configuration(
            sources=[{"kind": "file", "path": "in.ndjson", "follow": True}],
            store={"path": "state"},
            reports={"path": "windows.ndjson"},
            alertmanager={"urls": [server.url], "resend_seconds": 1},
        ) | {"export": {"listen": f"127.0.0.1:{page}"}}
        with DaemonProcess(tmp_path, settings) as daemon:
            daemon.until_value(8.0, "windows_closed_total", model="erm")
            with stream.open("ab") as file:
                file.write(rows(600, 1.7e9 + 800, 1, DEGRADED))
            daemon.until(lambda: "complete its new baseline" in log(), "the model is retrained")
            with stream.open("ab") as file:
                file.write(rows(900, 1.7e9 + 2150, 2))
            daemon.until_value(24.0, "windows_closed_total", model="erm")
            wanted = "version 2, retrained after: t/erm: accuracy fell from "
            daemon.until(
                lambda: wanted in (tmp_path / "windows.ndjson").read_text(), "the reason is reported"
            )
            chart = json.loads(daemon.get("/api/v1/chart?task=t&model=erm&metric=accuracy")[1])
            assert wanted in json.dumps(chart)
            assert daemon.metrics().value("out_of_control", model="erm", metric="accuracy") == 0
    assert log().count("retraining: ") == 1
    reasons = [
        (window["version"], each["metric"], each["reason"])
        for window in read_windows(tmp_path / "windows.ndjson")
        for each in window.get("rebaselined", [])
    ]
    assert [(version, metric) for version, metric, _ in reasons] == [("2", "accuracy")]
    assert reasons[0][2].startswith(wanted)
    sensor = list(yaml.safe_load_all((FOLDER / "argo.yaml").read_text()))[1]
    notice = webhook.matching("/seen", "firing", model="erm")[0]
    (trigger,) = sensor["spec"]["triggers"]
    sources = [each["src"] for each in trigger["template"]["argoWorkflow"]["parameters"]]
    values = [value_at(notice, each["dataKey"]) for each in sources]
    assert values[:3] == ["t", "erm", "accuracy"]
    assert values[3].startswith("t/erm: accuracy fell from ")
    for each in sensor["spec"]["dependencies"][0]["filters"]["data"]:
        assert value_at(notice, each["path"]) in each["value"]
    script = sensor["spec"]["dependencies"][0]["filters"]["script"]
    label, empty = re.findall(r"event\.body\.alerts\[1\]\.labels\.(\w+)\n(?s:.*) or group == (\S+)", script)[
        0
    ]
    assert label in notification(group="region=eu")["alerts"][0]["labels"]
    assert notice["alerts"][0]["labels"].get(label, "") == json.loads(empty)


def test_a_breach_retrains_as_a_warning_does_but_a_shared_change_does_not(
    tmp_path: Path, alertmanager: Callable[[str], AlertmanagerServer], webhook: Webhook
) -> None:
    alerts = [
        notification(model=model, alertname=f"Blindsight{name}", severity=severity)["alerts"][0]
        for model, name, severity in (
            ("shared", "SharedChange", "mutes-critical"),
            ("shared", "ObjectiveBreached", "critical"),
            ("breached", "ObjectiveBreached", "critical"),
            ("moved", "OutOfControl", "warning"),
        )
    ]
    sent = [{key: alert[key] for key in ("labels", "annotations")} for alert in alerts]
    with hook(tmp_path, "false") as (address, log):
        server = alertmanager(routes_to(address, webhook))
        assert post(f"{server.url}/api/v2/alerts", sent) == 200
        wait_until(lambda: "t/breached: failed" in log() and "t/moved: failed" in log(), "both jobs run")
        wait_until(lambda: webhook.matching("/seen", "firing", model="shared"), "the shared change is seen")
    assert "t/shared" not in log()


@pytest.mark.slow
def test_a_job_that_fails_is_printed_and_is_not_tried_again_within_the_pause(tmp_path: Path) -> None:
    with hook(tmp_path, "false") as (address, log):
        other = notification(alertname="BlindsightFeatureDrifted", model="other")
        group = notification(group="region=eu", model="other")
        ended = notification(model="other")
        ended["alerts"][0]["status"] = "resolved"
        for ignored in (other, group, ended):
            assert post(address, ignored) == 200
        assert post(address, notification()) == 200
        wait_until(
            lambda: "t/erm: failed, and the alert stays: Command '['false']'" in log(), "it is printed"
        )
        wait_until(lambda: post(address, notification()) == 200 and "hours ago" in log(), "it is refused")
        assert "t/erm: no job, as its last one was 0.0 hours ago: t/erm: accuracy about 76 %" in log()
        assert post(address, ["no notification"]) == 400
        assert post(address, {"alerts": 3}) == 400
    assert "other" not in log()
    assert log().count("retraining: ") == 1


@pytest.mark.slow
def test_a_job_without_a_version_changes_nothing(tmp_path: Path) -> None:
    with hook(tmp_path, "true") as (address, log):
        assert post(address, notification()) == 200
        wait_until(
            lambda: "failed, and the alert stays: the job printed no version" in log(), "it is printed"
        )


@pytest.mark.slow
def test_alerts_of_another_form_are_skipped_and_each_model_has_its_job(tmp_path: Path) -> None:
    with hook(tmp_path, "false") as (address, log):
        whole, number, nameless = notification(), notification(metric=5), notification(model="other")
        del nameless["alerts"][0]["labels"]["metric"]
        assert (
            post(address, {"alerts": [{}, *number["alerts"], *nameless["alerts"], *whole["alerts"]]}) == 200
        )
        assert post(address, notification(model="next")) == 200
        wait_until(lambda: "t/erm: failed" in log() and "t/next: failed" in log(), "both jobs run")
    assert log().count("skipped an alert") == 3
    assert "metric: 5; expected text" in log()
    assert "t/other" not in log()


@pytest.mark.slow
def test_a_request_of_another_form_is_refused(tmp_path: Path) -> None:
    def answer(address: str, request: bytes) -> bytes:
        host, _, port = address.removeprefix("http://").partition(":")
        with socket.create_connection((host, int(port)), PATIENCE_SECONDS) as connection:
            connection.sendall(b"POST / HTTP/1.1\r\n" + request)
            return connection.recv(1000)

    deep = b'{"alerts":' + b"[" * 200_000
    with hook(tmp_path, "false") as (address, log):
        assert b" 400 " in answer(address, b"Content-Length: x\r\n\r\n")
        assert b" 400 " in answer(address, b"Content-Length: %d\r\n\r\n" % len(deep) + deep)
        assert b" 408 " in answer(address, b"Content-Length: 100\r\n\r\nab")
    assert "Traceback" not in log()


@pytest.mark.slow
def test_a_job_and_a_version_that_do_not_come_end_and_the_next_job_runs(tmp_path: Path) -> None:
    child = tmp_path / "child"
    job = ["sh", "-c", f"sleep 600 & echo $! >> {child}; wait"]
    with hook(tmp_path, *job, limits=["--job-seconds", "2"]) as (address, log):
        assert post(address, notification()) == 200
        assert post(address, notification(model="next")) == 200
        assert post(address, notification(model="next")) == 200
        wait_until(lambda: "t/next: failed" in log(), "both jobs end")
        assert "timed out after 2.0 seconds" in log()
        assert "t/next: no job, as one runs or waits: " in log()
        ids = child.read_text().split()
        wait_until(lambda: not any(is_running(int(each)) for each in ids), "what the jobs started ends")
    assert len(ids) == 2


@pytest.mark.slow
def test_a_restart_keeps_the_pause_and_ends_the_job_that_runs(tmp_path: Path) -> None:
    child, state = tmp_path / "child", tmp_path / "retrain.json"
    with hook(tmp_path, "sh", "-c", f"sleep 600 & echo $! > {child}; wait") as (address, log):
        assert post(address, notification()) == 200
        wait_until(lambda: child.exists() and child.read_text().endswith("\n"), "the job runs")
        running = int(child.read_text())
        assert is_running(running)
    wait_until(lambda: not is_running(running), "the job ends with the receiver")
    assert "failed" not in log()
    ((task, model, _),) = json.loads(state.read_text())
    assert (task, model) == ("t", "erm")
    with hook(tmp_path, "false") as (address, log):
        assert post(address, notification()) == 200
        wait_until(lambda: "t/erm: no job, as its last one was 0.0 hours ago" in log(), "it is refused")
    state.write_text(json.dumps([["t", "erm", 0.0]]))
    with hook(tmp_path, "false") as (address, log):
        assert post(address, notification()) == 200
        wait_until(lambda: "t/erm: failed" in log(), "a job runs after the pause")


@pytest.mark.slow
def test_a_job_runs_while_another_model_waits_for_answers(tmp_path: Path) -> None:
    with hook(tmp_path, "sh", "-c", 'test "$MODEL" = erm && echo 2') as (address, log):
        assert post(address, notification()) == 200
        assert post(address, notification(model="next")) == 200
        wait_until(lambda: "t/next: failed" in log(), "the next job runs")
        assert "t/erm: version 2 is trained" in log()
        assert post(address, notification()) == 200
        wait_until(lambda: "t/erm: no job, as one runs or waits" in log(), "it still waits")


@pytest.mark.slow
@pytest.mark.parametrize("request_start", [b"", b"POST / HTTP/1.1\r\nContent-Length: 1000\r\n\r\n"])
def test_a_client_that_sends_a_byte_now_and_then_is_cut_off(tmp_path: Path, request_start: bytes) -> None:
    with hook(tmp_path, "false") as (address, _):
        host, _, port = address.removeprefix("http://").partition(":")
        with socket.create_connection((host, int(port)), PATIENCE_SECONDS) as connection:
            connection.sendall(request_start)
            connection.settimeout(1.0)
            answer = b"none yet"
            for _ in range(int(PATIENCE_SECONDS)):
                try:
                    connection.sendall(b"x")
                    answer = connection.recv(1000)
                except TimeoutError:
                    continue
                except (BrokenPipeError, ConnectionResetError):
                    answer = b""
                break
    assert answer != b"none yet"
    assert not request_start or b" 408 " in answer


@pytest.mark.slow
def test_a_page_of_another_program_and_a_version_without_answers_end_the_wait(tmp_path: Path) -> None:
    bodies = [b'{"x": 1}', b"no JSON", b'{"models": [{"model": "erm", "version": "1"}]}']

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = bodies.pop(0) if len(bodies) > 1 else bodies[0]
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *words: Any) -> None:
            """Write nothing on standard error."""

    limits = ["--wait-seconds", "2"]
    with (
        LocalServer(Page) as page,
        hook(tmp_path, "echo", "2", page=page.url, limits=limits) as (address, log),
    ):
        assert post(address, notification()) == 200
        assert post(address, notification(model="next")) == 200
        wait_until(lambda: "t/next: failed" in log(), "both waits end")
    assert log().count("it is no answer of the agent's page") == 2
    wanted = (
        "no answer of version 2 within 2 seconds, the agent's newest is 1; deploy it, or raise --wait-seconds"
    )
    assert f"t/erm: failed, and the alert stays: {wanted}" in log()
    assert f"t/next: failed, and the alert stays: {wanted.replace('is 1', 'is None')}" in log()


@pytest.mark.slow
def test_the_start_names_an_address_and_a_command_that_cannot_work(tmp_path: Path) -> None:
    def run(*words: str, path: Path = tmp_path) -> str:
        command = [sys.executable, str(FOLDER / "retrain.py"), *words]
        done = subprocess.run(
            command, env={"PATH": str(path)}, capture_output=True, text=True, timeout=PATIENCE_SECONDS
        )
        assert done.returncode == 2
        return done.stderr

    page = "http://127.0.0.1:9"
    for wrong in ("19556", ":19556", "127.0.0.1:x", "127.0.0.1:70000"):
        wanted = f"'{wrong}'; expected HOST:PORT, such as 127.0.0.1:9096 or [::1]:9096"
        assert wanted in run("--listen", wrong, "config.yaml", page, "true")
    assert "page: 'p'; expected its address, such as http://127.0.0.1:9109" in run("config.yaml", "p", "true")
    assert "'0'; expected a number above 0" in run("--wait-seconds", "0", "config.yaml", page, "true")
    for wrong in ("nan", "-1", "inf"):
        wanted = f"--pause: '{wrong}'; expected a finite number, 0 or above"
        assert wanted in run(f"--pause={wrong}", "config.yaml", page, "true")
    job = tmp_path / "job"
    job.write_text("")
    job.chmod(0o755)
    state = tmp_path / "state"
    state.write_text("{}[")
    (tmp_path / "blindsight").symlink_to(job)
    wanted = f"--state: {state} cannot be used: "
    assert wanted in run("--state", str(state), "config.yaml", page, "job")
    for ended in ("NaN", "Infinity", '"nan"', "1e999"):
        state.write_text(f'[["t", "erm", {ended}]]')
        shown = repr(json.loads(ended))
        wanted = f"{state} cannot be used: t/erm: {shown}; expected a finite time in seconds; correct it, or"
        assert wanted in run("--state", str(state), "config.yaml", page, "job")
    state.write_text(f'[["t", "erm", 1{"0" * 400}]]')
    assert f"--state: {state} cannot be used: " in run("--state", str(state), "config.yaml", page, "job")
    (tmp_path / "blindsight").unlink()
    assert "there is no command 'nonesuch'; install it" in run("config.yaml", page, "nonesuch")
    assert "there is no command 'blindsight'; install it, or add its folder to PATH" in run(
        "config.yaml", page, "job"
    )


@pytest.mark.slow
def test_it_listens_on_an_address_of_ipv6(tmp_path: Path) -> None:
    listen = f"[::1]:{free_ports(1)[0]}"
    with hook(tmp_path, "false", limits=["--listen", listen]) as (_, log):
        assert post(f"http://{listen}", notification()) == 200
        wait_until(lambda: "t/erm: failed" in log(), "the job runs")


# ── Airflow ──


class Airflow(BaseHTTPRequestHandler):
    """Answers as Airflow 3.3.2 does, for a DAG whose run ends after two looks."""

    FAULTS: ClassVar[dict[str, bytes]] = {  # of a look
        "fails": b"HTTP/1.0 503 x\r\n\r\n<p>Service\nUnavailable",
        "of another form": b"no HTTP\r\n\r\n",
        "cut off by length": b'HTTP/1.0 200 OK\r\nContent-Length: 99\r\n\r\n{"state": ',
        "cut off": b'HTTP/1.0 200 OK\r\n\r\n{"dag_run_id": "m", "sta',
    }
    runs: ClassVar[dict[str, list[str]]]
    posted: ClassVar[list[dict[str, Any]]]

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.posted.append(body)
        if self.path == "/auth/token":
            known = body == {"username": "hook", "password": "secret"}
            self.say(*((201, {"access_token": "t0k"}) if known else (401, {"detail": "Invalid credentials"})))
        elif self.headers["Authorization"] != "Bearer t0k":
            self.say(401, {"detail": "Not authenticated"})
        elif "logical_date" not in body:
            missing = {"type": "missing", "loc": ["body", "logical_date"], "msg": "Field required"}
            self.say(422, {"detail": [missing]})
        else:
            self.say(200, self.run_of("manual__2026-11-29T01:23:22+00:00"))

    def next_state(self) -> str:
        states = self.runs["states"]
        return states.pop(0) if len(states) > 1 else states[0]

    def do_GET(self) -> None:
        if self.runs["states"][0] in self.FAULTS:
            self.wfile.write(self.FAULTS[self.next_state()])
            return
        path = self.path.removeprefix(
            "/api/v2/dags/retrain/dagRuns/manual__2026-11-29T01%3A23%3A22%2B00%3A00"
        )
        if path == "/taskInstances/train/xcomEntries/return_value":
            self.say(200, {"key": "return_value", "dag_id": "retrain", "task_id": "train", "value": "7"})
        elif path:
            self.say(404, {"detail": f"no {path}"})
        else:
            self.say(200, self.run_of("manual__2026-11-29T01:23:22+00:00"))

    def run_of(self, name: str) -> dict[str, Any]:
        state = self.next_state()
        return {"dag_run_id": name, "dag_id": "retrain", "logical_date": None, "state": state}

    def say(self, status: int, body: object) -> None:
        self.send_response(status)
        self.end_headers()
        self.wfile.write(json.dumps(body).encode())

    def log_message(self, *words: Any) -> None:
        """Write nothing on standard error."""


def run_airflow_job(
    *states: str, **environment: str
) -> tuple[subprocess.CompletedProcess[str], list[dict[str, Any]]]:
    """Run airflow_job.py against an Airflow whose run has these states; return it, and what it posted."""
    Airflow.runs, Airflow.posted = {"states": list(states)}, []
    cause = {"TASK": "delay", "MODEL": "erm", "METRIC": "accuracy", "REASON": 'fell by "3" points {{ x }}'}
    login = {"AIRFLOW_USERNAME": "hook", "AIRFLOW_PASSWORD": "secret"}
    with LocalServer(Airflow) as server:
        done = subprocess.run(
            [sys.executable, "-c", FAST, str(FOLDER / "airflow_job.py")],
            env={"AIRFLOW_URL": f"{server.url}/", **login, **cause, **environment},
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
        )
    return done, Airflow.posted


FAST = """\
import runpy, sys, time
time.sleep = lambda seconds: None
runpy.run_path(sys.argv[1], run_name="__main__")
"""


@pytest.mark.slow
def test_a_job_runs_the_dag_and_prints_the_version_of_its_run() -> None:
    done, (login, posted) = run_airflow_job("queued", "running", "success")
    assert (done.returncode, done.stdout, done.stderr) == (0, "7\n", "")
    assert login == {"username": "hook", "password": "secret"}
    assert posted["logical_date"] is None
    reason = 'fell by "3" points {{ x }}'
    assert posted["conf"] == {"TASK": "delay", "MODEL": "erm", "METRIC": "accuracy", "REASON": reason}
    done, posts = run_airflow_job("success", AIRFLOW_TOKEN="t0k")
    assert (done.stdout, len(posts)) == ("7\n", 1)


@pytest.mark.slow
def test_a_job_of_airflow_that_fails_says_why() -> None:
    failed, _ = run_airflow_job("queued", "failed")
    assert (failed.returncode, failed.stdout) == (1, "")
    assert "manual__2026-11-29T01:23:22+00:00: the run failed; its log is on Airflow's page" in failed.stderr
    refused, _ = run_airflow_job("success", AIRFLOW_PASSWORD="x")
    assert refused.returncode == 1
    assert '/auth/token: Airflow answered 401: {"detail": "Invalid credentials"}' in refused.stderr
    done = subprocess.run(
        [sys.executable, str(FOLDER / "airflow_job.py")],
        env={"AIRFLOW_TOKEN": "t", "TASK": "delay", "MODEL": "erm", "METRIC": "accuracy"},
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
    )
    assert done.stderr == "missing in the environment: AIRFLOW_URL, REASON; set each of them\n"


@pytest.mark.slow
def test_an_airflow_that_fails_for_a_while_does_not_fail_the_job() -> None:
    done, _ = run_airflow_job("running", *Airflow.FAULTS, "running", "success")
    assert (done.returncode, done.stdout) == (0, "7\n")
    assert done.stderr.count("; trying again\n") == len(done.stderr.splitlines()) == len(Airflow.FAULTS)
    assert "Airflow answered 503: <p>Service Unavailable" in done.stderr
    done, _ = run_airflow_job("running", "fails")
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (1, "", 60)
    assert done.stderr.endswith("; start Airflow, or correct the address\n")


@pytest.mark.slow
def test_an_address_without_an_airflow_is_named_in_one_line() -> None:
    port = free_ports(1)[0]
    for address, says in (
        ("127.0.0.1:8080", "'127.0.0.1:8080'; expected its address, such as http://127.0.0.1:8080"),
        (f"http://127.0.0.1:{port}", f"http://127.0.0.1:{port} does not answer as Airflow 3 does: URLError("),
        ("http://127.0.0.1:x", "http://127.0.0.1:x does not answer as Airflow 3 does: InvalidURL("),
    ):
        done, posted = run_airflow_job("success", AIRFLOW_URL=address)
        assert (done.returncode, done.stdout, posted) == (1, "", [])
        assert done.stderr.startswith(f"AIRFLOW_URL: {says}")
        assert done.stderr.count("\n") == 1
    assert done.stderr.endswith("; start Airflow, or correct the address\n")


@pytest.mark.slow
def test_the_dag_gives_the_cause_to_the_job_and_returns_its_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The decorators of Airflow are replaced; by hand the file has run in Airflow 3.3.2."""
    tasks: list[Callable[..., str]] = []
    sdk = ModuleType("airflow.sdk")
    sdk.Param = lambda default, **schema: default  # type: ignore[attr-defined]
    sdk.dag = lambda **settings: lambda function: function  # type: ignore[attr-defined]
    sdk.task = lambda function: lambda: tasks.append(function)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "airflow", ModuleType("airflow"))
    monkeypatch.setitem(sys.modules, "airflow.sdk", sdk)
    runpy.run_path(str(FOLDER / "airflow_dag.py"))
    job = tmp_path / "job.py"
    job.write_text("import os, sys\nprint(os.environ['REASON'], sys.argv[1])\nprint(2)\n")
    monkeypatch.setenv("RETRAIN_COMMAND", f"{sys.executable} {job} fast")
    params = {"TASK": "delay", "MODEL": "erm", "METRIC": "accuracy", "REASON": "{{ fell }}"}
    assert tasks[0](params=params) == "2"
