"""The recomputation of reported windows from the raw input, for `blindsight verify`."""

from monitor.cli.verify.verifier import Difference, Findings, Verifier

__all__ = ["Difference", "Findings", "Verifier"]
