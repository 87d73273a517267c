"""The store: the agent's durable state in an SQLite file or in PostgreSQL, written in transactions."""

from monitor.store.store import Saved, StateStore, Store, StoreReader

__all__ = ["Saved", "StateStore", "Store", "StoreReader"]
