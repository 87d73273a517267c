"""Every alert through the real promtool: when it fires and when not, what it survives, and when it ends."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from urllib.parse import urlencode

import pytest
import yaml

from monitor.export.page.addresses import external_address
from monitor.export.rules import Format, RuleSettings, page_url, rendered, rule_groups, with_links
from tests.export.rules.alert_cases import ACCURACY, CASES, IN_CONTROL, MODEL, OBJECTIVE, WHO, balance
from tests.export.rules.alert_timelines import (
    Case,
    Question,
    Values,
    begun_anew,
    firing,
    gauge,
    promql_test,
    question,
    samples,
    states,
)
from tests.services.process import ServiceUnavailable
from tests.services.prometheus_server import binary, promtool_check_rules, promtool_test_rules

DEPLOY = Path(__file__).parents[3] / "deploy" / "prometheus"
SHIPPED = (DEPLOY / Format.PROMETHEUS.file).read_text(encoding="utf-8")
HOUR = 60

pytestmark = pytest.mark.prometheus
QUESTIONS: dict[str, Callable[[], Question]] = {}
"""By the tests' names: one promtool answers all of them, as its start takes longer than most answers."""


def _ask(name: str, question: Callable[[], Question]) -> None:
    assert name not in QUESTIONS, name
    QUESTIONS[name] = question


def each(ask: Callable[[Case], Question], cases: Sequence[Case] = CASES) -> Callable[[Case], Question]:
    """Ask it of every case."""
    for number, case in enumerate(cases):
        _ask(f"{ask.__name__}-{case.id}-{number}", partial(ask, case))
    return ask


def once(ask: Callable[[], Question]) -> Callable[[], Question]:
    """Ask it."""
    _ask(ask.__name__, ask)
    return ask


@pytest.fixture(autouse=True)
def _promtool() -> None:
    try:
        binary("promtool")
    except ServiceUnavailable as missing:
        pytest.skip(str(missing))


def never(case: Case, until: int) -> dict[str, object]:
    """Return the question that no alert of its name and severity has fired by then, whatever its labels."""
    chosen = f'alertname="{case.alert}",severity="{case.severity}",alertstate="firing"'
    return promql_test(f"max_over_time(ALERTS{{{chosen}}}[2d])", until)


def fires(case: Case, minute: int) -> dict[str, object]:
    series = firing(case.alert, case.identity())
    return promql_test(series, minute, series)


def silent(case: Case, minute: int) -> dict[str, object]:
    return promql_test(firing(case.alert, case.identity()), minute)


def verdict(case: Case, timeline: str, *expected: dict[str, object]) -> Question:
    return question(
        alone(case.alert, case.severity.startswith("mutes-")),
        samples(case, timeline),
        {"promql_expr_test": list(expected)},
    )


@cache
def alone(alert: str, mutes: bool = False) -> str:
    """Return the shipped rules of one name: with all of them every test would take ten times as long.

    The rules that notify nobody are left out, or are the only ones.
    """
    groups = yaml.safe_load(SHIPPED)["groups"]
    rules = [rule for group in groups for rule in group["rules"] if rule["alert"] == alert]
    rules = [rule for rule in rules if rule["labels"]["severity"].startswith("mutes-") == mutes]
    return yaml.safe_dump({"groups": [{"name": "one", "rules": rules}]})


@each
def it_fires_in_time_and_says_what_is_wrong(case: Case) -> Question:
    at = case.healthy + case.fires - 1
    timeline = "H" * case.healthy + "S" * case.fires
    annotations = {
        "summary": case.summary
        or next(
            alert.summary
            for group in rule_groups(RuleSettings())
            for alert in group.alerts
            if (alert.name, alert.severity) == (case.alert, case.severity)
        ),
        "description": case.description,
        "runbook_url": f"deploy/runbooks/{case.alert}.md",
    }
    expected = [{"exp_labels": case.identity(), "exp_annotations": annotations}]
    if case.alert == "BlindsightAgentDown":  # both severities have one name, and one agent is all of them
        expected += _other_severity(case)
    alert_test = {"eval_time": f"{at}m", "alertname": case.alert, "exp_alerts": expected}
    checks = {"promql_expr_test": [never(case, at - 1), fires(case, at)], "alert_rule_test": [alert_test]}
    return question(alone(case.alert, case.severity.startswith("mutes-")), samples(case, timeline), checks)


