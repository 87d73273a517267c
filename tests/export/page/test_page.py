"""The landing page: it says what the view says, escapes what came from outside, and asks for nothing else."""

from __future__ import annotations

import dataclasses
import itertools
import math
import re
from typing import Any

import pytest

from monitor import __version__
from monitor.base.results import Estimate, Unknown
from monitor.export.http.query import parameters
from monitor.export.page import MOST_SERIES, render_page
from monitor.export.page.features import features_table
from monitor.export.page.overview import Shown
from monitor.export.page.states import WorstState
from monitor.reports.features import BrokenFeature
from monitor.reports.statements import describe
from monitor.reports.trust import Trust
from monitor.reports.views import (
    AgentView,
    AlarmByLabels,
    BaselineProgress,
    CalibrationView,
    ChartView,
    ClassEstimate,
    Coverage,
    EngineView,
    LabelOutcome,
    MetricEstimate,
    ObjectiveState,
    ObjectiveView,
    RecalibrationsView,
    RefitView,
    SeasonView,
    SeriesState,
    SeriesView,
    SinkView,
    SourceView,
)
from monitor.stats.charts.base import Verdict
from tests.export.page.page_reading import read
from tests.export.prometheus.scrape import FALLEN, NEW, WATCHED

MODEL = dataclasses.replace(
    NEW,
    model="erm",
    version="7",
    state=SeriesState.OUT_OF_CONTROL,
    windows_closed=18,
    predictions=9000,
    pending=120,
    window_end_time=1795169251.002,
    calibration=CalibrationView("isotonic", 1, True, 0.0),
    estimates=WATCHED.estimates[:2],
    charts=(ChartView("accuracy", Verdict(0.94, 0.92, 0.96, ("we1", "we4"), True)),),
    objectives=WATCHED.objectives[:1],
)


def of(*series: SeriesView, **more: object) -> AgentView:
    return AgentView(engine=EngineView(series=series, **more), ready=True)  # type: ignore[arg-type]


def test_a_model_is_told_in_full() -> None:
    text = read(of(MODEL)).text
    assert "Task toxicity" in text
    assert (
        "\nerm out of control\nversion 7 · window 17 to 2026-11-20 10:07:31 UTC · 120 of 500 in the open "
        "window"
        " · calibration isotonic, of another version"
    ) in text
    assert "|accuracy|average confidence: 91.3 % (88.8 to 93.6)\nrealised: unknown, no labels yet" in text
    rules = "beyond a limit, eight windows on one side of the centre"
    assert f"|92.0 to 96.0 %\nout of control; {rules}|at least 90.0 %\nat risk" in text


def test_metrics_of_errors_have_their_unit() -> None:
    unknown = MetricEstimate("mae", "realised", Unknown("no labels yet"), unit="minutes")
    ratio = MetricEstimate("coverage", "realised", Estimate(0.853, 0.821, 0.88, 0.95, 90), unit="ratio")
    charts, objectives, values = (
        WATCHED.charts[-1:],
        WATCHED.objectives[-1:],
        (*WATCHED.values, unknown, ratio),
    )
    text = read(of(dataclasses.replace(MODEL, values=values, charts=charts, objectives=objectives))).text
    assert "|coverage|realised: 85.3 % (82.1 to 88.0)" in text
    assert "|mae|doubly robust: 12.2 (11.5 to 13.0) minutes\nrealised: unknown, no labels yet" in text
    assert "|bias|doubly robust: -2.50 (-3.25 to -1.75)" in text
    assert "|10.5 to 13.1 minutes\nin control|at most 12 minutes\nnot proven" in text


def test_the_overview_shows_the_metric_of_a_breached_objective_in_its_unit() -> None:
    breached = ObjectiveView("mae", 12.0, False, ObjectiveState.BREACHED, (12.1, 12.9), unit="minutes")
    labels = MetricEstimate("mae", "realised", Estimate(14.0, 13.0, 15.0, 0.95, 60), unit="minutes")
    values = (*WATCHED.values, labels)
    one = dataclasses.replace(MODEL, objectives=(breached,), values=values)
    text = read(of(one)).text
    assert "|mae|12.2 minutes\n(11.5 to 13.0)|at most 12 minutes|14.0 minutes of 60\n(13.0 to 15.0)|" in text


def test_errors_without_labels_of_an_untrusted_model_are_struck_through() -> None:
    labels = MetricEstimate("mae", "realised", Estimate(14.0, 13.0, 15.0, 0.95, 60), unit="minutes")
    values = (*WATCHED.values, labels)
    for state, struck in ((SeriesState.IN_CONTROL, False), (SeriesState.UNTRUSTED, True)):
        page = render_page(of(dataclasses.replace(MODEL, state=state, values=values)))
        body = page.partition('<div id="overview">')[2].partition('<div id="sources">')[0]
        for text, without_labels in (("12.2 (11.5 to 13.0)", True), ("14.0 (13.0 to 15.0)", False)):
            before = body[: body.index(text)]
            is_struck = before.rfind("<s ") > before.rfind("</s>")
            assert is_struck == (struck and without_labels), (state, text)


