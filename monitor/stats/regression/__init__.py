"""Losses of regressors: their means over windows without labels."""
