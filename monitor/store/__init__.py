"""The durable state: SQLite in a folder, or PostgreSQL, written in atomic transactions."""

from monitor.store.store import Saved, StateStore, Store, StoreReader

__all__ = ["Saved", "StateStore", "Store", "StoreReader"]
