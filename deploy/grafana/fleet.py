"""The dashboard `fleet`: every task and model at a glance, the worst first; feeds, agents, arenas below."""

from __future__ import annotations

from typing import Any

from grafana_foundation_sdk.builders import dashboard
from grafana_foundation_sdk.builders.common import TableSortByFieldState
from grafana_foundation_sdk.models import dashboard as models

from deploy.grafana.panels import (
    Query,
    assembled,
    chart,
    mapped_states,
    number,
    page_of,
    sheet,
    states,
    variable,
    variables,
)
from deploy.grafana.promql import AGENT, TASKS, hull, rate, series, severity

UID = "blindsight-fleet"
TITLE = "Blindsight / fleet"
_MODEL = (
    "/d/blindsight-model?var-datasource=${datasource}&${job:queryparam}"
    "&var-task=${__data.fields.task}&var-model=${__data.fields.model}&${__url_time_range}"
)
_ALARM = ((None, "green"), (1, "red"))
_WARNING = ((None, "green"), (1, "orange"))


def _count(states: str) -> str:
    """How many models have a severity; 0 where there are models and none has."""
    return f"count(({severity()}) {states}) or (0 * count({severity()}))"


def _figures() -> list[Any]:
    return [
        number(
            "Models", "Models that are watched, each of a task.", f"count({severity()})", [(None, "blue")]
        ),
        number(
            "Objectives breached",
            "Models with a metric whose pooled interval lies wholly on the wrong side of its objective.",
            _count("== 6"),
            _ALARM,
        ),
        number(
            "Not to be trusted",
            "Models whose labels contradict their estimates: go by the realised values.",
            f"count(max by (task, model) ({series('state', state='untrusted')}) == 1)"
            f" or (0 * count({severity()}))",
            _WARNING,
        ),
        number(
            "Out of control",
            "Models with a control chart whose alarm is active.",
            f"count(max by (task, model) ({series('out_of_control')}) == 1) or (0 * count({severity()}))",
            _WARNING,
        ),
        number(
            "Silent",
            "Models that no answer has come from for three times their windows' greatest age.",
            f"count(max by (task, model) ({series('state', state='silent')}) == 1)"
            f" or (0 * count({severity()}))",
            _WARNING,
        ),
        number(
            "Agents up",
            "Agents that Prometheus reaches, of those that it knows.",
            f"sum(up{{{AGENT}}})",
            [(None, "red"), (1, "green")],
        ),
    ]


def _table() -> Any:
    state = models.DynamicConfigValue("mappings", mapped_states())
    coloured = models.DynamicConfigValue("custom.cellOptions", {"type": "color-background"})
    link = models.DynamicConfigValue("links", [{"title": "Show this model", "url": _MODEL}])
    percent = [models.DynamicConfigValue("unit", "percentunit"), models.DynamicConfigValue("decimals", 1)]
    queries = [
        Query(severity()),
        Query(hull("", "task, model", metric="$metric", estimator="$estimator")),
        Query(hull("lower_", "task, model", metric="$metric", estimator="$estimator")),
        Query(hull("upper_", "task, model", metric="$metric", estimator="$estimator")),
        Query(f"max by (task, model) ({series('objective_ratio', metric='$metric')})"),
        Query(f"sum by (task, model) ({series('windows_closed_total')})"),
        Query(f"time() - max by (task, model) ({series('window_end_timestamp_seconds')})"),
    ]
    names = ["state", "estimate", "lower", "upper", "objective", "windows", "newest window"]
    columns = {"task": "task", "model": "model"} | {
        f"Value #{letter}": name for letter, name in zip("ABCDEFG", names, strict=True)
    }
    panel = sheet(
        "Models, the worst first",
        "The worst state of each model, its estimate in the last closed window with its interval, and the "
        "bound it is held to. Choose metric and estimator above; click a model for its dashboard.",
        "none",
        queries,
        columns,
        (24, 10),
    ).sort_by([TableSortByFieldState().display_name("state").desc(True)])
    panel = panel.override_by_name("state", [state, coloured]).override_by_name("model", [link])
    for name in ("estimate", "lower", "upper", "objective"):
        panel = panel.override_by_name(name, percent)
    return panel.override_by_name("newest window", [models.DynamicConfigValue("unit", "s")])


def _over_time() -> list[Any]:
    return [
        states(
            "States",
            "The worst state of each model over time.",
            Query(severity(), "{{task}} / {{model}}"),
            (12, 9),
        ),
        chart(
            "Estimates",
            "The chosen metric of each model, by the chosen estimator, in the last closed window.",
            "percentunit",
            [
                Query(
                    hull("", "task, model", metric="$metric", estimator="$estimator"), "{{task}} / {{model}}"
                )
            ],
            (12, 9),
        ),
        sheet(
            "Alerts that fire",
            "Alerts of the rules in deploy/prometheus that fire now; each has a page in deploy/runbooks that "
            "says how to check and what to do.",
            "none",
            [
                Query(
                    "max by (alertname, severity, task, model, metric)"
                    ' (ALERTS{alertname=~"Blindsight.+",alertstate="firing",job=~"$job"})'
                )
            ],
            {name: name for name in ("alertname", "severity", "task", "model", "metric")},
            (24, 6),
        ),
    ]


