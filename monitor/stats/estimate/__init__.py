"""Estimators of a model's performance, from its confidences alone or with labels."""
