"""The page's sections for arenas, tasks whose models are compared in pairs: ranks and coefficients."""

from __future__ import annotations

from collections.abc import Iterator

import scipy

from monitor.base.results import Estimate, TooFew
from monitor.export.page.words import moment, percent, rank_words, table, text
from monitor.reports.arena_report import ArenaView
from monitor.stats.pairwise.standing import ModelStanding, Standing

_WORDS = {
    "both": "by humans and the judge",
    "judge": "by the judge alone",
    "human": "by humans alone",
    "none": "by nobody yet",
}


def arena(one: ArenaView) -> Iterator[str]:
    """Yield the HTML section of an arena, with a table of its models from the best to the worst."""
    yield f'<section class="series"><h2>Arena {text(one.task)}</h2><p class="soft">{_progress(one)}</p>'
    if one.standing is not None:
        yield from _table(one.task, one.standing)
    yield "</section>"


def _progress(one: ArenaView) -> str:
    pending = f"{one.pending:,} of {one.window_size:,} comparisons in the open window"
    if one.standing is None or one.window_end_time is None:
        return f"no window closed yet · {pending}"
    decided = ", ".join(
        f"{one.standing.comparisons[name]:,} {words}"
        for name, words in _WORDS.items()
        if one.standing.comparisons.get(name)
    )
    return (
        f"window {one.windows_closed - 1:,} to {moment(one.window_end_time)} · {pending} · from "
        f"comparisons decided {decided}{_worth(one.standing)}"
    )


def _worth(standing: Standing) -> str:
    if not standing.effective_comparisons:
        return ""
    return (
        f" · as informative as {standing.effective_comparisons:,.0f} by humans alone "
        f"(weight of the judge {standing.judge_weight:.2f})"
    )


def _table(task: str, standing: Standing) -> Iterator[str]:
    heads = ("Model", "Rank", "Coefficient", f"Wins against {standing.reference}", "Decided by humans")
    ranked = sorted(standing.models, key=_place)
    yield from table(f"Models of {task}", heads, (_row(one, standing.reference) for one in ranked))
    level = percent(standing.rank_level)
    yield f'<p class="soft">All ranks together are right with a probability of {level} %. '
    yield "Each coefficient has its own interval.</p>"


def _place(one: ModelStanding) -> tuple[bool, float]:
    coefficient = one.coefficient
    return (False, -coefficient.value) if isinstance(coefficient, Estimate) else (True, 0.0)


def _row(one: ModelStanding, reference: str) -> str:
    head = f'<tr><th scope="row">{text(one.model)}</th>'
    coefficient = one.coefficient
    if not isinstance(coefficient, Estimate):
        n = f"{coefficient.n:,}" if isinstance(coefficient, TooFew) else ""
        return f'{head}<td></td><td class="soft">{text(coefficient.reason)}</td><td></td><td>{n}</td></tr>'
    head = f"{head}<td>{rank_words(one.rank, one.rank_chi_square)}</td>"
    if one.model == reference:
        return f"{head}<td>0, the reference</td><td></td><td>{coefficient.n:,}</td></tr>"
    ends = f"{coefficient.lower:.2f} to {coefficient.upper:.2f}"
    wins = " to ".join(
        percent(float(scipy.special.expit(end))) for end in (coefficient.lower, coefficient.upper)
    )
    return (
        f'{head}<td>{coefficient.value:.2f} <span class="nowrap">({ends})</span></td>'
        f"<td>{percent(float(scipy.special.expit(coefficient.value)))} % "
        f'<span class="nowrap">({wins})</span></td>'
        f"<td>{coefficient.n:,}</td></tr>"
    )
