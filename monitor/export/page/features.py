"""The features in the newest windows of models: how each one differs from the reference."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from monitor.export.charts.frame import BLUE, FAINT, QUIET
from monitor.export.charts.marks import number
from monitor.export.page.words import count, numbers, percent, table, text
from monitor.reports.features import FeatureRates
from monitor.reports.views import SeriesView

_HEADS = (
    "Feature", "#Missing", "#Not in the reference", "#Distance", "#By chance", "Verdict",
    "Reference beside window", "Most changed",
)  # fmt: skip
_DRAWN = 16  # with 34 bins each, 16 kB of the page
_WIDTH, _HEIGHT = 240, 32


def features_table(
    series: Iterable[SeriesView], most: int | None = None, named: Callable[[SeriesView], str] | None = None
) -> Iterator[str]:
    """Yield a table of the features, the broken and the farthest first; nothing before the first window.

    Parameters
    ----------
    series : iterable of SeriesView
    most : int, optional
        The largest number of rows.
    named : callable, optional
        Returns the name of a model, for a column with the models.
    """
    every = sorted(
        ((one, name) for one in series for name in one.feature_rates),
        key=lambda each: each[0].feature_order(each[1]),
    )
    rows = [
        _row(one, name, "" if named is None else f"<td>{text(named(one))}</td>", pictured=place < _DRAWN)
        for place, (one, name) in enumerate(every[:most])
    ]
    if not rows:
        return
    heads = _HEADS if named is None else (_HEADS[0], "Model", *_HEADS[1:])
    yield from table("Features in the newest window, the farthest first", heads, rows)
    if any("<svg" in row for row in rows):
        yield '<p class="soft">Hollow bars are the shares of rows in each bin of the reference, filled bars '
        yield "those of the window. The last two bins: values not in the reference; rows that lack it.</p>"
    if len(every) > len(rows):
        yield f'<p class="soft">{count(len(every) - len(rows), "more feature")} nearer to the reference.</p>'


def _row(one: SeriesView, name: str, model: str, pictured: bool) -> str:
    rates = one.feature_rates[name]
    alarm = one.feature_alarms.get(name, False)
    fault = next((each.fault for each in one.broken_features if each.feature == name), "")
    return (
        f'<tr><th scope="row">{text(name)}</th>{model}{numbers(_figures(rates))}'
        f"<td>{_verdict(rates, fault.replace('_', ' '), alarm)}</td>{_compared(one, name, pictured)}</tr>"
    )


def _figures(rates: FeatureRates) -> list[str]:
    shares = [f"{percent(rates.missing)} %", "" if rates.unseen is None else f"{percent(rates.unseen)} %"]
    if rates.drift is None:
        return [*shares, "", ""]
    return [*shares, f"{rates.drift.distance:.3f}", f"{rates.drift.distance_threshold:.3f}"]


def _verdict(rates: FeatureRates, fault: str, alarm: bool) -> str:
    if fault:
        return f'<span class="bad">broken: {fault}</span>'
    if alarm:
        return '<span class="bad">has drifted, alarm</span>'
    if rates.drift is None:
        return "no reference yet"
    return "has drifted" if rates.drifted else "as in the reference"


def _compared(one: SeriesView, name: str, pictured: bool) -> str:
    """Return the cells with the two distributions: a picture, and the bin that differs most."""
    bins = [] if one.features is None else one.features.bins(name)
    if not bins:
        return "<td></td><td></td>"
    known, counts, own = zip(*bins, strict=True)
    total, in_window = sum(counts), sum(own)
    before, now = [rows / total for rows in counts], [rows / in_window for rows in own]
    most = max(range(len(bins)), key=lambda k: round(abs(now[k] - before[k]), 9))  # the first of equal ones
    words = f"{text(known[most].name)}: {percent(now[most])} %, reference {percent(before[most])} %"
    return f"<td>{_picture(name, before, now) if pictured else ''}</td><td>{words}</td>"


def _picture(name: str, before: Sequence[float], now: Sequence[float]) -> str:
    """Draw the shares of rows in each bin, those of the reference beside those of the window."""
    highest = max(*before, *now)
    step = _WIDTH / len(before)
    wide = number(0.4 * step)  # a fifth of the step separates the pairs

    def bars(shares: Sequence[float], across: float) -> str:
        heights = [(k, number((_HEIGHT - 1) * share / highest)) for k, share in enumerate(shares) if share]
        return "".join(f"M{number(k * step + across)} {_HEIGHT}v-{h}h{wide}v{h}" for k, h in heights)

    return (
        f'<svg class="pairs" viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" height="{_HEIGHT}" role="img" '
        f'aria-label="{text(f"Distribution of {name} in the reference and in the window")}">'
        f'<path d="M0 {_HEIGHT - 0.5}h{_WIDTH}" stroke="{FAINT}"/>'
        f'<path d="{bars(before, 0.1 * step)}" fill="none" stroke="{QUIET}"/>'
        f'<path d="{bars(now, 0.5 * step)}" fill="{BLUE}"/></svg>'
    )
