"""A task of predicted numbers: the share within the tolerance without labels, and by labels."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray

from monitor.base.errors import ConfigError
from monitor.base.records import Batch, Keys, no_features
from monitor.base.results import Estimate, Result, Unknown
from monitor.base.source import RawMessages
from monitor.config.task import Window
from monitor.engine.chunks import first_concerned
from monitor.reports.views import LabelOutcome
from monitor.reports.window_report import WindowReport
from tests.nearly import nearly
from tests.numbers import OTHERS, Record, predictions, reference_of_numbers, regression, stated
from tests.streams import Rig, lines, task

REFERENCE = reference_of_numbers(regression(), predictions(1, 2000, start=1.6e9))


def rig(**settings: Any) -> Rig:
    own = regression(**settings)
    known = REFERENCE if not settings else reference_of_numbers(own, predictions(1, 2000, start=1.6e9))
    return Rig({"t": own}, {"t": known})


def values(reports: list[WindowReport], estimator: str) -> list[float]:
    return [
        each.result.value if isinstance(each.result, Estimate) else math.nan
        for report in reports
        for each in report.estimates
        if (each.metric, each.estimator) == ("within_tolerance", estimator)
    ]


def without_label(record: Record) -> Record:
    return {name: value for name, value in record.items() if name != "label"}


@pytest.mark.parametrize("sigma", [False, True])
@pytest.mark.parametrize("shift", [0.0, 1.0])
def test_the_estimate_without_labels_is_near_the_share_by_labels(shift: float, sigma: bool) -> None:
    records = predictions(2, 4000, shift=shift, sigma=sigma)
    truth = np.mean([abs(r["label"] - r["prediction"]) <= 1.5 for r in records])
    known = reference_of_numbers(regression(), predictions(1, 2000, start=1.6e9, sigma=sigma))
    own = Rig({"t": regression()}, {"t": known})
    estimated = values(own.feed(map(without_label, records)), "average_confidence")
    assert len(estimated) == 40
    # Two standard errors of 4,000 rows are 0.015; the calibration on 2,000 rows has as large an error.
    assert abs(np.mean(estimated) - truth) < 0.04


def test_the_reports_are_those_of_a_task_of_the_same_confidences() -> None:
    """The witness sends the confidence of each record, and whether it is right, as another task."""
    records = predictions(3, 1000, labelled=0.5)
    own = rig()
    [batch] = own.decode([_messages(records)]).batches
    confidences = REFERENCE["gbm"].scored(batch).scores[:, 0].tolist()
    plain = [
        {name: r[name] for name in ("id", "time", "model", "features")}
        | {"confidence": confidence}
        | ({"correct": abs(r["label"] - r["prediction"]) <= 1.5} if "label" in r else {})
        for r, confidence in zip(records, confidences, strict=True)
    ]
    settings = task(
        classes=[], metrics=["accuracy", "ece"], features={"x": "number"}, reference={"path": "r"}
    )
    witness = Rig(settings, {"t": REFERENCE}).feed(plain)
    for ours, theirs in zip(own.feed(records), witness, strict=True):
        assert [each.result for each in ours.estimates] == nearly([each.result for each in theirs.estimates])
        charts = [each for each in ours.charts if each.unit is None]
        assert [each.verdict for each in charts] == nearly([each.verdict for each in theirs.charts])
        assert {each.metric for each in ours.estimates} == {"within_tolerance", "ece"}


def _messages(records: list[Record]) -> RawMessages:
    return RawMessages([msgspec.json.encode(r) for r in records], "p", list(range(len(records))))


def test_a_label_along_a_prediction_waits_until_the_window_of_another_model_has_closed() -> None:
    """The label of the last record also reaches the first answer of gbm, whose window closes before it."""
    answer = {"time": 1.7e9, "prediction": 1.0}
    records = [answer | {"id": str(i), "model": "gbm"} for i in range(10)]
    records.append(answer | {"id": "0", "model": "net", "label": 2.0})
    [batch] = rig().decode([_messages(records)]).batches

    def waiting(answers: Batch) -> int:
        def is_stored(keys: Keys, model: str) -> NDArray[np.bool_]:
            return np.zeros(len(keys), dtype=np.bool_)

        settings = Window(size=10, min_size=10)
        return first_concerned(answers, None, answers.time, 1.7e9, {}, settings, is_stored)

    assert waiting(batch) == 10
    # A label of a confidence says whether net was right.
    assert waiting(replace(batch, numbers=no_features(11))) == 11


def test_late_labels_are_compared_with_the_stored_prediction() -> None:
    records = predictions(4, 500)
    along = rig()
    along.feed(records)
    late = rig()
    late.feed(map(without_label, records))
    late.feed([{"id": r["id"], "label": r["label"], "time": r["time"]} for r in records])
    counts = [(one.labelled, one.correct) for each in (along, late) for one in each.engine.view().series]
    right = sum(abs(r["label"] - r["prediction"]) <= 1.5 for r in records)
    assert counts == [(500, right), (500, right)]


def test_a_label_before_its_answer_waits_as_a_number() -> None:
    records = predictions(5, 200)
    early = rig()
    early.feed([{"id": r["id"], "label": r["label"], "time": r["time"]} for r in records])
    early.restart()
    early.feed(map(without_label, records))
    [one] = early.engine.view().series
    right = sum(abs(r["label"] - r["prediction"]) <= 1.5 for r in records)
    assert (one.labelled, one.correct) == (200, right)


def test_labels_conflict_if_they_differ_by_more_than_a_billionth() -> None:
    answer = {"id": "a", "time": 1.7e9, "model": "gbm", "prediction": 1000.0, "features": {"x": 0.0}}
    label = {"id": "a", "time": 1.7e9}
    own = rig()
    own.feed([answer, label | {"label": 1000.0}])
    own.feed([label | {"label": 1000.0 + 5e-7}])  # the same number, written by another program
    own.feed([label | {"label": 1009.0}, label | {"label": 1009.0}, label | {"label": 1010.0}])
    outcomes = own.engine.view().labels
    assert outcomes["t", LabelOutcome.MATCHED] == 1
    assert outcomes["t", LabelOutcome.DUPLICATE] == 2
    assert outcomes["t", LabelOutcome.CONFLICTING] == 2
    [one] = own.engine.view().series
    assert (one.labelled, one.correct) == (1, 0)


def test_one_label_reaches_every_model_and_each_by_its_own_error() -> None:
    known = [
        record | {"model": model} for model in ("gbm", "net") for record in predictions(1, 1000, start=1.6e9)
    ]
    settings = regression()
    own = Rig({"t": settings}, {"t": reference_of_numbers(settings, known)})
    features = {"features": {"x": 0.0}, "time": 1.7e9}
    own.feed([features | {"id": "a", "models": {"gbm": 10.0, "net": 20.0}}])
    own.feed([{"id": "a", "label": 10.5, "time": 1.7e9}])
    series = {one.model: (one.labelled, one.correct) for one in own.engine.view().series}
    assert series == {"gbm": (1, 1), "net": (1, 0)}


@pytest.mark.parametrize("restart", [False, True])
def test_cuts_and_restarts_change_no_byte(restart: bool) -> None:
    records = predictions(6, 450, labelled=0.3)
    records += [{"id": r["id"], "label": r["prediction"], "time": r["time"]} for r in records[:50]]
    whole = lines(rig().feed(records))
    assert lines(rig().feed_in_pieces(records, [7, 130, 260, 455], restart)) == whole


def test_a_model_that_the_reference_lacks_has_the_spread_of_all_models() -> None:
    records = predictions(7, 400, model="new")
    estimated = values(rig().feed(map(without_label, records)), "average_confidence")
    truth = np.mean([abs(r["label"] - r["prediction"]) <= 1.5 for r in records])
    assert abs(np.mean(estimated) - truth) < 0.06  # two standard errors of 400 rows are 0.045


def test_a_row_without_its_features_is_judged_by_its_prediction() -> None:
    records = [without_label(r) for r in predictions(8, 2000)]
    bare = [{name: value for name, value in r.items() if name != "features"} for r in records]
    whole, by_prediction = (
        np.mean(values(rig().feed(each), "average_confidence")) for each in (records, bare)
    )
    assert abs(whole - by_prediction) < 0.02  # here the prediction shows as much as the feature


def _as_quantiles(record: Record) -> Record:
    """Return a record with the quantiles of a normal distribution instead of its deviation."""
    number, sigma = record["prediction"], record["sigma"]
    quantiles = {"0.1587": number - sigma, "0.8413": number + sigma}
    return {name: value for name, value in record.items() if name != "sigma"} | {"quantiles": quantiles}


def test_a_spread_that_the_reference_lacks_is_not_used() -> None:
    records = [without_label(r) for r in predictions(12, 200, sigma=True)]
    bare = [{name: value for name, value in r.items() if name != "sigma"} for r in records]
    assert lines(rig().feed(records)) == lines(rig().feed(bare))


def test_quantiles_count_like_the_deviation_that_they_imply() -> None:
    records = [without_label(r) for r in predictions(9, 300, sigma=True)]
    by_quantiles = list(map(_as_quantiles, records))
    settings = regression(quantiles=[0.1587, 0.8413])
    results = []
    reference = predictions(1, 2000, start=1.6e9, sigma=True)
    for first, each in ((reference, records), (map(_as_quantiles, reference), by_quantiles)):
        known = reference_of_numbers(settings, first)
        results.append(values(Rig({"t": settings}, {"t": known}).feed(each), "average_confidence"))
    assert results[0] == pytest.approx(results[1], abs=2e-3)  # a step of isotonic regression


def test_the_default_tolerance_holds_four_of_five_errors_of_the_reference() -> None:
    one = rig(tolerance=None).settings.references["t"]["gbm"]
    assert (one.labels == 0).mean() == pytest.approx(0.8, abs=1e-3)


def test_a_tolerance_relative_to_the_prediction() -> None:
    own = rig(tolerance=None, relative_tolerance=0.1)
    records = predictions(10, 1000)
    own.feed(records)
    [one] = own.engine.view().series
    right = sum(abs(r["label"] - r["prediction"]) <= 0.1 * abs(r["prediction"]) for r in records)
    assert one.correct == right


def test_an_engine_without_a_reference_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"^tasks\.t\.reference: expected labelled answers, which show how"):
        Rig({"t": regression()})


@pytest.mark.parametrize(
    ("records", "settings", "text"),
    [
        (predictions(1, 150), {}, "the size of the errors needs at least 200 labelled rows, got 150"),
        (
            [*predictions(1, 300), *predictions(1, 20, model="net")],
            {},
            "model net: the size of the errors needs at least 200 labelled rows, got 20",
        ),
        (
            [record | {"label": record["prediction"]} for record in predictions(1, 300)],
            {"tolerance": None},
            "80 % of the reference's errors are 0, so no tolerance follows from them; give tolerance",
        ),
    ],
)
def test_a_reference_that_cannot_show_the_errors_is_refused(
    records: list[Record], settings: dict[str, Any], text: str
) -> None:
    with pytest.raises(ValueError, match=text):
        reference_of_numbers(regression(**settings), records)


@pytest.mark.parametrize("field", ["prediction", "label"])
def test_a_reference_with_an_absurd_number_is_refused_by_its_row(field: str) -> None:
    records = predictions(1, 300)
    absurd = [*records[:7], records[7] | {"prediction": 1.0, "label": 1.0, field: -1e100}, *records[8:]]
    with pytest.raises(
        ValueError,
        match=r"answer 8 in the order of time, of model gbm: expected a prediction and a label from",
    ) as caught:
        reference_of_numbers(regression(), absurd)
    assert "-1e+100" in str(caught.value)


def test_the_largest_errors_of_a_reference_raise_no_warning() -> None:
    records = predictions(1, 300)
    records[7] |= {"prediction": -1e50, "label": 1e50}
    own = regression(tolerance=3.0)
    reports = Rig({"t": own}, {"t": reference_of_numbers(own, records)}).feed(predictions(2, 100))
    assert len(errors_of(reports, "doubly_robust")[0]) == 3


def test_a_reference_keeps_its_order_of_time_and_its_groups() -> None:
    known = [r | {"groups": {"region": "eu"}} for r in predictions(1, 300, start=1.6e9)]
    settings = regression(groups=["region"])
    forwards, backwards = (reference_of_numbers(settings, each)["gbm"] for each in (known, known[::-1]))
    assert list(forwards.groups) == ["region=eu"]
    assert forwards.labels.tolist() == backwards.labels.tolist()


@pytest.mark.simulation
def test_intervals_hold_the_share_by_labels() -> None:
    """Windows of 500 rows: 95 % intervals must hold the share of the window's own rows."""
    rng = np.random.default_rng(11)
    held = []
    for trial in range(40):
        settings = regression(window={"size": 500, "min_size": 20, "max_age_seconds": 1e9})
        known = reference_of_numbers(settings, predictions(int(rng.integers(1e9)), 4000, start=1.6e9))
        shift = (0.0, 0.5, 1.0)[trial % 3]
        records = predictions(int(rng.integers(1e9)), 2500, shift=shift)
        reports = Rig({"t": settings}, {"t": known}).feed(map(without_label, records))
        for k, report in enumerate(reports):
            [result] = [
                each.result
                for each in report.estimates
                if (each.metric, each.estimator) == ("within_tolerance", "average_confidence")
            ]
            own = records[500 * k : 500 * (k + 1)]
            share = np.mean([abs(r["label"] - r["prediction"]) <= 1.5 for r in own])
            assert isinstance(result, Estimate)
            held.append(result.lower <= share <= result.upper)
    assert len(held) == 200
    # 95 % of 200 windows have a binomial standard error of 1.5 points; windows of a trial share a reference.
    assert np.mean(held) >= 0.92


