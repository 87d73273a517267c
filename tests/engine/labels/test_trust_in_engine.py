"""Lost trust in the engine: state, reports, exporters, cuts and restarts, and the way back."""

from __future__ import annotations

import logging

import msgspec
import numpy as np
import pytest

from monitor.cli.journal import Journal
from monitor.engine.labels.trust import ALARM, TrustState
from monitor.engine.task_refits import Published
from monitor.export.page import render_page
from monitor.reports.reader import from_json
from monitor.reports.trust import sentence
from monitor.reports.views import AgentView, SeriesState
from monitor.reports.window_report import to_json
from tests.engine.labels.test_audit import labels_of
from tests.engine.test_engine import reference
from tests.streams import Rig, answers, lines, task

SETTINGS = task(reference={"path": "r.ndjson"})


def stream(n=600, good=200, start=1.7e9):
    """Answers with their labels: right at first as the confidences say, then half the time."""
    records = answers(np.random.default_rng(3), n, start=start)
    rng = np.random.default_rng(4)
    right = [rng.random() < (max(r["scores"]) if i < good else 0.5) for i, r in enumerate(records)]
    labels = labels_of(records, right)
    return [one for pair in zip(records, labels, strict=True) for one in pair]


def rig():
    return Rig(SETTINGS, reference(SETTINGS, 1000, seed=5))


def another():
    """A calibration fitted on other rows."""
    return reference(SETTINGS, 1000, seed=6)["t"]["erm"].calibration("isotonic")


@pytest.fixture(scope="module")
def whole():
    found = rig()
    reports = found.feed(stream())
    return found, reports


def test_labels_that_contradict_cost_the_trust_and_the_reports_say_by_how_much(whole):
    found, reports = whole
    (series,) = found.engine.view().series
    assert series.state is SeriesState.UNTRUSTED
    assert not series.trust.trusted
    assert series.trust.evidence >= ALARM
    first = [msgspec.json.decode(to_json(r)) for r in reports if not r.revision]
    assert ["untrusted" in line for line in first] == [False, False, True, True, True, True]
    (said,) = first[-1]["untrusted"]
    assert said["metric"] == "accuracy"
    assert said["lower"] < said["bias"] < said["upper"] < 0
    assert 350 < said["rows"] <= said["labels"]  # since the change at 200, of nearly 600
    # What labels say stands beside it: by about as much is the estimate off.
    estimates = {e["estimator"]: e for e in first[-1]["estimates"]}
    off = estimates["realised"]["value"] - estimates["average_confidence"]["value"]
    assert off == pytest.approx(said["bias"], abs=0.15)


def test_a_line_with_lost_trust_reads_back_to_itself(whole):
    for report in whole[1]:
        line = to_json(report)
        assert to_json(from_json(line)) == line


@pytest.mark.parametrize("cuts", [[1], [401, 555], list(range(0, 1200, 37))])
@pytest.mark.parametrize("restart", [False, True])
def test_neither_cuts_nor_restarts_can_be_seen(whole, cuts, restart):
    found = rig()
    assert lines(found.feed_in_pieces(stream(), cuts, restart)) == lines(whole[1])
    assert found.engine.view() == whole[0].engine.view()


def test_the_page_and_the_journal_say_so(whole, caplog):
    found, reports = whole
    view = found.engine.view()
    page = render_page(AgentView(engine=view))
    assert "labels contradict the accuracy: it is off by -" in page
    assert ">untrusted<" in page
    journal = Journal()
    with caplog.at_level(logging.INFO, logger="blindsight"):
        journal.windows(reports)
    told = [r.message for r in caplog.records if "Not trusted: t, erm, accuracy, window 2" in r.message]
    assert len(told) == 1
    lost = next(report.trust for report in reports if report.trust)
    assert sentence(lost) in told[0]


def test_a_recalibration_begins_a_fresh_test_that_brings_trust_back(caplog):
    found = rig()
    reports = found.feed(stream())
    (series,) = found.engine.series["t"]
    series.publish(Published((), another(), 1.7e9))
    found.restart()
    (one,) = found.engine.view().series
    assert (one.state, one.trust.on_probation, one.trust.labels) == (SeriesState.UNTRUSTED, True, 0)
    assert "a fresh test has begun, no label yet" in render_page(AgentView(engine=found.engine.view()))
    reports += found.feed(stream(500, good=500, start=1.7e9 + 5000))
    (one,) = found.engine.view().series
    assert one.trust.trusted
    assert one.state is not SeriesState.UNTRUSTED
    journal = Journal()
    with caplog.at_level(logging.INFO, logger="blindsight"):
        journal.windows(reports)
    assert [r.message.split(":")[0] for r in caplog.records if "rusted" in r.message] == [
        "Not trusted",
        "Trusted again",
    ]


