"""The configuration: a frozen model for each section, the reader of files, messages, and reloads."""
