"""Alerts straight to Alertmanager: what holds, when it is told, and a real Alertmanager that is told."""

from __future__ import annotations

import dataclasses
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from monitor.base.errors import ConfigError
from monitor.cli.outputs import alert_pushers
from monitor.config.alertmanager import Alertmanager
from monitor.config.file import config_from
from monitor.config.root import Config
from monitor.export.alertmanager.holding import (
    BREACHED,
    NO_WINDOW,
    SHARED,
    active_conditions,
    closed_windows,
)
from monitor.export.alertmanager.pusher import AlertPusher
from monitor.export.page.addresses import external_address
from monitor.export.rules import RuleSettings
from monitor.reports.features import BrokenFeature, FeatureCounts
from monitor.reports.statements import describe, describe_broken_features
from monitor.reports.trust import Bias, Trust
from monitor.reports.views import (
    AgentView,
    AlarmByLabels,
    ChartView,
    EngineView,
    ObjectiveState,
    ObjectiveView,
    RecalibrationsView,
    RefitView,
    SeriesState,
    SeriesView,
)
from monitor.stats.charts.base import Verdict
from tests.daemon import DaemonProcess, configuration
from tests.export.prometheus.scrape import WATCHED
from tests.export.rules.test_end_to_end import DEGRADED, Stream
from tests.services.alertmanager_server import AlertmanagerServer, example
from tests.services.process import free_ports, wait_until
from tests.services.webhook import Webhook

RESEND = 60.0
PATIENCE = 1800.0


def patience(task: str) -> float:
    return PATIENCE


CALM = dataclasses.replace(
    WATCHED,
    state=SeriesState.IN_CONTROL,
    charts=(ChartView("accuracy", Verdict(0.94, 0.92, 0.96, (), False)),),
    objectives=(ObjectiveView("accuracy", 0.9, True, ObjectiveState.MET),),
    trust=Trust(True, 1.0, 1200, None),
    features=None,
    broken_features=(),
)
LOST = BrokenFeature("hour", "missing", 0.412, 0.002)
UNCHARTED = FeatureCounts({"origin": "number"}, 500)
vars(UNCHARTED)["rates"] = WATCHED.feature_rates
ODD = BrokenFeature("origin", "unseen", 0.3, 0.0)
BELOW = AlarmByLabels(0.9, 0.92, 0.96, 1200, confidences_moved=True)
LOW = dataclasses.replace(CALM, objectives=(ObjectiveView("accuracy", 0.9, True, ObjectiveState.BREACHED),))


def view(*series: SeriesView) -> AgentView:
    return AgentView(engine=EngineView(series=series))


def names(*series: SeriesView) -> list[str]:
    return [each.name.removeprefix("Blindsight") for each in active_conditions(view(*series))]


# ── what holds ──


