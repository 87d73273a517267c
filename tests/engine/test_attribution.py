"""An alarm says where: the engine splits the change behind it by group, class and range of confidences."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec
import numpy as np
import pytest

from monitor.base.codec import pack, restored, unpack
from monitor.base.results import Estimate
from monitor.engine.engine import EngineState
from monitor.reports.attribution import Attribution, PartChange, sentence, top_parts
from monitor.reports.reader import from_json
from monitor.reports.window_report import WindowReport, to_json
from tests.streams import CLASSES, Record, Rig, lines, reference_of, task

SIZE = 200
GROUPS = ["region"]
ALL_METRICS = ["accuracy", "ece", "precision", "recall", "specificity", "f1", "auroc"]


def answers(
    rng: np.random.Generator,
    n: int,
    shares: Sequence[float] = (0.2, 0.8),
    fall: float = 0.0,
    start: float = 1.7e9,
    labelled: bool = False,
) -> list[Record]:
    """Return answers of two regions, `eu` with lower confidences; those of `us` are lower by `fall`."""
    records = []
    for i in range(n):
        eu = rng.random() < shares[0]
        confidence = float(rng.beta(7, 3) if eu else max(rng.beta(18, 2) - fall, 0.01))
        predicted = int(rng.random() < 0.4)
        scores = [confidence, 1 - confidence]
        record: Record = {
            "id": f"{start:.0f}-{i}",
            "time": start + i,
            "model": "erm",
            "scores": scores if predicted == 0 else scores[::-1],
            "prediction": CLASSES[predicted],
            "groups": {"region": "eu" if eu else "us"},
        }
        if labelled:
            record["label"] = CLASSES[predicted if rng.random() < confidence else 1 - predicted]
        records.append(record)
    return records


def watched(**settings: object) -> Rig:
    """Return an agent with a labelled reference of ten windows."""
    own = task(window={"size": SIZE, "min_size": 20}, groups=GROUPS, **settings)
    labelled = answers(np.random.default_rng(1), 10 * SIZE, start=1.6e9, labelled=True)
    return Rig(own, {"t": reference_of(own, labelled)})


def of_model(reports: Sequence[WindowReport]) -> list[WindowReport]:
    return [report for report in reports if not report.group]


def incident(rig: Rig, seed: int = 2, **of: object) -> WindowReport:
    """Return the model's report of one more window."""
    of.setdefault("start", 1.7e9 + 1e4 * seed)
    [report] = of_model(rig.feed(answers(np.random.default_rng(seed), SIZE, **of)))
    return report


def test_the_change_is_the_charts_and_its_parts_sum_to_it() -> None:
    report = incident(watched(), shares=(0.6, 0.4))
    [chart], [attribution] = report.charts, report.attributions
    [value] = [e.result.value for e in report.estimates if e.estimator == "average_confidence"]
    assert chart.verdict.rules
    assert attribution.change == pytest.approx(value - chart.verdict.center, abs=1e-6)
    assert math.fsum([*(each.change for each in attribution.parts), attribution.others]) == pytest.approx(
        attribution.change, abs=1e-5
    )
    assert attribution.remainder == 0.0


def test_it_names_the_group_whose_share_grew() -> None:
    report = incident(watched(), shares=(0.6, 0.4))
    [attribution] = report.attributions
    assert (attribution.metric, attribution.by, attribution.alike) == ("accuracy", "group", False)
    first = attribution.parts[0]
    count = sum(
        each["groups"]["region"] == "eu" for each in answers(np.random.default_rng(2), SIZE, (0.6, 0.4))
    )
    assert (first.part, first.share) == ("region=eu", pytest.approx(count / SIZE))
    assert first.share_before == pytest.approx(0.2, abs=0.03)
    assert abs(first.mix) > 2 * abs(first.within)
    assert sentence(attribution).startswith(f"−{-100 * attribution.change:.1f} points: ")
    assert "from region=eu (answers up from " in sentence(attribution)


def test_it_names_the_group_whose_confidences_fell() -> None:
    [attribution] = incident(watched(), fall=0.2).attributions
    first = attribution.parts[0]
    assert (first.part, attribution.by) == ("region=us", "group")
    assert abs(first.within) > 4 * abs(first.mix)
    assert "from region=us (confidences down " in sentence(attribution)


