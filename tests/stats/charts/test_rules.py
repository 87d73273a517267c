"""Western Electric rules: patterns by hand, a slow witness, and the vectorised form."""

from __future__ import annotations

import itertools
import json
import math

import numpy as np
import pytest

from monitor.base.errors import ConfigError
from monitor.stats.charts.rules import FAR, MEMORY, RULES, RuleMemory, check_rules
from tests.stats.charts.run_lengths import broken_rules


def by_hand(z: list[float], limit: float) -> list[tuple[str, ...]]:
    """Return the rules as the handbook words them, one window after another, for the window that completes
    one.
    """
    broken_rules = []
    for t in range(len(z)):
        broken = set()
        for side in (1.0, -1.0):
            seen = [side * x for x in z[: t + 1]]
            if seen[-1] > limit:
                broken.add("we1")
            if seen[-1] > limit * 2 / 3 and sum(x > limit * 2 / 3 for x in seen[-3:]) >= 2:
                broken.add("we2")
            if seen[-1] > limit / 3 and sum(x > limit / 3 for x in seen[-5:]) >= 4:
                broken.add("we3")
            if len(seen) >= 8 and all(x > 0 for x in seen[-8:]):
                broken.add("we4")
            if len(seen) >= 9 and all(x > 0 for x in seen[-9:]):
                broken.add("nelson2")
            if len(seen) >= 6 and all(a < b for a, b in itertools.pairwise(seen[-6:])):
                broken.add("nelson3")
        same = {"we1": "nelson1", "we2": "nelson5", "we3": "nelson6"}
        broken |= {same[rule] for rule in broken & set(same)}
        last = z[: t + 1]
        turns = [(b - a) * (c - b) < 0 for a, b, c in zip(last[-14:], last[-13:], last[-12:], strict=False)]
        if len(last) >= 14 and all(turns):
            broken.add("nelson4")
        if len(last) >= 15 and all(0 < abs(x) <= limit / 3 for x in last[-15:]):
            broken.add("nelson7")
        if len(last) >= 8 and all(abs(x) > limit / 3 for x in last[-8:]):
            broken.add("nelson8")
        broken_rules.append(tuple(rule for rule in RULES if rule in broken))
    return broken_rules


def run(z: list[float], rules: tuple[str, ...] = RULES, limit: float = 3.0) -> list[tuple[str, ...]]:
    memory = RuleMemory(rules, limit)
    return [memory.update(x) for x in z]


@pytest.mark.slow
@pytest.mark.parametrize("limit", [4.5, 3.0, 1.0])
def test_the_memory_the_whole_array_form_and_the_handbook_agree(limit: float) -> None:
    rng = np.random.default_rng(11)
    z = np.round(rng.normal(0.3, 1.2, (20, 200)), 1)  # rounded: values at the centre and on boundaries occur
    z[::4, 50:80] = 0.2 * limit * np.where(z[::4, 50:80] > 0, 1.0, -1.0)  # calm enough for nelson7
    z[3::4] *= limit / 2  # and wild enough for the others
    z[1::4, 50:80] = np.abs(z[1::4, 50:80]) * (-1.0) ** np.arange(30)  # and up and down for nelson4
    z[2::4, 50:80] = limit * np.sign(z[2::4, 50:80]) + 0.1 * z[2::4, 50:80]  # far from the centre for nelson8
    z = np.round(z, 1)
    arrays = broken_rules(z, limit)
    seen = set()
    for row in range(len(z)):
        expected = by_hand(z[row].tolist(), limit)
        assert run(z[row].tolist(), limit=limit) == expected
        whole = [tuple(r for r, hit in zip(RULES, arrays[:, row, t], strict=True) if hit) for t in range(200)]
        assert whole == expected
        seen.update(rule for broken in expected for rule in broken)
    assert seen == set(RULES)


