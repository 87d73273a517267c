"""Reading a configuration file: its text, its paths; and the example and the schema to start from."""

import json
import re
import traceback
from datetime import date
from pathlib import Path
from typing import get_args

import pytest
import yaml

from monitor.base.errors import ConfigError
from monitor.base.registry import CHARTS, SOURCES
from monitor.config.file import config_from, load_config, resolve_paths, schema
from monitor.config.root import Config, Metric

SCHEMA = schema()
with pytest.raises(ValueError) as no_date:
    date(2026, 2, 31)
NO_DATE = str(no_date.value)  # Python 3.14 says it in other words
EXAMPLE = Path(__file__).parents[2] / "config.example.yaml"


def from_text(folder: Path, text: str | bytes) -> str:
    file = folder / "c.yaml"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ConfigError) as caught:
        load_config(file)
    assert str(caught.value).startswith(str(file))
    return str(caught.value).removeprefix(str(file))


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
        "  - kind: ftp\n"
        "exports: {}\n",
    )
    assert message == (
        " cannot be used:\n"
        "  tasks.toxicity.window.siz: unknown key; did you mean 'size'? "
        "Allowed: size, min_size, max_age_seconds (line 3)\n"
        "  tasks.toxicity.level: expected a number above 0.5 and below 1, got 95: write 0.95 (line 4)\n"
        f"  tasks.toxicity.chart.kind: expected one of {', '.join(CHARTS)}, "
        "got 'shewart'; did you mean 'shewhart'? (line 6)\n"
        f"  sources[0].kind: expected one of {', '.join(sorted(SOURCES))}, got 'ftp' (line 8)\n"
        "  exports: unknown key; did you mean 'export'? "
        "Allowed: tasks, sources, decoders, reports, rejects, store, alertmanager, export (line 9)"
    )


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", ": the file is empty; it needs at least tasks, see config.example.yaml"),
        ("# only a comment\n", ": the file is empty; it needs at least tasks, see config.example.yaml"),
        ("[1]", ": expected a mapping with tasks: at its top level, got a list"),
        ("tasks", ": expected a mapping with tasks: at its top level, got a single value"),
        ("a: b\n\tc: d\n", ": line 2, column 1: a tab; YAML indents with spaces only"),
        ("tasks:\n  a: b: c\n", ": line 2, column 7: a second ': ' in one line; put the value in quotes"),
        (
            "a:\n    b: 1\n   c: {d: 2}\n",
            ": line 3, column 4: this line begins in another column than the keys of its section; align them",
        ),
        (
            "a: [1\nb: 2",
            ": line 2, column 2: while parsing a flow sequence, expected ',' or ']', but got ':'",
        ),
        ("a:\n  b: 1\n  b: 2\n", ": line 3, column 3: the key 'b' occurs twice, first in line 2"),
        ("a: {b: 1, b: 2}", ": line 1, column 11: the key 'b' occurs twice, first in line 1"),
        ("a: [{b: 1, b: 2}]", ": line 1, column 12: the key 'b' occurs twice, first in line 1"),
        (
            "a: 0500",
            ": line 1, column 4: 0500 starts with 0, which YAML reads as octal: write 500, or put it",
        ),
        ("a: 1:30", ": line 1, column 4: 1:30 is a number to base 60 in YAML: put it in quotes"),
        ("a: 1:30.5", ": line 1, column 4: 1:30.5 is a number to base 60 in YAML: put it in quotes"),
        (
            "a: 2026-02-31",
            f": line 1, column 4: '2026-02-31': {NO_DATE}; put it in quotes",
        ),
        (
            "a: " + "9" * 5000,
            "Exceeds the limit (4300 digits) for integer string conversion; put it in quotes",
        ),
        ("a: !!python/name:os.system x", ": line 1, column 4: could not determine a constructor for the tag"),
        ("a: !!bool maybe", ": line 1, column 4: 'maybe' is no bool: delete the tag !!bool"),
        ("a: !!int ''", ": line 1, column 4: '' is no int: delete the tag !!int"),
        ("a: !!timestamp x", ": line 1, column 4: 'x' is no timestamp: delete the tag !!timestamp"),
        ("a: !!int {b: c}", ": line 1, column 4: expected a scalar node, but found mapping"),
        (
            r'store: {path: "a\0b"}',
            ": line 1, column 15: the character U+0000 is not allowed in a configuration: delete it",
        ),
        ("a: *b", ": line 1, column 4: found undefined alias 'b'"),
        ("? [a]\n: 1\n", ": line 1, column 3: while constructing a mapping, found unhashable key"),
        (
            "a: 1\n---\nb: 2\n",
            ": line 2, column 1: expected a single document in the stream, but found another",
        ),
        ("[" * 1000, ": not a configuration: it is nested too deeply"),
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
    file.write_text("tasks: {t: {labels: {max_waiting: 1_000}, level: 0.90, window: {size: 1_000}}}")
    task = load_config(file).tasks["t"]
    assert (task.labels.max_waiting, task.level, task.window.size) == (1000, 0.9, 1000)


