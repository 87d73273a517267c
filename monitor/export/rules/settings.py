"""The options of `blindsight rules`."""

from __future__ import annotations

from dataclasses import dataclass

from monitor.base.errors import ConfigError
from monitor.export.rules.pace import Pace
from monitor.export.rules.promql import Scope, checked_selector

SELECTOR = 'job="blindsight"'
RUNBOOKS = "deploy/runbooks"


@dataclass(frozen=True, slots=True)
class RuleSettings:
    """Which agents, in what time, and where their runbooks are.

    Parameters
    ----------
    selector : str
        Label matchers that pick the agents' series.
    paces : tuple of Pace
        Of the tasks, at least one: that of any task, or one a task.
    runbooks : str
        What stands before ``/NAME.md`` in `runbook_url`: an address, or a folder of this repository.
    dashboard : str
        Address of a dashboard with the variables `task` and `model`; no `dashboard_url` if empty.
    scale : float
        Factor of every duration, above 0 and at most 100: to try the rules out in seconds.

    Raises
    ------
    ConfigError
        One of them cannot be used.
    """

    selector: str = SELECTOR
    paces: tuple[Pace, ...] = (Pace(),)
    runbooks: str = RUNBOOKS
    dashboard: str = ""
    scale: float = 1.0

    def __post_init__(self) -> None:
        checked_selector(self.selector)
        if not 0 < self.scale <= 100:
            raise ConfigError(
                f"--time-scale: expected a factor above 0 and at most 100, got {self.scale:g}; "
                "1 leaves the durations as they are"
            )
        for option, text in (("--runbooks", self.runbooks), ("--dashboard", self.dashboard)):
            if any(part in text for part in ("{{", "}}", "\n")):
                raise ConfigError(
                    f"{option}: expected an address without templates and line breaks, got {text!r}"
                )

    def scope(self, pace: Pace | None = None) -> Scope:
        """The series of a pace's task; of all of them without one."""
        return Scope(self.selector, pace.task if pace else "", self.scale)
