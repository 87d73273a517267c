"""Readers of files: NDJSON, CSV, Parquet, compressed files and references."""
