"""`check`: false alarms a week against arithmetic by hand; each warning where it is due, and only there."""

import math

import pytest
from scipy.stats import norm

from monitor import Shewhart, false_alarm_rate
from monitor.base.errors import ConfigError
from monitor.cli.check.check import ChartRate, check
from monitor.cli.check.text import render
from monitor.config.file import config_from, load_config
from monitor.config.root import ChartConfig, Config, Task
from monitor.config.task import charted_metrics, window_rows
from monitor.engine.charting import chart_from_config
from monitor.engine.judge import Judge, JudgeSettings

STDIN = [{"kind": "stdin"}]
QUIET = {"reference": {"path": "r.csv"}, "labels": {"max_answers": 500_000_000}}


def report(reference_windows=None, **task):
    known = reference_windows or windows_of(task)
    return check(Config(tasks={"t": {**QUIET, **task}}, sources=STDIN), known)


def windows_of(task, windows=40):
    """Return a reference that holds what the task lists."""
    return {"t": dict.fromkeys(task.get("models", ["m"]), windows)}


def test_false_alarms_a_week_are_windows_times_the_rate():
    checked = report(metrics=["accuracy"], models={"m": {"answers_per_day": 50_000}}, chart={"arl0": 200})
    (chart,) = checked.charts
    assert chart == ChartRate("t", "m", "accuracy", pytest.approx(1 / 200, rel=1e-6), 100.0)
    assert chart.false_alarms_per_week == pytest.approx(100 * 7 / 200, rel=1e-6)
    assert checked.false_alarms_per_week == pytest.approx(3.5, rel=1e-6)
    assert checked.warnings == ()


def test_a_change_that_does_not_matter_is_no_false_alarm():
    """Windows with a standard deviation of 0.0025 alarm beyond four of them, at one point of accuracy."""
    task = {**QUIET, "metrics": ["accuracy"], "models": {"m": {"answers_per_day": 50_000}}}
    config = Config(tasks={"t": task}, sources=STDIN)
    windows = {"t": {"m": 40}}
    for sd, rate in ((0.0025, 2 * norm.sf(4 / math.sqrt(1 + 1 / 40))), (0.02, 1 / 370)):
        [chart] = check(config, windows, {"t": {"m": {"accuracy": sd}}}).charts
        assert chart.false_alarms_per_window == pytest.approx(rate, rel=0.1)
    plain = Config(tasks={"t": {**task, "chart": {"min_change": 0}}}, sources=STDIN)
    [chart] = check(plain, windows, {"t": {"m": {"accuracy": 0.0025}}}).charts
    assert chart.false_alarms_per_window == pytest.approx(1 / 370, rel=1e-6)


def test_the_sum_is_over_models_metrics_and_tasks():
    task = {**QUIET, "chart": {"arl0": 100}, "window": {"size": 100, "max_age_seconds": 1e6}}
    two = {**task, "models": {"a": {"answers_per_day": 1000}, "b": {"answers_per_day": 500}}}
    one = {**task, "models": {"c": {"answers_per_day": 100}}, "metrics": ["accuracy"]}
    checked = check(Config(tasks={"two": two, "one": one}, sources=STDIN))
    shown = [(chart.task, chart.model, chart.metric, chart.windows_per_day) for chart in checked.charts]
    assert shown == [
        ("two", "a", "accuracy", 10),
        ("two", "b", "accuracy", 5),
        ("two", "a", "ece", 10),
        ("two", "b", "ece", 5),
        ("one", "c", "accuracy", 1),
    ]
    assert checked.false_alarms_per_week == pytest.approx((10 + 5 + 10 + 5 + 1) * 7 / 100, rel=1e-6)


def test_models_of_unknown_traffic_are_told_by_windows_and_left_out_of_the_sum():
    checked = report(models={"a": {"answers_per_day": 50_000}, "b": {}}, metrics=["accuracy"])
    assert checked.charts[1].false_alarms_per_week is None
    assert checked.false_alarms_per_week == pytest.approx(700 / 370, rel=1e-6)
    text = render(checked)
    assert "  t, a, accuracy: 1.9 a week (100 windows a day)\n" in text
    assert "  t, b, accuracy: 2.7 in 1,000 windows (answers_per_day is not given)\n" in text
    assert "All charts together: 1.9 a week, without 1 of unknown traffic." in text


