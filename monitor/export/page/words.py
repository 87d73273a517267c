"""The wording of the page: numbers, times, states, tables. All text from outside is escaped here."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from html import escape

from monitor.base.results import Result, TooFew, Unknown
from monitor.reports.window_report import finite, rfc3339
from monitor.stats.pairwise.ranking import RankInterval

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


def text(words: str) -> str:
    """Escape text for an element or a quoted attribute.

    Examples
    --------
    >>> text('<b title="x">')
    '&lt;b title=&quot;x&quot;&gt;'
    """
    return escape(words, quote=True)


def word(state: str) -> str:
    """Return a state as coloured HTML text: its words, for readers who cannot see the colour."""
    return f'<span class="{_TONES[state]}">{state.replace("_", " ")}</span>'


def percent(ratio: float) -> str:
    """Format a ratio in per cent, without the sign.

    Examples
    --------
    >>> percent(0.9134)
    '91.3'
    """
    return f"{100 * ratio:.1f}"


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


def format_result(estimate: Result) -> str:
    """Format an estimate with its interval in per cent, or "unknown" with the reason."""
    result = finite(estimate)
    if isinstance(result, Unknown):
        count = f" ({result.n:,})" if isinstance(result, TooFew) else ""
        return f"unknown, {text(result.reason)}{count}"
    interval = f"{percent(result.lower)} to {percent(result.upper)}"
    return f'<b>{percent(result.value)} %</b> <span class="nowrap">({interval})</span>'


def rank_words(rank: RankInterval | None, chi_square: RankInterval | None = None) -> str:
    """Format a model's possible ranks by Bonferroni's intervals, and by the χ² set if that one differs.

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
    return ", ".join(
        dict.fromkeys(_RULE_WORDS.get(rule, f"a lasting shift ({text(rule)})") for rule in rules)
    )


def count(number: int, noun: str) -> str:
    """Format a count with its noun, which is in the plural unless the count is 1.

    Examples
    --------
    >>> count(1, "model"), count(1200, "model")
    ('1 model', '1,200 models')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def anchor(task: str, model: str, group: str) -> str:
    """Return an HTML id for a model or group, whose name may contain characters that ids may not."""
    return "m" + hashlib.sha256("\0".join((task, model, group)).encode("utf-8", "replace")).hexdigest()[:12]


_CELL = re.compile("<td(?=[ >])")


def table(
    caption: str, heads: Iterable[str], rows: Iterable[str], kind: str = "", hidden: bool = True
) -> Iterator[str]:
    """Yield an HTML table of the CSS class `kind`. A heading with # before it is for a column of numbers.

    The table can be focused and scrolled with the keyboard if it is wider than the screen. On a small screen
    each row becomes a card whose cells have their headings beside them, except in tables of the class
    `sheet`, which scroll.
    """
    heads = list(heads)
    name = text(caption)
    shown = ' class="unseen"' if hidden else ""
    css_class = f' class="{kind}"' if kind else ""
    yield f'<div class="scroll" tabindex="0" role="region" aria-label="{name}"><table{css_class}>'
    yield f"<caption{shown}>{name}</caption><thead><tr>"
    for head in heads:
        number = ' class="number"' if head.startswith("#") else ""
        yield f'<th scope="col"{number}>{text(head.removeprefix("#"))}</th>'
    yield "</tr></thead>"
    names = [f'<td data-head="{text(head.removeprefix("#"))}"' for head in heads[1:]]
    for row in rows:
        left = iter(names)
        yield _CELL.sub(lambda _, left=left: next(left), row)  # type: ignore[misc]
    yield "</table></div>"


def numbers(cells: Iterable[str]) -> str:
    """Return HTML table cells for numbers."""
    return "".join(f'<td class="number">{text(cell)}</td>' for cell in cells)
