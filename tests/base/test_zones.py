"""Time zones by name, and the messages for names that are none."""

from __future__ import annotations

import sys
import zoneinfo
from collections.abc import Iterator

import pytest

from monitor.base.errors import ConfigError
from monitor.base.zones import time_zone


@pytest.fixture
def no_database(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let zoneinfo look for its database in no folder and in no package, as on a machine that has none."""
    for module in [each for each in sys.modules if each.startswith("tzdata.")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "tzdata", None)
    before = zoneinfo.TZPATH
    zoneinfo.reset_tzpath(to=())
    zoneinfo.ZoneInfo.clear_cache()
    time_zone.cache_clear()
    yield
    zoneinfo.reset_tzpath(to=before)
    zoneinfo.ZoneInfo.clear_cache()


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("Berlin", "did you mean Europe/Berlin?"),
        ("Europe/Berlni", "did you mean Europe/Berlin?"),
        ("+01:00", "write a name such as Europe/Berlin, or UTC"),
        ("", "write a name such as Europe/Berlin, or UTC"),
        ("../etc", "write a name such as Europe/Berlin, or UTC"),
    ],
)
def test_a_wrong_name_is_refused_with_a_remedy(name: str, remedy: str) -> None:
    with pytest.raises(ConfigError) as caught:
        time_zone(name)
    assert str(caught.value) == f"expected the IANA name of a time zone, got {name!r}: {remedy}"


@pytest.mark.usefixtures("no_database")
def test_without_a_database_there_is_utc_alone() -> None:
    with pytest.raises(ConfigError) as caught:
        time_zone("Europe/Berlin")
    assert str(caught.value) == (
        "expected UTC, because this machine has no database of time zones, got 'Europe/Berlin': install the "
        "system's package tzdata or Python's package tzdata, or write UTC"
    )
    assert str(time_zone("UTC")) == "UTC"
