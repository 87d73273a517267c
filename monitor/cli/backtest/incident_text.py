"""The output of a backtest of an incident: sentences, a table on the terminal, and sections of a report."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import islice

from markupsafe import Markup
from rich.console import Console
from rich.text import Text

from monitor.cli import series_table
from monitor.cli.backtest.results import BacktestDocument, IncidentOutcome, SettingOutcome, Sighting
from monitor.export.page.templates import section
from monitor.reports.statements import count

_ROWS_SHOWN = 16
_MODELS_SHOWN = 4
_HEADS = (
    "task",
    "window",
    "chart",
    "labels a day",
    "seen after",
    "models",
    "other alarms",
    "a month",
    "first signals",
)


def print_incident(console: Console, document: BacktestDocument, incident: IncidentOutcome) -> None:
    """Print whether the incident was seen, the settings, and the configuration that is recommended."""
    shown = incident.sightings[:_MODELS_SHOWN]
    lines = [f"Incident from {minute(incident.start)} to {minute(incident.end)} UTC, as configured:"]
    lines += [f"  {sighting_words(each)}" for each in shown]
    if more := len(incident.sightings) - len(shown):
        lines.append(f"  {count(more, 'more model')}: see --json, or the report of --out.")
    _print(console, lines)
    rows = _rows_shown(incident)
    columns = {head: [Text(cell) for cell in cells] for head, cells in _columns(rows)}
    console.print(series_table.fitted(columns, [_HEADS[-1], _HEADS[7], _HEADS[5]], console.width))
    if hidden := len(incident.settings) - len(rows):
        _print(console, [f"{count(hidden, 'more setting')}: see --json, or the report of --out."])
    _print(console, _end(document, incident))


def _columns(rows: Sequence[SettingOutcome]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield headings with their cells; without the task if there is only one."""
    columns = zip(_HEADS, zip(*map(_cells, rows), strict=True), strict=True)
    return islice(columns, len({row.task for row in rows}) == 1, None)


def _end(document: BacktestDocument, incident: IncidentOutcome) -> Iterator[str]:
    yield from document.notes
    if document.page is not None:
        yield f"Report: {document.page}."
    for each in incident.recommendations:
        yield f"{each.task}: {each.reason}"
        if each.configuration is not None:
            yield "Recommended; these sections replace those of the configuration:"
            yield each.configuration.rstrip()


def _print(console: Console, lines: Sequence[str] | Iterator[str]) -> None:
    for line in lines:
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def sighting_words(each: Sighting) -> str:
    """Return a sentence that says whether and when an incident was seen, and which causes the alarm named."""
    name = f"{each.task}/{each.model}"
    if each.outcome == "alarm_before":
        return f"{name}: an alarm was on before, and no other began"
    if each.outcome == "no_baseline":
        return f"{name}: the incident lies in the first windows, which became the baseline"
    if each.outcome == "no_answers":
        return f"{name}: no window in this period"
    if each.hours is None or each.windows is None or each.time is None:
        return f"{name}: missed"
    later = f"; later {', '.join(each.later)}" if each.later else ""
    where = f"in window {each.windows} of the incident"
    if each.outcome == "seen_after_end":
        where = f"after its end, in window {each.windows} since its start"
    words = (
        f"{name}: seen after {duration_words(each.hours)}, {where} ({minute(each.time)}), "
        f"by {', '.join(each.signals)}{later}. {_sentence(each.fact)}"
    )
    return f"{words} {_sentence(each.cause)}" if each.cause else words


def duration_words(hours: float) -> str:
    """Return a number of hours in words, in a unit that suits it.

    Examples
    --------
    >>> duration_words(0.2), duration_words(14.44), duration_words(90.0)
    ('12 min', '14.4 h', '3.8 days')
    """
    if hours < 2:
        return f"{60 * hours:.0f} min"
    return f"{hours:.1f} h" if hours < 48 else f"{hours / 24:.1f} days"


def _sentence(words: str) -> str:
    return f"{words[:1].upper()}{words[1:].removesuffix('.')}."


def minute(moment: str) -> str:
    """Return a time of a document to the minute, such as ``2026-11-20 12:21``."""
    return moment[:16].replace("T", " ")


def _rows_shown(incident: IncidentOutcome) -> list[SettingOutcome]:
    """Return today's row of each task and its soonest other rows, as many as the table has room for."""
    tasks = list(dict.fromkeys(each.task for each in incident.settings))[: _ROWS_SHOWN // 2]
    room = _ROWS_SHOWN // max(len(tasks), 1)
    rows: list[SettingOutcome] = []
    for task in tasks:
        of_task = [each for each in incident.settings if each.task == task]
        rows += sorted(of_task, key=_order)[:room]
    return rows


def _order(row: SettingOutcome) -> tuple[bool, float, int, float]:
    hours = math.inf if row.hours is None else row.hours
    return not row.today, hours, row.other_alarms, -row.label_share


def _cells(row: SettingOutcome) -> list[str]:
    month = "" if row.other_alarms_a_month is None else f"{row.other_alarms_a_month:.1f}"
    after = (
        "missed" if row.hours is None else f"{duration_words(row.hours)}, {count(row.windows or 0, 'window')}"
    )
    return [
        row.task,
        f"{row.window_size:,}{' today' if row.today else ''}",
        f"{row.chart}{' by hour' if row.season else ''}",
        f"{row.labels_a_day:,.0f}",
        "not usable" if row.refused else after,
        f"{row.seen} of {row.models}",
        f"{row.other_alarms:,}",
        month,
        ", ".join(row.signals),
    ]


def sections_of(incident: IncidentOutcome) -> Markup:
    """Return the tables of the report: the sightings, all settings, and the recommendations."""
    seen = [(sighting_words(each),) for each in incident.sightings]
    best = [(each.task, each.reason, each.configuration or "") for each in incident.recommendations]
    return (
        section(f"Incident from {minute(incident.start)} UTC, as configured", ("Model",), seen)
        + section(
            "Incident: what other settings would have seen",
            [head[0].upper() + head[1:] for head in _HEADS],
            [_cells(each) for each in sorted(incident.settings, key=lambda row: (row.task, _order(row)))],
        )
        + section("Incident: recommended configuration", ("Task", "Reason", "Sections to replace"), best)
    )
