"""Estimators of model quality that use labels, and are fitted by refits.

`ESTIMATORS` has the class of each by its name in the configuration. Some of the classes are in
`monitor.stats.rivals`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from monitor.base import registry

if TYPE_CHECKING:
    from monitor.stats.labelled.base import LabelEstimator

ESTIMATORS: Mapping[str, type[LabelEstimator]] = registry.Classes(registry.REFITTED)
"""The class of each estimator that uses labels, by its name in the configuration and in Prometheus."""
