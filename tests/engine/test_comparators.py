"""DoC-Feat, ATC and NannyML's band in the engine: fitted on the reference, reported, charted, kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from monitor import ATC, CALIBRATORS, DoCFeat, average_confidence, classification_details, labelled_row_sd
from monitor.base.results import Estimate, Result, Unknown
from monitor.config.root import Task
from monitor.engine.comparators import ComparisonFits
from monitor.engine.reference import Reference
from monitor.export.page import render_page
from monitor.reports.views import AgentView
from monitor.reports.window_report import WindowReport
from monitor.stats.calibration.base import confidence_of
from tests.daemon import DaemonProcess, configuration, ndjson, read_windows
from tests.nearly import nearly
from tests.plain_state import through_msgpack
from tests.streams import CLASSES, Rig, answers, lines, reference_of, task

ALL = ["average_confidence", "cbpe_sem", "doc", "atc"]
SHIFTED = (0.6, 0.38, 0.02)


def reference(rows: int = 1000, over: float = 0.0) -> Reference:
    """Return the reference of one model; `over` of the labels are drawn again, so that raw confidences
    promise too much.
    """
    rng = np.random.default_rng(1)
    records = answers(rng, rows, labelled=True, start=1.6e9)
    for record in records:
        if rng.random() < over:
            record["label"] = CLASSES[int(rng.random() < 0.5)]
    return reference_of(task(), records)["erm"]


def rig(known: Reference | None = None, **settings: Any) -> Rig:
    base: dict[str, Any] = {"estimators": ALL, "calibration": {"method": "none"}, "reference": {"path": "r"}}
    return Rig({"t": task(**(base | settings))}, {"t": {"erm": known}} if known is not None else {})


def results_of(report: WindowReport, metric: str = "accuracy") -> dict[str, Result]:
    return {e.estimator: e.result for e in report.estimates if e.metric == metric}


def stream(n: int = 300, weights: tuple[float, ...] = SHIFTED) -> list[dict[str, Any]]:
    return answers(np.random.default_rng(2), n, weights=weights)


def scores_of(records: list[dict[str, Any]]) -> np.ndarray:
    return np.array([record["scores"] for record in records])


def test_each_says_of_a_window_what_its_function_says_of_its_confidences() -> None:
    known, records = reference(over=0.2), stream()
    reports = rig(known).feed(records)
    correct = known.labels == known.predicted
    inside = confidence_of(known.scores, known.predicted)
    assert len(reports) == 3
    for number, report in enumerate(reports):
        window = scores_of(records[100 * number : 100 * number + 100])
        confidence = window.max(axis=1)
        results = results_of(report)
        assert list(results) == ALL
        assert results["doc"] == nearly(DoCFeat.fit(inside, correct).estimate(confidence))
        assert results["atc"] == nearly(ATC.fit(inside, correct).estimate(confidence))
        plain = average_confidence(confidence)
        band = results["cbpe_sem"]
        assert isinstance(band, Estimate)
        assert isinstance(plain, Estimate)
        half = 3 * correct.std() / 10
        assert (band.value, band.lower) == pytest.approx((plain.value, plain.value - half))
        doc = results["doc"]
        assert isinstance(doc, Estimate)
        assert doc.value < plain.value - 0.05, "a tenth of the reference's labels was wrong beyond its scores"


def test_calibrated_confidences_of_the_reference_come_from_outside_the_fit() -> None:
    known, records = reference(over=0.2), stream(100)
    [report] = rig(known, calibration={"method": "isotonic"}).feed(records)
    fitted = CALIBRATORS["isotonic"]().fit(known.scores, known.predicted, known.labels)
    outside = known.cross_fitted("isotonic")
    assert outside is not None
    scores = scores_of(records)
    confidence = confidence_of(fitted.apply(scores), scores.argmax(axis=1))
    doc = DoCFeat.fit(confidence_of(outside, known.predicted), known.labels == known.predicted)
    assert doc.bias != 0.0
    assert results_of(report)["doc"] == nearly(doc.estimate(confidence))


def test_the_band_stands_beside_every_metric_that_the_reference_defines() -> None:
    known = reference()
    metrics = ["accuracy", "ece", "precision", "recall", "auroc", "average_precision"]
    [report] = rig(known, metrics=metrics).feed(stream(100))
    by_metric = {metric: results_of(report, metric) for metric in metrics}
    assert "cbpe_sem" not in by_metric.pop("ece"), "no standard error of it is known"
    for metric, results in by_metric.items():
        assert ("doc" in results) == ("atc" in results) == (metric == "accuracy")
        plain, band = results["average_confidence"], results["cbpe_sem"]
        assert isinstance(plain, Estimate)
        assert isinstance(band, Estimate)
        assert band.value == plain.value
        sd = labelled_row_sd(known.labels, known.predicted, known.scores, metric)
        assert sd is not None
        assert band.lower == pytest.approx(max(plain.value - 3 * sd / 10, 0.0))


@pytest.mark.parametrize("average", ["macro", "micro"])
@pytest.mark.parametrize("metric", ["accuracy", "precision", "recall", "specificity", "f1", "auroc"])
def test_the_spread_of_a_labelled_row_is_that_of_certain_scores(metric: str, average: Any) -> None:
    """The details of a window with certain labels have it too: a second way to the same number."""
    rng = np.random.default_rng(5)
    scores = rng.dirichlet(np.ones(3), 400)
    labels, predicted = (np.array([rng.choice(3, p=p) for p in scores]) for _ in range(2))
    spread = classification_details(np.eye(3)[labels], predicted, [metric], average=average, ranking=scores)[
        metric
    ].row_sd
    assert spread == pytest.approx(
        labelled_row_sd(labels, predicted, scores, metric, average=average), abs=1e-12
    )


def test_the_spread_of_a_labelled_row_says_what_samples_of_rows_show() -> None:
    """1,000 samples of 400 rows with replacement: their recall's standard deviation, error 2.2 %."""
    rng = np.random.default_rng(6)
    labels = (rng.random(2000) < 0.3).astype(int)
    predicted = np.where(rng.random(2000) < 0.8, labels, 1 - labels)
    sd = labelled_row_sd(labels, predicted, np.full((2000, 2), 0.5), "recall")
    assert sd is not None
    samples = rng.integers(0, 2000, (1000, 400))
    hits = (labels[samples] & predicted[samples]).sum(axis=1) / labels[samples].sum(axis=1)
    assert sd / 20 == pytest.approx(hits.std(), rel=0.09)