@pytest.mark.parametrize(
    ("rule", "z", "at"),
    [
        ("we1", [0.0, 3.1], [1]),
        ("we1", [0.0, -3.1], [1]),
        ("we1", [3.0], []),
        ("we2", [2.1, 0.0, 2.1, 0.0], [2]),
        ("we2", [2.1, -2.1, 0.0, -2.1], [3]),
        ("we2", [2.1, 0.0, 0.0, 2.1], []),
        ("we2", [2.1, 2.1], [1]),
        ("we3", [1.1, 1.1, 0.0, 1.1, 1.1], [4]),
        ("we3", [1.1, 1.1, 1.1, 1.1, -2.0], [3]),
        ("we3", [1.1, 1.1, 0.0, 0.0, 1.1, 1.1], []),
        ("we4", [0.1] * 9, [7, 8]),
        ("we4", [0.1] * 7 + [0.0] + [0.1] * 7, []),
        ("we4", [-0.1] * 8, [7]),
        ("nelson1", [0.0, -3.1], [1]),
        ("nelson2", [0.1] * 10, [8, 9]),
        ("nelson2", [0.1] * 8 + [-0.1] * 8, []),
        ("nelson3", [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6], [5, 6]),
        ("nelson3", [0.5, 0.4, 0.3, 0.2, 0.1, 0.0], [5]),
        ("nelson3", [0.0, 0.1, 0.2, 0.2, 0.4, 0.5, 0.6], []),
        ("nelson4", [0.1, -0.1] * 7, [13]),
        ("nelson4", [0.1, -0.1] * 6 + [0.1, 0.1, -0.1], []),
        ("nelson5", [2.1, 0.0, 2.1, 0.0], [2]),
        ("nelson6", [1.1, 1.1, 0.0, 1.1, 1.1], [4]),
        ("nelson7", [0.9, -0.9] * 8, [14, 15]),
        ("nelson7", [0.9] * 7 + [0.0] + [0.9] * 7, []),
        ("nelson7", [1.0] * 14 + [1.1], []),
        ("nelson8", [1.1, -1.1] * 4, [7]),
        ("nelson8", [1.1] * 4 + [1.0] + [1.1] * 4, []),
    ],
)
def test_a_rule_breaks_at_the_window_that_completes_it(rule: str, z: list[float], at: list[int]) -> None:
    assert [t for t, broken in enumerate(run(z, (rule,))) if broken] == at


def test_rules_that_are_off_are_never_named() -> None:
    z = np.random.default_rng(3).normal(1.0, 2.0, 300).tolist()
    both = run(z, ("we2", "we4"))
    assert both == [tuple(r for r in broken if r in ("we2", "we4")) for broken in run(z)]


def test_the_mirrored_series_breaks_the_same_rules() -> None:
    z = np.random.default_rng(4).normal(0.4, 1.5, 300)
    assert run(z.tolist()) == run((-z).tolist())


def test_scaling_values_and_limit_together_changes_nothing() -> None:
    z = np.random.default_rng(5).normal(0.4, 1.5, 300)
    assert run(z.tolist(), limit=3.0) == run((z * 0.5).tolist(), limit=1.5)


def test_a_snapshot_is_plain_bounded_and_goes_on_where_it_was() -> None:
    z = np.random.default_rng(6).normal(0.5, 1.5, 60).tolist()
    z[10] = math.inf
    whole = run(z)
    for cut in (0, 3, 11, 40):
        memory = RuleMemory(RULES, 3.0)
        for x in z[:cut]:
            memory.update(x)
        state = json.loads(json.dumps(memory.snapshot(), allow_nan=False))
        assert len(state) <= MEMORY
        resumed = RuleMemory(RULES, 3.0, state)
        assert [resumed.update(x) for x in z[cut:]] == whole[cut:]


def test_an_infinite_deviation_is_kept_as_a_large_one() -> None:
    memory = RuleMemory(("we1",), 3.0)
    assert memory.update(-math.inf) == ("we1",)
    assert memory.snapshot() == [-FAR]


def test_nan_is_refused_and_leaves_the_memory_as_it_was() -> None:
    memory = RuleMemory(RULES, 3.0, [1.0])
    with pytest.raises(ValueError, match="z: got NaN; a window without an estimate is not given"):
        memory.update(math.nan)
    assert memory.snapshot() == [1.0]


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        (("we1", "we9"), "rules: got 'we9'; allowed are we1 to we4 and nelson1 to nelson8, each once"),
        ((), "rules: got none; allowed are we1 to we4 and nelson1 to nelson8, each once"),
        (("we1", "we1"), "rules: got one of them twice: we1, we1; allowed are"),
        ("we1", "rules: got 'we1'; allowed are"),
    ],
)
def test_wrong_rules_are_named(rules: tuple[str, ...], message: str) -> None:
    with pytest.raises(ConfigError) as error:
        check_rules(rules)
    assert str(error.value).startswith(message)


def test_a_memory_that_no_snapshot_gave_is_refused() -> None:
    with pytest.raises(ValueError, match="recent must hold at most 15 numbers"):
        RuleMemory(RULES, 3.0, [0.0] * 16)
    with pytest.raises(ValueError, match="recent must hold at most 15 numbers"):
        RuleMemory(RULES, 3.0, [math.nan])
    with pytest.raises(ValueError, match=r"multiplier must be above 0, got 0"):
        RuleMemory(RULES, 0.0)
