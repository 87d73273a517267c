"""Changes that the models of a task share: which models are compared, and what the views say."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from monitor.base.results import Estimate, Reason, Unknown
from monitor.config.layouts import layouts
from monitor.config.root import Task
from monitor.engine.engine import Engine, EngineSettings
from monitor.export.page.api import ENDPOINTS, Data, SharedChanges, SharedQuery
from monitor.export.page.overview import glance, own_page
from monitor.reports.shared import SharedView, shared_views
from monitor.reports.statements import describe_shared
from monitor.reports.union import union
from monitor.reports.views import (
    AgentView,
    AlarmByLabels,
    CalibrationView,
    ChartView,
    EngineView,
    MetricEstimate,
    ObjectiveState,
    ObjectiveView,
    SeriesState,
    SeriesView,
)
from monitor.stats.charts.base import Verdict
from tests.records import decode
from tests.streams import CLASSES, ORIGINAL, answers

WORSE = (0.2, 0.7, 0.1)
NOON = 1795176060.0  # 2026-11-20 12:01 UTC


def series(model: str, value: float = 0.9, *, deviation: float = -4.0, **more: Any) -> SeriesView:
    """Return a model whose accuracy was 93 %, with an alarm if its deviation is 3 or more."""
    alarmed = deviation <= -3
    verdict = Verdict(0.93, 0.9, 0.96, (), alarmed, deviation=deviation)
    one = SeriesView(
        "delay", model, "", "", SeriesState.OUT_OF_CONTROL if alarmed else SeriesState.IN_CONTROL,
        *(500, 30, 15_000, 0, 0), NOON, CalibrationView("isotonic", 1, False, None),
        (MetricEstimate("accuracy", "average_confidence", Estimate(value, 0.0, 1.0, 0.95, 500)),),
        (ChartView("accuracy", verdict),), (), {},
        alarmed_since={"accuracy": NOON - 600} if alarmed else {},
        shared_seconds=2700.0,
    )  # fmt: skip
    return dataclasses.replace(one, **more)


FALLEN = [series("a", 0.90), series("b", 0.89), series("c", 0.91), series("d", 0.90, deviation=-2.5)]


def test_all_models_that_fell_are_one_change_with_the_part_of_each() -> None:
    [view] = shared_views(FALLEN)
    assert (view.task, view.metric, view.models) == ("delay", "accuracy", ("a", "b", "c", "d"))
    assert [model for model, _ in view.changes] == ["b", "a", "d", "c"]
    assert dict(view.changes) == {
        model: pytest.approx(value - 0.93)
        for model, value in zip("badc", (0.89, 0.9, 0.9, 0.91), strict=True)
    }
    assert view.alarm
    assert view.change == pytest.approx(-0.03)
    assert view.since == NOON - 600


def test_a_fall_of_one_model_beside_quiet_ones_is_its_own() -> None:
    quiet = [series(str(i), 0.93, deviation=0.2) for i in range(19)]
    [view] = shared_views([series("a", 0.5, deviation=-40.0), *quiet])
    assert view == SharedView("delay", "accuracy", tuple("a") + tuple(map(str, range(19))))
    assert not view.alarm
    assert (view.change, view.since) == (None, None)


@pytest.mark.parametrize(
    "change",
    [
        {"state": SeriesState.SILENT},
        {"group": "region=eu"},
        {"shared_seconds": 0.0},
        {"charts": ()},
        {"window_end_time": NOON - 2701},
        {"task": "other"},
    ],
)
def test_a_model_that_cannot_be_compared_counts_neither_as_moved_nor_as_quiet(change: dict[str, Any]) -> None:
    out = dataclasses.replace(series("e", 0.93, deviation=0.0), **change)
    assert [*shared_views([*FALLEN, out])] == [*shared_views(FALLEN)]


def test_a_window_as_old_as_the_silence_of_a_model_is_compared() -> None:
    late = dataclasses.replace(FALLEN[0], window_end_time=NOON - 2700)
    assert len(next(shared_views([late, *FALLEN[1:]])).changes) == 4


@pytest.mark.parametrize("ahead", [2701.0, 80_000.0])
def test_one_clock_that_is_ahead_does_not_end_the_comparison(ahead: float) -> None:
    early = series("clock", 0.5, deviation=0.0, window_end_time=NOON + ahead)
    assert [*shared_views([*FALLEN, early])] == [*shared_views(FALLEN)]


def test_the_models_that_miss_the_objective_are_named_in_the_order_of_their_changes() -> None:
    missed = (ObjectiveView("accuracy", 0.9, True, ObjectiveState.BREACHED),)
    a, b, c, d = FALLEN
    quiet = series("e", 0.8, deviation=0.0, objectives=missed)
    fell = [*(dataclasses.replace(one, objectives=missed) for one in (a, b)), c, d]
    [view] = shared_views([*fell, series("f"), quiet])
    assert view.breached == ("b", "a")
    statement = describe_shared(view)
    assert statement.fact.endswith("a change that they share, and an objective is missed")
    assert statement.details.startswith("The objective is missed by b and a. Points by model: b -4.0")


def test_fewer_than_three_models_are_not_compared() -> None:
    assert [*shared_views(FALLEN[:2])] == []
    assert next(shared_views(FALLEN[:3])).alarm


def test_each_task_is_compared_by_itself() -> None:
    other = [dataclasses.replace(one, task="other") for one in FALLEN[:3]]
    calm = [series(name, 0.93, deviation=0.0) for name in "abc"]
    assert [(view.task, view.alarm) for view in shared_views([*other, *calm])] == [
        ("other", True),
        ("delay", False),
    ]


def test_metrics_whose_alarms_raise_no_alert_are_not_compared() -> None:
    ece = [
        dataclasses.replace(one, charts=(dataclasses.replace(one.charts[0], metric="ece"),)) for one in FALLEN
    ]
    assert [*shared_views(ece)] == []


def test_where_labels_decide_the_confidences_do_not_count() -> None:
    calm = AlarmByLabels(0.93, 0.91, 0.95, 300, confidences_moved=True)
    verdict = Verdict(0.93, 0.9, 0.96, (), False, deviation=-4.0)
    chart = ChartView("accuracy", verdict, by_labels=calm)
    steady = [dataclasses.replace(one, charts=(chart,)) for one in FALLEN]
    assert not next(shared_views(steady)).alarm


def test_a_model_without_an_estimate_is_named_without_a_number() -> None:
    unknown = (MetricEstimate("accuracy", "average_confidence", Unknown(Reason.NO_LABELS)),)
    every = [dataclasses.replace(one, estimates=unknown) for one in FALLEN]
    [view] = shared_views(every)
    assert view.changes == tuple((model, None) for model in "abcd")
    assert view.change is None
    statement = describe_shared(view)
    assert str(statement) == (
        "all 4 models of delay: accuracy has changed since 2026-11-20 11:51 UTC, a change that they share"
    )
    assert statement.details == ""


def test_the_sentence_has_the_median_the_time_and_the_largest_parts() -> None:
    many = [series(f"m{i}", 0.91 - i / 100) for i in range(6)] + [series("q", 0.93, deviation=0.5)]
    [view] = shared_views(many)
    statement = describe_shared(view)
    assert str(statement) == (
        "6 of 7 models of delay: accuracy fell by 4.5 points since 2026-11-20 11:51 UTC, a change that they "
        "share"
    )
    assert statement.explanation == (
        "Points by model: m5 -7.0, m4 -6.0, m3 -5.0, m2 -4.0, m1 -3.0 and 1 more. Check first what the "
        "models have in common: features, clients, traffic, a release."
    )


def test_one_old_alarm_does_not_date_the_change() -> None:
    old = dataclasses.replace(FALLEN[0], alarmed_since={"accuracy": NOON - 1e6})
    assert next(shared_views([old, *FALLEN[1:]])).since == NOON - 600
    unknown = [dataclasses.replace(one, alarmed_since={}) for one in FALLEN]
    assert next(shared_views(unknown)).since is None


# ── elsewhere ──


def shared_of(view: EngineView, **query: str) -> SharedChanges:
    (endpoint,) = (each for each in ENDPOINTS if each.name == "shared")
    data = Data(lambda: AgentView(engine=view), windows=lambda *words: [])  # type: ignore[arg-type]
    answer = endpoint.answered(data, SharedQuery(**query))
    assert isinstance(answer, SharedChanges)
    return answer


def test_the_api_has_the_change_in_words_and_in_numbers() -> None:
    other = [dataclasses.replace(one, task="other") for one in (*FALLEN, series("e", 0.93, deviation=0.0))]
    calm = [series(name, 0.93, deviation=0.0, task="calm") for name in "abc"]
    view = EngineView(series=(*FALLEN, *other, *calm))
    first, second = shared_of(view).changes
    assert (first.task, second.task) == ("delay", "other")
    assert first.statement == str(describe_shared(next(shared_views(FALLEN))))
    assert first.changes == {"b": -0.04, "a": -0.03, "d": -0.03, "c": -0.02}
    assert (first.since, first.until) == ("2026-11-20T11:51:00.000Z", None)
    assert (second.models, list(second.changes)) == ([*"abcde"], [*"badc"])
    assert shared_of(view, task="other").changes == [second]
    assert shared_of(view, task="calm").changes == []


def test_two_models_share_no_change_and_three_only_if_all_have_moved() -> None:
    """Two models that fall are two alarms, on the page too."""
    two = EngineView(series=tuple(FALLEN[:2]))
    assert shared_of(two).changes == []
    assert [line.count("accuracy fell") for line in [str(glance(two.series, own_page))]] == [2]
    quiet = series("c", 0.93, deviation=-1.0)
    assert shared_of(EngineView(series=(*FALLEN[:2], quiet))).changes == []
    moved = series("c", 0.92, deviation=-1.7)
    (change,) = shared_of(EngineView(series=(*FALLEN[:2], moved))).changes
    assert [*change.changes] == ["b", "a", "c"]
    one_alarm = [series("a"), *(series(name, 0.91, deviation=-2.0) for name in "bc")]
    assert shared_of(EngineView(series=tuple(one_alarm))).changes == []


# ── from records ──

TASK = {
    "classes": CLASSES,
    "window": {"size": 100, "min_size": 20, "max_age_seconds": 3600},
    "reference": {"first_windows": 8},
    "metrics": ["accuracy"],
}


def engine_of(resume: Any = None, **chart: Any) -> Engine:
    return EngineSettings({"t": Task.model_validate(TASK | {"chart": chart})}, event_time=True).build(resume)


def fed(
    engine: Engine, models: str, weights: tuple[float, ...], rows: int, start: float, seed: int
) -> Engine:
    """Return the engine after these rows of each model, which come in turn as traffic does."""
    records = [
        record
        for model in models
        for record in answers(np.random.default_rng([seed, ord(model)]), rows, model, weights, start)
    ]
    records.sort(key=lambda record: record["time"])
    engine.absorb(decode(*records, layouts=layouts({"t": Task.model_validate(TASK)})), 0.0)
    return engine


def shared(view: EngineView) -> list[SharedView]:
    return [*shared_views(view.series)]


def test_records_of_four_models_that_fall_give_one_change() -> None:
    engine = fed(engine_of(), "abcd", ORIGINAL, 1000, 1.7e9, 1)
    assert [each.alarm for each in shared(engine.view())] == [False]
    fed(engine, "abcd", WORSE, 200, 1.7e9 + 1000, 2)
    [view] = shared(engine.view())
    assert {model for model, _ in view.changes} == set("abcd")
    assert max(change for _, change in view.changes if change is not None) < -0.1


def test_records_of_one_model_that_falls_give_none() -> None:
    engine = fed(engine_of(), "abcd", ORIGINAL, 1000, 1.7e9, 1)
    fed(engine, "bcd", ORIGINAL, 200, 1.7e9 + 1000, 2)
    fed(engine, "a", WORSE, 200, 1.7e9 + 1000, 2)
    assert [each.alarm for each in shared(engine.view())] == [False]


def test_without_chart_shared_there_is_no_comparison() -> None:
    assert shared(fed(engine_of(shared=False), "abcd", ORIGINAL, 1000, 1.7e9, 1).view()) == []


def test_engines_with_a_part_of_the_models_each_say_together_what_one_engine_says() -> None:
    """The partitions of an agent have engines of their own, whose views are one view."""
    views = []
    for models in ("abcd", "a", "bc", "d"):
        engine = fed(engine_of(), models, ORIGINAL, 1000, 1.7e9, 1)
        views.append(fed(engine, models, WORSE, 200, 1.7e9 + 1000, 2).view())
    whole, *parts = views
    assert shared(union(parts)) == shared(whole)
    assert shared(whole)[0].alarm


def test_a_restart_changes_nothing() -> None:
    engine = fed(engine_of(), "abcd", ORIGINAL, 1000, 1.7e9, 1)
    fed(engine, "abcd", WORSE, 100, 1.7e9 + 1000, 2)
    before = engine.view()
    resumed = engine_of(engine.snapshot()).view()
    assert [one.charts[0].verdict.deviation for one in resumed.series] == [
        one.charts[0].verdict.deviation for one in before.series
    ]
    assert shared(resumed) == shared(before)
    assert before.series[0].charts[0].verdict.deviation < -3
