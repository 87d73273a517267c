"""Estimators: what can be said of a model's performance from its confidences alone, and from labels."""

from monitor.stats.estimate.atc import ATC
from monitor.stats.estimate.average_confidence import (
    average_confidence,
    average_confidence_many,
    average_confidence_windows,
)
from monitor.stats.estimate.bias_filter import BiasFilter, BiasFilterLogic
from monitor.stats.estimate.bias_law import BiasLaw, biased
from monitor.stats.estimate.calibration_error import (
    CLASS_ECE_BINS,
    ECE_BINS,
    CalibrationErrorEstimate,
    LabelledCalibrationError,
    calibration_error,
    labelled_calibration_error,
)
from monitor.stats.estimate.cbpe_sem import STANDARD_ERRORS, cbpe_sem, labelled_row_sd
from monitor.stats.estimate.classification import (
    CLASSIFICATION_METRICS,
    ClassificationEstimate,
    classification_details,
    classification_estimates,
)
from monitor.stats.estimate.confusion import confusion_intervals, expected_confusion, failure_prediction
from monitor.stats.estimate.count_ratio import MOSTLY_UNDEFINED, CountRatio
from monitor.stats.estimate.doc import DoCFeat
from monitor.stats.estimate.drift_spectrum import Spectrum, drift_spectrum
from monitor.stats.estimate.filtered import filtered_interval, law_of_window
from monitor.stats.estimate.hajek import Excess, WeightedCounts, hajek, weighted_counts
from monitor.stats.estimate.poisson_binomial import (
    PoissonBinomial,
    TrimmedPmf,
    pmf_many,
    trim,
    trimmed_pmf_many,
)
from monitor.stats.estimate.predictive import (
    Predictive,
    predictive_interval,
    predictive_windows,
)
from monitor.stats.estimate.predictive_fit import fit_predictive
from monitor.stats.estimate.proportion import wilson
from monitor.stats.estimate.variance_components import Components, variance_components

__all__ = [
    "ATC",
    "CLASSIFICATION_METRICS",
    "CLASS_ECE_BINS",
    "ECE_BINS",
    "MOSTLY_UNDEFINED",
    "STANDARD_ERRORS",
    "BiasFilter",
    "BiasFilterLogic",
    "BiasLaw",
    "CalibrationErrorEstimate",
    "ClassificationEstimate",
    "Components",
    "CountRatio",
    "DoCFeat",
    "Excess",
    "LabelledCalibrationError",
    "PoissonBinomial",
    "Predictive",
    "Spectrum",
    "TrimmedPmf",
    "WeightedCounts",
    "average_confidence",
    "average_confidence_many",
    "average_confidence_windows",
    "biased",
    "calibration_error",
    "cbpe_sem",
    "classification_details",
    "classification_estimates",
    "confusion_intervals",
    "drift_spectrum",
    "expected_confusion",
    "failure_prediction",
    "filtered_interval",
    "fit_predictive",
    "hajek",
    "labelled_calibration_error",
    "labelled_row_sd",
    "law_of_window",
    "pmf_many",
    "predictive_interval",
    "predictive_windows",
    "trim",
    "trimmed_pmf_many",
    "variance_components",
    "weighted_counts",
    "wilson",
]
