"""Names and numbers that several floors agree on."""

from __future__ import annotations

from typing import Literal

AVERAGE_CONFIDENCE = "average_confidence"
"""The estimator that every window has: the mean of the calibrated confidences."""
REALISED = "realised"
"""What the labels of a window say."""
REALISED_COHORT = "realised_cohort"
"""What the newest labelled rows say."""
REALISED_HORIZON = "realised_horizon"
"""What all labelled rows of the horizon say."""
BATCH_ROWS = 30
"""Labelled rows a batch of the audit of intervals: with fewer, a batch hardly ever contradicts anything."""
OUTCOMES = ("taken", "kept", "refused")
"""Of a recalibration: the new calibration holds; the one in force stays, as the labels do not favour the new
one; no fit."""

ClosedBy = Literal["size", "age", "version", "end"]
"""What closed a window: its rows are all there, its age, another version of the model, the stream's end."""