def test_an_objective_that_is_met_by_an_unchecked_estimate_is_not_green() -> None:
    met = dataclasses.replace(MODEL.objectives[0], state=ObjectiveState.MET)
    page = render_page(of(dataclasses.replace(MODEL, objectives=(met,))))
    words = "met by the estimate, with too few labels to check it since the change"
    assert f'<span class="soft">{words}</span>' in page
    assert '<span class="good">met</span>' not in page
    checked = dataclasses.replace(MODEL, objectives=(met,), trust=Trust(True, 0.0, 200), charts=())
    assert '<span class="good">met</span>' in render_page(of(checked))


def test_a_new_baseline_shows_its_reason_and_how_far_it_is() -> None:
    progress = (BaselineProgress("accuracy", "new threshold", 3, 20),)
    text = read(of(dataclasses.replace(MODEL, charts=(), rebaselining=progress))).text
    assert "|new baseline (new threshold): 3 of 20 windows|" in text


def test_the_limits_say_whether_they_are_those_of_the_hour() -> None:
    for season, words in (
        (SeasonView("accuracy", "Europe/Berlin"), "limits by hour of the week (Europe/Berlin)"),
        (
            SeasonView("accuracy", "UTC", "they need four weeks, and begin on 2026-12-26"),
            "no limits by hour of the week yet: they need four weeks, and begin on 2026-12-26",
        ),
    ):
        text = read(of(dataclasses.replace(MODEL, seasons=(season,)))).text
        assert f"eight windows on one side of the centre\n{words}|" in text


def test_an_alarm_that_lasts_is_told_from_a_window_that_breaks_a_rule() -> None:
    verdict = Verdict(0.94, 0.92, 0.96, (), True)
    latched = dataclasses.replace(MODEL, charts=(ChartView("accuracy", verdict),))
    text = read(of(latched)).text
    assert "out of control; this window is calm|" in text
    text = read(of(dataclasses.replace(latched, alarmed_since={"accuracy": 1795168800.0}))).text
    assert "out of control since 2026-11-20 10:00:00 UTC; this window is calm|" in text


def test_what_labels_decide_stands_beside_the_limits() -> None:
    [chart] = MODEL.charts
    sentence = "by 1,200 labels 90.0% are right in the newest five windows, below the "
    sentence += "92.0% to 96.0% of the baseline"
    below = dataclasses.replace(
        chart,
        verdict=dataclasses.replace(chart.verdict, rules=()),
        by_labels=AlarmByLabels(0.9, 0.92, 0.96, 1200, False),
    )
    text = read(of(dataclasses.replace(MODEL, charts=(below,)))).text
    assert f"|92.0 to 96.0 %\nout of control\n{sentence}|" in text
    assert "confidences moved" not in text
    both = dataclasses.replace(below, by_labels=AlarmByLabels(0.9, 0.92, 0.96, 1200, True))
    assert "confidences moved" not in read(of(dataclasses.replace(MODEL, charts=(both,)))).text, (
        "an alarm is on"
    )
    calm = dataclasses.replace(
        chart,
        verdict=dataclasses.replace(chart.verdict, out_of_control=False),
        by_labels=AlarmByLabels(0.93, 0.92, 0.96, 1200, True),
    )
    shown = dataclasses.replace(MODEL, state=SeriesState.IN_CONTROL, charts=(calm,), objectives=())
    text = read(of(shown)).text
    assert "in control; beyond a limit, eight windows on one side of the centre\nby 1,200 labels" in text
    assert text.count("confidences moved") == 2, "in the row of the model and beside the limits"


def test_an_alarm_says_where_the_change_is() -> None:
    text = read(of(dataclasses.replace(MODEL, attributions=WATCHED.attributions))).text
    assert (
        'eight windows on one side of the centre\n−3.1 points: 2.4 from region="eu" (answers up from 20 to '
        "45 %), 0.5 from region=us (confidences down 1.0 points); by feature: 2.0 from hour (missing in 41 % "
        "of rows), 1.0 at the same features (a release, a pipeline after logging, or a feature not "
        "configured), "
        '0.4 from car"rier|' in text
    )
    lost = dataclasses.replace(MODEL, state=SeriesState.UNTRUSTED, attributions=WATCHED.attributions)
    assert "−3.1 points" not in read(of(lost)).text, "an untrusted estimate changes nowhere that is known"


def test_classes_by_themselves_stand_below_their_metric() -> None:
    classes = (
        ClassEstimate("accuracy", "average_confidence", "<b>ok", Estimate(0.9, 0.85, 0.95, 0.95, 500)),
        ClassEstimate("accuracy", "average_confidence", "toxic", Unknown("one class only")),
    )
    text = read(of(dataclasses.replace(MODEL, classes=classes))).text
    assert "no labels yet\nof <b>ok: 90.0 % (85.0 to 95.0)\nof toxic: unknown, one class only|" in text


