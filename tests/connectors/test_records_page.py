"""The page about records says what the decoder does."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from connectors.base import RawBlock
from connectors.formats.decoder import Decoder
from connectors.formats.structs import Record
from monitor.records import TaskLayout

PAGE = (Path(__file__).parents[2] / "docs" / "records.md").read_text()
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
    fields = set(Record.__struct_fields__)
    assert set(re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE)) == fields
    assert set().union(*map(json.loads, EXAMPLES)) == fields
