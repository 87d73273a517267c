"""The reference of one model: what its calibration is fitted on, and what its charts are drawn around.

Its labelled rows also tell whether a task's two classes are written the wrong way round.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, NamedTuple, TypeVar

import numpy as np

from monitor.base.errors import ConfigError
from monitor.base.names import FeatureKind
from monitor.base.places import sorted_by_code
from monitor.base.records import Batch, Floats, Ints, no_features
from monitor.base.results import Estimate
from monitor.config.root import Task
from monitor.engine.attribution import BaselineParts, PartRows, add_parts
from monitor.engine.evaluate import EstimationRequest, Evaluation, evaluate
from monitor.engine.label_alarm import LabelBaseline
from monitor.stats.calibration import CALIBRATORS
from monitor.stats.calibration.auto import AutoCalibrator, Choice, choose
from monitor.stats.calibration.base import Calibration, cross_fit_in_time
from monitor.stats.calibration.covariates import CovariateReference
from monitor.stats.charts.base import Baseline
from monitor.stats.estimate.corrected import Correction
from monitor.stats.estimate.predictive import Predictive
from monitor.stats.estimate.predictive_fit import FEWEST_ROWS, Folded, two_folds_vary
from monitor.stats.estimate.proportion import wilson

T = TypeVar("T")

_FOLDS = 5  # of the reference's windows, whose calibrations are fitted outside

FEWEST_WINDOWS = 5
"""Reference windows without which no chart is drawn: the spread of fewer says next to nothing."""


@dataclass(frozen=True, eq=False)
class Reference:
    """Labelled answers of one model in time order, n rows.

    Parameters
    ----------
    scores : (n, K) float64
    predicted, labels : (n,) int64
    time : (n,) float64
    version : str
        Of the newest row; a reference should be of one version.
    groups : mapping of str to (m,) int64
        The rows of each group: ``region=eu``.
    features : (n, F) float64, optional
        As in `Batch`. Left out, F is 0.
    """

    scores: Floats
    predicted: Ints
    labels: Ints
    time: Floats
    version: str
    groups: Mapping[str, Ints]
    features: Floats = field(default_factory=lambda: no_features(0))
    _fits: dict[str, Any] = field(default_factory=dict, init=False, repr=False)

    def calibration(self, method: str) -> Calibration:
        """The calibration by this method, fitted once: the model and its groups share it.

        By `auto` it is that of the chosen method, whose name it bears.

        Raises
        ------
        ValueError
            The reference cannot carry the method, with the reason.
        """
        method = self._chosen(method)
        return self._once(method, lambda: CALIBRATORS[method]().fit(*self._rows))

    def drawn(self, task: Task, group: str, draw: Callable[[], T]) -> T:
        """What charts are drawn around by this task's section, worked out once.

        The start tries each model's charts before the engine is built, which takes what that has found.
        """
        key = f"drawn {group}"
        if key not in self._fits or self._fits[key][0] is not task:
            self._fits[key] = task, draw()
        made: T = self._fits[key][1]
        return made

    def _chosen(self, method: str) -> str:
        """Return the method itself, or the one that `auto` takes."""
        return self.choice().method if method == AutoCalibrator.method else method

    def choice(self) -> Choice:
        """The method that `auto` takes, with the losses by which it does; worked out once.

        Raises
        ------
        ValueError
            The rows outside some part of the reference cannot be fitted on.
        """
        return self._once(AutoCalibrator.method, lambda: choose(*self._rows))

    def predictive(self, method: str, group: str = "") -> Predictive:
        """The error of later windows under this calibration, of the model or of one group of it.

        A group of fewer than `FEWEST_ROWS` rows varies as the model does, as far as anyone can tell.

        Raises
        ------
        ValueError
            The reference cannot carry the method, with the reason.
        """
        method = self._chosen(method)
        rows = self.groups.get(group)
        group = group if rows is not None and len(rows) >= FEWEST_ROWS else ""

        def fit() -> Predictive:
            own = self._folded(method).predictive(self.scores.shape[1], among=rows if group else None)
            return self.predictive(method) if group and own.components is None else own

        return self._once(f"{method}, predictive {group}", fit)

    def correction(self, method: str, window_rows: int, group: str = "") -> Correction:
        """The settings of the corrected accuracy under this calibration, of the model or of one group of it.

        Parameters
        ----------
        method : str
        window_rows : int
            Of a full window.
        group : str

        Raises
        ------
        ValueError
            The reference cannot carry the method, with the reason.
        """
        method = self._chosen(method)
        folded = self._folded(method)
        known = [folds for folds in folded.folds if folds <= _FOLDS]
        confidence = folded.folds[known[-1]] if known else folded.confidence
        if not group:
            return Correction.of_reference(confidence, folded.right, window_rows)
        rows = self.groups.get(group, np.zeros(0, dtype=np.int64))
        return Correction.of_group(confidence[rows], folded.right[rows], window_rows)

    def shows_variation(self, method: str) -> bool:
        """Whether `predictive` finds what varies between windows; two folds tell where these suffice."""
        if len(self.labels) < FEWEST_ROWS:
            return False
        method = self._chosen(method)
        calibrator = CALIBRATORS[method]()
        return self._once(
            f"{method}, varies",
            lambda: two_folds_vary(calibrator, *self._rows) or self.predictive(method).components is not None,
        )

    def covariates(self, features: Mapping[str, FeatureKind]) -> CovariateReference:
        """The rows as calibrations for single windows are fitted on them, prepared once.

        Raises
        ------
        ValueError
            Too few rows have these features, or none.
        """
        return self._once("covariates", lambda: self._prepared(np.arange(len(self.labels)), features))

    def covariates_outside(
        self, cuts: Sequence[Ints], features: Mapping[str, FeatureKind]
    ) -> list[CovariateReference]:
        """For each of these windows, in time order, the rows outside of the fifth of them that it is in."""
        found: list[CovariateReference] = []
        for near in np.array_split(np.arange(len(cuts)), _FOLDS):
            held_out = np.concatenate([cuts[i] for i in near.tolist()])
            others = self._prepared(np.setdiff1d(np.arange(len(self.labels)), held_out), features)
            found += [others] * len(near)
        return found

    def _prepared(self, rows: Ints, features: Mapping[str, FeatureKind]) -> CovariateReference:
        return CovariateReference.from_rows(
            self.scores[rows],
            self.predicted[rows],
            self.labels[rows],
            self.features[rows],
            kinds=tuple(features.values()),
            names=tuple(features),
        )

    @property
    def fingerprint(self) -> str:
        """A short text that differs where any row does."""
        columns = self.scores, self.predicted, self.labels, self.features
        return self._once(
            "fingerprint", lambda: sha256(b"".join(each.tobytes() for each in columns)).hexdigest()[:16]
        )

    def _folded(self, method: str) -> Folded:
        """The folds of both `predictive` and `correction`: without groups the second to ask takes them."""
        key = f"{method}, folded"
        if not self.groups and key in self._fits:
            found: Folded = self._fits.pop(key)
            return found
        return self._once(key, lambda: Folded.of(CALIBRATORS[method](), *self._rows))

    def cross_fitted(self, method: str) -> Floats | None:
        """Its own scores, calibrated by folds contiguous in time, each by a fit on the others; None for none.

        A row that the calibration was fitted on looks better calibrated than it is.
        """
        if method == "none":
            return None
        key = f"{method}, cross-fitted"
        return self._shared(key, lambda: cross_fit_in_time(CALIBRATORS[method](), *self._rows))

    @property
    def _rows(self) -> tuple[Floats, Ints, Ints]:
        return self.scores, self.predicted, self.labels

    def _shared(self, key: str, fit: Callable[[], T]) -> T:
        """As `_once` where groups need it too; else it is made for the model alone, and not kept."""
        return self._once(key, fit) if self.groups else fit()

    def _once(self, key: str, fit: Callable[[], T]) -> T:
        """What the first call with this key made."""
        if key not in self._fits:
            self._fits[key] = fit()
        made: T = self._fits[key]
        return made


class _Codes:
    """Class indices of a reference: kept in as few bytes as hold them, mostly one, and read as int64.

    What ten thousand models keep of their references is most of an agent's memory.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, one: Reference | None, owner: type[Reference]) -> Any:
        return self if one is None else one.__dict__[self._name].astype(np.int64)

    def __set__(self, one: Reference, codes: Ints) -> None:
        ends = codes.min(initial=0), codes.max(initial=0)
        one.__dict__[self._name] = codes.astype(np.result_type(*map(np.min_scalar_type, ends)))


