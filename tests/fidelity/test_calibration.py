"""The short form of `tests.fidelity.calibration`: simulated rows, ten trials, seeded."""

from __future__ import annotations

import pytest

from tests.fidelity.calibration import METHODS, simulated, table
from tests.harness import kept

TRIALS = 10


@pytest.mark.parametrize("method", [each for each in METHODS if each != "none"])
def test_overconfidence_is_taken_off_and_more_rows_take_off_more(method: str) -> None:
    raw, gap = simulated("overconfident", 1000, "none", TRIALS)
    short, short_gap = simulated("overconfident", 100, method, TRIALS)
    long, long_gap = simulated("overconfident", 1000, method, TRIALS)
    assert long < 0.6 * raw  # isotonic: 0.51
    assert long_gap < gap / 2
    assert long < short
    assert long_gap < short_gap


def test_on_a_hundred_rows_a_smooth_curve_beats_isotonic() -> None:
    isotonic = simulated("overconfident", 100, "isotonic", TRIALS)[0]
    for method in ("temperature", "platt", "beta"):
        assert simulated("overconfident", 100, method, TRIALS)[0] < isotonic


@pytest.mark.parametrize(("ours", "theirs"), [("platt", "sigmoid"), ("isotonic", "isotonic")])
def test_the_witness_reads_the_same(ours: str, theirs: str) -> None:
    errors = simulated("overconfident", 1000, ours, TRIALS)
    assert errors == pytest.approx(simulated("overconfident", 1000, f"sklearn {theirs}", TRIALS), abs=0.02)


def test_auto_was_never_far_from_the_best_where_rows_are_many() -> None:
    """In the full table it is within four thousandths of a nat of every method at 10,000 rows."""
    excess: dict[str, dict[str, float]] = {}
    for line in kept(table).splitlines()[3:]:
        if not line.startswith(" "):
            data = excess.setdefault(line, {})
        else:
            data[line[2:20].strip()] = float(line[20:].split()[4])
    assert len(excess) == 6
    for data in excess.values():
        assert data["auto"] <= min(data[method] for method in METHODS if method != "none") + 4.0
        assert data["platt"] == pytest.approx(data["sklearn sigmoid"], abs=0.05)
        assert data["isotonic"] == pytest.approx(data["sklearn isotonic"], abs=0.05)
