"""README and pages cannot lie: Python in them runs, commands print what they say, CI runs the tests so."""

from __future__ import annotations

import contextlib
import csv
import doctest
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import monitor
from tests.daemon import DaemonProcess
from tests.recipes.page import blocks as blocks_of
from tests.services.process import PATIENCE_SECONDS

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
NOTEBOOK = ROOT / "docs" / "notebook.md"
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
    for text in blocks("python", NOTEBOOK):
        runner.run(finder.get_doctest(text, {}, NOTEBOOK.name, str(NOTEBOOK), 0))
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


def test_its_lines_lead_to_the_number_and_to_the_scrape_that_they_say(tmp_path):
    (lines,), (text,), (console,) = (blocks(kind) for kind in ("python", "yaml", "console"))
    model, frame = lines.split("\n\n")[1:]
    assert [len(part.splitlines()) for part in (model, frame)] == [2, 4]
    with contextlib.chdir(tmp_path):
        exec(lines, {})
    checker, flags = doctest.OutputChecker(), doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    _, *commands = re.split(r"^\$ (.+)\n", console, flags=re.MULTILINE)
    assert len(commands) == 4
    for command, expected in zip(commands[::2], commands[1::2], strict=True):
        done = subprocess.run(
            [sys.executable, "-m", "monitor.cli", *shlex.split(command)[1:]],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "110"},
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
        )
        assert done.returncode == 0, done.stderr
        assert checker.check_output(expected, done.stdout, flags), done.stdout
    answer, label = (json.loads(one) for one in re.findall(r"`(\{\"id\": .*?\})`", README))
    with (tmp_path / "answers.csv").open(encoding="utf-8") as file:
        rows = [[float(row["0"]), float(row["1"])] for row in csv.DictReader(file)]
    stream = [answer | {"id": f"a-{number}", "scores": scores} for number, scores in enumerate(rows)]
    (tmp_path / "answers.ndjson").write_text("".join(f"{json.dumps(one)}\n" for one in stream))
    config = yaml.safe_load(text) | {"export": {"listen": "127.0.0.1:0"}}
    with DaemonProcess(tmp_path, config) as daemon:
        daemon.until_value(10.0, "windows_closed_total", model="erm")
        scraped = daemon.metrics().text.splitlines()
        with (tmp_path / "answers.ndjson").open("a", encoding="utf-8") as file:
            file.write(f"{json.dumps(label)}\n")
        daemon.until_value(1.0, "labels_total", outcome="matched")
    (output,) = [block for block in blocks("text", COMMANDS) if block.startswith("blindsight_")]
    for line in output.splitlines():
        assert sum(checker.check_output(line, got, doctest.ELLIPSIS) for got in scraped) == 1, line


def test_it_is_one_screen_to_a_number_and_three_in_all():
    lines = README.splitlines()
    assert len(lines) <= 110
    assert re.search(r"estimated only \d\d of 100", "\n".join(lines[:30]))


def rows(page: Path, table: int) -> list[list[str]]:
    """Return the cells of the rows of a table of a page, the heading first."""
    tables = re.findall(r"(?:^\|.*\|\n)+", page.read_text(encoding="utf-8"), re.MULTILINE)
    lines = tables[table].splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in (lines[0], *lines[2:])]


def test_its_table_of_tools_is_that_of_the_page_with_the_facts():
    compared = ROOT / "docs" / "compared.md"
    tools = rows(compared, 0)[1:]
    names, *features = rows(ROOT / "README.md", 0)
    assert [name.split()[-1] for name in names[1:]] == [tool[1] for tool in tools]
    facts = {row[0]: [cell.strip("*").startswith("yes") for cell in row[1:]] for row in rows(compared, 1)[1:]}
    assert len(features) == 12
    for feature, *marks in features:
        assert [mark == "✓" for mark in marks] == facts[feature], feature
        assert set(marks) == {"✓", "✗"}


def test_its_figure_of_speed_is_the_one_that_is_kept():
    kept = (ROOT / "tests" / "bench" / "output" / "rivals.txt").read_text(encoding="utf-8")
    alone = re.search(r"accuracy alone.*\n.*\n +NannyML +\d+ +\d+ +[\d,]+ +([\d.]+)", kept)
    assert re.findall(r"\[(\d+) times as long\]", README) == [f"{float(alone[1]):.0f}"]


def test_ci_runs_the_test_command_of_the_readme():
    test_command = blocks("sh")[1].strip()
    assert "pytest" in test_command
    assert test_command in (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize("page", [ROOT / "README.md", *PAGES], ids=lambda page: page.name)
def test_every_file_that_a_page_links_to_is_there(page):
    for target in re.findall(LINK, page.read_text(encoding="utf-8")):
        assert "://" in target or (page.parent / target).exists(), target


def cells(page: Path) -> list[str]:
    """Return the cells of every table of a page."""
    text = re.sub(r"^ *```.*?^ *```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    rows = re.findall(r"^ *\|(.*)\|$", text, re.MULTILINE)
    return [cell.strip() for row in rows for cell in re.split(r"(?<!\\)\|", row)]


@pytest.mark.parametrize(
    "page", [ROOT / "README.md", ROOT / "tests" / "measured.md", *PAGES], ids=lambda page: page.name
)
def test_no_cell_of_a_table_is_long(page):
    assert [cell for cell in cells(page) if len(cell) > 120] == []


def test_the_cells_of_tables_are_found():
    assert "`tasks`" in cells(ROOT / "docs" / "configuration.md")
    assert len(cells(ROOT / "tests" / "measured.md")) > 3 * 200


def linked_from(page: Path) -> set[Path]:
    targets = re.findall(LINK, page.read_text(encoding="utf-8"))
    return {(page.parent / target).resolve() for target in targets if "://" not in target}


def test_every_page_can_be_reached_within_two_clicks():
    direct = linked_from(ROOT / "README.md")
    assert set(PAGES) <= direct.union(*map(linked_from, direct & set(PAGES)))


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
    for path in pages:
        if 'http-equiv="refresh"' in (text := (tmp_path / f"{path}.html").read_text(encoding="utf-8")):
            page, _, anchor = re.findall(r'url=([^"]+)"', text)[0].partition("#")
            target = (tmp_path / path).parent / page
            assert f'id="{anchor}"' in target.read_text(encoding="utf-8") or not anchor, path
    index = json.loads((tmp_path / "search" / "search_index.json").read_text(encoding="utf-8"))["docs"]
    places = {entry["location"].partition("#")[0] for entry in index}
    assert "your-situation.html" in places
    assert places & {"api.html", "CHANGELOG.html"} == set()
    home = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert re.findall(r'(?:src|<link[^>]+href)="(?:https?:)?//[^"]*"', home) == []
    names = (tmp_path / "api.html").read_text(encoding="utf-8")
    parts = [
        re.match(r'"[^"]*">(\w+)<.*doc-contents', part, re.DOTALL) for part in names.split("<h3 id=")[1:]
    ]
    assert {part and part[1] for part in parts} == set(monitor.__all__)
