"""The values of NannyML's CBPE that were printed are those of `average_confidence`."""

from __future__ import annotations

import numpy as np

from tests.fidelity import cbpe
from tests.harness import ROOT

KEPT = ROOT / "tests" / "fidelity" / "output" / "cbpe.txt"


def test_average_confidence_has_the_values_of_cbpe() -> None:
    theirs = [float(line.split()[1]) for line in KEPT.read_text(encoding="utf-8").splitlines()[1:]]
    assert len(theirs) == 10
    assert min(theirs) < max(theirs) - 0.01
    assert np.abs(cbpe.ours() - theirs).max() < 1e-6
