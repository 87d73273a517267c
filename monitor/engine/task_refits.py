"""The refits of one task: the pool of rows, the schedule, the job of each fit, and the use of its result.

A refit fits the estimators that use labels again. The pool holds the labelled and unlabelled answers for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import msgspec
import numpy as np

from monitor.base.records import NO_ID, Keys
from monitor.base.state_changes import DRAWS, POOL, RingState
from monitor.config.root import Task
from monitor.engine.labels.columns import Answers, Matches
from monitor.engine.labels.draws import Draws, Round
from monitor.engine.labels.pool import PoolRows, ScorePool, ScorePoolSettings
from monitor.engine.labels.table import BoundedTable
from monitor.engine.reference import Reference
from monitor.engine.refit.due import too_many_replaced
from monitor.engine.refit.job import RefitJob, RefitResult
from monitor.engine.refit.schedule import RefitSchedule, RefitScheduleLogic, ScheduleState
from monitor.reports.views import MetricEstimate, RefitView
from monitor.stats.calibration import calibration_from_snapshot
from monitor.stats.calibration.base import Calibration
from monitor.stats.calibration.refit import FEWEST_LABELS, LabelledRows
from monitor.stats.calibration.rests_on import RestsOn, rests_on

FEWEST_ROWS = 100
"""The least number of requests in a refit: fewer do not show how the scores of several models are related."""


@dataclass(frozen=True, slots=True)
class Published:
    """The results of a refit that one model uses from now on.

    Parameters
    ----------
    estimates : tuple of MetricEstimate
    calibration : Calibration or None
        None if there is no new one: the present calibration stays.
    time : float
        The time of the newest answer in the fit, seconds since the epoch.
    rests_on : RestsOn or None
        The labelled rows that the calibration was fitted on; None if there are too few to estimate its error.
    """

    estimates: tuple[MetricEstimate, ...]
    calibration: Calibration | None
    time: float
    rests_on: RestsOn | None = None


class RefitsState(msgspec.Struct, frozen=True):
    """The stored state of a task's refits; its tables of rows are None if they are saved row by row."""

    schedule: ScheduleState = ScheduleState()
    view: RefitView = RefitView()
    pool: RingState | None = None
    draws: RingState | None = None

    def with_refit_due(self) -> RefitsState:
        """Return the same state, with a refit due now."""
        return msgspec.structs.replace(self, schedule=msgspec.structs.replace(self.schedule, due=True))


