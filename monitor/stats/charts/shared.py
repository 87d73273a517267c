"""The test for a change that the models of a task have in common."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import scipy
from numpy.typing import NDArray

from monitor.base.records import Floats
from monitor.stats.charts.base import DEFAULT_ARL0

Flags = NDArray[np.bool_]

FEWEST_MODELS = 3
"""The smallest number of models that can share a change. Two models that fall are two alarms."""

FEWEST_ALARMS = 2
"""The smallest number of active alarms among models that share a change. With one alarm, a single model that
fell long ago would wait for chance to move the others."""

_ALARMED_SHARE = 1 / 3
"""The smallest share of models with an active alarm among models that share a change. For a smaller share, a
fall that the noise of all models has in common would be enough: see `moved_together`."""

MOVED = 1.645
"""The distance from the centre, in standard deviations, at which a model has moved: the 5 % point of the
normal distribution, which chance passes once in 20 windows."""

_MOVED_BY_CHANCE = 0.1
"""The probability that a model in control counts as moved, an upper bound. It is twice that of `MOVED`,
because the baseline is estimated from a few windows, and because a false alarm stays on for eight windows or
more. With 5 to 100 reference windows the simulated share is 5 to 7 % (`tests.fidelity.shared`)."""

_LEVEL = 1 / DEFAULT_ARL0


def moved_together(deviations: Floats, alarmed: Flags) -> Flags:
    """Return the models that share a change for the worse, (n,), all False if there is no such change.

    A model has moved if its alarm is on, or if its newest window lies `MOVED` standard deviations or more on
    the worse side of its baseline. The change is shared if three conditions hold:

    1. More than half of the models have moved, so one large drop beside models that are quiet is not shared.
    2. Their number is more than chance. If each model moved independently with a probability of 10 %, as
       large a number would have a probability of at most 1/370. This demands all of 3 or 4 models, 4 of 5 or
       6, 5 of 7, and otherwise nothing beyond the first condition.
    3. The alarms of a third of all models are on, and at least `FEWEST_ALARMS`. So a shared change names no
       change that the charts do not show.

    Models that answer the same requests have noise in common. Because of the third condition, they share
    changes by chance more rarely than one chart has false alarms, whatever the correlation of their noise: a
    third of the models pass their limits L together only if the common noise alone falls nearly as low. If
    any two of many models have the correlation ρ, this has the probability ``Φ(-(L - √(1-ρ)·0.43)/√ρ)``, at
    most 1/670 for L = 3. (`tests.fidelity.shared` has simulations with few models and alarms that stay on.)

    The test compares models only by their signs and counts, so neither one huge drop nor models with windows
    of very different variance can decide it. It does not find a change that is too small for every chart, and
    fewer than three models never share a change.

    Parameters
    ----------
    deviations : (n,) float64
        The distance of each model's newest window from the centre of its chart, in standard deviations of
        such a window. Negative values are worse.
    alarmed : (n,) bool
        Whether the alarm of each model is on.

    Examples
    --------
    >>> one_drop = np.array([-9.0, 0.3, -0.8, 1.1])
    >>> moved_together(one_drop, one_drop < -3).tolist()
    [False, False, False, False]
    >>> all_drop = np.array([-4.1, -2.2, -3.5, -1.9])
    >>> moved_together(all_drop, all_drop < -3)
    array([ True,  True,  True,  True])
    """
    moved = alarmed | (deviations <= -MOVED)
    fewest = max(FEWEST_ALARMS, _ALARMED_SHARE * len(moved))
    enough = len(moved) >= FEWEST_MODELS and alarmed.sum() >= fewest
    return moved if enough and moved.sum() >= fewest_moved(len(moved)) else np.zeros_like(moved)


@lru_cache(maxsize=1024)
def fewest_moved(models: int) -> int:
    """Return the smallest number of moved models that is a majority and more than chance.

    Examples
    --------
    >>> [fewest_moved(models) for models in (3, 4, 5, 6, 7, 8, 20)]
    [3, 4, 4, 4, 5, 5, 11]
    """
    counts = np.arange(models // 2 + 1, models + 1)
    by_chance = scipy.special.bdtrc(counts - 1, models, _MOVED_BY_CHANCE)
    return int(counts[np.argmax(by_chance <= _LEVEL)])  # all of three models are rare enough
