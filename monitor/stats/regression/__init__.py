"""Errors of regressors without labels: mean losses of windows, and errors within a tolerance."""
