"""The durable state of a daemon: the store, the engine resumed from it, and the sinks of its reports."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from connectors.build import build_reports_topic
from monitor.agent.checkpoints import CheckpointWriter
from monitor.agent.forget import KIND as FORGET
from monitor.agent.forget import forget
from monitor.agent.rebaseline import KIND as REBASELINE
from monitor.agent.rebaseline import rebaseline
from monitor.agent.requests import Handler, RequestFolder, RequestHandler
from monitor.agent.resume import Resumed, restore_marks, resume, tasks_as_json
from monitor.agent.shards import Kept, OpenedShard
from monitor.base.errors import ConfigError, InUseError, LeaseLostError, StoreAwayError, StoreError
from monitor.base.spool import Spools
from monitor.cli.journal import Journal
from monitor.config.file import load_config
from monitor.config.root import Config, StoreConfig
from monitor.engine.engine import Engine, EngineSettings
from monitor.export.sinks.destination import FollowedDestination
from monitor.export.sinks.follower import ReportFollower
from monitor.export.sinks.line_file import is_pipe
from monitor.export.sinks.reports_file import ReportsFile
from monitor.export.sinks.sinks import AgentSinks, SinkSet
from monitor.store import StateStore, Store, StoreReader
from monitor.store.opening import is_in_use, open_store
from monitor.store.store import FILE, copy_store

if TYPE_CHECKING:
    from monitor.agent.request_table import PolledRequests

log = logging.getLogger("blindsight")

_CLOSE_SECONDS = 3.0

HANDLERS: Mapping[str, Handler] = {REBASELINE: rebaseline, FORGET: forget}
"""The function that carries out a request to a running agent, by the kind of the request."""


@dataclass(frozen=True, slots=True)
class State:
    """An open store, the engine resumed from it, and the threads that deliver its reports.

    Parameters
    ----------
    engine : Engine
        The engine, resumed from the store.
    kept : Kept
        The part of the state that belongs to the agent and not to the engine.
    followers : list of ReportFollower
        The threads that deliver the reports, one for each configured destination.
    readers : list of StoreReader
        The connection of each follower to the store.
    requests : RequestFolder or PolledRequests
        The folder or table that receives requests from commands.
    spools : Spools or None
        The function that opens spools of posts in the store's database; None if the store is a folder.
    """

    engine: Engine
    kept: Kept
    followers: list[ReportFollower]
    readers: list[StoreReader]
    requests: RequestFolder | PolledRequests
    spools: Spools | None = None

    def close(self) -> None:
        """Save the last checkpoint, and close the store."""
        for reader in self.readers:
            reader.close()  # first, because the last connection to close cleans up, and a reader cannot
        self.kept.keeper.close(_CLOSE_SECONDS)
        if not isinstance(self.requests, RequestFolder):
            self.requests.close(_CLOSE_SECONDS)


class ShardOpener:
    """A factory that opens the state of one partition.

    The state consists of database tables and a reports file with the partition's number.

    Parameters
    ----------
    config : Config
        A configuration with `store.by_partition`.
    settings : EngineSettings
    journal : Journal

    Raises
    ------
    ConfigError
        The database cannot be used. If the database cannot be reached now, no error is raised.
    """

    def __init__(self, config: Config, settings: EngineSettings, journal: Journal) -> None:
        self.config = config
        self.settings = settings
        self._journal = journal
        try:
            is_in_use(self.section(0))
        except StoreAwayError as error:
            log.warning("%s.", error)
        except StoreError as error:
            raise ConfigError(str(error)) from error

    def section(self, number: int) -> StoreConfig:
        """Return the configuration of the store for a partition."""
        assert self.config.store is not None
        return self.config.store.for_partition(number)

    @contextmanager
    def using(self, config: Config, settings: EngineSettings) -> Iterator[None]:
        """Use another configuration in and after a ``with`` block.

        If the block raises, restore the old one.
        """
        before = self.config, self.settings
        self.config, self.settings = config, settings
        try:
            yield
        except BaseException:
            self.config, self.settings = before
            raise

    def __call__(self, number: int) -> OpenedShard:
        """Open the state of a partition number; see `monitor.agent.shards.Shards`."""
        reports = self.config.reports
        if reports is not None and reports.path is not None:
            reports = reports.model_copy(update={"path": path_of_partition(reports.path, number)})
        config = self.config.model_copy(update={"store": self.section(number), "reports": reports})
        state = open_state(config, self.settings)
        sinks = AgentSinks(SinkSet(state.followers), self._journal.windows)

        def close() -> None:
            sinks.close()
            state.close()

        try:
            sinks.start()
            self._journal.resume(state.engine.view())
        except BaseException:
            close()
            raise
        return OpenedShard(state.engine, state.kept, sinks, close)


def path_of_partition(path: str, number: int) -> str:
    """Return the path of a partition's reports file. If the path is a pipe, all partitions share it.

    Examples
    --------
    >>> path_of_partition("out/windows.ndjson", 3)
    'out/windows-3.ndjson'
    """
    whole = Path(path)
    return path if is_pipe(path) else str(whole.with_name(f"{whole.stem}-{number}{whole.suffix}"))


Wait = Callable[[str], bool]
"""A function that takes the reason for waiting, waits a moment, and returns whether to try again."""


def _wait_for_store(section: StoreConfig, wait: Wait | None) -> StateStore:
    """Open the store, and wait while a database cannot be used yet."""
    while True:
        try:
            store = open_store(section)
            if section.postgres is not None:
                log.info("The state is in %s.", store.database.name)
            return store
        except (InUseError, StoreAwayError) as error:
            # A folder's lock ends with its holder, so a wait would hide that two agents share a folder.
            if wait is None or section.postgres is None or not wait(str(error)):
                raise


def open_state(config: Config, settings: EngineSettings, wait: Wait | None = None) -> State:
    """Open the configured store, and resume the engine from it.

    Parameters
    ----------
    config : Config
    settings : EngineSettings
    wait : callable, optional
        A function that is called with the reason while another agent uses the database, or while the database
        cannot be reached. It waits, and returns whether to try again. By default, the first failure is final.

    Raises
    ------
    ConfigError
        The store cannot be used; the message gives the reason.
    InUseError
        Another agent uses the store.
    StoreAwayError
        The database cannot be reached.
    """
    assert config.store is not None
    try:
        store = _wait_for_store(config.store, wait)
    except (InUseError, StoreAwayError):
        raise
    except StoreError as error:
        raise ConfigError(str(error)) from error
    try:
        with store.holding():
            resumed, saved_config = _resume_engine(store, settings)
            followers, readers = _followers(config, store)
            requests = _open_requests(store)
    except BaseException as error:
        store.close()
        if isinstance(error, StoreError) and not isinstance(error, (StoreAwayError, LeaseLostError)):
            raise ConfigError(str(error)) from error
        raise
    now = tasks_as_json(config.tasks)
    keeper = CheckpointWriter(
        store, lambda: {name: mark for each in followers for name, mark in each.marks.items()}
    )
    kept = Kept(
        keeper,
        config.store.every_seconds,
        None if now == saved_config else now,
        tuple(resumed.reports),
        RequestHandler(requests, HANDLERS),
    )
    keeper.start()
    return State(resumed.engine, kept, followers, readers, requests, spools_of(store))


def _resume_engine(store: StateStore, settings: EngineSettings) -> tuple[Resumed, str]:
    """Return the engine resumed from the saved state, and the configuration of that state."""
    saved = store.load()
    if saved.backup_time:
        store.mark_restore(restore_marks(saved))
        log.warning(
            "The store is a backup of %s: what was reported since may be reported again; lines of kind "
            "restore tell readers from which windows on.",
            saved.backup_time,
        )
    resumed = resume(settings, saved)
    store.forget(resumed.forgotten)
    return resumed, saved.config


def _open_requests(store: StateStore) -> RequestFolder | PolledRequests:
    if isinstance(store, Store):
        return RequestFolder(store.folder)
    from monitor.agent.request_table import PolledRequests
    from monitor.store.postgres import PostgresDatabase

    assert isinstance(store.database, PostgresDatabase)
    return PolledRequests(store.database)


def spools_of(store: StateStore) -> Spools | None:
    """Return the function that opens spools in the store's database, or None if the store is a folder."""
    if isinstance(store, Store):
        return None
    from monitor.store.postgres import PostgresStore
    from monitor.store.spool_table import SpoolTable

    assert isinstance(store, PostgresStore)
    return partial(SpoolTable, store)