def test_nothing_holds_of_a_model_that_does_well() -> None:
    assert names(CALM) == []


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"objectives": LOW.objectives}, ["ObjectiveBreached", "ObjectiveAtRisk"]),
        ({"objectives": LOW.objectives, "group": "region=eu"}, ["ObjectiveAtRisk"]),
        ({"objectives": (ObjectiveView("ece", 0.1, False, ObjectiveState.AT_RISK),)}, ["ObjectiveAtRisk"]),
        ({"objectives": (ObjectiveView("ece", 0.1, False, None),)}, []),
        ({"objectives": (ObjectiveView("ece", 0.1, False, ObjectiveState.NOT_PROVEN),)}, []),
        ({"charts": WATCHED.charts}, ["OutOfControl"]),
        ({"charts": (ChartView("ece", Verdict(0.02, 0.0, 0.03, ("we1",), True)),)}, []),
        ({"charts": (ChartView("accuracy", Verdict(0.9, 0.88, 0.92, ("we1",), False, improved=True)),)}, []),
        ({"charts": (dataclasses.replace(WATCHED.charts[0], by_labels=BELOW),)}, ["OutOfControl"]),
        (
            {"charts": (ChartView("accuracy", Verdict(0.9, 0.88, 0.92, ("we1",), False), by_labels=BELOW),)},
            [],
        ),
        ({"trust": Trust(False, 23.5, 1200, Bias(-0.05, -0.08, -0.02, 0.95, 310))}, ["EstimateUntrusted"]),
        ({"trust": None}, []),
        ({"broken_features": (LOST,)}, ["FeatureBroken"]),
        ({"broken_features": (LOST,), "trust": Trust(False, 23.5, 1200)}, ["FeatureBroken"]),
        ({"features": WATCHED.features}, ["FeatureDrifted"]),
        ({"features": WATCHED.features, "state": SeriesState.WARMING_UP, "charts": ()}, []),
        ({"features": UNCHARTED}, []),
        ({"features": WATCHED.features, "broken_features": (LOST,)}, ["FeatureBroken", "FeatureDrifted"]),
        ({"features": WATCHED.features, "broken_features": (ODD,)}, ["FeatureBroken"]),
        ({"recalibrations": RecalibrationsView({}, "6 of 100 labels …", held=True)}, ["LabelsConflict"]),
        ({"recalibrations": RecalibrationsView({}, "50 labels are needed")}, []),
        ({"state": SeriesState.SILENT}, ["NoWindowClosed"]),
        ({"state": SeriesState.SILENT, "group": "region=eu"}, []),
        ({"state": SeriesState.WARMING_UP, "objectives": LOW.objectives, "charts": ()}, []),
        ({"state": SeriesState.SILENT, "objectives": LOW.objectives, "charts": ()}, []),
    ],
)
def test_what_holds_has_the_names_of_the_rules(change: dict[str, Any], expected: list[str]) -> None:
    assert names(dataclasses.replace(CALM, **change)) == expected


def test_a_models_lost_trust_stands_for_that_of_its_groups() -> None:
    lost = dataclasses.replace(CALM, trust=Trust(False, 23.5, 1200))
    group = dataclasses.replace(lost, group="region=eu")
    other = dataclasses.replace(group, model="other")
    conditions = [dict(each.labels) for each in active_conditions(view(group, lost, other))]
    assert [(labels["model"], labels.get("group")) for labels in conditions] == [
        ("erm", None),
        ("other", "region=eu"),
    ]


def test_a_broken_feature_is_named_and_stands_for_the_lost_trust_of_groups() -> None:
    broken = dataclasses.replace(CALM, broken_features=(LOST,))
    group = dataclasses.replace(CALM, group="region=eu", trust=Trust(False, 23.5, 1200))
    (condition,) = active_conditions(view(group, broken))
    assert condition.statement == describe_broken_features(broken)
    assert dict(condition.labels) == {"task": "toxicity", "model": "erm"}


def test_a_feature_that_drifts_is_named() -> None:
    (condition,) = active_conditions(view(dataclasses.replace(CALM, features=WATCHED.features)))
    assert condition.statement.fact == "feature origin has other values than in the reference"
    assert dict(condition.labels) == {"task": "toxicity", "model": "erm"}


def test_an_alarm_says_where_the_change_is() -> None:
    (alarm,) = active_conditions(view(dataclasses.replace(CALM, charts=WATCHED.charts)))
    assert str(alarm.statement) == (
        "toxicity/erm: accuracy fell from 94 to about 91 % (89 to 94), must be at least 90 %"
    )
    assert alarm.statement.details == 'Mostly feature hour, mostly region="eu". No labels yet.'


def test_a_refit_that_does_not_begin_is_told_by_its_task() -> None:
    agent_view = AgentView(engine=EngineView(refits={"t": RefitView(refused="6 of 100 labels …", held=True)}))
    (conflict,) = active_conditions(agent_view)
    assert dict(conflict.identity) == {
        "alertname": "BlindsightLabelsConflict",
        "severity": "warning",
        "task": "t",
    }
    assert str(conflict.statement) == "t: labels contradict each other, so no fit on labels begins"
    assert conflict.statement.details == "6 of 100 labels …."


def test_an_alert_has_the_labels_of_the_rule_and_its_values_in_words() -> None:
    breached = next(active_conditions(view(LOW)))
    assert dict(breached.identity) == {
        "alertname": BREACHED,
        "severity": "critical",
        "task": "toxicity",
        "model": "erm",
        "metric": "accuracy",
    }
    assert str(breached.statement) == "toxicity/erm: accuracy about 91 % (89 to 94), must be at least 90 %"
    assert breached.statement == describe(LOW)


