"""The agent around the engine: threads, clock, reading, checkpoints, refits and requests."""
