"""Refits of estimators and recalibrations of models on new labels: jobs, fits, results and their encoding."""
