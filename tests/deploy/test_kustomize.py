"""The base of Kustomize, built by kubectl below an overlay as docs/deployment.md has it."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from monitor import __version__
from monitor.config.file import config_from
from tests.recipes.page import blocks
from tests.services.process import PATIENCE_SECONDS

ROOT = Path(__file__).parents[2]
BASE = ROOT / "deploy" / "kustomize"
KUBERNETES = "1.30"


def built(folder: Path) -> list[dict[str, Any]]:
    """Return the objects that kubectl builds of a folder; each must be valid."""
    program = shutil.which("kubectl")
    if program is None:
        pytest.skip("kubectl is not installed: install it to build the base of Kustomize")
    words = [program, "kustomize", str(folder)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)
    assert done.returncode == 0, done.stderr
    objects = list(yaml.safe_load_all(done.stdout))
    for each in objects:
        kubernetes_validate.validate(each, KUBERNETES, strict=True)
    return objects


def only(objects: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    [manifest] = [each for each in objects if each["kind"] == kind]
    return manifest


def mounted(objects: list[dict[str, Any]]) -> str:
    """Return the name of the ConfigMap that the agent reads."""
    volumes = only(objects, "StatefulSet")["spec"]["template"]["spec"]["volumes"]
    [name] = [each["configMap"]["name"] for each in volumes if each["name"] == "config"]
    return str(name)


def test_the_base_is_one_agent_that_reads_its_configuration() -> None:
    objects = built(BASE)
    configuration = only(objects, "ConfigMap")
    assert mounted(objects) == configuration["metadata"]["name"]
    config_from(yaml.safe_load(configuration["data"]["config.yaml"]))
    assert {"Service", "NetworkPolicy", "ServiceAccount"} <= {each["kind"] for each in objects}


def test_an_overlay_replaces_configuration_image_and_namespace(tmp_path: Path) -> None:
    page = ROOT / "docs" / "deployment.md"
    [overlay] = [yaml.safe_load(each.text) for each in blocks(page) if "deploy/kustomize" in each.text]
    [resource] = overlay["resources"]
    overlay["resources"] = [os.path.relpath(BASE, tmp_path)]
    assert (ROOT / resource.removeprefix("blindsight/")).resolve() == BASE
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(overlay), encoding="utf-8")
    config = {"tasks": {"spam": {"classes": ["ham", "spam"]}}, "export": {"listen": "0.0.0.0:9109"}}
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
    objects = built(tmp_path)
    configuration = only(objects, "ConfigMap")
    assert yaml.safe_load(configuration["data"]["config.yaml"]) == config, "nothing of the example remains"
    assert mounted(objects) == configuration["metadata"]["name"] != mounted(built(BASE))
    assert {each["metadata"]["namespace"] for each in objects} == {"models"}
    [container] = only(objects, "StatefulSet")["spec"]["template"]["spec"]["containers"]
    assert container["image"] == f"registry.example/blindsight:{__version__}"
    rules = only(objects, "NetworkPolicy")["spec"]["egress"]
    assert {port["port"] for port in rules[1]["ports"]} == {9093}
