"""The features of a model's windows: a broken one costs the estimates their trust, before any label."""

from __future__ import annotations

import pickle
from functools import cache
from typing import Any

import msgspec
import numpy as np
import pytest

from monitor.base.codec import pack, restored, unpack
from monitor.base.errors import ConfigError
from monitor.base.records import Ints
from monitor.cli.trial import ReferenceTrial
from monitor.config.root import Config, Task
from monitor.engine.features import FeatureBaseline, FeaturesState, FeatureWatch
from monitor.engine.reference import Reference
from monitor.reports.features import BrokenFeature, FeatureRates, sentence
from monitor.reports.reader import from_json
from monitor.reports.views import SeriesState, SeriesView
from monitor.reports.window_report import WindowReport, to_json
from monitor.stats.features.drift import Drift, drift
from tests.engine.test_covariates import FEATURES, flights
from tests.streams import Record, Rig, lines, reference_of, task

WINDOW = 250
Broken = dict[str, Any]


def watched(**settings: Any) -> Task:
    defaults = {
        "window": {"size": WINDOW},
        "features": FEATURES,
        "reference": {"path": "reference.ndjson"},
        "estimators": ["average_confidence"],
    }
    return task(**(defaults | settings))


@cache
def reference() -> dict[str, Reference]:
    return reference_of(watched(), flights(0, 5000, 0.3, start=1.6e9))


def rig(settings: Task | None = None) -> Rig:
    return Rig(settings or watched(), {"t": reference()})


def stream(n: int, seed: int = 1, lost: float = 0.0, **replaced: Any) -> list[Record]:
    """Return answers without labels; a share of them lacks the hour, and features have other values."""
    rng = np.random.default_rng(seed + 100)
    records = []
    for record in flights(seed, n, 0.3, labelled=False):
        features = record["features"] | replaced
        if rng.random() < lost:
            del features["hour"]
        records.append(record | {"features": features})
    return records


def view(one: Rig) -> SeriesView:
    [whole] = [series for series in one.engine.view().series if not series.group]
    return whole


def carriers(records: list[Record]) -> Ints:
    """Return how many records have the carrier A, and how many B."""
    return np.unique([record["features"]["carrier"] for record in records], return_counts=True)[1]


def faults(reports: list[WindowReport]) -> list[list[tuple[str, str]]]:
    return [[(each.feature, each.fault) for each in report.broken_features] for report in reports]


def test_a_missing_feature_is_named_in_its_first_window_and_costs_the_trust() -> None:
    one = rig()
    assert faults(one.feed(stream(WINDOW))) == [[]]
    assert view(one).state is SeriesState.IN_CONTROL
    [report] = one.feed(stream(WINDOW, seed=2, lost=0.4))
    [broken] = report.broken_features
    assert (broken.feature, broken.fault, broken.expected) == ("hour", "missing", 0.0)
    assert broken.ratio == pytest.approx(0.4, abs=0.1)
    percent = round(100 * broken.ratio)
    assert sentence([broken]) == f"feature hour is missing in {percent} % of rows, 0 % in the reference"
    seen = view(one)
    assert seen.state is SeriesState.UNTRUSTED
    assert seen.trust is None
    assert seen.broken_features == (broken,)
    hour = seen.feature_rates["hour"]
    assert (hour.missing, hour.unseen, hour.drifted) == (pytest.approx(broken.ratio), 0.0, True)


def test_a_feature_that_drifts_is_named_and_costs_no_trust() -> None:
    one = rig()
    one.feed(stream(WINDOW))
    assert [rates.drifted for rates in view(one).feature_rates.values()] == [False, False]
    for rates in view(one).feature_rates.values():
        assert rates.drift is not None
        assert 0 < rates.drift.distance < rates.drift.distance_threshold < 0.3
    moved = flights(2, WINDOW, 0.9, labelled=False)
    one.feed(moved)
    seen = view(one)
    assert seen.state is not SeriesState.UNTRUSTED
    carrier = seen.feature_rates["carrier"]
    assert carrier.drifted
    assert carrier.drift is not None
    assert carrier.drift.distance > 2 * carrier.drift.distance_threshold
    assert carrier.drift == drift(carriers(flights(0, 5000, 0.3)), carriers(moved))


