"""Estimators of model quality that use labels. Each is a module, listed in `monitor.base.registry`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from monitor.base import registry

if TYPE_CHECKING:
    from monitor.stats.labelled.base import LabelEstimator

ESTIMATORS: Mapping[str, type[LabelEstimator]] = registry.Classes(registry.REFITTED)
"""Every estimator that uses labels, by its name in the configuration and in Prometheus."""
