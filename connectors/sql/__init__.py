"""Rows of a database by any DB-API driver, as a rising column goes on: docs/tables.md."""
