"""The output of a backtest: a table on the terminal, a picture, and a report as HTML."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec
from markupsafe import Markup
from rich.table import Table
from rich.text import Text

from monitor.base.errors import ConfigError, SinkError
from monitor.cli import series_table
from monitor.cli.backtest.backtest import Backtest, BacktestOptions, backtest
from monitor.cli.backtest.incident import backtest_incident
from monitor.cli.backtest.incident_text import minute, print_incident, sections_of
from monitor.cli.backtest.results import (
    BacktestDocument,
    Delay,
    Detection,
    HistoryOutcome,
    way_words,
)
from monitor.cli.reporting import write_report
from monitor.export.charts.delays import DelayRow, delays_svg
from monitor.export.page.templates import section
from monitor.export.sinks.line_file import cannot_write
from monitor.reports.statements import count

PICTURE, PAGE = "backtest.svg", "backtest.html"

_MODELS_SHOWN = 4
"""The largest number of models in the text and the picture, so that the text has at most about 20 lines."""
_DATES_SHOWN = 3


def run_and_print(options: BacktestOptions, out: Path | None, as_json: bool) -> None:
    """Run a backtest of drops or of an incident, and print the results; write files if there is a folder."""
    if options.incident is None:
        done = backtest(options)
    else:
        done = backtest_incident(options, lambda words: print(words, file=sys.stderr))
    print_backtest(done if out is None else write_files(done, out), as_json)


def print_backtest(done: Backtest, as_json: bool) -> None:
    """Print the results, as text or as a JSON document."""
    document = done.document
    if as_json:
        print(msgspec.json.format(msgspec.json.encode(document), indent=2).decode())
        return
    console = series_table.output()
    if document.incident is not None:
        print_incident(console, document, document.incident)
        return
    console.print(_table(document, console.width))
    for line in _lines(document):
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def write_files(done: Backtest, out: Path) -> Backtest:
    """Write the report, and the picture of drops, to a folder, and return the results with their paths.

    Raises
    ------
    ConfigError
        The folder cannot be made.
    SinkError
        A file cannot be written.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"--out: {cannot_write(str(out), error)}") from error
    document = done.document
    if document.incident is None:
        more, picture = _with_picture(document, out / PICTURE), str(out / PICTURE)
    else:
        more, picture = sections_of(document.incident), None
    engine = done.history.engine
    write_report(out / PAGE, done.history.period.html(engine.labelled(), [engine.view()], more=more))
    document = msgspec.structs.replace(document, picture=picture, page=str(out / PAGE))
    return Backtest(document, done.history)


def _with_picture(document: BacktestDocument, path: Path) -> Markup:
    """Write the picture of the delays, and return it with the tables of the report."""
    picture = delays_svg("Windows until a drop of accuracy is detected", _picture_rows(document))
    try:
        path.write_text(picture, encoding="utf-8")
    except OSError as error:
        raise SinkError(cannot_write(str(path), error)) from error
    return _sections(document) + Markup(picture)


def _table(document: BacktestDocument, width: int) -> Table:
    heads, rows = _delays_table(document, _shown(document))
    columns = {head: [Text(row[k]) for row in rows] for k, head in enumerate(heads)}
    return series_table.fitted(columns, [heads[-1]], width)


def _shown(document: BacktestDocument) -> list[tuple[str, str]]:
    return [(each.task, each.model) for each in document.history[:_MODELS_SHOWN]]


def _delays_table(
    document: BacktestDocument, models: Sequence[tuple[str, str]]
) -> tuple[list[str], list[list[str]]]:
    """Return headings and rows: one row for each model and way, with a column for each size of the drop."""
    drops = sorted({each.drop for each in document.delays})
    by_way: dict[tuple[str, str, bool, bool], dict[float, Delay]] = {}
    for each in document.delays:
        if (each.task, each.model) in models:
            by_way.setdefault((each.task, each.model, each.known, each.labelled), {})[each.drop] = each
    heads = ["model", "drop", *(_points(drop) for drop in drops), "first signals"]
    rows = [
        [
            f"{task}/{model}",
            way_words(known, labelled),
            *(_cell(delays[drop]) if drop in delays else "" for drop in drops),
            _signals(delays.values()),
        ]
        for (task, model, known, labelled), delays in by_way.items()
    ]
    return heads, rows


