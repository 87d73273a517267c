"""The attribution of a metric's change to parts of the answers, for reports and exporters."""

from __future__ import annotations

import math

import msgspec

from monitor.base.registry import SHARES

GROUP, CLASS, CONFIDENCE, FEATURE = "group", "class", "confidence", "feature"
"""The ways to split a change: by configured group, by predicted class, by range of the confidence, or, for
the metrics of errors, by feature alone."""

_MOST_NAMED = 2
_DIGITS = 2  # of a change in the unit of the target
_LEAST_NAMED = 0.0005  # a twentieth of a point; less would be printed as 0.0
_LEAST_STEP = 0.005  # half a point; smaller steps follow from the calibration's fit alone
_LEAST_RATE = 0.01  # the least share of rows without a feature, or beyond the reference, that is mentioned
_SAME_FEATURES = "the same features (a release, a pipeline after logging, or a feature not configured)"


class PartChange(msgspec.Struct, frozen=True):
    """The contribution of one part of the answers to a change. All numbers are ratios, -1 to 1.

    Parameters
    ----------
    part : str
        The name of the part, such as ``region=eu``, ``class=toxic`` or ``confidence=0.50-0.60``. The part
        ``region=`` contains the answers without a value of this group, and answers with a value beyond the
        limit on groups. At most 64 parts are kept; ``region=other`` contains all others.
    mix, within : float
        The contribution of the change of the part's share of the answers, and the contribution of the change
        of the part's mean.
    share, share_before : float
        The part's share of the answers in the window, and in the baseline.
    mean, mean_before : float
        The mean of the part's answers, in the window and in the baseline. For the accuracy, it is the mean
        confidence. For other metrics, it is the mean contribution to the metric.
    """

    part: str
    mix: float
    within: float
    share: float
    share_before: float
    mean: float
    mean_before: float

    @property
    def change(self) -> float:
        """The part's contribution to the whole change: the sum of `mix` and `within`."""
        return self.mix + self.within


class FeaturePart(msgspec.Struct, frozen=True):
    """The contribution of one feature to a change.

    Parameters
    ----------
    feature : str
    change, standard_error : float
        Ratios, -1 to 1. For a metric of errors they are in its unit.
    missing, unseen : float
        The share of the window's rows that lack the feature, and the share of rows with a value beyond the
        reference.
    """

    feature: str
    change: float
    standard_error: float
    missing: float
    unseen: float


class FeatureChanges(msgspec.Struct, frozen=True, omit_defaults=True):
    """The change of a metric split over the features of a task, without labels.

    `monitor.stats.features.split` computes the split.

    Parameters
    ----------
    window : int
        The number of the window that was split. If the window of the report was not split, this is an earlier
        window of the same alarm.
    change : float
        Change of the metric in the window that was split, -1 to 1: the sum of `parts`, `others`, `step` and
        `remainder`. For a metric of errors, all these are in its unit.
    parts : tuple of FeaturePart
        The features whose contribution is large, and larger than its noise. The largest contribution in the
        direction of the change is first.
    others : float
        Contribution of all other features together.
    step : float
        The difference between the mean of the reference and the centre of the chart. For metrics other than
        the accuracy, it includes the terms of higher order.
    remainder : float
        The change of the metric at unchanged features.
    remainder_error : float
        The standard error of the remainder.
    remainder_named : bool
        Whether all rows are split, and the remainder is large, and larger than its noise.
    reason : str
        The reason why the change cannot be split, at all or for the rows that have all features; ``""`` if
        all rows are split.
    """

    window: int
    change: float
    parts: tuple[FeaturePart, ...] = ()
    others: float = 0
    step: float = 0
    remainder: float = 0
    remainder_error: float = 0
    remainder_named: bool = False
    reason: str = ""


class ConceptDrift(msgspec.Struct, frozen=True):
    """A change of the accuracy that labels show and confidences do not. All numbers are ratios, -1 to 1.

    Parameters
    ----------
    change : float
        The effect of the confidences' bias, measured on the newest labels, on the mean confidence of the
        window.
    lower, upper : float
        The ends of the interval of `change`, at the task's level.
    labels : int
        The number of labelled rows of the model's present version.
    """

    change: float
    lower: float
    upper: float
    labels: int


