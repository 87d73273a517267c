"""Constants and literal types that several packages share."""

from __future__ import annotations

from typing import Literal

AVERAGE_CONFIDENCE = "average_confidence"
"""Name of the estimator that every window has, the mean of the calibrated confidences."""
CORRECTED = "corrected"
"""Name of the estimator of a window's accuracy from its confidences and all labels so far.

Where labels exist, pages and reports show this estimate first.
"""
RATIO = "ratio"
"""The unit of metrics of errors without a unit; pages and reports show them in per cent."""

DOUBLY_ROBUST = "doubly_robust"
"""Name of the estimator of metrics of errors without labels: see `monitor.stats.regression.losses`."""
REALISED = "realised"
"""Name of the estimator that computes metrics from the labels of one window."""
REALISED_COHORT = "realised_cohort"
"""Name of the estimator that computes metrics from the newest labelled rows."""
REALISED_HORIZON = "realised_horizon"
"""Name of the estimator that computes metrics from all labelled rows of the horizon."""
BATCH_ROWS = 30
"""Number of labelled rows in each batch of the audit of intervals.

A smaller batch would hardly ever contradict an interval.
"""
OUTCOMES = ("taken", "kept", "refused")
"""The outcomes of a recalibration.

``taken``: the new calibration is in force. ``kept``: the old calibration stays in force, because the labels
do not favour the new one. ``refused``: the fit was refused.
"""

ClosedBy = Literal["size", "age", "version", "end"]
"""The reason why a window closed: its size, its age, a new version of the model, the end of the stream."""
