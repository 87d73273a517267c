"""The data side of `blindsight demo`: real flights, four classifiers trained on them, a stream to watch.

`prepare` writes everything that the agent needs into a folder; the agent then runs on it as it would
on anybody's files.
"""

from __future__ import annotations

from monitor.cli.demo.stream import DemoData, prepare

__all__ = ["DemoData", "prepare"]
