"""SPE on the digits, one against the rest: how far its precision-recall curve is from the truth.

    python -m tests.fidelity.spe_digits [--samples 1]

A logistic regression for each digit gives every one of the 1,797 rows of scikit-learn's digits (the
test half of the "optdigits", the paper's DGT) a score out of fold (five
folds). For each number of labels it prints the area between the true and the
estimated precision-recall curve of the rows, mean over digits and random samples of labels, with
the standard error of the mean over digits: SPE (scope "sample"), and the naive estimate, the curve of the
labelled rows alone (where they have one class only, precision is the share of positives at every recall).

Then the paper's figure 4G: the three families of the highest log likelihood of a held-out fifth of a class's
scores, their log likelihood relative to the best's (r.l.l.), and how often each family is among the
three (the paper, 78 class conditionals: truncated normal 48, Gamma 53, one of both always).
"""

from __future__ import annotations

from collections import Counter
from functools import cache
from pathlib import Path

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit, logit
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold, cross_val_predict

from monitor.labels import SPE
from monitor.labels.estimators.spe import FAMILIES, Curve, Family
from monitor.labels.estimators.spe.curves import GRID, Rates
from monitor.records import Floats, Ints
from tests.fidelity.command import print_and_keep

OUTPUT = Path(__file__).parent / "output" / "spe_digits.txt"
LABELS = (10, 20, 50, 100)


@cache
def scored(digit: int) -> tuple[Floats, Ints]:
    """(n, 1, 2) scores out of fold of one digit against the rest, and (n,) truth."""
    pixels, digits = load_digits(return_X_y=True)
    truth = (digits == digit).astype(np.int64)
    folds = StratifiedKFold(5, shuffle=True, random_state=0)
    model = LogisticRegression(C=1e-3, max_iter=500)
    odds = cross_val_predict(model, pixels, truth, cv=folds, method="decision_function")
    chance = expit(odds)
    return np.stack([1.0 - chance, chance], axis=1)[:, None], truth


def realised(scores: Floats, truth: Ints) -> Floats:
    """Precision at each recall of `GRID` from labelled scores (n, 1, 2)."""
    if len(np.unique(truth)) < 2:
        return np.full(len(GRID), float(truth.mean()))
    return Rates.of_labels(scores[:, 0, 1], truth[None].astype(float)).on_grid("precision_recall")[0]


def areas(digit: int, labels: int, samples: int) -> Floats:
    """(samples, 2) areas between true and estimated curves: SPE's, and the naive one's."""
    scores, truth = scored(digit)
    true = realised(scores, truth)
    found = []
    for sample in range(samples):
        known = np.random.default_rng([digit, labels, sample]).permutation(len(truth))[:labels]
        given = np.full(len(truth), -1)
        given[known] = truth[known]
        curve = SPE(seed=sample, scope="sample").fit(scores, given).curve()
        assert isinstance(curve, Curve)
        both = (curve.value, realised(scores[known], truth[known]))
        found.append([float(np.trapezoid(np.abs(one - true), GRID)) for one in both])
    return np.array(found)


def held_out(family: Family, fitted: Floats, others: Floats) -> float:
    """Log likelihood of `others` under the family's most likely parameters on `fitted`."""

    def cost(parameters: Floats) -> float:
        return -float(family.log_density(parameters[None], fitted).sum())

    start = family.start(fitted, np.ones(len(fitted)))
    done = minimize(cost, start, method="L-BFGS-B", bounds=family.bounds)
    return float(family.log_density(done.x[None], others).sum())


def best_three(digit: int, kind: int) -> list[tuple[str, float]]:
    """Abbreviations and relative log likelihoods of the three best families for one class's scores."""
    scores, truth = scored(digit)
    line = logit(scores[:, 0, 1])
    scaled = (line - line.min()) / (line.max() - line.min()) * 0.999 + 0.001
    of_class = np.random.default_rng(digit).permutation(scaled[truth == kind])
    cut = len(of_class) * 4 // 5
    found = {f.short: held_out(f, of_class[:cut], of_class[cut:]) for f in FAMILIES.values()}
    top = sorted(found, key=lambda short: -found[short])[:3]
    return [(short, found[short] / found[top[0]]) for short in top]


def table(samples: int) -> str:
    """Both tables."""
    lines = [
        "area between true and estimated precision-recall curves, ten digits",
        "labels      SPE            naive",
    ]
    for labels in LABELS:
        by_digit = np.array([areas(digit, labels, samples).mean(axis=0) for digit in range(10)])
        mean, error = by_digit.mean(axis=0), by_digit.std(axis=0, ddof=1) / np.sqrt(10)
        cells = "   ".join(f"{m:.3f} ± {e:.3f}" for m, e in zip(mean, error, strict=True))
        lines.append(f"{labels:6}  {cells}")
    counts: Counter[str] = Counter()
    lines += ["", "scores        1st        2nd  r.l.l.   3rd  r.l.l."]
    for digit in range(10):
        for kind in (0, 1):
            top = best_three(digit, kind)
            counts.update(short for short, _ in top)
            rest = "".join(f"   {short:>5}  {relative:5.2f}" for short, relative in top[1:])
            lines.append(f"logres{digit} [{kind}]  {top[0][0]:>5}   {rest}")
    among = ", ".join(f"{short} {count}" for short, count in counts.most_common())
    return "\n".join([*lines, "", f"among the three, of 20: {among}", ""])


if __name__ == "__main__":
    print_and_keep(__doc__, OUTPUT, "samples", 1, table)
