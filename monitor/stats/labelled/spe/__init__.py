"""Semisupervised performance evaluation: a mixture of two parametric densities of the scores."""

from monitor.stats.labelled.spe.curves import Curve
from monitor.stats.labelled.spe.estimator import SPE, Threshold
from monitor.stats.labelled.spe.families import FAMILIES, Family

__all__ = ["FAMILIES", "SPE", "Curve", "Family", "Threshold"]
