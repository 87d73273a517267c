"""Snapshots of a task without what is to be learnt anew."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from monitor.base.codec import restored
from monitor.engine.series import SeriesSnapshot


def without_baseline(state: Mapping[str, Any]) -> dict[str, Any]:
    """A task's snapshot without what was learnt from a baseline: calibrations, charts, objectives, checks."""
    series = [
        [model, group, restored(saved, SeriesSnapshot).without_baseline()]
        for model, group, saved in state["series"]
    ]
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
