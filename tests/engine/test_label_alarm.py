"""The source of the alarm on the accuracy, labels or confidences, and the decisions of labels."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import msgspec
import numpy as np
import pytest

from monitor.base.codec import pack, restored, unpack
from monitor.engine.engine import EngineState
from monitor.engine.label_alarm import (
    FEWEST,
    POOLED,
    SURE,
    LabelAlarm,
    LabelAlarmState,
    LabelBaseline,
)
from monitor.engine.labels.correcting import Correcting
from monitor.reports.reader import from_json
from monitor.reports.window_report import WindowReport, to_json
from monitor.reports.window_view import AlarmByLabels
from monitor.stats.charts.base import Verdict
from monitor.stats.estimate.corrected import Correction, block_rows
from tests.engine.labels.test_audit import labels_of
from tests.engine.test_engine import reference
from tests.streams import Rig, answers, lines, task

ROWS = 200
BLOCK = block_rows(ROWS)
BASELINE = LabelBaseline(0.9, 0.09)
CALM = Verdict(center=0.9, lower=0.85, upper=0.95, rules=(), out_of_control=False)
MOVED = Verdict(center=0.9, lower=0.85, upper=0.95, rules=("we1",), out_of_control=True)

Judged = list[tuple[Verdict, AlarmByLabels | None]]


def correcting() -> Correcting:
    rng = np.random.default_rng(1)
    held = rng.random(5000) < 0.9
    return Correcting(lambda: Correction.from_reference(np.full(5000, 0.9), held, ROWS), BLOCK, 0)


def judged(
    accuracy: Sequence[float],
    labels: Sequence[int],
    by_confidences: Sequence[Verdict] | None = None,
    state: LabelAlarmState = LabelAlarmState(BASELINE),  # noqa: B008 - it is frozen
    windows: int = 20,
    least: float = 0.01,
    restart: bool = False,
) -> tuple[Judged, list[Any]]:
    """Judge windows whose first rows are labelled, as many as said, this share of them right; what it saw.

    With `restart` the alarm goes on from its snapshot at each window.
    """
    series, alarm = correcting(), LabelAlarm(least, windows, state)
    judgements: Judged = []
    seen = []
    for window, (share, many) in enumerate(zip(accuracy, labels, strict=True)):
        row = np.linspace(0, ROWS - 1, many).astype(np.int64)
        right = np.arange(many) < round(share * many)
        series.add(
            window * ROWS + row // BLOCK * BLOCK,
            np.full(many, 0.9),
            np.random.default_rng(window).permutation(right),
        )
        series.close(window, np.full(ROWS, 0.9))
        verdict = CALM if by_confidences is None else by_confidences[window]
        alarm.collect(series, window)
        judgements.append(alarm.judge(verdict, series, window))
        seen.append(series.estimate(window, 2 * SURE - 1, POOLED))
        if restart:
            state = restored(unpack(pack(alarm.snapshot())), LabelAlarmState)
            alarm = LabelAlarm(least, windows, state)
    return judgements, seen


def alarms(judgements: Judged) -> list[bool]:
    return [verdict.out_of_control for verdict, _ in judgements]


def test_baseline_is_the_mean_with_the_variance_of_rows_or_of_windows() -> None:
    rng = np.random.default_rng(3)
    values, sizes = rng.uniform(0.6, 0.9, 12), np.full(12, 500)
    baseline = LabelBaseline.from_windows(values.tolist(), sizes.tolist())
    assert baseline.center == pytest.approx(values.mean())
    assert baseline.row_variance == pytest.approx(500 * values.var(ddof=1))  # they differ by more than chance
    alike = LabelBaseline.from_windows([0.9] * 12, [500] * 12)
    assert alike.row_variance == pytest.approx(0.9 * 0.1)
    assert alike.band(2500, 0.0) == pytest.approx((0.9 - 3 * 0.006, 0.9 + 3 * 0.006))
    assert alike.band(2500, 0.05) == pytest.approx((0.85, 0.95))
    assert alike.band(5, 0.0)[1] == 1.0


def test_labels_raise_and_end_an_alarm_that_the_confidences_do_not_see() -> None:
    accuracy = [0.9] * 8 + [0.6] * 6 + [0.9] * 20
    judgements, seen = judged(accuracy, [80] * len(accuracy))
    on = alarms(judgements)
    assert not any(on[:8])
    assert all(on[9:14])
    assert not any(on[-4:])
    # An independent reading of the rule.
    expected, quiet = [], None
    for at, pooled in enumerate(seen):
        low = 0.9 - max(3 * np.sqrt(0.09 / pooled.n), 0.01)
        if at == 0:
            assert pooled.n == ROWS
        if pooled.upper < low or (quiet is not None and pooled.value < low):
            quiet = 0
        elif quiet is not None:
            quiet = quiet + 1 if quiet else POOLED  # the first calm value is that of five windows
            quiet = None if quiet == 8 else quiet
        expected.append(quiet is not None)
    assert on[1:] == expected[1:]  # the first has too few labels
    assert (on[14 + 7 - 1], on[14 + 8 - 1]) == (True, False), "eight good windows end it"
    first, by_labels = judgements[10]
    assert by_labels is not None
    assert first.out_of_control
    assert (by_labels.labels, by_labels.confidences_moved) == (400, False)
    assert str(by_labels) == (
        f"by 400 labels {by_labels.value:.1%} are right in the newest five windows, below the "
        "87.2% to 92.8% of the baseline"
    )


def test_confidences_that_move_are_no_alarm_where_labels_decide() -> None:
    judgements, _ = judged([0.9] * 12, [80] * 12, [CALM] * 4 + [MOVED] * 8)
    assert alarms(judgements) == [False] * 12
    assert [one is not None and one.confidences_moved for _, one in judgements] == [False] * 4 + [True] * 8
    assert {verdict.rules for verdict, _ in judgements} == {(), ("we1",)}
    better = Verdict(0.9, 0.85, 0.95, ("we1",), False, improved=True)
    judgements, _ = judged([0.9] * 12, [80] * 12, [better] * 12)
    assert [verdict.improved for verdict, _ in judgements] == [True] + [
        False
    ] * 11  # labels decide from the second


def test_an_improvement_by_labels_is_no_alarm() -> None:
    judgements, _ = judged([0.9] * 6 + [1.0] * 10, [160] * 16)
    assert not any(alarms(judgements))
    assert judgements[-1][0].improved
    assert not judgements[4][0].improved


def test_labels_decide_from_a_hundred_on_until_half_as_many() -> None:
    few = [20] * 6 + [18] * 6 + [11] * 6 + [9] * 6 + [15] * 6
    judgements, _ = judged([0.9] * len(few), few)
    decide, expected = False, []
    for at in range(len(few)):
        known = [(sum(few[max(at - windows + 1, 0) : at + 1]), labels) for windows, labels in FEWEST]
        decide = all(many >= (labels / 2 if decide else labels) for many, labels in known)
        expected.append(decide)
    assert [by is not None for _, by in judgements] == expected
    assert expected[4]
    assert not expected[-1]  # 75 labels do not bring it back
    assert sum(one != other for one, other in pairwise(expected)) == 2


def test_labels_of_older_windows_alone_decide_nothing() -> None:
    """A window of which nothing is labelled looks as it did before, whatever became of the accuracy."""
    judgements, _ = judged([0.9] * 10, [150] * 4 + [0] * 6, [CALM] * 6 + [MOVED] * 4)
    assert [by is not None for _, by in judgements] == [True] * 5 + [False] * 5
    assert alarms(judgements) == [False] * 6 + [True] * 4


def test_an_alarm_by_labels_does_not_end_because_labels_stop() -> None:
    accuracy = [0.9] * 5 + [0.5] * 25
    judgements, _ = judged(accuracy, [100] * 12 + [0] * 18)
    on, by = alarms(judgements), [one is not None for _, one in judgements]
    assert on[11]
    assert on[12:20] == [True] * 8
    assert all(each for each, alarmed in zip(by, on, strict=True) if alarmed)


def test_an_alarm_by_confidences_goes_on_as_labels_take_over_only_if_they_show_a_change() -> None:
    few, many = [0] * 6, [100] * 6
    verdicts = [CALM] * 3 + [MOVED] * 9
    for accuracy, expected in ((0.9, False), (0.5, True)):
        judgements, _ = judged([accuracy] * 12, [*few, *many], verdicts)
        by = [one is not None for _, one in judgements]
        assert by == [False] * 6 + [True] * 6
        assert alarms(judgements) == [False] * 3 + [True] * 3 + [expected] * 6


def test_a_standing_alarm_goes_on_below_the_band_also_where_that_is_not_sure() -> None:
    judgements, seen = judged([0.76] * 12, [0] * 6 + [100] * 6, [MOVED] * 12)
    calm, _ = judged([0.76] * 12, [0] * 6 + [100] * 6)
    by_labels = judgements[6][1]
    assert by_labels is not None
    assert seen[6].value < by_labels.lower <= seen[6].upper
    assert (alarms(calm)[6], alarms(judgements)[6]) == (False, True)


def test_a_restart_changes_nothing() -> None:
    accuracy = [0.9] * 6 + [0.6] * 6 + [0.9] * 12 + [1.0] * 6
    labels = [40] * 15 + [0] * 4 + [90] * 11
    verdicts = [CALM, MOVED, MOVED] * 10
    for state in (LabelAlarmState(BASELINE), LabelAlarmState()):
        through, resumed = (
            judged(accuracy, labels, verdicts, state, windows=4, restart=restart)[0]
            for restart in (False, True)
        )
        assert through == resumed
        assert any(by is not None for _, by in through)


def test_a_baseline_of_the_stream_holds_what_labels_said_then() -> None:
    """Confidences that are too high from the start are no drop; a later drop is one."""
    accuracy = [0.75] * 14 + [0.5] * 6
    judgements, _ = judged(accuracy, [100] * 20, state=LabelAlarmState(), windows=10)
    assert [by is not None for _, by in judgements] == [False] * 9 + [True] * 11
    assert not any(alarms(judgements)[:14])
    assert alarms(judgements)[-1]


def test_a_season_moves_the_band_and_leaves_the_baseline() -> None:
    series = correcting()
    low = LabelAlarm(0.01, 20, LabelAlarmState(BASELINE))
    moved = LabelAlarm(0.01, 20, LabelAlarmState(BASELINE))
    fresh = LabelAlarm(0.01, 2)
    for window in range(8):
        row = np.linspace(0, ROWS - 1, 100).astype(np.int64)
        right = np.random.default_rng(window).permutation(np.arange(100) < 75)
        series.add(window * ROWS + row // BLOCK * BLOCK, np.full(100, 0.9), right)
        series.close(window, np.full(ROWS, 0.9))
        without, with_season = low.judge(CALM, series, window), moved.judge(CALM, series, window, -0.15)
        fresh.collect(series, window, -0.15)
    assert without[0].out_of_control
    assert not with_season[0].out_of_control
    assert without[1] is not None
    assert with_season[1] is not None
    assert with_season[1].lower == pytest.approx(without[1].lower - 0.15)
    assert with_season[1].upper == pytest.approx(without[1].upper - 0.15)
    baseline = fresh.snapshot().baseline
    assert baseline is not None
    assert baseline.center > without[1].value + 0.1


def test_a_change_must_matter() -> None:
    for least, expected in ((0.0, True), (0.45, False)):
        judgements, _ = judged([0.9] * 4 + [0.6] * 8, [100] * 12, least=least)
        assert alarms(judgements)[-1] is expected


def settings(**more: Any) -> Any:
    return task(**({"reference": {"path": "r.ndjson"}, "window": {"size": ROWS}} | more))


def dropping(good: int = 1600, bad: int = 1600, share: float = 1.0) -> list[Any]:
    """Return answers, each followed by its label: right as the confidences say at first, later in half."""
    records = answers(np.random.default_rng(3), good + bad)
    rng = np.random.default_rng(4)
    right = [rng.random() < (max(r["scores"]) if i < good else 0.5) for i, r in enumerate(records)]
    both = zip(records, labels_of(records, right), strict=True)
    return [one for answer, label in both for one in ((answer, label) if rng.random() < share else (answer,))]


def fed(records: Sequence[Any], restart: bool = False, **more: Any) -> list[WindowReport]:
    rig = Rig(settings(**more), reference(settings(), 3000, seed=5))
    reports = []
    for start in range(0, len(records), 500):
        reports += rig.feed(list(records[start : start + 500]))
        if restart:
            rig.restart()
    return [one for one in reports if not one.revision]


def test_a_report_says_that_labels_decide_and_reads_back() -> None:
    reports = fed(dropping())
    assert lines(reports) == lines(fed(dropping(), restart=True))
    [last] = [one for one in reports[-1].charts if one.metric == "accuracy"]
    assert last.verdict.out_of_control
    assert last.by_labels is not None
    assert last.by_labels.value < last.by_labels.lower
    [line] = msgspec.json.decode(to_json(reports[-1]))["charts"]
    assert line["by_labels"] == {
        "value": pytest.approx(last.by_labels.value, abs=1e-6),
        "lower": pytest.approx(last.by_labels.lower, abs=1e-6),
        "upper": pytest.approx(last.by_labels.upper, abs=1e-6),
        "labels": POOLED * ROWS - 1,  # the last one is read after the answer that closes the window
    }
    assert to_json(from_json(to_json(reports[-1]))) == to_json(reports[-1])
    plain = [one for one in dropping() if "scores" in one]
    assert all(
        "by_labels" not in chart
        for one in fed(plain)
        for chart in msgspec.json.decode(to_json(one))["charts"]
    )


def test_a_new_baseline_is_one_by_labels_too() -> None:
    records = dropping(bad=7000)
    rig = Rig(settings(), reference(settings(), 3000, seed=5))
    rig.feed(records[:6000])
    [series] = rig.engine.series["t"]
    assert "accuracy" in series.view().alarmed_since
    series.rebaseline("accuracy", "half is right", 1.7e9)
    reports = [one for one in rig.feed(records[6000:]) if not one.revision]
    assert reports[0].charts == ()
    [last] = reports[-1].charts
    assert last.by_labels is not None
    assert last.by_labels.lower < 0.5 < last.by_labels.upper
    assert not last.verdict.out_of_control


def test_another_version_waits_for_a_baseline_of_its_own() -> None:
    rig = Rig(settings(), reference(settings(), 3000, seed=5))
    rig.feed([one | {"version": "1"} if "scores" in one else one for one in dropping()])
    assert rig.engine.series["t"][0].view().alarmed_since
    second = answers(np.random.default_rng(8), 3 * ROWS, start=1.8e9, labelled=True, version="2")
    rig.feed(second)
    assert not rig.engine.series["t"][0].view().alarmed_since
    state = rig.engine.series["t"][0].snapshot().judge
    assert state is not None
    assert state.by_labels == LabelAlarmState(accuracy=state.by_labels.accuracy, sizes=[ROWS] * 3)


def of_older_version(rig: Rig) -> None:
    """Go on from a state without an alarm by labels."""
    state = unpack(pack(rig.engine.snapshot()))
    for _, _, series in state["tasks"]["t"]["series"]:
        del series["judge"]["by_labels"]
    rig.engine = rig.settings.build(restored(state, EngineState))


def test_a_store_of_an_older_version_has_the_baseline_of_the_reference() -> None:
    records = dropping()
    rigs = [Rig(settings(), reference(settings(), 3000, seed=5)) for _ in range(3)]
    for rig in rigs:
        rig.feed(records[:3000])
    whole, older, rebaselined = rigs
    of_older_version(older)
    rebaselined.engine.series["t"][0].rebaseline("accuracy", "as asked", 1.7e9)
    of_older_version(rebaselined)
    bands = []
    for rig in rigs:
        state = rig.engine.series["t"][0].snapshot().judge
        assert state is not None
        assert state.by_labels is not None
        bands.append(state.by_labels.baseline)
    assert bands[0] is not None
    assert bands == [bands[0], bands[0], None]
    assert lines(whole.feed(records[3000:]))[-1] == lines(older.feed(records[3000:]))[-1]
