"""The short form of `tests.fidelity.error_trust`, and what it printed."""

from __future__ import annotations

from tests.fidelity.error_trust import CASES, life, stream_of, table
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
    lines = kept(table).splitlines()[2:]
    assert len(lines) == len(CASES)
    for case, line in zip(CASES, lines, strict=True):
        assert line.startswith(case.name)
        lose = float(line[40:47])
        if not case.growth:
            assert lose <= 8.5, line
        else:
            assert lose >= (75 if case.reference < 5000 else 95), line
