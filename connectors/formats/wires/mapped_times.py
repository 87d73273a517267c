"""Times as others write them: other units than seconds, texts without an offset from UTC."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta, timezone, tzinfo
from typing import Any
from zoneinfo import ZoneInfo

from monitor.config.mapping import UNITS, FieldMapping


def time_reader(mapping: FieldMapping) -> Callable[[Any], Any] | None:
    """What turns a mapped time into one of ours; None where there is nothing to turn.

    What it cannot read it leaves as it is: the decoder says what is wrong with it. A text with an offset
    keeps its own. Of the hour that a zone has twice in autumn the first is taken.

    Examples
    --------
    >>> read = time_reader(FieldMapping(time="t", time_unit="milliseconds", time_zone="+01:00"))
    >>> read(1500), read("1970-01-01T01:00:02.250"), read("1970-01-01T00:00:00Z"), read("noon")
    (1.5, 2.25, '1970-01-01T00:00:00Z', 'noon')
    """
    per_second, zone = UNITS[mapping.time_unit], _zone(mapping.time_zone)
    if per_second == 1.0 and zone is None:
        return None

    def read(value: Any) -> Any:
        if isinstance(value, str):
            return value if zone is None else _seconds(value, zone)
        return value / per_second if isinstance(value, int | float) and not isinstance(value, bool) else value

    return read


def _zone(name: str | None) -> tzinfo | None:
    if name is None:
        return None
    if name[0] in "+-":
        ahead = timedelta(hours=int(name[1:3]), minutes=int(name[4:]))
        return timezone(-ahead if name[0] == "-" else ahead)
    return ZoneInfo(name)


def _seconds(text: str, zone: tzinfo) -> str | float:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return text
    return found.replace(tzinfo=zone).timestamp() if found.tzinfo is None else text
