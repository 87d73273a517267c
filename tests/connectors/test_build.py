"""From sections of the configuration to sources, decoders and references."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from connectors.build import build_inputs, build_source
from connectors.files import FileSource
from connectors.formats.wires.kserve import RESPONSE
from connectors.http import HttpSource
from connectors.kafka import KafkaSource
from connectors.redis_stream import RedisStream
from connectors.sql.source import SqlSource
from connectors.stdin import StdinSource
from monitor.base.errors import ConfigError
from monitor.base.records import RejectReason
from monitor.base.registry import SOURCES
from monitor.base.source import RawBlock, Source
from monitor.cli.trial import ReferenceTrial, read_references
from monitor.config.layouts import layouts
from monitor.config.root import Config
from monitor.reports.views import EngineView
from tests.daemon import ndjson
from tests.export.prometheus.scrape import crowd
from tests.streams import CLASSES, answers

KAFKA = {"kind": "kafka", "brokers": ["127.0.0.1:1"], "topics": ["predictions", "labels"]}
REDIS = {"kind": "redis", "url": "redis://127.0.0.1:1", "stream": "predictions"}
SQL = {"kind": "sql", "driver": "sqlite3", "dsn": "labels.db", "table": "labels", "cursor": "updated"}
HTTP = {"kind": "http", "listen": "127.0.0.1:0", "spool": {"path": "spool"}}


def config(*sources: dict[str, Any], **tasks: Any) -> Config:
    return Config(tasks=tasks or {"t": {"classes": CLASSES}}, sources=sources)


def build(section: dict[str, Any]) -> Source:
    built = config(section)
    return build_source(built.sources[0], layouts(built.tasks))


@pytest.mark.parametrize(
    ("section", "kind"),
    [
        ({"kind": "file", "path": "a.ndjson"}, FileSource),
        ({"kind": "stdin"}, StdinSource),
        (KAFKA, KafkaSource),
        (HTTP, HttpSource),
        (REDIS, RedisStream),
        (SQL, SqlSource),
    ],
)
@pytest.mark.parametrize("name", [None, "mine"])
def test_each_kind_becomes_its_source_under_the_name_that_metrics_use(
    section: dict[str, Any], kind: type[Source], name: str | None
) -> None:
    section = section | ({"name": name} if name else {})
    source = build(section)
    assert type(source) is kind
    assert source.name == config(section).sources[0].label
    assert source.name == name or name is None


def test_every_kind_of_source_in_the_schema_can_be_built() -> None:
    kinds = {section["properties"]["kind"]["const"] for section in sections()}
    assert kinds == set(SOURCES) == {"file", "stdin", "kafka", "http", "redis", "sql"}


def sections() -> list[dict[str, Any]]:
    schema = Config.model_json_schema()
    choices = schema["properties"]["sources"]["items"]["oneOf"]
    return [schema["$defs"][choice["$ref"].rsplit("/", 1)[1]] for choice in choices]


def test_a_files_settings_reach_it() -> None:
    source = build({"kind": "file", "path": "logs/a.ndjson", "follow": True})
    assert isinstance(source, FileSource)
    assert (source.path, source.follow, source.name) == (Path("logs/a.ndjson"), True, "a.ndjson")
    assert source.partition == "logs/a.ndjson"


def test_a_kafka_option_that_there_is_not_is_refused_before_anything_connects() -> None:
    with pytest.raises(ConfigError, match="fetch_max_byte"):
        build(KAFKA | {"options": {"fetch_max_byte": 1}})


def test_each_source_has_a_decoder_that_knows_every_task() -> None:
    tasks = {"t": {"classes": CLASSES}, "u": {"classes": ["x", "y", "z"], "models": {"irm": {}}}}
    inputs = build_inputs(config({"kind": "file", "path": "a"}, {"kind": "file", "path": "b"}, **tasks))
    assert [one.feed.name for one in inputs] == ["a", "b"]
    rows = [
        {"task": "t", "model": "erm", "scores": [0.5, 0.5]},
        {"model": "irm", "scores": [0.2, 0.3, 0.5]},
    ]
    for one in inputs:
        chunk = one.decode([RawBlock(ndjson(rows), "p", 0)])
        assert chunk.source == one.feed.name
        assert chunk.rejects == ()
        assert [(batch.task, batch.scores.shape) for batch in chunk.batches] == [
            ("t", (1, 2)),
            ("u", (1, 3)),
        ]


def test_references_are_read_by_task_and_model_where_a_file_is_named(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    rows = [*answers(rng, 30, labelled=True), *answers(rng, 20, model="irm", labelled=True)]
    (tmp_path / "ref.ndjson").write_bytes(ndjson([row | {"task": "t"} for row in rows]))
    references = read_references(
        config(
            t={"classes": CLASSES, "reference": {"path": str(tmp_path / "ref.ndjson")}},
            u={"classes": CLASSES, "reference": {"first_windows": 20}},
        )
    )
    assert {task: {m: len(r.labels) for m, r in models.items()} for task, models in references.items()} == {
        "t": {"erm": 30, "irm": 20}
    }
    assert references["t"]["erm"].scores[:, 1].tolist() == [row["scores"][1] for row in rows[:30]]
    assert references["t"]["irm"].labels.tolist() == [CLASSES.index(row["label"]) for row in rows[30:]]


def test_several_tasks_may_share_a_reference_file(tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    rows = [row | {"task": name} for name in ("t", "u") for row in answers(rng, 10, labelled=True)]
    (tmp_path / "ref.ndjson").write_bytes(ndjson(rows))
    task = {"classes": CLASSES, "reference": {"path": str(tmp_path / "ref.ndjson")}}
    references = read_references(config(t=task, u=task))
    assert [len(references[name]["erm"].labels) for name in ("t", "u")] == [10, 10]
    assert references["t"]["erm"].scores[0, 1] != references["u"]["erm"].scores[0, 1]


def test_a_reference_that_is_not_there_is_named(tmp_path: Path) -> None:
    path = tmp_path / "none.ndjson"
    with pytest.raises(ConfigError, match=f"There is no file {path}"):
        read_references(config(t={"classes": CLASSES, "reference": {"path": str(path)}}))


def test_two_sources_of_one_derived_name_are_refused() -> None:
    with pytest.raises(
        ValueError, match=r"expected another name than sources\[0\], got 'a\.ndjson' for both"
    ):
        config({"kind": "file", "path": "x/a.ndjson"}, {"kind": "file", "path": "y/a.ndjson"})


def test_long_names_are_refused_but_those_of_the_state_go_on() -> None:
    kept = {"model": "m" * 300, "version": "v" * 300, "groups": {"region": "g" * 300}}
    [series, *_] = crowd(1, 0).engine.series
    state = EngineView(
        series=(replace(series, model="m" * 300, version="v" * 300, group=f"region={'g' * 300}"),)
    )
    feed = {"kind": "file", "path": "a.ndjson"}
    known = config(feed, t={"classes": CLASSES, "groups": ["region"]})
    old = ndjson([{"scores": [0.25, 0.75], **kept}])
    new = ndjson([{"scores": [0.25, 0.75], **kept, "model": "n" * 300}])
    for resumed, answers_used in ((state, 1), (None, 0)):
        [source] = build_inputs(known, resumed)
        chunk = source.decode([RawBlock(old + new, "a.ndjson", 0)])
        assert sum(map(len, chunk.batches)) == answers_used
        assert chunk.answers == 2
        assert {reject.reason for reject in chunk.rejects} == {RejectReason.TOO_LARGE}


def test_labels_of_any_source_may_name_requests_where_another_one_numbers_their_rows(tmp_path: Path) -> None:
    event = {"specversion": "1.0", "type": RESPONSE, "id": "r-1", "inferenceservicename": "erm"}
    files = {
        "events": ndjson([event | {"data": {"predictions": [[0.25, 0.75]]}}]),
        "plain": ndjson([{"id": "r-1", "label": "bad", "time": 1.7e9}]),
        "mapped": ndjson([{"order": "r-1", "truth": "ok", "at": 1.7e9}]),
    }
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    kinds = {"events": {"format": "kserve"}, "mapped": {"id": "order", "label": "truth", "time": "at"}}
    sections = [
        {"kind": "file", "name": name, "path": str(tmp_path / name)}
        | ({"mapping": kinds[name]} if name in kinds else {})
        for name in files
    ]
    built = config(*sections)
    engine = ReferenceTrial(built).engine_settings().build()
    outcomes = []
    for each in build_inputs(built):
        each.feed.open({})
        engine.absorb(each.decode(each.feed.read(0.0)), 1.7e9)
        each.feed.close()
        outcomes.append({what.value: n for (_, what), n in engine.view().labels.items() if n})
    assert outcomes == [{}, {"matched": 1}, {"matched": 1, "conflicting": 1}]
