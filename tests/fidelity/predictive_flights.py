"""Coverage and width of the predictive interval on the demo's flights, whose concept drifts.

    python -m tests.fidelity.predictive_flights

Two models of "arrives more than 15 minutes late", trained on two thirds of the days of January to March
2013, calibrated on the newest 1,000, 5,000 or all 25,776 flights of the other days, watched from April
on. Reported are July to December: April to June, of the logistic regression, were looked at when the drift
spectrum was fixed, beside simulated streams of other seeds than those reported. The
methods are those of `tests.fidelity.predictive`. One stream, so that neighbouring windows share their fate:
a difference of five points between
two methods at 5,000 rows (32 windows) is two windows.
"""

from __future__ import annotations

import numpy as np

from monitor.cli.demo.flights import Flights, read_flights
from monitor.cli.demo.training import MODELS, Scored, train_and_score
from tests.fidelity.predictive import SIZES, Life, cells_of, measured, rows_of
from tests.harness import run

REPORTED = ("logistic", "boosting")
REFERENCES = (1000, 5000, 25_776)
_FIRST_MONTH = 7


def flights_of(model: str, reference: int, flights: Flights, scored: Scored) -> Life:
    """Return the newest flights of the reference, and those that follow whose outcome is known."""
    column = MODELS.index(model)
    known = flights.late[scored.stream_rows] >= 0
    following = scored.stream_rows[known]
    late = flights.late[np.r_[scored.reference_rows[-reference:], following]]
    score = np.r_[scored.reference_scores[-reference:, column], scored.stream_scores[known, column]]
    first = int(np.searchsorted(flights.month[following], _FIRST_MONTH))
    many = len(late) - len(following)
    return Life(np.stack([1 - score, score], axis=1), (score > 0.5).astype(np.int64), late, many, first)


def table() -> str:
    """Return all of it as text."""
    flights = read_flights()
    scored = train_and_score(flights, seed=0)
    lines = [
        "Covered by the 95 % interval, in %, and mean width in points",
        "(python -m tests.fidelity.predictive_flights)",
        "Flights of July to December 2013, models and references of January to March; windows of",
        f"{'':38s}" + "".join(f"{n:>16,}" for n in SIZES),
    ]
    for model in REPORTED:
        for reference in REFERENCES:
            life = flights_of(model, reference, flights, scored)
            lines += rows_of(model, life.reference, cells_of([measured(life, seed=0)]))
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    run(table)
