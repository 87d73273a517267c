"""Views with everything in them, and what a scrape of a view gives."""

from __future__ import annotations

import dataclasses

import msgspec
from prometheus_client import CollectorRegistry

from monitor import RankInterval
from monitor.base.durations import RefitDurations
from monitor.base.results import Estimate, Reason, TooFew, Unknown
from monitor.base.source import SourceCounts
from monitor.export.prometheus.collector import BlindsightCollector
from monitor.reports.arena_report import ArenaView
from monitor.reports.attribution import Attribution, FeatureChanges, FeaturePart, PartChange
from monitor.reports.features import BrokenFeature, FeatureCounts, FeatureRates
from monitor.reports.trust import Bias, Trust
from monitor.reports.views import (
    AgentView,
    CalibrationView,
    ChartView,
    ClassEstimate,
    CovariatesView,
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
    SourceView,
)
from monitor.stats.charts.base import Verdict
from monitor.stats.features.drift import Drift
from monitor.stats.histograms import CalibrationCurve, ConfidenceHistogram, Distributions
from monitor.stats.pairwise.standing import ModelStanding, Standing

ERM = {"task": "toxicity", "model": "erm"}


def _counts(**rates: FeatureRates) -> FeatureCounts:
    """Return counts with these rates; the last bits of computed ones differ between processors."""
    counts = FeatureCounts(dict.fromkeys(rates, "number"), 500, alarm_level=1e-5)
    vars(counts)["rates"] = rates
    return counts


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
    calibration=CalibrationView(
        "covariates",
        1,
        False,
        1795000000.0,
        covariates=CovariatesView(812.5, {"hour": 3, "carrier": 0}, {"hour": 0, "carrier": 1}),
    ),
    estimates=(
        MetricEstimate("accuracy", "average_confidence", Estimate(0.913, 0.888, 0.936, 0.95, 500)),
        MetricEstimate("accuracy", "realised", Unknown(Reason.NO_LABELS)),
        MetricEstimate("ece", "average_confidence", Estimate(0.021, 0.0, 0.043, 0.95, 500)),
    ),
    values=(
        MetricEstimate("mae", "doubly_robust", Estimate(12.25, 11.5, 13.0, 0.95, 500), unit="minutes"),
        MetricEstimate("bias", "doubly_robust", Estimate(-2.5, -3.25, -1.75, 0.95, 500), unit=""),
    ),
    charts=(
        ChartView("accuracy", Verdict(0.94, 0.92, 0.96, ("we1",), True)),
        ChartView("ece", Verdict(0.02, 0.0, 0.05, (), False, improved=True)),
        ChartView("mae", Verdict(11.75, 10.5, 13.125, (), False), "doubly_robust", unit="minutes"),
    ),
    objectives=(
        ObjectiveView("accuracy", 0.9, True, ObjectiveState.AT_RISK),
        ObjectiveView("ece", 0.05, False, None),
        ObjectiveView("mae", 12.0, False, ObjectiveState.NOT_PROVEN, unit="minutes"),
    ),
    violations={("accuracy", "we1"): 2, ("accuracy", "we2"): 0, ("ece", "we1"): 0, ("ece", "we2"): 0},
    classes=(
        ClassEstimate("recall", "average_confidence", "ok", Estimate(0.9, 0.85, 0.95, 0.95, 500)),
        ClassEstimate("recall", "average_confidence", 'to "xic"', Unknown(Reason.ONE_CLASS)),
    ),
    coverage=Coverage(ratio=0.975, rows=1200, level=0.95),
    trust=Trust(False, 23.5, 1200, confidences=Bias(-0.052, -0.081, -0.024, 0.95, 310)),
    recalibrations=RecalibrationsView({"taken": 2, "kept": 9, "refused": 1}),
    distributions=Distributions(
        ConfidenceHistogram((0, 1, 40, 59, 400, 500, 1000, 2000, 3000, 2000), 7875.5),
        CalibrationCurve(
            (0, 0, 0, 2, 8, 10, 20, 40, 60, 40),
            (0, 0, 0, 1, 5, 7, 17, 37, 58, 40),
            (0.0, 0.0, 0.0, 1.125, 5.25, 7.5, 17.0, 37.125, 58.25, 39.875),
        ),
    ),
    rows_unusable={
        ("hour", "missing"): 21,
        ("hour", "unseen"): 0,
        ("carrier", "missing"): 0,
        ("carrier", "unseen"): 4,
    },
    features=_counts(
        hour=FeatureRates(0.412, 0.0, Drift(0.0, 2.25, 0.06, 0.4375, 0.1015625), True),
        carrier=FeatureRates(0.0, 0.008),
        origin=FeatureRates(0.0, 0.0, Drift(1e-9, 0.5, 0.06, 0.25, 0.1015625), True, alarm=True),
    ),
    broken_features=(BrokenFeature("hour", "missing", 0.412, 0.002),),
    attributions=(
        Attribution(
            "accuracy",
            -0.031,
            "group",
            (
                PartChange('region="eu"', -0.021, -0.003, 0.45, 0.2, 0.71, 0.716),
                PartChange("region=us", 0.0, -0.005, 0.5, 0.75, 0.9, 0.91),
                PartChange("region=af", -0.002, 0.0, 0.05, 0.05, 0.9, 0.9),
            ),
            features=FeatureChanges(
                12,
                -0.031,
                (
                    FeaturePart("hour", -0.02, 0.003, 0.412, 0.0),
                    FeaturePart('car"rier', -0.004, 0.001, 0.0, 0.008),
                    FeaturePart("origin", 0.003, 0.001, 0.0, 0.0),
                ),
                remainder=-0.01,
                remainder_error=0.002,
                remainder_named=True,
            ),
        ),
    ),
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
    trust=Trust(False, 31.25, 80, confidences=Bias(-0.151, -0.262, -0.058, 0.95, 44)),
    recalibrations=None,
    distributions=None,
    attributions=(msgspec.structs.replace(WATCHED.attributions[0], features=None),),
)


