"""Columns, results, errors, names and files: what every other package builds on, and nothing that they
hold."""
