"""The compose file: whole, its mounts there, its commands known.

`tests/test_tutorials.py` runs its files as processes of this machine, with the names of hosts replaced.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.daemon import command
from tests.services.process import PATIENCE_SECONDS, in_ci

FOLDER = Path(__file__).parents[2] / "deploy" / "compose"


def composed() -> dict[str, Any]:
    compose: dict[str, Any] = yaml.safe_load((FOLDER / "docker-compose.yml").read_text(encoding="utf-8"))
    return compose


def mounts(service: str) -> dict[str, str]:
    """Return, by path in the container, our path."""
    pairs = [entry.split(":") for entry in composed()["services"][service].get("volumes", [])]
    return {inside: outside for outside, inside, *_ in pairs}


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
    assert all(re.search(r":v?\d|:compose$", image) for image in images), "a tag that moves"


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


def test_its_commands_name_files_that_are_mounted_and_options_that_there_are() -> None:
    services = composed()["services"]
    for service in ("reference", "service", "receiver"):
        python, program, *_ = services[service]["entrypoint"]
        assert python == "python"
        assert (FOLDER / Path(program).relative_to("/compose")).exists()
    done = command("rules", FOLDER / "blindsight.yaml", *services["rules"]["command"][2:-2])
    assert done.returncode == 0, done.stderr
    assert done.stderr == "", "external_url is set"
    pattern = yaml.safe_load((FOLDER / "prometheus.yml").read_text(encoding="utf-8"))["rule_files"]
    written = Path(services["rules"]["command"][-1])
    assert mounts("prometheus")[f"/etc/prometheus/{Path(*pattern).parent}"] == mounts("rules")[str(written)]
    assert services["blindsight"]["command"] == ["run", "blindsight.yaml"]
    assert mounts("blindsight")["/var/lib/blindsight/blindsight.yaml"] == "./blindsight.yaml"


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
