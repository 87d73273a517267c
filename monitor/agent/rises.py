"""Logs a warning when duplicate answers or unmatched labels become frequent, or scores are only 0 or 1."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from monitor.base.records import Chunk
from monitor.reports.views import EngineView, LabelOutcome

log = logging.getLogger("blindsight")

FEW = 0.05
"""A share of duplicates among answers, or of unmatched labels among labels, is high above this value."""

_FEWEST = 200  # the least number of answers or labels for a measurement
_MISSED = (LabelOutcome.EXPIRED, LabelOutcome.AMBIGUOUS)
_TAKEN = (*_MISSED, LabelOutcome.MATCHED)

Counts = tuple[int, int]
"""The number of unused (duplicate, unmatched) answers or labels, and the number of all answers or labels."""


@dataclass(slots=True)
class _Share:
    """The total counts at the last measurement, the share measured then, and whether it was high."""

    at: Counts
    before: float = 0.0
    is_high: bool = False


class RisingShares:
    """Detects rising shares of duplicate answers or unmatched labels, and models with only certain answers.

    A share is measured each time when at least 200 further answers or labels have come. A rise begins when
    the share is above 5 % and more than twice the previous share. It ends when the share is at most 5 %.

    Examples
    --------
    >>> rises = RisingShares()
    >>> rises.log_rises(EngineView())
    """

    def __init__(self) -> None:
        self._shares: dict[tuple[str, str], _Share] = {}
        self._certain: dict[tuple[str, str], int] = {}  # number of answers of models without any other answer
        self._uncertain: set[tuple[str, str]] = (
            set()
        )  # models with another answer, which are not checked again

    def check_scores(self, chunk: Chunk) -> None:
        """Log a warning if all of the first 200 answers of a model are certain, once for each model.

        An answer is certain if one of its scores is exactly 1, or if its confidence is exactly 0 or 1. A
        predicted number is never certain.
        """
        for batch in chunk.batches:
            names = [(batch.task, model) for model in batch.models]
            if self._uncertain.issuperset(names):
                continue
            certain = batch.certain
            for code, name in enumerate(names):
                if name not in self._uncertain:
                    self._note(name, certain[batch.model == code])

    def _note(self, name: tuple[str, str], certain: NDArray[np.bool_]) -> None:
        """Count the answers of a model until one of them is not certain, and log the warning."""
        before = self._certain.pop(name, 0)
        if not certain.all():
            self._uncertain.add(name)
            return
        rows = self._certain[name] = before + len(certain)
        if before < _FEWEST <= rows:
            log.warning(
                "Task %s, model %s: each score of %d answers is exactly 0 or 1, so every answer gets the "
                "same confidence; send probabilities before rounding.",
                *name,
                rows,
            )

    def marked(self, view: EngineView) -> EngineView:
        """Return a view that marks each model with at least 200 answers, all of them certain.

        The mark, `certain`, is the number of these answers. `check_scores` defines when an answer is certain.
        """
        certain = {name: rows for name, rows in self._certain.items() if rows >= _FEWEST}
        if not certain:
            return view
        series = (
            one if one.group else replace(one, certain=certain.get((one.task, one.model), 0))
            for one in view.series
        )
        return replace(view, series=tuple(series))

    def log_rises(self, view: EngineView) -> None:
        """Measure the shares of duplicates and unmatched labels of each task; log a warning at a rise."""
        answers: dict[str, Counts] = {}
        for one in view.series:
            if not one.group:
                lost, total = answers.get(one.task, (0, 0))
                read = one.predictions + one.pending + one.duplicates
                answers[one.task] = (lost + one.duplicates, total + read)
        for task, counts in answers.items():
            if (share := self._risen((task, "answers"), counts)) is not None:
                log.warning(
                    "Task %s: %.0f %% of the newest answers have the id of an earlier one of their model. "
                    "They do not count: give each answer an id of its own.",
                    task,
                    100 * share,
                )
        for task in dict.fromkeys(task for task, _ in view.labels):
            lost = sum(view.labels.get((task, outcome), 0) for outcome in _MISSED)
            waiting = view.labels_waiting.get(task, 0)
            total = sum(view.labels.get((task, outcome), 0) for outcome in _TAKEN) + waiting
            # If no label was ever joined, `UnjoinedLabels` logs a warning that shows ids.
            share = self._risen((task, "labels"), (lost + waiting, total))
            if share is not None and view.labels.get((task, LabelOutcome.MATCHED), 0):
                log.warning(
                    "Task %s: %.0f %% of the newest labels have found no answer. A label joins "
                    "the answer with its id; `blindsight doctor` compares ids.",
                    task,
                    100 * share,
                )

    def _risen(self, name: tuple[str, str], counts: Counts) -> float | None:
        """Return the share since the last measurement if a rise begins, otherwise None.

        The result is also None if fewer than `_FEWEST` answers or labels have come since the last
        measurement.
        """
        known = self._shares.setdefault(name, _Share((0, 0)))
        # The count may decrease, because a waiting label may have been joined to its answer.
        lost, total = max(counts[0] - known.at[0], 0), counts[1] - known.at[1]
        if total < _FEWEST:
            return None
        known.at = counts
        share = lost / total
        rises = share > FEW and share > 2 * known.before and not known.is_high
        known.is_high = share > FEW
        known.before = share
        return share if rises else None
