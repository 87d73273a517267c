"""The few kinds of panels that both dashboards are made of, and the variables that both have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from grafana_foundation_sdk.builders import (
    barchart,
    dashboard,
    heatmap,
    prometheus,
    stat,
    statetimeline,
    table,
    timeseries,
)
from grafana_foundation_sdk.builders import common as common_builders
from grafana_foundation_sdk.models import common
from grafana_foundation_sdk.models import dashboard as models
from grafana_foundation_sdk.models.heatmap import HeatmapColorMode
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from deploy.grafana.promql import AGENT, STATES

SOURCE = models.DataSourceRef(type_val="prometheus", uid="${datasource}")
WIDTH = 24
"""Of a dashboard, in Grafana's columns."""


@dataclass(frozen=True, slots=True)
class Query:
    """One expression of a panel, and what its series are called: a text with ``{{label}}``."""

    expr: str
    name: str = ""


def _targets(queries: Sequence[Query], instant: bool = False) -> list[prometheus.Dataquery]:
    targets = []
    for letter, query in zip("ABCDEFGHIJKLMNOP", queries, strict=False):
        target = prometheus.Dataquery().expr(query.expr).ref_id(letter).datasource(SOURCE)
        if query.name:
            target = target.legend_format(query.name)
        targets.append(
            target.instant().format(PromQueryFormat.TABLE)
            if instant
            else target.range().format(PromQueryFormat.TIME_SERIES)
        )
    return targets


def _placed(panel: Any, title: str, description: str, unit: str, size: tuple[int, int]) -> Any:
    width, height = size
    return (
        panel.title(title).description(description).unit(unit).datasource(SOURCE).span(width).height(height)
    )


def _legend() -> common_builders.VizLegendOptions:
    return (
        common_builders.VizLegendOptions()
        .display_mode(common.LegendDisplayMode.LIST)
        .placement(common.LegendPlacement.BOTTOM)
        .show_legend(True)
        .calcs([])
    )


def _tooltip() -> common_builders.VizTooltipOptions:
    return (
        common_builders.VizTooltipOptions()
        .mode(common.TooltipDisplayMode.MULTI)
        .sort(common.SortOrder.DESCENDING)
    )


def chart(
    title: str, description: str, unit: str, queries: Sequence[Query], size: tuple[int, int] = (12, 8)
) -> timeseries.Panel:
    """Lines over time. A value is a window's, and holds until the next window closes: so they are steps."""
    panel: timeseries.Panel = (
        _placed(timeseries.Panel(), title, description, unit, size)
        .targets(_targets(queries))
        .legend(_legend())
        .tooltip(_tooltip())
        .line_interpolation(common.LineInterpolation.STEP_AFTER)
        .show_points(common.VisibilityMode.NEVER)
        .line_width(1)
        .fill_opacity(0)
    )
    return panel


def properties(**values: Any) -> list[models.DynamicConfigValue]:
    """What an override sets; ``color`` by its name, everything else under ``custom.``, camel case."""
    return [
        models.DynamicConfigValue("color", {"mode": "fixed", "fixedColor": value})
        if name == "color"
        else models.DynamicConfigValue(f"custom.{name}", value)
        for name, value in values.items()
    ]


def banded(panel: timeseries.Panel) -> timeseries.Panel:
    """Fill between the series `lower` and `upper`, and draw limits and objectives as they are known."""
    dashes = {"fill": "dash", "dash": [8, 6]}
    styles: Mapping[str, list[models.DynamicConfigValue]] = {
        "estimate": properties(color="blue", lineWidth=2),
        "lower": properties(color="light-blue", lineWidth=0),
        "upper": properties(color="light-blue", lineWidth=0, fillBelowTo="lower", fillOpacity=18),
        "centre": properties(color="text"),
        "lower limit": properties(color="orange", lineStyle=dashes),
        "upper limit": properties(color="orange", lineStyle=dashes),
        "objective": properties(color="red", lineWidth=2, lineStyle=dashes),
        "corrected": properties(color="purple", lineWidth=2),
        "realised": properties(color="green", lineWidth=2),
    }
    for name, style in styles.items():
        panel = panel.override_by_name(name, style)
    return panel


