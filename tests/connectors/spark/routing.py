"""The blocks that Spark's shuffle brings to each unit, computed once more in this process."""

from __future__ import annotations

from connectors.spark.job import Block, BlockKind
from monitor.parallel.planning import Unit


def wanted(block: Block, unit: Unit) -> bool:
    """Return whether a block goes to the task that computes a unit."""
    if block.kind != BlockKind.SHARE or block.task != unit.task:
        return False
    if unit.model is None:
        return block.besides == ""
    return unit.model == block.model or (block.model == "" and block.besides != unit.model)