def test_ssme_stands_beside_realised() -> None:
    joint = MetricEstimate("accuracy", "ssme", Estimate(0.902, 0.88, 0.92, 0.95, 500))
    realised = MetricEstimate("accuracy", "realised", Estimate(0.9, 0.85, 0.94, 0.95, 1087))
    text = read(of(dataclasses.replace(MODEL, estimates=(*MODEL.estimates[:1], joint, realised)))).text
    assert "\nssme: 90.2 % (88.0 to 92.0)\nrealised: 90.0 % (85.0 to 94.0)" in text


def test_realised_says_what_it_rests_on() -> None:
    realised = MetricEstimate("accuracy", "realised", Estimate(0.9, 0.85, 0.94, 0.95, 1087))
    text = read(of(dataclasses.replace(MODEL, estimates=(*MODEL.estimates[:1], realised)))).text
    assert "realised: 90.0 % (85.0 to 94.0) by 1,087 labels of the newest labelled window|" in text
    assert "average confidence: 91.3 % (88.8 to 93.6)\n" in text


def test_a_ceiling_and_an_unjudged_objective_are_told() -> None:
    quiet = dataclasses.replace(
        MODEL,
        charts=(ChartView("ece", Verdict(0.02, 0.0, 0.05, (), False)),),
        objectives=(ObjectiveView("ece", 0.05, False, None),),
    )
    assert "|ece||0.0 to 5.0 %\nin control|at most 5.0 %\nunknown" in read(of(quiet)).text


def test_a_model_without_a_window_says_how_far_it_is() -> None:
    new = dataclasses.replace(
        MODEL,
        state=SeriesState.WARMING_UP,
        windows_closed=0,
        window_end_time=None,
        pending=7,
        estimates=(),
        charts=(),
        objectives=(),
    )
    text = read(of(new)).text
    assert "warming up\nversion 7 · no window closed yet · 7 of 500 in the open window" in text
    assert "|accuracy|" not in text


def test_groups_follow_their_model_and_tasks_stand_apart() -> None:
    series = [
        dataclasses.replace(MODEL, group="region=eu"),
        dataclasses.replace(MODEL, model="irm"),
        dataclasses.replace(MODEL, task="spam"),
        MODEL,
    ]
    names = re.findall(r"Task \w+|\n(?:erm|irm)(?: region=eu)?(?= out)", read(of(*series)).text)
    assert names == ["Task toxicity", "\nerm", "\nerm region=eu", "\nirm", "Task spam", "\nerm"]


@pytest.mark.parametrize("state", list(SeriesState))
@pytest.mark.parametrize("objective", list(ObjectiveState))
def test_every_state_has_its_word(state: SeriesState, objective: ObjectiveState) -> None:
    one = dataclasses.replace(
        MODEL, state=state, objectives=(ObjectiveView("accuracy", 0.9, True, objective),)
    )
    text = read(of(one)).text
    worst = state.value.replace("_", " ")
    judged = objective.value.replace("_", " ")
    if objective is ObjectiveState.BREACHED and state is not SeriesState.UNTRUSTED:
        worst = "objective breached"
    elif objective is ObjectiveState.AT_RISK and state in (SeriesState.IN_CONTROL, SeriesState.WARMING_UP):
        worst = "objective at risk"
    if state is SeriesState.UNTRUSTED:
        judged = "not judged by an untrusted estimate"
    assert f"erm {worst}\nversion" in text
    assert f"at least 90.0 %\n{judged}" in text


def test_a_number_that_is_none_is_never_shown() -> None:
    wrong = MetricEstimate("accuracy", "average_confidence", Estimate(math.nan, 0.0, 1.0, 0.95, 3))
    text = read(of(dataclasses.replace(MODEL, estimates=(wrong,)))).text
    assert "average confidence: unknown, not a number" in text
    assert "nan" not in text


def test_the_agents_own_troubles_are_told() -> None:
    troubled = AgentView(
        ready=False,
        healthy=False,
        reasons=("Source a is not connected.", "The engine has not moved for 60 s."),
        reload_successful=False,
        reports_lost=1200,
        sinks=(SinkView("reports_topic", trouble="no broker answers"), SinkView("rejects_file")),
    )
    text = read(troubled).text
    assert (
        "The agent is not healthy, not ready, the new configuration could not be read; the old one is kept, "
        "windows missing in a sink of reports: 1,200.\nSource a is not connected.\nThe engine has not moved"
    ) in text
    assert "reports_topic: no broker answers." in text
    assert "rejects_file:" not in text
    assert "The agent is healthy, ready." in read(of()).text