def test_without_models_each_model_is_told_by_windows():
    checked = report(metrics=["accuracy"])
    assert (checked.charts[0].model, checked.false_alarms_per_week) == (None, None)
    assert "  t, each model, accuracy: 2.7 in 1,000 windows" in render(checked)
    assert "give answers_per_day of the models for a prediction of false alarms a week" in render(checked)


def test_groups_come_on_top_a_chart_each_value():
    checked = report(
        groups=["region"], models={"m": {"answers_per_day": 50_000}, "n": {"answers_per_day": 5e4}}
    )
    text = render(checked)
    assert text.count("t, each model and value of region, accuracy: 2.7 in 1,000 windows of its own") == 1
    assert text.count("t, each model and value of region, ece: 2.7 in 1,000 windows of its own") == 1
    assert "All charts together: 15 a week, 7.6 of them of groups." in text


@pytest.mark.parametrize(
    ("answers_per_day", "rows"), [(96_000, 500), (48_000, 500), (24_000, 250), (4_800, 50), (10, 50)]
)
def test_windows_close_by_size_by_age_or_at_the_least_size(answers_per_day, rows):
    assert window_rows(Task(), answers_per_day) == rows


@pytest.mark.slow
def test_sigmas_and_rules_go_through_the_charts_own_arithmetic():
    chart = ChartConfig(sigmas=3, rules=["we1", "we2", "we3", "we4"])
    checked = report({"t": {"m": 20}}, chart=chart, metrics=["accuracy"])
    assert checked.charts[0].false_alarms_per_window == false_alarm_rate(chart_from_config(chart), 20)
    assert 1 / 92 < checked.charts[0].false_alarms_per_window < 1 / 40


def test_a_reference_file_that_was_not_read_is_taken_to_be_long():
    config = Config(tasks={"t": {"reference": {"path": "r"}, "chart": {"sigmas": 3}}}, sources=STDIN)
    assert check(config).charts[0].false_alarms_per_window == false_alarm_rate(
        chart_from_config(ChartConfig(sigmas=3.0)), math.inf
    )
    assert check(config).warnings == (
        "tasks.t.reference.path: not read; the charts want 20 windows or more, "
        "so 10,000 labelled rows a model",
    )
    assert check(config, {"t": {"m": 30}}).warnings == ()


def test_calibration_errors_keep_shewhart_beside_a_p_chart():
    checked = report({"t": {"m": 20}}, chart={"kind": "shewhart_p", "sigmas": 3})
    p_chart, shewhart = (chart.false_alarms_per_window for chart in checked.charts)
    assert shewhart == false_alarm_rate(chart_from_config(ChartConfig(kind="shewhart", sigmas=3.0)), 20)
    assert (
        p_chart
        == false_alarm_rate(chart_from_config(ChartConfig(kind="shewhart_p", sigmas=3.0)), 20)
        != shewhart
    )
    assert checked.warnings[0].startswith("tasks.t.chart.kind: shewhart_p expects the variation of labels")
    assert checked.warnings[1] == (
        "tasks.t.chart.kind: shewhart_p is for shares of successes, so for accuracy only; ece keeps shewhart"
    )


@pytest.mark.parametrize(
    ("task", "charted"),
    [
        ({"reference": {"path": "r"}}, ("accuracy", "ece")),
        ({"reference": {"path": "r"}, "calibration": {"method": "none"}}, ("accuracy",)),
        ({"reference": {"first_windows": 20}}, ("accuracy",)),
        ({"reference": {"first_windows": 20}, "metrics": ["ece"]}, ()),
    ],
)
def test_calibration_errors_are_charted_only_with_a_calibration(task, charted):
    assert charted_metrics(Task(**task)) == charted


def test_an_arl0_out_of_reach_is_refused_with_its_key():
    with pytest.raises(ConfigError, match=r"^tasks\.t\.chart: arl0: got 370.*we4 reach at most"):
        report({"t": {"m": 20}}, chart={"arl0": 370, "rules": ["we4"]})


FIRST = {"first_windows": 20}


