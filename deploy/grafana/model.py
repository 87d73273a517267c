"""The dashboard `model`: one model's control charts, labels, calibration, refits, groups and feed."""

from __future__ import annotations

from typing import Any

from grafana_foundation_sdk.builders import dashboard
from grafana_foundation_sdk.models import dashboard as models

from deploy.grafana.model_rows import calibration, classes, errors, feed, groups, refits
from deploy.grafana.panels import (
    Query,
    annotation,
    assembled,
    banded,
    chart,
    mapped_states,
    number,
    page_of,
    sheet,
    states,
    variable,
    variables,
)
from deploy.grafana.promql import MODELS, TASKS, hull, over, series, severity, severity_of_metrics

UID = "blindsight-model"
TITLE = "Blindsight / model"
_BY_GROUP = "task, model, group"


def _estimates() -> Any:
    """A row a metric: what the model is worth now, what it is held to, and what labels say."""
    by = "task, model, metric"
    value, objective = hull("", estimator="~$estimator"), over("objective_ratio", by=by)
    queries = [
        Query(value),
        Query(hull("lower_", estimator="~$estimator")),
        Query(hull("upper_", estimator="~$estimator")),
        Query(objective),
        Query(f"100 * ({value} - {objective})"),
        Query(severity_of_metrics(by)),
        Query(hull("", estimator="realised")),
        Query(hull("lower_", estimator="realised")),
        Query(hull("upper_", estimator="realised")),
    ]
    names = ["estimate", "lower", "upper", "objective", "points above it", "state"]
    names += ["labels say", "labels, lower", "labels, upper"]
    letters = "ABCDEFGHI"
    panel = sheet(
        "Estimates now",
        "Each metric in the last closed window with its interval; the floor or ceiling that it is held to, "
        "and the distance from it; what labels say of the newest window that they reached. Choose the "
        "estimator above.",
        "none",
        queries,
        {"metric": "metric"}
        | {f"Value #{letter}": name for letter, name in zip(letters, names, strict=True)},
        (24, 6),
    )
    state = models.DynamicConfigValue("mappings", mapped_states())
    coloured = models.DynamicConfigValue("custom.cellOptions", {"type": "color-background"})
    percent = [models.DynamicConfigValue("unit", "percentunit"), models.DynamicConfigValue("decimals", 1)]
    panel = panel.override_by_name("state", [state, coloured])
    panel = panel.override_by_name("points above it", [models.DynamicConfigValue("decimals", 1)])
    for name in names:
        if name not in ("state", "points above it"):
            panel = panel.override_by_name(name, percent)
    return panel


def _now() -> list[Any]:
    return [
        _estimates(),
        states("State", "The worst state of the model over time.", Query(severity(), "state"), (12, 4)),
        number(
            "Newest window",
            "Time since the last record of the last closed window.",
            f"time() - {over('window_end_timestamp_seconds')}",
            [(None, "blue")],
            "s",
        ),
        number(
            "Windows",
            "Windows that were closed since the state began.",
            over("windows_closed_total", "sum"),
            [(None, "blue")],
            "short",
        ),
        number(
            "Estimates trusted",
            "Until labels contradict the estimate; nothing before the first label.",
            over("estimate_trusted", "min"),
            [(None, "red"), (1, "green")],
            "bool_yes_no",
        ),
        *_now_in_words(),
    ]


def _now_in_words() -> list[Any]:
    return [
        sheet(
            "What produces the figures",
            "Version of the model, calibration, and whether that is of another version: then estimates "
            "may be off.",
            "none",
            [
                Query(
                    "max by (version, window_size, calibration, calibration_foreign) "
                    f"({series('model_info')})"
                )
            ],
            {
                "version": "version",
                "window_size": "window",
                "calibration": "calibration",
                "calibration_foreign": "of another version",
            },
            (12, 4),
        ),
        sheet(
            "What is unknown, and why",
            "Estimates that the last closed window does not have, each with its reason.",
            "none",
            [Query(f"max by (metric, estimator, reason) ({series('unknown')}) == 1")],
            {name: name for name in ("metric", "estimator", "reason")},
            (12, 4),
        ),
    ]


def _control_chart() -> Any:
    """One chart, which Grafana repeats for each metric."""
    by = {"metric": "~$metric"}
    queries = [
        Query(hull("", estimator="~$estimator", **by), "estimate"),
        Query(hull("lower_", estimator="~$estimator", **by), "lower"),
        Query(hull("upper_", estimator="~$estimator", **by), "upper"),
        Query(over("control_center_ratio", "avg", "task, model, metric", **by), "centre"),
        Query(over("control_lower_ratio", "max", "task, model, metric", **by), "lower limit"),
        Query(over("control_upper_ratio", "min", "task, model, metric", **by), "upper limit"),
        Query(over("objective_ratio", "max", "task, model, metric", **by), "objective"),
        Query(hull("", estimator="corrected", **by), "corrected"),
        Query(hull("", estimator="realised", **by), "realised"),
    ]
    panel = chart(
        "Control chart: $metric",
        "The estimate of the last closed window with its interval (band), the centre and limits of its "
        "control chart, the objective, the estimate that labels correct (corrected), and what labels say of "
        "the newest window they reached (realised). "
        "Of replicas: the mean of the estimates and the outermost ends of the intervals.",
        "percentunit",
        queries,
        (24, 10),
    )
    return banded(panel).repeat("metric").repeat_direction("h").max_per_row(2)


