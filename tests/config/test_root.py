"""The configuration's models: what YAML naturally gives is taken, what does not go together is refused."""

import pytest
from pydantic import ValidationError

from monitor.base.errors import ConfigError
from monitor.config.file import config_from
from monitor.config.root import (
    Bound,
    ChartConfig,
    Config,
    FileSourceConfig,
    KafkaSourceConfig,
    ModelConfig,
    ObjectiveConfig,
    ReferenceConfig,
    StdinSourceConfig,
    Task,
    Window,
    listen_address,
)


def problem(section, **values) -> str:
    with pytest.raises(ValidationError) as caught:
        section(**values)
    return str(caught.value)


def test_lists_whole_numbers_and_integers_are_taken_as_yaml_writes_them():
    task = Task(
        classes=["ok", "toxic"],
        window={"size": 200.0, "max_age_seconds": 60},
        reference={"first_windows": 8.0},
        chart={"arl0": 100, "rules": [1, 4.0, "we2"]},
    )
    assert task.classes == ("ok", "toxic")
    assert (task.window.size, type(task.window.size)) == (200, int)
    assert (task.window.max_age_seconds, type(task.window.max_age_seconds)) == (60.0, float)
    assert (task.reference.first_windows, type(task.reference.first_windows)) == (8, int)
    assert task.chart.rules == ("we1", "we4", "we2")


def test_what_was_given_is_not_changed():
    settings = {"classes": ["ok", "toxic"], "window": {"size": 20.0}, "chart": {"rules": [1]}}
    Config(tasks={"t": settings})
    assert settings == {"classes": ["ok", "toxic"], "window": {"size": 20.0}, "chart": {"rules": [1]}}
    assert isinstance(settings["classes"], list)
    assert isinstance(settings["window"]["size"], float)


@pytest.mark.parametrize("value", ["500", True, 500.5, None, [500]])
def test_nothing_else_becomes_an_integer(value):
    assert "size" in problem(Window, size=value)


@pytest.mark.parametrize("value", ["0.9", True, None])
def test_nothing_else_becomes_a_number(value):
    assert "level" in problem(Task, level=value)


@pytest.mark.parametrize("value", [0, 5, True, "1", "we5", 1.5])
def test_only_the_bare_numbers_1_to_4_mean_rules(value):
    assert "we1" in problem(ChartConfig, rules=[value])


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_numbers_are_finite(value):
    assert "finite" in problem(Window, max_age_seconds=value)


def test_sections_are_frozen():
    with pytest.raises(ValidationError, match="frozen"):
        Window().size = 3


@pytest.mark.parametrize(("size", "min_size"), [(10, 10), (30, 30), (50, 50), (49.0, 49), (500, 50)])
def test_min_size_follows_a_small_window_unless_it_is_given(size, min_size):
    assert Window(size=size).min_size == min_size


def test_min_size_that_is_given_must_fit():
    assert "min_size: expected at most size (20), got 30" in problem(Window, size=20, min_size=30)
    assert Window(size=30, min_size=30).min_size == 30


@pytest.mark.parametrize(
    ("settings", "got"), [({}, "neither"), ({"path": "r.csv", "first_windows": 20}, "both")]
)
def test_a_reference_is_one_of_two(settings, got):
    assert f"expected either path or first_windows, got {got}" in problem(ReferenceConfig, **settings)


@pytest.mark.parametrize(("settings", "got"), [({}, "neither"), ({"min": 0.1, "max": 0.2}, "both")])
def test_a_bound_is_one_of_two(settings, got):
    assert f"expected either min or max, got {got}" in problem(Bound, **settings)


def test_limits_come_from_one_of_two():
    assert "expected arl0 or sigmas, got both (370 and 3)" in problem(ChartConfig, arl0=370, sigmas=3)


