"""The wording of the page: numbers, times, states, results. Templates escape text that is not `Markup`."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from functools import cache

from markupsafe import Markup, escape

from monitor.base.results import Estimate, RankInterval, Result, TooFew, Unknown
from monitor.reports.statements import RATIOS, bound_in_words, in_unit, three_digits
from monitor.reports.views import ObjectiveView, SeriesState, SeriesView
from monitor.reports.window_report import finite, rfc3339

_TONES = {
    "in_control": "good",
    "warming_up": "soft",
    "out_of_control": "bad",
    "improved": "good",
    "confidences_moved": "soft",
    "untrusted": "bad",
    "silent": "warn",
    "met": "good",
    "not_proven": "soft",
    "at_risk": "warn",
    "breached": "bad",
}


def tone(words: str, css_class: str) -> Markup:
    """Return a text as HTML in the colour of a CSS class: `good`, `warn`, `bad` or `soft`.

    Examples
    --------
    >>> tone("<none> yet", "soft")
    Markup('<span class="soft">&lt;none&gt; yet</span>')
    """
    return Markup(f'<span class="{css_class}">{escape(words)}</span>')


@cache
def word(state: str) -> Markup:
    """Return a state as coloured HTML text.

    The words also name the state, for readers who cannot see colours.
    """
    return tone(state.replace("_", " "), _TONES[state])


def class_of(one: SeriesView, more: str = "") -> Markup:
    """Return the HTML attribute ``class`` for the element of a model, or "" without a class.

    A model whose estimate is not trusted gets the class `untrusted`, which removes the colours of good news.
    `more` holds further classes.
    """
    names = " ".join(filter(None, (more, "untrusted" if one.state is SeriesState.UNTRUSTED else "")))
    return Markup(f' class="{names}"' if names else "")


def percent(ratio: float) -> str:
    """Format a ratio in per cent, without the sign.

    Examples
    --------
    >>> percent(0.9134)
    '91.3'
    """
    return f"{100 * ratio:.1f}"


def values_in(unit: str | None, *values: float) -> list[str]:
    """Format numbers in the unit of a metric of errors, or in per cent if the unit is None or "ratio".

    Examples
    --------
    >>> values_in("minutes", 12.345, 9.0), values_in(None, 0.9134)
    (['12.3 minutes', '9.0 minutes'], ['91.3 %'])
    """
    if unit in RATIOS:
        return [f"{percent(value)} %" for value in values]
    return [f"{value} {unit}".rstrip() for value in three_digits(*values)]


def difference_in(unit: str | None, value: float) -> str:
    """Format a difference with its sign, in the unit of a metric of errors, or in percentage points.

    Examples
    --------
    >>> difference_in("minutes", -0.5), difference_in(None, 0.0123)
    ('-0.500 minutes', '+1.2 points')
    """
    words = f"{percent(value + 0.0)} points" if unit in RATIOS else values_in(unit, value)[0]
    is_zero = not any(digit in words.partition(" ")[0] for digit in "123456789")
    return words.removeprefix("-") if is_zero else words if value < 0 else f"+{words}"


def moment(seconds: float) -> str:
    """Format a time to the second, in UTC.

    Examples
    --------
    >>> moment(1795168800.0)
    '2026-11-20 10:00:00 UTC'
    """
    return rfc3339(seconds)[:19].replace("T", " ") + " UTC"


def duration(seconds: float) -> str:
    """Format a duration in the largest unit in which it is at least 2.

    Examples
    --------
    >>> duration(5400.0)
    '90.0 min'
    """
    for unit, length in (("days", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.1f} {unit}"
    return f"{seconds:.1f} s"


def per_cent(estimate: Estimate, between: str = " ", unit: str | None = None) -> Markup:
    """Format an estimate and its interval in per cent or in a unit, with the HTML `between` between both."""
    value, ends = value_and_ends(estimate, unit)
    return Markup(f'<b>{escape(value)}</b>{between}<span class="nowrap">({ends})</span>')


def value_and_ends(estimate: Estimate, unit: str | None = None) -> tuple[str, str]:
    """Format an estimate and the ends of its interval, in per cent or in the unit of a metric of errors.

    Examples
    --------
    >>> value_and_ends(Estimate(12.34, 11.2, 13.5, 0.95, 500), "minutes")
    ('12.3 minutes', '11.2 to 13.5')
    """
    numbers = estimate.value, estimate.lower, estimate.upper
    if unit in RATIOS:
        value, lower, upper = map(percent, numbers)
        return f"{value} %", f"{lower} to {upper}"
    value, lower, upper = three_digits(*numbers)
    return f"{value} {unit}".rstrip(), f"{lower} to {upper}"


def bound(objective: ObjectiveView) -> Markup:
    """Format the bound of an objective in per cent or in its unit, on one line."""
    side = "at least" if objective.is_floor else "at most"
    words = bound_in_words(objective)
    if objective.unit in RATIOS:
        words = f"{side} {percent(objective.bound)} %"
    return Markup(f'<span class="nowrap">{escape(words)}</span>')


def format_result(estimate: Result, unit: str | None = None) -> Markup:
    """Format an estimate with its interval, or "unknown" with the reason.

    Parameters
    ----------
    estimate : Estimate or Unknown
    unit : str or None
        The unit of a metric of errors. None for a ratio, which is formatted in per cent.

    Examples
    --------
    >>> format_result(Estimate(12.34, 11.2, 13.5, 0.95, 500), "minutes")
    Markup('12.3 (11.2 to 13.5) minutes')
    """
    result = finite(estimate)
    if isinstance(result, Unknown):
        count = f" ({result.n:,})" if isinstance(result, TooFew) else ""
        return escape(f"unknown, {result.reason}{count}")
    return per_cent(result) if unit is None else escape(in_unit(result, unit))


def time_words(seconds: float) -> Markup:
    """Return a time as an HTML element. The script shows the age instead of the time."""
    return Markup(f'<time datetime="{rfc3339(seconds)}">{moment(seconds)}</time>')


def rank_words(rank: RankInterval | None, chi_square: RankInterval | None = None) -> str:
    """Format a model's possible ranks by Bonferroni's intervals, and by the χ² ellipsoid if these differ.

    Examples
    --------
    >>> rank_words(None), rank_words(RankInterval(1, 1)), rank_words(RankInterval(2, 4), RankInterval(2, 4))
    ('', '1', '2 to 4')
    >>> rank_words(RankInterval(2, 4), RankInterval(2, 3))
    '2 to 4 (χ²: 2 to 3)'
    """
    if rank is None:
        return ""
    words = f"{rank.best}" if rank.best == rank.worst else f"{rank.best} to {rank.worst}"
    return words if chi_square in (None, rank) else f"{words} (χ²: {rank_words(chi_square)})"


_RULE_WORDS = {
    "we1": "beyond a limit",
    "we2": "two of three windows near a limit",
    "we3": "four of five windows off the centre",
    "we4": "eight windows on one side of the centre",
    "nelson1": "beyond a limit",
    "nelson2": "nine windows on one side of the centre",
    "nelson3": "six windows rise or fall",
    "nelson4": "fourteen windows go up and down",
    "nelson5": "two of three windows near a limit",
    "nelson6": "four of five windows off the centre",
    "nelson7": "fifteen windows close to the centre",
    "nelson8": "eight windows off the centre, on both sides",
}


def broken_rules(rules: Iterable[str]) -> str:
    """Describe in words which rules of the chart a window broke.

    Examples
    --------
    >>> broken_rules(("we1", "nelson1", "we4")), broken_rules(("cusum",))
    ('beyond a limit, eight windows on one side of the centre', 'a lasting shift (cusum)')
    """
    return ", ".join(dict.fromkeys(_RULE_WORDS.get(rule, f"a lasting shift ({rule})") for rule in rules))


def thousands(number: int) -> str:
    """Format a count with commas between groups of three digits.

    Examples
    --------
    >>> thousands(1200)
    '1,200'
    """
    return f"{number:,}"


def columns(heads: Iterable[str]) -> list[tuple[str, bool]]:
    """Return the text of each heading of a table, and whether a leading ``#`` marks a column of numbers."""
    return [(head.removeprefix("#"), head.startswith("#")) for head in heads]


def anchor(task: str, model: str, group: str) -> str:
    """Return an HTML id for a model or group, whose name may contain characters that ids may not."""
    return "m" + hashlib.sha256("\0".join((task, model, group)).encode("utf-8", "replace")).hexdigest()[:12]