def _fallen(model: str, value: float) -> SeriesView:
    """Return a model that shares a fall of the accuracy with the others of its task."""
    estimate = Estimate(value, value - 0.02, value + 0.02, 0.95, 500)
    return dataclasses.replace(
        NEW,
        task="delay",
        model=model,
        state=SeriesState.OUT_OF_CONTROL,
        pending=0,
        window_end_time=1795169251.0,
        estimates=(MetricEstimate("accuracy", "average_confidence", estimate),),
        charts=(ChartView("accuracy", Verdict(0.9375, 0.92, 0.96, ("we1",), True, deviation=-4.0)),),
        objectives=(ObjectiveView("accuracy", 0.9, True, ObjectiveState.BREACHED),),
        shared_seconds=2700.0,
    )


FALLEN = _fallen("erm", 0.90625), _fallen("irm", 0.90625), _fallen("dro", 0.875)


# labels: received 190 = matched 180 + expired 4 + waiting 6
# received 9676 = used 9000 + pending 127 + duplicate 3 + rejected 20 + shed 5
#     + compared 500 + pending 20 + duplicate 1
CHAT = ArenaView(
    task="chat",
    window_size=500,
    windows_closed=1,
    comparisons=500,
    duplicates=1,
    pending=20,
    window_end_time=1795168900.25,
    standing=Standing(
        models=(
            ModelStanding(
                "alpha", Estimate(0.0, 0.0, 0.0, 0.95, 120), RankInterval(2, 2), RankInterval(1, 2)
            ),
            ModelStanding(
                'be"ta', Estimate(0.75, 0.25, 1.25, 0.95, 130), RankInterval(1, 1), RankInterval(1, 2)
            ),
            ModelStanding("gamma", TooFew(Reason.TOO_FEW_COMPARISONS, 7)),
        ),
        reference="alpha",
        comparisons={"human": 10, "judge": 350, "both": 120, "none": 20},
        judge_weight=0.625,
        effective_comparisons=210.5,
    ),
)


