"""What the agent tells others by itself, again and again: alerts and metrics."""
