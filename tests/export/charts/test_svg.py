"""Control charts as SVG: well formed, the same bytes each time, and nothing unknown drawn as a number."""

from __future__ import annotations

import re
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.export.charts import marks as svg_marks
from monitor.export.charts import plotting
from monitor.export.charts.frame import PLOT_HEIGHT, PLOT_WIDTH
from monitor.export.charts.svg import ControlChartData, control_chart_svg, stacked_svg
from tests.examples import examples

NAMESPACE = "{http://www.w3.org/2000/svg}"


def chart(n: int, **changes: Any) -> ControlChartData:
    """Return a chart of n windows at 90 %, within limits from 87 to 93 %."""
    value = changes.pop("value", np.full(n, 0.9))
    settings: dict[str, Any] = {
        "title": "erm: accuracy",
        "x": np.arange(n, dtype=np.float64),
        "value": value,
        "lower": value - 0.02,
        "upper": value + 0.02,
        "center": np.full(n, 0.9),
        "limit_lower": np.full(n, 0.87),
        "limit_upper": np.full(n, 0.93),
        "violated": np.zeros(n, dtype=bool),
        "out_of_control": np.zeros(n, dtype=bool),
    }
    return ControlChartData(**{**settings, **changes})


def parsed(data: ControlChartData) -> ElementTree.Element:
    picture = control_chart_svg(data)
    assert "nan" not in picture.lower()
    assert "inf" not in picture.lower()
    return ElementTree.fromstring(picture)


def of_class(root: ElementTree.Element, name: str) -> list[ElementTree.Element]:
    return [element for element in root.iter() if element.get("class") == name]


def texts(root: ElementTree.Element) -> list[str]:
    return [element.text or "" for element in root.iter(f"{NAMESPACE}text")]


def starts(element: ElementTree.Element) -> int:
    return element.get("d", "").count("M")


def test_each_layer_is_drawn_once() -> None:
    realised = np.full(6, np.nan)
    realised[[1, 4]] = 0.91, 0.88
    data = chart(
        6,
        violated=np.arange(6) == 2,
        out_of_control=np.isin(np.arange(6), [2, 3]),
        realised=realised,
        realised_lower=realised - 0.03,
        realised_upper=realised + 0.03,
        objective=0.85,
    )
    root = parsed(data)
    expected = {"estimate": 1, "band": 1, "center": 1, "limit": 2, "objective": 1, "alarm": 1, "whisker": 1}
    expected |= {"legend": 6, "unknown": 0}
    assert {name: len(of_class(root, name)) for name in expected} == expected
    assert len(of_class(root, "realised")[0]) == 2
    assert starts(of_class(root, "whisker")[0]) == 2
    assert len(of_class(root, "violation")[0]) == 1


def test_what_it_is_compared_with_is_a_second_line_of_its_own_name() -> None:
    other = np.array([0.91, np.nan, 0.95, 0.92])
    root = parsed(chart(4, other=other, other_name="<irm>"))
    assert starts(of_class(root, "other")[0]) == 2, "unknown is a gap"
    assert "<irm>" in texts(root)
    assert of_class(parsed(chart(4)), "other") == []
    high = parsed(chart(4, other=np.full(4, 0.99), other_name="irm"))
    ((_, y),) = re.findall(r"M([\d.]+) ([\d.]+)", of_class(high, "other")[0].get("d", ""))
    assert 0 < float(y) < PLOT_HEIGHT / 4, "it has its place in the plot"


def test_the_objective_is_the_heaviest_line() -> None:
    root = parsed(chart(6, objective=0.85, realised=np.full(6, 0.9), other=np.full(6, 0.9), other_name="irm"))
    width = {
        name: float(of_class(root, name)[0].get("stroke-width", "nan"))
        for name in ("objective", "estimate", "other", "limit", "center")
    }
    assert list(width) == sorted(width, key=lambda name: -width[name])
    assert of_class(root, "objective")[0].get("stroke-dasharray") is None