def errors_of(reports: list[WindowReport], estimator: str) -> list[dict[str, Result]]:
    """Return the metrics of errors of each report by one estimator."""
    return [
        {each.metric: each.result for each in report.values if each.estimator == estimator}
        for report in reports
    ]


def truth_of(records: list[Record]) -> dict[str, float]:
    errors = np.array([r["prediction"] - r["label"] for r in records])
    return {
        "mae": float(np.abs(errors).mean()),
        "rmse": float(np.sqrt((errors**2).mean())),
        "bias": float(errors.mean()),
    }


def others_of(records: list[Record]) -> dict[str, float]:
    """Return the metrics of `OTHERS` of labelled records."""
    labels = np.array([r["label"] for r in records])
    errors = np.array([r["prediction"] - r["label"] for r in records])
    inside = [
        r["quantiles"]["0.1"] <= r["label"] <= r["quantiles"]["0.9"] for r in records if "quantiles" in r
    ]
    return {
        "mae": float(np.abs(errors).mean()),
        "mape": float(np.abs(errors / labels).mean()),
        "wape": float(np.abs(errors).sum() / np.abs(labels).sum()),
        "coverage": float(np.mean(inside)),
        "r2": float(1 - (errors**2).mean() / labels.var()),
    }


def rig_of_others(share: float = 1.0, **more: Any) -> Rig:
    """Return a rig of `OTHERS`, whose reference has quantiles in a share of the rows."""
    own = regression(**OTHERS | more)
    return Rig({"t": own}, {"t": reference_of_numbers(own, stated(predictions(1, 2000, start=1.6e9), share))})


