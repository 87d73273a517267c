"""Replays and streams of any size on Spark, with the decoder for each split and the engine for each model.

splits ── reading ─ Share ── shuffle by unit ── computing ─ Line ── sort by place ── the driver's files
a Kafka topic ── messages ─ Share ── a batch of each unit ── stepping, state to state ── ledger commits

These modules are imported only for `--engine spark`.
"""