def test_what_is_not_there_is_neither_drawn_nor_in_the_legend() -> None:
    root = parsed(chart(3))
    for name in ("realised", "whisker", "violation", "alarm", "objective", "unknown"):
        assert of_class(root, name) == []
    assert {"breaks a rule", "out of control", "objective", "unknown"} & set(texts(root)) == set()


def test_an_unknown_window_is_a_gap_with_a_tick() -> None:
    value = np.array([0.9, 0.91, np.nan, 0.92, 0.9])
    root = parsed(chart(5, value=value))
    assert starts(of_class(root, "estimate")[0]) == 2
    assert starts(of_class(root, "band")[0]) == 2
    assert starts(of_class(root, "unknown")[0]) == 1
    assert "unknown" in texts(root)


def test_a_window_between_gaps_is_as_wide_as_its_borders() -> None:
    value = np.array([np.nan, 0.9, np.nan])
    root = parsed(chart(3, value=value))
    path = of_class(root, "estimate")[0].get("d", "")
    left, right = re.fullmatch(r"M([\d.]+) [\d.]+H([\d.]+)", path).groups()  # type: ignore[union-attr]
    assert float(right) - float(left) == pytest.approx(PLOT_WIDTH / 3, abs=0.02)


def test_all_unknown_draws_no_estimate_and_no_zero() -> None:
    nothing = np.full(4, np.nan)
    root = parsed(chart(4, value=nothing, center=nothing, limit_lower=nothing, limit_upper=nothing))
    for name in ("estimate", "band", "center", "limit"):
        assert of_class(root, name) == []
    assert starts(of_class(root, "unknown")[0]) == 4


@pytest.mark.parametrize("x_is_time", [False, True])
def test_no_window_is_said_in_words(x_is_time: bool) -> None:
    root = parsed(chart(0, x_is_time=x_is_time))
    assert [element.text for element in of_class(root, "note")] == ["no window has closed yet"]
    assert of_class(root, "tick") == []


def test_infinite_values_count_as_unknown() -> None:
    root = parsed(chart(3, value=np.array([0.9, np.inf, -np.inf])))
    assert starts(of_class(root, "unknown")[0]) == 2


def test_limits_are_steps_half_way_between_windows() -> None:
    limit = np.array([0.93, 0.93, 0.95])
    path = of_class(parsed(chart(3, limit_upper=limit)), "limit")[1].get("d", "")
    step = marks_x(2 / 3)
    assert re.fullmatch(rf"M0 [\d.]+H{step}V[\d.]+H{PLOT_WIDTH}", path)


def marks_x(share: float) -> str:
    return re.escape(svg_marks.number(share * PLOT_WIDTH))


def test_heights_are_to_scale() -> None:
    data = chart(2, value=np.array([0.88, 0.92]), objective=0.88)
    root = parsed(data)
    first, second = re.findall(r"[ML][\d.]+ ([\d.]+)", of_class(root, "estimate")[0].get("d", ""))
    (objective,) = re.findall(r"M0 ([\d.]+)", of_class(root, "objective")[0].get("d", ""))
    assert float(first) == pytest.approx(float(objective), abs=0.01)
    assert 0 < float(second) < float(first) < PLOT_HEIGHT


def test_alarms_that_touch_are_one_span() -> None:
    flags = np.array([True, True, False, False, True])
    first, second = of_class(parsed(chart(5, out_of_control=flags)), "alarm")
    assert float(first.get("width", "")) == pytest.approx(2 * PLOT_WIDTH / 5, abs=0.01)
    assert float(second.get("x", "")) == pytest.approx(4 * PLOT_WIDTH / 5, abs=0.01)


def test_an_improvement_is_a_span_of_its_own_colour() -> None:
    on = np.array([False, True, True, False, False, False])
    root = parsed(chart(6, improved=on, out_of_control=~on & (np.arange(6) > 3)))
    [better], [alarm] = of_class(root, "improved"), of_class(root, "alarm")
    assert better.get("fill") != alarm.get("fill")
    assert {"improved", "out of control"} <= set(texts(root))
    assert of_class(parsed(chart(6)), "improved") == []


