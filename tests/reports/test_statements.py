"""The sentences on models: the fact, since when, where, labels, and the first thing to check."""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec
import pytest

from monitor.base.registry import METRICS, metric_words
from monitor.base.results import Estimate, Unknown
from monitor.reports.attribution import Attribution, FeatureChanges, FeaturePart, PartChange
from monitor.reports.features import BrokenFeature
from monitor.reports.statements import (
    Statement,
    describe,
    describe_drifted_features,
    describe_held_labels,
    in_unit,
    is_unchecked,
)
from monitor.reports.trust import Bias, Trust
from monitor.reports.views import (
    AlarmByLabels,
    ChartView,
    MetricEstimate,
    ObjectiveState,
    ObjectiveView,
    RecalibrationsView,
    SeriesState,
    SeriesView,
)
from monitor.stats.charts.base import Verdict
from tests.export.prometheus.scrape import WATCHED

NOON = 1795177260.0  # 2026-11-20 12:21 UTC
ESTIMATED = MetricEstimate("accuracy", "average_confidence", Estimate(0.76, 0.70, 0.80, 0.95, 500))
REALISED = MetricEstimate("accuracy", "realised_horizon", Estimate(0.738, 0.66, 0.81, 0.95, 130))
FALLEN = ChartView("accuracy", Verdict(0.95, 0.93, 0.97, ("we1",), True))
STEADY = ChartView("accuracy", Verdict(0.78, 0.7, 0.86, (), False))
FLOOR = ObjectiveView("accuracy", 0.85, True, ObjectiveState.BREACHED, (0.72, 0.79))
HOUR = FeatureChanges(12, -0.19, (FeaturePart("hour", -0.16, 0.01, 0.0, 0.4),), others=-0.03)
AT_JFK = Attribution(
    "accuracy",
    -0.19,
    "group",
    (PartChange("origin=JFK", 0.0, -0.15, 0.3, 0.3, 0.4, 0.9),),
    others=-0.04,
    features=HOUR,
)
FINE = dataclasses.replace(
    WATCHED,
    state=SeriesState.IN_CONTROL,
    estimates=(ESTIMATED,),
    charts=(STEADY,),
    objectives=(),
    trust=None,
    features=None,
    broken_features=(),
    attributions=(),
)
LOW: dict[str, Any] = {
    "state": SeriesState.OUT_OF_CONTROL,
    "charts": (FALLEN,),
    "objectives": (FLOOR,),
    "alarmed_since": {"accuracy": NOON},
    "attributions": (AT_JFK,),
}


def series(**changes: Any) -> SeriesView:
    return dataclasses.replace(FINE, **changes)


def statement(**changes: Any) -> Statement:
    return describe(series(**changes))


def test_a_breached_objective_has_its_figures_the_change_and_what_to_check() -> None:
    low = statement(**LOW)
    assert str(low) == "toxicity/erm: accuracy about 76 % (70 to 80), must be at least 85 %"
    assert low.explanation == (
        "Since 2026-11-20 12:21 UTC accuracy fell from 95 to about 76 % (70 to 80), mostly feature hour, "
        "mostly origin=JFK. The last windows together: 72 to 79 %. No labels yet. "
        "Check what computes feature hour first, then releases of the model."
    )


def test_metrics_of_errors_have_their_unit() -> None:
    value = MetricEstimate("mae", "doubly_robust", Estimate(14.2, 12.9, 15.1, 0.95, 500), unit="minutes")
    labels = MetricEstimate("mae", "realised", Estimate(13.1, 11.0, 15.2, 0.95, 60), unit="minutes")
    verdict = Verdict(11.7, 9.8, 13.9, ("we1",), True)
    chart = ChartView("mae", verdict, "doubly_robust", unit="minutes")
    ceiling = ObjectiveView("mae", 12.0, False, ObjectiveState.BREACHED, (12.5, 14.0), unit="minutes")
    changes: dict[str, Any] = {
        "state": SeriesState.OUT_OF_CONTROL,
        "charts": (STEADY, chart),
        "values": (value, labels),
        "alarmed_since": {"mae": NOON},
        "labelled": 60,
    }
    alarm = statement(**changes)
    assert alarm.fact == "mae rose from 11.7 to about 14.2 minutes (12.9 to 15.1)"
    missed = statement(**changes, objectives=(ceiling,))
    assert missed.fact == "mae about 14.2 minutes (12.9 to 15.1), must be at most 12 minutes"
    assert missed.details == (
        "Since 2026-11-20 12:21 UTC mae rose from 11.7 to about 14.2 minutes (12.9 to 15.1). "
        "The last windows together: 12.5 to 14.0 minutes. 60 labels say: mae 13.1 minutes (11.0 to 15.2)."
    )


