"""The test kit: a source that reads a list, sinks that fill lists, a manual clock, late labels, crashes.

The source and the sinks implement the interfaces in `monitor.base.source` and `monitor.agent.agent`. So a
test of a set-up runs the same code as production, without mocks.
"""

from monitor.testing.crashes import Crash, CrashPoint, StoredAgent
from monitor.testing.lists import DelayedLabels, HandClock, ListSinks, ListSource, Marker

__all__ = [
    "Crash",
    "CrashPoint",
    "DelayedLabels",
    "HandClock",
    "ListSinks",
    "ListSource",
    "Marker",
    "StoredAgent",
]
