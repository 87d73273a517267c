"""The exported metric families: name, type, unit and help, in one table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

PREFIX = "blindsight_"
GROUP_PREFIX = "blindsight_group_"


@dataclass(frozen=True, slots=True)
class MetricFamily:
    """The definition of one metric family.

    Parameters
    ----------
    kind : {"gauge", "counter", "info", "histogram"}
    help : str
        The text of `# HELP`, written about models; it also applies to groups.
    unit : str
        Base unit at the end of the name; ``""`` for counts and flags.
    per_series : bool
        True if the family is labelled with task and model, and repeated for groups under `blindsight_group_`.
        False for families about the agent, about a task, or about whole models only.
    value : str
        The attribute that is the only value of the family. It is an attribute of the `SeriesView` (labels:
        task, model and group) if `per_series`; otherwise of the `AgentView` (no labels), or of the items that
        `each` selects (label: the name of the source or sink). A value of None is left out.
    rows : str
        Used instead of `value`: ``package.module:name`` of a function from the view to pairs of labels and a
        value. Without `value` and `rows`, the collector computes the values.
    each : {"", "sources", "sinks"}
        The items of the agent, each of which has a value; ``""`` for the agent itself.
    """

    kind: Literal["gauge", "counter", "info", "histogram"]
    help: str
    unit: str = ""
    per_series: bool = True
    value: str = ""
    rows: str = ""
    each: Literal["", "sources", "sinks"] = ""


FAMILIES: dict[str, MetricFamily] = {
    "estimate_ratio": MetricFamily("gauge", "Estimate for the last closed window, 0 to 1.", "ratio"),
    "estimate_lower_ratio": MetricFamily("gauge", "Lower end of the estimate's interval, 0 to 1.", "ratio"),
    "estimate_upper_ratio": MetricFamily("gauge", "Upper end of the estimate's interval, 0 to 1.", "ratio"),
    "unknown": MetricFamily(
        "gauge", "1 if the last closed window has no estimate; the label reason says why."
    ),
    "value": MetricFamily(
        "gauge", "Metric of errors of the last closed window, in the unit of the label unit."
    ),
    "value_lower": MetricFamily(
        "gauge", "Lower end of the interval of a metric of errors, in the unit of the label unit."
    ),
    "value_upper": MetricFamily(
        "gauge", "Upper end of the interval of a metric of errors, in the unit of the label unit."
    ),
    "value_control_center": MetricFamily(
        "gauge", "Centre line of the control chart of a metric of errors, in the unit of the label unit."
    ),
    "value_control_lower": MetricFamily(
        "gauge", "Lower control limit of a metric of errors, in the unit of the label unit."
    ),
    "value_control_upper": MetricFamily(
        "gauge", "Upper control limit of a metric of errors, in the unit of the label unit."
    ),
    "value_objective": MetricFamily(
        "gauge",
        "Configured floor or ceiling of the objective of a metric of errors, in the unit of the label unit.",
    ),
    "class_estimate_ratio": MetricFamily(
        "gauge", "Estimate for a single class in the last closed window, 0 to 1.", "ratio"
    ),
    "class_estimate_lower_ratio": MetricFamily(
        "gauge", "Lower end of the interval for a single class, 0 to 1.", "ratio"
    ),
    "class_estimate_upper_ratio": MetricFamily(
        "gauge", "Upper end of the interval for a single class, 0 to 1.", "ratio"
    ),
    "class_unknown": MetricFamily(
        "gauge", "1 if the last closed window has no estimate for a class; the label reason says why."
    ),
    "interval_coverage_ratio": MetricFamily(
        "gauge",
        "Share of the newest 200 batches of 30 labelled rows with their number of right answers in "
        "the exact interval. This is the interval of their confidences alone, not the wider "
        "reported one. Assumes that labelling does not depend on being right, given the score.",
        "ratio",
        per_series=False,
    ),
    "interval_audited_rows": MetricFamily(
        "gauge", "Labelled rows behind the coverage.", "rows", per_series=False
    ),
    "estimate_trusted": MetricFamily(
        "gauge",
        "0 after labels contradict the predicted accuracy, or estimated errors, until a new test; absent "
        "before the first label.",
    ),
    "estimate_evidence": MetricFamily(
        "gauge",
        "Evidence of labelled rows against the predicted accuracy, an E-value: 1 at the start; at 20 trust "
        "is lost. A right prediction ever reaches 20 with a probability of at most 5 %.",
    ),
    "estimate_bias_ratio": MetricFamily(
        "gauge",
        "Accuracy of labelled rows minus their mean confidence, -1 to 1; only while labels contradict the "
        "confidences.",
        "ratio",
    ),
    "estimate_bias_lower_ratio": MetricFamily("gauge", "Lower end of the bias's interval, -1 to 1.", "ratio"),
    "estimate_bias_upper_ratio": MetricFamily("gauge", "Upper end of the bias's interval, -1 to 1.", "ratio"),
    "control_center_ratio": MetricFamily("gauge", "Centre line of the control chart, 0 to 1.", "ratio"),
    "control_lower_ratio": MetricFamily(
        "gauge", "Lower control limit of the last closed window, 0 to 1.", "ratio"
    ),
    "control_upper_ratio": MetricFamily(
        "gauge", "Upper control limit of the last closed window, 0 to 1.", "ratio"
    ),
    "out_of_control": MetricFamily(
        "gauge",
        "1 while the alarm of the control chart, or of the accuracy by labels where these decide, is active.",
    ),
    "improved": MetricFamily(
        "gauge",
        "1 while the chart, or the accuracy by labels where these decide, shows a change for the better.",
    ),
    "control_violations": MetricFamily("counter", "Closed windows that broke a rule of the control chart."),
    "alarm_change_ratio": MetricFamily(
        "gauge",
        "Change of the metric against its baseline, -1 to 1. In the newest window that broke a rule of its "
        "chart or whose objective is breached; only while an alarm, an improvement or a breach is active.",
        "ratio",
        rows="monitor.export.prometheus.rows:alarm_rows",
    ),
    "alarm_part_change_ratio": MetricFamily(
        "gauge",
        "Part of blindsight_alarm_change_ratio by group, class or range of confidences: the largest. The "
        "parts feature=NAME and same_features split the same change again: do not add them to the others.",
        "ratio",
        rows="monitor.export.prometheus.rows:alarm_part_rows",
    ),
    "shared_alarm": MetricFamily(
        "gauge",
        "1 while most models of the task share a change for the worse, by the charts of the metric. Absent "
        "with fewer than three models that can be compared.",
        per_series=False,
        rows="monitor.export.prometheus.rows:shared_alarm_rows",
    ),
    "shared_breach": MetricFamily(
        "gauge",
        "1 while blindsight_shared_alarm is 1 and the objective of a model that shares it is breached.",
        per_series=False,
        rows="monitor.export.prometheus.rows:shared_breach_rows",
    ),
    "shared_alarm_change_ratio": MetricFamily(
        "gauge",
        "Change of the metric against its baseline, -1 to 1, of each model that shares the change. Only "
        "while blindsight_shared_alarm is 1.",
        "ratio",
        per_series=False,
        rows="monitor.export.prometheus.rows:shared_alarm_change_rows",
    ),
    "objective_ratio": MetricFamily(
        "gauge", "Configured floor or ceiling of the objective, 0 to 1.", "ratio"
    ),
    "objective_state": MetricFamily(
        "gauge", "1 for the state of the objective; all 0 while the state is unknown."
    ),
    "state": MetricFamily("gauge", "1 for the state of the model, 0 for the others."),
    "windows_closed": MetricFamily("counter", "Windows closed.", value="windows_closed"),
    "window_end_timestamp_seconds": MetricFamily(
        "gauge",
        "Time of the last record of the last closed window, since the epoch.",
        "seconds",
        value="window_end_time",
    ),
    "predictions": MetricFamily("counter", "Used answers: those in closed windows.", value="predictions"),
    "answers_pending": MetricFamily("gauge", "Answers in the open window.", value="pending"),
    "duplicates": MetricFamily("counter", "Answers not used because they came before.", value="duplicates"),
    "confidence_ratio": MetricFamily(
        "histogram",
        "Confidence of answers in closed windows, calibrated if there is a calibration, 0 to 1.",
        "ratio",
        per_series=False,
    ),
    "calibration_curve_labelled": MetricFamily(
        "counter",
        "Labelled answers by bin of their confidence; each answer counts with its first label.",
        per_series=False,
    ),
    "calibration_curve_correct": MetricFamily(
        "counter", "Right labelled answers, by bin of their confidence.", per_series=False
    ),
    "calibration_curve_confidence": MetricFamily(
        "counter",
        "Sum of the labelled answers' confidences, by bin; divided by their number, the expected share of "
        "right answers.",
        per_series=False,
    ),
    "calibration_timestamp_seconds": MetricFamily(
        "gauge",
        "Time of the newest record in the calibration's fit, since the epoch.",
        "seconds",
        value="calibration.fitted_time",
    ),
    "calibration_effective_rows": MetricFamily(
        "gauge",
        "Effective number of the reference's rows in the calibration of the last closed window. So "
        "many rows, weighted alike, would tell as much. Only with calibration.method: covariates.",
        "rows",
        value="calibration.covariates.effective_rows",
    ),
    "feature_rows_unusable": MetricFamily(
        "counter",
        "Answers in closed windows that calibration.method: covariates cannot use, by feature and "
        "reason. A feature is missing, or unseen in the reference.",
        rows="monitor.export.prometheus.rows:feature_rows",
    ),
    "untrusted": MetricFamily(
        "gauge",
        "1 while estimates of the model are not trusted, by reason. labels: they contradict the accuracy; "
        "errors: labels contradict the estimated errors; feature: one is broken. The first two are absent "
        "before the first label, the last without features.",
        rows="monitor.export.prometheus.rows:untrusted_rows",
    ),
    "feature_missing_ratio": MetricFamily(
        "gauge",
        "Share of the rows of the last closed window that lack the feature, 0 to 1.",
        "ratio",
        rows="monitor.export.prometheus.rows:feature_missing_rows",
    ),
    "feature_unseen_ratio": MetricFamily(
        "gauge",
        "Share of the rows of the last closed window with a text that the reference lacks or a number beyond "
        "its range, 0 to 1.",
        "ratio",
        rows="monitor.export.prometheus.rows:feature_unseen_rows",
    ),
    "feature_distance_ratio": MetricFamily(
        "gauge",
        "Jensen-Shannon distance of the feature in the last closed window from the reference, 0 to 1.",
        "ratio",
        rows="monitor.export.prometheus.rows:feature_distance_rows",
    ),
    "feature_distance_threshold_ratio": MetricFamily(
        "gauge",
        "Distance, 0 to 1, that chance alone exceeds in one of a hundred windows with as many rows.",
        "ratio",
        rows="monitor.export.prometheus.rows:feature_threshold_rows",
    ),
    "feature_broken_ratio": MetricFamily(
        "gauge",
        "Share of the rows of the last closed window with a fault, 0 to 1; only while the feature is broken. "
        "The fault is missing, unseen, out_of_range or constant.",
        "ratio",
        rows="monitor.export.prometheus.rows:feature_broken_rows",
    ),
    "feature_drift_alarm": MetricFamily(
        "gauge",
        "1 while the drift of the feature in the last closed window raises an alarm, 0 otherwise; absent "
        "without chart.features.",
        rows="monitor.export.prometheus.rows:feature_drift_alarm_rows",
    ),
    "model": MetricFamily(
        "info",
        "Calibration, version and window size of the model; the estimator that its accuracy chart judges.",
    ),
    "labels": MetricFamily(
        "counter",
        "Labels that no longer wait, by outcome. A conflicting label replaced another label for its "
        "id; an ambiguous one names a request of several rows.",
        per_series=False,
    ),
    "labels_waiting": MetricFamily("gauge", "Labels that came before their prediction.", per_series=False),
    "label_lag_seconds": MetricFamily(
        "gauge", "Median time from prediction to label, over the newest labels.", "seconds", per_series=False
    ),
    "labels_unrevised": MetricFamily(
        "counter", "Labels that came too late for another report of their window.", per_series=False
    ),
    "answers_forgotten": MetricFamily(
        "counter", "Answers removed from memory before their label came.", per_series=False
    ),
    "labels_received": MetricFamily("counter", "Labels received, used or not.", per_series=False),
    "refit_duration_seconds": MetricFamily(
        "histogram",
        "Duration of fits on labels, of estimators and calibrations, good and refused.",
        "seconds",
        per_series=False,
    ),
    "refit_last_success_timestamp_seconds": MetricFamily(
        "gauge",
        "Time of the last good refit, since the epoch.",
        "seconds",
        per_series=False,
    ),
    "refit_failures": MetricFamily(
        "counter", "Refused or lost refits; the last good fit stays in use.", per_series=False
    ),
    "recalibrations": MetricFamily(
        "counter",
        "Recalibrations on labels, by outcome: taken; kept, because labels do not favour the new one; or "
        "refused.",
        per_series=False,
    ),
    "recalibration_held": MetricFamily(
        "gauge",
        "1 if the newest recalibration that was due waits for labels that agree (labels.max_replaced), 0 "
        "otherwise.",
        per_series=False,
    ),
    "refit_held": MetricFamily(
        "gauge",
        "1 if a refit is due and waits for labels that agree (labels.max_replaced), 0 otherwise.",
        per_series=False,
    ),
    "refit_answers_without_id": MetricFamily(
        "counter",
        "Answers without an id, which refits cannot use.",
        per_series=False,
    ),
    "refit_rows": MetricFamily("gauge", "Rows in the last good refit.", "rows", per_series=False),
    "refit_pool_rows": MetricFamily(
        "gauge",
        "Rows that the rows of the last good refit represent; more if the refit uses a sample.",
        "rows",
        per_series=False,
    ),
    "refit_sampling_widening_ratio": MetricFamily(
        "gauge",
        "How much fitting on a sample widens an interval of the accuracy, the maximum over the models.",
        "ratio",
        per_series=False,
    ),
    "refit_labelled_rows": MetricFamily(
        "gauge", "Labelled rows in the last good refit.", "rows", per_series=False
    ),
    "refit_drawn_rows": MetricFamily(
        "gauge",
        "Labelled rows of the last good refit that active_testing uses: those drawn one after another in "
        "one round.",
        "rows",
        per_series=False,
    ),
    "refit_missing_draws": MetricFamily(
        "gauge",
        "Draws of that round without a label, before the last draw with a label.",
        per_series=False,
    ),
    "effective_labels": MetricFamily(
        "gauge",
        "Effective number of labels in the last good refit: randomly selected labels that would give the "
        "same precision.",
        per_series=False,
    ),
    "prevalence_ratio": MetricFamily(
        "gauge",
        "Share of the class among the rows of the last good refit, 0 to 1.",
        "ratio",
        per_series=False,
    ),
    "rank_best": MetricFamily(
        "gauge",
        "Best possible rank of the model, 1 is the best. With a probability of 0.9 all true ranks of a task, "
        "metric and estimator lie between best and worst.",
        per_series=False,
    ),
    "rank_worst": MetricFamily("gauge", "Worst possible rank of the model.", per_series=False),
    "rank_chi_square_best": MetricFamily(
        "gauge",
        "Best possible rank as in blindsight_rank_best, by the simultaneous chi-square set. This set "
        "takes the correlation of the models' errors into account.",
        per_series=False,
    ),
    "rank_chi_square_worst": MetricFamily(
        "gauge", "Worst possible rank by the chi-square set.", per_series=False
    ),
    "arena_coefficient": MetricFamily(
        "gauge",
        "Bradley-Terry coefficient of the model, from the comparisons of the newest windows. It is "
        "the log of the model's odds against the reference model.",
        per_series=False,
    ),
    "arena_coefficient_lower": MetricFamily(
        "gauge", "Lower end of the coefficient's interval.", per_series=False
    ),
    "arena_coefficient_upper": MetricFamily(
        "gauge", "Upper end of the coefficient's interval.", per_series=False
    ),
    "arena_unknown": MetricFamily(
        "gauge", "1 if the model has no coefficient; the label reason says why.", per_series=False
    ),
    "arena_comparisons": MetricFamily(
        "gauge",
        "Comparisons behind the coefficients, by verdict: human, judge, both or none.",
        per_series=False,
    ),
    "arena_judge_weight_ratio": MetricFamily(
        "gauge", "Weight of the judge, 0 to 1: the tuned lambda of PPI++.", "ratio", per_series=False
    ),
    "arena_effective_comparisons": MetricFamily(
        "gauge",
        "Number of human verdicts that alone would give the same precision.",
        per_series=False,
    ),
    "arena_windows_closed": MetricFamily("counter", "Windows of comparisons closed.", per_series=False),
    "arena_window_end_timestamp_seconds": MetricFamily(
        "gauge",
        "Time of the last comparison of the last closed window, since the epoch.",
        "seconds",
        per_series=False,
    ),
    "comparisons": MetricFamily("counter", "Used comparisons: those in closed windows.", per_series=False),
    "comparisons_pending": MetricFamily("gauge", "Comparisons in the open window.", per_series=False),
    "comparison_duplicates": MetricFamily(
        "counter", "Comparisons not used because they came before.", per_series=False
    ),
    "answers_received": MetricFamily("counter", "Answers received, used or not.", per_series=False),
    "rejected": MetricFamily("counter", "Rejected answers, by reason.", per_series=False),
    "shed": MetricFamily("counter", "Answers dropped unread because there was no room.", per_series=False),
    "token_labels": MetricFamily(
        "counter",
        "Labels that the source took since the start, by the name of the sender's token.",
        per_series=False,
    ),
    "posts_refused": MetricFamily(
        "counter", "Posts that got an error status from the source, by HTTP status.", per_series=False
    ),
    "events_ignored": MetricFamily(
        "counter",
        "Events without answers that the source ignored, such as requests in a serving stack's log.",
        per_series=False,
    ),
    "rows_left": MetricFamily(
        "counter",
        "Rows not read, of records of which the mapping reads one row by a path such as predictions[0].",
        per_series=False,
    ),
    "source_up": MetricFamily(
        "gauge", "1 while the source is connected.", per_series=False, value="up", each="sources"
    ),
    "source_lag_records": MetricFamily(
        "gauge",
        "Records waiting in the source, and records read from it and not used yet.",
        "records",
        per_series=False,
        value="lag",
        each="sources",
    ),
    "source_gap_records": MetricFamily(
        "counter",
        "Records deleted in the source before they were read; for followed files gaps, not records.",
        "records",
        per_series=False,
        value="counts.gap_records",
        each="sources",
    ),
    "source_taken_over_records": MetricFamily(
        "counter",
        "Records that another member of the group used, before this one read on.",
        "records",
        per_series=False,
        value="counts.taken_over_records",
        each="sources",
    ),
    "source_overlap_records": MetricFamily(
        "counter",
        "Records used here that another member of the group may have used too.",
        "records",
        per_series=False,
        value="counts.overlap_records",
        each="sources",
    ),
    "source_rebuilds": MetricFamily(
        "counter",
        "Times the agent replaced the source's client because it delivered nothing.",
        per_series=False,
        value="counts.rebuilds",
        each="sources",
    ),
    "series_dropped": MetricFamily(
        "counter",
        "Models and groups beyond a limit on series, each counted once.",
        per_series=False,
    ),
    "families_left_out": MetricFamily(
        "gauge",
        "Metric families that this scrape leaves out, because all of them are larger than export.max_bytes.",
        per_series=False,
    ),
    "sink_up": MetricFamily("gauge", "1 while the sink works, 0 while it fails.", per_series=False),
    "sink_waiting": MetricFamily(
        "gauge",
        "Windows, records, alerts or requests waiting in the sink.",
        per_series=False,
        value="waiting",
        each="sinks",
    ),
    "sink_delivered": MetricFamily(
        "counter",
        "Windows, records, alerts, data points or answers delivered.",
        per_series=False,
        value="delivered",
        each="sinks",
    ),
    "sink_lost": MetricFamily(
        "counter",
        "Windows, records, data points or answers dropped by the sink.",
        per_series=False,
        value="lost",
        each="sinks",
    ),
    "sink_failing_since_timestamp_seconds": MetricFamily(
        "gauge",
        "Start of the sink's present failure, since the epoch.",
        "seconds",
        per_series=False,
        value="failing_since",
        each="sinks",
    ),
    "reports_lost": MetricFamily(
        "counter", "Closed windows missing in a sink of reports.", per_series=False, value="reports_lost"
    ),
    "store_failures": MetricFamily(
        "counter", "Checkpoints that could not be saved.", per_series=False, value="store_failures"
    ),
    "decoder_failures": MetricFamily(
        "counter",
        "Processes that decoded and were lost; the agent decoded what they had.",
        per_series=False,
        value="decoder_failures",
    ),
    "checkpoint_timestamp_seconds": MetricFamily(
        "gauge", "Time of the last checkpoint, since the epoch.", per_series=False, value="checkpoint_time"
    ),
    "config_last_reload_successful": MetricFamily(
        "gauge",
        "1 if the last reload of the configuration succeeded.",
        per_series=False,
        value="reload_successful",
    ),
    "config_last_reload_success_timestamp_seconds": MetricFamily(
        "gauge",
        "Time of the last successful reload of the configuration, since the epoch.",
        "seconds",
        per_series=False,
    ),
    "build": MetricFamily("info", "Version of Blindsight.", per_series=False),
    "page": MetricFamily(
        "info", "The address of the agent's page, export.external_url; absent without one.", per_series=False
    ),
}
"""Every family by its name, without the prefix and without the suffix `_total` or `_info`."""

_OF_AGENT = list(FAMILIES).index("answers_received")
_PLACES = {key: place for place, key in enumerate(FAMILIES)}
_ACCOUNTING = (
    *("predictions", "answers_pending", "duplicates"),
    *("comparisons", "comparisons_pending", "comparison_duplicates"),
    *("labels_received", "labels", "labels_waiting"),
)
"""The families of models and groups that the alert on accounting sums. None of them may be missing."""


def importance(name: str) -> tuple[int, int]:
    """Return a sort key of a family. If there is no room for all families, those with smaller keys are kept.

    The order is: families of the agent and the process, families that the alert BlindsightAccountingBroken
    sums, families of models and tasks, and families of groups. Families of models, tasks and groups have the
    order of the table, which begins with the estimates.

    Parameters
    ----------
    name : str
        The registered name of a family.

    Examples
    --------
    >>> keys = ["group_state", "estimate_ratio", "labels", "up"]
    >>> sorted((f"blindsight_{key}" for key in keys), key=importance)
    ['blindsight_up', 'blindsight_labels', 'blindsight_estimate_ratio', 'blindsight_group_state']
    """
    if name.startswith(GROUP_PREFIX):
        return 3, _PLACES.get(name.removeprefix(GROUP_PREFIX), 0)
    key = name.removeprefix(PREFIX)
    place = _PLACES.get(key)
    if place is None or place >= _OF_AGENT:
        return 0, 0
    return (1 if key in _ACCOUNTING else 2), place