def test_a_window_in_control_says_nothing_and_a_latched_alarm_keeps_its_newest() -> None:
    rig = watched()
    assert incident(rig, seed=3).attributions == ()
    attributions = incident(rig, shares=(0.6, 0.4)).attributions
    calm = incident(rig, seed=4)
    assert (calm.charts[0].verdict.out_of_control, calm.charts[0].verdict.rules) == (True, ())
    assert calm.attributions == ()
    view = next(each for each in rig.engine.view().series if not each.group)
    assert view.attributions == attributions
    for seed in range(5, 13):
        incident(rig, seed=seed)
    view = next(each for each in rig.engine.view().series if not each.group)
    assert (view.state, view.attributions) == ("in_control", ())


def test_a_groups_own_windows_are_split_by_class_and_range_alone() -> None:
    rig = watched()
    reports = rig.feed(answers(np.random.default_rng(2), 3 * SIZE, fall=0.2))
    own = [report for report in reports if report.group == "region=us" and report.attributions]
    assert own
    for report in own:
        parts = {part.part.partition("=")[0] for part in report.attributions[0].parts}
        assert parts <= {"class", "confidence"}


def test_a_baseline_of_the_streams_own_windows_has_its_parts() -> None:
    settings = task(window={"size": SIZE, "min_size": 20}, groups=GROUPS, reference={"first_windows": 10})
    rig = Rig(settings)
    rig.feed(answers(np.random.default_rng(1), 10 * SIZE))
    report = incident(rig, shares=(0.7, 0.3), start=1.8e9)
    assert report.attributions[0].parts[0].part == "region=eu"


@pytest.mark.slow
@pytest.mark.parametrize("restart", [False, True])
def test_neither_cuts_nor_restarts_change_what_is_said(restart: bool) -> None:
    rng = np.random.default_rng(6)
    records = [
        *answers(rng, 250),
        *answers(rng, 400, shares=(0.6, 0.4), start=1.71e9),
        *answers(rng, 200, fall=0.2, start=1.72e9),
    ]
    whole = lines(watched(metrics=ALL_METRICS).feed(records))
    assert sum(b'"attributions"' in line for line in whole) >= 3
    pieces = watched(metrics=ALL_METRICS).feed_in_pieces(records, [1, 130, 199, 420, 421, 600], restart)
    assert lines(pieces) == whole


def test_state_from_before_says_nothing_and_goes_on() -> None:
    """A store of an older version: neither the baseline's parts nor the groups of the open window."""
    rig = watched()
    rig.feed(answers(np.random.default_rng(5), 150))
    state = unpack(pack(rig.engine.snapshot()))
    for _, _, series in state["tasks"]["t"]["series"]:
        for key in ("parts", "warming_parts", "attributions"):
            del series["judge"][key]
        series["windows"].pop("groups", None)
    rig.engine = rig.settings.build(restored(state, EngineState))
    [report] = of_model(rig.feed(answers(np.random.default_rng(2), SIZE - 100, (0.9, 0.1), start=1.8e9)))
    assert report.attributions == ()


def test_a_rebaselined_metric_is_split_against_its_new_baseline() -> None:
    rig = watched()
    assert incident(rig, shares=(0.6, 0.4)).attributions
    [series] = [each for each in rig.engine.series["t"] if not each.settings.group]
    series.rebaseline("accuracy", "a new mix of regions", 1.7e9)
    [progress] = series.view().rebaselining
    assert str(progress) == "new baseline (a new mix of regions): 0 of 20 windows"
    assert next(each for each in rig.engine.view().series if not each.group).attributions == ()
    stream = answers(np.random.default_rng(7), 20 * SIZE, shares=(0.6, 0.4), start=1.75e9)
    rig.feed(stream[: 3 * SIZE])
    assert [each.windows for each in series.view().rebaselining] == [3]
    rig.feed(stream[3 * SIZE :])
    assert series.view().rebaselining == ()
    [attribution] = incident(rig, seed=8, shares=(0.05, 0.95), start=1.8e9).attributions
    assert attribution.change > 0
    assert {part.part: part.share_before for part in attribution.parts}["region=us"] == pytest.approx(
        0.4, abs=0.03
    )


