"""Replays and streams of any size on Spark: executors decode each split and run an engine for each model.

splits ── reading ─ Share ── shuffle by unit ── computing ─ Line ── sort by place ── the driver's files
a Kafka topic ── messages ─ Share ── a batch of each unit ── stepping, state to state ── ledger commits

A unit is the work of one engine: one model, or a whole task. A share has the records of one model or task in
one chunk.

These modules are imported only for `--engine spark`.
"""
