"""The tables of `demo` and `replay` fit the terminal without losing a letter of what they show."""

from __future__ import annotations

from dataclasses import replace

import pytest
from rich.console import Console, RenderableType
from rich.text import Text

from monitor.base.results import Estimate, Unknown
from monitor.cli import demo_screen as demo
from monitor.cli import series_table
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
from tests.export.prometheus.scrape import NEW

GOOD, BAD = Verdict(0.9, 0.85, 0.95, (), False), Verdict(0.02, 0.0, 0.03, ("we1",), True)
MODEL = replace(
    NEW,
    task="delay",
    model="naive_bayes",
    state=SeriesState.OUT_OF_CONTROL,
    windows_closed=501,
    predictions=250_500,
    pending=0,
    window_end_time=1388534400.0,
    calibration=CalibrationView("isotonic", 1, False, 0.0),
    estimates=(
        MetricEstimate("accuracy", "average_confidence", Estimate(0.887, 0.856, 0.917, 0.95, 500)),
        MetricEstimate("accuracy", "realised", Estimate(0.8912, 0.85, 0.93, 0.95, 1087)),
    ),
    charts=(ChartView("accuracy", GOOD), ChartView("ece", BAD)),
    objectives=(ObjectiveView("accuracy", 0.89, True, ObjectiveState.AT_RISK),),
    labelled=49_891,
    correct=44_453,
)
COLUMNS = ["task", "model", "window", "accuracy, %", "realised", "labels", "chart", "objective", "until"]


def printed(shown: RenderableType, width: int) -> list[str]:
    console = Console(width=width, force_terminal=False)
    with console.capture() as capture:
        console.print(shown)
    return [line.rstrip() for line in capture.get().splitlines()]


def live(width: int, *series: SeriesView) -> list[str]:
    return printed(demo._screen(AgentView(engine=EngineView(series=series)), width), width)


@pytest.mark.parametrize(
    ("width", "gone"),
    [
        (60, {"task", "until", "objective", "window", "labels"}),
        (80, {"task", "until", "objective"}),
        (120, set()),
        (160, set()),
    ],
)
def test_the_live_table_fits_and_cuts_nothing(width: int, gone: set[str]) -> None:
    lines = live(width, MODEL, replace(MODEL, model="erm", state=SeriesState.IN_CONTROL))
    assert max(map(len, lines)) <= width
    assert [name for name in COLUMNS if name in lines[0]] == [n for n in COLUMNS if n not in gone]
    cells = ["naive_bayes", "88.7 (85.6–91.7)", "89.1", "out of control: ece"]
    assert [line for line in lines if all(cell in line for cell in cells)] == [lines[2]]
    assert "in control" in lines[3]
    assert "…" not in "".join(lines)
    assert len(lines) == 5, "no cell takes a second line"


@pytest.mark.parametrize("width", [60, 80])
def test_the_word_for_several_alarms_fits_too(width: int) -> None:
    both = (ChartView("accuracy", BAD), ChartView("ece", BAD))
    lines = live(width, replace(MODEL, charts=both))
    assert max(map(len, lines)) <= width
    assert "out of control: accuracy, ece" in lines[2]
    assert "88.7 (85.6–91.7)" in lines[2]


def test_where_even_the_least_does_not_fit_cells_are_folded_and_lose_no_letter() -> None:
    name = "a-model-with-a-name-that-nobody-can-read-in-one-go"
    lines = live(50, replace(MODEL, model=name))
    assert max(map(len, lines)) <= 50
    first = "".join(line.split(" ")[0] for line in lines[2:-1])
    assert first == name


def test_the_task_goes_last_where_it_tells_models_apart() -> None:
    lines = live(80, MODEL, replace(MODEL, task="other"))
    assert {"delay", "other"} == {line.split()[0] for line in lines[2:4]}


def test_unknown_is_told_by_its_reason_and_no_labels_by_a_dash() -> None:
    unknown = (MetricEstimate("accuracy", "average_confidence", Unknown("not calibrated")),)
    lines = live(160, replace(MODEL, estimates=unknown, labelled=0, correct=0))
    assert "not calibrated" in lines[2]
    assert " – " in lines[2]
    assert "nan" not in lines[2]


def test_state_and_objective_in_words() -> None:
    assert series_table.state(MODEL).plain == "out of control: ece"
    assert series_table.state(replace(MODEL, charts=())).plain == "out of control"
    assert series_table.state(replace(MODEL, state=SeriesState.SILENT)).plain == "silent"
    assert series_table.objective(MODEL).plain == "at risk"
    better = replace(
        MODEL, state=SeriesState.IN_CONTROL, charts=(ChartView("f1", replace(GOOD, improved=True)),)
    )
    assert series_table.state(better).plain == "in control, improved: f1"
    moved = ChartView("accuracy", GOOD, by_labels=AlarmByLabels(0.93, 0.92, 0.98, 1200, True))
    seen = replace(MODEL, state=SeriesState.IN_CONTROL, charts=(moved,))
    assert series_table.state(seen).plain == "in control, confidences moved"
    assert series_table.objective(replace(MODEL, objectives=())).plain == "–"
    two = (*MODEL.objectives, ObjectiveView("ece", 0.05, False, None))
    assert series_table.objective(replace(MODEL, objectives=two)).plain == "accuracy at risk, ece unknown"


def test_realised_says_of_how_many_labels() -> None:
    assert series_table.realised(MODEL).plain == "89.1 (85.0–93.0) of 1,087"
    waiting = (MetricEstimate("accuracy", "realised", Unknown("no labels yet")),)
    assert series_table.realised(replace(MODEL, estimates=waiting)).plain == "no labels yet"


def test_a_heading_counts_for_the_width_of_its_column() -> None:
    columns = {"a": [Text("1")], "a long heading": [Text("2")]}
    assert [c.header for c in series_table.fitted(columns, ["a long heading"], 15).columns] == ["a"]
    assert len(series_table.fitted(columns, ["a long heading"], 30).columns) == 2


@pytest.mark.parametrize(("columns", "width"), [(None, 160), ("80", 80), ("200", 200)])
def test_where_nobody_looks_the_output_is_wide_unless_told(
    columns: str | None, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    if columns:
        monkeypatch.setenv("COLUMNS", columns)
    assert series_table.output().width == width


def test_the_accuracy_is_the_one_by_labels_where_there_is_one() -> None:
    corrected = MetricEstimate("accuracy", "corrected", Estimate(0.871, 0.85, 0.89, 0.95, 500), 1310)
    labelled = replace(MODEL, estimates=(MODEL.estimates[0], corrected, MODEL.estimates[1]))
    unknown = replace(corrected, result=Unknown("no rows"))
    untold = replace(labelled, estimates=(MODEL.estimates[0], unknown))
    accuracies = [series_table.newest_accuracy(one).plain for one in (MODEL, labelled, untold)]
    assert accuracies == ["88.7 (85.6–91.7)", "87.1 (85.0–89.0)", "88.7 (85.6–91.7)"]
