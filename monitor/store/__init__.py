"""The durable state: SQLite, in one folder, written in transactions that hold everything or nothing."""

from monitor.store.store import Saved, Store, StoreReader

__all__ = ["Saved", "Store", "StoreReader"]
