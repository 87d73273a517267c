"""Snapshots of a task without what is to be learnt anew."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from monitor.engine.label_checks import checks_begun_anew
from monitor.engine.refit.due import recalibration_begun_anew


def without_baseline(state: Mapping[str, Any]) -> dict[str, Any]:
    """A task's snapshot without what was learnt from a baseline: calibrations, charts, objectives, checks."""
    learnt = ("judge", "calibration")
    series = []
    for model, group, saved in state["series"]:
        kept = {key: value for key, value in saved.items() if key not in learnt}
        kept |= checks_begun_anew(saved, saved["windows"]["number"])
        if saved.get("recalibration"):
            kept["recalibration"] = recalibration_begun_anew(
                saved["recalibration"], saved["windows"]["number"]
            )
        if saved["last"] is not None:
            kept["last"] = saved["last"] | {"charts": []}
        series.append([model, group, kept])
    refits = {"refits": due_anew(state["refits"])} if "refits" in state else {}
    return {**state, "series": series, **refits}


def due_anew(refits: Mapping[str, Any]) -> dict[str, Any]:
    """A task's saved refits with one due at once: what the last one brought is forgotten.

    Examples
    --------
    >>> due_anew({"schedule": {"due": False, "number": 3}})["schedule"]
    {'due': True, 'number': 3}
    """
    return {**refits, "schedule": {**refits["schedule"], "due": True}}
