"""Time zones by their IANA names."""

from __future__ import annotations

import difflib
from datetime import UTC, tzinfo
from functools import lru_cache
from zoneinfo import ZoneInfo, available_timezones

from monitor.base.errors import ConfigError


@lru_cache(maxsize=100)
def time_zone(name: str) -> tzinfo:
    """Return the time zone with this IANA name, such as ``Europe/Berlin``. ``UTC`` needs no database.

    Raises
    ------
    ConfigError
        There is no such zone, or the machine has no database of time zones.

    Examples
    --------
    >>> time_zone("Berlin")
    Traceback (most recent call last):
    ...
    monitor.base.errors.ConfigError: expected the IANA name of a time zone, got 'Berlin': did you mean ...
    """
    if name == "UTC":
        return UTC
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):  # ZoneInfoNotFoundError is a KeyError; a folder is an OSError
        pass
    names = available_timezones()
    if not names:
        raise ConfigError(
            f"expected UTC, because this machine has no database of time zones, got {name!r}: install the "
            "system's package tzdata or Python's package tzdata, or write UTC"
        )
    near = [each for each in sorted(names) if each.lower().rpartition("/")[2] == name.lower()]
    near = near or difflib.get_close_matches(name, sorted(names), n=1)
    hint = f"did you mean {near[0]}?" if near else "write a name such as Europe/Berlin, or UTC"
    raise ConfigError(f"expected the IANA name of a time zone, got {name!r}: {hint}")