def test_rows_of_the_window_that_was_open_at_a_recalibration_are_not_held_against_it():
    found = rig()
    records = stream()
    found.feed(records)
    pending = answers(np.random.default_rng(8), 50, start=1.7e9 + 9000)
    found.feed(pending)
    (series,) = found.engine.series["t"]
    series.publish(Published((), another(), 1.7e9))
    found.feed(labels_of(pending, [False] * 50))
    assert found.engine.view().series[0].trust.labels == 0


def test_what_the_reference_excuses_is_its_standard_error_and_survives_a_restart():
    found = rig()
    found.feed(stream(10))
    (series,) = found.engine.series["t"]
    excused = series.checks.snapshot().trust.epsilon
    assert 0.1 < excused < 0.3  # 1,000 rows at about 0.04 of information each
    found.restart()
    assert found.engine.series["t"][0].checks.snapshot().trust.epsilon == excused
    none = Rig()
    none.feed(stream(10))
    assert none.engine.series["t"][0].checks.snapshot().trust.epsilon == 0.0


def test_a_state_from_before_the_test_takes_it_up_with_what_its_reference_excuses():
    found = rig()
    found.feed(stream(100))
    state = found.engine.snapshot()
    saved = state.tasks["t"].series
    saved[:] = [(*names, msgspec.structs.replace(series, trust=TrustState())) for *names, series in saved]
    (series,) = found.settings.build(state).series["t"]
    assert series.checks.snapshot().trust.epsilon > 0.1
    assert series.view().trust is None


def test_a_new_baseline_keeps_lost_trust_until_the_fresh_test_is_passed():
    found = rig()
    found.feed(stream())
    saved = found.engine.snapshot().tasks["t"].without_baseline().series[0][2]
    assert saved.trust.epsilon is msgspec.UNSET
    found.engine, _ = found.engine.reconfigured(found.settings, fresh=("t",))
    (one,) = found.engine.view().series
    assert (one.state, one.trust.on_probation) == (SeriesState.UNTRUSTED, True)
    assert found.engine.series["t"][0].checks.snapshot().trust.epsilon > 0.1


REGIONS = task(reference={"path": "r.ndjson"}, groups=["region"], window={"size": 50})


def of_regions(requests=1200, start=1.7e9, bad=300):
    """Answers of three groups in turn, each with its label; of `us` half are right from `bad` on."""
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
    found = regions()
    return found, found.feed(of_regions())


def test_a_group_loses_trust_by_its_own_labels_and_the_others_keep_theirs(grouped):
    found, reports = grouped
    trusted = {one.group: one.trust.trusted for one in found.engine.view().series if one.group}
    assert trusted == {"region=eu": True, "region=us": False, "region=asia": True}
    told = {line.group for line in reports if line.trust is not None}
    assert "region=us" in told
    assert not told & {"region=eu", "region=asia"}
    (us,) = (one for one in found.engine.view().series if one.group == "region=us")
    assert us.trust.bias.upper < -0.2
    assert 250 < us.trust.bias.rows <= us.trust.labels == 400
    assert us.coverage is None, "batches of labels are audited of whole models"
    assert us.distributions is None


def test_a_group_is_tested_by_what_its_models_calibration_excuses(grouped):
    whole, *groups = grouped[0].engine.series["t"]
    assert whole.checks.test.epsilon > 0.1
    assert [each.checks.test.epsilon for each in groups] == [whole.checks.test.epsilon] * 3


@pytest.mark.parametrize("cuts", [[1], [401, 555], list(range(0, 2400, 97))])
def test_neither_cuts_nor_restarts_can_be_seen_of_groups(grouped, cuts):
    found = regions()
    assert lines(found.feed_in_pieces(of_regions(), cuts, restart=True)) == lines(grouped[1])
    assert found.engine.view() == grouped[0].engine.view()


def test_a_group_regains_trust_after_a_recalibration(grouped):
    found = regions()
    found.feed(of_regions())
    for series in found.engine.series["t"]:
        series.publish(Published((), another(), 1.7e9))
    found.feed(of_regions(start=1.7e9 + 9000, bad=9999))
    us = {one.group: one for one in found.engine.view().series}["region=us"]
    assert us.trust.trusted
    assert us.state is not SeriesState.UNTRUSTED


def test_a_store_from_before_groups_were_tested_takes_the_test_up():
    found = regions()
    found.feed(of_regions(30))
    state = found.engine.snapshot()
    saved = state.tasks["t"].series
    before = TrustState(epsilon=0.0)  # that of a group, which no label was held against
    saved[:] = [
        (model, group, msgspec.structs.replace(series, trust=before) if group else series)
        for model, group, series in saved
    ]
    whole, *groups = found.settings.build(state).series["t"]
    assert [each.checks.test.epsilon for each in groups] == [whole.checks.test.epsilon] * 3
