"""Control charts of a metric's estimates; each kind in `monitor.base.registry` has a module here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from monitor.base import registry

if TYPE_CHECKING:
    from monitor.stats.charts.settings import Chart

CHARTS: Mapping[str, type[Chart]] = registry.Classes(registry.CHARTS)
"""The chart class of each `kind`; the tests in `tests/stats/charts` check one contract for all of them."""
