"""The confidence that stays with an answer until its label comes: the calibrated one of that moment."""

from __future__ import annotations

import numpy as np
import pytest

from monitor.engine.reference import Reference
from monitor.stats.calibration.base import confidence_of
from tests.streams import Rig, answers, confidences, task


def reference(seed: int) -> Reference:
    """Return scores that are overconfident, in time order."""
    rng = np.random.default_rng(seed)
    positive = confidences(rng, 2000)
    labels = (rng.random(2000) < 0.25 + 0.5 * positive).astype(np.int64)
    scores = np.stack([1 - positive, positive], axis=1)
    return Reference(scores, scores.argmax(axis=1), labels, np.arange(2000.0), "", {})


def kept(rig: Rig) -> np.ndarray:
    """Return the column of the ring of answers, in the order in which they came."""
    column: np.ndarray = rig.engine.snapshot().tasks["t"].join.answers.columns["confidence"]
    return column


def records() -> list[dict]:
    """Return two models in turn, one of them in groups too; some act on the class that is not the likelier
    one.
    """
    rng = np.random.default_rng(1)
    both = [answers(rng, 60, "erm", groups={"region": "eu"}), answers(rng, 60, "irm")]
    mixed = [record for pair in zip(*both, strict=True) for record in pair]
    for record in mixed[::7]:
        record["prediction"] = "ok"
    return mixed


def test_an_answer_keeps_the_calibrated_probability_that_its_class_is_right() -> None:
    by_model = {"erm": reference(2), "irm": reference(3)}
    rig = Rig(task(groups=["region"]), {"t": by_model})
    rig.feed(records())
    expected = []
    for record in records():
        scores = np.array([record["scores"]])
        predicted = np.array([0 if "prediction" in record else int(scores.argmax())])
        calibrated = by_model[record["model"]].calibration("isotonic").apply(scores)
        expected.append(confidence_of(calibrated, predicted)[0])
    assert kept(rig) == pytest.approx(np.array(expected), abs=1e-7)
    assert kept(rig).dtype == np.float32


def test_without_a_calibration_it_is_the_raw_score_of_the_class() -> None:
    rig = Rig(task())
    rig.feed(records())
    raw = [record["scores"][0] if "prediction" in record else max(record["scores"]) for record in records()]
    assert kept(rig) == pytest.approx(np.array(raw), abs=1e-7)
