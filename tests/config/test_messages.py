"""The message of every mistake in a configuration names the key, the value and the allowed values."""

import copy
from typing import get_args

import pytest
from pydantic import ValidationError

from monitor.base.errors import ConfigError
from monitor.config.file import config_from, schema
from monitor.config.messages import describe, findings, nearest, show_path
from monitor.config.root import RULES, Config, Metric

SCHEMA = schema()
BUDGET = "  tasks.t.chart.arl0.false_alarms_per_week"
MAPPING = {
    "id": "a.b",
    "class_scores": {"ok": "p"},
    "groups": {"region": "r"},
    "features": {"hour": "h"},
    "label": "l",
    "label_values": {"1": "ok"},
    "where": {"a": "b"},
    "constants": {"task": "t"},
}


def mapping():
    """One of its own for each source."""
    return copy.deepcopy(MAPPING)


BASE = {
    "tasks": {
        "t": {
            "classes": ["ok", "toxic"],
            "positive": "toxic",
            "window": {"size": 500, "min_size": 50, "max_age_seconds": 900},
            "reference": {"path": "reference.csv"},
            "calibration": {"method": "covariates"},
            "metrics": list(get_args(Metric)),
            "estimators": ["average_confidence"],
            "level": 0.9,
            "chart": {"rules": ["we1"], "kind": "shewhart", "features": {"false_alarms_per_week": 0.01}},
            "objective": {metric: {"min": 0.1} for metric in get_args(Metric)},
            "labels": {"horizon_days": 3, "max_bytes": 10_000_000},
            "ssme": {"models": ["m"], "every_seconds": 60},
            "groups": ["region"],
            "features": {"hour": "number"},
            "models": {"m": {"answers_per_day": 9}},
        },
        "delay": {
            "kind": "regression",
            "window": {"size": 500, "min_size": 50, "max_age_seconds": 900},
            "reference": {"path": "delays.csv"},
            "calibration": {"method": "platt"},
            "metrics": ["within_tolerance", "ece"],
            "estimators": ["average_confidence"],
            "level": 0.9,
            "chart": {"rules": ["we1"], "kind": "shewhart", "features": {"false_alarms_per_week": 0.01}},
            "labels": {"horizon_days": 3, "max_bytes": 10_000_000},
            "tolerance": 15,
            "quantiles": [0.05, 0.95],
            "error_metrics": ["mae"],
            "groups": ["region"],
            "features": {"hour": "number"},
            "models": {"m": {"answers_per_day": 9}},
            "objective": {"within_tolerance": {"min": 0.1}},
        },
        "chat": {
            "kind": "arena",
            "window": {"size": 500, "min_size": 50, "max_age_seconds": 900},
            "windows": 10,
            "models": ["x", "y"],
            "reference_model": "x",
            "labels": {"horizon_days": 3, "max_bytes": 10_000_000},
        },
    },
    "sources": [
        {"kind": "file", "path": "a.ndjson", "mapping": mapping()},
        {"kind": "stdin", "mapping": mapping()},
        {
            "kind": "kafka",
            "brokers": ["localhost:9092"],
            "topics": ["p"],
            "stall_seconds": 30,
            "driver": "confluent",
            "options": {"client_id": "x"},
            "mapping": mapping(),
        },
        {
            "kind": "http",
            "listen": "127.0.0.1:9108",
            "spool": {"path": "spool"},
            "tokens": [{"token_file": "t", "tasks": ["t"]}],
            "tls": {"cert": "c", "key": "k", "client_ca": "a"},
            "allowed_hosts": ["intake.example"],
            "mapping": mapping(),
            "observe": {"scorer": mapping()},
        },
    ],
    "reports": {
        "path": "windows.ndjson",
        "kafka": {"brokers": ["localhost:9092"], "topic": "windows", "options": {"client_id": "x"}},
    },
    "rejects": {
        "path": "rejects.ndjson",
        "kafka": {"brokers": ["b"], "topic": "r", "options": {"client_id": "x"}},
    },
    "store": {"path": "state"},
    "alertmanager": {
        "urls": ["https://a"],
        "labels": {"job": "b"},
        "headers": {"X-Scope-OrgID": "x"},
        "basic_auth": {"username": "u", "password_file": "p"},
        "tls": {"ca": "a", "cert": "c", "key": "k"},
    },
    "export": {
        "listen": "127.0.0.1:0",
        "tokens": [{"token_file": "t"}],
        "tls": {"cert": "c", "key": "k", "client_ca": "a"},
        "otlp": {
            "url": "https://collector/v1/metrics",
            "resource": {"team": "x"},
            "headers": {"X-Scope-OrgID": "x"},
            "basic_auth": {"username": "u", "password_file": "p"},
            "tls": {"ca": "a", "cert": "c", "key": "k"},
        },
    },
}
NAMES = {"tasks": "t", "models": "m", "options": "client_id", "labels": "job", "headers": "X-Scope-OrgID"}
TASKS = {"classification": "t", "arena": "chat", "regression": "delay"}
NAMES |= {"class_scores": "ok", "groups": "region", "features": "hour", "resource": "team"}
NAMES |= {"observe": "scorer", "label_values": "1", "where": "a", "quantiles": "0.05"}