def _points(drop: float) -> str:
    return f"{100 * drop:g} point{'' if drop == 0.01 else 's'}"


def _cell(delay: Delay) -> str:
    """Return the median delay in windows, the 90 % in parentheses, then hours and labels."""
    if not delay.starts:
        return "alarm before"
    if delay.windows_median is None:
        return f"missed {delay.starts - delay.detected} of {delay.starts}"
    late = "missed" if delay.windows_90 is None else f"{delay.windows_90:g}"
    words = [f"{delay.windows_median:g} ({late}) windows"]
    if delay.hours_median is not None:
        words.append(_hours(delay.hours_median))
    if delay.labelled and delay.labels_median is not None:
        words.append(f"{delay.labels_median:,.0f} labels")
    return ", ".join(words)


def _hours(hours: float) -> str:
    return f"{hours:.0f} h" if hours < 100 else f"{hours / 24:.0f} days"


def _signals(delays: Iterable[Delay]) -> str:
    total: Counter[str] = Counter()
    for each in delays:
        total.update(each.signals)
    return ", ".join(f"{name} {count}" for name, count in total.most_common())


def _lines(document: BacktestDocument) -> Iterator[str]:
    times = [minute(start.time) if start.time else start.name for start in document.starts]
    if times:
        yield (
            f"Median (90 %) over drops from {count(len(times), 'point')}: {', '.join(times)}. Window 1 is "
            "the first whose answers all come after the drop."
        )
    for each in document.history[:_MODELS_SHOWN]:
        yield _history_line(each)
    more = len(document.history) - _MODELS_SHOWN
    if more > 0:
        yield f"{count(more, 'more model')}: see --json, or the report of --out."
    yield from document.notes
    if document.page is not None:
        yield f"Report: {document.page}. Picture: {document.picture}."


def _history_line(each: HistoryOutcome) -> str:
    rate = f"{count(len(each.alarms), 'alarm')} in {each.windows:,} windows"
    if each.per_month is not None:
        rate += f", {each.per_month:.1f} a month"
    if each.predicted is not None:
        better = count(each.improvements, "change")
        rate += f"; {better} for the better; check predicts {each.predicted:.1f} of both by chance"
    dates = list(dict.fromkeys(alarm.time[:10] for alarm in each.alarms))
    if dates and each.months is not None:
        more = f" and {len(dates) - _DATES_SHOWN} more days" if len(dates) > _DATES_SHOWN else ""
        rate += f": {', '.join(dates[:_DATES_SHOWN])}{more}"
    return f"{each.task}/{each.model}, as it was: {rate}."


def _picture_rows(document: BacktestDocument) -> list[DelayRow]:
    shown, cases = _shown(document), dict[str, list[Detection]]()
    for each in document.detections:
        if (each.task, each.model) in shown and each.outcome != "alarm_before":
            way = f"{_points(each.drop)}, {way_words(each.known, each.labelled)}"
            cases.setdefault(f"{each.model}: {way}", []).append(each)
    return [
        DelayRow(
            name,
            [each.windows for each in several if each.outcome == "detected"],
            [each.windows for each in several if each.outcome == "missed"],
        )
        for name, several in cases.items()
    ]


def _sections(document: BacktestDocument) -> Markup:
    """Return the tables of the report."""
    every = [(each.task, each.model) for each in document.history]
    heads, rows = _delays_table(document, every)
    facts = list(
        dict.fromkeys(
            (f"{each.task}/{each.model}", _points(each.drop), way_words(each.known, each.labelled), each.fact)
            for each in document.detections
            if each.fact
        )
    )
    history = [
        (f"{each.task}/{each.model}", alarm.metric, minute(alarm.time), f"{alarm.window:,}")
        for each in document.history
        for alarm in each.alarms
    ]
    return (
        section("Backtest: how soon drops are detected", heads, rows)
        + section("Backtest: what the alarms said", ("Model", "Drop", "Way", "Alarm"), facts)
        + section("Backtest: alarms without a drop", ("Model", "Metric", "From", "#Window"), history)
    )
