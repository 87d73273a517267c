"""Estimators of papers and of other tools, for comparison: the agent needs none of them for its own numbers.

Each is a module that its line in `monitor.base.registry` names; docs/estimators.md has what each assumes.
"""