def test_variables_of_the_environment_stand_in_values(tmp_path, monkeypatch):
    monkeypatch.setenv("BLINDSIGHT_LEVEL", "0.9")
    monkeypatch.setenv("BLINDSIGHT_FOLDER", "/data: {a: 1}  # none of it is YAML")
    monkeypatch.setenv("BLINDSIGHT_EMPTY", "")
    monkeypatch.delenv("BLINDSIGHT_UNSET", raising=False)
    file = tmp_path / "c.yaml"
    file.write_text(
        "tasks:\n"
        "  t:\n"
        "    level: ${BLINDSIGHT_LEVEL}\n"
        "    classes: ['${BLINDSIGHT_LEVEL}', '$${BLINDSIGHT_LEVEL} is $1']\n"
        "sources:\n"
        "  - {kind: file, path: '${BLINDSIGHT_FOLDER}/${BLINDSIGHT_UNSET:-a b}.ndjson'}\n"
        'reports: {path: "/w${BLINDSIGHT_EMPTY}/${BLINDSIGHT_EMPTY:-x}"}\n'
    )
    config = load_config(file)
    assert config.tasks["t"].level == 0.9
    assert config.tasks["t"].classes == ("0.9", "${BLINDSIGHT_LEVEL} is $1")
    assert config.sources[0].path == "/data: {a: 1}  # none of it is YAML/a b.ndjson"
    assert config.reports.path == "/w/x"


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        (
            "${BLINDSIGHT_UNSET}",
            "the environment variable BLINDSIGHT_UNSET is not set: set it, or write "
            "${BLINDSIGHT_UNSET:-default}",
        ),
        (
            "a ${BLINDSIGHT-b}",
            "${BLINDSIGHT-b} is no variable: write ${NAME} or ${NAME:-default}, or $${ for the text ${",
        ),
    ],
)
def test_a_variable_that_is_not_set_is_named(tmp_path, monkeypatch, value, sentence):
    monkeypatch.delenv("BLINDSIGHT_UNSET", raising=False)
    message = from_text(tmp_path, f"tasks:\n  t:\n    level: {value}\n")
    assert message == f": line 3, column 12: {sentence}"


def test_no_message_shows_the_value_of_a_variable(tmp_path, monkeypatch):
    monkeypatch.setenv("BLINDSIGHT_WORD", "hunter2222")
    file = tmp_path / "c.yaml"
    file.write_text("tasks: {t: {level: '${BLINDSIGHT_WORD}', chart: {kind: 'a ${BLINDSIGHT_WORD}'}}}")
    with pytest.raises(ConfigError) as caught:
        load_config(file)
    _, level, kind = str(caught.value).splitlines()
    assert "t.level: expected a number above 0.5 and below 1, got '${BLINDSIGHT_WORD}' (line 1)" in level
    assert "got 'a ${BLINDSIGHT_WORD}' (line 1)" in kind
    assert "hunter" not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize("secret", ["0777111222", "12:34:56", "2026-02-31", "9" * 5000])
def test_a_value_of_a_variable_that_yaml_refuses_is_not_shown(tmp_path, monkeypatch, secret):
    monkeypatch.setenv("BLINDSIGHT_WORD", secret)
    file = tmp_path / "c.yaml"
    file.write_text("tasks:\n  t:\n    level: ${BLINDSIGHT_WORD}\n")
    with pytest.raises(ConfigError) as caught:
        load_config(file)
    assert str(caught.value) == (
        f"{file}: line 3, column 12: '${{BLINDSIGHT_WORD}}': the environment has a value that YAML refuses: "
        "put it in quotes"
    )
    assert secret[:10] not in "".join(traceback.format_exception(caught.value))


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
    options = {"ssl_cafile": "ca.pem", "client_id": "ca.pem"}
    kafka = {"kind": "kafka", "brokers": ["localhost:9092"], "topics": ["p"], "options": options}
    data = {
        "tasks": {"t": {"reference": {"path": "reference.csv"}}},
        "sources": [{"kind": "file", "path": "a.ndjson"}, kafka],
        "reports": {"path": "../windows.ndjson"},
        "rejects": {
            "path": "/var/rejects.ndjson",
            "kafka": {"brokers": ["b"], "topic": "r", "options": options},
        },
        "store": {"path": "state"},
    }
    (tmp_path / "etc" / "c.yaml").write_text(yaml.safe_dump(data))
    monkeypatch.chdir(tmp_path)
    config = load_config("etc/c.yaml")
    etc = f"{tmp_path}/etc"
    assert config.tasks["t"].reference.path == f"{etc}/reference.csv"
    assert config.sources[0].path == f"{etc}/a.ndjson"
    assert config.sources[1].options == {"ssl_cafile": f"{etc}/ca.pem", "client_id": "ca.pem"}
    assert config.rejects.kafka.options == {"ssl_cafile": f"{etc}/ca.pem", "client_id": "ca.pem"}
    assert config.store.path == f"{etc}/state"
    assert (config.reports.path, config.rejects.path) == (f"{tmp_path}/windows.ndjson", "/var/rejects.ndjson")


