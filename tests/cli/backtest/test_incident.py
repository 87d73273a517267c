"""`blindsight backtest --incident`: the alarms of a period, as configured and with other settings."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import yaml

from monitor.base.errors import ConfigError
from monitor.base.source import RawMessages
from monitor.cli.backtest.backtest import BacktestOptions
from monitor.cli.backtest.history import HistoryReplay, LabelDelays
from monitor.cli.backtest.incident import backtest_incident, recommended
from monitor.cli.backtest.incident_text import sighting_words
from monitor.cli.backtest.injecting import Model, with_share_of_labels
from monitor.cli.backtest.results import BacktestDocument, IncidentOutcome, SettingOutcome
from monitor.cli.backtest.settings_grid import (
    GridJob,
    Setting,
    changed_task,
    replay_setting,
    settings_of,
)
from monitor.cli.backtest.signals import SignalLog
from monitor.cli.documents import DOCUMENTS
from monitor.cli.trial import ReferenceTrial
from monitor.config.file import config_from, load_config
from monitor.config.root import Task
from monitor.reports.window_report import rfc3339, seconds_of
from tests.daemon import CLASSES, command_here, configuration, ndjson, write_configuration
from tests.streams import ORIGINAL, Record, Rig, answers, task

ROWS, BEGIN, LENGTH = 4000, 2030, 1000
START = 1.7e9
PERIOD = rfc3339(START + BEGIN), rfc3339(START + BEGIN + LENGTH)
UNSURE = (0.7, 0.28, 0.02)


def stream(labelled: bool = True) -> list[Record]:
    """Return answers a second apart, of which `LENGTH` are less certain, and as much more often wrong."""
    rng = np.random.default_rng(5)
    parts = (BEGIN, {}), (LENGTH, {"weights": UNSURE}), (ROWS - BEGIN - LENGTH, {})
    rows: list[Record] = []
    for length, more in parts:
        rows += answers(rng, length, start=START + len(rows), labelled=True, **more)  # type: ignore[arg-type]
    return rows if labelled else [{key: each[key] for key in each if key != "label"} for each in rows]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a configuration, a reference, and 40 windows with an incident of ten."""
    folder = tmp_path_factory.mktemp("incident")
    reference = answers(np.random.default_rng(4), 3000, start=1.6e9, labelled=True)
    (folder / "reference.ndjson").write_bytes(ndjson(reference))
    (folder / "in.ndjson").write_bytes(ndjson(stream()))
    (folder / "bare.ndjson").write_bytes(ndjson(stream(labelled=False)))
    reference_file = {"path": str(folder / "reference.ndjson")}
    write_configuration(folder, configuration(task={"reference": reference_file, "chart": {"arl0": 370}}))
    return folder


@pytest.fixture(scope="module")
def bare(folder: Path) -> IncidentOutcome:
    """Return the outcome of the files without labels."""
    return outcome_of(options(folder, "bare.ndjson"))


def options(folder: Path, *files: str, incident: tuple[str, str] = PERIOD, **more: Any) -> BacktestOptions:
    paths = [folder / name for name in files or ("in.ndjson",)]
    return BacktestOptions(str(folder / more.pop("config", "config.yaml")), paths, incident=incident, **more)


def document_of(case: BacktestOptions) -> BacktestDocument:
    return backtest_incident(case, lambda words: None).document


def outcome_of(case: BacktestOptions) -> IncidentOutcome:
    incident = document_of(case).incident
    assert incident is not None
    return incident


def seasonal(folder: Path, days: int, season: bool) -> IncidentOutcome:
    """Return the outcome of days of answers, fewer of them certain at weekends, with a drop in the last two.

    Six windows of 50 close a day. The first day is a Monday.
    """
    rng, monday, rows = np.random.default_rng(31), 1_700_438_400.0, list[Record]()
    for day in range(days):
        weights = (0.1, 0.6, 0.3) if day % 7 >= 5 else UNSURE if day >= days - 2 else ORIGINAL
        for each in answers(rng, 300, weights=weights, start=monday + 86_400 * day):
            second = float(each["time"]) - monday - 86_400 * day  # type: ignore[arg-type]
            rows.append({**each, "time": monday + 86_400 * day + 288 * second})
    (folder / "weeks.ndjson").write_bytes(ndjson(rows))
    chart = {"sigmas": 3} | ({"season": "hour_of_week", "time_zone": "Europe/Berlin"} if season else {})
    window = {"size": 50, "min_size": 20, "max_age_seconds": 86_400}
    first = {"window": window, "reference": {"first_windows": 42}, "chart": chart}
    write_configuration(folder, configuration(task=first), "weeks.yaml")
    period = rfc3339(monday + 86_400 * (days - 2)), rfc3339(monday + 86_400 * days)
    document = document_of(options(folder, "weeks.ndjson", incident=period, config="weeks.yaml"))
    assert document.incident is not None
    reasons = [note for note in document.notes if note.startswith("chart.season is not tried")]
    assert len(reasons) == (days < 30)
    assert not reasons or reasons[0] == (
        "chart.season is not tried: it needs four weeks before the incident, and the files begin 24.0 days "
        "before it."
    )
    return document.incident


