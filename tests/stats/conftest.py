"""The authors' library of prediction-powered inference, beside which ours is held."""

from __future__ import annotations

import warnings
from types import ModuleType

import pytest


@pytest.fixture(scope="session")
def ppi() -> ModuleType:
    """`ppi_py`, as plain Python: numba takes seconds to compile what is called once."""
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # importing it silences every warning of the process
        numba = pytest.importorskip("numba", reason="install the extra test")
        patch.setattr(numba.config, "DISABLE_JIT", True)
        found: ModuleType = pytest.importorskip("ppi_py", reason="install the extra test")
        return found
