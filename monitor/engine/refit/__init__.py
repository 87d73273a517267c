"""Refits of the estimators that use labels: jobs, fits, results and their encoding."""
