"""The durable state: SQLite in a folder, or PostgreSQL, in transactions that hold everything or nothing."""

from monitor.store.store import Saved, StateStore, Store, StoreReader

__all__ = ["Saved", "StateStore", "Store", "StoreReader"]
