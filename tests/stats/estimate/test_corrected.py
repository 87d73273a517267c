"""The accuracy corrected by labels: a slow witness, laws, late labels, resuming, bounds, bad input."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.special import expit, logit, ndtr, ndtri

from monitor.base.codec import pack, restored, unpack
from monitor.base.errors import ConfigError
from monitor.base.results import Estimate, Reason, Unknown
from monitor.stats.estimate import corrected
from monitor.stats.estimate.corrected import (
    BLOCKS,
    HYPOTHESES,
    STILL,
    WINDOWS,
    Correction,
    CorrectionState,
    shifted,
)
from monitor.stats.estimate.variance_components import remembered

N = 500
STEADY = Correction.unknown(N)


def only(hypothesis, variance=0.05, block_rows=100):
    """Return settings that know the law of motion."""
    return Correction(variance, np.where(np.arange(len(HYPOTHESES)) == hypothesis, 1.0, 0.0), block_rows)


def stream(windows, seed=1, bias=0.0, n=N):
    """Confidences and outcomes, (windows, n)."""
    rng = np.random.default_rng(seed)
    confidence = rng.beta(6, 1.2, (windows, n)).clip(0.02, 0.995)
    return confidence, rng.random((windows, n)) < expit(logit(confidence) + np.asarray(bias))


def fed(settings, confidence, right, labelled, late=0):
    """Return the correction after all windows; labels of `labelled` rows come `late` windows late."""
    logic, blocks = settings.build(), []
    for k, rows in enumerate(confidence):
        blocks.append(logic.close(k, rows))
        if (of := k - late) >= 0:
            known = labelled[of]
            logic.push(blocks[of][known], confidence[of][known], right[of][known])
    return logic


def picked(shape, share, seed=2):
    return np.random.default_rng(seed).random(shape) < share


def witness(settings, hypothesis, confidence, right, labelled, paths, seed=3):
    """Mean and ends of the last window's accuracy, from paths of the bias with their exact likelihood."""
    rng = np.random.default_rng(seed)
    q, *parts = HYPOTHESES[hypothesis]
    parts = (parts[:2], parts[2:])
    k = math.sqrt(1 + math.pi / 8 * sum(v for v, _ in parts))
    size, (windows, n) = settings.block_rows, confidence.shape
    # The walk stands at the middle of the first block after half a block.
    walk = rng.normal(scale=math.sqrt(settings.variance + q * size / 2e4), size=paths)
    fast = [rng.normal(scale=math.sqrt(v), size=paths) if v else np.zeros(paths) for v, _ in parts]
    log, count, noise = np.zeros(paths), np.zeros(paths), np.zeros(paths)
    for block in range(windows * n // size):
        if block:
            walk = walk + rng.normal(scale=math.sqrt(q * size / 1e4), size=paths)
            keep = [math.exp(-size / length) for _, length in parts]
            fast = [
                rho * f + rng.normal(scale=math.sqrt(v * (1 - rho**2)) or 1e-300, size=paths)
                for rho, f, (v, _) in zip(keep, fast, parts, strict=True)
            ]
        loads = [math.sqrt(remembered(size, length)) for _, length in parts]
        bias = walk + sum(g * f for g, f in zip(loads, fast, strict=True))
        rows = slice(block * size, (block + 1) * size)
        c, hit, known = (each.reshape(-1)[rows] for each in (confidence, right, labelled))
        for level, one in zip(k * logit(c[known]), hit[known], strict=True):
            log += one * (level + bias) - np.logaddexp(0, level + bias)
        if block >= (windows - 1) * n // size:
            for level in k * logit(c[~known]):
                chance = expit(level + bias)
                count += chance
                noise += chance * (1 - chance)
    weight = np.exp(log - log.max())
    weight /= weight.sum()
    mean = float(weight @ count)
    apart = count - mean + rng.normal(size=paths) * np.sqrt(noise)
    order = np.argsort(apart)
    below = weight[order].cumsum()
    known = right[-1][labelled[-1]].sum()
    ends = [mean + apart[order[np.searchsorted(below, share)]] for share in (0.025, 0.975)]
    return [(known + each) / n for each in (mean, *ends)]


@pytest.mark.slow
@pytest.mark.parametrize("hypothesis", [0, 11, len(HYPOTHESES) - 1])
@pytest.mark.parametrize("share", [0.0, 0.1])
def test_it_is_near_the_posterior_of_many_drawn_paths(monkeypatch, hypothesis, share):
    monkeypatch.setattr(corrected, "_WIDER", (1.0, 1.0))
    settings = only(hypothesis, block_rows=40)
    confidence, right = stream(2, seed=hypothesis, bias=-0.7, n=200)
    labelled = picked(confidence.shape, share)
    expected = witness(settings, hypothesis, confidence, right, labelled, paths=60_000)
    estimate = fed(settings, confidence, right, labelled).estimate(1)
    # The paths' own error is 0.002; the assumed density, the linearisation and the shape of the interval are
    # allowed 4 % of its width more, and whole counts half a row.
    allowed = 0.005 + 0.04 * (expected[2] - expected[1])
    assert estimate.value == pytest.approx(expected[0], abs=0.006)
    assert [estimate.lower, estimate.upper] == pytest.approx(expected[1:], abs=allowed)


def test_labels_narrow_the_interval_around_the_truth():
    confidence, right = stream(30, bias=-0.8)
    without = fed(STEADY, confidence, right, picked(confidence.shape, 0)).estimate(29)
    labels = fed(STEADY, confidence, right, picked(confidence.shape, 0.2)).estimate(29)
    assert labels.upper - labels.lower < 0.5 * (without.upper - without.lower)
    assert labels.lower < right[29].mean() < labels.upper
    assert abs(labels.value - right[29].mean()) < abs(confidence[29].mean() - right[29].mean())


def test_the_order_and_the_cuts_of_labels_change_nothing():
    confidence, right = stream(8)
    labelled = picked(confidence.shape, 0.3)
    whole = fed(STEADY, confidence, right, labelled)
    pieces = STEADY.build()
    for k in range(8):
        blocks, rows = pieces.close(k, confidence[k]), np.flatnonzero(labelled[k])
        for some in np.array_split(np.random.default_rng(k).permutation(rows), 7):
            pieces.push(blocks[some], confidence[k][some], right[k][some])
    assert pack(whole.snapshot()) == pack(pieces.snapshot())
    assert whole.estimate(7) == pieces.estimate(7)


@pytest.mark.slow
def test_it_resumes_to_the_byte_wherever_it_was_cut():
    confidence, right = stream(24)
    labelled, late = picked(confidence.shape, 0.2), picked(confidence.shape, 0.1, seed=9)
    kept, resumed, blocks = STEADY.build(), STEADY.build(), []
    for k in range(24):
        blocks.append(kept.close(k, confidence[k]))
        assert (resumed.close(k, confidence[k]) == blocks[k]).all()
        for of, rows in ((k, labelled[k] & ~late[k]), (k - 9, labelled[k - 9] & late[k - 9])):
            if of >= 0:
                for logic in (kept, resumed):
                    logic.push(blocks[of][rows], confidence[of][rows], right[of][rows])
        resumed = STEADY.build(restored(unpack(pack(resumed.snapshot())), CorrectionState))
        assert pack(kept.snapshot()) == pack(resumed.snapshot()), k
        assert kept.estimate(k) == resumed.estimate(k), k
        assert kept.estimate(kept.windows[0]) == resumed.estimate(kept.windows[0]), k


@pytest.mark.parametrize("late", [0, 2, 7])
def test_asking_in_between_changes_nothing(late):
    """A query changes nothing either: windows alone or together, in one pass or in two."""
    confidence, right = stream(16)
    labelled = picked(confidence.shape, 0.2)
    labelled[:, 200:300] = False  # a block without labels
    queried, silent, blocks = STEADY.build(), STEADY.build(), []
    for k in range(16):
        for logic in (queried, silent):
            blocks.append(logic.close(k, confidence[k]))
        queried.estimate(k)
        if (of := k - late) >= 0:
            known = labelled[of]
            for logic in (queried, silent):
                logic.push(blocks[2 * of][known], confidence[of][known], right[of][known])
        queried.estimate(k, pooled=min(k + 1, 1 + k % 5))
    assert queried.estimate(15) == silent.estimate(15)
    assert pack(queried.snapshot()) == pack(silent.snapshot())
    assert queried.estimate(15, pooled=5) == silent.estimate(15, pooled=5)
    assert queried.estimate(12) == STEADY.build(silent.snapshot()).estimate(12)


def test_a_fully_labelled_window_is_known():
    confidence, right = stream(3)
    everything = np.ones(confidence.shape, dtype=bool)
    logic = fed(STEADY, confidence, right, everything)
    assert all((one.unlabelled == 0).all() for one in logic.snapshot().windows)
    assert logic.estimate(1) == Estimate(*[right[1].mean()] * 3, 0.95, N)


class History:
    """A random life of a correction: windows of several sizes, labels ahead, in time and late, and more."""

    def __init__(self, seed):
        self.rng, self.settings = np.random.default_rng([seed, 11]), Correction.unknown(100)
        self.logic, self.closed = self.settings.build(), 0
        sizes = self.rng.choice((100, 110, 60, 10, 0), 200, p=(0.7, 0.1, 0.1, 0.05, 0.05))
        self.ends = sizes.cumsum()
        confidence, right = stream(1, seed, bias=-0.5, n=sizes.sum())
        self.confidence, self.right, self.open = confidence[0], right[0], np.ones(sizes.sum(), dtype=bool)
        firsts = np.repeat(self.ends - sizes, sizes)
        self.block = corrected.block_starts(np.arange(len(firsts)), firsts, self.settings.block_rows)

    def close(self):
        first, end = np.append(0, self.ends)[self.closed : self.closed + 2]
        self.logic.close(self.closed, self.confidence[first:end])
        self.closed += 1

    def label(self):
        """Label some rows, or all, of one to four blocks: most of them recent, and some not yet closed."""
        newest = min(self.closed + self.rng.integers(2), 199)
        window = max(newest - self.rng.choice((0, 1, 2, 4, 9, 30)), 0)
        first = self.ends[window] - self.rng.integers(1, 101)
        rows = np.arange(max(first, 0), min(first + self.rng.choice((3, 25, 100)), self.ends[newest]))
        rows = rows[self.open[rows] & (self.rng.random(len(rows)) < self.rng.choice((0.1, 0.5, 1.0)))]
        self.open[rows] = False
        self.logic.push(self.block[rows], self.confidence[rows], self.right[rows])

    def recalibrate(self):
        self.logic.recalibrated(self.rng.normal(scale=0.3), 0.01)

    def restart(self):
        self.logic.restarted()

    def ask(self):
        """Ask for a forecast, or for windows together, and compare with what a resumed correction says."""
        resumed = self.settings.build(restored(unpack(pack(self.logic.snapshot())), CorrectionState))
        assert pack(resumed.snapshot()) == pack(self.logic.snapshot())
        at = self.rng.integers(-1, len(self.logic.windows))
        if at < 0:
            assert self.logic.forecast() == resumed.forecast()
        else:
            arguments = self.logic.windows[at], 0.95, self.rng.integers(1, at + 2)
            assert self.logic.estimate(*arguments) == resumed.estimate(*arguments)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("changes", ["few", "many"])
def test_a_resumed_correction_says_what_the_one_that_lived_on_says_whatever_came_before(seed, changes):
    life = History(seed)
    acts = life.close, life.label, life.ask, life.recalibrate, life.restart
    shares = (0.25, 0.35, 0.34, 0.05, 0.01) if changes == "few" else (0.15, 0.15, 0.25, 0.43, 0.02)
    for act in life.rng.choice(len(acts), 150, p=shares):
        acts[act]()
    assert life.closed > WINDOWS


def test_a_windows_own_late_labels_revise_it():
    confidence, right = stream(10, bias=np.repeat([0.0, -1.5], 5)[:, None])
    logic = fed(STEADY, confidence[:9], right[:9], picked((9, N), 0.2))
    blocks = logic.close(9, confidence[9])
    before = logic.estimate(9)
    known = picked(N, 0.4)
    logic.push(blocks[known], confidence[9][known], right[9][known])
    after = logic.estimate(9)
    assert after.upper - after.lower < 0.75 * (before.upper - before.lower)
    assert after.lower < right[9].mean() < after.upper


def test_pooled_windows_are_one_longer_window():
    confidence, right = stream(6, bias=-0.5)
    logic = fed(STEADY, confidence, right, picked(confidence.shape, 0.2))
    pooled, newest = logic.estimate(5, pooled=5), logic.estimate(5)
    assert pooled.n == 5 * N
    assert pooled.value == pytest.approx(np.mean([logic.estimate(k).value for k in range(1, 6)]), abs=0.01)
    assert pooled.upper - pooled.lower < 0.8 * (newest.upper - newest.lower)


@pytest.mark.slow
@pytest.mark.parametrize("late", [0, 1, 10, 200])
def test_the_state_stays_small_however_late_labels_come(late):
    rng = np.random.default_rng(4)
    confidence, right = stream(260, bias=rng.normal(scale=0.3, size=(260, 1)), n=250)
    logic = fed(Correction.unknown(250), confidence, right, picked(confidence.shape, 0.1), late)
    state = logic.snapshot()
    assert len(state.starts) <= BLOCKS + 5 * WINDOWS
    assert len(pack(state)) < 32_000
    assert state.labelled == picked(confidence.shape, 0.1)[: 260 - late].sum()
    assert isinstance(logic.estimate(259), Estimate)


def test_labels_that_come_very_late_still_find_the_time_of_their_answers():
    """A bias of long ago is not taken for that of now."""
    bias = np.where(np.arange(120) < 60, -1.5, 0.0)[:, None]
    confidence, right = stream(120, bias=bias)
    old = np.zeros(confidence.shape, dtype=bool)
    old[30:60, ::5] = True
    recent = np.zeros(confidence.shape, dtype=bool)
    recent[100:, ::5] = True
    logic, blocks = STEADY.build(), []
    for k in range(120):
        blocks.append(logic.close(k, confidence[k]))
        logic.push(blocks[k][recent[k]], confidence[k][recent[k]], right[k][recent[k]])
    alone = logic.estimate(119)
    for k in range(30, 60):
        logic.push(blocks[k][old[k]], confidence[k][old[k]], right[k][old[k]])
    estimate = logic.estimate(119)
    assert estimate.value == pytest.approx(alone.value, abs=0.02)
    assert estimate.lower < right[119].mean() < estimate.upper


def test_old_labels_count_whenever_they_come():
    """Labels of a window before the kept ones come after later windows left without labels."""
    confidence, right = stream(14, bias=-1.0)
    early, late = STEADY.build(), STEADY.build()
    for k in range(14):
        for logic in (early, late):
            blocks = logic.close(k, confidence[k])
        if k == 10:
            early.push(blocks % N + N, confidence[1], right[1])
    before = early.estimate(13)
    late.push(blocks % N + N, confidence[1], right[1])
    for logic in (early, late):
        logic.push(blocks % N + 4 * N, confidence[4], right[4])
    assert early.estimate(13) == late.estimate(13) != before


def test_another_calibration_moves_the_bias_and_counts_no_label_twice():
    confidence, right = stream(12, bias=-0.8)
    labelled = picked(confidence.shape, 0.2)
    logic, moved, follows = STEADY.build(), -0.8, Correction.unknown(N).build()
    better = expit(logit(confidence) + moved)
    for k in range(12):
        blocks = follows.close(k, confidence[k])
        follows.push(blocks[labelled[k]], confidence[k][labelled[k]], right[k][labelled[k]])
        now = confidence if k < 6 else better
        if k == 6:
            logic.recalibrated(moved, 0.0)
        blocks = logic.close(k, now[k])
        logic.push(blocks[labelled[k]], now[k][labelled[k]], right[k][labelled[k]])
    one, other = logic.estimate(11), follows.estimate(11)
    assert one.value == pytest.approx(other.value, abs=0.01)
    assert one.upper - one.lower == pytest.approx(other.upper - other.lower, abs=0.01)
    assert logic.labelled == follows.labelled


@pytest.mark.parametrize("share", [0.0, 0.2])
def test_another_calibration_may_come_within_a_window(share):
    """The bias moves at the row of the change, whether the window has labels or none."""
    confidence, right = stream(6, bias=-0.8)
    labelled, moved, row = picked(confidence.shape, 0.2), -0.8, 5 * N + 300
    labelled[5] = picked((N,), share)
    changed = confidence.copy()
    changed[5, 300:] = expit(logit(confidence[5, 300:]) + moved)
    logic, follows = only(0).build(), only(0).build()
    for k in range(6):
        if k == 5:
            logic.recalibrated(moved, 0.0, row)
        for one, rows in ((logic, changed[k]), (follows, confidence[k])):
            blocks = one.close(k, rows)
            one.push(blocks[labelled[k]], rows[labelled[k]], right[k][labelled[k]])
    one, other = logic.estimate(5), follows.estimate(5)
    for end in ("value", "lower", "upper"):
        assert getattr(one, end) == pytest.approx(getattr(other, end), abs=0.005)
    assert logic.forecast().mean == pytest.approx(follows.forecast().mean - moved, abs=0.02)


def test_many_recalibrations_stay_bounded_and_add_up():
    logic, once = STEADY.build(), STEADY.build()
    confidence, _ = stream(2)
    for k in range(2):
        if k:
            for _ in range(40):
                logic.recalibrated(0.01, 0.001)
            once.recalibrated(0.4, 0.04)
        for each in (logic, once):
            each.close(k, confidence[k])
    assert len(logic.snapshot().shifts) == 16
    assert logic.estimate(1).value == pytest.approx(once.estimate(1).value, abs=1e-9)
    assert logic.estimate(1).upper == pytest.approx(once.estimate(1).upper, abs=1e-9)


def test_each_of_many_recalibrations_counts_once():
    """The first is older than the kept windows, and the others come within them."""
    confidence, right = stream(9)
    logic = fed(STEADY, confidence[:1], right[:1], picked((1, N), 0.2))
    logic.recalibrated(1.0, 0.0)
    for k in range(1, 9):
        logic.close(k, confidence[k])
    labelled = np.arange(N, 3 * N)
    logic.push(labelled // 100 * 100, confidence[1:3].ravel(), right[1:3].ravel())
    logic.close(9, confidence[0])
    before = logic.forecast()
    for _ in range(20):
        logic.recalibrated(0.0, 0.0)
    assert logic.forecast().mean == pytest.approx(before.mean, abs=1e-9)
    assert len(logic.snapshot().shifts) == 16


def test_a_restart_outlives_many_recalibrations():
    confidence, right = stream(4, bias=-1.5)
    labelled = picked(confidence.shape, 0.2)
    logic, fresh = fed(STEADY, confidence, right, labelled), STEADY.build()
    logic.restarted()
    for _ in range(20):
        for each in (logic, fresh):
            each.recalibrated(0.1, 0.001)
    logic.close(4, confidence[0])
    fresh.close(4, confidence[0])
    one, other = logic.estimate(4), fresh.estimate(4)
    assert [one.value, one.lower, one.upper] == pytest.approx([other.value, other.lower, other.upper])


def test_labels_may_come_before_their_window_closes():
    """Labels of an open window, some of it shorter than a block, count as those that come after it closed."""
    confidence, right = stream(4)
    sizes, labelled = (N, 260, 40, N), picked(confidence.shape, 0.3)
    early, after, first = STEADY.build(), STEADY.build(), 0
    for k, n in enumerate(sizes):
        rows = np.flatnonzero(labelled[k][:n])
        blocks = first + np.arange(n) // 100 * 100
        early.push(blocks[rows], confidence[k][rows], right[k][rows])
        early = STEADY.build(restored(unpack(pack(early.snapshot())), CorrectionState))
        for logic in (early, after):
            assert (logic.close(k, confidence[k][:n]) == blocks).all()
        after.push(blocks[rows], confidence[k][rows], right[k][rows])
        first += n
    assert pack(early.snapshot()) == pack(after.snapshot())
    assert early.estimate(3) == after.estimate(3)


def test_another_version_starts_from_the_prior_and_old_windows_keep_theirs():
    confidence, right = stream(8, bias=np.repeat([-1.5, 0.0], 4)[:, None])
    labelled = picked(confidence.shape, 0.2)
    logic, fresh = STEADY.build(), Correction.unknown(N).build(CorrectionState.beginning_at(4 * N))
    for k in range(8):
        if k == 4:
            before = [logic.estimate(3), logic.estimate(3, pooled=2)]
            logic.restarted()
            assert logic.labelled == 0
        blocks = logic.close(k, confidence[k])
        logic.push(blocks[labelled[k]], confidence[k][labelled[k]], right[k][labelled[k]])
        if k >= 4:
            assert (fresh.close(k, confidence[k]) == blocks).all()
            fresh.push(blocks[labelled[k]], confidence[k][labelled[k]], right[k][labelled[k]])
            assert logic.labelled == fresh.labelled
    assert [logic.estimate(3), logic.estimate(3, pooled=2)] == before
    for pooled in (1, 4):
        one, other = logic.estimate(7, pooled=pooled), fresh.estimate(7, pooled=pooled)
        assert [one.value, one.lower, one.upper] == pytest.approx([other.value, other.lower, other.upper])
    assert isinstance(logic.estimate(5, pooled=4), Estimate)  # over both versions
    resumed = STEADY.build(restored(unpack(pack(logic.snapshot())), CorrectionState))
    assert resumed.estimate(7) == logic.estimate(7)


def test_a_group_starts_where_its_reference_is():
    rng = np.random.default_rng(8)
    confidence = rng.beta(6, 1.2, 3000).clip(0.02, 0.995)
    right = rng.random(3000) < expit(logit(confidence) - 0.4)
    group = Correction.from_group(confidence, right, N)
    assert group.mean == pytest.approx(-0.4, abs=0.1)
    few = Correction.from_group(confidence[:40], right[:40], N)
    none = Correction.from_group([], [], N)
    assert abs(few.mean) < abs(group.mean)
    assert group.variance < few.variance < none.variance
    assert (none.mean, none.variance) == (0.0, pytest.approx(0.043))
    assert (few.weights == none.weights).all()
    assert (group.weights != none.weights).any()
    window, unlabelled = (confidence[None, :N], right[None, :N]), picked((1, N), 0.0)
    low, plain = (fed(one, *window, unlabelled) for one in (group, none))
    assert low.estimate(0).value < plain.estimate(0).value - 0.03


def test_windows_of_any_size_have_blocks_of_their_own():
    logic = STEADY.build()
    for k, n in enumerate((N, 525, 40, 20, 1, 0, N)):
        blocks = logic.close(k, np.full(n, 0.8))
        assert len(blocks) == n
        assert len(np.unique(blocks)) == -(-n // 100)
        logic.push(blocks[:7], np.full(min(n, 7), 0.8), np.arange(min(n, 7)) > 1)
    assert logic.estimate(6).n == N
    assert logic.estimate(4) == Estimate(0.0, 0.0, 0.0, 0.95, 1)  # its one row is labelled, and wrong
    assert logic.estimate(5) == Unknown(Reason.NO_ROWS)
    assert logic.estimate(5, pooled=3) == logic.estimate(4, pooled=2)  # a window without rows adds nothing
    assert logic.estimate(6, pooled=3).n == N + 1


def test_certain_answers_keep_a_value():
    logic = STEADY.build()
    blocks = logic.close(0, np.ones(N))
    logic.push(blocks[:100], np.ones(100), np.arange(100) > 49)
    estimate = logic.estimate(0)
    assert 0 <= estimate.lower <= estimate.value <= estimate.upper <= 1


def test_a_wider_level_has_a_wider_interval():
    confidence, right = stream(4)
    logic = fed(STEADY, confidence, right, picked(confidence.shape, 0.2))
    estimates = [logic.estimate(3, level) for level in (0.5, 0.8, 0.9, 0.95, 0.99)]
    widths = [one.upper - one.lower for one in estimates]
    assert widths == sorted(widths)
    assert len({one.value for one in estimates}) == 1


def test_a_still_reference_keeps_the_still_hypothesis_and_a_moving_one_does_not():
    rng = np.random.default_rng(5)
    confidence = rng.beta(6, 1.2, 5000)
    still = Correction.from_reference(confidence, rng.random(5000) < confidence, N)
    moves = logit(confidence.clip(1e-6, 1 - 1e-6)) + np.repeat(rng.normal(scale=1.2, size=25), 200)
    moving = Correction.from_reference(confidence, rng.random(5000) < expit(moves), N)
    assert still.weights[0] > 0.8 * STILL
    assert moving.weights[0] < 0.2
    assert moving.weights.sum() == pytest.approx(1)
    assert len(moving.weights) == len(HYPOTHESES)


@pytest.mark.simulation
def test_it_covers_on_stable_streams_and_on_drift():
    """12 streams of 20 windows each: one binomial error of 240 windows at 95 % is 1.4 points."""
    for drift, least in ((0.0, 0.92), (0.6, 0.9)):
        held = []
        for seed in range(12):
            rng = np.random.default_rng([seed, 8])
            bias = np.cumsum(rng.normal(scale=drift / 3, size=50)) if drift else np.zeros(50)
            confidence, right = stream(50, seed=seed, bias=0.7 * (bias - bias[0])[:, None])
            settings = Correction.from_reference(confidence[:10].ravel(), right[:10].ravel(), N)
            logic = settings.build()
            for k in range(10, 50):
                blocks = logic.close(k, confidence[k])
                known = picked(N, 0.1, seed=k)
                logic.push(blocks[known], confidence[k][known], right[k][known])
                if k >= 30:
                    estimate = logic.estimate(k)
                    held.append(estimate.lower <= right[k].mean() <= estimate.upper)
        assert np.mean(held) >= least, drift


def test_bad_settings_are_named():
    weights = STEADY.weights
    for values, text in (
        ((-1.0, weights, 100), "variance must be 0 or more logits², got -1.0"),
        ((math.inf, weights, 100), "variance must be 0 or more logits², got inf"),
        ((0.1, weights, 0), "block_rows must be 1 row or more, got 0"),
        ((0.1, weights[:3], 100), f"weights must be {len(HYPOTHESES)} numbers whose sum is 1, got 3"),
        ((0.1, weights * 2, 100), "whose sum is 2"),
    ):
        with pytest.raises(ConfigError, match="(?s)" + text.replace("²", ".").split(",")[0]):
            Correction(*values)
    with pytest.raises(ConfigError, match="window_rows must be 1 row or more, got 0"):
        Correction.unknown(0)
    with pytest.raises(ValueError, match="right must have a value for each confidence"):
        Correction.from_reference(np.full(10, 0.9), np.ones(9, dtype=bool), N)


def test_bad_rows_are_named():
    logic = STEADY.build()
    blocks = logic.close(3, np.full(N, 0.9))
    with pytest.raises(ValueError, match="window must be above 3, got 3: it has closed"):
        logic.close(3, np.full(N, 0.9))
    with pytest.raises(ValueError, match="block must be one that close returns, 0 or more, got -1"):
        logic.push(np.array([-1]), np.array([0.9]), np.array([True]))
    with pytest.raises(ValueError, match=r"window must be one of \(3,\), with the 0 before it, got 4"):
        logic.estimate(4)
    with pytest.raises(ValueError, match=r"with the 1 before it, got 3"):
        logic.estimate(3, pooled=2)
    with pytest.raises(ValueError, match="level"):
        logic.estimate(3, level=1.0)
    logic.push(blocks[:2], np.array([np.nan, 0.9]), np.array([True, True]))
    assert logic.labelled == 1


def test_rows_whose_confidence_was_another_when_their_labels_came_leave_a_share():
    """A calibration may change while a window is open; all but one of its rows are labelled, and wrong."""
    logic = STEADY.build()
    logic.push(np.arange(N - 1) // 100 * 100, np.full(N - 1, 0.95), np.zeros(N - 1, dtype=bool))
    logic.close(0, np.full(N, 0.9))
    estimate = logic.estimate(0)
    assert 0 <= estimate.lower <= estimate.value <= estimate.upper <= 1 / N


def test_the_forecast_is_that_of_the_start_until_labels_come_and_then_follows_them():
    """2,000 labels at a bias of one logit below what the confidences say."""
    logic, confidence = STEADY.build(), np.full(N, 0.9)
    blocks = logic.close(0, confidence)
    assert STEADY.forecast.mean == 0.0
    assert logic.forecast().mean == pytest.approx(0.0, abs=1e-12)
    assert logic.forecast().deviation == pytest.approx(STEADY.forecast.deviation, rel=0.1)
    rng = np.random.default_rng(5)
    for window in range(1, 6):
        logic.push(blocks, confidence, rng.random(N) < expit(logit(0.9) - 1.0))
        blocks = logic.close(window, confidence)
    forecast = logic.forecast()
    assert forecast.mean == pytest.approx(-1.0, abs=3 * forecast.deviation)
    assert forecast.deviation < 0.5
    assert logic.forecast() == forecast
    resumed = STEADY.build(logic.snapshot())
    assert resumed.forecast() == forecast


def test_a_forecast_changes_nothing_of_later_windows():
    """It keeps the belief at the end of the newest window, from which the next one starts."""
    estimates = []
    for with_forecast in (False, True):
        logic, confidence = STEADY.build(), np.full(N, 0.9)
        rng = np.random.default_rng(6)
        for window in range(5):
            blocks = logic.close(window, confidence)
            logic.push(blocks[::3], confidence[::3], rng.random(len(blocks[::3])) < 0.8)
            if with_forecast:
                logic.forecast()
            if window == 2:
                logic.recalibrated(-0.5, 0.01)
            estimates.append(logic.estimate(window))
    assert estimates[:5] == estimates[5:]


def test_a_forecast_between_late_labels_and_pooled_windows_changes_neither():
    """It continues after the last block whose belief is known, and counts no block after it."""
    confidence, right = stream(3)
    labelled = picked((3, N), 0.2)
    logic = fed(STEADY, confidence, right, labelled)
    logic.estimate(2, pooled=3)
    rows = 2 * N + np.arange(200, 300), confidence[2][200:300], right[2][200:300]
    logic.push(rows[0] // 100 * 100, *rows[1:])
    logic.forecast()
    resumed = STEADY.build(restored(unpack(pack(logic.snapshot())), CorrectionState))
    assert logic.estimate(2, pooled=3) == resumed.estimate(2, pooled=3)


@pytest.mark.parametrize("apart", [0.01, 0.5, 8.0])
def test_a_quantile_of_a_mixture_has_its_share_below_it(apart):
    """Also of normals that lie far apart, or differ much in width."""
    rng = np.random.default_rng(9)
    for seed in range(40):
        centres, weight = rng.normal(scale=apart, size=(2, 20)), rng.dirichlet(np.full(20, 0.3))
        deviations = np.exp(rng.normal(scale=seed / 40, size=(2, 20))) / 4
        shares = np.array([0.005, 0.995] if seed % 2 else [0.1, 0.9])
        quantiles = corrected._quantiles(weight, centres, deviations, shares)
        below = (ndtr((quantiles[:, None] - centres) / deviations) * weight).sum(axis=1)
        assert ndtri(below) == pytest.approx(ndtri(shares), abs=2e-4)


def test_a_chance_is_shifted_in_logits():
    chances = shifted(np.array([0.5, 1.0]), np.array([2.0, 1.0]), np.array([1.0, 0.0]))
    assert chances == pytest.approx([expit(1.0), 1 - 1e-6])


@pytest.mark.parametrize("rows", [(100,), (100, 100, 100), (100, 25, 60)])
def test_blocks_without_labels_together_are_what_they_are_one_by_one(rows):
    """Witness: `_after_block` at the middle of each, and the drift between them."""
    confidence, right = stream(4)
    logic = fed(
        Correction.from_reference(*(each.ravel() for each in stream(8, seed=4)), N),
        confidence,
        right,
        picked((4, N), 0.1),
    )
    logic.estimate(3, pooled=3)
    belief = logic._passed[3].counted
    unlabelled = np.stack(
        [each.sum(axis=0) for each in np.split(corrected._expected(confidence[0]), [150, 290])]
    )
    unlabelled = unlabelled[: len(rows)].astype(np.int64)
    slow, places = belief, np.cumsum(rows) - np.array(rows) / 2
    for at, many, expected in zip(places, rows, unlabelled, strict=True):
        slow = corrected._moved(slow, belief.at + at - places[0], belief.weight, 1.0)
        slow = corrected._after_block(slow, many, None, expected)
    counts = corrected._after_unlabelled(belief, rows, unlabelled)
    assert counts.shape == (5, 3, len(HYPOTHESES))
    assert counts == pytest.approx(slow.state[:, 3:], rel=1e-9, abs=1e-9)


def test_a_revision_works_out_the_blocks_from_its_first_new_label_on_alone(monkeypatch):
    """Labels of a window that come block by block, each followed by a revision."""
    confidence, right = stream(4)
    labelled = picked((4, N), 0.2)
    labelled[2:] = False
    logic, worked_out = fed(STEADY, confidence, right, labelled), []
    block_by_block = corrected._after_block

    def counting(belief, *block):
        worked_out.append(block)
        return block_by_block(belief, *block)

    monkeypatch.setattr(corrected, "_after_block", counting)
    logic.estimate(2)
    blocks = 2 * N + np.arange(N) // 100 * 100
    for first in range(0, N, 100):
        worked_out.clear()
        rows = slice(first, first + 20)
        logic.push(blocks[rows], confidence[2][rows], right[2][rows])
        logic.estimate(2)
        assert len(worked_out) == 1, first
    resumed = STEADY.build(restored(unpack(pack(logic.snapshot())), CorrectionState))
    assert resumed.estimate(2) == logic.estimate(2)
