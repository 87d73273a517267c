"""Topics to read from."""
