"""The report of a period: one HTML file with everything in it, for who has no access to the agent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime

from monitor import __version__
from monitor.export.charts.pictures import MOST_KEPT, Histories
from monitor.export.charts.svg import ControlChartData, control_chart_svg
from monitor.export.page import assets, models
from monitor.export.page.addresses import external_address
from monitor.export.page.arenas import arenas
from monitor.export.page.overview import MOST_SERIES, glance, in_place, models_table
from monitor.export.page.windows import series_view
from monitor.export.page.words import moment, text
from monitor.reports.arena_report import ArenaReport
from monitor.reports.attribution import Attribution
from monitor.reports.views import ArenaView, EngineView, SeriesView
from monitor.reports.window_report import WindowReport
from monitor.stats.estimate.hajek import WeightedCounts

Series = tuple[str, str, str]
Charts = Mapping[Series, Sequence[ControlChartData]]

# The file holds its style; nothing in it may run, and nothing may be asked for.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"


class Period:
    """The closed windows of a period, for its report. Memory is bounded as that of `Histories` is.

    Parameters
    ----------
    judged : mapping of str to str
        As in `Histories`.
    since, until : float or None
        Seconds since the epoch: windows that end before the one, or not before the other, are left out.
    external_url : str
        Of the agent, for links to the pages of the models; none if empty.

    Examples
    --------
    >>> "No window closed in this period." in Period({}).html({})
    True
    """

    def __init__(
        self,
        judged: Mapping[str, str],
        since: float | None = None,
        until: float | None = None,
        external_url: str = "",
    ) -> None:
        self.histories = Histories(judged)
        self._since, self._until, self._external_url = since, until, external_url
        self._first: dict[Series, WindowReport] = {}
        self._last: dict[Series, WindowReport] = {}
        self._windows: Counter[Series] = Counter()
        self._left_out: Counter[Series] = Counter()
        self._attributions: dict[Series, dict[str, Attribution]] = {}
        self._arenas: dict[str, ArenaView] = {}

    def add(self, reports: Sequence[WindowReport]) -> None:
        """Take closed windows and revisions, in the order in which they were written."""
        for report in reports:
            if not self._within(report.end_time):
                continue
            if isinstance(report, ArenaReport):
                self._add_arena(report)
                continue
            series = (report.task, report.model, report.group)
            last = self._last.get(series)
            if not report.revision:
                if last is not None and report.window == 0:
                    self._begin_anew(series)
                self._first.setdefault(series, report)
                self._last[series] = report
                self._windows[series] += 1
                self._attribute(series, report)
            elif last is not None and report.window == last.window:
                self._last[series] = report
            self.histories.add([report])

    def _attribute(self, series: Series, report: WindowReport) -> None:
        """Keep the newest attribution of each latched alarm."""
        latched = {chart.metric for chart in report.charts if chart.verdict.out_of_control}
        known = self._attributions.get(series, {}) | {each.metric: each for each in report.attributions}
        self._attributions[series] = {metric: each for metric, each in known.items() if metric in latched}

    def _add_arena(self, report: ArenaReport) -> None:
        before = self._arenas.get(report.task)
        closed = 1 + (before.windows_closed if before and report.window else 0)
        self._arenas[report.task] = ArenaView(
            report.task,
            report.size,
            windows_closed=closed,
            window_end_time=report.end_time,
            standing=report.standing,
        )

    def _within(self, end: float) -> bool:
        return (self._since is None or end >= self._since) and (self._until is None or end < self._until)

    def _begin_anew(self, series: Series) -> None:
        """Windows that count from 0 again are of another beginning: a chart of both would be of neither."""
        self._left_out[series] += self._windows.pop(series)
        del self._first[series]
        self._attributions.pop(series, None)
        self.histories.forget(series)

    def html(self, labelled: Mapping[Series, Mapping[int, WeightedCounts]]) -> str:
        """The report, a whole HTML document that asks for nothing and runs nothing.

        Parameters
        ----------
        labelled : mapping
            As in `Histories.charts`.
        """
        charts = self.histories.charts({series: dict(rows) for series, rows in labelled.items()})
        views = self._views()
        form = models.Form(
            self._progress,
            _Figures(charts, self._windows),
            "left out to keep this file small",
            self._page,
        )
        engine = EngineView(series=tuple(views), arenas=tuple(self._arenas.values()))
        return "".join(
            [
                '<!doctype html><html lang="en"><head><meta charset="utf-8">',
                '<meta name="viewport" content="width=device-width, initial-scale=1">',
                f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
                '<title>Blindsight report</title><link rel="icon" href="data:,">',
                f"<style>{assets.content('page.css').decode()}</style></head><body>",
                f"<header><h1>Blindsight report <small>{text(__version__)}</small></h1>",
                f"<p>{self._span()}</p></header><main>",
                *(
                    self._body(engine, form)
                    if views or self._arenas
                    else ["<p>No window closed in this period.</p>"]
                ),
                "</main></body></html>\n",
            ]
        )

    @staticmethod
    def _body(engine: EngineView, form: models.Form) -> Iterator[str]:
        yield "<p>The models at the end of the period:</p>"
        yield glance([one for one in engine.series if not one.group])
        yield from models_table(engine.series[:MOST_SERIES], in_place)
        yield from models.tasks(engine, form)
        yield from arenas(engine.arenas)

    def _span(self) -> str:
        """From when to when, as asked for or else as the windows say."""
        starts = [report.start_time for report in self._first.values()]
        ends = [report.end_time for report in self._last.values()]
        since = self._since if self._since is not None else min(starts, default=None)
        until = self._until if self._until is not None else max(ends, default=None)
        words = [f"{sum(self._windows.values()):,} windows"]
        words += [] if since is None else [f"from {moment(since)}"]
        words += [] if until is None else [f"until {moment(until)}"]
        return " ".join(words) + "."

    def _views(self) -> list[SeriesView]:
        """Each series as of its last window; a model before its groups."""
        alarms = self.histories.alarms()
        found = []
        for series, last in self._last.items():
            first = self._first[series].window
            latched = {chart.metric for chart in last.charts if chart.verdict.out_of_control}
            since = {
                # One that stood in the first window may have been raised before the period.
                metric: None if raised[-1].window == first else raised[-1].time
                for metric, raised in alarms.get(series, {}).items()
                if metric in latched
            }
            attributions = tuple(self._attributions.get(series, {}).values())
            found.append(series_view(last, self._windows[series], since, attributions))
        return found

    def _page(self, one: SeriesView) -> str:
        if not self._external_url:
            return ""
        return external_address(self._external_url, one.task, one.model, one.group)

    def _progress(self, one: SeriesView) -> str:
        series = (one.task, one.model, one.group)
        first, last = self._first[series], self._last[series]
        words = [f"{self._windows[series]:,} windows, {moment(first.start_time)} to {moment(last.end_time)}"]
        raised = self.histories.alarms().get(series, {})
        words += [f"alarms of {text(metric)}: {len(found):,}" for metric, found in raised.items()]
        if self._left_out[series]:
            words.append(f"{self._left_out[series]:,} from before a new start of the numbers are left out")
        return " · ".join(words)


class _Figures:
    """Makes the figure of a metric: the chart as it is drawn everywhere, in the file itself."""

    def __init__(self, charts: Charts, windows: Mapping[Series, int]) -> None:
        self._charts, self._windows = charts, windows

    def __call__(self, one: SeriesView, metric: str) -> str:
        series = (one.task, one.model, one.group)
        title = ": ".join((" · ".join(filter(None, (one.model, one.group))), metric))
        for chart in self._charts.get(series, ()):
            if chart.title == title:
                thinned = (
                    " There are more windows than pixels: the chart shows the lowest and the highest of each "
                    "pixel column, and every window with an event."
                    if self._windows[series] > MOST_KEPT
                    else ""
                )
                return (
                    f"<figure><figcaption>Control chart of {text(title)}.{thinned}</figcaption>"
                    f'<div class="scroll" tabindex="0" role="region" aria-label="Chart of {text(title)}">'
                    f"{control_chart_svg(chart)}</div></figure>"
                )
        return ""


def parse_time(words: str) -> float:
    """A date or a time as RFC 3339 has it, in seconds since the epoch; UTC where it names no offset.

    Raises
    ------
    ValueError
        It is none.

    Examples
    --------
    >>> parse_time("2026-11-20"), parse_time("2026-11-20T12:00:00+02:00")
    (1795132800.0, 1795168800.0)
    """
    found = datetime.fromisoformat(words)
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
