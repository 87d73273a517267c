"""Pushers of alerts and metrics, which the agent sends to other servers at regular intervals."""
