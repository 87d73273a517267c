"""Semisupervised performance evaluation (SPE) by a mixture of two parametric densities of the scores."""

from monitor.stats.rivals.spe.curves import PerformanceCurve
from monitor.stats.rivals.spe.estimator import SPE, Threshold
from monitor.stats.rivals.spe.families import FAMILIES, DensityFamily

__all__ = ["FAMILIES", "SPE", "DensityFamily", "PerformanceCurve", "Threshold"]
