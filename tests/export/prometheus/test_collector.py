"""The exposition: golden text, the check of promtool, omissions, cuts, and the accounting."""

from __future__ import annotations

import dataclasses
import math
import shutil
import subprocess
import threading
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from prometheus_client.parser import text_string_to_metric_families as text_families

from monitor import RankInterval, __version__
from monitor.base.durations import RefitDurations
from monitor.base.records import RejectReason
from monitor.base.results import Estimate, Unknown
from monitor.export.prometheus.collector import BlindsightCollector, registry
from monitor.export.prometheus.families import FAMILIES
from monitor.reports.views import (
    AgentView,
    ChartView,
    EngineView,
    LabelOutcome,
    MetricEstimate,
    ObjectiveState,
    RefitView,
    SeriesState,
    SourceView,
)
from monitor.stats.charts.base import Verdict
from monitor.stats.histograms import Distributions
from tests.export.prometheus.scrape import (
    ERM,
    NEW,
    RICH,
    WATCHED,
    crowd,
    exposed,
    named,
    samples,
    samples_of,
    value,
)
from tests.services.process import PATIENCE_SECONDS

GOLDEN = Path(__file__).parent / "golden"
PROMTOOL = shutil.which("promtool") or ""


# --- the text as a whole -----------------------------------------------------------------------------


def test_the_text_format_is_the_golden_one() -> None:
    assert generate_latest(exposed(RICH)).decode() == golden("text.txt")


def test_the_openmetrics_format_is_the_golden_one() -> None:
    assert generate_openmetrics(exposed(RICH)).decode() == golden("openmetrics.txt")


def test_an_agent_that_has_seen_nothing_exposes_the_golden_text() -> None:
    empty = AgentView(sources=(SourceView("predictions", False, None),))
    assert generate_latest(exposed(empty)).decode() == golden("empty.txt")


def golden(name: str) -> str:
    return (GOLDEN / name).read_text(encoding="utf-8").replace("{{version}}", __version__)


def test_a_metric_of_errors_that_is_unknown_is_absent_and_gives_its_reason() -> None:
    ratio = MetricEstimate("r2", "realised", Estimate(0.75, 0.5, 0.875, 0.95, 90), unit="ratio")
    values = (MetricEstimate("mae", "realised", Unknown("no labels yet"), unit="minutes"), ratio)
    view = AgentView(EngineView((dataclasses.replace(WATCHED, values=values),)), ready=True)
    who = {**ERM, "metric": "mae", "estimator": "realised"}
    assert exposed(view).get_sample_value("blindsight_unknown", who | {"reason": "no labels yet"}) == 1
    assert exposed(view).get_sample_value("blindsight_value", who | {"unit": "minutes"}) is None
    who |= {"metric": "r2", "unit": "ratio"}
    assert exposed(view).get_sample_value("blindsight_value_lower", who) == 0.5


def test_both_formats_say_the_same() -> None:
    text = text_families(generate_latest(exposed(RICH)).decode())
    openmetrics = text_string_to_metric_families(generate_openmetrics(exposed(RICH)).decode())
    first, second = (
        sorted((s.name, sorted(s.labels.items()), s.value) for f in families for s in f.samples)
        for families in (text, openmetrics)
    )
    assert first == second
    assert len(first) > 100


def test_a_scrape_of_the_same_view_is_the_same_text() -> None:
    registry = exposed(RICH)
    assert generate_latest(registry) == generate_latest(registry)


