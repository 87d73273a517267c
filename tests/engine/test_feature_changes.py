"""The engine splits the change behind an alarm over features, beside its split over groups."""

from __future__ import annotations

import math
import re
from functools import cache
from typing import Any

import msgspec
import numpy as np
import pytest

from monitor.base.codec import pack, restored, unpack
from monitor.base.results import Estimate
from monitor.config.root import Task
from monitor.engine import feature_changes
from monitor.engine.engine import EngineState
from monitor.engine.reference import Reference
from monitor.reports.attribution import (
    Attribution,
    FeatureChanges,
    FeaturePart,
    PartChange,
    sentence,
    top_features,
)
from monitor.reports.reader import from_json
from monitor.reports.window_report import WindowReport, to_json
from tests.numbers import delays, reference_of_numbers, regression
from tests.streams import CLASSES, Record, Rig, lines, reference_of, task

WINDOW = 250
FEATURES = {"hour": "number", "distance": "number", "carrier": "text"}
ALL_METRICS = ["accuracy", "ece", "precision", "recall", "auroc"]


def watched(**settings: Any) -> Task:
    defaults = {
        "window": {"size": WINDOW},
        "features": FEATURES,
        "groups": ["region"],
        "reference": {"path": "reference.ndjson"},
        "estimators": ["average_confidence"],
    }
    return task(**(defaults | settings))


def flights(seed: int, n: int, start: float = 1.7e9, labelled: bool = False, **changed: Any) -> list[Record]:
    """Return answers of a model that is less sure late in the day and for long distances.

    Parameters
    ----------
    seed, n : int
    start : float
    labelled : bool
    changed
        `later` adds hours, `lost` is the share of rows without the hour, `new` the share of carriers that the
        reference lacks, `unsure` lowers the logits of all answers, and `wrong` is the share of right answers
        that are labelled as wrong.
    """
    rng = np.random.default_rng(seed)
    hour = rng.normal(12, 4, n) + changed.get("later", 0.0)
    distance = rng.gamma(4, 300, n)
    carrier = np.where(rng.random(n) < changed.get("new", 0.0), "Z", rng.choice(["A", "B", "C"], n))
    lost = rng.random(n) < changed.get("lost", 0.0)
    seen = np.where(lost, 22.0, hour)
    logit = 2.5 - 0.2 * (seen - 12) - (distance - 1200) / 1000 - 2.0 * (carrier == "Z")
    confidence = 0.5 + 0.49 / (1 + np.exp(changed.get("unsure", 0.0) - logit + rng.normal(0, 0.3, n)))
    says, right = rng.integers(0, 2, n), rng.random(n) < confidence * (1 - changed.get("wrong", 0.0))
    records = []
    for i, p in enumerate(confidence.tolist()):
        features = {"hour": float(hour[i]), "distance": float(distance[i]), "carrier": str(carrier[i])}
        if lost[i]:
            del features["hour"]
        record = {
            "id": f"{seed}-{start:.0f}-{i}",
            "time": start + i,
            "model": "erm",
            "scores": [1 - p, p] if says[i] else [p, 1 - p],
            "groups": {"region": "us" if i % 3 else "eu"},
            "features": features,
        }
        if labelled:
            record["label"] = CLASSES[says[i] if right[i] else 1 - says[i]]
        records.append(record)
    return records


@cache
def reference() -> dict[str, Reference]:
    return reference_of(watched(), flights(0, 4000, start=1.6e9, labelled=True))


def rig(**settings: Any) -> Rig:
    return Rig(watched(**settings), {"t": reference()})


def of_model(reports: list[WindowReport]) -> list[WindowReport]:
    return [report for report in reports if not report.group]


def attributed(one: Rig, seed: int = 1, **changed: Any) -> Attribution:
    """Return the attribution of the accuracy in one more window."""
    changed.setdefault("start", 1.7e9 + 1e4 * seed)
    [report] = of_model(one.feed(flights(seed, WINDOW, **changed)))
    return next(each for each in report.attributions if each.metric == "accuracy")


def split_of(one: Rig, seed: int = 1, **changed: Any) -> FeatureChanges:
    split = attributed(one, seed, **changed).features
    assert split is not None
    return split


