"""Rows of the dashboard `model` below charts and labels: classes, errors, calibration, refits, groups."""

from __future__ import annotations

from typing import Any

from grafana_foundation_sdk.models import dashboard as models

from deploy.grafana.panels import Query, banded, bars, buckets, chart, sheet
from deploy.grafana.promql import TASKS, confusion, curve, error, hull, over, rate, series

PARTS = ("", "_lower", "_upper")


def classes() -> list[Any]:
    """How right and wrong answers fall on the classes."""
    return [
        chart(
            "Confusion matrix, shares of all answers",
            "Of two classes, from the estimated precision, recall and specificity; it needs all three in "
            "`metrics`. Left out for more classes, whose averages obey no such law.",
            "percentunit",
            [Query(expr, name) for name, expr in confusion().items()],
        ),
        chart(
            "Classification metrics",
            "Of the positive one of two classes; of more classes, the mean.",
            "percentunit",
            [
                Query(
                    hull(
                        "",
                        "metric",
                        metric="~precision|recall|specificity|f1|auroc|average_precision",
                        estimator="~$estimator",
                    ),
                    "{{metric}}",
                )
            ],
        ),
        *_by_class(),
    ]


def errors() -> list[Any]:
    """Return the panels of the errors of predicted numbers; a model of classes has none."""
    queries = [error(part, estimator) for estimator in ("doubly_robust", "realised") for part in PARTS]
    names = ["estimate", "lower", "upper", "labels say", "labels, lower", "labels, upper"]
    columns = {"metric": "metric", "unit": "unit"}
    columns |= {f"Value #{letter}": name for letter, name in zip("ABCDEF", names, strict=True)}
    chosen = {"metric": "~$error"}
    lines = [Query(error(part, **chosen), name) for part, name in zip(PARTS, names[:3], strict=True)]
    panel = chart(
        "Error: $error",
        "An error of the predicted numbers in the last closed window, in the unit of the target: the "
        "estimate without labels with its interval (band), and what labels say of the newest window that "
        "they reached (realised).",
        "short",
        [*lines, Query(error("", "realised", **chosen), "realised")],
        (24, 8),
    )
    return [
        sheet(
            "Errors now",
            "The errors of predicted numbers in the last closed window, in the unit of the target, with "
            "their intervals; what labels say of the newest window that they reached.",
            "short",
            [Query(expr) for expr in queries],
            columns,
            (24, 5),
        ),
        banded(panel).repeat("error").repeat_direction("h").max_per_row(3),
    ]


def _by_class() -> list[Any]:
    return [
        chart(
            "Classes by themselves",
            "With `average: per_class`, each class's own metrics.",
            "percentunit",
            [
                Query(
                    hull("", "class, metric", "class_", estimator="~$estimator", metric="~precision|recall"),
                    "{{class}}: {{metric}}",
                )
            ],
        ),
        chart(
            "Prevalence of the classes",
            "As the last refit from labels and scores has it, for the whole task.",
            "percentunit",
            [Query(f"avg by (class) ({series('prevalence_ratio', TASKS)})", "{{class}}")],
        ),
    ]


def calibration() -> list[Any]:
    """How far scores are from probabilities."""
    parts = curve()
    queries = [Query(expr) for expr in parts.values()]
    columns = {"bin": "confidence bin"} | {
        f"Value #{letter}": name for letter, name in zip("ABC", parts, strict=False)
    }
    return [
        bars(
            "Calibration curve",
            "Of answers labelled within the time shown, by bin of confidence: their mean confidence, and the "
            "share that was right. Bars of one bin should be equally high, but for chance; where right ones "
            "are fewer, the model is surer than it should be. Misleads if rows are labelled because they "
            "were wrong.",
            "percentunit",
            queries[:2],
            {field: name for field, name in columns.items() if name != "labelled answers"},
        ),
        sheet(
            "Calibration curve in numbers",
            "The same, and how many labelled answers each bin has: with fewer than a hundred, chance moves "
            "the share by four points or more.",
            "percentunit",
            queries,
            columns,
            (12, 8),
        ).override_by_name("labelled answers", [models.DynamicConfigValue("unit", "short")]),
        *_confidences_and_error(),
    ]