def resolve(node):
    while {"$ref", "anyOf", "allOf"} & set(node):
        if "allOf" in node:  # pydantic before 2.9
            node = node["allOf"][0]
        elif "$ref" in node:
            node = SCHEMA["$defs"][node["$ref"].rsplit("/", 1)[1]]
        else:
            node = next(branch for branch in node["anyOf"] if branch.get("type") != "null")
    return node


def places(node=SCHEMA, path=()):
    """Yield every place of the schema: (path in BASE, resolved node)."""
    node = resolve(node)
    yield path, node
    for key, inner in node.get("properties", {}).items():
        yield from places(inner, (*path, key))
    more = node.get("additionalProperties")
    if isinstance(more, dict) and "discriminator" in more:
        for kind, reference in more["discriminator"]["mapping"].items():
            yield from places({"$ref": reference}, (*path, TASKS[kind]))
    elif isinstance(more, dict):
        yield from places(more, (*path, NAMES[path[-1]]))
    if "discriminator" in node.get("items", {}):
        for i, kind in enumerate(("file", "stdin", "kafka", "http")):
            yield from places({"$ref": node["items"]["discriminator"]["mapping"][kind]}, (*path, i))
    elif "items" in node:
        yield from places(node["items"], (*path, 0))


PLACES = list(places())
SECTIONS = [(path, node) for path, node in PLACES if "properties" in node]
LEAVES = [(path, node) for path, node in PLACES if path and "properties" not in node]
OF_SECTION = {
    section: [(path, node) for path, node in LEAVES if path[:-1] == section]
    for section in dict.fromkeys(path[:-1] for path, _ in LEAVES)
}
NUMBERS = [(path, node) for path, node in LEAVES if node.get("type") in ("integer", "number")]


def ids(some):
    return [show_path(path) for path, _ in some]


def changed(path, value):
    """Return `BASE` with another value; the parts that do not lead to it are shared with `BASE`."""
    data = inner = dict(BASE)
    for part in path[:-1]:
        below = inner.get(part, {}) if isinstance(inner, dict) else inner[part]
        inner[part] = copy.copy(below)
        inner = inner[part]
    inner[path[-1]] = value
    return data


def refusal(data, **keywords) -> str:
    with pytest.raises(ConfigError) as caught:
        config_from(data, **keywords)
    return str(caught.value)


def messages(data) -> list[str]:
    try:
        Config.model_validate(data)
    except ValidationError as error:
        return [str(finding) for finding in findings(error, SCHEMA)]
    return []


def lines_of(message: str) -> list[str]:
    return message.splitlines()[1:]


def test_the_base_of_these_tests_is_valid_and_the_schema_is_walked_whole():
    assert config_from(BASE).tasks["t"].positive == "toxic"
    assert len(SECTIONS) == 72
    assert {path[-1] for path, _ in LEAVES} >= {"size", "rules", "max_waiting", "follow", "brokers", "listen"}


