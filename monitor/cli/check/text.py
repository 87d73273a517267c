"""The report of `check` as text for a terminal."""

from __future__ import annotations

from collections.abc import Iterator

from monitor.cli.check.check import ChartRate, CheckReport, SharedBudget
from monitor.cli.check.warnings import figure


def render(report: CheckReport) -> str:
    """Return the report as text: a line for each chart, a line with their sum, and a line for each warning.

    Examples
    --------
    >>> from monitor.cli.check.check import check
    >>> from monitor.config.root import Config
    >>> models = {"erm": {"answers_per_day": 50_000}}
    >>> task = {"models": models, "metrics": ["accuracy"], "calibration": {"method": "none"}}
    >>> task["labels"] = {"max_answers": 1_000_000, "horizon_days": 14}
    >>> print(render(check(Config(tasks={"toxicity": task}, sources=[{"kind": "stdin"}]))))
    The configuration is valid. False alarms to expect while the models are as good as in the reference:
      toxicity, erm, accuracy: 1.9 a week (100 windows a day)
    All charts together: 1.9 a week.
    """
    lines = []
    if report.calibrations:
        lines += ["\n  ".join(["Calibrations that auto takes:", *report.calibrations]), ""]
    lines += [
        "The configuration is valid. False alarms to expect while the models are as good as in the reference:"
        if report.charts
        else "The configuration is valid. It has no charts, so there will be no alarms."
    ]
    lines += [f"  {_chart_line(chart)}" for chart in report.charts]
    lines += [f"  {line}" for line in _group_lines(report)]
    lines += [f"  {_shared_line(shared)}" for shared in report.shared]
    if report.charts:
        lines.append(_total_line(report))
    lines += [
        f"Beside them, features of {task} that drift: at most {figure(rate)} a week."
        for task, rate in report.features.items()
    ]
    if report.warnings:
        lines += ["", "Warnings:"] + [f"  {warning}" for warning in report.warnings]
    return "\n".join(lines)


def _shared_line(shared: SharedBudget) -> str:
    return (
        f"{shared.task}: {shared.false_alarms_per_week:g} a week, groups included, divided among "
        f"{figure(shared.windows_per_week)} windows a week: an ARL0 of {figure(shared.arl0)} windows a chart"
    )


def _chart_line(chart: ChartRate) -> str:
    name = f"{chart.task}, {chart.model or 'each model'}, {chart.metric}"
    if chart.windows_per_day is None:
        return f"{name}: {_per_thousand(chart)} in 1,000 windows (answers_per_day is not given)"
    windows = figure(chart.windows_per_day)
    return f"{name}: {figure(chart.false_alarms_per_week)} a week ({windows} windows a day)"


def _group_lines(report: CheckReport) -> Iterator[str]:
    """Yield a line for each chart of groups.

    There is no sum, because the number of group values is unknown.
    """
    seen = set()
    for chart in report.charts:
        for group in report.groups.get(chart.task, ()):
            if (chart.task, group, chart.metric) not in seen:
                seen.add((chart.task, group, chart.metric))
                yield (
                    f"{chart.task}, each model and value of {group}, {chart.metric}: "
                    f"{_per_thousand(chart)} in 1,000 windows of its own"
                )


def _total_line(report: CheckReport) -> str:
    total, of_groups = report.false_alarms_per_week, report.false_alarms_of_groups
    without = sum(chart.windows_per_day is None for chart in report.charts)
    if total is None:
        return (
            "All charts together: give answers_per_day of the models for a prediction of false alarms a week."
        )
    groups = f", {figure(of_groups)} of them of groups" if of_groups else ""
    rest = f", without {without} of unknown traffic" if without else ""
    return f"All charts together: {figure(total + (of_groups or 0.0))} a week{groups}{rest}."


def _per_thousand(chart: ChartRate) -> str:
    return figure(1000 * chart.false_alarms_per_window)
