"""Parses the times of a column of records: RFC 3339 with an offset, or seconds since the epoch.

Texts of the same length form a matrix of characters that is parsed by column, in tens of nanoseconds a
record; `datetime.fromisoformat` takes five times as long.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import compress

import numpy as np
from numpy.typing import NDArray

from connectors.formats.decode.structs import Faults
from connectors.formats.messages.wording import kind, shown, values_are_shown
from monitor.base.records import FIRST_MILLISECOND, LAST_MILLISECOND, Floats, Ints, RejectReason

_ZERO = 48
_LETTER_Z, _LETTER_T, _DOT, _COLON, _PLUS, _MINUS = (ord(c) for c in "ZT.:+-")
_LOWER = 0x20  # the bit that is set in lower-case letters
_WHOLE_SECONDS = 19  # characters of YYYY-MM-DDTHH:MM:SS
_MAX_FRACTION = 9  # digits of a fraction that count: a float cannot hold more
_LONGEST = 64
_SHORTEST = 20
_LENGTHS = frozenset(range(_SHORTEST, _LONGEST + 1))

_MOST_AHEAD = 86_400.0  # seconds; senders may write local time as UTC
_NOT_SECONDS = 1e11  # as seconds the year 5138, as milliseconds March 1973
_UNITS = ((1e14, "milliseconds", 1e3), (1e17, "microseconds", 1e6), (1e20, "nanoseconds", 1e9))

_SERIALS = (40_179.0, 54_789.0)  # the years 2010 to 2049 in Excel's days since 30 December 1899
_OFFSET = re.compile(r"(.*[0-9]) ?(?:UTC|GMT|Z|([+-][0-9]{2})(?::?([0-9]{2}))?)", re.ASCII)

_TEXT_HINT = "RFC 3339 with an offset, such as 2026-11-20T10:00:00.120Z, or seconds since the epoch"


def parse_times(values: Sequence[str | float | None], faults: Faults, now: float | None = None) -> Floats:
    """Return the times in seconds since the epoch, (n,); NaN for an absent or faulty time.

    An offset may also have the form ``+00``, ``+0000`` or `` UTC``, which databases write. A leap second
    (``:60``) counts as the second after it. Only the first nine digits of a fraction count.

    These times are rejected: the serial date of a spreadsheet, which counts days; a time that rounds to a
    millisecond outside the years 1 to 9999, which RFC 3339 cannot represent; a time before 1970; and a time
    more than a day after `now`.

    Parameters
    ----------
    values : sequence of str, float or None
    faults : Faults
        Receives the faults `TIME_FORMAT`, `TIME_UNIT`, `NOT_A_NUMBER` and `BAD_TIME`.
    now : float, optional
        The present in seconds since the epoch. If None, times in the future are accepted.

    Examples
    --------
    >>> faults = Faults(4)
    >>> parse_times(["1970-01-01T01:00:00.25+01:00", 3.5, None, "noon"], faults).tolist(), list(faults.by_row)
    ([0.25, 3.5, nan, nan], [3])
    """
    times = _parsed(values, faults)
    latest = np.inf if now is None else now + _MOST_AHEAD
    with np.errstate(invalid="ignore"):
        wrong = np.flatnonzero((times < 0.0) | (times > latest))
    for i in wrong.tolist():
        faults.add(i, RejectReason.BAD_TIME, _bad_time(values[i], times[i], now))
    times[wrong] = np.nan
    return times


def _bad_time(value: str | float | None, time: float, now: float | None) -> str:
    if time < 0.0 or now is None:
        return f"$.time: expected a time from 1970 on, got {shown(value)}; correct the sender's clock"
    clock = np.datetime64(int(now), "s")
    return (
        f"$.time: expected at most a day ahead of this machine's clock, {clock}Z, got {shown(value)}; "
        "correct the sender's clock, or this one"
    )


def _parsed(values: Sequence[str | float | None], faults: Faults) -> Floats:
    kinds = set(map(type, values))
    if kinds == {str}:
        return _texts(values, np.arange(len(values)), faults)  # type: ignore[arg-type]
    if kinds <= {float, type(None)}:
        return _numbers(values, np.arange(len(values)), faults)  # type: ignore[arg-type]
    times = np.full(len(values), np.nan)
    for types, parse in ((str, _texts), ((int, float), _numbers)):
        if any(issubclass(each, types) for each in kinds):
            own = [isinstance(value, types) for value in values]
            rows = np.flatnonzero(np.fromiter(own, dtype=np.bool_, count=len(own)))
            times[rows] = parse(list(compress(values, own)), rows, faults)  # type: ignore[arg-type]
    return times


def _in_calendar(times: Floats) -> NDArray[np.bool_]:
    """Return a mask of the times that, rounded to a millisecond, lie in the years 1 to 9999."""
    with np.errstate(invalid="ignore", over="ignore"):
        milliseconds = np.rint(times * 1000.0)
        inside: NDArray[np.bool_] = (milliseconds >= FIRST_MILLISECOND) & (milliseconds <= LAST_MILLISECOND)
    return inside


def _numbers(values: Sequence[float | None], rows: Ints, faults: Faults) -> Floats:
    times = np.array(values, dtype=np.float64)  # None becomes NaN
    with np.errstate(invalid="ignore"):
        good = _in_calendar(times) & (times < _NOT_SECONDS)
        good &= (times < _SERIALS[0]) | (times >= _SERIALS[1])
    for i in np.flatnonzero(~good).tolist():
        value = values[i]
        if value is not None:
            faults.add(rows[i], *_number_fault(value))
    return np.where(good, times, np.nan)


def _number_fault(value: float) -> tuple[RejectReason, str]:
    for below, unit, per_second in _UNITS:
        if _NOT_SECONDS <= value < below:
            got, better = (
                (f"{value:.0f}", f": {value / per_second:.3f}") if values_are_shown() else (kind(0), "")
            )
            return RejectReason.TIME_UNIT, (
                f"$.time: {got} can only be {unit} since the epoch; send seconds{better}"
            )
    if _SERIALS[0] <= value < _SERIALS[1]:
        day = np.datetime64("1899-12-30") + np.timedelta64(int(value), "D")
        got, better = (shown(value), f", {day}") if values_are_shown() else (kind(0), "")
        return RejectReason.TIME_UNIT, (
            f"$.time: {got} is a date of a spreadsheet, in days{better}; format the cells as text like "
            "2026-11-20T10:00:00Z"
        )
    reason = RejectReason.TIME_FORMAT if np.isfinite(value) else RejectReason.NOT_A_NUMBER
    return reason, f"$.time: expected {_TEXT_HINT}, got {shown(value)}"


def _texts(values: Sequence[str], rows: Ints, faults: Faults) -> Floats:
    distinct = set(map(len, values))
    if len(distinct) == 1 and distinct <= _LENGTHS:
        times = _parse_equal_lengths(values, distinct.pop())
    else:
        times = np.full(len(values), np.nan)
        lengths = np.fromiter(map(len, values), dtype=np.int64, count=len(values))
        for length in distinct & _LENGTHS:
            some = np.flatnonzero(lengths == length)
            times[some] = _parse_equal_lengths([values[i] for i in some.tolist()], length)
    unread = np.flatnonzero(np.isnan(times)).tolist()
    if unread:
        _read_offsets(values, unread, times)
    for i in unread:
        if np.isnan(times[i]):
            faults.add(rows[i], RejectReason.TIME_FORMAT, _text_fault(values[i]))
    return times


def _read_offsets(values: Sequence[str], unread: Sequence[int], times: Floats) -> None:
    """Parse texts whose offset differs from RFC 3339, and write their times into `times`."""
    by_length: dict[int, list[tuple[int, str]]] = {}
    for i in unread:
        parts = _OFFSET.fullmatch(values[i][:_LONGEST])
        if parts is not None:
            text = parts[1] + (f"{parts[2]}:{parts[3] or '00'}" if parts[2] else "Z")
            by_length.setdefault(len(text), []).append((i, text))
    for length in by_length.keys() & _LENGTHS:
        places, texts = zip(*by_length[length], strict=True)
        times[list(places)] = _parse_equal_lengths(texts, length)


def _text_fault(value: str) -> str:
    with_offset = value[:_LONGEST] + "Z"
    if len(with_offset) >= _SHORTEST and not np.isnan(
        _parse_equal_lengths([with_offset], len(with_offset))[0]
    ):
        return f"$.time: {shown(value)} has no offset from UTC; end it in Z or in +01:00"
    return f"$.time: expected {_TEXT_HINT}, got {shown(value)}"


def _parse_equal_lengths(values: Sequence[str], length: int) -> Floats:
    """Return seconds since the epoch of texts of `length` characters, NaN for unreadable ones."""
    try:
        joined = "".join(values).encode("ascii")
    except UnicodeEncodeError:
        # One byte a character: others than ASCII become question marks, which no format allows.
        joined = "".join(values).encode("ascii", "replace")
    matrix = np.frombuffer(joined, dtype=np.uint8).reshape(len(values), length)
    in_utc = (matrix[:, -1] & ~np.uint8(_LOWER)) == _LETTER_Z
    if in_utc.all():
        return _read(matrix[:, :-1], _no_offset)
    times = np.full(len(values), np.nan)
    times[in_utc] = _read(matrix[in_utc, :-1], _no_offset)
    if length >= _WHOLE_SECONDS + 6:
        rest = matrix[~in_utc]
        times[~in_utc] = _read(rest[:, :-6], lambda good: _offset(rest[:, -6:], good))
    return times


_Good = NDArray[np.bool_]


def _no_offset(good: _Good) -> int:
    return 0


def _offset(matrix: NDArray[np.uint8], good: _Good) -> Ints:
    """Return the seconds ahead of UTC of ``+HH:MM``."""
    columns = matrix.T
    hours, minutes = _number(columns, (1, 2), good), _number(columns, (4, 5), good)
    good &= (columns[3] == _COLON) & (hours <= 23) & (minutes <= 59)
    good &= (columns[0] == _PLUS) | (columns[0] == _MINUS)
    ahead: Ints = np.where(columns[0] == _MINUS, -1, 1) * (hours * 3600 + minutes * 60)
    return ahead


def _read(matrix: NDArray[np.uint8], offset: Callable[[_Good], Ints | int]) -> Floats:
    """Return the seconds of ``YYYY-MM-DDTHH:MM:SS[.f…]``, minus the offset."""
    columns = np.ascontiguousarray(matrix.T)
    good = np.ones(columns.shape[1], dtype=bool)
    good &= (columns[4] == _MINUS) & (columns[7] == _MINUS)
    good &= (columns[13] == _COLON) & (columns[16] == _COLON)
    # RFC 3339, section 5.6, allows a lower-case T, and a blank in its place.
    good &= ((columns[10] & ~np.uint8(_LOWER)) == _LETTER_T) | (columns[10] == _LOWER)
    days = _days(columns, good)
    hours, minutes = _number(columns, (11, 12), good), _number(columns, (14, 15), good)
    seconds = _number(columns, (17, 18), good)
    good &= (hours <= 23) & (minutes <= 59) & (seconds <= 60)
    whole = days * 86400 + hours * 3600 + minutes * 60 + seconds - offset(good)
    times = whole.astype(np.float64)
    if len(columns) > _WHOLE_SECONDS:
        times += _fraction(columns[_WHOLE_SECONDS:], good)
    good &= _in_calendar(times)
    return np.where(good, times, np.nan)


def _fraction(columns: NDArray[np.uint8], good: _Good) -> Floats:
    good &= columns[0] == _DOT
    digits = columns[1:]
    if not len(digits):
        good[:] = False
        return np.zeros(len(good))
    good &= ((digits - np.uint8(_ZERO)) <= 9).all(axis=0)
    kept = min(len(digits), _MAX_FRACTION)
    return _number(digits, tuple(range(kept)), good) / float(10**kept)


def _number(columns: NDArray[np.uint8], places: tuple[int, ...], good: _Good) -> Ints:
    """Return the integer in these columns of digits; clear `good` for rows with another character."""
    total = np.zeros(columns.shape[1], dtype=np.int64)
    for place in places:
        digit = columns[place] - np.uint8(_ZERO)  # wraps: every other character becomes 10 or more
        good &= digit <= 9
        total = total * 10 + digit
    return total


def _days(columns: NDArray[np.uint8], good: _Good) -> Ints:
    """Return the days since the epoch of each date."""
    year, month = _number(columns, (0, 1, 2, 3), good), _number(columns, (5, 6), good)
    day = _number(columns, (8, 9), good)
    good &= (year >= 1) & (month >= 1) & (month <= 12) & (day >= 1)
    date = (year * 100 + month) * 100 + day
    if len(date) and (date[0] == date).all():
        # The records of one read nearly always have the same day, which is looked up once.
        first, days = slice(0, 1), np.zeros(len(date), dtype=np.int64)
    else:
        first, days = slice(None), np.zeros(len(date), dtype=np.int64)
    months = np.where(good[first], (year[first] - 1970) * 12 + month[first] - 1, 0)
    start = _first_days(months)
    length = _first_days(months + 1) - start
    good &= day <= length
    days[:] = start + day[first] - 1
    return days


def _first_days(months: Ints) -> Ints:
    """Return the first day of each month; both count from January 1970."""
    days: Ints = months.astype("M8[M]").astype("M8[D]").astype(np.int64)
    return days
