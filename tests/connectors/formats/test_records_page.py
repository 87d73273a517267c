"""The page about records says what the decoder does."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from connectors.formats.decode.decoder import Decoder
from connectors.formats.decode.structs import KIND_FIELDS, Record
from monitor.base.records import TaskLayout
from monitor.base.registry import TASK_KINDS
from monitor.base.source import RawBlock

DOCS = Path(__file__).parents[3] / "docs"
PAGE = (DOCS / "records.md").read_text()
ARENA_PAGE = (DOCS / "arena.md").read_text()
REGRESSION_PAGE = (DOCS / "regression.md").read_text()
CLASSES = TaskLayout("toxicity", ("ok", "toxic"), models=("erm", "irm"), groups=("region", "paying"))
CONFIDENCES = TaskLayout("extraction", (), models=("extractor",))
EXAMPLES = [
    line for block in re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL) for line in block.splitlines()
]


@pytest.mark.parametrize("line", EXAMPLES)
def test_an_example_is_taken(line: str) -> None:
    record = json.loads(line)
    layout = CONFIDENCES if record.get("model") == "extractor" else CLASSES
    chunk = Decoder([layout], "page").decode([RawBlock(line.encode() + b"\n", "page", 0)])
    is_label = not record.keys() & {"scores", "models", "confidence"}
    answers = 0 if is_label else len(record.get("models", ["one"]))
    assert chunk.rejects == ()
    assert (sum(map(len, chunk.batches)), sum(map(len, chunk.labels))) == (answers, int(is_label))


def test_the_tables_and_the_examples_have_every_field_and_no_other() -> None:
    fields = set(Record.__struct_fields__) - set(KIND_FIELDS)
    assert set(re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE)) == fields
    assert set().union(*map(json.loads, EXAMPLES)) == fields


def test_the_page_on_arenas_has_examples_that_are_taken_and_names_every_field() -> None:
    block = re.search(r"```json\n(.*?)```", ARENA_PAGE, re.DOTALL)
    assert block is not None
    arena = TaskLayout("chat", (), kind="arena")
    chunk = Decoder([CLASSES, arena], "page").decode([RawBlock(block[1].encode(), "page", 0)])
    assert chunk.rejects == ()
    assert [(b.task, len(b)) for b in (*chunk.batches, *chunk.labels)] == [("chat", 2), ("chat", 1)]
    rows = re.findall(r"^\| (`.+?`) \|", ARENA_PAGE, re.MULTILINE)
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert named == {*TASK_KINDS["arena"].fields, "id", "time", "task", "probability"}


def test_the_page_on_regression_has_examples_that_are_taken_and_names_every_field() -> None:
    block = re.search(r"```json\n(.*?)```", REGRESSION_PAGE, re.DOTALL)
    assert block is not None
    delay = TaskLayout("delay", (), kind="regression", numeric=True, quantiles=(0.05, 0.95))
    chunk = Decoder([delay], "page").decode([RawBlock(block[1].encode(), "page", 0)])
    assert chunk.rejects == ()
    assert [len(b) for b in (*chunk.batches, *chunk.labels)] == [3, 1]
    rows = re.findall(r"^\| `(\w+)` \|", REGRESSION_PAGE, re.MULTILINE)
    assert {*rows} == {*TASK_KINDS["regression"].fields, "prediction", "models", "label"}
