"""The classes of a model in its newest window: the expected confusion matrix, and metrics of each class."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from markupsafe import Markup

from monitor.base.names import AVERAGE_CONFIDENCE
from monitor.base.results import Estimate
from monitor.export.page.templates import render
from monitor.export.page.words import format_result, percent, tone
from monitor.reports.views import ConfusionView, SeriesView

_UNKNOWN = tone("unknown", "soft")


def classes(one: SeriesView) -> Markup:
    """Return, as HTML, the confusion matrix of the newest window and a table with a row for each class.

    Both are estimated without labels. The result is empty for a series without a confusion matrix.
    """
    confusion = one.confusion
    if confusion is None or not one.windows_closed:
        return Markup()
    names, counts = confusion.classes, _counts(confusion)
    predicted = [_predicted(confusion, k) for k in range(len(names))]
    matrix = [
        (name, *(_cell(result) for result in row), f"{sum(own):,.0f}")
        for name, row, own in zip(names, confusion.shares, counts, strict=True)
    ]
    rows = [_row(one, confusion, counts, k) for k in range(len(names))]
    level = next((each.level for row in confusion.shares for each in row if isinstance(each, Estimate)), None)
    total = [f"{number:,}" for number in (*predicted, sum(predicted))]
    heads = [f"#predicted {name}" for name in names]
    return render("classes.html", "classes", one.windows_closed - 1, heads, matrix, total, rows, level, one)


def _predicted(confusion: ConfusionView, k: int) -> int:
    """Return the number of answers whose predicted class is number `k`."""
    result = confusion.shares[0][k]
    return result.n if isinstance(result, Estimate) else 0


def _counts(confusion: ConfusionView) -> list[list[float]]:
    """Return the expected numbers of answers, true class by predicted class."""
    return [
        [each.n * each.value if isinstance(each, Estimate) else 0.0 for each in row]
        for row in confusion.shares
    ]


def _cell(result: object) -> Markup | str:
    if not isinstance(result, Estimate):
        return "0"
    value, lower, upper = (f"{result.n * each:,.0f}" for each in (result.value, result.lower, result.upper))
    return Markup('<b>{}</b> <span class="nowrap">({} to {})</span>').format(value, lower, upper)


def _row(
    one: SeriesView, confusion: ConfusionView, counts: Sequence[Sequence[float]], k: int
) -> tuple[object, ...]:
    """Return the cells of a class: precision, recall, F1, and the shares predicted and expected."""
    hits, expected, predicted = counts[k][k], sum(counts[k]), _predicted(confusion, k)
    everything = sum(map(sum, counts))
    precision = confusion.shares[k][k]
    values = {
        "recall": hits / expected if expected else None,
        "f1": 2 * hits / (expected + predicted) if expected + predicted else None,
    }
    return (
        confusion.classes[k],
        format_result(precision) if predicted else _UNKNOWN,
        *_without_labels(one, confusion.classes[k], values),
        f"{percent(predicted / everything)} %",
        f"{percent(expected / everything)} %",
    )


def _without_labels(one: SeriesView, name: str, values: dict[str, float | None]) -> Iterator[Markup]:
    """Yield each value, with its interval if the metric is estimated for each class."""
    for metric, value in values.items():
        estimate = next(
            (
                each.result
                for each in one.classes
                if (each.metric, each.of_class, each.estimator) == (metric, name, AVERAGE_CONFIDENCE)
            ),
            None,
        )
        if estimate is not None:
            yield format_result(estimate)
        else:
            yield _UNKNOWN if value is None else Markup("<b>{} %</b>").format(percent(value))
