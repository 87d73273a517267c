"""Bytes and tables to columns."""
