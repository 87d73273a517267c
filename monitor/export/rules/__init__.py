"""Alert rules for Prometheus, from one source: `blindsight rules` prints the files in `deploy/prometheus`.

`alerts.yaml` holds the alerts as PromQL and templates. This module fills them in for a user's agents, and
writes them as Prometheus' own files or as the PrometheusRule resource of its operator.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from monitor.base.errors import ConfigError
from monitor.base.registry import METRICS, metric_words

if TYPE_CHECKING:
    from monitor.config.root import Config, Task

_DAY = 86_400.0
_LEAST_SECONDS = 60.0  # Prometheus' own evaluation interval; anything shorter has no effect
_REFIT_SECONDS = 6 * 3600.0  # refits are due at most a few times a day, however fast windows close

REPLICA = "instance, pod, container, endpoint"
"""The labels of the scraped process. Alerts on models do not have these labels, because a new pod is not a
new incident."""

_SHORTEST_SECONDS = 3.0  # for scaled durations: a range must contain a few scrapes, at most one a second
_UNITS = (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1))
_MATCHER = r'[a-zA-Z_][a-zA-Z0-9_]*\s*(?:=~|!~|!=|=)\s*"(?:[^"\\\n`]|\\[^\n`])*"'

SELECTOR = 'job="blindsight"'
RUNBOOKS = "deploy/runbooks"
"""The folder of the runbooks in the repository."""
AGENT_DOWN = "BlindsightAgentDown"
"""The alert without a runbook on the agent, because the agent is down. Its description says what to check."""
RUNBOOK_QUERY = (
    "{{ with $labels.task }}?task={{ . | urlquery }}{{ end }}"
    "{{ with $labels.model }}&model={{ . | urlquery }}{{ end }}"
    "{{ with $labels.group }}&group={{ . | urlquery }}{{ end }}"
)
"""A Prometheus template for the query of a runbook's address, which fills in the names of the alert."""

_METRIC = (
    "{{ $labels.metric"
    + "".join(
        f' | reReplaceAll "^{metric}$" "{words}"'
        for metric in METRICS
        if (words := metric_words(metric)) != metric
    )
    + " }}"
)
"""A Prometheus template for the name of the alert's metric in words."""

_FILLED_IN = re.compile(r"<(\w+)>")
_HEADER = "# Printed by `blindsight rules`: change its options, not this file.\n"


@cache
def runbook_names() -> tuple[str, ...]:
    """Return the names of the alerts that have a runbook. All alerts have one.

    Examples
    --------
    >>> len(runbook_names()), runbook_names()[0]
    (21, 'BlindsightAccountingBroken')
    """
    return tuple(sorted(path.stem for path in _runbooks().glob("*.md")))


def runbook(name: str) -> str:
    """Return the runbook of an alert as Markdown.

    Examples
    --------
    >>> runbook("BlindsightAgentDown")[:21]
    '# BlindsightAgentDown'
    """
    return (_runbooks() / f"{name}.md").read_text(encoding="utf-8")


def _runbooks() -> Path:
    built = Path(__file__).parent / "runbooks"  # the wheel has them here
    return built if built.is_dir() else Path(__file__).parents[3] / RUNBOOKS


@dataclass(frozen=True, slots=True)
class Pace:
    """The usual durations of windows and refits of a task. The durations of alerts are computed from them.

    Parameters
    ----------
    task : str
        Name of the task; empty if the times apply to every task.
    window_seconds : float
        Duration of a window of the slowest model at its expected traffic.
    slowest_seconds : float
        Longest duration of a window while there is traffic. In a quiet hour, windows close by age.
    refit_seconds : float
        A time in which several refits become due.

    Examples
    --------
    >>> Pace()
    Pace(task='', window_seconds=900.0, slowest_seconds=900.0, refit_seconds=54000.0)
    """

    task: str = ""
    window_seconds: float = 900.0
    slowest_seconds: float = 900.0
    refit_seconds: float = 54_000.0


