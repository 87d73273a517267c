"""The checks of `blindsight check`: errors and warnings of a configuration, and its expected false alarms."""
