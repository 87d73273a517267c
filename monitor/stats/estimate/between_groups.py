"""How much groups of one model differ in their bias, and what one group's labels say beside the others'.

A calibration is fitted on all groups together. Group g has a bias of its own, b_g = μ + d_g logits, where
the model's is μ. Twenty labels of a group say little of b_g, and the thousands of the others say nothing of
d_g unless groups differ: so d_g is drawn towards 0 by as much as groups are alike (partial pooling). How
much they are is learnt from the labels of all groups (empirical Bayes):

* **nothing differs:** every d_g is 0;
* **groups differ:** five spreads, each as likely: d_g is normal with a deviation of τ = 0, 0.1, 0.2, 0.4 or
  0.8 logits; and any group stands alone with a chance of 5 %: then its deviation is 0.8. So one group that
  jumps among fifty is found although the others are alike.

The likelihood of a group's labels at each bias is exact (`monitor.stats.estimate.bias_filter` has its
form); that of all groups is the product over groups, averaged over μ. A spread counts by its likelihood.
**Labels that do not say that groups differ change nothing:** until the five together are twenty times as
likely as "nothing differs", that alone is believed. In groups that are alike they ever reach this ratio in
at most one of twenty sets of groups.

What is told of a group is its deviation from the model's bias, with its variance: 0 and 0 where nothing
differs; the spread of the groups where the group has no labels; mostly its own labels where it has many.
The model's own bias is followed by `BiasFilter`, which sees the same labels: the mean over groups and a
group's deviation from it are estimated by independent parts of them (for normal laws exactly), so nothing
counts twice.

**When it misleads.** A deviation is taken to be the same since the calibration: of one that began later it
finds the mean over its labels, until the test of trust finds the change. Two groups tell next to nothing
about how much groups differ. Assumptions on labels: as for the filter.

Sources: B. Efron, C. Morris, *Stein's estimation rule and its competitors: an empirical Bayes approach*,
Journal of the American Statistical Association 68 (1973); D. Rubin, *Estimation in parallel randomized
experiments*, Journal of Educational Statistics 6 (1981), who averages over the spread too. The spreads, the
lone group and the ratio of twenty are ours.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from monitor.base.records import Floats, Ints
from monitor.stats.estimate.bias_law import LATTICE, NODES, STEP, UNIT, BiasLaw, on_lattice, spread

SPREADS = (0.0, 0.1, 0.2, 0.4, 0.8)
"""Deviations of the groups' biases, in logits."""

ALONE, ALONE_SHARE = 0.8, 0.05

_SPEAKS = 20.0  # so many times as likely must labels be if groups differ
_LEAST = 1e-15  # of the largest likelihood: rounding errors of the lattice are of this size
_VARIANCES = np.square((*SPREADS, ALONE))


class Deviation(NamedTuple):
    """A group's bias beyond its model's, in logits.

    Parameters
    ----------
    mean, variance : float
    model : float
        The mean of its model's bias.
    """

    mean: float
    variance: float
    model: float = 0.0


NO_DEVIATION = Deviation(0.0, 0.0)


def seen_from_model(gains: Ints) -> Ints:
    """Log-likelihood of groups' labels at each bias μ of their model, in whole `UNIT`.

    Parameters
    ----------
    gains : (groups, 17) int64
        Sums of `gains_of`.

    Returns
    -------
    (groups, 6, 129) int64
        First where nothing differs, then for each of `SPREADS`.
    """
    logs = _nats(gains) @ on_lattice(np.eye(len(NODES))).T
    top = logs.max(axis=-1, keepdims=True)
    likelihood = np.exp(logs - top)
    *near, far = (spread(likelihood, float(variance)) for variance in _VARIANCES)
    seen = [(1 - ALONE_SHARE) * each + ALONE_SHARE * far for each in near]
    differ = np.log(np.maximum(np.stack(seen, axis=1), _LEAST)) + top[:, None]
    found: Ints = np.rint(np.concatenate([logs[:, None], differ], axis=1) / UNIT).astype(np.int64)
    return found


def deviation(gains: Ints, own: Ints, total: Ints) -> Deviation | None:
    """What all labels say of one group's bias beyond its model's.

    Parameters
    ----------
    gains : (17,) int64
        Sum of `gains_of` over the group's labels; zeros where it has none.
    own : (6, 129) int64
        `seen_from_model` of the group.
    total : (6, 129) int64
        The sum of that over all groups, this one too.

    Returns
    -------
    Deviation or None
        None where labels do not say that groups differ.

    Examples
    --------
    >>> from monitor.stats.estimate.bias_law import gains_of
    >>> rows = [(np.full(400, 0.9), np.arange(400) % 10 > wrong) for wrong in (0, 0, 0, 3)]
    >>> gains = np.stack([gains_of(*each).sum(axis=0) for each in rows])
    >>> seen = seen_from_model(gains)
    >>> total = seen.sum(axis=0)
    >>> [round(deviation(*each, total).mean, 2) for each in zip(gains[2:], seen[2:])]
    [0.63, -1.12]
    """
    evidence = _log_sum(_nats(total))
    against = _log_sum(evidence[1:]) - math.log(len(SPREADS))
    if against < evidence[0] + math.log(_SPEAKS):
        return None
    weights = np.exp(evidence[1:] - evidence[1:].max())
    weights /= weights.sum()
    others = _law(_nats(total - own)[1:])
    *near, far = (spread(others, float(variance)) for variance in _VARIANCES)
    prior = np.stack([(1 - ALONE_SHARE) * each[i] + ALONE_SHARE * far[i] for i, each in enumerate(near)])
    logs = on_lattice(_nats(gains))
    laws = prior * np.exp(logs - logs.max())
    laws /= laws.sum(axis=1, keepdims=True)
    of_group, of_model = BiasLaw(weights @ laws), BiasLaw(_law(_nats(total[0])))
    apart = of_group.mean - of_model.mean
    return Deviation(apart, max(of_group.variance - of_model.variance, 0.0), of_model.mean)


def beside(law: BiasLaw, by: Deviation, more: float = 0.0) -> BiasLaw:
    """The distribution of a group's bias from that of its model's.

    Parameters
    ----------
    law : BiasLaw
    by : Deviation
    more : float
        Other variance, logits².

    Examples
    --------
    >>> model = BiasLaw(np.where(LATTICE == 0, 1.0, 0.0))
    >>> found = beside(model, Deviation(-0.33, 0.04))
    >>> round(found.mean, 6), round(found.variance, 6)
    (-0.33, 0.04)
    """
    steps, part = divmod(by.mean / STEP, 1.0)
    places = np.clip(np.arange(len(LATTICE)) + int(steps), 0, len(LATTICE) - 1)
    mass = np.zeros(len(LATTICE))
    np.add.at(mass, places, (1 - part) * law.mass)
    np.add.at(mass, np.minimum(places + 1, len(LATTICE) - 1), part * law.mass)
    variance = by.variance + more - part * (1 - part) * STEP**2  # that of the division between two points
    found = spread(mass, max(variance, 0.0))
    return BiasLaw(found / found.sum())


def _nats(units: Ints) -> Floats:
    found: Floats = units.astype(np.float64) * UNIT
    return found


def _log_sum(logs: Floats) -> Floats:
    """ln Σ exp over the last axis."""
    top = logs.max(axis=-1)
    found: Floats = top + np.log(np.exp(logs - np.expand_dims(top, -1)).sum(axis=-1))
    return found


def _law(logs: Floats) -> Floats:
    mass = np.exp(logs - logs.max(axis=-1, keepdims=True))
    found: Floats = mass / mass.sum(axis=-1, keepdims=True)
    return found