def paces(config: Config) -> tuple[Pace, ...]:
    """Return the usual durations of windows and refits of each task, from which alert rules are made.

    If all tasks have the same durations, the result is a single pace for all tasks.

    The expected duration of a window is the time in which the model with the least `answers_per_day` fills
    it. If the window reaches `max_age_seconds` before it is full, the duration is this age, or the time for
    `min_size` answers if that is longer. If a model's traffic is unknown, the duration is `max_age_seconds`.
    `slowest_seconds` may be longer: it is the duration of a window that does not fill, because a day's
    traffic may arrive within a few hours.

    Examples
    --------
    >>> from monitor.config.root import Config
    >>> busy = {"window": {"size": 500}, "models": {"erm": {"answers_per_day": 144_000}}}
    >>> paces(Config(tasks={"spam": busy, "ham": {}}))[0]
    Pace(task='spam', window_seconds=300.0, slowest_seconds=900.0, refit_seconds=21600.0)
    """
    by_task = {name: _pace(task) for name, task in config.scored_tasks.items()}
    refits = {times[:2]: times[2] for times in by_task.values()}
    for name in [name for name in config.tasks if name not in by_task]:
        age = float(max(_LEAST_SECONDS, config.tasks[name].window.max_age_seconds))
        # A task of another kind has no refits; it gets those of a task with the same windows.
        by_task[name] = (age, age, refits.get((age, age), _REFIT_SECONDS))
    if len(set(by_task.values())) == 1:
        return (Pace("", *next(iter(by_task.values()))),)
    return tuple(Pace(name, *times) for name, times in by_task.items())


def _pace(task: Task) -> tuple[float, float, float]:
    known = [each.answers_per_day for each in task.models.values() if each.answers_per_day]
    window, age = task.window, task.window.max_age_seconds
    expected, slowest = age, age
    if known and len(known) == len(task.models):
        second = min(known) / _DAY
        slowest = max(age, window.min_size / second)
        expected = min(window.size / second, slowest)
    expected, slowest = (float(max(_LEAST_SECONDS, each)) for each in (expected, slowest))
    # Windows of all models together make a refit due; three refits without a result are no accident.
    refit = 3 * (task.ssme.every_seconds or task.ssme.every_windows * expected)
    return expected, slowest, max(_REFIT_SECONDS, refit)


def duration(seconds: float) -> str:
    """Format a duration as Prometheus does.

    Examples
    --------
    >>> duration(1800), duration(5400), duration(4.5), duration(86400)
    ('30m', '1h30m', '4s500ms', '1d')
    """
    left, text = round(seconds * 1000), ""
    for unit, size in _UNITS:
        count, left = divmod(left, size)
        text += f"{count}{unit}" if count else ""
    return text or "0s"


def seconds_of(text: str) -> float:
    """Return the number of seconds of a duration with a single unit, such as ``15m``.

    Examples
    --------
    >>> seconds_of("15m"), seconds_of("1d")
    (900.0, 86400.0)
    """
    return int(text[:-1]) * dict(_UNITS)[text[-1]] / 1000


def checked_selector(text: str) -> str:
    """Check the label matchers that select the agents, and return them without white space around them.

    Raises
    ------
    ConfigError
        The text is not a list of label matchers.

    Examples
    --------
    >>> checked_selector('job="blindsight",cluster=~"eu-.*"')
    'job="blindsight",cluster=~"eu-.*"'
    """
    if re.fullmatch(rf"\s*{_MATCHER}(?:\s*,\s*{_MATCHER})*\s*", text) is None:
        raise ConfigError(
            "--selector: expected label matchers with values in double quotes, such as "
            f'job="blindsight",cluster="eu", got {text!r}; they pick the agents\' series'
        )
    return text.strip()


@dataclass(frozen=True, slots=True)
class Scope:
    """The time series that a rule reads in Prometheus, and the factor by which its durations are multiplied.

    Parameters
    ----------
    selector : str
        Label matchers without braces.
    task : str
        The name of the task; ``""`` for all tasks.
    scale : float
        Factor of every duration, above 0.
    shortest_seconds : float
        With a factor below 1, no duration becomes shorter than this.
    """

    selector: str
    task: str = ""
    scale: float = 1.0
    shortest_seconds: float = _SHORTEST_SECONDS

    def seconds(self, real: float) -> float:
        """Return a duration in seconds, multiplied by `scale`."""
        return real if self.scale == 1 else max(self.shortest_seconds, real * self.scale)

    @property
    def agents(self) -> str:
        """The matchers of the agents' series and of the task.

        Examples
        --------
        >>> Scope('job="b"', "spam").agents
        'job="b",task="spam"'
        """
        # Go and PromQL quote text like JSON.
        return (
            f"{self.selector},task={json.dumps(self.task, ensure_ascii=False)}"
            if self.task
            else self.selector
        )