@pytest.mark.slow
def test_a_season_is_tried_and_recommended_where_the_history_has_four_weeks(tmp_path: Path) -> None:
    incident = seasonal(tmp_path, 40, season=False)
    assert [(each.window_size, each.season) for each in incident.settings] == [
        (size, season) for size in (50, 25, 100) for season in (False, True)
    ]
    common, by_hour = incident.settings[:2]
    assert by_hour.hours is not None
    assert common.hours is None or by_hour.hours < common.hours
    (best,) = incident.recommendations
    assert best.configuration is not None
    assert " and kind shewhart with limits by hour of the week would have seen the" in best.reason
    config = yaml.safe_load((tmp_path / "weeks.yaml").read_text())
    config["tasks"]["t"] |= yaml.safe_load(best.configuration)["tasks"]["t"]
    better = load_config(write_configuration(tmp_path, config, "better.yaml"))
    assert better.scored_tasks["t"].chart.season == "hour_of_week"
    times = [seconds_of(each) for each in (incident.start, incident.end)]
    job = GridJob(better, {}, (tmp_path / "weeks.ndjson",), Setting(), *times, 0)
    again = replay_setting(job).log
    (row,) = (
        each
        for each in incident.settings
        if each.season and each.window_size == better.scored_tasks["t"].window.size
    )
    assert row.hours == pytest.approx((again.alarms[0].time - times[0]) / 3600)


@pytest.mark.slow
def test_a_season_of_today_is_tried_without_and_a_short_history_names_the_reason(tmp_path: Path) -> None:
    today, without = seasonal(tmp_path, 40, season=True).settings[:2]
    assert (today.season, today.today, without.season, without.changes) == (True, True, False, 1)
    assert not any(each.season for each in seasonal(tmp_path, 26, season=False).settings)


@pytest.mark.parametrize("season", [True, False])
def test_short_files_and_a_reference_without_times_begin_no_season(
    folder: Path, season: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "blindsight")
    rows = answers(np.random.default_rng(4), 2000, labelled=True)
    bare = [{key: value for key, value in each.items() if key != "time"} for each in rows]
    (folder / "no_time.ndjson").write_bytes(ndjson(bare))
    chart = {"arl0": 370} | ({"season": "hour_of_week"} if season else {})
    reference = {"path": str(folder / "no_time.ndjson")}
    write_configuration(folder, configuration(task={"reference": reference, "chart": chart}), "hours.yaml")
    document = document_of(options(folder, "bare.ndjson", config="hours.yaml"))
    incident = document.incident
    assert incident is not None
    assert not any(each.season for each in incident.settings)
    assert not any("by hour" in each.reason for each in incident.recommendations)
    begins = "chart.season is not tried: it needs four weeks before the incident"
    if season:
        begins = "No limits by hour of the week had begun before the incident: they need four weeks"
    assert document.notes[-1] == (
        f"{begins}, and the files begin 0.0 days before it; rows of a reference have no time: add `time` to "
        "them."
    )
    lines = [message for message in caplog.messages if "by hour of the week" in message]
    assert len(lines) == 2 * season, "the replays with settings log nothing"


def row(**changes: Any) -> SettingOutcome:
    """Return an outcome that sees the incident after 10 hours, with two alarms outside of it."""
    plain = SettingOutcome(
        task="t",
        today=False,
        window_size=100,
        chart="shewhart",
        season=False,
        label_share=1.0,
        labels_a_day=10.0,
        changes=1,
        refused="",
        models=2,
        seen=2,
        hours=10.0,
        windows=4,
        signals=["chart of accuracy"],
        other_alarms=2,
        other_alarms_a_month=2.0,
        predicted=1.0,
    )
    return msgspec.structs.replace(plain, **changes)


