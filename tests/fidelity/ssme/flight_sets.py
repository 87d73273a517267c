"""Sets of classifiers as in the SSME paper's section 6.4, on real flights in place of simulated people.

Whether a flight is late (24 % are) from its hour, distance, month, carrier, airport, the weather and how late
flights leave that airport just then; with `delay` also from how late itself it left. Each classifier is a
logistic regression trained on 100 flights of its own part of the hours of the day; estimates come from 20
labelled and 1,000 unlabelled flights of the whole day, the truth from 10,000 others.
"""

from __future__ import annotations

from functools import cache
from itertools import pairwise

import numpy as np
from scipy.stats import rankdata
from sklearn.linear_model import LogisticRegression

from monitor.base.records import Floats, Ints
from monitor.cli.demo.flights import read_flights
from tests.fidelity.ssme.protocol import Pool

_DELAY_MINUTES = (-20.0, 60.0)


_read = cache(read_flights)


@cache
def flights(delay: bool) -> tuple[Floats, Ints, Floats]:
    """Features (n, p) of flights that arrived, labels (n,), and each one's place in the day, 0 to 1."""
    read = _read()
    known = np.flatnonzero(read.late >= 0)
    columns = [read.hour, read.distance, read.congestion, read.month, *np.nan_to_num(read.weather).T]
    if delay:
        columns.append(np.clip(read.delay, *_DELAY_MINUTES))
    numbers = np.column_stack(columns)[known].astype(np.float64)
    numbers = (numbers - numbers.mean(axis=0)) / numbers.std(axis=0)
    carriers = np.eye(len(read.carriers))[read.carrier[known]]
    airports = np.eye(len(read.origins))[read.origin[known]]
    place = rankdata(read.hour[known], "ordinal") / len(known)
    return np.concatenate([numbers, carriers, airports], axis=1), read.late[known], place


def flight_set(models: int, seed: int, rows: int, trained_on: int, delay: bool) -> Pool:
    """A set of classifiers and `rows` flights that none was trained on."""
    x, y, place = flights(delay)
    order = np.random.default_rng([models, seed, 7]).permutation(len(y))
    asked, others = order[:rows], order[rows:]
    chances = []
    for low, high in pairwise(np.linspace(0.0, 1.0, models + 1)):
        part = others[(place[others] > low) & (place[others] <= high)][:trained_on]
        model = LogisticRegression(max_iter=1000).fit(x[part], y[part])
        chances.append(model.predict_proba(x[asked]))
    return Pool(f"flights {seed}", np.stack(chances, axis=1), y[asked])
