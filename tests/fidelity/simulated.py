"""The paper's simulated data: confidences from mixtures of three Beta distributions, right by design.

Kivimäki et al., section 5.1.1 and Table 2. Each label is drawn with the confidence as its chance, so
that the confidences are calibrated by construction.
"""

from __future__ import annotations

import numpy as np

from monitor.base.records import Floats

ALPHA = np.array([20.0, 2.0, 1.0])
BETA = np.array([1.0, 2.0, 20.0])
ORIGINAL = np.array([0.90, 0.08, 0.02])
SHIFTED = np.array([0.80, 0.15, 0.05])
MIXTURES = {"original": ORIGINAL, "shifted": SHIFTED}


def expected_accuracy(weights: Floats) -> float:
    """Return accuracy of the whole distribution: the mixture's mean (the paper's 89.7 % and 83.8 %)."""
    return float(weights @ (ALPHA / (ALPHA + BETA)))


def confidences(rng: np.random.Generator, weights: Floats, shape: tuple[int, ...]) -> Floats:
    """Return confidences of any shape from a mixture."""
    component = rng.choice(len(weights), size=shape, p=weights)
    return rng.beta(ALPHA[component], BETA[component])


def mixed(rng: np.random.Generator, shift: float, shape: tuple[int, ...]) -> Floats:
    """Return confidences of which a share `shift` (0 to 1) comes from the shifted mixture."""
    return confidences(rng, (1 - shift) * ORIGINAL + shift * SHIFTED, shape)


def outcomes(rng: np.random.Generator, confidence: Floats) -> Floats:
    """Return 1.0 where the prediction turned out right, else 0.0."""
    return (rng.random(confidence.shape) < confidence).astype(np.float64)
