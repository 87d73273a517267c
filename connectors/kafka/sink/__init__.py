"""Topics to write to."""
