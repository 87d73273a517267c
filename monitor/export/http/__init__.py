"""The HTTP server of the page and of the metrics."""
