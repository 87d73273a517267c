"""Records in bytes, files and tables: their formats, their decoding, and messages about unusable records."""
