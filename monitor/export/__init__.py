"""The agent's output: Prometheus, HTTP, the page, rules, alerts, sinks."""
