"""`Monitor`: the bytes of `replay`, whatever the frame's library, and errors that say what to do."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from monitor import BlindsightError, ConfigError, Estimate, MissingExtraError, Monitor, MonitorResult
from monitor.cli.check.text import render
from monitor.cli.checking import check_configuration
from monitor.cli.replay import replay
from monitor.config.file import load_config
from monitor.reports.statements import describe
from monitor.reports.window_report import to_json

CLASSES = ["ok", "toxic"]
Columns = dict[str, Any]


def columns(seed: int, n: int, toxic: float = 0.2, labelled: bool = True) -> Columns:
    """Return answers a minute apart, calibrated; the larger the share of the doubtful, the lower the
    accuracy.
    """
    rng = np.random.default_rng(seed)
    p = np.where(rng.random(n) < toxic, rng.beta(4, 3, n), rng.beta(1, 9, n))
    table: Columns = {
        "p toxic": p,
        "region": np.where(rng.random(n) < 0.5, "eu", "us"),
        "at": np.datetime64("2026-01-01T00:00:00.000") + 60_000 * np.arange(n).astype("timedelta64[ms]"),
    }
    truth = rng.random(n) < p
    return table | ({"truth": np.where(truth, "toxic", "ok")} if labelled else {})


REFERENCE = columns(0, 4_000)
STREAM = {
    name: np.append(REFERENCE[name][:2_000], late) for name, late in columns(1, 1_000, toxic=1.0).items()
}
STREAM["at"] = np.datetime64("2026-02-01T00:00:00.000") + 60_000 * np.arange(3_000).astype("timedelta64[ms]")
SETTINGS: Mapping[str, Any] = {
    "groups": ["region"],
    "metrics": ["accuracy", "recall"],
    "objective": {"accuracy": {"min": 0.7}},
}
NAMES: Mapping[str, str] = {"scores": "p toxic", "label": "truth", "time": "at"}


@pytest.fixture(scope="module")
def monitor() -> Monitor:
    return Monitor(CLASSES, **SETTINGS).fit(REFERENCE, **NAMES)


@pytest.fixture(scope="module")
def result(monitor: Monitor) -> MonitorResult:
    return monitor.estimate(STREAM)


def lines(result: MonitorResult) -> bytes:
    return b"".join(to_json(report) + b"\n" for report in result.reports)


def replayed(monitor: Monitor, frame: Columns, folder: Path) -> bytes:
    """Return the lines of `replay` on the frame as a Parquet file, by the monitor's configuration."""
    config = monitor.to_config(folder / "blindsight.yaml")
    file = folder / "frame.parquet"
    pytest.importorskip("pyarrow.parquet").write_table(arrow_table(frame), file)
    done = replay(str(config), [file], folder / "out", lambda path, size: None)
    assert done.windows > 0
    return (folder / "out" / "windows.ndjson").read_bytes().replace(str(file).encode(), b"frame")


def pandas_frame(table: Columns) -> Any:
    return pytest.importorskip("pandas").DataFrame(table)


def polars_frame(table: Columns) -> Any:
    return pytest.importorskip("polars").DataFrame(table)


def arrow_table(table: Columns) -> Any:
    return pytest.importorskip("pyarrow").table(table)


def pandas_series(table: Columns) -> Columns:
    pandas = pytest.importorskip("pandas")
    return {name: pandas.Series(values) for name, values in table.items()}


def plain_lists(table: Columns) -> Columns:
    return {name: values.tolist() for name, values in table.items()}


MAKERS = (pandas_frame, polars_frame, arrow_table, pandas_series, plain_lists)


@pytest.mark.slow
@pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__)
def test_each_kind_of_frame_gives_the_same_bytes(
    make: Callable[[Columns], Any], result: MonitorResult
) -> None:
    monitor = Monitor(CLASSES, **SETTINGS).fit(make(REFERENCE), **NAMES)
    assert lines(monitor.estimate(make(STREAM))) == lines(result)


@pytest.mark.slow
def test_without_labels_it_is_replay_of_a_file_without_them(monitor: Monitor, tmp_path: Path) -> None:
    bare = {name: values for name, values in STREAM.items() if name != "truth"}
    got = lines(monitor.estimate(STREAM, labels=False))
    assert got == lines(monitor.estimate(bare)) == replayed(monitor, bare, tmp_path)


SCORES: Mapping[str, tuple[Any, Callable[[Columns], Columns]]] = {
    "one a class": (["no", "p toxic"], lambda frame: {"no": 1 - frame["p toxic"]}),
    "by class": ({"toxic": "p toxic", "ok": "no"}, lambda frame: {"no": 1 - frame["p toxic"]}),
    "lists": ("both", lambda frame: {"both": np.column_stack((1 - frame["p toxic"], frame["p toxic"]))}),
}


