"""Payloads of serving stacks are read by the mappings that their pages show beside them."""

from __future__ import annotations

import re
from datetime import datetime
from pathlib import Path

import pytest
import yaml

from connectors.formats.decode.decoder import Decoder
from connectors.formats.wires.choice import wire_of
from monitor.base.records import NO_ID, TaskLayout, id_keys
from monitor.base.source import RawBlock
from monitor.config.root import StdinSourceConfig
from tests.posting import posting
from tests.services.process import PATIENCE_SECONDS

SERVING = Path(__file__).parents[3] / "docs" / "serving"
PAGES = "\n".join(path.read_text(encoding="utf-8") for path in sorted(SERVING.glob("*.md")))
SAMPLES = dict(re.findall(r"^```json (\w+)\n(.*?)\n```", PAGES, flags=re.DOTALL | re.MULTILINE))
MAPPINGS = dict(re.findall(r"^```yaml (\w+)\n(.*?)```", PAGES, flags=re.DOTALL | re.MULTILINE))
BY_PATHS = {
    "kserve_v1": ('{"predictions": [[0.12, 0.88]]}', "{scores: 'predictions[0]', constants: {model: erm}}"),
    "open_inference": (
        '{"model_name": "erm", "model_version": "3", "id": "8231", '
        '"outputs": [{"name": "probabilities", "shape": [1, 2], "datatype": "FP32", "data": [0.12, 0.88]}]}',
        "{id: id, model: model_name, version: model_version, scores: 'outputs[0].data'}",
    ),
}
"""Responses of one row, which paths read as `format: kserve` does, and their mappings."""


def test_each_sample_has_a_mapping() -> None:
    assert (
        sorted(SAMPLES)
        == sorted(MAPPINGS)
        == ["bentoml", "cloudevents", "kserve_events", "open_inference_rows", "seldon_events"]
    )


def test_the_lines_of_a_python_service_post_an_answer(tmp_path: Path) -> None:
    (code,) = re.findall(r"^```python\n(.*?)```", PAGES, flags=re.DOTALL | re.MULTILINE)
    with posting(tmp_path / "spool") as posted:
        assert "127.0.0.1:9108" in code
        here = code.replace("127.0.0.1:9108", f"127.0.0.1:{posted.source.port}")
        # Its scores are of the first task's classes; this listener has two tasks, so it must be named.
        names = {"request_id": "8231"}
        exec(here.replace('model="erm"', 'model="erm", task="spam"'), names)
        names["client"].close(PATIENCE_SECONDS)  # type: ignore[attr-defined]
        (row,) = posted.read_rows()
    assert (row["id"], row["model"], row["scores"]) == ("8231", "erm", [0.12, 0.88])


@pytest.mark.parametrize("stack", [*MAPPINGS, *BY_PATHS])
def test_a_sample_is_read_by_the_mapping_beside_it(stack: str) -> None:
    sample, mapping = BY_PATHS[stack] if stack in BY_PATHS else (SAMPLES[stack], MAPPINGS[stack])
    source = StdinSourceConfig(kind="stdin", mapping=yaml.safe_load(mapping))
    wire = wire_of(source)
    layout = TaskLayout("toxicity", ("ok", "toxic"))
    chunk = Decoder([layout], stack, wire=wire).decode([RawBlock(sample.encode(), "p", 0)])
    assert chunk.rejects == ()
    (batch,) = chunk.batches
    assert (batch.scores.tolist(), batch.predicted.tolist()) == ([[0.12, 0.88]], [1])
    assert batch.models == ("erm",)
    assert (batch.key[0] == NO_ID) == (stack == "kserve_v1")
    if stack == "bentoml":
        assert batch.key.tolist() == id_keys(["399dc88b74578785"]).tolist()  # of X-BentoML-Request-ID
        assert batch.time[0] == datetime.fromisoformat("2026-07-01T12:00:00.120+02:00").timestamp()
    if stack in ("kserve_events", "seldon_events", "open_inference_rows"):
        assert batch.key.tolist() == id_keys(["8231:0"]).tolist()
    if stack.startswith("open_inference"):
        assert batch.versions == ("3",)