def fleet(fallen: int, quiet: int = 0, breached: bool = True) -> tuple[SeriesView, ...]:
    """Return models of one task, of which some share a fall of 4 sigma."""
    state = ObjectiveState.BREACHED if breached else ObjectiveState.MET
    objective = (ObjectiveView("accuracy", 0.9, True, state),)
    calm = dataclasses.replace(CALM, shared_seconds=2700.0)
    verdict = Verdict(0.94, 0.92, 0.96, ("we1",), True, deviation=-4.0)
    low = dataclasses.replace(calm, charts=(ChartView("accuracy", verdict),), objectives=objective)
    return (
        *(dataclasses.replace(low, model=f"m{i:02d}") for i in range(fallen)),
        *(dataclasses.replace(calm, model=f"q{i:02d}") for i in range(quiet)),
    )


def test_models_that_fall_together_are_a_condition_of_their_task() -> None:
    shared = [each for each in active_conditions(view(*fleet(4))) if each.name == SHARED]
    of_task = {"alertname": SHARED, "task": "toxicity", "metric": "accuracy"}
    models = [{"model": f"m{i:02d}"} for i in range(4)]
    assert [dict(each.identity) for each in shared] == [
        {**of_task, "severity": "warning"},
        *({**of_task, **model, "severity": "mutes-warnings"} for model in models),
        {**of_task, "severity": "critical"},
        *({**of_task, **model, "severity": "mutes-critical"} for model in models),
    ]
    assert str(shared[0].statement) == (
        "all 4 models of toxicity: accuracy fell by 2.7 points, a change that they share, and an objective "
        "is missed"
    )
    assert shared[0].statement.details.startswith("The objective is missed by m00, m01, m02 and m03.")
    assert {each.windows for each in shared} == {18}
    assert [each.at_once for each in shared] == [True] * 5 + [False] * 5, "a page waits for two windows"
    met = active_conditions(view(*fleet(4, breached=False)))
    assert {each.severity for each in met if each.name == SHARED} == {"warning", "mutes-warnings"}


def test_the_fall_of_one_model_beside_others_is_a_condition_of_the_model() -> None:
    assert names(*fleet(1, 19)) == ["ObjectiveBreached", "ObjectiveAtRisk", "OutOfControl"]
    assert "SharedChange" not in names(*fleet(2))


def test_the_windows_of_a_task_are_those_of_its_fastest_model() -> None:
    slow, fast = dataclasses.replace(CALM, windows_closed=3), dataclasses.replace(CALM, model="m")
    assert closed_windows(view(slow, fast)) == {
        ("toxicity", "erm", ""): 3,
        ("toxicity", "m", ""): 18,
        ("toxicity", "", ""): 18,
    }


# ── a real Alertmanager ──

NewAlertmanager = Callable[[str], AlertmanagerServer]


class Agent:
    """Something that shows whatever view a test puts into it."""

    def __init__(self, *series: SeriesView) -> None:
        self.series = series

    def __call__(self) -> AgentView:
        return view(*self.series)


def pusher(url: str, agent: Agent, **settings: Any) -> AlertPusher:
    chosen = Alertmanager(**{"urls": [url], "resend_seconds": 1.0, **settings})
    rules = RuleSettings(runbooks=chosen.runbooks, external_url="https://models.example/b")
    return AlertPusher(url, chosen, agent, "http://127.0.0.1:9109/", rules, patience)


