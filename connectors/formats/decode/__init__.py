"""Decodes records, from bytes and from tables, to columns."""
