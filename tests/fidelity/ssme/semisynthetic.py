"""Figures 4 and S1 to S3 of the SSME paper: how near estimates come, by what a set of classifiers is like.

The paper draws its sets from Adult, whose data are not here. In their place: people with an age and eight
other features that move with it, and a label (24 % positive, as Adult's) whose dependence on them changes
with age too. As in section 6.4 and appendix B.3 the classifiers of a set are logistic regressions, each
trained on 100 people of its own part of the ages; estimates come from 20 labelled and 1,000 unlabelled
people, the truth from 10,000 others.

The paper's claims, beside the tables (its figures are pictures, without numbers): estimates are nearer the
truth where there are more classifiers, where they are more accurate and better calibrated (Figures 4, S1 and
S2; here weakly, as the sets differ by three points of accuracy only); and on scores sharpened to
sᵃ/(sᵃ + (1 − s)ᵃ) SSME beats their mean (Figure S3; here `ssme` does, in accuracy and AUROC).

What the paper does not have: as long as nothing is sharpened, no estimate beats the plain mean of these
classifiers. Each knows its own part of the ages and the parts make up the whole, so what they claim of the
positive class's share differs widely, and yet their mean is right, to a third of what as many independent
claims would allow ("shares off" in the last table). `ssme` leans on that mean until labels, or claims that
cannot be, speak against it (`monitor.stats.labelled.ssme_hypotheses`). Real data, other classifiers and more
labels: `tests.fidelity.ssme.trained`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
from scipy.special import expit, logit
from sklearn.linear_model import LogisticRegression

from monitor import ESTIMATORS, METRICS
from monitor.base.records import Floats, Ints
from tests.fidelity.ssme.compare import SHOWN, answers, known_mean, looked_up, shared_out
from tests.fidelity.ssme.protocol import Pool, metrics_of
from tests.fidelity.ssme.suite import sharpened

TAGS = ("ssme_paper", "ssme", "ensemble", "labelled")
_IN_BINS = 3
"""Of `TAGS`, the first have columns in the tables by bins."""
COUNTS = (3, 5)
TRAINED_ON, LABELLED, UNLABELLED, JUDGED_ON = 100, 20, 1000, 10_000
FEATURES = 8
BINS = 5
SHARPEST = 4.0
_CUT = LABELLED + UNLABELLED


@dataclass(frozen=True)
class Sets:
    """The results of many sets of classifiers.

    Parameters
    ----------
    accuracy, ece : (sets,) float64
        Truth, mean over the classifiers of a set; `ece` is `class_ece`.
    believed : (sets,) float64
        Weight of those hypotheses of `ssme` that take the classifiers at their word.
    shares : (sets,) float64
        See `shares_off`.
    off : (sets, len(TAGS), len(SHOWN), models) float64
        Values less truth; NaN where unknown.
    """

    accuracy: Floats
    ece: Floats
    believed: Floats
    shares: Floats
    off: Floats

    @property
    def error(self) -> Floats:
        """(sets, len(TAGS), len(SHOWN)) absolute error, mean over the classifiers of a set."""
        return known_mean(np.abs(self.off), axis=3)


def people(
    rng: np.random.Generator, rows: int, ages: tuple[float, float] = (0.0, 1.0)
) -> tuple[Floats, Ints]:
    """Return features (rows, 1 + FEATURES), the age first, and labels (rows,)."""
    age = rng.uniform(*ages, rows)
    turn = np.linspace(0.0, 2.0 * np.pi, FEATURES)
    x = rng.standard_normal((rows, FEATURES)) + 0.5 * np.cos(turn + 2.0 * age[:, None])
    pull = 0.9 + 0.7 * np.sin(turn + np.pi * age[:, None])
    odds = -5.0 + 3.0 * age + (x * pull).sum(axis=1)
    return np.column_stack([age, x]), (rng.random(rows) < expit(odds)).astype(np.int64)


def one_set(models: int, seed: int, power: float = 1.0) -> Pool:
    """Return a set of classifiers: first the rows that estimates come from, then those that are the truth."""
    rng = np.random.default_rng([models, seed])
    parts = [people(rng, LABELLED + UNLABELLED), people(rng, JUDGED_ON)]
    cuts = np.linspace(0.0, 1.0, models + 1)
    chances = []
    for low, high in pairwise(cuts):
        x, y = people(rng, TRAINED_ON, (low, high))
        model = LogisticRegression(max_iter=500).fit(x, y)
        chances.append(np.concatenate([model.predict_proba(inputs) for inputs, _ in parts]))
    scores = sharpened(np.stack(chances, axis=1), power)
    return Pool(f"set {seed}", scores, np.concatenate([labels for _, labels in parts]))


def measured(
    models: int,
    sets: int,
    most: float = 1.0,
    kept: Path | None = None,
    processes: int = 1,
) -> Sets:
    """Return estimates of the classifiers of many sets.

    Parameters
    ----------
    models, sets : int
    most : float
        The largest power; each set is sharpened by one drawn evenly from 1 to it.
    kept : Path, optional
        A folder of results: a set is looked up there before it is measured, and kept there.
    processes : int
        That share the sets.
    """
    jobs = [(models, seed, most, kept) for seed in range(sets)]
    off, figures = (np.stack(part) for part in zip(*shared_out(_one, jobs, processes), strict=True))
    return Sets(*figures.T, off)


def _one(models: int, seed: int, most: float, kept: Path | None) -> tuple[Floats, Floats]:
    """Return the errors of the estimators on one set, and its truth, belief and shares."""
    work = partial(_estimated, models, seed, most)
    return work() if kept is None else looked_up(kept / f"people-{models}-{seed}-{most:g}.npz", work)


def _estimated(models: int, seed: int, most: float) -> tuple[Floats, Floats]:
    rows = [METRICS.index(metric) for metric in SHOWN]
    power = float(np.random.default_rng([seed, 99]).uniform(1.0, most))
    pool = one_set(models, seed, power)
    truth = metrics_of(pool.scores[_CUT:], pool.labels[_CUT:])[rows]
    known_labels = np.where(np.arange(_CUT) < LABELLED, pool.labels[:_CUT], -1)
    fits = {tag: ESTIMATORS[tag](seed=seed).fit(pool.scores[:_CUT], known_labels) for tag in TAGS}
    values = [answers(fit, range(models), False, SHOWN)[rows, :, 0] for fit in fits.values()]
    weights = fits["ssme"].details
    believed = sum(weights[name] for name in ("mean", "claims", "each"))
    shares = shares_off(pool.scores[:_CUT], float(pool.labels[_CUT:].mean()))
    return np.stack(values) - truth, np.array([*truth[:2].mean(axis=1), believed, shares])


def shares_off(scores: Floats, share: float) -> float:
    """Return how far the mean of the classifiers' shares is off, in standard errors of as many independent
    ones.

    Of the shares of the positive class that the classifiers claim, on the logit. Where each is right up to an
    error of its own, half of all sets are below 0.67 or a little more; where their errors cancel, far less.

    Parameters
    ----------
    scores : (n, M, 2) float64
        At least two classifiers.
    share : float
        The true one.
    """
    claimed = scores[:, :, 1].mean(axis=0)
    error = logit(claimed).std(ddof=1) / np.sqrt(len(claimed))
    return float(abs(logit(claimed.mean()) - logit(share)) / error)


def binned(x: Floats, edges: Floats, error: Floats) -> list[tuple[int, Floats]]:
    """For each bin the number of sets and the mean of their error (sets, …); NaN where empty."""
    place = np.clip(np.searchsorted(edges, x, side="right") - 1, 0, len(edges) - 2)
    bins = []
    for at in range(len(edges) - 1):
        inside = error[place == at]
        bins.append((len(inside), inside.mean(axis=0) if len(inside) else np.full(error.shape[1:], np.nan)))
    return bins


def table(sets: int, kept: Path | None = None, processes: int = 1) -> str:
    """Return the tables of the three figures, and that of all sets; `kept` and `processes` as in
    `measured`.
    """
    ask = partial(measured, kept=kept, processes=processes)
    plain = {models: ask(models, sets) for models in COUNTS}
    parts = [
        _lines(f"Figures 4 and S1: by mean {name} of the set", plain, name) for name in ("accuracy", "ece")
    ]
    parts[1][0] = parts[1][0].replace("S1", "S2")
    sharp = {COUNTS[0]: ask(COUNTS[0], sets, SHARPEST)}
    parts.append(_lines(f"Figure S3: scores sharpened by powers from 1 to {SHARPEST:.0f}", sharp, "ece"))
    every = {("people", models): one for models, one in plain.items()}
    every["people, sharpened", COUNTS[0]] = sharp[COUNTS[0]]
    head = [
        f"{sets} sets of classifiers on simulated people, {LABELLED} labels, {UNLABELLED:,} unlabelled: mean "
        "absolute error in points, by bins of equal width",
    ]
    return "\n".join("\n".join(part) for part in ([*head, ""], *parts, _all_lines(every))) + "\n"


def _all_lines(every: Mapping[tuple[str, int], Sets]) -> list[str]:
    """Return means over all sets of a kind, with their standard errors, biases, and what `ssme` believes."""
    lines = [
        "All sets: mean absolute error in points ± its standard error over sets (bias).",
        "Shares off: of the mean of the classifiers' shares of the positive class, in standard errors of as",
        "many independent ones, median over sets (those have 0.7). Believed: weight in % of those hypotheses",
        "of ssme that take the classifiers at their word",
        f"{'sets of':21s}{'models':>6s}{'sets':>5s}{'shares off':>11s}{'believed':>9s} {'estimate':8s}"
        + "".join(f"{metric:>25s}" for metric in SHOWN),
    ]
    for (kind, models), one in every.items():
        error, bias = known_mean(one.error, axis=0), known_mean(one.off, axis=3)
        spread = np.nanstd(one.error, axis=0) / np.sqrt(len(one.error))
        row = f"{kind:21s}{models:6d}{len(one.error):5d}{np.median(one.shares):11.2f}"
        row += f"{100 * one.believed.mean():9.1f} "
        for at, tag in enumerate(_SHORT):
            cells = "".join(
                f"{100 * e:11.2f} ± {100 * s:.2f} ({100 * b:+.1f})"
                for e, s, b in zip(error[at], spread[at], known_mean(bias[:, at], axis=0), strict=True)
            )
            lines.append(f"{row if not at else '':53s}{tag:8s}{cells}")
    return lines


def _lines(title: str, by_models: dict[int, Sets], name: str) -> list[str]:
    every = np.concatenate([getattr(one, name) for one in by_models.values()])
    edges = np.linspace(*np.quantile(every, [0.01, 0.99]), BINS + 1)
    lines = [
        title,
        f"{name:>13s} {'models':>6s} {'sets':>5s}" + "".join(f"{metric:>27s}" for metric in SHOWN),
        " " * 26 + "".join("".join(f"{tag:>9s}" for tag in _SHORT[:_IN_BINS]) for _ in SHOWN),
    ]
    for models, one in by_models.items():
        for at, (count, error) in enumerate(binned(getattr(one, name), edges, one.error[:, :_IN_BINS])):
            cells = "".join("".join(f"{100 * e:9.2f}" for e in error[:, m]) for m in range(len(SHOWN)))
            span = f"{100 * edges[at]:.1f} to {100 * edges[at + 1]:.1f}"
            lines.append(f"{span:>13s} {models:6d} {count:5d}{cells}")
    return [*lines, ""]


_SHORT: Sequence[str] = ("paper", "ssme", "mean", "labels")
"""`TAGS` in short: the paper's SSME-KDE, ours, the mean of the classifiers, the labels alone."""
