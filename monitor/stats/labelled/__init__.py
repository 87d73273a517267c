"""Labels: joined to predictions by id, and the estimators of model quality that use them."""

from __future__ import annotations

from collections.abc import Mapping

from monitor.stats.labelled.active_testing import ActiveTesting
from monitor.stats.labelled.autoeval import AutoEval
from monitor.stats.labelled.base import Fitted, LabelEstimator
from monitor.stats.labelled.bayesian_calibration import BayesianCalibration
from monitor.stats.labelled.dawid_skene import DawidSkene
from monitor.stats.labelled.ensemble import Ensemble
from monitor.stats.labelled.inputs import LabelledScores
from monitor.stats.labelled.labelled import Labelled
from monitor.stats.labelled.majority_vote import MajorityVote
from monitor.stats.labelled.metrics import METRICS
from monitor.stats.labelled.posterior import ConfusionEstimate, PosteriorEstimator
from monitor.stats.labelled.ppi import PredictionPowered, prediction_powered
from monitor.stats.labelled.pseudo_label import PseudoLabel
from monitor.stats.labelled.rectified import Rectified
from monitor.stats.labelled.spe import SPE
from monitor.stats.labelled.ssme import SSME
from monitor.stats.labelled.ssme_flow import SSMEFlow
from monitor.stats.labelled.ssme_paper import SSMEPaper
from monitor.stats.pairwise.bradley_terry import BradleyTerry, Comparison
from monitor.stats.pairwise.ranking import (
    RankInterval,
    rank_intervals,
    simultaneous_intervals,
    simultaneous_ranks,
)

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