def test_an_agent_that_has_ended_is_not_in_trouble() -> None:
    read_to_end = "Source flights.ndjson was read to its end at 2026-11-20 10:00:00 UTC: 20,000 answers."
    sources = (
        SourceView("flights.ndjson", True, 0, ended_time=1_795_168_800.0),
        SourceView("http", False, None, ended_time=1_795_168_801.0),
    )
    text = read(AgentView(ended=True, reasons=(read_to_end,), sources=sources)).text
    assert f"The agent has ended.\n{read_to_end}" in text
    assert "not ready" not in text
    assert "|flights.ndjson|read to its end|0|" in text
    assert "|http|closed|not known|" in text


def test_sources_rejects_and_labels_are_counted() -> None:
    engine = EngineView(
        received={"kafka": 12345},
        shed={"kafka": 6},
        rejected={("kafka", "malformed"): 3, ("kafka", "bad_id"): 40, ("kafka", "logits"): 0},
        labels={("toxicity", LabelOutcome.MATCHED): 1800},
        labels_waiting={"toxicity": 5},
        label_lag_seconds={"toxicity": 5400.0},
    )
    sources = (SourceView("kafka", True, 1042), SourceView("stdin", False, None))
    text = read(AgentView(engine=engine, sources=sources)).text
    assert "|kafka|connected|1,042|12,345|43|6" in text
    assert "|stdin|not connected|not known|0|0|0" in text
    assert "|kafka|bad id|40\n|kafka|malformed|3" in text
    assert "logits" not in text
    assert "|Task|Matched|Duplicate|Conflicting|Expired|Rejected|Ambiguous|Shed|Waiting|Median delay" in text
    assert "|toxicity|1,800|0|0|0|0|0|0|5|90.0 min" in text


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(0.25, "0.2 s"), (119.0, "119.0 s"), (120.0, "2.0 min"), (7200, "2.0 h"), (259200, "3.0 days")],
)
def test_delays_have_a_fitting_unit(seconds: float, expected: str) -> None:
    engine = EngineView(labels_waiting={"toxicity": 0}, label_lag_seconds={"toxicity": seconds})
    assert f"|{expected}" in read(AgentView(engine=engine)).text


def test_the_audit_of_the_intervals_stands_beside_the_model_with_the_labels_it_rests_on() -> None:
    assert "confidences as they are" not in read(of(MODEL)).text
    text = read(of(dataclasses.replace(MODEL, coverage=Coverage(0.855, 6000, 0.95)))).text
    assert (
        "intervals by confidences alone covered 85.5 % (target 95.0 %) of batches of 30, 6,000 labels" in text
    )


def test_refits_tell_what_the_last_good_one_rests_on_and_why_the_newest_was_refused() -> None:
    refits = {
        "toxicity": RefitView(
            number=9,
            under_way=True,
            success_time=1795169251.0,
            rows=1020,
            labelled=51,
            failures=2,
            refused="took <too> long",
        ),
        "spam": RefitView(),
    }
    text = read(AgentView(engine=EngineView(refits=refits))).text
    assert "published 2026-11-20 10:07:31 UTC" in text
    assert "the newest refit was refused: took <too> long; another is running" in text
    assert "none yet" in text
    assert "Refits" not in read(AgentView()).text


def test_recalibrations_are_counted_by_model_with_the_reason_of_the_last_refusal() -> None:
    refused = RecalibrationsView({"taken": 1234, "kept": 7, "refused": 2}, "all of <one> class")
    under_way = RecalibrationsView({"taken": 0, "kept": 0, "refused": 0}, under_way=True)
    models = [
        dataclasses.replace(MODEL, model=name, recalibrations=view)
        for name, view in (("a", refused), ("b", under_way), ("c", None))
    ]
    text = read(of(*models)).text
    assert "|Model|Newest|Taken|Kept|Refused" in text
    assert "|toxicity a|the newest refit was refused: all of <one> class|1,234|7|2" in text
    assert "|toxicity b|one is running|0|0|0" in text
    assert "toxicity c" not in text.partition("Calibrations refitted on labels")[2]
    assert "refitted" not in read(of(models[2])).text


def test_an_agent_that_has_seen_nothing_says_so() -> None:
    text = read(AgentView()).text
    assert "No answer has come yet." in text
    assert f"Blindsight {__version__}" in text


def test_a_long_list_is_cut_and_says_where_the_rest_is() -> None:
    crowd = [dataclasses.replace(MODEL, model=f"m{n}") for n in range(MOST_SERIES + 1234)]
    text = read(of(*crowd, series_dropped=2)).text
    assert len(rows_of(text)) == MOST_SERIES
    assert "1,234 more models: filter them, or see metrics." in text
    assert "Models and groups beyond the cap, not watched: 2." in text


@pytest.mark.slow
def test_groups_beyond_what_is_shown_are_counted() -> None:
    groups = [dataclasses.replace(MODEL, group=f"g={n}") for n in range(MOST_SERIES + 9)]
    text = read(of(MODEL, *groups)).text
    assert text.count("out of control\nversion") == MOST_SERIES
    assert "10 more models and groups: see metrics." in text


