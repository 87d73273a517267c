"""The formats of records, the readers of files, the decoder, and the messages about unusable records."""