def test_words_are_escaped_and_what_xml_forbids_is_replaced() -> None:
    root = parsed(chart(2, title='<b>&"\x00\ud800', subtitle="a < b", estimate_name="<i>"))
    assert of_class(root, "title")[0].text == '<b>&"\ufffd\ufffd'
    assert root.get("aria-label") == '<b>&"\ufffd\ufffd'
    assert of_class(root, "subtitle")[0].text == "a < b"
    assert "<i>, 95 % interval" in texts(root)


def test_a_long_title_ends_in_an_ellipsis() -> None:
    shown = of_class(parsed(chart(2, title="m" * 500)), "title")[0].text or ""
    assert shown.endswith("m…")
    assert len(shown) == 70


def test_the_side_names_limits_and_floor_with_their_newest_values() -> None:
    data = chart(2, limit_lower=np.array([0.85, np.nan]), objective=0.8)
    assert {"upper limit 93.0 %", "centre 90.0 %", "lower limit 85.0 %", "floor 80.0 %"} <= set(
        texts(parsed(data))
    )
    assert "ceiling 5.0 %" in texts(parsed(chart(2, objective=0.05, is_floor=False)))


def test_numbers_with_a_unit_are_drawn_in_it() -> None:
    value = np.array([12.25, 13.5, 12.875])
    limits = {"center": np.full(3, 12.75), "limit_lower": np.full(3, 10.5), "limit_upper": np.full(3, 15.0)}
    around = {"lower": value - 1, "upper": value + 1}
    root = parsed(chart(3, value=value, subtitle="task t", unit="minutes", **around, **limits))
    written = texts(root)
    assert {"upper limit 15.0", "centre 12.8", "lower limit 10.5", "task t, in minutes", "11", "14"} <= {
        *written
    }
    assert not any(words.endswith("%") for words in written)
    below = texts(parsed(chart(3, value=-value, unit="", lower=-value - 1, upper=-value + 1)))
    assert {"-15", "-10", "0"} <= {*below}
    assert "task t, in " not in below


def test_ratios_beyond_one_are_drawn_in_per_cent() -> None:
    value = np.array([0.9, 1.4])
    around = {"lower": value - 0.1, "upper": value + 0.1}
    assert {"100 %", "140 %"} <= {*texts(parsed(chart(2, value=value, unit="ratio", **around)))}


def test_a_short_last_window_does_not_speak_for_the_limits() -> None:
    limit = np.array([0.85] * 9 + [0.5])
    assert "lower limit 85.0 %" in texts(parsed(chart(10, limit_lower=limit)))


def test_the_same_data_give_the_same_bytes() -> None:
    rng = np.random.default_rng(1)
    value = rng.uniform(0.8, 1.0, 700)
    changes: dict[str, Any] = {"value": value, "violated": value < 0.82, "out_of_control": value < 0.83}
    before = value.copy()
    assert control_chart_svg(chart(700, **changes)) == control_chart_svg(chart(700, **changes))
    assert np.array_equal(value, before)
    assert not re.search(r"\d\.\d{3}", control_chart_svg(chart(700, **changes)))


def test_stacked_charts_stand_below_each_other() -> None:
    root = ElementTree.fromstring(stacked_svg([chart(3), chart(4, title="irm: ece"), chart(0)]))
    assert root.get("height") == "1260"
    moves = [element.get("transform") for element in root.findall(f"{NAMESPACE}g")]
    assert moves == ["translate(0 0)", "translate(0 420)", "translate(0 840)"]
    assert [element.text for element in of_class(root, "title")] == [
        "erm: accuracy",
        "irm: ece",
        "erm: accuracy",
    ]
    assert ElementTree.fromstring(stacked_svg([])).get("height") == "420"
    assert not any(element.get("id") for element in root.iter())  # ids would clash on a page of many pictures


