"""The accuracy corrected by labels, in the engine: which labels, whose accuracy, and its new beginnings."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest

from monitor.base.codec import pack, restored, unpack
from monitor.base.results import Estimate
from monitor.engine.labels.correcting import Correcting, CorrectingState
from monitor.engine.task import blocks_of
from monitor.reports.reader import from_json
from monitor.reports.views import ObjectiveState
from monitor.reports.window_report import WindowReport, to_json
from monitor.stats.calibration import CALIBRATORS
from monitor.stats.estimate.corrected import Correction, logit_change
from tests.engine.labels.test_audit import labels_of
from tests.engine.test_engine import reference
from tests.streams import CLASSES, Record, Rig, answers, lines, task

GOOD, REQUESTS = 200, 800
BLOCK = 25  # rows, of windows of 100


def settings(**more: Any) -> Any:
    return task(**({"reference": {"path": "r.ndjson"}, "objective": {"accuracy": {"min": 0.85}}} | more))


def rig(**more: Any) -> Rig:
    task_settings = settings(**more)
    return Rig(task_settings, reference(settings(), 1000, seed=5))


def stream(n: int = REQUESTS, good: int = GOOD, start: float = 1.7e9, **more: Any) -> list[Record]:
    """Return answers, each followed by its label: right as the confidences say at first, later in 60 %."""
    records = [one | more for one in answers(np.random.default_rng(3), n, start=start)]
    rng = np.random.default_rng(4)
    right = [rng.random() < (max(r["scores"]) if i < good else 0.6) for i, r in enumerate(records)]
    return [one for pair in zip(records, labels_of(records, right), strict=True) for one in pair]


def some(records: list[Record], share: float) -> list[Record]:
    """Return the answers with labels of a share of them."""
    rng = np.random.default_rng(11)
    return [one for one in records if "scores" in one or rng.random() < share]


def estimates(reports: list[WindowReport], tag: str, group: str = "") -> list[dict[str, Any] | None]:
    """Return the accuracy by one estimator in each window's first line; None where the line has none."""
    first = [msgspec.json.decode(to_json(r)) for r in reports if not r.revision and r.group == group]
    return [next((e for e in line["estimates"] if e["estimator"] == tag), None) for line in first]


def corrected(reports: list[WindowReport], group: str = "") -> list[dict[str, Any] | None]:
    return estimates(reports, "corrected", group)


@pytest.fixture(scope="module")
def whole() -> tuple[Rig, list[WindowReport]]:
    engine_rig = rig()
    return engine_rig, engine_rig.feed(some(stream(), 0.5))


def test_labels_correct_the_accuracy_and_leave_that_of_the_confidences(
    whole: tuple[Rig, list[WindowReport]],
) -> None:
    """From row 200 on 60 % are right; the confidences go on promising 93 %."""
    reports = whole[1]
    alone = rig().feed([one for one in stream() if "scores" in one])
    assert estimates(reports, "average_confidence") == estimates(alone, "average_confidence")
    assert corrected(alone) == [None] * 8, "nothing before the first label"
    for window, one in enumerate(corrected(reports)[4:], 4):
        assert one is not None
        assert one["lower"] < 0.6 < one["upper"] < 0.8, window
    actual, expected = (
        [[replace(c.verdict, out_of_control=False) for c in r.charts] for r in many if not r.revision]
        for many in (reports, alone)
    )
    assert actual == expected, "limits and rules are those of the confidences"


