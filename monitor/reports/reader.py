"""Reads a window's line of the reports back."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from monitor.base.results import Estimate, Result, TooFew, Unknown
from monitor.reports.arena_report import ArenaReport
from monitor.reports.trust import read_untrusted
from monitor.reports.views import (
    CalibrationView,
    ChartView,
    ClassEstimate,
    MetricEstimate,
    ObjectiveState,
    ObjectiveView,
    Rebaselined,
)
from monitor.reports.window_report import WindowReport
from monitor.reports.window_view import EXACT
from monitor.stats.charts.base import Verdict
from monitor.stats.pairwise.ranking import RankInterval
from monitor.stats.pairwise.standing import ModelStanding, Standing

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def from_json(line: bytes) -> WindowReport:
    """What `to_json` wrote, as far as the line holds it: rounded, without the time of the calibration.

    Written again it gives the same bytes.

    Parameters
    ----------
    line : bytes
        Of `to_json`; what it does not write is not looked for, so no other line should be given.

    Returns
    -------
    WindowReport
        Numbers written as null are NaN.

    Raises
    ------
    KeyError, ValueError
        The line is none of `to_json`'s.

    Examples
    --------
    >>> from monitor.reports.window_report import to_json
    >>> line = to_json(WindowReport(task="t", model="erm", group="", version="", window=3, size=500,
    ...     closed_by="size", start_time=0.0, end_time=60.5,
    ...     calibration=CalibrationView("none", 0, False, None)))
    >>> from_json(line).end_time, to_json(from_json(line)) == line
    (60.5, True)
    """
    read = msgspec.json.decode(line)
    if isinstance(read, dict) and read.get("kind") == "arena":
        return _read_arena(read)
    calibration = read["calibration"]
    return WindowReport(
        task=read["task"],
        model=read["model"],
        group=read["group"],
        version=read["version"],
        window=read["window"],
        revision=read["revision"],
        size=read["size"],
        closed_by=read["closed_by"],
        start_time=_seconds(read["start_time"]),
        end_time=_seconds(read["end_time"]),
        calibration=CalibrationView(
            calibration["method"],
            calibration["version"],
            calibration.get("foreign", False),
            None,
            calibration.get("interval", EXACT),
        ),
        estimates=tuple(map(_read_estimate, read["estimates"])),
        classes=tuple(map(_read_class, read.get("classes", ()))),
        charts=tuple(map(_read_chart, read["charts"])),
        objectives=tuple(map(_read_objective, read["objectives"])),
        positions={partition: tuple(ends) for partition, ends in read["positions"].items()},
        rebaselined=tuple(Rebaselined(**each) for each in read.get("rebaselined", ())),
        trust=read_untrusted(read["untrusted"][0]) if "untrusted" in read else None,
    )


def _seconds(time: str) -> float:
    """What `rfc3339` wrote; in whole milliseconds first, so that it is written the same again."""
    since = datetime.fromisoformat(time) - _EPOCH
    return since // timedelta(milliseconds=1) / 1000


def _read_estimate(read: Mapping[str, Any]) -> MetricEstimate:
    result: Result
    if "unknown" in read:
        size = read.get("size")
        result = Unknown(read["unknown"]) if size is None else TooFew(read["unknown"], size)
    else:
        result = Estimate(read["value"], read["lower"], read["upper"], read["level"], read["size"])
    return MetricEstimate(read["metric"], read["estimator"], result, read.get("labels", 0), *_ranks(read))


def _ranks(read: Mapping[str, Any]) -> list[RankInterval | None]:
    """By Bonferroni and by χ²."""
    return [RankInterval(**read[name]) if name in read else None for name in ("rank", "rank_chi_square")]


def _read_arena(read: Mapping[str, Any]) -> ArenaReport:
    return ArenaReport.of(
        read["task"],
        read["window"],
        size=read["size"],
        closed_by=read["closed_by"],
        times=(_seconds(read["start_time"]), _seconds(read["end_time"])),
        positions={partition: tuple(ends) for partition, ends in read["positions"].items()},
        standing=Standing(
            tuple(map(_read_standing, read["models"])),
            read["reference_model"],
            read["comparisons"],
            read["judge_weight"],
            read["effective_comparisons"],
            read["rank_level"],
        ),
    )


def _read_standing(read: Mapping[str, Any]) -> ModelStanding:
    return ModelStanding(read["model"], _read_estimate(read).result, *_ranks(read))


def _read_class(read: Mapping[str, Any]) -> ClassEstimate:
    found = _read_estimate(read)
    return ClassEstimate(found.metric, found.estimator, read["class"], found.result)


def _read_chart(read: Mapping[str, Any]) -> ChartView:
    center, lower, upper = (
        math.nan if read[name] is None else read[name] for name in ("center", "lower", "upper")
    )
    verdict = Verdict(center, lower, upper, tuple(read["rules"]), read["out_of_control"])
    return ChartView(read["metric"], verdict)


def _read_objective(read: Mapping[str, Any]) -> ObjectiveView:
    is_floor = "floor" in read
    state = ObjectiveState(read["state"]) if "state" in read else None
    return ObjectiveView(read["metric"], read["floor" if is_floor else "ceiling"], is_floor, state)