class Attribution(msgspec.Struct, frozen=True, omit_defaults=True):
    """The change of a metric between the baseline and a window, split by part.

    `monitor.stats.estimate.decomposition` computes the split.

    Parameters
    ----------
    metric : str
    change : float
        Change of the metric, -1 to 1: the sum over `parts`, `others` and `remainder`. For a metric of errors,
        the change from its mean in the reference, in its unit.
    by : {"group", "class", "confidence", "feature"}
        The kind of the parts. With ``"feature"``, for a metric of errors, `parts` is empty, and `features`
        splits the change.
    parts : tuple of PartChange
        At most five parts. The largest contribution in the direction of the change is first.
    alike : bool
        True if the task has several groups or classes, and none of them explains the change better than
        chance. The change is then split by range of the confidence.
    others : float
        Contribution of all other parts together.
    remainder : float
        Change that no part explains. For the accuracy, it is 0 up to rounding. Other metrics are split by a
        linear approximation, and the remainder is the error of this approximation.
    features : FeatureChanges or None
        The same change split over features. It is not added to the parts. None without features.
    concept_drift : ConceptDrift or None
        A further change of the accuracy, at unchanged features and scores. None if labels show no such
        change, or without features.
    unit : str
        The unit of a metric of errors.
    """

    metric: str
    change: float
    by: str
    parts: tuple[PartChange, ...]
    alike: bool = False
    others: float = 0
    remainder: float = 0
    features: FeatureChanges | None = None
    concept_drift: ConceptDrift | None = None
    unit: str = ""


def sentence(attribution: Attribution) -> str:
    """Return a sentence on the change of the metric, in percentage points, and its two largest parts.

    If the change is also split over features, the features with the largest contributions follow. A further
    change that only labels show is last.

    Examples
    --------
    >>> eu = PartChange("region=eu", mix=-0.021, within=-0.003, share=0.45, share_before=0.2,
    ...     mean=0.71, mean_before=0.716)
    >>> us = PartChange("region=us", mix=0.0, within=-0.005, share=0.5, share_before=0.75,
    ...     mean=0.9, mean_before=0.91)
    >>> print(sentence(Attribution("accuracy", -0.031, "group", (eu, us), others=-0.002)))
    −3.1 points: 2.4 from region=eu (answers up from 20 to 45 %), 0.5 from region=us (confidences down 1.0
    points)
    >>> low = PartChange("confidence=0.50-0.60", -0.03, 0.0, 0.3, 0.1, 0.55, 0.55)
    >>> print(sentence(Attribution("accuracy", -0.031, "confidence", (low,), alike=True, others=-0.001)))
    −3.1 points, in no group or class above the others: 3.0 from confidences 0.50-0.60 (answers up from 10 to
    30 %)
    >>> hour = FeaturePart("hour", -0.066, 0.004, missing=0.0, unseen=0.38)
    >>> changes = FeatureChanges(12, -0.074, (hour,), others=-0.003, remainder=-0.005)
    >>> print(sentence(Attribution("accuracy", -0.074, "group", (eu,), others=-0.05, features=changes)))
    −7.4 points: 2.4 from region=eu (answers up from 20 to 45 %); by feature: 6.6 from hour (values beyond the
    reference in 38 % of rows)
    >>> size = FeaturePart("distance", 2.41, 0.2, missing=0.0, unseen=0.0)
    >>> changes = FeatureChanges(12, 3.12, (size,), others=0.3, remainder=0.41)
    >>> print(sentence(Attribution("mae", 3.12, "feature", (), features=changes, unit="minutes")))
    +3.1 minutes: 2.4 from distance, 0.7 unexplained
    """
    if attribution.by == FEATURE:
        return _in_unit(attribution)
    named = top_parts(attribution)
    by, metric = attribution.by, attribution.metric
    parts = ", ".join(
        f"{_points(each.change)} from {part_name(each.part, by)} ({_how(each, metric)})" for each in named
    )
    head = f"{_signed(attribution.change)} points"
    if attribution.alike:
        head += ", in no group or class above the others"
    if attribution.metric not in SHARES:
        head += ", split to first order"
        if abs(attribution.remainder) >= _LEAST_NAMED:
            parts += f"{parts and ', '}remainder {_signed(attribution.remainder)}"
    where = f"{head}: {parts}" if parts else head
    if attribution.features is not None:
        where += f"; {_by_feature(attribution)}"
    if attribution.concept_drift is not None:
        where += f"; {_by_labels(attribution.concept_drift)}"
    return where


