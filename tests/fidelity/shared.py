"""Shared alarms of models: how often they are false, and how soon they see a shared drop.

    python -m tests.fidelity.shared

Each model has a Shewhart chart with a labelled reference of 20 windows and an ARL0 of 370. Its windows are
independent and normal around an accuracy of 90 %, with a standard deviation of 1 point between windows, and
changes of any size raise alarms. In each round every model closes one window, in a random order, and after
each window all models are compared, as in the agent. A *shared alarm* begins when the models share a change,
if they shared none in the two rounds before: the alert stays on for two windows.

The first table has models that do not change. `allowed` is one shared alarm in ARL0 rounds, and `moved` the
share of models that count as moved, which the test assumes to be at most 10 %. Some rows break assumptions:
charts with an ARL0 of 50, references of 5 windows, and models whose windows have a correlation of 0.3 or 0.8,
as of models that answer the same requests. `own` is the number of alarms of the models themselves. In the
last row one model falls by 10 points for good, and its own alarm is on in every round.

In the second table all models fall by the same points for good. `found` is the median number of windows of
each model until the shared alarm, and `within 3` the share of trials that need 3 or fewer. `own alarms` is
the mean number of models whose own alarm is on eight windows after the drop.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import product
from typing import NamedTuple

import numpy as np

from monitor.base.records import Floats
from monitor.stats.charts.base import Baseline
from monitor.stats.charts.shared import MOVED, Flags, moved_together
from monitor.stats.charts.shewhart import Shewhart
from tests.harness import run

_CENTRE, _SD, _ROWS = 0.9, 0.01, 500
_KEPT = 2  # windows for which the alert stays on


class Fleet(NamedTuple):
    """The charts' results of n models in T windows of each: deviations and alarms, both (T, n)."""

    deviations: Floats
    alarmed: Flags

    def looks(self, rng: np.random.Generator) -> Iterator[tuple[int, bool]]:
        """Yield the round and whether a change is shared, after each window."""
        deviations, alarmed = np.zeros(self.alarmed.shape[1]), np.zeros(self.alarmed.shape[1], dtype=bool)
        for number, (values, alarms) in enumerate(zip(self.deviations, self.alarmed, strict=True)):
            for model in rng.permutation(len(values)).tolist():
                deviations[model], alarmed[model] = values[model], alarms[model]
                yield number, bool(moved_together(deviations, alarmed).any())

    def rounds(self, rng: np.random.Generator) -> list[int]:
        """Return the rounds in which a shared alarm begins, after two rounds without one."""
        begins, last = list[int](), -1 - _KEPT
        for number, now in self.looks(rng):
            if now:
                if number - last > _KEPT:
                    begins.append(number)
                last = number
        return begins

    @property
    def own_alarms(self) -> int:
        """The number of alarms of the models themselves."""
        return int(np.diff(self.alarmed.astype(int), axis=0, prepend=0).clip(0).sum())

    @property
    def moved(self) -> float:
        """The share of models that count as moved."""
        return float((self.alarmed | (self.deviations <= -MOVED)).mean())


def charted(
    noise: Floats,
    rng: np.random.Generator,
    reference: int = 20,
    arl0: float = 370.0,
    correlation: float = 0.0,
) -> Fleet:
    """Return the charts' results for these windows.

    Parameters
    ----------
    noise : (T, n) float64
        The windows, as distances from the centre in standard deviations.
    reference : int
        Number of reference windows of each model, which have noise of their own.
    correlation : float
        The correlation of the models' windows in the reference.
    """
    deviations, alarmed = np.empty(noise.shape), np.empty(noise.shape, dtype=bool)
    past = noise_of(reference, noise.shape[1], rng, correlation)
    for model in range(noise.shape[1]):
        values = _CENTRE + _SD * past[:, model]
        baseline = Baseline(values, np.full(reference, float(_ROWS)), _SD * np.sqrt(_ROWS))
        chart = Shewhart(arl0=arl0, better=1).build(baseline)
        for at, value in enumerate(np.clip(_CENTRE + _SD * noise[:, model], 0.0, 1.0)):
            verdict = chart.update(float(value), _ROWS)
            deviations[at, model], alarmed[at, model] = verdict.deviation, verdict.out_of_control
    return Fleet(deviations, alarmed)


def noise_of(windows: int, models: int, rng: np.random.Generator, correlation: float = 0.0) -> Floats:
    """Return (windows, models) standard normal noise with this correlation between any two models."""
    common = rng.standard_normal((windows, 1))
    own = rng.standard_normal((windows, models))
    noise: Floats = np.sqrt(correlation) * common + np.sqrt(1 - correlation) * own
    return noise


