"""Which store a configuration means."""

from __future__ import annotations

from pathlib import Path

from monitor.base.errors import StoreError
from monitor.config.file import load_config
from monitor.config.root import StoreConfig
from monitor.store.database import Database
from monitor.store.lock import FolderLock
from monitor.store.store import FILE, StateStore, Store


def where_is(section: StoreConfig) -> Path | Database:
    """The store's file, or its database.

    Raises
    ------
    MissingExtraError
        The database's driver is not installed.
    StoreError
        Each partition has its own.
    """
    if section.by_partition:
        raise StoreError(
            "store.by_partition: each partition has its own store; for that of partition 3, say, give a copy "
            f"of the configuration with prefix: {section.for_partition(3).prefix} and no by_partition"
        )
    if section.postgres is None:
        return Path(section.path or "") / FILE
    from monitor.store.postgres import PostgresDatabase

    return PostgresDatabase(section.postgres, section.prefix, section.password_file)


def open_store(section: StoreConfig, keep_reports: int | None = None) -> StateStore:
    """The configured store, for this process alone.

    Raises
    ------
    InUseError
        Another agent has it.
    StoreError
        It cannot be used, and why.
    MissingExtraError
        The database's driver is not installed.
    """
    where, keep = where_is(section), keep_reports or section.keep_reports
    if isinstance(where, Path):
        return Store(where.parent, keep)
    from monitor.store.postgres import PostgresDatabase, PostgresStore

    assert isinstance(where, PostgresDatabase)
    return PostgresStore(where, keep, section.lease_seconds)


def in_use(section: StoreConfig) -> bool | None:
    """Whether an agent has the store; None where there is none yet.

    Raises
    ------
    StoreError
        It cannot be told.
    """
    where = where_is(section)
    if isinstance(where, Path):
        return FolderLock.held(where.parent) if where.is_file() else None
    from monitor.store.postgres import PostgresDatabase

    assert isinstance(where, PostgresDatabase)
    return where.held()


def located(store: Path) -> Path | Database:
    """What a command means by STORE: a folder or a file; or, of a configuration, the store that it names.

    Raises
    ------
    ConfigError
        The configuration cannot be used.
    StoreError
        It names no store.
    """
    if store.suffix not in (".yaml", ".yml"):
        return store
    section = load_config(store).store
    if section is None:
        raise StoreError(f"{store}: store: there is none in this configuration")
    return where_is(section)