@pytest.mark.parametrize(
    ("labels", "predicted", "metric"),
    [
        ([0, 0, 0], [0, 1, 0], "recall"),
        ([0, 0, 0], [0, 1, 0], "auroc"),
        ([1, 1, 1], [0, 1, 0], "specificity"),
        ([0, 1, 0], [0, 0, 0], "precision"),
        ([], [], "accuracy"),
    ],
)
def test_a_metric_that_the_rows_leave_undefined_has_no_spread(
    labels: list[int], predicted: list[int], metric: str
) -> None:
    whole = np.array(labels, dtype=np.int64), np.array(predicted, dtype=np.int64)
    assert labelled_row_sd(*whole, np.full((len(labels), 2), 0.5), metric) is None


def test_a_spread_that_cannot_be_is_refused_with_what_is_allowed() -> None:
    with pytest.raises(ValueError, match=r"metric must be of accuracy, precision, .*, got 'ece'"):
        labelled_row_sd([0], [0], [[0.5, 0.5]], "ece")
    with pytest.raises(ValueError, match="average must be macro or micro, got 'class'"):
        labelled_row_sd([0], [0], [[0.5, 0.5]], "recall", average="class")


def test_without_a_labelled_reference_each_is_unknown_and_says_why() -> None:
    engine_rig = rig(reference={"first_windows": 5})
    [report] = engine_rig.feed(stream(100))
    results = results_of(report)
    for tag in ("cbpe_sem", "doc", "atc"):
        assert results[tag] == Unknown("no labelled reference")
    assert isinstance(results["average_confidence"], Estimate)
    page = render_page(AgentView(engine=engine_rig.engine.view()))
    assert "doc:</span> unknown, no labelled reference" in page
    assert "cbpe sem:</span> unknown, no labelled reference" in page


