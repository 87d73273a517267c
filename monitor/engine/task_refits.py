"""The refits of one task: its pool, its schedule, what a fit is asked, and what becomes of the answer."""

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
"""Requests without which no refit begins: fewer say too little of how several models' scores lie together."""


@dataclass(frozen=True, slots=True)
class Published:
    """What a fit brought for one model.

    Parameters
    ----------
    estimates : tuple of MetricEstimate
    calibration : Calibration or None
        None where there is none, so that the one in force stays.
    time : float
        Of the newest answer that the fit rests on, seconds since the epoch.
    rests_on : RestsOn or None
        The labelled rows that the calibration rests on; None where there are too few to say its error.
    """

    estimates: tuple[MetricEstimate, ...]
    calibration: Calibration | None
    time: float
    rests_on: RestsOn | None = None


class RefitsState(msgspec.Struct, frozen=True):
    """What a task's refits keep; the rings are left out where they are saved row by row."""

    schedule: ScheduleState = ScheduleState()
    view: RefitView = RefitView()
    pool: RingState | None = None
    draws: RingState | None = None

    def due_anew(self) -> RefitsState:
        """With one due at once: what the last one brought is forgotten."""
        return msgspec.structs.replace(self, schedule=msgspec.structs.replace(self.schedule, due=True))


class TaskRefits:
    """The refits of a task at work.

    Parameters
    ----------
    name : str
    task : Task
        One that refits something.
    answers : BoundedTable
        Of the task's label join, with ids and scores.
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
        # Kept whether or not `active_testing` is asked for: one that is asked for later finds them.
        self.draws = Draws(ssme.max_labelled, task.labels.horizon_days, state.draws)
        schedule = RefitSchedule(ssme.every_windows, ssme.every_labels, ssme.every_seconds)
        self.schedule: RefitScheduleLogic = schedule.build(state.schedule)
        self._view = state.view
        self._pooled = np.zeros(0, dtype=np.int64)  # by series, which of the models it is; -1 for none
        self._closed = False
        self._asked: RefitJob | None = None  # what the answer is to rest on; a restart asks anew
        self._calibrate = task.calibration.method == "ssme"
        method = task.calibration.reference_method
        # Nothing is fitted where nothing is to be beaten: a start from a store needs no fit otherwise.
        self._references = tuple(
            references[model].calibration(method).snapshot() if model in references else None
            for model in (task.refit_models if self._calibrate else ())
        )

    @property
    def rings(self) -> dict[str, BoundedTable]:
        """What is kept row by row, by kind."""
        return {POOL: self.pool.labelled, DRAWS: self.draws.ring}

    def add_series(self, model: str, group: str) -> None:
        """The task has one more series."""
        models = () if group else self._task.refit_models
        place = models.index(model) if model in models else -1
        self._pooled = np.append(self._pooled, place)

    def answers_came(self, answers: Answers) -> None:
        """Count those of the pool's models that cannot take part."""
        lost = int(((answers.key == NO_ID) & (self._pooled[answers.series[:, 0]] >= 0)).sum())
        if lost:
            self._view = replace(self._view, without_id=self._view.without_id + lost)

    def labels_came(self, matches: Matches) -> None:
        """Labels have reached answers, in this order."""
        self.schedule.labels_came(self.pool.add(matches, self._pooled[matches.series]))

    def wipe(self, ids: Keys) -> None:
        """Let go of what rests of these ids for good."""
        self.pool.wipe(ids)
        self.draws.wipe(ids)

    def close_window(self, now: float) -> None:
        """A window of a whole model has closed."""
        self._closed = True
        self.schedule.window_closed(now)

    def take_closed(self) -> bool:
        """Whether a window of a whole model has closed since this was last asked."""
        closed, self._closed = self._closed, False
        return closed

    def begin(self, sequence: int, now: float) -> RefitJob | None:
        """The refit that is due; None where none is or may begin, or one is under way.

        Parameters
        ----------
        sequence : int
            Of the newest record absorbed.
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
        task, drawn = self._task, self._drawn(rows)
        self._asked = RefitJob(
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
            acquisition=drawn.number,
            draw_probability=drawn.probability,
            draw_pool=drawn.pool,
        )
        return self._asked

    def _drawn(self, rows: PoolRows) -> Round:
        """Which of the rows were drawn one after another, of the round to estimate from."""
        known = np.flatnonzero(rows.labels >= 0)
        of_known = self.draws.newest(rows.ids[known], rows.times[known])
        drawn = Round.none(len(rows))
        drawn.number[known], drawn.probability[known] = of_known.number, of_known.probability
        return replace(drawn, pool=of_known.pool)

    def end(self, result: RefitResult, now: float) -> dict[str, Published] | None:
        """Take the answer to the refit under way; what it brought, by model.

        Returns
        -------
        dict of str to Published, or None
            Empty where it was refused, which is counted; None where nobody waits for it.
        """
        if not self.schedule.under_way or result.number != self.schedule.number:
            return None
        self.schedule.end()
        job, self._asked = self._asked, None
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
        """What the outside may see."""
        return replace(self._view, number=self.schedule.number, under_way=self.schedule.under_way)

    def snapshot(self, rings: bool = True) -> RefitsState:
        """All that is kept, its rings left out or not."""
        kept = {kind: ring.snapshot() for kind, ring in self.rings.items() if rings}
        return RefitsState(self.schedule.snapshot(), self.view(), **kept)

    def _after(self, result: RefitResult, now: float) -> RefitView:
        """What is to be seen of a good fit.

        Raises
        ------
        ValueError, TypeError
            The prevalence is not one of the task's classes.
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
            labelled_draws=result.drawn,
            missing_draws=result.missing_draws,
        )

    def _published(self, result: RefitResult, job: RefitJob | None) -> dict[str, Published]:
        """All that there is, or nothing.

        Raises
        ------
        ValueError, KeyError, TypeError, IndexError
            A calibration is none.
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
    """Of one model. What it learns beside them, of a reference and of rows without labels, is left out."""
    m = job.models.index(model)
    own = (job.labels >= 0) & (job.predicted[:, m] >= 0)
    if int(own.sum()) < FEWEST_LABELS:
        return None
    scores, zeros = np.asarray(job.scores[own, m], dtype=np.float64), np.zeros(int(own.sum()))
    return rests_on(LabelledRows(scores, job.predicted[own, m], job.labels[own], zeros, job.weights[own]))
