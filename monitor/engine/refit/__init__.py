"""Refits of the estimators that use labels: what they are asked, the fit, its messages."""
