"""Labels in the accuracy's interval, in the engine: which ones, whose interval, what begins anew."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest

from monitor.base.results import Estimate
from monitor.config.root import Bound
from monitor.engine.labels.follow import BiasFollower, BiasState
from monitor.engine.objective import Objective
from monitor.engine.task_refits import Published
from monitor.reports.reader import from_json
from monitor.reports.views import ObjectiveState
from monitor.reports.window_report import WindowReport, to_json
from monitor.stats.estimate.bias_law import LATTICE, BiasLaw, biased
from monitor.stats.estimate.filtered import LabelsSay
from monitor.stats.estimate.poisson_binomial import trimmed_pmf_many
from monitor.stats.estimate.predictive import mid_p_estimate
from monitor.stats.estimate.widening import mid_p_interval
from tests.engine.labels.test_audit import labels_of
from tests.engine.test_engine import reference
from tests.streams import Record, Rig, answers, lines, task

GOOD, REQUESTS = 200, 800


def settings(**more: Any) -> Any:
    return task(**({"reference": {"path": "r.ndjson"}, "objective": {"accuracy": {"min": 0.85}}} | more))


def rig(**more: Any) -> Rig:
    asked = settings(**more)
    return Rig(asked, reference(settings(), 1000, seed=5))


def stream(n: int = REQUESTS, good: int = GOOD, start: float = 1.7e9, **more: Any) -> list[Record]:
    """Answers, each followed by its label: right as the confidences say at first, later in 60 %."""
    records = [one | more for one in answers(np.random.default_rng(3), n, start=start)]
    rng = np.random.default_rng(4)
    right = [rng.random() < (max(r["scores"]) if i < good else 0.6) for i, r in enumerate(records)]
    return [one for pair in zip(records, labels_of(records, right), strict=True) for one in pair]


def accuracies(reports: list[WindowReport], group: str = "") -> list[dict[str, Any]]:
    """What each window's first line says of the accuracy without labels."""
    first = [msgspec.json.decode(to_json(r)) for r in reports if not r.revision and r.group == group]
    return [line["estimates"][0] for line in first]


@pytest.fixture(scope="module")
def whole() -> tuple[Rig, list[WindowReport]]:
    found = rig()
    return found, found.feed(stream())


def test_labels_that_contradict_move_the_interval_and_leave_the_value() -> None:
    """From row 1,000 on all logits are 1.5 too high, 13 points; every answer gets its label.

    From 200 rows after the change on, 18 windows: at 95 % two misses or fewer come in 94 % of such runs, four
    or more in 1 %. Without labels an interval that ends 5 to 9 points above the truth holds next to none.
    """
    records = answers(np.random.default_rng(3), 3000)
    chance = np.array([max(one["scores"]) for one in records]).clip(1e-6, 1 - 1e-6)
    odds = chance / (1 - chance) * np.where(np.arange(3000) < 1000, 1.0, np.exp(-1.5))
    right = np.random.default_rng(4).random(3000) < odds / (1 + odds)
    pairs = zip(records, labels_of(records, right.tolist()), strict=True)
    told = accuracies(rig().feed([one for pair in pairs for one in pair]))
    alone = accuracies(rig().feed(records))
    assert [one["value"] for one in told] == [one["value"] for one in alone]
    assert [one["labels"] for one in told] == [100 * w + 99 for w in range(30)]
    assert not any("labels" in one for one in alone)
    truth = right.reshape(30, 100).mean(axis=1)
    held, without = (
        sum(one["lower"] <= true <= one["upper"] for one, true in zip(each[12:], truth[12:], strict=True))
        for each in (told, alone)
    )
    assert held >= 15
    assert without <= 4
    assert all(one["lower"] <= one["value"] <= one["upper"] for one in told)
    for one, plain in zip(told[:10], alone[:10], strict=True):
        assert abs(one["lower"] - plain["lower"]) <= 0.02, "labels that agree change little"
        assert abs(one["upper"] - plain["upper"]) <= 0.02


def test_an_objective_hears_what_the_labels_say() -> None:
    """The confidences go on promising 93 %; from row 200 on labels say that 60 % are right."""
    records = stream(1500)
    told, alone = (
        [report for report in rig().feed(each) if not report.revision]
        for each in (records, [one for one in records if "scores" in one])
    )
    states = [[report.objectives[0].state for report in each] for each in (told, alone)]
    assert states[1] == [ObjectiveState.MET] * 15
    assert states[0][:2] == [ObjectiveState.MET] * 2
    assert states[0][-8:] == [ObjectiveState.AT_RISK] * 8, "the estimate meets it, the labels do not"


