"""Alerts sent directly to Alertmanager, for installations where no Prometheus evaluates rules."""