def test_a_window_that_is_too_small_to_judge_hides_no_alarm() -> None:
    small = statement(state=SeriesState.OUT_OF_CONTROL, charts=(), alarmed_since={"accuracy": NOON})
    assert small.fact == (
        "accuracy about 76 % (70 to 80), an alarm is on, but the newest window has too few answers to judge"
    )


def test_labels_have_their_number_and_correct_the_estimate() -> None:
    corrected = MetricEstimate("accuracy", "corrected", Estimate(0.75, 0.71, 0.79, 0.95, 500), labels=130)
    low = statement(**LOW, estimates=(ESTIMATED, corrected, REALISED), labelled=130, correct=96)
    assert low.fact == "accuracy about 75 % (71 to 79), must be at least 85 %"
    assert "130 labels say: accuracy 74 % (66 to 81)." in low.details


def test_labels_of_earlier_windows_are_not_called_none() -> None:
    assert "label" not in statement(**LOW, labelled=49_891).details


def test_an_objective_that_the_model_never_met_is_not_called_a_change() -> None:
    low = statement(objectives=(FLOOR,))
    assert low.explanation == (
        "Its chart shows no change from the baseline, 78 %. The last windows together: 72 to 79 %. "
        "No labels yet. Check the objective."
    )
    assert statement(objectives=(FLOOR,), charts=()).check == (
        "Check releases of the model and its features first."
    )


@pytest.mark.parametrize(
    ("changes", "fact"),
    [
        (
            {"objectives": (ObjectiveView("accuracy", 0.75, True, ObjectiveState.AT_RISK),)},
            "accuracy about 76 % (70 to 80), may be below 75 %",
        ),
        (
            {
                "estimates": (
                    MetricEstimate("ece", "average_confidence", Estimate(0.021, 0.018, 0.024, 0.95, 9)),
                ),
                "objectives": (ObjectiveView("ece", 0.02, False, ObjectiveState.AT_RISK),),
            },
            "calibration error about 2.1 % (1.8 to 2.4), may be above 2 %",
        ),
        (
            {
                "objectives": (FLOOR,),
                "estimates": (MetricEstimate("accuracy", "corrected", Unknown("no rows")),),
            },
            "accuracy unknown, must be at least 85 %",
        ),
        (
            {"charts": (FALLEN,), "state": SeriesState.OUT_OF_CONTROL},
            "accuracy fell from 95 to about 76 % (70 to 80)",
        ),
        (
            {
                "charts": (
                    dataclasses.replace(FALLEN, by_labels=AlarmByLabels(0.9, 0.92, 0.98, 1200, True)),
                ),
                "state": SeriesState.OUT_OF_CONTROL,
                "objectives": (dataclasses.replace(FLOOR, state=ObjectiveState.MET),),
            },
            "accuracy is 90 % by 1,200 labels, below the 92 to 98 % of the baseline, must be at least 85 %",
        ),
        (
            {
                "charts": (ChartView("accuracy", Verdict(0.75, 0.73, 0.77, (), True)),),
                "state": SeriesState.OUT_OF_CONTROL,
            },
            "accuracy is back at about 76 % (70 to 80), was 75 %",
        ),
        (
            {"charts": (ChartView("accuracy", Verdict(0.77, 0.73, 0.79, (), False, improved=True)),)},
            "accuracy is back at about 76 % (70 to 80), was 77 %",
        ),
        ({"features": WATCHED.features}, "feature origin has other values than in the reference"),
        (
            {"recalibrations": RecalibrationsView({}, "6 of 100 labels replaced another label", held=True)},
            "labels contradict each other, so no fit on labels begins",
        ),
        (
            {
                "charts": (
                    ChartView(
                        "accuracy",
                        Verdict(0.78, 0.7, 0.86, (), False),
                        by_labels=AlarmByLabels(0.78, 0.7, 0.86, 200, confidences_moved=True),
                    ),
                )
            },
            "accuracy about 76 % (70 to 80), confidences moved, but labels show no change",
        ),
        (
            {"charts": (ChartView("accuracy", Verdict(0.7, 0.65, 0.75, ("we1",), False, improved=True)),)},
            "accuracy rose from 70 to about 76 % (70 to 80), a change for the better",
        ),
        (
            {
                "state": SeriesState.UNTRUSTED,
                "trust": Trust(False, 23.5, 400, Bias(-0.052, -0.081, -0.024, 0.95, 310)),
            },
            "accuracy is 5.2 points lower than estimated (2.4 to 8.1), by 310 labels",
        ),
        (
            {
                "state": SeriesState.UNTRUSTED,
                "trust": Trust(False, 23.5, 400, Bias(-0.052, -0.081, -0.024, 0.95, 310)),
                "share": "within_tolerance",
            },
            "share within tolerance is 5.2 points lower than estimated (2.4 to 8.1), by 310 labels",
        ),
        (
            {"state": SeriesState.UNTRUSTED, "trust": Trust(False, 1.0, 0, on_probation=True)},
            "labels contradicted the estimated accuracy; a new test has no label yet",
        ),
        (
            {"state": SeriesState.UNTRUSTED, "trust": Trust(False, 23.5, 400)},
            "labels contradict the estimated accuracy",
        ),
        (
            {
                "state": SeriesState.UNTRUSTED,
                "trust": Trust(False, 23.5, 400),
                "broken_features": (BrokenFeature("hour", "missing", 0.412, 0.002),),
            },
            "feature hour is missing in 41 % of rows, 0.2 % in the reference",
        ),
        ({"state": SeriesState.SILENT, "window_end_time": NOON}, "no answers since 2026-11-20 12:21 UTC"),
        (
            {"state": SeriesState.WARMING_UP, "charts": (), "windows_closed": 1},
            "no baseline to compare with yet, 1 window closed",
        ),
        ({}, "accuracy about 76 % (70 to 80), nothing has changed"),
        (
            {"objectives": (ObjectiveView("accuracy", 0.7, True, ObjectiveState.MET),)},
            "accuracy about 76 % (70 to 80), nothing has changed, objective met",
        ),
        (
            {"objectives": (ObjectiveView("accuracy", 0.7, True, ObjectiveState.NOT_PROVEN),)},
            "accuracy about 76 % (70 to 80), nothing has changed, too uncertain to say whether the objective "
            "is met",
        ),
    ],
)
def test_each_state_has_its_fact(changes: dict[str, Any], fact: str) -> None:
    assert statement(**changes).fact == fact


