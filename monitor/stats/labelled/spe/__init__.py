"""Semisupervised performance evaluation: a mixture of two parametric densities of the scores."""

from monitor.stats.labelled.spe.curves import PerformanceCurve
from monitor.stats.labelled.spe.estimator import SPE, Threshold
from monitor.stats.labelled.spe.families import FAMILIES, DensityFamily

__all__ = ["FAMILIES", "SPE", "DensityFamily", "PerformanceCurve", "Threshold"]