def test_of_many_models_there_are_rows_alone_and_each_has_its_own_page() -> None:
    models = [dataclasses.replace(MODEL, model=f"m{n}") for n in range(6)]
    page = render_page(of(*models, dataclasses.replace(MODEL, model="m5", group="region=eu")))
    assert "<figure" not in page
    assert page.count('<a href="models/toxicity/m') == 12, "a row each, five sentences, and a group"
    assert "<figure" in render_page(of(*models[:5]))
    assert "<figure" in render_page(of(*models), Shown(name="m3")), "what is filtered to a few is shown whole"


def test_text_from_outside_cannot_become_markup() -> None:
    evil = "\"><script>alert('x')</script>&"
    one = dataclasses.replace(
        MODEL,
        task=evil,
        model=evil,
        group=evil,
        version=evil,
        calibration=CalibrationView(evil, 0, False, None),
        estimates=(MetricEstimate(evil, evil, Unknown(evil)),),
        charts=(ChartView(evil, Verdict(0.9, 0.8, 1.0, (evil,), False)),),
    )
    engine = EngineView(
        series=(one,), rejected={(evil, evil): 1}, labels_waiting={evil: 1}, label_lag_seconds={evil: 1.0}
    )
    page = read(AgentView(engine=engine, sources=(SourceView(evil, True, 1),), reasons=(evil,)))
    ours = [attrs.get("src", "") or "" for tag, attrs in page.tags if tag == "script"]
    assert [src.partition("?")[0] for src in ours] == ["assets/uPlot.iife.min.js", "assets/page.js"]
    # The reason; task; the groups' model;
    # model, group, version, calibration; the caption's model and group;
    # metric, estimator, unknown, rule; the figure's model, group, metric; the source; the reject's source
    # and reason; the labels' task.
    assert page.text.count(evil) == 20
    assert "<script>" not in render_page(AgentView(engine=engine, sources=(SourceView(evil, True, 1),)))


def test_nothing_is_asked_for_from_elsewhere_and_no_script_or_style_stands_in_the_page() -> None:
    page = read(of(MODEL))
    links = {
        str(value)
        for _, attrs in page.tags
        for name, value in attrs.items()
        if name in {"href", "src", "action", "data-history"}
    }
    ours = re.compile(
        r"data:,|metrics|-/(healthy|ready)|api/v1/|#main|assets/[\w.]+\?[0-9a-f]{12}|models/toxicity/erm"
        r"|(api/v1/chart|chart.svg)\?task=.*|runbooks/BlindsightOutOfControl\?task=toxicity&model=erm"
    )
    assert {link for link in links if not ours.fullmatch(link)} == set()
    assert {tag for tag, _ in page.tags} & {"iframe", "form", "object", "style"} == set()
    assert all(attrs.get("src") for tag, attrs in page.tags if tag == "script"), "no inline script"
    assert not any(name.startswith("on") or name == "style" for _, attrs in page.tags for name in attrs)
    assert '<noscript><meta http-equiv="refresh" content="15"></noscript>' in render_page(of(MODEL))


def rows_of(text: str) -> list[str]:
    """Return the rows of the table of models, each with its cells."""
    table = text.partition("Models, the worst first")[2].partition("\nTask ")[0]
    return [row for row in table.split("\n|") if row][1:]


def test_the_first_screen_has_a_row_a_model_the_worst_first() -> None:
    breached = ObjectiveView("accuracy", 0.93, True, ObjectiveState.BREACHED)
    since = dataclasses.replace(MODEL, alarmed_since={"accuracy": 1795168800.0})
    untrusted = dataclasses.replace(MODEL, model="irm", state=SeriesState.UNTRUSTED)
    calm = dataclasses.replace(
        MODEL,
        model="good",
        state=SeriesState.IN_CONTROL,
        charts=(),
        objectives=(breached,),
        estimates=(
            *MODEL.estimates[:1],
            MetricEstimate("accuracy", "realised", Estimate(0.9, 0.85, 0.94, 0.95, 1087)),
        ),
    )
    text = read(of(since, calm, untrusted)).text
    headline = "1 model is untrusted: labels contradict its estimate. 1 objective breached, 1 out of control."
    assert f"\n{headline}" in text
    end = "|2026-11-20 10:07:31 UTC"
    assert rows_of(text) == [
        "irm|untrusted, chart not meaningful until labels agree again|accuracy|91.3 %\n(88.8 to 93.6)"
        f"|at least 90.0 %|none yet|{end}",
        "good|objective breached|accuracy|91.3 %\n(88.8 to 93.6)|at least 93.0 %\n1.7 below"
        f"|90.0 % of 1,087\n(85.0 to 94.0)|{end}",
        "erm|out of control since 2026-11-20 10:00:00 UTC|accuracy|91.3 %\n(88.8 to 93.6)|at least 90.0 %\n"
        f"1.3 above|none yet|{end}",
    ]


