"""The filter on the bias of the confidences: laws, slow witnesses, late labels, resuming, what it follows."""

from __future__ import annotations

import math

import msgspec
import numpy as np
import pytest
from scipy.special import expit, logit
from scipy.stats import norm

from monitor.base.errors import ConfigError
from monitor.base.results import Unknown
from monitor.stats.estimate import bias_filter
from monitor.stats.estimate.bias_filter import BLOCKS_OPEN, BiasFilter
from monitor.stats.estimate.bias_law import (
    FARTHEST,
    LATTICE,
    NODES,
    STEP,
    UNIT,
    BiasLaw,
    biased,
    damped,
    expected_shift,
    gains_of,
    on_lattice,
    spread,
)
from monitor.stats.estimate.filtered import filtered_interval, law_of_window
from monitor.stats.estimate.poisson_binomial import PoissonBinomial, TrimmedPmf
from monitor.stats.estimate.predictive import Predictive, predictive_interval
from monitor.stats.estimate.variance_components import Components, remembered
from tests.fidelity.simulated import ORIGINAL, confidences
from tests.nearly import nearly
from tests.plain_state import through_msgpack

SETTINGS = BiasFilter(variance=0.01, components=Components(0.0, ((1000.0, 0.01),), 10_000))
SHARP = Predictive((np.zeros(0),), np.zeros((1, 1)), None)


def point(bias):
    return np.where(np.isclose(LATTICE, bias), 1.0, 0.0)


def rows_with(bias, n, seed=1, every=1):
    rng = np.random.default_rng(seed)
    confidence = confidences(rng, ORIGINAL, (n,)).clip(1e-6, 1 - 1e-6)
    return np.arange(n) * every, confidence, rng.random(n) < expit(logit(confidence) + bias)


def state_of(logic):
    return {
        name: np.asarray(value).tolist() for name, value in msgspec.structs.asdict(logic.snapshot()).items()
    }


def built(rows, settings=SETTINGS):
    logic = settings.build()
    logic.push(*rows)
    return logic


class TestLaw:
    @pytest.mark.parametrize("variance", [1e-4, 0.01, 0.3])
    def test_spreading_keeps_the_mean_adds_the_variance_and_twice_is_by_the_sum(self, variance):
        once = BiasLaw(spread(point(0.5), variance))
        assert once.mass.sum() == pytest.approx(1, abs=1e-9)
        assert once.mean == pytest.approx(0.5, abs=1e-6)
        assert once.variance == pytest.approx(variance, rel=1e-4)
        twice = spread(spread(point(0.5), variance / 3), 2 * variance / 3)
        assert np.allclose(once.mass, twice, atol=1e-12)

    def test_a_wide_one_is_normal_and_stays_on_the_lattice(self):
        wide = spread(point(0.0), 0.25)
        assert np.allclose(wide, STEP * norm.pdf(LATTICE, 0, 0.5), atol=1e-4)
        assert spread(point(3.0), 10.0).sum() == pytest.approx(1, abs=1e-9)

    def test_quantiles_rise_and_stay_within_the_lattice(self):
        law = BiasLaw(spread(point(-1.0), 0.04))
        found = [law.quantile(share) for share in (0.0, 0.025, 0.5, 0.975, 1.0)]
        assert found == sorted(found)
        assert found[1:4] == pytest.approx([-1.392, -1.0, -0.608], abs=0.005)
        assert max(map(abs, found)) <= FARTHEST + STEP

    def test_seventeen_nodes_tell_a_likelihood_of_a_thousand_rows_everywhere(self):
        _, confidence, right = rows_with(0.3, 1000)

        def likelihood(bias):
            shifted = logit(confidence)[:, None] + bias
            return (np.where(right[:, None], 1.0, -1.0) * shifted / 2 - np.logaddexp(0, shifted)).sum(axis=0)

        exact = likelihood(LATTICE)
        found = on_lattice(likelihood(NODES))
        assert np.abs(found - exact).max() < 1e-3  # nats, of hundreds
        assert np.ptp(exact) > 100

    def test_expected_shifts_are_those_of_each_row(self):
        confidence = np.array([0.0, 1e-9, 0.3, 0.9, 1.0])
        slow = [
            sum(expit(logit(c) + b) if 0 < c < 1 else c for c in confidence) - confidence.sum() for b in NODES
        ]
        assert expected_shift(confidence, NODES) == pytest.approx(slow, abs=1e-9)

    def test_a_window_under_a_law_is_the_mixture_of_what_each_bias_shifts_it_to(self):
        """Against the mixture of exact distributions at each bias, whose mean and spread it has but for
        the change of the chance's own variance with the bias: at 0.3 logits, a few percent."""
        confidence = confidences(np.random.default_rng(2), ORIGINAL, (400,)).clip(1e-6, 1 - 1e-6)
        law, counts = BiasLaw(spread(point(-0.3), 0.01)), np.arange(401)
        exact = sum(
            m * PoissonBinomial(expit(logit(confidence) + b)).pmf
            for b, m in zip(LATTICE, law.mass, strict=True)
        )
        found = biased(TrimmedPmf(0, PoissonBinomial(confidence).pmf, 400), confidence, law)
        fast = np.bincount(found.offset + np.arange(len(found.mass)), found.mass, minlength=401)
        mean, deviation = exact @ counts, math.sqrt(exact @ counts**2 - (exact @ counts) ** 2)
        assert fast @ counts == pytest.approx(mean, abs=0.1)
        assert math.sqrt(fast @ counts**2 - (fast @ counts) ** 2) == pytest.approx(deviation, rel=0.15)

    def test_a_law_without_width_shifts_by_whole_counts_and_none_leaves_the_window(self):
        one = TrimmedPmf(offset=5, mass=np.array([0.5, 0.5]), n=10)
        same = biased(one, np.full(10, 0.5), BiasLaw(point(0.0)))
        assert (np.arange(len(same.mass)) + same.offset) @ same.mass == pytest.approx(5.5, abs=0.01)
        for bias in (-FARTHEST, FARTHEST):
            ends = biased(one, np.full(10, 0.5), BiasLaw(point(bias)))
            assert ends.offset >= 0
            assert ends.offset + len(ends.mass) <= 11
            assert ends.mass.sum() == pytest.approx(1)