class Quiet(NamedTuple):
    """The shared alarms and the own alarms of models that do not change, and the share of moved ones."""

    rounds: int
    alarms: int
    own: int
    moved: float

    @classmethod
    def from_fleets(cls, fleets: Iterable[tuple[Fleet, np.random.Generator]]) -> Quiet:
        """Return the counts of several trials."""
        each = [
            (len(fleet.alarmed), len(fleet.rounds(rng)), fleet.own_alarms, fleet.moved)
            for fleet, rng in fleets
        ]
        rounds, alarms, own, moved = zip(*each, strict=True)
        return cls(sum(rounds), sum(alarms), sum(own), float(np.mean(moved)))


def independent(
    models: int,
    windows: int,
    seed: int,
    trials: int = 1,
    *,
    reference: int = 20,
    arl0: float = 370.0,
    correlation: float = 0.0,
) -> Quiet:
    """Return the alarms of models that do not change, over trials with references of their own."""

    def fleets() -> Iterator[tuple[Fleet, np.random.Generator]]:
        for trial in range(trials):
            rng = np.random.default_rng([seed, models, trial])
            noise = noise_of(windows, models, rng, correlation)
            yield charted(noise, rng, reference, arl0, correlation), rng

    return Quiet.from_fleets(fleets())


def one_drop(models: int, windows: int, points: float, seed: int, trials: int) -> Quiet:
    """Return the alarms while one model has fallen and the others do not change."""

    def fleets() -> Iterator[tuple[Fleet, np.random.Generator]]:
        for trial in range(trials):
            rng = np.random.default_rng([seed, models, trial])
            noise = noise_of(windows, models, rng)
            noise[:, 0] -= points / (100 * _SD)
            fleet = charted(noise, rng)
            assert fleet.alarmed[:, 0].all()
            yield fleet, rng

    return Quiet.from_fleets(fleets())


class Dropped(NamedTuple):
    """The windows until the shared alarm after a shared drop, by trial, and the mean of own alarms."""

    windows: Floats
    own_alarms: float


def shared_drop(models: int, points: float, seed: int, trials: int, windows: int = 60) -> Dropped:
    """Return how soon a drop of all models is found; infinity where it is not found within `windows`."""
    delays, own = [], []
    for trial in range(trials):
        rng = np.random.default_rng([seed, models, trial])
        fleet = charted(noise_of(windows, models, rng) - points / (100 * _SD), rng)
        rounds = fleet.rounds(rng)
        delays.append(rounds[0] + 1 if rounds else np.inf)
        own.append(int(fleet.alarmed[7].sum()))
    return Dropped(np.array(delays), float(np.mean(own)))


def table(trials: int = 100, windows: int = 1000) -> Iterator[str]:
    """Print both tables; `trials` of each drop, and rounds of the models that do not change."""
    head = f"{'shared':>8s}{'allowed':>9s}{'own':>7s}{'moved':>8s}"
    yield f"{'nothing changes':44s}{'rounds':>9s}{head}\n"
    cases: list[tuple[str, Quiet, float]] = []
    for models, times in ((3, 40), (4, 40), (5, 40), (8, 20), (20, 10), (300, 1)):
        cases.append((f"{models} models", independent(models, windows, 1, times), 370.0))
    cases.append(("3 models, ARL0 50", independent(3, windows, 2, 40, arl0=50.0), 50.0))
    cases.append(("3 models, 5 reference windows", independent(3, windows, 3, 40, reference=5), 370.0))
    for models, correlation in product((4, 8, 20), (0.3, 0.8)):
        quiet = independent(models, windows, 4, 40, correlation=correlation)
        cases.append((f"{models} models, correlation {correlation:g}", quiet, 370.0))
    cases.append(("one of 20 models falls by 10 points", one_drop(20, windows, 10.0, 5, 10), 370.0))
    for name, quiet, arl0 in cases:
        allowed = f"{quiet.alarms:8d}{quiet.rounds / arl0:9.1f}"
        yield f"{name:44s}{quiet.rounds:9,d}{allowed}{quiet.own:7,d}{quiet.moved:8.1%}\n"
    yield f"\n{f'all models fall, {trials} trials':44s}{'found':>9s}{'within 3':>10s}{'own alarms':>12s}\n"
    for models in (4, 20):
        for points in (2.0, 3.0, 5.0):
            dropped = shared_drop(models, points, 6, trials)
            soon = float((dropped.windows <= 3).mean())
            name = f"{models} models by {points:g} points"
            yield f"{name:44s}{np.median(dropped.windows):9.0f}{soon:10.0%}{dropped.own_alarms:12.1f}\n"


if __name__ == "__main__":
    run(table)
