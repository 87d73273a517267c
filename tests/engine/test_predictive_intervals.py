"""Predictive intervals in the daemon: every metric, pools, groups, short references, restarts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest

from monitor import CALIBRATORS, Components, average_confidence
from monitor.base.results import Estimate
from monitor.cli.check.calibrations import interval_sentences
from monitor.config.root import Bound
from monitor.engine.calibration import ActiveCalibration
from monitor.engine.evaluate import EstimationRequest, Evaluation, evaluate
from monitor.engine.objective import BootstrapDraws, Objective
from monitor.engine.reference import Reference
from monitor.export.page import render_page
from monitor.reports.reader import from_json
from monitor.reports.views import AgentView
from monitor.reports.window_report import to_json
from monitor.stats.calibration.rests_on import RestsOn
from monitor.stats.estimate.class_bias import ShownErrors
from monitor.stats.estimate.poisson_binomial import trimmed_pmf_many
from monitor.stats.estimate.predictive import Predictive
from monitor.stats.estimate.predictive_fit import Folded, fit_predictive
from monitor.stats.estimate.shared_error import Exposure
from monitor.stats.estimate.widening import mid_p_interval, widened, widened_interval
from tests.fidelity.predictive import ornstein_uhlenbeck
from tests.nearly import nearly
from tests.plain_state import same, through_msgpack
from tests.streams import CLASSES, Rig, answers, lines, reference_of, task

METRICS = (
    "accuracy", "ece", "class_ece", "precision", "recall", "specificity", "f1", "auroc", "average_precision",
)  # fmt: skip
EXACT = {"interval": "poisson_binomial"}


def reference(rows: int = 1000, groups: bool = False, seed: int = 1) -> Reference:
    records = answers(np.random.default_rng(seed), rows, labelled=True, start=1.6e9)
    for i, record in enumerate(records):
        if groups:
            record["groups"] = {"region": "eu" if i % 3 else "us"}
            if i % 3 == 0 and i % 2:  # half of the labels of one group are turned round
                record["label"] = CLASSES[1 - CLASSES.index(record["label"])]
    return reference_of(task(**({"groups": ["region"]} if groups else {})), records)["erm"]


def rig(known: Reference | None, **settings: Any) -> Rig:
    base: dict[str, Any] = {"reference": {"path": "r"}, "chart": {"sigmas": 3}}
    return Rig({"t": task(**(base | settings))}, {"t": {"erm": known}} if known else {})


def estimates_of(report: Any) -> dict[str, Estimate]:
    return {
        e.metric: e.result
        for e in report.estimates
        if e.estimator == "average_confidence" and isinstance(e.result, Estimate)
    }


def width(result: Estimate) -> float:
    return result.upper - result.lower


def windows_of(
    n: int, many: int, model: Predictive | None, metrics: tuple[str, ...] = METRICS, seed: int = 4
):
    """Return requests of windows of two classes, by the scores as they are."""
    rng = np.random.default_rng(4)
    chance = rng.beta(1.2, 0.8, n * many)
    scores = np.column_stack((1 - chance, chance))
    raw = np.column_stack((1 - chance**1.3, chance**1.3))
    predicted = scores.argmax(axis=1)
    cuts = [slice(n * i, n * i + n) for i in range(many)]
    return [
        EstimationRequest(raw[cut], predicted[cut], scores[cut], metrics, 1, 0.95, i, predictive=model)
        for i, cut in enumerate(cuts)
    ]


def learnt(n: int = 2000, seed: int = 3, drift: float = 0.0) -> Predictive:
    rng = np.random.default_rng(seed)
    chance = rng.beta(1.2, 0.8, n).clip(1e-6, 1 - 1e-6)
    bias = ornstein_uhlenbeck(rng, n, 300.0, drift) if drift else np.zeros(n)
    odds = chance / (1 - chance) * np.exp(bias)
    labels = (rng.random(n) < odds / (1 + odds)).astype(np.int64)
    scores = np.column_stack((1 - chance, chance))
    return fit_predictive(CALIBRATORS["isotonic"](), scores, scores.argmax(axis=1), labels)


class TestInTheDaemon:
    def test_they_are_the_default_hold_every_metric_and_are_wider_than_chance_alone(self):
        known, records = reference(400), answers(np.random.default_rng(2), 300)
        wide = rig(known, metrics=METRICS).feed(records)
        exact = rig(known, metrics=METRICS, **EXACT).feed(records)
        assert {r.calibration.interval for r in wide} == {"predictive"}
        assert {r.calibration.interval for r in exact} == {"poisson_binomial"}
        for one, other in zip(wide, exact, strict=True):
            left, right = estimates_of(one), estimates_of(other)
            assert left.keys() == right.keys() >= {"accuracy", "ece", "f1", "auroc"}
            for metric, result in left.items():
                assert result.value == nearly(right[metric].value), metric
                assert 0 <= result.lower <= result.value <= result.upper <= 1
                # Mid-p limits of the accuracy are narrower than exact ones before anything is put on top.
                assert width(result) > width(right[metric]) - 0.011, metric
            assert np.mean([width(left[m]) - width(right[m]) for m in left]) > 0.005

    @pytest.mark.slow
    def test_charts_are_of_the_estimates_and_do_not_hang_on_the_interval(self):
        known, records = reference(1000), answers(np.random.default_rng(2), 500)
        wide, exact = (rig(known, metrics=METRICS, **kind).feed(records) for kind in ({}, EXACT))
        assert [r.charts for r in wide] == [r.charts for r in exact]

    def test_exact_ones_on_request_are_those_of_the_function(self):
        records = answers(np.random.default_rng(2), 100)
        [report] = rig(reference(), calibration={"method": "none"}, **EXACT).feed(records)
        confidence = np.array([max(record["scores"]) for record in records])
        assert estimates_of(report)["accuracy"] == nearly(average_confidence(confidence))
        assert b'"interval"' not in to_json(report)

    def test_a_line_names_them_and_is_read_back(self):
        [report] = rig(reference()).feed(answers(np.random.default_rng(2), 100))
        line = to_json(report)
        assert b'"calibration":{"method":"isotonic","version":1,"interval":"predictive"}' in line
        assert from_json(line).calibration.interval == "predictive"
        assert to_json(from_json(line)) == line

    @pytest.mark.slow
    @pytest.mark.parametrize("restart", [False, True])
    def test_neither_cuts_nor_restarts_show(self, restart: bool):
        settings = {
            "metrics": METRICS,
            "groups": ["region"],
            "objective": {"accuracy": {"min": 0.9}, "f1": {"min": 0.8}, "auroc": {"min": 0.8}},
        }
        records = answers(np.random.default_rng(5), 700, groups={"region": "eu"})
        known = reference(groups=True)
        whole = rig(known, **settings).feed(records)
        reports = rig(known, **settings).feed_in_pieces(records, range(130, 700, 130), restart)
        assert lines(reports) == lines(whole)
        assert [r.objectives for r in reports] == [r.objectives for r in whole]

    def test_without_calibration_a_bias_that_the_reference_shows_is_in_the_interval(self):
        known = reference(2000)
        off = replace(known, labels=np.where(np.arange(2000) % 5 == 0, 1 - known.labels, known.labels))
        records = answers(np.random.default_rng(2), 100)
        widths = []
        for each in (known, off):
            [report] = rig(each, calibration={"method": "none"}).feed(records)
            assert report.calibration.interval == "predictive"
            widths.append(width(estimates_of(report)["accuracy"]))
        assert widths[1] > widths[0] + 0.05
        right = (off.predicted == off.labels).mean()
        assert estimates_of(report)["accuracy"].lower < right

    def test_a_group_varies_as_its_own_rows_do_where_they_are_enough(self):
        known = reference(1800, groups=True)
        records = answers(np.random.default_rng(2), 400)
        for i, record in enumerate(records):
            record["groups"] = {"region": "eu" if i % 2 else "us"}
        reports = rig(known, groups=["region"], window={"size": 100}).feed(records)
        by_group = {r.group: width(estimates_of(r)["accuracy"]) for r in reports}
        assert by_group["region=us"] > by_group["region=eu"] + 0.05  # the model is off for that one
        few = replace(known, groups={"region=us": known.groups["region=us"][:150]})
        assert few.predictive("isotonic", "region=us") is few.predictive("isotonic")

    def test_the_pool_is_wider_than_independent_windows_would_make_it(self):
        settings = {"objective": {"accuracy": {"min": 0.9}, "recall": {"min": 0.9}}, "metrics": METRICS}
        records = answers(np.random.default_rng(6), 500)
        pooled = {}
        for kind in ("predictive", "poisson_binomial"):
            reports = rig(reference(400), interval=kind, **settings).feed(records)
            pooled[kind] = [o.pooled[1] - o.pooled[0] for o in reports[-1].objectives]
        assert all(a > 1.3 * b for a, b in zip(*pooled.values(), strict=True))

    def test_a_store_of_an_older_version_learns_them_from_the_reference(self):
        found_rig = rig(reference())
        found_rig.feed(answers(np.random.default_rng(2), 150))
        state = found_rig.engine.snapshot()
        [(model, group, series)] = state.tasks["t"].series
        kept = series.calibration.predictive
        older = msgspec.structs.replace(series.calibration, predictive=None)
        state.tasks["t"].series[:] = [(model, group, msgspec.structs.replace(series, calibration=older))]
        again = found_rig.settings.build(state)
        assert again.learn()
        [(_, _, now)] = again.snapshot().tasks["t"].series
        assert same(now.calibration.predictive, kept)

    def test_another_calibration_keeps_them_unless_its_rows_tell_its_error(self):
        known, settings = reference(), task(reference={"path": "r"})
        start = ActiveCalibration.at_start(settings, known, 0)
        assert start.predictive is not None
        later = start.followed_by(start.calibration, 1.7e9, 1)
        assert later.predictive is start.predictive
        rows = slice(0, 120)
        few = RestsOn(known.scores[rows], known.predicted[rows])
        own = start.followed_by(start.calibration, 1.7e9, 1, few).predictive
        assert own is not None
        assert (own.number, own.components) == (2, start.predictive.components)
        window = known.scores.max(axis=1)
        assert own.variance(window, None, known.predicted) > start.predictive.variance(
            window, None, known.predicted
        )


class TestShortAndMissingReferences:
    def test_a_reference_too_short_says_so_in_check_and_on_the_page(self):
        known = reference(150)
        [sentence] = interval_sentences({"t": task(reference={"path": "r"})}, {"t": {"erm": known}})
        assert sentence == (
            "tasks.t.interval, model erm: holds only as long as nothing but chance moves the accuracy: "
            "reference of 150 rows, 200 needed"
        )
        short = rig(known)
        [report] = short.feed(answers(np.random.default_rng(2), 100))
        assert (report.calibration.interval, report.calibration.short_reference) == ("predictive", 150)
        page = render_page(AgentView(engine=short.engine.view(), ready=True, reasons=()))
        assert "nothing but chance moves the accuracy: reference of 150 rows, 200 needed" in page
        enough = rig(reference(200))
        [report] = enough.feed(answers(np.random.default_rng(2), 100))
        assert report.calibration.short_reference is None
        page = render_page(AgentView(engine=enough.engine.view(), ready=True, reasons=()))
        assert "nothing but chance" not in page

    def test_no_reference_leaves_exact_ones_and_says_so_once(self):
        settings = task(reference={"first_windows": 5})
        [sentence] = interval_sentences({"t": settings}, {})
        assert "there is none; intervals include chance alone" in sentence
        [report] = Rig(settings).feed(answers(np.random.default_rng(2), 100))
        assert report.calibration.interval == "poisson_binomial"
        assert list(interval_sentences({"t": task(**EXACT)}, {})) == []


class TestPools:
    @pytest.mark.parametrize("metric", METRICS[:1] + METRICS[3:7])
    def test_windows_together_are_one_longer_window(self, metric: str):
        """Slow witness: all rows of five windows as one. Ratios of windows differ from it to second order."""
        model = learnt(1000, drift=0.4)
        parts = evaluate(windows_of(200, 5, model, (metric,)))
        pool = Objective(Bound(min=0.5), windows=5).build()
        for part in parts:
            verdict = pool.update(_item(part, metric), part.exposures[metric], model)
        [whole] = evaluate(windows_of(1000, 1, model, (metric,)))
        result = whole.estimates[metric]
        assert isinstance(result, Estimate)
        assert verdict.lower == pytest.approx(result.lower, abs=1e-9 if metric == "accuracy" else 2e-3)
        assert verdict.upper == pytest.approx(result.upper, abs=1e-9 if metric == "accuracy" else 2e-3)

    def test_a_ranking_and_an_error_are_pooled_with_what_windows_share(self):
        model = learnt(400)
        for metric in ("auroc", "ece"):
            parts = evaluate(windows_of(200, 5, model, (metric,)))
            shared, alone = (Objective(Bound(max=0.5), windows=5).build() for _ in range(2))
            for part in parts:
                wide = shared.update(_item(part, metric), part.exposures[metric], model)
                sharp = alone.update(_item(part, metric))
            assert wide.upper - wide.lower > 1.2 * (sharp.upper - sharp.lower)

    def test_a_pool_goes_on_from_a_snapshot_to_the_last_bit(self):
        model, parts = learnt(500), None
        parts = evaluate(windows_of(100, 7, model, ("accuracy",)))
        one = Objective(Bound(min=0.5), windows=3).build()
        for part in parts[:4]:
            one.update(part.accuracy, part.exposures["accuracy"], model)
        again = Objective(Bound(min=0.5), windows=3).build(through_msgpack(one.snapshot()))
        for part in parts[4:]:
            item = (part.accuracy, part.exposures["accuracy"], model)
            assert one.update(*item) == again.update(*item)

    def test_errors_of_different_calibrations_are_not_shared(self):
        first = Exposure(1, 100.0, 100, np.array([3.0]), np.array([0.0]), np.array([9.0]))
        second = replace(first, model=2)
        model = Predictive((np.zeros(0),), np.ones((1, 1)), None)
        assert model.error_of([first, first]).variance == pytest.approx(36 / 200**2)
        assert model.error_of([first, second]).variance == pytest.approx(18 / 200**2)

    def test_windows_without_an_exposure_and_unknown_ones_do_not_stop_the_pool(self):
        model = learnt(500)
        parts = evaluate(windows_of(100, 3, model, ("accuracy",)))
        pool = Objective(Bound(min=0.5), windows=5).build()
        pool.update(parts[0].accuracy)  # of before predictive intervals were asked for
        pool.update(None, None, model)
        verdict = pool.update(parts[2].accuracy, parts[2].exposures["accuracy"], model)
        assert (verdict.windows, verdict.rows) == (2, 200)


def _item(part: Evaluation, metric: str) -> Any:
    if metric == "accuracy":
        return part.accuracy
    if metric in part.errors:
        return BootstrapDraws(part.estimates[metric].value, part.errors[metric].draws, 200)
    other = part.others[metric]
    return other.counts or other.cumulants or BootstrapDraws(other.result.value, other.draws, 200)


class TestByPredictedClass:
    def test_what_moves_one_class_alone_moves_the_metrics_that_hang_on_it(self):
        """8,000 rows: answers of one predicted class drift, those of the other do not."""
        rng, n = np.random.default_rng(8), 8000
        chance = rng.beta(1.2, 1.2, n).clip(1e-6, 1 - 1e-6)
        scores = np.column_stack((1 - chance, chance))
        predicted = scores.argmax(axis=1)
        bias = np.where(predicted == 1, ornstein_uhlenbeck(rng, n, 300.0, 0.8), 0.0)
        odds = chance / (1 - chance) * np.exp(bias)
        labels = (rng.random(n) < odds / (1 + odds)).astype(np.int64)
        model = fit_predictive(CALIBRATORS["isotonic"](), scores, predicted, labels)
        confidence, rows = scores.max(axis=1)[:500], predicted[:500]
        acted = (rows == 1).astype(float)
        of_one = model.variance(confidence, acted / acted.sum(), rows)
        of_other = model.variance(confidence, (1 - acted) / (1 - acted).sum(), rows)
        assert of_one > 4 * of_other

    def test_biases_that_cancel_in_the_accuracy_widen_what_hangs_on_one_class(self):
        """A stable reference of 3,000 rows: 0.2 logits for each class at least; nothing for the accuracy."""
        model = learnt(3000)
        confidence, predicted = np.full(4000, 0.8), np.arange(4000) % 2
        of_one = (predicted == 1) / 2000
        bare = replace(model, components=None, by_stratum=())
        assert bare.variance(confidence, of_one, predicted) >= (0.2 * 0.16) ** 2
        assert model.variance(confidence, of_one, predicted) >= (0.2 * 0.16) ** 2
        curves = replace(bare, directions=np.zeros_like(bare.directions))
        assert curves.variance(confidence, np.full(4000, 1 / 4000), predicted) == pytest.approx(0, abs=1e-12)
        assert curves.variance(confidence, None, predicted) == 0

    def test_what_labels_show_widens_the_side_to_which_it_moves_a_metric(self):
        """Labels of one class are right less often than announced, those of the other as often."""
        model = learnt(3000)
        information = np.full((2, 5), 320.0)
        informed = model.informed(ShownErrors(information * [[0.0], [-0.5]], information, 20_000))
        confidence, predicted = np.full(4000, 0.8), np.arange(4000) % 2
        rows = model.place(confidence, predicted)
        slopes = np.array([predicted == 0, predicted == 1]) / 2000
        other, one = informed.errors_of(model.exposures(rows, slopes, [2000.0, 2000.0]))
        assert one.shift == pytest.approx(-0.5 * 0.16, rel=0.15)
        assert other.shift == pytest.approx(0, abs=1e-9)
        low, high = widened_interval(0.8, 0.79, 0.81, one.variance, 0.95, one.shift)
        assert low < 0.8 + 1.9 * one.shift
        assert (0.8 - low) > 1.5 * (high - 0.8)

    def test_equal_weights_of_all_rows_are_the_accuracy_where_parts_and_total_agree(self):
        model = learnt(3000, drift=0.3)
        rng = np.random.default_rng(9)
        confidence, predicted = rng.uniform(0.5, 1, 400), rng.integers(0, 2, 400)
        whole = model.variance(confidence, None, predicted)
        parts = model.variance(confidence, np.full(400, 1 / 400), predicted)
        assert parts == pytest.approx(whole, rel=0.35)  # a correlation beyond ±1 is cut

    def test_a_rare_class_shares_and_one_that_never_was_predicted_is_hardly_known(self):
        rng, n = np.random.default_rng(10), 600
        confidence = rng.uniform(0.6, 1.0, n)
        predicted = np.where(np.arange(n) < 20, 1, 0)
        model = Folded(confidence, predicted, rng.random(n) < confidence, {}).predictive(4)
        assert model.strata.tolist() == [0, 1, 1, 1]
        window = np.full(50, 0.9)
        variances = [model.variance(window, None, np.full(50, k)) for k in (0, 1, 3)]
        assert variances[1] == variances[2] > 5 * variances[0]

    def test_the_snapshot_of_classes_goes_round(self):
        model = learnt(1200, drift=0.3)
        again = through_msgpack(model)
        rng = np.random.default_rng(11)
        rows = rng.uniform(0.5, 1, 300), rng.normal(size=300), rng.integers(0, 2, 300)
        assert again.variance(*rows) == model.variance(*rows)
        assert same(again, model)


def test_accuracy_is_the_exact_distribution_convolved_with_both_variances():
    model = Predictive((np.zeros(0),), np.full((1, 1), 0.01), Components(0.5, ((300.0, 0.02),), 4000))
    [request] = windows_of(300, 1, model, ("accuracy",))
    [evaluation] = evaluate([request])
    confidence = request.calibrated.max(axis=1)
    information = float((confidence * (1 - confidence)).sum())
    variance = 300**2 * 0.01**2 + information**2 * model.components.of_bias(300, information)
    low, high = mid_p_interval(widened(trimmed_pmf_many(confidence[None])[0], variance), 0.95)
    result = evaluation.estimates["accuracy"]
    assert (result.lower, result.upper) == (low / 300, high / 300)


@pytest.mark.slow
@pytest.mark.parametrize("rows", [150, 1000])
def test_what_a_reference_says_may_be_learnt_at_any_time(rows: int) -> None:
    """At the start, ahead of the first window, with it, or after a restart before it: the same windows."""
    known = reference(rows, groups=True)
    stream = answers(np.random.default_rng(3), 700, labelled=True)
    for i, record in enumerate(stream):
        record["groups"] = {"region": "eu" if i % 3 else "us"}
    at_once, ahead, late, restarted = (rig(known, groups=["region"]) for _ in range(4))
    for series in at_once.engine.series["t"]:
        assert series.active.predictive is not None
    written = {
        name: lines(each.feed(stream[:90]) + each.feed(stream[90:]))
        for name, each in (("at once", at_once), ("late", late))
    }
    beginning = lines(ahead.feed(stream[:90]))
    while ahead.engine.learn():
        pass
    written["ahead"] = beginning + lines(ahead.feed(stream[90:]))
    beginning = lines(restarted.feed(stream[:40]))
    restarted.restart()
    written["restarted"] = beginning + lines(restarted.feed(stream[40:90]) + restarted.feed(stream[90:]))
    assert len(written["late"]) > 10
    assert all(each == written["late"] for each in written.values())
    for series in late.engine.series["t"]:
        short = series.active.view.short_reference
        assert short == (None if series.active.predictive.components else rows)
    states = [each.engine.snapshot().tasks["t"].series for each in (at_once, ahead, late, restarted)]
    assert all(same(through_msgpack(one), through_msgpack(states[0])) for one in states)


def test_nothing_is_learnt_before_a_first_window_and_a_snapshot_holds_nothing_of_it() -> None:
    waiting = rig(reference(1000))
    waiting.feed(answers(np.random.default_rng(3), 90))
    [series] = waiting.engine.series["t"]
    assert series.snapshot().calibration.predictive is None
    assert series.view().calibration.interval == "predictive"
    assert waiting.engine.learn()
    assert not waiting.engine.learn()
    assert series.snapshot().calibration.predictive is not None


def wrong_of_one_class(labelled: bool) -> list[dict[str, Any]]:
    """Return 2,000 answers; of those predicted as the second class every second label is turned round."""
    records = answers(np.random.default_rng(8), 2000, labelled=True)
    for i, record in enumerate(records):
        if record["scores"][1] > 0.5 and i % 2:
            record["label"] = CLASSES[1 - CLASSES.index(record["label"])]
        if not labelled:
            del record["label"]
    return records


@pytest.mark.slow
def test_labels_that_show_a_bias_of_one_class_widen_the_metrics_that_hang_on_it() -> None:
    metrics = ["accuracy", "precision", "recall", "ece"]
    known = reference()
    with_labels = rig(known, metrics=metrics).feed(wrong_of_one_class(labelled=True))
    without = rig(known, metrics=metrics).feed(wrong_of_one_class(labelled=False))
    last, plain = with_labels[-1], without[-1]
    for metric in ("precision", "recall"):
        assert estimates_of(last)[metric].value == estimates_of(plain)[metric].value
        assert width(estimates_of(last)[metric]) > width(estimates_of(plain)[metric]), metric
    assert width(estimates_of(last)["precision"]) > 1.5 * width(estimates_of(plain)["precision"])
    for metric in ("accuracy", "ece"):
        assert estimates_of(last)[metric] == estimates_of(plain)[metric]
    labels = {e.metric: e.labels for e in last.estimates if e.estimator == "average_confidence"}
    assert labels == {"accuracy": 0, "precision": 2000, "recall": 2000, "ece": 0}


@pytest.mark.slow
def test_what_labels_show_of_classes_survives_a_restart() -> None:
    records, known = wrong_of_one_class(labelled=True), reference()
    settings = {"metrics": ["accuracy", "f1"], "objective": {"f1": {"min": 0.8}}}
    whole = rig(known, **settings).feed(records)
    pieces = rig(known, **settings).feed_in_pieces(records, range(70, 2000, 130), restart=True)
    assert lines(pieces) == lines(whole)
