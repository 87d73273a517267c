"""Tasks whose scores come from scikit-learn's classifiers, trained on few rows and asked about many."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.datasets import load_breast_cancer, load_digits, make_classification, make_moons
from sklearn.discriminant_analysis import QuadraticDiscriminantAnalysis
from sklearn.ensemble import ExtraTreesClassifier, GradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

from monitor.base.records import Floats, Ints

ROWS = 24_000
Made = tuple[Floats, Ints]
Maker = Callable[[np.random.Generator], Made]


def scored(
    x: Floats, y: Ints, models: Sequence[ClassifierMixin], rng: np.random.Generator, train: int
) -> Made:
    """Train each model on its own random `train` rows; score the rows that none was trained on."""
    classes = int(y.max()) + 1
    pool = rng.choice(len(y), min(4 * train, len(y) // 3), replace=False)
    rest = np.setdiff1d(np.arange(len(y)), pool)
    scores = np.zeros((len(rest), len(models), classes))
    for at, model in enumerate(models):
        rows = rng.choice(pool, min(train, len(pool)), replace=False)
        fitted: Any = model.fit(x[rows], y[rows])
        scores[:, at, fitted.classes_] = fitted.predict_proba(x[rest])
    scores /= scores.sum(axis=2, keepdims=True)
    return scores, y[rest]


def _in_noise(x: Floats, y: Ints, noise: float, rng: np.random.Generator) -> Made:
    """Return eight noisy copies of each row of a small data set: the population is the noisy rows."""
    wide, labels = np.tile(x, (8, 1)), np.tile(y.astype(np.int64), 8)
    return wide + rng.normal(0.0, noise, wide.shape) * x.std(), labels


def _seed(rng: np.random.Generator) -> int:
    return int(rng.integers(1 << 31))


def _family(rng: np.random.Generator) -> list[ClassifierMixin]:
    """Return seven classifiers, from well calibrated to wildly overconfident (naive Bayes, a single tree)."""
    return [
        make_pipeline(StandardScaler(), LogisticRegression(C=0.1, max_iter=500)),
        GaussianNB(),
        DecisionTreeClassifier(min_samples_leaf=4, random_state=_seed(rng)),
        RandomForestClassifier(60, min_samples_leaf=2, random_state=_seed(rng)),
        KNeighborsClassifier(11),
        GradientBoostingClassifier(n_estimators=30, random_state=_seed(rng)),
        ExtraTreesClassifier(60, random_state=_seed(rng)),
    ]


def _made(classes: int, informative: int, models: slice, train: int, **options: Any) -> Maker:
    def make(rng: np.random.Generator) -> Made:
        x, y = make_classification(
            ROWS,
            n_features=20,
            n_informative=informative,
            n_classes=classes,
            n_clusters_per_class=2,
            random_state=_seed(rng),
            **options,
        )
        return scored(x, y, _family(rng)[models], rng, train)

    return make


def _moons(rng: np.random.Generator) -> Made:
    x, y = make_moons(ROWS, noise=0.45, random_state=_seed(rng))
    return scored(x, y, _family(rng)[:5], rng, 150)


def _same_model(rng: np.random.Generator) -> Made:
    """Return five logistic regressions that differ only in the rows that they were trained on, as in the
    paper.
    """
    x, y = make_classification(ROWS, n_informative=6, weights=[0.75], flip_y=0.1, random_state=_seed(rng))
    return scored(x, y, [LogisticRegression(C=c) for c in (10.0, 1.0, 0.1, 10.0, 1.0)], rng, 100)


def _drifted(rng: np.random.Generator) -> Made:
    """Trained before the features moved and the classes' shares changed."""
    x, y = make_classification(ROWS, n_informative=6, weights=[0.6], random_state=_seed(rng))
    late = np.arange(ROWS) >= ROWS // 4
    x[late] += rng.normal(0.0, 0.4, x.shape[1])
    keep = ~late | (y == 1) | (rng.random(ROWS) < 0.6)
    early = np.flatnonzero(~late)
    models = _family(rng)[:5]
    scores = np.empty((int((late & keep).sum()), 5, 2))
    for at, model in enumerate(models):
        fitted: Any = model.fit(x[early[: 200 * (at + 1)]], y[early[: 200 * (at + 1)]])
        scores[:, at] = fitted.predict_proba(x[late & keep])
    return scores, y[late & keep]


def _quadratic(rng: np.random.Generator) -> Made:
    """Return two classes that differ in spread, where the linear model is blind."""
    y = rng.integers(0, 2, ROWS)
    x = rng.standard_normal((ROWS, 5)) * np.where(y == 1, 1.7, 1.0)[:, None]
    models = [QuadraticDiscriminantAnalysis(), *_family(rng)[:5]]
    return scored(x, y, models, rng, 250)


def _breast_cancer(rng: np.random.Generator) -> Made:
    data = load_breast_cancer()
    x, y = _in_noise((data.data - data.data.mean(axis=0)) / data.data.std(axis=0), data.target, 1.5, rng)
    return scored(x, y, _family(rng)[:5], rng, 60)


def _digits(classes: int, models: slice) -> Maker:
    def make(rng: np.random.Generator) -> Made:
        data = load_digits()
        keep = data.target < classes
        x, y = _in_noise(data.data[keep], data.target[keep], 1.0, rng)
        return scored(x, y, _family(rng)[models], rng, 250)

    return make


MAKERS: Mapping[str, Maker] = {
    "sk-2c-7m": _made(2, 8, slice(0, 7), 200, weights=[0.7], flip_y=0.05),
    "sk-2c-5m-rare": _made(2, 8, slice(0, 5), 400, weights=[0.9], flip_y=0.02, class_sep=1.3),
    "sk-2c-1m-naive-bayes": _made(2, 10, slice(1, 2), 200, weights=[0.6]),
    "sk-2c-1m-forest": _made(2, 8, slice(3, 4), 150, flip_y=0.1),
    "sk-2c-4m-few-rows": _made(2, 6, slice(0, 4), 60, flip_y=0.05),
    "sk-2c-5m-moons": _moons,
    "sk-2c-5m-logistic": _same_model,
    "sk-2c-5m-drifted": _drifted,
    "sk-2c-6m-quadratic": _quadratic,
    "sk-2c-5m-breast-cancer": _breast_cancer,
    "sk-3c-5m": _made(3, 8, slice(0, 5), 250, flip_y=0.05),
    "sk-3c-7m-rare": _made(3, 10, slice(0, 7), 300, weights=[0.7, 0.2]),
    "sk-3c-1m": _made(3, 8, slice(0, 1), 150),
    "sk-3c-4m-digits": _digits(3, slice(0, 4)),
    "sk-9c-5m": _made(9, 14, slice(0, 5), 500, class_sep=1.5),
    "sk-9c-4m-digits": _digits(9, slice(0, 4)),
}
