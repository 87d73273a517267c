"""Alert by alert: what makes it fire, how soon, and how short a blip must not. Times are in minutes."""

from __future__ import annotations

from tests.export.rules.alert_timelines import (
    Case,
    Values,
    counter,
    gauge,
    once_mended,
    only_healthy,
    piling,
    states,
    stopped_clock,
)

AGENT = 'job="blindsight",instance="agent:9109"'
MODEL = f'{AGENT},task="toxicity",model="erm"'
ACCURACY = f'{MODEL},metric="accuracy"'


OBJECTIVE = {
    f"blindsight_objective_ratio{{{ACCURACY}}}": gauge(0.9, 0.9),
    f'blindsight_estimate_ratio{{{ACCURACY},estimator="average_confidence"}}': gauge(0.93, 0.851),
    f'blindsight_estimate_lower_ratio{{{ACCURACY},estimator="average_confidence"}}': gauge(0.91, 0.832),
    f'blindsight_estimate_upper_ratio{{{ACCURACY},estimator="average_confidence"}}': gauge(0.95, 0.87),
    f'blindsight_estimate_ratio{{{ACCURACY},estimator="realised"}}': gauge(0.93, 0.842),
}
IN_CONTROL = states("blindsight_state", MODEL, "in_control", "in_control", "warming_up", "silent")
EU = f'{AGENT},task="toxicity",model="erm",group="region=eu"'
CONFIDENCE = 'metric="accuracy",estimator="average_confidence"'
LABELS = f'{AGENT},task="toxicity"'
SHARED = f'{LABELS},metric="accuracy"'
WHO = {"task": "toxicity", "model": "erm", "metric": "accuracy"}
FEED = f'{AGENT},source="answers"'
CHAT = f'{AGENT},task="chat"'
ALPHA = f'{CHAT},model="alpha"'


def balance(received: float, predictions: Values) -> dict[str, Values]:
    """Return the answers' accounts, which agree as long as `predictions` are `received`."""
    nothing = {
        f"blindsight_answers_pending{{{MODEL}}}": gauge(0, 0),
        f"blindsight_duplicates_total{{{MODEL}}}": gauge(0, 0),
        f'blindsight_rejected_total{{{FEED},reason="malformed"}}': gauge(0, 0),
        f"blindsight_shed_total{{{FEED}}}": gauge(0, 0),
        f"blindsight_series_dropped_total{{{AGENT}}}": gauge(0, 0),
    }
    counted = {
        f"blindsight_answers_received_total{{{FEED}}}": gauge(received, received),
        f"blindsight_predictions_total{{{MODEL}}}": predictions,
    }
    return counted | nothing