for _name in ("predicted", "labels"):
    setattr(Reference, _name, _Codes(_name))  # as defaults of the fields they would be taken for their values


def split_by_model(batch: Batch) -> dict[str, Reference]:
    """A reference file's rows, a model at a time, each in time order."""
    labelled = np.flatnonzero(batch.label >= 0)
    order, pieces = sorted_by_code(batch.model, labelled[np.argsort(batch.time[labelled], kind="stable")])
    references = {}
    for code, piece in pieces:
        rows = order[piece]
        references[batch.models[code]] = Reference(
            scores=batch.scores[rows],
            predicted=batch.predicted[rows],
            labels=batch.label[rows],
            time=batch.time[rows],
            version=batch.versions[int(batch.version[rows[-1]])],
            groups=_groups(batch, rows),
            features=batch.features[rows],
        )
    return references


def _groups(batch: Batch, rows: Ints) -> dict[str, Ints]:
    """The places of each group's rows among these; of groups without any none."""
    groups = {}
    for name, (values, column) in batch.groups.items():
        order, pieces = sorted_by_code(column[rows], np.arange(len(rows)))
        groups.update({f"{name}={values[code]}": order[piece] for code, piece in pieces})
    return groups


def reference_windows(
    method: str, reference: Reference, group: str, task: Task, positive: int
) -> list[Evaluation]:
    """Estimates of the reference, or of one group of it, cut into windows of the configured size.

    They are calibrated by `Reference.cross_fitted`, or each by a calibration for itself. The last rows that
    fill no window are left out; fewer than `FEWEST_WINDOWS` windows are none. The accuracy has no interval.
    """
    cuts = _cuts(reference, group, task.window.size)
    if not cuts:
        return []
    calibrated = reference.cross_fitted(task.calibration.reference_method if task.adapts else method)
    requests = [
        EstimationRequest(
            scores=reference.scores[cut],
            predicted=reference.predicted[cut],
            calibrated=None if calibrated is None else calibrated[cut],
            metrics=task.metrics,
            positive=positive,
            level=task.level,
            seed=number,
            average=task.charted_average,
        )
        for number, cut in enumerate(cuts)
    ]
    if task.adapts:
        outside = reference.covariates_outside(cuts, task.features)
        placed = zip(requests, outside, cuts, strict=True)
        requests = [each.adapted_to(others, reference.features[cut]) for each, others, cut in placed]
    return evaluate(requests, accuracy_interval=False)


