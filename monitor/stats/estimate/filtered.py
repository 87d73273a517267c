"""The predictive interval of the accuracy with the bias learnt from labels, instead of the reference alone.

Without labels the calibration's error has the mean 0 and the reference's width. Labels show its present value
(`monitor.stats.estimate.bias_filter`): the window's exact distribution is shifted and widened by the
distribution of its bias. The part of the calibration's variance beyond a shift of all logits is added: the
curve is less certain at confidences that are more frequent in this window than in the reference.

The estimate stays the mean confidence. The interval contains both the estimate and the labels' range; it
becomes asymmetric when they disagree, and covers at least as often as the labels' range. An estimate at the
interval's very end is contradicted by labels.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import ArrayLike

from monitor.base.records import Floats, Ints
from monitor.base.results import Estimate, Reason, Result, Unknown
from monitor.stats.estimate.between_groups import Deviation, beside
from monitor.stats.estimate.bias_filter import BiasFilterLogic
from monitor.stats.estimate.bias_law import NODES, BiasLaw, biased, expected_shift, on_lattice, shifted
from monitor.stats.estimate.poisson_binomial import (
    TrimmedPmf,
    checked_level,
    checked_probabilities,
    trimmed_pmf_many,
)
from monitor.stats.estimate.predictive import Predictive
from monitor.stats.estimate.widening import mid_p_interval


def law_of_window(
    model: Predictive,
    filtered: BiasFilterLogic,
    confidence: Floats,
    start: int,
    predicted: Ints | None = None,
    of_group: bool = False,
    beyond: Deviation | None = None,
    unknown: float = 0.0,
) -> BiasLaw:
    """The distribution of the bias of a window's confidences.

    Parameters
    ----------
    model : Predictive
    filtered : BiasFilterLogic
    confidence : (n,) float64
        Calibrated; n at least 1.
    start : int
        Position of the window's first row in the stream of the model's answers.
    predicted : (n,) int64, optional
        Predicted classes, as in `Predictive.variance`.
    of_group : bool
        Whether the rows are those of a group of the model that `filtered` follows.
    beyond : Deviation, optional
        The group's, where labels say that groups differ. By default the lasting drift of its own rows of
        the reference, beyond that of the model's, is not known.
    unknown : float
        By default, for a group: the variance of what is not known of its calibration's shift, logits².
    """
    information = float((confidence * (1 - confidence)).sum())
    shape = 0.0
    if information > 0:
        curves = len(confidence) ** 2 * replace(model, components=None).variance(confidence, None, predicted)
        shape = max(curves / information**2 - filtered.shared_variance, 0.0)
    if not of_group:
        return filtered.of_window(start, len(confidence), information, shape)
    unknown = max(filtered.beyond(model.components), unknown) if beyond is None else 0.0
    law = filtered.of_window(start, len(confidence), information, shape + unknown, model.components)
    return law if beyond is None else beside(law, beyond)


def filtered_interval(
    confidence: ArrayLike,
    model: Predictive,
    filtered: BiasFilterLogic,
    start: int,
    level: float = 0.95,
    predicted: Ints | None = None,
) -> Result:
    """The accuracy of a window, with an interval from its reference and the labels so far.

    Parameters
    ----------
    confidence, model, start, predicted
        As in `law_of_window`.
    filtered : BiasFilterLogic
        With the labels at the window's close. Before the first label use `predictive_interval`: the filter's
        prior on unseen drift would only widen it.
    level : float

    Returns
    -------
    Estimate or Unknown
        The value is the mean confidence and lies in the interval.

    Raises
    ------
    ValueError
        A confidence or the level is out of range.

    Examples
    --------
    >>> from monitor.stats.estimate.bias_filter import BiasFilter
    >>> labels = BiasFilter(variance=0.01, components=None).build()
    >>> rows = np.arange(0, 20_000, 4)
    >>> labels.push(rows, np.full(5000, 0.9), rows // 4 % 10 > 1)   # 80 % of answers of 90 % are right
    >>> model = Predictive((np.zeros(0),), np.zeros((1, 1)), None)
    >>> found = filtered_interval(np.full(500, 0.9), model, labels, start=20_000)
    >>> round(found.value, 2), round(found.lower, 2), round(found.upper, 2)
    (0.9, 0.77, 0.9)
    """
    checked_level(level)
    checked = checked_probabilities(np.asarray(confidence, dtype=np.float64), 1, "confidence")
    n = len(checked)
    if not n:
        return Unknown(Reason.NO_ROWS)
    law = law_of_window(model, filtered, checked, start, predicted)
    low, high = mid_p_interval(biased(trimmed_pmf_many(checked[None])[0], checked, law), level)
    mean = float(checked.mean())
    return Estimate(mean, min(low / n, mean), max(high / n, mean), level, n)


@dataclass(frozen=True, slots=True, eq=False)
class LabelsSay:
    """The labels' distribution of the bias of the newest window's (n,) confidences.

    `shift`, (129,), is the change of the window's expected count at each bias of the lattice.

    Examples
    --------
    >>> from monitor.stats.estimate.bias_law import LATTICE
    >>> worse = BiasLaw(np.where(np.isclose(LATTICE, -1.0), 1.0, 0.0))
    >>> pool = TrimmedPmf(offset=180, mass=np.array([1.0]), n=200)
    >>> low, high = LabelsSay(np.full(100, 0.9), worse).interval(pool, 0.95)
    >>> round(low, 2), high   # 0.77 of answers whose odds are e times worse; and the estimate itself
    (0.77, 0.9)
    """

    confidence: Floats
    law: BiasLaw
    shift: Floats = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "shift", on_lattice(expected_shift(self.confidence, NODES)))

    def counts(self, pmf: TrimmedPmf) -> TrimmedPmf:
        """The window's distribution of right answers, or that of `pmf.n` answers with confidences alike."""
        return shifted(pmf, pmf.n / len(self.confidence) * self.shift, self.law)

    def interval(self, total: TrimmedPmf, level: float) -> tuple[float, float]:
        """The interval of the accuracy of pooled windows; it contains their mean confidence and the labels'
        range.
        """
        k_low, k_high = mid_p_interval(self.counts(total), level)
        mean = float((np.arange(len(total.mass)) + total.offset) @ total.mass)
        return min(k_low, mean) / total.n, max(k_high, mean) / total.n