def _in_unit(attribution: Attribution) -> str:
    """Describe the change of a metric of errors, in its unit, by feature."""
    split = attribution.features
    assert split is not None
    decimals = _DIGITS - 1 - math.floor(math.log10(abs(split.change) or 1.0))
    # Longer numbers are hard to read, as in `statements.three_digits`.
    form = f",.{max(decimals, 0)}f" if -12 < decimals < 9 else ".2g"

    def amount(change: float, signed: bool) -> str:
        return f"{change if signed else abs(change):{'+' * signed}{form}}".replace("-", "−")

    head = f"{amount(attribution.change, True)} {attribution.unit}".rstrip()
    if split.change != attribution.change:
        head += f", {amount(split.change, True)} in window {split.window}"
    if split.reason and not split.parts:
        return f"{head}, not split by feature: {split.reason}"
    causes = [(each.change, f"from {each.feature}{_rates(each)}") for each in top_features(split)]
    if split.remainder_named and split.remainder * split.change > 0:
        causes.append((split.remainder, f"at {_SAME_FEATURES}"))
    rest = split.change - sum(change for change, _ in causes)
    parts = [f"{amount(change, False)} {where}" for change, where in causes] or ["no feature stands out"]
    if split.reason:
        parts.append(f"the other rows are not split ({split.reason})")
    elif causes and abs(rest) >= 0.5 * 10.0**-decimals:
        parts.append(f"{amount(rest, rest * split.change < 0)} unexplained")
    return f"{head}: {', '.join(parts)}"


def _by_labels(drift: ConceptDrift) -> str:
    became = "right answers became wrong" if drift.change < 0 else "wrong answers became right"
    return f"beyond that {_signed(drift.change)} points by labels ({became} at the same features and scores)"


def _by_feature(attribution: Attribution) -> str:
    """Describe the split over features. If another window was split, add its number and its change."""
    split = attribution.features
    assert split is not None
    if split.reason and not split.parts:
        return f"not split by feature: {split.reason}"
    causes = [(each.change, f"from {each.feature}{_rates(each)}") for each in top_features(split)]
    if split.remainder_named and split.remainder * split.change > 0:
        causes.append((split.remainder, f"at {_SAME_FEATURES}"))
    causes.sort(key=lambda each: -abs(each[0]))
    parts = [f"{_points(change)} {where}" for change, where in causes]
    if abs(split.step) >= _LEAST_STEP:
        parts.append(f"{_signed(split.step)} between the reference and the centre of the chart")
    if split.reason and abs(split.remainder) >= _LEAST_NAMED:
        parts.append(f"the other rows are not split ({split.reason})")
    head = "by feature"
    if split.change != attribution.change:
        head += f", {_signed(split.change)} points in window {split.window}"
    return f"{head}: {', '.join(parts) or 'none stands out'}"


def top_features(split: FeatureChanges) -> list[FeaturePart]:
    """Return at most two features that contribute most to a change, in the direction of the change."""
    return [each for each in split.parts if each.change * split.change > 0][:_MOST_NAMED]


def _rates(part: FeaturePart) -> str:
    """Describe the rows that lack the feature or have a value beyond the reference, if they are many."""
    if max(part.missing, part.unseen) < _LEAST_RATE:
        return ""
    if part.missing >= part.unseen:
        return f" (missing in {100 * part.missing:.0f} % of rows)"
    return f" (values beyond the reference in {100 * part.unseen:.0f} % of rows)"


def top_parts(attribution: Attribution) -> list[PartChange]:
    """Return at most two parts that contribute most to a change.

    Parts that changed in the opposite direction, or by less than 0.05 points, are left out.
    """
    same_direction = [each for each in attribution.parts if each.change * attribution.change > 0]
    return [each for each in same_direction[:_MOST_NAMED] if abs(each.change) >= _LEAST_NAMED]


def _points(ratio: float) -> str:
    return f"{100 * abs(ratio):.1f}"


def _signed(ratio: float) -> str:
    return f"{100 * ratio:+.1f}".replace("-", "−")


def part_name(part: str, by: str) -> str:
    """Return the name of a part in words, such as ``region=eu``, ``class toxic``, or ``no region``."""
    kind, _, value = part.partition("=")
    if by == GROUP:
        return part if value else f"no {kind}"
    return f"confidences {value}" if by == CONFIDENCE else f"{kind} {value}"


def _how(each: PartChange, metric: str) -> str:
    """Describe the larger of the two causes of a part's change."""
    if abs(each.mix) >= abs(each.within):
        before, now = 100 * each.share_before, 100 * each.share
        digits = 0 if abs(now - before) >= 1 else 1
        way = "up" if now > before else "down"
        return f"answers {way} from {before:.{digits}f} to {now:.{digits}f} %"
    what = "confidences" if metric in SHARES else "within it"
    moved = each.mean - each.mean_before
    return f"{what} {'up' if moved > 0 else 'down'} {100 * abs(moved):.1f} points"