def _followers(config: Config, store: StateStore) -> tuple[list[ReportFollower], list[StoreReader]]:
    """Return a follower for each destination of reports, and the connections of the followers."""
    destinations: list[FollowedDestination] = []
    if config.reports and config.reports.path:
        file = ReportsFile(config.reports.path, config.reports.max_bytes, config.reports.keep)
        destinations.append(file)
    if config.reports and config.reports.kafka:
        destinations.append(build_reports_topic(config.reports.kafka, store.identity, store.lease))
    saved = store.marks()
    readers = [store.reader() for _ in destinations]
    return [
        ReportFollower(destination, reader, saved)
        for destination, reader in zip(destinations, readers, strict=True)
    ], readers


def back_up(config_path: str, target: Path) -> str:
    """Copy the configured store, and return a sentence on the copy.

    Raises
    ------
    ConfigError
        No store is configured, the store is in PostgreSQL, or the copy exists already.
    StoreError
        There is no store yet, or the copy cannot be written.
    """
    config = load_config(config_path)
    if config.store is None:
        raise ConfigError("store: there is none in this configuration, so there is nothing to back up")
    if config.store.postgres is not None:
        schemas = f"{config.store.prefix}_*" if config.store.by_partition else config.store.prefix
        raise ConfigError(
            f"store.postgres: the database's own tools back it up: pg_dump --format=custom "
            f"--schema={schemas} --file={target} '{config.store.postgres}'. The agent may run "
            "meanwhile; after pg_restore it sees that its tables were restored, and tells the readers of "
            "reports"
        )
    if target.exists():
        raise ConfigError(f"{target}: exists already; give a new file")
    copy_store(Path(config.store.path or "") / FILE, target)
    return f"{target}: the store as of its last checkpoint. To restore it, put it back as {FILE}."
