"""The dashboards as files: what the build writes, valid by Grafana's own types, by the usual conventions."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from deploy.grafana import build
from monitor.export.page.addresses import model_address
from monitor.export.prometheus.collector import GROUP_PREFIX, PREFIX
from monitor.export.prometheus.families import FAMILIES

FOLDER = Path(__file__).parents[2] / "deploy" / "grafana"
NAMES = ("fleet", "model")
# Of @grafana/schema 11.6.0 (Apache-2.0), type Dashboard, made in a folder with that package by
# `npx ts-json-schema-generator -t Dashboard --no-type-check
#  -p node_modules/@grafana/schema/dist/esm/raw/dashboard/x/dashboard_types.gen.d.ts`.
SCHEMA = Path(__file__).with_name("grafana-11.6.0-dashboard.schema.json.gz")
READ_BUT_NOT_TYPED = {"expr", "titleFormat"}
"""Keys of annotations that Grafana's Prometheus data source reads, and that its types leave out."""


def shipped(name: str) -> dict[str, Any]:
    board: dict[str, Any] = json.loads(
        (FOLDER / "dashboards" / f"blindsight-{name}.json").read_text(encoding="utf-8")
    )
    return board


def panels(name: str) -> list[dict[str, Any]]:
    return [panel for panel in shipped(name)["panels"] if panel["type"] != "row"]


def expressions(name: str) -> Iterator[str]:
    for panel in panels(name):
        yield from (target["expr"] for target in panel["targets"])
    yield from (mark["expr"] for mark in shipped(name)["annotations"].get("list", ()))


def test_shipped_files_are_what_the_build_writes(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert build.main(["--check"]) == 0
    assert capsys.readouterr().out == ""
    assert build.main(["--check", "--runbooks", "https://wiki.example/runbooks"]) == 1
    assert "dashboards/blindsight-fleet.json is not what the build writes" in capsys.readouterr().out

    (tmp_path / "dashboards").mkdir()
    monkeypatch.setattr(build, "HERE", tmp_path)
    assert build.main(["--runbooks", "https://wiki.example/runbooks"]) == 0
    written = json.loads((tmp_path / "dashboards" / "blindsight-model.json").read_text(encoding="utf-8"))
    assert [link["url"] for link in written["links"] if link["title"] == "Runbooks"] == [
        "https://wiki.example/runbooks"
    ]


@pytest.mark.parametrize("name", NAMES)
def test_dashboards_are_valid_by_grafanas_own_types(name: str) -> None:
    schema = json.loads(gzip.decompress(SCHEMA.read_bytes()))
    validator = jsonschema.Draft7Validator(schema)
    board = shipped(name)
    for mark in board["annotations"].get("list", ()):
        assert set(mark) >= READ_BUT_NOT_TYPED
        for key in READ_BUT_NOT_TYPED:
            del mark[key]
    assert [f"{list(e.path)}: {e.message}" for e in validator.iter_errors(board)] == []
    # The schema refuses what it does not know, or this test would say nothing.
    assert not validator.is_valid(board | {"colour": "red"})
    assert not validator.is_valid(board | {"graphTooltip": 7})


@pytest.mark.parametrize("name", NAMES)
def test_every_panel_says_what_it_shows_and_asks_the_chosen_data_source(name: str) -> None:
    titles = [panel["title"] for panel in panels(name)]
    assert len(titles) == len(set(titles)) >= 15
    for panel in panels(name):
        assert len(panel["description"]) > 10, panel["title"]
        assert panel["description"].endswith("."), panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]
        source = {"type": "prometheus", "uid": "${datasource}"}
        assert panel["datasource"] == source
        assert all(target["datasource"] == source for target in panel["targets"])
        letters = [target["refId"] for target in panel["targets"]]
        assert letters == list("ABCDEFGHIJ")[: len(letters)]
    for variable in shipped(name)["templating"]["list"]:
        assert variable["type"] == "datasource" or variable["datasource"]["uid"] == "${datasource}"


def test_panels_of_alarms_say_that_labels_may_decide() -> None:
    descriptions = {panel["title"]: panel["description"] for panel in panels("model")}
    for title in ("Active alarms", "Improvements"):
        assert "labels" in descriptions[title], title


@pytest.mark.parametrize("name", NAMES)
def test_dashboards_can_be_found_linked_and_not_edited_in_place(name: str) -> None:
    board = shipped(name)
    assert board["uid"] == f"blindsight-{name}"
    assert board["editable"] is False
    assert board["tags"] == ["blindsight"]
    assert [panel["id"] for panel in board["panels"]] == list(range(1, len(board["panels"]) + 1))
    names = [each["name"] for each in board["templating"]["list"]]
    assert names[:5] == ["datasource", "job", "instance", "task", "model"]
    for each in board["templating"]["list"][1:3]:
        assert (each["multi"], each["includeAll"], each["allValue"], each["refresh"]) == (True, True, ".+", 2)
    used = set(re.findall(r"\$\{?(\w+)", " ".join(expressions(name))))
    assert used - {"__rate_interval", "__range"} <= set(names)


