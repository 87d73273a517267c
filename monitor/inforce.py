"""The calibration that a series uses, and what is said of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from monitor.calibration import Uncalibrated, calibration_from_snapshot
from monitor.calibration.base import Calibration
from monitor.config import Task
from monitor.reference import Reference
from monitor.view import CalibrationView


@dataclass(frozen=True, slots=True)
class InForce:
    """A calibration in force.

    Parameters
    ----------
    calibration : Calibration
    view : CalibrationView
    """

    calibration: Calibration
    view: CalibrationView

    @classmethod
    def at_start(cls, task: Task, reference: Reference | None, fits: int) -> InForce:
        """The one fitted on the reference, or none where there is none.

        Parameters
        ----------
        task : Task
        reference : Reference or None
        fits : int
            How often a calibration was fitted before.

        Raises
        ------
        ValueError
            The reference cannot carry the method, with the reason.
        """
        if reference is None:
            none = Uncalibrated(max(len(task.classes), 1))
            return cls(none, CalibrationView(none.method, 0, foreign=False, fitted_time=None))
        calibration = reference.calibration(task.calibration.reference_method)
        fitted = calibration.method != "none"
        view = CalibrationView(
            method=calibration.method,
            version=fits + 1 if fitted else 0,
            foreign=False,
            fitted_time=float(reference.time[-1]) if fitted else None,
        )
        return cls(calibration, view)

    @classmethod
    def from_snapshot(cls, state: Mapping[str, Any]) -> InForce:
        """The one that a snapshot holds."""
        calibration = calibration_from_snapshot(state["fit"])
        view = CalibrationView(calibration.method, state["version"], state["foreign"], state["fitted_time"])
        return cls(calibration, view)

    def snapshot(self) -> dict[str, Any]:
        """The calibration with what is said of it."""
        view = self.view
        return {
            "fit": self.calibration.snapshot(),
            "version": view.version,
            "foreign": view.foreign,
            "fitted_time": view.fitted_time,
        }

    def of_another_version(self) -> InForce:
        """The same, flagged as fitted on answers of another version of the model, where it was fitted."""
        return replace(self, view=replace(self.view, foreign=True)) if self.view.version else self

    def followed_by(self, calibration: Calibration, time: float, fits: int) -> InForce:
        """The next fit, which rests on answers up to this time; `fits` as in `at_start`."""
        return InForce(calibration, CalibrationView(calibration.method, fits + 1, False, time))