@dataclass(frozen=True, slots=True)
class RuleSettings:
    """The settings of rules: agents, paces, addresses.

    Parameters
    ----------
    selector : str
        Label matchers that select the agents' series.
    paces : tuple of Pace
        One pace for every task, or one for each task.
    runbooks : str
        The part of `runbook_url` before ``/NAME.md``: an address, or a folder of this repository. ``""``
        means the runbooks that the agent serves as pages at `external_url`, or the folder `RUNBOOKS` without
        `external_url`.
    dashboard : str
        Address of a dashboard with the variables `task` and `model`; if empty, alerts have no
        `dashboard_url`.
    scale : float
        Factor of every duration, above 0 and at most 100, for tests of the rules within seconds.
    external_url : str
        Address of the agent's page, for `page_url`; if empty, alerts have no `page_url`.

    Raises
    ------
    ConfigError
        A setting cannot be used.
    """

    selector: str = SELECTOR
    paces: tuple[Pace, ...] = (Pace(),)
    runbooks: str = ""
    dashboard: str = ""
    scale: float = 1.0
    external_url: str = ""

    def __post_init__(self) -> None:
        checked_selector(self.selector)
        if not 0 < self.scale <= 100:
            raise ConfigError(
                f"--time-scale: expected a factor above 0 and at most 100, got {self.scale:g}; "
                "1 leaves the durations as they are"
            )
        texts = {
            "--runbooks": self.runbooks,
            "--dashboard": self.dashboard,
            "export.external_url": self.external_url,
        }
        for option, text in texts.items():
            if any(part in text for part in ("{{", "}}", "\n")):
                raise ConfigError(
                    f"{option}: expected an address without templates and line breaks, got {text!r}"
                )

    def runbook_url(self, name: str, query: str = "") -> str:
        """Return the address of an alert's runbook.

        Parameters
        ----------
        name : str
            The name of the alert.
        query : str
            The names of the task and the model for the runbook that the agent serves, such as
            ``?task=spam&model=erm``.

        Returns
        -------
        str
            The address; ``""`` for the runbook on agents that are down if only the agent serves runbooks.

        Examples
        --------
        >>> RuleSettings().runbook_url("A"), RuleSettings(runbooks="https://w.example").runbook_url("A")
        ('deploy/runbooks/A.md', 'https://w.example/A.md')
        >>> served = RuleSettings(external_url="https://a.example")
        >>> served.runbook_url("A", "?task=t&model=m"), served.runbook_url(AGENT_DOWN)
        ('https://a.example/runbooks/A?task=t&model=m', '')
        """
        if self.runbooks or not self.external_url:
            return f"{(self.runbooks or RUNBOOKS).rstrip('/')}/{name}.md"
        return "" if name == AGENT_DOWN else f"{self.external_url.rstrip('/')}/runbooks/{name}{query}"

    @property
    def missing(self) -> str:
        """A sentence about the links that are missing without `external_url`; empty if none is missing."""
        if self.external_url:
            return ""
        relative = "" if "://" in self.runbooks else ", and runbook_url is no address"
        return (
            f"No alert has a page_url{relative}: export.external_url is not set, "
            "the address under which people reach the page"
        )

    def scope(self, pace: Pace | None = None) -> Scope:
        """Return the scope for the task of a pace. Without a pace, return the scope for all tasks."""
        return Scope(self.selector, pace.task if pace else "", self.scale)


