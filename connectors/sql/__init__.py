"""Rows of a database, read by any DB-API driver as a column rises: docs/tables.md."""
