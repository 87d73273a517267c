"""The features in the newest windows of models, compared with the reference."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from markupsafe import Markup

from monitor.export.charts.marks import number
from monitor.export.page.templates import render
from monitor.export.page.words import percent, tone
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
) -> Markup:
    """Return an HTML table of the features of series, or an empty text if no window has closed.

    Broken features are first. The broken and the other features are each sorted by the distance divided by
    its threshold, the largest first.

    Parameters
    ----------
    series : iterable of SeriesView
    most : int, optional
        The largest number of rows.
    named : callable, optional
        A function from a series to the name of its model. With it, the table has a column of models.
    """
    every = sorted(
        ((one, name) for one in series for name in one.feature_rates),
        key=lambda each: each[0].feature_order(each[1]),
    )
    rows = [
        _row(one, name, () if named is None else (named(one),), pictured=place < _DRAWN)
        for place, (one, name) in enumerate(every[:most])
    ]
    heads = _HEADS if named is None else (_HEADS[0], "Model", *_HEADS[1:])
    pictured = any(row[-2] for row in rows)
    return render("features.html", "features", heads, rows, pictured, more=len(every) - len(rows))


def _row(one: SeriesView, name: str, model: tuple[str, ...], pictured: bool) -> Sequence[str]:
    rates = one.feature_rates[name]
    alarm = one.feature_alarms.get(name, False)
    fault = next((each.fault for each in one.broken_features if each.feature == name), "")
    verdict = _verdict(rates, fault.replace("_", " "), alarm)
    return name, *model, *_figures(rates), verdict, *_compared(one, name, pictured)


def _figures(rates: FeatureRates) -> list[str]:
    shares = [f"{percent(rates.missing)} %", "" if rates.unseen is None else f"{percent(rates.unseen)} %"]
    if rates.drift is None:
        return [*shares, "", ""]
    return [*shares, f"{rates.drift.distance:.3f}", f"{rates.drift.distance_threshold:.3f}"]


def _verdict(rates: FeatureRates, fault: str, alarm: bool) -> str:
    if fault:
        return tone(f"broken: {fault}", "bad")
    if alarm:
        return tone("has drifted, alarm", "bad")
    if rates.drift is None:
        return "no reference yet"
    return "has drifted" if rates.drifted else "as in the reference"


def _compared(one: SeriesView, name: str, pictured: bool) -> tuple[str, str]:
    """Return the cells with the two distributions: a picture, and the bin that differs most."""
    bins = [] if one.features is None else one.features.bins(name)
    if not bins:
        return "", ""
    known, counts, own = zip(*bins, strict=True)
    total, in_window = sum(counts), sum(own)
    before, now = [rows / total for rows in counts], [rows / in_window for rows in own]
    most = max(range(len(bins)), key=lambda k: round(abs(now[k] - before[k]), 9))  # the first of equal ones
    words = f"{known[most].name}: {percent(now[most])} %, reference {percent(before[most])} %"
    return _picture(name, before, now) if pictured else "", words


def _picture(name: str, before: Sequence[float], now: Sequence[float]) -> Markup:
    """Draw the share of rows in each bin, in the reference and beside it in the window."""
    highest = max(*before, *now)
    step = _WIDTH / len(before)
    wide = number(0.4 * step)  # a fifth of the step separates the pairs

    def bars(shares: Sequence[float], across: float) -> str:
        heights = [(k, number((_HEIGHT - 1) * share / highest)) for k, share in enumerate(shares) if share]
        return "".join(f"M{number(k * step + across)} {_HEIGHT}v-{h}h{wide}v{h}" for k, h in heights)

    sides = bars(before, 0.1 * step), bars(now, 0.5 * step)
    return render("features.html", "pairs", name, *sides, width=_WIDTH, height=_HEIGHT)
