"""The refits of one task: they collect rows in a pool, decide when a fit is due, and use its result.

A refit fits the estimators that use labels again. The pool contains the rows for these fits.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from monitor.base.records import NO_ID, Keys, LabelBatch
from monitor.base.state_changes import DRAWS, POOL, RingState
from monitor.config.task import Task
from monitor.engine.label_fit import LabelFit
from monitor.engine.labels.columns import Answers, Matches
from monitor.engine.labels.draws import Draws, Round
from monitor.engine.labels.pool import PoolRows, ScorePool
from monitor.engine.labels.table import BoundedTable
from monitor.engine.reference import Reference
from monitor.engine.refit.due import too_many_replaced
from monitor.engine.refit.job import RefitJob, RefitResult
from monitor.engine.refit.schedule import RefitSchedule, ScheduleState
from monitor.reports.views import MetricEstimate, RefitView
from monitor.stats.calibration.base import Calibration
from monitor.stats.calibration.refit import FEWEST_LABELS, LabelledRows
from monitor.stats.calibration.rests_on import RestsOn, rests_on

if TYPE_CHECKING:  # the task passes its series
    from monitor.engine.series import Series

FEWEST_ROWS = 100
"""The least number of requests in a refit: fewer do not show how the scores of several models are related."""


_Published = tuple[tuple[MetricEstimate, ...], Calibration | None, RestsOn | None]
"""A model's estimates, its new calibration if it has one, and the labelled rows of that calibration's fit."""


class RefitsState(msgspec.Struct, frozen=True):
    """The stored state of a task's refits.

    If a store saves the rows of the pool and the draws separately, `pool` and `draws` are None.
    """

    schedule: ScheduleState = ScheduleState()
    view: RefitView = RefitView()
    pool: RingState | None = None
    draws: RingState | None = None

    def with_refit_due(self) -> RefitsState:
        """Return the state changed so that a refit is due now."""
        return msgspec.structs.replace(self, schedule=msgspec.structs.replace(self.schedule, due=True))


class TaskRefits(LabelFit[RefitJob, RefitResult]):
    """The refits of a task's estimators that use labels.

    Parameters
    ----------
    name, task, run
        See `LabelFit`.
    answers : BoundedTable
        The stored answers of the task's label join, with ids and scores.
    references : mapping of str to Reference
        The labelled reference of each model.
    series : sequence of Series
        The task's list of its series, by number. The task appends new series to it.
    """

    kind = "refits"
    result_type = RefitResult
    changes_all_models = True

    def __init__(
        self,
        name: str,
        task: Task,
        answers: BoundedTable,
        references: Mapping[str, Reference],
        series: Sequence[Series],
        run: Callable[[RefitJob], RefitResult] | None,
        resume: RefitsState | None = None,
    ) -> None:
        super().__init__(name, task, run)
        state = resume or RefitsState()
        self._series = series
        ssme = task.ssme
        self.pool = ScorePool(
            answers,
            models=task.refit_models,
            classes=len(task.classes),
            max_rows=ssme.max_rows,
            fit_rows=ssme.fit_rows,
            max_labelled=ssme.max_labelled,
            horizon_days=task.labels.horizon_days,
            resume=state.pool,
        )
        # Kept even without `active_testing`, so that a later configuration with it can use them.
        self.draws = Draws(ssme.max_labelled, task.labels.horizon_days, state.draws)
        self.schedule = RefitSchedule(
            ssme.every_windows, ssme.every_labels, ssme.every_seconds, resume=state.schedule
        )
        self._view = state.view
        self._pooled = np.zeros(0, dtype=np.int64)  # each series' index among the pool's models; -1 for none
        self._calibrate = task.calibration.method == "ssme"
        method = task.calibration.reference_method
        # Fitted only if a refit must beat them: otherwise a start from a store needs no fit.
        self._references = tuple(
            references[model].calibration(method).snapshot() if model in references else None
            for model in (task.refit_models if self._calibrate else ())
        )

    @property
    def rings(self) -> dict[str, BoundedTable]:
        """The ring tables (tables of limited size) in which refits store rows.

        The key is the ring's kind, the first part of its name in the store.
        """
        return {POOL: self.pool.labelled, DRAWS: self.draws.ring}

    def add_series(self, code: int) -> None:
        """Add a series. If it is a model that refits include, the pool will take its labelled answers."""
        settings = self._series[code].settings
        models = () if settings.group else self._task.refit_models
        place = models.index(settings.model) if settings.model in models else -1
        self._pooled = np.append(self._pooled, place)

    def answers_came(self, answers: Answers) -> None:
        """Count the answers without an id, which refits cannot use because no label can join them."""
        lost = int(((answers.key == NO_ID) & (self._pooled[answers.series[:, 0]] >= 0)).sum())
        if lost:
            self._view = replace(self._view, without_id=self._view.without_id + lost)

    def labels_received(self, labels: LabelBatch) -> None:
        """Store the draws of labels: in which order and how probably each row was picked for labelling."""
        self.draws.add(labels)

    def labels_came(self, matches: Matches, lost: Collection[int]) -> None:
        """Add labelled answers to the pool, in the order of their labels, and count the new ones."""
        self.schedule.labels_came(self.pool.add(matches, self._pooled[matches.series]))

    def wipe(self, ids: Keys) -> None:
        """Delete the rows with these ids from the tables of the refits."""
        self.pool.wipe(ids)
        self.draws.wipe(ids)

    def tick(self, now: float) -> None:
        """Pass the current time, in seconds since the epoch, to the schedule. A refit may become due."""
        self.schedule.tick(now)

    def close_window(self, code: int, now: float) -> None:
        """Record that a window of a model (not of a group) has closed. A refit may become due."""
        super().close_window(code, now)
        self.schedule.window_closed(now)

    def _next_job(self, sequence: int, now: float, code: int | None) -> RefitJob | None:
        """Return the job of a refit of all models, or None if no refit is due."""
        if not self.schedule.due:
            return None
        why = too_many_replaced(self.pool.replaced, self._task.labels.max_replaced)
        if why is not None:
            self._view = replace(self._view, refused=why, held=True)
            return None
        rows = self.pool.rows(np.flatnonzero(self._pooled >= 0))
        if len(rows) < FEWEST_ROWS:
            return None
        number = self.schedule.begin(now)
        if self._view.held:
            self._view = replace(self._view, held=False, refused=None)
        task, draws = self._task, self._rounds_of(rows)
        return RefitJob(
            task=self._name,
            number=number,
            sequence=sequence,
            time=rows.time,
            models=task.refit_models,
            positive=task.positive_index,
            scores=np.asarray(rows.scores),
            labels=rows.labels,
            predicted=rows.predicted,
            weights=rows.weights,
            estimators=task.refit_estimators,
            metrics=task.metrics,
            level=task.level,
            seed=number,
            calibrate=self._calibrate,
            references=self._references,
            pool_rows=rows.pool,
            label_weights=task.labels.weights,
            acquisition=draws.number,
            draw_probability=draws.probability,
            draw_pool=draws.pool,
        )

    def _rounds_of(self, rows: PoolRows) -> Round:
        """Return the draws of the rows in the round from which active testing estimates."""
        known = np.flatnonzero(rows.labels >= 0)
        of_known = self.draws.newest(rows.ids[known], rows.times[known])
        rounds = Round.none(len(rows))
        rounds.number[known], rounds.probability[known] = of_known.number, of_known.probability
        return replace(rounds, pool=of_known.pool)

    def _use(self, job: RefitJob, result: RefitResult, now: float) -> bool:
        """Use the estimates and calibrations of all models from now on, or count the refusal."""
        self.schedule.end()
        read, refused = self._read(result, lambda: (self._published(result, job), self._after(result, now)))
        if read is None:
            self._view = replace(self._view, failures=self._view.failures + 1, refused=refused)
            return True
        published, self._view = read
        for series in self._series:
            newest = published.get(series.settings.model)
            if newest is not None:
                estimates, calibration, rows = newest
                series.take_fitted(estimates)
                if calibration is not None and calibration.snapshot() != series.active.calibration.snapshot():
                    series.recalibrate(calibration, result.time, rows)
        return True

    def view(self) -> RefitView:
        """Return the results and counts of the refits for exporters."""
        return replace(self._view, number=self.schedule.number, under_way=self.schedule.under_way)

    def snapshot(self, rings: bool = True) -> RefitsState:
        """Return the whole state, with or without the rows of the ring tables."""
        kept = {kind: ring.snapshot() for kind, ring in self.rings.items() if rings}
        return RefitsState(self.schedule.snapshot(), self.view(), **kept)

    def _after(self, result: RefitResult, now: float) -> RefitView:
        """Return the view after a successful fit.

        Raises
        ------
        ValueError, TypeError
            The prevalence does not match the task's classes.
        """
        shares = [float(share) for share in result.prevalence]
        return RefitView(
            success_time=now,
            rows=result.rows,
            labelled=result.labelled,
            pool_rows=result.pool_rows,
            widening=result.widening,
            effective_labels=result.effective_labels,
            prevalence=dict(zip(self._task.classes, shares, strict=True)),
            converged=result.converged,
            iterations=result.iterations,
            failures=self._view.failures,
            without_id=self._view.without_id,
            labelled_draws=result.labelled_draws,
            missing_draws=result.missing_draws,
        )

    def _published(self, result: RefitResult, job: RefitJob) -> dict[str, _Published]:
        """Return the estimates and calibrations for all models.

        Raises
        ------
        ValueError, KeyError, TypeError, IndexError
            A calibration cannot be read.
        """
        published: dict[str, _Published] = {}
        for model, fit in result.models.items():
            calibration = None if fit.calibration is None else self._calibration(model, fit.calibration)
            rows = None if calibration is None else _labelled_rows(job, model)
            published[model] = tuple(e.read() for e in fit.estimates), calibration, rows
        return published


def _labelled_rows(job: RefitJob, model: str) -> RestsOn | None:
    """Return the labelled rows from which a model's calibration was fitted; None if there are too few.

    The fit also uses the reference and rows without labels. They are left out.
    """
    m = job.models.index(model)
    own = (job.labels >= 0) & (job.predicted[:, m] >= 0)
    if int(own.sum()) < FEWEST_LABELS:
        return None
    scores, zeros = np.asarray(job.scores[own, m], dtype=np.float64), np.zeros(int(own.sum()))
    return rests_on(LabelledRows(scores, job.predicted[own, m], job.labels[own], zeros, job.weights[own]))
