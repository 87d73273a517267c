"""A calibration for each window by the features of its answers: the engine's part of `covariates`."""

from __future__ import annotations

from functools import cache
from typing import Any

import msgspec
import numpy as np
import pytest

from monitor.base.errors import ConfigError
from monitor.base.results import Reason, Unknown
from monitor.cli.trial import ReferenceTrial
from monitor.config.root import Config, Task
from monitor.engine.reference import Reference
from monitor.reports.reader import from_json
from monitor.reports.window_report import WindowReport, to_json
from tests.streams import CLASSES, Record, Rig, lines, reference_of, task

WINDOW = 250
FEATURES = {"carrier": "text", "hour": "number"}
HARDER = 0.25
"""So much less often is an answer for carrier B right than its score says."""


def covariates(**settings: Any) -> Task:
    defaults = {
        "window": {"size": WINDOW},
        "features": FEATURES,
        "calibration": {"method": "covariates"},
        "reference": {"path": "reference.ndjson"},
        "estimators": ["average_confidence"],
    }
    return task(**(defaults | settings))


def plain(**settings: Any) -> Task:
    """Return the task of the same stream, calibrated once and for all."""
    return covariates(**({"features": {}, "calibration": {"method": "isotonic"}} | settings))


def flights(seed: int, n: int, share: float, start: float = 1.7e9, labelled: bool = True) -> list[Record]:
    """Return answers a second apart, of which this share is for carrier B; the model does not know the
    carrier.
    """
    rng = np.random.default_rng(seed)
    other, score = rng.random(n) < share, rng.uniform(0.6, 0.98, n)
    right = rng.random(n) < score - HARDER * other
    says, hour = rng.integers(0, 2, n), rng.integers(0, 24, n)
    records = []
    for i, p in enumerate(score.tolist()):
        record = {
            "id": f"{seed}-{i}",
            "time": start + i,
            "model": "erm",
            "scores": [1 - p, p] if says[i] else [p, 1 - p],
            "features": {"carrier": "AB"[int(other[i])], "hour": int(hour[i])},
        }
        if labelled:
            record["label"] = CLASSES[says[i] if right[i] else 1 - says[i]]
        records.append(record)
    return records


@cache
def reference() -> dict[str, Reference]:
    return reference_of(covariates(), flights(0, 5000, 0.3, start=1.6e9))


def rig(settings: Task) -> Rig:
    return Rig(settings, {"t": reference()})


def accuracy(report: WindowReport) -> Any:
    return report.estimates[0].result


def share_right(records: list[Record]) -> float:
    return float(np.mean([CLASSES[int(np.argmax(r["scores"]))] == r["label"] for r in records]))


@pytest.mark.slow
def test_the_estimate_follows_a_shift_that_scores_do_not_show() -> None:
    """20 windows in which nine of ten answers are for the harder carrier: the truth is 15 points lower."""
    stream = flights(1, 20 * WINDOW, 0.9)
    unlabelled = [{k: v for k, v in r.items() if k != "label"} for r in stream]
    truth = [share_right(stream[i * WINDOW : (i + 1) * WINDOW]) for i in range(20)]
    estimates = {}
    for settings in (covariates(), plain()):
        estimates[settings.calibration.method] = [accuracy(each) for each in rig(settings).feed(unlabelled)]
    errors = {name: np.array([each.value for each in every]) - truth for name, every in estimates.items()}
    # One window's share of right answers has a standard error of 3.0 points, and the mean of 20 of 0.7.
    assert abs(errors["isotonic"].mean() - 0.6 * HARDER) < 0.03
    assert abs(errors["covariates"].mean()) < 0.03
    held = [
        each.lower <= right <= each.upper for each, right in zip(estimates["covariates"], truth, strict=True)
    ]
    assert sum(held) >= 16  # of 20


@pytest.mark.slow
def test_any_cutting_and_any_restart_gives_the_same_lines() -> None:
    stream = [*flights(1, 900, 0.3), *flights(2, 900, 0.8, start=1.7e9 + 900)]
    settings = covariates(groups=["region"], metrics=["accuracy", "ece", "auroc"])
    stream = [r | {"groups": {"region": "eu" if i % 3 else "us"}} for i, r in enumerate(stream)]
    whole = lines([*(one := rig(settings)).feed(stream), *one.engine.finish()])
    other = rig(settings)
    pieces = other.feed_in_pieces(stream, [1, 130, 249, 250, 251, 700, 1500], restart=True)
    assert lines([*pieces, *other.engine.finish()]) == whole
    assert len(whole) > 10
    for line in whole:
        assert to_json(from_json(line)) == line


@pytest.mark.slow
def test_labels_do_not_cost_the_trust_in_estimates_that_follow_the_shift() -> None:
    stream = [*flights(1, 10 * WINDOW, 0.3), *flights(2, 20 * WINDOW, 0.9, start=1.8e9)]
    trusted = {}
    for settings in (covariates(), plain(calibration={"method": "isotonic", "refit_labels": None})):
        one = rig(settings)
        one.feed(stream)
        (series,) = one.engine.view().series
        trusted[settings.calibration.method] = series.trust and series.trust.confidences is None
    assert trusted == {"covariates": True, "isotonic": False}


