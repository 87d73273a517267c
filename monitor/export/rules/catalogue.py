"""Every alert that there is, in its group."""

from __future__ import annotations

from monitor.export.rules.alerts import Group
from monitor.export.rules.quality import quality_alerts
from monitor.export.rules.settings import RuleSettings
from monitor.export.rules.watcher import agent_alerts, paced_alerts


def rule_groups(settings: RuleSettings) -> tuple[Group, ...]:
    """The alerts on models and on the agent; those that wait for windows once for each pace of the tasks.

    Examples
    --------
    >>> for group in rule_groups(RuleSettings()):
    ...     print(group.name, len({alert.name for alert in group.alerts}))
    blindsight-models 5
    blindsight-agent 8
    """
    models = [alert for pace in settings.paces for alert in quality_alerts(settings.scope(pace), pace)]
    paced = [alert for pace in settings.paces for alert in paced_alerts(settings.scope(pace), pace)]
    agent = agent_alerts(settings.scope())
    return (
        Group("blindsight-models", tuple(models)),
        Group("blindsight-agent", tuple(sorted([*agent, *paced], key=lambda alert: alert.name))),
    )