RICH = AgentView(
    external_url="https://models.example/b",
    engine=EngineView(
        series=(GROUP, WATCHED, NEW, *FALLEN),
        labels={("toxicity", LabelOutcome.MATCHED): 180, ("toxicity", LabelOutcome.EXPIRED): 4},
        labels_waiting={"toxicity": 6},
        labels_unrevised={"toxicity": 9},
        answers_forgotten={"toxicity": 21},
        label_lag_seconds={"toxicity": 5400.5},
        received={"predictions": 9676, "stdin": 0},
        labels_received={"predictions": 190},
        shed={"predictions": 5},
        ignored={"http": 12},
        rows_left={"http": 5},
        rejected={("predictions", "malformed"): 19, ("predictions", "logits"): 1},
        series_dropped=2,
        tasks=(CHAT, ArenaView("music", 100)),
        refits={
            "toxicity": RefitView(
                number=4,
                success_time=1795169000.5,
                rows=1020,
                pool_rows=2_000_000,
                labelled_draws=50,
                missing_draws=2,
                widening=0.02,
                labelled=51,
                effective_labels=40.25,
                prevalence={"ok": 0.75, "toxic": 0.25},
                converged=True,
                failures=1,
                refused="the refit took too long",
                without_id=30,
            ),
            "spam": RefitView(),
        },
    ),
    sources=(
        SourceView("predictions", True, 42, SourceCounts(40, 400, 30, 1)),
        SourceView("stdin", False, None),
        SourceView(
            "http",
            True,
            0,
            refused={"400": 2, "429": 0},
            reads_events=True,
            labels_by_token={"annotators": 7},
        ),
    ),
    ready=True,
    reload_time=1795100000.0,
    reports_lost=1,
    store_failures=2,
    decoder_failures=3,
    checkpoint_time=1_763_632_815.0,
    refit_durations={"toxicity": RefitDurations().plus(0.2).plus(0.25).plus(45.0).plus(1000.0)},
    sinks=(
        SinkView("reports_file", waiting=0, delivered=18, lost=1),
        SinkView("reports_topic", 7, 11, 0, "no Kafka broker answers", 1_763_632_700.5),
    ),
)


Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def exposed(view: AgentView, max_series: int = 10_000) -> CollectorRegistry:
    registry = CollectorRegistry()
    registry.register(BlindsightCollector(lambda: view, max_series))
    return registry


def samples(view: AgentView, max_series: int = 10_000) -> Samples:
    return samples_of(exposed(view, max_series))


def samples_of(registry: CollectorRegistry) -> Samples:
    families = registry.collect()
    rows = [(s.name, frozenset(s.labels.items()), s.value) for f in families for s in f.samples]
    assert len({row[:2] for row in rows}) == len(rows), "one series twice in one scrape"
    return {(name, labels): value for name, labels, value in rows}


def named(samples: Samples, name: str) -> list[float]:
    return [value for (key, _), value in samples.items() if key == name]


def value(samples: Samples, name: str, **labels: str) -> float | None:
    return samples.get((name, frozenset(labels.items())))


# --- the cap -------------------------------------------------------------------------------------------


def crowd(models: int, groups: int) -> AgentView:
    """Return models m0…, each with groups region=0…, the groups first: their order of appearance is the
    worst.
    """
    series = []
    for m in range(models):
        series += [dataclasses.replace(WATCHED, model=f"m{m}", group=f"region={g}") for g in range(groups)]
        series.append(dataclasses.replace(WATCHED, model=f"m{m}"))
    engine = dataclasses.replace(RICH.engine, series=tuple(series), tasks=())
    return dataclasses.replace(RICH, engine=engine)
