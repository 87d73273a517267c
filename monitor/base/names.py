"""Names and numbers that several floors agree on."""

from __future__ import annotations

from typing import Literal

AVERAGE_CONFIDENCE = "average_confidence"
"""The estimator that every window has: the mean of the calibrated confidences."""
CORRECTED = "corrected"
"""The accuracy of a window by its confidences and all labels so far; where labels exist, the headline."""
REALISED = "realised"
"""The metrics by the labels of a window."""
REALISED_COHORT = "realised_cohort"
"""The metrics by the newest labelled rows."""
REALISED_HORIZON = "realised_horizon"
"""The metrics by all labelled rows of the horizon."""
BATCH_ROWS = 30
"""Labelled rows a batch of the audit of intervals: with fewer, a batch hardly ever contradicts anything."""
OUTCOMES = ("taken", "kept", "refused")
"""Of a recalibration: the new calibration holds; the one in force stays, as the labels do not favour the new
one; no fit."""

FeatureKind = Literal["number", "text"]
"""What the values of a feature are."""

ClosedBy = Literal["size", "age", "version", "end"]
"""The reason why a window closed: its size, its age, another version of the model, the end of the stream."""
