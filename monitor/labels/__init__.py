"""Labels: joined to predictions by id, and the estimators of model quality that use them."""

from __future__ import annotations

from collections.abc import Mapping

from monitor.labels.bradley_terry import BradleyTerry, Comparison
from monitor.labels.estimators.active_testing import ActiveTesting
from monitor.labels.estimators.autoeval import AutoEval
from monitor.labels.estimators.base import Fitted, LabelEstimator
from monitor.labels.estimators.bayesian_calibration import BayesianCalibration
from monitor.labels.estimators.dawid_skene import DawidSkene
from monitor.labels.estimators.ensemble import Ensemble
from monitor.labels.estimators.inputs import LabelledScores
from monitor.labels.estimators.labelled import Labelled
from monitor.labels.estimators.majority_vote import MajorityVote
from monitor.labels.estimators.metrics import METRICS
from monitor.labels.estimators.posterior import ConfusionEstimate, PosteriorEstimator
from monitor.labels.estimators.ppi import PredictionPowered, prediction_powered
from monitor.labels.estimators.pseudo_label import PseudoLabel
from monitor.labels.estimators.rectified import Rectified
from monitor.labels.estimators.spe import SPE
from monitor.labels.estimators.ssme import SSME
from monitor.labels.estimators.ssme_flow import SSMEFlow
from monitor.labels.estimators.ssme_paper import SSMEPaper
from monitor.labels.ranking import RankInterval, rank_intervals, simultaneous_intervals, simultaneous_ranks

__all__ = [
    "ESTIMATORS",
    "METRICS",
    "SPE",
    "SSME",
    "ActiveTesting",
    "AutoEval",
    "BayesianCalibration",
    "BradleyTerry",
    "Comparison",
    "ConfusionEstimate",
    "DawidSkene",
    "Ensemble",
    "Fitted",
    "LabelEstimator",
    "Labelled",
    "LabelledScores",
    "MajorityVote",
    "PosteriorEstimator",
    "PredictionPowered",
    "PseudoLabel",
    "RankInterval",
    "Rectified",
    "SSMEFlow",
    "SSMEPaper",
    "prediction_powered",
    "rank_intervals",
    "simultaneous_intervals",
    "simultaneous_ranks",
]

ESTIMATORS: Mapping[str, type[LabelEstimator]] = {
    estimator.tag: estimator
    for estimator in (
        SSME,
        SSMEPaper,
        Ensemble,
        Labelled,
        PseudoLabel,
        MajorityVote,
        DawidSkene,
        BayesianCalibration,
        Rectified,
        AutoEval,
        ActiveTesting,
        SSMEFlow,
        SPE,
    )
}
"""Every estimator that uses labels, by its name in the configuration and in Prometheus."""
