"""A stream with more models and groups than are watched: bounded, counted, no other windows change."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from prometheus_client.exposition import generate_latest

from monitor.engine.labels.columns import model_code
from monitor.export.prometheus.collector import registry
from monitor.reports.views import AgentView
from monitor.store import Store
from tests.accounting import assert_adds_up
from tests.daemon import Metrics
from tests.streams import Record, Rig, answers, lines, task

MODELS = 5000
FEW = {"groups": ["region"], "max_series": 20}


def flooded(rows: list[Record], names: list[str], labels: bool = True) -> list[Record]:
    """Return the rows of a model, with answers of a model each, and of one model with a group each,
    between.
    """
    records: list[Record] = []
    each = len(names) // len(rows)
    for i, row in enumerate(rows):
        records.append(row)
        for name in names[i * each : (i + 1) * each]:
            other = {"id": f"flood-{name}", "time": row["time"], "model": name, "scores": [0.5, 0.5]}
            records.append(other | {"groups": {"region": f"of-{name}"}})
            records.append(other | {"model": "crowded", "groups": {"region": f"in-{name}"}})
            if labels and len(records) % 7 == 0:
                records.append({"id": other["id"], "label": "ok", "time": row["time"]})
    return records


@pytest.mark.slow
def test_five_thousand_models_and_groups_leave_the_first_ones_windows_as_they_are(tmp_path):
    settings = task(**FEW, labels={"max_answers": 1000, "max_waiting": 1000}, reference={"first_windows": 5})
    rows = answers(np.random.default_rng(0), 1000, "first", groups={"region": "eu"})
    alone, rig, store = Rig(settings), Rig(settings), Store(tmp_path, keep_reports=100)
    expected = alone.feed(rows)
    records = flooded(rows, [f"m{i}" for i in range(MODELS)])
    all_reports, sizes = [], []
    for start in range(0, len(records), 500):
        reports = rig.feed(records[start : start + 500])
        all_reports += reports
        store.commit(rig.engine.changes(), reports)
        rig.engine.confirm()
        sizes.append(sum(file.stat().st_size for file in tmp_path.iterdir()))
    mine = [report for report in all_reports if report.model == "first"]
    anywhere = [replace(report, positions={}) for report in mine]
    assert lines(anywhere) == lines([replace(report, positions={}) for report in expected])
    view = rig.engine.view()
    assert len(view.series) == 2 * FEW["max_series"]
    assert view.series_dropped == (MODELS - 18) + (1 + 18 + MODELS - 20), (
        "models, and groups of those watched"
    )
    scrape = assert_adds_up(AgentView(engine=view))
    assert scrape.value("series_dropped_total") == view.series_dropped
    assert scrape.total("shed_total") == MODELS - 18
    assert max(sizes) < 10 << 20, "the log, up to twice its 4 MB, and a file of less than that"
    store.close()


@pytest.mark.parametrize("cap", [0, 100, 2000])
def test_a_scrape_is_bounded_whatever_there_is_to_say(cap):
    rig = Rig(task(max_series=300, groups=["region"]))
    rig.feed(flooded(answers(np.random.default_rng(0), 100), [f"m{i}" for i in range(600)]))
    text = generate_latest(registry(lambda: AgentView(engine=rig.engine.view()), cap)).decode()
    scrape = Metrics(text)
    shown = len(scrape.all("windows_closed_total")) + len(scrape.all("group_windows_closed_total"))
    watched = len(rig.engine.view().series)
    assert len([line for line in text.splitlines() if not line.startswith("#")]) < cap + 100
    assert shown < watched
    assert scrape.value("series_dropped_total") == rig.engine.view().series_dropped + watched - shown


def test_names_beyond_the_bound_are_not_hashed_one_by_one():
    rig = Rig(task(max_series=5))
    rig.feed(answers(np.random.default_rng(0), 500, "first"))
    before = model_code.cache_info().misses
    records = (
        {"id": f"a-{i}", "time": 1.7e9, "model": f"unhashed-{i}", "scores": [0.5, 0.5]} for i in range(1000)
    )
    rig.feed(records)
    assert model_code.cache_info().misses - before == 4, "those that become series"
    assert_adds_up(AgentView(engine=rig.engine.view()))


def test_names_that_rotate_for_ever_cost_no_memory_beyond_a_bound():
    """Ten thousand names are remembered as dropped; a name beyond is counted each time that it comes."""
    rig = Rig(task(max_series=5))
    rig.feed(answers(np.random.default_rng(0), 500, "first"))
    sizes = []
    for turn in range(5):
        names = [f"name-{turn}-{i}" for i in range(5000)]
        rig.feed(
            {"id": name, "time": 1.7e9, "model": name, "scores": [0.5, 0.5], "label": "ok"} for name in names
        )
        state = rig.engine.snapshot().tasks["t"]
        sizes.append((len(state.series), len(state.dropped), len(state.join.answers.keys)))
    assert sizes[2:] == [sizes[2]] * 3
    assert sizes[-1][:2] == (5, 10_000)
    assert rig.engine.view().series_dropped == 25_000 - 4
    assert_adds_up(AgentView(engine=rig.engine.view()))
