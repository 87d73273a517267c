"""The reader of the lines of reports files."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import msgspec

from monitor.base.records import DEFAULT_TASK
from monitor.base.registry import TASK_KINDS, load
from monitor.reports.window_report import WindowReport


def from_json(line: bytes) -> WindowReport:
    """Return the report that a JSON line describes.

    The numbers of the report are rounded as in the line. Values that the line does not contain, such as the
    time of the calibration, are missing. `to_json` of the report gives the same bytes.

    Parameters
    ----------
    line : bytes
        A line that `to_json` wrote. Other lines do not always raise an error.

    Returns
    -------
    WindowReport
        Numbers written as null become NaN.

    Raises
    ------
    ValueError
        The line cannot be decoded.

    Examples
    --------
    >>> from monitor.reports.views import CalibrationView
    >>> from monitor.reports.window_report import to_json
    >>> line = to_json(WindowReport(task="t", model="erm", group="", version="", window=3, size=500,
    ...     closed_by="size", start_time=0.0, end_time=60.5,
    ...     calibration=CalibrationView("none", 0, False, None)))
    >>> from_json(line).end_time, to_json(from_json(line)) == line
    (60.5, True)
    """
    # No text contains these bytes, because JSON writes a backslash before each quote in a text.
    kind = next((tag for tag in TASK_KINDS if b'"kind":"%b"' % tag.encode() in line), DEFAULT_TASK)
    report: WindowReport = _decoder(TASK_KINDS[kind].line)(line).read()
    return report


@cache
def _decoder(path: str) -> Callable[[bytes], Any]:
    return msgspec.json.Decoder(load(path)).decode
