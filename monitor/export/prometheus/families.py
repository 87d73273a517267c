"""The metric families that are exported: name, type, unit and help, in one table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class MetricFamily:
    """One metric family.

    Parameters
    ----------
    kind : {"gauge", "counter", "info", "histogram"}
    help : str
        Shown in `# HELP`; for a series family "a model's", which stands for a group's too.
    unit : str
        Base unit that ends the name, ``""`` for counts and flags.
    per_series : bool
        Labelled with task and model, and repeated for groups under `blindsight_group_`. False for what
        is said of the agent, of a task, or of whole models alone.
    rows : str
        Where its values come from, ``package.module:name``: a function of the `SeriesView` where it is
        `per_series`, else of the `AgentView`, that gives pairs of labels and a value; task, model and group
        are put to the former. Empty: from the collector, which says what families that belong together are.
    """

    kind: Literal["gauge", "counter", "info", "histogram"]
    help: str
    unit: str = ""
    per_series: bool = True
    rows: str = ""


FAMILIES: dict[str, MetricFamily] = {
    "estimate_ratio": MetricFamily("gauge", "Estimate of the last closed window, 0 to 1.", "ratio"),
    "estimate_lower_ratio": MetricFamily("gauge", "Lower end of the estimate's interval, 0 to 1.", "ratio"),
    "estimate_upper_ratio": MetricFamily("gauge", "Upper end of the estimate's interval, 0 to 1.", "ratio"),
    "unknown": MetricFamily("gauge", "1 where the last closed window has no estimate, and why."),
    "class_estimate_ratio": MetricFamily(
        "gauge", "Estimate for one class by itself of the last closed window, 0 to 1.", "ratio"
    ),
    "class_estimate_lower_ratio": MetricFamily("gauge", "Lower end of its interval, 0 to 1.", "ratio"),
    "class_estimate_upper_ratio": MetricFamily("gauge", "Upper end of its interval, 0 to 1.", "ratio"),
    "class_unknown": MetricFamily(
        "gauge", "1 where the last closed window has no estimate for a class, and why."
    ),
    "interval_coverage_ratio": MetricFamily(
        "gauge",
        "Share of batches of 30 labelled rows whose right answers lie in the exact interval of their "
        "confidences, not in the wider one that is reported; of the newest 200, if rows are labelled without "
        "regard to being right, given their score.",
        "ratio",
        per_series=False,
    ),
    "interval_audited_rows": MetricFamily(
        "gauge", "Labelled rows that the coverage rests on.", "rows", per_series=False
    ),
    "estimate_trusted": MetricFamily(
        "gauge",
        "0 once labels contradict the estimate, until a fresh test after a recalibration; absent before the "
        "first label.",
        per_series=False,
    ),
    "estimate_evidence": MetricFamily(
        "gauge",
        "Evidence of labelled rows against the estimate, an E-value: 1 at the start, 20 costs the trust; "
        "an estimate that is right gets there with a chance of 5 % at most, ever.",
        per_series=False,
    ),
    "estimate_bias_ratio": MetricFamily(
        "gauge",
        "Accuracy of labelled rows less what the estimate promised for them, -1 to 1; while not trusted.",
        "ratio",
        per_series=False,
    ),
    "estimate_bias_lower_ratio": MetricFamily(
        "gauge", "Lower end of the bias's interval, -1 to 1.", "ratio", per_series=False
    ),
    "estimate_bias_upper_ratio": MetricFamily(
        "gauge", "Upper end of the bias's interval, -1 to 1.", "ratio", per_series=False
    ),
    "control_center_ratio": MetricFamily("gauge", "Centre line of the control chart, 0 to 1.", "ratio"),
    "control_lower_ratio": MetricFamily(
        "gauge", "Lower control limit of the last closed window, 0 to 1.", "ratio"
    ),
    "control_upper_ratio": MetricFamily(
        "gauge", "Upper control limit of the last closed window, 0 to 1.", "ratio"
    ),
    "out_of_control": MetricFamily("gauge", "1 while the control chart's alarm is latched."),
    "control_violations": MetricFamily("counter", "Closed windows that broke a rule of the control chart."),
    "objective_ratio": MetricFamily(
        "gauge", "Configured floor or ceiling of the objective, 0 to 1.", "ratio"
    ),
    "objective_state": MetricFamily(
        "gauge", "1 for the state the objective is in; all 0 while it is not known."
    ),
    "state": MetricFamily("gauge", "1 for the state the model is in, 0 for the others."),
    "windows_closed": MetricFamily("counter", "Windows closed."),
    "window_end_timestamp_seconds": MetricFamily(
        "gauge", "Time of the last record of the last closed window, since the epoch.", "seconds"
    ),
    "predictions": MetricFamily("counter", "Answers used: those in closed windows."),
    "answers_pending": MetricFamily("gauge", "Answers in the open window."),
    "duplicates": MetricFamily("counter", "Answers not used because they had come before."),
    "confidence_ratio": MetricFamily(
        "histogram",
        "Confidence of answers in closed windows, calibrated where there is a calibration, 0 to 1.",
        "ratio",
        per_series=False,
    ),
    "calibration_curve_labelled": MetricFamily(
        "counter",
        "Labelled answers by bin of their confidence; each counts with its first label.",
        per_series=False,
    ),
    "calibration_curve_correct": MetricFamily(
        "counter", "Labelled answers that were right, by bin of their confidence.", per_series=False
    ),
    "calibration_curve_confidence": MetricFamily(
        "counter",
        "Sum of the labelled answers' confidences, by bin; over their number, what their share of right ones "
        "should be.",
        per_series=False,
    ),
    "calibration_timestamp_seconds": MetricFamily(
        "gauge", "Time of the newest record that the calibration was fitted on, since the epoch.", "seconds"
    ),
    "model": MetricFamily("info", "What produces the model's figures."),
    "labels": MetricFamily(
        "counter",
        "Labels that no longer wait, by outcome; a conflicting one replaced another class given for its id.",
        per_series=False,
    ),
    "labels_waiting": MetricFamily("gauge", "Labels that came before their prediction.", per_series=False),
    "label_lag_seconds": MetricFamily(
        "gauge", "Median time from prediction to label, over the newest labels.", "seconds", per_series=False
    ),
    "labels_unrevised": MetricFamily(
        "counter", "Labels too late for a further line of their window.", per_series=False
    ),
    "answers_forgotten": MetricFamily(
        "counter", "Answers pushed out of memory before their label came.", per_series=False
    ),
    "labels_received": MetricFamily("counter", "Labels received, used or not.", per_series=False),
    "refit_duration_seconds": MetricFamily(
        "histogram",
        "Time that fits on labels took, of estimators and of calibrations, good ones and refused ones.",
        "seconds",
        per_series=False,
    ),
    "refit_last_success_timestamp_seconds": MetricFamily(
        "gauge",
        "When a refit last brought something to publish, since the epoch.",
        "seconds",
        per_series=False,
    ),
    "refit_failures": MetricFamily(
        "counter", "Refits that were refused or lost; the last good one holds.", per_series=False
    ),
    "recalibrations": MetricFamily(
        "counter",
        "Calibrations fitted again on labels, by outcome: taken over, kept the one in force as labels do not "
        "favour the new one, or refused.",
        per_series=False,
    ),
    "refit_answers_without_id": MetricFamily(
        "counter",
        "Answers that take no part in refits, as they have no id that joins those of several models.",
        per_series=False,
    ),
    "refit_rows": MetricFamily("gauge", "Rows that the last good refit rests on.", "rows", per_series=False),
    "refit_pool_rows": MetricFamily(
        "gauge",
        "Rows that those of the last good refit stand for; more where it rests on a sample.",
        "rows",
        per_series=False,
    ),
    "refit_sampling_widening_ratio": MetricFamily(
        "gauge",
        "By how much fitting on a sample widens an interval of the accuracy, at most over the models.",
        "ratio",
        per_series=False,
    ),
    "refit_labelled_rows": MetricFamily(
        "gauge", "Rows of the last good refit that have labels.", "rows", per_series=False
    ),
    "refit_drawn_rows": MetricFamily(
        "gauge",
        "Labelled rows of the last good refit that active_testing rests on: drawn one after another in one "
        "round; it has no use for the others.",
        "rows",
        per_series=False,
    ),
    "refit_missing_draws": MetricFamily(
        "gauge",
        "Draws of that round, below the last whose label came, of which none has come.",
        per_series=False,
    ),
    "effective_labels": MetricFamily(
        "gauge",
        "Labels taken with equal chances that would tell as much as those of the last good refit.",
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
        "Best rank that a model may have among those ranked with it, 1 the best; all ranks of a task, metric "
        "and estimator hold at once at the level 0.9, by Bonferroni's intervals.",
        per_series=False,
    ),
    "rank_worst": MetricFamily("gauge", "Worst rank that a model may have.", per_series=False),
    "rank_chi_square_best": MetricFamily(
        "gauge",
        "Best rank as in blindsight_rank_best, but by the simultaneous chi-square set, which knows how the "
        "models' errors go together.",
        per_series=False,
    ),
    "rank_chi_square_worst": MetricFamily("gauge", "Worst rank by the chi-square set.", per_series=False),
    "arena_coefficient": MetricFamily(
        "gauge",
        "Bradley-Terry coefficient of a model, the log of its odds against the reference model; by the "
        "comparisons of the newest windows.",
        per_series=False,
    ),
    "arena_coefficient_lower": MetricFamily(
        "gauge", "Lower end of the coefficient's interval.", per_series=False
    ),
    "arena_coefficient_upper": MetricFamily(
        "gauge", "Upper end of the coefficient's interval.", per_series=False
    ),
    "arena_unknown": MetricFamily("gauge", "1 where a model has no coefficient, and why.", per_series=False),
    "arena_comparisons": MetricFamily(
        "gauge",
        "Comparisons that the coefficients rest on, by who decided them: human, judge, both or none.",
        per_series=False,
    ),
    "arena_judge_weight_ratio": MetricFamily(
        "gauge", "Trust in the judge, 0 to 1: the tuned lambda of PPI++.", "ratio", per_series=False
    ),
    "arena_effective_comparisons": MetricFamily(
        "gauge",
        "Comparisons decided by humans that alone would tell as much as all of them do.",
        per_series=False,
    ),
    "arena_windows_closed": MetricFamily("counter", "Windows of comparisons closed.", per_series=False),
    "arena_window_end_timestamp_seconds": MetricFamily(
        "gauge",
        "Time of the last comparison of the last closed window, since the epoch.",
        "seconds",
        per_series=False,
    ),
    "comparisons": MetricFamily("counter", "Comparisons used: those in closed windows.", per_series=False),
    "comparisons_pending": MetricFamily("gauge", "Comparisons in the open window.", per_series=False),
    "comparison_duplicates": MetricFamily(
        "counter", "Comparisons not used because they had come before.", per_series=False
    ),
    "answers_received": MetricFamily("counter", "Answers received, used or not.", per_series=False),
    "rejected": MetricFamily("counter", "Answers that could not be used, by reason.", per_series=False),
    "shed": MetricFamily("counter", "Answers dropped unread because there was no room.", per_series=False),
    "posts_refused": MetricFamily(
        "counter", "Posts that the source answered with an error, by HTTP status.", per_series=False
    ),
    "events_ignored": MetricFamily(
        "counter",
        "Events without answers that the source passed over, such as the requests of a serving stack's "
        "logger.",
        per_series=False,
    ),
    "source_up": MetricFamily("gauge", "1 while the source is connected.", per_series=False),
    "source_lag_records": MetricFamily(
        "gauge", "Records that wait in the source.", "records", per_series=False
    ),
    "source_gap_records": MetricFamily(
        "counter",
        "Records that the source's retention deleted before they were read.",
        "records",
        per_series=False,
    ),
    "source_taken_over_records": MetricFamily(
        "counter",
        "Records that another member of the group used, before this one read on.",
        "records",
        per_series=False,
    ),
    "source_overlap_records": MetricFamily(
        "counter",
        "Records used here that another member of the group may have used too.",
        "records",
        per_series=False,
    ),
    "source_rebuilds": MetricFamily(
        "counter",
        "Times the source's client was made anew because it had stopped delivering.",
        per_series=False,
    ),
    "series_dropped": MetricFamily(
        "counter",
        "Models and groups beyond a cap on series, counted once each.",
        per_series=False,
    ),
    "sink_up": MetricFamily("gauge", "1 while the sink takes what it is given.", per_series=False),
    "sink_waiting": MetricFamily(
        "gauge", "Windows, records or requests that wait in the sink.", per_series=False
    ),
    "sink_delivered": MetricFamily("counter", "Windows, records or answers delivered.", per_series=False),
    "sink_lost": MetricFamily(
        "counter", "Windows, records or answers dropped by the sink.", per_series=False
    ),
    "sink_failing_since_timestamp_seconds": MetricFamily(
        "gauge", "When the sink's present failure began, since the epoch.", "seconds", per_series=False
    ),
    "reports_lost": MetricFamily("counter", "Closed windows missing in a sink of reports.", per_series=False),
    "store_failures": MetricFamily("counter", "Checkpoints that could not be saved.", per_series=False),
    "checkpoint_timestamp_seconds": MetricFamily(
        "gauge", "When the last checkpoint was saved.", per_series=False
    ),
    "config_last_reload_successful": MetricFamily(
        "gauge", "1 if the configuration could be read the last time.", per_series=False
    ),
    "config_last_reload_success_timestamp_seconds": MetricFamily(
        "gauge",
        "When the configuration was last read, since the epoch.",
        "seconds",
        per_series=False,
    ),
    "build": MetricFamily("info", "Version of Blindsight.", per_series=False),
}
"""Every family by its name without prefix and without the `_total` or `_info` that its kind brings."""
