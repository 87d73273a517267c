"""Where an alarm's change is: its split by parts, as reports write it and exporters show it."""

from __future__ import annotations

import msgspec

ACCURACY = "accuracy"

GROUP, CLASS, CONFIDENCE = "group", "class", "confidence"
"""By what a change is split: a configured group, the predicted class, the range of the confidence."""

_MOST_TOLD = 2
_LEAST_TOLD = 0.0005  # a twentieth of a point: less is 0.0 in print


class PartChange(msgspec.Struct, frozen=True):
    """What one part brings of a change; ratios, -1 to 1.

    Parameters
    ----------
    part : str
        ``region=eu``, ``class=toxic``, ``confidence=0.50-0.60``; ``region=`` of answers without that group,
        or beyond the cap on groups; ``region=other`` of all parts beyond the 64 that are kept.
    mix, within : float
        By its share of the answers, and by its own mean; their sum is what it brings.
    share, share_before : float
        Of the answers, in the window and in the baseline.
    mean, mean_before : float
        Of the term that is split: for the accuracy the mean confidence.
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
        """What it brings of the whole."""
        return self.mix + self.within


class Attribution(msgspec.Struct, frozen=True, omit_defaults=True):
    """The change of a metric of a window against the baseline, by part.

    See `monitor.stats.estimate.decomposition`.

    Parameters
    ----------
    metric : str
    change : float
        Of the metric, -1 to 1: the sum over `parts`, `others` and `remainder`.
    by : {"group", "class", "confidence"}
    parts : tuple of PartChange
        At most five, the largest changes first.
    alike : bool
        No group and no class stands out.
    others : float
        What all other parts together bring.
    remainder : float
        What the split leaves: 0 for the accuracy, to rounding; that of a first order for other metrics.
    """

    metric: str
    change: float
    by: str
    parts: tuple[PartChange, ...]
    alike: bool = False
    others: float = 0
    remainder: float = 0


def sentence(found: Attribution) -> str:
    """Where an alarm's change is, in words, in points of the metric: the two parts that bring most of it.

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
    """
    told = top_parts(found)
    parts = ", ".join(
        f"{100 * abs(each.change):.1f} from {_name(each.part, found.by)} ({_how(each, found.metric)})"
        for each in told
    )
    head = f"{_signed(found.change)} points"
    if found.alike:
        head += ", in no group or class above the others"
    if found.metric != ACCURACY:
        head += ", split to first order"
        if abs(found.remainder) >= _LEAST_TOLD:
            parts += f"{parts and ', '}remainder {_signed(found.remainder)}"
    return f"{head}: {parts}" if parts else head


def top_parts(found: Attribution) -> list[PartChange]:
    """The two parts that bring most of a change; none that moved the other way, or by next to nothing."""
    with_it = [each for each in found.parts if each.change * found.change > 0]
    return [each for each in with_it[:_MOST_TOLD] if abs(each.change) >= _LEAST_TOLD]


def _signed(ratio: float) -> str:
    return f"{100 * ratio:+.1f}".replace("-", "−")


def _name(part: str, by: str) -> str:
    kind, _, value = part.partition("=")
    if by == GROUP:
        return part if value else f"no {kind}"
    return f"confidences {value}" if by == CONFIDENCE else f"{kind} {value}"


def _how(each: PartChange, metric: str) -> str:
    """The larger of its two causes."""
    if abs(each.mix) >= abs(each.within):
        before, now = 100 * each.share_before, 100 * each.share
        digits = 0 if abs(now - before) >= 1 else 1
        way = "up" if now > before else "down"
        return f"answers {way} from {before:.{digits}f} to {now:.{digits}f} %"
    what = "confidences" if metric == ACCURACY else "within it"
    moved = each.mean - each.mean_before
    return f"{what} {'up' if moved > 0 else 'down'} {100 * abs(moved):.1f} points"
