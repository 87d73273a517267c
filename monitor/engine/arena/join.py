"""Joins the verdicts of humans to comparisons by id."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from monitor.base.records import NO_ID, Batch, Floats, Ints, Keys, LabelBatch, mix
from monitor.base.registry import TASK_KINDS
from monitor.base.state_changes import JOIN_RINGS
from monitor.config.labels import LabelsConfig
from monitor.engine.labels.ageing import Ageing, Marks
from monitor.engine.labels.columns import Answers, Forgotten, weights
from monitor.engine.labels.join import JoinState, LabelJoin, LabelJoinLogic
from monitor.engine.labels.matching import labels_along, merged
from monitor.engine.labels.table import BoundedTable
from monitor.stats.pairwise.standing import Comparisons

_RINGS = dict(zip(JOIN_RINGS, TASK_KINDS["arena"].rings, strict=True))
_NO_MODEL = np.zeros(1, dtype=np.int64)  # the model number of all rows: an id has one comparison
_SHARES = np.array([0.0, 0.5, 1.0, np.nan])  # model b's share of the win by label; the last for none
_SALT = np.uint64(0xA0761D6478BD642F)


class ComparisonJoin:
    """The running join of one arena, which finds the comparison that each verdict is about, by id.

    The class uses `LabelJoin`, which stores one row for each answer of a model. Here each row is a comparison
    instead of an answer. The two models are the series of the row. The confidence of the row is the judge's
    probability that model b wins.
    """

    def __init__(
        self, labels: LabelsConfig, resume: JoinState | None = None, marks: Marks | None = None
    ) -> None:
        self._horizon_seconds = labels.horizon_seconds
        self.logic: LabelJoinLogic = LabelJoin(
            horizon_days=labels.horizon_days,
            max_answers=labels.max_answers,
            max_waiting=labels.max_waiting,
            max_bytes=labels.max_bytes,
            series_per_answer=2,
        ).build(resume)
        self.ageing = Ageing(self.rings, labels.horizon_seconds, marks)

    @property
    def rings(self) -> dict[str, BoundedTable]:
        """The ring tables (tables of limited size) with the keys ``comparisons`` and ``verdicts``."""
        return {_RINGS[kind]: ring for kind, ring in self.logic.rings.items()}

    def is_new(self, batch: Batch, sequence: Ints) -> tuple[Batch, NDArray[np.bool_]]:
        """Return the comparisons, each with a key, and a mask that is False for duplicates.

        The key is a hash of the id. A comparison without an id gets a key from its sequence number. It is
        stored, although no verdict can match it.
        """
        without = batch.key == NO_ID
        if without.any():
            own = np.maximum(mix(sequence.astype(np.uint64) ^ _SALT), np.uint64(1))
            batch = replace(batch, key=np.where(without, own, batch.key))
        return batch, self.logic.is_new(batch.key, np.zeros(len(batch), dtype=np.int64), batch.time)

    def add(self, batch: Batch, rows: Ints, models: tuple[Ints, Ints], window: Ints, sequence: Ints) -> None:
        """Store new comparisons.

        Parameters
        ----------
        batch : Batch
        rows : (m,) int64
            The indices of the new comparisons in the batch.
        models : pair of (m,) int64
            The numbers of the two models of each comparison.
        window : (m,) int64
            The number of the window of each comparison.
        sequence : (m,) int64
            The sequence number of each comparison in the stream.
        """
        zeros = np.zeros(len(rows), dtype=np.int64)
        self.logic.add_answers(
            Answers(
                key=batch.key[rows],
                model=zeros,
                predicted=zeros,
                time=batch.time[rows],
                sequence=sequence,
                series=np.stack(models, axis=1),
                window=np.stack([window, window], axis=1),
                confidence=batch.scores[rows, 0],
                scores=np.zeros((len(rows), 0)),
            )
        )

    def add_verdicts(self, batch: Batch | None, labels: LabelBatch | None, rows: Ints, places: Ints) -> None:
        """Join verdicts to their comparisons.

        Parameters
        ----------
        batch : Batch or None
            The comparisons. Their records may contain verdicts.
        labels : LabelBatch or None
            The verdicts in separate records.
        rows : (m,) int64
            The indices of the comparisons in `batch` whose models are monitored. Duplicates are included,
            because a sender may repeat a comparison to add its verdict.
        places : (n,) int64
            The sequence number of each record in the stream, in the chunk's order.
        """
        if batch is not None:
            along = labels_along(replace(batch, scores=np.zeros((len(batch), 2))), rows)  # for the whole id
            labels = along if labels is None else merged(along, labels)
        if labels is not None and len(labels):
            everyone = np.full(len(labels), -1, dtype=np.int64)
            self.logic.add_labels(labels, everyone, _NO_MODEL, places[labels.order])

    def pooled(self, first: int, last: int, end_time: float) -> Comparisons:
        """Return the stored comparisons of windows `first` to `last`.

        Comparisons that are older than the label horizon at the time `end_time` are left out.
        """
        ring = self.rings["comparisons"]
        rows = ring.live()
        known = ring.keys(rows) != 0
        near = ring["time"][rows] > end_time - self._horizon_seconds
        window = ring["window"][rows, 0]
        rows = rows[known & near & (first <= window) & (window <= last)]
        judge: Floats = ring["confidence"][rows].astype(np.float64)
        pairs = ring["series"][rows].astype(np.int64)
        return Comparisons(
            pairs[:, 0],
            pairs[:, 1],
            _SHARES[ring["label"][rows]],
            judge,
            weights(ring["probability"][rows]),
        )

    def forget(self, ids: Keys) -> Forgotten:
        """Delete the stored comparisons and verdicts with these ids."""
        return self.logic.forget(ids, _NO_MODEL)

    def tick(self, now: float) -> None:
        """Drop comparisons that are too old to get a verdict."""
        for kind, rows in self.ageing.step(now):
            self.logic.expire(_KINDS[kind], rows)


_KINDS = {ring: kind for kind, ring in _RINGS.items()}
