"""The metrics for Prometheus: the table of metric families, their samples, and the text of a scrape."""