@pytest.mark.parametrize(("path", "node"), SECTIONS, ids=ids(SECTIONS))
def test_a_key_that_is_nearly_right_is_refused_with_the_right_one(path, node):
    for key in node["properties"]:
        (line,) = lines_of(refusal(changed((*path, f"{key}_"), 1)))
        allowed = ", ".join(node["properties"])
        assert line == (
            f"  {show_path((*path, f'{key}_'))}: unknown key; did you mean {key!r}? Allowed: {allowed}"
        )


@pytest.mark.parametrize(("path", "node"), SECTIONS, ids=ids(SECTIONS))
def test_a_key_like_no_other_is_refused_with_all_that_are_allowed(path, node):
    (line,) = lines_of(refusal(changed((*path, "zzz"), 1)))
    assert line == f"  {show_path((*path, 'zzz'))}: unknown key. Allowed: {', '.join(node['properties'])}"


@pytest.mark.parametrize("leaves", OF_SECTION.values(), ids=map(show_path, OF_SECTION))
def test_a_wrong_type_is_refused_with_what_it_got_and_what_is_allowed(leaves):
    for path, node in leaves:
        if path[-2:] == ("options", "client_id") or {"label_values", "where"} & set(path[-2:-1]):
            wrong = [{"a": 1}]  # a single value is text, whatever it is
        elif path[-1] == "kind" and path[0] == "sources":
            wrong = [3, True, "zzz"]
        else:
            wrong = {
                "integer": ["zzz", True, 10.5, {"a": 1}],
                "number": ["zzz", True, {"a": 1}],
                "boolean": ["zzz", 1],
                "array": ["zzz", 3, {"a": 1}],
                "object": ["zzz", 3, [1]],
            }.get(node.get("type"), [{"a": 1}])
            wrong += ["zzz", 9] if "enum" in node or "const" in node else []
            wrong += [3, True] if node.get("type") == "string" and "enum" not in node else []
        if path[-1] in ("arl0", "min_change"):  # a number or a mapping
            wrong = ["zzz", True, [1]]
        for value in wrong:
            (line,) = lines_of(refusal(changed(path, value)))
            assert line.startswith(f"  {show_path(path)}: expected "), (line, value)
            assert ", got " in line, (line, value)


@pytest.mark.parametrize(("path", "node"), SECTIONS[1:], ids=ids(SECTIONS[1:]))
def test_a_section_that_is_none_is_refused(path, node):
    for value, got in ((3, "3"), ("zzz", "'zzz'"), ([], "an empty list")):
        got = "a value that is not shown" if {"tokens", "basic_auth"} & set(path) else got
        (line,) = lines_of(refusal(changed(path, value)))
        assert line.startswith(f"  {show_path(path)}: expected a mapping with ")
        assert f", got {got}" in line


@pytest.mark.parametrize(("path", "node"), NUMBERS, ids=ids(NUMBERS))
def test_ranges_end_where_the_schema_says(path, node):
    step = 1 if node["type"] == "integer" else 1e-6
    outside = [node[key] - max(step, -1e-12 * node[key]) for key in ("minimum",) if key in node]
    outside += [node[key] + max(step, 1e-12 * node[key]) for key in ("maximum",) if key in node]
    outside += [node[key] for key in ("exclusiveMinimum", "exclusiveMaximum") if key in node]
    assert outside, "a number without a range"
    for value in outside:
        (line,) = lines_of(refusal(changed(path, value)))
        got = "a value that is not shown" if "tokens" in path else repr(value)
        assert line.startswith(f"  {show_path(path)}: expected {describe(node)}, got {got}")
    for value in (node[key] for key in ("minimum", "maximum") if key in node):
        # Another check may refuse the end of a range, the range itself must not.
        assert describe(node) not in " ".join(messages(changed(path, value)))


