"""The command line: commands, check, demo, verify."""