def value_of(result: Result) -> float:
    assert isinstance(result, Estimate), result
    return result.value


@pytest.mark.parametrize("late", [False, True])
def test_the_realised_errors_are_those_of_the_windows_labels(late: bool) -> None:
    records = predictions(14, 300)
    own = rig(unit="minutes")
    reports = own.feed(map(without_label, records) if late else records)
    if late:
        own.feed([{"id": r["id"], "label": r["label"], "time": r["time"]} for r in records])
        reports = own.engine.finish()
    for k, by_metric in enumerate(errors_of(reports, "realised")):
        realised = {metric: value_of(result) for metric, result in by_metric.items()}
        assert realised == nearly(truth_of(records[100 * k : 100 * (k + 1)]))
    assert len(reports) == 3
    assert {each.unit for report in reports for each in report.values} == {"minutes"}
    [view] = own.engine.view().series
    assert {e.metric: value_of(e.result) for e in view.values if e.estimator == "realised"} == nearly(
        truth_of(records[200:])
    )


def test_a_label_that_replaces_another_one_changes_the_realised_errors() -> None:
    records = predictions(15, 100)
    label = {"id": records[3]["id"], "time": records[3]["time"]}
    whole, replaced = rig(), rig()
    truth = truth_of([*records[:3], records[3] | {"label": 25.0}, *records[4:]])
    for own, first in ((whole, []), (replaced, [label | {"label": 99.0}])):
        own.feed(records)
        own.feed([*first, label | {"label": 25.0}])
        own.restart()
        [view] = own.engine.view().series
        assert {e.metric: value_of(e.result) for e in view.values if e.estimator == "realised"} == nearly(
            truth
        )


