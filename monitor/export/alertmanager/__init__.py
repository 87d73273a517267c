"""Alerts straight to Alertmanager, for places where no Prometheus evaluates rules."""
