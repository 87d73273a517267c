"""The exposition for Prometheus: families, their rows, and the text."""