@pytest.mark.parametrize(
    ("changed", "named"),
    [({"later": 5.0}, "hour"), ({"lost": 0.4}, "hour"), ({"new": 0.4}, "carrier"), ({"unsure": 2.0}, "")],
)
def test_it_names_the_feature_that_changed(changed: dict[str, float], named: str) -> None:
    split = split_of(rig(), **changed)
    assert [part.feature for part in split.parts][:1] == ([named] if named else [])
    assert split.remainder_named == (not named)
    assert split.change < -0.03
    largest = split.parts[0].change if named else split.remainder
    assert largest < 0.7 * split.change
    if named:
        part = split.parts[0]
        assert part.missing == pytest.approx(changed.get("lost", 0.0), abs=0.1)
        assert part.unseen >= 0.5 * changed.get("new", 0.0)
        assert 0 < part.standard_error < abs(part.change) / 2


def test_the_parts_sum_to_the_change_of_the_chart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feature_changes, "rounded", lambda split: split)
    one = rig(metrics=ALL_METRICS)
    [report] = of_model(one.feed(flights(1, WINDOW, later=5.0)))
    centers = {chart.metric: chart.verdict.center for chart in report.charts}
    values = {e.metric: e.result for e in report.estimates if e.estimator == "average_confidence"}
    assert {"accuracy", "precision"} <= {each.metric for each in report.attributions}
    for each in report.attributions:
        split = each.features
        assert split is not None
        parts = [part.change for part in split.parts]
        total = math.fsum([*parts, split.others, split.step, split.remainder])
        assert total == pytest.approx(split.change, abs=1e-9), each.metric
        assert split.change == pytest.approx(values[each.metric].value - centers[each.metric], abs=1e-9)
    monkeypatch.undo()
    rounded = feature_changes.rounded(split)
    assert rounded.change == round(split.change, 6)
    assert abs(rounded.step - split.step) < 1e-6


def test_the_same_alarm_is_split_again_only_after_a_larger_change() -> None:
    one = rig()
    first = attributed(one, 1, later=3.0)
    assert first.features is not None
    second = attributed(one, 2, later=3.0)
    assert second.change != first.change
    assert second.features == first.features
    third = attributed(one, 3, later=6.0)
    assert third.features is not None
    assert (first.features.window, third.features.window) == (0, 2)
    assert third.features.change == third.change
    assert f"by feature, {100 * first.change:+.1f} points in window 0: ".replace("-", "−") in sentence(second)
    assert "; by feature: " in sentence(third)


def test_a_breached_objective_is_split_where_no_rule_is_broken() -> None:
    one = rig(objective={"accuracy": {"min": 0.95}}, chart={"min_change": 0.2})
    reports = of_model(one.feed([*flights(1, 2 * WINDOW), *flights(2, 3 * WINDOW, start=1.71e9, later=4.0)]))
    assert not any(report.charts[0].verdict.rules for report in reports)
    breached = [report for report in reports if report.objectives[0].state == "breached"]
    assert breached
    for report in reports:
        assert bool(report.attributions) == (report in breached)
    split = breached[0].attributions[0].features
    assert split is not None
    assert [part.feature for part in split.parts] == ["hour"]


def test_labels_show_a_further_change_at_the_same_features_and_scores() -> None:
    one = rig()
    one.feed(flights(5, 2 * WINDOW, start=1.69e9, labelled=True, wrong=0.3))
    attribution = attributed(one, later=5.0, labelled=True, wrong=0.3)
    drift = attribution.concept_drift
    assert drift is not None
    assert drift.lower < drift.change < drift.upper < 0
    assert -0.3 < drift.change < -0.1
    assert drift.labels == 3 * WINDOW
    assert "points by labels (right answers became wrong at the same features and scores)" in sentence(
        attribution
    )
    line = lines(of_model(one.feed(flights(2, WINDOW, start=1.75e9, later=6.0, labelled=True, wrong=0.3))))[0]
    assert to_json(from_json(line)) == line
    assert b'"concept_drift":{"change":-0.' in line
    assert attributed(rig(), later=5.0, labelled=True).concept_drift is None
    assert attributed(rig(), later=5.0).concept_drift is None


