"""Locates and opens the store that a configuration names."""

from __future__ import annotations

from pathlib import Path

from monitor.base.errors import StoreError
from monitor.config.file import load_config
from monitor.config.root import StoreConfig
from monitor.store.database import Database
from monitor.store.lock import FolderLock
from monitor.store.store import FILE, StateStore, Store


def store_location(section: StoreConfig) -> Path | Database:
    """Return the file (for SQLite) or the database (for PostgreSQL) of the configured store.

    Raises
    ------
    MissingExtraError
        The database's driver is not installed.
    StoreError
        The section has `by_partition`, so each partition has its own store.
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
    """Open the configured store for exclusive use by this process.

    Parameters
    ----------
    section : StoreConfig
    keep_reports : int, optional
        Replaces the configured value.

    Raises
    ------
    InUseError
        Another agent uses the store.
    StoreError
        The store cannot be used; the message gives the reason.
    MissingExtraError
        The database's driver is not installed.
    """
    where, keep = store_location(section), keep_reports or section.keep_reports
    if isinstance(where, Path):
        return Store(where.parent, keep)
    from monitor.store.postgres import PostgresDatabase, PostgresStore

    assert isinstance(where, PostgresDatabase)
    return PostgresStore(where, keep, section.lease_seconds)


def is_in_use(section: StoreConfig) -> bool | None:
    """Return whether an agent uses the configured store, or None if the store does not exist yet.

    Raises
    ------
    StoreError
        The database cannot be reached or read.
    """
    where = store_location(section)
    if isinstance(where, Path):
        return FolderLock.is_held(where.parent) if where.is_file() else None
    from monitor.store.postgres import PostgresDatabase

    assert isinstance(where, PostgresDatabase)
    return where.is_held()


def locate_store(store: Path) -> Path | Database:
    """Return the file or the database of a store, for the argument STORE of a command.

    The argument is the folder or the file of a store, or a configuration file that names a store.

    Raises
    ------
    ConfigError
        The configuration cannot be used.
    StoreError
        The configuration has no store.
    MissingExtraError
        The database's driver is not installed.
    """
    if store.suffix not in (".yaml", ".yml"):
        return store
    section = load_config(store).store
    if section is None:
        raise StoreError(f"{store}: store: there is none in this configuration")
    return store_location(section)