def test_a_reference_of_30_rows_is_enough_to_compare_by_though_not_to_chart() -> None:
    known = reference(30)
    for method in ("none", "platt"):
        engine_rig = rig(known, calibration={"method": method})
        [report] = engine_rig.feed(stream(100))
        assert all(isinstance(result, Estimate) for result in results_of(report).values())
        assert report.charts == ()
        assert engine_rig.engine.view().series[0].state == "warming_up"


@pytest.mark.parametrize("tag", ["average_confidence", "doc", "atc"])
def test_the_chart_and_the_objective_judge_the_estimator_that_is_named(tag: str) -> None:
    settings = {
        "chart": {"sigmas": 3, "estimator": tag},
        "objective": {"accuracy": {"min": 0.9}},
        "interval": "poisson_binomial",  # the raw confidences are off, which would be in the pooled interval
    }
    known = reference(over=0.2)
    engine_rig = rig(known, **settings)
    reports = [
        *engine_rig.feed(stream(200, (0.9, 0.08, 0.02))),
        *engine_rig.feed(answers(np.random.default_rng(3), 300, weights=SHIFTED, start=1.8e9)),
    ]
    windows = known.scores.max(axis=1).reshape(10, 100)
    correct = known.labels == known.predicted
    centre = {
        "average_confidence": windows.mean(),
        "doc": correct.mean(),
        "atc": correct.mean(),
    }[tag]
    [chart] = reports[0].charts
    assert chart.estimator == tag
    assert chart.verdict.center == pytest.approx(centre, abs=1e-6 if tag != "atc" else 0.002)
    judged = [results_of(report)[tag] for report in reports]
    for report, result in zip(reports, judged, strict=True):
        assert isinstance(result, Estimate)
        outside = not report.charts[0].verdict.lower <= result.value <= report.charts[0].verdict.upper
        assert bool(report.charts[0].verdict.rules) == outside
    assert [r.charts[0].verdict.out_of_control for r in reports] == [False, False, True, True, True]
    lower, upper = reports[-1].objectives[0].pooled or (0.0, 0.0)
    mean = np.mean([result.value for result in judged if isinstance(result, Estimate)])
    assert lower < mean < upper
    assert upper - lower < 0.12, "of 500 rows pooled: 0.18 for one window of 100"


def test_other_metrics_keep_average_confidence_for_their_charts() -> None:
    engine_rig = rig(reference(), metrics=["accuracy", "recall"], chart={"sigmas": 3, "estimator": "doc"})
    [report] = engine_rig.feed(stream(100))
    assert {chart.metric: chart.estimator for chart in report.charts} == {
        "accuracy": "doc",
        "recall": "average_confidence",
    }


def test_a_restart_goes_on_with_the_same_fits_and_bytes() -> None:
    settings = {"chart": {"sigmas": 3, "estimator": "atc"}, "metrics": ["accuracy", "recall"]}
    whole, cut = rig(reference(), **settings), rig(reference(), **settings)
    records = stream(500)
    expected = lines(whole.feed(records))
    first = lines(cut.feed(records[:250]))
    cut.restart()
    assert first + lines(cut.feed(records[250:])) == expected


