"""Control charts: a table of kinds, and the way from a section of the configuration to a chart."""

from typing import Any

from monitor.config.root import ChartConfig
from monitor.stats.charts.base import Baseline, Chart, ChartLogic, Verdict
from monitor.stats.charts.cusum import Cusum
from monitor.stats.charts.ewma import Ewma
from monitor.stats.charts.laney import Laney
from monitor.stats.charts.limits import false_alarm_rate
from monitor.stats.charts.settings import LimitChart, LimitsAndRules
from monitor.stats.charts.shewhart import Shewhart
from monitor.stats.charts.shewhart_p import ShewhartNp, ShewhartP

__all__ = [
    "CHARTS",
    "Baseline",
    "Chart",
    "ChartLogic",
    "Cusum",
    "Ewma",
    "Laney",
    "LimitChart",
    "Shewhart",
    "ShewhartNp",
    "ShewhartP",
    "Verdict",
    "chart_for",
    "chart_from_config",
    "false_alarm_rate",
]

CHARTS: dict[str, type[LimitChart]] = {
    chart.kind: chart for chart in (Shewhart, ShewhartP, ShewhartNp, Laney, Ewma, Cusum)
}
"""The chart of each `kind`; the tests in `tests/stats/charts` hold every one of them to the same contract."""


def chart_from_config(config: ChartConfig) -> LimitChart:
    """The chart that a section of the configuration describes.

    A budget in place of a number of windows is shared out before: `monitor.config.root.Task.charting`.

    Raises
    ------
    ConfigError
        Settings that cannot be.

    Examples
    --------
    >>> chart_from_config(ChartConfig(rules=("we1", "we2")))
    Shewhart(arl0=370.0, sigmas=None, rules=('we1', 'we2'))
    >>> chart_from_config(ChartConfig(kind="ewma", arl0=500, weight=0.2))
    Ewma(arl0=500.0, sigmas=None, shift=1.0, weight=0.2)
    """
    kind = CHARTS[config.kind]
    settings: dict[str, Any] = {"arl0": config.windows, "sigmas": config.sigmas}
    if issubclass(kind, LimitsAndRules):
        settings["rules"] = config.rules
    else:
        settings |= {
            key: getattr(config, key) for key in _OWN[config.kind] if getattr(config, key) is not None
        }
    return kind(**settings)


_OWN = {"ewma": ("shift", "weight"), "cusum": ("shift",)}


def chart_for(config: ChartConfig, metric: str) -> LimitChart:
    """The chart of one metric: the configured kind, but `shewhart` where that is of counts and this is none.

    Raises
    ------
    ConfigError
        Settings that cannot be.

    Examples
    --------
    >>> chart_for(ChartConfig(kind="laney", arl0=100), "ece")
    Shewhart(arl0=100.0, sigmas=None, rules=('we1',))
    """
    chart = chart_from_config(config)
    if metric == "accuracy" or not chart.of_counts:
        return chart
    return Shewhart(arl0=chart.arl0, sigmas=chart.sigmas, rules=config.rules)