def test_the_distances_are_computed_once_and_only_for_readers(monkeypatch: pytest.MonkeyPatch) -> None:
    one, calls = rig(), []

    def counted(*parts: Ints) -> Drift:
        calls.append(parts)
        return drift(*parts)

    monkeypatch.setattr("monitor.reports.features.drift", counted)
    one.feed(stream(2 * WINDOW + 30))
    seen = view(one)
    assert not calls
    assert seen.feature_rates["hour"].drift is not None
    one.feed(stream(30, seed=2))  # another view of the same window
    assert view(one).pending == 60
    assert view(one).feature_rates is seen.feature_rates
    assert len(calls) == len(FEATURES)


def test_counts_of_another_reference_are_not_compared_with_the_new_one() -> None:
    rng = np.random.default_rng(7)
    rows, others = rng.normal(size=(5000, 2)).round(2), rng.normal(size=(5000, 2)).round(2)
    configured = watched(features={"a": "number", "b": "text"})
    baseline, other = (FeatureBaseline.from_rows(configured.features, each, 500) for each in (rows, others))
    watch = FeatureWatch(configured, lambda: baseline, 20)
    watch.close(rows[:500])
    state = restored(unpack(pack(watch.snapshot())), FeaturesState)
    assert len(watch.newest.rates) == 2
    assert FeatureWatch(configured, lambda: baseline, 20, state).newest.rates == watch.newest.rates
    assert state.newest().rates == watch.newest.rates  # also without the reference
    for name in configured.features:
        assert state.newest().bins(name) == watch.newest.bins(name)
    assert FeatureWatch(configured, lambda: other, 20, state).newest.rates == {}
    without = FeatureWatch(configured, None, 20, state)
    assert without.newest.rates == {}
    without.close(rows[:500])
    assert [(each.missing, each.drift) for each in without.newest.rates.values()] == [(0.0, None)] * 2


def test_counts_pass_from_one_process_to_another() -> None:
    one = rig()
    one.feed(stream(WINDOW, lost=0.3))
    seen = view(one)
    copy: SeriesView = pickle.loads(pickle.dumps(seen))
    assert copy.feature_rates == seen.feature_rates
    assert copy.features is not None
    assert seen.features is not None
    assert copy.features.bins("hour") == seen.features.bins("hour")


def test_the_state_clears_when_the_rate_is_normal_again() -> None:
    one = rig()
    one.feed(stream(WINDOW, lost=1.0))
    assert view(one).state is SeriesState.UNTRUSTED
    assert faults(one.feed(stream(WINDOW, seed=2))) == [[]]
    assert view(one).state is SeriesState.IN_CONTROL


def test_new_texts_numbers_beyond_the_range_and_constants_are_named() -> None:
    one = rig()
    assert faults(one.feed(stream(WINDOW, carrier="ZZ"))) == [
        [("carrier", "unseen"), ("carrier", "constant")]
    ]
    assert faults(one.feed(stream(WINDOW, seed=2, hour=12))) == [[("hour", "constant")]]
    beyond = [
        record | {"features": record["features"] | {"hour": 60 * record["features"]["hour"]}}
        for record in stream(WINDOW, seed=3)
    ]
    assert faults(one.feed(beyond)) == [[("hour", "out_of_range")]]


def test_the_line_tells_the_faults_and_reads_back() -> None:
    one = rig()
    sound, broken = one.feed(stream(WINDOW) + stream(WINDOW, seed=2, lost=0.5))
    assert b"broken_features" not in to_json(sound)
    line = msgspec.json.decode(to_json(broken))
    [fault] = line["broken_features"]
    assert fault == {
        "feature": "hour",
        "fault": "missing",
        "ratio": pytest.approx(0.5, abs=0.1),
        "expected": 0.0,
    }
    assert from_json(to_json(broken)).broken_features == broken.broken_features


def alarming(**settings: Any) -> Task:
    budget = {"features": {"false_alarms_per_week": 0.2}}
    return watched(chart=budget, models={"erm": {"answers_per_day": 50_000}}, **settings)


@pytest.mark.parametrize("settings", [{}, {"reference": {"first_windows": 20}}])
def test_drift_raises_an_alarm_until_the_next_normal_window_if_it_has_a_budget(settings: Any) -> None:
    known = {} if settings else {"t": reference()}
    one, plain = Rig(alarming(**settings), known), Rig(watched(**settings), known)
    for each in (one, plain):
        each.feed(stream((20 if settings else 0) * WINDOW))
        each.feed(stream(WINDOW, seed=4))
    assert view(one).feature_alarms == {"carrier": False, "hour": False}
    moved = flights(2, WINDOW, 0.9, labelled=False)
    assert lines(one.feed(moved)) == lines(plain.feed(moved)), "the lines of windows do not change"
    assert view(one).feature_alarms == {"carrier": True, "hour": False}
    assert view(plain).feature_alarms == {}
    assert view(one).state is view(plain).state is not SeriesState.UNTRUSTED
    one.restart()
    assert view(one).feature_alarms == {"carrier": True, "hour": False}
    one.feed(stream(WINDOW, seed=3))
    assert view(one).feature_alarms == {"carrier": False, "hour": False}


