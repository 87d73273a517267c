"""Reading a configuration file: every mistake is told by its key, what it got and what is allowed."""

import copy
import json
import re
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from monitor.config import Config
from monitor.config_sentences import TEMPLATES, describe, findings, nearest, show_path
from monitor.configfile import config_from, load_config, resolve_paths, schema
from monitor.errors import ConfigError

SCHEMA = schema()
EXAMPLE = Path(__file__).parent.parent / "config.example.yaml"
BASE = {
    "tasks": {
        "t": {
            "classes": ["ok", "toxic"],
            "positive": "toxic",
            "window": {"size": 500, "min_size": 50, "max_age_seconds": 900},
            "reference": {"path": "reference.csv"},
            "calibration": {"method": "isotonic"},
            "metrics": ["accuracy", "ece", "class_ece"],
            "estimators": ["average_confidence"],
            "level": 0.9,
            "chart": {"rules": ["we1"], "kind": "shewhart"},
            "objective": {"accuracy": {"min": 0.9}, "ece": {"max": 0.1}, "class_ece": {"max": 0.1}},
            "labels": {"horizon_days": 3},
            "groups": ["region"],
            "models": {"m": {"answers_per_day": 9}},
        }
    },
    "sources": [
        {"kind": "file", "path": "a.ndjson"},
        {"kind": "stdin"},
        {"kind": "kafka", "brokers": ["localhost:9092"], "topics": ["p"], "options": {"client_id": "x"}},
    ],
    "reports": {"path": "windows.ndjson"},
    "rejects": {"path": "rejects.ndjson"},
    "export": {"listen": "127.0.0.1:0"},
}
NAMES = {"tasks": "t", "models": "m", "options": "client_id"}


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
    """Every place of the schema: (path in BASE, resolved node)."""
    node = resolve(node)
    yield path, node
    for key, inner in node.get("properties", {}).items():
        yield from places(inner, (*path, key))
    if isinstance(node.get("additionalProperties"), dict):
        yield from places(node["additionalProperties"], (*path, NAMES[path[-1]]))
    if "discriminator" in node.get("items", {}):
        for i, kind in enumerate(("file", "stdin", "kafka")):
            yield from places({"$ref": node["items"]["discriminator"]["mapping"][kind]}, (*path, i))
    elif "items" in node:
        yield from places(node["items"], (*path, 0))


PLACES = list(places())
SECTIONS = [(path, node) for path, node in PLACES if "properties" in node]
LEAVES = [(path, node) for path, node in PLACES if path and "properties" not in node]
NUMBERS = [(path, node) for path, node in LEAVES if node.get("type") in ("integer", "number")]


def ids(some):
    return [show_path(path) for path, _ in some]


def changed(path, value):
    data = copy.deepcopy(BASE)
    inner = data
    for part in path[:-1]:
        inner = inner.setdefault(part, {}) if isinstance(inner, dict) else inner[part]
    inner[path[-1]] = value
    return data


def refusal(data, **keywords) -> str:
    with pytest.raises(ConfigError) as caught:
        config_from(data, **keywords)
    return str(caught.value)


def told(data) -> list[str]:
    try:
        Config.model_validate(data)
    except ValidationError as error:
        return [str(found) for found in findings(error, SCHEMA)]
    return []


def lines_of(message: str) -> list[str]:
    return message.splitlines()[1:]


def from_text(folder: Path, text: str | bytes) -> str:
    file = folder / "c.yaml"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ConfigError) as caught:
        load_config(file)
    assert str(caught.value).startswith(str(file))
    return str(caught.value).removeprefix(str(file))


def test_the_base_of_these_tests_is_valid_and_the_schema_is_walked_whole():
    assert config_from(BASE).tasks["t"].positive == "toxic"
    assert len(SECTIONS) == 18
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


@pytest.mark.parametrize(("path", "node"), LEAVES, ids=ids(LEAVES))
def test_a_wrong_type_is_refused_with_what_it_got_and_what_is_allowed(path, node):
    if path[-2:] == ("options", "client_id"):
        wrong = [{"a": 1}]
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
    for value in wrong:
        (line,) = lines_of(refusal(changed(path, value)))
        assert line.startswith(f"  {show_path(path)}: expected "), value
        assert ", got " in line


