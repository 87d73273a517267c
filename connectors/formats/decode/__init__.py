"""Decode bytes and tables to columns."""
