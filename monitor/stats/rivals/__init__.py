"""Estimators of papers and of other tools, for comparison; the agent's own estimates need none of them.

`monitor.base.registry` lists the estimators, one a module; docs/estimators.md lists their assumptions.
"""