@pytest.mark.parametrize(
    ("path", "key"),
    [
        (path, key)
        for path, node in SECTIONS
        for key in node.get("required", ())
        if (path, key)
        not in {(("tasks", name), "kind") for name in ("chat", "delay")}  # by default one of classes
    ],
)
def test_a_required_key_that_is_missing_is_named(path, key):
    data = copy.deepcopy(BASE)
    inner = data
    for part in path:
        inner = inner[part]
    del inner[key]
    (line,) = lines_of(refusal(data))
    assert line.startswith(f"  {show_path((*path, key))}: missing; expected ")


@pytest.mark.parametrize(
    ("path", "value", "sentence"),
    [
        ("window.size", "5oo", "expected an integer from 10 to 1000000, got '5oo'"),
        ("window.size", "1e3", "got '1e3': write 1000, without quotes"),
        ("window.size", 10**300, "got a huge number"),
        ("level", float("nan"), "expected a number above 0.5 and below 1, got nan"),
        ("level", 100, "expected a number above 0.5 and below 1, got 100"),
        ("objective.accuracy.min", 90, "expected a number from 0 to 1, got 90: write 0.9"),
        ("objective.roc_auc", {"min": 0.9}, "roc_auc: unknown key; did you mean 'auroc'?"),
        ("metrics", "ece", "expected a list with at least one entry, got 'ece': write it as a list, [ece]"),
        ("metrics", ["acuracy"], "expected one of accuracy, ece, class_ece, precision, recall, "),
        ("window", None, "got nothing: give a value or leave the key out; {} takes the defaults"),
        ("chart.rules", [], "expected a list with at least one entry, got an empty list"),
        ("chart.rules", [7], f"expected one of {', '.join(RULES)}, 1, 2, 3, 4, got 7"),
        (
            "chart.arl0",
            "370",
            "chart.arl0: expected a number from 10 to 1000000, got '370': write 370, without",
        ),
        ("chart.arl0", 5, "chart.arl0: expected a number from 10 to 1000000, got 5"),
        (
            "chart.arl0",
            {},
            "chart.arl0.false_alarms_per_week: missing; expected a number above 0 and at most",
        ),
        (
            "chart.arl0",
            {"false_alarms_per_week": 0},
            "chart.arl0.false_alarms_per_week: expected a number above 0 and at most 1000, got 0",
        ),
        (
            "chart.arl0",
            {"false_alarms_a_week": 1},
            "chart.arl0.false_alarms_a_week: unknown key; did you mean 'false_alarms_per_week'?",
        ),
        (
            "chart",
            {"sigmas": 3, "arl0": {"false_alarms_per_week": 1}},
            "chart: expected arl0 or sigmas, got both (false_alarms_per_week 1 and 3)",
        ),
        (
            "chart",
            {"kind": "ewma", "rules": ["we2"]},
            "chart.rules: expected no rules with kind ewma, got we2: leave it out",
        ),
        ("chart.shift", 2, "chart.shift: expected kind ewma or cusum for this key, got shewhart: leave"),
        ("chart", {"kind": "cusum", "weight": 0.2}, "expected kind ewma for this key, got cusum: leave"),
        ("arl0", 100, "unknown key here; it belongs under 'chart'."),
        ("classes", [False, True], "classes[0]: expected text, got false: YAML reads yes, no, on, off"),
        ("classes", [0, 1], "classes[1]: expected text, got 1: put it in quotes"),
        ("models", {1: {}}, "expected names as text, got 1 as a name: put it in quotes"),
        ("models", {False: {}}, "expected names as text, got false as a name: YAML reads yes, no"),
        ("models", {"a b": {"x": 1}}, 'tasks.t.models["a b"].x: unknown key'),
    ],
)
def test_the_sentence_says_what_to_do(path, value, sentence):
    assert sentence in refusal(changed(("tasks", "t", *path.split(".")), value))


@pytest.mark.parametrize(
    ("models", "got", "name"),
    [({}, "no models", "NAME"), ({"m": {"answers_per_day": 9}, "n": {}}, "none for 'n'", "n")],
)
def test_a_budget_without_known_traffic_says_what_to_add(models, got, name):
    chart = {"arl0": {"false_alarms_per_week": 20}}
    data = changed(("tasks", "t"), {**BASE["tasks"]["t"], "models": models, "chart": chart})
    assert lines_of(refusal(data)) == [
        f"{BUDGET}: expected answers_per_day of every model, which divide the budget, got {got}: "
        f"add models: {{{name}: {{answers_per_day: 40000}}}} with the right number, or give arl0 in windows"
    ]