def test_a_season_has_a_time_zone_that_exists():
    assert ChartConfig(season="hour_of_week", time_zone="Europe/Berlin").time_zone == "Europe/Berlin"
    wrong = problem(ChartConfig, season="hour_of_week", time_zone="Berlin")
    assert (
        "time_zone: expected the IANA name of a time zone, got 'Berlin': did you mean Europe/Berlin?" in wrong
    )
    assert (
        "time_zone: expected season beside it, got 'Europe/Berlin' alone: add season: hour_of_week, or leave "
        "time_zone out"
    ) in problem(ChartConfig, time_zone="Europe/Berlin")


def test_bounds_of_an_objective_are_those_that_are_set():
    objective = ObjectiveConfig(accuracy={"min": 0.9}, class_ece={"max": 0.05})
    assert objective.bounds() == {"accuracy": Bound(min=0.9), "class_ece": Bound(max=0.05)}


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"classes": ["ok"]}, "classes: expected at least two classes, or none, got 'ok' only"),
        ({"classes": ["a", "b", "a"]}, "classes: expected each name once, got 'a' 2 times"),
        ({"classes": ["a", "<class of score 1>"]}, "classes[1]: expected the name of a class, got the place"),
        ({"classes": ["a", "b", ""]}, "classes: expected names of 1 to 200 characters"),
        ({"classes": ["a", "b\n"]}, "without double quotes or control characters, got 'b\\\\n'"),
        ({"classes": ["a", "\ud800"]}, "without double quotes or control characters"),
        ({"positive": "a"}, "positive: expected two classes for this key, got 0: leave it out"),
        ({"classes": ["a", "b", "c"], "positive": "a"}, "positive: expected two classes for this key, got 3"),
        (
            {"classes": ["a", "b"], "positive": "c"},
            "positive: expected one of the classes (a, b), got 'c'",
        ),
        ({"groups": ["a", "a"]}, "groups: expected each name once"),
        ({"groups": ["a=b"]}, "without double quotes, equals signs or control characters, got 'a=b'"),
        ({"models": {'a"b': {}}}, "models: expected names of 1 to 200 characters"),
        ({"metrics": ["ece", "ece"]}, "metrics: expected each name once"),
        ({"metrics": ["class_ece"]}, "metrics: expected classes to be given with class_ece, got none"),
        ({"metrics": ["f1"]}, "with f1, got none: list classes, or use accuracy"),
        (
            {"classes": ["a", "b"], "average": "micro"},
            "average: expected three classes or more for micro, got 2: leave it out",
        ),
        ({"estimators": ["realised", "realised"]}, "estimators: expected each name once"),
        (
            {"estimators": ["average_confidence", "ssme"], "ssme": {"models": ["a"]}},
            "estimators: expected classes to be given with ssme, got none: list classes, or leave ssme out",
        ),
        (
            {"calibration": {"method": "ssme"}, "ssme": {"models": ["a"]}},
            "calibration.method: expected classes to be given with ssme, got none",
        ),
        (
            {"classes": ["a", "b"], "estimators": ["average_confidence", "labelled"]},
            "ssme.models: expected the models whose scores labelled joins, got none: list them here, or in",
        ),
        (
            {"models": {"erm": {}, "irm": {}}, "ssme": {"models": ["erm", "imr"]}},
            "ssme.models: expected some of models (erm, irm), got 'imr'",
        ),
        ({"ssme": {"models": ["erm", "erm"]}}, "ssme.models: expected each name once, got 'erm' 2 times"),
        (
            {"estimators": ["realised"]},
            "estimators: expected a list with average_confidence, as charts and objectives judge accuracy by "
            "it, got realised: add it",
        ),
        (
            {"estimators": ["realised"], "chart": {"estimator": "average_confidence"}},
            "chart.estimator: expected one of estimators (realised), got 'average_confidence': add it there",
        ),
        (
            {"estimators": ["average_confidence"], "chart": {"estimator": "doc"}, "reference": {"path": "r"}},
            "chart.estimator: expected one of estimators (average_confidence), got 'doc': add it there",
        ),
        (
            {"estimators": ["doc"], "chart": {"estimator": "doc"}, "reference": {"path": "r"}},
            "estimators: expected a list with average_confidence, as charts and objectives judge ece by it",
        ),
        (
            {"estimators": ["average_confidence", "atc"], "chart": {"estimator": "atc"}},
            "chart.estimator: expected average_confidence without a labelled reference, got 'atc', which "
            "needs one: give reference.path",
        ),
        ({"chart": {"rules": [1, "we1"]}}, "rules: expected each name once, got 'we1' 2 times"),
        (
            {"metrics": ["accuracy"], "objective": {"ece": {"max": 0.1}}},
            "objective.ece: expected a metric that metrics lists (accuracy): add it there",
        ),
    ],
)
def test_values_of_a_task_that_do_not_go_together(settings, sentence):
    assert sentence.replace("\\\\", "\\") in problem(Task, **settings)