def test_a_correction_to_the_predicted_number_counts_alike_in_one_chunk_and_over_restarts() -> None:
    records = predictions(15, 100)
    by_id = {"id": records[3]["id"], "time": records[3]["time"]}
    right = records[3]["prediction"]
    other = {"id": records[4]["id"], "time": records[4]["time"], "label": records[4]["prediction"] + 3.0}
    labels = [by_id | {"label": right + 5.0}, by_id | {"label": right}, other]
    whole, pieces = rig(), rig()
    for own in (whole, pieces):
        own.feed(map(without_label, records))
    whole.feed(labels)
    for label in labels:
        pieces.feed([label])
        pieces.restart()
    for own in (whole, pieces):
        [view] = own.engine.view().series
        [mae] = [e.result for e in view.values if (e.metric, e.estimator) == ("mae", "realised")]
        assert value_of(mae) == nearly(1.5)


@pytest.mark.parametrize("how", ["along", "late", "early", "without ids"])
def test_realised_metrics_without_a_unit_are_those_of_the_windows_labels(how: str) -> None:
    records = stated(predictions(23, 200), share=0.7)
    answers = [without_label(r) for r in records] if how in ("late", "early") else records
    labels = [{name: r[name] for name in ("id", "time", "label")} for r in records]
    if how == "without ids":
        answers = [{name: value for name, value in r.items() if name != "id"} for r in records]
    own = rig_of_others()
    reports = own.feed([*labels, *answers] if how == "early" else answers)
    if how == "late":
        own.restart()
        own.feed(labels)
        reports = own.engine.finish()
    for k, by_metric in enumerate(errors_of(reports, "realised")):
        realised = {metric: value_of(result) for metric, result in by_metric.items()}
        assert realised == nearly(others_of(records[100 * k : 100 * (k + 1)])), k
    assert len(reports) == 2
    assert {(each.metric, each.unit) for each in reports[0].values} == {
        *((metric, "ratio") for metric in ("mape", "wape", "coverage", "r2")),
        ("mae", ""),
    }