class TestFilter:
    @pytest.mark.parametrize(("speaks", "believed"), [(0.0, slice(16)), (1e9, slice(16, 17))])
    def test_one_block_is_bayes_rule_under_each_hypothesis(self, speaks, believed, monkeypatch):
        """40 rows in one block, in which nothing walks or jumps far: normals in the place of cosines."""
        monkeypatch.setattr(bias_filter, "_SPEAKS", speaks)
        settings = BiasFilter(variance=0.3, components=None, block_rows=40)
        position, confidence, right = rows_with(-1.0, 40)
        odds = np.where(right[:, None], 1.0, -1.0) * (logit(confidence)[:, None] + LATTICE)
        likelihood = np.exp(-np.logaddexp(0, -odds).sum(axis=0))
        weight, noise, _ = bias_filter._hypotheses()
        exact = np.zeros(len(LATTICE))
        for share, f in zip(weight[believed], noise[believed], strict=True):
            own = math.sqrt(max(f * remembered(40, 300), 1e-9))
            kernel = norm.pdf(LATTICE[:, None], LATTICE, max(own, STEP / 10))
            kernel /= kernel.sum(axis=0)
            seen = likelihood / likelihood.max() @ kernel
            exact += kernel @ (share * STEP * norm.pdf(LATTICE, 0, math.sqrt(0.3)) * seen)
        exact /= exact.sum()
        found = built((position, confidence, right), settings).of_window(start=0, n=40, information=1.0)
        mean = float(exact @ LATTICE)
        assert found.mean == pytest.approx(mean, abs=0.02)
        assert found.variance == pytest.approx(float(exact @ (LATTICE - mean) ** 2), rel=0.05)

    def test_without_labels_it_is_the_reference_however_long(self):
        law = SETTINGS.build().of_window(start=0, n=1000, information=50.0)
        assert law.mean == pytest.approx(0, abs=1e-9)
        assert law.quantile(0.9) == pytest.approx(1.28 * math.sqrt(0.01 + 0.01 * 0.74), rel=0.2)
        later = SETTINGS.build().of_window(start=500_000, n=1000, information=50.0)
        assert later.mass == pytest.approx(law.mass, abs=1e-12)

    def test_a_store_without_the_still_hypothesis_goes_on(self):
        """Its closed blocks count as no evidence for either kind; both laws are the same then."""
        whole = built(rows_with(-0.5, 8000, every=10))
        state = whole.snapshot()
        assert state.base is not None
        old = SETTINGS.build(through_msgpack(msgspec.structs.replace(state, base=state.base[:-1])))
        found, expected = (each.of_window(80_000, 500, 25.0) for each in (old, whole))
        assert found.mean == pytest.approx(expected.mean, abs=0.1)
        assert len(old.snapshot().base) == 17

    def test_neither_cuts_nor_order_nor_questions_in_between_can_be_seen(self):
        rows = rows_with(-0.5, 3000, every=10)
        whole, single, shuffled = built(rows), SETTINGS.build(), SETTINGS.build()
        for place in range(3000):
            single.push(*(column[place : place + 1] for column in rows))
            if place % 700 == 0:
                single.of_window(place * 10, 500, 25.0)
        order = np.random.default_rng(3).permutation(3000)  # 60 blocks: all stay open
        for piece in np.array_split(order, 7):
            shuffled.push(*(column[piece] for column in rows))
            shuffled.of_window(30_000, 500, 25.0)
        laws = [each.of_window(30_000, 500, 25.0).mass.tolist() for each in (whole, single, shuffled)]
        assert laws[0] == laws[1] == laws[2]
        assert state_of(whole) == state_of(single) == state_of(shuffled)

    def test_what_it_remembers_between_late_labels_cannot_be_seen(self):
        """Labels up to 15,000 rows late, a question every 500: each as of one that remembers nothing."""
        rng, asked = np.random.default_rng(5), SETTINGS.build()
        for end in range(500, 60_000, 500):
            late = np.maximum(end - 1 - rng.integers(0, 15_000, 20), 0)
            asked.push(late, np.full(20, 0.9), rng.random(20) < 0.85)
            law = asked.of_window(end, 500, 25.0)
            if end % 7000 == 0:
                fresh = SETTINGS.build(asked.snapshot()).of_window(end, 500, 25.0)
                assert law.mass.tolist() == fresh.mass.tolist()

    @pytest.mark.parametrize("cut", [1, 500, 4000])
    def test_a_resumed_one_goes_on_alike_also_beyond_the_open_blocks(self, cut):
        rows = rows_with(0.4, 5000, every=20)  # 200 blocks
        whole, before = built(rows), built([column[:cut] for column in rows])
        before.of_window(cut * 20, 500, 25.0)
        after = SETTINGS.build(through_msgpack(before.snapshot()))
        after.push(*(column[cut:] for column in rows))
        assert state_of(after) == state_of(whole)
        law, other = (each.of_window(100_000, 500, 25.0) for each in (after, whole))
        assert law.mass.tolist() == other.mass.tolist()
        # They are let go of eight at a time.
        assert BLOCKS_OPEN <= len(whole.snapshot().blocks) < BLOCKS_OPEN + 8

    @pytest.mark.parametrize("bias", [0.0, -1.0])
    def test_the_law_is_that_of_one_hypothesis_after_the_other(self, bias):
        """From the start, each by itself: a slow witness, of blocks that are let go of too."""
        position, confidence, right = rows_with(bias, 2500, every=20)  # 100 blocks
        law = built((position, confidence, right)).of_window(50_000, 500, 25.0)
        weight, noise, rates = bias_filter._hypotheses()
        point_mass = np.where(np.isclose(LATTICE, 0.0), 1.0, 0.0)
        lasting = SETTINGS.components.lasting * (np.arange(17) == 16)  # the still one leaves it to windows
        start = np.maximum(SETTINGS.variance - lasting - STEP**2 / 6, 0.0)
        joint = [w * spread(point_mass, own) for w, own in zip(weight, start, strict=True)]

        def moved(joint, rows):
            joint = [damped(one, np.exp(-rows * decay)) for one, decay in zip(joint, rates, strict=True)]
            kept = np.exp(-0.05 * rows / 10_000)
            total = sum(joint[:-1])
            back = [(1 - kept) * w * total for w in weight[:-1]]
            return [*(kept * one + more for one, more in zip(joint[:-1], back, strict=True)), joint[-1]]

        varying = SETTINGS.components.moving(500, math.inf) + noise * remembered(500, 300.0)
        for block in range(100):
            joint = moved(joint, 500 if block else 250)
            of = position // 500 == block
            gains = on_lattice(gains_of(confidence[of], right[of]).sum(axis=0) * UNIT)
            likely = [spread(np.exp(gains - gains.max()), own) for own in varying]
            most = max(one.max() for one in likely)
            joint = [one * (own / most + 1e-5) for one, own in zip(joint, likely, strict=True)]
            whole = sum(one.sum() for one in joint)
            joint = [one / whole for one in joint]
        joint = moved(joint, 500)
        still = sum(one.sum() for one in joint[:-1]) < 3 * joint[-1].sum()
        assert still == (bias == 0.0)
        window = SETTINGS.components.moving(500, 25.0) + noise * remembered(500, 300.0) + lasting
        believed = [spread(one, own) for one, own in zip(joint, window, strict=True)]
        mass = believed[-1] if still else sum(believed[:-1])
        assert law.mass == pytest.approx(mass / mass.sum(), rel=1e-9, abs=1e-12)

    def test_late_labels_count_where_their_rows_stand(self):
        """A dip that is over, labelled after it: believed of its own time, hardly of now."""
        position, confidence, right = rows_with(0.0, 4000, every=5)
        dip = (position >= 5000) & (position < 10_000)
        rng = np.random.default_rng(4)
        right = np.where(dip, rng.random(4000) < expit(logit(confidence) - 1.5), right)
        logic = SETTINGS.build()
        for some in (~dip, dip):
            logic.push(position[some], confidence[some], right[some])
        assert logic.of_window(9500, 500, 25.0).mean < -1.0
        assert abs(logic.of_window(20_000, 500, 25.0).mean) < 0.3
        alone = built([c[position < 5000] for c in (position, confidence, right)])
        early, without = (each.of_window(4500, 500, 25.0).mass for each in (logic, alone))
        assert early == nearly(without)  # what comes after a window says nothing of it

    def test_a_label_of_a_closed_block_counts_in_the_oldest_open_one(self):
        logic = SETTINGS.build()
        one = np.array([0.9]), np.array([False])
        logic.push(np.array([500 * 100]), *one)
        logic.push(np.array([3]), *one)
        assert logic.snapshot().blocks == [100 - BLOCKS_OPEN + 1, 100]
        assert logic.labelled == 2

    def test_a_jump_of_five_points_is_followed(self):
        """5 % of labels, 10 lives: after 40,000 rows the law lies about the new bias, -0.47 logits."""
        means = []
        for seed in range(10):
            position, confidence, right = rows_with(0.0, 3000, seed, every=20)
            later = position >= 20_000
            rng = np.random.default_rng([seed, 5])
            right = np.where(later, rng.random(3000) < expit(logit(confidence) - 0.47), right)
            means.append(built((position, confidence, right)).of_window(60_000, 5000, 250.0).mean)
        # 2,000 labels after it have a standard error of 0.1 logits each, the mean of ten 0.03.
        assert np.mean(means) == pytest.approx(-0.47, abs=0.15)

    def test_one_wrong_batch_does_not_silence_the_rest(self):
        position, confidence, right = rows_with(0.0, 4000, every=5)
        wrong = position // 500 == 20
        law = built((position, confidence, right & ~wrong)).of_window(20_000, 500, 25.0)
        assert abs(law.mean) < 0.3

    def test_rows_of_before_and_without_a_confidence_are_passed_over(self):
        logic = BiasFilter(variance=0.01, components=None, since=1000).build()
        logic.push(np.array([10, 2000]), np.array([0.9, np.nan]), np.array([False, False]))
        assert logic.labelled == 0
        assert logic.snapshot().blocks == []
        logic.push(np.array([1000]), np.array([0.9]), np.array([True]))
        assert logic.labelled == 1

    def test_certain_answers_give_finite_laws(self):
        for confidence in (0.0, 1.0):
            logic = SETTINGS.build()
            logic.push(np.arange(600), np.full(600, confidence), np.arange(600) % 2 == 0)
            law = logic.of_window(600, 100, 0.0)
            assert np.isfinite(law.mass).all()
            assert law.mass.sum() == pytest.approx(1)

    def test_input_is_not_touched(self):
        rows = rows_with(0.0, 50)
        copies = [column.copy() for column in rows]
        built(rows)
        assert all((a == b).all() for a, b in zip(rows, copies, strict=True))

    @pytest.mark.parametrize(
        ("wrong", "message"),
        [
            ({"variance": -1.0}, "variance must be 0 or more logits², got -1.0"),
            ({"variance": math.nan}, "variance must be 0 or more logits², got nan"),
            ({"block_rows": 0}, "block_rows must be 1 row or more, got 0"),
            ({"since": -1}, "since must be a row of the stream, 0 or more, got -1"),
        ],
    )
    def test_settings_out_of_range_are_refused(self, wrong, message):
        with pytest.raises(ConfigError, match=message):
            BiasFilter(**({"variance": 0.0, "components": None} | wrong))

    def test_the_reference_says_how_sure_the_calibration_is(self):
        settings = BiasFilter.of_reference(np.full(100, 0.5), None)
        assert settings.variance == nearly(1 / 25)
        lasting = Components(0.0, ((1000.0, 0.5),), 4000)
        with_drift = BiasFilter.of_reference(np.full(100, 0.5), lasting)
        assert with_drift.variance == pytest.approx(1 / 25 + lasting.lasting)
        assert with_drift.build().shared_variance == pytest.approx(1 / 25)
        assert BiasFilter.of_reference(np.ones(100), None).variance == 1.0


