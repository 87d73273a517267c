"""Reported windows recomputed from the raw input: `blindsight verify`."""

from monitor.cli.verify.verifier import Difference, Feed, Findings, Verifier

__all__ = ["Difference", "Feed", "Findings", "Verifier"]
