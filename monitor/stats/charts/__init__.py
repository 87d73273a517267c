"""Control charts: a table of kinds."""

from monitor.stats.charts.base import Baseline, Chart, ChartLogic, Verdict
from monitor.stats.charts.cusum import Cusum
from monitor.stats.charts.ewma import Ewma
from monitor.stats.charts.laney import Laney
from monitor.stats.charts.limits import false_alarm_rate
from monitor.stats.charts.settings import LimitChart
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
    "false_alarm_rate",
]

CHARTS: dict[str, type[LimitChart]] = {
    chart.kind: chart for chart in (Shewhart, ShewhartP, ShewhartNp, Laney, Ewma, Cusum)
}
"""The chart of each `kind`; the tests in `tests/stats/charts` hold every one of them to the same contract."""
