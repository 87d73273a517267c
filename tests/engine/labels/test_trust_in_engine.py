"""Lost trust in the engine: state, reports, exporters, cuts and restarts, and the way back."""

from __future__ import annotations

import logging

import msgspec
import numpy as np
import pytest

from monitor.cli.journal import Journal
from monitor.engine.labels.trust import ALARM, TrustState
from monitor.export.page import render_page
from monitor.reports.reader import from_json
from monitor.reports.trust import sentence
from monitor.reports.views import AgentView, SeriesState
from monitor.reports.window_report import to_json
from monitor.stats.calibration.isotonic import IsotonicCalibrator
from tests.engine.labels.test_audit import labels_of
from tests.engine.test_engine import reference
from tests.streams import Rig, answers, lines, task

SETTINGS = task(reference={"path": "r.ndjson"})


def stream(n=600, good=200, start=1.7e9):
    """Return answers with their labels: right at first as the confidences say, then half the time."""
    records = answers(np.random.default_rng(3), n, start=start)
    rng = np.random.default_rng(4)
    right = [rng.random() < (max(r["scores"]) if i < good else 0.5) for i, r in enumerate(records)]
    labels = labels_of(records, right)
    return [one for pair in zip(records, labels, strict=True) for one in pair]


def rig():
    return Rig(SETTINGS, reference(SETTINGS, 1000, seed=5))


def another():
    """Return a calibration fitted on other rows."""
    return reference(SETTINGS, 1000, seed=6)["t"]["erm"].calibration("isotonic")


@pytest.fixture(scope="module")
def whole():
    engine_rig = rig()
    reports = engine_rig.feed(stream())
    return engine_rig, reports


def test_labels_that_contradict_the_prediction_cost_the_trust_until_it_has_followed(whole):
    """Half of the answers are wrong from the 200th on: from the first window after that on it is known."""
    rig, reports = whole
    first = [msgspec.json.decode(to_json(r)) for r in reports if not r.revision]
    assert ["untrusted" in line for line in first] == [False, False, True, False, False, False]
    (entry,) = first[2]["untrusted"]
    assert entry["metric"] == "accuracy"
    assert entry["evidence"] >= ALARM
    assert entry["lower"] < entry["bias"] < entry["upper"] < -0.3
    assert 90 < entry["rows"] <= entry["labels"]  # since the change at 200, of nearly 300
    (series,) = rig.engine.view().series
    assert series.trust.trusted
    assert series.state is SeriesState.OUT_OF_CONTROL  # by labels: half is right


def test_a_bias_that_the_correction_follows_is_shown_with_its_size_and_is_no_state(whole):
    rig, reports = whole
    (series,) = rig.engine.view().series
    biased = series.trust.confidences
    assert biased.lower < biased.value < biased.upper < -0.3
    assert 350 < biased.rows <= 600
    estimates = {e["estimator"]: e for e in msgspec.json.decode(to_json(reports[-1]))["estimates"]}
    off = estimates["realised"]["value"] - estimates["average_confidence"]["value"]
    assert off == pytest.approx(biased.value, abs=0.15)
    assert estimates["corrected"]["value"] == pytest.approx(0.5, abs=0.1)


def test_a_line_with_lost_trust_reads_back_to_itself(whole):
    for report in whole[1]:
        line = to_json(report)
        assert to_json(from_json(line)) == line


@pytest.mark.parametrize("cuts", [[1], [401, 555], list(range(0, 1200, 37))])
@pytest.mark.parametrize("restart", [False, True])
def test_neither_cuts_nor_restarts_can_be_seen(whole, cuts, restart):
    engine_rig = rig()
    assert lines(engine_rig.feed_in_pieces(stream(), cuts, restart)) == lines(whole[1])
    assert engine_rig.engine.view() == whole[0].engine.view()


def test_the_page_and_the_journal_say_so(whole, caplog):
    engine_rig, reports = whole
    page = render_page(AgentView(engine=engine_rig.engine.view()))
    assert "labels contradict the confidences: they are off by -" in page
    assert ">untrusted<" not in page
    lost = rig()
    lost.feed(stream(280))
    page = render_page(AgentView(engine=lost.engine.view()))
    assert "labels contradict the accuracy: it is off by -" in page
    assert ">untrusted<" in page
    with caplog.at_level(logging.INFO, logger="blindsight"):
        Journal().windows(reports)
    messages = [r.message for r in caplog.records if "rusted" in r.message]
    assert [message.split(":")[0] for message in messages] == ["Not trusted", "Trusted again"]
    assert "Not trusted: t, erm, accuracy, window 2" in messages[0]
    assert sentence(next(report.trust for report in reports if report.trust)) in messages[0]