def test_a_group_is_named_with_its_model() -> None:
    low = statement(**LOW, group="region=eu")
    assert str(low).startswith("toxicity/erm, region=eu: accuracy about 76 %")


def test_a_number_near_the_bound_has_a_decimal() -> None:
    near = MetricEstimate("accuracy", "average_confidence", Estimate(0.848, 0.83, 0.86, 0.95, 500))
    assert (
        statement(**LOW, estimates=(near,)).fact
        == "accuracy about 84.8 % (83.0 to 86.0), must be at least 85 %"
    )


def test_the_accuracy_comes_before_other_metrics() -> None:
    recall = ObjectiveView("recall", 0.9, True, ObjectiveState.BREACHED)
    assert statement(**LOW | {"objectives": (recall, FLOOR)}).fact.startswith("accuracy about 76 %")


@pytest.mark.parametrize(
    ("split", "words"),
    [
        (msgspec.structs.replace(AT_JFK, features=None), ", mostly origin=JFK."),
        (msgspec.structs.replace(AT_JFK, features=None, alike=True), " to 80)."),
        (
            msgspec.structs.replace(
                AT_JFK, parts=(PartChange("class=ok", -0.05, 0.0, 0.4, 0.2, 0.8, 0.8),), by="class"
            ),
            ", mostly feature hour, partly class ok.",
        ),
        (
            msgspec.structs.replace(
                AT_JFK,
                features=msgspec.structs.replace(HOUR, parts=(FeaturePart("hour", -0.02, 0.01, 0, 0),)),
            ),
            ", mostly origin=JFK.",
        ),
    ],
)
def test_only_parts_that_bring_much_of_a_change_are_named(split: Attribution, words: str) -> None:
    assert statement(**LOW | {"attributions": (split,)}).details.partition(" The last")[0].endswith(words)


def test_a_report_that_does_not_count_labels_does_not_deny_them() -> None:
    assert "label" not in statement(**LOW, predictions=0).details


def test_an_alarm_whose_values_are_back_blames_no_part() -> None:
    back = ChartView("accuracy", Verdict(0.75, 0.73, 0.77, (), True))
    assert "origin" not in statement(**LOW | {"charts": (back,), "objectives": ()}).details


