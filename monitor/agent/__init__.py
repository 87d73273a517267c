"""The agent around the engine: threads, the clock, feeding, checkpoints, the refits' process, operators'
requests."""