def test_alertmanager_hears_of_an_alert_and_of_its_end(
    alertmanager: NewAlertmanager, webhook: Webhook
) -> None:
    receiver, agent = alertmanager(example(webhook.url)), Agent(LOW)
    push = pusher(
        receiver.url + "/", agent, labels={"job": "b", "cluster": "eu"}, runbooks="https://w.example/r/"
    )
    push.start()
    try:
        wait_until(lambda: bool(webhook.matching("/pager", "firing")), "it pages")
        [alert] = receiver.alerts(alertname=BREACHED)
        assert (alert["labels"]["job"], alert["labels"]["cluster"]) == ("b", "eu")
        assert alert["annotations"]["summary"] == str(describe(LOW))
        assert alert["annotations"]["runbook_url"] == "https://w.example/r/BlindsightObjectiveBreached.md"
        assert alert["annotations"]["page_url"] == external_address(
            "https://models.example/b", LOW.task, LOW.model, metric="accuracy"
        )
        assert alert["annotations"]["description"] == (
            f"{describe(LOW).explanation}\nPage: {alert['annotations']['page_url']}\n"
            f"Runbook: {alert['annotations']['runbook_url']}"
        )
        assert alert["generatorURL"] == "http://127.0.0.1:9109/"
        later = [receiver.alerts(alertname=BREACHED)[0]]
        wait_until(
            lambda: receiver.alerts(alertname=BREACHED)[0]["endsAt"] > later[0]["endsAt"],
            "it is told again",
        )
        assert receiver.alerts(alertname=BREACHED)[0]["startsAt"] == alert["startsAt"]
        agent.series = (dataclasses.replace(CALM, windows_closed=LOW.windows_closed + 2),)
        wait_until(lambda: bool(webhook.matching("/pager", "resolved")), "its end is told")
    finally:
        push.stop()
    assert len(webhook.matching("/pager", "firing")) == 1
    assert push.view.trouble is None
    assert push.view.delivered >= 3


def test_twenty_models_that_fall_together_are_one_page(
    alertmanager: NewAlertmanager, webhook: Webhook
) -> None:
    def silent(name: str) -> SeriesView:
        return dataclasses.replace(CALM, task=name, model=name, state=SeriesState.SILENT)

    receiver, agent = alertmanager(example(webhook.url)), Agent(silent("first"), *fleet(0, 20))
    push = pusher(receiver.url, agent)
    push.start()
    try:
        wait_until(lambda: bool(receiver.alerts(model="first")), "the first look is over")
        agent.series = fleet(20)
        wait_until(lambda: bool(webhook.matching("/tickets", "firing", alertname=SHARED)), "it warns")
        agent.series = tuple(dataclasses.replace(one, windows_closed=19) for one in fleet(20))
        wait_until(
            lambda: (
                [bool(one["status"]["inhibitedBy"]) for one in receiver.alerts(alertname=BREACHED)]
                == [True] * 20
            ),
            "the alert of the task inhibits those of the models",
        )
        agent.series += (silent("last"),)
        # An alert waits as long as any before it, so these have had their turn.
        wait_until(lambda: bool(webhook.matching("/tickets", "firing", model="last")), "a later alert shows")
    finally:
        push.stop()
    assert len(webhook.matching("/pager", "firing")) == 1
    of_models = [
        one
        for one in receiver.alerts(task="toxicity")
        if "model" in one["labels"] and one["labels"]["alertname"] != SHARED
    ]
    assert {one["status"]["state"] for one in of_models} == {"suppressed"}
    assert len(of_models) == 60


def test_a_model_outside_the_change_pages_though_the_shared_alert_is_silenced(
    alertmanager: NewAlertmanager, webhook: Webhook
) -> None:
    [low] = fleet(1)
    quiet = ChartView("accuracy", Verdict(0.94, 0.92, 0.96, (), False, deviation=0.0))
    outside = {
        "unmoved": dataclasses.replace(low, model="unmoved", charts=(quiet,)),
        "late": dataclasses.replace(low, model="late", window_end_time=(low.window_end_time or 0.0) - 1e5),
        "silent": dataclasses.replace(low, model="silent", state=SeriesState.SILENT),
    }
    receiver = alertmanager(example(webhook.url))
    for severity in ("warning", "critical"):
        receiver.silence(alertname=SHARED, severity=severity)
    push = pusher(receiver.url, Agent(*fleet(6), *outside.values()))

    def muted() -> list[str]:
        alerts = receiver.alerts(alertname=BREACHED)
        return sorted(one["labels"]["model"] for one in alerts if one["status"]["inhibitedBy"])

    def paged() -> set[str]:
        notices = webhook.matching("/pager", "firing")
        return {one["labels"]["model"] for notice in notices for one in notice["alerts"]}

    push.start()
    try:
        wait_until(lambda: paged() == outside.keys(), "the models outside the change page")
        wait_until(lambda: muted() == [f"m{i:02d}" for i in range(6)], "those that share it are muted")
    finally:
        push.stop()
    assert receiver.alerts(alertname=SHARED, severity="critical")[0]["status"]["state"] == "suppressed"
    assert webhook.matching("/tickets", "firing", alertname=SHARED) == []