@pytest.mark.parametrize(
    ("task", "warning"),
    [
        (
            {"reference": FIRST},
            "calibration.method: stays none, because reference.first_windows has no labels to fit isotonic "
            "on; "
            "the agent uses the raw scores; ece stays unknown; give reference.path",
        ),
        (
            {
                "calibration": {"method": "none"},
                "classes": ["a", "b"],
                "metrics": ["accuracy", "ece", "class_ece"],
            },
            "calibration.method: none; ece and class_ece stay unknown; take isotonic, "
            "and give reference.path",
        ),
        (
            {"reference": {"first_windows": 10}, "calibration": {"method": "none"}, "metrics": ["accuracy"]},
            "reference: 10 windows are few to estimate the variation between windows, so some models alarm "
            "far more often than predicted and some less; give 20 or more",
        ),
        (
            {"objective": {"accuracy": {"max": 0.9}}},
            "objective.accuracy: a ceiling is breached by a model that is too good; is min meant?",
        ),
        (
            {"objective": {"ece": {"min": 0.1}}},
            "objective.ece: a floor is breached by a model that is too well calibrated; is max meant?",
        ),
        (
            {"metrics": ["accuracy", "recall"], "classes": ["a", "b"], "objective": {"recall": {"max": 0.9}}},
            "objective.recall: a ceiling is breached by a model that is too good; is min meant?",
        ),
        (
            {
                "metrics": ["accuracy"],
                "estimators": ["average_confidence", "doc", "atc"],
                "calibration": {"method": "none"},
                "reference": {"first_windows": 30},
            },
            "estimators: doc and atc stay unknown, because reference.first_windows has no labels to fit "
            "on; give reference.path",
        ),
        (
            {"objective": {"accuracy": {"min": 0}}},
            "objective.accuracy: 0 can never be breached; leave the objective out, or move the bound",
        ),
        (
            {"objective": {"ece": {"max": 0}}},
            "objective.ece: 0 can hardly ever be met, because intervals reach beyond it; move the bound",
        ),
        (
            {"models": {"m": {"answers_per_day": 24_000}}},
            "window.max_age_seconds: at 24,000 answers a day the windows of m close early, with about 250 of "
            "500 predictions; the reference's hold 500, so limits are 1.4 times as wide; "
            "raise it to 1,800, or lower size",
        ),
        (
            {
                "metrics": ["accuracy"],
                "calibration": {"method": "none"},
                "reference": {"first_windows": 30},
                "models": {"m": {"answers_per_day": 24_000}},
            },
            "window.max_age_seconds: at 24,000 answers a day the windows of m close early, with about 250 of "
            "500 predictions; raise it to 1,800, or lower size",
        ),
        (
            {"models": {"m": {"answers_per_day": 50_000}}, "labels": {}},
            "labels.max_answers: 1,000,000 answers are 20 days of traffic, less than horizon_days (30), so "
            "later labels find no prediction; raise it to 1,500,000",
        ),
        (
            {"models": {"a": {}, "b": {}}, "max_series": 1},
            "max_series: 1 is less than the 2 models; raise it",
        ),
    ],
)
def test_what_cannot_work_as_meant_is_told_once(task, warning):
    windows = None if task.get("reference", {}).get("first_windows") else windows_of(task)
    checked = check(Config(tasks={"t": {**QUIET, **task}}, sources=STDIN), windows)
    assert checked.warnings == (f"tasks.t.{warning}",)
    assert f"\nWarnings:\n  tasks.t.{warning}" in render(checked)


@pytest.mark.parametrize(
    ("objective", "warnings"),
    [
        ({"mae": {"max": 1.0}, "r2": {"min": 0.5}, "bias": {"min": 0}, "coverage": {"max": 1}}, ()),
        (
            {"mae": {"min": 0}},
            (
                "tasks.t.objective.mae: a floor is breached by a model that is too good; is max meant?",
                "tasks.t.objective.mae: 0 can never be breached; leave the objective out, or move the bound",
            ),
        ),
        (
            {"r2": {"max": 0.5}},
            ("tasks.t.objective.r2: a ceiling is breached by a model that is too good; is min meant?",),
        ),
    ],
)
def test_bounds_of_errors_that_cannot_work_as_meant_are_named(objective, warnings):
    task = {
        "kind": "regression",
        "tolerance": 1,
        "quantiles": [0.1, 0.9],
        "error_metrics": ["mae", "bias", "coverage", "r2"],
        "reference": {"path": "reference.ndjson"},
        "objective": objective,
    }
    checked = check(Config(tasks={"t": task}, sources=STDIN), {"t": {"erm": 40}})
    assert [each for each in checked.warnings if "objective" in each] == list(warnings)


SHADOW = {"models": {"erm": {}, "shadow": {"answers_per_day": 5e4}}, "labels": {"max_answers": 500_000_000}}