@pytest.mark.parametrize(("path", "node"), SECTIONS[1:], ids=ids(SECTIONS[1:]))
def test_a_section_that_is_none_is_refused(path, node):
    for value, got in ((3, "3"), ("zzz", "'zzz'"), ([], "an empty list")):
        (line,) = lines_of(refusal(changed(path, value)))
        assert line.startswith(f"  {show_path(path)}: expected a mapping with ")
        assert f", got {got}" in line


@pytest.mark.parametrize(("path", "node"), NUMBERS, ids=ids(NUMBERS))
def test_ranges_end_where_the_schema_says(path, node):
    step = 1 if node["type"] == "integer" else 1e-6
    outside = [node[key] - step for key in ("minimum",) if key in node]
    outside += [node[key] + step for key in ("maximum",) if key in node]
    outside += [node[key] for key in ("exclusiveMinimum", "exclusiveMaximum") if key in node]
    assert outside, "a number without a range"
    for value in outside:
        (line,) = lines_of(refusal(changed(path, value)))
        assert line.startswith(f"  {show_path(path)}: expected {describe(node)}, got {value!r}")
    for value in (node[key] for key in ("minimum", "maximum") if key in node):
        # Another check may refuse the end of a range, the range itself must not.
        assert describe(node) not in " ".join(told(changed(path, value)))


@pytest.mark.parametrize(
    ("path", "key"),
    [(path, key) for path, node in SECTIONS for key in node.get("required", ())],
)
def test_a_required_key_that_is_missing_is_named(path, key):
    data = copy.deepcopy(BASE)
    inner = data
    for part in path:
        inner = inner[part]
    del inner[key]
    (line,) = lines_of(refusal(data))
    assert line.startswith(f"  {show_path((*path, key))}: missing; expected ")


def test_every_problem_is_told_at_once_with_its_line(tmp_path):
    message = from_text(
        tmp_path,
        "tasks:\n"
        "  toxicity:\n"
        "    window: {siz: 200}\n"
        "    level: 95\n"
        "    chart:\n"
        "      kind: shewart\n"
        "sources:\n"
        "  - kind: http\n"
        "exports: {}\n",
    )
    assert message == (
        " cannot be used:\n"
        "  tasks.toxicity.window.siz: unknown key; did you mean 'size'? "
        "Allowed: size, min_size, max_age_seconds (line 3)\n"
        "  tasks.toxicity.level: expected a number above 0.5 and below 1, got 95 (line 4)\n"
        "  tasks.toxicity.chart.kind: expected one of shewhart, shewhart_p, got 'shewart'; "
        "did you mean 'shewhart'? (line 6)\n"
        "  sources[0].kind: expected one of file, kafka, stdin, got 'http' (line 8)\n"
        "  exports: unknown key; did you mean 'export'? "
        "Allowed: tasks, sources, reports, rejects, export (line 9)"
    )


