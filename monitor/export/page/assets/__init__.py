"""The page's files: its style, its script, and the charting library, vendored (see NOTICE)."""

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
"""The served files, by name: clients can request nothing else in this folder."""


@cache
def content(name: str) -> bytes:
    """A file's bytes.

    Raises
    ------
    KeyError
        It is none of the page's.
    """
    if name not in TYPES:
        raise KeyError(name)
    return (Path(__file__).parent / name).read_bytes()


@cache
def address(name: str) -> str:
    """Where the page finds it; another content has another address, so browsers may keep it for ever.

    Examples
    --------
    >>> address("page.css").startswith("assets/page.css?")
    True
    """
    return f"assets/{name}?{hashlib.sha256(content(name)).hexdigest()[:12]}"