@dataclass(frozen=True, slots=True)
class Alert:
    """One alerting rule.

    Parameters
    ----------
    name : str
        Name of the alert, ``Blindsight…``, and of its runbook.
    severity : {"critical", "warning", "mutes-critical", "mutes-warnings"}
        A critical alert wakes somebody up; a warning can wait until the morning. The others notify nobody:
        Alertmanager inhibits other alerts while they fire.
    expr : str
        The condition in PromQL. The labels of its result identify the alert; they contain no pod, no window
        and no value.
    for_seconds : float
        The time for which the expression must be true before the alert fires.
    keep_seconds : float
        The time for which the alert keeps firing after the expression is no longer true, or has no data.
    summary : str
        A Prometheus template: the model and the fact, with the newest figures.
    description : str
        A Prometheus template: possible causes, and what to check first.
    task : str
        The only task of the rule if tasks have different paces, otherwise ``""``. The label `task` then
        distinguishes rules of the same name; it does not change the identity of an alert.
    """

    name: str
    severity: Literal["critical", "warning", "mutes-critical", "mutes-warnings"]
    expr: str
    for_seconds: float
    keep_seconds: float
    summary: str
    description: str
    task: str = ""


@dataclass(frozen=True, slots=True)
class Group:
    """A group of alerts that are evaluated together."""

    name: str
    alerts: tuple[Alert, ...]


def rule_groups(settings: RuleSettings) -> tuple[Group, ...]:
    """Return the groups of alerts on models and on the agent.

    If the times of an alert depend on the duration of windows, there is one such alert for each pace.

    Examples
    --------
    >>> for group in rule_groups(RuleSettings()):
    ...     print(group.name, len({alert.name for alert in group.alerts}))
    blindsight-models 9
    blindsight-agent 12
    """
    groups: dict[str, list[Alert]] = {}
    for entry in _written()["alerts"]:
        for pace in settings.paces if entry.get("each_pace") else (Pace(),):
            groups.setdefault(entry["group"], []).append(_alert(entry, settings.scope(pace), pace))
    return tuple(Group(name, tuple(alerts)) for name, alerts in groups.items())


@cache
def _written() -> dict[str, Any]:
    # Not imported at the top, because most users of this module need no YAML.
    import yaml

    text = files(__name__).joinpath("alerts.yaml").read_text(encoding="utf-8")
    written: dict[str, Any] = yaml.safe_load(text)
    return written


def _alert(entry: dict[str, Any], scope: Scope, pace: Pace) -> Alert:
    if "shortest" in entry:
        scope = replace(scope, shortest_seconds=seconds_of(entry["shortest"]))
    times = {
        "one_window": pace.window_seconds,
        "two_windows": 2 * pace.window_seconds,
        "two_periods": 2 * pace.slowest_seconds,
        "refits": pace.refit_seconds,
    }
    values = {name: duration(scope.seconds(seconds)) for name, seconds in times.items()}
    values["refit_seconds"] = f"{scope.seconds(pace.refit_seconds):g}"
    values |= {"replica": REPLICA, "selector": scope.selector, "agents": scope.agents, "metric": _METRIC}

    def scaled_seconds(name: str) -> float:
        return scope.seconds(times[name] if name in times else seconds_of(name))

    return Alert(
        name=entry["name"],
        severity=entry["severity"],
        expr=_filled(entry["expr"], values, scope),
        for_seconds=scaled_seconds(entry["for"]),
        keep_seconds=scaled_seconds(entry["keep"]),
        summary=_filled(entry["summary"], values, scope),
        description=_filled(entry["description"], values, scope),
        task=pace.task,
    )


def _filled(text: str, values: dict[str, str], scope: Scope) -> str:
    """Fill in everything in angle brackets, and indent the lines of a piece like its first line."""
    pieces = _written()["pieces"]
    lines = []
    for line in text.split("\n"):
        margin = line[: len(line) - len(line.lstrip())]

        def value(match: re.Match[str], margin: str = margin) -> str:
            name = match[1]
            if name in pieces:
                return _filled(pieces[name], values, scope).replace("\n", f"\n{margin}")
            return values[name] if name in values else duration(scope.seconds(seconds_of(name)))

        lines.append(_FILLED_IN.sub(value, line))
    return "\n".join(lines)


class Format(StrEnum):
    """The format of a rule file: that of Prometheus, or that of its Kubernetes operator."""

    PROMETHEUS = "prometheus"
    OPERATOR = "operator"

    @property
    def file(self) -> str:
        """The name of a rule file in this format."""
        kind = "rules" if self is Format.PROMETHEUS else "prometheusrule"
        return f"blindsight.{kind}.yaml"


