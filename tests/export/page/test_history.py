"""The charts of the page: their windows from a store or from memory, their columns, their addresses."""

from __future__ import annotations

import gzip
import hashlib
import json
import math
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import httpx
import msgspec
import numpy as np
import pytest

from monitor.base.errors import StoreError
from monitor.base.results import Estimate, Unknown
from monitor.base.state_changes import Changes
from monitor.export.page import assets
from monitor.export.page.windows import RecentWindows, StoredWindows, chart_columns
from monitor.reports.reader import from_json
from monitor.reports.views import MetricEstimate, Rebaselined
from monitor.reports.window_report import WindowReport, to_json
from monitor.store import Store
from monitor.store.history import newest_lines
from monitor.store.store import FILE
from tests.export.page.page_reading import serving
from tests.streams import Rig, answers, task

ERM = ("t", "erm", "")
VENDORED = {  # sha256 of what npm's package uplot@1.6.32 holds under dist, and of its licence
    "uPlot.iife.min.js": "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f",
    "uPlot.min.css": "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
    "uPlot.LICENSE": "8f989229699b4fe2f1a0432d0e9edc338a8a911e250e2d1b01ecd770a5f5b1bd",
}


@pytest.fixture(scope="module")
def rig() -> Rig:
    return Rig(
        task(reference={"first_windows": 5}, chart={"sigmas": 3}, objective={"accuracy": {"min": 0.9}})
    )


@pytest.fixture(scope="module")
def reports(rig: Rig) -> list[WindowReport]:
    """Return ten windows as in the baseline, then five worse ones."""
    rng = np.random.default_rng(3)
    good = rig.feed(answers(rng, 1000, labelled=True))
    return good + rig.feed(answers(rng, 500, weights=(0.5, 0.4, 0.1), start=1.8e9))


def stored(folder: Path, reports: list[WindowReport]) -> Path:
    store = Store(folder)
    store.commit(Changes({}, []), reports)
    store.close()
    return folder / FILE


def numbers(lines: list[bytes]) -> list[tuple[int, int]]:
    return [(line["window"], line["revision"]) for line in map(json.loads, lines)]


@pytest.mark.parametrize("kind", ["store", "memory"])
def test_the_newest_windows_come_oldest_first_each_in_its_newest_revision(
    kind: str, tmp_path: Path, reports: list[WindowReport]
) -> None:
    revised = [*reports, replace(reports[12], revision=1), replace(reports[1], revision=1)]
    windows = RecentWindows()
    windows.add(revised)
    source = windows if kind == "memory" else StoredWindows(stored(tmp_path, revised))
    assert numbers(source.newest(ERM, 4)) == [(11, 0), (12, 1), (13, 0), (14, 0)]
    assert numbers(source.newest(ERM, 99))[:3] == [(0, 0), (1, 1), (2, 0)]
    assert numbers(source.newest(ERM, 2, before=13)) == [(11, 0), (12, 1)]
    assert numbers(source.newest(ERM, 99, before=2)) == [(0, 0), (1, 1)]
    assert source.newest(ERM, 99, before=0) == []
    assert source.newest(("t", "irm", ""), 4) == source.newest(("t", "erm", "region=eu"), 4) == []


@pytest.mark.parametrize("kind", ["store", "memory"])
def test_the_windows_since_a_time_are_evenly_spread_and_the_newest_is_among_them(
    kind: str, tmp_path: Path, reports: list[WindowReport]
) -> None:
    windows = RecentWindows()
    windows.add(reports)
    source = windows if kind == "memory" else StoredWindows(stored(tmp_path, reports))

    def shown(most: int, since: float) -> list[int]:
        return [window for window, _ in numbers(source.newest(ERM, most, since=since))]

    assert shown(99, -math.inf) == list(range(15))
    assert shown(99, reports[4].end_time) == list(range(4, 15))
    assert shown(99, reports[4].end_time + 0.01) == list(range(5, 15))
    assert shown(99, math.inf) == []
    assert shown(8, -math.inf) == [0, 2, 4, 6, 8, 10, 12, 14]
    assert shown(5, reports[2].end_time) == [3, 6, 9, 12, 14]
    assert shown(1, -math.inf) == [14]


