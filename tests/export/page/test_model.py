"""The page of a model and the JSON API: what they say, their addresses, and what they refuse."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qs, quote, urljoin, urlsplit

import httpx
import jsonschema
import numpy as np
import pytest

from monitor.base.results import Estimate
from monitor.config.root import Arena
from monitor.export.charts.pictures import Histories
from monitor.export.page.addresses import external_address, model_address
from monitor.export.page.states import RUNBOOKS
from monitor.export.page.windows import RecentWindows, alarms_of, chart_columns
from monitor.export.rules import runbook_names
from monitor.reports.window_report import WindowReport, rfc3339, to_json
from tests.engine.test_covariates import flights
from tests.engine.test_features import carriers, reference, watched
from tests.export.page.page_reading import Reader, reading, serving
from tests.numbers import predictions, reference_of_numbers, regression
from tests.streams import Rig, answers, compared, reference_of, task

WORSE = (0.5, 0.4, 0.1)
ODD = ["a/b", "100 % <b>&é", "..", "%2F", "a\\b", "?#;=+", "模型"]
"""Names of models that a path, a page or a query could take for something else."""
NO_ERN = "Task 't' has no model 'ern'; its models: erm, irm, a/b, 100 % <b>&é, .. and 4 more."
PARAMETERS = "metric, group, window, limit, range, compare, former"
STATES = "at_risk, breached, in_control, out_of_control, silent, untrusted, warming_up"
NUMBER = "expected a whole number from 0 to 9007199254740991"
GIVEN = "got nothing: it must be given."


@pytest.fixture(scope="module")
def rig() -> Rig:
    return Rig(
        task(
            reference={"first_windows": 5},
            chart={"sigmas": 3},
            metrics=["accuracy", "f1"],
            objective={"accuracy": {"min": 0.9}},
            groups=["region"],
        )
    )


@pytest.fixture(scope="module")
def reports(rig: Rig) -> list[WindowReport]:
    """Return `erm`: ten windows as in the baseline, then five worse ones; `irm`: fifteen good ones;
    others: one.
    """
    rng = np.random.default_rng(3)
    more = {"labelled": True, "groups": {"region": "eu"}}
    reports = rig.feed(answers(rng, 1000, **more))
    reports += rig.feed(answers(rng, 500, weights=WORSE, start=1.7e9 + 1000, **more))
    reports += rig.feed(answers(rng, 1500, "irm", start=1.7e9))
    for name in ODD:
        reports += rig.feed(answers(rng, 100, name, start=1.7e9))
    return reports


@pytest.fixture(scope="module")
def client(rig: Rig, reports: list[WindowReport]) -> Iterator[httpx.Client]:
    windows = RecentWindows()
    windows.add(reports)
    with serving(rig, windows) as client:
        yield client


def test_features_are_listed_with_the_broken_and_the_farthest_first() -> None:
    one = Rig(watched(), {"t": reference()})
    windows = RecentWindows()
    moved = [record | {"groups": {}} for record in flights(2, 250, 0.9, labelled=False)]
    windows.add(one.feed(moved))
    with serving(one, windows) as client:
        _, _, table = page(client, "/models/t/erm").text.partition("Features in the newest window")
    pattern = r"^\|(\w+)\|[\d.]+ %\|[\d.]+ %\|(0\.\d{3})\|(0\.\d{3})\|([^|]+)\|[^|]*\|[^|]+$"
    rows = re.findall(pattern, table, re.MULTILINE)
    assert [(name, verdict) for name, *_, verdict in rows] == [
        ("carrier", "has drifted"),
        ("hour", "as in the reference"),
    ]
    assert float(rows[0][1]) > float(rows[0][2])
    assert float(rows[1][1]) < float(rows[1][2])
    lost = [record | {"features": {"carrier": "A"}} for record in flights(3, 250, 0.3, labelled=False)]
    windows.add(one.feed(lost))
    with serving(one, windows) as client:
        _, _, table = page(client, "/models/t/erm").text.partition("Features in the newest window")
    verdicts = re.findall(r"^\|(\w+)\|.*\|broken: (\w+)\|", table, re.MULTILINE)
    assert verdicts == [("hour", "missing"), ("carrier", "constant")]


def bars(path: str, height: float) -> dict[int, float]:
    """Return the height of each bar of a path as a share of `height`, by the place of its bin."""
    shapes = re.findall(r"M([\d.]+) \d+v-([\d.]+)h[\d.]+v\2", path)
    assert "".join(f"M{x} 32v-{y}" for x, y in shapes) == re.sub(r"h[\d.]+v[\d.]+", "", path)
    return {int(float(x) / (240 / 4)): float(y) / height for x, y in shapes}


def test_the_distributions_of_features_are_drawn_with_the_bin_that_differs_most() -> None:
    one = Rig(watched(), {"t": reference()})
    moved = flights(2, 250, 0.9, labelled=False)
    one.feed(moved)
    with serving(one, RecentWindows()) as client:
        seen = page(client, "/models/t/erm")
    names = [str(attrs.get("aria-label")) for tag, attrs in seen.tags if tag == "svg"]
    assert [name for name in names if name.startswith("Distribution")] == [
        f"Distribution of {name} in the reference and in the window" for name in ("carrier", "hour")
    ]
    places = [k for k, (tag, attrs) in enumerate(seen.tags) if "Distribution of carrier" in str(attrs)]
    (_, hollow), (_, filled) = seen.tags[places[0] + 2 : places[0] + 4]
    before, now = carriers(flights(0, 5000, 0.3)), carriers(moved)
    assert (hollow["fill"], hollow["stroke"], filled["fill"]) == ("none", "#5c5c5c", "#0072b2")
    # The bins of carrier: A, B, other texts, missing; the highest bar is as high as the picture.
    highest = max(*(before / before.sum()), *(now / now.sum()))
    for attrs, counts in ((hollow, before), (filled, now)):
        expected = dict(enumerate(counts / counts.sum() / highest))
        assert bars(str(attrs["d"]), 31) == pytest.approx(expected, abs=0.001)
    most = f"value 1: {100 * now[0] / now.sum():.1f} %, reference {100 * before[0] / before.sum():.1f} %"
    assert f"|{most}\n" in seen.text


def test_only_the_farthest_features_are_drawn() -> None:
    many = {f"f{i}": "number" for i in range(64)}
    rng = np.random.default_rng(5)

    def rows(seed: int, n: int) -> list[dict[str, Any]]:
        values = rng.normal(size=(n, 64)).tolist()
        return [
            row | {"features": dict(zip(many, each, strict=True))}
            for row, each in zip(flights(seed, n, 0.3), values, strict=True)
        ]

    configured = watched(features=many)
    one = Rig(configured, {"t": reference_of(configured, rows(6, 1000))})
    one.feed(rows(7, 250))
    with serving(one, RecentWindows()) as client:
        text = client.get("/models/t/erm").text
    _, _, table = text.partition("<h2>Features")
    table, _, _ = table.partition("</table>")
    assert (table.count("<tr>"), table.count("Distribution of")) == (65, 16)
    assert len(table) < 50_000


def of(reports: list[WindowReport], model: str = "erm", group: str = "") -> list[WindowReport]:
    return [report for report in reports if (report.model, report.group) == (model, group)]


def page(client: httpx.Client, address: str) -> Reader:
    answer = client.get(address)
    assert (answer.status_code, answer.headers["content-type"]) == (200, "text/html; charset=utf-8"), (
        answer.text
    )
    return reading(answer.text)


def asks(reader: Reader, address: str) -> set[str]:
    """Return every address in a page, as a browser would ask for it."""
    names = {"href", "src", "data-history"}
    links = (str(value) for _, attrs in reader.tags for name, value in attrs.items() if name in names)
    return {
        urljoin(f"http://agent/{address.lstrip('/')}", link).removeprefix("http://agent") for link in links
    }


# ── the page ──


def test_a_model_has_a_page_with_all_that_is_known_of_it(client: httpx.Client) -> None:
    reader = page(client, "/models/t/erm")
    headings = [line for line in reader.text.split("\n") if line]
    for words in (
        "erm objective breached",
        "Other metrics",
        "Compare",
        "Window 14 objective breached",
        "Alarms",
        "Labels so far",
        "Groups",
    ):
        assert any(line.startswith(words) for line in headings), words
    figures = [attrs for tag, attrs in reader.tags if tag == "figure"]
    queries = [parse_qs(urlsplit(str(attrs["data-history"])).query) for attrs in figures]
    assert [attrs.get("class") for attrs in figures] == ["large", "small"]
    assert [each["metric"] for each in queries] == [["accuracy"], ["f1"]]
    assert "data-select" in figures[0]
    assert "|erm|1,500|1,500|" in reader.text
    assert "Runbook BlindsightObjectiveBreached" in reader.text
    ids = [attrs["id"] for _, attrs in reader.tags if "id" in attrs]
    assert len(ids) == len(set(ids))
    labels = [attrs["aria-label"] for _, attrs in reader.tags if "aria-label" in attrs]
    assert len(labels) == len(set(labels))
    levels = [int(tag[1]) for tag, _ in reader.tags if re.fullmatch("h[1-6]", tag)]
    assert levels[:2] == [1, 2]
    assert set(levels) == {1, 2}


def test_the_metric_that_is_asked_for_is_the_large_one(client: httpx.Client) -> None:
    reader = page(client, "/models/t/erm?metric=f1")
    figures = [(attrs["class"], str(attrs["data-history"])) for tag, attrs in reader.tags if tag == "figure"]
    assert [(kind, "metric=f1" in query) for kind, query in figures] == [("large", True), ("small", False)]


def test_a_range_of_time_is_chosen_by_a_link_and_concerns_every_chart() -> None:
    rig, windows = Rig(task(groups=["region"])), RecentWindows()
    day = 86_400.0
    for start in (1.7e9, 1.7e9 + 3 * day, 1.7e9 + 20 * day, 1.7e9 + 100 * day):
        windows.add(rig.feed(answers(np.random.default_rng(3), 400, start=start)))
    expected = {"24h": 4, "7d": 4, "30d": 4, "all": 16}
    with serving(rig, windows) as client:
        for name, count in expected.items():
            address = f"/models/t/erm?range={name}"
            reader = page(client, address)
            assert f"\n{count} windows since " in reader.text
            here = [attrs.get("href") for tag, attrs in reader.tags if tag == "a" and "aria-current" in attrs]
            assert here == [f"../../models/t/erm?range={name}"]
            histories = {link for link in asks(reader, address) if "/api/v1/chart" in link}
            assert histories
            assert all(f"range={name}" in link for link in histories)
            (large,) = [link for link in histories if "metric=accuracy" in link]
            assert len(client.get(large).json()["window"]) == count
            assert client.get(large.replace("/api/v1/chart", "/chart.svg")).text.count(f" {count} windows")
        links = {link for link in asks(page(client, "/models/t/erm"), "/models/t/erm") if "range" in link}
        assert links == {f"/models/t/erm?range={name}" for name in expected}


def test_of_a_long_range_some_windows_are_shown_and_the_page_says_which(reports: list[WindowReport]) -> None:
    rig, windows = Rig(task()), RecentWindows()
    rig.feed(answers(np.random.default_rng(3), 100))
    end = rig.engine.view().series[0].window_end_time
    assert end is not None
    many = [replace(of(reports)[12], window=n, end_time=end - 1203 + n) for n in range(1204)]
    windows.add(many)
    with serving(rig, windows) as client:
        text = page(client, "/models/t/erm?range=all").text
        chart = client.get("/api/v1/chart?task=t&model=erm&metric=accuracy&range=all").json()
    assert chart["window"] == [*range(0, 1203, 3), 1203]
    assert "Only windows whose number is a multiple of 3, 402 in all, since " in text
    assert (
        "These are only the windows whose number is a multiple of 3, so short alarms may be missing." in text
    )


def test_a_window_is_shown_as_its_report_says(client: httpx.Client, reports: list[WindowReport]) -> None:
    report = of(reports)[12]
    reader = page(client, "/models/t/erm?window=12")
    (line,) = [line for line in reader.text.split("\n") if line.startswith("Window 12 ")]
    assert line.startswith("Window 12 ")
    estimate = report.estimates[0].result
    sentence = f"average confidence: {100 * estimate.value:.1f} %"  # type: ignore[union-attr]
    assert sentence in reader.text.partition("Metrics of window 12")[2]
    assert f"100 answers, closed by {report.closed_by}" in reader.text
    assert "Positions in the source: part-0 " in reader.text
    links = asks(reader, "/models/t/erm")
    assert {"/models/t/erm?window=11", "/models/t/erm?window=13", "/models/t/erm"} <= links


def test_alarms_are_a_timeline_and_a_list_that_leads_to_their_windows(
    client: httpx.Client, reports: list[WindowReport]
) -> None:
    raised = alarms_of(of(reports))
    assert {alarm.metric for alarm in raised} == {"accuracy", "f1"}
    reader = page(client, "/models/t/erm")
    (label,) = [
        attrs["aria-label"]
        for tag, attrs in reader.tags
        if tag == "svg" and str(attrs.get("aria-label")).startswith("Alarms of accuracy")
    ]
    first = next(alarm for alarm in raised if alarm.metric == "accuracy")
    assert label == f"Alarms of accuracy: window {first.raised_window} to now"
    assert "|still on|" in reader.text
    assert f"/models/t/erm?metric=accuracy&window={first.raised_window}" in asks(reader, "/models/t/erm")


def test_the_alarms_are_those_of_the_pictures(reports: list[WindowReport]) -> None:
    """`ChartHistory` finds the same alarms, with a version that changes and an alarm that ends."""
    own = of(reports)
    calm = [
        replace(report, window=15 + i, end_time=report.end_time + 1e4) for i, report in enumerate(own[6:9])
    ]
    renewed = [replace(report, window=18 + i, version="2") for i, report in enumerate(own[11:14])]
    lines = [*own, *calm, *own_again(own, 18), *[replace(r, window=r.window + 3) for r in renewed]]
    histories = Histories({})
    histories.add(lines)
    starts = histories.alarms()["t", "erm", ""]
    alarms = alarms_of(lines)
    for metric, raised in starts.items():
        mine = [(a.raised_window, a.raised_time, a.ended_window) for a in alarms if a.metric == metric]
        assert mine == [(one.window, rfc3339(one.time), one.ended_window) for one in raised]
    accuracy = [alarm for alarm in alarms if alarm.metric == "accuracy"]
    assert [alarm.ended_window for alarm in accuracy] == [15, 21, None]


def own_again(own: list[WindowReport], window: int) -> list[WindowReport]:
    """Return three windows out of control."""
    return [replace(report, window=window + i) for i, report in enumerate(own[11:14])]


def test_a_model_is_compared_with_another_one_and_with_its_own_past(
    client: httpx.Client, reports: list[WindowReport]
) -> None:
    values = [e.result.value for r in of(reports) for e in r.estimates[:1]]  # type: ignore[union-attr]
    others = [e.result.value for r in of(reports, "irm") for e in r.estimates[:1]]  # type: ignore[union-attr]
    text = page(client, "/models/t/erm?compare=irm").text.partition("side by side")[2]
    means = [f"{100 * sum(each) / 15:.1f} %" for each in (values, others)]
    assert f"|erm|15|{means[0]}|" in text
    difference = f"{100 * (sum(others) - sum(values)) / 15:+.1f} points"
    assert re.search(rf"\|irm\|15\|{means[1]}\|[^|]+\|[^|]+\|{re.escape(difference)}\n", text)
    text = page(client, "/models/t/erm?limit=7&former=7").text.partition("side by side")[2]
    assert f"|erm|7|{100 * sum(values[8:]) / 7:.1f} %|" in text
    assert f"|up to window 7|7|{100 * sum(values[1:8]) / 7:.1f} %|" in text
    columns = client.get("/api/v1/chart?task=t&model=erm&metric=accuracy&limit=7&former=7").json()
    assert columns["other"] == pytest.approx([round(value, 6) for value in values[1:8]])
    links = asks(page(client, "/models/t/erm"), "/models/t/erm")
    assert {"/models/t/erm?compare=irm", "/models/t/erm?limit=7&former=7"} <= links


@pytest.mark.parametrize("query", ["compare=irm", "limit=7&former=7"])
def test_without_a_script_the_comparison_is_in_the_picture_too(client: httpx.Client, query: str) -> None:
    reader = page(client, f"/models/t/erm?{query}")
    pictures = {str(attrs["src"]) for tag, attrs in reader.tags if tag == "img"}
    (picture,) = {urljoin("/models/t/erm", each) for each in pictures if "metric=accuracy" in each}
    svg = client.get(picture).text
    columns = client.get(f"/api/v1/chart?task=t&model=erm&metric=accuracy&{query}").json()
    assert f">{columns['other_name']}</text>" in svg, "its name is in the legend"
    (line,) = re.findall(r'<path class="other"[^>]* d="([^"]+)"', svg)
    assert line.count("L") == len(columns["other"]) - 1
    alone = client.get("/chart.svg?task=t&model=erm&metric=accuracy")
    assert 'class="other"' not in alone.text
    assert client.get("/chart.svg?task=t&model=erm&metric=accuracy&compare=ern").status_code == 404


def test_windows_of_another_model_stand_beside_those_that_had_ended_by_then() -> None:
    rng = np.random.default_rng(5)
    rig = Rig(task())
    reports = rig.feed(answers(rng, 500)) + rig.feed(answers(rng, 300, "irm", start=1.7e9 + 150.5))
    windows = RecentWindows()
    windows.add(reports)
    with serving(rig, windows) as client:
        chart = client.get("/api/v1/chart?task=t&model=erm&metric=accuracy&compare=irm").json()
    other = chart_columns(of(reports, "irm"), "accuracy", "average_confidence").value
    assert chart["other"][:2] == [None, None]
    assert chart["other"][2:] == pytest.approx(other, abs=1e-6)
    assert chart["other_name"] == "irm"


def test_a_range_of_two_models_is_that_of_the_first() -> None:
    """The other model has gone on for three days."""
    rng = np.random.default_rng(5)
    rig = Rig(task())
    reports = rig.feed(answers(rng, 500)) + rig.feed(answers(rng, 300, "irm"))
    reports += rig.feed(answers(rng, 100, "irm", start=1.7e9 + 3 * 86_400))
    windows = RecentWindows()
    windows.add(reports)
    with serving(rig, windows) as client:
        query = "task=t&model=erm&metric=accuracy&range=24h&compare=irm"
        chart = client.get(f"/api/v1/chart?{query}").json()
    assert len(chart["other"]) == 5
    assert None not in chart["other"]


@pytest.mark.parametrize(("place", "seconds"), [(500, -80_000), (700, 80_000)])
def test_a_wrong_time_of_one_window_moves_no_range(
    reports: list[WindowReport], place: int, seconds: int
) -> None:
    windows = RecentWindows()
    ends = [1.7e9 + 60 * n + (seconds if n == place else 0) for n in range(1001)]
    windows.add([replace(of(reports)[12], window=n, end_time=end) for n, end in enumerate(ends)])
    lines = windows.newest(("t", "erm", ""), 2000, None, 1.7e9 + 60 * 940)
    assert [json.loads(line)["window"] for line in lines] == [*range(940, 1001)]


def test_a_group_has_a_page_and_leads_back(client: httpx.Client) -> None:
    reader = page(client, "/models/t/erm?group=region%3Deu")
    assert any(line.startswith("erm region=eu ") for line in reader.text.split("\n"))
    assert "/models/t/erm" in asks(reader, "/models/t/erm")
    assert "/models/t/erm?group=region%3Deu" in asks(page(client, "/models/t/erm"), "/models/t/erm")


def test_a_model_of_an_arena_leads_to_the_table_of_its_arena() -> None:
    """Alerts on arenas have the names of a task and a model, too."""
    rig = Rig({"chat": Arena(kind="arena", window={"size": 50, "max_age_seconds": 1e9})})
    rig.feed(compared(np.random.default_rng(2), 60))
    with serving(rig, RecentWindows()) as client:
        reader = page(client, external_address("", "chat", "m1"))
    assert "Arena chat" in reader.text
    assert "|m1|" in reader.text


# ── addresses ──


@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize("form", ["own", "path", "outside"])
def test_every_name_has_an_address_and_is_escaped_on_its_page(
    client: httpx.Client, name: str, form: str
) -> None:
    address = {
        "own": "/" + model_address("t", name),
        "path": f"/models/t/{quote(name, safe='')}",
        "outside": external_address("", "t", name),
    }[form]
    if form == "path" and name == "..":
        assert "?" in model_address("t", name), "a browser drops it from a path, so the page asks by a query"
        return
    reader = page(client, address)
    assert any(line.startswith(f"{name} ") for line in reader.text.split("\n"))
    assert "b" not in {tag for tag, attrs in reader.tags if tag == "b" and "100" in str(attrs)}


@pytest.mark.parametrize("name", ["erm", *ODD])
def test_what_a_page_asks_for_is_there_whatever_the_name(client: httpx.Client, name: str) -> None:
    address = "/" + model_address("t", name)
    links = asks(page(client, address), address)
    assert len(links) > 10
    for link in links:
        if link.startswith(("data:", "/metrics", "/-/")):
            continue
        assert client.get(link.partition("#")[0]).status_code == 200, link


@pytest.mark.parametrize("name", ["erm", "a/b"])
def test_behind_a_proxy_every_link_stays_below_its_path(client: httpx.Client, name: str) -> None:
    address = "/" + model_address("t", name)
    links = asks(page(client, address), f"/b{address}")
    assert "/b/" in links, "back to all models"
    assert {link for link in links if not link.startswith(("data:", "/b/", "#"))} == set()


def test_the_first_page_links_every_model_and_each_link_opens_it(client: httpx.Client) -> None:
    reader = page(client, "/")
    links = {link for link in asks(reader, "/") if link.startswith("/models") and "group" not in link}
    assert links == {"/" + model_address("t", name) for name in ("erm", "irm", *ODD)}
    for link in links:
        assert client.get(link).status_code == 200


@pytest.mark.parametrize(
    ("address", "status", "sentence"),
    [
        ("/models/t/ern", 404, NO_ERN),
        ("/models/u/erm", 404, "There is no task 'u' with models; tasks: t."),
        ("/models/t/erm?group=us", 404, "Model 'erm' has no group 'us'; its groups: region=eu."),
        ("/models/t/erm?metric=auc", 404, "There is no metric 'auc' here; metrics: accuracy, f1."),
        ("/models/t/erm?window=15", 404, "Window 15 is not stored; the newest one is 14."),
        ("/models/t/erm?window=-1", 400, f"window: {NUMBER}, got '-1'."),
        ("/models/t/erm?windw=1", 400, f"expected parameters among {PARAMETERS}, got 'windw'."),
        ("/models/t/erm?window=1&window=2", 400, "window: expected one value, got '1' and '2'."),
        ("/models?task=t", 400, "model: expected a text, got nothing: it must be given."),
        ("/models/t/erm?compare=irm&former=3", 400, "compare, former: expected one of them, got both."),
        ("/models/t/erm?range=7d&former=3", 400, "range, former: expected one of them, got both."),
        ("/models/t/erm?range=1h", 400, "range: expected one of 24h, 30d, 7d, all, got '1h'."),
        ("/models/t/erm?compare=ern", 404, NO_ERN),
        ("/?state=broken", 400, f"state: expected one of {STATES}, got 'broken'."),
        ("/runbooks/passwd", 404, f"There is no runbook 'passwd'; runbooks: {', '.join(runbook_names())}."),
    ],
)
def test_what_cannot_be_shown_is_refused_in_a_sentence(
    client: httpx.Client, address: str, status: int, sentence: str
) -> None:
    answer = client.get(address)
    assert (answer.status_code, answer.text) == (status, sentence + "\n")
    assert answer.headers["content-type"] == "text/plain; charset=utf-8", "so no browser takes it for a page"


def test_the_security_policy_holds_for_the_pages_of_models(client: httpx.Client) -> None:
    answer = client.get("/models/t/erm")
    assert "script-src 'self'" in answer.headers["content-security-policy"]
    reader = reading(answer.text)
    assert not any(name.startswith("on") or name == "style" for _, attrs in reader.tags for name in attrs)
    assert all(attrs.get("src") for tag, attrs in reader.tags if tag == "script")
    assert {tag for tag, _ in reader.tags} & {"iframe", "form", "object", "style"} == set()


def test_the_runbook_of_each_state_is_served(client: httpx.Client) -> None:
    for name in RUNBOOKS.values():
        answer = client.get(f"/runbooks/{name}.md")
        assert (answer.status_code, f"<h2>{name}</h2>" in answer.text) == (200, True)
    assert client.get("/runbooks/BlindsightAgentDown").status_code == 200


# ── the API ──

ERM = {"task": "t", "model": "erm"}
QUERIES: list[tuple[str, dict[str, Any]]] = [
    ("models", {}),
    ("models", {"state": "breached", "groups": "include", "limit": 1}),
    ("models", {"name": "nothing"}),
    ("windows", ERM),
    ("windows", {**ERM, "group": "region=eu", "limit": 2, "before": 4}),
    ("window", {**ERM, "window": 3}),
    ("chart", {**ERM, "metric": "f1"}),
    ("chart", {**ERM, "metric": "accuracy", "compare": "irm"}),
    ("chart", {**ERM, "metric": "accuracy", "range": "7d", "compare": "irm"}),
    ("alarms", ERM),
    ("alarms", {**ERM, "metric": "f1", "limit": 3}),
    ("features", ERM),
    ("shared", {}),
    ("shared", {"task": "t"}),
]


@pytest.fixture(scope="module")
def openapi(client: httpx.Client) -> dict[str, Any]:
    document: dict[str, Any] = client.get("/api/v1/openapi.json").json()
    return document


def strictly(schema: Any) -> Any:
    """Return the same schema without additional properties."""
    if isinstance(schema, list):
        return [strictly(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    strict = {name: strictly(value) for name, value in schema.items()}
    return strict | ({"additionalProperties": False} if "properties" in strict else {})


def validate(value: Any, schema: dict[str, Any], openapi: dict[str, Any]) -> None:
    whole = strictly({**schema, "components": openapi["components"]})
    jsonschema.Draft202012Validator.check_schema(whole)
    jsonschema.validate(value, whole, jsonschema.Draft202012Validator)


@pytest.mark.parametrize(("name", "query"), QUERIES)
def test_answers_are_as_the_document_says(
    client: httpx.Client, openapi: dict[str, Any], name: str, query: dict[str, Any]
) -> None:
    answer = client.get(f"/api/v1/{name}", params=query)
    assert answer.status_code == 200, answer.text
    operation = openapi["paths"][f"/api/v1/{name}"]["get"]
    validate(answer.json(), operation["responses"]["200"]["content"]["application/json"]["schema"], openapi)
    parameters = {each["name"]: each for each in operation["parameters"]}
    assert set(query) <= set(parameters)
    assert {each for each, one in parameters.items() if one["required"]} <= set(query)
    for parameter, value in query.items():
        validate(value, parameters[parameter]["schema"], openapi)


def test_the_document_is_one_of_openapi_and_a_wrong_answer_does_not_fit_it(openapi: dict[str, Any]) -> None:
    assert openapi["openapi"] == "3.1.0"
    assert {path.rpartition("/")[2] for path in openapi["paths"]} == {name for name, _ in QUERIES}
    operations = [each["get"] for each in openapi["paths"].values()]
    assert all(
        each["summary"] and each["responses"].keys() == {"200", "400", "404", "503"} for each in operations
    )
    assert all(one["description"] for each in operations for one in each["parameters"])
    assert "NaN" not in json.dumps(openapi)
    schema = openapi["paths"]["/api/v1/alarms"]["get"]["responses"]["200"]["content"]["application/json"][
        "schema"
    ]
    for wrong in ({"alarms": []}, {"first_window": "0", "last_window": 1, "alarms": []}):
        with pytest.raises(jsonschema.ValidationError):
            validate(wrong, schema, openapi)


def test_the_api_has_a_page_for_people_that_names_every_parameter(
    client: httpx.Client, openapi: dict[str, Any]
) -> None:
    document = page(client, "/api/v1/")
    for path, item in openapi["paths"].items():
        assert path in document.text
        for one in item["get"]["parameters"]:
            assert f"\n|{one['name']}|" in document.text
            assert one["description"] in document.text
    assert "/api/v1/openapi.json" in asks(document, "/api/v1/")
    assert "/" in asks(document, "/api/v1/")


def test_models_come_worst_first_and_by_parts(client: httpx.Client) -> None:
    whole = client.get("/api/v1/models").json()
    names = [one["model"] for one in whole["models"]]
    assert (whole["total"], names[0]) == (len(ODD) + 2, "erm")
    assert sorted(names) == sorted(["erm", "irm", *ODD])
    parts = [
        client.get(f"/api/v1/models?limit=2&offset={start}").json()["models"] for start in range(0, 10, 2)
    ]
    assert [one["model"] for part in parts for one in part] == names
    assert whole["models"][0]["state"] == "breached"
    for one in whole["models"]:
        assert client.get("/" + one["page"]).status_code == 200
    groups = client.get("/api/v1/models?groups=include&name=erm").json()["models"]
    assert {one["group"] for one in groups} == {"", "region=eu"}


def test_features_come_with_the_counts_of_window_and_reference(openapi: dict[str, Any]) -> None:
    watching = Rig(watched(), {"t": reference()})
    watching.feed(flights(2, 250, 0.9, labelled=False))
    lost = [{**row, "features": {"carrier": "ZZ"}} for row in flights(3, 100, 0.3, labelled=False)]
    watching.feed([*flights(4, 150, 0.9, labelled=False), *lost])
    with serving(watching, RecentWindows()) as client:
        answer = client.get("/api/v1/features?task=t&model=erm").json()
    schema = openapi["paths"]["/api/v1/features"]["get"]["responses"]["200"]["content"]["application/json"]
    validate(answer, schema["schema"], openapi)
    assert (answer["window"], answer["rows"]) == (1, 250)
    carrier, hour = sorted(answer["features"], key=lambda each: str(each["feature"]))
    assert (hour["kind"], hour["broken"], hour["missing"], hour["unseen"]) == (
        "number",
        ["missing"],
        0.4,
        0.0,
    )
    assert (carrier["kind"], carrier["broken"], carrier["unseen"]) == ("text", ["unseen"], 0.4)
    for each in (carrier, hour):
        assert each["drifted"]
        assert each["distance"] > each["distance_threshold"] > 0
        assert each["psi"] > each["psi_threshold"] > 0
        assert 0 <= each["p_value"] < 1e-6
        assert sum(one["window"] for one in each["bins"]) == 250
        assert sum(one["reference"] for one in each["bins"]) == 5000
    named = {one["name"]: (one["reference"], one["window"]) for one in carrier["bins"]}
    assert list(named) == ["value 1", "value 2", "not in the reference", "missing"]
    first, second = carriers(flights(0, 5000, 0.3))
    assert (named["value 1"][0], named["value 2"][0]) == (first, second)
    assert named["not in the reference"] == (0, 100)
    hours = hour["bins"][:-2]
    assert [one["upper"] for one in hours[:-1]] == [one["lower"] for one in hours[1:]]
    assert hour["bins"][-1] == {
        "name": "missing",
        "lower": None,
        "upper": None,
        "reference": 0,
        "window": 100,
    }


def test_features_have_no_bins_while_nothing_is_known_of_the_reference() -> None:
    one = Rig(watched(reference={"first_windows": 5}), {})
    one.feed(flights(2, 30, 0.9, labelled=False))
    with serving(one, RecentWindows()) as client:
        answer = client.get("/api/v1/features?task=t&model=erm").json()
        assert answer == {"window": None, "window_end_time": None, "rows": 0, "features": []}
        one.feed(flights(3, 250, 0.9, labelled=False))
    with serving(one, RecentWindows()) as client:
        answer = client.get("/api/v1/features?task=t&model=erm").json()
    carrier = answer["features"][0]
    assert (carrier["feature"], carrier["missing"], carrier["distance"], carrier["bins"]) == (
        "carrier", 0.0, None, []
    )  # fmt: skip


def test_windows_are_the_lines_of_the_reports(client: httpx.Client, reports: list[WindowReport]) -> None:
    lines = [to_json(report) for report in of(reports)]
    answer = client.get("/api/v1/windows", params={**ERM, "format": "ndjson", "limit": 500})
    assert answer.content == b"".join(line + b"\n" for line in lines)
    assert answer.headers["content-type"] == "application/x-ndjson"
    assert answer.headers["content-disposition"] == 'attachment; filename="t-erm.ndjson"'
    paged = client.get("/api/v1/windows", params={**ERM, "limit": 4, "before": 9}).json()["windows"]
    assert paged == [json.loads(line) for line in lines[5:9]]
    one = client.get("/api/v1/window", params={**ERM, "window": 8}).json()
    assert one == json.loads(lines[8])


def test_windows_as_csv_have_a_row_an_estimate(client: httpx.Client, reports: list[WindowReport]) -> None:
    answer = client.get("/api/v1/windows", params={**ERM, "format": "csv", "limit": 500})
    assert answer.headers["content-disposition"] == 'attachment; filename="t-erm.csv"'
    rows = list(csv.DictReader(io.StringIO(answer.text)))
    assert len(rows) == sum(len(report.estimates) for report in of(reports))
    for row in rows:
        line = json.loads(to_json(of(reports)[int(row["window"])]))
        (e,) = [
            e for e in line["estimates"] if (e["metric"], e["estimator"]) == (row["metric"], row["estimator"])
        ]
        assert row["unknown"] == e.get("unknown", "")
        assert row["value"] == str(e.get("value", ""))
        limits = [chart["upper"] for chart in line["charts"] if chart["metric"] == row["metric"]]
        assert row["limit_upper"] == (str(limits[0]) if limits else "")


def test_a_version_from_outside_is_no_formula_of_a_spreadsheet(rig: Rig, reports: list[WindowReport]) -> None:
    windows = RecentWindows()
    windows.add([replace(report, version="=1+1") for report in of(reports)[:1]])
    with serving(rig, windows) as client:
        rows = csv.DictReader(io.StringIO(client.get("/api/v1/windows?task=t&model=erm&format=csv").text))
        assert {row["version"] for row in rows} == {"'=1+1"}


@pytest.mark.parametrize("name", ODD)
def test_the_name_of_a_file_cannot_break_its_header(client: httpx.Client, name: str) -> None:
    answer = client.get("/api/v1/windows", params={"task": "t", "model": name, "format": "csv"})
    header = answer.headers["content-disposition"]
    assert re.fullmatch(r'attachment; filename="[A-Za-z0-9][A-Za-z0-9_.-]*\.csv"', header)


@pytest.mark.parametrize(
    ("address", "status", "sentence"),
    [
        ("models?limit=501", 400, "limit: expected a whole number from 1 to 500, got '501'."),
        ("models?offset=x", 400, f"offset: {NUMBER}, got 'x'."),
        ("models?groups=yes", 400, "groups: expected one of include, leave_out, got 'yes'."),
        ("windows?task=t&model=erm&limit=0", 400, "limit: expected a whole number from 1 to 500, got '0'."),
        ("windows?task=t&model=erm&format=xml", 400, "format: expected one of csv, json, ndjson, got 'xml'."),
        ("windows?model=erm", 400, "task: expected a text, got nothing: it must be given."),
        ("window?task=t&model=erm", 400, f"window: {NUMBER}, {GIVEN}"),
        ("window?task=t&model=erm&window=99", 404, "Window 99 is not stored; the newest one is 14."),
        ("chart?task=t&model=erm&metric=auc", 404, "There is no metric 'auc' here; metrics: accuracy, f1."),
        ("alarms?task=t&model=erm&metric=auc", 404, "There is no metric 'auc' here; metrics: accuracy, f1."),
        ("shared?task=u", 404, "There is no task 'u' with models; tasks: t."),
        ("alarms?task=t&model=" + "x" * 70, 404, NO_ERN.replace("ern", 70 * "x")),
        ("models?" + "&".join(f"p{i}=" for i in range(60)), 400, "expected at most 50 parameters, got more."),
    ],
)
def test_a_wrong_request_is_told_what_is_allowed(
    client: httpx.Client, openapi: dict[str, Any], address: str, status: int, sentence: str
) -> None:
    answer = client.get(f"/api/v1/{address}")
    assert (answer.status_code, answer.json()) == (status, {"error": sentence})
    responses = openapi["paths"]["/api/v1/models"]["get"]["responses"]
    validate(answer.json(), responses[str(status)]["content"]["application/json"]["schema"], openapi)


def test_the_chart_of_an_error_is_in_the_unit_of_the_target() -> None:
    own = regression(unit="minutes")
    rig = Rig({"t": own}, {"t": reference_of_numbers(own, predictions(1, 600, start=1.6e9))})
    windows = RecentWindows()
    windows.add(rig.feed(predictions(2, 300)))
    with serving(rig, windows) as client:
        chart = client.get("/api/v1/chart?task=t&model=gbm&metric=mae").json()
        share = client.get("/api/v1/chart?task=t&model=gbm&metric=within_tolerance").json()
        former = page(client, "/models/t/gbm?metric=mae&limit=1&former=1").text
        picture = client.get("/chart.svg?task=t&model=gbm&metric=bias").text
        html = client.get("/models/t/gbm").text
        unknown = client.get("/api/v1/chart?task=t&model=gbm&metric=mse")
    values = [each.values for each in rig.engine.view().series]
    (newest,) = [
        each.result for each in values[0] if (each.metric, each.estimator) == ("mae", "doubly_robust")
    ]
    assert isinstance(newest, Estimate)
    assert (chart["unit"], share["unit"], chart["estimator"]) == ("minutes", None, "doubly robust")
    assert chart["value"][-1] == pytest.approx(newest.value, rel=1e-8)
    assert all(each is not None for name in ("lower", "upper", "realised") for each in chart[name])
    assert chart["labels"] == [100, 100, 100]
    assert re.search(r"\|gbm\|1\|0\.\d+ minutes\|.*\n\|up to window 1\|.*\|[+-]0\.\d+ minutes\n", former)
    assert "task t, 3 windows, in minutes" in picture
    assert "api/v1/chart?task=t&amp;model=gbm&amp;group=&amp;metric=mae" in html
    assert unknown.status_code == 404
    assert "metrics: within_tolerance, ece, mae, rmse, bias." in unknown.json()["error"]
