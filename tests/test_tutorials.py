"""The tutorials run as they stand: their files, commands, outputs, and the services that they name."""

from __future__ import annotations

import doctest
import json
import os
import shutil
import stat
import subprocess
import sys
import tomllib
from collections.abc import Callable, Mapping, Set
from pathlib import Path

import pytest
import yaml

from monitor.cli.checking import check_file
from tests.daemon import DaemonProcess
from tests.recipes.page import blocks
from tests.services.kafka_broker import KafkaBroker
from tests.services.process import PATIENCE_SECONDS
from tests.services.prometheus_server import PrometheusServer

ROOT = Path(__file__).parents[1]
BY_HAND = {"install", "run"}
"""Blocks that the tests do in another way: pip has been there, and the agent gets a free port."""


class Tutorial:
    """A tutorial in a folder of its own.

    Parameters
    ----------
    name : str
    folder : Path
    replacements : mapping of str to str
        The text in place of these parts of it.
    """

    def __init__(self, name: str, folder: Path, replacements: Mapping[str, str] | None = None) -> None:
        self.blocks = blocks(ROOT / "docs" / "tutorials" / f"{name}.md")
        for old, new in (replacements or {}).items():
            assert any(old in block.text for block in self.blocks), old
            self.blocks = [block._replace(text=block.text.replace(old, new)) for block in self.blocks]
        self.folder = folder
        programs = folder / "bin"
        programs.mkdir(parents=True)
        for program, words in (("python", ""), ("blindsight", "-m monitor.cli")):
            path = programs / program
            path.write_text(f'#!/bin/sh\nexec {sys.executable} {words} "$@"\n', encoding="utf-8")
            path.chmod(path.stat().st_mode | stat.S_IXUSR)
        self._environment = {
            **os.environ,
            "PATH": f"{programs}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "COLUMNS": "110",
        }

    def run(self, later: Set[str] = frozenset()) -> int:
        """Write its files, run its commands but those, compare what they print; return their number."""
        checker, printed, count = doctest.OutputChecker(), "", 0
        for kind, name, text in self.blocks:
            if "." in name:
                (self.folder / name).write_text(text, encoding="utf-8")
            elif kind == "sh" and name not in BY_HAND | later:
                printed, count = self.bash(text), count + 1
            elif kind == "text":
                flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
                assert checker.check_output(text, printed, flags), printed
        return count

    def block(self, name: str) -> str:
        """Return the text of the block of this name."""
        [text] = [block.text for block in self.blocks if block.name == name]
        return text

    def agent(self, name: str) -> DaemonProcess:
        """Return the agent on its configuration, at a free port."""
        config = yaml.safe_load((self.folder / name).read_text(encoding="utf-8"))
        return DaemonProcess(self.folder, config | {"export": {"listen": "127.0.0.1:0"}})

    def bash(self, text: str) -> str:
        """Return the output of commands that must succeed."""
        done = subprocess.run(
            ["bash", "-euc", text],
            cwd=self.folder,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
            check=False,
        )
        assert done.returncode == 0, f"{text}{done.stdout}{done.stderr}"
        return done.stdout


