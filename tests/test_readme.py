"""README and pages cannot lie: Python in them runs, commands print what they say, CI runs the tests so."""

from __future__ import annotations

import doctest
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml

import monitor
from tests.daemon import DaemonProcess, ndjson
from tests.recipes.page import blocks as blocks_of
from tests.services.process import PATIENCE_SECONDS
from tests.streams import answers

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PYTHON = ROOT / "docs" / "python.md"
COMMANDS = ROOT / "docs" / "commands.md"
PAGES = sorted(ROOT.glob("docs/**/*.md"))
LINK = r"\]\(([^)#]+)[^)]*\)"


def blocks(kind: str, page: Path = ROOT / "README.md") -> list[str]:
    return [block.text for block in blocks_of(page) if (block.language, block.name) == (kind, "")]


def console_commands() -> list[tuple[str, str]]:
    pieces = re.split(r"^\$ (.+)\n", "".join(blocks("console", COMMANDS)), flags=re.MULTILINE)
    return list(zip(pieces[1::2], pieces[2::2], strict=True))


def test_the_python_blocks_run_and_print_what_they_say():
    finder = doctest.DocTestParser()
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    for text in blocks("python", PYTHON):
        runner.run(finder.get_doctest(text, {}, PYTHON.name, str(PYTHON), 0))
    assert runner.summarize(verbose=False).failed == 0
    assert runner.tries >= 4


@pytest.mark.parametrize(("command", "expected"), console_commands())
def test_a_command_prints_what_its_page_says(command, expected):
    program, *arguments = shlex.split(command)
    assert program == "blindsight"
    done = subprocess.run(
        [sys.executable, "-m", "monitor.cli", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
    )
    assert done.returncode == 0, done.stderr
    checker = doctest.OutputChecker()
    assert checker.check_output(expected, done.stdout, doctest.ELLIPSIS), done.stdout


def test_beside_a_model_its_records_its_configuration_and_its_scrape_are_one(tmp_path):
    rng = np.random.default_rng(7)
    reference = [
        record | {"label": {"ok": "ok", "bad": "toxic"}[record["label"]]}
        for record in answers(rng, 10_000, labelled=True)
    ]
    tmp_path.joinpath("reference.ndjson").write_bytes(ndjson(reference))
    lines = blocks("json")[0].encode()
    stream = tmp_path / "answers.ndjson"
    stream.write_bytes(lines)
    (text,) = blocks("yaml")
    config = yaml.safe_load(text) | {"export": {"listen": "127.0.0.1:0"}}
    with DaemonProcess(tmp_path, config) as daemon:
        daemon.until_value(1.0, "labels_total", outcome="matched")
        with stream.open("ab") as file:
            file.write(ndjson(answers(rng, 500, start=1.75e9)[:499]))
        daemon.until_value(1.0, "windows_closed_total", model="erm")
        scraped = daemon.metrics().text
    expected = blocks("text")[1]
    assert expected.count("\n") >= 6
    checker = doctest.OutputChecker()
    for line in expected.splitlines():
        found = [got for got in scraped.splitlines() if checker.check_output(line, got, doctest.ELLIPSIS)]
        assert line == "..." or len(found) == 1, line


def test_it_is_one_screen_to_a_number_and_three_in_all():
    lines = README.splitlines()
    assert len(lines) <= 110
    assert re.search(r"\d\d\.\d \(\d\d\.\d–\d\d\.\d\)", "\n".join(lines[:40]))


def test_ci_runs_the_test_command_of_the_readme():
    test_command = blocks("sh")[1].strip()
    assert "pytest" in test_command
    assert test_command in (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize("page", [ROOT / "README.md", *PAGES], ids=lambda page: page.name)
def test_every_file_that_a_page_links_to_is_there(page):
    for target in re.findall(LINK, page.read_text(encoding="utf-8")):
        assert "://" in target or (page.parent / target).exists(), target


def linked_from(page: Path) -> set[Path]:
    targets = re.findall(LINK, page.read_text(encoding="utf-8"))
    return {(page.parent / target).resolve() for target in targets if "://" not in target}


def test_every_page_can_be_reached_from_it():
    """Those of a serving stack by their index, names in Python and the JSON API by the pages on them."""
    index = ROOT / "docs/serving/stacks.md"
    below = {page for page in PAGES if page.parent == index.parent} - {index}
    below |= {ROOT / "docs/api.md", ROOT / "docs/http-api.md"}
    direct = linked_from(ROOT / "README.md")
    assert set(PAGES) - below <= direct
    assert below <= direct | linked_from(index) | linked_from(PYTHON) | linked_from(ROOT / "docs/page.md")


def test_the_site_is_built_without_a_warning(tmp_path):
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "-f", ROOT / "docs" / "mkdocs.yml"]
    done = subprocess.run(
        [*words, "-d", tmp_path],
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1", "DISABLE_MKDOCS_2_WARNING": "true"},
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert "WARNING" not in done.stderr  # with --quiet, MkDocs would count none
    pages = {path.relative_to(tmp_path).with_suffix("").as_posix() for path in tmp_path.rglob("*.html")}
    assert {path.relative_to(ROOT / "docs").with_suffix("").as_posix() for path in PAGES} <= pages
    assert {"index", "CHANGELOG", "runbooks/BlindsightOutOfControl"} <= pages
    home = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert re.findall(r'(?:src|<link[^>]+href)="(?:https?:)?//[^"]*"', home) == []
    names = (tmp_path / "api.html").read_text(encoding="utf-8")
    parts = [
        re.match(r'"[^"]*">(\w+)<.*doc-contents', part, re.DOTALL) for part in names.split("<h3 id=")[1:]
    ]
    assert {part and part[1] for part in parts} == set(monitor.__all__) - {"__version__"}
