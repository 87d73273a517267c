"""The alert rules that the chart fills in for the tasks of its values, as `blindsight rules` does for a file.

A chart cannot run `blindsight rules`. It carries each rule with a name in angle brackets in place of what
depends on the configuration; `templates/_rules.tpl` computes and inserts the values.
"""

from __future__ import annotations

import json
from typing import Any

import yaml

from monitor.config.root import Config
from monitor.export.rules import RUNBOOK_QUERY, Format, Pace, RuleSettings, duration, rendered, rule_groups

# Durations that no rule has by itself, so that each can be recognised in the text of a rule.
_PACE = Pace("<task>", window_seconds=617_283.445, slowest_seconds=1_172_839.456, refit_seconds=3_456_789.123)
_SETTINGS = RuleSettings('job="<selector>"', (_PACE,), "<runbooks>", "<dashboard>", 1.0, "<external_url>")
_TEXTS = {
    ',task="<task>"': "<task>",
    'job="<selector>"': "<selector>",
    duration(_PACE.window_seconds): "<one_window>",
    duration(2 * _PACE.window_seconds): "<two_windows>",
    duration(2 * _PACE.slowest_seconds): "<two_periods>",
    duration(_PACE.refit_seconds): "<refits>",
    f"{_PACE.refit_seconds:g}": "<refit_seconds>",
}


def alerts() -> dict[str, Any]:
    """Return the content of the chart's file: the groups of rules, and what it fills in."""
    [task] = Config(tasks={"t": {}}).scored_tasks.values()
    groups = [
        {"name": group.name, "rules": [_rule(alert.name, alert.task, rule) for alert, rule in rules]}
        for group, rules in _rules()
    ]
    return {
        "defaults": {
            "size": task.window.size,
            "min_size": task.window.min_size,
            "max_age_seconds": task.window.max_age_seconds,
            "every_windows": task.ssme.every_windows,
        },
        "runbook_query": RUNBOOK_QUERY,
        "groups": groups,
    }


def _rules() -> Any:
    groups = rule_groups(_SETTINGS)
    spec = yaml.safe_load(rendered(groups, _SETTINGS, Format.PROMETHEUS))
    for group, written in zip(groups, spec["groups"], strict=True):
        yield group, zip(group.alerts, written["rules"], strict=True)


def _rule(name: str, task: str, rule: dict[str, Any]) -> dict[str, Any]:
    rule["labels"].pop("task", None)
    text = json.dumps(rule, ensure_ascii=False)
    for written, placeholder in _TEXTS.items():
        text = text.replace(json.dumps(written)[1:-1], placeholder)
    return {"each_pace": bool(task), "rule": json.loads(text)}
