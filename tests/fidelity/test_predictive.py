"""The short form of `tests.fidelity.predictive`: two or three references a case; and what it printed."""

from __future__ import annotations

import re

import numpy as np
import pytest

from monitor.cli.demo.flights import read_flights
from monitor.cli.demo.training import MODELS, Scored
from tests.fidelity.predictive import coverage, table
from tests.fidelity.predictive_flights import flights_of
from tests.harness import kept


def test_a_short_reference_is_covered_where_the_exact_interval_is_not() -> None:
    """3 references of 1,000, 30 windows of 2,000 rows in all; in full 87.5 % against 99.4 %."""
    cells = coverage("stable", 1000, lives=3, seed=4, sizes=(2000,))
    assert cells["predictive", 2000][0] >= 0.9
    assert cells["predictive", 2000][0] >= cells["poisson_binomial", 2000][0]
    assert cells["predictive", 2000][1] < 1.3 * cells["cbpe_sem", 2000][1]


def test_drift_that_the_reference_shows_is_in_the_interval() -> None:
    """2 references of 5,000, 80 windows of 500 rows; in full 69 % against 87 %."""
    cells = coverage("OU drift", 5000, lives=2, seed=4, sizes=(500,))
    assert cells["predictive", 500][0] >= cells["poisson_binomial", 500][0] + 0.1


def test_the_kept_table_holds_what_is_said_of_stable_streams() -> None:
    rows = re.findall(r"^stable +[\d,]+  predictive +(.+)$", kept(table), re.MULTILINE)
    assert len(rows) == 3
    shares = [float(share) for row in rows for share in row.split()[::2]]
    assert min(shares) == pytest.approx(95, abs=6)  # 64 windows of 5,000: two binomial errors are 5.4 points


def test_flights_are_those_that_were_not_looked_at() -> None:
    """From the first flight of July on; the reference is the newest of the other days of winter."""
    flights = read_flights()
    rows = np.flatnonzero(flights.month > 3)
    old = np.flatnonzero(flights.month <= 3)[:2000]
    scores = np.full((len(flights), len(MODELS)), 0.2)
    scored = Scored(MODELS, old, rows, scores[old], scores[rows], trained_on=0)
    life = flights_of("logistic", 1000, flights, scored)
    following = rows[flights.late[rows] >= 0]
    assert (life.reference, len(life.labels)) == (1000, 1000 + len(following))
    assert flights.month[following[life.first - 1]] < 7 <= flights.month[following[life.first]]
    assert (life.labels[:1000] == flights.late[old[-1000:]]).all()
    assert not life.predicted.any()