def test_thousands_of_windows_are_thinned_without_losing_an_excursion() -> None:
    n = 60_000
    value = 0.9 + 0.005 * np.random.default_rng(2).standard_normal(n)
    value[41_234] = 0.5
    picture = control_chart_svg(chart(n, value=value, violated=value < 0.87))
    root = ElementTree.fromstring(picture)
    assert len(picture) < 500_000
    points = re.findall(r"[ML]([\d.]+) ([\d.]+)", of_class(root, "estimate")[0].get("d", ""))
    assert len(points) <= 4 * PLOT_WIDTH
    lowest = max(points, key=lambda point: float(point[1]))
    assert float(lowest[0]) == pytest.approx(41_234.5 / n * PLOT_WIDTH, abs=0.01)
    band = re.findall(r"[ML]([\d.]+) ([\d.]+)", of_class(root, "band")[0].get("d", ""))
    assert max(float(y) for _, y in band) > float(lowest[1])


def test_many_alarms_are_few_elements() -> None:
    n = 50_000
    root = parsed(chart(n, out_of_control=np.arange(n) % 2 == 0, violated=np.arange(n) % 2 == 0))
    assert len(of_class(root, "alarm")) == 1
    assert len(of_class(root, "violation")[0]) <= 4 * PLOT_WIDTH


def test_times_are_told_in_utc() -> None:
    times = 1364774400.0 + 86_400 * np.arange(275)
    labels = texts(parsed(chart(275, x=times, x_is_time=True)))
    assert {"May", "Jun", "Dec", "time (UTC)"} <= set(labels)
    assert "Apr 2013" in labels


def test_windows_of_one_second_are_drawn() -> None:
    root = parsed(chart(3, x=np.full(3, 1364774400.0), x_is_time=True))
    assert len(of_class(root, "estimate")) == 1


@pytest.mark.parametrize("name", ["lower", "limit_upper", "violated", "realised_upper"])
def test_a_column_of_another_length_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=rf"{name}: expected one value a window, 4 as in x, got 3"):
        chart(4, **{name: np.zeros(3, dtype=bool if name == "violated" else float)})


@pytest.mark.parametrize("x", [[0.0, 2.0, 1.0], [0.0, np.nan, 1.0]])
def test_windows_out_of_order_are_refused(x: list[float]) -> None:
    with pytest.raises(ValueError, match="x: expected finite numbers that never fall; sort the windows by x"):
        chart(3, x=np.array(x))


numbers = st.floats(allow_nan=True, allow_infinity=True) | st.floats(0, 1)


@examples(60)
@given(data=st.data(), n=st.integers(0, 12), x_is_time=st.booleans(), objective=numbers)
def test_any_numbers_make_a_picture(data: st.DataObject, n: int, x_is_time: bool, objective: float) -> None:
    def column(values: st.SearchStrategy[float]) -> np.ndarray[Any, np.dtype[np.float64]]:
        return np.array(data.draw(st.lists(values, min_size=n, max_size=n)), dtype=np.float64)

    unit = data.draw(st.sampled_from([None, "ratio", "minutes", ""]))
    finite = st.floats(0, 1) if unit is None else st.floats(-1e50, 1e50)
    ratios = finite | st.just(float("nan")) | st.just(float("inf"))
    names = ("lower", "upper", "center", "limit_lower", "limit_upper", "realised", "realised_lower")
    columns: dict[str, Any] = {name: column(ratios) for name in ("value", *names)}
    columns["realised_upper"] = column(ratios)
    flags = {
        name: column(st.sampled_from([0.0, 1.0])).astype(bool) for name in ("violated", "out_of_control")
    }
    x = np.sort(column(st.floats(0, 4e9)))
    objective = objective if 0 <= objective <= 1 else float("nan")
    parsed(chart(n, x=x, x_is_time=x_is_time, objective=objective, unit=unit, **columns, **flags))


