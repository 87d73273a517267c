"""`Monitor`, for notebooks and scripts: the computation of `replay` on frames in memory.

The build copies `blindsight.py` beside `monitor` (see `pyproject.toml`), so that `import blindsight` works.
"""
