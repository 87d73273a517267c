"""Simulated and scikit-learn tasks on which estimators that use labels are compared.

    python -m tests.fidelity.ssme.suite          # lists the tasks and how good their models are

Two splits of the same designs with different parameters and different draws: settings are chosen on
"development"; the tables come from "reporting", which nothing may be tuned on.

A simulated model m sees evidence x_m in R^K: `strength` at the true class's coordinate, plus noise that
it shares in part with the other models. From the noise's density follows the exact probability of each
class given x_m alone, so that the model is calibrated by construction; it then reports p^a (normalised):
overconfident by the known power a > 1, underconfident by a < 1 (Shanmugam et al., appendix D.4).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal
from zlib import crc32

import numpy as np

from monitor.base.records import Floats, Ints
from tests.fidelity.ssme import classifiers
from tests.fidelity.ssme.protocol import Pool
from tests.harness import run

Split = Literal["development", "reporting"]
ROWS = 40_000
"""Of a simulated pool: half to draw from, half for the truth."""

Noise = Callable[[np.random.Generator, tuple[int, ...]], Floats]


@dataclass(frozen=True)
class _Shape:
    """A noise of unit scale with its log density, up to a constant."""

    draw: Noise
    log_density: Callable[[Floats], Floats]


SHAPES = {
    "normal": _Shape(lambda rng, size: rng.standard_normal(size), lambda x: -0.5 * x * x),
    "t3": _Shape(lambda rng, size: rng.standard_t(3.0, size), lambda x: -2.0 * np.log1p(x * x / 3.0)),
    "laplace": _Shape(lambda rng, size: rng.laplace(size=size), lambda x: -np.abs(x)),
    "gumbel": _Shape(lambda rng, size: rng.gumbel(size=size), lambda x: -x - np.exp(-np.maximum(x, -30.0))),
}


@dataclass(frozen=True)
class Design:
    """The design of a simulated task.

    Parameters
    ----------
    classes, models : int
    prevalence : float
        Share of the last class; the others share the rest equally, unless `prevalence` is 0: then the
        shares are drawn.
    strength : (float, float)
        Range from which each model's strength is drawn.
    shared : float
        Correlation of the models' evidence within a class: 0 for independent models, 1 for copies.
    powers : tuple of float
        One a model, repeated as needed; 1 is calibrated.
    shape : str
        Of the noise, a key of `SHAPES`.
    broken : int
        Models that answer at random, whatever the evidence.
    inverted : int
        Models that take the last class for the first.
    duplicated : int
        Copies of the first model beside it.
    believed : float or None
        Prevalence of the last class that the models were trained with, where it has changed since.
    missing : float
        Share of answers that are missing.
    """

    classes: int = 2
    models: int = 3
    prevalence: float = 0.5
    strength: tuple[float, float] = (0.8, 2.0)
    shared: float = 0.5
    powers: tuple[float, ...] = (1.0,)
    shape: str = "normal"
    broken: int = 0
    inverted: int = 0
    duplicated: int = 0
    believed: float | None = None
    missing: float = 0.0


def simulate(design: Design, rng: np.random.Generator, rows: int) -> tuple[Floats, Ints]:
    """Return scores (rows, M, K) and labels (rows,) of a design."""
    share = _shares(design.prevalence, design.classes, rng)
    labels = rng.choice(design.classes, rows, p=share)
    believed = share if design.believed is None else _shares(design.believed, design.classes, rng)
    fresh = design.models - design.duplicated
    strength = rng.uniform(*design.strength, fresh)
    evidence = _evidence(design, rng, labels, strength)
    scores = np.stack([_calibrated(design, evidence[:, m], strength[m], believed) for m in range(fresh)], 1)
    scores = np.concatenate([scores, np.repeat(scores[:, :1], design.duplicated, axis=1)], axis=1)
    power = np.resize(np.asarray(design.powers), design.models)
    scores = sharpened(scores, power[:, None])
    _break(scores, design, rng)
    if design.missing:
        gone = rng.random(scores.shape[:2]) < design.missing
        gone[:, 0] &= ~gone.all(axis=1)  # every row keeps one answer at least
        scores[gone] = np.nan
    return scores, labels


def sharpened(scores: Floats, power: float | Floats) -> Floats:
    """Return scores p^a, normalised: overconfident for a > 1, underconfident for a < 1."""
    logs = power * np.log(np.clip(scores, 1e-12, 1.0))
    raised = np.exp(logs - logs.max(axis=-1, keepdims=True))
    normalised: Floats = raised / raised.sum(axis=-1, keepdims=True)
    return normalised


def _shares(last: float, classes: int, rng: np.random.Generator) -> Floats:
    if last == 0.0:
        return rng.dirichlet(np.full(classes, 3.0))
    shares = np.full(classes, (1.0 - last) / (classes - 1))
    shares[-1] = last
    return shares


def _evidence(design: Design, rng: np.random.Generator, labels: Ints, strength: Floats) -> Floats:
    """Return (rows, models, K). Shared noise comes in whole, so that each model's noise keeps its density."""
    shape, size = SHAPES[design.shape], (len(labels), len(strength), design.classes)
    own, common = shape.draw(rng, size), shape.draw(rng, (size[0], 1, size[2]))
    if design.shape == "normal":
        noise = np.sqrt(design.shared) * common + np.sqrt(1.0 - design.shared) * own
    else:  # a mixture, since sums of other shapes have another density
        noise = np.where(rng.random(size) < design.shared, common, own)
    return noise + strength[None, :, None] * np.eye(design.classes)[labels][:, None, :]