def test_the_markers_are_at_the_windows_whose_reports_have_a_change(reports: list[WindowReport]) -> None:
    fitted = replace(reports[0].calibration, method="isotonic", version=2)
    requests = (Rebaselined("accuracy", "new threshold"), Rebaselined("f1", "another one"))
    changed = [
        *reports[:4],
        replace(reports[4], rebaselined=requests),
        *reports[5:9],
        *(replace(report, calibration=fitted) for report in reports[9:12]),
        *(replace(report, calibration=fitted, version="2") for report in reports[12:]),
    ]
    columns = chart_columns([from_json(to_json(each)) for each in changed], "accuracy", "average_confidence")
    assert columns.rebaselined == [(4, "new threshold")]
    assert columns.refitted == [(9, "isotonic, fit 2")]
    assert columns.versions == [(12, "2")]
    labels = [
        result.n
        for r in reports
        for e in r.estimates
        if e.estimator == "realised" and isinstance(result := e.result, Estimate)
    ]
    assert [each for each in columns.labels if each is not None] == labels


@pytest.mark.parametrize("kind", ["store", "memory"])
def test_windows_from_before_a_new_beginning_are_not_mixed_with_those_after_it(
    kind: str, tmp_path: Path, reports: list[WindowReport]
) -> None:
    again = [*reports, *(replace(report, version="2") for report in reports[:2])]
    windows = RecentWindows()
    windows.add(again)
    source = windows if kind == "memory" else StoredWindows(stored(tmp_path, again))
    lines = source.newest(ERM, 99)
    assert [(line["window"], line["version"]) for line in map(json.loads, lines)] == [(0, "2"), (1, "2")]


@pytest.mark.slow
def test_memory_is_bounded_and_the_newest_stay(reports: list[WindowReport]) -> None:
    windows = RecentWindows()
    windows.add([replace(reports[0], window=number) for number in range(10_050)])
    assert numbers(windows.newest(ERM, 99_999)) == [(number, 0) for number in range(50, 10_050)]


def test_a_store_that_is_gone_is_an_error_that_says_so(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"blindsight\.sqlite cannot be read: unable to open database"):
        newest_lines(tmp_path / FILE, ERM, 5)


def test_the_columns_are_those_of_the_reports_and_unknown_is_null(reports: list[WindowReport]) -> None:
    lost = replace(
        reports[7], estimates=(MetricEstimate("accuracy", "average_confidence", Unknown("no scores")),)
    )
    with_ssme = (*reports[8].estimates, MetricEstimate("accuracy", "ssme", Estimate(0.9, 0.8, 1.0, 0.95, 9)))
    shown = [*reports[:7], lost, replace(reports[8], estimates=with_ssme), *reports[9:]]
    columns = chart_columns(
        [from_json(to_json(report)) for report in shown], "accuracy", "average_confidence"
    )
    plain = msgspec.to_builtins(columns)
    assert plain["window"] == list(range(15))
    assert plain["time"] == [report.end_time for report in reports]
    first = reports[0].estimates[0].result
    assert isinstance(first, Estimate)
    assert [plain[name][0] for name in ("value", "lower", "upper")] == pytest.approx(
        [first.value, first.lower, first.upper], abs=1e-6
    )
    assert plain["value"][7] is plain["limit_lower"][0] is None
    assert plain["ssme"] == [None] * 8 + [0.9] + [None] * 6
    assert sum(value is not None for value in plain["realised"]) == 9, "ten labelled windows, one unknown"
    assert plain["out_of_control"] == [0] * 11 + [1] * 4
    assert (plain["objective"], plain["is_floor"], plain["estimator"]) == (0.9, True, "average confidence")
    assert "NaN" not in json.dumps(plain)


def test_the_chart_is_of_the_estimator_that_is_judged(reports: list[WindowReport]) -> None:
    columns = chart_columns([from_json(to_json(report)) for report in reports], "accuracy", "realised")
    assert columns.estimator == "realised"
    assert columns.value[:10] == columns.realised[:10]


@pytest.fixture(scope="module")
def client(rig: Rig, reports: list[WindowReport]) -> Iterator[httpx.Client]:
    windows = RecentWindows()
    windows.add(reports)
    with serving(rig, windows) as client:
        yield client


