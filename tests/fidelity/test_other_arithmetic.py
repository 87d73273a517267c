"""The short form of `tests.fidelity.other_arithmetic`: one window of each kind, in two arithmetics."""

from __future__ import annotations

import platform

import numpy as np
import pytest

from tests.fidelity.other_arithmetic import ARITHMETICS, calibrations, differences, estimates_under


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the other arithmetic is an older x86-64's")
def test_estimates_differ_in_the_last_bits_and_no_more() -> None:
    """`blindsight verify` accepts ten times as much of the ends, and a thousand times of the rest."""
    snapshots = calibrations()
    here, there = (
        estimates_under(arithmetic, snapshots, 1)
        for arithmetic in ({}, ARITHMETICS["both off, OpenBLAS of Nehalem"])
    )
    ends, rest = differences(here, there)
    assert 0 < np.abs(ends[:, 0] - ends[:, 1]).max() < 1e-8
    assert 0 < np.abs(rest[:, 0] - rest[:, 1]).max() < 1e-12