@pytest.mark.slow
def test_the_recommended_sections_see_the_incident_as_soon_as_their_row_says(
    folder: Path, bare: IncidentOutcome
) -> None:
    (seen,) = bare.sightings
    assert (seen.outcome, seen.signals) == ("seen", ["chart of accuracy"])
    (today,) = (each for each in bare.settings if each.today)
    assert (today.hours, today.windows) == (seen.hours, seen.windows)
    (best,) = bare.recommendations
    assert best.configuration is not None
    config = yaml.safe_load((folder / "config.yaml").read_text())
    config["tasks"]["t"] |= yaml.safe_load(best.configuration)["tasks"]["t"]
    better = load_config(write_configuration(folder, config, "better.yaml"))
    place = better.scored_tasks["t"].window.size, better.scored_tasks["t"].chart.kind
    (proposed,) = (each for each in bare.settings if (each.window_size, each.chart) == place)
    times = START + BEGIN, START + BEGIN + LENGTH
    references = ReferenceTrial(better).references
    again = replay_setting(GridJob(better, references, (folder / "bare.ndjson",), Setting(), *times, 0)).log
    assert proposed.hours == pytest.approx((again.alarms[0].time - times[0]) / 3600)
    assert proposed.hours is not None
    assert today.hours is not None
    assert 0 < proposed.hours < today.hours < LENGTH / 3600
    assert again.others("t") == proposed.other_alarms <= max(today.other_alarms, proposed.predicted or 0)


@pytest.mark.slow
def test_the_rows_without_labels_are_those_of_files_without_labels(
    folder: Path, bare: IncidentOutcome
) -> None:
    announced: list[str] = []
    incident = backtest_incident(options(folder), announced.append).document.incident
    assert incident is not None
    (words,) = announced
    assert words.startswith(
        "Next: 27 replays of the files, one for each setting, 1 at a time; at most about "
    )
    of_share = {
        share: [each for each in incident.settings if each.label_share == share] for share in (1, 0.25, 0)
    }
    assert [len(rows) for rows in of_share.values()] == [9, 9, 9]
    same = {"label_share": 1.0, "today": False}
    assert [msgspec.structs.replace(each, **same) for each in of_share[0]] == [
        msgspec.structs.replace(each, **same) for each in bare.settings
    ]
    assert [each.hours for each in of_share[1]] != [each.hours for each in of_share[0]]
    assert of_share[1][0].labels_a_day == pytest.approx(86_400, rel=0.01)
    assert of_share[0.25][0].labels_a_day == pytest.approx(86_400 / 4, rel=0.01)


@pytest.mark.slow
def test_a_period_without_a_change_is_missed_and_nothing_is_recommended(folder: Path) -> None:
    quiet = rfc3339(START + 1000), rfc3339(START + 1200)
    incident = outcome_of(options(folder, "bare.ndjson", incident=quiet))
    assert [each.outcome for each in incident.sightings] == ["missed"]
    (best,) = incident.recommendations
    assert best.configuration is None
    assert best.reason.startswith("none of the tried settings would have seen the incident sooner")


@pytest.mark.slow
def test_the_text_the_document_and_the_report_of_the_command(
    folder: Path, bare: IncidentOutcome, tmp_path: Path
) -> None:
    words = ["backtest", "config.yaml", "bare.ndjson", "--incident", *PERIOD, "--out", str(tmp_path / "out")]
    text, with_json = (
        command_here(*words, *more, cwd=folder) for more in ([], ["--json", "--processes", "2"])
    )
    assert (text.returncode, with_json.returncode) == (0, 0), text.stderr
    document = msgspec.json.decode(with_json.stdout, type=DOCUMENTS["backtest"])
    assert json.loads(with_json.stdout) == json.loads(msgspec.json.encode(document))
    assert document.incident == bare, "the result does not depend on processes"
    assert len(bare.settings) == 9
    assert {each.labels_a_day for each in bare.settings} == {0}
    assert (document.picture, document.delays) == (None, [])
    assert "t/erm: seen after " in text.stdout
    assert "Recommended; these sections replace those of the configuration:\ntasks:\n  t:\n" in text.stdout
    assert len(text.stdout.split("Recommended")[0].splitlines()) <= 20
    assert "Next: 9 replays of the files" in text.stderr
    page = (tmp_path / "out" / "backtest.html").read_text()
    assert "Incident: what other settings would have seen" in page
    assert page.count(">cusum<") == 3
    both = command_here(*words, "--drop", "5", cwd=folder)
    assert both.returncode == 2
    assert "--incident: expected neither --drop nor --at beside it, got --drop" in both.stderr


