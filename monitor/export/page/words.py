"""How the page says things: numbers, times, states, tables. All text from outside is escaped here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from html import escape

from monitor.base.results import Result, TooFew, Unknown
from monitor.reports.window_report import finite, rfc3339
from monitor.stats.pairwise.ranking import RankInterval

_TONES = {
    "in_control": "good",
    "warming_up": "soft",
    "out_of_control": "bad",
    "untrusted": "bad",
    "silent": "warn",
    "met": "good",
    "at_risk": "warn",
    "breached": "bad",
}


def text(words: str) -> str:
    """Text that may stand in an element or in a quoted attribute.

    Examples
    --------
    >>> text('<b title="x">')
    '&lt;b title=&quot;x&quot;&gt;'
    """
    return escape(words, quote=True)


def word(state: str) -> str:
    """A state in its tone; the word says it too, for who cannot tell the colours apart."""
    return f'<span class="{_TONES[state]}">{state.replace("_", " ")}</span>'


def percent(ratio: float) -> str:
    """A ratio in per cent, without the sign.

    Examples
    --------
    >>> percent(0.9134)
    '91.3'
    """
    return f"{100 * ratio:.1f}"


def moment(seconds: float) -> str:
    """A time to the second, in UTC.

    Examples
    --------
    >>> moment(1795168800.0)
    '2026-11-20 10:00:00 UTC'
    """
    return rfc3339(seconds)[:19].replace("T", " ") + " UTC"


def duration(seconds: float) -> str:
    """A span in the largest unit of which there are two.

    Examples
    --------
    >>> duration(5400.0)
    '90.0 min'
    """
    for unit, length in (("days", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.1f} {unit}"
    return f"{seconds:.1f} s"


def said(found: Result) -> str:
    """An estimate with its interval, in per cent; or that it is unknown, and why."""
    result = finite(found)
    if isinstance(result, Unknown):
        count = f" ({result.n:,})" if isinstance(result, TooFew) else ""
        return f"unknown, {text(result.reason)}{count}"
    interval = f"{percent(result.lower)} to {percent(result.upper)}"
    return f'<b>{percent(result.value)} %</b> <span class="nowrap">({interval})</span>'


def rank_words(rank: RankInterval | None, chi_square: RankInterval | None = None) -> str:
    """The ranks that a model may have, by both methods where they differ.

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


def table(caption: str, heads: Iterable[str], rows: Iterable[str], hidden: bool = True) -> Iterator[str]:
    """A table; a head that begins with # stands over numbers.

    It can be reached with the keyboard, so that it can be scrolled with it where it is wider than the screen.
    """
    name = text(caption)
    shown = ' class="unseen"' if hidden else ""
    yield f'<div class="scroll" tabindex="0" role="region" aria-label="{name}"><table>'
    yield f"<caption{shown}>{name}</caption><thead><tr>"
    for head in heads:
        number = ' class="number"' if head.startswith("#") else ""
        yield f'<th scope="col"{number}>{text(head.removeprefix("#"))}</th>'
    yield "</tr></thead>"
    yield from rows
    yield "</table></div>"


def numbers(cells: Iterable[str]) -> str:
    """Cells of a row that hold numbers."""
    return "".join(f'<td class="number">{text(cell)}</td>' for cell in cells)