def test_a_floor_of_recall_without_a_calibration_is_nothing_to_warn_of():
    task = {"classes": ["a", "b"], "calibration": {"method": "none"}, "metrics": ["accuracy", "recall"]}
    checked = report({"t": {"erm": 40}}, **task, objective={"recall": {"min": 0.8}})
    assert checked.warnings == ()


def test_a_chart_of_what_is_fitted_on_a_reference_is_not_of_models_that_it_lacks():
    task = {
        "metrics": ["accuracy"],
        "estimators": ["average_confidence", "doc"],
        "chart": {"estimator": "doc"},
    }
    checked = report({"t": {"erm": 40}}, **SHADOW, **task)
    assert checked.warnings == (
        "tasks.t.models.shadow: the reference has no rows of this model: it will not be calibrated, its doc "
        "stays unknown, so that its accuracy is not charted; add rows",
    )
    assert [chart.model for chart in checked.charts] == ["erm"]


@pytest.mark.parametrize(
    ("task", "warning"),
    [
        ({}, "it will not be calibrated, its ece stays unknown; add rows"),
        ({"metrics": ["accuracy"]}, "it will not be calibrated; add rows"),
        (
            {"metrics": ["accuracy"], "calibration": {"method": "none"}},
            "its charts are drawn from the stream's first windows; add rows",
        ),
    ],
)
def test_a_model_that_the_reference_lacks_is_told_and_has_no_chart_of_calibration(task, warning):
    checked = report({"t": {"erm": 40}}, **SHADOW, **task)
    message = f"tasks.t.models.shadow: the reference has no rows of this model: {warning}"
    assert checked.warnings == (message,)
    charts = [(chart.model, chart.metric) for chart in checked.charts if chart.model == "shadow"]
    assert charts == [("shadow", "accuracy")]
    assert {chart.metric for chart in checked.charts if chart.model == "erm"} == set(
        task.get("metrics", ["accuracy", "ece"])
    )
    config = Config(tasks={"t": {**QUIET, **SHADOW, **task}})
    assert check(config, {"t": {"erm": 40}}).unmatched == (message,)
    assert check(config, {}).unmatched == ()


def test_a_model_that_only_the_reference_knows_is_told():
    checked = report({"t": {"erm": 40, "old": 40}}, models={"erm": {}})
    assert checked.warnings == (
        "tasks.t.models: the reference has rows of old, which is not listed; list it if it answers",
    )
    assert report({"t": {"erm": 40, "old": 40}}).warnings == (), "without a list every model may answer"


def test_each_model_has_the_false_alarms_of_its_own_reference():
    chart = {"sigmas": 3}
    checked = report({"t": {"a": 20, "b": 200}}, models={"a": {}, "b": {}}, metrics=["accuracy"], chart=chart)
    rates = {chart.model: chart.false_alarms_per_window for chart in checked.charts}
    for model, windows in (("a", 20), ("b", 200)):
        assert rates[model] == false_alarm_rate(chart_from_config(ChartConfig(**chart)), windows)
    assert rates["a"] > rates["b"]
    unnamed = report({"t": {"a": 20, "b": 200}}, metrics=["accuracy"], chart=chart)
    assert unnamed.charts[0].false_alarms_per_window == rates["a"], "that of the shortest"


def test_an_objective_of_what_stays_unknown_cannot_be_judged():
    checked = report(reference=FIRST, objective={"ece": {"max": 0.05}})
    assert (
        "tasks.t.objective.ece: cannot be judged, because ece is unknown without a calibration"
        in checked.warnings
    )


def test_a_reference_that_takes_days_is_told():
    window = {"size": 500, "max_age_seconds": 1e6}
    checked = check(
        Config(
            tasks={"t": {"reference": FIRST, "window": window, "models": {"m": {"answers_per_day": 2500}}}},
            sources=STDIN,
        )
    )
    assert (
        "tasks.t.reference.first_windows: 20 windows of m take 4 days; until then the model is warming up, "
        "and raises no alarm"
    ) in checked.warnings


def test_nothing_charted_is_said():
    checked = report(reference=FIRST, metrics=["ece"])
    assert "tasks.t.metrics: no metric has a chart; add accuracy" in checked.warnings
    assert render(checked).startswith(
        "The configuration is valid. It has no charts, so there will be no alarms.\n"
    )