@pytest.mark.slow
@pytest.mark.parametrize("form", SCORES)
def test_each_form_of_scores_gives_the_same_estimates(form: str, tmp_path: Path) -> None:
    scores, more = SCORES[form]
    frame = {"p toxic": STREAM["p toxic"], "at": STREAM["at"]}
    expected = lines(Monitor(CLASSES).fit(REFERENCE, **NAMES).estimate(frame))
    other = Monitor(CLASSES).fit(REFERENCE | more(REFERENCE), **{**NAMES, "scores": scores})
    frame |= more(frame)
    assert lines(other.estimate(frame)) == expected == replayed(other, plain_lists(frame), tmp_path)


@pytest.mark.slow
def test_confidences_with_predictions_are_a_task_of_confidences(tmp_path: Path) -> None:
    def of(frame: Columns) -> Columns:
        p = frame["p toxic"]
        acted = np.where(p > 0.5, "toxic", "ok")
        return {"sure": np.maximum(p, 1 - p), "acted": acted, "truth": frame["truth"]}

    by_classes = Monitor(CLASSES).fit(of(REFERENCE), confidence="sure", prediction="acted", label="truth")
    frame = of(STREAM)
    right = {"sure": frame["sure"], "right": frame["acted"] == frame["truth"]}
    known = of(REFERENCE)
    plain = Monitor().fit(
        {"sure": known["sure"], "right": known["acted"] == known["truth"]}, confidence="sure", label="right"
    )
    got = lines(by_classes.estimate(frame))
    assert got == lines(plain.estimate(right)) == replayed(plain, right, tmp_path)
    assert b'"estimator":"realised","value"' in got


@pytest.mark.slow
def test_rows_that_cannot_be_used_are_counted_as_replay_counts_them(monitor: Monitor, tmp_path: Path) -> None:
    frame = {name: values[:600].copy() for name, values in STREAM.items()}
    frame["p toxic"][:7] = np.nan
    frame["p toxic"][7:10] = 1.5
    frame["region"] = ["é" * 300 if 10 <= row < 13 else "eu" for row in range(600)]
    config = monitor.to_config(tmp_path / "blindsight.yaml")
    pandas_frame(frame).to_parquet(tmp_path / "frame.parquet")
    done = replay(str(config), [tmp_path / "frame.parquet"], tmp_path / "out", lambda path, size: None)
    # In Parquet, pandas writes NaN as NULL: such a row is an answer without scores.
    written = dict(done.unused.answers + done.unused.labels)
    assert (written, done.unused.labels.total()) == ({"no_scores": 7, "out_of_range": 3, "too_large": 3}, 0)
    for make in (pandas_frame, dict):
        result = monitor.estimate(make(frame))
        assert result.rejected == {"not_a_number": 7, "out_of_range": 3, "too_large": 3}
        assert monitor.estimate(make(frame), labels=False).rejected["not_a_number"] == 7
    assert "(rows not used: 7 not_a_number, 3 out_of_range, 3 too_large)" in repr(result)
    assert monitor.estimate(polars_frame(frame)).rejected["not_a_number"] == 7


def test_the_configuration_is_the_monitor_and_passes_check(monitor: Monitor, tmp_path: Path) -> None:
    path = monitor.to_config(tmp_path / "blindsight.yaml", source="log.ndjson")
    written = yaml.safe_load(path.read_text())
    assert written["sources"] == [
        {
            "kind": "file",
            "path": "log.ndjson",
            "follow": True,
            "mapping": {
                "time": "at",
                "time_zone": "UTC",
                "scores": '["p toxic"]',
                "groups": {"region": "region"},
                "label": "truth",
                "constants": {"model": "model"},
            },
        }
    ]
    task = load_config(path).scored_tasks["task"]
    assert task.window.size == 200
    assert task.window.max_age_seconds == 7 * 3600  # twice what 1,400 answers a day take to fill it
    assert "The configuration is valid." in render(check_configuration(str(path)))
    with pytest.raises(ConfigError, match=r"blindsight\.yaml exists; give another path, or replace=True"):
        monitor.to_config(path)
    assert monitor.to_config(path, replace=True) == path


def test_the_result_shows_verdict_and_chart_where_notebooks_look(result: MonitorResult) -> None:
    html = result._repr_html_()
    assert '<b class="bad">1 model misses its objective.</b>' in html
    assert html.count("<img ") == 1
    assert 'alt="model: accuracy"' in html
    text = repr(result)
    assert text.startswith("MonitorResult: 1 model ")
    assert f"{describe(result.view.series[0])}, in the newest window (15 closed);" in text
    assert re.search(r"accuracy about [\d.]+ % \([\d.]+ to [\d.]+\), must be at least 70 %", text)
    raised = [alarm for alarm in result.alarms if (alarm.metric, alarm.group) == ("accuracy", "")]
    assert len(raised) == 1
    assert raised[0].window in (10, 11)
    assert f"in window {raised[0].window} (2026-02-" in text


