"""What leaves the agent: Prometheus, HTTP, the page, rules, alerts, sinks."""
