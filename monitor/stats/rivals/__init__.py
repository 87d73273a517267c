"""Estimators from papers and other tools, for comparison. The agent's own estimates do not use them.

`monitor.base.registry` lists the estimators, and docs/estimators.md their assumptions.
"""
