"""Blindsight: estimate how good a deployed model is now, without waiting for labels.

Import all public names from here: ``from monitor import PoissonBinomial``. Python loads a name when you first
use it, so `import monitor` costs nothing. The modules below may move. The test kit is `monitor.testing`; the
contract of sources is in `connectors`.

On import, the package opens no socket, reads no clock and starts no thread.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # for type checkers and editors; a test holds it equal to the table below
    from monitor.base.errors import BlindsightError as BlindsightError
    from monitor.base.errors import ConfigError as ConfigError
    from monitor.base.errors import MissingExtraError as MissingExtraError
    from monitor.base.results import Estimate as Estimate
    from monitor.base.results import Unknown as Unknown
    from monitor.config.chart import ChartConfig as ChartConfig
    from monitor.config.file import load_config as load_config
    from monitor.config.root import Config as Config
    from monitor.engine.charting import chart_for as chart_for
    from monitor.engine.charting import chart_from_config as chart_from_config
    from monitor.notebook.estimates import MonitorResult as MonitorResult
    from monitor.notebook.estimates import RaisedAlarm as RaisedAlarm
    from monitor.notebook.monitor import Monitor as Monitor
    from monitor.reports.window_report import WindowReport as WindowReport
    from monitor.stats.calibration import CALIBRATIONS as CALIBRATIONS
    from monitor.stats.calibration import CALIBRATORS as CALIBRATORS
    from monitor.stats.calibration import calibration_from_snapshot as calibration_from_snapshot
    from monitor.stats.calibration.auto import AutoCalibrator as AutoCalibrator
    from monitor.stats.calibration.auto import Choice as Choice
    from monitor.stats.calibration.auto import choose as choose
    from monitor.stats.calibration.base import Calibration as Calibration
    from monitor.stats.calibration.base import Calibrator as Calibrator
    from monitor.stats.calibration.base import confidence_of as confidence_of
    from monitor.stats.calibration.base import cross_fit_in_time as cross_fit_in_time
    from monitor.stats.calibration.beta import BetaCalibration as BetaCalibration
    from monitor.stats.calibration.beta import BetaCalibrator as BetaCalibrator
    from monitor.stats.calibration.isotonic import IsotonicCalibration as IsotonicCalibration
    from monitor.stats.calibration.isotonic import IsotonicCalibrator as IsotonicCalibrator
    from monitor.stats.calibration.none import NoCalibrator as NoCalibrator
    from monitor.stats.calibration.none import Uncalibrated as Uncalibrated
    from monitor.stats.calibration.platt import PlattCalibration as PlattCalibration
    from monitor.stats.calibration.platt import PlattCalibrator as PlattCalibrator
    from monitor.stats.calibration.refit import LabelledRows as LabelledRows
    from monitor.stats.calibration.refit import Refitted as Refitted
    from monitor.stats.calibration.refit import refitted as refitted
    from monitor.stats.calibration.ssme import SSMECalibration as SSMECalibration
    from monitor.stats.calibration.temperature import TemperatureCalibration as TemperatureCalibration
    from monitor.stats.calibration.temperature import TemperatureCalibrator as TemperatureCalibrator
    from monitor.stats.calibration.vector import VectorCalibration as VectorCalibration
    from monitor.stats.calibration.vector import VectorCalibrator as VectorCalibrator
    from monitor.stats.charts import CHARTS as CHARTS
    from monitor.stats.charts.base import Baseline as Baseline
    from monitor.stats.charts.base import Chart as Chart
    from monitor.stats.charts.base import ChartLogic as ChartLogic
    from monitor.stats.charts.base import Verdict as Verdict
    from monitor.stats.charts.cusum import Cusum as Cusum
    from monitor.stats.charts.ewma import Ewma as Ewma
    from monitor.stats.charts.laney import Laney as Laney
    from monitor.stats.charts.limits import false_alarm_rate as false_alarm_rate
    from monitor.stats.charts.settings import LimitChart as LimitChart
    from monitor.stats.charts.shewhart import Shewhart as Shewhart
    from monitor.stats.charts.shewhart_p import ShewhartNp as ShewhartNp
    from monitor.stats.charts.shewhart_p import ShewhartP as ShewhartP
    from monitor.stats.estimate.average_confidence import average_confidence as average_confidence
    from monitor.stats.estimate.average_confidence import average_confidence_many as average_confidence_many
    from monitor.stats.estimate.average_confidence import (
        average_confidence_windows as average_confidence_windows,
    )
    from monitor.stats.estimate.calibration_error import CLASS_ECE_BINS as CLASS_ECE_BINS
    from monitor.stats.estimate.calibration_error import ECE_BINS as ECE_BINS
    from monitor.stats.estimate.calibration_error import CalibrationErrorEstimate as CalibrationErrorEstimate
    from monitor.stats.estimate.calibration_error import LabelledCalibrationError as LabelledCalibrationError
    from monitor.stats.estimate.calibration_error import calibration_error as calibration_error
    from monitor.stats.estimate.calibration_error import (
        labelled_calibration_error as labelled_calibration_error,
    )
    from monitor.stats.estimate.classification import CLASSIFICATION_METRICS as CLASSIFICATION_METRICS
    from monitor.stats.estimate.classification import ClassificationEstimate as ClassificationEstimate
    from monitor.stats.estimate.classification import classification_details as classification_details
    from monitor.stats.estimate.classification import (
        classification_details_many as classification_details_many,
    )
    from monitor.stats.estimate.classification import classification_estimates as classification_estimates
    from monitor.stats.estimate.confusion import confusion_intervals as confusion_intervals
    from monitor.stats.estimate.confusion import expected_confusion as expected_confusion
    from monitor.stats.estimate.confusion import failure_prediction as failure_prediction
    from monitor.stats.estimate.corrected import Correction as Correction
    from monitor.stats.estimate.corrected import CorrectionLogic as CorrectionLogic
    from monitor.stats.estimate.count_ratio import MOSTLY_UNDEFINED as MOSTLY_UNDEFINED
    from monitor.stats.estimate.count_ratio import CountRatio as CountRatio
    from monitor.stats.estimate.drift_spectrum import Spectrum as Spectrum
    from monitor.stats.estimate.drift_spectrum import drift_spectrum as drift_spectrum
    from monitor.stats.estimate.hajek import Excess as Excess
    from monitor.stats.estimate.hajek import WeightedCounts as WeightedCounts
    from monitor.stats.estimate.hajek import hajek as hajek
    from monitor.stats.estimate.hajek import weighted_counts as weighted_counts
    from monitor.stats.estimate.influence import labelled_row_sd as labelled_row_sd
    from monitor.stats.estimate.label_cumulants import Cumulants as Cumulants
    from monitor.stats.estimate.poisson_binomial import PoissonBinomial as PoissonBinomial
    from monitor.stats.estimate.poisson_binomial import TrimmedPmf as TrimmedPmf
    from monitor.stats.estimate.poisson_binomial import pmf_many as pmf_many
    from monitor.stats.estimate.poisson_binomial import trim as trim
    from monitor.stats.estimate.poisson_binomial import trimmed_pmf_many as trimmed_pmf_many
    from monitor.stats.estimate.predictive import Predictive as Predictive
    from monitor.stats.estimate.predictive import predictive_interval as predictive_interval
    from monitor.stats.estimate.predictive import predictive_windows as predictive_windows
    from monitor.stats.estimate.predictive_fit import fit_predictive as fit_predictive
    from monitor.stats.estimate.proportion import wilson as wilson
    from monitor.stats.estimate.variance_components import Components as Components
    from monitor.stats.estimate.variance_components import variance_components as variance_components
    from monitor.stats.labelled import ESTIMATORS as ESTIMATORS
    from monitor.stats.labelled.active_testing import ActiveTesting as ActiveTesting
    from monitor.stats.labelled.autoeval import AutoEval as AutoEval
    from monitor.stats.labelled.base import Fitted as Fitted
    from monitor.stats.labelled.base import LabelEstimator as LabelEstimator
    from monitor.stats.labelled.ensemble import Ensemble as Ensemble
    from monitor.stats.labelled.inputs import LabelledScores as LabelledScores
    from monitor.stats.labelled.labelled import Labelled as Labelled
    from monitor.stats.labelled.metrics import METRICS as METRICS
    from monitor.stats.labelled.posterior import ConfusionEstimate as ConfusionEstimate
    from monitor.stats.labelled.posterior import PosteriorEstimator as PosteriorEstimator
    from monitor.stats.labelled.ppi import PredictionPowered as PredictionPowered
    from monitor.stats.labelled.ppi import prediction_powered as prediction_powered
    from monitor.stats.labelled.rectified import Rectified as Rectified
    from monitor.stats.labelled.ssme import SSME as SSME
    from monitor.stats.pairwise.bradley_terry import BradleyTerry as BradleyTerry
    from monitor.stats.pairwise.bradley_terry import Comparison as Comparison
    from monitor.stats.pairwise.ranking import RankInterval as RankInterval
    from monitor.stats.pairwise.ranking import rank_intervals as rank_intervals
    from monitor.stats.pairwise.ranking import simultaneous_intervals as simultaneous_intervals
    from monitor.stats.pairwise.ranking import simultaneous_ranks as simultaneous_ranks
    from monitor.stats.rivals.atc import ATC as ATC
    from monitor.stats.rivals.bayesian_calibration import BayesianCalibration as BayesianCalibration
    from monitor.stats.rivals.cbpe_sem import STANDARD_ERRORS as STANDARD_ERRORS
    from monitor.stats.rivals.cbpe_sem import cbpe_sem as cbpe_sem
    from monitor.stats.rivals.dawid_skene import DawidSkene as DawidSkene
    from monitor.stats.rivals.doc import DoCFeat as DoCFeat
    from monitor.stats.rivals.majority_vote import MajorityVote as MajorityVote
    from monitor.stats.rivals.pseudo_label import PseudoLabel as PseudoLabel
    from monitor.stats.rivals.spe import SPE as SPE
    from monitor.stats.rivals.ssme_flow import SSMEFlow as SSMEFlow
    from monitor.stats.rivals.ssme_paper import SSMEPaper as SSMEPaper

__version__ = "0.2.0"

_NAMES = {
    "base.errors": "BlindsightError ConfigError MissingExtraError",
    "base.results": "Estimate Unknown",
    "config.chart": "ChartConfig",
    "config.file": "load_config",
    "config.root": "Config",
    "engine.charting": "chart_for chart_from_config",
    "notebook.estimates": "MonitorResult RaisedAlarm",
    "notebook.monitor": "Monitor",
    "reports.window_report": "WindowReport",
    "stats.calibration": "CALIBRATIONS CALIBRATORS calibration_from_snapshot",
    "stats.calibration.auto": "AutoCalibrator Choice choose",
    "stats.calibration.base": "Calibration Calibrator confidence_of cross_fit_in_time",
    "stats.calibration.beta": "BetaCalibration BetaCalibrator",
    "stats.calibration.isotonic": "IsotonicCalibration IsotonicCalibrator",
    "stats.calibration.none": "NoCalibrator Uncalibrated",
    "stats.calibration.platt": "PlattCalibration PlattCalibrator",
    "stats.calibration.refit": "LabelledRows Refitted refitted",
    "stats.calibration.ssme": "SSMECalibration",
    "stats.calibration.temperature": "TemperatureCalibration TemperatureCalibrator",
    "stats.calibration.vector": "VectorCalibration VectorCalibrator",
    "stats.charts": "CHARTS",
    "stats.charts.base": "Baseline Chart ChartLogic Verdict",
    "stats.charts.cusum": "Cusum",
    "stats.charts.ewma": "Ewma",
    "stats.charts.laney": "Laney",
    "stats.charts.limits": "false_alarm_rate",
    "stats.charts.settings": "LimitChart",
    "stats.charts.shewhart": "Shewhart",
    "stats.charts.shewhart_p": "ShewhartNp ShewhartP",
    "stats.estimate.average_confidence": (
        "average_confidence average_confidence_many average_confidence_windows"
    ),
    "stats.estimate.calibration_error": (
        "CLASS_ECE_BINS ECE_BINS CalibrationErrorEstimate LabelledCalibrationError "
        "calibration_error labelled_calibration_error"
    ),
    "stats.estimate.classification": (
        "CLASSIFICATION_METRICS ClassificationEstimate classification_details classification_details_many "
        "classification_estimates"
    ),
    "stats.estimate.confusion": "confusion_intervals expected_confusion failure_prediction",
    "stats.estimate.corrected": "Correction CorrectionLogic",
    "stats.estimate.count_ratio": "MOSTLY_UNDEFINED CountRatio",
    "stats.estimate.drift_spectrum": "Spectrum drift_spectrum",
    "stats.estimate.hajek": "Excess WeightedCounts hajek weighted_counts",
    "stats.estimate.influence": "labelled_row_sd",
    "stats.estimate.label_cumulants": "Cumulants",
    "stats.estimate.poisson_binomial": "PoissonBinomial TrimmedPmf pmf_many trim trimmed_pmf_many",
    "stats.estimate.predictive": "Predictive predictive_interval predictive_windows",
    "stats.estimate.predictive_fit": "fit_predictive",
    "stats.estimate.proportion": "wilson",
    "stats.estimate.variance_components": "Components variance_components",
    "stats.labelled": "ESTIMATORS",
    "stats.labelled.active_testing": "ActiveTesting",
    "stats.labelled.autoeval": "AutoEval",
    "stats.labelled.base": "Fitted LabelEstimator",
    "stats.labelled.ensemble": "Ensemble",
    "stats.labelled.inputs": "LabelledScores",
    "stats.labelled.labelled": "Labelled",
    "stats.labelled.metrics": "METRICS",
    "stats.labelled.posterior": "ConfusionEstimate PosteriorEstimator",
    "stats.labelled.ppi": "PredictionPowered prediction_powered",
    "stats.labelled.rectified": "Rectified",
    "stats.labelled.ssme": "SSME",
    "stats.pairwise.bradley_terry": "BradleyTerry Comparison",
    "stats.pairwise.ranking": "RankInterval rank_intervals simultaneous_intervals simultaneous_ranks",
    "stats.rivals.atc": "ATC",
    "stats.rivals.bayesian_calibration": "BayesianCalibration",
    "stats.rivals.cbpe_sem": "STANDARD_ERRORS cbpe_sem",
    "stats.rivals.dawid_skene": "DawidSkene",
    "stats.rivals.doc": "DoCFeat",
    "stats.rivals.majority_vote": "MajorityVote",
    "stats.rivals.pseudo_label": "PseudoLabel",
    "stats.rivals.spe": "SPE",
    "stats.rivals.ssme_flow": "SSMEFlow",
    "stats.rivals.ssme_paper": "SSMEPaper",
}
"""The public names of each module."""

_HOME = {name: f"monitor.{module}" for module, names in _NAMES.items() for name in names.split()}

__all__ = sorted((*_HOME, "__version__"), key=lambda name: (not name.isupper(), not name[0].isupper(), name))


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(importlib.import_module(_HOME[name]), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
