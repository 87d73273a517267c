"""Semisupervised performance evaluation: a mixture of two parametric densities of the scores."""

from monitor.labels.estimators.spe.curves import Curve
from monitor.labels.estimators.spe.estimator import SPE, Threshold
from monitor.labels.estimators.spe.families import FAMILIES, Family

__all__ = ["FAMILIES", "SPE", "Curve", "Family", "Threshold"]