def test_a_corrected_label_changes_the_metrics_without_a_unit() -> None:
    records = stated(predictions(24, 100))
    by_id = {name: records[3][name] for name in ("id", "time")}
    wrong, right = records[3] | {"label": 0.0}, records[3]
    own = rig_of_others()
    own.feed([*records[:3], wrong, *records[4:]])
    [view] = own.engine.view().series
    results = {each.metric: each.result for each in view.values if each.estimator == "realised"}
    assert results["mape"] == Unknown("a label is 0")
    assert all(isinstance(result, Estimate) for metric, result in results.items() if metric != "mape")
    own.restart()
    own.feed([by_id | {"label": right["label"]}])
    own.restart()
    [view] = own.engine.view().series
    assert {e.metric: value_of(e.result) for e in view.values if e.estimator == "realised"} == nearly(
        others_of(records)
    )


def test_reports_of_metrics_without_a_unit_do_not_depend_on_chunks_and_restarts() -> None:
    records = stated(predictions(25, 300), share=0.8)
    rng, stream = np.random.default_rng(25), []
    for i, record in enumerate(records):
        stream.append(record if i % 3 == 0 else without_label(record))
        old = records[rng.integers(0, i + 1)]
        stream.append(
            {"id": old["id"], "time": old["time"], "label": old["label"] + float(rng.integers(0, 2))}
        )
    whole = rig_of_others()
    expected = lines([*whole.feed(stream), *whole.engine.finish()])
    assert b'"coverage"' in expected[0]
    for cuts in ([1, 250, 420], list(range(0, 600, 17))):
        own = rig_of_others()
        assert lines([*own.feed_in_pieces(stream, cuts, restart=True), *own.engine.finish()]) == expected


