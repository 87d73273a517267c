"""Estimators of a model's performance from its confidences alone, and from labels."""