def test_a_recalibration_begins_a_fresh_test_of_the_confidences():
    engine_rig = rig()
    engine_rig.feed(stream())
    (series,) = engine_rig.engine.series["t"]
    assert not series.checks.test.trusted
    series.recalibrate(another(), 1.7e9, None)
    engine_rig.restart()
    (series,) = engine_rig.engine.series["t"]
    assert (series.checks.test.lost, series.checks.test.trust().labels) == (False, 0)
    assert engine_rig.engine.view().series[0].trust.confidences is None
    engine_rig.feed(stream(500, good=500, start=1.7e9 + 5000))
    assert engine_rig.engine.series["t"][0].checks.test.trusted
    assert engine_rig.engine.view().series[0].trust.confidences is None


def test_of_the_window_that_was_open_at_a_recalibration_only_rows_of_before_are_held_against_a_prediction():
    engine_rig = rig()
    engine_rig.feed(stream())
    pending = answers(np.random.default_rng(8), 50, start=1.7e9 + 9000)
    engine_rig.feed(pending)
    (series,) = engine_rig.engine.series["t"]
    before = series.view().trust.labels
    series.recalibrate(another(), 1.7e9, None)
    after = answers(np.random.default_rng(9), 20, start=1.7e9 + 9500)
    engine_rig.feed([*after, *labels_of(after, [False] * 20)])
    assert engine_rig.engine.view().series[0].trust.labels == before
    engine_rig.feed(labels_of(pending, [True] * 50))
    assert series.checks.test.trust().labels == 0
    assert engine_rig.engine.view().series[0].trust.labels == before + 50


def test_answers_of_before_a_recalibration_are_held_against_what_it_changed():
    """The new calibration says half for all; nothing has changed in the answers, whose labels come late."""
    engine_rig, late = rig(), stream(400, good=400)
    records, labels = late[::2], late[1::2]
    engine_rig.feed([*records, *labels[:300]])
    (series,) = engine_rig.engine.series["t"]
    half = IsotonicCalibrator().fit(*_half(reference(SETTINGS, 1000, seed=6)["t"]["erm"]))
    series.recalibrate(half, 1.7e9, None)
    engine_rig.feed(answers(np.random.default_rng(9), 100, start=1.7e9 + 9000))
    before = series.view().trust
    engine_rig.feed(labels[300:])
    after = series.view().trust
    assert after.labels == before.labels + 100
    assert after.trusted
    assert after.evidence < 2 * before.evidence


def _half(rows):
    """Return the reference's rows, of whose labels every second one says another class."""
    return (
        rows.scores,
        rows.predicted,
        np.where(np.arange(len(rows.labels)) % 2, rows.predicted, 1 - rows.predicted),
    )


def test_what_the_reference_excuses_is_its_standard_error_and_survives_a_restart():
    engine_rig = rig()
    engine_rig.feed(stream(10))
    (series,) = engine_rig.engine.series["t"]
    excused = series.checks.snapshot().trust.epsilon
    assert 0.1 < excused < 0.3  # 1,000 rows at about 0.04 of information each
    engine_rig.restart()
    assert engine_rig.engine.series["t"][0].checks.snapshot().trust.epsilon == excused
    none = Rig()
    none.feed(stream(10))
    assert none.engine.series["t"][0].checks.snapshot().trust.epsilon == 0.0


def test_a_state_from_before_the_test_takes_it_up_with_what_its_reference_excuses():
    engine_rig = rig()
    engine_rig.feed(stream(100))
    state = engine_rig.engine.snapshot()
    saved = state.tasks["t"].series
    saved[:] = [(*names, _untested(series)) for *names, series in saved]
    (series,) = engine_rig.settings.build(state).series["t"]
    assert series.checks.snapshot().trust.epsilon > 0.1
    assert series.checks.snapshot().prediction.epsilon is msgspec.UNSET, "until a label asks for it"
    assert series.view().trust is None


