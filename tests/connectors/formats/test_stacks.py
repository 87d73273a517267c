"""Payloads of serving stacks are read by the mappings that the page shows beside them."""

from __future__ import annotations

import re
from datetime import datetime
from pathlib import Path

import pytest
import yaml

from connectors.base import RawBlock
from connectors.formats.decoder import Decoder
from connectors.formats.wires import wire_of
from monitor.config import StdinSource
from monitor.records import NO_ID, TaskLayout, id_keys

PAGE = (Path(__file__).parents[3] / "docs" / "serving" / "stacks.md").read_text(encoding="utf-8")
SAMPLES = dict(re.findall(r"```json (\w+)\n(.*?)\n```", PAGE, flags=re.DOTALL))
MAPPINGS = dict(re.findall(r"```yaml (\w+)\n(.*?)```", PAGE, flags=re.DOTALL))


def test_each_sample_has_a_mapping() -> None:
    assert (
        sorted(SAMPLES)
        == sorted(MAPPINGS)
        == [
            *("bentoml", "kserve_events", "kserve_v1", "open_inference"),
        ]
    )


@pytest.mark.parametrize("stack", MAPPINGS)
def test_a_sample_is_read_by_the_mapping_beside_it(stack: str) -> None:
    source = StdinSource(kind="stdin", mapping=yaml.safe_load(MAPPINGS[stack]))
    wire = wire_of(source)
    layout = TaskLayout("toxicity", ("ok", "toxic"))
    chunk = Decoder([layout], stack, wire=wire).decode([RawBlock(SAMPLES[stack].encode(), "p", 0)])
    assert chunk.rejects == ()
    (batch,) = chunk.batches
    assert (batch.scores.tolist(), batch.predicted.tolist()) == ([[0.12, 0.88]], [1])
    assert batch.models == ("erm",)
    assert (batch.key[0] == NO_ID) == (stack == "kserve_v1")
    if stack == "bentoml":
        assert batch.time[0] == datetime.fromisoformat("2026-07-01T12:00:00.120+02:00").timestamp()
    if stack == "kserve_events":
        assert batch.key.tolist() == id_keys(["8231:0"]).tolist()
    if stack == "open_inference":
        assert batch.versions == ("3",)