def test_paths_that_are_not_there_stay_so_and_the_rest_is_the_same():
    config = config_from({"tasks": {"t": {}}, "sources": [{"kind": "stdin"}]})
    assert resolve_paths(config, "/etc") == config


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
    assert {key for node in (SCHEMA, *SCHEMA["$defs"].values()) for key in node["properties"]} <= written


def test_the_alternatives_of_the_example_are_valid_too(tmp_path):
    text = EXAMPLE.read_text()
    for line in ("first_windows: 20", "arl0: 370", "accuracy: {min: 0.90}"):
        assert line in text
        text = text.replace(line, f"# {line}")
    text = re.sub(r"^( *)# (?=[a-z0-9_]+: |- kind|  [a-z_]+: )", r"\1", text, flags=re.MULTILINE)
    text = re.sub(r"^( *)(first_windows|arl0|accuracy):", r"\1# \2:", text, flags=re.MULTILINE)
    text = text.replace("kind: shewhart ", "kind: ewma ")  # shift and weight are of no other
    text = text.replace("method: isotonic ", "method: covariates ")
    text = text.replace("[accuracy, ece]", f"[{', '.join(get_args(Metric))}]")
    text = re.sub(r"^  path: state .*$", "", text, flags=re.MULTILINE)  # postgres stands in its place
    file = tmp_path / "c.yaml"
    file.write_text(text)
    config = load_config(file)
    task = config.tasks["toxicity"]
    assert (task.chart.sigmas, task.reference.path) == (3.0, str(tmp_path / "reference.parquet"))
    assert set(task.objective.bounds()) == set(get_args(Metric)) - {"accuracy"}
    labels = ["predictions", "stdin", "kafka", "answers", "reviews", "http"]
    assert [source.label for source in config.sources] == labels
    assert config.sources[3].password_file == str(tmp_path / "redis.password")
    assert config.sources[3].tls.ca == str(tmp_path / "ca.pem")
    assert config.sources[4].password_file == str(tmp_path / "sql.password")
    assert config.sources[5].tokens[0].token_file == str(tmp_path / "serving.token")
    assert config.sources[5].spool.path == str(tmp_path / "spool")
    assert config.reports.kafka.options == {"compression_type": "gzip"}
    assert (config.rejects.kafka.topic, config.store.every_seconds) == ("rejects", 1.0)
    assert config.store.postgres == "postgresql://agent@db/monitoring"
    assert config.sources[5].tls.client_ca == str(tmp_path / "clients.pem")


def test_the_example_shows_the_defaults_unless_it_says_otherwise():
    lines = EXAMPLE.read_text().splitlines()
    example = load_config(EXAMPLE).tasks["toxicity"].model_dump()
    default = config_from({"tasks": {"t": {}}}).tasks["t"].model_dump()
    differs = [
        key for section in ("window", "chart", "labels", "calibration", "reference", "ssme")
        for key in default[section] if example[section][key] != default[section][key]
    ]  # fmt: skip
    differs += [
        key for key in ("metrics", "estimators", "level", "interval", "max_series")
        if example[key] != default[key]
    ]  # fmt: skip
    assert differs == ["arl0", "max_answers", "max_bytes"]  # arl0: 370 is what its absence means
    assert any("max_answers: 3000000" in line and "default 1000000" in line for line in lines)


def test_dates_are_text_that_wants_quotes(tmp_path):
    text = "tasks: {t: {classes: [2026-01-31, other]}}"
    assert "got the date 2026-01-31: put it in quotes (line 1)" in from_text(tmp_path, text)


STORE = "tasks: {t: {classes: [a, b]}}\nstore: "


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ("{}", "store.path: expected one of path and postgres: name a folder, or a database"),
        ("{path: s, postgres: 'postgresql://db/m'}", "store.path: expected one of path and postgres"),
        (
            "{postgres: 'postgresql://agent:secret@db/m'}",
            "store.postgres: expected no password in it, got one; give it as password_file",
        ),
        (
            "{postgres: 'host=db', prefix: 2nd}",
            "store.prefix: expected at most 63 lower-case letters, digits and _, not a digit first, got '2n",
        ),
        (
            "{path: s, by_partition: true}",
            "store.by_partition: expected postgres with it: agents on one database hand their state on",
        ),
        (
            f"{{postgres: 'host=db', prefix: {'p' * 57}, by_partition: true}}",
            "store.prefix: expected at most 56 characters with by_partition, which adds the partition's",
        ),
        (
            "{postgres: 'host=db', by_partition: true}\nsources: [{kind: stdin}]",
            "store.by_partition: expected one source, of kind kafka, got stdin: list all topics in",
        ),
    ],
)
def test_a_store_is_in_one_place_and_names_no_password(tmp_path, section, message):
    file = tmp_path / "c.yaml"
    file.write_text(STORE + section)
    with pytest.raises(ConfigError) as refused:
        load_config(file)
    assert message in str(refused.value)
    assert "secret" not in str(refused.value)


def test_the_address_of_a_store_is_not_shown():
    assert "db" not in repr(Config(tasks={"t": {"classes": ["a", "b"]}}, store={"postgres": "host=db"}).store)
