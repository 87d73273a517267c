"""The test kit: source and sink that are lists, a clock moved by hand, labels that come late, crashes.

These are real implementations of the contracts in `monitor.base.source` and `monitor.agent.agent`, so that a
test of a monitor set-up runs the code that runs in production. No mocks.
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
