"""A new baseline at an operator's word: one metric of one series, and nothing else."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from monitor.agent.rebaseline import KIND, rebaseline
from monitor.agent.requests import OperatorRequest
from monitor.base.errors import RequestError
from monitor.engine.engine import Engine
from monitor.engine.series_output import NotedRebaseline
from monitor.reports.views import Rebaselined
from monitor.reports.window_report import WindowReport, to_json
from tests.streams import Rig, answers, lines, reference_of, task

WORSE = (0.4, 0.5, 0.1)
REASON = "new threshold"


def ask(engine: Engine, **body: Any) -> str:
    request_body = {"model": "erm", "metric": "accuracy", "reason": REASON} | body
    return rebaseline(engine, OperatorRequest("1", KIND, 1.8e9, request_body))


def rig(**settings: Any) -> Rig:
    chart = {"reference": {"first_windows": 5}, "chart": {"sigmas": 3}}
    return Rig(task(**(chart | settings)))


def alarmed(rig: Rig, models: tuple[str, ...] = ("erm",)) -> list[WindowReport]:
    """Return ten windows in control, then two far out."""
    reports = []
    for model in models:
        rng = np.random.default_rng(3)
        reports += rig.feed(answers(rng, 1000, model))
        reports += rig.feed(answers(rng, 200, model, weights=WORSE, start=1.71e9))
    assert rig.engine.view().series[0].state == "out_of_control"
    return reports


def more(rig: Rig, n: int, model: str = "erm", start: float = 1.72e9) -> list[WindowReport]:
    return rig.feed(answers(np.random.default_rng(9), n, model, weights=WORSE, start=start))


def charted(reports: list[WindowReport]) -> list[list[str]]:
    return [[chart.metric for chart in report.charts] for report in reports]


def test_the_alarm_is_released_at_once_and_the_next_windows_make_the_baseline() -> None:
    engine_rig = rig()
    alarmed(engine_rig)
    message = ask(engine_rig.engine)
    assert message == "t, erm, accuracy: the next 5 windows complete its new baseline; its alarm is off."
    view = engine_rig.engine.view().series[0]
    assert (view.state, view.charts) == ("warming_up", ())
    reports = more(engine_rig, 700)
    assert charted(reports) == [[]] * 5 + [["accuracy"]] * 2
    centre = np.mean([report.estimates[0].result.value for report in reports[:5]])
    assert reports[5].charts[0].verdict.center == pytest.approx(centre)
    assert not reports[5].charts[0].verdict.out_of_control, "the new level is in control"


def test_the_next_window_says_so_and_no_other_line_changes() -> None:
    engine_rig, other = rig(), rig()
    alarmed(engine_rig)
    alarmed(other)
    ask(engine_rig.engine)
    reports, plain = more(engine_rig, 300), more(other, 300)
    assert [report.rebaselined for report in reports] == [(Rebaselined("accuracy", REASON),), (), ()]
    assert to_json(reports[0]).endswith(b',"rebaselined":[{"metric":"accuracy","reason":"new threshold"}]}')
    assert b"rebaselined" not in b"".join(lines([*reports[1:], *plain]))


def test_other_metrics_and_models_and_objectives_stay() -> None:
    objective = {"accuracy": {"min": 0.9}}
    settings = {"groups": ["region"], "objective": objective, "metrics": ["accuracy", "ece"]}
    engine_rig, other = rig(**settings), rig(**settings)
    for each in (engine_rig, other):
        reference = each.engine.snapshot()
        assert reference.tasks["t"].series == []
        alarmed(each, ("erm", "irm"))
    ask(engine_rig.engine)
    reports, plain = more(engine_rig, 300), more(other, 300)
    assert [r.objectives for r in reports] == [r.objectives for r in plain]
    assert lines(more(engine_rig, 300, "irm")) == lines(more(other, 300, "irm"))


def with_errors() -> Rig:
    """Return charts of two metrics: a reference carries the calibration that the ECE needs."""
    settings = task(metrics=["accuracy", "ece"], chart={"sigmas": 3}, reference={"path": "r"})
    records = answers(np.random.default_rng(1), 2000, labelled=True, start=1.6e9)
    return Rig({"t": settings}, {"t": reference_of(settings, records)})


def test_one_metric_begins_anew_beside_another_that_goes_on() -> None:
    rig, other = with_errors(), with_errors()
    for each in (rig, other):
        each.feed(answers(np.random.default_rng(3), 300))
        each.feed(answers(np.random.default_rng(4), 200, weights=WORSE, start=1.71e9))
    assert "next 20 windows" in ask(rig.engine)
    reports, plain = more(rig, 2200), more(other, 2200)
    assert charted(reports) == [["ece"]] * 20 + [["ece", "accuracy"]] * 2
    errors = [[c for c in report.charts if c.metric == "ece"] for report in reports]
    assert errors == [[c for c in report.charts if c.metric == "ece"] for report in plain]
    assert reports[20].calibration == plain[20].calibration
    assert plain[21].charts[0].verdict.out_of_control
    assert not reports[21].charts[1].verdict.out_of_control


@pytest.mark.slow
def test_a_restart_at_any_window_goes_on_with_it() -> None:
    rig, other = with_errors(), with_errors()
    for each in (rig, other):
        alarmed(each)
        ask(each.engine)
    expected = lines(more(rig, 2200))
    records = answers(np.random.default_rng(9), 2200, weights=WORSE, start=1.72e9)
    got = []
    for start in range(0, 2200, 50):
        other.restart()
        got += lines(other.feed(records[start : start + 50]))
    assert got == expected


def test_what_was_asked_is_kept_with_the_series() -> None:
    engine_rig = rig()
    alarmed(engine_rig)
    for i in range(22):
        ask(engine_rig.engine, reason=f"reason {i}")
    [(_, _, series)] = engine_rig.engine.snapshot().tasks["t"].series
    assert len(series.rebaselines) == 20
    assert series.rebaselines[-1] == NotedRebaseline("accuracy", "reason 21", 1.8e9, 12)


def test_a_group_has_its_own() -> None:
    engine_rig = rig(groups=["region"])
    rng = np.random.default_rng(3)
    engine_rig.feed(answers(rng, 1000, groups={"region": "eu"}))
    engine_rig.feed(answers(rng, 200, weights=WORSE, start=1.71e9, groups={"region": "eu"}))
    assert "t, erm, region=eu, accuracy" in ask(engine_rig.engine, group="region=eu")
    assert {s.group: s.state for s in engine_rig.engine.view().series} == {
        "": "out_of_control", "region=eu": "warming_up",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ({"model": "erms"}, "model: there is no 'erms'; did you mean 'erm'?"),
        ({"model": "x"}, "model: there is no 'x'; there is only 'erm'"),
        ({"metric": "acuracy"}, "metric: there is no 'acuracy'; did you mean 'accuracy'?"),
        ({"task": "u"}, "task: there is no 'u'; there is only 't'"),
        ({"group": "region=eu"}, "group: there is no 'region=eu'; none has answered yet"),
        ({"reason": "  "}, "reason: it is empty; give the reason in a few words, for readers of the reports"),
        ({"model": 3}, "the request is damaged: Expected `str`, got `int` - at `$.model`; ask again"),
    ],
)
def test_what_is_not_there_is_refused_by_name_and_changes_nothing(body: dict[str, Any], why: str) -> None:
    engine_rig = rig()
    alarmed(engine_rig)
    before = engine_rig.engine.view()
    with pytest.raises(RequestError) as refused:
        ask(engine_rig.engine, **body)
    assert why in str(refused.value)
    assert engine_rig.engine.view() == before


def test_several_tasks_must_be_told_apart() -> None:
    settings = task(reference={"first_windows": 5}, chart={"sigmas": 3})
    rig = Rig({"a": settings, "b": settings})
    with pytest.raises(RequestError, match=r"^task: there are several, say which: a, b$"):
        ask(rig.engine)


def test_without_a_baseline_there_is_nothing_to_release() -> None:
    engine_rig = rig()
    engine_rig.feed(answers(np.random.default_rng(0), 300))
    with pytest.raises(RequestError, match="there is no baseline yet, 3 of 5 windows are closed"):
        ask(engine_rig.engine)
    assert charted(engine_rig.feed(answers(np.random.default_rng(1), 300, start=1.71e9))) == [
        [],
        [],
        ["accuracy"],
    ]


def test_a_window_that_is_too_small_does_not_make_the_first_version_a_new_one() -> None:
    engine_rig = rig()
    engine_rig.feed(answers(np.random.default_rng(0), 5))
    assert [report.size for report in engine_rig.engine.finish()] == [5]
    with pytest.raises(RequestError, match="there is no baseline yet, 0 of 5 windows are closed"):
        ask(engine_rig.engine)


def test_a_new_version_before_the_first_baseline_has_the_reason_also_after_a_restart() -> None:
    engine_rig = rig()
    engine_rig.feed(answers(np.random.default_rng(1), 300, version="1"))
    engine_rig.feed(answers(np.random.default_rng(2), 200, start=1.72e9, version="2"))
    engine_rig.restart()
    assert ask(engine_rig.engine).endswith("the next 3 windows complete its new baseline; its alarm is off.")


def test_the_baseline_of_a_new_version_goes_on_and_has_the_reason() -> None:
    engine_rig = rig()
    engine_rig.feed(answers(np.random.default_rng(1), 1000, version="1"))
    again = answers(np.random.default_rng(2), 200, start=1.72e9, version="2")
    assert charted(engine_rig.feed(again)) == [[], []]
    assert ask(engine_rig.engine).endswith("the next 3 windows complete its new baseline; its alarm is off.")
    later = answers(np.random.default_rng(3), 400, start=1.73e9, version="2")
    reports = engine_rig.feed(later)
    assert charted(reports) == [[], [], [], ["accuracy"]]
    assert [len(report.rebaselined) for report in reports] == [1, 0, 0, 0]


def test_asked_again_meanwhile_it_begins_again() -> None:
    engine_rig = rig()
    alarmed(engine_rig)
    ask(engine_rig.engine)
    more(engine_rig, 300)
    ask(engine_rig.engine)
    assert charted(more(engine_rig, 600, start=1.73e9)) == [[]] * 5 + [["accuracy"]]
