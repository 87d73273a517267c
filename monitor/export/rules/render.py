"""Rules as files: Prometheus' own, and the PrometheusRule resource of its operator."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Any

from monitor.export.rules.alerts import Alert, Group
from monitor.export.rules.promql import duration
from monitor.export.rules.settings import RuleSettings

_HEADER = "# Printed by `blindsight rules`: change its options, not this file.\n"


class Format(StrEnum):
    """For whom the rules are."""

    PROMETHEUS = "prometheus"
    OPERATOR = "operator"

    @property
    def file(self) -> str:
        """The name of the file."""
        kind = "rules" if self is Format.PROMETHEUS else "prometheusrule"
        return f"blindsight.{kind}.yaml"


def rendered(groups: Iterable[Group], settings: RuleSettings, form: Format) -> str:
    """The text of a rule file.

    Examples
    --------
    >>> from monitor.export.rules import rule_groups
    >>> settings = RuleSettings()
    >>> print(rendered(rule_groups(settings), settings, Format.OPERATOR)[:126])
    # Printed by `blindsight rules`: change its options, not this file.
    apiVersion: monitoring.coreos.com/v1
    kind: PrometheusRule
    """
    spec = {"groups": [_group(group, settings) for group in groups]}
    if form is Format.PROMETHEUS:
        return _HEADER + _yaml(spec)
    labels = {"app.kubernetes.io/name": "blindsight"}
    resource = {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {"name": "blindsight", "labels": labels},
        "spec": spec,
    }
    return _HEADER + _yaml(resource)


def _group(group: Group, settings: RuleSettings) -> dict[str, Any]:
    return {"name": group.name, "rules": [_rule(alert, settings) for alert in group.alerts]}


def _rule(alert: Alert, settings: RuleSettings) -> dict[str, Any]:
    scope = settings.scope()
    annotations = {
        "summary": alert.summary,
        "description": alert.description,
        "runbook_url": f"{settings.runbooks.rstrip('/')}/{alert.name}.md",
    }
    if settings.dashboard:
        annotations["dashboard_url"] = _dashboard(settings.dashboard)
    return {
        "alert": alert.name,
        "expr": alert.expr + "\n" if "\n" in alert.expr else alert.expr,
        "for": duration(scope.seconds(alert.for_seconds)),
        "keep_firing_for": duration(scope.seconds(alert.keep_seconds)),
        "labels": {"severity": alert.severity} | ({"task": alert.task} if alert.task else {}),
        "annotations": annotations,
    }


def _dashboard(address: str) -> str:
    """With the model in its address where the alert has one."""
    joint = "&" if "?" in address else "?"
    chosen = "var-task={{ $labels.task | urlquery }}&var-model={{ $labels.model | urlquery }}"
    return f"{address}{{{{ if $labels.model }}}}{joint}{chosen}{{{{ end }}}}"


def _yaml(value: dict[str, Any]) -> str:
    # Not at the top: who only reads the rules needs no YAML.
    import yaml

    class Dumper(yaml.SafeDumper):
        def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
            super().increase_indent(flow, False)

    def text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
        style = "|" if "\n" in value else None
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)

    Dumper.add_representer(str, text)
    return yaml.dump(value, Dumper=Dumper, sort_keys=False, allow_unicode=True, width=10_000)
