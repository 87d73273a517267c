"""Estimators from papers and other tools, for comparison; the agent's own estimates need none of them.

`monitor.base.registry` lists the estimators, and docs/estimators.md their assumptions.
"""