def _calibrated(design: Design, evidence: Floats, strength: float, share: Floats) -> Floats:
    """Return (rows, K) exact class probabilities given one model's evidence (rows, K)."""
    density = SHAPES[design.shape].log_density
    logs = np.log(share) + density(evidence - strength) - density(evidence)
    raised = np.exp(logs - logs.max(axis=1, keepdims=True))
    normalised: Floats = raised / raised.sum(axis=1, keepdims=True)
    return normalised


def _break(scores: Floats, design: Design, rng: np.random.Generator) -> None:
    last = design.models
    for at in range(last - design.broken, last):
        scores[:, at] = scores[rng.permutation(len(scores)), at]
    for at in range(last - design.broken - design.inverted, last - design.broken):
        scores[:, at, [0, -1]] = scores[:, at, [-1, 0]]


@dataclass(frozen=True)
class Task:
    """A named task; its pool is made when first asked for, from the name and the split alone.

    Parameters
    ----------
    name : str
    split : {"development", "reporting"}
    make : callable
        From a generator to scores and labels.
    kind : {"simulated", "scikit-learn"}
    tags : frozenset of str
        Its special properties: "broken", "duplicated", "overconfident", "underconfident", "one model", …
    """

    name: str
    split: Split
    make: Callable[[np.random.Generator], tuple[Floats, Ints]]
    kind: str
    tags: frozenset[str] = field(default=frozenset())

    @cached_property
    def pool(self) -> Pool:
        """Scores and labels, permuted."""
        rng = np.random.default_rng([crc32(self.name.encode()), crc32(self.split.encode())])
        scores, labels = self.make(rng)
        order = rng.permutation(len(labels))
        return Pool(self.name, scores[order], labels[order])