@pytest.mark.parametrize("name", NAMES)
def test_every_selector_is_of_the_chosen_job_and_instance(name: str) -> None:
    for expression in expressions(name):
        selectors = re.findall(r"(\w+)\{([^}]*)\}", expression)
        assert selectors, expression
        for metric, labels in selectors:
            assert 'job=~"$job"' in labels, expression
            # An alert of several replicas has no instance.
            assert 'instance=~"$instance"' in labels or metric == "ALERTS", expression


def test_each_dashboard_leads_to_the_page_of_an_agent() -> None:
    pages = {
        "fleet": "${page}/",
        "model": "${page}/models?task=${task:percentencode}&model=${model:percentencode}",
    }
    for name, address in pages.items():
        assert address in [link.get("url") for link in shipped(name)["links"]]
        (variable,) = [each for each in shipped(name)["templating"]["list"] if each["name"] == "page"]
        assert variable["hide"] == 2, "nobody chooses it"
        assert variable["query"].startswith("query_result(blindsight_page_info{")
        pattern = re.compile(variable["regex"].strip("/"))
        sample = 'blindsight_page_info{instance="a:1", job="b", url="https://m.example/b"} 1 1795168800000'
        (url,) = pattern.findall(sample)
        assert url == "https://m.example/b"
    assert model_address("t", "a/b c") == "models?task=t&model=a%2Fb+c", "a query, as the board has it"


def known_metrics() -> dict[str, str]:
    """Return names as they are scraped, and their types."""
    suffixes = {"gauge": [""], "counter": ["_total"], "info": ["_info"]}
    suffixes["histogram"] = ["_bucket", "_sum", "_count"]
    return {
        prefix + key + suffix: family.kind
        for prefix in (PREFIX, GROUP_PREFIX)
        for key, family in FAMILIES.items()
        for suffix in suffixes[family.kind]
    }


@pytest.mark.parametrize("name", NAMES)
def test_expressions_name_metrics_that_there_are_and_never_show_a_bare_counter(name: str) -> None:
    known = known_metrics()
    shown_as_total = "blindsight_windows_closed_total", "blindsight_series_dropped_total"
    for expression in expressions(name):
        for metric in re.findall(r"blindsight_\w+", expression):
            assert metric in known, expression
            if known[metric] in ("counter", "histogram") and metric not in shown_as_total:
                spans = r"\[\$__(rate_interval|range)\]"
                assert re.search(rf"(rate|increase)\({metric}\{{[^}}]*\}}{spans}", expression)


@pytest.mark.parametrize("name", NAMES)
def test_panels_fill_the_grid_without_overlap(name: str) -> None:
    covered: set[tuple[int, int]] = set()
    for panel in shipped(name)["panels"]:
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= 24, panel["title"]
        cells = {(at["x"] + i, at["y"] + j) for i in range(at["w"]) for j in range(at["h"])}
        assert not cells & covered, panel["title"]
        covered |= cells


def test_the_page_of_figures_counts_what_ships() -> None:
    deploy = FOLDER.parent
    rules = yaml.safe_load((deploy / "prometheus" / "blindsight.rules.yaml").read_text(encoding="utf-8"))
    names = [rule["alert"] for group in rules["groups"] for rule in group["rules"]]
    every = [panel for name in NAMES for panel in panels(name)]
    assert all(panel["targets"] for panel in every), "one that asks for nothing would pass as one with data"
    runbooks = len(list((deploy / "runbooks").glob("*.md")))
    page = (deploy.parent / "tests" / "measured.md").read_text(encoding="utf-8")
    [row] = [line for line in page.splitlines() if line.startswith("| what ships: ")]
    counts = re.findall(r"(\d+) (alerts|rules|runbooks|panels)", row)
    assert {what: int(count) for count, what in counts} == {
        "alerts": len(set(names)),
        "rules": len(names),
        "runbooks": runbooks,
        "panels": len(every),
    }


def test_the_configmap_holds_the_same_dashboards_for_grafanas_sidecar() -> None:
    configmap = yaml.safe_load((FOLDER / "configmap.yaml").read_text(encoding="utf-8"))
    assert configmap["kind"] == "ConfigMap"
    assert configmap["metadata"]["labels"] == {"grafana_dashboard": "1"}
    assert {key: json.loads(text) for key, text in configmap["data"].items()} == {
        f"blindsight-{name}.json": shipped(name) for name in NAMES
    }


def test_provisioning_files_name_what_is_shipped() -> None:
    dashboards = yaml.safe_load((FOLDER / "provisioning/dashboards/blindsight.yaml").read_text("utf-8"))
    [provider] = dashboards["providers"]
    assert (provider["type"], provider["allowUiUpdates"]) == ("file", False)
    sources = yaml.safe_load((FOLDER / "provisioning/datasources/prometheus.yaml").read_text("utf-8"))
    [source] = sources["datasources"]
    assert (source["type"], source["isDefault"]) == ("prometheus", True)