def test_labels_along_answers_without_ids_count() -> None:
    records = [{k: v for k, v in r.items() if k != "id"} for r in predictions(16, 100)]
    [by_metric] = errors_of(rig().feed(records), "realised")
    assert {metric: value_of(result) for metric, result in by_metric.items()} == nearly(truth_of(records))


def test_the_errors_without_labels_are_near_those_by_labels() -> None:
    records = predictions(17, 2000, shift=0.5)
    own = rig(window={"size": 2000, "min_size": 20, "max_age_seconds": 1e9})
    [estimated] = errors_of(own.feed(map(without_label, records)), "doubly_robust")
    truth = truth_of(records)
    for metric, result in estimated.items():
        assert isinstance(result, Estimate)
        assert result.lower < truth[metric] < result.upper, metric
        assert result.n == 2000


def test_metrics_without_a_unit_are_estimated_without_labels() -> None:
    records = stated(predictions(26, 2000, shift=0.5))
    own = rig_of_others(window={"size": 2000, "min_size": 20, "max_age_seconds": 1e9})
    [estimated] = errors_of(own.feed(map(without_label, records)), "doubly_robust")
    truth = others_of(records)
    assert list(estimated) == OTHERS["error_metrics"]
    for metric, result in estimated.items():
        assert isinstance(result, Estimate), (metric, result)
        assert result.lower < truth[metric] < result.upper, (metric, result, truth[metric])


def test_coverage_is_unknown_without_quantiles() -> None:
    bare = [{n: v for n, v in r.items() if n != "quantiles"} for r in stated(predictions(27, 100))]
    for metrics in (["mae", "coverage"], ["coverage"]):
        [report] = rig_of_others(0.05, error_metrics=metrics).feed(bare)
        for estimator in ("doubly_robust", "realised"):
            [by_metric] = errors_of([report], estimator)
            assert by_metric["coverage"] == Unknown("no quantiles stated"), estimator
            assert all(isinstance(by_metric[metric], Estimate) for metric in metrics[:-1])


@pytest.mark.parametrize("labels", [(0.0, 5.0), (-3.0, 5.0)])
def test_mape_is_refused_where_labels_are_not_of_one_sign(labels: tuple[float, float]) -> None:
    own = regression(error_metrics=["mape"], features={})
    records = [r | {"label": labels[i % 2]} for i, r in enumerate(predictions(1, 300))]
    with pytest.raises(
        ValueError, match="mape needs labels that are all above 0 or all below 0, got"
    ) as error:
        reference_of_numbers(own, records)
    assert f"labels from {labels[0]:g} to 5; write wape in place of mape in error_metrics" in str(error.value)


def test_mape_is_refused_where_a_label_is_tiny() -> None:
    records = stated(predictions(1, 300))
    records[7]["label"] = 1e-154
    message = (
        r"the metric mape needs errors of up to 1e\+50 times the label, got prediction .* and label 1e-154; "
        "correct or remove the row, or write wape in place of mape in error_metrics"
    )
    with pytest.raises(ValueError, match=message):
        reference_of_numbers(regression(error_metrics=["mape"]), records)
    own = regression(error_metrics=["wape"])
    reference = reference_of_numbers(own, records)["gbm"]
    assert not isinstance(reference.losses(own.features, metrics=["wape"]), Unknown)


def test_a_state_without_the_terms_of_a_new_metric_goes_on() -> None:
    records = stated(predictions(28, 250))
    own = rig_of_others(error_metrics=["mae"])
    own.feed(records[:150])
    state = own.engine.snapshot()
    join = state.tasks["t"].join
    assert join.answers is not None
    assert "lower" not in join.answers.columns
    later = rig_of_others()
    later.offset = own.offset
    later.engine = later.settings.build(state)
    first, second = errors_of(
        later.feed([*records[150:], *stated(predictions(29, 50, start=1.8e9))]), "realised"
    )
    assert value_of(first["mae"]) == nearly(others_of(records[100:200])["mae"])
    for metric in ("mape", "wape", "coverage", "r2"):
        assert first[metric] == Unknown("window begun by an older version"), metric
        assert isinstance(second[metric], Estimate), metric
    label = {name: records[120][name] for name in ("id", "time")} | {"label": 77.0}
    later.feed([label])
    later.restart()


