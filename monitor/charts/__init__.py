"""Control charts: a table of kinds, and the way from a section of the configuration to a chart."""

from monitor.charts.base import Baseline, Chart, ChartLogic, Verdict
from monitor.charts.limits import false_alarm_rate
from monitor.charts.settings import LimitsAndRules
from monitor.charts.shewhart import Shewhart
from monitor.charts.shewhart_p import ShewhartP
from monitor.config import ChartConfig

__all__ = [
    "CHARTS",
    "Baseline",
    "Chart",
    "ChartLogic",
    "Shewhart",
    "ShewhartP",
    "Verdict",
    "chart_from_config",
    "false_alarm_rate",
]

CHARTS: dict[str, type[LimitsAndRules]] = {chart.kind: chart for chart in (Shewhart, ShewhartP)}
"""The chart of each `kind`; the tests in `tests/charts` hold every one of them to the same contract."""


def chart_from_config(config: ChartConfig) -> Chart:
    """The chart that a section of the configuration describes.

    Raises
    ------
    ConfigError
        Settings that cannot be.

    Examples
    --------
    >>> chart_from_config(ChartConfig(rules=("we1", "we2")))
    Shewhart(arl0=370.0, sigmas=None, rules=('we1', 'we2'))
    """
    return CHARTS[config.kind](arl0=config.arl0, sigmas=config.sigmas, rules=config.rules)
