"""The files of the page: its style, its script, and a copy of the charting library (see NOTICE)."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

TYPES = {
    "page.css": "text/css; charset=utf-8",
    "page.js": "text/javascript; charset=utf-8",
    "uPlot.min.css": "text/css; charset=utf-8",
    "uPlot.iife.min.js": "text/javascript; charset=utf-8",
}
"""The media types of the served files by name; clients cannot request another file of this folder."""


@cache
def content(name: str) -> bytes:
    """Return the content of a file.

    Raises
    ------
    KeyError
        The page has no such file.
    """
    if name not in TYPES:
        raise KeyError(name)
    return (Path(__file__).parent / name).read_bytes()


@cache
def address(name: str) -> str:
    """Return the relative address of a file.

    The address depends on the content of the file, so browsers may cache the file for ever.

    Examples
    --------
    >>> address("page.css").startswith("assets/page.css?")
    True
    """
    return f"assets/{name}?{hashlib.sha256(content(name)).hexdigest()[:12]}"