def test_a_budget_that_is_too_large_or_too_small_says_what_would_do():
    task = {**BASE["tasks"]["t"], "models": {"m": {"answers_per_day": 500}}}
    task |= {"metrics": ["accuracy", "ece", "class_ece"], "objective": {}}
    for budget, arl0 in ((50, 8.4), (1e-4, "4.2e+06")):
        task["chart"] = {"arl0": {"false_alarms_per_week": budget}}
        assert lines_of(refusal(changed(("tasks", "t"), task))) == [
            f"{BUDGET}: expected a budget with an ARL0 of 10 to 1000000 windows for each chart, "
            f"got {budget:g} for 420 windows a week, an ARL0 of {arl0}: give 0.00042 to 42"
        ]
    task["chart"] = {"arl0": {"false_alarms_per_week": 20}}
    assert config_from(changed(("tasks", "t"), task)).tasks["t"].charting.arl0 == pytest.approx(21.0)


FEATURE_BUDGET = "  tasks.t.chart.features.false_alarms_per_week"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"features": {}, "calibration": {"method": "none"}, "metrics": ["accuracy"], "objective": {}},
            "  tasks.t.chart.features: expected features beside it, got none: name the records' features in "
            "features, such as {hour: number, carrier: text}, or leave chart.features out",
        ),
        (
            {"models": {}, "ssme": {}},
            f"{FEATURE_BUDGET}: expected answers_per_day of every model, which divide the budget, got no "
            "models: add models: {NAME: {answers_per_day: 40000}} with the right number, or leave "
            "chart.features out",
        ),
        (
            {"models": {"m": {"answers_per_day": 1e7}}, "ssme": {}},
            f"{FEATURE_BUDGET}: expected a budget with a level of 1e-09 to 0.01 for each test, got 1e-09 for "
            "1.4e+05 tests a week (windows times features), a level of 1.79e-15: give 0.00056 to 5.6e+03",
        ),
    ],
)
def test_a_budget_of_drift_that_cannot_be_divided_says_what_to_do(change, message):
    chart = {"features": {"false_alarms_per_week": 1e-9}}
    data = changed(("tasks", "t"), {**BASE["tasks"]["t"], **change, "chart": chart})
    assert lines_of(refusal(data)) == [message]


@pytest.mark.parametrize(
    ("features", "message"),
    [
        ({}, "chart.features.false_alarms_per_week: missing; expected a number above 0 and at most 1000"),
        (
            {"false_alarms_per_week": 0},
            "chart.features.false_alarms_per_week: expected a number above 0 and at most 1000, got 0",
        ),
        (
            0.2,
            "chart.features: expected a mapping with keys among false_alarms_per_week, got 0.2: "
            "write {false_alarms_per_week: 0.2}",
        ),
    ],
)
def test_a_budget_of_drift_is_a_number_of_a_week(features, message):
    assert message in refusal(changed(("tasks", "t", "chart", "features"), features))


def test_a_budget_of_drift_is_shared_over_windows_and_features():
    task = {**BASE["tasks"]["t"], "models": {"m": {"answers_per_day": 50_000}, "n": {"answers_per_day": 1e5}}}
    task |= {
        "features": {"hour": "number", "carrier": "text"},
        "window": {"size": 500, "max_age_seconds": 1e6},
    }
    assert config_from(changed(("tasks", "t"), task | {"chart": {}})).tasks["t"].feature_alarm_level == 0
    task["chart"] = {"features": {"false_alarms_per_week": 0.2}}
    level = config_from(changed(("tasks", "t"), task)).tasks["t"].feature_alarm_level
    assert 4 * level * 7 * (100 + 200) * 2 == pytest.approx(0.2)