def _cuts(reference: Reference, group: str, size: int) -> list[Ints]:
    """The rows of each window; none where there are too few."""
    every = np.arange(len(reference.labels))
    rows = reference.groups.get(group, every[:0]) if group else every
    if len(rows) < FEWEST_WINDOWS * size:
        return []
    return [rows[start : start + size] for start in range(0, len(rows) - size + 1, size)]


def reference_by_labels(reference: Reference, group: str, size: int) -> LabelBaseline | None:
    """The accuracy of the windows of this size, of the reference or of one group of it; None for too few."""
    if not (cuts := _cuts(reference, group, size)):
        return None
    right = reference.labels == reference.predicted
    return LabelBaseline.of_windows([float(right[cut].mean()) for cut in cuts], [size] * len(cuts))


def reference_parts(
    windows: Sequence[Evaluation], reference: Reference, group: str, task: Task
) -> dict[str, BaselineParts]:
    """What the `reference_windows` hold by part, by metric."""
    names = [name for name in reference.groups if not group and name.partition("=")[0] in task.groups]
    codes = np.full((len(reference.labels), 0 if group else len(task.groups)), -1)
    for number, name in enumerate(names):
        codes[reference.groups[name], task.groups.index(name.partition("=")[0])] = number
    parts: dict[str, BaselineParts] = {}
    for cut, window in zip(_cuts(reference, group, task.window.size), windows, strict=False):
        rows = PartRows(window.confidence, reference.predicted[cut], codes[cut], names.__getitem__, task)
        for metric, estimate in window.estimates.items():
            if isinstance(estimate, Estimate):
                add_parts(parts, metric, window, rows)
    return parts


class Point(NamedTuple):
    """What a baseline takes from one window: its estimate, its rows, and what one row adds."""

    value: float
    size: int
    row_sd: float


def baseline(points: Sequence[Point]) -> Baseline:
    """The baseline that these windows make."""
    values, sizes, row_sd = np.array(points, dtype=np.float64).T
    return Baseline(values, sizes, float(np.sqrt(np.average(row_sd**2, weights=sizes))))


