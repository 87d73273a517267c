"""Blindsight's core: how good a deployed model is now, without waiting for labels.

The package is pure computation: it opens no socket, reads no clock and starts no thread on import.
The daemon around it is in `monitor.agent.agent`, the edges to Kafka and files in the package `connectors`.
"""

from monitor.base.results import Estimate, Unknown

__all__ = ["Estimate", "Unknown", "__version__"]

__version__ = "0.1.0"
