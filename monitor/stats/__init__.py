"""Pure algorithms from arrays to estimates, independent of the configuration and of the agent."""
