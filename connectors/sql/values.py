"""Values of a rising column: their order, and the value that lies a distance below another one."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import MAXYEAR, MINYEAR, UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TEXT = re.compile(
    r"(?P<date>\d{4}-\d\d-\d\d|\d{8})"
    r"(?:(?P<mark>\D)(?P<clock>\d\d(?::\d\d){0,2}|\d{4}|\d{6})(?:[.,]\d+)?(?P<zone>Z|[+-]\d\d(?::?\d\d){0,2})?)?"
)
"""ISO 8601 with or without punctuation; its beginning up to the last whole unit sorts before what follows."""


def rank(value: object) -> float | None:
    """Return the rank of a value: a number, or microseconds since 1970; None for any other value.

    Examples
    --------
    >>> rank(7), rank(datetime(1970, 1, 2)), rank("1970-01-01 00:00:01"), rank("soon"), rank(True)
    (7.0, 86400000000.0, 1000000.0, None, None)
    >>> rank("19700102") == rank("1970-01-02T00:00Z") == rank(date(1970, 1, 2))
    True
    """
    if isinstance(value, bool):
        return None
    try:
        if isinstance(value, str):
            if _TEXT.fullmatch(value) is None:
                return None
            value = datetime.fromisoformat(value)
        if isinstance(value, date):
            moment = value if isinstance(value, datetime) else datetime(value.year, value.month, value.day)
            since = moment.replace(tzinfo=moment.tzinfo or UTC) - _EPOCH
            return float((since.days * 86_400 + since.seconds) * 10**6 + since.microseconds)
        number = float(value) if isinstance(value, int | float | Decimal) else math.nan
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def below(value: Any, distance: float) -> Any:
    """Return the value that lies a distance below another one, in the column's own type and form.

    Parameters
    ----------
    value : number, date, datetime or str
        One that has a `rank`.
    distance : float
        Seconds from a time, at least 0; from a number as it is.

    Returns
    -------
    number, date, datetime, str or None
        Of text the whole seconds, minutes or hours without a zone, which sort before all that begin with
        them. None where the type has no such value, as before the year 1.

    Examples
    --------
    >>> below(1000, 300), below(datetime(2026, 1, 1), 60), below("2026-01-01 00:05:00.5+01:00", 300)
    (700, datetime.datetime(2025, 12, 31, 23, 59), '2026-01-01 00:00:00')
    >>> below("20261120", 300), below("2026-11-20T10:00Z", 300), below("0001-01-01", 300)
    ('20261119', '2026-11-20T09:55', None)
    """
    try:
        if isinstance(value, str):
            return _text_below(value, distance)
        if isinstance(value, datetime):
            return value - timedelta(seconds=distance)
        if isinstance(value, date):
            return value - timedelta(days=math.ceil(distance / 86_400))
        if isinstance(value, int):
            return value - math.ceil(distance)
        low = value - type(value)(distance)
    except (OverflowError, ArithmeticError):
        return None
    return low if math.isfinite(low) else None


def _text_below(text: str, distance: float) -> str:
    parts = _TEXT.fullmatch(text)
    assert parts is not None
    low = datetime.fromisoformat(text).replace(tzinfo=None) - timedelta(seconds=distance)
    day, mark, clock = low.date().isoformat(), parts["mark"] or "", parts["clock"] or ""
    moment = low.time().isoformat(timespec="seconds")
    return (
        (day if "-" in parts["date"] else day.replace("-", ""))
        + mark
        + (moment if ":" in clock else moment.replace(":", ""))[: len(clock)]
    )


def low_rank(value: Any, distance: float) -> float:
    """Return the rank of `below`, in the value's zone; minus infinity where there is no such value.

    Examples
    --------
    >>> low_rank(1000, 300), low_rank("0001-01-01", 300)
    (700.0, -inf)
    """
    low = below(value, distance)
    if low is None:
        return -math.inf
    zone = datetime.fromisoformat(value).tzinfo if isinstance(value, str) else None
    place = rank(low if zone is None else datetime.fromisoformat(low).replace(tzinfo=zone))
    assert place is not None
    return place


def at_most(value: Any, place: float) -> Any:
    """Return a value of the column whose rank is a little below a place; `value` is one above it.

    Examples
    --------
    >>> at_most(1000, 700.0), at_most("2026-01-01 00:05:00", rank("2026-01-01 00:04:00"))
    (698, '2026-01-01 00:03:58')
    """
    above = rank(value)
    assert above is not None
    distance = max(above - place, 0.0) + 4 * math.ulp(max(abs(above), abs(place)))
    return below(value, 1 + (distance / 1e6 if isinstance(value, date | str) else distance))


_KINDS: Mapping[str, tuple[type, Any]] = {
    "time": (datetime, datetime.fromisoformat),
    "date": (date, date.fromisoformat),
    "decimal": (Decimal, Decimal),
    "uuid": (UUID, UUID),
}


def stored(value: Any) -> Any:
    """Return a value in a form that a store can hold; `restored` reverses it.

    Examples
    --------
    >>> restored(stored(datetime(2026, 1, 1))), stored("a"), restored(stored(Decimal("0.1")))
    (datetime.datetime(2026, 1, 1, 0, 0), 'a', Decimal('0.1'))
    """
    for tag, (kind, _) in _KINDS.items():
        if isinstance(value, kind):
            return [tag, value.isoformat() if isinstance(value, date) else str(value)]
    # An integer may be too large for the store's format.
    whole = isinstance(value, int) and not -(1 << 63) <= value < 1 << 64
    return ["decimal", str(value)] if whole else value


def restored(value: Any) -> Any:
    """Return the value from which `stored` made this one."""
    return _KINDS[value[0]][1](value[1]) if isinstance(value, list | tuple) else value


_UNREADABLE = re.compile(
    r"(?P<year>\d{4,})-(?P<rest>\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)?)"
    r"(?P<zone>[+-]\d\d(?::\d\d){0,2})(?P<bc> BC)?"
)
_CYCLE, _LIKE = 400, 2000  # years after which the calendar repeats, and some that Python knows


def in_utc(text: str) -> str | datetime:
    """Return a time of PostgreSQL that Python cannot hold with the zone UTC; any other text as it is.

    PostgreSQL writes it in the zone of the session, so that one value has many texts. A time that Python can
    hold in UTC alone is returned as such.

    Examples
    --------
    >>> in_utc("12026-01-01 01:30:00+02"), in_utc("0044-03-15 00:00:00+00 BC"), in_utc("infinity")
    ('12025-12-31 23:30:00+00', '0044-03-15 00:00:00+00 BC', 'infinity')
    """
    parts = _UNREADABLE.fullmatch(text)
    if parts is None:
        return text
    year = 1 - int(parts["year"]) if parts["bc"] else int(parts["year"])  # the year before 1 is 1 BC
    like = year % _CYCLE + _LIKE
    try:
        moment = datetime.fromisoformat(f"{like}-{parts['rest']}{parts['zone']}").astimezone(UTC)
    except ValueError:
        return text
    year += moment.year - like
    if MINYEAR <= year <= MAXYEAR:
        return moment.replace(year=year)
    shown = f"{1 - year if year < 1 else year:04d}{moment.replace(tzinfo=None).isoformat(' ')[4:]}+00"
    return f"{shown} BC" if year < 1 else shown