def test_frames_of_the_result_hold_what_the_reports_say(result: MonitorResult) -> None:
    tables = result.to_pandas(), result.to_polars().to_pandas()
    for table in tables:
        own = table[
            (table.group == "") & (table.metric == "accuracy") & (table.estimator == "average_confidence")
        ]
        assert own.window.tolist() == list(range(15))
        assert own["size"].tolist() == [200] * 15
        assert own.value.iloc[-1] < own.limit_lower.iloc[-1]
        assert own.alarm.tolist() == [number >= own.window[own.alarm].min() for number in range(15)]
        assert own.start.iloc[0].isoformat() == "2026-02-01T00:00:00+00:00"
    last = result.windows[-1]
    expected = {
        (each.metric, each.estimator): getattr(each.result, "value", math.nan) for each in last.estimates
    }
    rows = tables[0][(tables[0].group == last.group) & (tables[0].window == last.window)]
    got = {(row.metric, row.estimator): row.value for row in rows.itertuples()}
    assert got == pytest.approx(expected, nan_ok=True)
    assert tables[0].unknown.dropna().tolist() == tables[1].unknown.dropna().tolist()
    assert tables[0].unknown.isna().any()


@pytest.mark.process  # matplotlib asks fc-list for fonts
def test_matplotlib_and_altair_draw_the_estimates(
    result: MonitorResult, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MPLBACKEND", "agg")
    pyplot = pytest.importorskip("matplotlib.pyplot")
    axes = result.plot("accuracy")
    table = result.to_pandas()
    own = table[
        (table.group == "") & (table.metric == "accuracy") & (table.estimator == "average_confidence")
    ]
    series = {line.get_label(): line.get_ydata() for line in axes.lines}
    assert series["average confidence, 95 % interval"].tolist() == own.value.tolist()
    assert {"control limits", "realised", "objective"} <= series.keys()
    assert axes.get_xlabel() == "time (UTC)"
    other = result.plot("recall", group="region=eu", ax=axes.figure.add_subplot())
    assert other.get_title() == "model · region=eu: recall"
    pyplot.close(axes.figure)
    chart = result.plot("accuracy", backend="altair").to_dict()
    values = next(layer["data"]["values"] for layer in chart["layer"] if "values" in layer.get("data", {}))
    assert [row["value"] for row in values] == own.value.tolist()


@pytest.mark.process  # matplotlib asks fc-list for fonts
def test_without_times_windows_are_drawn_by_their_number() -> None:
    plain = Monitor(CLASSES).fit(REFERENCE, scores="p toxic", label="truth")
    result = plain.estimate({"p toxic": STREAM["p toxic"]})
    axes = result.plot(ax=pytest.importorskip("matplotlib.figure").Figure().subplots())
    assert (axes.get_xlabel(), axes.lines[0].get_xdata().tolist()) == ("window", list(range(15)))
    assert result.to_pandas().start.isna().all()
    assert math.isnan(result.alarms[0].time)
    assert "1970" not in repr(result)


@pytest.mark.slow
def test_reports_and_page_are_those_of_replay(
    monitor: Monitor, result: MonitorResult, tmp_path: Path
) -> None:
    assert lines(result) == replayed(monitor, STREAM, tmp_path)
    assert lines(result).count(b'"estimator":"realised"') > 10
    saved = result.save_html(tmp_path / "report.html")
    assert saved.read_bytes() == (tmp_path / "out" / "report.html").read_bytes()


@pytest.mark.slow
def test_the_page_has_the_labels_that_came_after_the_last_window(monitor: Monitor, tmp_path: Path) -> None:
    late = STREAM | {"truth": STREAM["truth"].copy()}
    late["truth"][-60:] = np.where(STREAM["p toxic"][-60:] > 0.5, "ok", "toxic")  # each answer was wrong
    result = monitor.estimate(late)
    replayed(monitor, late, tmp_path)
    saved = result.save_html(tmp_path / "report.html").read_bytes()
    assert saved == (tmp_path / "out" / "report.html").read_bytes()
    assert saved != result.period.html(result.labelled).encode()


def test_columns_with_the_names_of_the_classes_are_the_scores() -> None:
    """Fit on a frame like ``DataFrame(predict_proba(X), columns=model.classes_)``."""

    def frame(known: Columns) -> Columns:
        scores = {"ok": 1 - known["p toxic"], "toxic": known["p toxic"]}
        return scores | {name: known[name] for name in ("truth", "acted") if name in known}

    named = Monitor(CLASSES).fit(frame(REFERENCE), label="truth")
    listed = Monitor(CLASSES).fit(frame(REFERENCE), label="truth", scores=["ok", "toxic"])
    assert lines(named.estimate(frame(STREAM))) == lines(listed.estimate(frame(STREAM)))


def test_a_configuration_for_the_top_class_reads_the_columns_of_the_frame(tmp_path: Path) -> None:
    def frame(known: Columns) -> Columns:
        p = known["p toxic"]
        top = np.where(p > 0.5, "toxic", "ok")
        return {"sure": np.maximum(p, 1 - p), "top": top, "truth": known["truth"]}

    monitor = Monitor(CLASSES).fit(frame(REFERENCE), confidence="sure", prediction="top", label="truth")
    labelled = frame(columns(9, 2000))
    assert replayed(monitor, labelled, tmp_path) == lines(monitor.estimate(labelled))


def delays(seed: int, n: int, shift: float = 0.0) -> Columns:
    """Return predicted numbers a minute apart, of which the feature x says how large their errors are."""
    rng = np.random.default_rng(seed)
    x = rng.normal(shift, 1, n)
    deviation = np.exp(x / 2)
    return {
        "x": x,
        "minutes ahead": 3 * x,
        "sd": deviation,
        "low": 3 * x - 1.645 * deviation,
        "high": 3 * x + 1.645 * deviation,
        "y": 3 * x + deviation * rng.normal(size=n),
        "at": np.datetime64("2026-01-01T00:00:00.000") + 60_000 * np.arange(n).astype("timedelta64[ms]"),
    }


STATED: Mapping[str, Mapping[str, Any]] = {
    "features": {"features": ["x"]},
    "sigma": {"sigma": "sd", "features": "auto"},
    "quantiles": {"quantiles": {0.95: "high", 0.05: "low"}},
}


@pytest.mark.slow
@pytest.mark.parametrize("stated", STATED)
def test_a_monitor_of_a_regressor_gives_the_bytes_of_replay(tmp_path: Path, stated: str) -> None:
    monitor = Monitor(kind="regression", tolerance=2).fit(
        delays(0, 4000), prediction="minutes ahead", label="y", time="at", **STATED[stated]
    )
    frame = delays(1, 3000)
    result = monitor.estimate(frame)
    assert replayed(monitor, frame, tmp_path) == lines(result)
    right = np.mean(np.abs(frame["y"] - frame["minutes ahead"]) <= 2)
    values = [
        each.result.value
        for window in result.windows
        for each in window.estimates
        if (each.metric, each.estimator) == ("within_tolerance", "average_confidence")
        and isinstance(each.result, Estimate)
    ]
    assert len(values) == len(result.windows)
    assert np.mean(values) == pytest.approx(right, abs=0.02)  # three standard errors of 3,000 rows


def test_a_monitor_sees_larger_errors_without_labels() -> None:
    monitor = Monitor(kind="regression", tolerance=2).fit(
        delays(0, 4000), prediction="minutes ahead", label="y", features=["x"]
    )
    frame = delays(2, 2000, shift=1.0)
    del frame["y"]
    frame["minutes ahead"][7] = np.nan
    result = monitor.estimate(frame)
    assert result.alarms[0].metric == "within_tolerance"
    assert "share within tolerance fell from" in repr(result)
    assert sum(result.rejected.values()) == 1


def test_a_monitor_estimates_the_coverage_of_the_stated_quantiles() -> None:
    monitor = Monitor(kind="regression", error_metrics=["mae", "coverage"])
    columns = {"prediction": "minutes ahead", "label": "y", "features": ["x"]}
    with pytest.raises(ConfigError, match="got coverage: give quantiles"):
        monitor.fit(delays(0, 1000), **columns)
    monitor.fit(delays(0, 4000), quantiles={0.05: "low", 0.95: "high"}, **columns)
    known = monitor.estimate(delays(1, 2000)).windows[-1].known("coverage", "doubly_robust")
    assert known is not None
    assert known.lower < 0.9 < known.upper


@pytest.mark.process  # matplotlib asks fc-list for fonts
def test_the_default_picture_is_of_the_share_within_tolerance() -> None:
    pytest.importorskip("matplotlib")
    monitor = Monitor(kind="regression").fit(delays(0, 1000), prediction="minutes ahead", label="y")
    title = monitor.estimate(delays(1, 500)).plot().get_title()
    assert title == "model: within_tolerance"


@pytest.mark.process  # matplotlib asks fc-list for fonts
def test_errors_of_a_regressor_are_rows_and_pictures_in_their_unit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MPLBACKEND", "agg")
    pyplot = pytest.importorskip("matplotlib.pyplot")
    monitor = Monitor(kind="regression", tolerance=2, unit="minutes").fit(
        delays(0, 2000), prediction="minutes ahead", label="y", features=["x"]
    )
    result = monitor.estimate(delays(1, 500))
    table = result.to_pandas()
    for metric in ("mae", "rmse", "bias"):
        for estimator in ("doubly_robust", "realised"):
            own = table[(table.metric == metric) & (table.estimator == estimator)]
            known = [report.known(metric, estimator) for report in result.windows]
            assert own.unit.tolist() == ["minutes"] * len(known)
            assert own.value.tolist() == [each.value for each in known if each is not None]
            assert (own.lower <= own.value).all()
            assert (own.value <= own.upper).all()
    assert table[table.metric == "within_tolerance"].unit.isna().all()
    axes = result.plot("mae")
    own = table[(table.metric == "mae") & (table.estimator == "doubly_robust")]
    assert axes.lines[0].get_ydata().tolist() == own.value.tolist()
    assert (axes.get_ylabel(), axes.get_title()) == ("minutes", "model: mae")
    pyplot.close(axes.figure)
    chart = result.plot("mae", backend="altair").to_dict()
    assert chart["layer"][0]["encoding"]["y"]["title"] == "mae, minutes"
    assert "format" not in chart["layer"][0]["encoding"]["y"]["axis"]
    assert "Errors of predicted numbers" in result.period.html(result.labelled, [result.view])


def fit(frame: Columns | None = None, classes: Any = CLASSES, **names: Any) -> Monitor:
    return Monitor(classes).fit(REFERENCE if frame is None else frame, **{**NAMES, **names})


PERCENT = REFERENCE | {"p toxic": 100 * REFERENCE["p toxic"]}
HOURS = REFERENCE | {"hours": 10 * REFERENCE["p toxic"]}
GIVEN: Mapping[str, tuple[Callable[[], object], str]] = {
    "column": (
        lambda: fit(scores="p toxi"),
        "reference: no column 'p toxi', which scores names; there are p toxic, region, at, truth; did",
    ),
    "percent": (
        lambda: fit(PERCENT),
        "p toxic: expected probabilities from 0 to 1, got .* look like percent; divide by 100",
    ),
    "regression": (
        lambda: fit(HOURS, label="hours"),
        'hours: expected classes, got numbers such as .*: give Monitor kind="regression" for predicted',
    ),
    "numbers as predictions": (
        lambda: fit(HOURS, prediction="hours"),
        'hours: expected classes, got numbers such as .*: give Monitor kind="regression" for predicted',
    ),
    "columns": (
        lambda: fit(scores=["p toxic"]),
        r"scores: expected a column for each of the 2 classes \(ok, toxic\), got 1: p toxic",
    ),
    "no classes": (
        lambda: fit(classes=()),
        r"scores: expected classes=\[…\] to be given to Monitor, got none: name them",
    ),
    "one class": (lambda: fit(classes="ok"), "classes: expected a list of classes, got the text 'ok'"),
    "neither": (
        lambda: fit(classes=(), scores=None),
        "fit: expected either scores or confidence, got neither",
    ),
    "both": (lambda: fit(confidence="p toxic"), "fit: expected either scores or confidence, got both"),
    "other classes": (
        lambda: fit(classes=["ok", "bad"]),
        r"reference: 773 rows of the reference cannot be used: row 2: \$.label: task task has no class",
    ),
    "order of classes": (
        lambda: fit(classes=["toxic", "ok"]),
        r"tasks.task.classes: \[toxic, ok\] seems to be in reverse order",
    ),
    "a key": (
        lambda: Monitor(CLASSES, windw=500),
        "This monitor cannot be used:.*tasks.task.windw: unknown key; did you mean 'window'",
    ),
    "a value": (
        lambda: Monitor(CLASSES, window=5),
        "tasks.task.window.size: expected an integer from 10 to 1000000, got 5",
    ),
    "reference": (
        lambda: Monitor(CLASSES, reference={}),
        "reference: expected no such setting: fit takes the reference",
    ),
    "zone": (
        lambda: fit(time_zone="Europe/Atlantis"),
        "What fit was given cannot be used:.*time_zone: expected the name of a time zone",
    ),
    "estimate first": (
        lambda: Monitor(CLASSES).estimate(STREAM),
        "estimate: there is no reference yet; call fit with one first",
    ),
    "spread of classes": (
        lambda: fit(sigma="p toxic"),
        'fit: expected sigma in a regression only; leave it out, or give Monitor kind="regression"',
    ),
    "scores of numbers": (
        lambda: Monitor(kind="regression").fit(REFERENCE, scores=["p toxic"], label="truth"),
        "fit: expected prediction in a regression, got scores: leave it out",
    ),
    "no predicted number": (
        lambda: Monitor(kind="regression").fit(REFERENCE, label="truth"),
        "fit: missing prediction, the column of the predicted number; give it",
    ),
    "text as number": (
        lambda: Monitor(kind="regression").fit(REFERENCE, prediction="p toxic", label="truth"),
        r"reference: 4000 rows of the reference cannot be used: row 1: \$.label: expected a number, got",
    ),
    "few numbers": (
        lambda: Monitor(kind="regression").fit(
            {"hat": [1.0, 2.0], "y": [1.5, 2.0]}, prediction="hat", label="y"
        ),
        "reference: the size of the errors needs at least 200 labelled rows, got 2; give a longer ref",
    ),
    "classes of numbers": (
        lambda: Monitor(CLASSES, kind="regression"),
        "tasks.task.classes: expected none in a task whose models predict numbers: leave it out",
    ),
    "levels": (
        lambda: Monitor(kind="regression", quantiles=[0.1, 0.9]),
        "quantiles: expected no such setting: fit takes the columns by level",
    ),
    "to_config first": (
        lambda: Monitor(CLASSES).to_config(),
        "to_config: there is no reference yet; call fit with one first",
    ),
}


@pytest.mark.parametrize("what", GIVEN)
def test_what_is_given_wrongly_is_named_with_the_remedy(what: str) -> None:
    wrong, says = GIVEN[what]
    with pytest.raises(ConfigError, match=f"(?s){says}"):
        wrong()


FRAMES: Mapping[str, tuple[Callable[[], object], str]] = {
    "percent": (
        lambda: STREAM | {"p toxic": 100 * STREAM["p toxic"] + 1},
        "p toxic: .*they look like percent; divide by 100",
    ),
    "no row": (lambda: {name: [] for name in STREAM}, "frame: no row can be used: it has none"),
    "no column": (
        lambda: {"p toxic": [0.5], "at": [0.0], "truth": ["ok"]},
        "frame: no column 'region', which groups.region names; there are p toxic, at, truth",
    ),
    "no time": (
        lambda: STREAM | {"at": ["noon"] * 3000},
        r"frame: no row can be used: frame: row 0: \$.time: .*; frame: row 4: ",
    ),
    "lengths": (
        lambda: {"p toxic": [0.5], "at": []},
        "frame: expected columns of one length, got p toxic has 1, at has 0 rows",
    ),
    "a number": (
        lambda: {"p toxic": 0.5},
        "frame, column p toxic: expected an array with a value a row, got",
    ),
    "lazy": (
        lambda: polars_frame(STREAM).lazy(),
        r"frame: expected a frame of pandas, .* got polars.*LazyFrame; call .collect\(\) of a lazy frame",
    ),
    "a list": (
        lambda: [1, 2],
        "frame: expected a frame of pandas, polars or Arrow, or a dict of arrays, got builtins.list",
    ),
    "a name twice": (
        lambda: pytest.importorskip("pandas").DataFrame([[1, 2]], columns=["a", "a"]),
        "frame: Expected unique column names.*; give each column a name of its own",
    ),
}


@pytest.mark.parametrize("what", FRAMES)
def test_a_frame_that_cannot_be_used_is_told_why(what: str, monitor: Monitor) -> None:
    make, says = FRAMES[what]
    with pytest.raises(ConfigError, match=says):
        monitor.estimate(make())


@pytest.mark.parametrize(
    ("names", "says"),
    [
        (["acuracy"], "plot: expected one of accuracy, recall, got 'acuracy': name it in metrics"),
        (["recall", "eu"], "group: expected one of '', 'region=us', 'region=eu', got 'eu'"),
        (["recall", "", "ggplot"], "backend: expected matplotlib or altair, got 'ggplot'"),
    ],
)
def test_a_plot_that_is_none_is_named(names: list[Any], says: str, result: MonitorResult) -> None:
    with pytest.raises(ConfigError, match=says):
        result.plot(*names)


@pytest.mark.parametrize("share", [0.1, 0.5, 1.0])
def test_the_probability_of_a_class_is_no_confidence(share: float) -> None:
    frame = columns(3, 4_000, toxic=share)
    acted = frame | {"acted": np.where(frame["p toxic"] > 0.5, "toxic", "ok")}
    for prediction in ("acted", None):
        with pytest.raises(ConfigError, match="it is the probability of toxic; give it as scores, without"):
            Monitor(CLASSES).fit(acted, confidence="p toxic", label="truth", prediction=prediction)


def test_of_the_first_class_the_other_probability_is_asked_for() -> None:
    frame = REFERENCE | {"p ok": 1 - REFERENCE["p toxic"]}
    says = "it is the probability of ok; give 1 less it, the probability of toxic, as scores"
    with pytest.raises(ConfigError, match=says):
        Monitor(CLASSES, positive="ok").fit(frame, confidence="p ok", label="truth")


@pytest.mark.parametrize("share", [0.1, 0.5, 1.0])
def test_confidences_pass_though_some_are_below_a_half(share: float) -> None:
    """A threshold of 0.3 acts on the less probable class now and then."""
    frame = columns(3, 4_000, toxic=share)
    p = frame["p toxic"]
    known = {
        "sure": np.where(p > 0.3, p, 1 - p),
        "acted": np.where(p > 0.3, "toxic", "ok"),
        "truth": frame["truth"],
    }
    assert known["sure"].min() < 0.5
    assert Monitor(CLASSES).fit(known, confidence="sure", label="truth", prediction="acted")


def test_confidences_of_classes_need_the_prediction() -> None:
    known = REFERENCE | {"sure": np.maximum(REFERENCE["p toxic"], 1 - REFERENCE["p toxic"])}
    says = "confidence: missing prediction, the column with the class that was acted on; give it, or give the"
    with pytest.raises(ConfigError, match=says):
        Monitor(CLASSES).fit(known, confidence="sure", label="truth")


@pytest.mark.slow
def test_a_fit_that_fails_changes_nothing(tmp_path: Path) -> None:
    monitor = Monitor(CLASSES).fit(REFERENCE, **NAMES)
    before = monitor.estimate(STREAM)
    with pytest.raises(ConfigError, match="missing prediction"):
        monitor.fit(REFERENCE | {"sure": np.full(4_000, 0.9)}, confidence="sure", label="truth")
    assert lines(monitor.estimate(STREAM)) == lines(before)
    monitor.fit({name: values[:2_000] for name, values in REFERENCE.items()}, scores="p toxic", label="truth")
    written = before.to_config(tmp_path / "before.yaml").read_text(encoding="utf-8")
    assert "time: at" in written
    assert "time: at" not in monitor.to_config(tmp_path / "now.yaml").read_text(encoding="utf-8")


@pytest.mark.slow
def test_classes_may_be_numbers_or_truth_values() -> None:
    names = [REFERENCE | {"truth": REFERENCE["truth"] == "toxic"}]
    names.append(REFERENCE | {"truth": (REFERENCE["truth"] == "toxic").astype(np.int64)})
    names.append(REFERENCE | {"truth": (REFERENCE["truth"] == "toxic").astype(np.float64)})
    expected = lines(Monitor(CLASSES).fit(REFERENCE, **NAMES).estimate(STREAM, labels=False))
    assert expected.count(b"class=toxic") > 0, "alarms name the classes that changed"
    for frame, classes in zip(names, ([False, True], np.array([0, 1]), [0, 1]), strict=True):
        positive = classes[1]
        written = lines(
            Monitor(classes, positive=positive).fit(frame, **NAMES).estimate(STREAM, labels=False)
        )
        for name, class_name in zip(CLASSES, Monitor(classes).classes, strict=True):
            written = written.replace(f"class={class_name}".encode(), f"class={name}".encode())
        assert written == expected


OF_EXTRA = r"needs an optional package: pip install 'blindsight\[notebook\]'"
MISSING: Mapping[str, tuple[Callable[[MonitorResult], object], type[Exception], str]] = {
    "narwhals": (
        lambda result: fit(pandas_frame(REFERENCE)),
        MissingExtraError,
        f"Reading a frame {OF_EXTRA}",
    ),
    "matplotlib": (lambda result: result.plot(), MissingExtraError, f"plot {OF_EXTRA}"),
    "altair": (
        lambda result: result.plot(backend="altair"),
        BlindsightError,
        r'plot\(backend="altair"\) needs altair: pip install altair',
    ),
    "polars": (
        lambda result: result.to_polars(),
        BlindsightError,
        "to_polars needs polars: pip install polars",
    ),
    "pandas": (
        lambda result: result.to_pandas(),
        BlindsightError,
        "to_pandas needs pandas: pip install pandas",
    ),
}


@pytest.mark.parametrize("package", MISSING)
def test_what_is_not_installed_is_named_with_its_pip_line(
    package: str, result: MonitorResult, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted, kind, says = MISSING[package]
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(kind, match=says):
        wanted(result)


@pytest.mark.slow
def test_a_dict_of_arrays_needs_no_extra(monitor: Monitor, monkeypatch: pytest.MonkeyPatch) -> None:
    for package in ("narwhals", "matplotlib", "pandas", "polars", "pyarrow", "altair"):
        monkeypatch.setitem(sys.modules, package, None)
    result = Monitor(CLASSES).fit(REFERENCE, **NAMES).estimate(STREAM)
    assert "<img " in result._repr_html_()


@pytest.mark.slow
def test_numbers_of_numpy_in_lists_and_dicts_are_numbers_and_a_missing_score_is_none() -> None:
    p, truth = REFERENCE["p toxic"], REFERENCE["truth"]
    pairs = np.column_stack((1 - p, p))
    values = {
        "lists": [list(row) for row in pairs],
        "dicts": [dict(zip(CLASSES, row, strict=True)) for row in pairs],
    }
    estimated = []
    for each in values.values():
        fitted = Monitor(CLASSES).fit({"p": each, "truth": truth}, scores="p", label="truth")
        estimated.append([to_json(report) for report in fitted.estimate({"p": each[:1_000]}).reports])
    assert estimated[0] == estimated[1]
    holes = p.copy()
    holes[::10] = np.nan
    frame = {"p toxic": holes, "truth": truth}
    with pytest.raises(
        ConfigError, match=r"400 rows of the reference cannot be used: row 1: \$.scores: expected"
    ):
        Monitor(CLASSES).fit(frame, scores="p toxic", label="truth")
    fitted = Monitor(CLASSES).fit(REFERENCE, scores="p toxic", label="truth")
    assert fitted.estimate(frame).rejected == {"not_a_number": 400}


def test_a_metric_by_the_name_of_another_library_is_suggested_by_ours() -> None:
    with pytest.raises(ConfigError, match="got 'roc_auc'; did you mean 'auroc'"):
        Monitor(CLASSES, metrics=["accuracy", "roc_auc"])


def with_hours(frame: Columns, lost_from: int | None = None) -> Columns:
    """The frame with a feature that is lost from a row on, ids, and an airline."""
    n = len(frame["p toxic"])
    hours: list[int | None] = [i % 24 for i in range(n)]
    if lost_from is not None:
        hours[lost_from:] = [None] * (n - lost_from)
    airlines = [("DL", "AA", "UA")[i % 3] for i in range(n)]
    return frame | {"hour of day": hours, "request": [f"r-{i}" for i in range(n)], "airline": airlines}


@pytest.mark.parametrize("features", [["hour of day", "airline"], "auto"])
def test_a_lost_feature_is_named_in_the_first_window_without_it(features: Any) -> None:
    monitor = Monitor(CLASSES, **SETTINGS).fit(with_hours(REFERENCE), **NAMES, features=features)
    result = monitor.estimate(with_hours(STREAM, lost_from=1_000))
    whole = [report for report in result.windows if not report.group]
    first = next(report for report in whole if report.broken_features)
    assert [(each.feature, each.fault) for each in first.broken_features] == [("hour of day", "missing")]
    assert first.window == 1_000 // whole[0].size
    assert "is untrusted: a feature is broken" in str(result)


def test_an_alarm_has_its_change_by_feature() -> None:
    """The scores change at row 2,000. If the hour is lost there too, nothing tells the two apart."""
    monitor = Monitor(CLASSES, **SETTINGS).fit(with_hours(REFERENCE), **NAMES, features=["hour of day"])
    calm = monitor.estimate(with_hours(STREAM)).alarms
    assert "; by feature" in calm[0].change
    assert " at the same features (" in calm[0].change
    assert "hour of day" not in calm[0].change
    result = monitor.estimate(with_hours(STREAM, lost_from=2_000))
    first = result.alarms[0]
    assert " from hour of day (missing in 100 % of rows)" in first.change
    assert f"(accuracy in window {first.window}: {first.change})" in str(result)


def test_auto_takes_neither_ids_nor_columns_that_have_another_use(tmp_path: Path) -> None:
    monitor = Monitor(CLASSES, **SETTINGS).fit(with_hours(REFERENCE), **NAMES, features="auto")
    [task] = load_config(str(monitor.to_config(tmp_path / "blindsight.yaml"))).scored_tasks.values()
    assert task.features == {"hour of day": "number", "airline": "text"}


def test_features_are_named_once_and_in_a_list() -> None:
    with pytest.raises(ConfigError, match=r"expected features to be a list of columns"):
        Monitor(CLASSES).fit(REFERENCE, **NAMES, features="hour")  # type: ignore[arg-type]
    twice = Monitor(CLASSES, features={"hour of day": "number"})
    with pytest.raises(ConfigError, match="expected features here or in Monitor, got both"):
        twice.fit(with_hours(REFERENCE), **NAMES, features=["airline"])
    with pytest.raises(ConfigError, match=r"no column 'hour', which features\.hour names"):
        Monitor(CLASSES).fit(with_hours(REFERENCE), **NAMES, features=["hour"])