def _confidences_and_error() -> list[Any]:
    rows = f"increase({series('confidence_ratio_bucket')}[$__rate_interval])"
    return [
        buckets(
            "Distribution of confidences",
            "How many answers of the windows that closed had which confidence, calibrated where there is a "
            "calibration. Its mean is the estimated accuracy: it shows which answers moved that.",
            "percentunit",
            f"sum by (le) ({rows})",
            "5m",
        ),
        chart(
            "Calibration error",
            "How far raw scores are from calibrated probabilities, 0 is best; by every estimator.",
            "percentunit",
            [Query(hull("", "metric, estimator", metric="~ece|class_ece"), "{{metric}}, {{estimator}}")],
        ),
        chart(
            "Age of the calibration",
            "Time since the newest record that it was fitted on.",
            "s",
            [Query(f"time() - {over('calibration_timestamp_seconds')}", "age")],
        ),
    ]


def refits() -> list[Any]:
    """What is learnt from labels, and how long it takes."""
    duration = f"sum by (le) (rate({series('refit_duration_seconds_bucket', TASKS)}[$__rate_interval]))"
    return [
        chart(
            "Duration of refits",
            "Ninth decile, and the middle one.",
            "s",
            [
                Query(f"histogram_quantile(0.9, {duration})", "0.9"),
                Query(f"histogram_quantile(0.5, {duration})", "0.5"),
            ],
        ),
        chart(
            "Rows of the last refit",
            "Requests, those of them that are labelled, and how many labels they are worth.",
            "short",
            [
                Query(f"max by (task) ({series('refit_rows', TASKS)})", "rows"),
                Query(f"max by (task) ({series('refit_labelled_rows', TASKS)})", "labelled"),
                Query(f"max by (task) ({series('effective_labels', TASKS)})", "effective labels"),
            ],
        ),
        chart(
            "Refits that failed",
            "A second; the last good one holds meanwhile.",
            "cps",
            [Query(rate("refit_failures_total", "task", TASKS), "failed")],
        ),
        chart(
            "Age of the last good refit",
            "Time since it was published.",
            "s",
            [
                Query(
                    f"time() - max by (task) ({series('refit_last_success_timestamp_seconds', TASKS)})", "age"
                )
            ],
        ),
        chart(
            "Rank of the accuracy",
            "The best and the worst rank that the model may have among those refitted with it, 1 the best, "
            "all at once with 90 %: by Bonferroni's intervals, and by the chi-square set.",
            "short",
            [
                Query(
                    over(f"rank_{by}{end}", kind, by="estimator", metric="accuracy"),
                    f"{{{{estimator}}}}, {by.replace('_', ' ')}{end}",
                )
                for by in ("", "chi_square_")
                for end, kind in (("best", "min"), ("worst", "max"))
            ],
        ),
    ]


def groups() -> list[Any]:
    """Groups of requests, watched on their own."""
    worst = {"metric": "$group_metric", "estimator": "~$estimator"}
    return [
        chart(
            "Estimates by group",
            "The chosen metric of each group of requests, in its last closed window.",
            "percentunit",
            [Query(hull("", "group", "group_", **worst), "{{group}}")],
        ),
        sheet(
            "Groups now",
            "Estimate and interval of each group, its objective, and whether its alarm is active (1).",
            "percentunit",
            [
                Query(hull("", "group", "group_", **worst)),
                Query(hull("lower_", "group", "group_", **worst)),
                Query(hull("upper_", "group", "group_", **worst)),
                Query(over("group_objective_ratio", by="group", metric="$group_metric")),
                Query(over("group_out_of_control", by="group", metric="$group_metric")),
            ],
            {
                "group": "group",
                "Value #A": "estimate",
                "Value #B": "lower",
                "Value #C": "upper",
                "Value #D": "objective",
                "Value #E": "out of control",
            },
            (12, 8),
        ).override_by_name("out of control", [models.DynamicConfigValue("unit", "bool_yes_no")]),
    ]


def feed() -> list[Any]:
    """What comes in."""
    return [
        chart(
            "Answers",
            "Answers in closed windows, and those that had come before, a second.",
            "cps",
            [
                Query(rate("predictions_total", "task, model"), "used"),
                Query(rate("duplicates_total", "task, model"), "duplicate"),
            ],
        ),
        chart(
            "Answers in the open window",
            "They count once it closes.",
            "short",
            [Query(over("answers_pending", "sum"), "pending")],
        ),
        chart(
            "Labels by outcome",
            "Of the whole task, a second.",
            "cps",
            [Query(rate("labels_total", "outcome", TASKS), "{{outcome}}")],
        ),
        chart(
            "Labels that wait",
            "For the prediction they belong to.",
            "short",
            [Query(f"sum by (task) ({series('labels_waiting', TASKS)})", "waiting")],
        ),
    ]
