"""A class order that is the wrong way round is refused; a bad model, and what has no order, is not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from monitor.base.errors import ConfigError
from monitor.engine.reference import FEWEST_IN_ORDER, Reference, refuse_reversed_classes
from tests.daemon import command_here, configuration, ndjson, write_configuration
from tests.streams import answers


def reference(second: np.ndarray, labels: np.ndarray) -> Reference:
    scores = np.column_stack((1 - second, second))
    return Reference(scores, scores.argmax(axis=1), labels.astype(np.int64), np.arange(len(labels)), "", {})


def refuse(reference: Reference, classes: tuple[str, ...] = ("ok", "bad")) -> None:
    refuse_reversed_classes("t", classes, "erm", reference)


def good(n: int, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Return a calibrated model that is right in 90 %."""
    rng = np.random.default_rng(seed)
    second = np.where(rng.random(n) < 0.5, rng.beta(9, 1, n), rng.beta(1, 9, n))
    return second, rng.random(n) < second


def test_scores_in_the_other_order_are_refused_with_the_accuracy_by_both():
    second, labels = good(2000)
    right = ((second > 0.5) == labels).mean()
    refuse(reference(second, labels))
    with pytest.raises(ConfigError) as caught:
        refuse(reference(1 - second, labels))
    assert str(caught.value) == (
        "tasks.t.classes: [ok, bad] seems to be in reverse order: of the 2,000 labelled answers of erm in "
        f"the reference, the class with the larger score is right in {1 - right:.1%}, and with [bad, ok] it "
        f"would be in {right:.1%}; reverse `classes`, in whose order lists of scores stand, or, where "
        "scores name their classes, correct the scores or the labels"
    )


def test_rare_events_in_the_other_order_are_refused():
    rng = np.random.default_rng(2)
    second = rng.beta(1, 30, 5000)
    labels = rng.random(5000) < second
    assert labels.mean() < 0.05
    refuse(reference(second, labels))
    with pytest.raises(ConfigError, match="in reverse order"):
        refuse(reference(1 - second, labels))


def test_fewer_rows_than_fifty_say_nothing():
    second, labels = good(FEWEST_IN_ORDER)
    refuse(reference(1 - second[1:], labels[1:]))
    with pytest.raises(ConfigError):
        refuse(reference(1 - second, labels))


@pytest.mark.parametrize("share", [0.45, 0.5])
@pytest.mark.parametrize("n", [60, 500, 20_000])
def test_a_merely_bad_model_is_not_refused(share, n):
    rng = np.random.default_rng(3)
    for _ in range(20):
        second = rng.random(n)
        right = rng.random(n) < share
        refuse(reference(second, np.where(right, second > 0.5, second <= 0.5)))


def test_a_model_that_leans_to_the_rare_class_but_ranks_rightly_is_not_refused():
    rng = np.random.default_rng(4)
    labels = rng.random(5000) < 0.02
    second = np.where(labels, rng.beta(8, 2, 5000), rng.beta(5, 4, 5000))
    assert ((second > 0.5) == labels).mean() < 0.4
    refuse(reference(second, labels))


def test_confidences_and_more_classes_have_no_other_order():
    second, labels = good(500)
    alone = Reference(
        (1 - np.maximum(second, 1 - second))[:, None],
        np.zeros(500, dtype=np.int64),
        labels.astype(np.int64),
        np.arange(500.0),
        "",
        {},
    )
    refuse(alone, ())
    refuse(reference(1 - second, labels), ("a", "b", "c"))


@pytest.mark.parametrize("name", ["check", "run", "replay"])
def test_every_command_refuses_it(tmp_path: Path, name: str) -> None:
    (tmp_path / "ref.ndjson").write_bytes(ndjson(answers(np.random.default_rng(1), 600, labelled=True)))
    (tmp_path / "in.ndjson").write_bytes(ndjson(answers(np.random.default_rng(2), 60)))
    task = {"classes": ["bad", "ok"], "reference": {"path": "ref.ndjson"}}
    config = configuration(task=task, sources=[{"kind": "file", "path": "in.ndjson"}])
    path = write_configuration(tmp_path, config)
    more = [tmp_path / "in.ndjson", "--out", tmp_path / "out"] if name == "replay" else []
    done = command_here(name, path, *more)
    assert done.returncode == 2
    assert done.stderr.startswith("blindsight: tasks.t.classes: [bad, ok] seems to be in reverse order: of")
    assert not (tmp_path / "out").exists()