def test_they_lead_from_scikit_learn_to_an_alert(
    tmp_path: Path, kafka_broker: KafkaBroker, prometheus: Callable[..., PrometheusServer]
) -> None:
    first = Tutorial("first-alarm", tmp_path / "first")
    assert first.run() == 4
    assert (first.folder / "without-labels" / "report.html").exists()
    with first.agent("blindsight.yaml") as daemon:
        daemon.until_value(40.0, "windows_closed_total", model="erm")
        assert daemon.metrics().value("out_of_control", model="erm", metric="accuracy") == 1.0

    replacements = {
        "127.0.0.1:9092": kafka_broker.address,
        "[predictions, labels]": "[tutorial-predictions, tutorial-labels]",
        '"labels" if "label" in json.loads(line) else "predictions"': (
            '"tutorial-labels" if "label" in json.loads(line) else "tutorial-predictions"'
        ),
        "rules sidecar.yaml": "rules sidecar.yaml --time-scale 0.001",
        "time.sleep(0.5)": "pass",  # the agent may need longer: see below
    }
    second = Tutorial("kafka-sidecar", tmp_path / "second", replacements)
    for name in ("reference.ndjson", "log.ndjson"):
        (first.folder / name).rename(second.folder / name)
    log = (second.folder / "log.ndjson").read_text(encoding="utf-8")
    is_label = ["label" in json.loads(line) for line in log.splitlines()]
    for topic in ("tutorial-predictions", "tutorial-labels"):
        kafka_broker.create_topic(topic)
    assert second.run(later={"produce", "lose"}) == 2
    with second.agent("sidecar.yaml") as daemon:
        settings = second.block("prometheus.yml").replace(": 15s", ": 1s")
        settings = settings.replace("127.0.0.1:9109", f"127.0.0.1:{daemon.port}")
        settings = settings.replace("blindsight.rules.yaml", str(second.folder / "blindsight.rules.yaml"))
        server = prometheus([], config=settings)
        [queries] = [block.text for block in second.blocks if block.language == "promql"]
        estimate, alarm = queries.splitlines()
        second.bash(second.block("produce"))
        server.wait_for(f"{alarm} == 0")
        assert float(server.wait_for(estimate)[0]["value"][1]) == pytest.approx(0.95, abs=0.03)
        assert second.block("lose").split() == ["python", "produce.py", "12000", "21000"]
        for end in range(12_400, 21_400, 400):
            second.bash(f"python produce.py {end - 400} {min(end, 21_000)}")
            labels = sum(is_label[:end])
            daemon.until_value(labels, "labels_received_total")
            daemon.until_used(len(is_label[:end]) - labels)
        server.wait_for(f"{alarm} == 1")
        for alert in ("BlindsightOutOfControl", "BlindsightObjectiveAtRisk"):
            server.wait_for(f'ALERTS{{alertname="{alert}", alertstate="firing"}}')
        daemon.until_value(40.0, "windows_closed_total", model="erm")


def test_the_notebook_is_kept_without_outputs_and_runs(tmp_path: Path) -> None:
    kept = ROOT / "docs" / "tutorials" / "notebook.ipynb"
    code = [cell for cell in json.loads(kept.read_bytes())["cells"] if cell["cell_type"] == "code"]
    assert [(cell["outputs"], cell["execution_count"]) for cell in code] == [([], None)] * len(code)

    door = tmp_path / "door"  # as the build makes it: this checkout may be installed by a version of before
    door.mkdir()
    built = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["hatch"]["build"]
    for source, name in built["targets"]["wheel"]["force-include"].items():
        if (ROOT / source).is_file():
            shutil.copy(ROOT / source, door / name)
    notebook = Path(shutil.copy(kept, tmp_path))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--nbmake", "--overwrite", notebook],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": f"{door}{os.pathsep}{ROOT}", "PYTEST_ADDOPTS": ""},
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    outputs = [out for cell in json.loads(notebook.read_bytes())["cells"] for out in cell.get("outputs", ())]
    shown = ["".join(out.get("data", {}).get("text/html", "")) for out in outputs]
    assert (
        sum('<b class="bad">1 model is out of control.</b>' in html and "<img " in html for html in shown)
        == 1
    )
    assert sum("image/png" in out.get("data", {}) for out in outputs) == 1
    printed = "".join("".join(out.get("text", "")) for out in outputs)
    assert "in truth  0.952, then 0.745\nintervals that hold the truth: 23 of 24, then 0 of 16\n" in printed
    assert check_file(str(tmp_path / "blindsight.yaml")).startswith("The configuration is valid.")
    assert "</html>" in (tmp_path / "report.html").read_text(encoding="utf-8")
