"""The tutorials run as they stand: their files, commands, outputs, and the services that they name."""

from __future__ import annotations

import doctest
import json
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from monitor.cli.check.text import render
from monitor.cli.checking import check_configuration
from tests.daemon import DaemonProcess
from tests.recipes.page import blocks
from tests.services.alertmanager_server import AlertmanagerServer
from tests.services.kafka_broker import KafkaBroker
from tests.services.process import (
    PATIENCE_SECONDS,
    ServiceUnavailable,
    free_ports,
    in_ci,
    wait_until,
)
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

    def run(self) -> int:
        """Write its files, run its commands, compare what they print; return their number."""
        checker, printed, count = doctest.OutputChecker(), "", 0
        for kind, name, text in self.blocks:
            if "." in name:
                (self.folder / name).write_text(text, encoding="utf-8")
            elif kind == "sh" and name not in BY_HAND:
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

    @contextmanager
    def running(self, text: str) -> Iterator[Callable[[], str]]:
        """Run commands that do not end inside the block; yield a function that returns what they print."""
        log = self.folder / f"{hash(text)}.log"
        with log.open("wb") as out:
            shell = subprocess.Popen(
                ["bash", "-euc", text],
                cwd=self.folder,
                env=self._environment,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # its children are stopped with it
            )
        try:
            yield lambda: log.read_text(encoding="utf-8")
        finally:
            os.killpg(shell.pid, signal.SIGKILL)
            shell.wait()

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


def test_the_first_leads_from_scikit_learn_to_an_alarm(tmp_path: Path) -> None:
    first = Tutorial("first-alarm", tmp_path / "first")
    assert first.run() == 4
    assert (first.folder / "without-labels" / "report.html").exists()
    with first.agent("blindsight.yaml") as daemon:
        daemon.until_value(40.0, "windows_closed_total", model="erm")
        assert daemon.metrics().value("out_of_control", model="erm", metric="accuracy") == 1.0


@pytest.mark.prometheus
def test_the_sidecar_leads_from_kafka_to_a_webhook_which_gets_the_alerts_that_the_page_names(
    tmp_path: Path, kafka_broker: KafkaBroker
) -> None:
    try:
        prometheus, alertmanager = PrometheusServer([]), AlertmanagerServer("")
    except ServiceUnavailable as missing:
        pytest.fail(str(missing)) if in_ci() else pytest.skip(str(missing))
    tutorial = Tutorial("kafka-sidecar", tmp_path, {"deploy/compose": str(ROOT / "deploy" / "compose")})
    for server in (prometheus, alertmanager):
        (tmp_path / "bin" / type(server).__name__.removesuffix("Server").lower()).symlink_to(server.program)
    tutorial.bash(tutorial.block("files"))
    tutorial.folder = tmp_path / "sidecar"
    kept = (tutorial.folder / "blindsight.yaml").read_text(encoding="utf-8")
    assert tutorial.block("blindsight.yaml") == kept
    receiver, agent = free_ports(2)
    ports = {
        9090: prometheus.port,
        9092: kafka_broker.port,
        9093: alertmanager.port,
        9095: receiver,
        9109: agent,
    }
    changes = {f"127.0.0.1:{old}": f"127.0.0.1:{new}" for old, new in ports.items()}
    # Topics that no other test of this broker uses.
    changes |= {"[predictions, labels]": "[sidecar-answers, sidecar-labels]"}
    changes |= {'send("predictions"': 'send("sidecar-answers"', 'send("labels"': 'send("sidecar-labels"'}

    def changed(text: str) -> str:
        for old, new in changes.items():
            text = text.replace(old, new)
        return text

    for path in tutorial.folder.glob("*.*"):
        path.write_text(changed(path.read_text(encoding="utf-8")), encoding="utf-8")
    named = {*re.findall(r"`(Blindsight\w+)`", (ROOT / "docs/tutorials/kafka-sidecar.md").read_text("utf-8"))}
    [queries] = [block.text for block in tutorial.blocks if block.language == "promql"]
    estimate, alarm = queries.splitlines()
    assert tutorial.block("answer") == "python service.py answer\n"
    answer = "python service.py answer --rate 500 --lose-after"  # five times the pace of the page
    with tutorial.running(changed(tutorial.block("start"))) as printed:
        wait_until(prometheus.ready, "Prometheus answers")
        prometheus.wait_for("up == 1")
        with tutorial.running(changed(f"{answer} 15")):
            prometheus.wait_for(f"{alarm} == 0")
            assert float(prometheus.query(estimate)[0]["value"][1]) == pytest.approx(0.93, abs=0.03)
            wait_until(lambda: named <= alerts("FIRING", printed()), "the webhook gets the page's alerts")
            prometheus.wait_for(f"{alarm} == 1")
            assert float(prometheus.wait_for(estimate)[0]["value"][1]) == pytest.approx(0.78, abs=0.04)
        assert f"http://127.0.0.1:{agent}/models?task=toxicity&model=erm" in printed()
        with tutorial.running(changed(f"{answer} 600")):
            wait_until(lambda: alerts("RESOLVED", printed()) == named, "the feature is back")
        assert alerts("FIRING", printed()) == named, "an alert that the page does not name"


def alerts(status: str, printed: str) -> set[str]:
    """Return the names of the alerts that the receiver has printed with this status."""
    return {*re.findall(rf"{status} \w+ (\w+)", printed)}


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
    report = render(check_configuration(str(tmp_path / "blindsight.yaml")))
    assert report.startswith("The configuration is valid.")
    assert "</html>" in (tmp_path / "report.html").read_text(encoding="utf-8")