@pytest.mark.parametrize(
    ("path", "value", "remedy"),
    [
        (("tasks", "t", "window"), 500, "got 500: write {size: 500}"),
        (("tasks", "t", "reference"), "r.csv", "got 'r.csv': write {path: r.csv}"),
        (("tasks", "t", "chart"), "ewma", "got 'ewma': write {kind: ewma}"),
        (("tasks", "t", "calibration"), "isotonic", "got 'isotonic': write {method: isotonic}"),
        (("store",), "state", "got 'state': write {path: state}"),
        (("tasks", "t", "window"), True, "got true"),
        (("tasks", "t", "window"), "large", "got 'large'"),
    ],
)
def test_a_value_in_place_of_its_section_names_its_key(path, value, remedy):
    assert remedy in lines_of(refusal(changed(path, value)))[0]
    assert ("write" in remedy) == ("write" in refusal(changed(path, value)))


def test_keys_that_are_no_text():
    assert "export: expected keys as text, got 3 as a key. Allowed: listen" in refusal(
        changed(("export", 3), 1)
    )


@pytest.mark.parametrize("options", ["sasl_plain_password=hunter2", {"sasl_plain_password": ["hunter2"]}])
def test_secrets_are_not_repeated(options):
    message = refusal(changed(("sources", 2, "options"), options))
    assert "sources[2].options" in message
    assert "hunter2" not in message
    message = refusal(changed(("reports", "kafka", "options"), options))
    assert "reports.kafka.options" in message
    assert "hunter2" not in message


@pytest.mark.parametrize(
    "tokens",
    [
        "hunter2hunter2hunter2",
        ["hunter2hunter2hunter2"],
        [{"token": ["hunter2"]}],
        [{"token": "hunter2 hunter2 hunter2"}],
        [{"token": "hunter2"}],
        [{"token": "hunter2hunter2hunter2", "tasks": ["zzz"]}],
    ],
)
def test_tokens_are_not_repeated(tokens):
    message = refusal(changed(("sources", 3, "tokens"), tokens))
    assert "sources[3].tokens" in message
    assert "hunter2" not in message


def test_a_source_without_a_kind():
    assert "sources[1].kind: missing; expected one of file, http, kafka, redis, sql, stdin" in refusal(
        changed(("sources", 1), {"path": "x"})
    )


def test_the_schema_is_told_wrong_entries_not_that_none_is_left():
    assert len(lines_of(refusal(changed(("tasks", "t", "chart", "rules"), [7, 8])))) == 2


def test_a_number_in_a_path_is_shown_as_an_index_and_odd_names_in_quotes():
    assert show_path(("tasks", "a.b", "chart", "rules", 0)) == 'tasks["a.b"].chart.rules[0]'
    assert show_path(()) == "top level"


@pytest.mark.parametrize(
    ("name", "expected"), [("max_age", "max_age_seconds"), ("SIZE", "size"), ("zz", None), ("store", None)]
)
def test_the_nearest_name(name, expected):
    assert nearest(name, ["size", "min_size", "max_age_seconds", "sources"]) == expected


ADDRESS = "http://agent:hunter2@alerts/x"
SECRET = {"options", "tokens", "url", "headers", "basic_auth"}


@pytest.mark.parametrize("section", dict.fromkeys(path[:-1] for path, _ in PLACES if path), ids=show_path)
def test_no_password_comes_out(section):
    """No message shows the login of an address, or the value of a key that may be secret."""
    for path in [path for path, _ in PLACES if path and path[:-1] == section]:
        wrong = [ADDRESS, [ADDRESS], {"k": ADDRESS}, {ADDRESS: 1}]
        if SECRET & set(path) and path[-2:] != ("basic_auth", "username") and path[-1] not in ("tasks", 0):
            wrong += ["hunter2", ["hunter2"], {"password": "hunter2"}, {"k": {"k": "hunter2"}}]
        for value in wrong:
            message = ""
            try:
                config_from(changed(path, value))
            except ConfigError as refused:
                message = str(refused)
            assert "hunter2" not in message, (path, value)
