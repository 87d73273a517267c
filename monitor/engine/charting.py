"""Charts as the configuration describes them."""

from __future__ import annotations

from dataclasses import replace

from monitor.base import registry
from monitor.base.registry import METRICS
from monitor.config.root import ChartConfig
from monitor.stats.charts import CHARTS
from monitor.stats.charts.settings import LimitChart

STREAM_BASELINE_WINDOWS = 20
"""Windows of the stream that make a baseline where the configuration gives no number."""


def chart_from_config(config: ChartConfig) -> LimitChart:
    """The chart for a section of the configuration.

    A budget in place of a number of windows is shared out before: `monitor.config.root.Task.charting`.

    Raises
    ------
    ConfigError
        Settings that cannot be.

    Examples
    --------
    >>> chart_from_config(ChartConfig(rules=("we1", "we2")))
    Shewhart(arl0=370.0, sigmas=None, min_change=0.0, better=0, rules=('we1', 'we2'))
    >>> chart_from_config(ChartConfig(kind="ewma", arl0=500, weight=0.2))
    Ewma(arl0=500.0, sigmas=None, min_change=0.0, better=0, shift=1.0, weight=0.2)
    """
    given = {key: getattr(config, key) for key in registry.CHARTS[config.kind].keys}
    own = {key: value for key, value in given.items() if value is not None}
    return CHARTS[config.kind](arl0=config.windows, sigmas=config.sigmas, **own)


def chart_for(config: ChartConfig, metric: str) -> LimitChart:
    """The chart of one metric, with the change that matters and the side that is better.

    It is of the configured kind, but `shewhart` if that kind is for counts only.

    Raises
    ------
    ConfigError
        Settings that cannot be.

    Examples
    --------
    >>> chart_for(ChartConfig(kind="laney", arl0=100), "ece")
    Shewhart(arl0=100.0, sigmas=None, min_change=0.0, better=-1, rules=('we1',))
    """
    chart = chart_from_config(config)
    if metric != "accuracy" and chart.of_counts:
        chart = chart_from_config(config.model_copy(update={"kind": "shewhart"}))
    least, better = config.least_change(metric), METRICS[metric].better
    return replace(chart, min_change=least, better=better)
