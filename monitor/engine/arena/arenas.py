"""The arenas of an engine: tasks whose models are compared in pairs."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from monitor.base.records import Chunk, Ints, Keys, LabelBatch
from monitor.base.state_changes import RingChange
from monitor.config.arena import Arena
from monitor.engine.arena.engine import ArenaEngine, ArenaSettings, ArenaState
from monitor.engine.chunks import TimedBatch
from monitor.engine.labels.columns import Forgotten
from monitor.engine.labels.table import BoundedTable
from monitor.engine.report_order import OrderedReport


class Arenas(Mapping[str, ArenaEngine]):
    """The engines of all arenas, by name; each method calls the engines in turn.

    Parameters
    ----------
    settings : mapping of str to Arena
        The configured arenas.
    resume : mapping of str to ArenaState, optional
        States of arenas that are no longer configured are ignored.
    """

    def __init__(self, settings: Mapping[str, Arena], resume: Mapping[str, ArenaState] | None = None) -> None:
        saved = resume or {}
        self._arenas = {
            name: ArenaSettings(name, arena).build(saved.get(name)) for name, arena in settings.items()
        }

    def __getitem__(self, name: str) -> ArenaEngine:
        return self._arenas[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._arenas)

    def __len__(self) -> int:
        return len(self._arenas)

    def absorb(
        self,
        batches: Mapping[str, TimedBatch],
        labels: Mapping[str, LabelBatch],
        chunk: Chunk,
        places: Ints,
    ) -> tuple[list[OrderedReport], int]:
        """Process the arenas' records in a part of a chunk; see `ArenaEngine.absorb`."""
        lines: list[OrderedReport] = []
        shed = 0
        for name, arena in self._arenas.items():
            for partition in chunk.after_others:
                arena.interrupt(partition)
            if name in batches or name in labels:
                more, away = arena.absorb(batches.get(name), labels.get(name), chunk.partitions, places)
                lines, shed = lines + more, shed + away
        return lines, shed

    def tick(self, now: float, live: bool) -> list[OrderedReport]:
        """Advance the time of all arenas, which closes windows that are too old; see `ArenaEngine.tick`."""
        return [line for arena in self.values() for line in arena.tick(now, live)]

    def close(self, names: Collection[str] | None = None) -> list[OrderedReport]:
        """Close the open windows of these arenas; None means all arenas."""
        chosen = [arena for name, arena in self.items() if names is None or name in names]
        return [line for arena in chosen for line in arena.close()]

    def forget(self, ids: Keys, task: str) -> list[Forgotten]:
        """Delete all records that are stored under these ids, in one arena or, for ``""``, in all."""
        return [arena.forget(ids) for name, arena in self.items() if task in ("", name)]

    def changes(self) -> tuple[dict[str, Any], list[RingChange]]:
        """Return the changes of the state since the last call; see `Engine.changes`."""
        parts: dict[str, Any] = {}
        rings: list[RingChange] = []
        for arena in self.values():
            of_arena, of_rings = arena.changes()
            parts, rings = parts | of_arena, rings + of_rings
        return parts, rings

    def confirm(self) -> None:
        """Mark the result of `changes` as saved, so that the next call leaves it out."""
        for ring in self._rings:
            ring.confirm()

    def retract(self) -> None:
        """Mark the result of `changes` as not saved, so that the next call returns it again."""
        for ring in self._rings:
            ring.retract()

    @property
    def _rings(self) -> list[BoundedTable]:
        return [ring for arena in self.values() for ring in arena.join.rings.values()]