def _other_severity(case: Case) -> list[dict[str, object]]:
    if case.severity == "warning":
        return []  # the other agent still answers
    identity = {"severity": "warning", "job": "blindsight", "instance": "agent:9109"}
    annotations = {
        "summary": "A Blindsight agent does not answer.",
        "description": next(
            case.description
            for case in CASES
            if (case.alert, case.severity) == ("BlindsightAgentDown", "warning")
        ),
        "runbook_url": "deploy/runbooks/BlindsightAgentDown.md",
    }
    return [{"exp_labels": identity, "exp_annotations": annotations}]


@each
def it_does_not_fire_in_health(case: Case) -> Question:
    return verdict(case, "H" * (case.healthy + 3 * HOUR), never(case, case.healthy + 3 * HOUR - 1))


@each
def it_does_not_fire_on_a_blip(case: Case) -> Question:
    timeline = "H" * case.healthy + "S" * case.blip + "H" * 3 * HOUR
    return verdict(case, timeline, never(case, len(timeline) - 1))


@each
def blips_that_come_and_go_do_not_add_up(case: Case) -> Question:
    healthy = max(case.healthy, 2 * HOUR)
    timeline = ("H" * healthy + "S" * case.blip) * 3 + "H" * HOUR
    return verdict(case, timeline, never(case, len(timeline) - 1))


@each
def a_missed_scrape_neither_delays_nor_ends_it(case: Case) -> Question:
    sick = list("S" * (case.fires + 30))
    missed = "x" if case.scrapes else "."
    # One scrape in seven fails, but for the newest: a target that has just come back is all there is to see.
    sick[5 : case.fires - 2 : 7] = missed * len(sick[5 : case.fires - 2 : 7])
    sick[case.fires + 3 :: 7] = missed * len(sick[case.fires + 3 :: 7])
    timeline = "H" * case.healthy + "".join(sick)
    start = case.healthy + case.fires
    checks = [fires(case, minute) for minute in range(start, start + 30)]
    return verdict(case, timeline, never(case, case.healthy + case.fires - 2), *checks)


@each
def missing_data_does_not_resolve_it(case: Case) -> Question:
    end = case.healthy + case.fires + 5
    timeline = "H" * case.healthy + "S" * (case.fires + 5) + "x" + "." * (case.lives_on + 1)
    checks = [fires(case, end + minute) for minute in range(case.lives_on + 1)]
    return verdict(case, timeline, *checks)


@each
def a_stale_series_ends_it_in_the_end(case: Case) -> Question:
    """A model that was taken away must not fire for ever; but an agent that was taken away must."""
    end = case.healthy + case.fires + 5
    lasts = case.ends or 5 * HOUR
    timeline = "H" * case.healthy + "S" * (case.fires + 5) + "x" + "." * (lasts + 1)
    last = fires(case, end + lasts) if case.ends is None else silent(case, end + lasts)
    return verdict(case, timeline, fires(case, end), last)


@each
def recovery_ends_it_and_it_does_not_come_back(case: Case) -> Question:
    assert case.recovers is not None
    end = case.healthy + case.fires + 5
    timeline = "H" * case.healthy + "S" * (case.fires + 5) + "H" * (case.recovers + HOUR)
    checks = [silent(case, end + case.recovers + minute) for minute in range(0, HOUR, 7)]
    return verdict(case, timeline, fires(case, end), *checks)


def counting(ask: Callable[[Case], Question]) -> Callable[[Case], Question]:
    """The accounts begin again together with the pending rows, which are no counter: they agree as before."""
    return each(ask, [case for case in CASES if case.alert != "BlindsightAccountingBroken"])


def begun_at(case: Case, minute: int) -> Case:
    """Return the same case with an agent that starts in that minute without its counts."""
    series = {
        selector: begun_anew(values, minute) if "_total{" in selector else values
        for selector, values in case.series.items()
    }
    return replace(case, series=series)


@counting
def counters_that_begin_anew_raise_nothing(case: Case) -> Question:
    timeline = "H" * (case.healthy + 3 * HOUR)
    return verdict(begun_at(case, case.healthy), timeline, never(case, len(timeline) - 1))


@counting
def counters_that_begin_anew_do_not_end_it(case: Case) -> Question:
    restart = case.healthy + case.fires + 5
    checks = [fires(case, minute) for minute in range(restart - 1, restart + 30)]
    return verdict(begun_at(case, restart), "H" * case.healthy + "S" * (case.fires + 35), *checks)


def test_every_alert_has_a_case() -> None:
    known = {(a.name, a.severity) for group in rule_groups(RuleSettings()) for a in group.alerts}
    assert {(case.alert, case.severity) for case in CASES} == known