def test_a_chart_is_served_as_columns_and_as_a_picture(client: httpx.Client) -> None:
    query = {"task": "t", "model": "erm", "metric": "accuracy"}
    answer = client.get("/api/v1/chart", params=query)
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/json")
    assert len(answer.json()["time"]) == 15
    picture = client.get("/chart.svg", params=query)
    assert picture.headers["content-type"] == "image/svg+xml"
    assert "erm: accuracy" in picture.text


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/assets/uPlot.iife.min.js",
        "/api/v1/chart?task=t&model=erm&metric=accuracy",
        "/chart.svg?task=t&model=erm&metric=accuracy",
    ],
)
def test_what_the_page_is_made_of_is_packed_for_who_takes_gzip(client: httpx.Client, path: str) -> None:
    plain = client.get(path, headers={"accept-encoding": "identity"})
    with client.stream("GET", path, headers={"accept-encoding": "br, gzip"}) as answer:
        raw = b"".join(answer.iter_raw())
    assert (plain.headers.get("content-encoding"), answer.headers["content-encoding"]) == (None, "gzip")
    made = re.compile(rb"As of .*?</time>")  # the page says when it was made
    assert made.sub(b"", gzip.decompress(raw)) == made.sub(b"", plain.content)
    assert len(raw) < len(plain.content) / 2
    assert int(answer.headers["content-length"]) == len(raw)
    assert plain.headers["vary"] == answer.headers["vary"] == "Accept-Encoding"
    assert plain.headers["content-type"] == answer.headers["content-type"]


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"task": ""}, "There is no task '' with models; tasks: t."),
        ({"model": "irm"}, "Task 't' has no model 'irm'; its models: erm."),
        ({"group": "region=eu"}, "Model 'erm' has no group 'region=eu'; its groups: none."),
        ({"metric": "f1"}, "There is no metric 'f1' here; metrics: accuracy."),
    ],
)
def test_a_chart_that_is_not_there_is_refused_in_a_sentence_that_names_what_there_is(
    client: httpx.Client, wrong: dict[str, str], sentence: str
) -> None:
    query = {"task": "t", "model": "erm", "metric": "accuracy"} | wrong
    picture = client.get("/chart.svg", params=query)
    assert (picture.status_code, picture.text) == (404, sentence + "\n")
    columns = client.get("/api/v1/chart", params=query)
    assert (columns.status_code, columns.json()) == (404, {"error": sentence})


def test_a_store_that_cannot_be_read_makes_the_chart_fail_and_says_why(rig: Rig, tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(b"no database at all" * 100)
    with serving(rig, StoredWindows(tmp_path / FILE)) as client:
        answer = client.get("/api/v1/chart?task=t&model=erm&metric=accuracy")
    assert answer.status_code == 503
    assert "is damaged" in answer.text


@pytest.mark.parametrize("name", list(assets.TYPES))
def test_the_pages_files_are_served_and_may_be_kept_as_their_address_names_their_content(
    client: httpx.Client, name: str
) -> None:
    answer = client.get("/" + assets.address(name))
    assert answer.status_code == 200
    assert answer.content == assets.content(name)
    assert "immutable" in answer.headers["cache-control"]


@pytest.mark.parametrize("name", ["NOTICE", "__init__.py", "..%2F__init__.py", "uPlot.LICENSE"])
def test_no_other_file_can_be_asked_for(client: httpx.Client, name: str) -> None:
    assert client.get(f"/assets/{name}").status_code == 404


@pytest.mark.parametrize("name", list(VENDORED))
def test_what_is_vendored_is_as_it_was_published_and_the_notice_names_it(name: str) -> None:
    folder = Path(assets.__file__).parent
    assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == VENDORED[name]
    notice = (folder / "NOTICE").read_text(encoding="utf-8")
    assert name in notice
    assert "uPlot 1.6.32" in notice


def test_reading_takes_no_lock_that_the_agent_would_wait_for(
    tmp_path: Path, reports: list[WindowReport]
) -> None:
    path = stored(tmp_path, reports)
    with closing(sqlite3.connect(path)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        assert len(newest_lines(path, ERM, 99)) == 15
        writer.execute("ROLLBACK")
