"""Labels as active testing acquires them: drawn one after another, for one model, by its expected error."""

from __future__ import annotations

import numpy as np

from monitor.base.records import Floats, Ints
from monitor.stats.labelled.active_testing import expected_error
from monitor.stats.labelled.inputs import mean_of_models
from tests.fidelity.ssme.protocol import Run


def acquired(run: Run, model: int, count: int, seed: int) -> tuple[Ints, Floats, Ints]:
    """Return labels for the judgement of one model, out of all rows of a run.

    The surrogate is the mean of the models; it is not refitted as labels come. A tenth of the chance is
    spread evenly (`expected_error`).

    Parameters
    ----------
    run : Run
    model, count, seed : int

    Returns
    -------
    labels : (n,) int64
        −1 where not drawn.
    weights : (n,) float64
        1 / the chance with which the row was taken out of those left; 1 where not drawn.
    acquisition : (n,) int64
        Number of the draw, −1 where not drawn.
    """
    rng = np.random.default_rng([seed, count, model])
    acted = run.scores[:, model].argmax(axis=1)
    chance = expected_error(mean_of_models(run.scores), acted)
    labels, acquisition = np.full((2, len(acted)), -1)
    weights = np.ones(len(acted))
    for draw in range(count):
        now = np.where(acquisition < 0, chance, 0.0)
        now /= now.sum()
        row = int(rng.choice(len(now), p=now))
        labels[row], weights[row], acquisition[row] = run.hidden[row], 1.0 / now[row], draw
    return labels, weights, acquisition
