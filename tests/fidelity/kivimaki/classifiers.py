"""The paper's seven classifiers, each with the defaults of its library.

One thread each, as the table is made on one core. SVC has no probabilities of its own any more in
scikit-learn 1.8 and later: Platt scaling over five folds is what its former `probability=True` did.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.util import find_spec
from typing import Any

from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.svm import SVC

from monitor.base.errors import MissingExtraError


def _extra(module: str) -> None:
    if find_spec(module) is None:
        raise MissingExtraError("The table of seven classifiers", "fidelity")


def _xgboost(seed: int) -> Any:
    _extra("xgboost")
    from xgboost import XGBClassifier

    return XGBClassifier(random_state=seed, n_jobs=1)


def _lightgbm(seed: int) -> Any:
    _extra("lightgbm")
    from lightgbm import LGBMClassifier

    return LGBMClassifier(random_state=seed, n_jobs=1, verbose=-1)


CLASSIFIERS: Mapping[str, Callable[[int], Any]] = {
    "NB": lambda seed: GaussianNB(),
    "LR": lambda seed: LogisticRegression(),
    "KNN": lambda seed: KNeighborsClassifier(),
    "SVM": lambda seed: CalibratedClassifierCV(SVC(), ensemble=False),
    "RF": lambda seed: RandomForestClassifier(random_state=seed),
    "XGB": _xgboost,
    "LGBM": _lightgbm,
}
"""From a seed to a classifier with `fit` and `predict_proba`.

Raises
------
MissingExtraError
    XGBoost or LightGBM is not there; the message says what to install.
"""
