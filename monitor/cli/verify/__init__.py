"""Reported windows recomputed from the raw input: `blindsight verify`."""

from monitor.cli.verify.verifier import Difference, Findings, VerifiedInput, Verifier

__all__ = ["Difference", "Findings", "VerifiedInput", "Verifier"]
