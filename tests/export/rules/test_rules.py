"""The rules as they are written down: shipped and printed rules agree, options, names, runbooks, mistakes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from monitor.base.errors import ConfigError
from monitor.base.registry import METRICS
from monitor.cli.main import app
from monitor.config.root import Config
from monitor.export.prometheus.families import FAMILIES, importance
from monitor.export.rules import (
    RUNBOOK_QUERY,
    Alert,
    Format,
    Pace,
    RuleSettings,
    paces,
    rendered,
    rule_groups,
)
from tests.daemon import command_here, write_configuration

ROOT = Path(__file__).parents[3]
RUNBOOKS = ROOT / "deploy" / "runbooks"
ALERTS = [alert for group in rule_groups(RuleSettings()) for alert in group.alerts]
NAMES = sorted({alert.name for alert in ALERTS})


def printed(settings: RuleSettings, form: Format = Format.PROMETHEUS) -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load(rendered(rule_groups(settings), settings, form))
    return document


def rules(settings: RuleSettings) -> list[dict[str, Any]]:
    return [rule for group in printed(settings)["groups"] for rule in group["rules"]]


def exported() -> set[str]:
    """Return every name of a sample that the agent exports."""
    ends = {
        "gauge": [""],
        "counter": ["_total"],
        "info": ["_info"],
        "histogram": ["_bucket", "_sum", "_count"],
    }
    return {
        prefix + name + end
        for name, family in FAMILIES.items()
        for prefix in ("blindsight_", "blindsight_group_")
        if family.per_series or prefix == "blindsight_"
        for end in ends[family.kind]
    }


def test_what_the_alert_on_accounting_sums_is_left_out_last() -> None:
    """Without one of them it would fire, or could not."""
    [alert] = [alert for alert in ALERTS if alert.name == "BlindsightAccountingBroken"]
    names = {"blindsight_" + name for name in FAMILIES}
    summed = {family.removesuffix("_total") for family in re.findall(r"blindsight_\w+", alert.expr)}
    assert len(summed) > 10
    assert summed <= names
    rest = [name for name in names - summed if not importance(name) < (1, 0)]
    assert max(map(importance, summed)) < min(map(importance, rest))


@pytest.mark.parametrize("form", list(Format))
def test_what_ships_is_what_the_command_prints(form: Format) -> None:
    done = command_here("rules", "--format", form.value)
    assert done.returncode == 0
    assert done.stdout == (ROOT / "deploy" / "prometheus" / form.file).read_text(encoding="utf-8")


def test_the_resource_of_the_operator_has_the_same_groups() -> None:
    resource = printed(RuleSettings(), Format.OPERATOR)
    assert (resource["apiVersion"], resource["kind"]) == ("monitoring.coreos.com/v1", "PrometheusRule")
    assert resource["spec"] == printed(RuleSettings())


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: f"{alert.name}-{alert.severity}")
def test_an_alert_keeps_to_the_conventions(alert: Alert) -> None:
    assert re.fullmatch(r"Blindsight([A-Z][a-z]+)+", alert.name)
    fact = r"[^.]*" if "$labels." in alert.summary else r"[A-Z][^{}]*\."
    assert re.fullmatch(fact, re.sub(r"{{.*?}}", "", alert.summary)), "a sentence"
    assert "$labels." in alert.summary + alert.description
    assert alert.for_seconds >= 180
    assert alert.keep_seconds >= 300
    assert re.search(r"[=!<>]=|[<>]|unless", alert.expr), "a condition"
    for volatile in ("version", "window", "id"):
        assert f"by ({volatile}" not in alert.expr
    # A bare gauge would reset `for` at a missed scrape. `{…}` is followed by a range, or stands beside one.
    bare = re.findall(r"(blindsight_\w+|\bup)\{[^}]*\}(?!\[)", alert.expr)
    assert bare in ([], ["blindsight_build_info"])


def test_alerts_on_models_wait_for_two_windows() -> None:
    models = rule_groups(RuleSettings(paces=(Pace(window_seconds=120.0),)))[0]
    assert models.name == "blindsight-models"
    waits = {(alert.name, alert.severity): alert.for_seconds for alert in models.alerts}
    for severity in ("warning", "mutes-warnings"):
        wait = waits.pop(("BlindsightSharedChange", severity))
        assert wait == 120.0, "it precedes the alerts that it inhibits"
    assert set(waits.values()) == {240.0}
    assert {alert.keep_seconds for alert in models.alerts} == {240.0}


def test_only_breached_objectives_and_dead_agents_page() -> None:
    critical = [alert.name for alert in ALERTS if alert.severity == "critical"]
    assert critical == ["BlindsightObjectiveBreached", "BlindsightSharedChange", "BlindsightAgentDown"]


def test_all_agents_down_mutes_every_alert_on_models_and_no_other_but_each_agents() -> None:
    """The shipped example is complete: an alert on models that it does not name would tell old news all
    night.
    """
    example = yaml.safe_load((ROOT / "deploy/alertmanager/alertmanager.yml").read_text(encoding="utf-8"))
    down = ['alertname = "BlindsightAgentDown"', 'severity = "critical"']
    rules = [rule for rule in example["inhibit_rules"] if rule["source_matchers"] == down]
    first = [rule["target_matchers"][0].partition('"')[2].removesuffix('"') for rule in rules]
    muted = {name for name in NAMES for expression in first if re.fullmatch(expression, name)}
    models = {alert.name for group in rule_groups(RuleSettings())[:1] for alert in group.alerts}
    assert "BlindsightModelUnranked" in models
    assert muted == models | {"BlindsightNoWindowClosed", "BlindsightAgentDown"}


def test_every_alert_has_its_runbook_and_every_runbook_its_alert() -> None:
    assert sorted(path.stem for path in RUNBOOKS.iterdir()) == NAMES
    assert len(NAMES) == 21


@pytest.mark.parametrize("name", NAMES)
def test_a_runbook_says_what_it_means_how_to_check_and_what_to_do(name: str) -> None:
    text = (RUNBOOKS / f"{name}.md").read_text(encoding="utf-8")
    assert text.startswith(f"# {name}\n\n**")
    meaning, check, do = re.split(r"^## (?:How to check|What to do)$", text, flags=re.MULTILINE)
    assert min(map(len, (meaning, check, do))) > 150
    severities = {alert.severity for alert in ALERTS if alert.name == name}
    assert all(f"**{severity.partition('-')[0].capitalize()}" in meaning for severity in severities)
    assert set(re.findall(r"\bBlindsight[A-Z]\w+", text)) <= set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_runbook_names_commands_that_there_are(name: str) -> None:
    text = (RUNBOOKS / f"{name}.md").read_text(encoding="utf-8")
    known = {each.name or each.callback.__name__ for each in app.registered_commands if each.callback}
    assert set(re.findall(r"`blindsight ([a-z]+)", text)) <= known
    for link in re.findall(r"\]\(([^)]+)\)", text):
        assert (RUNBOOKS / link.partition("#")[0]).exists()


@pytest.mark.parametrize("name", NAMES)
def test_rules_and_runbooks_name_metrics_that_there_are(name: str) -> None:
    rule = str([each for each in rules(RuleSettings()) if each["alert"] == name])
    page = (RUNBOOKS / f"{name}.md").read_text(encoding="utf-8")
    used = set(re.findall(r"\bblindsight_\w+", rule + page))
    assert used <= exported()
    assert used or name == "BlindsightAgentDown"


def test_the_docs_list_every_alert_with_its_severity() -> None:
    text = (ROOT / "docs" / "alerts.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| \[(\w+)\]\(\.\./deploy/runbooks/(\w+)\.md\) \| (\w+) \|", text, re.MULTILINE)
    assert sorted(name for name, _, _ in rows) == NAMES
    for name, page, severity in rows:
        assert page == name
        assert severity in {alert.severity for alert in ALERTS if alert.name == name}


# ── options ──


def test_every_series_has_the_selector() -> None:
    selector = 'job=~"models/.*",cluster="eu"'
    for rule in rules(RuleSettings(selector)):
        text = rule["expr"] + rule["annotations"]["summary"] + rule["annotations"]["description"]
        assert 'job="blindsight"' not in text
        assert len(re.findall(r"(?:blindsight_\w+|\bup)\{", text)) == text.count("{" + selector)


def test_the_runbooks_and_the_dashboard_are_where_one_says() -> None:
    settings = RuleSettings(runbooks="https://wiki.example/r/", dashboard="https://g.example/d/m?orgId=1")
    breached = rules(settings)[0]
    assert breached["annotations"]["runbook_url"] == "https://wiki.example/r/BlindsightObjectiveBreached.md"
    assert breached["annotations"]["dashboard_url"] == (
        "https://g.example/d/m?orgId=1{{ if $labels.model }}&var-task={{ $labels.task | urlquery }}"
        "&var-model={{ $labels.model | urlquery }}{{ end }}"
    )
    assert "dashboard_url" not in rules(RuleSettings())[0]["annotations"]


def test_alerts_on_models_lead_to_the_page_and_its_runbooks_once_the_address_is_known() -> None:
    by_alert = {
        rule["alert"]: rule["annotations"] for rule in rules(RuleSettings(external_url="https://m.example/b"))
    }
    assert by_alert["BlindsightOutOfControl"]["page_url"].startswith(
        "https://m.example/b/{{ if $labels.model }}models?"
    )
    assert {name for name, annotations in by_alert.items() if "page_url" in annotations} == {
        "BlindsightObjectiveBreached",
        "BlindsightObjectiveAtRisk",
        "BlindsightOutOfControl",
        "BlindsightSharedChange",
        "BlindsightEstimateUntrusted",
        "BlindsightFeatureBroken",
        "BlindsightFeatureDrifted",
        "BlindsightLabelsConflict",
        "BlindsightModelUnranked",
        "BlindsightNoWindowClosed",
    }
    down = by_alert.pop("BlindsightAgentDown")
    assert "runbook_url" not in down, "no agent that is down serves its runbook"
    assert "the last lines of its log" in down["description"]
    for name, texts in by_alert.items():
        assert texts["runbook_url"] == f"https://m.example/b/runbooks/{name}{RUNBOOK_QUERY}"
        assert texts["description"].endswith(f"\nRunbook: {texts['runbook_url']}")
        assert ("\nPage: https://m.example/b/" in texts["description"]) == ("page_url" in texts)
    elsewhere = rules(RuleSettings(external_url="https://m.example", runbooks="https://wiki.example/r"))[0]
    assert elsewhere["annotations"]["runbook_url"] == "https://wiki.example/r/BlindsightObjectiveBreached.md"


def test_charts_of_metrics_that_do_not_page_raise_no_alert() -> None:
    [rule] = [rule for rule in rules(RuleSettings()) if rule["alert"] == "BlindsightOutOfControl"]
    left_out = re.findall(r'metric!~"([^"]*)"', rule["expr"])
    silent = "|".join(metric for metric, entry in METRICS.items() if not entry.pages)
    assert left_out == [silent, silent], "of models and of groups"


def test_rules_without_the_address_of_the_page_say_what_they_lack(tmp_path: Path) -> None:
    sentence = (
        "No alert has a page_url, and runbook_url is no address: export.external_url is not set, "
        "the address under which people reach the page"
    )
    absolute = sentence.replace(", and runbook_url is no address", "")
    assert (RuleSettings().missing, RuleSettings(runbooks="https://w.example").missing) == (
        sentence,
        absolute,
    )
    config = write_configuration(tmp_path, {"tasks": {"t": {}}})
    done = command_here("rules", config)
    assert (done.returncode, f"\n# {sentence}.\n" in done.stdout) == (0, True)
    key = 'export: {external_url: "https://models.example/blindsight"}'
    assert done.stderr == f"{sentence}. Write {key} in {config}, and print the rules again.\n"
    assert command_here("rules").stderr == (
        f"{sentence}. Write {key} in a configuration, give it to this command, and print the rules again.\n"
    )
    assert "page_url:" not in done.stdout
    export = {"external_url": "https://m.example/b/"}
    done = command_here("rules", write_configuration(tmp_path, {"tasks": {"t": {}}, "export": export}))
    assert (done.returncode, done.stderr) == (0, "")
    assert "export.external_url" not in done.stdout
    assert "page_url: https://m.example/b/{{ if $labels.model }}models?" in done.stdout


def test_a_scale_shortens_no_duration_to_less_than_a_few_scrapes_or_the_start_of_an_agent() -> None:
    breached, *_, refit = rules(RuleSettings(scale=1 / 300))
    assert (breached["for"], breached["keep_firing_for"]) == ("6s", "6s")
    assert "[3s]" in breached["expr"]
    assert "[3m]" in refit["expr"]
    assert "< 180\n" in refit["expr"]
    for rule in rules(RuleSettings(scale=1e-6)):
        shortest = "1m" if rule["alert"] == "BlindsightAgentDown" else "3s"
        assert {*re.findall(r"\[(\w+)\]", rule["expr"]), rule["for"], rule["keep_firing_for"]} == {shortest}


def test_tasks_of_one_pace_share_their_rules() -> None:
    config = Config(tasks={"spam": {}, "ham": {}})
    assert paces(config) == (Pace(),)
    assert len(rules(RuleSettings(paces=paces(config)))) == len(ALERTS)


def test_tasks_of_different_pace_have_rules_of_their_own() -> None:
    slow = {"window": {"size": 100, "min_size": 100}, "models": {"erm": {"answers_per_day": 2400}}}
    config = Config(tasks={"spam": {}, "ha\\m": slow})
    task_paces = paces(config)
    # A hundred rows at 100 an hour; by their age they cannot close sooner.
    assert task_paces == (Pace("spam"), Pace("ha\\m", 3600.0, 3600.0, 216_000.0))
    breached = [
        r for r in rules(RuleSettings(paces=task_paces)) if r["alert"] == "BlindsightObjectiveBreached"
    ]
    assert [rule["labels"] for rule in breached] == [
        {"severity": "critical", "task": "spam"},
        {"severity": "critical", "task": "ha\\m"},
    ]
    assert [rule["for"] for rule in breached] == ["30m", "2h"]
    assert 'task="ha\\\\m"' in breached[1]["expr"]


def test_arenas_have_the_pace_of_their_windows() -> None:
    chat = {"kind": "arena"}
    assert paces(Config(tasks={"spam": {}, "chat": chat})) == (Pace(),)
    assert paces(Config(tasks={"chat": chat})) == (Pace("", 900.0, 900.0, 21_600.0),)
    slow = {"kind": "arena", "window": {"max_age_seconds": 3600}}
    task_paces = paces(Config(tasks={"spam": {}, "chat": slow}))
    assert task_paces == (Pace("spam"), Pace("chat", 3600.0, 3600.0, 21_600.0))
    printed = rules(RuleSettings(paces=task_paces))
    unranked = [rule for rule in printed if rule["alert"] == "BlindsightModelUnranked"]
    assert [(rule["labels"]["task"], rule["for"]) for rule in unranked] == [("spam", "30m"), ("chat", "2h")]
    closed = [rule["expr"] for rule in printed if rule["alert"] == "BlindsightNoWindowClosed"]
    assert 'arena_windows_closed_total{job="blindsight",task="chat"}[2h]' in closed[1]


def test_a_model_of_unknown_traffic_leaves_the_age_of_a_window() -> None:
    models = {"erm": {"answers_per_day": 1e6}, "irm": {}}
    assert paces(Config(tasks={"t": {"models": models}}))[0].window_seconds == 900.0
    models["irm"] = {"answers_per_day": 432_000}
    assert paces(Config(tasks={"t": {"models": models}}))[0] == Pace("", 100.0, 900.0, 21_600.0)


def test_refits_by_the_clock_are_waited_for_by_the_clock() -> None:
    config = Config(tasks={"t": {"ssme": {"every_seconds": 14_400}}})
    assert paces(config)[0].refit_seconds == 43_200.0


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (
            {"selector": "blindsight"},
            "--selector: expected label matchers with values in double quotes, such as "
            'job="blindsight",cluster="eu", got \'blindsight\'; they pick the agents\' series',
        ),
        ({"selector": ""}, "--selector: expected label matchers"),
        ({"selector": 'job="a"} or up{'}, "--selector: expected label matchers"),
        ({"selector": 'job="a`b"'}, "--selector: expected label matchers"),
        (
            {"scale": 0.0},
            "--time-scale: expected a factor above 0 and at most 100, got 0; 1 leaves the durations as they "
            "are",
        ),
        ({"scale": float("nan")}, "--time-scale: expected a factor above 0 and at most 100, got nan"),
        (
            {"runbooks": "{{ .x }}"},
            "--runbooks: expected an address without templates and line breaks, got '{{ .x }}'",
        ),
        ({"dashboard": "a\nb"}, "--dashboard: expected an address without templates and line breaks"),
    ],
)
def test_an_option_that_cannot_be_used_is_named(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        RuleSettings(**wrong)


def test_rules_of_a_configuration_are_written_to_a_folder(tmp_path: Path) -> None:
    config = write_configuration(tmp_path, {"tasks": {"t": {"window": {"max_age_seconds": 60}}}})
    done = CliRunner().invoke(app, ["rules", str(config), "--out", str(tmp_path / "rules")])
    assert (done.exit_code, done.stdout) == (0, f"Written: {tmp_path}/rules/blindsight.rules.yaml\n")
    written = yaml.safe_load((tmp_path / "rules" / "blindsight.rules.yaml").read_text())
    assert written["groups"][0]["rules"][0]["for"] == "2m"


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = command_here("rules", "--out", tmp_path / "file")
    assert done.returncode == 2
    assert done.stderr == (
        f"blindsight: --out: {tmp_path}/file/blindsight.rules.yaml cannot be written (File exists); "
        "give a folder that can\n"
    )


def test_a_wrong_configuration_is_refused(tmp_path: Path) -> None:
    config = write_configuration(tmp_path, {"tasks": {"t": {"windw": {}}}})
    done = command_here("rules", config)
    assert done.returncode == 2
    assert "windw" in done.stderr