def test_a_new_alarm_is_split_anew() -> None:
    one = rig()
    split_of(one, 1, later=6.0)
    one.feed(flights(2, 9 * WINDOW, start=1.75e9))
    assert split_of(one, 3, later=4.0, start=1.8e9).window == 10


@pytest.mark.parametrize("restart", [False, True])
def test_neither_cuts_nor_restarts_change_the_split(restart: bool) -> None:
    records = [*flights(1, 300), *flights(2, 500, start=1.71e9, later=5.0), *flights(3, 300, start=1.72e9)]
    whole = lines(rig().feed(records))
    assert sum(b'"features"' in line for line in whole) >= 2
    assert lines(rig().feed_in_pieces(records, [1, 130, 249, 420, 421, 600], restart)) == whole


def test_a_state_from_before_opens_and_its_alarm_is_split_at_the_next_window() -> None:
    one = rig()
    split_of(one, 1, later=5.0)
    state = unpack(pack(one.engine.snapshot()))
    for _, _, series in state["tasks"]["t"]["series"]:
        for attribution in series["judge"]["attributions"].values():
            attribution.pop("features", None)
    one.engine = one.settings.build(restored(state, EngineState))
    assert split_of(one, 2, later=5.0).window == 1


def test_without_a_reference_there_is_a_reason() -> None:
    one = Rig(watched(reference={"first_windows": 10}))
    one.feed(flights(1, 10 * WINDOW))
    attribution = attributed(one, 2, later=6.0, start=1.8e9)
    split = attribution.features
    assert split is not None
    assert (split.reason, split.parts) == ("no labelled reference", ())
    assert sentence(attribution).endswith("; not split by feature: no labelled reference")


def test_a_reference_whose_rows_lack_features_has_a_reason() -> None:
    rows = flights(0, 4000, start=1.6e9, labelled=True)
    for i, record in enumerate(rows):
        del record["features"]["hour" if i % 2 else "distance"]
    one = Rig(watched(), {"t": reference_of(watched(), rows)})
    assert split_of(one, later=6.0, unsure=1.0).reason == "too few rows of the reference have all features"


def test_groups_and_tasks_without_features_have_no_split() -> None:
    reports = rig().feed(flights(1, 4 * WINDOW, later=6.0))
    own = [each for report in reports if report.group for each in report.attributions]
    assert own
    assert [each.features for each in own] == [None] * len(own)
    bare = watched(features={})
    plain = Rig(bare, {"t": reference_of(bare, flights(0, 4000, start=1.6e9, labelled=True))})
    assert attributed(plain, later=5.0).features is None


@pytest.mark.parametrize("method", ["none", "covariates"])
def test_it_holds_with_any_calibration(method: str) -> None:
    settings = watched(calibration={"method": method})
    known = reference_of(settings, flights(0, 4000, start=1.6e9, labelled=True))
    split = split_of(Rig(settings, {"t": known}), later=4.0)
    assert [part.feature for part in split.parts][:1] == ["hour"]


# --- the line and the words --------------------------------------------------------------------------------

HOUR = FeaturePart("hour", -0.05, 0.004, 0.0, 0.38)
CARRIER = FeaturePart("carrier", -0.01, 0.002, 0.3, 0.0)
DISTANCE = FeaturePart("distance", 0.008, 0.002, 0.0, 0.001)


def in_words(**split: Any) -> str:
    part = PartChange("region=eu", -0.02, -0.004, 0.45, 0.2, 0.71, 0.716)
    changes = FeatureChanges(**({"window": 12, "change": -0.07} | split))
    return sentence(Attribution("accuracy", -0.07, "group", (part,), features=changes))


def test_the_line_holds_it_and_reads_it_back() -> None:
    [report] = of_model(rig().feed(flights(1, WINDOW, lost=0.4)))
    line = to_json(report)
    written = msgspec.json.decode(line)["attributions"][0]["features"]
    assert list(written)[:3] == ["window", "change", "parts"]
    assert set(written["parts"][0]) == {"feature", "change", "standard_error", "missing", "unseen"}
    assert to_json(from_json(line)) == line
    assert from_json(line).attributions == report.attributions


def test_two_features_are_named_and_none_that_moved_the_other_way() -> None:
    split = FeatureChanges(0, -0.06, (HOUR, CARRIER, CARRIER, DISTANCE))
    assert top_features(split) == [HOUR, CARRIER]
    assert top_features(FeatureChanges(0, -0.06, (DISTANCE,))) == []


