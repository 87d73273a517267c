"""Words that the messages of rejected records share."""

from __future__ import annotations

import difflib
import json
from collections.abc import Sequence
from functools import lru_cache

_SHOWN_CHARACTERS = 60
_SHOWN_NAMES = 10


def shown(value: object) -> str:
    """A value as JSON has it, cut to 60 characters.

    Examples
    --------
    >>> shown(None), shown("a"), shown(1.5), shown([1, 2])
    ('null', '"a"', '1.5', 'an array')
    """
    if isinstance(value, list | tuple):
        return "an array"
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, str):
        cut = value if len(value) <= _SHOWN_CHARACTERS else value[:_SHOWN_CHARACTERS] + "…"
        return json.dumps(cut, ensure_ascii=False)
    if isinstance(value, bool) or value is None:
        return json.dumps(value)
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "…"


def listing(names: Sequence[str]) -> str:
    """Names with commas between, the first ten of many.

    Examples
    --------
    >>> listing(["ok", "toxic"])
    'ok, toxic'
    """
    if len(names) <= _SHOWN_NAMES:
        return ", ".join(names)
    return f"{', '.join(names[:_SHOWN_NAMES])}, … ({len(names)} in all)"


@lru_cache(maxsize=1024)  # a feed that is wrong is wrong in the same way a thousand times a second
def _nearest(name: str, known: tuple[str, ...]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {close[0]}?" if close else ""


def nearest(name: str, known: Sequence[str]) -> str:
    """The clause that names the nearest known name, or nothing.

    Examples
    --------
    >>> nearest("toxik", ["ok", "toxic"])
    '; did you mean toxic?'
    """
    return _nearest(name[:_SHOWN_CHARACTERS], tuple(known))


def step(name: object) -> str:
    """One step of a JSON path: ``.name``, or ``["a name"]`` where it is no plain word.

    Examples
    --------
    >>> step("erm"), step("a.b")
    ('.erm', '["a.b"]')
    """
    text = str(name)
    return (
        f".{text}"
        if text.replace("-", "_").isidentifier() and len(text) <= _SHOWN_CHARACTERS
        else f"[{shown(text)}]"
    )
