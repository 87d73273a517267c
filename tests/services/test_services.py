"""The test kits themselves: a real Prometheus answers, promtool finds faults, and CI allows no skip."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, Gauge, start_http_server

from tests.services import process
from tests.services.process import (
    PATIENCE_SECONDS,
    SHORT_LIVED_JAVA,
    ServiceUnavailable,
    free_ports,
    java_words,
    wait_until,
)
from tests.services.prometheus_server import PrometheusServer, binary, promtool_check_metrics

Prometheus = Callable[[Sequence[str]], PrometheusServer]


@pytest.fixture
def promtool() -> None:
    try:
        binary("promtool")
    except ServiceUnavailable as missing:
        pytest.skip(str(missing))


def test_prometheus_scrapes_a_target_and_answers_a_query(prometheus: Prometheus) -> None:
    registry = CollectorRegistry()
    Gauge("kit_ratio", "A number to find again.", ["model"], registry=registry).labels("erm").set(0.25)
    port = free_ports(1)[0]
    server, thread = start_http_server(port, addr="127.0.0.1", registry=registry)
    try:
        series = prometheus([f"127.0.0.1:{port}"]).wait_for('kit_ratio{model="erm"}')
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
    assert [each["value"][1] for each in series] == ["0.25"]
    assert series[0]["metric"]["job"] == "blindsight"


def test_a_target_that_is_not_there_is_named_in_the_failure(prometheus: Prometheus) -> None:
    server = prometheus([f"127.0.0.1:{free_ports(1)[0]}"])
    wait_until(lambda: any(each["lastError"] for each in server.targets()), "it has tried")
    with pytest.raises(AssertionError, match=r"no series for up == 1 within 0.1 s: .*connection refused"):
        server.wait_for("up == 1", seconds=0.1)


@pytest.mark.prometheus
@pytest.mark.usefixtures("promtool")
def test_promtool_passes_a_clean_exposition_and_finds_a_fault() -> None:
    clean = "# HELP kit_ratio A ratio.\n# TYPE kit_ratio gauge\nkit_ratio 0.5\n"
    assert promtool_check_metrics(clean) == []
    faults = promtool_check_metrics("# HELP kit_total Wrong.\n# TYPE kit_total gauge\nkit_total 1\n")
    assert len(faults) == 1
    assert faults[0].startswith("kit_total ")


@pytest.mark.parametrize(("ci", "status", "word"), [("", 0, "1 skipped"), ("true", 1, "1 error")])
def test_a_missing_service_skips_here_and_fails_in_ci(
    ci: str, status: int, word: str, tmp_path: Path
) -> None:
    test = f"{Path(__file__)}::test_promtool_passes_a_clean_exposition_and_finds_a_fault"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", test],
        env={**os.environ, "PATH": str(tmp_path), "CI": ci},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert done.returncode == status, done.stdout
    assert word in done.stdout
    assert "`promtool` is missing: run .ci/install-services.sh" in done.stdout


def test_an_archive_of_classes_is_made_once_and_done_without_where_that_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    java, jars = tmp_path / "java", tmp_path / "jars"
    java.touch(0o755)
    jars.mkdir()
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(process, "CACHE", tmp_path / "cache")
    calls: list[Sequence[str]] = []

    def made(words: Sequence[str]) -> None:
        calls.append(words)
        Path(words[-1].removeprefix("-XX:ArchiveClassesAtExit=")).write_text("classes")

    def failed(words: Sequence[str]) -> None:
        raise AssertionError("it did not start")

    known = java_words.__wrapped__("jars-1", jars, made)
    assert known == java_words.__wrapped__("jars-1", jars, made)
    assert len(calls) == 1
    assert known[: len(SHORT_LIVED_JAVA)] == SHORT_LIVED_JAVA
    assert Path(known[-1].removeprefix("-XX:SharedArchiveFile=")).read_text() == "classes"
    assert java_words.__wrapped__("jars-2", jars, failed) == SHORT_LIVED_JAVA
    os.utime(java, (1, 1))
    java_words.__wrapped__("jars-1", jars, made)
    assert len(calls) == 2, "for another Java another one"
