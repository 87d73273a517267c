"""Pure algorithms from arrays to estimates: they know no configuration, no window, no agent."""