@pytest.mark.parametrize(
    ("path", "value", "sentence"),
    [
        ("window.size", "5oo", "expected an integer from 10 to 1000000, got '5oo'"),
        ("window.size", "1e3", "got '1e3': write 1000, without quotes"),
        ("window.size", 10**300, "got a huge number"),
        ("level", float("nan"), "expected a number above 0.5 and below 1, got nan"),
        ("metrics", "ece", "expected a list with at least one entry, got 'ece': write it as a list, [ece]"),
        ("metrics", ["acuracy"], "expected one of accuracy, ece, class_ece, got 'acuracy'; did you mean"),
        ("window", None, "got nothing: give a value or leave the key out; {} takes the defaults"),
        ("chart.rules", [], "expected a list with at least one entry, got an empty list"),
        ("chart.rules", [7], "expected one of we1, we2, we3, we4, 1, 2, 3, 4, got 7"),
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


def test_dates_are_text_that_wants_quotes(tmp_path):
    text = "tasks: {t: {classes: [2026-01-31, other]}}"
    assert "got the date 2026-01-31: put it in quotes (line 1)" in from_text(tmp_path, text)


def test_keys_that_are_no_text():
    assert "export: expected keys as text, got 3 as a key. Allowed: listen" in refusal(
        changed(("export", 3), 1)
    )


@pytest.mark.parametrize("options", ["sasl_plain_password=hunter2", {"sasl_plain_password": ["hunter2"]}])
def test_secrets_are_not_repeated(options):
    message = refusal(changed(("sources", 2, "options"), options))
    assert "sources[2].options" in message
    assert "hunter2" not in message


def test_a_source_without_a_kind():
    assert "sources[1].kind: missing; expected one of file, kafka, stdin" in refusal(
        changed(("sources", 1), {"path": "x"})
    )


def test_the_schema_is_told_wrong_entries_not_that_none_is_left():
    assert len(lines_of(refusal(changed(("tasks", "t", "chart", "rules"), [7, 8])))) == 2


# What each type of pydantic's core schema can raise in strict mode; its constraints stand apart.
RAISES = {
    "model": {"model_type"},
    "model-fields": {"missing", "extra_forbidden", "invalid_key", "model_attributes_type"},
    "model-field": set(),
    "dict": {"dict_type"},
    "tuple": {"tuple_type"},
    "int": {"int_type"},
    "float": {"float_type", "finite_number"},
    "str": {"string_type", "string_unicode"},
    "bool": {"bool_type"},
    "any": set(),
    "literal": {"literal_error"},
    "tagged-union": {"union_tag_invalid", "union_tag_not_found", "model_attributes_type"},
    "nullable": set(),
    "default": set(),
    "definitions": set(),
    "definition-ref": set(),
    "function-before": {"value_error"},
    "function-after": {"value_error"},
}
CONSTRAINTS = {
    "ge": "greater_than_equal",
    "gt": "greater_than",
    "le": "less_than_equal",
    "lt": "less_than",
}


def raisable(node) -> set[str]:
    found = set()
    if isinstance(node, list | tuple):
        return found.union(*map(raisable, node))
    if not isinstance(node, dict):
        return found
    kind = node.get("type")
    if isinstance(kind, str):
        found |= RAISES[kind]
        found |= {error for key, error in CONSTRAINTS.items() if key in node}
        prefix = "string_" if kind == "str" else ""
        found |= {
            f"{prefix}too_{end}"
            for key, end in (("min_length", "short"), ("max_length", "long"))
            if key in node
        }
    return found.union(
        *(
            raisable(value)
            for key, value in node.items()
            if key not in ("metadata", "serialization", "function", "default")
        )
    )


def test_every_error_that_the_schema_can_raise_has_its_sentence():
    assert raisable(Config.__pydantic_core_schema__) == set(TEMPLATES)


def error_types(data) -> set[str]:
    try:
        Config.model_validate(data)
    except ValidationError as error:
        return {item["type"] for item in error.errors()}
    return set()


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.dates(),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4) | st.integers(), inner, max_size=3)
    ),
    max_leaves=5,
)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(place=st.sampled_from(PLACES[1:]), value=ANYTHING)
def test_whatever_stands_anywhere_is_taken_or_told(place, value):
    data = changed(place[0], value)
    assert error_types(data) <= set(TEMPLATES)
    assert all(line.startswith(show_path(place[0][:1])) for line in told(data))


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", ": the file is empty; it needs at least tasks, see config.example.yaml"),
        ("# only a comment\n", ": the file is empty; it needs at least tasks, see config.example.yaml"),
        ("[1]", ": expected a mapping with tasks: at its top level, got a list"),
        ("tasks", ": expected a mapping with tasks: at its top level, got a single value"),
        ("a: b\n\tc: d\n", ": line 2, column 1: a tab; YAML indents with spaces only"),
        ("tasks:\n  a: b: c\n", ": line 2, column 7: mapping values are not allowed here"),
        (
            "a: [1\nb: 2",
            ": line 2, column 2: while parsing a flow sequence, expected ',' or ']', but got ':'",
        ),
        ("a:\n  b: 1\n  b: 2\n", ": line 3, column 3: the key 'b' stands twice, first in line 2"),
        ("a: {b: 1, b: 2}", ": line 1, column 11: the key 'b' stands twice, first in line 1"),
        ("a: [{b: 1, b: 2}]", ": line 1, column 12: the key 'b' stands twice, first in line 1"),
        (
            "a: 0500",
            ": line 1, column 4: 0500 starts with 0, which YAML reads as octal: write 500, or put it",
        ),
        ("a: 1:30", ": line 1, column 4: 1:30 is a number to base 60 in YAML: put it in quotes"),
        ("a: 1:30.5", ": line 1, column 4: 1:30.5 is a number to base 60 in YAML: put it in quotes"),
        (
            "a: 2026-02-31",
            ": line 1, column 4: '2026-02-31': day is out of range for month; put it in quotes",
        ),
        (
            "a: " + "9" * 5000,
            "Exceeds the limit (4300 digits) for integer string conversion; put it in quotes",
        ),
        ("a: !!python/name:os.system x", ": line 1, column 4: could not determine a constructor for the tag"),
        ("a: *b", ": line 1, column 4: found undefined alias 'b'"),
        ("? [a]\n: 1\n", ": line 1, column 3: while constructing a mapping, found unhashable key"),
        (
            "a: 1\n---\nb: 2\n",
            ": line 2, column 1: expected a single document in the stream, but found another",
        ),
        ("[" * 5000, ": not a configuration: it is nested too deeply"),
        (b"a: 1\nb: \xff\n", ": expected UTF-8, got byte 0xff in line 2: save it as UTF-8"),
        ("a: 1\nb: \x00\n", ": line 2: the character U+0000 is not allowed in YAML: delete it"),
        ("x" * (1 << 20) + "y", ": expected a configuration of at most 1 MiB, got more: is it a data file?"),
    ],
)
def test_what_is_no_configuration_is_told_in_a_sentence(tmp_path, text, sentence):
    message = from_text(tmp_path, text)
    assert sentence in message
    assert "\n" not in message


