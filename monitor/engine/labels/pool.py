"""The rows that estimators which use labels are fitted on: many requests' scores, few of them labelled.

A row is one request with the scores of every model that answered it. Labelled rows stand in a ring of
their own, so that they outlive the answers of the label join; unlabelled rows are the newest of those
answers, put together by id when a fit asks for them; of more than a fit may have, a stratified sample
(`monitor.stats.sampling.stratified`). Answers without an id take no part: nothing tells which of other
models' answers
belong to them, and no label can reach them.
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

_BLOCK = 50_000  # answers looked through at a time, newest first
_CANDIDATES = 2  # requests put together for each that a fit may have: their strata must be told apart
_SEED = 90_417


@dataclass(frozen=True, slots=True)
class PoolRows:
    """The rows of a pool, labelled ones first, each part from old to new.

    Parameters
    ----------
    scores : (n, M, K) float32
        Raw; all NaN for a model that did not answer a row.
    labels : (n,) int64
        −1 where there is none.
    predicted : (n, M) int64
        Classes acted on, −1 where a model did not answer.
    weights : (n,) float64
        1 over the probability of being labelled; 1 where none was given.
    ids : (n,) uint64
    times : (n,) float64
        Of an answer to each labelled one, seconds since the epoch; NaN for the others.
    time : float
        Of the newest answer, seconds since the epoch; 0 where there is none.
    pool : int
        Requests that they stand for, themselves among them; beyond some millions about so many.
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


@dataclass(frozen=True, slots=True)
class ScorePoolSettings:
    """What a pool is built from.

    Parameters
    ----------
    models : tuple of str
        Those whose scores are put together, in the order of the columns.
    classes : int
        Scores of one answer.
    max_rows : int
        Unlabelled rows that a fit stands for at most, the newest.
    fit_rows : int
        Unlabelled rows that it gets of those.
    max_labelled : int
        Labelled rows kept, oldest out first.
    horizon_days : float
        As of the label join: an id whose answers lie further apart than this was used twice.
    """

    models: tuple[str, ...]
    classes: int
    max_rows: int
    fit_rows: int
    max_labelled: int
    horizon_days: float

    @property
    def columns(self) -> dict[str, DTypeLike]:
        """What is kept of a labelled row; a model's class acted on is 1 more than that, 0 for no answer.

        Each model has columns of its own, so that a model that joins or leaves the list leaves the others'.
        """
        columns: dict[str, DTypeLike] = {
            "label": np.int32,
            "replaced": np.bool_,
            "weight": np.float64,
            "time": np.float64,
        }
        for model in self.models:
            columns[f"acted/{model}"] = np.int32
            columns[f"scores/{model}"] = np.dtype((np.float32, (self.classes,)))
        return columns

    def build(self, answers: BoundedTable, resume: RingState | None = None) -> ScorePool:
        """The pool over a join's answers, from the start or from where a snapshot left it."""
        return ScorePool(self, answers, resume)


