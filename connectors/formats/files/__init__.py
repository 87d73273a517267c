"""Files as they lie on a disk: NDJSON, CSV, Parquet, compressed, references."""