class TaskRefits:
    """The refits of a task's estimators that use labels, one at a time.

    Parameters
    ----------
    name : str
    task : Task
        A task with refits.
    answers : BoundedTable
        The table of answers of the task's label join, with ids and scores.
    references : mapping of str to Reference
        By model.
    """

    def __init__(
        self,
        name: str,
        task: Task,
        answers: BoundedTable,
        references: Mapping[str, Reference],
        resume: RefitsState | None = None,
    ) -> None:
        state = resume or RefitsState()
        self._name = name
        self._task = task
        ssme = task.ssme
        pool = ScorePoolSettings(
            models=task.refit_models,
            classes=len(task.classes),
            max_rows=ssme.max_rows,
            fit_rows=ssme.fit_rows,
            max_labelled=ssme.max_labelled,
            horizon_days=task.labels.horizon_days,
        )
        self.pool: ScorePool = pool.build(answers, state.pool)
        # Kept even without `active_testing`, so that a later configuration with it can use them.
        self.draws = Draws(ssme.max_labelled, task.labels.horizon_days, state.draws)
        schedule = RefitSchedule(ssme.every_windows, ssme.every_labels, ssme.every_seconds)
        self.schedule: RefitScheduleLogic = schedule.build(state.schedule)
        self._view = state.view
        self._pooled = np.zeros(0, dtype=np.int64)  # each series' index among the pool's models; -1 for none
        self._closed = False
        self._job: RefitJob | None = None  # the job under way; it is lost at a restart, which begins another
        self._calibrate = task.calibration.method == "ssme"
        method = task.calibration.reference_method
        # Fitted only if a refit must beat them: otherwise a start from a store needs no fit.
        self._references = tuple(
            references[model].calibration(method).snapshot() if model in references else None
            for model in (task.refit_models if self._calibrate else ())
        )

    @property
    def rings(self) -> dict[str, BoundedTable]:
        """The ring tables of rows, by kind."""
        return {POOL: self.pool.labelled, DRAWS: self.draws.ring}

    def add_series(self, model: str, group: str) -> None:
        """Add the number of a new series, which is the next one, with its model and group."""
        models = () if group else self._task.refit_models
        place = models.index(model) if model in models else -1
        self._pooled = np.append(self._pooled, place)

    def answers_came(self, answers: Answers) -> None:
        """Count answers of the pool's models that have no id and so cannot take part."""
        lost = int(((answers.key == NO_ID) & (self._pooled[answers.series[:, 0]] >= 0)).sum())
        if lost:
            self._view = replace(self._view, without_id=self._view.without_id + lost)

    def labels_came(self, matches: Matches) -> None:
        """Add answers that got labels to the pool, in this order."""
        self.schedule.labels_came(self.pool.add(matches, self._pooled[matches.series]))

    def wipe(self, ids: Keys) -> None:
        """Delete the stored rows of these ids."""
        self.pool.wipe(ids)
        self.draws.wipe(ids)

    def close_window(self, now: float) -> None:
        """Record that a window of a whole model has closed, which may make a refit due."""
        self._closed = True
        self.schedule.window_closed(now)

    def take_closed(self) -> bool:
        """Return whether a window of a whole model has closed since the last call."""
        closed, self._closed = self._closed, False
        return closed

    def begin(self, sequence: int, now: float) -> RefitJob | None:
        """Return the job of the refit that is due; None if none is due or possible, or one is under way.

        Parameters
        ----------
        sequence : int
            The sequence number of the newest absorbed record.
        now : float
            Seconds since the epoch.
        """
        if not self.schedule.due or self.schedule.under_way:
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
        self._job = RefitJob(
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
        return self._job

    def _rounds_of(self, rows: PoolRows) -> Round:
        """Return which rows were drawn in succession for labelling, in the round to estimate from."""
        known = np.flatnonzero(rows.labels >= 0)
        of_known = self.draws.newest(rows.ids[known], rows.times[known])
        rounds = Round.none(len(rows))
        rounds.number[known], rounds.probability[known] = of_known.number, of_known.probability
        return replace(rounds, pool=of_known.pool)

    def end(self, result: RefitResult, now: float) -> dict[str, Published] | None:
        """Use the result of the refit under way, and return its estimates and calibrations by model.

        Returns
        -------
        dict of str to Published, or None
            Empty if the result is refused, which is counted; None if no job waits for it.
        """
        if not self.schedule.under_way or result.number != self.schedule.number:
            return None
        self.schedule.end()
        job, self._job = self._job, None
        refused, published, view = result.refused, {}, self._view
        if refused is None:
            try:
                published, view = self._published(result, job), self._after(result, now)
            except (ValueError, KeyError, TypeError, IndexError) as error:
                refused = f"what the fit brought cannot be read: {error}"
        if refused is not None:
            self._view = replace(self._view, failures=self._view.failures + 1, refused=refused)
            return {}
        self._view = view
        return published

    def view(self) -> RefitView:
        """Return the view for exporters."""
        return replace(self._view, number=self.schedule.number, under_way=self.schedule.under_way)

    def snapshot(self, rings: bool = True) -> RefitsState:
        """Return the whole state, with or without the rings."""
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

    def _published(self, result: RefitResult, job: RefitJob | None) -> dict[str, Published]:
        """Return the results for all models, or raise.

        Raises
        ------
        ValueError, KeyError, TypeError, IndexError
            A calibration cannot be read.
        """
        published = {}
        for model, fit in result.models.items():
            calibration = None if fit.calibration is None else calibration_from_snapshot(fit.calibration)
            if calibration is not None and calibration.width != len(self._task.classes):
                raise ValueError(
                    f"the calibration of {model} is for {calibration.width} classes, the task has "
                    f"{len(self._task.classes)}"
                )
            rows = None if job is None or calibration is None else _labelled_rows(job, model)
            published[model] = Published(
                tuple(e.read() for e in fit.estimates), calibration, result.time, rows
            )
        return published


def _labelled_rows(job: RefitJob, model: str) -> RestsOn | None:
    """Return the labelled rows that a model's calibration was fitted on; None if there are too few.

    The reference and the rows without labels, which the fit uses too, are left out.
    """
    m = job.models.index(model)
    own = (job.labels >= 0) & (job.predicted[:, m] >= 0)
    if int(own.sum()) < FEWEST_LABELS:
        return None
    scores, zeros = np.asarray(job.scores[own, m], dtype=np.float64), np.zeros(int(own.sum()))
    return rests_on(LabelledRows(scores, job.predicted[own, m], job.labels[own], zeros, job.weights[own]))
