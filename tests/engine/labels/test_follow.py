"""The filter of one model, fed by windows: where rows count, what begins anew, what a snapshot keeps."""

from __future__ import annotations

import numpy as np
import pytest

from monitor.engine.labels.follow import BiasFollower
from monitor.stats.estimate.bias_filter import BiasFilter
from monitor.stats.estimate.predictive_fit import fit_predictive
from monitor.stats.estimate.variance_components import Components
from tests.plain_state import through_msgpack

REFERENCE = np.full(4000, 0.9)
HUNDRED = np.full(100, 0.9)
COMPONENTS = Components(0.0, ((1000.0, 0.01),), 4000)


@pytest.fixture(scope="module")
def model():
    from monitor import CALIBRATORS

    rng = np.random.default_rng(1)
    chance = rng.beta(9, 1, 1000)
    wrong = (rng.random(1000) > chance).astype(np.int64)
    return fit_predictive(CALIBRATORS["isotonic"](), chance[:, None], np.zeros(1000, dtype=np.int64), wrong)


def follower(rows=100, components=COMPONENTS):
    found = BiasFollower(rows)
    found.calibrated_on(REFERENCE, components)
    return found


def labels(windows, right_of_ten=8, a_window=10):
    window = np.repeat(np.asarray(windows), a_window)
    return window, np.full(len(window), 0.9), np.arange(len(window)) % 10 < right_of_ten


def test_nothing_is_followed_before_a_calibration_and_nothing_said_before_a_label(model):
    empty = BiasFollower(100)
    empty.add(*labels(range(50)))
    assert not empty.follows
    assert empty.law(50, HUNDRED, model) is None
    assert not BiasFollower(100, empty.snapshot()).follows
    assert follower().follows
    assert follower().law(0, HUNDRED, model) is None


def test_rows_count_in_the_middle_of_their_window_and_short_windows_share_a_block(model):
    """Windows of 100 rows: five make a block of 500; it is the filter itself, fed with positions."""
    window, confidence, right = labels(range(200))
    found = follower()
    found.add(window, confidence, right)
    plain = BiasFilter.of_reference(REFERENCE, COMPONENTS, block_rows=500).build()
    plain.push(window * 100 + 50, confidence, right)
    assert found.snapshot().filter.blocks == plain.snapshot().blocks == list(range(40))
    assert found.law(200, HUNDRED, model).mean == pytest.approx(-0.8, abs=0.15)


@pytest.mark.parametrize(("rows", "block"), [(100, 500), (499, 998), (500, 500), (5000, 5000)])
def test_a_block_is_a_whole_number_of_windows(rows, block):
    assert follower(rows).snapshot().settings.block_rows == block


def test_a_snapshot_goes_on_and_one_of_other_windows_waits_for_its_calibration(model):
    whole, before = follower(), follower()
    whole.add(*labels(range(100)))
    before.add(*labels(range(60)))
    after = BiasFollower(100, through_msgpack(before.snapshot()))
    after.add(*labels(range(60, 100)))
    laws = [each.law(100, HUNDRED, model).mass.tolist() for each in (whole, after)]
    assert laws[0] == laws[1]
    assert not BiasFollower(1000, through_msgpack(before.snapshot())).follows


def test_another_version_begins_anew_as_sure_as_the_last(model):
    found = follower()
    found.add(*labels(range(100)))
    found.begin_anew(100)
    assert found.law(101, HUNDRED, model) is None
    found.add(*labels(range(90, 100), right_of_ten=0))  # of the former version: passed over
    assert found.law(101, HUNDRED, model) is None
    found.add(*labels(range(100, 200), right_of_ten=9))
    assert abs(found.law(200, HUNDRED, model).mean) < 0.3
    settings = found.snapshot().settings
    assert settings.since == 10_000
    assert settings.variance == follower().snapshot().settings.variance


def test_another_calibration_has_its_own_error(model):
    found = follower(components=None)
    before = found.snapshot().settings.variance
    found.calibrated_on(REFERENCE[:1000], None, window=7)
    settings = found.snapshot().settings
    assert settings == BiasFilter(settings.variance, None, 500, since=700)
    assert settings.variance == pytest.approx(4 * before)


def test_a_window_without_rows_has_no_law(model):
    found = follower()
    found.add(*labels(range(10)))
    assert found.law(11, np.zeros(0), model) is None
