"""The command `blindsight verify`, which checks that the reported windows follow from the raw input."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from connectors.build import long_names
from connectors.formats.wires.choice import wire_for
from monitor.base.errors import ConfigError
from monitor.base.registry import COMPARISON_ESTIMATORS
from monitor.cli.inputs import open_inputs
from monitor.cli.trial import read_references
from monitor.cli.verify import Findings, Verifier
from monitor.cli.verify.verifier import OF_WHOLE_TASKS
from monitor.config.file import load_config
from monitor.config.layouts import layouts
from monitor.reports.statements import count
from monitor.store.history import StoreHistory
from monitor.store.opening import locate_store

_COMPARISONS = " and ".join(", ".join(COMPARISON_ESTIMATORS).rsplit(", ", 1))


def verify(config_path: str, store: Path, files: Sequence[Path], named: Sequence[str]) -> Findings:
    """Recompute the windows of a store from files.

    Raises
    ------
    ConfigError
        The configuration cannot be used, or a file cannot be matched to a partition.
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
        if not partitions and (windows := history.count_windows_of_tasks()):
            return Findings(not_checkable=Counter({OF_WHOLE_TASKS: windows}))
        # An older version accepted long names.
        known = layouts(config.tasks, long_names(names), config.numbers_rows)
        feed = open_inputs(files, named, partitions, known, lambda name: wire_for(config, name))
        references = read_references(config, only=lambda task: task.adapts or task.layout.numeric)
        return Verifier(history, config.scored_tasks, feed, references).run()
    finally:
        history.close()


def findings_table(findings: Findings) -> str:
    """Return the findings as a table for a terminal."""
    lines = [
        f"windows checked  {findings.checked:>9,}",
        f"  equal          {findings.equal:>9,}",
        f"  different      {findings.different:>9,}",
        f"rows missing     {findings.missing.total():>9,}{_reasons(findings.missing)}",
        f"not checkable    {findings.not_checkable.total():>9,}{_reasons(findings.not_checkable)}",
    ]
    for each in findings.first:
        series = ", ".join(filter(None, each.series))
        lines.append(
            f"{series}, window {each.window}: {each.field} was reported as {each.reported}, recomputed as "
            f"{each.recomputed}"
        )
    if findings.untimed:
        lines.append(
            f"Times of {findings.untimed:,} windows were not compared: some of their records name no time."
        )
    lines.append(
        "Recomputed: size, times, positions and estimates of average_confidence and doubly_robust. Not: "
        "charts, objectives"
        + (
            f", the ends of {count(findings.informed, 'interval')} that labels moved"
            if findings.informed
            else ""
        )
        + (f", {count(findings.rivals, 'estimate')} of {_COMPARISONS}" if findings.rivals else "")
        + (f", {count(findings.realised, 'estimate')} from labels." if findings.realised else ".")
    )
    if findings.corrected:
        lines.append(
            f"Not recomputed: {count(findings.corrected, 'estimate')} of corrected. A line does not say "
            "which labels were known when its window closed, and those of earlier windows have a part."
        )
    if not findings.checked:
        lines.append("Nothing could be checked.")
    return "\n".join(lines)


def _reasons(reasons: Counter[str]) -> str:
    return "".join(f"\n    {count:,}: {reason}" for reason, count in reasons.most_common())
