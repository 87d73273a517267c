"""The command `blindsight forget`, which removes all stored data of records with certain ids.

The command has four steps. Each step can be repeated, so a command that was killed can be run again:

1. The running agent removes the data from the store. If no agent runs, the command locks and changes the
   file.
2. The command waits until the agent has used the records in the spools of posts. If no agent runs, the
   command overwrites these records.
3. The data is removed from the store again, for records that the agent read from the spools during step 2.
4. The command removes the records from the rejects file and its predecessor.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from functools import partial
from pathlib import Path

import numpy as np

from connectors.build import source_class
from connectors.http.erase import erase, idle_spool
from connectors.http.segment import segments_in
from monitor.agent.forget import KIND, RecordsOf, sentence
from monitor.agent.rebaseline import not_there
from monitor.agent.resume import tasks_of
from monitor.base.errors import ConfigError, MissingExtraError, RequestError, StoreError
from monitor.base.records import Keys, id_keys
from monitor.base.state_changes import Changes, assemble
from monitor.cli.asking import ask
from monitor.config.file import load_config
from monitor.config.root import Config, HttpSourceConfig, StoreConfig
from monitor.engine.engine import EngineSettings
from monitor.engine.labels.columns import Forgotten
from monitor.export.sinks.rejects_file import remove_lines
from monitor.reports.statements import count
from monitor.store.opening import is_in_use, open_store, store_location

_KEYS_A_REQUEST = 10_000  # keys of up to 21 bytes each; a request may have a MiB
_LOOK_SECONDS = 0.2


def forget_ids(path: str, ids: Sequence[str], task: str = "", wait_seconds: float = 60.0) -> Iterator[str]:
    """Remove all stored data of records with these ids, and yield a line of text after each step.

    Parameters
    ----------
    path : str
        The configuration.
    ids : sequence of str
        The ids as in the records. A single ``-`` means standard input, with an id on each line.
    task : str
        ``""`` for every task.
    wait_seconds : float
        The longest wait for the agent's answer and for each spool.

    Raises
    ------
    ConfigError
        The configuration cannot be used, or there is no id.
    RequestError
        There is no such task, or the agent refused or did not finish in time.
    StoreError, SourceError, SinkError
        A file cannot be read or written.
    """
    config = load_config(path)
    names = _from_stdin() if list(ids) == ["-"] else ids
    wanted = [each for each in dict.fromkeys(names) if each]
    if not wanted:
        raise ConfigError("ID: there is none; give at least one id, as in the records")
    if task and task not in config.tasks:
        raise RequestError(not_there("task", task, list(config.tasks)))
    records = RecordsOf(wanted, task)
    yield f"store: {_from_store(config, wanted, task, wait_seconds)}"
    waited = False
    for source in config.sources:
        if isinstance(source, HttpSourceConfig):
            removed = _from_spool(config, source, records, wait_seconds)
            waited |= removed is None
            outcome = "used, and gone" if removed is None else f"{count(removed, 'line')} removed"
            yield f"spool of {source.label}: {outcome}."
    if waited:
        yield f"store, after what was in the spools: {_from_store(config, wanted, task, wait_seconds)}"
    if config.rejects is not None and config.rejects.path is not None:
        yield f"rejects: {count(remove_lines(Path(config.rejects.path), records), 'line')} removed."


def _from_stdin() -> list[str]:
    try:
        return [line.strip() for line in sys.stdin.buffer.read().decode("utf-8").split("\n")]
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"ID: standard input is not UTF-8 ({error.reason}); give ids as in the records"
        ) from error


def _from_store(config: Config, ids: Sequence[str], task: str, wait_seconds: float) -> str:
    """Remove the ids from the joins of labels, and return a sentence on the result."""
    if config.store is None:
        return "none is configured; what an agent holds in memory goes when it stops."
    running = is_in_use(config.store)
    if running is None:
        return "there is none yet."
    keys = id_keys(ids)
    if not running:
        return sentence(_from_idle(config, config.store, keys, task))
    answers = []
    for start in range(0, len(keys), _KEYS_A_REQUEST):
        body = {"keys": keys[start : start + _KEYS_A_REQUEST].tolist(), "task": task}
        answers.append(ask(config, KIND, body, wait_seconds))
    return " ".join(answers)


def _from_idle(config: Config, section: StoreConfig, keys: Keys, task: str) -> Forgotten:
    """Remove the keys from a store that no agent uses, in the same way as the agent."""
    store = open_store(section, keep_reports=sys.maxsize)  # no window may be deleted here
    try:
        with store.holding():
            saved = store.load()
            tasks = tasks_of(saved)
            state = assemble(saved.parts, saved.rings)
            if state is None or (task and task not in tasks):
                return Forgotten()
            # References are left out: only a series that was never saved needs them, and none is saved here.
            engine = EngineSettings(tasks).build(state)
            forgotten = engine.forget(np.unique(keys), task)
            for each in config.sources:
                with suppress(MissingExtraError):  # without the extra, no position of the source was saved
                    engine.revise_positions(each.label, partial(source_class(each).without, keys=keys))
            changes = engine.changes()
            kept = {name: part for name, part in changes.parts.items() if not name.startswith("series/")}
            store.commit(Changes(kept, changes.rings))
            return forgotten
    except ValueError as error:
        raise StoreError(
            f"the state in {store.database.name} cannot be read by this version: {error}"
        ) from error
    finally:
        store.close()


def _from_spool(
    config: Config, source: HttpSourceConfig, records: RecordsOf, wait_seconds: float
) -> int | None:
    """Return the number of lines overwritten in a spool that no agent uses.

    If an agent uses the spool, wait until it has used all records that were in the spool, and return None.
    """
    if source.spool.path is None:
        return _from_spool_table(config, source, records, wait_seconds)
    folder = Path(source.spool.path)
    with idle_spool(folder) as idle:
        if idle:
            return erase(folder, records)
    there = [segment.path for segment in segments_in(folder) if segment.path.stat().st_size]
    _until_used(lambda: not any(path.exists() for path in there), str(folder), wait_seconds)
    return None


def _from_spool_table(
    config: Config, source: HttpSourceConfig, records: RecordsOf, wait_seconds: float
) -> int | None:
    """Do the same as `_from_spool` for a spool in the store's database."""
    from monitor.store.postgres import PostgresDatabase, PostgresStore
    from monitor.store.spool_table import SpoolTable, has_posts_before, newest_post

    assert config.store is not None
    database = store_location(config.store)
    assert isinstance(database, PostgresDatabase)
    running = is_in_use(config.store)
    if running is None:
        return 0
    if not running:
        store = open_store(config.store, keep_reports=sys.maxsize)
        assert isinstance(store, PostgresStore)
        with closing(store):
            return SpoolTable(store, source.label, source.spool.max_bytes).erase(records)
    newest = newest_post(database, source.label)
    where = f"of {source.label} in {database.name}"
    _until_used(lambda: not has_posts_before(database, source.label, newest), where, wait_seconds)
    return None


def _until_used(used: Callable[[], bool], where: str, wait_seconds: float) -> None:
    deadline = time.monotonic() + wait_seconds
    while not used():
        if time.monotonic() > deadline:
            raise RequestError(
                f"the agent has not used the records in its spool {where} within {wait_seconds:g} s; find "
                "the cause in its log, and run this again"
            )
        time.sleep(_LOOK_SECONDS)