def test_features_that_drift_are_named() -> None:
    drifted = describe_drifted_features(series(features=WATCHED.features))
    assert drifted.fact == "feature origin has other values than in the reference"
    assert drifted.details == "Estimates still count. No labels yet."


def test_labels_that_contradict_each_other_have_the_reason() -> None:
    held = describe_held_labels("toxicity", "6 of 100 labels replaced another label")
    assert held.fact == "labels contradict each other, so no fit on labels begins"
    assert held.details == "6 of 100 labels replaced another label."


def test_no_fact_has_the_name_of_a_rule_or_an_estimator() -> None:
    """A person who reads it at night knows the task and the model, and no name of the configuration."""
    for state in SeriesState:
        words = f"{(one := statement(**LOW | {'state': state}))}. {one.explanation}"
        assert not any(name in words for name in ("we1", "average_confidence", "out of control", "pooled"))


def test_metrics_have_names_in_words() -> None:
    assert {metric_words(metric) for metric in METRICS} == {
        "accuracy",
        "share within tolerance",
        "calibration error",
        "calibration error by class",
        "precision",
        "recall",
        "specificity",
        "F1",
        "AUROC",
        "average precision",
        "mae",
        "rmse",
        "bias",
        "MAPE",
        "WAPE",
        "coverage",
        "R²",
    }


def test_an_estimate_is_unchecked_from_a_change_until_labels_come() -> None:
    by_labels = AlarmByLabels(0.75, 0.93, 0.97, 120, False)
    foreign = dataclasses.replace(FINE.calibration, foreign=True)
    own = dataclasses.replace(FINE, calibration=dataclasses.replace(FINE.calibration, foreign=False))
    changed = dataclasses.replace(own, charts=(FALLEN,))
    other = dataclasses.replace(own, calibration=foreign)
    better = dataclasses.replace(STEADY.verdict, improved=True)
    cases = [
        (own, False),
        (changed, True),
        (dataclasses.replace(own, charts=(dataclasses.replace(STEADY, verdict=better),)), True),
        (dataclasses.replace(own, charts=(dataclasses.replace(FALLEN, by_labels=by_labels),)), False),
        (other, True),
        (dataclasses.replace(other, trust=Trust(True, 0.1, 0)), True),
        (dataclasses.replace(other, trust=Trust(True, 0.1, 40)), False),
        (dataclasses.replace(other, trust=Trust(True, 0.1, 40), charts=(FALLEN,)), True),
        (dataclasses.replace(other, predictions=0), False),
    ]
    for place, (one, expected) in enumerate(cases):
        assert is_unchecked(one, "accuracy") is expected, place
    mae = MetricEstimate("mae", "doubly_robust", Estimate(14.2, 12.9, 15.1, 0.95, 500), unit="minutes")
    fallen = dataclasses.replace(FALLEN, metric="mae", unit="minutes")
    of_error = dataclasses.replace(own, charts=(fallen,), values=(mae,))
    assert not is_unchecked(of_error, "mae")  # the test of trust checks it
    of_error = dataclasses.replace(of_error, calibration=foreign, trust=Trust(True, 0.1, 40))
    assert is_unchecked(of_error, "mae")
    assert not is_unchecked(dataclasses.replace(of_error, trust_in_errors=Trust(True, 0.1, 40)), "mae")
    met = dataclasses.replace(FLOOR, state=ObjectiveState.MET)
    fact = describe(dataclasses.replace(other, objectives=(met,))).fact
    unchecked = "with too few labels to check it since the change"
    assert fact.endswith(f"nothing has changed, objective met by the estimate, {unchecked}")


@pytest.mark.parametrize(
    ("estimate", "unit", "words"),
    [
        (Estimate(0.0, 0.0, 0.0, 0.95, 9), "minutes", "0.00 (0.00 to 0.00) minutes"),
        (Estimate(1234.5, 1200.0, 1300.0, 0.95, 9), "°C", "1,230 (1,200 to 1,300) °C"),
        (Estimate(-0.0123, -0.0456, 0.02, 0.95, 9), "", "-0.0123 (-0.0456 to 0.0200)"),
        (Estimate(1e60, 9e59, 2e60, 0.95, 9), "m", "1e+60 (9e+59 to 2e+60) m"),
        (Estimate(-1e-30, -2e-30, 0.0, 0.95, 9), "m", "-1e-30 (-2e-30 to 0) m"),
    ],
)
def test_numbers_have_three_digits_of_the_largest_end(estimate: Estimate, unit: str, words: str) -> None:
    assert in_unit(estimate, unit) == words