class TestInterval:
    def test_the_estimate_stays_and_lies_in_its_interval_whatever_labels_say(self):
        window = confidences(np.random.default_rng(6), ORIGINAL, (500,))
        for bias in (-2.0, -0.5, 0.0, 0.5, 2.0):
            logic = built(rows_with(bias, 4000, every=5))
            found = filtered_interval(window, SHARP, logic, start=20_000)
            assert found.value == pytest.approx(window.mean())
            assert 0 <= found.lower <= found.value <= found.upper <= 1
            shifted = expit(logit(window.clip(1e-9, 1 - 1e-9)) + bias).mean()
            assert found.lower - 0.01 <= shifted <= found.upper + 0.01

    def test_many_labels_narrow_what_a_short_reference_left_open(self):
        window = confidences(np.random.default_rng(7), ORIGINAL, (5000,))
        unsure = Predictive((np.zeros(0),), np.array([[0.02]]), None)  # 2 points
        settings = BiasFilter(variance=(0.02 * 5000 / (window * (1 - window)).sum()) ** 2, components=None)
        plain = predictive_interval(window, unsure)
        told = filtered_interval(window, unsure, built(rows_with(0.0, 20_000), settings), start=20_000)
        assert told.upper - told.lower < 0.6 * (plain.upper - plain.lower)

    def test_it_widens_with_level_and_order_within_the_window_is_no_matter(self):
        window, logic = confidences(np.random.default_rng(8), ORIGINAL, (300,)), built(rows_with(-0.4, 900))
        found = [filtered_interval(window, SHARP, logic, 900, level) for level in (0.5, 0.8, 0.95, 0.99)]
        widths = [each.upper - each.lower for each in found]
        assert widths == sorted(widths)
        turned = filtered_interval(window[::-1].copy(), SHARP, logic, 900)
        assert (turned.lower, turned.upper) == (found[2].lower, found[2].upper)

    def test_what_no_shift_expresses_is_added(self):
        window = np.full(200, 0.9)
        logic = BiasFilter(variance=0.01, components=None).build()
        plain = law_of_window(SHARP, logic, window, 0)
        unsure = law_of_window(Predictive((np.zeros(0),), np.array([[0.05]]), None), logic, window, 0)
        extra = (0.05 * 200 / 18) ** 2 - 0.01
        assert unsure.variance - plain.variance == pytest.approx(extra, rel=0.05)

    @pytest.mark.parametrize("confidence", [np.ones(50), np.zeros(50), np.array([0.7])])
    def test_certain_answers_and_single_rows_give_an_interval(self, confidence):
        found = filtered_interval(confidence, SHARP, built(rows_with(0.0, 100)), start=100)
        assert 0 <= found.lower <= found.value <= found.upper <= 1

    def test_no_row_is_unknown_and_what_is_no_confidence_is_refused(self):
        logic = SETTINGS.build()
        assert isinstance(filtered_interval(np.zeros(0), SHARP, logic, 0), Unknown)
        with pytest.raises(ValueError, match="confidence"):
            filtered_interval(np.array([1.5]), SHARP, logic, 0)
        with pytest.raises(ValueError, match="level"):
            filtered_interval(np.array([0.5]), SHARP, logic, 0, level=1.0)


def test_the_prior_shares_of_the_hypotheses_are_as_documented():
    weight, noise, rates = bias_filter._hypotheses()
    assert (len(weight), weight[:-1].sum(), weight[-1]) == (17, pytest.approx(1.0), 1.0)
    assert not noise[-1]
    assert not rates[-1].any()
    assert weight[0] == pytest.approx(0.9)
    assert noise.max() == 1.6
    assert np.abs(rates[:, 0]).max() < 1e-15  # no motion loses mass
