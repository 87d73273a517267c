"""The demo's story of trust: confidences that drift are recalibrated, and the correction follows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from monitor.base.records import Ints
from monitor.cli.demo.flights import Flights
from monitor.cli.demo.stream import prepare
from monitor.cli.demo.trust import Loss, TrustStories, TrustStory, lasting_error, trust_sentence
from monitor.cli.replay import replay
from monitor.reports.reader import from_json
from monitor.reports.trust import Bias


@pytest.mark.simulation
def test_on_the_real_flights_the_confidences_are_recalibrated_and_the_corrected_accuracy_is_trusted(
    flights: Flights, take: Callable[[Ints], Flights], tmp_path: Path
) -> None:
    some = np.arange(len(flights)) % 6 == 0  # enough to train on
    in_april = (flights.month == 4) & (flights.day_of_year <= 113)  # 42 windows
    data = prepare(tmp_path / "demo", flights=take(np.flatnonzero(in_april | (flights.month < 4) & some)))
    replay(str(data.config), [data.stream], tmp_path / "out", lambda path, count: None)
    stories = TrustStories()
    stories.add([from_json(line) for line in (tmp_path / "out/windows.ndjson").read_bytes().splitlines()])
    for model in data.models:
        story = stories.story(model)
        assert story.calibrations >= 1
        assert story.trusted > 0.9
        assert all(loss.regained is not None for loss in story.losses)


def test_the_sentence_tells_the_first_loss_its_size_and_what_it_brought() -> None:
    lost = Loss(7, 1365724800.0, Bias(-0.052, -0.081, -0.024, 0.95, 310), 1366000000.0)
    story = TrustStory("forest", (lost, lost), 0.9, 3)
    assert trust_sentence(story, 0.012, 0.024) == (
        "forest: lost on 12 April, off by -5.2 points in 310 labelled flights; "
        "trusted again by 15 April. Lost 2 times in all, trusted in 90 % of the windows, 3 calibrations "
        "from labels. "
        "Over 20 windows the estimate is off by 1.2 points on average; the winter's calibration alone by 2.4."
    )
    forever = replace(lost, bias=None, regained=None)
    sentence = trust_sentence(replace(story, losses=(forever,), calibrations=1), 0.0, 0.0)
    assert "lost on 12 April; not trusted since. Lost 1 time in all" in sentence
    assert "1 calibration from labels." in sentence
    never = trust_sentence(replace(story, losses=()), 0.012, 0.024)
    assert never.startswith(
        "forest: labels never contradicted what was predicted; 3 calibrations from labels. Over"
    )


def test_the_lasting_error_averages_what_goes_up_and_down() -> None:
    up_and_down = np.where(np.arange(40) % 2 == 0, 0.05, -0.05)
    assert lasting_error(0.9 + up_and_down, np.full(40, 0.9)) == pytest.approx(0.0)
    assert lasting_error(np.full(40, 0.93), np.full(40, 0.9)) == pytest.approx(0.03)
    assert lasting_error(np.full(4, 0.88), np.full(4, 0.9)) == pytest.approx(0.02)
