"""Formats of records: our own fields, mapped fields, and the events of serving stacks."""