def _untested(series):
    return msgspec.structs.replace(series, trust=TrustState(), prediction=TrustState())


def test_a_new_baseline_keeps_lost_trust_until_the_fresh_test_is_passed():
    engine_rig = rig()
    engine_rig.feed(stream(280))
    saved = engine_rig.engine.snapshot().tasks["t"].without_baseline().series[0][2]
    assert saved.trust.epsilon is msgspec.UNSET
    engine_rig.engine, _ = engine_rig.engine.reconfigured(engine_rig.settings, fresh=("t",))
    (one,) = engine_rig.engine.view().series
    assert (one.state, one.trust.on_probation) == (SeriesState.UNTRUSTED, True)
    assert engine_rig.engine.series["t"][0].checks.snapshot().trust.epsilon > 0.1


REGIONS = task(reference={"path": "r.ndjson"}, groups=["region"], window={"size": 50})


def of_regions(requests=1200, start=1.7e9, bad=300):
    """Return answers of three groups in turn, each with its label; of `us` half are right from `bad` on."""
    records = answers(np.random.default_rng(3), requests, start=start)
    rng = np.random.default_rng(4)
    names = [("eu", "us", "asia")[i % 3] for i in range(requests)]
    records = [one | {"groups": {"region": name}} for one, name in zip(records, names, strict=True)]
    wrong = [name == "us" and i >= bad for i, name in enumerate(names)]
    right = [
        rng.random() < (0.5 if bad_now else max(r["scores"]))
        for r, bad_now in zip(records, wrong, strict=True)
    ]
    return [one for pair in zip(records, labels_of(records, right), strict=True) for one in pair]


def regions():
    return Rig(REGIONS, reference(SETTINGS, 1000, seed=5))


@pytest.fixture(scope="module")
def grouped():
    rig = regions()
    return rig, rig.feed(of_regions())


def test_a_group_loses_trust_by_its_own_labels_and_the_others_keep_theirs(grouped):
    rig, reports = grouped
    biased = {one.group for one in rig.engine.view().series if one.group and one.trust.confidences}
    assert biased == {"region=us"}
    tested_groups = {line.group for line in reports if line.trust is not None}
    assert "region=us" in tested_groups
    assert not tested_groups & {"region=eu", "region=asia"}
    (us,) = (one for one in rig.engine.view().series if one.group == "region=us")
    assert us.trust.trusted, "its correction has followed"
    assert us.trust.confidences.upper < -0.2
    assert 250 < us.trust.confidences.rows <= 400
    assert us.coverage is None, "batches of labels are audited of whole models"
    assert us.distributions is None


def test_a_group_is_tested_by_what_its_models_calibration_excuses(grouped):
    whole, *groups = grouped[0].engine.series["t"]
    assert whole.checks.test.epsilon > 0.1
    assert [each.checks.test.epsilon for each in groups] == [whole.checks.test.epsilon] * 3


@pytest.mark.slow
@pytest.mark.parametrize("cuts", [[1], [401, 555], list(range(0, 2400, 97))])
def test_neither_cuts_nor_restarts_can_be_seen_of_groups(grouped, cuts):
    rig = regions()
    assert lines(rig.feed_in_pieces(of_regions(), cuts, restart=True)) == lines(grouped[1])
    assert rig.engine.view() == grouped[0].engine.view()


@pytest.mark.slow
def test_a_groups_confidences_are_tested_anew_after_a_recalibration(grouped):
    rig = regions()
    rig.feed(of_regions())
    for series in rig.engine.series["t"]:
        series.recalibrate(another(), 1.7e9, None)
    rig.feed(of_regions(start=1.7e9 + 9000, bad=9999))
    us = {one.group: one for one in rig.engine.view().series}["region=us"]
    assert us.trust.confidences is None


def test_a_store_from_before_groups_were_tested_takes_the_test_up():
    rig = regions()
    rig.feed(of_regions(30))
    state = rig.engine.snapshot()
    saved = state.tasks["t"].series
    before = TrustState(epsilon=0.0)  # that of a group, which no label was held against
    saved[:] = [
        (model, group, msgspec.structs.replace(series, trust=before) if group else series)
        for model, group, series in saved
    ]
    whole, *groups = rig.settings.build(state).series["t"]
    assert [each.checks.test.epsilon for each in groups] == [whole.checks.test.epsilon] * 3