def test_features_stand_beside_groups() -> None:
    assert in_words(parts=(HOUR, CARRIER, DISTANCE)) == (
        "−7.0 points: 2.4 from region=eu (answers up from 20 to 45 %); by feature: 5.0 from hour (values "
        "beyond the reference in 38 % of rows), 1.0 from carrier (missing in 30 % of rows)"
    )


def test_the_remainder_the_step_and_the_reason_are_named() -> None:
    same = "at the same features (a release, a pipeline after logging, or a feature not configured)"
    assert in_words(remainder=-0.06, remainder_named=True).endswith(f"; by feature: 6.0 {same}")
    assert in_words(parts=(HOUR,), remainder=0.02, remainder_named=True).endswith(" in 38 % of rows)")
    both = in_words(parts=(CARRIER,), remainder=-0.06, remainder_named=True, step=0.012)
    assert both.endswith(
        f"by feature: 6.0 {same}, 1.0 from carrier (missing in 30 % of rows), +1.2 between the reference and "
        "the centre of the chart"
    )
    assert in_words(parts=(HOUR,), remainder=-0.02, remainder_named=True).endswith(f" % of rows), 2.0 {same}")
    unlike = "reference too unlike the window"
    assert in_words(parts=(HOUR,), reason=unlike).endswith(" in 38 % of rows)"), "no rows are left"
    assert in_words(parts=(CARRIER,), reason=unlike, remainder=-0.06).endswith(
        "1.0 from carrier (missing in 30 % of rows), the other rows are not split (reference too unlike the "
        "window)"
    )
    assert in_words(reason="no labelled reference").endswith("; not split by feature: no labelled reference")
    assert in_words().endswith("; by feature: none stands out")


def delay_rig(**settings: Any) -> Rig:
    own = regression(
        **{
            "unit": "minutes",
            "window": {"size": 500},
            "features": {"hour": "number", "echo": "number"},
        }
        | settings
    )
    known = reference_of_numbers(own, delays(0, 4000, start=1.6e9, labelled=True))
    return Rig({"t": own}, {"t": known})


def errors_of(report: WindowReport) -> dict[str, Attribution]:
    return {each.metric: each for each in report.attributions if each.by == "feature"}


def test_a_change_of_the_error_is_split_over_the_features_that_cause_it() -> None:
    [report] = delay_rig().feed(delays(1, 500, later=4.0))
    changes, estimated = (
        errors_of(report),
        {e.metric: e.result for e in report.values if e.estimator == "doubly_robust"},
    )
    assert list(changes) == ["mae", "rmse"]
    for metric, each in changes.items():
        split, now = each.features, estimated[metric]
        assert split is not None
        assert isinstance(now, Estimate)
        assert [part.feature for part in split.parts] == ["hour"], metric
        assert split.parts[0].change > 0.6 * split.change > 0.0
        assert abs(split.others) < 0.05 * split.change
        assert not split.remainder_named
        total = sum(part.change for part in split.parts) + split.others + split.step + split.remainder
        assert total == pytest.approx(split.change, rel=1e-4)
        assert (each.parts, each.unit) == ((), "minutes")
        assert now.lower > now.value - each.change
    words = r"\+0\.\d\d minutes: 0\.\d\d from hour, 0\.\d\d unexplained"
    assert re.fullmatch(words, sentence(changes["mae"])), sentence(changes["mae"])


def test_an_error_that_changes_at_the_same_features_is_a_remainder() -> None:
    [report] = delay_rig().feed(delays(1, 500, longer=1.5))
    split = errors_of(report)["mae"].features
    assert split is not None
    assert split.parts == ()
    assert split.remainder_named
    assert split.remainder > 0.9 * split.change
    assert re.match(r"\+0\.\d\d minutes: 0\.\d\d at the same features", sentence(errors_of(report)["mae"]))


def test_an_error_that_does_not_clearly_change_is_not_split() -> None:
    """Three metrics of 60 windows; at 95 % some intervals may miss."""
    reports = delay_rig().feed(delays(2, 30_000))
    assert len(reports) == 60
    assert sum(len(errors_of(report)) for report in reports) <= 0.03 * 3 * 60