def test_a_configured_agent_links_its_alerts_to_its_page_and_its_own_runbooks(
    alertmanager: NewAlertmanager, webhook: Webhook
) -> None:
    receiver = alertmanager(example(webhook.url))
    settings = {"urls": [receiver.url], "resend_seconds": 1.0}
    outside = "https://models.example/b"
    config = Config(tasks={LOW.task: {}}, alertmanager=settings, export={"external_url": outside})
    [push] = alert_pushers(config, Agent(LOW))
    push.start()
    push.stop()
    [alert] = receiver.alerts(alertname=BREACHED)
    assert alert["annotations"]["runbook_url"] == f"{outside}/runbooks/{BREACHED}?task=toxicity&model=erm"
    assert alert["annotations"]["page_url"] == external_address(outside, LOW.task, LOW.model, "", "accuracy")
    assert alert["generatorURL"] == outside


def test_what_the_last_windows_brought_is_told_on_the_way_out(
    alertmanager: NewAlertmanager, webhook: Webhook
) -> None:
    receiver = alertmanager(example(webhook.url))
    push = pusher(receiver.url, Agent(LOW))
    push.start()
    push.stop()
    assert len(receiver.alerts(alertname=BREACHED)) == 1
    assert (push.view.delivered, push.view.waiting) == (2, 0)


def test_an_alertmanager_that_is_away_hears_of_everything_when_it_is_back(
    alertmanager: NewAlertmanager, webhook: Webhook
) -> None:
    receiver = alertmanager(example(webhook.url))
    receiver.kill()
    agent = Agent(LOW)
    push = pusher(receiver.url, agent)
    push.start()
    try:
        wait_until(lambda: push.view.trouble is not None, "it is missed")
        assert push.view.trouble == (
            f"alertmanager.urls: {receiver.url} does not answer ([Errno 111] Connection refused); start it, "
            "or correct the address"
        )
        assert push.view.waiting == 2
        receiver.start()
        wait_until(lambda: bool(receiver.alerts(alertname=BREACHED)), "it is told")
        wait_until(lambda: push.view.trouble is None and push.view.waiting == 0, "all is told")
    finally:
        push.stop()
    assert push.view.failing_since is None


def test_an_alertmanager_that_refuses_is_quoted(alertmanager: NewAlertmanager, webhook: Webhook) -> None:
    receiver = alertmanager(example(webhook.url))
    push = pusher(receiver.url, Agent(LOW), external_url="not an address")
    push.start()
    try:
        wait_until(lambda: push.view.trouble is not None, "it refuses")
    finally:
        push.stop()
    assert re.match(
        r"alertmanager\.urls: http://\S+ refuses the alerts \(4\d\d: .*uri.*\); correct labels",
        str(push.view.trouble),
    )


def degrade(stream: Stream, done: Callable[[], bool]) -> None:
    """Send bad answers, a window each half second, until the alert shows."""

    def shows() -> bool:
        stream.add(100, "m", weights=DEGRADED)
        return done()

    wait_until(shows, "the degradation shows", pause=0.5)