def number(
    title: str,
    description: str,
    query: str,
    steps: Sequence[tuple[float | None, str]],
    unit: str = "none",
    size: tuple[int, int] = (4, 4),
) -> stat.Panel:
    """One figure, coloured from each step on: ``(None, "green"), (1, "red")``."""
    panel: stat.Panel = (
        _placed(stat.Panel(), title, description, unit, size)
        .targets(_targets([Query(query)]))
        .color_mode(common.BigValueColorMode.BACKGROUND)
        .graph_mode(common.BigValueGraphMode.NONE)
        .reduce_options(common_builders.ReduceDataOptions().calcs(["lastNotNull"]))
        .thresholds(thresholds(steps))
        .no_value("none")
    )
    return panel


def thresholds(steps: Sequence[tuple[float | None, str]]) -> dashboard.ThresholdsConfig:
    """Colours from each value on."""
    return (
        dashboard.ThresholdsConfig()
        .mode(models.ThresholdsMode.ABSOLUTE)
        .steps([models.Threshold(value=value, color=color) for value, color in steps])
    )


def mapped_states() -> list[Any]:
    """The numbers of `severity`, as words in their colours."""
    return [
        models.ValueMap(
            {
                str(value): models.ValueMappingResult(text=text, color=color, index=index)
                for index, (value, text, color) in enumerate(STATES)
            }
        )
    ]


def states(title: str, description: str, query: Query, size: tuple[int, int]) -> statetimeline.Panel:
    """A strip of states a model."""
    panel: statetimeline.Panel = (
        _placed(statetimeline.Panel(), title, description, "none", size)
        .targets(_targets([query]))
        .mappings(mapped_states())
        .show_value(common.VisibilityMode.NEVER)
        .fill_opacity(80)
        .line_width(0)
        .merge_values(True)
    )
    return panel


def sheet(
    title: str,
    description: str,
    unit: str,
    queries: Sequence[Query],
    columns: Mapping[str, str],
    size: tuple[int, int] = (24, 9),
) -> table.Panel:
    """Rows of what is true now, joined by their labels.

    Parameters
    ----------
    columns : mapping
        Field by field what to call it, in this order: labels, and ``Value #A`` (``Value`` where there is one
        query only) for the value of the first query. What is not named is left out.
    """
    panel: table.Panel = (
        _placed(table.Panel(), title, description, unit, size)
        .targets(_targets(queries, instant=True))
        .transformations(_joined(columns, merged=len(queries) > 1))
    )
    return panel


def bars(
    title: str, description: str, unit: str, queries: Sequence[Query], columns: Mapping[str, str]
) -> barchart.Panel:
    """What is true now as bars side by side, by the label that is the first of `columns`, as in `sheet`."""
    first = next(iter(columns.values()))
    order = models.DataTransformerConfig(id_val="sortBy", options={"sort": [{"field": first}]})
    panel: barchart.Panel = (
        _placed(barchart.Panel(), title, description, unit, (12, 8))
        .targets(_targets(queries, instant=True))
        .transformations([*_joined(columns, merged=len(queries) > 1), order])
        .x_field(first)
        .min(0)
        .max(1)
        .show_value(common.VisibilityMode.NEVER)
        .legend(_legend())
        .tooltip(_tooltip())
    )
    return panel


def _joined(columns: Mapping[str, str], merged: bool) -> list[models.DataTransformerConfig]:
    """Of instant queries one row a set of labels, of which these fields are kept and renamed."""
    organize = models.DataTransformerConfig(
        id_val="organize",
        options={
            "indexByName": {field: place for place, field in enumerate(columns)},
            "renameByName": {field: name for field, name in columns.items() if name != field},
        },
    )
    keep = models.DataTransformerConfig(
        id_val="filterFieldsByName", options={"include": {"names": list(columns)}}
    )
    merge = [models.DataTransformerConfig(id_val="merge", options={})] if merged else []
    return [*merge, keep, organize]


