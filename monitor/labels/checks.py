"""What a model's labelled rows are held against: the intervals of the accuracy, and the estimate itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from monitor.labels.audit import IntervalAudit, begun_anew, first_labels
from monitor.labels.columns import Matches
from monitor.labels.trust import TrustTest, epsilon_of, trust_begun_anew
from monitor.records import Floats
from monitor.trustview import Trust
from monitor.view import Coverage


class LabelChecks:
    """The audit of the intervals and the test of trust of one model, fed with the same rows.

    Parameters
    ----------
    level : float
        Of the intervals.
    state : mapping
        A snapshot, or anything that holds one; empty from the start.

    Attributes
    ----------
    new : bool
        Whether what the calibration's uncertainty excuses is still to be said, by `calibrated_on`.
    """

    def __init__(self, level: float, state: Mapping[str, Any]) -> None:
        self.audit = IntervalAudit(level).build(state.get("audit"))
        self.test = TrustTest(level=level).build(state.get("trust"))
        self.new = "epsilon" not in state.get("trust", {})

    @property
    def trusted(self) -> bool:
        """Whether labels have not contradicted the accuracy, or no longer do."""
        return self.test.trusted

    def add_matches(self, matches: Matches) -> None:
        """Take labelled rows: the matches of this model, sorted by sequence."""
        rows = first_labels(matches)
        self.audit.add(*rows)
        self.test.add(*rows)

    def calibrated_on(self, confidence: Floats) -> None:
        """The calibration was fitted on a reference with these confidences: its uncertainty is excused."""
        self.test.recalibrated(0, epsilon_of(confidence))

    @property
    def lost(self) -> bool:
        """Whether labels contradict the accuracy, and no fresh test has begun since they did."""
        return self.test.lost

    def recalibrated(self, window: int, pending: int, first: bool, epsilon: float | None = None) -> None:
        """A refit brought a calibration while so many rows stood in this open window.

        Parameters
        ----------
        window : int
            The open one's number.
        pending : int
            Its rows, whose confidences the former calibration gave.
        first : bool
            None held before: the audit begins anew, as the test does.
        epsilon : float, optional
            What the uncertainty of one that labels brought excuses: then the audit begins anew too, as
            the intervals before were those that the labels spoke against.
        """
        clean = window + (pending > 0)
        self.test.recalibrated(clean, epsilon)
        if first:
            self.test.begin_anew(clean)
        if first or epsilon is not None:
            self.audit.begin_anew(clean)

    def begin_anew(self, window: int) -> None:
        """Another version of the model, or another baseline, from this window on."""
        self.audit.begin_anew(window)
        self.test.begin_anew(window)

    def coverage(self) -> Coverage | None:
        """How often the intervals held; None before there are 30 rows."""
        return self.audit.coverage()

    def trust(self) -> Trust | None:
        """Where the test stands; None before the first row."""
        return self.test.trust()

    def lost_trust(self) -> Trust | None:
        """Where the test stands once trust is lost, else None."""
        return None if self.test.trusted else self.test.trust()

    def snapshot(self) -> dict[str, Any]:
        """Both, by name."""
        return {"audit": self.audit.snapshot(), "trust": self.test.snapshot()}


def checks_begun_anew(saved: Mapping[str, Any], window: int) -> dict[str, Any]:
    """Of a series' snapshot what is left of both where they begin anew with this window."""
    found: dict[str, Any] = {}
    if "audit" in saved:
        found["audit"] = begun_anew(saved["audit"], window)
    if "trust" in saved:
        found["trust"] = trust_begun_anew(saved["trust"], window)
    return found
