"""The paper's SSME-KDE: its steps by hand, its trap, and what it reports of itself."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import norm

from monitor import SSMEPaper, Unknown
from monitor.base.records import Floats, Ints
from monitor.stats.rivals.kde import bandwidths
from monitor.stats.rivals.ssme_paper import EPSILON, additive_log_ratio


def binary(p: Floats) -> Floats:
    return np.stack([1.0 - p, p], axis=-1)


def two_groups(rows: int = 300, seed: int = 0) -> tuple[Floats, Ints]:
    """Return one model whose two classes are well apart, calibrated."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, 2, rows)
    evidence = 3.0 * (2 * truth - 1) + rng.normal(size=rows) * np.sqrt(6.0)
    return binary(1 / (1 + np.exp(-evidence)))[:, None], truth


def test_log_ratios_are_against_the_last_class_and_clipped() -> None:
    ratios = additive_log_ratio(np.array([[0.2, 0.3, 0.5], [1.0, 0.0, 0.0]]))
    assert ratios[0] == pytest.approx([np.log(0.4), np.log(0.6)])
    assert ratios[1] == pytest.approx([-np.log(EPSILON), 0.0])


def test_one_iteration_by_hand() -> None:
    """All rows but one labelled, so that the initial draw of that one is all that is random."""
    p = np.array([0.1, 0.15, 0.3, 0.7, 0.8, 0.95, 0.45])
    labels = np.array([0, 0, 0, 1, 1, 1, -1])
    fit = SSMEPaper(epochs=1, bandwidth="silverman").fit(binary(p)[:, None], labels)
    x = np.log((1 - p) / p)
    (width,) = bandwidths(x[:, None], "silverman")[0]
    kernel = norm.pdf(x[6], x, width)
    candidates = []
    for drawn_class in (
        0,
        1,
    ):  # the class drawn for the free row: it counts in that class's density and share
        member = np.append(labels[:6], drawn_class)
        joint = [kernel[member == k].sum() for k in (0, 1)]  # π_k f_k, whose Σ_j r_jk cancel
        candidates.append(joint[1] / sum(joint))
    assert min(abs(fit.posterior[6, 1] - one) for one in candidates) < 1e-12
    assert fit.posterior[:6].tolist() == np.eye(2)[labels[:6]].tolist()
    assert fit.iterations == 1


def test_lambda_weighs_the_unlabelled_rows() -> None:
    p = np.array([0.1, 0.15, 0.3, 0.7, 0.8, 0.95, 0.45])
    labels = np.array([0, 0, 0, 1, 1, 1, -1])
    fit = SSMEPaper(epochs=1, bandwidth="silverman", unlabelled_weight=1e-9).fit(binary(p)[:, None], labels)
    x = np.log((1 - p) / p)
    (width,) = bandwidths(x[:, None], "silverman")[0]
    kernel = norm.pdf(x[6], x, width)
    assert fit.posterior[6, 1] == pytest.approx(kernel[3:6].sum() / kernel[:6].sum(), rel=1e-6)


def test_separated_groups_are_found_whatever_the_draw() -> None:
    scores, truth = two_groups()
    for seed in range(5):
        fit = SSMEPaper(seed=seed).fit(scores, np.where(np.arange(300) < 20, truth, -1))
        right = (scores[:, 0].argmax(axis=1) == truth).mean()
        assert fit.point("accuracy") == pytest.approx(right, abs=0.06)


def test_the_seed_is_that_of_the_draw() -> None:
    scores, truth = two_groups()
    labels = np.where(np.arange(300) < 20, truth, -1)
    first, second = (SSMEPaper(seed=s, epochs=1).fit(scores, labels).posterior for s in (0, 1))
    assert np.abs(first - second).max() > 0.01


def test_it_reports_what_it_did() -> None:
    scores, _ = two_groups()
    fit = SSMEPaper(epochs=2).fit(scores, np.full(300, -1))
    assert (fit.iterations, fit.converged) == (2, False)
    assert fit.flags == ("no labels", "not converged")
    assert 0.0 < fit.details["bandwidth"] < 2.0
    constant = SSMEPaper().fit(np.full((50, 2, 2), 0.5), np.arange(50) % 2)
    assert constant.converged


def test_equal_scores_keep_the_share_of_the_labels_and_the_draw() -> None:
    """All kernels are equal, so that every free row has the classes' shares as its posterior."""
    labels = np.where(np.arange(100) < 40, np.arange(100) % 4 == 0, -1).astype(int)
    fit = SSMEPaper().fit(np.full((100, 1, 2), 0.5), labels)
    free = fit.posterior[40:]
    assert np.ptp(free[:, 1]) < 1e-12
    assert free[0, 1] == pytest.approx(fit.prevalence[1], abs=2e-3)


def test_a_class_that_vanishes_is_refused() -> None:
    """Twenty labels of one class among scores that are all alike, and no free row of the other class left."""
    rng = np.random.default_rng(0)
    scores = np.full((60, 1, 2), 0.5)
    scores[:, 0, 1] += rng.normal(0, 1e-4, 60)
    scores[:, 0, 0] = 1 - scores[:, 0, 1]
    labels = np.where(np.arange(60) < 48, 0, -1)
    fit = SSMEPaper(unlabelled_weight=1e-3, bandwidth="scott").fit(scores, labels)
    assert fit.refused == "fit collapsed"
    assert fit.estimate("accuracy") == Unknown("fit collapsed")


def test_too_few_rows_are_refused() -> None:
    assert SSMEPaper().fit(np.full((1, 2, 2), 0.5), [0]).refused == "too few rows"


def test_rows_predicted_later_get_what_they_got_in_the_fit() -> None:
    scores, truth = two_groups()
    labels = np.where(np.arange(300) < 20, truth, -1)
    fit = SSMEPaper(epochs=1000).fit(scores, labels)
    assert fit.converged
    np.testing.assert_allclose(fit.predict(scores)[20:], fit.posterior[20:], atol=2e-3)


def test_a_missing_model_is_filled_from_the_others() -> None:
    scores, truth = two_groups()
    scores = np.repeat(scores, 2, axis=1)
    labels = np.where(np.arange(300) < 20, truth, -1)
    whole = SSMEPaper().fit(scores, labels)
    holes = scores.copy()
    holes[::7, 1] = np.nan  # a copy of the other model, so that filling it restores the row
    np.testing.assert_allclose(whole.predict(holes), whole.predict(scores), atol=1e-12)
    right = (scores[:, 0].argmax(axis=1) == truth).mean()
    assert SSMEPaper().fit(holes, labels).point("accuracy", 1) == pytest.approx(right, abs=0.06)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"bandwidth": "wide"}, "bandwidth must be one of isj, silverman, scott, got 'wide'"),
        ({"unlabelled_weight": 0.0}, r"unlabelled_weight must be a number above 0, got 0\.0"),
        ({"unlabelled_weight": float("nan")}, "unlabelled_weight must be a number above 0, got nan"),
        ({"epochs": 0}, "epochs must be at least 1, got 0"),
    ],
)
def test_bad_settings_are_named(arguments: dict[str, object], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        SSMEPaper(**arguments)  # type: ignore[arg-type]
