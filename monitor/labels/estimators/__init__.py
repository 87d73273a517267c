"""Estimators of model quality that use labels; `monitor.labels.ESTIMATORS` lists them by name."""
