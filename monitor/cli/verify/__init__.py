"""The verification of reported windows for `blindsight verify`: recompute them from the raw input."""

from monitor.cli.verify.verifier import Difference, Findings, VerifiedInput, Verifier

__all__ = ["Difference", "Findings", "VerifiedInput", "Verifier"]
