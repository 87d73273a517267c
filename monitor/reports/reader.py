"""Reads a window's line of the reports back."""

from __future__ import annotations

import msgspec

from monitor.reports.arena_report import ArenaLine
from monitor.reports.window_report import WindowLine, WindowReport

_window = msgspec.json.Decoder(WindowLine).decode
_arena = msgspec.json.Decoder(ArenaLine).decode


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
    ValueError
        The line is none of `to_json`'s.

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
    # No text can hold these bytes: inside one, each quote has a backslash before it.
    return (_arena if b'"kind":"arena"' in line else _window)(line).read()