DESIGNS = {
    # two classes: number of models, prevalence, correlation
    "2c-1m": Design(models=1),
    "2c-1m-rare": Design(models=1, prevalence=0.1, strength=(1.5, 2.5)),
    "2c-2m": Design(models=2, prevalence=0.3),
    "2c-3m-independent": Design(shared=0.0),
    "2c-5m": Design(models=5, prevalence=0.3, shared=0.7),
    "2c-7m-rare": Design(models=7, prevalence=0.1, strength=(1.2, 2.2), shared=0.8),
    "2c-7m-alike": Design(models=7, prevalence=0.2, shared=0.95),
    "2c-5m-weak": Design(models=5, strength=(0.2, 0.7)),
    "2c-5m-strong": Design(models=5, strength=(2.5, 4.0), prevalence=0.3),
    # two classes: shapes that are not normal
    "2c-3m-t3": Design(shape="t3", prevalence=0.3),
    "2c-5m-laplace": Design(models=5, shape="laplace", strength=(1.0, 2.5), prevalence=0.2),
    "2c-4m-gumbel": Design(models=4, shape="gumbel", strength=(1.0, 3.0), prevalence=0.3),
    # two classes: confidence off by a known power
    "2c-5m-power0.3": Design(models=5, powers=(0.3,), prevalence=0.3),
    "2c-5m-power0.5": Design(models=5, powers=(0.5,), prevalence=0.3),
    "2c-5m-power2": Design(models=5, powers=(2.0,), prevalence=0.3),
    "2c-5m-power4": Design(models=5, powers=(4.0,), prevalence=0.3),
    "2c-1m-power2": Design(models=1, powers=(2.0,), prevalence=0.3),
    "2c-1m-power0.5": Design(models=1, powers=(0.5,), prevalence=0.3),
    "2c-6m-mixed-powers": Design(models=6, powers=(0.5, 1.0, 2.0), prevalence=0.3),
    # two classes: something is wrong
    "2c-7m-broken": Design(models=7, broken=1, prevalence=0.2, strength=(1.2, 2.2)),
    "2c-3m-broken": Design(models=3, broken=1, prevalence=0.3),
    "2c-6m-inverted": Design(models=6, inverted=1, prevalence=0.3),
    "2c-6m-duplicated": Design(models=6, duplicated=3, prevalence=0.3),
    "2c-5m-prior-shift": Design(models=5, prevalence=0.35, believed=0.15),
    "2c-5m-prior-fell": Design(models=5, prevalence=0.08, believed=0.25, strength=(1.2, 2.2)),
    "2c-5m-missing": Design(models=5, prevalence=0.3, missing=0.3),
    # three classes
    "3c-1m": Design(classes=3, models=1, strength=(1.5, 2.5), prevalence=0.0),
    "3c-3m": Design(classes=3, models=3, prevalence=0.0),
    "3c-4m-strong": Design(classes=3, models=4, strength=(2.5, 3.5), prevalence=0.3, shared=0.7),
    "3c-7m-alike": Design(classes=3, models=7, prevalence=0.2, shared=0.9),
    "3c-4m-power2": Design(classes=3, models=4, powers=(2.0,), prevalence=0.0),
    "3c-4m-power0.5": Design(classes=3, models=4, powers=(0.5,), prevalence=0.0),
    "3c-5m-broken": Design(classes=3, models=5, broken=1, prevalence=0.0, strength=(1.5, 2.5)),
    "3c-5m-duplicated": Design(classes=3, models=5, duplicated=2, prevalence=0.0),
    "3c-3m-t3": Design(classes=3, models=3, shape="t3", prevalence=0.0, strength=(1.5, 3.0)),
    # nine classes
    "9c-1m": Design(classes=9, models=1, strength=(2.0, 3.0), prevalence=0.0),
    "9c-3m": Design(classes=9, models=3, strength=(1.5, 3.0), prevalence=0.0),
    "9c-5m-power2": Design(classes=9, models=5, powers=(2.0,), strength=(1.5, 3.0), prevalence=0.0),
    "9c-4m-broken": Design(classes=9, models=4, broken=1, strength=(2.0, 3.5), prevalence=0.0),
}


def tags_of(design: Design) -> frozenset[str]:
    """Return the special properties of a design."""
    powers = np.asarray(design.powers)
    tags = {
        "one model": design.models == 1,
        "overconfident": bool((powers > 1).any()),
        "underconfident": bool((powers < 1).any()),
        "broken": bool(design.broken or design.inverted),
        "duplicated": bool(design.duplicated),
        "shifted": design.believed is not None,
    }
    return frozenset(name for name, holds in tags.items() if holds)


def tasks(split: Split) -> tuple[Task, ...]:
    """Return all tasks of a split, in a fixed order.

    Parameters
    ----------
    split : {"development", "reporting"}
    """
    if split not in ("development", "reporting"):
        raise ValueError(f"split must be development or reporting, got {split!r}")

    def simulated(design: Design) -> Callable[[np.random.Generator], tuple[Floats, Ints]]:
        return lambda rng: simulate(design, rng, ROWS)

    made = [Task(name, split, simulated(d), "simulated", tags_of(d)) for name, d in DESIGNS.items()]
    trained = [Task(name, split, make, "scikit-learn") for name, make in classifiers.MAKERS.items()]
    return (*made, *trained)


def listed() -> Iterator[str]:
    """Yield the tasks of both splits."""
    yield f"{'task':26s} {'split':12s} {'rows':>6s} {'M':>2s} {'K':>2s}  accuracy of each model in %"
    for split in ("development", "reporting"):
        for task in tasks(split):  # type: ignore[arg-type]
            pool = task.pool
            n, models, classes = pool.scores.shape
            accuracy = " ".join(f"{100 * a:.0f}" for a in pool.truth[0])
            yield f"{task.name:26s} {split:12s} {n:6d} {models:2d} {classes:2d}  {accuracy}"


if __name__ == "__main__":
    run(listed, keep=False)
