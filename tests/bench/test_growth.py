"""The bench of growth: one small point, and what it says of several."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from tests.bench.bench_growth import AXES, Cost, Load, exponent, full_scrapes, measure, reading, table


@pytest.mark.slow
def test_a_point_closes_its_windows_and_gives_labels_to_every_models_answers(tmp_path: Path) -> None:
    load = Load(rows=15_000, models=2, window=200, groups=4, labelled=0.2)
    cost = measure(load, tmp_path)
    assert cost.series == 2 * (1 + 4)
    assert cost.lines > 2 * 15_000 // 200, "a model's windows, its groups', and revisions by labels"
    assert cost.disk > 1_000_000
    assert min(cost.start, cost.learn, cost.engine, cost.store, cost.scrape, cost.again) > 0


def test_an_exponent_is_the_slope_in_logarithms() -> None:
    assert exponent(2.0, 16.0, 10.0, 100.0) == pytest.approx(math.log10(8))
    assert math.isnan(exponent(1.0, 2.0, 0.0, 0.01))


def test_the_first_wall_is_the_nearest_one() -> None:
    small = Cost(1.0, 1.0, 1.0, 0.1, 100_000_000, 50_000_000, 0.1, 0.1, 1000, 10, 1)
    large = replace(small, scrape=1.0, memory=1_000_000_000)
    axis = [Load(models=10), Load(models=100)]
    lines = table("models", list(zip(axis, (small, large), strict=True)))
    assert "memory 1.00" in lines[-2]
    assert lines[-1] == "    first wall: resident memory reaches 1 GiB: at about 110"
    flat = table("models", list(zip(axis, (small, small), strict=True)))
    assert flat[-1] == "    first wall: none in sight"
    slow = table(
        "models", list(zip(axis, (replace(small, engine=10.0), replace(small, engine=40.0)), strict=True))
    )
    assert slow[-1] == "    first wall: one core keeps up with 100,000 answers/s: at about 32"


def test_each_axis_changes_one_thing() -> None:
    for axis, loads in AXES.items():
        one = {"models": 1, "rows": 1} if axis == "many" else {axis: 1}  # as many rows for each model
        assert len({replace(load, **one) for load in loads}) == 1
        assert len({getattr(load, "models" if axis == "many" else axis) for load in loads}) == len(loads)


def test_a_first_start_reads_the_references_of_its_models() -> None:
    line = reading(3)
    assert line.startswith("    3 models, a reference file of 9,000 rows; s of a first start: read 0.")
    parts = line.partition("; s of a first start: ")[2].partition(";")[0].split(", ")
    assert [part.rpartition(" ")[0] for part in parts] == ["read", "by model", "tried", "built"]


def test_ten_models_that_export_everything_are_scraped_as_they_go_on() -> None:
    written, scraped = full_scrapes(10)
    turns = ["first", "new answers", "nothing new", "new windows"]
    assert written.startswith("    10 models, ")
    assert [each.rpartition(" ")[0] for each in written.split(": ")[1].split(", ")] == [*turns, "gzip"]
    assert [each.rsplit(" ", 3)[0] for each in scraped.split(": ")[1].split(", ")] == turns
