"""The exposition: golden text, what promtool says, what is left out, what is cut, and the accounting."""

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

from monitor import __version__
from monitor.charts.base import Verdict
from monitor.export.families import FAMILIES
from monitor.export.prometheus import BlindsightCollector, registry
from monitor.records import RejectReason
from monitor.refit.durations import RefitDurations
from monitor.result import Estimate, Reason, Unknown
from monitor.trustview import Bias, Trust
from monitor.view import (
    AgentView,
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
    SeriesState,
    SeriesView,
    SinkView,
    SourceCounts,
    SourceView,
)

GOLDEN = Path(__file__).parent / "golden"
PROMTOOL = shutil.which("promtool") or ""
ERM = {"task": "toxicity", "model": "erm"}

WATCHED = SeriesView(
    task="toxicity",
    model="erm",
    group="",
    version="2026-11",
    state=SeriesState.OUT_OF_CONTROL,
    window_size=500,
    windows_closed=18,
    predictions=9000,
    duplicates=3,
    pending=120,
    window_end_time=1795169251.002,
    calibration=CalibrationView("isotonic", 1, False, 1795000000.0),
    estimates=(
        MetricEstimate("accuracy", "average_confidence", Estimate(0.913, 0.888, 0.936, 0.95, 500)),
        MetricEstimate("accuracy", "realised", Unknown(Reason.NO_LABELS)),
        MetricEstimate("ece", "average_confidence", Estimate(0.021, 0.0, 0.043, 0.95, 500)),
    ),
    charts=(
        ChartView("accuracy", Verdict(0.94, 0.92, 0.96, ("we1",), True)),
        ChartView("ece", Verdict(0.02, 0.0, 0.05, (), False)),
    ),
    objectives=(
        ObjectiveView("accuracy", 0.9, True, ObjectiveState.AT_RISK),
        ObjectiveView("ece", 0.05, False, None),
    ),
    violations={("accuracy", "we1"): 2, ("accuracy", "we2"): 0, ("ece", "we1"): 0, ("ece", "we2"): 0},
    classes=(
        ClassEstimate("recall", "average_confidence", "ok", Estimate(0.9, 0.85, 0.95, 0.95, 500)),
        ClassEstimate("recall", "average_confidence", 'to "xic"', Unknown(Reason.ONE_CLASS)),
    ),
    coverage=Coverage(ratio=0.975, rows=1200, level=0.95),
    trust=Trust(False, 23.5, 1200, Bias(-0.052, -0.081, -0.024, 0.95, 310)),
    recalibrations=RecalibrationsView({"taken": 2, "kept": 9, "refused": 1}),
)
NEW = SeriesView(
    task="toxicity",
    model='a "b" \\ c\nd é',
    group="",
    version="",
    state=SeriesState.WARMING_UP,
    window_size=500,
    windows_closed=0,
    predictions=0,
    duplicates=0,
    pending=7,
    window_end_time=None,
    calibration=CalibrationView("none", 0, True, None),
    estimates=(),
    charts=(),
    objectives=(),
    violations={},
)
GROUP = dataclasses.replace(
    WATCHED,
    group="region=eu",
    state=SeriesState.IN_CONTROL,
    predictions=500,
    pending=11,
    coverage=None,
    trust=None,
    recalibrations=None,
)
# labels: received 190 = matched 180 + expired 4 + waiting 6
# received 9155 = used 9000 + pending 127 + duplicate 3 + rejected 20 + shed 5
RICH = AgentView(
    engine=EngineView(
        series=(GROUP, WATCHED, NEW),
        labels={("toxicity", LabelOutcome.MATCHED): 180, ("toxicity", LabelOutcome.EXPIRED): 4},
        labels_waiting={"toxicity": 6},
        labels_unrevised={"toxicity": 9},
        answers_forgotten={"toxicity": 21},
        label_lag_seconds={"toxicity": 5400.5},
        received={"predictions": 9155, "stdin": 0},
        labels_received={"predictions": 190},
        shed={"predictions": 5},
        rejected={("predictions", "malformed"): 19, ("predictions", "logits"): 1},
        series_dropped=2,
        refits={
            "toxicity": RefitView(
                number=4,
                success_time=1795169000.5,
                rows=1020,
                labelled=51,
                effective_labels=40.25,
                prevalence={"ok": 0.75, "toxic": 0.25},
                converged=True,
                failures=1,
                refused="the refit took too long",
            ),
            "spam": RefitView(),
        },
    ),
    sources=(
        SourceView("predictions", True, 42, SourceCounts(40, 400, 30, 1)),
        SourceView("stdin", False, None),
    ),
    ready=True,
    reload_time=1795100000.0,
    reports_lost=1,
    store_failures=2,
    checkpoint_time=1_763_632_815.0,
    refit_durations={"toxicity": RefitDurations().plus(0.2).plus(0.25).plus(45.0).plus(1000.0)},
    sinks=(
        SinkView("reports_file", waiting=0, delivered=18, lost=1),
        SinkView("reports_topic", 7, 11, 0, "no Kafka broker answers", 1_763_632_700.5),
    ),
)
Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def exposed(view: AgentView, max_series: int = 10_000) -> CollectorRegistry:
    found = CollectorRegistry()
    found.register(BlindsightCollector(lambda: view, max_series))
    return found


