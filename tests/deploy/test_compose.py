"""The compose file: whole, its mounts there, and its own files at work in processes on this machine."""

from __future__ import annotations

import importlib.util
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import yaml

from monitor.cli.demo.flights import Flights, read_flights
from monitor.cli.demo.training import MODELS
from monitor.config.file import load_config
from tests.daemon import DaemonProcess, command, ndjson
from tests.services.alertmanager_server import AlertmanagerServer
from tests.services.kafka_broker import KafkaBroker
from tests.services.process import PATIENCE_SECONDS, in_ci, wait_until
from tests.services.prometheus_server import PrometheusServer, binary
from tests.streams import Record, confidences

FOLDER = Path(__file__).parents[2] / "deploy" / "compose"


def composed() -> dict[str, Any]:
    compose: dict[str, Any] = yaml.safe_load((FOLDER / "docker-compose.yml").read_text(encoding="utf-8"))
    return compose


def mounts(service: str) -> dict[str, str]:
    """Return, by path in the container, our path."""
    pairs = [entry.split(":") for entry in composed()["services"][service].get("volumes", [])]
    return {inside: outside for outside, inside, *_ in pairs}


def feeder() -> ModuleType:
    """Return `deploy/compose/feeder.py`, which the image runs as a file."""
    spec = importlib.util.spec_from_file_location("feeder", FOLDER / "feeder.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_everything_that_is_mounted_is_there_and_every_volume_is_named() -> None:
    compose = composed()
    for service in compose["services"]:
        for outside in mounts(service).values():
            assert (FOLDER / outside).exists() if outside.startswith(".") else outside in compose["volumes"]
        for other in compose["services"][service].get("depends_on", ()):
            assert other in compose["services"]


def test_ports_are_of_this_machine_alone_and_the_agent_is_confined() -> None:
    services = composed()["services"]
    ports = [port for service in services.values() for port in service.get("ports", ())]
    assert len(ports) == 4
    assert all(port.startswith("127.0.0.1:") for port in ports)
    agent = services["blindsight"]
    assert (agent["read_only"], agent["cap_drop"]) == (True, ["ALL"])
    images = {service["image"] for service in services.values()}
    assert all(re.search(r":v?\d|:demo$", image) for image in images), "a tag that moves"


def test_docker_compose_takes_it() -> None:
    programs = [[name] for name in ("docker-compose",) if shutil.which(name)]
    if shutil.which("docker"):
        version = subprocess.run(
            ["docker", "compose", "version"], capture_output=True, check=False, timeout=PATIENCE_SECONDS
        )
        programs += [["docker", "compose"]] if version.returncode == 0 else []
    if not programs:
        missing = "neither `docker-compose` nor docker's plugin is there: run .ci/install-services.sh"
        pytest.fail(missing) if in_ci() else pytest.skip(missing)
    words = [*programs[-1], "-f", str(FOLDER / "docker-compose.yml"), "config", "-q"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)
    assert done.returncode == 0, done.stderr


def test_its_rules_are_those_of_its_configuration_and_last_minutes() -> None:
    printed = command("rules", FOLDER / "blindsight.yaml")
    assert printed.returncode == 0, printed.stderr
    kept = (FOLDER / "rules" / "blindsight.rules.yaml").read_text(encoding="utf-8")
    assert kept.strip() == printed.stdout.strip(), "run blindsight rules again"
    models = [rule for group in yaml.safe_load(kept)["groups"][:-1] for rule in group["rules"]]
    assert {rule["for"] for rule in models} <= {"2m", "3m"}


def test_grafana_finds_its_data_source_and_its_dashboards() -> None:
    targets = mounts("grafana")
    provisioning = FOLDER / targets["/etc/grafana/provisioning"]
    [provider] = yaml.safe_load((provisioning / "dashboards/blindsight.yaml").read_text("utf-8"))["providers"]
    dashboards = FOLDER / targets[provider["options"]["path"]]
    home = composed()["services"]["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert (dashboards / Path(home).name).exists()
    sources = yaml.safe_load((provisioning / "datasources/prometheus.yaml").read_text("utf-8"))
    assert sources["datasources"][0]["url"] == "http://prometheus:9090"
    assert "prometheus" in composed()["services"]


def flights(count: int, seed: int) -> Iterator[Record]:
    """Yield flights like the demo's: four models' answers to one request, labels for all of them beside."""
    rng = np.random.default_rng(seed)
    for i, score in enumerate(confidences(rng, count).tolist()):
        yield {
            "id": f"f{seed}-{i}",
            "time": 1.7e9 + seed * 1e6 + i,
            "task": "delay",
            "models": {model: [1 - score, score] for model in MODELS},
            "groups": {"origin": ("JFK", "LGA", "EWR")[i % 3]},
            "label": ["on_time", "late"][int(rng.random() < score)],
        }


@pytest.fixture
def demo(tmp_path: Path) -> Path:
    """Return the folder that `feeder.py prepare` fills, with simulated flights."""
    folder = tmp_path / "demo"
    folder.mkdir()
    (folder / "reference.ndjson").write_bytes(ndjson(list(flights(10_500, 0))))
    (folder / "flights.ndjson").write_bytes(ndjson(list(flights(2_000, 1))))
    return folder


def settings(demo: Path, broker: str) -> dict[str, Any]:
    """Return the agent's configuration with its folders and hosts replaced, and nothing else."""
    text = (FOLDER / "blindsight.yaml").read_text(encoding="utf-8")
    changes = {
        "/demo/": f"{demo}/",
        "/var/lib/blindsight/": f"{demo.parent}/",
        "kafka:9092": broker,
        "0.0.0.0:9109": "127.0.0.1:0",
    }
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    settings: dict[str, Any] = yaml.safe_load(text)
    return settings


def test_the_agents_configuration_watches_the_feeders_models(demo: Path) -> None:
    path = demo.parent / "config.yaml"
    path.write_text(json.dumps(settings(demo, "127.0.0.1:9092")), encoding="utf-8")
    assert set(load_config(path).tasks["delay"].models) == set(MODELS)
    done = command("check", path)
    assert done.returncode == 0, done.stderr


def test_the_feeders_commands_prepare_and_send_what_the_agent_takes(
    tmp_path: Path,
    kafka_broker: KafkaBroker,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The test takes every eighth flight of the year, as training on all of them takes long."""
    folder = tmp_path / "demo"
    year = read_flights()
    columns = {each.name: getattr(year, each.name) for each in fields(Flights)}
    some = replace(year, **{name: of[::8] for name, of in columns.items() if isinstance(of, np.ndarray)})
    monkeypatch.setattr("monitor.cli.demo.stream.read_flights", lambda: some)

    def run_feeder(*words: str) -> str:
        program = [sys.executable, str(FOLDER / "feeder.py"), *words]
        environment = {**os.environ, "PYTHONPATH": str(FOLDER.parents[1])}
        done = subprocess.run(
            program, env=environment, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    folder.mkdir()
    assert feeder().main(["prepare", str(folder)]) == 0
    assert "training the models" in capsys.readouterr().out
    assert run_feeder("prepare", str(folder)) == "", "a second start finds it done"
    stream = folder / "flights.ndjson"
    with stream.open("rb") as whole:
        first = list(itertools.islice(whole, 3000))
    stream.write_bytes(b"".join(first))
    config = settings(folder, kafka_broker.address)
    # Of a group of its own: whoever joins after a killed member waits for the end of its session.
    config["sources"][0] |= {"topics": ["prepared"], "group": "prepared"}
    with DaemonProcess(tmp_path, config) as daemon:
        words = ["--brokers", kafka_broker.address, "--topic", "prepared", "--rate", "5000"]
        assert run_feeder("feed", str(folder), *words) == "Sent 3,000 records.\n"
        wait_until(lambda: "Running: metrics" in daemon.log, "it has fitted the reference")
        flights_sent = sum(b'"models"' in line for line in first)
        daemon.until(
            lambda: daemon.metrics().total("answers_received_total") == 4 * flights_sent, "all of it is read"
        )
        metrics = daemon.metrics()
        assert metrics.total("rejected_total") == 0
        for model in MODELS:
            labels = {"model": model, "metric": "accuracy", "estimator": "average_confidence"}
            assert (metrics.value("estimate_ratio", **labels) or 0.0) > 0.5


def test_the_same_files_as_processes_give_something_to_see(
    demo: Path,
    kafka_broker: KafkaBroker,
    prometheus: Callable[..., PrometheusServer],
    alertmanager: Callable[[str], AlertmanagerServer],
) -> None:
    receiver = alertmanager(
        (FOLDER / mounts("alertmanager")["/etc/alertmanager/alertmanager.yml"]).read_text()
    )
    with DaemonProcess(demo.parent, settings(demo, kafka_broker.address)) as daemon:
        text = (FOLDER / mounts("prometheus")["/etc/prometheus/prometheus.yml"]).read_text(encoding="utf-8")
        changes = {
            "/etc/prometheus/rules": str(FOLDER / mounts("prometheus")["/etc/prometheus/rules"]),
            "alertmanager:9093": receiver.address,
            "blindsight:9109": f"127.0.0.1:{daemon.port}",
        }
        for old, new in changes.items():
            assert old in text
            text = text.replace(old, new)
        (demo / "prometheus.yml").write_text(text, encoding="utf-8")
        words = [binary("promtool"), "check", "config", str(demo / "prometheus.yml")]
        subprocess.run(words, check=True, timeout=PATIENCE_SECONDS, capture_output=True)
        server = prometheus([], config=text)

        assert feeder().feed(demo / "flights.ndjson", [kafka_broker.address], "flights", 5000.0) == 2000
        samples = server.wait_for('blindsight_windows_closed_total{task="delay"} >= 4', PATIENCE_SECONDS)
        assert {series["metric"]["model"] for series in samples} == set(MODELS)
        assert server.query("sum(blindsight_predictions_total)")[0]["value"][1] == "8000"
        assert server.query("sum(blindsight_rejected_total)")[0]["value"][1] == "0"
        assert len(server.query("group by (group) (blindsight_group_state)")) == 3

        def connected() -> bool:
            with urllib.request.urlopen(
                server.url + "/api/v1/alertmanagers", timeout=PATIENCE_SECONDS
            ) as answer:
                active = json.load(answer)["data"]["activeAlertmanagers"]
            return [each["url"] for each in active] == [f"{receiver.url}/api/v2/alerts"]

        wait_until(connected, "Prometheus knows its Alertmanager")
        with urllib.request.urlopen(server.url + "/api/v1/rules", timeout=PATIENCE_SECONDS) as answer:
            groups = json.load(answer)["data"]["groups"]
        assert {rule["health"] for group in groups for rule in group["rules"]} <= {"ok", "unknown"}
        assert sum(len(group["rules"]) for group in groups) >= 12