def test_the_test_of_trust_excuses_what_fewer_effective_rows_leave_uncertain() -> None:
    one = rig(covariates())
    one.feed(flights(1, 2 * WINDOW, 0.3))
    (series,) = one.engine.series["t"]
    before = series.checks.test.epsilon
    (report,) = one.feed(flights(2, WINDOW, 0.9, start=1.8e9))
    own = report.calibration.covariates
    assert own is not None
    # The standard error of a logit goes with the root of the rows, up to the confidences' own spread.
    assert series.checks.test.epsilon / before == pytest.approx(np.sqrt(5000 / own.effective_rows), rel=0.15)
    one.restart()
    assert one.engine.series["t"][0].checks.test.epsilon == series.checks.test.epsilon


def test_rows_without_a_feature_are_counted_and_too_many_leave_the_window_unknown() -> None:
    stream = flights(1, 4 * WINDOW, 0.3, labelled=False)
    for i in range(WINDOW, WINDOW + 10):
        del stream[i]["features"]["hour"]  # 4 % of the second window
    for i in range(2 * WINDOW, 2 * WINDOW + 20):
        stream[i]["features"]["carrier"] = "ZZ"  # 8 % of the third
    for i in range(3 * WINDOW, 3 * WINDOW + 20):
        del stream[i]["features"]
    metrics = ["accuracy", "ece", "auroc"]
    one = rig(covariates(metrics=metrics))
    reports = one.feed(stream)
    reasons = [{getattr(e.result, "reason", None) for e in report.estimates} for report in reports]
    assert reasons == [{None}, {None}, {Reason.FEATURES_UNSEEN}, {Reason.FEATURES_MISSING}]
    entries = [msgspec.json.decode(to_json(report))["calibration"] for report in reports]
    assert [(each.get("missing"), each.get("unseen")) for each in entries] == [
        (None, None),
        ({"hour": 10}, None),
        (None, {"carrier": 20}),
        ({"carrier": 20, "hour": 20}, None),
    ]
    one.restart()
    (series,) = one.engine.view().series
    assert series.rows_unusable == {
        ("carrier", "missing"): 20,
        ("carrier", "unseen"): 20,
        ("hour", "missing"): 30,
        ("hour", "unseen"): 0,
    }
    assert series.predictions == 4 * WINDOW  # they are used answers all the same
    assert all(isinstance(each.result, Unknown) for each in series.estimates)


@pytest.mark.slow
def test_the_chart_is_drawn_around_windows_that_did_not_see_their_own_labels_and_tells_of_the_shift() -> None:
    one = rig(covariates(objective={"accuracy": {"min": 0.7}, "windows": 3}))
    calm = one.feed(flights(1, 12 * WINDOW, 0.3, labelled=False))
    harder = one.feed(flights(2, 8 * WINDOW, 0.9, start=1.8e9, labelled=False))
    (chart,) = calm[-1].charts
    assert chart.verdict.center == pytest.approx(share_right(flights(0, 5000, 0.3)), abs=0.02)
    assert not any(report.charts[0].verdict.out_of_control for report in calm)
    assert harder[-1].charts[0].verdict.out_of_control
    assert harder[-1].objectives[0].state == "breached"
    (series,) = one.engine.view().series
    assert series.calibration.covariates is not None
    assert 100 < series.calibration.covariates.effective_rows < 5000


def test_a_pooled_interval_is_no_narrower_than_independent_errors_of_the_windows_would_make_it() -> None:
    """The windows share the reference: an error of it is an error in all of them."""
    one = rig(covariates(objective={"accuracy": {"min": 0.5}, "windows": 5}))
    reports = one.feed(flights(3, 5 * WINDOW, 0.9, labelled=False))
    widths = [each.upper - each.lower for each in map(accuracy, reports)]
    pooled = one.engine.view().series[0].objectives[0].pooled
    assert pooled is not None
    independent = np.sqrt(np.sum(np.square(widths))) / 5
    assert independent < pooled[1] - pooled[0] < max(widths)


def test_another_reference_takes_effect_at_a_restart_as_the_next_version() -> None:
    one = rig(covariates())
    one.feed(flights(1, WINDOW, 0.3, labelled=False))
    other = reference_of(covariates(), flights(9, 3000, 0.3, start=1.6e9))
    again = Rig(covariates(), {"t": other})
    again.engine = again.settings.build(one.engine.snapshot())
    assert again.engine.view().series[0].calibration.version == 2
    (report,) = again.feed(flights(2, WINDOW, 0.3, labelled=False))
    assert (report.calibration.method, report.calibration.version) == ("covariates", 2)


def test_a_reference_without_the_features_is_refused_with_what_it_lacks() -> None:
    bare = [{k: v for k, v in r.items() if k != "features"} for r in flights(0, 500, 0.3)]
    with pytest.raises(ConfigError, match=r"tasks\.t\.reference, model erm: .*all features, got 0 of 500"):
        ReferenceTrial(Config(tasks={"t": covariates()}), references={"t": reference_of(covariates(), bare)})
