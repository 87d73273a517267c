"""Sends requests of commands to a running agent, and makes the request of `blindsight rebaseline`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from monitor.agent.rebaseline import KIND, not_there, task_named
from monitor.agent.requests import RequestFolder
from monitor.base.errors import ConfigError, RequestError
from monitor.config.file import load_config
from monitor.config.root import Config
from monitor.store.database import Database
from monitor.store.lock import FolderLock
from monitor.store.opening import store_location

if TYPE_CHECKING:
    from monitor.agent.request_table import RequestTable


def ask(config: Config, kind: str, body: Mapping[str, Any], wait_seconds: float) -> str:
    """Send a request to the agent through its store, and return its answer.

    Parameters
    ----------
    config : Config
        A configuration with a store.
    kind : str
        The kind of request, a key of `monitor.cli.state.HANDLERS`.
    body : mapping
    wait_seconds : float
        The longest wait for the answer.

    Returns
    -------
    str
        The agent's answer. If no agent runs, a sentence that says that the request waits for an agent.

    Raises
    ------
    ConfigError
        The configuration has no store. Requests reach the agent through its store.
    RequestError
        The agent refused, or has not answered in time.
    """
    if config.store is None:
        raise ConfigError("store: there is none in this configuration; requests reach the agent through it")
    where = store_location(config.store)
    store, running, folder = _mailbox(where)
    number = folder.place(kind, body)
    answer = folder.collect(number, wait_seconds if running else 0.0)
    if answer is not None:
        if not answer.done:
            raise RequestError(answer.text.rstrip("."))
        return answer.text
    if not running:
        return (
            f"No agent runs on {store}. The request waits there ({folder.shown(number)}) and is taken up "
            f"when one is started; {folder.take_back} to take it back."
        )
    raise RequestError(
        f"the agent on {store} has not answered within {wait_seconds:g} s; the request waits there "
        f"({folder.shown(number)}), and the agent will carry it out and log it as soon as possible"
    )


def _mailbox(where: Path | Database) -> tuple[object, bool, RequestFolder | RequestTable]:
    """Return the name of a store, whether an agent runs on it, and the place for requests to it."""
    if isinstance(where, Path):
        return where.parent, FolderLock.is_held(where.parent), RequestFolder(where.parent)
    from monitor.agent.request_table import RequestTable
    from monitor.store.postgres import PostgresDatabase

    assert isinstance(where, PostgresDatabase)
    held = where.is_held()
    if held is None:
        raise RequestError(f"{where.name}: there is no store yet; start an agent first")
    return where.name, held, RequestTable(where)


def ask_for_baseline(
    path: str, task: str, model: str, group: str, metric: str, reason: str, wait_seconds: float
) -> str:
    """Ask the agent for a new baseline of a chart, and return its answer.

    Raises
    ------
    ConfigError, RequestError
        The configuration does not have the task or the metric, an option cannot be used, or `ask` failed.
    """
    config = load_config(path)
    name = task_named(task, list(config.scored_tasks))
    metrics = config.scored_tasks[name].judged_metrics
    if metric not in metrics:
        raise RequestError(not_there("metric", metric, metrics))
    if not reason.strip():
        raise ConfigError("--reason: it is empty; give the reason in a few words, for readers of the reports")
    for option, text in (("--model", model), ("--group", group), ("--reason", reason)):
        if not text.isascii() and text != text.encode("utf-8", "replace").decode("utf-8"):
            raise ConfigError(f"{option}: expected UTF-8, got {text[:60]!a}; set the terminal to UTF-8")
    body = {"task": name, "model": model, "group": group, "metric": metric, "reason": reason}
    return ask(config, KIND, body, wait_seconds)