def test_a_broken_feature_raises_no_alarm_by_drift() -> None:
    one = rig(alarming())
    one.feed(stream(WINDOW, lost=0.4))
    assert one.engine.view().series[0].feature_rates["hour"].alarm
    assert view(one).feature_alarms == {"carrier": False, "hour": False}


def test_a_task_without_features_reports_the_same_bytes() -> None:
    plain = Rig(watched(features={}), {"t": reference_of(watched(features={}), flights(0, 5000, 0.3, 1.6e9))})
    records = stream(3 * WINDOW)
    assert lines(rig().feed(records)) == lines(plain.feed(records))
    assert view(plain).features is None


@pytest.mark.parametrize("settings", [{}, {"reference": {"first_windows": 20}}])
def test_cuts_and_restarts_change_no_byte(settings: Any) -> None:
    configured = watched(**settings)
    records = stream(21 * WINDOW) + stream(3 * WINDOW, seed=2, lost=0.5) + stream(2 * WINDOW, seed=3)
    known = {} if settings else {"t": reference()}
    whole = Rig(configured, known)
    expected = lines(whole.feed(records))
    pieces = Rig(configured, known)
    cuts = [130, 1000, 2600, 5100, 5300, 5400, 5760, 6100]
    assert lines(pieces.feed_in_pieces(records, cuts, restart=True)) == expected
    assert view(pieces).broken_features == view(whole).broken_features
    assert view(pieces).feature_rates == view(whole).feature_rates
    assert len(view(whole).feature_rates) == 2


def test_first_windows_make_the_tables_without_a_reference() -> None:
    one = Rig(watched(reference={"first_windows": 20}), {})
    reports = one.feed(stream(20 * WINDOW, lost=0.01))
    assert faults(reports) == [[]] * 20
    assert view(one).feature_rates == {
        "carrier": FeatureRates(0.0, None),
        "hour": FeatureRates(pytest.approx(0.01, abs=0.02), None),
    }
    [report] = one.feed(stream(WINDOW, seed=2, lost=0.15))
    [broken] = report.broken_features
    assert broken.expected == pytest.approx(0.01, abs=0.005)  # by all 5,000 rows
    assert faults(one.feed(stream(WINDOW, seed=3, carrier="ZZ"))) == [[("carrier", "unseen")]]


@pytest.mark.parametrize("first_windows", [0, 5])
def test_a_window_in_which_all_rows_lack_every_feature_breaks_them_all(first_windows: int) -> None:
    """It does not matter whether a reference or the first windows made the tables."""
    one = Rig(watched(reference={"first_windows": first_windows}), {}) if first_windows else rig()
    one.feed(stream(first_windows * WINDOW))
    empty = [{**record, "features": {}} for record in stream(WINDOW, seed=2)]
    for record in empty[::2]:
        del record["features"]
    assert faults(one.feed(empty)) == [[("carrier", "missing"), ("hour", "missing")]]
    seen = view(one)
    assert seen.state is SeriesState.UNTRUSTED
    for rates in seen.feature_rates.values():
        assert (rates.missing, rates.unseen, rates.drifted) == (1.0, 0.0, True)
    assert faults(one.feed(stream(WINDOW, seed=3))) == [[]]
    assert view(one).state is not SeriesState.UNTRUSTED


def test_first_windows_without_any_feature_break_nothing() -> None:
    """Nothing is known of the features, so a later window has nothing to be compared with."""
    one = Rig(watched(reference={"first_windows": 5}), {})
    empty = [{**record, "features": {}} for record in stream(7 * WINDOW)]
    assert faults(one.feed(empty)) == [[]] * 7
    for rates in view(one).feature_rates.values():
        assert (rates.missing, rates.unseen, rates.drifted) == (1.0, 0.0, False)
    one.feed(stream(WINDOW, seed=2))
    assert [rates.unseen for rates in view(one).feature_rates.values()] == [1.0, 1.0]


def test_the_first_windows_of_another_version_make_other_tables() -> None:
    one = Rig(watched(reference={"first_windows": 5}), {})
    one.feed([record | {"version": "1"} for record in stream(5 * WINDOW)])
    renamed = [record | {"version": "2"} for record in stream(6 * WINDOW, seed=2, carrier="ZZ")]
    assert faults(one.feed(renamed)) == [[]] * 6


