"""The log of `run`: an alarm, an objective, unused records, a missing file."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from monitor.base.records import Chunk, Reject, RejectReason
from monitor.base.results import Estimate, Result, Unknown
from monitor.cli.journal import Journal
from monitor.reports.features import BrokenFeature
from monitor.reports.views import (
    AlarmByLabels,
    CalibrationView,
    ChartView,
    MetricEstimate,
    ObjectiveState,
    ObjectiveView,
)
from monitor.reports.window_report import WindowReport
from monitor.stats.charts.base import Verdict
from tests.daemon import DaemonProcess, configuration, ndjson
from tests.export.prometheus.scrape import WATCHED
from tests.services.process import end_of
from tests.streams import answers

GOOD = Estimate(0.91, 0.88, 0.94, 0.95, 500)
RAISED = Verdict(0.85, 0.8, 0.9, ("we1",), False)
WHAT = "t, erm, accuracy, window {} (until 1970-01-01T00:01:00.000Z): 0.9100 (0.8800 to 0.9400)"


def window(
    number: int,
    alarmed: bool | None = None,
    state: ObjectiveState | None = None,
    result: Result = GOOD,
    group: str = "",
    pooled: tuple[float, float] | None = None,
) -> WindowReport:
    verdict = Verdict(0.95, 0.92, 0.98, ("we1",) if alarmed else (), bool(alarmed))
    return WindowReport(
        task="t",
        model="erm",
        group=group,
        version="",
        window=number,
        size=500,
        closed_by="size",
        start_time=0.0,
        end_time=60.0,
        calibration=CalibrationView("none", 0, False, None),
        estimates=(
            MetricEstimate("accuracy", "average_confidence", result),
            MetricEstimate("accuracy", "realised", Estimate(0.5, 0.4, 0.6, 0.95, 9)),
        ),
        charts=() if alarmed is None else (ChartView("accuracy", verdict),),
        objectives=(ObjectiveView("accuracy", 0.9, True, state, pooled),),
    )


def messages(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    pairs = [(record.levelname, record.getMessage()) for record in caplog.records]
    caplog.clear()
    return pairs


@pytest.fixture
def journal(caplog: pytest.LogCaptureFixture) -> Journal:
    caplog.set_level(logging.INFO, "blindsight")
    return Journal()


def test_an_alarm_is_told_when_it_is_raised_and_when_it_is_released(
    journal: Journal, caplog: pytest.LogCaptureFixture
) -> None:
    limits = "limits 0.9200 to 0.9800 around 0.9500"
    journal.windows([window(0, False), window(1, True), window(2, True), window(3, None)])
    assert messages(caplog) == [("WARNING", f"Alarm raised: {WHAT.format(1)}; {limits}; broken: we1.")]
    journal.windows([window(4, True), window(5, False), window(6, False)])
    assert messages(caplog) == [("INFO", f"Alarm released: {WHAT.format(5)}; {limits}.")]


def test_the_alarm_and_the_objective_of_a_metric_of_errors_have_its_unit(
    journal: Journal, caplog: pytest.LogCaptureFixture
) -> None:
    verdict = Verdict(11.7, 9.8, 13.9, ("we1",), True)
    value = MetricEstimate("mae", "doubly_robust", Estimate(14.2, 12.9, 15.1, 0.95, 500), unit="minutes")
    raised = replace(
        window(1),
        charts=(ChartView("mae", verdict, "doubly_robust", unit="minutes"),),
        values=(value,),
        objectives=(
            ObjectiveView("mae", 12.0, False, ObjectiveState.BREACHED, (12.5, 14.0), unit="minutes"),
        ),
    )
    journal.windows([raised])
    where = "t, erm, mae, window 1 (until 1970-01-01T00:01:00.000Z)"
    assert messages(caplog) == [
        (
            "WARNING",
            f"Alarm raised: {where}: 14.2 (12.9 to 15.1) minutes; limits 9.8 to 13.9 minutes around 11.7; "
            "broken: we1.",
        ),
        (
            "WARNING",
            f"Objective breached: {where}: 12.5 to 14.0 over the windows pooled; its ceiling is 12 minutes.",
        ),
    ]


def test_an_alarm_says_where_the_change_is(journal: Journal, caplog: pytest.LogCaptureFixture) -> None:
    raised = replace(window(1, True), attributions=WATCHED.attributions)
    journal.windows([raised])
    [(_, line)] = messages(caplog)
    groups = (
        '2.4 from region="eu" (answers up from 20 to 45 %), 0.5 from region=us (confidences down 1.0 points)'
    )
    before, features = line.split("; by feature: ")
    assert before.endswith(f"; broken: we1; −3.1 points: {groups}")
    assert features.endswith(', 0.4 from car"rier.')


def test_an_improvement_is_told_and_warns_of_nothing(
    journal: Journal, caplog: pytest.LogCaptureFixture
) -> None:
    better = replace(window(1, False), charts=(ChartView("accuracy", replace(RAISED, improved=True)),))
    journal.windows([window(0, False), better, replace(better, window=2), window(3, False)])
    limits = "limits 0.8000 to 0.9000 around 0.8500"
    assert messages(caplog) == [
        ("INFO", f"Improved: {WHAT.format(1)}; {limits}; broken: we1."),
        ("INFO", f"No longer improved: {WHAT.format(3)}; limits 0.9200 to 0.9800 around 0.9500."),
    ]


def test_where_labels_decide_it_tells_what_they_say_and_that_confidences_moved(
    journal: Journal, caplog: pytest.LogCaptureFixture
) -> None:
    def by(number: int, alarmed: bool, moved: bool) -> WindowReport:
        labels = AlarmByLabels(0.86 if alarmed else 0.93, 0.92, 0.98, 1200, moved)
        [chart] = window(number, alarmed).charts
        return replace(window(number), charts=(replace(chart, by_labels=labels),))

    journal.windows(
        [window(0, True), by(1, False, True), by(2, False, True), by(3, True, False), window(4, True)]
    )
    limits = "limits 0.9200 to 0.9800 around 0.9500"
    within, below = (
        f"by 1,200 labels {share} the 92.0% to 98.0% of the baseline"
        for share in (
            "93.0% are right in the newest five windows, within",
            "86.0% are right in the newest five windows, below",
        )
    )
    assert messages(caplog) == [
        ("WARNING", f"Alarm raised: {WHAT.format(0)}; {limits}; broken: we1."),
        ("INFO", f"Alarm released: {WHAT.format(1)}; {limits}; {within}."),
        ("INFO", f"Confidences moved: {WHAT.format(1)}; {limits}; {within}."),
        ("WARNING", f"Alarm raised: {WHAT.format(3)}; {limits}; broken: we1; {below}."),
        ("INFO", f"Confidences no longer moved: {WHAT.format(3)}; {limits}; broken: we1; {below}."),
    ]


def test_an_objective_that_is_not_proven_warns_of_nothing(
    journal: Journal, caplog: pytest.LogCaptureFixture
) -> None:
    journal.windows([window(0, state=ObjectiveState.NOT_PROVEN, pooled=(0.89, 0.95))])
    [(level, line)] = messages(caplog)
    assert (level, line.partition(":")[0]) == ("INFO", "Objective not proven")


def test_a_broken_feature_is_told_once_and_when_it_is_normal_again(
    journal: Journal, caplog: pytest.LogCaptureFixture
) -> None:
    lost = BrokenFeature("hour", "missing", 0.412, 0.002)
    unseen = BrokenFeature("carrier", "unseen", 0.3, 0.0)
    faults = [(), (lost,), (BrokenFeature("hour", "missing", 0.5, 0.002),), (lost, unseen), (unseen,), ()]
    for number, broken in enumerate(faults):
        journal.windows([replace(window(number), broken_features=broken)])
    assert messages(caplog) == [
        (
            "WARNING",
            "Feature broken: model erm, task t, window 1; feature hour is missing in 41 % of rows, 0.2 % in "
            "the reference.",
        ),
        (
            "WARNING",
            "Feature broken: model erm, task t, window 3; feature carrier is not among the reference's "
            "values in 30 % of rows, 0 % is normal.",
        ),
        ("INFO", "Feature normal again: model erm, task t, window 4; hour was missing."),
        ("INFO", "Feature normal again: model erm, task t, window 5; carrier was unseen."),
    ]


def test_groups_have_alarms_of_their_own(journal: Journal, caplog: pytest.LogCaptureFixture) -> None:
    journal.windows([window(1, True), window(1, True, group="region=eu"), window(2, False)])
    lines = [line for _, line in messages(caplog)]
    assert [line.partition(", window")[0] for line in lines] == [
        "Alarm raised: t, erm, accuracy",
        "Alarm raised: t, erm, region=eu, accuracy",
        "Alarm released: t, erm, accuracy",
    ]


def test_an_objective_is_told_when_its_state_changes(
    journal: Journal, caplog: pytest.LogCaptureFixture
) -> None:
    met, at_risk, breached = ObjectiveState.MET, ObjectiveState.AT_RISK, ObjectiveState.BREACHED
    states = [None, met, at_risk, at_risk, None, breached, met]
    journal.windows([window(n, state=state, pooled=(0.85, 0.9 + n / 100)) for n, state in enumerate(states)])
    where = "t, erm, accuracy, window {} (until 1970-01-01T00:01:00.000Z)"
    end = "over the windows pooled; its floor is 0.9."
    assert messages(caplog) == [
        ("WARNING", f"Objective at risk: {where.format(2)}: 0.8500 to 0.9200 {end}"),
        ("WARNING", f"Objective breached: {where.format(5)}: 0.8500 to 0.9500 {end}"),
        ("INFO", f"Objective met: {where.format(6)}: 0.8500 to 0.9600 {end}"),
    ]


def test_what_labels_say_is_not_told_for_an_estimate_that_is_unknown(
    journal: Journal, caplog: pytest.LogCaptureFixture
) -> None:
    journal.windows([window(3, True, result=Unknown("one class only"))])
    [(_, line)] = messages(caplog)
    assert "window 3 (until 1970-01-01T00:01:00.000Z): unknown; limits" in line


def test_what_was_told_before_a_restart_is_not_told_again(tmp_path: Path) -> None:
    rng = np.random.default_rng(7)
    good, bad = answers(rng, 1000), answers(rng, 600, weights=(0.1, 0.8, 0.1), start=1.75e9)
    (tmp_path / "in.ndjson").write_bytes(ndjson([*good, *bad]))
    source = {"kind": "file", "path": "in.ndjson", "follow": True}
    task = {"objective": {"accuracy": {"min": 0.85}}}
    config = configuration(sources=[source], task=task, store={"path": "state"})
    with DaemonProcess(tmp_path, config) as daemon:
        daemon.until_value(16, "windows_closed_total", task="t", model="erm")
        raised = "WARNING Alarm raised: t, erm, accuracy, window 10 (until "
        daemon.until(lambda: raised in daemon.log, "the alarm is told")
        daemon.until(lambda: "WARNING Objective breached: " in daemon.log, "the breach is told")
        since = re.search(r"out of control</span> since [-0-9: ]+ UTC", daemon.get("/")[1])
        assert since
    before = daemon.log
    with DaemonProcess(tmp_path, config) as again:
        again.until_value(1, "out_of_control", task="t", model="erm", metric="accuracy")
        with (tmp_path / "in.ndjson").open("ab") as file:
            file.write(ndjson(answers(rng, 200, weights=(0.1, 0.8, 0.1), start=1.76e9)))
        again.until_value(18, "windows_closed_total", task="t", model="erm")
        assert since.group() in again.get("/")[1], "since the alarm, not the restart"
        again.end()
        new = again.log.removeprefix(before)
    assert "Stopping:" in new, "what it had to tell, it has told"
    assert "Alarm raised" not in new
    assert "Objective" not in new


def rejected(reasons: Sequence[RejectReason], source: str = "feed") -> Chunk:
    rejects = [Reject(reason, f"$: {i}", b"x", "p.ndjson", 10 * i) for i, reason in enumerate(reasons)]
    return Chunk(source=source, rejects=tuple(rejects))


def test_rejects_are_told_at_once_and_then_in_summary_once_a_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    now = [100.0]
    journal = Journal(lambda: now[0])
    journal.rejects(rejected([RejectReason.LOGITS]))
    first = "The first: p.ndjson, position 0: $: 0"
    assert messages(caplog) == [("WARNING", f"feed: 1 record was not used (1 logits). {first}")]
    for _ in range(50):
        journal.rejects(rejected([RejectReason.MALFORMED, RejectReason.LOGITS, RejectReason.LOGITS]))
        now[0] += 1
    assert messages(caplog) == []
    journal.rejects(rejected([RejectReason.NO_ID], source="other"))
    assert [line.partition(":")[0] for _, line in messages(caplog)] == ["other"], "each source has its minute"
    now[0] = 160.0
    journal.windows([])
    counts = "100 logits, 50 malformed"
    assert messages(caplog) == [("WARNING", f"feed: 150 records were not used ({counts}). {first}")]
    now[0] += 1000
    journal.windows([])
    assert messages(caplog) == [], "nothing new"
    journal.rejects(rejected([RejectReason.NO_ID]))
    journal.rejects(rejected([RejectReason.NO_ID]))
    assert len(messages(caplog)) == 1
    journal.close()
    assert len(messages(caplog)) == 1, "the rest at the end"


def test_the_daemon_logs_an_alarm_a_breach_and_what_it_could_not_use(tmp_path: Path) -> None:
    rng = np.random.default_rng(7)
    good = answers(rng, 1000)
    bad = answers(rng, 600, weights=(0.1, 0.8, 0.1), start=1.75e9)
    (tmp_path / "in.ndjson").write_bytes(ndjson([*good, b"not JSON", *bad]))
    config = configuration(
        sources=[{"kind": "file", "path": "in.ndjson"}], task={"objective": {"accuracy": {"min": 0.85}}}
    )
    with DaemonProcess(tmp_path, config) as daemon:
        assert end_of(daemon.process) == 0
        log = daemon.log
    assert log.count("WARNING Alarm raised: t, erm, accuracy, window 10 (until ") == 1
    assert "WARNING Objective breached: t, erm, accuracy, window " in log
    assert "in.ndjson: 1 record was not used (1 malformed). The first: " in log


def test_a_followed_file_that_is_gone_is_logged_and_makes_the_daemon_unready(tmp_path: Path) -> None:
    path = tmp_path / "in.ndjson"
    path.write_bytes(ndjson(answers(np.random.default_rng(1), 30)))
    config = configuration(sources=[{"kind": "file", "path": "in.ndjson", "follow": True}])
    with DaemonProcess(tmp_path, config) as daemon:
        daemon.until_used(30)
        assert daemon.metrics().value("source_up", source="in.ndjson") == 1
        path.unlink()
        daemon.until_value(0, "source_up", source="in.ndjson")
        gone = f"There is no longer a file {path}; it is waited for."
        status, text = daemon.get("/-/ready")
        assert (status, gone in text) == (503, True)
        assert daemon.log.count(f"ERROR in.ndjson: {gone}") == 1
        path.write_bytes(ndjson(answers(np.random.default_rng(2), 12, start=1.75e9)))
        daemon.until_used(42)
        daemon.until_value(1, "source_up", source="in.ndjson")
        assert daemon.get("/-/ready")[0] == 200
