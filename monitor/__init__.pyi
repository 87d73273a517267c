# The public names of the package. monitor/__init__.py loads each from its module when it is first used.

from .base.errors import (
    BlindsightError as BlindsightError,
    ConfigError as ConfigError,
    MissingExtraError as MissingExtraError,
)
from .base.results import Estimate as Estimate, RankInterval as RankInterval, Unknown as Unknown
from .config.chart import ChartConfig as ChartConfig
from .config.file import load_config as load_config
from .config.root import Config as Config
from .engine.charting import chart_for as chart_for, chart_from_config as chart_from_config
from .notebook.estimates import MonitorResult as MonitorResult, RaisedAlarm as RaisedAlarm
from .notebook.monitor import Monitor as Monitor
from .reports.window_report import WindowReport as WindowReport
from .stats.calibration import (
    CALIBRATIONS as CALIBRATIONS,
    CALIBRATORS as CALIBRATORS,
    calibration_from_snapshot as calibration_from_snapshot,
)
from .stats.calibration.auto import AutoCalibrator as AutoCalibrator, Choice as Choice, choose as choose
from .stats.calibration.base import (
    Calibration as Calibration,
    Calibrator as Calibrator,
    confidence_of as confidence_of,
    cross_fit_in_time as cross_fit_in_time,
)
from .stats.calibration.beta import BetaCalibration as BetaCalibration, BetaCalibrator as BetaCalibrator
from .stats.calibration.isotonic import (
    IsotonicCalibration as IsotonicCalibration,
    IsotonicCalibrator as IsotonicCalibrator,
)
from .stats.calibration.none import NoCalibrator as NoCalibrator, Uncalibrated as Uncalibrated
from .stats.calibration.platt import PlattCalibration as PlattCalibration, PlattCalibrator as PlattCalibrator
from .stats.calibration.refit import LabelledRows as LabelledRows, Refitted as Refitted, refitted as refitted
from .stats.calibration.ssme import SSMECalibration as SSMECalibration
from .stats.calibration.temperature import (
    TemperatureCalibration as TemperatureCalibration,
    TemperatureCalibrator as TemperatureCalibrator,
)
from .stats.calibration.vector import (
    VectorCalibration as VectorCalibration,
    VectorCalibrator as VectorCalibrator,
)
from .stats.charts import CHARTS as CHARTS
from .stats.charts.base import (
    Baseline as Baseline,
    Verdict as Verdict,
)
from .stats.charts.cusum import Cusum as Cusum
from .stats.charts.ewma import Ewma as Ewma
from .stats.charts.laney import Laney as Laney
from .stats.charts.latch import ChartLogic as ChartLogic
from .stats.charts.limits import false_alarm_rate as false_alarm_rate
from .stats.charts.settings import Chart as Chart
from .stats.charts.shewhart import Shewhart as Shewhart
from .stats.charts.shewhart_p import ShewhartNp as ShewhartNp, ShewhartP as ShewhartP
from .stats.estimate.average_confidence import (
    average_confidence as average_confidence,
    average_confidence_many as average_confidence_many,
    average_confidence_windows as average_confidence_windows,
)
from .stats.estimate.calibration_error import (
    CLASS_ECE_BINS as CLASS_ECE_BINS,
    ECE_BINS as ECE_BINS,
    CalibrationErrorEstimate as CalibrationErrorEstimate,
    LabelledCalibrationError as LabelledCalibrationError,
    calibration_error as calibration_error,
    labelled_calibration_error as labelled_calibration_error,
)
from .stats.estimate.classification import (
    CLASSIFICATION_METRICS as CLASSIFICATION_METRICS,
    ClassificationEstimate as ClassificationEstimate,
    classification_details as classification_details,
    classification_details_many as classification_details_many,
    classification_estimates as classification_estimates,
)
from .stats.estimate.confusion import (
    confusion_intervals as confusion_intervals,
    expected_confusion as expected_confusion,
    failure_prediction as failure_prediction,
)
from .stats.estimate.corrected import Correction as Correction, CorrectionLogic as CorrectionLogic
from .stats.estimate.count_ratio import MOSTLY_UNDEFINED as MOSTLY_UNDEFINED, CountRatio as CountRatio
from .stats.estimate.drift_spectrum import Spectrum as Spectrum, drift_spectrum as drift_spectrum
from .stats.estimate.hajek import (
    Excess as Excess,
    WeightedCounts as WeightedCounts,
    hajek as hajek,
    weighted_counts as weighted_counts,
)
from .stats.estimate.influence import labelled_row_sd as labelled_row_sd
from .stats.estimate.label_cumulants import Cumulants as Cumulants
from .stats.estimate.poisson_binomial import (
    PoissonBinomial as PoissonBinomial,
    TrimmedPmf as TrimmedPmf,
    pmf_many as pmf_many,
    trim as trim,
    trimmed_pmf_many as trimmed_pmf_many,
)
from .stats.estimate.predictive import (
    Predictive as Predictive,
    predictive_interval as predictive_interval,
    predictive_windows as predictive_windows,
)
from .stats.estimate.predictive_fit import fit_predictive as fit_predictive
from .stats.estimate.proportion import wilson as wilson
from .stats.estimate.variance_components import (
    Components as Components,
    variance_components as variance_components,
)
from .stats.labelled import ESTIMATORS as ESTIMATORS
from .stats.labelled.active_testing import ActiveTesting as ActiveTesting
from .stats.labelled.autoeval import AutoEval as AutoEval
from .stats.labelled.base import Fitted as Fitted, LabelEstimator as LabelEstimator
from .stats.labelled.ensemble import Ensemble as Ensemble
from .stats.labelled.inputs import LabelledScores as LabelledScores
from .stats.labelled.labelled import Labelled as Labelled
from .stats.labelled.metrics import METRICS as METRICS
from .stats.labelled.posterior import (
    ConfusionEstimate as ConfusionEstimate,
    PosteriorEstimator as PosteriorEstimator,
)
from .stats.labelled.ppi import (
    PredictionPowered as PredictionPowered,
    prediction_powered as prediction_powered,
)
from .stats.labelled.rectified import Rectified as Rectified
from .stats.labelled.ssme import SSME as SSME
from .stats.pairwise.bradley_terry import BradleyTerry as BradleyTerry, Comparison as Comparison
from .stats.pairwise.ranking import (
    rank_intervals as rank_intervals,
    simultaneous_intervals as simultaneous_intervals,
    simultaneous_ranks as simultaneous_ranks,
)
from .stats.rivals.atc import ATC as ATC
from .stats.rivals.bayesian_calibration import BayesianCalibration as BayesianCalibration
from .stats.rivals.cbpe_sem import STANDARD_ERRORS as STANDARD_ERRORS, cbpe_sem as cbpe_sem
from .stats.rivals.dawid_skene import DawidSkene as DawidSkene
from .stats.rivals.doc import DoCFeat as DoCFeat
from .stats.rivals.majority_vote import MajorityVote as MajorityVote
from .stats.rivals.pseudo_label import PseudoLabel as PseudoLabel
from .stats.rivals.spe import SPE as SPE
from .stats.rivals.ssme_flow import SSMEFlow as SSMEFlow
from .stats.rivals.ssme_paper import SSMEPaper as SSMEPaper

__all__: list[str]
__version__: str