def test_the_scale_of_the_target_scales_the_split() -> None:
    def scaled(by: float) -> FeatureChanges:
        def records(*args: Any, **changed: Any) -> list[Record]:
            every = delays(*args, **changed)
            return [r | {name: r[name] * by for name in ("prediction", "label") if name in r} for r in every]

        own = regression(
            tolerance=1.5 * by, window={"size": 500}, features={"hour": "number", "echo": "number"}
        )
        known = reference_of_numbers(own, records(0, 4000, start=1.6e9, labelled=True))
        [report] = Rig({"t": own}, {"t": known}).feed(records(1, 500, later=4.0))
        split = errors_of(report)["mae"].features
        assert split is not None
        return split

    minutes, tiny = scaled(1.0), scaled(1e-9)
    assert [part.feature for part in tiny.parts] == ["hour"]
    assert tiny.change == pytest.approx(1e-9 * minutes.change, rel=1e-4)
    assert tiny.parts[0].change == pytest.approx(1e-9 * minutes.parts[0].change, rel=1e-4)
    assert tiny.parts[0].standard_error == pytest.approx(1e-9 * minutes.parts[0].standard_error, rel=1e-3)


def test_later_windows_of_a_changed_error_keep_the_split_over_a_restart() -> None:
    def fed(restart: bool) -> list[WindowReport]:
        one = delay_rig()
        reports = one.feed(delays(1, 500, later=4.0))
        if restart:
            state = unpack(pack(one.engine.snapshot()))
            one.engine = one.settings.build(restored(state, EngineState))
        return reports + one.feed(delays(2, 1000, start=1.8e9, later=4.0))

    straight, resumed = fed(False), fed(True)
    assert [to_json(each) for each in straight] == [to_json(each) for each in resumed]
    splits = [errors_of(report)["mae"].features for report in straight]
    assert [split.window for split in splits if split] == [0, 1, 1]  # the change grew by a tenth in window 1
    assert from_json(to_json(straight[0])).attributions == straight[0].attributions


def test_an_error_that_is_not_split_has_the_reason() -> None:
    changes = FeatureChanges(3, 2.0, reason="reference too unlike the window")
    mae = Attribution("mae", 2.0, "feature", (), features=changes, unit="minutes")
    assert sentence(mae) == "+2.0 minutes, not split by feature: reference too unlike the window"
    part = FeaturePart("hour", 1.5, 0.1, missing=0.0, unseen=0.2)
    partly = msgspec.structs.replace(changes, parts=(part,), remainder=0.5)
    assert sentence(msgspec.structs.replace(mae, features=partly)) == (
        "+2.0 minutes: 1.5 from hour (values beyond the reference in 20 % of rows), "
        "the other rows are not split (reference too unlike the window)"
    )


@pytest.mark.parametrize(
    ("changes", "unit", "expected"),
    [
        (FeatureChanges(3, -0.0123, others=-0.0123), "", "−0.012: no feature stands out"),
        (
            FeatureChanges(2, 120.0, (FeaturePart("hour", 130.0, 9.0, 0.0, 0.0),), others=-10.0),
            "seconds",
            "+123 seconds, +120 in window 2: 130 from hour, −10 unexplained",
        ),
        (
            FeatureChanges(3, 1.2345e30, (FeaturePart("hour", 1e30, 9.0, 0.0, 0.0),), others=2.345e29),
            "m",
            "+1.2e+30 m: 1e+30 from hour, 2.3e+29 unexplained",
        ),
        (FeatureChanges(3, -1.2345e-30, others=-1.2345e-30), "", "−1.2e−30: no feature stands out"),
        (
            FeatureChanges(3, -2.0, remainder=-2.0, remainder_error=0.1, remainder_named=True),
            "m",
            "−2.0 m: 2.0 at the same features (a release, a pipeline after logging, or a feature not "
            "configured)",
        ),
    ],
)
def test_a_change_of_the_error_in_words(changes: FeatureChanges, unit: str, expected: str) -> None:
    change = 123.0 if changes.window == 2 else changes.change
    assert sentence(Attribution("mae", change, "feature", (), features=changes, unit=unit)) == expected
