"""Alert rules for Prometheus, from one source: `blindsight rules` prints what `deploy/prometheus` holds."""

from monitor.export.rules.alerts import Alert, Group, rule_groups
from monitor.export.rules.pace import Pace, paces
from monitor.export.rules.promql import checked_selector
from monitor.export.rules.render import Format, rendered
from monitor.export.rules.settings import RuleSettings

__all__ = [
    "Alert",
    "Format",
    "Group",
    "Pace",
    "RuleSettings",
    "checked_selector",
    "paces",
    "rendered",
    "rule_groups",
]
