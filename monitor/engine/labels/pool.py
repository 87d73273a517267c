"""The pool: the requests, some of them labelled, on which estimators that use labels are fitted.

A row of the pool is one request, with the scores of every model that answered it. Labelled rows are stored in
the pool, because the label join overwrites old answers. Unlabelled rows are not stored: when a fit needs
them, they are read from the newest answers of the label join. If there are more rows than a fit may use, the
fit gets a stratified sample (`monitor.stats.sampling.stratified`). Answers without an id are left out,
because neither labels nor answers of other models can be joined to them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from monitor.base.records import NO_ID, Floats, Ints, Keys
from monitor.base.state_changes import RingState
from monitor.engine.labels.columns import Horizon, Matches, answer_keys, model_code
from monitor.engine.labels.matching import repeats
from monitor.engine.labels.table import BoundedTable
from monitor.stats.sampling.stratified import sample, strata

_BLOCK = 50_000  # answers read at once, newest first
_CANDIDATES = 2  # requests joined for each that a fit may use, so that strata can be sampled
_SEED = 90_417


@dataclass(frozen=True, slots=True)
class PoolRows:
    """The rows of a pool for a fit: labelled rows, then unlabelled rows, both from old to new.

    Parameters
    ----------
    scores : (n, M, K) float32
        Raw scores; all NaN for a model that did not answer a row.
    labels : (n,) int64
        −1 for unlabelled rows.
    predicted : (n, M) int64
        The predicted classes, −1 where a model did not answer.
    weights : (n,) float64
        1 over the probability of being labelled; 1 if this probability is unknown.
    ids : (n,) uint64
        Hashes of the requests' ids.
    times : (n,) float64
        The time of an answer to each labelled row, seconds since the epoch; NaN for unlabelled rows.
    time : float
        The time of the newest answer, seconds since the epoch; 0 if there is none.
    pool : int
        The number of requests that the n rows represent, including the n rows themselves. For large pools
        this number is an estimate.
    """

    scores: Floats
    labels: Ints
    predicted: Ints
    weights: Floats
    ids: Keys
    times: Floats
    time: float
    pool: int

    def __len__(self) -> int:
        return len(self.labels)


def labelled_columns(models: tuple[str, ...], classes: int) -> dict[str, DTypeLike]:
    """Return the names and types of the stored columns of a labelled row.

    Each model has its own columns, so that adding or removing a model does not change the other columns.
    The index of the predicted class is stored plus 1; 0 means that the model did not answer.
    """
    columns: dict[str, DTypeLike] = {
        "label": np.int32,
        "replaced": np.bool_,
        "weight": np.float64,
        "time": np.float64,
    }
    for model in models:
        columns[f"acted/{model}"] = np.int32
        columns[f"scores/{model}"] = np.dtype((np.float32, (classes,)))
    return columns


class ScorePool:
    """The pool of one task: the rows on which refits fit the estimators that use labels.

    Parameters
    ----------
    answers : BoundedTable
        The stored answers of the task's label join, from which the pool reads.
    models : tuple of str
        The models whose scores form a row, in the order of the columns.
    classes : int
        The number of scores of an answer.
    max_rows : int
        The largest number of newest unlabelled rows from which a fit may sample.
    fit_rows : int
        The largest number of unlabelled rows in a fit.
    max_labelled : int
        The largest number of labelled rows; new rows overwrite the oldest.
    horizon_days : float
        As in `LabelJoin`: answers with the same id that lie further apart belong to different requests.
    resume : RingState, optional
        A snapshot.

    Attributes
    ----------
    labelled : BoundedTable
        The ring table of labelled rows, by id.
    """

    def __init__(
        self,
        answers: BoundedTable,
        *,
        models: tuple[str, ...],
        classes: int,
        max_rows: int,
        fit_rows: int,
        max_labelled: int,
        horizon_days: float,
        resume: RingState | None = None,
    ) -> None:
        self._answers = answers
        self._models, self._classes = models, classes
        self._max_rows, self._fit_rows = max_rows, fit_rows
        self._horizon = Horizon(horizon_days * 86_400.0)
        self._codes = np.array([model_code(model) for model in models], dtype=np.int64)
        self.labelled = BoundedTable(labelled_columns(models, classes), max_labelled, resume)

    def add(self, matches: Matches, model: Ints) -> int:
        """Add labels that were matched to answers, in order. A corrected label replaces the earlier one.

        Parameters
        ----------
        matches : Matches
            The n matched labels, sorted by sequence number.
        model : (n,) int64
            Indices into the pool's models, −1 for rows of other models.

        Returns
        -------
        int
            The number of rows that got their first label.
        """
        rows = np.flatnonzero((model >= 0) & (matches.id != NO_ID))
        answer = self._answers.find(answer_keys(matches.id[rows], self._codes[model[rows]]))
        there = answer >= 0  # others were overwritten after their labels came
        rows, answer = rows[there], answer[there]
        if not len(rows):
            return 0
        if not self._overwrites_own_rows(matches.id[rows]):
            return self._add(matches.take(rows), model[rows], answer)
        # One row at a time, in order, because a row may be overwritten before its next label comes.
        return sum(
            self._add(matches.take(rows[i : i + 1]), model[rows[i : i + 1]], answer[i : i + 1])
            for i in range(len(rows))
        )

    def rows(self, series: Ints) -> PoolRows:
        """Return the rows for a fit: all labelled rows, and unlabelled rows.

        The unlabelled rows are the newest ones, or a sample of them if there are too many.

        Parameters
        ----------
        series : (s,) int64
            The numbers of the series of the pool's models.
        """
        kept = self.labelled.live()
        ids = self.labelled.keys(kept)
        kept, ids = kept[ids != NO_ID], ids[ids != NO_ID]
        more, unlabelled = self._unlabelled(series)
        label = np.concatenate([self.labelled["label"][kept], np.full(len(more), -1)]).astype(np.int64)
        weight = np.concatenate([self.labelled["weight"][kept], np.ones(len(more))])
        every = np.concatenate([ids, more])
        time = np.concatenate([self.labelled["time"][kept], np.full(len(more), np.nan)])
        shape = (len(every), len(self._codes))
        scores: NDArray[Any] = np.full((*shape, self._classes), np.nan, dtype=np.float32)
        predicted = np.full(shape, -1, dtype=np.int64)
        newest = float(time[: len(ids)].max()) if len(ids) else 0.0
        for m, model in enumerate(self._models):
            acted = self.labelled[f"acted/{model}"][kept] - 1
            known = np.flatnonzero(acted >= 0)
            predicted[known, m] = acted[known]
            scores[known, m] = self.labelled[f"scores/{model}"][kept[known]]
            place, answer = self._answers_of(every, time, m, predicted[:, m] < 0)
            predicted[place, m] = self._answers["predicted"][answer]
            scores[place, m] = self._answers["scores"][answer]
            newest = max(newest, float(self._answers["time"][answer].max(initial=0.0)))
        pool = len(ids) + unlabelled
        if len(more) <= self._fit_rows:
            return PoolRows(scores, label, predicted, weight, every, time, newest, pool)
        labelled = label >= 0
        picks = sample(strata(scores, labelled), labelled, every, self._fit_rows, unlabelled)
        columns = scores[picks], label[picks], predicted[picks], weight[picks], every[picks], time[picks]
        return PoolRows(*columns, newest, pool)

    @property
    def replaced(self) -> NDArray[np.bool_]:
        """A mask of the labelled rows, (n,), which is true if a later label changed the class."""
        kept = self.labelled.live()
        replaced: NDArray[np.bool_] = self.labelled["replaced"][kept[self.labelled.keys(kept) != NO_ID]]
        return replaced

    def wipe(self, ids: Keys) -> int:
        """Delete the labelled rows with these ids, here and in the store; return their number."""
        return self.labelled.wipe(ids)

    def _answers_of(
        self, ids: Keys, time: Floats, model: int, wanted: NDArray[np.bool_]
    ) -> tuple[Ints, Ints]:
        """Return the indices of the wanted rows that a model answered, and the rows of these answers.

        The rows of the answers are rows of the label join.
        """
        place = np.flatnonzero(wanted)
        answer = self._answers.find(answer_keys(ids[place], np.full(len(place), self._codes[model])))
        place, answer = place[answer >= 0], answer[answer >= 0]
        scored = self._answers["id"][answer] != NO_ID  # answers from before refits were configured have no id
        place, answer = place[scored], answer[scored]
        lag = np.nan_to_num(self._answers["time"][answer] - time[place], nan=0.0)
        near = self._horizon.is_near(lag)
        return place[near], answer[near]

    def _unlabelled(self, series: Ints) -> tuple[Keys, int]:
        """Return ids of unlabelled requests, from old to new, and the number of requests they represent."""
        most = _CANDIDATES * self._fit_rows
        if self._max_rows <= most or len(self._answers) <= most * len(self._codes):
            ids = self._newest_unlabelled(series)
            return ids, len(ids)
        first, stop = self._answers.span
        ids, share = self._spread(series, first, stop, most)
        enough = int(self._max_rows / max(share, 1 / (stop - first)))
        if enough < stop - first:
            first = stop - enough
            ids, share = self._spread(series, first, stop, most)
        return ids, max(round(share * (stop - first)), len(ids))

    def _spread(self, series: Ints, first: int, stop: int, most: int) -> tuple[Keys, float]:
        """Return the ids of unlabelled requests, spread over the answers with these numbers, and their share.

        The time depends on the number of ids requested, not on the number of answers. The method divides the
        answers into equal runs and draws one answer from each run. The answer is used only if it comes from
        the first model that answered its request. So each request is used once.
        """
        many = min(most * len(self._codes), stop - first)
        within = np.random.default_rng(_SEED).random(many)
        numbers = first + ((np.arange(many) + within) * ((stop - first) / many)).astype(np.int64)
        rows = self._answers.at(np.unique(np.minimum(numbers, stop - 1)))
        ids = self._answers["id"][rows]
        of_request = np.full(len(rows), -1, dtype=np.int64)
        for code in self._codes[::-1]:
            answers = self._answers.find(answer_keys(ids, np.full(len(ids), code)))
            of_request = np.where(answers >= 0, answers, of_request)
        wanted = (ids != NO_ID) & np.isin(self._answers["series"][rows, 0], series) & (of_request == rows)
        wanted &= self.labelled.find(ids) < 0
        return ids[wanted], float(wanted.mean())

    def _newest_unlabelled(self, series: Ints) -> Keys:
        """Return the ids of the newest unlabelled requests, from old to new."""
        newest = np.zeros(0, dtype=np.uint64)
        live = self._answers.live()
        for stop in range(len(live), 0, -_BLOCK):
            rows = live[max(stop - _BLOCK, 0) : stop][::-1]
            ids = self._answers["id"][rows]
            wanted = (ids != NO_ID) & np.isin(self._answers["series"][rows, 0], series)
            ids = ids[wanted]
            ids = ids[self.labelled.find(ids) < 0]
            every = np.concatenate([newest, ids])
            _, first = np.unique(every, return_index=True)
            newest = every[np.sort(first)][: self._max_rows]
            if len(newest) == self._max_rows:
                break
        return newest[::-1]

    def _overwrites_own_rows(self, ids: Keys) -> bool:
        """Return whether the new rows for these labels would overwrite a row that one of the labels needs."""
        known = self.labelled.find(ids)
        new = len(np.unique(ids[known < 0]))
        return new > self.labelled.limit or bool(np.isin(known, self.labelled.overwritten_by(new)).any())

    def _add(self, matches: Matches, model: Ints, answer: Ints) -> int:
        """Add labels. Their new rows must not overwrite a row that one of the labels needs."""
        time = self._answers["time"][answer]
        known = self.labelled.find(matches.id)
        old = np.flatnonzero(known >= 0)
        reused = old[~self._horizon.is_near(time[old] - self.labelled["time"][known[old]])]
        self.labelled.forget(known[reused])
        known[np.isin(matches.id, matches.id[reused])] = -1
        fresh = np.setdiff1d(np.flatnonzero(known < 0), repeats(matches.id)[0])
        self._begin(matches.id[fresh], matches.weight[fresh], time[fresh])
        rows = self.labelled.find(matches.id)
        there = rows >= 0
        self.labelled.put("label", rows[there], matches.label[there])
        self.labelled.put("replaced", rows[there & matches.replaced], True)
        for m in np.unique(model).tolist():
            own = np.flatnonzero(there & (model == m))
            name = self._models[m]
            self.labelled.put(f"acted/{name}", rows[own], self._answers["predicted"][answer[own]] + 1)
            self.labelled.put(f"scores/{name}", rows[own], self._answers["scores"][answer[own]])
        return len(fresh)

    def _begin(self, ids: Keys, weight: Floats, time: Floats) -> None:
        """Add rows for new ids, without answers.

        A row may overwrite an older row. The predicted classes of the older row are cleared.
        """
        empty = {f"acted/{model}": np.zeros(len(ids), dtype=np.int32) for model in self._models}
        replaced = np.zeros(len(ids), dtype=bool)
        self.labelled.add(ids, {"replaced": replaced, "weight": weight, "time": time, **empty})
