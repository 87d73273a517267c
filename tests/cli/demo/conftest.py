"""The demo prepared once from the real flights, and a way to take some of the flights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest

from monitor.base.records import Ints
from monitor.cli.demo.flights import Flights, read_flights
from monitor.cli.demo.stream import DemoData, prepare
from monitor.cli.demo.training import Scored, train_and_score


@pytest.fixture(scope="session")
def flights() -> Flights:
    return read_flights()


@pytest.fixture(scope="session")
def take(flights: Flights) -> Callable[[Ints], Flights]:
    """Return the flights of some rows."""

    def take_rows(rows: Ints) -> Flights:
        columns = {
            field.name: getattr(flights, field.name)[rows]
            for field in fields(Flights)
            if isinstance(getattr(flights, field.name), np.ndarray)
        }
        return replace(flights, **columns)

    return take_rows


@pytest.fixture(scope="session")
def winter_and_some(flights: Flights, take: Callable[[Ints], Flights]) -> Flights:
    """Return all flights that models are trained and calibrated on, and every sixth of the others."""
    some = np.arange(len(flights)) % 6 == 0
    return take(np.flatnonzero((flights.month <= 3) | some))


@pytest.fixture(scope="session")
def scored(winter_and_some: Flights) -> Scored:
    return train_and_score(winter_and_some, seed=0)


@pytest.fixture(scope="session")
def few(flights: Flights, take: Callable[[Ints], Flights]) -> Flights:
    """Return every twenty-fourth flight: enough to train on, in a fraction of the time."""
    return take(np.arange(0, len(flights), 24))


@pytest.fixture(scope="session")
def data(few: Flights, tmp_path_factory: pytest.TempPathFactory) -> DemoData:
    folder: Path = tmp_path_factory.mktemp("demo") / "new"
    return prepare(folder, seed=3, flights=few)