def _feed() -> list[Any]:
    return [
        chart(
            "Answers used",
            "Answers in closed windows, a second, by model: it rises by a window at a time.",
            "cps",
            [Query(rate("predictions_total", "task, model"), "{{task}} / {{model}}")],
        ),
        chart(
            "Answers and labels received",
            "What came from each source, a second, used or not.",
            "cps",
            [
                Query(rate("answers_received_total", "source", AGENT), "{{source}}: answers"),
                Query(rate("labels_received_total", "source", AGENT), "{{source}}: labels"),
            ],
        ),
        chart(
            "Not used, and why",
            "Answers a second that were rejected (by reason), shed for want of room, or had come before.",
            "cps",
            [
                Query(rate("rejected_total", "source, reason", AGENT) + " > 0", "{{source}}: {{reason}}"),
                Query(rate("shed_total", "source", AGENT), "{{source}}: shed"),
                Query(rate("duplicates_total", "task, model"), "{{task}} / {{model}}: duplicate"),
            ],
        ),
        chart(
            "Labels by outcome",
            "What became of labels, a second, by task.",
            "cps",
            [Query(rate("labels_total", "task, outcome", TASKS), "{{task}}: {{outcome}}")],
        ),
        *_connections(),
    ]


def _connections() -> list[Any]:
    """What waits, and what is connected."""
    return [
        chart(
            "Records that wait in sources",
            "How far the agent is behind, as far as the source can tell.",
            "short",
            [Query(f"sum by (instance, source) ({series('source_lag_records', AGENT)})", "{{source}}")],
        ),
        chart(
            "Sources and sinks that are up",
            "1 while a source is connected, or a sink takes what it is given.",
            "bool_on_off",
            [
                Query(f"min by (source) ({series('source_up', AGENT)})", "source {{source}}"),
                Query(f"min by (sink) ({series('sink_up', AGENT)})", "sink {{sink}}"),
            ],
        ),
    ]


def _agents() -> list[Any]:
    return [
        chart(
            "What waits in sinks, and what they lost",
            "Windows or records that a file, a topic or Alertmanager has not taken yet; and those that were "
            "dropped, a second.",
            "short",
            [
                Query(f"sum by (instance, sink) ({series('sink_waiting', AGENT)})", "{{sink}} waiting"),
                Query(rate("sink_lost_total", "instance, sink", AGENT), "{{sink}} lost a second"),
            ],
        ),
        chart(
            "Age of the last checkpoint",
            "Time since the state was last saved. It grows while saving fails.",
            "s",
            [
                Query(
                    f"time() - max by (instance) ({series('checkpoint_timestamp_seconds', AGENT)})",
                    "{{instance}}",
                )
            ],
        ),
        chart(
            "Time of a scrape",
            "What Prometheus waits for an agent's metrics.",
            "s",
            [Query(f"max by (instance) (scrape_duration_seconds{{{AGENT}}})", "{{instance}}")],
        ),
        *_versions(),
    ]


def _versions() -> list[Any]:
    return [
        sheet(
            "Agents",
            "Version, whether the configuration could be read the last time (1), and models and groups "
            "beyond a cap on series.",
            "none",
            [
                Query(f"max by (instance, version) ({series('build_info', AGENT)})"),
                Query(f"min by (instance) ({series('config_last_reload_successful', AGENT)})"),
                Query(f"sum by (instance) ({series('series_dropped_total', AGENT)})"),
            ],
            {
                "instance": "instance",
                "version": "version",
                "Value #B": "configuration read",
                "Value #C": "series left out",
            },
            (12, 8),
        ),
    ]


def _arenas() -> list[Any]:
    """Of all arenas: the variables `task` and `model` hold what has windows of answers."""
    ranked = {"metric": "coefficient"}
    parts = {
        "coefficient": f"avg by (task, model) ({series('arena_coefficient', AGENT)})",
        "lower": f"min by (task, model) ({series('arena_coefficient_lower', AGENT)})",
        "upper": f"max by (task, model) ({series('arena_coefficient_upper', AGENT)})",
        "best rank": f"min by (task, model) ({series('rank_best', AGENT, **ranked)})",
        "worst rank": f"max by (task, model) ({series('rank_worst', AGENT, **ranked)})",
    }
    values = {f"Value #{letter}": name for letter, name in zip("ABCDE", parts, strict=True)}
    standing = sheet(
        "Models compared in pairs",
        "Bradley-Terry coefficient of each model of an arena, the log of its odds against the reference "
        "model, with its interval, and the ranks that it may have, 1 the best, all at once with 90 %.",
        "none",
        [Query(expression) for expression in parts.values()],
        {"task": "arena", "model": "model"} | values,
        (12, 8),
    ).sort_by([TableSortByFieldState().display_name("best rank")])
    for name in ("coefficient", "lower", "upper"):
        standing = standing.override_by_name(name, [models.DynamicConfigValue("decimals", 2)])
    return [standing, _unranked()]


def _unranked() -> Any:
    return sheet(
        "Models without a rank, and why",
        "Models of arenas without a coefficient: most often, humans decided too few comparisons of them.",
        "none",
        [Query(f"max by (task, model, reason) ({series('arena_unknown', AGENT)}) == 1")],
        {"task": "arena", "model": "model", "reason": "reason"},
        (12, 8),
    )


def fleet() -> tuple[dashboard.Dashboard, dict[str, str]]:
    """The dashboard, and no annotation."""
    metrics = "label_values(blindsight_estimate_ratio{%s}, %s)"
    estimators = metrics % (TASKS + ',metric="$metric"', "estimator")
    chosen = [
        *variables(one_model=False),
        variable("metric", "Metric", metrics % (TASKS, "metric"), several=False, first="accuracy"),
        variable("estimator", "Estimator", estimators, several=False, first="average_confidence"),
        page_of(""),
    ]
    rows = {
        "Now": [*_figures(), _table()],
        "Over time": _over_time(),
        "Feed": _feed(),
        "Agents": _agents(),
        "Arenas": _arenas(),
    }
    description = "All tasks and models that Blindsight watches, the worst first."
    return assembled(TITLE, UID, description, chosen, rows), {}
