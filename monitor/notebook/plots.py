"""Draws control charts with matplotlib or Altair, from the data of the SVG pictures."""

from __future__ import annotations

from typing import Any

import numpy as np

from monitor.base.errors import MissingExtraError
from monitor.export.charts.svg import ControlChartData
from monitor.notebook.frames import required

# Okabe and Ito's palette, as in the SVG pictures.
_BLUE, _VERMILION, _GREEN, _ORANGE, _INK, _QUIET = (
    "#0072b2", "#d55e00", "#00795a", "#e69f00", "#222222", "#5c5c5c",
)  # fmt: skip


def matplotlib_axes(data: ControlChartData, ax: Any = None) -> Any:
    """Draw a control chart with matplotlib, and return its axes.

    Parameters
    ----------
    data : ControlChartData
    ax : matplotlib.axes.Axes, optional
        Axes to draw in; new axes by default.

    Raises
    ------
    MissingExtraError
        matplotlib is not installed.
    """
    if ax is None:
        try:
            from matplotlib import pyplot
        except ImportError as error:
            raise MissingExtraError("plot", "notebook") from error
        _, ax = pyplot.subplots(figsize=(10, 3.5), layout="constrained")
    x = _across(data)
    level = f"{100 * data.level:g} % interval"
    ax.fill_between(x, data.lower, data.upper, color=_BLUE, alpha=0.2, linewidth=0)
    ax.plot(x, data.value, color=_BLUE, marker=".", label=f"{data.estimate_name}, {level}")
    if np.isfinite(data.limit_lower).any():
        ax.step(x, data.center, where="mid", color=_QUIET, linewidth=1)
        ax.step(
            x, data.limit_lower, where="mid", color=_INK, linewidth=1, linestyle="--", label="control limits"
        )
        ax.step(x, data.limit_upper, where="mid", color=_INK, linewidth=1, linestyle="--")
    if np.isfinite(data.realised).any():
        ax.plot(x, data.realised, "o", color=_INK, markerfacecolor="white", label=data.realised_name)
    if np.isfinite(data.objective):
        ax.axhline(data.objective, color=_GREEN, linewidth=2.4, linestyle=":", label="objective")
    if data.violated.any():
        rows = data.violated
        ax.plot(x[rows], data.value[rows], "D", color=_VERMILION, label="breaks a rule")
    for where, color, words in (
        (data.out_of_control, _ORANGE, "out of control"),
        (data.improved, _GREEN, "improved"),
    ):
        if where.any():
            ax.fill_between(
                x, 0, 1, where=where, step="mid", transform=ax.get_xaxis_transform(), color=color, alpha=0.17,
                linewidth=0, label=words,
            )  # fmt: skip
    ax.set(title=data.title, xlabel="time (UTC)" if data.x_is_time else "window")
    if data.is_ratio:
        ax.yaxis.set_major_formatter(lambda ratio, _: f"{100 * ratio:.1f} %")
    else:
        ax.set_ylabel(data.unit)
    ax.legend(loc="best", fontsize="small")
    return ax


def altair_chart(data: ControlChartData) -> Any:
    """Return a control chart as an Altair chart with layers.

    Raises
    ------
    BlindsightError
        Altair is not installed.
    """
    alt: Any = required("altair", 'plot(backend="altair")')
    names = ("value", "lower", "upper", "center", "limit_lower", "limit_upper", "realised")
    columns = [getattr(data, name) for name in names]
    x = [str(end) for end in _across(data)] if data.x_is_time else data.x.tolist()
    rows = [
        {name: value if value == value else None for name, value in zip(names, row, strict=True)}
        | {"x": place, "state": state}
        for place, state, row in zip(x, _states(data), np.column_stack(columns).tolist(), strict=True)
    ]
    across = alt.X("x:T" if data.x_is_time else "x:Q", title="time (UTC)" if data.x_is_time else "window")
    base = alt.Chart(alt.Data(values=rows), title=data.title).encode(x=across)

    def down(name: str) -> Any:
        axis = alt.Axis(format=".1%") if data.is_ratio else alt.Axis()
        metric = data.title.rpartition(": ")[2]
        title = metric if data.is_ratio or not data.unit else f"{metric}, {data.unit}"
        return alt.Y(f"{name}:Q", title=title, axis=axis, scale=alt.Scale(zero=False))

    layers = [
        base.mark_area(color=_BLUE, opacity=0.2).encode(y=down("lower"), y2="upper:Q"),
        base.mark_line(color=_QUIET, interpolate="step").encode(y=down("center")),
        *(
            base.mark_line(color=_INK, strokeDash=[7, 4], interpolate="step").encode(y=down(name))
            for name in ("limit_lower", "limit_upper")
        ),
        base.mark_line(color=_BLUE).encode(y=down("value")),
        base.mark_point(color=_INK, filled=False).encode(y=down("realised")),
        base.mark_circle(size=40).encode(
            y=down("value"),
            color=alt.Color(
                "state:N",
                title=None,
                scale=alt.Scale(
                    domain=["in control", "out of control", "improved"], range=[_BLUE, _VERMILION, _GREEN]
                ),
            ),
            tooltip=[across, "value:Q", "lower:Q", "upper:Q", "state:N"],
        ),
    ]
    if np.isfinite(data.objective):
        rule = alt.Chart(alt.Data(values=[{"objective": data.objective}]))
        layers.append(rule.mark_rule(color=_GREEN, strokeDash=[1, 5], size=2.4).encode(y="objective:Q"))
    return alt.layer(*layers)


def _states(data: ControlChartData) -> list[str]:
    states = np.where(data.improved, "improved", "in control")
    return [str(one) for one in np.where(data.out_of_control, "out of control", states)]


def _across(data: ControlChartData) -> Any:
    """Return the windows' times, or their numbers if they have no times."""
    if not data.x_is_time:
        return data.x
    return (data.x * 1e3).round().astype("datetime64[ms]")