CASES = [
    Case(
        "BlindsightObjectiveBreached",
        "critical",
        WHO,
        "The last windows together are on the wrong side of the objective. Labels say 84.2 %. Check releases "
        "of the model and its features first.",
        states("blindsight_objective_state", ACCURACY, "met", "breached", "at_risk") | IN_CONTROL | OBJECTIVE,
        *(60, 31, 25, 32, 40, 50),
        summary="toxicity/erm: accuracy about 85.1 % (83.2 to 87), misses its objective of 90 %",
    ),
    Case(
        "BlindsightObjectiveAtRisk",
        "warning",
        WHO,
        "The last windows together reach the wrong side of the objective. Labels say 84.2 %. Watch the next "
        "windows, and check releases of the model and its features.",
        states("blindsight_objective_state", ACCURACY, "met", "at_risk", "breached") | IN_CONTROL | OBJECTIVE,
        *(60, 31, 25, 32, 40, 50),
        summary="toxicity/erm: accuracy about 85.1 % (83.2 to 87), may miss its objective of 90 %",
    ),
    Case(
        "BlindsightObjectiveAtRisk",
        "warning",
        {**WHO, "group": "region=eu"},
        "The last windows together reach the wrong side of the objective. Watch the next windows, and check "
        "releases of the model and its features.",
        states("blindsight_group_objective_state", f'{EU},metric="accuracy"', "met", "breached", "at_risk")
        | states("blindsight_group_state", EU, "in_control", "in_control", "warming_up", "silent")
        | OBJECTIVE,
        *(60, 31, 25, 32, 40, 50),
        summary="toxicity/erm, region=eu: accuracy, may miss its objective of 90 %",
    ),
    Case(
        "BlindsightOutOfControl",
        "warning",
        WHO,
        "The change is more than chance. It changed by -3.1 points: 2.4 from region=eu, 0.5 from region=us; "
        "by feature: 2.7 from hour, 0.3 from other causes. Check releases of the model and its features "
        "first.",
        {
            f"blindsight_out_of_control{{{ACCURACY}}}": gauge(0, 1),
            f"blindsight_control_center_ratio{{{ACCURACY}}}": gauge(0.94, 0.94),
            f'blindsight_estimate_ratio{{{ACCURACY},estimator="average_confidence"}}': gauge(0.94, 0.92),
            f'blindsight_estimate_ratio{{{ACCURACY},estimator="corrected"}}': gauge(0.94, 0.913),
            f"blindsight_alarm_change_ratio{{{ACCURACY}}}": gauge(None, -0.031),
            f'blindsight_alarm_part_change_ratio{{{ACCURACY},part="region=us"}}': gauge(None, -0.005),
            f'blindsight_alarm_part_change_ratio{{{ACCURACY},part="region=eu"}}': gauge(None, -0.024),
            f'blindsight_alarm_part_change_ratio{{{ACCURACY},part="same_features"}}': gauge(None, -0.003),
            f'blindsight_alarm_part_change_ratio{{{ACCURACY},part="feature=hour"}}': gauge(None, -0.027),
        },
        *(60, 31, 25, 32, 40, 50),
        summary="toxicity/erm: accuracy about 91.3 %, was 94 %",
    ),
    Case(
        "BlindsightOutOfControl",
        "warning",
        {**WHO, "group": "region=eu"},
        "The change is more than chance. It changed by +2.0 points: 2.1 from class=toxic. Check releases of "
        "the model and its features first.",
        {
            f'blindsight_group_out_of_control{{{EU},metric="accuracy"}}': gauge(0, 1),
            f"blindsight_group_estimate_ratio{{{EU},{CONFIDENCE}}}": gauge(0.86, 0.88),
            f'blindsight_group_alarm_change_ratio{{{EU},metric="accuracy"}}': gauge(None, 0.02),
            f'blindsight_group_alarm_part_change_ratio{{{EU},metric="accuracy",part="class=toxic"}}': gauge(
                None, 0.021
            ),
        },
        *(60, 31, 25, 32, 40, 50),
        summary="toxicity/erm, region=eu: accuracy about 88 %",
    ),
    Case(
        "BlindsightSharedChange",
        "critical",
        {"task": "toxicity", "metric": "accuracy"},
        "Most models of toxicity share a change that is more than chance: dro by -4.1 points, erm by -3.1 "
        "points, irm by -2.0 points. Check first what they have in common: features, clients, traffic, a "
        "release.",
        {
            f"blindsight_shared_breach{{{SHARED}}}": gauge(0, 1),
            f'blindsight_shared_alarm_change_ratio{{{SHARED},model="erm"}}': gauge(None, -0.031),
            f'blindsight_shared_alarm_change_ratio{{{SHARED},model="dro"}}': gauge(None, -0.041),
            f'blindsight_shared_alarm_change_ratio{{{SHARED},model="irm"}}': gauge(None, -0.02),
        },
        *(60, 31, 25, 32, 40, 50),
        summary="toxicity: accuracy of 3 models fell together, by about 3.1 points, an objective is missed",
    ),
    Case(
        "BlindsightSharedChange",
        "warning",
        {"task": "toxicity", "metric": "accuracy"},
        "Most models of toxicity share a change that is more than chance: dro by -4.1 points, erm by -3.1 "
        "points. Check first what they have in common: features, clients, traffic, a release.",
        {
            f"blindsight_shared_alarm{{{SHARED}}}": gauge(0, 1),
            f'blindsight_shared_alarm_change_ratio{{{SHARED},model="dro"}}': gauge(None, -0.041),
            f'blindsight_shared_alarm_change_ratio{{{SHARED},model="erm"}}': gauge(None, -0.031),
        },
        *(60, 16, 10, 32, 40, 50),
        summary="toxicity: accuracy of 2 models fell together, by about 3.6 points",
    ),
    Case(
        "BlindsightSharedChange",
        "mutes-critical",
        WHO,
        "This alert notifies nobody. While it fires, Alertmanager mutes critical alerts of this model and "
        "metric, because the critical BlindsightSharedChange of toxicity stands for them.",
        {
            f"blindsight_shared_breach{{{SHARED}}}": gauge(0, 1),
            f'blindsight_shared_alarm_change_ratio{{{SHARED},model="erm"}}': gauge(None, -0.031),
        },
        *(60, 31, 25, 32, 40, 50),
        summary="toxicity/erm: accuracy fell together with that of other models, an objective is missed",
    ),
    Case(
        "BlindsightSharedChange",
        "mutes-warnings",
        WHO,
        "This alert notifies nobody. While it fires, Alertmanager mutes warnings of this model and metric, "
        "because BlindsightSharedChange of toxicity stands for them.",
        {
            f"blindsight_shared_alarm{{{SHARED}}}": gauge(0, 1),
            f'blindsight_shared_alarm_change_ratio{{{SHARED},model="erm"}}': gauge(None, -0.031),
        },
        *(60, 16, 10, 32, 40, 50),
        summary="toxicity/erm: accuracy fell together with that of other models",
    ),
    Case(
        "BlindsightEstimateUntrusted",
        "warning",
        WHO,
        "Do not rely on the estimates. It is 5.2 points lower than estimated. Use the values by labels "
        "meanwhile, and check whether the meaning of the labels has changed.",
        {
            f"blindsight_estimate_trusted{{{ACCURACY}}}": gauge(1, 0),
            f"blindsight_estimate_bias_ratio{{{ACCURACY}}}": gauge(None, -0.052),
        }
        | IN_CONTROL,
        *(60, 31, 25, 32, 40, 50),
        summary="toxicity/erm: labels contradict the estimated accuracy",
    ),
    Case(
        "BlindsightEstimateUntrusted",
        "warning",
        {**WHO, "group": "region=eu"},
        "Do not rely on the estimates. It is 5.2 points lower than estimated. Use the values by labels "
        "meanwhile, and check whether the meaning of the labels has changed.",
        {
            f"blindsight_estimate_trusted{{{ACCURACY}}}": gauge(1, 1),
            f'blindsight_group_estimate_trusted{{{EU},metric="accuracy"}}': gauge(1, 0),
            f'blindsight_group_estimate_bias_ratio{{{EU},metric="accuracy"}}': gauge(None, -0.052),
        }
        | states("blindsight_group_state", EU, "in_control", "in_control", "warming_up", "silent"),
        *(60, 31, 25, 32, 40, 50),
        summary="toxicity/erm, region=eu: labels contradict the estimated accuracy",
    ),
    Case(
        "BlindsightFeatureBroken",
        "warning",
        {"task": "toxicity", "model": "erm"},
        "Estimates of erm do not count until this is repaired. Check what computes these features, and the "
        "latest releases of it.",
        {
            f'blindsight_untrusted{{{MODEL},reason="feature"}}': gauge(0, 1),
            f'blindsight_feature_broken_ratio{{{MODEL},feature="carrier",fault="unseen"}}': gauge(None, 0.08),
            f'blindsight_feature_broken_ratio{{{MODEL},feature="hour",fault="missing"}}': gauge(None, 0.412),
        }
        | IN_CONTROL,
        *(60, 31, 25, 32, 40, 50),
        summary="toxicity/erm: broken features: hour (missing in 41.2 % of rows), carrier (unseen in 8 % "
        "of rows)",
    ),
    Case(
        "BlindsightFeatureDrifted",
        "warning",
        {"task": "toxicity", "model": "erm"},
        "Estimates of erm still count. Check what computes these values; if they are right, take a newer "
        "reference.",
        {
            f'blindsight_feature_drift_alarm{{{MODEL},feature="carrier"}}': gauge(0, 1),
            f'blindsight_feature_drift_alarm{{{MODEL},feature="hour"}}': gauge(0, 1),
            f'blindsight_feature_drift_alarm{{{MODEL},feature="origin"}}': gauge(0, 0),
        }
        | IN_CONTROL,
        *(60, 31, 25, 32, 40, 50),
        summary="toxicity/erm: features have other values than in the reference: carrier, hour",
    ),
    Case(
        "BlindsightLabelsConflict",
        "warning",
        {"task": "toxicity", "model": "erm"},
        "More of the newest labels than labels.max_replaced allows replaced another label for their id. The "
        "fit before stays in use. Check who sends other labels for answers that have one.",
        {f"blindsight_recalibration_held{{{MODEL}}}": gauge(0, 1)},
        *(60, 31, 25, 32, 40, 50),
        summary="toxicity/erm: labels contradict each other, so no fit on labels begins",
    ),
    Case(
        "BlindsightLabelsConflict",
        "warning",
        {"task": "toxicity"},
        "More of the newest labels than labels.max_replaced allows replaced another label for their id. The "
        "fit before stays in use. Check who sends other labels for answers that have one.",
        {f"blindsight_refit_held{{{LABELS}}}": gauge(0, 1)},
        *(60, 31, 25, 32, 40, 50),
        summary="toxicity: labels contradict each other, so no fit on labels begins",
    ),
    Case(
        "BlindsightAgentDown",
        "critical",
        {},
        "Prometheus could scrape no agent of job blindsight for five minutes. Nobody watches the models, "
        "which go on answering. Check first whether the process runs, and the last lines of its log. If it "
        "does not run, start it: with a store it goes on where it was. If it ends at once, "
        "`blindsight check CONFIG` says why. If it runs, check the network, the port of export.listen and "
        "the service discovery.",
        {f"up{{{AGENT}}}": gauge(1, 0)},
        *(30, 6, 4, 6, 120, None),
        scrapes=False,
    ),
    Case(
        "BlindsightAgentDown",
        "warning",
        {"instance": "agent:9109"},
        "Prometheus could not scrape agent:9109 of job blindsight for five minutes. Check first whether the "
        "process runs, and the last lines of its log; then the network and the port of export.listen.",
        {f"up{{{AGENT}}}": gauge(1, 0), 'up{job="blindsight",instance="other:9109"}': gauge(1, 1)},
        *(30, 6, 4, 6, 6, 9),
        scrapes=False,
    ),
    Case(
        "BlindsightNoWindowClosed",
        "warning",
        {"task": "toxicity", "model": "erm"},
        "No window of erm has closed for twice the longest time that a window takes. The figures shown "
        "are old. Check whether the model answers requests, and whether its answers reach the agent.",
        {f"blindsight_windows_closed_total{{{MODEL}}}": counter(1, 0)},
        *(90, 35, 32, 17, 30, 60),
        summary="toxicity/erm: too few answers for a window",
    ),
    Case(
        "BlindsightNoWindowClosed",
        "warning",
        {},
        "No window has closed for twice the longest time that a window takes. The figures shown "
        "are old. Check whether the model answers requests, and whether its answers reach the agent.",
        {
            f'blindsight_build_info{{{AGENT},version="1"}}': gauge(1, 1),
            f"blindsight_windows_closed_total{{{MODEL}}}": only_healthy(counter(1, 1)),
        },
        *(60, 21, 17, 17, 14, 22),
        summary="all tasks: too few answers for a window",
    ),
    Case(
        "BlindsightLagGrowing",
        "warning",
        {"instance": "agent:9109", "source": "answers"},
        "Source answers of agent:9109: 6.05k records wait; fewer waited half an hour ago.",
        {f"blindsight_source_lag_records{{{FEED}}}": piling(50, 500)},
        *(60, 22, 9, 27, 20, 30),
    ),
    Case(
        "BlindsightLabelJoinCollapsed",
        "warning",
        {"task": "toxicity"},
        "Task toxicity: 23.33% of the last hour's labels found their prediction, less than half of the "
        "share of the day before.",
        {
            f'blindsight_labels_total{{{LABELS},outcome="matched"}}': counter(2, 0),
            f'blindsight_labels_total{{{LABELS},outcome="expired"}}': counter(0, 0),
            f"blindsight_labels_waiting{{{LABELS}}}": piling(5, 2),
        },
        *(240, 46, 25, 60, 20, 80),
    ),
    Case(  # where none ever joined, there is no share of the day before
        "BlindsightLabelJoinCollapsed",
        "warning",
        {"task": "toxicity"},
        "Task toxicity: no label of the last hour found its prediction.",
        {
            f'blindsight_labels_total{{{LABELS},outcome="matched"}}': once_mended(2),
            f'blindsight_labels_total{{{LABELS},outcome="expired"}}': counter(0, 0),
            f"blindsight_labels_waiting{{{LABELS}}}": piling(0, 2),
        },
        *(60, 40, 35, 20, 20, 40),
    ),
    Case(
        "BlindsightAnswersRejected",
        "warning",
        {"source": "answers"},
        "Source answers: the agent rejected 5% of the answers of the last ten minutes. The rejects file or "
        "topic and the log give the reasons.",
        {
            f'blindsight_rejected_total{{{FEED},reason="malformed"}}': counter(0, 3),
            f'blindsight_rejected_total{{{FEED},reason="logits"}}': counter(0, 2),
            f"blindsight_answers_received_total{{{FEED}}}": counter(100, 100),
        },
        *(60, 18, 3, 30, 20, 30),
    ),
    Case(
        "BlindsightAnswersDuplicated",
        "warning",
        {},
        "Job blindsight: 20% of the answers of the last ten minutes had the id of an earlier answer of their "
        "model, so they count in no window.",
        {
            f"blindsight_duplicates_total{{{MODEL}}}": counter(0, 20),
            f"blindsight_answers_received_total{{{FEED}}}": counter(100, 100),
        },
        *(60, 18, 3, 30, 20, 30),
    ),
    Case(
        "BlindsightAnswersShed",
        "warning",
        {"source": "answers"},
        "Source answers: the agent dropped about 15 answers or labels within five minutes, because it had no "
        "room for them.",
        {f"blindsight_shed_total{{{FEED}}}": counter(0, 3)},
        *(60, 11, 3, 22, 15, 22),
    ),
    Case(
        "BlindsightAnswersShed",
        "warning",
        {"task": "toxicity"},
        "Task toxicity: the agent dropped about 15 answers or labels within five minutes, because it had no "
        "room for them.",
        {f'blindsight_labels_total{{{LABELS},outcome="shed"}}': counter(0, 3)},
        *(60, 11, 3, 22, 15, 22),
    ),
    Case(
        "BlindsightRecordsLost",
        "warning",
        {"source": "answers"},
        "Source answers: 4 within an hour. A followed file counts 1 for each gap, of unknown length. The log "
        "says where.",
        {f"blindsight_source_gap_records_total{{{FEED}}}": counter(0, 1)},
        *(60, 4, 0, 90, 20, 90),
    ),
    Case(
        "BlindsightRowsLeft",
        "warning",
        {"source": "answers"},
        "Source answers: 4 rows within an hour were not read. The log names the path.",
        {f"blindsight_rows_left_total{{{FEED}}}": counter(0, 1)},
        *(60, 4, 0, 90, 20, 90),
    ),
    Case(
        "BlindsightMetricsLeftOut",
        "warning",
        {"instance": "agent:9109"},
        "agent:9109 leaves out 4 families of metrics, because all of them are larger than export.max_bytes. "
        "Alerts that rest on them cannot fire.",
        {f"blindsight_families_left_out{{{AGENT}}}": gauge(0, 4)},
        *(60, 4, 2, 17, 17, 22),
    ),
    Case(
        "BlindsightRefitFailing",
        "warning",
        {"task": "toxicity"},
        "Task toxicity: about 15 refits failed and none succeeded. The last good fit stays in use and gets "
        "old.",
        {
            f"blindsight_refit_failures_total{{{LABELS}}}": counter(0, 1 / 60),
            f"blindsight_refit_last_success_timestamp_seconds{{{LABELS}}}": stopped_clock,
        },
        *(60, 905, 70, 17, 25, 35),
    ),
    Case(
        "BlindsightAccountingBroken",
        "warning",
        {"instance": "agent:9109"},
        "agent:9109: the agent received 1 more answers or labels than it used, keeps, or counted as not "
        "used. This is a bug of the agent.",
        balance(1000, gauge(1000, 999)),
        *(60, 11, 8, 17, 17, 22),
    ),
    Case(
        "BlindsightAccountingBroken",
        "warning",
        {"instance": "agent:9109"},
        "agent:9109: the agent received 3 more answers or labels than it used, keeps, or counted as not "
        "used. This is a bug of the agent.",
        balance(1030, gauge(1000, 1000))
        | {
            f"blindsight_comparisons_total{{{LABELS}}}": gauge(20, 17),
            f"blindsight_comparisons_pending{{{LABELS}}}": gauge(8, 8),
            f"blindsight_comparison_duplicates_total{{{LABELS}}}": gauge(2, 2),
        },
        *(60, 11, 8, 17, 17, 22),
    ),
    Case(
        "BlindsightAccountingBroken",
        "warning",
        {"instance": "agent:9109"},
        "agent:9109: the agent received 2 more answers or labels than it used, keeps, or counted as not "
        "used. This is a bug of the agent.",
        {
            f"blindsight_labels_received_total{{{FEED}}}": gauge(50, 50),
            f'blindsight_labels_total{{{LABELS},outcome="matched"}}': gauge(40, 40),
            f"blindsight_labels_waiting{{{LABELS}}}": gauge(10, 8),
        },
        *(60, 11, 8, 17, 17, 22),
    ),
    Case(
        "BlindsightModelUnranked",
        "warning",
        {"task": "chat", "model": "alpha"},
        "alpha was ranked within the last 1d. The page says why it is not now.",
        {
            f"blindsight_arena_coefficient{{{ALPHA}}}": only_healthy(gauge(0.3, 0.3)),
            f'blindsight_arena_unknown{{{ALPHA},reason="fewer than 20 verdicts by humans"}}': gauge(None, 1),
        },
        *(60, 31, 12, 47, 40, 50),
        summary="chat/alpha: no rank now",
    ),
    Case(
        "BlindsightNoWindowClosed",
        "warning",
        {"task": "chat"},
        "No window has closed for twice the longest time that a window takes. The figures shown "
        "are old. Check whether the model answers requests, and whether its answers reach the agent.",
        {f"blindsight_arena_windows_closed_total{{{CHAT}}}": counter(1, 0)},
        *(90, 35, 32, 17, 30, 60),
        summary="chat: too few answers for a window",
    ),
    Case(
        "BlindsightAccountingBroken",
        "warning",
        {"instance": "agent:9109"},
        "agent:9109: the agent received 3 more answers or labels than it used, keeps, or counted as not "
        "used. This is a bug of the agent.",
        {
            f"blindsight_answers_received_total{{{FEED}}}": gauge(30, 30),
            f'blindsight_rejected_total{{{FEED},reason="malformed"}}': gauge(0, 0),
            f"blindsight_shed_total{{{FEED}}}": gauge(0, 0),
            f"blindsight_series_dropped_total{{{AGENT}}}": gauge(0, 0),
            f"blindsight_comparisons_total{{{CHAT}}}": gauge(20, 17),
            f"blindsight_comparisons_pending{{{CHAT}}}": gauge(8, 8),
            f"blindsight_comparison_duplicates_total{{{CHAT}}}": gauge(2, 2),
        },
        *(60, 11, 8, 17, 17, 22),
    ),
]
"""At least one for every alert and every cause that it has; each ends with its minutes as `Case` has them."""