def test_a_failing_push_is_a_sink_that_is_down_and_holds_nothing_up(tmp_path: Path) -> None:
    [port] = free_ports(1)
    config = configuration(
        sources=[{"kind": "file", "path": "in.ndjson", "follow": True}],
        alertmanager={"urls": [f"http://127.0.0.1:{port}", f"http://127.0.0.1:{port}/b"]},
        task={"objective": {"accuracy": {"min": 0.85}, "windows": 3}},
    )
    stream = Stream(tmp_path / "in.ndjson")
    stream.add(800, "m")
    with DaemonProcess(tmp_path, config) as daemon:
        daemon.until_value(8.0, "windows_closed_total", model="m")
        for sink in ("alertmanager_0", "alertmanager_1"):
            degrade(stream, lambda sink=sink: daemon.metrics().value("sink_up", sink=sink) == 0)  # type: ignore[misc]
        stream.add(2000, "m")
        daemon.until(lambda: daemon.metrics().total("windows_closed_total") >= 28, "it goes on reading")
        assert daemon.get("/-/ready")[0] == 200
        assert daemon.end()[0] == 0


def test_a_restart_neither_ends_an_alert_nor_pages_again(
    tmp_path: Path, alertmanager: NewAlertmanager, webhook: Webhook
) -> None:
    receiver = alertmanager(example(webhook.url))
    config = configuration(
        sources=[{"kind": "file", "path": "in.ndjson", "follow": True}],
        store={"path": "state"},
        alertmanager={"urls": [receiver.url], "resend_seconds": 10},
        task={"objective": {"accuracy": {"min": 0.85}, "windows": 3}},
    )
    stream = Stream(tmp_path / "in.ndjson")
    stream.add(800, "m")
    with DaemonProcess(tmp_path, config) as daemon:
        daemon.until_value(8.0, "windows_closed_total", model="m")
        degrade(stream, lambda: bool(webhook.matching("/pager", "firing", model="m")))
        [before] = receiver.alerts(alertname=BREACHED)
        daemon.end(signal.SIGKILL)
    with DaemonProcess(tmp_path, config) as daemon:
        wait_until(
            lambda: receiver.alerts(alertname=BREACHED)[0]["updatedAt"] > before["updatedAt"],
            "it is told again",
        )
        assert receiver.alerts(alertname=BREACHED)[0]["startsAt"] == before["startsAt"]
        stream.add(1200, "m")
        wait_until(lambda: bool(webhook.matching("/pager", "resolved", model="m")), "its end is told")
    assert len(webhook.matching("/pager", "firing", alertname=BREACHED)) == 1


# ── the configuration ──


@pytest.mark.parametrize(
    ("section", "message"),
    [
        (
            {"urls": ["localhost:9093"]},
            "alertmanager.urls: expected addresses such as 'http://127.0.0.1:9093', without a user, a query "
            "and /api/v2/alerts, got 'localhost:9093'",
        ),
        (
            {"urls": ["http://u:p@a"]},
            "alertmanager.urls: expected addresses such as 'http://127.0.0.1:9093', without a user, a query "
            "and /api/v2/alerts, got '…@a'",
        ),
        (
            {"urls": "http://u:p@a"},
            "alertmanager.urls: expected a list with at least one entry, got '…@a': "
            "write it as a list, […@a]",
        ),
        ({"urls": ["http://a/api/v2/alerts"]}, "alertmanager.urls: expected addresses"),
        (
            {"urls": ["http://a", "http://a"]},
            "alertmanager.urls: expected each name once, got 'http://a' 2 times",
        ),
        (
            {"urls": ["http://a"], "labels": {"severity": "info"}},
            "alertmanager.labels: expected names of letters, digits and underscores other than alertname, "
            "severity, task, model, group, metric, which the alerts have themselves, got 'severity'",
        ),
        ({"urls": ["http://a"], "labels": {"a-b": "c"}}, "alertmanager.labels: expected names of letters"),
    ],
)
def test_a_section_that_cannot_be_used_is_refused(section: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        config_from({"tasks": {"t": {}}, "alertmanager": section})


def test_an_alertmanager_behind_a_path_is_allowed() -> None:
    config = Config(tasks={"t": {}}, alertmanager={"urls": ["https://a.example:9093/am/"]})
    assert config.alertmanager is not None
    assert config.alertmanager.labels == {"job": "blindsight"}


def test_the_name_of_the_alert_on_silence_is_the_rule_of_windows() -> None:
    [condition] = active_conditions(view(dataclasses.replace(CALM, state=SeriesState.SILENT)))
    assert (condition.name, condition.patient) == (NO_WINDOW, False)