@pytest.mark.parametrize("settings", [{}, {"reference": {"first_windows": 30}}])
def test_the_state_of_a_feature_is_small(settings: Any) -> None:
    """At most 4 kB for each feature of a model."""
    many = {f"f{i}": ("text" if i % 2 else "number") for i in range(16)}
    rng = np.random.default_rng(4)

    def rows(n: int) -> list[Record]:
        values = rng.integers(0, 5000, (n, 16))
        return [
            record | {"features": dict(zip(many, map(int, row), strict=True))}
            for record, row in zip(flights(5, n, 0.3), values, strict=True)
        ]

    configured = watched(features=many, **settings)
    known = {} if settings else {"t": reference_of(configured, rows(2500))}
    one, plain = Rig(configured, known), Rig(watched(**({"features": {}} | settings)), {})
    sizes = []
    for _ in range(33):
        records = rows(WINDOW)
        one.feed(records)
        plain.feed(records)
        whole, without = (
            len(msgspec.msgpack.encode(each.engine.snapshot(), enc_hook=lambda array: array.tobytes()))
            for each in (one, plain)
        )
        sizes.append((whole - without) / 16)
    assert max(sizes) < 4000


def test_a_group_has_no_features_of_its_own() -> None:
    settings = watched(groups=["region"])
    one = Rig(settings, {"t": reference()})
    reports = one.feed([record | {"groups": {"region": "eu"}} for record in stream(WINDOW, lost=1.0)])
    assert {report.group: faults([report]) for report in reports} == {
        "": [[("hour", "missing")]],
        "region=eu": [[]],
    }


def test_features_stand_beside_covariates() -> None:
    settings = watched(calibration={"method": "covariates"})
    one = rig(settings)
    [report] = one.feed(stream(WINDOW, lost=0.02))
    assert report.broken_features == ()
    assert report.calibration.covariates is not None
    [report] = one.feed(stream(WINDOW, seed=2, lost=0.4))
    assert [each.fault for each in report.broken_features] == ["missing"]
    counted = view(one).rows_unusable
    assert counted["hour", "missing"] > 0.3 * WINDOW


def test_only_the_first_sixteen_features_are_covariates() -> None:
    many = {f"f{i}": "number" for i in range(20)}
    settings = watched(features=many, calibration={"method": "covariates"})
    rng = np.random.default_rng(6)

    def rows(seed: int, n: int) -> list[Record]:
        values = rng.normal(size=(n, 20)).tolist()
        return [
            record | {"features": dict(zip(many, row, strict=True))}
            for record, row in zip(flights(seed, n, 0.3), values, strict=True)
        ]

    one = Rig(settings, {"t": reference_of(settings, rows(7, 2000))})
    [report] = one.feed([{**row, "features": {**row["features"], "f19": None}} for row in rows(8, WINDOW)])
    assert [(each.feature, each.fault) for each in report.broken_features] == [("f19", "missing")]
    assert report.calibration.covariates is not None
    assert list(report.calibration.covariates.missing) == list(many)[:16]
    assert {feature for feature, _ in view(one).rows_unusable} == set(list(many)[:16])


def test_a_reference_without_a_feature_is_refused() -> None:
    settings = watched(features=FEATURES | {"origin": "text"})
    known = reference_of(settings, flights(0, 500, 0.3))
    with pytest.raises(ConfigError) as error:
        ReferenceTrial(Config(tasks={"t": settings}), references={"t": known})
    assert str(error.value) == (
        "tasks.t.features, model erm: none of the 500 rows of the reference has origin, so that windows have "
        "nothing to be compared with; add the columns features.origin and so on to the reference, or leave "
        "them out of features"
    )


def test_the_sentence_names_each_fault() -> None:
    broken = [
        BrokenFeature("hour", "missing", 0.412, 0.002),
        BrokenFeature("carrier", "unseen", 0.3, 0.0),
        BrokenFeature("delay", "out_of_range", 0.25, 0.012),
        BrokenFeature("origin", "constant", 1.0, 0.31),
    ]
    assert sentence(broken).split("; feature ") == [
        "feature hour is missing in 41 % of rows, 0.2 % in the reference",
        "carrier is not among the reference's values in 30 % of rows, 0 % is normal",
        "delay is beyond the reference's range in 25 % of rows, 1.2 % is normal",
        "origin is constant in 100 % of rows; the most frequent value of the reference has 31 %",
    ]
