"""Statistical algorithms on arrays, independent of the configuration and of the agent."""
