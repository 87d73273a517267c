"""`blindsight verify`: whether what was reported follows from the raw input."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from connectors.build import long_names
from connectors.formats.wires.choice import wire_for
from monitor.agent.forget import count
from monitor.base.errors import ConfigError
from monitor.base.registry import COMPARISON_ESTIMATORS
from monitor.cli.inputs import open_inputs
from monitor.cli.settings import read_references
from monitor.cli.verify import Findings, Verifier
from monitor.cli.verify.verifier import OF_ARENAS
from monitor.config.file import load_config
from monitor.config.layouts import layouts
from monitor.store.history import StoreHistory
from monitor.store.opening import locate_store

_COMPARISONS = " and ".join(", ".join(COMPARISON_ESTIMATORS).rsplit(", ", 1))


def verify(config_path: str, store: Path, files: Sequence[Path], named: Sequence[str]) -> Findings:
    """Recompute the windows of a store from files.

    Raises
    ------
    ConfigError
        The configuration cannot be used, or it is not clear what a file is.
    StoreError
        There is no store, or it cannot be read.
    SourceError
        A file cannot be read.
    """
    config = load_config(config_path)
    if not files and not named:
        raise ConfigError("FILE…: there is none; give the raw input, or --partition NAME=FILE")
    history = StoreHistory(locate_store(store))
    try:
        partitions, names = set[str](), set[str]()
        for line in history.windows():
            partitions.update(line.positions)
            names.update((line.model, line.version, line.group.partition("=")[2]))
        if not partitions and (arenas := history.count_arena_windows()):
            return Findings(not_checkable=Counter({OF_ARENAS: arenas}))
        # An older version took long names.
        known = layouts(config.tasks, long_names(names), config.numbers_rows)
        feed = open_inputs(files, named, partitions, known, lambda name: wire_for(config, name))
        references = read_references(config, only=lambda task: task.adapts)
        return Verifier(history, config.scored_tasks, feed, references).run()
    finally:
        history.close()


def told(found: Findings) -> str:
    """The findings as a table, for people."""
    lines = [
        f"windows checked  {found.checked:>9,}",
        f"  equal          {found.equal:>9,}",
        f"  different      {found.different:>9,}",
        f"rows missing     {found.missing.total():>9,}{_reasons(found.missing)}",
        f"not checkable    {found.not_checkable.total():>9,}{_reasons(found.not_checkable)}",
    ]
    for each in found.first:
        who = ", ".join(filter(None, each.series))
        lines.append(
            f"{who}, window {each.window}: {each.field} was reported as {each.reported}, recomputed as "
            f"{each.recomputed}"
        )
    if found.untimed:
        lines.append(
            f"Times of {found.untimed:,} windows were not compared: some of their records name no time."
        )
    lines.append(
        "Recomputed: size, times, positions and the estimates of average_confidence. Not: charts, objectives"
        + (f", the ends of {count(found.informed, 'interval')} that labels moved" if found.informed else "")
        + (f", {count(found.rivals, 'estimate')} of {_COMPARISONS}" if found.rivals else "")
        + (f", {count(found.realised, 'estimate')} from labels." if found.realised else ".")
    )
    if found.corrected:
        lines.append(
            f"Not recomputed: {count(found.corrected, 'estimate')} of corrected. A line does not say which "
            "labels were known when its window closed, and those of earlier windows have a part."
        )
    if not found.checked:
        lines.append("Nothing could be checked.")
    return "\n".join(lines)


def _reasons(reasons: Counter[str]) -> str:
    return "".join(f"\n    {count:,}: {reason}" for reason, count in reasons.most_common())