def test_zero_and_decimals_are_no_octal_numbers(tmp_path):
    file = tmp_path / "c.yaml"
    file.write_text("tasks: {t: {labels: {max_waiting: 0}, level: 0.90, window: {size: 1_000}}}")
    task = load_config(file).tasks["t"]
    assert (task.labels.max_waiting, task.level, task.window.size) == (0, 0.9, 1000)


def test_merged_keys_may_be_overridden(tmp_path):
    file = tmp_path / "c.yaml"
    file.write_text("tasks:\n  a: &a {level: 0.9, window: {size: 60}}\n  b: {<<: *a, level: 0.8}\n")
    tasks = load_config(file).tasks
    assert (tasks["b"].level, tasks["b"].window.size) == (0.8, 60)


def test_the_line_of_an_overridden_key_is_where_it_is_overridden(tmp_path):
    text = "tasks:\n  a: &a\n    level: 0.9\n  b:\n    level: 9\n    <<: *a\n"
    assert "tasks.b.level: expected a number above 0.5 and below 1, got 9 (line 5)" in from_text(
        tmp_path, text
    )


def test_a_byte_order_mark_is_taken(tmp_path):
    file = tmp_path / "c.yaml"
    file.write_bytes(b"\xef\xbb\xbftasks: {t: {}}")
    assert list(load_config(file).tasks) == ["t"]


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(ConfigError, match="there is no such file; give the path of a configuration file"):
        load_config(tmp_path / "none.yaml")
    with pytest.raises(ConfigError, match="expected a configuration file, got a folder; name the file in it"):
        load_config(tmp_path)
    with pytest.raises(ConfigError, match="the configuration cannot be read: embedded null byte"):
        load_config("a\0b")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with pytest.raises(
        ConfigError, match="the configuration cannot be read: Too many levels of symbolic links"
    ):
        load_config(tmp_path / "loop")