@pytest.mark.parametrize("selector", ['job="blindsight"', 'job=~"models/.*",cluster="eu"'])
@pytest.mark.parametrize("scale", [1.0, 0.001])
def test_promtool_finds_no_fault_in_the_rules(selector: str, scale: float) -> None:
    settings = RuleSettings(
        selector,
        scale=scale,
        dashboard="https://grafana.example/d/model",
        external_url="https://models.example/b",
    )
    assert promtool_check_rules(rendered(rule_groups(settings), settings, Format.PROMETHEUS)) == []


# ── who pages, and who does not ──

BREACHED = CASES[0]


def of_model(series: dict[str, Values]) -> Case:
    return Case(
        **{name: getattr(BREACHED, name) for name in BREACHED.__dataclass_fields__} | {"series": series}
    )


def objective(who: str = ACCURACY) -> dict[str, Values]:
    return states("blindsight_objective_state", who, "met", "breached", "at_risk")


@once
def a_model_that_is_warming_up_never_fires() -> Question:
    warming = states("blindsight_state", MODEL, "warming_up", "warming_up", "in_control", "silent")
    case = of_model(objective() | warming | OBJECTIVE)
    return verdict(case, "S" * 3 * HOUR, never(case, 3 * HOUR - 1))


@once
def a_model_that_fell_silent_while_warming_up_never_fires() -> Question:
    silent_now = states("blindsight_state", MODEL, "warming_up", "silent", "in_control")
    case = of_model(objective() | silent_now | OBJECTIVE)
    return verdict(case, "H" * HOUR + "S" * 3 * HOUR, never(case, 4 * HOUR - 1))


@once
def a_model_that_fell_silent_later_goes_on_firing() -> Question:
    silent_now = states("blindsight_state", MODEL, "silent", "silent", "in_control", "warming_up")
    charted: dict[str, Values] = {f"blindsight_out_of_control{{{ACCURACY}}}": gauge(1, 1)}
    case = of_model(objective() | silent_now | charted | OBJECTIVE)
    return verdict(case, "H" * HOUR + "S" * 3 * HOUR, fires(case, HOUR + 30), fires(case, 4 * HOUR - 1))


@once
def a_replica_that_is_warming_up_does_not_silence_the_others() -> Question:
    fresh = MODEL.replace("agent", "fresh")
    warming = states("blindsight_state", fresh, "warming_up", "warming_up", "in_control", "silent")
    met = states("blindsight_objective_state", f'{fresh},metric="accuracy"', "met", "met", "breached")
    case = of_model(objective() | IN_CONTROL | warming | met | OBJECTIVE)
    return verdict(case, "H" * HOUR + "S" * HOUR, fires(case, 2 * HOUR - 1))


@once
def a_rolled_over_pod_is_the_same_alert() -> Question:
    """The first pod ends at the 100th minute and another one takes its place: one alert, never resolved."""

    def only(first: int, last: int, values: Values) -> Values:
        return lambda letters: [
            value if first <= minute < last else None for minute, value in enumerate(values(letters))
        ]

    old, new = ('pod="a"', 0, 100), ('pod="b"', 110, 10_000)
    series = {
        selector.replace("task=", f"{pod},task=", 1): only(first, last, values)
        for pod, first, last in (old, new)
        for selector, values in (objective() | IN_CONTROL).items()
    }
    case = of_model(series)
    checks = [fires(case, minute) for minute in range(HOUR + 30, 4 * HOUR, 5)]
    return verdict(case, "H" * HOUR + "S" * 3 * HOUR, *checks)


@once
def an_alarm_from_before_the_first_scrape_fires() -> Question:
    """The agent came before Prometheus, or has a store."""
    case = next(case for case in CASES if case.alert == "BlindsightOutOfControl")
    annotations = {
        "summary": case.summary,
        "description": case.description,
        "runbook_url": f"deploy/runbooks/{case.alert}.md",
    }
    alert_test = {
        "eval_time": "30m",
        "alertname": case.alert,
        "exp_alerts": [{"exp_labels": case.identity(), "exp_annotations": annotations}],
    }
    checks = {"promql_expr_test": [never(case, 29), fires(case, 30)], "alert_rule_test": [alert_test]}
    return question(alone(case.alert, case.severity.startswith("mutes-")), samples(case, "S" * HOUR), checks)