def samples(view: AgentView, max_series: int = 10_000) -> Samples:
    return samples_of(exposed(view, max_series))


def samples_of(found: CollectorRegistry) -> Samples:
    families = found.collect()
    rows = [(s.name, frozenset(s.labels.items()), s.value) for f in families for s in f.samples]
    assert len({row[:2] for row in rows}) == len(rows), "one series twice in one scrape"
    return {(name, labels): value for name, labels, value in rows}


def named(found: Samples, name: str) -> list[float]:
    return [value for (key, _), value in found.items() if key == name]


def value(found: Samples, name: str, **labels: str) -> float | None:
    return found.get((name, frozenset(labels.items())))


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
    found = exposed(RICH)
    assert generate_latest(found) == generate_latest(found)


@pytest.mark.skipif(
    shutil.which("promtool") is None, reason="promtool (Debian package prometheus) is missing"
)
@pytest.mark.parametrize("view", [RICH, AgentView()], ids=["rich", "empty"])
def test_promtool_finds_no_fault(view: AgentView) -> None:
    text = generate_latest(registry(lambda: view, 10_000))
    done = subprocess.run(
        ["promtool", "check", "metrics"], input=text, capture_output=True, timeout=30, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_every_family_of_the_table_is_used_by_the_rich_view() -> None:
    names = {family.name for family in exposed(RICH).collect()}
    expected = {f"blindsight_{key}" for key in FAMILIES}
    expected |= {f"blindsight_group_{key}" for key, family in FAMILIES.items() if family.per_series}
    assert names == expected


def test_the_registry_adds_the_process_and_refuses_a_second_collector() -> None:
    found = registry(lambda: RICH, 10_000)
    names = {name for name, _ in samples_of(found)}
    assert {"process_cpu_seconds_total", "python_info", "blindsight_build_info"} <= names
    with pytest.raises(ValueError, match="Duplicated timeseries"):
        found.register(BlindsightCollector(lambda: RICH, 10))


# --- what is known, and what is not --------------------------------------------------------------------


def test_an_unknown_estimate_is_absent_and_gives_its_reason() -> None:
    found = samples(RICH)
    who = {**ERM, "metric": "accuracy", "estimator": "realised"}
    assert value(found, "blindsight_unknown", **who, reason="no labels yet") == 1
    assert value(found, "blindsight_estimate_ratio", **who) is None
    assert len(named(found, "blindsight_unknown")) == 1


@pytest.mark.parametrize("wrong", [math.nan, math.inf])
def test_no_sample_is_ever_nan_or_infinite(wrong: float) -> None:
    broken = dataclasses.replace(
        WATCHED,
        estimates=(MetricEstimate("accuracy", "x", Estimate(wrong, 0.0, 1.0, 0.95, 3)),),
        charts=(ChartView("accuracy", Verdict(0.9, wrong, wrong, (), False)),),
        window_end_time=wrong,
    )
    engine = dataclasses.replace(RICH.engine, series=(broken,), label_lag_seconds={"toxicity": wrong})
    found = samples(dataclasses.replace(RICH, engine=engine, reload_time=wrong))
    assert all(math.isfinite(v) for v in found.values())
    assert (
        value(found, "blindsight_control_center_ratio", task="toxicity", model="erm", metric="accuracy")
        == 0.9
    )
    assert [dict(labels)["reason"] for name, labels in found if name == "blindsight_unknown"] == [
        "not a number"
    ]


def test_no_sample_has_a_timestamp() -> None:
    assert all(s.timestamp is None for f in exposed(RICH).collect() for s in f.samples)


def test_state_sets_are_complete_and_an_unjudged_objective_is_in_no_state() -> None:
    found = samples(RICH)
    states = {s: value(found, "blindsight_state", **ERM, state=s.value) for s in SeriesState}
    assert states == {s: float(s is SeriesState.OUT_OF_CONTROL) for s in SeriesState}
    judged = {
        metric: [
            value(found, "blindsight_objective_state", **ERM, metric=metric, state=s) for s in ObjectiveState
        ]
        for metric in ("accuracy", "ece")
    }
    assert judged == {"accuracy": [0, 1, 0], "ece": [0, 0, 0]}


def test_counters_of_a_source_and_a_task_start_at_zero() -> None:
    engine = EngineView(labels_waiting={"toxicity": 0})
    found = samples(AgentView(engine=engine, sources=(SourceView("kafka", True, None),)))
    for outcome in LabelOutcome:
        assert value(found, "blindsight_labels_total", task="toxicity", outcome=outcome.value) == 0
    for reason in RejectReason:
        assert value(found, "blindsight_rejected_total", source="kafka", reason=reason.value) == 0
    assert value(found, "blindsight_answers_received_total", source="kafka") == 0
    assert value(found, "blindsight_shed_total", source="kafka") == 0
    assert named(found, "blindsight_source_lag_records") == []


def test_text_from_outside_never_fails_a_scrape() -> None:
    odd = dataclasses.replace(WATCHED, model="\ud800", group="region=\ud83d", version="\udfff")
    engine = dataclasses.replace(RICH.engine, series=(odd,))
    text = generate_latest(exposed(dataclasses.replace(RICH, engine=engine))).decode()
    assert 'group="region=?"' in text
    assert 'model="?"' in text


def test_the_accounting_identity_adds_up() -> None:
    found = samples(RICH)
    received, used, pending, duplicates, rejected, shed = (
        sum(named(found, f"blindsight_{name}"))
        for name in (
            "answers_received_total",
            "predictions_total",
            "answers_pending",
            "duplicates_total",
            "rejected_total",
            "shed_total",
        )
    )
    assert (received, used, pending, duplicates, rejected, shed) == (9155, 9000, 127, 3, 20, 5)
    assert received == used + pending + duplicates + rejected + shed


def test_groups_stand_apart_so_that_sums_stay_right() -> None:
    found = samples(RICH)
    assert all(("group" in dict(labels)) == name.startswith("blindsight_group_") for name, labels in found)
    assert (
        value(found, "blindsight_group_predictions_total", task="toxicity", model="erm", group="region=eu")
        == 500
    )


# --- the cap -------------------------------------------------------------------------------------------


def crowd(models: int, groups: int) -> AgentView:
    """Models m0…, each with groups region=0…, the groups first: their order of appearance is the worst."""
    series = []
    for m in range(models):
        series += [dataclasses.replace(WATCHED, model=f"m{m}", group=f"region={g}") for g in range(groups)]
        series.append(dataclasses.replace(WATCHED, model=f"m{m}"))
    return dataclasses.replace(RICH, engine=dataclasses.replace(RICH.engine, series=tuple(series)))


def whom(found: Samples) -> dict[tuple[str | None, str | None], int]:
    """Samples a model (and group)."""
    counted: dict[tuple[str | None, str | None], int] = {}
    for _, labels in found:
        who = dict(labels)
        if "model" in who:
            key = (who["model"], who.get("group"))
            counted[key] = counted.get(key, 0) + 1
    return counted


@pytest.mark.parametrize("cap", [120, 200, 333, 500, 1000])
def test_the_cap_is_kept_and_whole_models_and_groups_are_cut(cap: int) -> None:
    everyone = whom(samples(crowd(5, 4)))
    found = samples(crowd(5, 4), cap)
    kept = whom(found)
    assert len(found) <= cap
    assert kept == {who: everyone[who] for who in kept}, "a series was cut in the middle"
    dropped = value(found, "blindsight_series_dropped_total")
    assert dropped == RICH.engine.series_dropped + len(everyone) - len(kept)


def test_models_are_kept_before_groups_and_the_first_before_the_last() -> None:
    kept = list(whom(samples(crowd(5, 4), 600)))
    order = [(f"m{m}", None) for m in range(5)] + [
        (f"m{m}", f"region={g}") for m in range(5) for g in range(4)
    ]
    assert sorted(kept, key=order.index) == order[: len(kept)]
    assert 5 < len(kept) < 25


def test_nothing_is_cut_at_exactly_the_cap() -> None:
    everything = samples(crowd(3, 1))
    assert samples(crowd(3, 1), len(everything)) == everything
    assert len(whom(samples(crowd(3, 1), len(everything) - 1))) == 5


def test_the_count_of_dropped_series_never_falls() -> None:
    views = [crowd(5, 4), crowd(5, 1), crowd(7, 4)]
    now = [views[0]]
    found = CollectorRegistry()
    found.register(BlindsightCollector(lambda: now[0], 400))
    counts = []
    for view in views:
        now[0] = view
        counts.append(value(samples_of(found), "blindsight_series_dropped_total"))
    assert counts[0] == counts[1]
    assert counts[2] is not None
    assert counts[2] > (counts[0] or 0)


def test_who_is_left_out_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    now = [crowd(5, 4)]
    found = CollectorRegistry()
    found.register(BlindsightCollector(lambda: now[0], 333))
    for _ in range(3):
        left_out = 25 - len(whom(samples_of(found)))
    [line] = [record.getMessage() for record in caplog.records]
    assert line.startswith(
        "export.max_series: 333 series are too few for every model and group; left out of "
    )
    assert line.endswith(f" and {left_out - 5} more. Raise it, or watch fewer groups.")
    assert line.count("region=") == 5
    now[0] = crowd(40, 4)
    samples_of(found)
    assert len(caplog.records) == 2, "again once it has become twice as many"


def test_nothing_is_logged_while_nothing_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    samples(crowd(3, 1))
    assert caplog.records == []


def test_concurrent_scrapes_do_not_mix() -> None:
    found = exposed(crowd(5, 4), 400)
    alone = generate_latest(found)
    seen: list[bytes] = []
    threads = [threading.Thread(target=lambda: seen.append(generate_latest(found))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [alone] * 8


def test_one_view_is_taken_a_scrape() -> None:
    taken = []

    def view() -> AgentView:
        taken.append(1)
        return RICH

    found = CollectorRegistry()
    found.register(BlindsightCollector(view, 100))
    assert taken == [], "registering is no scrape"
    generate_latest(found)
    assert taken == [1]


# --- refits --------------------------------------------------------------------------------------------


def test_a_task_without_a_good_refit_has_its_counters_and_nothing_of_a_fit() -> None:
    engine = EngineView(refits={"t": RefitView(number=2, failures=2, refused="ssme: too few rows")})
    found = samples(AgentView(engine=engine, refit_durations={"t": RefitDurations().plus(3.0)}))
    assert value(found, "blindsight_refit_failures_total", task="t") == 2
    assert value(found, "blindsight_refit_duration_seconds_count", task="t") == 1
    assert value(found, "blindsight_refit_duration_seconds_bucket", task="t", le="2.5") == 0
    assert value(found, "blindsight_refit_duration_seconds_bucket", task="t", le="5.0") == 1
    of_a_fit = ("refit_last", "refit_rows", "refit_labelled", "effective_labels", "prevalence")
    assert [
        name for name, _ in found if name.startswith(tuple(f"blindsight_{part}" for part in of_a_fit))
    ] == []


def test_classes_from_outside_are_fit_for_utf_8() -> None:
    refits = {"t": RefitView(success_time=1.0, prevalence={"\ud800": 0.5, "b": math.nan})}
    found = samples(AgentView(engine=EngineView(refits=refits)))
    assert named(found, "blindsight_prevalence_ratio") == [0.5]
    assert generate_latest(exposed(AgentView(engine=EngineView(refits=refits))))


def test_a_task_that_only_recalibrates_has_durations_and_outcomes_and_nothing_of_refits() -> None:
    found = samples(AgentView(engine=EngineView(series=(WATCHED,))))
    assert value(found, "blindsight_refit_duration_seconds_count", task="toxicity") == 0
    assert value(found, "blindsight_recalibrations_total", **ERM, outcome="kept") == 9
    assert not {name for name, _ in found if "refit_failures" in name or "refit_last" in name}
    still = dataclasses.replace(WATCHED, recalibrations=None)
    none = {name for name, _ in samples(AgentView(engine=EngineView(series=(still,))))}
    assert not {name for name in none if "refit" in name or "recalibrations" in name}