def test_a_sentence_says_what_is_wrong_with_each_model_in_a_red_state() -> None:
    since = dataclasses.replace(MODEL, alarmed_since={"accuracy": 1795168800.0})
    calm = dataclasses.replace(MODEL, model="good", state=SeriesState.IN_CONTROL, charts=(), objectives=())
    page = render_page(of(since, calm))
    start, _, end = page.partition('<ul class="actions">')[2].partition("</ul>")
    assert start.count("<li>") == 1, start
    statement = describe(since)
    assert f'<a href="models/toxicity/erm">toxicity/erm</a>: {statement.fact}. {statement.details}' in start
    assert '<a href="runbooks/BlindsightOutOfControl?task=toxicity&amp;model=erm">Runbook</a>' in start
    assert '<ul class="actions">' not in end + render_page(of(calm))


def test_models_that_fall_together_have_one_sentence_and_another_model_its_own() -> None:
    other = dataclasses.replace(MODEL, task="spam", model="nb")
    page = render_page(of(other, *FALLEN))
    lines = page.partition('<ul class="actions">')[2].partition("</ul>")[0].split("<li>")[1:]
    assert len(lines) == 2
    assert '<a href="?task=delay">all 3 models of delay</a>: accuracy fell by 3.1 points' in lines[0]
    assert "Points by model: dro -6.2, erm -3.1 and irm -3.1." in lines[0]
    assert '<a href="runbooks/BlindsightSharedChange?task=delay">Runbook</a>' in lines[0]
    assert ">spam/nb</a>" in lines[1]
    assert page.count('data-sort="1"') == 3, "the rows of the models stay"


def test_an_untrusted_model_keeps_its_sentence_beside_a_shared_one() -> None:
    untrusted = dataclasses.replace(FALLEN[0], state=SeriesState.UNTRUSTED)
    page = render_page(of(untrusted, *FALLEN[1:]))
    lines = page.partition('<ul class="actions">')[2].partition("</ul>")[0].split("<li>")[1:]
    assert ["all 3 models" in line for line in lines] == [True, False]
    assert ">delay/erm</a>" in lines[1]


def test_at_most_five_models_have_a_sentence() -> None:
    models = [dataclasses.replace(MODEL, model=f"m{n}") for n in range(7)]
    text = render_page(of(*models)).partition('<ul class="actions">')[2].partition("</ul>")[0]
    assert text.count("Runbook</a>") == 5
    assert '<li class="soft">2 more models below</li>' in text


@pytest.mark.parametrize(
    ("models", "headline"),
    [
        (["breached"], "1 model misses its objective; its chart is stable."),
        (
            ["breached", "breached", "fine"],
            "2 models miss their objectives; their charts are stable. 1 in control.",
        ),
        (["alarmed", "fine"], "1 model is out of control. 1 in control."),
        (["fine", "fine"], "2 models are fine: nothing has changed."),
        (["met"], "1 model is fine: nothing has changed, objective met."),
        (["met", "fine"], "2 models are fine: nothing has changed, objectives met."),
        (["met", "not proven"], "2 models are in control."),
        (["met", "unchecked"], "2 models are in control."),
        (["met", "improved"], "2 models are in control."),
        (["met", "drifted"], "2 models are in control."),
    ],
)
def test_the_headline_takes_the_worst_state(models: list[str], headline: str) -> None:
    missed = (ObjectiveView("accuracy", 0.93, True, ObjectiveState.BREACHED),)
    kinds = {
        "breached": dataclasses.replace(MODEL, state=SeriesState.IN_CONTROL, charts=(), objectives=missed),
        "alarmed": dataclasses.replace(MODEL, objectives=()),
        "fine": dataclasses.replace(MODEL, state=SeriesState.IN_CONTROL, charts=(), objectives=()),
    }
    for name, state in (("met", ObjectiveState.MET), ("not proven", ObjectiveState.NOT_PROVEN)):
        objective = ObjectiveView("accuracy", 0.9, True, state)
        own = CalibrationView("isotonic", 1, False, 0.0)
        kinds[name] = dataclasses.replace(kinds["fine"], objectives=(objective,), calibration=own)
    kinds["unchecked"] = dataclasses.replace(kinds["met"], calibration=MODEL.calibration)
    better = ChartView("accuracy", Verdict(0.9, 0.88, 0.92, (), False, improved=True))
    kinds["improved"] = dataclasses.replace(kinds["met"], charts=(better,))
    kinds["drifted"] = dataclasses.replace(kinds["met"], features=WATCHED.features)
    named = [dataclasses.replace(kinds[kind], model=f"m{i}") for i, kind in enumerate(models)]
    assert f"\n{headline}" in read(of(*named)).text