@once
def the_text_has_the_estimate_that_the_chart_judges() -> Question:
    """The charts of other metrics judge average_confidence, whatever judges the accuracy."""
    case = next(case for case in CASES if case.alert == "BlindsightOutOfControl")
    eu = f'{MODEL},group="region=eu"'
    series: dict[str, Values] = {
        f'blindsight_model_info{{{MODEL},chart_estimator="doc"}}': gauge(1, 1),
        f'blindsight_group_model_info{{{eu},chart_estimator="doc"}}': gauge(1, 1),
    }
    expected: list[dict[str, object]] = []
    for of_group, who, group in (("", MODEL, {}), ("group_", eu, {"group": "region=eu"})):
        for metric, shown in (("accuracy", "82.5"), ("recall", "92")):
            series[f'blindsight_{of_group}out_of_control{{{who},metric="{metric}"}}'] = gauge(0, 1)
            named = f'{who},metric="{metric}"'
            series[f'blindsight_{of_group}estimate_ratio{{{named},estimator="average_confidence"}}'] = gauge(
                0.94, 0.92
            )
            if metric == "accuracy":
                series[f'blindsight_{of_group}estimate_ratio{{{named},estimator="doc"}}'] = gauge(0.94, 0.825)
            annotations = {
                "summary": f"toxicity/erm{', region=eu' if group else ''}: {metric} about {shown} %",
                "description": "The change is more than chance. Check releases of the model and its features "
                "first.",
                "runbook_url": f"deploy/runbooks/{case.alert}.md",
            }
            identity = {**case.identity(), "metric": metric, **group}
            expected.append({"exp_labels": identity, "exp_annotations": annotations})
    alert_test = {"eval_time": "90m", "alertname": case.alert, "exp_alerts": expected}
    judged = replace(case, series=series)
    return question(
        alone(case.alert, case.severity.startswith("mutes-")),
        samples(judged, "S" * 2 * HOUR),
        {"alert_rule_test": [alert_test]},
    )


@once
def an_alarm_outlasts_a_day_in_which_no_window_broke_a_rule() -> Question:
    """A model with a window a day, or one that fell silent: its eight windows in control are to come."""
    case = next(case for case in CASES if case.alert == "BlindsightOutOfControl")
    timeline = "H" * case.healthy + "S" * 27 * HOUR
    end = len(timeline) - 1
    return verdict(case, timeline, fires(case, end))


@once
def a_models_lost_trust_stands_for_that_of_its_groups() -> Question:
    of_model, of_group = (case for case in CASES if case.alert == "BlindsightEstimateUntrusted")
    series = of_group.series | of_model.series  # both lost
    both = Case(**{n: getattr(of_group, n) for n in of_group.__dataclass_fields__} | {"series": series})
    end = of_group.healthy + HOUR
    checks = [fires(of_model, end), silent(both, end)]
    return verdict(both, "H" * of_group.healthy + "S" * 2 * HOUR, *checks)


@once
def a_broken_feature_stands_for_labels_that_contradict_the_estimate() -> Question:
    """A group that labels contradict raises no alert of its own either."""
    broken = next(case for case in CASES if case.alert == "BlindsightFeatureBroken")
    of_model, of_group = (case for case in CASES if case.alert == "BlindsightEstimateUntrusted")
    series = of_group.series | of_model.series | broken.series
    all_three = replace(of_model, series=series)
    end = of_model.healthy + 2 * HOUR - 1
    return verdict(all_three, "H" * of_model.healthy + "S" * 2 * HOUR, never(all_three, end))


@once
def accounts_do_not_count_where_series_were_cut() -> Question:
    broken = next(case for case in CASES if case.alert == "BlindsightAccountingBroken")
    cut = {name: gauge(1, 1) if "series_dropped" in name else v for name, v in broken.series.items()}
    case = Case(**{n: getattr(broken, n) for n in broken.__dataclass_fields__} | {"series": cut})
    assert set(balance(1000, gauge(1000, 999))) == set(cut)
    return verdict(case, "H" * HOUR + "S" * HOUR, never(case, 2 * HOUR - 1))


@once
def rules_of_one_task_leave_the_others_alone() -> Question:
    from monitor.export.rules import Pace

    settings = RuleSettings(paces=(Pace("toxicity", 300.0), Pace("spam", 3600.0, 3600.0)))
    rules = rendered(rule_groups(settings), settings, Format.PROMETHEUS)
    assert promtool_check_rules(rules) == []
    spam = {name.replace("toxicity", "spam"): values for name, values in BREACHED.series.items()}
    both = of_model({**BREACHED.series, **spam})
    mine = firing(BREACHED.alert, {"severity": "critical", "job": "blindsight", **WHO})
    other = mine.replace("toxicity", "spam")
    alerts = 'sum without (none) (ALERTS{alertname="BlindsightObjectiveBreached",alertstate="firing"})'
    label = [each.removeprefix("ALERTS") for each in (mine, other)]
    checks = [promql_test(alerts, HOUR + 11, label[0]), promql_test(alerts, HOUR + 121, label[0], label[1])]
    timeline = "H" * HOUR + "S" * 3 * HOUR
    return question(rules, samples(both, timeline), {"promql_expr_test": checks})


