"""Divides a stream among several processes, for `replay --processes`, Spark and the notebook.

Each process runs its own engines. The package `monitor.engine` does not import this package.
"""
