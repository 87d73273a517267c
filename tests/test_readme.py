"""The README cannot lie: its Python runs, its commands print what it says, its test command is CI's."""

from __future__ import annotations

import doctest
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from connectors.base import RawBlock
from connectors.formats.decoder import Decoder
from monitor.configfile import config_from
from monitor.engine import layouts

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", README, flags=re.DOTALL)


def blocks(kind: str) -> list[str]:
    return [text for found, text in BLOCKS if found == kind]


def console_commands() -> list[tuple[str, str]]:
    pieces = re.split(r"^\$ (.+)\n", "".join(blocks("console")), flags=re.MULTILINE)
    return list(zip(pieces[1::2], pieces[2::2], strict=True))


def test_the_python_blocks_run_and_print_what_they_say():
    finder = doctest.DocTestParser()
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    for text in blocks("python"):
        runner.run(finder.get_doctest(text, {}, "README.md", "README.md", 0))
    assert runner.summarize(verbose=False).failed == 0
    assert runner.tries >= 4


@pytest.mark.parametrize(("command", "expected"), console_commands())
def test_a_command_prints_what_the_readme_says(command, expected):
    program, *arguments = shlex.split(command)
    assert program == "blindsight"
    done = subprocess.run(
        [sys.executable, "-m", "monitor.cli", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    checker = doctest.OutputChecker()
    assert checker.check_output(expected, done.stdout, doctest.ELLIPSIS), done.stdout


def test_the_configuration_in_it_is_valid_and_reads_the_records_in_it():
    import yaml

    (text,) = blocks("yaml")
    config = config_from(yaml.safe_load(text))
    lines = blocks("json")[0].encode()
    chunk = Decoder(layouts(config.tasks), "readme").decode([RawBlock(lines, "readme", 0)])
    assert (chunk.answers, chunk.labels_received, chunk.rejects) == (1, 1, ())
    assert [json.loads(line)["id"] for line in lines.splitlines()] == ["req-81", "req-81"]


def test_ci_runs_the_test_command_of_the_readme():
    test_command = blocks("sh")[1].strip()
    assert "pytest" in test_command
    assert test_command in (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()


def test_every_file_that_it_links_to_is_there():
    for target in re.findall(r"\]\(([^)]+)\)", README):
        assert (ROOT / target).exists(), target
