"""A job of retrain.py that runs the DAG of airflow_dag.py, and prints the version that it trained.

    python retrain.py CONFIG PAGE python airflow_job.py

AIRFLOW_URL is the address of Airflow 3, such as http://127.0.0.1:8080. AIRFLOW_USERNAME and AIRFLOW_PASSWORD
are exchanged for a token, unless AIRFLOW_TOKEN has one. The user may start the DAG and read runs and XComs.
The job ends when the run has ended; retrain.py ends it after `--job-seconds`, and the run continues.
"""

from __future__ import annotations

import http.client
import json
import os
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from typing import Any

CAUSE = ("TASK", "MODEL", "METRIC", "REASON")
RUNS = "/api/v2/dags/retrain/dagRuns"
POLL_SECONDS = 5.0
TRIES = 60  # of a look at a run, while Airflow does not answer
NO_ANSWER = (OSError, http.client.HTTPException, ValueError)  # ValueError: what comes is not whole JSON


def ask(path: str, body: dict[str, Any] | None = None, token: str = "") -> dict[str, Any]:
    """Return Airflow's answer to a GET, or to a POST of a body; end the job if Airflow refuses it."""
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(os.environ["AIRFLOW_URL"].rstrip("/") + path, data, headers)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            content: dict[str, Any] = json.load(answer)
            return content
    except urllib.error.HTTPError as error:
        with error:
            words = " ".join(error.read(1000).decode(errors="replace").split())
        sentence = f"{path}: Airflow answered {error.code}: {words}"
        raise (OSError(sentence) if error.code >= 500 else SystemExit(sentence)) from error


def look(path: str, token: str) -> dict[str, Any]:
    """Return Airflow's answer to a GET; try again while Airflow cannot be reached or fails."""
    for _ in range(TRIES - 1):
        try:
            return ask(path, token=token)
        except NO_ANSWER as error:
            print(f"{path}: {error!r}; trying again", file=sys.stderr, flush=True)
        time.sleep(POLL_SECONDS)
    return ask(path, token=token)


def main() -> None:
    """Check the environment, run the DAG, and print the version."""
    token = os.environ.get("AIRFLOW_TOKEN", "")
    needed = ("AIRFLOW_URL", *(() if token else ("AIRFLOW_USERNAME", "AIRFLOW_PASSWORD")), *CAUSE)
    if missing := [name for name in needed if name not in os.environ]:
        raise SystemExit(f"missing in the environment: {', '.join(missing)}; set each of them")
    url = os.environ["AIRFLOW_URL"]
    if not url.startswith(("http://", "https://")):
        raise SystemExit(f"AIRFLOW_URL: {url!r}; expected its address, such as http://127.0.0.1:8080")
    try:
        print(run_dag(token))
    except (*NO_ANSWER, KeyError, TypeError) as error:
        remedy = "start Airflow, or correct the address"
        raise SystemExit(
            f"AIRFLOW_URL: {url} does not answer as Airflow 3 does: {error!r}; {remedy}"
        ) from error


def run_dag(token: str) -> str:
    """Start a run, wait until it has ended, and return the version."""
    if not token:
        user = {"username": os.environ["AIRFLOW_USERNAME"], "password": os.environ["AIRFLOW_PASSWORD"]}
        token = ask("/auth/token", user)["access_token"]
    conf = {name: os.environ[name] for name in CAUSE}
    run = ask(RUNS, {"logical_date": None, "conf": conf, "note": conf["REASON"][:1000]}, token)
    address = f"{RUNS}/{urllib.parse.quote(run['dag_run_id'], safe='')}"
    while run["state"] not in ("success", "failed"):
        time.sleep(POLL_SECONDS)
        run = look(address, token)
    if run["state"] == "failed":
        raise SystemExit(f"{run['dag_run_id']}: the run failed; its log is on Airflow's page")
    return str(look(f"{address}/taskInstances/train/xcomEntries/return_value", token)["value"])


if __name__ == "__main__":
    main()