def test_the_bias_of_a_model_that_predicts_too_much_is_above_zero() -> None:
    def too_much(records: list[Record]) -> list[Record]:
        return [r | {"label": r["label"] - 3.0} for r in records]

    settings = regression()
    known = reference_of_numbers(settings, too_much(predictions(1, 2000, start=1.6e9)))
    for ids in (True, False):
        records = too_much(predictions(21, 400))
        if not ids:
            records = [{name: value for name, value in r.items() if name != "id"} for r in records]
        reports = Rig({"t": settings}, {"t": known}).feed(records)
        for estimator in ("doubly_robust", "realised"):
            for by_metric in errors_of(reports, estimator):
                assert value_of(by_metric["bias"]) == pytest.approx(3.0, abs=0.7), (estimator, ids)


def test_errors_without_labels_are_unknown_with_a_reason() -> None:
    far = [without_label(r) for r in predictions(18, 100, shift=9.0)]
    bare = [{name: value for name, value in r.items() if name != "features"} for r in far]
    other = [r | {"model": "new"} for r in far]
    for records, reason in (
        (far, "features beyond the reference"),
        (bare, "features missing"),
        (other, "no labelled reference"),
    ):
        [by_metric] = errors_of(rig().feed(records), "doubly_robust")
        assert list(by_metric) == ["mae", "rmse", "bias"]
        assert set(by_metric.values()) == {Unknown(reason)}, reason


def test_a_group_has_the_errors_of_its_own_rows_of_the_reference() -> None:
    def grouped(seed: int, n: int, start: float) -> list[Record]:
        """Return records of three groups; the errors of us are three times as large, and few are of asia."""
        records = predictions(seed, n, start=start)
        for i, record in enumerate(records):
            region = "asia" if i % 50 == 0 else ("eu", "us")[i % 2]
            record["groups"] = {"region": region}
            if region == "us":
                record["label"] = record["prediction"] + 3 * (record["label"] - record["prediction"])
        return records

    settings = regression(groups=["region"])
    known = reference_of_numbers(settings, grouped(1, 2000, 1.6e9))
    records = grouped(19, 5000, 1.7e9)
    reports = Rig({"t": settings}, {"t": known}).feed(map(without_label, records))
    newest = {report.group: report for report in reports}
    mae = {
        group: next(e.result for e in report.values if e.metric == "mae") for group, report in newest.items()
    }
    assert value_of(mae["region=us"]) > 2 * value_of(mae["region=eu"])
    assert mae["region=asia"] == Unknown("too few labelled rows in the reference")


def test_a_task_without_metrics_of_errors_reports_none() -> None:
    reports = rig(error_metrics=[]).feed(predictions(20, 100))
    assert [report.values for report in reports] == [()]
    assert b"values" not in lines(reports)[0]


def test_a_state_without_predictions_and_labels_of_older_versions_opens() -> None:
    records = predictions(21, 150)
    own = rig()
    own.feed(records)
    state = own.engine.snapshot()
    task_state = state.tasks["t"]
    model, group, series = task_state.series[0]
    assert series.windows is not None
    assert series.windows.features is not None
    assert series.tally is not None
    old = msgspec.structs.replace(
        series,
        windows=msgspec.structs.replace(series.windows, features=series.windows.features[:, :1]),
        tally=msgspec.structs.replace(series.tally, errors=[]),
    )
    join = msgspec.structs.replace(task_state.join, truths=False)
    state.tasks["t"] = msgspec.structs.replace(task_state, series=[(model, group, old)], join=join)
    resumed = own.settings.build(state)
    assert [view.windows_closed for view in resumed.view().series] == [1]
    own.engine = resumed
    label = {"id": records[120]["id"], "time": records[120]["time"]}
    report = own.feed([label | {"label": 99.0}, *predictions(22, 50, start=1.8e9)])[0]
    [estimated], [realised] = errors_of([report], "doubly_robust"), errors_of([report], "realised")
    assert estimated["mae"] == Unknown("window begun by an older version")
    assert isinstance(realised["mae"], Estimate)
    assert realised["mae"].n == 51  # 50 labels, and the replaced one, whose former number is unknown