@pytest.mark.slow
def test_an_incident_in_the_first_windows_has_no_baseline(folder: Path) -> None:
    first = {"reference": {"first_windows": 18}, "chart": {"sigmas": 3}}
    write_configuration(folder, configuration(task=first), "first.yaml")
    early = rfc3339(START + 1500), rfc3339(START + 1990)
    incident = outcome_of(options(folder, "bare.ndjson", incident=early, config="first.yaml"))
    assert [each.outcome for each in incident.sightings] == ["no_baseline"]
    with pytest.raises(ConfigError) as error:
        outcome_of(
            options(
                folder, "bare.ndjson", incident=(rfc3339(START), rfc3339(START + 900)), config="first.yaml"
            )
        )
    assert "all windows belong to reference.first_windows of tasks.t, the baseline; give a later" in str(
        error.value
    )


@pytest.mark.slow
def test_labels_that_come_after_the_end_show_the_incident(folder: Path) -> None:
    rng, late = np.random.default_rng(7), 1500.0
    events: list[tuple[float, Record]] = []
    for i in range(ROWS):
        at, right = START + i, bool(rng.random() < (0.4 if BEGIN <= i < BEGIN + LENGTH else 0.9))
        events.append((at, {"id": f"a{i}", "task": "t", "model": "erm", "time": at, "scores": [0.1, 0.9]}))
        known = {"id": f"a{i}", "task": "t", "time": at + late, "label": CLASSES[right]}
        events.append((at + late, known))
    events.sort(key=lambda each: each[0])
    (folder / "late.ndjson").write_bytes(ndjson([record for _, record in events]))
    document = document_of(
        options(folder, "late.ndjson", incident=(PERIOD[0], rfc3339(START + BEGIN + LENGTH)))
    )
    incident = document.incident
    assert incident is not None
    (seen,) = incident.sightings
    assert seen.outcome == "seen_after_end"
    assert ", after its end, in window " in sighting_words(seen)
    (today,) = (each for each in incident.settings if each.today)
    assert (today.seen, today.other_alarms) == (1, 0)
    assert today.hours is not None
    assert LENGTH / 3600 < today.hours < (LENGTH + late) / 3600
    assert (
        "t: labels come late. In rows with labels, alarms that begin up to 27 min after the end count as the "
        "incident's: 90 % of the labels come by then, and a window closes."
    ) in document.notes


@pytest.mark.slow
def test_an_alarm_by_labels_that_come_later_than_the_median_belongs_to_the_incident(folder: Path) -> None:
    rng = np.random.default_rng(8)
    events: list[tuple[float, Record]] = []
    for i in range(ROWS):
        inside = BEGIN <= i < BEGIN + 300
        at, right = START + i, bool(rng.random() < (0.2 if inside else 0.9))
        late = 1200.0 if inside or rng.random() < 0.3 else 60.0  # wrong answers are noticed last
        events.append((at, {"id": f"a{i}", "task": "t", "model": "erm", "time": at, "scores": [0.1, 0.9]}))
        label = {"id": f"a{i}", "task": "t", "time": at + late, "label": CLASSES[right]}
        events.append((at + late, label))
    events.sort(key=lambda each: each[0])
    file = folder / "uneven.ndjson"
    file.write_bytes(ndjson([record for _, record in events]))
    config = load_config(str(folder / "config.yaml"))
    trial = ReferenceTrial(config)
    history = HistoryReplay(config, trial.engine_settings(event_time=True), [file], [], ["t"], folder)
    history.run()
    assert history.time_to_alarm("t") == pytest.approx(1200 + 100, abs=2), "a window has 100 answers"
    period = START + BEGIN, START + BEGIN + 300
    for delay, inside in ((60.0, False), (history.time_to_alarm("t"), True)):
        job = GridJob(config, trial.references, (file,), Setting(), *period, 0, {"t": delay})
        log = replay_setting(job).log
        assert (bool(log.alarms), log.others("t") == 0) == (inside, inside), delay