def test_a_model_with_labels_is_not_shown_as_one_without() -> None:
    labelled = dataclasses.replace(MODEL, labelled=49_891, correct=40_000)
    (row,) = rows_of(read(of(labelled)).text)
    assert "|no value yet, 49,891 labels|" in row
    (row,) = rows_of(read(of(dataclasses.replace(labelled, labelled=0, correct=0))).text)
    assert "|none yet|" in row


def test_within_a_state_the_farthest_from_its_objective_is_first() -> None:
    def missed(name: str, value: float, metric: str = "accuracy", bound: float = 0.93) -> SeriesView:
        estimate = MetricEstimate(metric, "average_confidence", Estimate(value, 0.0, 1.0, 0.95, 500))
        objective = ObjectiveView(metric, bound, metric == "accuracy", ObjectiveState.BREACHED)
        return dataclasses.replace(
            MODEL,
            model=name,
            state=SeriesState.IN_CONTROL,
            charts=(),
            estimates=(estimate,),
            objectives=(objective,),
        )

    near, far, error = missed("near", 0.855), missed("far", 0.81), missed("error", 0.2, "ece", 0.1)
    unknown = dataclasses.replace(near, model="unknown", estimates=())
    out_of_control = dataclasses.replace(MODEL, model="alarmed", objectives=())
    text = read(of(out_of_control, unknown, near, error, far)).text
    assert [row.partition("|")[0] for row in rows_of(text)] == ["far", "error", "near", "unknown", "alarmed"]


def test_groups_that_want_looking_at_are_folded_into_the_row_of_their_model() -> None:
    calm = dataclasses.replace(MODEL, state=SeriesState.IN_CONTROL, charts=(), objectives=())
    groups = [dataclasses.replace(MODEL, objectives=(), group=f"region=r{i}") for i in range(5)]
    text = read(of(calm, *groups, dataclasses.replace(calm, group="region=fine"))).text
    (row,) = [row.partition("|accuracy")[0] for row in rows_of(text)]
    named = ", ".join(f"region=r{i} out of control" for i in range(5))
    assert row == f"erm|in control\n5 of 6 groups: out of control{named}"


def test_a_broken_feature_is_named_and_doubts_every_metric() -> None:
    broken = dataclasses.replace(
        MODEL,
        state=SeriesState.UNTRUSTED,
        trust=None,
        broken_features=(BrokenFeature("hour", "missing", 0.412, 0.002),),
    )
    seen = read(of(broken)).text
    assert "1 model is untrusted: a feature is broken." in seen
    assert "chart not meaningful while a feature is broken" in seen


def test_the_headline_names_both_causes_of_lost_trust() -> None:
    lost = dataclasses.replace(MODEL, state=SeriesState.UNTRUSTED, trust=Trust(False, 23.5, 400))
    broken = dataclasses.replace(lost, broken_features=(BrokenFeature("hour", "missing", 0.412, 0.002),))
    sound = dataclasses.replace(broken, model="irm", trust=None)
    seen = read(of(broken)).text
    assert "1 model is untrusted: a feature is broken, and labels contradict its estimate." in seen
    assert "chart not meaningful while a feature is broken or labels contradict the estimate" in seen
    assert "Estimates do not count until this is repaired, and labels contradict them." in seen
    every = "2 models are untrusted: features are broken, and labels contradict estimates."
    for one in (broken, dataclasses.replace(lost, model="erm")):
        assert every in read(of(one, sound)).text
    assert (
        "2 models are untrusted: features are broken."
        in read(of(sound, dataclasses.replace(sound, model="erm"))).text
    )


def test_an_untrusted_model_has_nothing_green_and_its_labels_lead() -> None:
    realised = MetricEstimate("accuracy", "realised", Estimate(0.8, 0.75, 0.84, 0.95, 400))
    untrusted = dataclasses.replace(
        MODEL,
        state=SeriesState.UNTRUSTED,
        estimates=(*MODEL.estimates[:1], realised),
        charts=(ChartView("accuracy", Verdict(0.94, 0.92, 0.96, (), False)),),
        objectives=(ObjectiveView("accuracy", 0.9, True, ObjectiveState.MET),),
    )
    page = render_page(of(untrusted))
    body = page.partition('<div id="overview">')[2].partition('<div id="sources">')[0]
    assert 'class="good"' not in body
    assert body.index("realised:") < body.index("<s ") or body.count("<s ") == 2
    assert "not meaningful until labels agree again" in body
    assert "<b>80.0 %</b> of 400</span><br>" in body


def test_each_thing_that_wants_looking_at_leads_to_its_page() -> None:
    page = read(of(MODEL, dataclasses.replace(MODEL, group="region=eu")))
    links = [str(attrs["href"]) for tag, attrs in page.tags if tag == "a"]
    ids = [attrs["id"] for _, attrs in page.tags if "id" in attrs]
    assert len(set(ids)) == len(ids)
    own, group = "models/toxicity/erm", "models/toxicity/erm?group=region%3Deu"
    assert [link for link in links if link.startswith("models")] == [own, own, group, own, group]


