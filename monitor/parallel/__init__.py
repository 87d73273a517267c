"""Divides a stream among processes: the part that `replay --processes`, Spark and the notebook share.

A unit of work has an engine of its own; the engine knows nothing of this package.
"""