def _alarms() -> list[Any]:
    return [
        chart(
            "Active alarms",
            "1 while an alarm is active, by labels where they decide on it, else by the control chart of the "
            "estimates: until eight windows in a row are in control.",
            "bool_on_off",
            [
                Query(over("out_of_control", by="task, model, metric"), "{{metric}}"),
                Query(over("group_out_of_control", by=f"{_BY_GROUP}, metric"), "{{group}}: {{metric}}"),
            ],
        ),
        chart(
            "Improvements",
            "1 while labels, or else the control chart of the estimates, show a change for the better: until "
            "eight windows in a row show none.",
            "bool_on_off",
            [
                Query(over("improved", by="task, model, metric"), "{{metric}}"),
                Query(over("group_improved", by=f"{_BY_GROUP}, metric"), "{{group}}: {{metric}}"),
            ],
        ),
        chart(
            "Windows that broke a rule",
            "Of the control charts' rules, since the point before.",
            "short",
            [
                Query(
                    "sum by (metric, rule) "
                    f"(increase({series('control_violations_total')}[$__rate_interval]))",
                    "{{metric}}: {{rule}}",
                )
            ],
        ),
    ]


def _labels() -> list[Any]:
    return [
        chart(
            "Right answers by every estimator",
            "Estimates without labels, of labels alone, and of both; realised ones are of the newest window "
            "that labels have reached, so of an older one.",
            "percentunit",
            [Query(hull("", "estimator", metric="~accuracy|within_tolerance"), "{{estimator}}")],
        ),
        chart(
            "Coverage by the confidences alone",
            "Share of batches of 30 labelled rows whose right answers lie in the exact interval of their "
            "confidences. Below the configured level the confidences are off; the interval that is reported "
            "is wider, and knows of the labels.",
            "percentunit",
            [
                Query(
                    over("interval_coverage_ratio", "min", "metric, estimator"), "{{metric}}, {{estimator}}"
                ),
            ],
        ),
        chart(
            "Evidence against the estimate",
            "An E-value: 1 at the start, 20 costs the trust. An estimate that is right gets there with a "
            "chance of 5 % at most, ever.",
            "short",
            [Query(over("estimate_evidence", by="metric"), "{{metric}}")],
        ),
        *_bias_and_lag(),
    ]


def _bias_and_lag() -> list[Any]:
    """What labels say of the estimate's bias, what that rests on, and how late it is."""
    return [
        chart(
            "Bias of the estimate",
            "Share of right answers among labelled rows less what was promised for them, with its interval; "
            "only while labels contradict the estimate.",
            "percentunit",
            [
                Query(over("estimate_bias_ratio", "avg", "metric"), "estimate"),
                Query(over("estimate_bias_lower_ratio", "min", "metric"), "lower"),
                Query(over("estimate_bias_upper_ratio", "max", "metric"), "upper"),
            ],
        ),
        chart(
            "Labelled rows that the coverage rests on",
            "Of the newest 200 batches.",
            "short",
            [Query(over("interval_audited_rows", "max", "metric, estimator"), "{{metric}}, {{estimator}}")],
        ),
        chart(
            "How late labels are",
            "Between a prediction and its label, of the newest labels of the task.",
            "s",
            [Query(f"max by (task) ({series('label_lag_seconds', TASKS)})", "lag")],
        ),
    ]


def _annotated(board: dashboard.Dashboard) -> tuple[dashboard.Dashboard, dict[str, str]]:
    marks = [
        annotation(
            "Alarms",
            f"max by (task, model, metric) ({series('out_of_control')}) == 1",
            "orange",
            "{{metric}} out of control",
        ),
        annotation(
            "Objectives breached",
            f"max by (task, model, metric) ({series('objective_state', state='breached')}) == 1",
            "red",
            "{{metric}} breached",
        ),
        annotation(
            "Alerts",
            "max by (alertname, metric)"
            ' (ALERTS{alertname=~"Blindsight.+",alertstate="firing",'
            'job=~"$job",task=~"$task",model=~"$model"})',
            "dark-red",
            "{{alertname}} {{metric}}",
        ),
        annotation(
            "Versions",
            f"count by (version) ({series('model_info', MODELS)}) unless "
            f"count by (version) ({series('model_info', MODELS)} offset 5m)",
            "blue",
            "version {{version}}",
        ),
    ]
    for query, _title in marks:
        board = board.annotation(query)
    return board, {query.build().name: title for query, title in marks}


def model() -> tuple[dashboard.Dashboard, dict[str, str]]:
    """The dashboard, and by the name of each annotation what its marks are called."""
    values = "label_values(blindsight_%s{%s}, %s)"
    chosen = [
        *variables(one_model=True),
        page_of(f" and on (job, instance) {series('state')}"),
        variable("metric", "Metrics charted", values % ("control_center_ratio", MODELS, "metric")),
        variable(
            "estimator",
            "Estimator",
            values % ("estimate_ratio", MODELS, "estimator"),
            several=False,
            first="average_confidence",
        ),
        variable("error", "Errors charted", values % ("value", MODELS, "metric")),
        variable(
            "group_metric",
            "Metric of groups",
            values % ("group_estimate_ratio", MODELS, "metric"),
            several=False,
            first="accuracy",
        ),
    ]
    rows = {
        "Now": _now(),
        "Control charts": [_control_chart(), *_alarms()],
        "Labels": _labels(),
        "Classes": classes(),
        "Errors of predicted numbers": errors(),
        "Calibration": calibration(),
        "Refits": refits(),
        "Groups": groups(),
        "Feed": feed(),
    }
    description = "One model: how good it is now, and what that rests on."
    return _annotated(assembled(TITLE, UID, description, chosen, rows))
