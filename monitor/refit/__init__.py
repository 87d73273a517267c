"""Refits of the estimators that use labels: what they are asked, the fit, the process it runs in."""