def test_paths_are_taken_from_the_folder_of_the_file(tmp_path, monkeypatch):
    (tmp_path / "etc").mkdir()
    data = changed(("sources", 2, "options"), {"ssl_cafile": "ca.pem", "client_id": "ca.pem"})
    data["rejects"]["path"] = "/var/rejects.ndjson"
    data["reports"]["path"] = "../windows.ndjson"
    (tmp_path / "etc" / "c.yaml").write_text(yaml.safe_dump(data))
    monkeypatch.chdir(tmp_path)
    config = load_config("etc/c.yaml")
    etc = f"{tmp_path}/etc"
    assert config.tasks["t"].reference.path == f"{etc}/reference.csv"
    assert config.sources[0].path == f"{etc}/a.ndjson"
    assert config.sources[2].options == {"ssl_cafile": f"{etc}/ca.pem", "client_id": "ca.pem"}
    assert (config.reports.path, config.rejects.path) == (f"{tmp_path}/windows.ndjson", "/var/rejects.ndjson")


def test_paths_that_are_not_there_stay_so_and_the_rest_is_the_same():
    config = config_from({"tasks": {"t": {}}, "sources": [{"kind": "stdin"}]})
    assert resolve_paths(config, "/etc") == config


def test_a_number_in_a_path_is_shown_as_an_index_and_odd_names_in_quotes():
    assert show_path(("tasks", "a.b", "chart", "rules", 0)) == 'tasks["a.b"].chart.rules[0]'
    assert show_path(()) == "top level"


@pytest.mark.parametrize(
    ("name", "found"), [("max_age", "max_age_seconds"), ("SIZE", "size"), ("zz", None), ("store", None)]
)
def test_the_nearest_name(name, found):
    assert nearest(name, ["size", "min_size", "max_age_seconds", "sources"]) == found


def test_the_schema_is_json_and_describes_every_key():
    assert json.loads(json.dumps(SCHEMA))["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    sections = [SCHEMA, *SCHEMA["$defs"].values()]
    undescribed = [
        key for node in sections for key, inner in node["properties"].items() if not inner.get("description")
    ]
    assert undescribed == []
    assert all(node["description"] and node["additionalProperties"] is False for node in sections)


def test_the_example_loads_with_every_key_of_the_schema_in_it():
    config = load_config(EXAMPLE)
    assert config.tasks["toxicity"].reference.first_windows == 20
    written = set(re.findall(r"([a-z0-9_]+):", EXAMPLE.read_text()))
    assert {key for _, node in SECTIONS for key in node["properties"]} <= written


def test_the_alternatives_of_the_example_are_valid_too(tmp_path):
    text = EXAMPLE.read_text()
    for line in ("first_windows: 20", "arl0: 370", "accuracy: {min: 0.90}"):
        assert line in text
        text = text.replace(line, f"# {line}")
    text = re.sub(r"^( *)# (?=[a-z_]+: |- kind|  [a-z]+: )", r"\1", text, flags=re.MULTILINE)
    text = re.sub(r"^( *)(first_windows|arl0|accuracy):", r"\1# \2:", text, flags=re.MULTILINE)
    text = text.replace("[accuracy, ece]", "[accuracy, ece, class_ece]")
    file = tmp_path / "c.yaml"
    file.write_text(text)
    config = load_config(file)
    task = config.tasks["toxicity"]
    assert (task.chart.sigmas, task.reference.path) == (3.0, str(tmp_path / "reference.parquet"))
    assert sorted(task.objective.bounds()) == ["class_ece", "ece"]
    assert [source.label for source in config.sources] == ["predictions", "stdin", "kafka"]


def test_the_example_shows_the_defaults_unless_it_says_otherwise():
    lines = EXAMPLE.read_text().splitlines()
    given = load_config(EXAMPLE).tasks["toxicity"].model_dump()
    default = config_from({"tasks": {"t": {}}}).tasks["t"].model_dump()
    differs = [
        key for section in ("window", "chart", "labels", "calibration", "reference")
        for key in default[section] if given[section][key] != default[section][key]
    ]  # fmt: skip
    differs += [key for key in ("metrics", "estimators", "level", "max_series") if given[key] != default[key]]
    assert differs == ["arl0", "max_answers"]  # arl0: 370 is what its absence means
    assert any("max_answers: 3000000" in line and "default 1000000" in line for line in lines)