def baselines(evaluations: Sequence[Evaluation]) -> dict[str, Baseline]:
    """A baseline for each metric that enough of these windows know."""
    points: dict[str, list[Point]] = {}
    for evaluation in evaluations:
        for metric, estimate in evaluation.estimates.items():
            if isinstance(estimate, Estimate):
                point = Point(estimate.value, estimate.n, evaluation.row_sd[metric])
                points.setdefault(metric, []).append(point)
    return {metric: baseline(known) for metric, known in points.items() if len(known) >= FEWEST_WINDOWS}


FEWEST_IN_ORDER = 50
"""Fewer say too little: a good model is wrong in most of a handful now and then."""

_LEVEL = 0.998  # its upper end is passed by chance once in a thousand models
_HARDLY_RIGHT = 0.4  # a bad model, 45 % right on a hard task, is no reason to refuse to look at it


def refuse_reversed_classes(
    task: str, classes: tuple[str, ...], model: str, reference: Reference, where: str = "the reference"
) -> None:
    """Refuse a task of two classes whose scores stand in the other order than its classes.

    A list of scores follows the order of `classes`; where that is wrong, a good model looks as bad as it is
    good, its predicted class is always the other one, and a calibration fitted on this turns every score
    around, so that the estimates look fine. It is taken for so where the class with the larger score
    is right in surely less than 40 % of the labelled rows, and the score of a class is surely not larger
    where that class is right: a model that only leans to one class (a threshold to be chosen, rare events)
    ranks its answers rightly, and passes. Rows whose two scores are equal say nothing and are left out.

    It misses the mistake where the model is so weak that it is wrong by either order in 40 % or more, and it
    cannot tell a list in the wrong order from scores that are wrong by name; the message names both.

    Parameters
    ----------
    task : str
    classes : tuple of str
        Of the task. Others than two are passed over: a confidence has no order, and of three or more
        classes there is no one other order.
    model : str
    reference : Reference
    where : str
        What holds these rows, for the message: the reference, or a source that was looked into.

    Raises
    ------
    ConfigError
        It is so; the sentence gives the accuracy by both orders.

    References
    ----------
    The bound on the share of right rows is `monitor.stats.estimate.proportion.wilson`.

    Examples
    --------
    >>> second = np.tile([0.9, 0.8, 0.1, 0.6], 50)
    >>> labels = np.tile([0, 0, 1, 1], 50)
    >>> scores = np.column_stack((1 - second, second))
    >>> rows = Reference(scores, scores.argmax(axis=1), labels, np.arange(200.0), "", {})
    >>> refuse_reversed_classes("spam", ("ham", "spam"), "m1", rows)
    Traceback (most recent call last):
    monitor.base.errors.ConfigError: tasks.spam.classes: [ham, spam] seems to be in reverse order: of the
    ...
    """
    if len(classes) != 2:
        return
    second = reference.scores[:, 1] - reference.scores[:, 0]
    told = second != 0
    second, labels = second[told], reference.labels[told]
    right = int(((second > 0) == (labels == 1)).sum())
    bound = wilson(right, len(labels), _LEVEL)
    if (
        len(labels) < FEWEST_IN_ORDER
        or not isinstance(bound, Estimate)
        or bound.upper >= _HARDLY_RIGHT
        or not _ranks_backwards(second, labels)
    ):
        return
    one, other = classes
    raise ConfigError(
        f"tasks.{task}.classes: [{one}, {other}] seems to be in reverse order: of the {len(labels):,} "
        f"labelled answers of {model} in {where}, the class with the larger score is right in "
        f"{bound.value:.1%}, and with [{other}, {one}] it would be in {1 - bound.value:.1%}; "
        "reverse `classes`, in whose order lists of scores stand, or, where scores name their classes, "
        "correct the scores or the labels"
    )


def _ranks_backwards(second: np.ndarray, labels: np.ndarray) -> bool:
    """Whether the second class's score is smaller, by three standard errors, where that class is right."""
    where, elsewhere = second[labels == 1], second[labels == 0]
    if min(len(where), len(elsewhere)) < 2:
        return False
    error = np.sqrt(where.var(ddof=1) / len(where) + elsewhere.var(ddof=1) / len(elsewhere))
    return bool(elsewhere.mean() - where.mean() > 3 * error)
