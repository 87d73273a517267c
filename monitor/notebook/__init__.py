"""`Monitor`, for notebooks and scripts: the computation of `replay` over frames that are in memory.

`blindsight.py` is what `import blindsight` finds: the build puts it beside `monitor` (`pyproject.toml`).
"""
