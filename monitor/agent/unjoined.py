"""Logs a warning for each task whose labels never match an answer, with an example of both ids."""

from __future__ import annotations

import logging

from monitor.base.records import Chunk, SampleIds, id_look
from monitor.reports.views import EngineView, LabelOutcome

log = logging.getLogger("blindsight")

_LABELS = 50  # with fewer labels, chance or labels that arrived before their answers may be the cause
_MISSED = (LabelOutcome.EXPIRED, LabelOutcome.AMBIGUOUS)


class UnjoinedLabels:
    """Detects tasks whose labels never match an answer, and stores ids as examples for the warning."""

    def __init__(self) -> None:
        self._ids: dict[str, SampleIds] = {}
        self._done: set[str] = set()

    def note(self, chunk: Chunk) -> None:
        """Store the ids of an answer and of a label of each task in a chunk, in place of earlier examples."""
        for task, ids in chunk.ids.items():
            self._ids[task] = ids.or_else(self._ids.get(task, SampleIds()))

    def check(self, view: EngineView, ended: bool = False) -> None:
        """Log a warning, once for each task, if answers and labels have come, but no label has matched.

        The warning requires at least 50 labels. At the end of the input (`ended`), one label is enough.
        """
        for task in self._ids.keys() - self._done:
            ids = self._ids[task]
            if view.labels.get((task, LabelOutcome.MATCHED), 0):
                self._done.add(task)
                continue
            came = view.labels_waiting.get(task, 0)
            came += sum(view.labels.get((task, missed), 0) for missed in _MISSED)
            if ids.answer is None or ids.label is None or came < (1 if ended else _LABELS):
                continue
            self._done.add(task)
            log.warning(
                "Task %s: %s come, and none has found an answer so far: answers have %s, labels %s. A label "
                "joins the answer with its id; `blindsight doctor` compares the sources.",
                task,
                f"{came:,} labels have" if came > 1 else "1 label has",
                id_look(ids.answer),
                id_look(ids.label),
            )
