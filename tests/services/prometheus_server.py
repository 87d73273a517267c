"""A real Prometheus (Debian's package `prometheus`) that scrapes what a test exports, and promtool's lint."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.services.process import (
    PATIENCE_SECONDS,
    ServiceUnavailable,
    free_ports,
    programs_a_core,
    started,
    stop,
)


def binary(name: str) -> str:
    """Return the path of a program of the package `prometheus`.

    Raises
    ------
    ServiceUnavailable
        It is not installed.
    """
    path = shutil.which(name)
    if path is None:
        raise ServiceUnavailable(f"`{name}` is missing: run .ci/install-services.sh")
    return path


def promtool_check_metrics(text: str) -> list[str]:
    """Return the faults that ``promtool check metrics`` finds in a classic text exposition; empty if none."""
    done = subprocess.run(
        [binary("promtool"), "check", "metrics"],
        input=text,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS * programs_a_core(),
        check=False,
    )
    lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    if done.returncode != 0 and not lines:
        return [f"promtool check metrics ended with {done.returncode}"]
    return lines


def promtool_check_rules(text: str) -> list[str]:
    """Return the faults that ``promtool check rules`` finds in a rule file, lint included; empty if none."""
    code, lines = _promtool(
        ["check", "rules", "--lint=all", "--lint-fatal", "rules.yaml"], {"rules.yaml": text}
    )
    return lines if code else []


def promtool_test_rules(questions: Sequence[tuple[str, str]]) -> list[list[str]]:
    """Return the failures that one ``promtool test rules`` finds in each of many tests; empty if none.

    Parameters
    ----------
    asked : sequence of pairs
        A rule file's text, and the test file's in JSON, without `rule_files`.
    """
    files: dict[str, str] = {}
    rules: dict[str, str] = {}
    for number, (text, tests) in enumerate(questions):
        name = rules.setdefault(text, f"rules_{len(rules)}.yaml")
        files[f"tests_{number}.yaml"] = json.dumps({"rule_files": [name], **json.loads(tests)})
    words = ["test", "rules", *files]
    _, lines = _promtool(words, files | {name: text for text, name in rules.items()})
    failures: list[list[str]] = [[] for _ in questions]
    at: int | None = None
    for line in lines:
        if heading := re.fullmatch(r"Unit Testing:\s+tests_(\d+)\.yaml", line.strip()):
            at = int(heading[1])
        else:
            assert at is not None, line
            failures[at].append(line)
    return [
        [] if [line.strip() for line in of_test] == ["SUCCESS"] else of_test or ["no verdict"]
        for of_test in failures
    ]


def _promtool(words: list[str], files: Mapping[str, str]) -> tuple[int, list[str]]:
    """Return promtool's exit code, and its output without empty lines."""
    with tempfile.TemporaryDirectory(prefix="blindsight-promtool-") as folder:
        for name, text in files.items():
            Path(folder, name).write_text(text, encoding="utf-8")
        done = subprocess.run(
            [binary("promtool"), *words],
            cwd=folder,
            # It works for a tenth of a second in little memory: one thread, and less looking for garbage.
            env={**os.environ, "GOMAXPROCS": "1", "GOGC": "400"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=PATIENCE_SECONDS * programs_a_core(),
            check=False,
        )
    return done.returncode, [line for line in done.stdout.splitlines() if line.strip()]


class PrometheusServer:
    """One Prometheus. A context manager: it answers inside, and is gone with its data outside.

    Parameters
    ----------
    targets : sequence of str
        ``host:port`` to scrape, all in the job ``blindsight``.
    scrape_seconds : int
    metrics_path : str
    rules : str
        A rule file's text, evaluated every second; none if empty.
    alertmanagers : sequence of str
        ``host:port`` to send alerts to.
    config : str
        A configuration's text, which is taken as it is instead of all of these.
    """

    def __init__(
        self,
        targets: Sequence[str],
        scrape_seconds: int = 1,
        metrics_path: str = "/metrics",
        rules: str = "",
        alertmanagers: Sequence[str] = (),
        config: str = "",
    ) -> None:
        self.program = binary("prometheus")
        self._targets = list(targets)
        self._scrape_seconds = scrape_seconds
        self._metrics_path = metrics_path
        self._rules = rules
        self._alertmanagers = list(alertmanagers)
        self._config = config
        self.port = free_ports(1)[0]
        self._process: subprocess.Popen[bytes] | None = None
        self._folder: Path | None = None

    @property
    def url(self) -> str:
        """``http://host:port``."""
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> PrometheusServer:
        self._folder = Path(tempfile.mkdtemp(prefix="blindsight-prometheus-"))
        log = self._folder / "prometheus.log"
        self._process = started("Prometheus", self._command(), log, self.ready)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        stop(self._process)
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Return the series of an instant query: ``[{"metric": {...}, "value": [time, "text"]}, ...]``."""
        answer = self._get("/api/v1/query?" + urllib.parse.urlencode({"query": expression}))
        series: list[dict[str, Any]] = answer["data"]["result"]
        return series

    def wait_for(self, expression: str, seconds: float = PATIENCE_SECONDS) -> list[dict[str, Any]]:
        """Repeat `query` until it gives a series; raise AssertionError after `seconds` seconds."""
        deadline = time.monotonic() + seconds
        while not (series := self.query(expression)):
            assert time.monotonic() < deadline, (
                f"no series for {expression} within {seconds:g} s: {self.targets()}"
            )
            time.sleep(0.2)
        return series

    def alerts(self) -> list[dict[str, Any]]:
        """Return alerts that are pending or firing: `labels`, `state`, …"""
        alerts: list[dict[str, Any]] = self._get("/api/v1/alerts")["data"]["alerts"]
        return alerts

    def targets(self) -> list[dict[str, Any]]:
        """Return the state of Prometheus's targets: `health`, `lastError`, …"""
        active: list[dict[str, Any]] = self._get("/api/v1/targets")["data"]["activeTargets"]
        return active

    def _command(self) -> list[str]:
        assert self._folder is not None
        config = {
            "global": {
                "scrape_interval": f"{self._scrape_seconds}s",
                "scrape_timeout": f"{self._scrape_seconds}s",
                "evaluation_interval": "1s",
            },
            "rule_files": ["rules.yml"] if self._rules else [],
            "alerting": {"alertmanagers": [{"static_configs": [{"targets": self._alertmanagers}]}]},
            "scrape_configs": [
                {
                    "job_name": "blindsight",
                    "metrics_path": self._metrics_path,
                    "static_configs": [{"targets": self._targets}],
                }
            ],
        }
        (self._folder / "rules.yml").write_text(self._rules, encoding="utf-8")
        # JSON is YAML, and needs no package to be written.
        (self._folder / "prometheus.yml").write_text(self._config or json.dumps(config))
        return [
            self.program,
            f"--config.file={self._folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={self._folder / 'tsdb'}",
            f"--web.listen-address=127.0.0.1:{self.port}",
        ]

    def ready(self) -> bool:
        """Return whether it answers queries."""
        try:
            with urllib.request.urlopen(self.url + "/-/ready", timeout=1) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def _get(self, path: str) -> dict[str, Any]:
        try:
            with urllib.request.urlopen(self.url + path, timeout=PATIENCE_SECONDS) as answer:
                body: dict[str, Any] = json.load(answer)
        except urllib.error.HTTPError as error:
            raise AssertionError(f"Prometheus answered {error.code}: {error.read().decode()}") from error
        return body
