"""The reference of one model: labelled rows for its calibration.

The module also detects that a task's two classes are configured in the wrong order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, TypeVar

import numpy as np

from monitor.base.errors import ConfigError
from monitor.base.places import sorted_by_code
from monitor.base.records import Batch, FeatureKind, Floats, Ints, no_features
from monitor.base.results import Estimate, Reason, Result, Unknown
from monitor.config.task import Task
from monitor.engine.features import FeatureBaseline
from monitor.stats.calibration import CALIBRATORS
from monitor.stats.calibration.auto import AutoCalibrator, Choice, choose
from monitor.stats.calibration.base import Calibration, cross_fit_in_time
from monitor.stats.calibration.covariates import CovariateReference
from monitor.stats.estimate.corrected import Correction
from monitor.stats.estimate.predictive import Predictive
from monitor.stats.estimate.predictive_fit import FEWEST_ROWS, Folded, two_folds_vary
from monitor.stats.estimate.proportion import wilson
from monitor.stats.regression.losses import LossReference
from monitor.stats.regression.metrics import DEFAULT_METRICS

T = TypeVar("T")

_FOLDS = 5  # of the reference's windows; each fold's calibrations are fitted on the others


@dataclass(frozen=True, eq=False)
class Reference:
    """The labelled reference of one model: n answers in order of time.

    Parameters
    ----------
    scores : (n, K) float64
        Raw scores.
    predicted, labels : (n,) int64
        The index of each row's predicted class, and the index of its label.
    time : (n,) float64
        Seconds since the epoch.
    version : str
        The version of the newest row; a reference should have only one version.
    groups : mapping of str to (m,) int64
        The indices of the rows of each group, by the group's name: ``region=eu``.
    features : (n, F) float64, optional
        As in `Batch`. F is 0 by default.
    numbers : (n, C) float64, optional
        As in `Batch`. C is 0 by default.
    """

    scores: Floats
    predicted: Ints
    labels: Ints
    time: Floats
    version: str
    groups: Mapping[str, Ints]
    features: Floats = field(default_factory=lambda: no_features(0))
    numbers: Floats = field(default_factory=lambda: no_features(0))
    _fits: dict[str, Any] = field(default_factory=dict, init=False, repr=False)

    @property
    def timed(self) -> bool:
        """False if no row has a time, which `read_reference` reads as 0."""
        return bool(self.time.any())

    def scored(self, batch: Batch) -> Batch:
        """Return answers with the scores on which calibrations are fitted.

        For a classification task, the answers already have them and are returned unchanged. `NumberReference`
        computes them from the predicted numbers.
        """
        return batch

    def losses(
        self, features: Mapping[str, FeatureKind], group: str = "", metrics: Iterable[str] = DEFAULT_METRICS
    ) -> LossReference | Unknown:
        """Return the losses of a model's or a group's rows, or the reason why they are unknown.

        Here they are unknown, because predictions are no numbers.
        """
        return Unknown(Reason.NOT_DEFINED)

    def error_cap(self, group: str = "") -> float:
        """Return the absolute error that 99.5 % of a model's or a group's rows do not exceed; here 0."""
        return 0.0

    def error_metric(self, metric: str, level: float) -> Result:
        """Return a metric of the errors of all rows; here unknown, because predictions are no numbers."""
        return Unknown(Reason.NOT_DEFINED)

    def calibration(self, method: str) -> Calibration:
        """Return the calibration that a method fits on the reference.

        The fit is computed once, and the model and its groups share it. With the method ``auto``, the result
        is a calibration by the method that `choice` returns.

        Raises
        ------
        ValueError
            The method cannot be fitted on the reference; the text gives the reason.
        """
        method = self._chosen(method)
        return self._once(method, lambda: CALIBRATORS[method]().fit(*self._rows))

    def cached_baselines(self, task: Task, group: str, draw: Callable[[], T]) -> T:
        """Return the baselines of the model or of a group, which `draw` computes at the first call.

        When the agent starts, it computes the baselines to check each model's charts, before it builds the
        engine. The engine then uses the cached result, if it passes the same object `task`.
        """
        key = f"drawn {group}"
        if key not in self._fits or self._fits[key][0] is not task:
            self._fits[key] = task, draw()
        made: T = self._fits[key][1]
        return made

    def _chosen(self, method: str) -> str:
        """Return the method, or the method that `choice` returns if the method is ``auto``."""
        return self.choice().method if method == AutoCalibrator.method else method

    def choice(self) -> Choice:
        """Return the calibration method that ``auto`` uses, with the losses on which the choice depends.

        The choice is computed once.

        Raises
        ------
        ValueError
            The comparison fits each method on parts of the reference. A method cannot be fitted on one of
            them.
        """
        return self._once(AutoCalibrator.method, lambda: choose(*self._rows))

    def predictive(self, method: str, group: str = "") -> Predictive:
        """Return the model of the errors that later windows will have with a calibration by this method.

        The result is for a group, or for the whole model if `group` is empty. A group uses the result of its
        model if it has fewer than `FEWEST_ROWS` rows, or too few to estimate the variation between windows.

        Raises
        ------
        ValueError
            The method cannot be fitted on the reference; the text gives the reason.
        """
        method = self._chosen(method)
        rows = self.groups.get(group)
        group = group if rows is not None and len(rows) >= FEWEST_ROWS else ""

        def fit() -> Predictive:
            own = self._folded(method).predictive(self.scores.shape[1], among=rows if group else None)
            return self.predictive(method) if group and own.components is None else own

        return self._once(f"{method}, predictive {group}", fit)

    def correction(self, method: str, window_rows: int, group: str = "") -> Correction:
        """Return the settings with which labels correct the accuracy of a model or a group.

        Parameters
        ----------
        method : str
            The calibration method.
        window_rows : int
            The number of rows of a full window.
        group : str
            The name of the group; ``""`` for the model.

        Raises
        ------
        ValueError
            The method cannot be fitted on the reference; the text gives the reason.
        """
        method = self._chosen(method)
        folded = self._folded(method)
        known = [folds for folds in folded.folds if folds <= _FOLDS]
        confidence = folded.folds[known[-1]] if known else folded.confidence
        if not group:
            return Correction.from_reference(confidence, folded.right, window_rows)
        rows = self.groups.get(group, np.zeros(0, dtype=np.int64))
        return Correction.from_group(confidence[rows], folded.right[rows], window_rows)

    def shows_variation(self, method: str) -> bool:
        """Return whether the reference has enough rows to estimate the variation between windows.

        The method is faster than `predictive`, which makes this estimate, because it usually needs only two
        folds.
        """
        if len(self.labels) < FEWEST_ROWS:
            return False
        method = self._chosen(method)
        calibrator = CALIBRATORS[method]()
        return self._once(
            f"{method}, varies",
            lambda: two_folds_vary(calibrator, *self._rows) or self.predictive(method).components is not None,
        )

    def covariates(self, features: Mapping[str, FeatureKind]) -> CovariateReference:
        """Return the rows, prepared for fitting a separate calibration for each window.

        The result is computed once.

        Raises
        ------
        ValueError
            Too few rows have these features.
        """
        return self._once("covariates", lambda: self._prepared(np.arange(len(self.labels)), features))

    def covariates_outside(
        self, cuts: Sequence[Ints], features: Mapping[str, FeatureKind]
    ) -> list[CovariateReference]:
        """Return, for each window of the reference, the rows that its calibration is fitted on.

        The windows are divided into fifths in order of time. A window's calibration is fitted on all rows of
        the reference except those of the windows in its fifth, so no window is calibrated by its own rows.

        Parameters
        ----------
        cuts : sequence of (n,) int64
            The indices of the rows of each window, in order of time.
        features : mapping of str to {"number", "text"}
            The names and kinds of the features.
        """
        references: list[CovariateReference] = []
        for near in np.array_split(np.arange(len(cuts)), _FOLDS):
            held_out = np.concatenate([cuts[i] for i in near.tolist()])
            others = self._prepared(np.setdiff1d(np.arange(len(self.labels)), held_out), features)
            references += [others] * len(near)
        return references

    def feature_baseline(self, features: Mapping[str, FeatureKind], window_rows: int) -> FeatureBaseline:
        """Return the counts and rates of the features in the reference, for comparison with later windows."""
        return self._once(
            "feature bins", lambda: FeatureBaseline.from_rows(features, self.features, window_rows)
        )

    def _prepared(self, rows: Ints, features: Mapping[str, FeatureKind]) -> CovariateReference:
        return CovariateReference.from_rows(
            self.scores[rows],
            self.predicted[rows],
            self.labels[rows],
            self.features[rows, : len(features)],
            kinds=tuple(features.values()),
            names=tuple(features),
        )

    @property
    def fingerprint(self) -> str:
        """A short hash of the rows, which differs between references with different rows."""
        columns = self.scores, self.predicted, self.labels, self.features, self.numbers
        return self._once(
            "fingerprint", lambda: sha256(b"".join(each.tobytes() for each in columns)).hexdigest()[:16]
        )

    def _folded(self, method: str) -> Folded:
        """Return the folds for `predictive` and `correction`. Without groups, the second call frees them."""
        key = f"{method}, folded"
        if not self.groups and key in self._fits:
            folded: Folded = self._fits.pop(key)
            return folded
        return self._once(key, lambda: Folded.fit(CALIBRATORS[method](), *self._rows))

    def cross_fitted(self, method: str) -> Floats | None:
        """Return the reference's scores, (n, K), each calibrated by a fit on other rows.

        The rows are divided into folds by time. Each fold is calibrated by a fit on the other folds, because
        a fit on the same rows would seem to be calibrated too well. The result is None if the method is
        ``none``.
        """
        if method == "none":
            return None
        key = f"{method}, cross-fitted"
        return self._shared(key, lambda: cross_fit_in_time(CALIBRATORS[method](), *self._rows))

    @property
    def _rows(self) -> tuple[Floats, Ints, Ints]:
        return self.scores, self.predicted, self.labels

    def _shared(self, key: str, fit: Callable[[], T]) -> T:
        """Return a cached result if groups need it too. Otherwise compute it, and do not cache it."""
        return self._once(key, fit) if self.groups else fit()

    def _once(self, key: str, fit: Callable[[], T]) -> T:
        """Return the cached result of the first call with this key."""
        if key not in self._fits:
            self._fits[key] = fit()
        made: T = self._fits[key]
        return made


class _Codes:
    """A descriptor of class indices, which are stored in the smallest integer type and read as int64.

    The smallest type is usually one byte. With ten thousand models, the references use most of the agent's
    memory.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, one: Reference | None, owner: type[Reference]) -> Any:
        return self if one is None else one.__dict__[self._name].astype(np.int64)

    def __set__(self, one: Reference, codes: Ints) -> None:
        ends = codes.min(initial=0), codes.max(initial=0)
        one.__dict__[self._name] = codes.astype(np.result_type(*map(np.min_scalar_type, ends)))