@once
def an_alert_leads_to_the_page_of_its_model_whatever_its_name() -> Question:
    """Prometheus writes the address as the agent does: names from outside cannot break it."""
    name = 'org/erm 100 % <b>&+=?#"é\\模型..'
    outside = "https://models.example/b"
    settings = RuleSettings(external_url=outside)
    [rule] = [
        rule
        for group in yaml.safe_load(rendered(rule_groups(settings), settings, Format.PROMETHEUS))["groups"]
        for rule in group["rules"]
        if rule["alert"] == BREACHED.alert
    ]
    quoted = json.dumps(name, ensure_ascii=False)
    series = {key.replace('"erm"', quoted): values for key, values in BREACHED.series.items()}
    case = Case(**{n: getattr(BREACHED, n) for n in BREACHED.__dataclass_fields__} | {"series": series})
    page = external_address(outside, "toxicity", name, metric="accuracy")
    runbook = f"{outside}/runbooks/{BREACHED.alert}?{urlencode({'task': 'toxicity', 'model': name})}"
    annotations = {
        "summary": BREACHED.summary.replace("erm", name),
        "description": with_links(BREACHED.description, page, runbook),
        "runbook_url": runbook,
        "page_url": page,
    }
    identity = {**BREACHED.identity(), "model": name}
    alert_test = {
        "eval_time": f"{case.healthy + case.fires}m",
        "alertname": case.alert,
        "exp_alerts": [{"exp_labels": identity, "exp_annotations": annotations}],
    }
    timeline = "H" * case.healthy + "S" * (case.fires + 1)
    rules = yaml.safe_dump({"groups": [{"name": "one", "rules": [rule]}]})
    return question(rules, samples(case, timeline), {"alert_rule_test": [alert_test]})


@once
def an_alert_on_a_group_leads_to_its_page_and_one_on_a_task_to_its_models() -> Question:
    settings = RuleSettings(external_url="https://models.example")
    template = page_url(settings.external_url)
    rules = [
        {"alert": "OfGroup", "expr": "of_group", "annotations": {"page_url": template}},
        {"alert": "OfTask", "expr": "of_task", "annotations": {"page_url": template}},
        {"alert": "OfAgent", "expr": "of_agent", "annotations": {"page_url": template}},
    ]
    who = {"task": "spam & ham", "model": "erm", "group": "region=eu"}
    labels = ",".join(f'{key}="{value}"' for key, value in who.items())
    series = [
        {"series": f"of_group{{{labels}}}", "values": "1"},
        {"series": 'of_task{task="spam & ham"}', "values": "1"},
        {"series": "of_agent", "values": "1"},
    ]
    pages = {
        "OfGroup": (who, external_address("https://models.example", "spam & ham", "erm", "region=eu")),
        "OfTask": ({"task": "spam & ham"}, "https://models.example/?task=spam+%26+ham"),
        "OfAgent": ({}, "https://models.example/"),
    }
    alert_tests = [
        {
            "eval_time": "0m",
            "alertname": alert,
            "exp_alerts": [{"exp_labels": labels, "exp_annotations": {"page_url": page}}],
        }
        for alert, (labels, page) in pages.items()
    ]
    text = yaml.safe_dump({"groups": [{"name": "one", "rules": rules}]})
    return question(text, series, {"alert_rule_test": alert_tests})


@pytest.fixture(scope="module")
def verdicts() -> dict[str, list[str]]:
    """Return the failures that promtool reports, by question."""
    return dict(zip(QUESTIONS, promtool_test_rules([ask() for ask in QUESTIONS.values()]), strict=True))


@pytest.mark.parametrize("name", QUESTIONS)
def test_promtool_agrees_that(name: str, verdicts: dict[str, list[str]]) -> None:
    assert verdicts[name] == [], "\n".join(verdicts[name])


def test_what_is_wrong_is_told_of_the_question_that_it_belongs_to() -> None:
    healthy, sick = ("H" * (BREACHED.healthy + HOUR), "S" * HOUR)
    last = BREACHED.healthy + HOUR - 1
    right = verdict(BREACHED, healthy, never(BREACHED, last))
    wrong = verdict(BREACHED, healthy + sick, never(BREACHED, last + HOUR))
    no_question = right[0], json.dumps({"unknown": 1})
    failures = promtool_test_rules([right, wrong, no_question, right])
    assert [bool(each) for each in failures] == [False, True, True, False]
    assert "BlindsightObjectiveBreached" in "".join(failures[1])