class ScorePool:
    """A pool at work.

    Attributes
    ----------
    labelled : BoundedTable
        The labelled rows, by id.
    """

    def __init__(
        self, settings: ScorePoolSettings, answers: BoundedTable, resume: RingState | None = None
    ) -> None:
        self._settings = settings
        self._answers = answers
        self._horizon = Horizon(settings.horizon_days * 86_400.0)
        self._codes = np.array([model_code(model) for model in settings.models], dtype=np.int64)
        self.labelled = BoundedTable(settings.columns, settings.max_labelled, resume)

    def add(self, matches: Matches, model: Ints) -> int:
        """Take labels that reached answers, in the order in which they did; a corrected one overwrites.

        Parameters
        ----------
        matches : Matches
            n rows, sorted by sequence.
        model : (n,) int64
            Index into the pool's models, −1 for rows that are none of theirs.

        Returns
        -------
        int
            How many rows have got their first label.
        """
        rows = np.flatnonzero((model >= 0) & (matches.id != NO_ID))
        answer = self._answers.find(answer_keys(matches.id[rows], self._codes[model[rows]]))
        there = answer >= 0  # one may have been pushed out since its label came
        rows, answer = rows[there], answer[there]
        if not len(rows):
            return 0
        if not self._pushes_out_its_own(matches.id[rows]):
            return self._add(matches.take(rows), model[rows], answer)
        # One after the other, as if they had come so: a row may be pushed out before its next label comes.
        return sum(
            self._add(matches.take(rows[i : i + 1]), model[rows[i : i + 1]], answer[i : i + 1])
            for i in range(len(rows))
        )

    def rows(self, series: Ints) -> PoolRows:
        """What a fit gets: every labelled row, and the newest unlabelled ones or a sample of them.

        Parameters
        ----------
        series : (s,) int64
            The series of the pool's models: what their answers in the join are known by.
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
        scores: NDArray[Any] = np.full((*shape, self._settings.classes), np.nan, dtype=np.float32)
        predicted = np.full(shape, -1, dtype=np.int64)
        newest = float(time[: len(ids)].max()) if len(ids) else 0.0
        for m, model in enumerate(self._settings.models):
            acted = self.labelled[f"acted/{model}"][kept] - 1
            known = np.flatnonzero(acted >= 0)
            predicted[known, m] = acted[known]
            scores[known, m] = self.labelled[f"scores/{model}"][kept[known]]
            place, answer = self._answers_of(every, time, m, predicted[:, m] < 0)
            predicted[place, m] = self._answers["predicted"][answer]
            scores[place, m] = self._answers["scores"][answer]
            newest = max(newest, float(self._answers["time"][answer].max(initial=0.0)))
        pool = len(ids) + unlabelled
        if len(more) <= self._settings.fit_rows:
            return PoolRows(scores, label, predicted, weight, every, time, newest, pool)
        labelled = label >= 0
        taken = sample(strata(scores, labelled), labelled, every, self._settings.fit_rows, unlabelled)
        columns = scores[taken], label[taken], predicted[taken], weight[taken], every[taken], time[taken]
        return PoolRows(*columns, newest, pool)

    @property
    def replaced(self) -> NDArray[np.bool_]:
        """Of each labelled row, whether its label replaced another class."""
        kept = self.labelled.live()
        found: NDArray[np.bool_] = self.labelled["replaced"][kept[self.labelled.keys(kept) != NO_ID]]
        return found

    def wipe(self, ids: Keys) -> int:
        """Let go of these ids for good; how many there were."""
        return self.labelled.wipe(ids)

    def _answers_of(
        self, ids: Keys, time: Floats, model: int, wanted: NDArray[np.bool_]
    ) -> tuple[Ints, Ints]:
        """Which of the wanted rows a model has answered, by the join, and where that answer stands."""
        place = np.flatnonzero(wanted)
        answer = self._answers.find(answer_keys(ids[place], np.full(len(place), self._codes[model])))
        place, answer = place[answer >= 0], answer[answer >= 0]
        scored = self._answers["id"][answer] != NO_ID  # one that came before refits were asked for has none
        place, answer = place[scored], answer[scored]
        lag = np.nan_to_num(self._answers["time"][answer] - time[place], nan=0.0)
        near = self._horizon.is_near(lag)
        return place[near], answer[near]

    def _unlabelled(self, series: Ints) -> tuple[Keys, int]:
        """Ids of unlabelled requests, from old to new, and how many they are an even sample of."""
        most = _CANDIDATES * self._settings.fit_rows
        if self._settings.max_rows <= most or len(self._answers) <= most * len(self._codes):
            ids = self._newest_unlabelled(series)
            return ids, len(ids)
        first, stop = self._answers.span
        ids, share = self._spread(series, first, stop, most)
        enough = int(self._settings.max_rows / max(share, 1 / (stop - first)))
        if enough < stop - first:
            first = stop - enough
            ids, share = self._spread(series, first, stop, most)
        return ids, max(round(share * (stop - first)), len(ids))

    def _spread(self, series: Ints, first: int, stop: int, most: int) -> tuple[Keys, float]:
        """Ids of unlabelled requests spread over the answers with these numbers, and their share of those.

        What this takes hangs on how many are asked for, not on how many there are. Of each stretch of
        answers one is drawn, and counts if it is the one by which its request is known: of the first model.
        """
        many = min(most * len(self._codes), stop - first)
        within = np.random.default_rng(_SEED).random(many)
        drawn = first + ((np.arange(many) + within) * ((stop - first) / many)).astype(np.int64)
        rows = self._answers.at(np.unique(np.minimum(drawn, stop - 1)))
        ids = self._answers["id"][rows]
        of_request = np.full(len(rows), -1, dtype=np.int64)
        for code in self._codes[::-1]:
            answers = self._answers.find(answer_keys(ids, np.full(len(ids), code)))
            of_request = np.where(answers >= 0, answers, of_request)
        wanted = (ids != NO_ID) & np.isin(self._answers["series"][rows, 0], series) & (of_request == rows)
        wanted &= self.labelled.find(ids) < 0
        return ids[wanted], float(wanted.mean())

    def _newest_unlabelled(self, series: Ints) -> Keys:
        """The ids of the newest answers that no labelled row has, from old to new."""
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
            newest = every[np.sort(first)][: self._settings.max_rows]
            if len(newest) == self._settings.max_rows:
                break
        return newest[::-1]

    def _pushes_out_its_own(self, ids: Keys) -> bool:
        """Whether these labels need so much room that a row goes which one of them is about."""
        known = self.labelled.find(ids)
        new = len(np.unique(ids[known < 0]))
        return new > self.labelled.limit or bool(np.isin(known, self.labelled.overwritten_by(new)).any())

    def _add(self, matches: Matches, model: Ints, answer: Ints) -> int:
        """Labels of which none pushes out what another one needs."""
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
            name = self._settings.models[m]
            self.labelled.put(f"acted/{name}", rows[own], self._answers["predicted"][answer[own]] + 1)
            self.labelled.put(f"scores/{name}", rows[own], self._answers["scores"][answer[own]])
        return len(fresh)

    def _begin(self, ids: Keys, weight: Floats, time: Floats) -> None:
        """Rows for ids that have none. Their room may hold what was pushed out: no answers at first."""
        empty = {f"acted/{model}": np.zeros(len(ids), dtype=np.int32) for model in self._settings.models}
        replaced = np.zeros(len(ids), dtype=bool)
        self.labelled.add(ids, {"replaced": replaced, "weight": weight, "time": time, **empty})
