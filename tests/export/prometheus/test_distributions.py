"""Histogram of confidences and calibration curve, against records counted one by one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.stats.histograms import BIN_ENDS, BIN_NAMES, CalibrationCurve, ConfidenceHistogram, Distributions
from tests.streams import CLASSES, Record, Rig, answers, task

N = len(BIN_NAMES)


def bin_of(confidence: float) -> int:
    """Return the bin of a confidence by trying one end after another."""
    return next((place for place, end in enumerate(BIN_ENDS) if confidence <= end), N - 1)


def stream(n: int = 250, **more: Any) -> list[Record]:
    """Return answers, every second one labelled by a record of its own that comes twenty answers later."""
    records = answers(np.random.default_rng(7), n, labelled=True, **more)
    parts: list[Record] = []
    for place, record in enumerate(records):
        late = records[place - 20] if place >= 20 else None
        parts.append({key: value for key, value in record.items() if key != "label"})
        if late is not None and place % 2:
            parts.append({"id": late["id"], "label": late["label"], "time": record["time"]})
    return parts


def found_in(rig: Rig) -> Distributions:
    (one,) = (series for series in rig.engine.view().series if not series.group)
    assert one.distributions is not None
    return one.distributions


@pytest.fixture(scope="module")
def whole() -> Rig:
    rig = Rig()
    rig.feed(stream())
    return rig


def test_the_histogram_holds_the_answers_of_closed_windows_bin_by_bin(whole: Rig) -> None:
    confidences = [max(record["scores"]) for record in stream() if "scores" in record]
    expected = [0] * N
    for confidence in confidences[:200]:  # two windows of 100; fifty more answers wait in the open one
        expected[bin_of(confidence)] += 1
    histogram = found_in(whole).confidence
    assert list(histogram.counts) == expected
    assert histogram.cumulative()[-1] == sum(expected) == 200
    assert histogram.total == pytest.approx(sum(confidences[:200]), abs=1e-9)


def test_the_curve_holds_the_labelled_answers_each_once(whole: Rig) -> None:
    scores = {record["id"]: record["scores"] for record in stream() if "scores" in record}
    labels = {record["id"]: record["label"] for record in stream() if "label" in record}
    labelled, correct, total = [0] * N, [0] * N, [0.0] * N
    for name, label in labels.items():
        place = bin_of(max(scores[name]))
        labelled[place] += 1
        correct[place] += label == CLASSES[int(np.argmax(scores[name]))]
        total[place] += max(scores[name])
    curve = found_in(whole).curve
    assert len(labels) == sum(labelled) == 115
    assert (list(curve.labelled), list(curve.correct)) == (labelled, correct)
    assert list(curve.confidence) == pytest.approx(total, abs=1e-5)  # confidences are kept with 24 bits
    assert found_in(whole).current == curve, "nothing has changed what confidences mean"


@pytest.mark.parametrize("cuts", [[1], [99, 100, 101, 300], list(range(0, 360, 7))])
def test_neither_cuts_nor_restarts_can_be_seen(whole: Rig, cuts: list[int]) -> None:
    rig = Rig()
    rig.feed_in_pieces(stream(), cuts, restart=True)
    assert found_in(rig) == found_in(whole)


def test_a_label_that_is_corrected_counts_as_it_came_first(whole: Rig) -> None:
    rig = Rig()
    rig.feed(stream())
    labels = {record["id"]: record["label"] for record in stream() if "label" in record}
    last = max(record["time"] for record in stream())
    changed = [
        {"id": name, "label": CLASSES[1 - CLASSES.index(label)], "time": last + 1}
        for name, label in labels.items()
    ]
    rig.feed(changed)
    assert rig.engine.view().series[0].correct != whole.engine.view().series[0].correct
    assert found_in(rig) == found_in(whole), "a counter never falls"


def test_groups_have_neither() -> None:
    rig = Rig(task(groups=["region"]))
    rig.feed(stream(groups={"region": "eu"}))
    by_group = {series.group: series.distributions for series in rig.engine.view().series}
    assert by_group["region=eu"] is None
    assert isinstance(by_group[""], Distributions)


def test_another_version_begins_the_current_curve_anew_and_counts_on_in_the_whole() -> None:
    rig = Rig()
    rig.feed(stream(version="v1"))
    before = found_in(rig)
    rig.feed(stream(version="v2", start=1.7e9 + 1000))
    after = found_in(rig)
    assert sum(after.curve.labelled) == 2 * sum(before.curve.labelled)
    assert 0 < sum(after.current.labelled) < sum(after.curve.labelled) - sum(before.curve.labelled) + 1
    assert after.confidence.cumulative()[-1] > before.confidence.cumulative()[-1]


def test_another_baseline_keeps_what_was_counted(whole: Rig) -> None:
    state = whole.engine.snapshot()
    state.tasks["t"] = state.tasks["t"].without_baseline()
    (one,) = whole.settings.build(state).view().series
    assert one.distributions == replace(found_in(whole), current=CalibrationCurve())


RATIOS = st.lists(st.floats(0, 1, width=32), max_size=60)


@given(RATIOS, st.integers(0, 60))
def test_parts_add_up_to_the_whole(values: list[float], cut: int) -> None:
    confidence = np.array(values)
    right = confidence > 0.4
    whole = CalibrationCurve().plus(confidence, right)
    first = CalibrationCurve().plus(confidence[:cut], right[:cut])
    assert first.plus(confidence[cut:], right[cut:]) == whole, "to the last bit, whatever the cut"
    histogram = ConfidenceHistogram().plus(confidence)
    assert histogram.counts == whole.labelled
    assert [sum(map(bin_of, values)), len(values)] == [
        sum(place * count for place, count in enumerate(histogram.counts)),
        sum(histogram.counts),
    ]
    assert all(point.labelled > 0 and 0 <= point.right <= 1 for point in whole.points)
