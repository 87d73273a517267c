"""Makes control charts from a section of the configuration."""

from __future__ import annotations

import math
from dataclasses import replace

from monitor.base import registry
from monitor.base.registry import METRICS, SHARES
from monitor.config.chart import ChartConfig
from monitor.stats.charts import CHARTS
from monitor.stats.charts.settings import Chart

STREAM_BASELINE_WINDOWS = 20
"""The default number of windows of the stream that make a baseline."""


def chart_from_config(config: ChartConfig) -> Chart:
    """Return the chart that a section of the configuration describes.

    The configuration can limit the false alarms per week of all charts together. The caller must first divide
    this limit among the charts: see `monitor.config.task.Task.charting`.

    Raises
    ------
    ConfigError
        The settings are impossible.

    Examples
    --------
    >>> chart_from_config(ChartConfig(rules=("we1", "we2")))
    Shewhart(arl0=370.0, sigmas=None, min_change=0.0, better=0, rules=('we1', 'we2'))
    >>> chart_from_config(ChartConfig(kind="ewma", arl0=500, weight=0.2))
    Ewma(arl0=500.0, sigmas=None, min_change=0.0, better=0, shift=1.0, weight=0.2)
    """
    options = {key: getattr(config, key) for key in registry.CHARTS[config.kind].keys}
    own = {key: value for key, value in options.items() if value is not None}
    return CHARTS[config.kind](arl0=config.windows, sigmas=config.sigmas, **own)


def in_unit(metric: str, value: float) -> float:
    """Return the value of a metric from a value on the scale of its chart.

    Examples
    --------
    >>> in_unit("mae", 0.0), in_unit("bias", -0.5), in_unit("accuracy", 0.9)
    (1.0, -0.5, 0.9)
    """
    return math.exp(value) if METRICS[metric].scale == "logarithm" else value


def chart_for(config: ChartConfig, metric: str) -> Chart:
    """Return the chart of one metric.

    The chart has the configured kind. If this kind is only for counts, the result is a Shewhart chart.

    Parameters
    ----------
    config : ChartConfig
        The section of the configuration, which also sets the smallest change that matters.
    metric : str
        The metric, which decides whether larger or smaller values are better.

    Raises
    ------
    ConfigError
        The settings are impossible.

    Examples
    --------
    >>> chart_for(ChartConfig(kind="laney", arl0=100), "ece")
    Shewhart(arl0=100.0, sigmas=None, min_change=0.0, better=-1, rules=('we1',))
    """
    chart = chart_from_config(config)
    if metric not in SHARES and chart.of_counts:
        chart = chart_from_config(config.model_copy(update={"kind": "shewhart"}))
    least, better = config.least_change(metric), METRICS[metric].better
    return replace(chart, min_change=least, better=better, bounds=METRICS[metric].bounds)