def test_a_model_of_two_tasks_and_a_missing_source_are_told():
    task = {**QUIET, "models": {"m": {}}}
    checked = check(Config(tasks={"a": task, "b": task}), {"a": {"m": 40}, "b": {"m": 40}})
    assert checked.warnings == (
        "sources: there are none; `run` needs one, `replay` does not",
        "tasks.b.models.m: a has it too; its records must name the task",
    )


def test_the_keys_that_state_needs_which_moves_with_partitions_are_told():
    joined = {
        "classes": ["a", "b"],
        "models": {"m": {}, "n": {}},
        "estimators": ["average_confidence", "ssme"],
    }
    store = {"postgres": "postgresql://db/m", "by_partition": True}
    source = {"kind": "kafka", "brokers": ["broker:9092"], "topics": ["t"]}
    config = {"tasks": {"a": {**QUIET, "models": {"x": {}}}, "b": joined}, "sources": [source]}
    assert not any("by_partition" in warning for warning in check(Config.model_validate(config)).warnings)
    checked = check(Config.model_validate(config | {"store": store}))
    assert [warning for warning in checked.warnings if "by_partition" in warning] == [
        "store.by_partition: give each message its model as key, each label the key of its prediction, and "
        "all topics equally many partitions; without keys each partition makes its own windows of a model",
        "tasks.b: it compares the answers of several models, so with store.by_partition the key of its "
        "messages must be the task",
    ]


def test_the_example_has_only_the_warning_that_it_explains(pytestconfig):
    checked = check(load_config(pytestconfig.rootpath / "config.example.yaml"))
    assert [warning.partition(":")[0] for warning in checked.warnings] == [
        "tasks.toxicity.calibration.method"
    ]
    assert "All charts together: 7.6 a week, 3.8 of them of groups." in render(checked)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["shewhart", "ewma", "cusum"])
def test_a_budget_is_shared_out_over_models_metrics_and_groups(kind):
    # 100 and 50 windows a day, two metrics, and two names of groups whose values share a model's answers
    models = {"a": {"answers_per_day": 50_000}, "b": {"answers_per_day": 25_000}}
    chart = {"kind": kind, "arl0": {"false_alarms_per_week": 2}}
    window = {"size": 500, "max_age_seconds": 1e6}
    checked = report(models=models, chart=chart, window=window, groups=["region", "device"])
    (shared,) = checked.shared
    assert (shared.windows_per_week, shared.arl0) == (7 * 150 * 2 * 3, 3150)
    assert all(c.false_alarms_per_window == pytest.approx(1 / 3150, rel=1e-5) for c in checked.charts)
    assert 3 * checked.false_alarms_per_week == pytest.approx(2.0, rel=1e-5), "two thirds are those of groups"
    assert "All charts together: 2 a week, 1.3 of them of groups." in render(checked)
    assert (
        "  t: 2 a week, groups included, divided among 6,300 windows a week: "
        "an ARL0 of 3,150 windows a chart\n"
    ) in render(checked)


def test_the_budget_of_drift_is_promised_beside_the_charts():
    models, features = {"a": {"answers_per_day": 50_000}}, {"hour": "number"}
    chart = {"features": {"false_alarms_per_week": 0.2}}
    checked = report(models=models, chart=chart, features=features)
    assert checked.features == {"t": 0.2}
    assert "\nBeside them, features of t that drift: at most 0.2 a week." in render(checked)
    without = report(models=models, features=features)
    assert checked.false_alarms_per_week == without.false_alarms_per_week
    assert "that drift" not in render(without)


def test_a_budget_reaches_the_charts_of_the_agent():
    chart = {"arl0": {"false_alarms_per_week": 1}}
    task = Task(models={"m": {"answers_per_day": 50_000}}, metrics=("accuracy",), chart=chart)
    assert JudgeSettings(task).chart("accuracy") == Shewhart(arl0=700.0, min_change=0.01, better=1)
    assert Judge(JudgeSettings(task)).violations == {("accuracy", "we1"): 0}
    ewma = Task(metrics=("accuracy", "ece"), chart={"kind": "ewma"})
    assert set(Judge(JudgeSettings(ewma)).violations) == {("accuracy", "ewma"), ("ece", "ewma")}


def test_traffic_that_no_window_could_be_counted_by_is_refused() -> None:
    """Sums and ratios of larger numbers are infinite."""
    message = r"m\.answers_per_day: expected a number above 0 and at most 1e\+12, got 1e"
    with pytest.raises(ConfigError, match=message):
        config_from({"tasks": {"t": {"models": {"m": {"answers_per_day": 1e308}}}}})