def test_the_delay_of_labels_is_that_within_which_most_labels_of_answers_come() -> None:
    rig = Rig(task())
    rows = [{key: each[key] for key in each if key != "label"} for each in stream()[:3]]
    labels = [
        {"id": each["id"], "label": "ok", "time": float(each["time"]) + delay}  # type: ignore[arg-type]
        for each, delay in zip(rows, (10.0, 20.0, 90.0), strict=True)
    ]
    labels.append({"id": "another", "label": "ok", "time": START + 9999})
    records = [msgspec.json.encode(each) for each in (*rows, *labels)]
    chunk = rig.decode([RawMessages(records, "part-0", list(range(len(records))))])
    delays = LabelDelays()
    assert delays.longest() == 0
    for each in (*chunk.batches, *chunk.labels):
        delays.add(each)
    assert delays.longest() == pytest.approx(90)
    window = {"size": 100, "max_age_seconds": 500}
    config = config_from({"tasks": {"t": {"classes": ["a", "b"], "window": window}}})
    settings = ReferenceTrial(config).engine_settings(event_time=True)
    history = HistoryReplay(config, settings, [], [], ["t"], Path())
    history.delays["t"] = delays
    assert history.time_to_alarm("t") == pytest.approx(90)
    signals = history.runs[True].signals
    for i, (windows, last) in enumerate([(11, 1000.0), (11, 2000.0), (2, 9e6)]):
        signals[Model("t", f"m{i}")] = SignalLog(windows, first_time=0.0, last_time=last)
    assert history.time_to_alarm("t") == pytest.approx(90 + 200), "a sparse model does not count"
    del signals[Model("t", "m0")]
    assert history.time_to_alarm("t") == pytest.approx(90 + 500), "no window lasts longer"


@pytest.mark.slow
def test_a_task_that_refuses_a_setting_leaves_the_rows_of_others(folder: Path) -> None:
    sections = configuration(task={"reference": {"first_windows": 12}, "chart": {"sigmas": 3}})
    sections["tasks"]["small"] = {**sections["tasks"]["t"], "window": {"size": 10, "min_size": 10}}
    write_configuration(folder, sections, "two.yaml")
    rows = [
        {**each, "id": f"{name}{each['id']}", "task": name}
        for each in stream(False)
        for name in ("t", "small")
    ]
    (folder / "two.ndjson").write_bytes(ndjson(rows))
    document = document_of(options(folder, "two.ndjson", config="two.yaml"))
    assert document.incident is not None
    refused = {(each.task, each.window_size): each.refused for each in document.incident.settings}
    assert refused.pop(("small", 5)).startswith("tasks.small.window.size: expected ")
    assert not any(refused.values()), refused
    by_size = {each.window_size: each for each in document.incident.settings if each.task == "t"}
    assert by_size[50].models == 1, "the small windows of the other task do not empty the row"
    (note,) = (each for each in document.notes if "cannot be used" in each)
    assert note.startswith("small: 1 setting cannot be used: tasks.small.window.size: ")
    assert note.count("cannot be used") == 1


def test_errors_name_the_times_the_range_and_the_remedy(folder: Path) -> None:
    untimed = [{key: value for key, value in each.items() if key != "time"} for each in stream(False)[:300]]
    (folder / "untimed.ndjson").write_bytes(ndjson(untimed))
    day = "2023-11-14"
    cases = [
        (
            options(folder, incident=("noon", day)),
            "--incident: expected two dates or times, such as 2026-11-20 2026-11-20T18:00Z, got 'noon'; "
            "without an offset, a time is in UTC",
        ),
        (
            options(folder, incident=(f"{day}T23:00", day)),
            f"--incident: expected a start before the end, got {day}T23:00 and {day}; give the earlier time "
            "first",
        ),
        (
            options(folder, "bare.ndjson", incident=("2030-01-01", "2030-01-02")),
            "--incident: 2030-01-01 lies after the end of the files, whose answers have times from "
            "2023-11-14T22:13:20 to 2023-11-14T23:19:59; give a start between them, or more files",
        ),
        (
            options(folder, "bare.ndjson", incident=(day, f"{day}T23:00")),
            f"--incident: {day} lies before the beginning of the files",
        ),
        (
            options(folder, "untimed.ndjson"),
            "--incident: the answers of the files have no time; add `time` to the records",
        ),
        (options(folder, processes=0), "--processes: expected 1 to 1024, got 0"),
        (options(folder, seed=-1), "--seed: expected 0 to 4294967295, got -1"),
    ]
    for case, words in cases:
        with pytest.raises(ConfigError) as error:
            document_of(case)
        assert words in str(error.value), (words, str(error.value))


