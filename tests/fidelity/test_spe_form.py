"""The short form of `tests.fidelity.spe_form`: a simulated task, seeded, and the kept tables."""

from __future__ import annotations

import re

import numpy as np
import pytest
from scipy.stats import norm

from monitor.base.records import Floats
from tests.fidelity import spe_form
from tests.fidelity.ssme import civilcomments
from tests.fidelity.ssme.protocol import Pool
from tests.fidelity.ssme.suite import tasks
from tests.harness import kept


@pytest.fixture(scope="module")
def small() -> Pool:
    return next(task.pool for task in tasks("reporting") if task.name == "2c-2m")


def test_the_likeliest_family_is_the_right_one_and_its_distance_is_small() -> None:
    rng = np.random.default_rng(0)
    right = spe_form.likeliest(np.clip(rng.normal(0.5, 0.1, 3000), 0.01, 1.0))
    assert right.name in ("truncated_normal", "truncated_t")
    assert right.distance < 0.03
    middle = np.interp([0.4, 0.5, 0.6], spe_form._AXIS, right.cumulative)
    assert middle == pytest.approx(norm.cdf([-1.0, 0.0, 1.0]), abs=0.03)
    two_modes: Floats = np.concatenate([rng.normal(0.2, 0.03, 1000), rng.normal(0.8, 0.03, 1000)])
    assert spe_form.likeliest(two_modes).distance > 0.1


def test_redrawn_scores_keep_labels_and_are_of_the_families(small: Pool) -> None:
    """Normal log odds, whose family is among the eight: the models stay about as good as they were."""
    simulated, families = spe_form.redrawn(small, np.random.default_rng(1))
    np.testing.assert_array_equal(simulated.labels, small.labels)
    assert all(one.distance < 0.03 for of_model in families for one in of_model)
    np.testing.assert_allclose(simulated.truth[0], small.truth[0], atol=0.02)
    assert not np.array_equal(simulated.scores, small.scores)


def test_a_row_is_measured(small: Pool) -> None:
    row = spe_form.measured("own", small, 100, 1)
    assert row.error.shape == row.covered.shape == (len(spe_form.SHOWN),)
    assert row.error[0] < 0.1
    assert row.contradicted == 0.0
    assert len(spe_form.lines([row], 1)) == 3


def test_spe_is_far_nearer_where_its_form_is_right() -> None:
    """The kept table holds the claim of the module's docstring."""
    families, rows = kept(spe_form.table).split("\n\n")
    distances = [float(distance) for distance in re.findall(r"\((0\.\d+)\)", families)]
    assert len(distances) == 2 * len(civilcomments.NAMES)
    assert min(distances) > 0.03
    figures = {
        (row[0], int(row[1])): (float(row[2]), int(row[-1]))
        for row in map(str.split, rows.replace("/", " ").splitlines()[2:])
    }
    for labels in spe_form.LABELS:
        assert figures["drawn", labels][0] < 0.25 * figures["own", labels][0]
        assert figures["drawn", labels][1] < 5 < 50 < figures["own", labels][1]