def test_ratios_and_calibration_errors_are_split_and_what_is_left_is_shown() -> None:
    rig = watched(metrics=ALL_METRICS)
    report = incident(rig, fall=0.25)
    attributions = {each.metric: each for each in report.attributions}
    broken = {chart.metric: chart.verdict for chart in report.charts if chart.verdict.rules}
    values = {e.metric: e.result for e in report.estimates if e.estimator == "average_confidence"}
    assert {"accuracy", "precision", "recall", "f1", "auroc"} <= set(broken)
    assert set(attributions) == set(broken) - {"auroc"}, "a ranking is no mean over rows"
    for metric, attribution in attributions.items():
        value = values[metric]
        assert isinstance(value, Estimate)
        assert attribution.change == pytest.approx(value.value - broken[metric].center, abs=2e-6)
        total = math.fsum(
            [*(part.change for part in attribution.parts), attribution.others, attribution.remainder]
        )
        assert total == pytest.approx(attribution.change, abs=1e-5)
        assert abs(attribution.remainder) < 0.1 * abs(attribution.change) + 0.002, metric
        assert attribution.parts[0].part == "region=us", metric
    assert ", split to first order" in sentence(attributions["precision"])


def test_a_chart_of_another_estimator_than_a_mean_of_confidences_says_nothing() -> None:
    estimators = ["average_confidence", "atc"]
    reference = {"path": "reference.ndjson"}
    rig = watched(estimators=estimators, chart={"estimator": "atc"}, reference=reference)
    report = incident(rig, fall=0.3)
    assert report.charts[0].verdict.rules
    assert report.attributions == ()


def test_answers_without_a_group_and_groups_of_later_are_parts_too() -> None:
    rig = watched()
    records = answers(np.random.default_rng(2), SIZE, fall=0.05)
    for i, record in enumerate(records):
        if i % 2:
            record["scores"] = [0.4, 0.6] if record["prediction"] == "ok" else [0.6, 0.4]
            record["groups"] = {"region": "af"} if i % 4 == 1 else {}
    [report] = of_model(rig.feed(records))
    parts = {each.part: each for each in report.attributions[0].parts}
    assert [parts[name].share_before for name in ("region=af", "region=")] == [0.0, 0.0]
    assert [parts[name].share for name in ("region=af", "region=")] == [0.25, 0.25]
    assert parts["region=af"].within == 0.0
    assert "from region=af (answers up from 0 to 25 %)" in sentence(report.attributions[0])
    assert "from no region (answers up from 0 to 25 %)" in sentence(report.attributions[0])


# --- the line and the words --------------------------------------------------------------------------------

EU = PartChange("region=eu", -0.021, -0.003, 0.45, 0.2, 0.71, 0.716)
US = PartChange("region=us", 0.0, -0.005, 0.5, 0.75, 0.9, 0.91)
BACK = PartChange("region=af", 0.004, 0.0, 0.1, 0.05, 0.95, 0.95)


def test_the_line_holds_it_and_reads_it_back() -> None:
    report = incident(watched(), shares=(0.6, 0.4))
    line = to_json(report)
    written = msgspec.json.decode(line)["attributions"][0]
    assert list(written) == ["metric", "change", "by", "parts"] + [k for k in ("others",) if k in written]
    assert set(written["parts"][0]) == {
        *("part", "mix", "within", "share", "share_before", "mean", "mean_before")
    }
    assert to_json(from_json(line)) == line


def test_two_parts_are_told_and_none_that_moved_the_other_way() -> None:
    attribution = Attribution("accuracy", -0.03, "group", (EU, US, BACK), others=-0.005)
    assert [part.part for part in top_parts(attribution)] == ["region=eu", "region=us"]
    assert top_parts(Attribution("accuracy", -0.03, "group", (BACK,))) == []
    assert sentence(Attribution("accuracy", -0.03, "group", (BACK,))) == "−3.0 points"


def test_shares_below_a_point_keep_a_decimal() -> None:
    rare = PartChange("class=toxic", -0.004, 0.0, 0.012, 0.004, 0.5, 0.5)
    assert sentence(Attribution("accuracy", -0.004, "class", (rare,))) == (
        "−0.4 points: 0.4 from class toxic (answers up from 0.4 to 1.2 %)"
    )


def test_what_a_first_order_leaves_is_told() -> None:
    part = PartChange("class=toxic", 0.0, -0.03, 0.3, 0.3, -0.1, 0.0)
    assert sentence(Attribution("recall", -0.04, "class", (part,), remainder=-0.01)) == (
        "−4.0 points, split to first order: 3.0 from class toxic (within it down 10.0 points), remainder −1.0"
    )