def test_labels_on_several_windows_are_those_on_one_as_long() -> None:
    """Witness: five windows of the same confidences against one window of five times the rows."""
    confidence = np.random.default_rng(5).uniform(0.6, 1.0, 200)
    law = BiasLaw(np.exp(-((LATTICE + 0.5) ** 2) / 0.02) / np.exp(-((LATTICE + 0.5) ** 2) / 0.02).sum())
    five = np.tile(confidence, 5)
    (longer,) = trimmed_pmf_many(five[None])
    low, high = LabelsSay(confidence, law).interval(longer, 0.95)
    expected = mid_p_interval(biased(longer, five, law), 0.95)
    assert 1000 * low == pytest.approx(expected[0], abs=1e-9)
    assert high == pytest.approx(five.mean(), abs=1e-6), "the estimate itself lies in the interval"
    logic = Objective(Bound(min=0.5), windows=5, level=0.95).build()
    (one,) = trimmed_pmf_many(confidence[None])
    for _ in range(5):
        verdict = logic.update(one, labels=LabelsSay(confidence, law))
    assert (verdict.lower, verdict.upper) == pytest.approx((low, high), abs=0.0011)


def test_the_interval_is_that_of_the_labels_known_when_the_window_closed(
    whole: tuple[Rig, list[WindowReport]],
) -> None:
    """Witness: the filter fed by hand with all rows whose label came before the window's last answer."""
    found, reports = whole
    (series,) = found.engine.series["t"]
    model = series.active.predictive
    assert model is not None
    known = reference(settings(), 1000, seed=5)["t"]["erm"]
    records = stream()
    scores = np.array([one["scores"] for one in records[::2]])
    predicted = scores.argmax(axis=1)
    confidence = series.active.confidence(scores, predicted)
    right = np.array([label["label"] for label in records[1::2]]) == np.array(["ok", "bad"])[predicted]
    for window, told in enumerate(accuracies(reports)):
        follower = BiasFollower(100)
        follower.calibrated_on(series.active.confidence(known.scores, known.predicted), model.components)
        before = np.arange(100 * window + 99)
        follower.add(before // 100, confidence[before], right[before])
        rows = slice(100 * window, 100 * window + 100)
        law = follower.law(window, confidence[rows], model, predicted[rows])
        assert law is not None
        pmf = biased(trimmed_pmf_many(confidence[rows][None])[0], confidence[rows], law)
        by_hand = mid_p_estimate(told["value"], pmf, 0.95)
        assert (told["lower"], told["upper"]) == pytest.approx((by_hand.lower, by_hand.upper), abs=1e-6)


def test_exact_intervals_stay_those_of_chance_and_follow_nothing() -> None:
    exact = rig(interval="poisson_binomial")
    told = accuracies(exact.feed(stream()))
    assert not any("labels" in one for one in told)
    alone = accuracies(rig(interval="poisson_binomial").feed([one for one in stream() if "scores" in one]))
    assert told == alone
    assert exact.engine.series["t"][0].snapshot().bias == BiasState()


def test_without_a_reference_there_is_nothing_to_follow() -> None:
    bare = Rig(task())
    assert not any("labels" in one for one in accuracies(bare.feed(stream())))
    assert bare.engine.series["t"][0].snapshot().bias == BiasState()


def test_charts_are_as_they_would_be_without_labels_and_a_group_of_all_answers_is_its_model() -> None:
    more = {"groups": {"region": "eu"}}
    labelled = rig(groups=["region"]).feed(stream(**more))
    alone = rig(groups=["region"]).feed([one for one in stream(**more) if "scores" in one])
    assert accuracies(labelled, "region=eu") == accuracies(labelled)
    assert [r.charts for r in labelled if not r.revision] == [r.charts for r in alone]


def of_groups(shifts: dict[str, float], share: dict[str, float], windows: int = 8) -> list[Record]:
    """Answers of groups in turn, windows of 100 each, with labels of a share; odds are shifted by group."""
    names = list(shifts)
    records = answers(np.random.default_rng(3), 100 * windows * len(names))
    rng, found = np.random.default_rng(4), []
    for i, one in enumerate(records):
        name = names[i % len(names)]
        odds = np.exp(shifts[name]) / (1 / min(max(one["scores"]), 1 - 1e-9) - 1)
        right = rng.random() < odds / (1 + odds)
        found.append(one | {"groups": {"region": name}})
        if rng.random() < share[name]:
            found += labels_of([one], [right])
    return found


def newest(records: list[Record], *groups: str) -> list[dict[str, Any]]:
    reports = rig(groups=["region"]).feed(records)
    return [accuracies(reports, f"region={group}")[-1] for group in groups]


def test_twenty_labels_do_not_swing_a_group_and_hundreds_decide_for_it() -> None:
    """Eight groups, of which one is off by a logit, ten points: with 20 labels, and with all of them."""
    alike = dict.fromkeys("abcdefg", 0.0)
    shares = dict.fromkeys("abcdefg", 1.0)
    [few], [many, neighbour] = (
        newest(of_groups(alike | {"h": -1.0}, shares | {"h": share}), *groups)
        for share, groups in ((0.025, "h"), (1.0, "ha"))
    )
    [plain] = newest(
        [one for one in of_groups(alike | {"h": -1.0}, shares | {"h": 0.0}) if "scores" in one], "h"
    )
    assert few["value"] == many["value"] == plain["value"]
    assert few["lower"] > plain["lower"] - 0.05
    assert many["lower"] < plain["lower"] - 0.06, "its own labels say that it is ten points worse"
    assert neighbour["lower"] >= plain["lower"] - 0.025


def test_groups_that_differ_leave_room_for_one_without_labels() -> None:
    differ = dict(zip("abcdefg", (-1.2, 0.9, -0.6, 0.6, -1.0, 1.1, 0.3), strict=True))
    shares = dict.fromkeys("abcdefg", 1.0) | {"h": 0.0}
    [told] = newest(of_groups(differ | {"h": 0.0}, shares), "h")
    [plain] = newest([one for one in of_groups(differ | {"h": 0.0}, shares) if "scores" in one], "h")
    assert told["upper"] - told["lower"] > plain["upper"] - plain["lower"] + 0.04


@pytest.mark.parametrize("cuts", [[1], [401, 555], list(range(0, 1600, 37))])
@pytest.mark.parametrize("restart", [False, True])
def test_neither_cuts_nor_restarts_can_be_seen(
    whole: tuple[Rig, list[WindowReport]], cuts: list[int], restart: bool
) -> None:
    found = rig()
    assert lines(found.feed_in_pieces(stream(), cuts, restart)) == lines(whole[1])
    assert found.engine.view() == whole[0].engine.view()


def test_a_line_reads_back_to_itself_and_a_revision_keeps_the_interval() -> None:
    """Labels 150 answers late: they revise the realised accuracy of their window, and move later intervals.

    Of window 6 the first half are labelled, as its last answers close it and as the stream ends.
    """
    records, found = stream(), rig()
    late = records[::2][:150] + [
        one for pair in zip(records[300::2], records[1::2], strict=False) for one in pair
    ]
    by_window: dict[int, set[bytes]] = {}
    reports = found.feed(late)
    for report in reports:
        line = to_json(report)
        assert to_json(from_json(line)) == line
        told = msgspec.json.encode(msgspec.json.decode(line)["estimates"][0])
        by_window.setdefault(report.window, set()).add(told)
    assert {report.window for report in reports if report.revision} == set(range(7))
    assert all(len(told) == 1 for told in by_window.values())
    assert [one.get("labels") for one in accuracies(reports)] == [None, *range(49, 650, 100)]


def test_another_version_of_the_model_begins_anew() -> None:
    found = rig()
    old, new = stream(400, version="1"), stream(300, good=300, start=1.7e9 + 9000, version="2")
    found.feed(old)
    first, *later = accuracies(found.feed(new))
    assert "labels" not in first, "the version takes over as its first window closes, for trust as for this"
    assert [one["labels"] for one in later] == [100, 200]


def test_a_recalibration_begins_anew_with_the_first_window_that_is_all_its_own() -> None:
    found = rig()
    records = stream()
    found.feed(records[:1100])  # half of window 5
    (series,) = found.engine.series["t"]
    other = reference(settings(), 1000, seed=6)["t"]["erm"].calibration("isotonic")
    series.publish(Published((), other, 1.7e9))
    found.restart()
    five, six, seven = accuracies(found.feed(records[1100:]))
    assert "labels" not in five
    assert (six["labels"], seven["labels"]) == (99, 199)


def test_what_labels_said_of_another_baseline_is_forgotten() -> None:
    found = rig()
    found.feed(stream())
    state = found.engine.snapshot()
    state.tasks["t"] = state.tasks["t"].without_baseline()
    found.engine = found.settings.build(state)
    (series,) = found.engine.series["t"]
    assert series.checks.bias.labelled == 0
    assert series.checks.bias.snapshot().settings.since == REQUESTS
    more = answers(np.random.default_rng(9), 100, start=1.7e9 + 9000)
    [told] = accuracies(found.feed(more))
    assert "labels" not in told


def test_intervals_of_the_other_kind_begin_and_end_with_a_reload() -> None:
    found = rig(interval="poisson_binomial")
    records = stream()
    reports = found.feed(records[:1000])
    [predictive] = rig().settings.tasks.values()
    wide = replace(found.settings, tasks={"t": predictive})
    exact = found.settings
    found.engine, _ = found.engine.reconfigured(wide, ())
    reports += found.feed(records[1000:1400])
    found.engine, _ = found.engine.reconfigured(exact, ())
    reports += found.feed(records[1400:])
    assert [one.get("labels") for one in accuracies(reports)] == [None] * 5 + [99, 199, None]
    assert found.engine.series["t"][0].snapshot().bias == BiasState()


def test_the_view_shows_how_many_labels_moved_it_also_after_a_restart(
    whole: tuple[Rig, list[WindowReport]],
) -> None:
    found, _ = whole
    for _ in range(2):
        [accuracy] = [
            one for one in found.engine.view().series[0].estimates if one.estimator == "average_confidence"
        ]
        assert isinstance(accuracy.result, Estimate)
        assert accuracy.labels == REQUESTS - 1
        found.restart()
