"""SPE on the digits, one against the rest: the distance of its precision-recall curve from the truth.

    python -m tests.fidelity.spe_digits [--samples 10]

A logistic regression for each digit gives every one of the 1,797 rows of scikit-learn's digits (the
test half of the "optdigits", the paper's DGT) a score out of fold (five folds). For each number of labels it
prints, as means over random samples of labels and digits with the standard error of the mean over digits:

* the area between the true and the estimated precision-recall curve of the rows, for SPE (scope "sample")
  and for the naive estimate, the curve of the labelled rows alone (where they have one class only, precision
  is the share of positives at every recall);
* the share of recalls at which SPE's 95 % band holds the true precision;
* the share of fits whose labels contradict them (`monitor.stats.rivals.spe.checks`).

The paper gives its errors in pictures only, and says of logres8 that SPE is biased there and no better than
the naive estimate: the second table is by digit.

Then the wrong form, of which the paper has no more than that case: scores of 1,000 simulated rows whose
densities are of the families (normal log odds), and the same with two fifths of the positive class in a
second mode among the negative ones. AUROC of the population, 95 % intervals.

Last the paper's figure 4G: the three families of the highest log likelihood of a held-out fifth of a class's
scores, their log likelihood relative to the best's (r.l.l.), and how often each family is among the
three. The paper, 78 class conditionals: truncated normal 48, Gamma 53, one of both always. Of the digits it
shows one: logres9 [0] f-r, n 0.98, gu-l 0.96; logres9 [1] f-r, gu-l 0.99, n 0.99.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import sqrt

import numpy as np
from scipy.integrate import trapezoid
from scipy.optimize import minimize
from scipy.special import expit, logit, ndtr
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold, cross_val_predict

from monitor import SPE
from monitor.base.records import Floats, Ints
from monitor.base.results import Estimate, Reason
from monitor.stats.rivals.spe import FAMILIES, DensityFamily, PerformanceCurve
from monitor.stats.rivals.spe.curves import GRID, Rates
from tests.harness import run

LABELS = (10, 20, 50, 100)
FORM_LABELS = (20, 100)
ROUNDING = 1e-9


@cache
def scored(digit: int) -> tuple[Floats, Ints]:
    """Return (n, 1, 2) scores out of fold of one digit against the rest, and (n,) truth."""
    pixels, digits = load_digits(return_X_y=True)
    truth = (digits == digit).astype(np.int64)
    folds = StratifiedKFold(5, shuffle=True, random_state=0)
    model = LogisticRegression(C=1e-3, max_iter=500)
    odds = cross_val_predict(model, pixels, truth, cv=folds, method="decision_function")
    chance = expit(odds)
    return np.stack([1.0 - chance, chance], axis=1)[:, None], truth


def realised(scores: Floats, truth: Ints) -> Floats:
    """Return precision at each recall of `GRID` from labelled scores (n, 1, 2)."""
    if len(np.unique(truth)) < 2:
        return np.full(len(GRID), float(truth.mean()))
    return Rates.from_labels(scores[:, 0, 1], truth[None].astype(float)).on_grid("precision_recall")[0]


@dataclass(frozen=True)
class Sampled:
    """The figures of random samples of labels for one digit.

    Parameters
    ----------
    area, naive : (samples,) float64
        Between the true and the estimated curve.
    held : (samples,) float64
        Share of recalls at which the band holds the true precision.
    flagged : (samples,) float64
        1 where the labels contradict the fit.
    """

    area: Floats
    naive: Floats
    held: Floats
    flagged: Floats


def sampled(digit: int, labels: int, samples: int) -> Sampled:
    """Return SPE's curve and the naive one beside the truth."""
    scores, truth = scored(digit)
    true = realised(scores, truth)
    figures = []
    for sample in range(samples):
        known = np.random.default_rng([digit, labels, sample]).permutation(len(truth))[:labels]
        known_labels = np.full(len(truth), -1)
        known_labels[known] = truth[known]
        fit = SPE(seed=sample, scope="sample").fit(scores, known_labels)
        curve = fit.curve()
        assert isinstance(curve, PerformanceCurve)
        both = (curve.value, realised(scores[known], truth[known]))
        held = (curve.lower - ROUNDING <= true) & (true <= curve.upper + ROUNDING)
        figures.append(
            [*(area_between(one, true) for one in both), held.mean(), Reason.CONTRADICTED in fit.flags]
        )
    return Sampled(*np.array(figures, dtype=np.float64).T)


def area_between(one: Floats, other: Floats) -> float:
    """Return the area between two curves at `GRID`."""
    return float(trapezoid(np.abs(one - other), GRID))


TRUE_AUROC = float(ndtr(3.0 / sqrt(1.0 + 1.2**2)))
"""Of two normal distributions three apart with deviations 1 and 1.2."""
SECOND_AUROC = float(ndtr(-0.5 / sqrt(0.7**2 + 1.2**2)))
"""Of the second mode against the negative class."""


@dataclass(frozen=True)
class Form:
    """One line of the table of right and wrong forms; shares from 0 to 1."""

    second: float
    labels: int
    trials: int
    error: float
    covered: float
    flagged: float


def simulated(second: float, rng: np.random.Generator, rows: int = 1000) -> tuple[Floats, Ints]:
    """Return (rows, 1, 2) scores, a share `second` of the positive class in a mode of its own, and the
    truth.
    """
    truth = (rng.random(rows) < 0.3).astype(np.int64)
    hidden = rng.random(rows) < second
    positive = np.where(hidden, rng.normal(-2.5, 0.7, rows), rng.normal(1.0, 1.0, rows))
    chance = expit(np.where(truth == 1, positive, rng.normal(-2.0, 1.2, rows)))
    return np.stack([1.0 - chance, chance], axis=1)[:, None], truth