def test_another_calibration_has_them_fitted_anew_on_the_same_rows() -> None:
    known, records = reference(over=0.2), stream(200)
    engine_rig = rig(known)
    engine_rig.feed(records[:100])
    platt = CALIBRATORS["platt"]().fit(known.scores, known.predicted, known.labels)
    engine_rig.engine._tasks["t"].series[0].recalibrate(platt, 1.7e9, None)  # type: ignore[attr-defined]
    [report] = engine_rig.feed(records[100:])
    scores = scores_of(records[100:])
    confidence = confidence_of(platt.apply(scores), scores.argmax(axis=1))
    calibrated = known.cross_fitted("platt")
    assert calibrated is not None
    inside = confidence_of(calibrated, known.predicted)
    by_hand = ATC.fit(inside, known.labels == known.predicted).estimate(confidence)
    assert results_of(report)["atc"] == nearly(by_hand)


def test_estimators_of_confidences_alone_need_no_classes() -> None:
    rng = np.random.default_rng(4)
    confidence = rng.random((100, 1))
    right = np.where(rng.random(100) < confidence[:, 0], 0, 1)
    known = Reference(confidence, np.zeros(100, dtype=np.int64), right, np.arange(100.0), "", {})
    settings = Task(estimators=("average_confidence", "cbpe_sem"), metrics=("accuracy",))
    fits = ComparisonFits.fit(known, CALIBRATORS["none"]().fit(confidence, known.predicted, right), settings)
    assert fits.row_sd == {"accuracy": pytest.approx((right == 0).std())}
    assert through_msgpack(fits) == fits


def test_a_reload_that_names_them_has_them_from_the_next_window_on() -> None:
    known, records = reference(over=0.2), stream(200)
    engine_rig, whole = rig(known, estimators=["average_confidence"]), rig(known)
    assert list(results_of(engine_rig.feed(records[:150])[0])) == ["average_confidence"]
    engine_rig.engine, closed = engine_rig.engine.reconfigured(whole.settings, ())
    assert closed == []
    engine_rig.settings = whole.settings
    [report] = engine_rig.feed(records[150:])
    assert results_of(report) == results_of(whole.feed(records)[1])


def test_the_daemon_exports_them_and_goes_on_with_the_same_fits_after_a_restart(tmp_path: Path) -> None:
    known = answers(np.random.default_rng(1), 1000, labelled=True, start=1.6e9)
    (tmp_path / "reference.ndjson").write_bytes(ndjson(known))
    records = stream(400)
    (tmp_path / "in.ndjson").write_bytes(ndjson(records[:250]))
    settings = {
        "estimators": ALL,
        "reference": {"path": "reference.ndjson"},
        "chart": {"sigmas": 3, "estimator": "doc"},
    }
    source = {"kind": "file", "path": "in.ndjson", "follow": True}
    config = configuration(
        task=settings, sources=[source], store={"path": "state"}, reports={"path": "windows.ndjson"}
    )
    with DaemonProcess(tmp_path, config) as daemon:
        daemon.until_value(2, "windows_closed_total", task="t", model="erm")
        daemon.end()
    with DaemonProcess(tmp_path, config) as again:
        again.until_used(250)
        with (tmp_path / "in.ndjson").open("ab") as file:
            file.write(ndjson(records[250:]))
        again.until_value(4, "windows_closed_total", task="t", model="erm")
        scraped = again.metrics()
        again.end()
    written = read_windows(tmp_path / "windows.ndjson")
    in_one = rig(reference_of(task(), known)["erm"], **(settings | {"calibration": {"method": "isotonic"}}))
    expected = [msgspec.json.decode(line) for line in lines(in_one.feed(records))]
    assert len(written) == 4
    for one, other in zip(written, expected, strict=True):
        by_tag = {e["estimator"]: e for e in one["estimates"]}
        assert [by_tag[tag] for tag in ALL] == [e for e in other["estimates"] if e["estimator"] in ALL]
        assert one["charts"] == other["charts"]
    for tag in ALL:
        last = next(e for e in written[-1]["estimates"] if e["estimator"] == tag)
        who = {"task": "t", "model": "erm", "metric": "accuracy", "estimator": tag}
        assert scraped.value("estimate_ratio", **who) == pytest.approx(last["value"], abs=1e-6)
        assert scraped.value("estimate_lower_ratio", **who) == pytest.approx(last["lower"], abs=1e-6)