def buckets(title: str, description: str, unit: str, query: str, interval: str) -> heatmap.Panel:
    """A histogram over time: a column every `interval` at least, a row a bucket, darker where more lies.

    Parameters
    ----------
    query : str
        Increases of buckets, by ``le``.
    interval : str
        Should be longer than a window takes: what is between two windows is an empty column.
    """
    axis = heatmap.YAxisConfig().unit(unit)
    target = _targets([Query(query, "{{le}}")])[0].format(PromQueryFormat.HEATMAP)
    panel: heatmap.Panel = (
        _placed(heatmap.Panel(), title, description, unit, (12, 8))
        .targets([target])
        .interval(interval)
        .calculate(False)
        .rows_frame(heatmap.RowsHeatmapOptions().layout(common.HeatmapCellLayout.LE))
        .y_axis(axis)
        .color(heatmap.HeatmapColorOptions().mode(HeatmapColorMode.SCHEME).scheme("Blues").steps(64))
        .filter_values(heatmap.FilterValueRange().le(1e-9))
        .show_legend()
    )
    return panel


def variable(
    name: str, label: str, query: str, *, several: bool = True, first: str = "", regex: str = ""
) -> dashboard.QueryVariable:
    """A variable that Prometheus fills, anew when the time range changes."""
    choice: dashboard.QueryVariable = (
        dashboard.QueryVariable(name)
        .label(label)
        .datasource(SOURCE)
        .query(query)
        .refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(models.VariableSort.ALPHABETICAL_ASC)
    )
    if regex:
        choice = choice.regex(regex)
    if several:
        choice = choice.multi(True).include_all(True).all_value(".+")
        return choice.current(models.VariableOption(selected=True, text="All", value="$__all"))
    if first:
        choice = choice.current(models.VariableOption(selected=True, text=first, value=first))
    return choice


def variables(one_model: bool) -> list[Any]:
    """Data source, job, instance, task, model: of one model, or of any number."""
    selected = "blindsight_state{%s}"
    agents = 'job=~"$job",instance=~"$instance"'
    of_task = agents + ',task=~"$task"'
    return [
        dashboard.DatasourceVariable("datasource").label("Data source").type("prometheus"),
        variable("job", "Job", "label_values(blindsight_build_info, job)"),
        variable("instance", "Instance", 'label_values(blindsight_build_info{job=~"$job"}, instance)'),
        variable("task", "Task", f"label_values({selected % agents}, task)", several=not one_model),
        variable(
            "model",
            "Model",
            f"label_values({selected % of_task}, model)",
            several=not one_model,
        ),
    ]


def page_of(agents: str) -> dashboard.QueryVariable:
    """The address of an agent's page, `export.external_url`, for links; hidden.

    Parameters
    ----------
    agents : str
        What picks the agent's series among those of `blindsight_page_info`, PromQL.
    """
    address = f"query_result(blindsight_page_info{{{AGENT}}}{agents})"
    page = variable("page", "Page", address, several=False, regex='/url="([^"]*)"/')
    return page.hide(models.VariableHide.HIDE_VARIABLE)


def annotation(name: str, expr: str, color: str, title: str) -> tuple[dashboard.AnnotationQuery, str]:
    """A query whose moments are marked in every chart, and what a mark is called."""
    return (
        dashboard.AnnotationQuery().name(name).datasource(SOURCE).enable(True).icon_color(color).expr(expr),
        title,
    )


def assembled(
    title: str, uid: str, description: str, chosen: Sequence[Any], rows: Mapping[str, Sequence[Any]]
) -> dashboard.Dashboard:
    """A dashboard of variables, and of rows of panels by their titles."""
    board = dashboard.Dashboard(title).uid(uid).tags(["blindsight"]).readonly().refresh("1m")
    board = board.time("now-24h", "now").timezone("browser").description(description)
    board = board.tooltip(models.DashboardCursorSync.CROSSHAIR)
    for each in chosen:
        board = board.with_variable(each)
    for name, panels in rows.items():
        board = board.with_row(dashboard.Row(name))
        for panel in panels:
            board = board.with_panel(panel)
    return board