def test_all_that_does_not_go_together_is_told_at_once():
    text = problem(Task, classes=["a"], positive="b", groups=["x", "x"], metrics=["ece", "ece"])
    assert all(f"{key}: expected" in text for key in ("classes", "positive", "groups", "metrics"))


def test_calibration_without_labels_is_no_error():
    assert Task(calibration={"method": "isotonic"}, reference={"first_windows": 20}).reference.path is None


FILE = {"kind": "file", "path": "data/predictions.ndjson"}
KAFKA = {"kind": "kafka", "brokers": ["localhost:9092"], "topics": ["p"]}


def test_sources_have_names_given_or_derived():
    config = Config(tasks={"t": {}}, sources=[FILE, {"kind": "stdin"}, KAFKA, {**FILE, "name": "again"}])
    assert [source.label for source in config.sources] == ["predictions.ndjson", "stdin", "kafka", "again"]
    assert [type(source) for source in config.sources] == [
        FileSourceConfig,
        StdinSourceConfig,
        KafkaSourceConfig,
        FileSourceConfig,
    ]


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (
            {"sources": [FILE, KAFKA, {**FILE, "path": "old/predictions.ndjson"}]},
            "sources[2].name: expected another name than sources[0], got 'predictions.ndjson' for both",
        ),
        (
            {"sources": [{"kind": "stdin"}, {"kind": "stdin", "name": "x"}]},
            "sources[1].kind: expected one stdin source, got two: only one source can read it",
        ),
        ({"sources": [{"kind": "stdin", "name": "\t"}]}, "sources[0].name: expected names of 1 to 200"),
        ({"sources": [{**KAFKA, "topics": ["a", "a"]}]}, "topics: expected each name once"),
        ({"sources": [{**KAFKA, "stall_seconds": 0.5}]}, "greater than or equal to 1"),
        ({"sources": [{**KAFKA, "stall_seconds": 86_401}]}, "less than or equal to 86400"),
        ({"tasks": {" ": {}}}, "tasks: expected names of 1 to 200 characters"),
        (
            {"sources": [FILE], "reports": {"path": FILE["path"]}},
            "reports.path: expected another file than sources[0].path, "
            "got 'data/predictions.ndjson' for both",
        ),
        (
            {"reports": {"path": "x"}, "rejects": {"path": "x"}},
            "rejects.path: expected another file than reports.path, got 'x' for both",
        ),
        (
            {"tasks": {"t": {"reference": {"path": "x"}}}, "rejects": {"path": "x"}},
            "expected another file than tasks.t.reference.path, got 'x' for both",
        ),
    ],
)
def test_parts_of_a_configuration_that_do_not_go_together(settings, sentence):
    assert sentence in problem(Config, **{"tasks": {"t": {}}, **settings})


def test_two_tasks_may_share_a_model_and_a_reference():
    task = {"models": {"erm": {}}, "reference": {"path": "x"}}
    assert len(Config(tasks={"a": task, "b": task}).tasks) == 2


