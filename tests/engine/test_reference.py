"""The references of many models: split in one pass, and what charts are drawn around worked out once."""

from __future__ import annotations

import pickle
from dataclasses import replace

import numpy as np
import pytest

from monitor.base.records import Batch
from monitor.cli.trial import ReferenceTrial
from monitor.config.root import Config, Task
from monitor.engine.engine import EngineSettings
from monitor.engine.judge import JudgeState
from monitor.engine.reference import Reference, split_by_model
from tests.streams import answers, reference_of, task

MODELS = ("b", "a", "c", "none")


def batch(rows: int = 400) -> Batch:
    """Return rows of three of four models, a third without a label, with times that come twice; in two groups
    or none.
    """
    rng = np.random.default_rng(0)
    zeros = np.zeros(rows, dtype=np.int64)
    second = rng.random(rows)
    return Batch(
        "t", np.stack([1 - second, second], axis=1), (second > 0.5).astype(np.int64),
        rng.integers(0, 3, rows), MODELS, rng.integers(0, 2, rows), ("v1", "v2"),
        rng.integers(0, 50, rows) * 1.0, np.arange(rows).astype(np.uint64), rng.integers(-1, 2, rows),
        {"region": (("eu", "us", "nowhere"), rng.integers(-1, 2, rows))}, np.arange(rows), zeros, zeros,
    )  # fmt: skip


def test_each_model_has_its_labelled_rows_in_order_of_time() -> None:
    """The witness looks at the rows of one model after the other."""
    rows = batch()
    by_model = split_by_model(rows)
    assert list(by_model) == ["b", "a", "c"]
    for code, name in enumerate(by_model):
        own = [i for i in range(len(rows)) if rows.model[i] == code and rows.label[i] >= 0]
        own.sort(key=lambda i: rows.time[i])
        one = by_model[name]
        for column, of in (("scores", "scores"), ("predicted", "predicted"), ("labels", "label")):
            np.testing.assert_array_equal(getattr(one, column), getattr(rows, of)[own])
        np.testing.assert_array_equal(one.time, rows.time[own])
        assert one.version == rows.versions[rows.version[own[-1]]]
        values, region = rows.groups["region"]
        assert {group: places.tolist() for group, places in one.groups.items()} == {
            f"region={values[g]}": [place for place, i in enumerate(own) if region[i] == g] for g in (0, 1)
        }


@pytest.mark.parametrize(("codes", "width"), [([0, 255], 1), ([0, 256], 2), ([-1, 200], 2), ([], 1)])
def test_class_indices_take_few_bytes_and_are_read_as_they_came(codes: list[int], width: int) -> None:
    column = np.array(codes, dtype=np.int64)
    one = Reference(np.zeros((len(codes), 1)), column, column, column * 1.0, "", {})
    for read in (one.predicted, replace(one, version="v2").labels, pickle.loads(pickle.dumps(one)).labels):
        np.testing.assert_array_equal(read, column)
        assert read.dtype == np.int64
    assert {vars(one)[name].itemsize for name in ("predicted", "labels")} == {width}


def test_a_group_without_rows_of_a_model_is_none_of_its_groups() -> None:
    rows = batch()
    alone = replace(rows, groups={"region": (("b", "a", "c"), rows.model)})
    assert {name: list(each.groups) for name, each in split_by_model(alone).items()} == {
        name: [f"region={name}"] for name in MODELS[:3]
    }


@pytest.fixture
def known() -> Reference:
    records = answers(np.random.default_rng(3), 900, labelled=True, start=1.6e9)
    return replace(reference_of(task(), records)["erm"])  # nothing is known of it yet


def test_the_engine_takes_the_charts_that_were_tried(known: Reference) -> None:
    settings = task(models={"erm": {}})
    fresh = judged(settings, replace(known))
    trial = ReferenceTrial(Config(tasks={"t": settings}), references={"t": {"erm": known}})
    settings = trial.engine_settings().tasks["t"]
    baselines, parts, *_ = known.cached_baselines(settings, "", lambda: pytest.fail("they are drawn again"))
    built = judged(settings, known)
    assert built.baselines["accuracy"] is baselines["accuracy"]
    assert built.parts["accuracy"] is parts["accuracy"]
    assert built.charts == fresh.charts
    assert list(built.charts) == ["accuracy"]
    np.testing.assert_array_equal(built.baselines["accuracy"].values, fresh.baselines["accuracy"].values)


def judged(settings: Task, known: Reference) -> JudgeState:
    [series] = EngineSettings({"t": settings}, {"t": {"erm": known}}).build().series["t"]
    judge = series.snapshot().judge
    assert judge is not None
    return judge


def test_another_section_of_the_configuration_draws_its_own(known: Reference) -> None:
    windows = [
        len(judged(task(window={"size": size}, models={"erm": {}}), known).baselines["accuracy"].values)
        for size in (100, 150)
    ]
    assert windows == [9, 6]
