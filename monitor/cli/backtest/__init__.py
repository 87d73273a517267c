"""The command `blindsight backtest`: what the alarms of a configuration would have done with known drops.

`history` replays files as they were, `injecting` replays them again with drops, `results` compares the two,
and `screen` prints the comparison. `incident` compares the alarms of a period, `settings_grid` replays files
with other settings, and `incident_text` prints both.
"""
