"""The `sql` source, which polls a table or query of a database with any DB-API driver: docs/files.md."""
