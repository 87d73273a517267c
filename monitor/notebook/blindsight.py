"""Blindsight in Python: ``import blindsight as bs`` gives every public name of `monitor`.

This file contains no list of names, so the copy in an editable installation stays valid.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import monitor

if TYPE_CHECKING:  # for type checkers and editors
    from monitor import *  # noqa: F403

__all__ = monitor.__all__
__version__ = monitor.__version__


def __getattr__(name: str) -> Any:
    if name not in monitor.__all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(monitor, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *monitor.__all__})