def fleet() -> AgentView:
    """Return seven models of two tasks: one breached, one silent."""
    fine = dataclasses.replace(MODEL, state=SeriesState.IN_CONTROL, charts=(), objectives=())
    models = [
        dataclasses.replace(fine, model=f"m{i}", task="spam" if i % 2 else "ham & eggs") for i in range(7)
    ]
    missed = (ObjectiveView("accuracy", 0.93, True, ObjectiveState.BREACHED),)
    models[3] = dataclasses.replace(models[3], objectives=missed)
    models[4] = dataclasses.replace(models[4], state=SeriesState.SILENT)
    return of(*models, dataclasses.replace(models[3], group="region=eu"))


def test_models_are_filtered_by_task_state_and_name_and_the_headline_stays_that_of_all() -> None:
    def shown(**options: Any) -> tuple[list[str], str]:
        page = render_page(fleet(), Shown(**options))
        return re.findall(r'scope="row"><a href="([^"]+)">[^<]+</a></th>', page), page

    links, page = shown(task="spam", state="breached")
    assert links == ["models/spam/m3"]
    assert 'href="models/spam/m3?group=region%3Deu"' in page, "with its groups"
    assert "1 model misses its objective; its chart is stable." in page
    assert '<a href="?task=spam&amp;state=silent">silent (1)</a>' in page
    assert '<a href="?task=ham+%26+eggs&amp;state=breached">ham &amp; eggs</a>' in page
    assert '<a href="?task=spam&amp;state=breached" aria-current="true">objective breached (1)</a>' in page
    assert shown(name="M4")[0] == ["models/ham%20%26%20eggs/m4"]
    assert len(shown()[0]) == 7
    links, page = shown(name="x")
    assert (links, "No model fits." in page) == ([], True)
    assert "<h2>Task" not in page


def test_each_state_can_be_filtered_by() -> None:
    states = parameters(Shown)["state"]["enum"]
    assert sorted(states) == sorted(state.name.lower() for state in WorstState)


def test_few_models_have_no_filters_and_the_page_says_when_it_was_made() -> None:
    page = render_page(of(MODEL), now=1795168800.0)
    assert "choices" not in page
    assert 'As of <time datetime="2026-11-20T10:00:00.000Z">2026-11-20 10:00:00 UTC</time>.' in page


def test_groups_are_folded_away() -> None:
    group = dataclasses.replace(MODEL, group="region=eu")
    calm = dataclasses.replace(group, state=SeriesState.IN_CONTROL, objectives=())
    page = read(of(MODEL, group, dataclasses.replace(group, group="region=us", state=SeriesState.SILENT)))
    assert "Groups of erm: 2, 1 out of control" in page.text
    folded = [("open" in attrs) for tag, attrs in page.tags if tag == "details"]
    assert folded == [False, False], "those in the row of their model, and those below it"
    page = read(of(MODEL, calm))
    assert "Groups of erm: 1\n" in page.text
    assert [("open" in attrs) for tag, attrs in page.tags if tag == "details"] == [False]


def test_tables_have_captions_and_headings_descend_one_by_one() -> None:
    page = read(
        dataclasses.replace(
            of(MODEL, dataclasses.replace(MODEL, group="region=eu")), sources=(SourceView("a", True, 1),)
        )
    )
    tags = [tag for tag, _ in page.tags]
    assert tags.count("table") == tags.count("caption") == 4
    levels = [int(tag[1]) for tag in tags if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))
    assert page.tags[0] == ("html", {"lang": "en"})


def test_a_chart_is_asked_for_by_names_that_cannot_break_out_of_the_address() -> None:
    odd = dataclasses.replace(MODEL, model='a&b"c', group="region=é")
    (figure,) = [attrs for tag, attrs in read(of(odd)).tags if tag == "figure"]
    assert (
        figure["data-history"]
        == "api/v1/chart?task=toxicity&model=a%26b%22c&group=region%3D%C3%A9&metric=accuracy"
    )


def test_outputs_are_told_with_what_they_lost() -> None:
    failing = SinkView("reports_file", 3, 1200, 4, trouble="the disk is full", failing_since=1795168800.0)
    text = read(AgentView(sinks=(failing, SinkView("metrics", delivered=9)))).text
    assert "|reports_file|failing since 2026-11-20 10:00:00 UTC|3|1,200|4" in text
    assert "|metrics|fine|0|9|0" in text


def test_a_feature_whose_drift_raises_an_alarm_says_so() -> None:
    table = "".join(features_table([WATCHED]))
    assert re.findall(r'row">(\w+)</th>.*?<span class="bad">([^<]+)</span>', table) == [
        ("hour", "broken: missing"),
        ("origin", "has drifted, alarm"),
    ]
    silent = dataclasses.replace(WATCHED, features=None)
    assert silent.feature_alarms == {}
