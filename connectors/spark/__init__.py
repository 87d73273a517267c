"""Replays and streams of any size on Spark: the same decoder for each split, the same engine for each model.

splits ── reading ─ Share ── shuffle by unit ── computing ─ Line ── sort by place ── the driver's files
a Kafka topic ── messages ─ Share ── a batch of each unit ── stepping, state to state ── ledger commits

Nothing here is imported unless Spark is asked for.
"""
