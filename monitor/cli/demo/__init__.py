"""The data of `blindsight demo`: real flights, four classifiers trained on them, and a stream of predictions.

`prepare` writes all files that the agent needs into a folder. The agent reads them like any other files.
"""

from __future__ import annotations

from monitor.cli.demo.stream import DemoData, prepare

__all__ = ["DemoData", "prepare"]