def test_a_nervous_row_a_row_with_fewer_labels_and_a_row_of_fewer_models_are_not_recommended() -> None:
    today = row(today=True, changes=0)
    nervous = row(hours=1.0, other_alarms=3)
    unlabelled = row(hours=1.0, label_share=0.0)
    fewer = row(hours=1.0, seen=1)
    assert recommended([today, nervous, unlabelled, fewer, row(hours=None), row()]) is None
    promised = row(hours=2.0, other_alarms=3, predicted=3.5)
    sooner, simpler = row(hours=4.0, changes=2), row(hours=4.0)
    assert recommended([today, sooner, simpler, nervous]) == simpler
    assert recommended([today, sooner, simpler, promised]) == promised
    missed = msgspec.structs.replace(today, hours=None, seen=0)
    assert recommended([missed, row(hours=40.0)]) == row(hours=40.0)


def test_another_window_keeps_the_false_alarms_a_month_and_another_kind_drops_foreign_keys() -> None:
    plain = Task(classes=("a", "b"), window={"size": 400, "min_size": 100, "max_age_seconds": 60})  # type: ignore[arg-type]
    half = changed_task(plain, Setting(0.5))
    assert half["window"] == {"size": 200, "min_size": 50, "max_age_seconds": 30}
    assert half["chart"] == {"arl0": 740}
    assert changed_task(plain, Setting(2.0, "ewma"))["chart"] == {"arl0": 185, "kind": "ewma"}
    ruled = Task(classes=("a", "b"), chart={"rules": [1, 2], "arl0": 20})  # type: ignore[arg-type]
    assert changed_task(ruled, Setting(4.0, "cusum"))["chart"] == {"arl0": 10, "kind": "cusum"}
    by_hour = Task(classes=("a", "b"), chart={"season": "hour_of_week", "time_zone": "Europe/Berlin"})  # type: ignore[arg-type]
    assert changed_task(by_hour, Setting(season=False))["chart"] == {"season": None}
    assert changed_task(by_hour, Setting(season=True))["chart"] == changed_task(by_hour, Setting())["chart"]
    assert changed_task(plain, Setting(season=True))["chart"] == {"season": "hour_of_week"}
    fixed = Task(classes=("a", "b"), chart={"sigmas": 3})  # type: ignore[arg-type]
    assert changed_task(fixed, Setting(0.5, "cusum"))["chart"] == {"sigmas": 3}
    models = {"m": {"answers_per_day": 1000}}
    budget = {"arl0": {"false_alarms_per_week": 1}}
    shared = Task(classes=("a", "b"), models=models, chart=budget)  # type: ignore[arg-type]
    assert changed_task(shared, Setting(0.5))["chart"] == budget


def test_the_settings_begin_with_todays_and_try_each_kind_once() -> None:
    def tried(seasonal: bool = False, **chart: Any) -> list[Setting]:
        config = config_from({"tasks": {"t": {"classes": ["a", "b"], "chart": chart}}})
        return settings_of(config, False, seasonal)

    assert [each.kind for each in tried()[:3]] == [None, "ewma", "cusum"]
    assert len(tried()) == 9
    assert [each.kind for each in tried(kind="cusum")[:3]] == [None, "shewhart", "ewma"]
    assert [each.kind for each in tried(sigmas=3)] == [None] * 3
    assert tried()[0] == Setting()
    assert [each.season for each in tried(seasonal=True)[:4]] == [None, None, None, True]
    assert len(tried(seasonal=True)) == 12
    assert tried(seasonal=True, season="hour_of_week")[3] == Setting(season=False)


def test_labels_of_a_smaller_share_are_among_those_of_a_larger_one() -> None:
    rig = Rig(task())
    rows = stream()[:1000]
    records = [msgspec.json.encode(each) for each in rows]
    records += [msgspec.json.encode({"id": f"x{i}", "label": "ok", "time": START}) for i in range(1000)]
    chunk = rig.decode([RawMessages(records, "part-0", list(range(2000)))])

    def kept(share: float) -> tuple[set[int], set[int]]:
        some = with_share_of_labels(chunk, 0, share, seed=3)
        (batch,) = some.batches
        return set(batch.order[batch.label >= 0].tolist()), {
            int(order) for each in some.labels for order in each.order
        }

    assert kept(0) == (set(), set())
    for quarter, half, whole in zip(kept(0.25), kept(0.5), kept(1), strict=True):
        assert quarter < half < whole
        assert len(whole) == 1000
        assert abs(len(quarter) - 250) < 4 * (1000 * 0.25 * 0.75) ** 0.5