def test_kafka_options_stay_out_of_the_printed_configuration():
    source = KafkaSourceConfig(
        **KAFKA, options={"sasl_plain_password": "hunter2", "api_version_auto_timeout_ms": 9}
    )
    assert "hunter2" not in repr(source)
    assert source.options == {"sasl_plain_password": "hunter2", "api_version_auto_timeout_ms": 9}


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:9109", ("127.0.0.1", 9109)),
        ("localhost:0", ("localhost", 0)),
        ("[::1]:65535", ("::1", 65535)),
        ("0.0.0.0:80", ("0.0.0.0", 80)),
    ],
)
def test_addresses_to_listen_on(text, address):
    assert listen_address(text) == address


@pytest.mark.parametrize(
    "text", [":9109", "9109", "localhost", "localhost:65536", "::1:80", "a b:1", "a:-1", ""]
)
def test_what_is_no_address_to_listen_on(text):
    with pytest.raises(ValueError, match="expected an address and a port from 0 to 65535, such as") as caught:
        listen_address(text)
    assert f"got {text!r}" in str(caught.value)
    assert "expected an address" in problem(Config, tasks={"t": {}}, export={"listen": text})


def test_output_goes_to_a_file_or_a_topic_or_both():
    topic = {"brokers": ["localhost:9092"], "topic": "windows"}
    config = Config(tasks={"t": {}}, reports={"kafka": topic}, rejects={"path": "r", "kafka": topic})
    assert (config.reports.path, config.reports.kafka.topic) == (None, "windows")
    assert (config.rejects.path, config.rejects.max_bytes) == ("r", 100_000_000)
    for key in ("reports", "rejects"):
        assert (
            f"{key}.path: expected a file here, or a topic under `kafka` beside it; got neither"
            in refused({"tasks": {"t": {}}, key: {}})
        )


@pytest.mark.parametrize("name", ["a b", "..", "x" * 250, "über"])
def test_a_topic_that_cannot_be_one(name):
    got = refused({"tasks": {"t": {}}, "reports": {"kafka": {"brokers": ["b"], "topic": name}}})
    sentence = "reports.kafka.topic: expected 1 to 249 letters, digits, dots, underscores or hyphens, got"
    assert f"{sentence} {name!r}" in got


def test_a_topics_options_stay_out_of_the_printed_configuration():
    topic = {"brokers": ["b"], "topic": "t", "options": {"sasl_plain_password": "hunter2"}}
    assert "hunter2" not in repr(Config(tasks={"t": {}}, reports={"kafka": topic}))


def refused(data):
    with pytest.raises(ConfigError) as error:
        config_from(data)
    return str(error.value)


@pytest.mark.parametrize(
    "text",
    [
        "models.example",
        "ftp://a",
        "http://",
        "http://a?b=1",
        "http://a#b",
        "http://a/{{ .x }}",
        'http://a"b',
        "http://a b",
    ],
)
def test_an_external_url_must_be_one_that_can_be_continued(text: str) -> None:
    assert refused({"tasks": {"t": {}}, "export": {"external_url": text}}).endswith(
        "\n  export.external_url: expected an address such as 'https://models.example/blindsight', without a "
        f"user, a query, spaces, quotes and braces, got {text!r}"
    )


def test_a_login_in_an_external_url_is_not_repeated() -> None:
    message = refused({"tasks": {"t": {}}, "export": {"external_url": "http://ann:secret@a.example"}})
    assert "secret" not in message
    config = config_from({"tasks": {"t": {}}, "export": {"external_url": "https://a.example/b/"}})
    assert config.export.external_url == "https://a.example/b"


def test_models_may_be_names_alone() -> None:
    assert Task(models=["erm", "irm"]).models == {"erm": ModelConfig(), "irm": ModelConfig()}
    with pytest.raises(ConfigError, match=r"tasks\.t\.models: expected each name once, got 'm' 2 times"):
        config_from({"tasks": {"t": {"models": ["m", "n", "m"]}}})