for _name in ("predicted", "labels"):
    setattr(Reference, _name, _Codes(_name))  # in the class body they would be the fields' defaults


def split_by_model(batch: Batch) -> dict[str, Reference]:
    """Return the reference of each model from the labelled rows of a reference file, in order of time."""
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
            numbers=batch.numbers[rows],
        )
    return references


def references_of(batch: Batch, task: Task) -> dict[str, Reference]:
    """Return the reference of each model of a classification task; see `TaskKind.references`."""
    return split_by_model(batch)


def _groups(batch: Batch, rows: Ints) -> dict[str, Ints]:
    """Return the indices of each group's rows among `rows`. Groups without rows are left out."""
    groups = {}
    for name, (values, column) in batch.groups.items():
        order, pieces = sorted_by_code(column[rows], np.arange(len(rows)))
        groups.update({f"{name}={values[code]}": order[piece] for code, piece in pieces})
    return groups


FEWEST_IN_ORDER = 50
"""The least number of rows to detect reversed classes: in fewer, a good model may be wrong by chance."""

_LEVEL = 0.998  # by chance one model in a thousand exceeds the upper end
_HARDLY_RIGHT = 0.4  # a bad model, 45 % right on a hard task, must pass


def refuse_reversed_classes(
    task: str, classes: tuple[str, ...], model: str, reference: Reference, where: str = "the reference"
) -> None:
    """Raise ConfigError if a task's two classes are configured in the reverse order of the scores.

    A list of scores follows the order of `classes`. In the wrong order, each predicted class is the opposite
    one. A calibration fitted on such rows reverses all scores, so that the estimates look good.

    The check refuses the order if two conditions are met, both with high confidence. First, the class with
    the larger score is right in less than 40 % of the labelled rows. Second, the score of a class is smaller
    in the rows where this class is right. A model that only favours one class (because of a bad threshold or
    rare events) passes, because it still ranks its answers correctly. Rows with two equal scores are left
    out.

    The check misses a reversed order if the model is so weak that at least 40 % of its answers would be wrong
    in the right order, too. It cannot distinguish a list in the wrong order from scores with wrong names, so
    the message mentions both.

    Parameters
    ----------
    task : str
        The name of the task, for the message.
    classes : tuple of str
        The task's classes. If there are not exactly two classes, nothing is checked.
    model : str
        The name of the model, for the message.
    reference : Reference
    where : str
        The origin of the rows, for the message: the reference, or a source from which they were read.

    Raises
    ------
    ConfigError
        The classes seem to be reversed; the message gives the accuracy in both orders.

    References
    ----------
    The upper bound of the share of right rows is computed by `monitor.stats.estimate.proportion.wilson`.

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
    unequal = second != 0
    second, labels = second[unequal], reference.labels[unequal]
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
    """Return whether the second class has smaller scores, by 3 standard errors, in rows of this class."""
    where, elsewhere = second[labels == 1], second[labels == 0]
    if min(len(where), len(elsewhere)) < 2:
        return False
    error = np.sqrt(where.var(ddof=1) / len(where) + elsewhere.var(ddof=1) / len(elsewhere))
    return bool(elsewhere.mean() - where.mean() > 3 * error)
