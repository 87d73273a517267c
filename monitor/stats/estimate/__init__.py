"""Estimators: what can be said of a model's performance from its confidences alone, and from labels."""