def measured_form(second: float, labels: int, trials: int) -> Form:
    """Return coverage of the AUROC's interval, and how often the labels contradict the fit."""
    true = (1.0 - second) * TRUE_AUROC + second * SECOND_AUROC
    figures = []
    for trial in range(trials):
        scores, truth = simulated(second, np.random.default_rng([7, labels, trial]))
        fit = SPE(seed=trial).fit(scores, np.where(np.arange(len(truth)) < labels, truth, -1))
        auroc = fit.estimate("auroc")
        assert isinstance(auroc, Estimate)
        inside = auroc.lower <= true <= auroc.upper
        figures.append((abs(auroc.value - true), inside, Reason.CONTRADICTED in fit.flags))
    return Form(second, labels, trials, *np.array(figures, dtype=np.float64).mean(axis=0).tolist())


def held_out(family: DensityFamily, fitted: Floats, others: Floats) -> float:
    """Return log likelihood of `others` under the family's most likely parameters on `fitted`."""

    def cost(parameters: Floats) -> float:
        return -float(family.log_density(parameters[None], fitted).sum())

    start = family.start(fitted, np.ones(len(fitted)))
    done = minimize(cost, start, method="L-BFGS-B", bounds=family.bounds)
    return float(family.log_density(done.x[None], others).sum())


def best_three(digit: int, kind: int) -> list[tuple[str, float]]:
    """Return abbreviations and relative log likelihoods of the three best families for one class's scores."""
    scores, truth = scored(digit)
    line = logit(scores[:, 0, 1])
    scaled = (line - line.min()) / (line.max() - line.min()) * 0.999 + 0.001
    of_class = np.random.default_rng(digit).permutation(scaled[truth == kind])
    cut = len(of_class) * 4 // 5
    likelihoods = {f.short: held_out(f, of_class[:cut], of_class[cut:]) for f in FAMILIES.values()}
    top = sorted(likelihoods, key=lambda short: -likelihoods[short])[:3]
    return [(short, likelihoods[short] / likelihoods[top[0]]) for short in top]


def table(samples: int = 10) -> str:
    """Return all tables."""
    curves = {labels: [sampled(digit, labels, samples) for digit in range(10)] for labels in LABELS}
    forms = [measured_form(second, labels, 8 * samples) for second in (0.0, 0.4) for labels in FORM_LABELS]
    return "\n".join([*curve_lines(curves, samples), "", *form_lines(forms), "", *family_lines()]) + "\n"


def curve_lines(curves: Mapping[int, Sequence[Sampled]], samples: int) -> list[str]:
    """Return areas, bands and flags by number of labels, and areas by digit."""
    lines = [
        f"area between true and estimated precision-recall curves, ten digits, {samples} samples each",
        "labels      SPE            naive        band of 95 %    flagged %",
    ]
    for labels, digits in curves.items():
        means = np.array([[one.area.mean(), one.naive.mean(), 100 * one.held.mean()] for one in digits])
        mean, error = means.mean(axis=0), means.std(axis=0, ddof=1) / np.sqrt(len(digits))
        flagged = 100 * np.mean([one.flagged.mean() for one in digits])
        cells = "   ".join(f"{m:.3f} ± {e:.3f}" for m, e in zip(mean[:2], error[:2], strict=True))
        lines.append(f"{labels:6}  {cells}   {mean[2]:5.1f} ± {error[2]:4.1f}   {flagged:9.1f}")
    lines += [
        "",
        "area by digit, SPE / naive",
        "labels " + "".join(f"{f'logres{d}':>15s}" for d in range(10)),
    ]
    for labels, digits in curves.items():
        cells = "".join(f"{one.area.mean():7.3f} /{one.naive.mean():6.3f}" for one in digits)
        lines.append(f"{labels:6} {cells}")
    return lines


def form_lines(forms: Sequence[Form]) -> list[str]:
    """Return right and wrong forms."""
    allowed = 100 * 3 * sqrt(0.05 * 0.95 / forms[0].trials)
    lines = [
        f"AUROC of simulated scores, {forms[0].trials} trials (three binomial errors at 95 %: {allowed:.1f})",
        "form            labels  error in points  95 % intervals hold  flagged %",
    ]
    for one in forms:
        name = "two modes" if one.second else "of the families"
        lines.append(
            f"{name:15s} {one.labels:6d} {100 * one.error:16.1f} {100 * one.covered:20.1f} "
            f"{100 * one.flagged:10.1f}"
        )
    return lines


def family_lines() -> list[str]:
    """Return Figure 4G."""
    counts: Counter[str] = Counter()
    either = 0
    lines = ["scores        1st        2nd  r.l.l.   3rd  r.l.l."]
    for digit in range(10):
        for kind in (0, 1):
            top = best_three(digit, kind)
            counts.update(short for short, _ in top)
            either += any(short in ("n", "g") for short, _ in top)
            rest = "".join(f"   {short:>5}  {relative:5.2f}" for short, relative in top[1:])
            lines.append(f"logres{digit} [{kind}]  {top[0][0]:>5}   {rest}")
    among = ", ".join(f"{short} {count}" for short, count in counts.most_common())
    return [*lines, "", f"among the three, of 20: {among}; n or g {either}"]


if __name__ == "__main__":
    run(table)
