"""Order, subtraction and storage of the values of a rising column.

The rising column (`cursor` in the configuration) is a column of numbers, dates, times or ISO 8601 texts. Its
value is greater in each new or changed row. Values of all these types are compared by their `rank`, a number.
"""

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
"""An ISO 8601 date or time, with or without punctuation."""


def rank(value: object) -> float | None:
    """Return the number by which a value is compared with the other values of its column.

    The rank of a number is the number itself. The rank of a date, time or ISO 8601 text is its distance from
    1970-01-01 UTC in microseconds; a time without a zone counts as UTC. The rank is None for any other text
    or type, for a bool, and for a number that is not finite.

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


def value_below(value: Any, distance: float) -> Any:
    """Subtract a distance from a value, and return the result in the type and text form of the value.

    Parameters
    ----------
    value : number, date, datetime or str
        A value whose `rank` is not None.
    distance : float
        The amount to subtract, at least 0: seconds for a date, time or text, else a number in the unit of
        the column. It is rounded up to a whole number for an integer, and to whole days for a date.

    Returns
    -------
    number, date, datetime, str or None
        For a text, the result is cut to whole seconds, minutes or hours and has no zone. So it sorts before
        every longer text that begins with it. None if the type has no such value, such as a date before the
        year 1.

    Examples
    --------
    >>> value_below(1000, 300), value_below(datetime(2026, 1, 1), 60)
    (700, datetime.datetime(2025, 12, 31, 23, 59))
    >>> value_below("2026-01-01 00:05:00.5+01:00", 300)
    '2026-01-01 00:00:00'
    >>> value_below("20261120", 300), value_below("2026-11-20T10:00Z", 300), value_below("0001-01-01", 300)
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
    """Return `value_below` for an ISO 8601 text."""
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
    """Return the rank of the result of `value_below`, in the zone of `value`.

    The rank is minus infinity if there is no such value.

    Examples
    --------
    >>> low_rank(1000, 300), low_rank("0001-01-01", 300)
    (700.0, -inf)
    """
    low = value_below(value, distance)
    if low is None:
        return -math.inf
    zone = datetime.fromisoformat(value).tzinfo if isinstance(value, str) else None
    result = rank(low if zone is None else datetime.fromisoformat(low).replace(tzinfo=zone))
    assert result is not None
    return result


def value_below_rank(value: Any, limit: float) -> Any:
    """Return a value a little below the rank `limit`, in the type and text form of `value`.

    Parameters
    ----------
    value : number, date, datetime or str
        A value of the column with a rank of at least `limit`.
    limit : float
        A rank.

    Returns
    -------
    number, date, datetime, str or None
        None if the type has no such value.

    Examples
    --------
    >>> value_below_rank(1000, 700.0), value_below_rank("2026-01-01 00:05:00", rank("2026-01-01 00:04:00"))
    (698, '2026-01-01 00:03:58')
    """
    above = rank(value)
    assert above is not None
    distance = max(above - limit, 0.0) + 4 * math.ulp(max(abs(above), abs(limit)))
    return value_below(value, 1 + (distance / 1e6 if isinstance(value, date | str) else distance))


_KINDS: Mapping[str, tuple[type, Any]] = {
    "time": (datetime, datetime.fromisoformat),
    "date": (date, date.fromisoformat),
    "decimal": (Decimal, Decimal),
    "uuid": (UUID, UUID),
}
"""The tag of each type that a store cannot hold, with the type and the function that reads its text."""


def to_stored(value: Any) -> Any:
    """Return a value in a form that the store can hold. `from_stored` reverses the conversion.

    A time, date, Decimal, UUID or very large integer becomes a list of a tag and a text. Any other value is
    returned unchanged.

    Examples
    --------
    >>> from_stored(to_stored(datetime(2026, 1, 1))), to_stored("a"), from_stored(to_stored(Decimal("0.1")))
    (datetime.datetime(2026, 1, 1, 0, 0), 'a', Decimal('0.1'))
    """
    for tag, (kind, _) in _KINDS.items():
        if isinstance(value, kind):
            return [tag, value.isoformat() if isinstance(value, date) else str(value)]
    # The store's format holds integers of 64 bits only.
    whole = isinstance(value, int) and not -(1 << 63) <= value < 1 << 64
    return ["decimal", str(value)] if whole else value


def from_stored(value: Any) -> Any:
    """Return the value of a column that `to_stored` converted."""
    return _KINDS[value[0]][1](value[1]) if isinstance(value, list | tuple) else value


_UNREADABLE = re.compile(
    r"(?P<year>\d{4,})-(?P<rest>\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)?)"
    r"(?P<zone>[+-]\d\d(?::\d\d){0,2})(?P<bc> BC)?"
)
_CYCLE = 400  # years after which the calendar repeats
_SUPPORTED_YEAR = 2000  # the first year of a cycle that Python's datetime supports


def in_utc(text: str) -> str | datetime:
    """Return a PostgreSQL time in UTC, from a text that Python's `datetime` cannot read.

    PostgreSQL writes a `timestamptz` in the zone of the session, so the same value may have several texts. In
    UTC, it has one text. The result is a `datetime` if `datetime` supports the time in UTC, else a text. Any
    text without a date, a time of day and a zone, such as `infinity`, is returned unchanged.

    Examples
    --------
    >>> in_utc("12026-01-01 01:30:00+02"), in_utc("0044-03-15 00:00:00+00 BC"), in_utc("infinity")
    ('12025-12-31 23:30:00+00', '0044-03-15 00:00:00+00 BC', 'infinity')
    """
    parts = _UNREADABLE.fullmatch(text)
    if parts is None:
        return text
    year = 1 - int(parts["year"]) if parts["bc"] else int(parts["year"])  # 1 BC is the year before AD 1
    supported = year % _CYCLE + _SUPPORTED_YEAR
    try:
        moment = datetime.fromisoformat(f"{supported}-{parts['rest']}{parts['zone']}").astimezone(UTC)
    except ValueError:
        return text
    year += moment.year - supported
    if MINYEAR <= year <= MAXYEAR:
        return moment.replace(year=year)
    shown = f"{1 - year if year < 1 else year:04d}{moment.replace(tzinfo=None).isoformat(' ')[4:]}+00"
    return f"{shown} BC" if year < 1 else shown