@pytest.mark.skipif(
    shutil.which("promtool") is None, reason="promtool (Debian package prometheus) is missing"
)
@pytest.mark.parametrize("view", [RICH, AgentView()], ids=["rich", "empty"])
def test_promtool_finds_no_fault(view: AgentView) -> None:
    text = generate_latest(registry(lambda: view, 10_000))
    done = subprocess.run(
        ["promtool", "check", "metrics"],
        input=text,
        capture_output=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_every_family_of_the_table_is_used_by_the_rich_view() -> None:
    names = {family.name for family in exposed(RICH).collect()}
    expected = {f"blindsight_{key}" for key in FAMILIES}
    expected |= {f"blindsight_group_{key}" for key, family in FAMILIES.items() if family.per_series}
    assert names == expected


def test_the_registry_adds_the_process_and_refuses_a_second_collector() -> None:
    collectors = registry(lambda: RICH, 10_000)
    names = {name for name, _ in samples_of(collectors)}
    assert {"process_cpu_seconds_total", "python_info", "blindsight_build_info"} <= names
    with pytest.raises(ValueError, match="Duplicated timeseries"):
        collectors.register(BlindsightCollector(lambda: RICH, 10))


# --- what is known, and what is not --------------------------------------------------------------------


def test_an_unknown_estimate_is_absent_and_gives_its_reason() -> None:
    scraped = samples(RICH)
    who = {**ERM, "metric": "accuracy", "estimator": "realised"}
    assert value(scraped, "blindsight_unknown", **who, reason="no labels yet") == 1
    assert value(scraped, "blindsight_estimate_ratio", **who) is None
    assert len(named(scraped, "blindsight_unknown")) == 1


@pytest.mark.parametrize("wrong", [math.nan, math.inf])
def test_no_sample_is_ever_nan_or_infinite(wrong: float) -> None:
    broken = dataclasses.replace(
        WATCHED,
        estimates=(MetricEstimate("accuracy", "x", Estimate(wrong, 0.0, 1.0, 0.95, 3)),),
        charts=(ChartView("accuracy", Verdict(0.9, wrong, wrong, (), False)),),
        window_end_time=wrong,
    )
    engine = dataclasses.replace(RICH.engine, series=(broken,), label_lag_seconds={"toxicity": wrong})
    scraped = samples(dataclasses.replace(RICH, engine=engine, reload_time=wrong))
    assert all(math.isfinite(v) for v in scraped.values())
    assert (
        value(scraped, "blindsight_control_center_ratio", task="toxicity", model="erm", metric="accuracy")
        == 0.9
    )
    assert [dict(labels)["reason"] for name, labels in scraped if name == "blindsight_unknown"] == [
        "not a number"
    ]


def test_no_sample_has_a_timestamp() -> None:
    assert all(s.timestamp is None for f in exposed(RICH).collect() for s in f.samples)


def test_state_sets_are_complete_and_an_unjudged_objective_is_in_no_state() -> None:
    scraped = samples(RICH)
    states = {s: value(scraped, "blindsight_state", **ERM, state=s.value) for s in SeriesState}
    assert states == {s: float(s is SeriesState.OUT_OF_CONTROL) for s in SeriesState}
    judged = {
        metric: [
            value(scraped, "blindsight_objective_state", **ERM, metric=metric, state=s)
            for s in ObjectiveState
        ]
        for metric in ("accuracy", "ece")
    }
    assert judged == {"accuracy": [0, 0, 1, 0], "ece": [0, 0, 0, 0]}


def test_counters_of_a_source_and_a_task_start_at_zero() -> None:
    engine = EngineView(labels_waiting={"toxicity": 0})
    scraped = samples(AgentView(engine=engine, sources=(SourceView("kafka", True, None),)))
    for outcome in LabelOutcome:
        assert value(scraped, "blindsight_labels_total", task="toxicity", outcome=outcome.value) == 0
    for reason in RejectReason:
        assert value(scraped, "blindsight_rejected_total", source="kafka", reason=reason.value) == 0
    assert value(scraped, "blindsight_answers_received_total", source="kafka") == 0
    assert value(scraped, "blindsight_shed_total", source="kafka") == 0
    assert named(scraped, "blindsight_source_lag_records") == []


def test_text_from_outside_never_fails_a_scrape() -> None:
    odd = dataclasses.replace(WATCHED, model="\ud800", group="region=\ud83d", version="\udfff")
    engine = dataclasses.replace(RICH.engine, series=(odd,))
    text = generate_latest(exposed(dataclasses.replace(RICH, engine=engine))).decode()
    assert 'group="region=?"' in text
    assert 'model="?"' in text


def test_the_accounting_identity_adds_up() -> None:
    scraped = samples(RICH)
    received, *parts = (
        sum(named(scraped, f"blindsight_{name}"))
        for name in (
            "answers_received_total",
            "predictions_total",
            "answers_pending",
            "duplicates_total",
            "rejected_total",
            "shed_total",
            "comparisons_total",
            "comparisons_pending",
            "comparison_duplicates_total",
        )
    )
    assert (received, parts) == (9676, [9000, 127, 3, 20, 5, 500, 20, 1])
    assert received == sum(parts)


def test_groups_stand_apart_so_that_sums_stay_right() -> None:
    scraped = samples(RICH)
    assert all(("group" in dict(labels)) == name.startswith("blindsight_group_") for name, labels in scraped)
    assert (
        value(scraped, "blindsight_group_predictions_total", task="toxicity", model="erm", group="region=eu")
        == 500
    )


def test_the_histogram_of_confidences_counts_the_answers_used() -> None:
    scraped = samples(RICH)
    buckets = {
        dict(labels)["le"]: count
        for (name, labels), count in scraped.items()
        if name == "blindsight_confidence_ratio_bucket"
    }
    assert list(buckets) == ["0.1", "0.3", "0.5", "0.6", "0.7", "0.8", "0.9", "0.95", "0.99", "+Inf"]
    assert list(buckets.values()) == [0, 1, 41, 100, 500, 1000, 2000, 4000, 7000, 9000]
    assert value(scraped, "blindsight_confidence_ratio_count", **ERM) == WATCHED.predictions == 9000
    assert value(scraped, "blindsight_confidence_ratio_sum", **ERM) == 7875.5


def test_the_calibration_curve_has_every_bin_of_a_model_from_the_start_and_none_of_groups() -> None:
    scraped = samples(RICH)
    for part, total in (("labelled", 180), ("correct", 165), ("confidence", 166.125)):
        values = named(scraped, f"blindsight_calibration_curve_{part}_total")
        assert (len(values), sum(values)) == (10, total)
    assert value(scraped, "blindsight_calibration_curve_correct_total", **ERM, bin="0.90-0.95") == 37
    assert not [
        name for name, _ in scraped if "group_confidence" in name or "group_calibration_curve" in name
    ]
    fresh = dataclasses.replace(NEW, distributions=Distributions())
    new = samples(AgentView(engine=EngineView(series=(fresh,))))
    assert named(new, "blindsight_calibration_curve_labelled_total") == [0] * 10


def test_distributions_can_be_left_out_and_are_what_the_key_says_they_cost() -> None:
    without = CollectorRegistry()
    without.register(BlindsightCollector(lambda: RICH, 10_000, distributions=False))
    every, fewer = samples(RICH), samples_of(without)
    assert {name for name, _ in every.keys() - fewer.keys()} == {
        *(f"blindsight_confidence_ratio_{part}" for part in ("bucket", "sum", "count")),
        *(f"blindsight_calibration_curve_{part}_total" for part in ("labelled", "correct", "confidence")),
    }
    assert len(every) - len(fewer) == 42


def test_concurrent_scrapes_do_not_mix() -> None:
    registry = exposed(crowd(5, 4), 400)
    alone = generate_latest(registry)
    seen: list[bytes] = []
    threads = [threading.Thread(target=lambda: seen.append(generate_latest(registry))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [alone] * 8


def test_one_view_is_taken_a_scrape() -> None:
    calls = []

    def view() -> AgentView:
        calls.append(1)
        return RICH

    registry = CollectorRegistry()
    registry.register(BlindsightCollector(view, 100))
    assert calls == [], "registering is no scrape"
    generate_latest(registry)
    assert calls == [1]


# --- refits --------------------------------------------------------------------------------------------


def test_a_task_without_a_good_refit_has_its_counters_and_nothing_of_a_fit() -> None:
    engine = EngineView(refits={"t": RefitView(number=2, failures=2, refused="ssme: too few rows")})
    scraped = samples(AgentView(engine=engine, refit_durations={"t": RefitDurations().plus(3.0)}))
    assert value(scraped, "blindsight_refit_failures_total", task="t") == 2
    assert value(scraped, "blindsight_refit_duration_seconds_count", task="t") == 1
    assert value(scraped, "blindsight_refit_duration_seconds_bucket", task="t", le="2.5") == 0
    assert value(scraped, "blindsight_refit_duration_seconds_bucket", task="t", le="5.0") == 1
    of_a_fit = ("refit_last", "refit_rows", "refit_labelled", "effective_labels", "prevalence")
    assert [
        name for name, _ in scraped if name.startswith(tuple(f"blindsight_{part}" for part in of_a_fit))
    ] == []


def test_classes_from_outside_are_fit_for_utf_8() -> None:
    refits = {"t": RefitView(success_time=1.0, prevalence={"\ud800": 0.5, "b": math.nan})}
    scraped = samples(AgentView(engine=EngineView(refits=refits)))
    assert named(scraped, "blindsight_prevalence_ratio") == [0.5]
    assert generate_latest(exposed(AgentView(engine=EngineView(refits=refits))))


def test_a_task_that_only_recalibrates_has_durations_and_outcomes_and_nothing_of_refits() -> None:
    scraped = samples(AgentView(engine=EngineView(series=(WATCHED,))))
    assert value(scraped, "blindsight_refit_duration_seconds_count", task="toxicity") == 0
    assert value(scraped, "blindsight_recalibrations_total", **ERM, outcome="kept") == 9
    assert not {name for name, _ in scraped if "refit_failures" in name or "refit_last" in name}
    still = dataclasses.replace(WATCHED, recalibrations=None)
    none = {name for name, _ in samples(AgentView(engine=EngineView(series=(still,))))}
    assert not {name for name in none if "refit" in name or "recalibrations" in name}


def test_the_rank_of_a_model_stands_beside_its_estimate() -> None:
    ranked = MetricEstimate(
        "accuracy",
        "autoeval",
        Estimate(0.92, 0.85, 0.96, 0.95, 120),
        0,
        RankInterval(1, 3),
        RankInterval(1, 2),
    )
    series = dataclasses.replace(WATCHED, estimates=(*WATCHED.estimates, ranked))
    scraped = samples(AgentView(engine=EngineView(series=(series,))))
    who = {"task": "toxicity", "model": "erm", "metric": "accuracy", "estimator": "autoeval"}
    assert value(scraped, "blindsight_rank_best", **who) == 1
    assert value(scraped, "blindsight_rank_worst", **who) == 3
    assert value(scraped, "blindsight_rank_chi_square_best", **who) == 1
    assert value(scraped, "blindsight_rank_chi_square_worst", **who) == 2
    assert len(named(scraped, "blindsight_rank_best")) == 1
    ranked = dataclasses.replace(ranked, rank_chi_square=None)
    series = dataclasses.replace(WATCHED, estimates=(*WATCHED.estimates, ranked))
    assert not named(
        samples(AgentView(engine=EngineView(series=(series,)))), "blindsight_rank_chi_square_best"
    )