def rendered(groups: Iterable[Group], settings: RuleSettings, form: Format) -> str:
    """Return the text of a rule file with these groups of alerts.

    Examples
    --------
    >>> settings = RuleSettings()
    >>> print(rendered(rule_groups(settings), settings, Format.OPERATOR)[:262])
    # Printed by `blindsight rules`: change its options, not this file.
    # No alert has a page_url, and runbook_url is no address: export.external_url is not set, the address ...
    apiVersion: monitoring.coreos.com/v1
    kind: PrometheusRule
    """
    spec = {"groups": [_group(group, settings) for group in groups]}
    header = _HEADER + (f"# {settings.missing}.\n" if settings.missing else "")
    if form is Format.PROMETHEUS:
        return header + _yaml(spec)
    labels = {"app.kubernetes.io/name": "blindsight"}
    resource = {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {"name": "blindsight", "labels": labels},
        "spec": spec,
    }
    return header + _yaml(resource)


def with_links(text: str, page: str, runbook: str) -> str:
    """Return a description with the addresses of the page and of the runbook on separate lines.

    Examples
    --------
    >>> print(with_links("Check releases first.", "https://a.example/models", "deploy/runbooks/A.md"))
    Check releases first.
    Page: https://a.example/models
    """
    links = {"Page": page, "Runbook": runbook}  # a folder is no address
    return "\n".join([text, *(f"{name}: {url}" for name, url in links.items() if "://" in url)])


def _group(group: Group, settings: RuleSettings) -> dict[str, Any]:
    return {"name": group.name, "rules": [_rule(alert, settings) for alert in group.alerts]}


def _rule(alert: Alert, settings: RuleSettings) -> dict[str, Any]:
    texts = alert.summary + alert.description
    of_models = "$labels.model" in texts or "$labels.metric" in texts
    page = page_url(settings.external_url) if settings.external_url and of_models else ""
    runbook = settings.runbook_url(alert.name, RUNBOOK_QUERY)
    annotations = {
        "summary": alert.summary,
        "description": with_links(alert.description, page, runbook),
        **({"runbook_url": runbook} if runbook else {}),
        **({"page_url": page} if page else {}),
    }
    if settings.dashboard:
        annotations["dashboard_url"] = _dashboard(settings.dashboard)
    return {
        "alert": alert.name,
        "expr": alert.expr + "\n" if "\n" in alert.expr else alert.expr,
        "for": duration(alert.for_seconds),
        "keep_firing_for": duration(alert.keep_seconds),
        "labels": {"severity": alert.severity} | ({"task": alert.task} if alert.task else {}),
        "annotations": annotations,
    }


def page_url(external_url: str) -> str:
    """Return a Prometheus template for the page of the alert's model, or of its task if it names no model.

    `urlquery` encodes a space as ``+``, which means a space only in a query. The names are therefore in the
    query. `urlquery` is a function of Go's templates, so every version of Prometheus has it.
    """
    query = "task={{ $labels.task | urlquery }}"
    more = "".join(
        f"{{{{ with $labels.{name} }}}}&{name}={{{{ . | urlquery }}}}{{{{ end }}}}"
        for name in ("metric", "group")
    )
    model = f"models?{query}&model={{{{ $labels.model | urlquery }}}}{more}"
    chosen = f"{{{{ if $labels.model }}}}{model}{{{{ else if $labels.task }}}}?{query}{{{{ end }}}}"
    return f"{external_url.rstrip('/')}/{chosen}"


def _dashboard(address: str) -> str:
    """Return the dashboard's address with the alert's model, if it has one."""
    joint = "&" if "?" in address else "?"
    chosen = "var-task={{ $labels.task | urlquery }}&var-model={{ $labels.model | urlquery }}"
    return f"{address}{{{{ if $labels.model }}}}{joint}{chosen}{{{{ end }}}}"


def _yaml(value: dict[str, Any]) -> str:
    import yaml

    class Dumper(yaml.SafeDumper):
        def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
            super().increase_indent(flow, False)

    def text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
        style = "|" if "\n" in value else None
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)

    Dumper.add_representer(str, text)
    return yaml.dump(value, Dumper=Dumper, sort_keys=False, allow_unicode=True, width=10_000)