@given(low=st.floats(0, 1), width=st.floats(1e-3, 1), most=st.integers(2, 20))
def test_number_ticks_are_few_even_and_inside(low: float, width: float, most: int) -> None:
    ticks = plotting.number_ticks(low, low + width, most)
    assert len(ticks) <= most
    assert all(low - 1e-6 <= tick <= low + width + 1e-6 for tick in ticks)
    assert np.allclose(np.diff(ticks), np.diff(ticks)[0] if len(ticks) > 1 else 0)


@given(low=st.floats(0, 4e9), width=st.floats(1, 1e9), most=st.integers(3, 15))
def test_time_ticks_are_few_and_inside(low: float, width: float, most: int) -> None:
    ticks = plotting.time_ticks(low, low + width, most)
    assert len(ticks) <= most
    assert all(low - 0.01 <= time <= low + width + 0.01 for time, _ in ticks)
    assert [time for time, _ in ticks] == sorted({time for time, _ in ticks})


@given(st.lists(st.floats(0, 100), max_size=6))
def test_side_labels_keep_apart(wanted: list[float]) -> None:
    places = svg_marks.spread(wanted, 14.0, 100.0)
    assert all(b - a >= 14 - 1e-9 for a, b in zip(sorted(places), sorted(places)[1:], strict=False))
    assert all(-1e-9 <= y <= 100 for y in places)


def test_another_version_is_a_line_with_its_name_where_its_windows_begin() -> None:
    root = parsed(chart(10, versions=((4, "v<2>"),)))
    (line,) = of_class(root, "version")
    assert line.get("d") == f"M{PLOT_WIDTH * 4 // 10 + 1} 0v{PLOT_HEIGHT}"
    (name,) = of_class(root, "version-name")
    assert name.text == "version v<2>"
    assert float(name.get("x", "")) == pytest.approx(PLOT_WIDTH * 0.4 + 4, abs=0.01)
    assert "another version" in texts(root)
    assert of_class(parsed(chart(10)), "version") == []


def test_names_of_versions_never_lie_on_each_other_and_every_version_has_its_line() -> None:
    root = parsed(chart(500, versions=tuple((place, f"build-{place}") for place in range(1, 500))))
    assert starts(of_class(root, "version")[0]) == 499
    begins = [float(name.get("x", "")) for name in of_class(root, "version-name")]
    assert len(begins) >= 5
    assert np.diff(begins).min() > 70
    assert begins[-1] < PLOT_WIDTH - 60


def test_a_new_baseline_is_a_line_and_a_refit_a_mark_at_the_foot() -> None:
    root = parsed(chart(10, rebaselined=((4, "as asked"),), refitted=((6, "isotonic, fit 2"), (8, "fit 3"))))
    (line,), (feet,) = of_class(root, "rebaseline"), of_class(root, "refit")
    assert line.get("d") == f"M{round(0.4 * PLOT_WIDTH)} 0v{PLOT_HEIGHT}"
    assert re.findall(r"M([\d.]+) (\d+)", feet.get("d", "")) == [
        (str(round(share * PLOT_WIDTH) - 5), str(PLOT_HEIGHT)) for share in (0.6, 0.8)
    ]
    assert {"new baseline", "refit"} <= set(texts(root))
    assert of_class(parsed(chart(10)), "rebaseline") == of_class(parsed(chart(10)), "refit") == []


@pytest.mark.parametrize("versions", [((3, "b"),), ((-1, "b"),), ((2, "b"), (1, "c")), ((1, "b"), (1, "c"))])
def test_a_version_that_begins_nowhere_is_refused(versions: tuple[tuple[int, str], ...]) -> None:
    for name in ("versions", "rebaselined", "refitted"):
        with pytest.raises(ValueError, match=rf"{name}: expected rising places from 0 to 2, got \["):
            chart(3, **{name: versions})