def test_it_is_the_one_of_the_labels_known_when_the_window_closed(
    whole: tuple[Rig, list[WindowReport]],
) -> None:
    """Witness: the correction fed by hand with all rows whose label came before the window's last answer."""
    rig, reports = whole
    (series,) = rig.engine.series["t"]
    known = reference(settings(), 1000, seed=5)["t"]["erm"]
    logic = known.correction("isotonic", 100).build()
    records, sent = stream(), some(stream(), 0.5)
    scores = np.array([one["scores"] for one in records[::2]])
    predicted = scores.argmax(axis=1)
    confidence = series.active.confidence(scores, predicted).astype(np.float32).astype(np.float64)
    right = np.array([label["label"] for label in records[1::2]]) == np.array(["ok", "bad"])[predicted]
    labelled = {one["id"] for one in sent if "scores" not in one}
    picked = np.array([one["id"] in labelled for one in records[::2]])
    start = 0
    for window, estimate in enumerate(corrected(reports)):
        rows = slice(100 * window, 100 * window + 100)
        blocks = logic.close(window, confidence[rows])
        assert blocks[::BLOCK].tolist() == list(range(rows.start, rows.stop, BLOCK))
        before = np.arange(start, rows.stop - 1)[picked[start : rows.stop - 1]]
        start = rows.stop - 1
        logic.push(before // BLOCK * BLOCK, confidence[before], right[before])
        by_hand = logic.estimate(window)
        assert isinstance(by_hand, Estimate)
        assert estimate is not None
        assert estimate["labels"] == logic.labelled
        ends = estimate["value"], estimate["lower"], estimate["upper"]
        assert ends == pytest.approx((by_hand.value, by_hand.lower, by_hand.upper), abs=1e-6)


def test_an_objective_reads_it() -> None:
    """The confidences go on promising 93 %; from row 200 on labels say that 60 % are right."""
    records = stream(1500)
    labelled, alone = (
        [report for report in rig().feed(each) if not report.revision]
        for each in (records, [one for one in records if "scores" in one])
    )
    states = [[report.objectives[0].state for report in each] for each in (labelled, alone)]
    assert states[1] == [ObjectiveState.MET] * 15
    assert states[0][1] == ObjectiveState.MET
    assert states[0][-8:] == [ObjectiveState.BREACHED] * 8
    last = labelled[-1].objectives[0]
    assert last.pooled is not None
    pairs = list(zip(records[::2], records[1::2], strict=True))[-500:]
    truth = np.mean([label["label"] == CLASSES[int(one["scores"][1] > 0.5)] for one, label in pairs])
    assert last.pooled == pytest.approx((truth, truth), abs=0.003), "all rows but the last are labelled"


def test_without_a_reference_it_says_how_little_is_known() -> None:
    bare = corrected(Rig(task()).feed(some(stream(), 0.1)))
    known = corrected(rig().feed(some(stream(), 0.1)))
    assert bare[0] is not None
    assert known[0] is not None
    assert bare[0]["upper"] - bare[0]["lower"] > known[0]["upper"] - known[0]["lower"]


def test_intervals_of_chance_alone_stay_so_and_it_follows_the_labels() -> None:
    exact = rig(interval="poisson_binomial").feed(some(stream(), 0.5))
    assert corrected(exact) == corrected(rig().feed(some(stream(), 0.5)))


@pytest.mark.slow
def test_it_is_reported_only_beside_the_accuracy_of_the_confidences() -> None:
    for more in ({"metrics": ["ece"], "objective": {}}, {"estimators": ["realised", "doc"]}):
        chart = {} if "metrics" in more else {"chart": {"estimator": "doc"}}
        reports = rig(**more, **chart).feed(stream(300))
        assert corrected(reports) == [None] * 3
    listed = rig(estimators=["average_confidence", "corrected", "realised"]).feed(stream(300))
    assert lines(listed) == lines(rig().feed(stream(300)))


def of_groups(shifts: dict[str, float], share: dict[str, float], windows: int = 8) -> list[Record]:
    """Return answers of groups in turn, windows of 100 each, with labels of a share; odds are shifted by
    group.
    """
    names = list(shifts)
    records = answers(np.random.default_rng(3), 100 * windows * len(names))
    rng, labelled = np.random.default_rng(4), []
    for i, one in enumerate(records):
        name = names[i % len(names)]
        odds = np.exp(shifts[name]) / (1 / min(max(one["scores"]), 1 - 1e-9) - 1)
        right = rng.random() < odds / (1 + odds)
        labelled.append(one | {"groups": {"region": name}})
        if rng.random() < share[name]:
            labelled += labels_of([one], [right])
    return labelled


@pytest.mark.slow
def test_a_group_is_corrected_by_its_own_labels() -> None:
    """One of four groups is off by a logit, ten points: its neighbours and one without labels stay."""
    shifts = dict.fromkeys("abc", 0.0) | {"h": -1.0}
    reports = rig(groups=["region"]).feed(of_groups(shifts, dict.fromkeys("ab", 0.5) | {"c": 0.0, "h": 0.5}))
    off, right, unlabelled = (corrected(reports, f"region={name}") for name in "hac")
    assert unlabelled == [None] * 8
    low, high = (np.mean([one["value"] for one in each[4:] if one]) for each in (off, right))
    assert low < high - 0.04
    assert right[-1] is not None
    assert right[-1]["labels"] > 350


@pytest.mark.slow
@pytest.mark.parametrize("cuts", [[1], [401, 555], list(range(0, 1200, 37))])
@pytest.mark.parametrize("restart", [False, True])
def test_neither_cuts_nor_restarts_can_be_seen(
    whole: tuple[Rig, list[WindowReport]], cuts: list[int], restart: bool
) -> None:
    engine_rig = rig()
    assert lines(engine_rig.feed_in_pieces(some(stream(), 0.5), cuts, restart)) == lines(whole[1])
    assert engine_rig.engine.view() == whole[0].engine.view()
    (one,), (other,) = (each.engine.series["t"] for each in (engine_rig, whole[0]))
    assert pack(one.checks.correction.snapshot()) == pack(other.checks.correction.snapshot())


def test_a_line_reads_back_to_itself() -> None:
    for report in rig().feed(some(stream(), 0.5)):
        line = to_json(report)
        assert to_json(from_json(line)) == line


def test_another_version_of_the_model_begins_anew() -> None:
    engine_rig = rig()
    old, new = stream(400, version="1"), stream(300, good=300, start=1.7e9 + 9000, version="2")
    before = corrected(engine_rig.feed(old))[-1]
    first, *later = corrected(engine_rig.feed(new))
    assert before is not None
    assert first is not None
    assert first["labels"] == 99, "of its own rows"
    assert first["lower"] > before["upper"]
    assert [one and one["labels"] for one in later] == [199, 299]


def test_another_calibration_moves_it_by_what_it_changes_and_no_label_counts_twice() -> None:
    """All confidences become a logit lower, as labels of half the rows have said all along."""
    records = of_groups({"a": -1.0}, {"a": 0.5}, windows=10)
    engine_rig, unchanged = rig(), rig()
    place = [i for i, one in enumerate(records) if "scores" in one][600]
    engine_rig.feed(records[:place])
    unchanged.feed(records[:place])
    (series,) = engine_rig.engine.series["t"]
    known = reference(settings(), 1000, seed=5)["t"]["erm"]
    odds = np.random.default_rng(1).random(len(known.labels)) < 0.88
    worse = np.where(odds, known.labels, 1 - known.labels)
    calibration = CALIBRATORS["isotonic"]().fit(known.scores, known.predicted, worse)
    series.recalibrate(calibration, 1.7e9, None)
    engine_rig.restart()
    values, expected = (corrected(each.feed(records[place:])) for each in (engine_rig, unchanged))
    for one, other in zip(values, expected, strict=True):
        assert one is not None
        assert other is not None
        assert one["labels"] == other["labels"]
        assert one["value"] == pytest.approx(other["value"], abs=0.03)
        assert one["upper"] - one["lower"] == pytest.approx(other["upper"] - other["lower"], abs=0.04)


def test_the_calibration_of_before_the_open_window_is_read_as_an_older_version_wrote_it() -> None:
    """It stood beside the shift of a group."""
    known = reference(settings(), 500, seed=6)["t"]["erm"]
    calibration = CALIBRATORS["isotonic"]().fit(known.scores, known.predicted, known.labels)
    both = rig(), rig()
    for each in both:
        each.feed(stream(250))
        each.engine.series["t"][0].recalibrate(calibration, 1.7e9, None)
    older, present = both
    snapshot = older.engine.snapshot()
    state = unpack(pack(snapshot))
    [[_, _, saved]] = state["tasks"]["t"]["series"]
    assert saved["former"]["method"]
    saved["former"] = [saved["former"], 0.0]
    older.engine = older.settings.build(restored(state, type(snapshot)))
    present.restart()
    actual, expected = (lines(each.feed(stream(150, start=1.7e9 + 250))) for each in both)
    assert actual == expected
    assert len(actual) >= 1


def test_what_labels_said_of_another_baseline_is_forgotten() -> None:
    engine_rig = rig()
    engine_rig.feed(stream())
    state = engine_rig.engine.snapshot()
    state.tasks["t"] = state.tasks["t"].without_baseline()
    engine_rig.engine = engine_rig.settings.build(state)
    more = answers(np.random.default_rng(9), 100, start=1.7e9 + 9000)
    assert corrected(engine_rig.feed(more)) == [None]


def test_the_view_shows_it_with_its_labels_also_after_a_restart(
    whole: tuple[Rig, list[WindowReport]],
) -> None:
    rig, _ = whole
    for _ in range(2):
        [accuracy] = [one for one in rig.engine.view().series[0].estimates if one.estimator == "corrected"]
        assert isinstance(accuracy.result, Estimate)
        assert 350 < accuracy.labels < 450
        rig.restart()


def test_answers_of_several_series_and_windows_have_the_blocks_that_closing_gives() -> None:
    """Witness: rows one by one. Windows close by size, and one by age before the first row comes."""
    rng = np.random.default_rng(6)
    for _ in range(50):
        numbers, pieces, firsts, expected = [], [], [], []
        for series in range(int(rng.integers(1, 4))):
            number, first, pending = int(rng.integers(9)), int(rng.integers(500)), int(rng.integers(0, 60))
            firsts.append((number, first, pending))
            start = len(numbers)
            if rng.random() < 0.3:
                number, first, pending = number + 1, first + pending, 0
            for _ in range(int(rng.integers(1, 200))):
                expected.append(first + pending // 7 * 7)
                numbers.append(number)
                pending += 1
                if pending >= 60:
                    number, first, pending = number + 1, first + pending, 0
            pieces.append((series, slice(start, len(numbers))))
        assert blocks_of(np.array(numbers), pieces, firsts, 7).tolist() == expected
    assert blocks_of(np.zeros(0, dtype=np.int64), [], [], 7).tolist() == []


def test_a_saved_correction_of_other_windows_is_left_behind() -> None:
    one = Correcting(lambda: Correction.unknown(100), BLOCK, 0)
    assert one.snapshot() == CorrectingState()
    assert one.estimate(0) is None
    one.restart()
    assert one.labelled == 0
    one.add(np.array([-1, 0, 25]), np.full(3, 0.9), np.ones(3, dtype=bool))
    assert one.labelled == 2, "a row of an older version's store has no block"
    one.close(0, np.full(100, 0.9))
    saved = restored(unpack(pack(one.snapshot())), CorrectingState)
    for block_rows, first_row, kept in ((BLOCK, 100, 2), (50, 100, 0), (BLOCK, 0, 0)):
        assert Correcting(lambda: Correction.unknown(200), block_rows, first_row, saved).labelled == kept


def test_the_change_of_logits_is_weighted_by_what_a_label_tells() -> None:
    old = np.array([0.5, 0.5, 0.99])
    new = np.array([0.6, 0.6, 0.5])
    change, variance = logit_change(old, new)
    weights = old * (1 - old)
    moves = np.log(new / (1 - new)) - np.log(old / (1 - old))
    mean = np.average(moves, weights=weights)
    assert change == pytest.approx(mean)
    assert variance == pytest.approx(np.average((moves - mean) ** 2, weights=weights))
    assert logit_change(np.ones(2), np.ones(2)) == (0.0, 0.0)


def test_rows_are_moved_by_the_calibrations_that_came_after_them_as_far_as_these_are_known() -> None:
    one = Correcting(lambda: Correction.unknown(100), BLOCK, 0)
    assert one.forecast == Correction.unknown(100).forecast
    assert not one.predict()
    one.close(0, np.full(100, 0.9))
    one.announce(130)
    blocks = np.array([-1, 0, 75, 100, 125, 150, 200])
    nan = np.nan
    assert one.moved(blocks) == pytest.approx([nan, 0, 0, 0, nan, nan, nan], nan_ok=True)
    one.announce(180)  # a second one before the window closes
    one.change_calibration(np.full(100, 0.9), np.full(100, 0.8))
    one.close(1, np.full(100, 0.8))
    change = np.log(0.8 / 0.2) - np.log(0.9 / 0.1)
    expected = [nan, change, change, change, nan, nan, 0]
    assert one.moved(blocks) == pytest.approx(expected, nan_ok=True)
    one.add(np.array([0]), np.array([0.9]), np.array([True]))
    assert one.predict()
    saved = restored(unpack(pack(one.snapshot())), CorrectingState)
    again = Correcting(lambda: Correction.unknown(100), BLOCK, 200, saved)
    assert again.forecast == one.forecast
    assert again.moved(blocks) == pytest.approx(expected, nan_ok=True)
    one.restart()
    assert one.forecast == Correction.unknown(100).forecast
    assert one.moved(blocks)[1:] == pytest.approx(0.0)


@pytest.mark.parametrize("labelled", [0, 40])
def test_within_a_window_another_calibration_counts_from_its_row_on(labelled: int) -> None:
    """Labels of the window that came before the change keep the confidences by which they came."""
    before, after = np.full(100, 0.9), np.full(100, 0.6)
    one, other = (Correcting(lambda: Correction.unknown(100), BLOCK, 0) for _ in range(2))
    for each in (one, other):
        each.add(np.repeat([0, 25, 50, 75], 20), np.full(80, 0.9), np.arange(80) % 10 > 0)
        each.close(0, before)
        each.add(np.repeat([100, 125], 20)[:labelled], np.full(labelled, 0.9), np.arange(labelled) % 10 > 0)
    one.announce(150)
    confidence = one.change_calibration(before, after, within=True)
    assert confidence.tolist() == [0.9] * 50 + [0.6] * 50
    one.close(1, confidence)
    other.close(1, before)
    for end in ("value", "lower", "upper"):
        assert getattr(one.estimate(1), end) == pytest.approx(getattr(other.estimate(1), end), abs=0.02)
    assert other.change_calibration(before, after).tolist() == after.tolist()
    assert other.change_calibration(before[:0], after[:0]).tolist() == []


def test_the_newest_sixteen_changes_of_a_calibration_are_told_apart() -> None:
    one = Correcting(lambda: Correction.unknown(100), BLOCK, 0)
    for window in range(20):
        one.announce(100 * window)
        one.change_calibration(np.full(100, 0.8), np.full(100, 0.9))
        one.close(window, np.full(100, 0.9))
    change = np.log(0.9 / 0.1) - np.log(0.8 / 0.2)
    moved = one.moved(np.array([0, 300, 400, 1900]))
    assert moved == pytest.approx([np.nan, np.nan, 15 * change, 0.0], nan_ok=True)
