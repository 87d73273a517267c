"""The short form of `tests.fidelity.error_trust`, and what it printed."""

from __future__ import annotations

from tests.fidelity.error_trust import BIAS_CASES, CASES, bias, life, size, stream_of
from tests.harness import kept


def test_a_short_run_loses_trust_with_a_cause_alone() -> None:
    """Three references: no change loses none, and errors that are half as large again lose trust in all."""
    cases = {case.name: case for case in CASES if case.reference == 5000 and not case.late}
    for seed in range(7000, 7003):
        stream = stream_of(seed, 5000, moved=False)
        assert life(cases["no change"], stream, seed)[0].all(), seed
        assert not life(cases["+50 %"], stream, seed)[0][10:].all(), seed


def test_streams_without_a_change_rarely_lose_trust_and_larger_errors_nearly_always() -> None:
    """A row has 200 lives; more than 17 lose trust with a probability of 1 % if each does with 5 %."""
    lines = kept(size, "size").splitlines()[2:]
    assert len(lines) == len(CASES)
    for case, line in zip(CASES, lines, strict=True):
        assert line.startswith(case.name)
        lose = float(line[40:47])
        if not case.growth:
            assert lose <= 8.5, line
        else:
            assert lose >= (75 if case.reference < 5000 else 95), line


def test_a_bias_that_has_not_changed_rarely_loses_trust_and_a_moved_one_nearly_always() -> None:
    """A row has 60 lives; more than 7 lose trust with a probability of 2 % if each does with 5 %."""
    lines = kept(bias, "bias").splitlines()[2:]
    assert len(lines) == len(BIAS_CASES)
    for case, line in zip(BIAS_CASES, lines, strict=True):
        assert line.startswith(case.name)
        lose = float(line[40:47])
        assert lose >= 95 if case.growth else lose <= 100 * 7 / 60, line
