"""Records with somebody else's names, read by a mapping: the same rows, or a sentence that says where."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from connectors.files import FileSource
from connectors.formats.decode.decoder import Decoder
from connectors.formats.decode.structs import Record
from connectors.formats.wires.choice import wire_for
from connectors.formats.wires.mapped import MappedWire
from monitor.base.errors import ConfigError
from monitor.base.records import Chunk, RejectReason, TaskLayout, id_keys
from monitor.base.source import RawBlock, RawMessages, RawTable
from monitor.config.file import config_from, load_config
from monitor.config.mapping import JSON_TEXT, PLACEHOLDERS, FieldMapping, parse_field_path
from monitor.config.root import Config
from tests.daemon import configuration, write_configuration

LAYOUT = TaskLayout("toxicity", ("ok", "toxic"), groups=("region",))
DEEP = FieldMapping(
    id="req.uuid",
    time="req.ts",
    time_unit="milliseconds",
    model="net",
    class_scores={"ok": "out[0].p", "toxic": "out[1].p"},
    groups={"region": "req.where"},
    prediction="verdict",
)


def decode(mapping: FieldMapping, *records: Any, keep: Any = "whole") -> Chunk:
    data = b"".join(
        (record if isinstance(record, bytes) else json.dumps(record).encode()) + b"\n" for record in records
    )
    return Decoder([LAYOUT], "test", keep=keep, wire=MappedWire(mapping)).decode([RawBlock(data, "p", 0)])


def deep(uuid: Any = "a", ok: Any = 0.25, **others: Any) -> dict[str, Any]:
    return {
        "req": {"uuid": uuid, "ts": 1_500, "where": "eu"},
        "net": "erm",
        "out": [{"p": ok}, {"p": 0.75}],
        "verdict": "ok",
        "scores": "not ours",
        **others,
    }


ROW = {"ok": 0.25, "toxic": 0.75}
V1 = {"predictions": [[0.25, 0.75], [0.5, 0.5], [0.125, 0.875]]}
ONE_OF_V1 = FieldMapping(scores="predictions[0]", constants={"model": "m"})


@pytest.mark.parametrize(
    ("paths", "record", "left"),
    [
        ({"scores": "predictions[0]"}, V1, {"predictions[0]": 2}),
        ({"scores": "predictions[2]"}, V1, {"predictions[2]": 2}),
        (
            {"class_scores": {"ok": "predictions[0][0]", "toxic": "predictions[0][1]"}},
            V1,
            {"predictions[0]": 2},
        ),
        ({"scores": "predictions[0]"}, {"predictions": [[0.25, 0.75]]}, {}),
        ({"scores": "predictions[0]"}, {"predictions": [0.75, 0.5]}, {"predictions[0]": 1}),
        (
            {"scores": "rows[0].p", "id": "rows[0].id"},
            {"rows": [{"p": ROW, "id": "a"}] * 4},
            {"rows[0].p": 3},
        ),
        ({"class_scores": {"ok": "r[0].ok", "toxic": "r[0].toxic"}}, {"r": [ROW, ROW]}, {"r[0]": 1}),
        (
            {"scores": "outputs[0].data[0]"},
            {"outputs": [{"data": [[0.5, 0.5]] * 2}]},
            {"outputs[0].data[0]": 1},
        ),
        # What stands beside is no row: classes, other tensors, something else.
        ({"class_scores": {"ok": "p[0]", "toxic": "p[1]"}}, {"p": [0.25, 0.75]}, {}),
        ({"scores": "p[1]"}, {"p": [0.25, 0.75]}, {}),
        ({"scores": "outputs[0].data"}, {"outputs": [{"data": [0.5, 0.5]}, {"data": [3.5, 1.5]}]}, {}),
        ({"scores": "a[0]"}, {"a": [[0.5, 0.5], [1, 2, 3], None, "text", {"x": 1}]}, {}),
        ({"scores": "a[0].p"}, {"a": [{"p": [0.5, 0.5]}, {"q": [0.5, 0.5]}]}, {}),
    ],
)
@pytest.mark.parametrize("slowly", [False, True])
def test_rows_beside_the_one_that_is_read_are_counted(
    paths: dict[str, Any], record: dict[str, Any], left: dict[str, int], slowly: bool
) -> None:
    # Two fields that want different things of one place are read without types.
    apart = {"version": "other", "time": "other.time"} if slowly else {}
    mapping = FieldMapping.model_validate({**paths, **apart, "constants": {"model": "m"}})
    chunk = decode(mapping, *({**record, "other": i} for i in range(3)))
    assert chunk.rows_left == {path: 3 * count for path, count in left.items()}
    assert sum(map(len, chunk.batches)) == 3


def test_rows_in_the_cells_of_a_table_are_counted_too() -> None:
    cells = [json.dumps(V1), json.dumps({"predictions": [[0.5, 0.5]]}), None, "no JSON"]
    mapping = FieldMapping(scores="response.predictions[0]", constants={"model": "m"})
    decoder = Decoder([LAYOUT], "test", wire=MappedWire(mapping))
    chunk = decoder.decode([RawTable({"response": cells}, "p", 0)])
    assert (chunk.rows_left, len(chunk.batches[0])) == ({"response.predictions[0]": 2}, 2)


def test_every_field_is_read_where_the_mapping_says_and_nowhere_else() -> None:
    chunk = decode(DEEP, deep(label="toxic"), deep("b"))
    (batch,) = chunk.batches
    assert chunk.rejects == ()
    assert batch.scores.tolist() == [[0.25, 0.75]] * 2
    assert batch.time.tolist() == [1.5, 1.5]
    assert batch.predicted.tolist() == [0, 0]
    assert batch.models == ("erm",)
    assert batch.groups["region"][0] == ("eu",)
    assert batch.label.tolist() == [-1, -1]  # "label" of the record is not mapped


@pytest.mark.parametrize(
    ("mapping", "record", "scores"),
    [
        ({"scores": "p"}, {"p": [0.25, 0.75]}, [0.25, 0.75]),
        ({"scores": "p"}, {"p": {"toxic": 0.75, "ok": 0.25}}, [0.25, 0.75]),
        ({"scores": "p"}, {"p": 0.75}, [0.25, 0.75]),
        ({"scores": "a.b[1].p"}, {"a": {"b": [None, {"p": 0.75}]}}, [0.25, 0.75]),
        ({"scores": "a[1]"}, {"a": ["text", 0.75]}, [0.25, 0.75]),
        ({"scores": '["a.b"].p'}, {"a.b": {"p": 0.75}}, [0.25, 0.75]),
        ({"class_scores": {"ok": "x", "toxic": "y"}}, {"x": 0.25, "y": 0.75}, [0.25, 0.75]),
        ({"scores": "p", "id": "p"}, {"p": 1}, [0.0, 1.0]),
    ],
)
def test_scores_may_have_any_form_at_any_depth(mapping: Any, record: Any, scores: Any) -> None:
    chunk = decode(FieldMapping(**mapping, constants={"model": "erm"}), record, record)
    assert chunk.rejects == ()
    assert chunk.batches[0].scores.tolist() == [scores] * 2


def test_a_label_is_mapped_too() -> None:
    mapping = FieldMapping(id="uuid", label="truth.class", probability="truth.chance")
    chunk = decode(mapping, {"uuid": "a", "truth": {"class": "toxic", "chance": 0.05}})
    assert chunk.labels[0].label.tolist() == [1]
    assert chunk.labels[0].probability.tolist() == [0.05]


def test_constants_stand_for_what_no_record_holds() -> None:
    mapping = FieldMapping(scores="p", constants={"task": "toxicity", "model": "erm", "version": "7"})
    (batch,) = decode(mapping, {"p": 0.5, "model": "another"}).batches
    assert (batch.models, batch.versions) == (("erm",), ("7",))


@pytest.mark.parametrize(
    ("settings", "value", "seconds"),
    [
        ({"time_unit": "milliseconds"}, 1_700_000_000_250, 1_700_000_000.25),
        ({"time_unit": "nanoseconds"}, 1_700_000_000_000_000_000, 1_700_000_000.0),
        ({"time_zone": "Europe/Berlin"}, "2026-07-01T12:00:00", 1_782_900_000.0),
        ({"time_zone": "Europe/Berlin"}, "2026-01-01T12:00:00.5", 1_767_265_200.5),
        ({"time_zone": "Europe/Berlin"}, "2026-10-25T02:30:00", 1_792_888_200.0),  # comes twice: the first
        ({"time_zone": "-05:30"}, "2026-01-01T00:00:00", 1_767_245_400.0),
        ({"time_zone": "Europe/Berlin"}, "2026-01-01T12:00:00Z", 1_767_268_800.0),
    ],
)
def test_times_of_other_units_and_without_an_offset(settings: Any, value: Any, seconds: float) -> None:
    mapping = FieldMapping(scores="p", time="t", constants={"model": "m"}, **settings)
    (batch,) = decode(mapping, {"p": 0.5, "t": value}).batches
    assert batch.time.tolist() == [seconds]


def test_a_time_without_an_offset_is_refused_where_no_zone_is_given() -> None:
    mapping = FieldMapping(scores="p", time="t.at", constants={"model": "m"})
    (reject,) = decode(mapping, {"p": 0.5, "t": {"at": "2026-01-01T12:00:00"}}).rejects
    assert reject.message == (
        '$.time: "2026-01-01T12:00:00" has no offset from UTC; end it in Z or in +01:00'
        "; the mapping reads time at t.at"
    )


@pytest.mark.parametrize(
    ("record", "reason", "message"),
    [
        (
            deep(ok="much"),
            RejectReason.WRONG_TYPE,
            '$.scores.ok: expected a number from 0 to 1, got "much"; the mapping reads scores.ok at out[0].p',
        ),
        (
            deep(ok=1.5),
            RejectReason.OUT_OF_RANGE,
            "$.scores[0]: expected a number from 0 to 1, got 1.5; the mapping reads scores.ok at out[0].p",
        ),
        (
            {"req": {"uuid": "a"}, "net": "erm", "outs": []},
            RejectReason.NO_SCORES,
            "; the mapping reads scores.ok at out[0].p, but the record has only req, net, outs; "
            "did you mean outs?",
        ),
        (
            {"req": {"uuid": "a"}, "net": "erm", "out": []},
            RejectReason.NO_SCORES,
            "; the mapping reads scores.ok at out[0].p, but out has 0 elements",
        ),
        (
            {**deep(), "net": None},
            RejectReason.NO_MODEL,
            "; the mapping reads model at net, but net is null",
        ),
        (b'{"req": ', RejectReason.MALFORMED, "$: not JSON at character"),
        (b"[1]", RejectReason.WRONG_TYPE, "$: expected an object, got an array"),
    ],
)
def test_what_is_wrong_is_said_by_the_path_that_was_looked_at(
    record: Any, reason: RejectReason, message: str
) -> None:
    chunk = decode(DEEP, deep(), record, deep("c"))
    (reject,) = chunk.rejects
    assert (reject.reason, len(chunk.batches[0])) == (reason, 2)
    assert message in reject.message


@pytest.mark.parametrize("keep", ["whole", "redacted"])
@pytest.mark.parametrize(
    ("place", "field", "path"),
    [
        ({"i": "a\ud83d"}, "$.id", "i"),
        ({"m": "\ud83d"}, "$.model", "m"),
        ({"g": "\ude00"}, "$.groups.region", "g"),
        ({"l": "ok", "p": None, "d": {"round": "\ud83d"}}, "$.draw.round", "d"),
    ],
)
def test_half_of_a_surrogate_pair_is_told_and_takes_nobody_with_it(
    place: Any, field: str, path: str, keep: Any
) -> None:
    mapping = FieldMapping(id="i", model="m", scores="p", groups={"region": "g"}, label="l", draw="d")
    good = {"i": "a", "m": "erm", "p": 0.5, "unread": "\ud83d"}
    chunk = decode(mapping, good, good | place, good, keep=keep)
    (reject,) = chunk.rejects
    assert (reject.reason, len(chunk.batches[0])) == (RejectReason.ENCODING, 2)
    assert reject.message.startswith(f"{field}: text with half of a surrogate pair, as cutting it within a ")
    assert reject.message.endswith(f" at {path}")


def test_a_version_that_is_no_number_is_no_version() -> None:
    mapping = FieldMapping(model="m", scores="p", version="v")
    chunk = decode(mapping, *({"m": "erm", "p": 0.5, "v": v} for v in (1.5, float("nan"), float("inf"))))
    assert chunk.batches[0].versions == ("1.5",)
    assert [(reject.reason, reject.message) for reject in chunk.rejects] == [
        (
            RejectReason.NOT_A_NUMBER,
            f"$.version: expected a string or a number, got {got}; the mapping reads version at v",
        )
        for got in ("NaN", "Infinity")
    ]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"net": "x" * 201},
            "$.model: expected at most 200 characters, got 201; the mapping reads model at net",
        ),
        (
            {"req": {"uuid": "b", "where": "x" * 201}},
            "$.groups.region: expected at most 200 characters, got 201; the mapping reads groups.region at "
            "req.where",
        ),
    ],
)
def test_names_that_are_too_long_are_rejected_and_those_of_an_older_store_go_on(
    changes: Any, message: str
) -> None:
    chunk = decode(DEEP, deep(), deep(**changes))
    assert [len(batch) for batch in chunk.batches] == [1]
    assert [(one.reason.value, one.message) for one in chunk.rejects] == [("too_large", message)]
    known = dataclasses.replace(LAYOUT, long_names=frozenset({"x" * 201}))
    line = json.dumps(deep(**changes)).encode() + b"\n"
    again = Decoder([known], "test", wire=MappedWire(DEEP)).decode([RawBlock(line, "p", 0)])
    assert ([len(batch) for batch in again.batches], again.rejects) == ([1], ())


def test_a_field_without_a_path_is_told_to_be_given_one() -> None:
    (reject,) = decode(FieldMapping(scores="p"), {"p": 0.5, "model": "erm"}).rejects
    assert reject.message.endswith("; the mapping names no path of model: give one, or constants.model")
    (reject,) = decode(FieldMapping(model="model"), {"scores": 0.5, "model": "erm"}).rejects
    assert reject.message.endswith("; the mapping names no path of scores: give one")


def test_what_a_record_has_instead_is_told_briefly_however_much_it_is() -> None:
    mapping = FieldMapping(model="m", scores="out.probs")
    wide = {f"key{i}": 1 for i in range(5000)} | {"prob": 0.5}
    chunk = decode(mapping, {"m": "erm", "out": wide}, {"m": "erm", "out": {"k" * 100_000: 1}})
    fields, long = (reject.message.partition("but out has ")[2] for reject in chunk.rejects)
    assert fields.startswith("only key0, key1, ")
    assert fields.endswith("key9, … (5001 in all)")  # which of thousands was meant is not searched for
    assert long == f"only {'k' * 60}…"


def test_redacted_messages_quote_no_value() -> None:
    (reject,) = decode(DEEP, deep(ok="secret"), keep="redacted").rejects
    assert "secret" not in reject.message + reject.raw.decode()


PIECES = st.recursive(
    st.none() | st.booleans() | st.floats(0, 1) | st.integers(0, 2) | st.sampled_from(["a", "erm", "ok"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("pqr"), inner, max_size=3),
    max_leaves=6,
)


@given(st.dictionaries(st.sampled_from("pqr"), PIECES, max_size=3))
@pytest.mark.parametrize(
    "mapping",
    [
        {"id": "p", "scores": "q", "constants": {"model": "m"}},
        {"id": "p.q", "scores": "p.r", "model": "q[0]"},
        {"class_scores": {"ok": "p[0]", "toxic": "p[1].q"}, "groups": {"region": "p"}},
        {"prediction": "p.p", "label": "p.p", "groups": {"region": "r.q"}},
    ],
)
def test_the_quick_way_reads_what_the_slow_one_reads(mapping: Any, value: Any) -> None:
    wire = MappedWire(FieldMapping(**mapping))
    slow = wire.record(value)
    quick = wire.read_lines(json.dumps(value).encode())
    if quick is not None:
        assert isinstance(slow, Record), slow
        fields = Record.__struct_fields__
        assert [getattr(quick[0], name) for name in fields] == [getattr(slow, name) for name in fields]


def test_messages_may_be_arrays_and_lines() -> None:
    one, other = json.dumps(deep()).encode(), json.dumps(deep("b")).encode()
    raw = RawMessages([b"[%s, %s]" % (one, other), one + b"\n" + other, one], "t-0", [3, 4, 7])
    chunk = Decoder([LAYOUT], "test", wire=MappedWire(DEEP)).decode([raw])
    assert len(chunk.batches[0]) == chunk.answers == 5


def test_columns_of_a_table_are_mapped_by_name_or_into_what_they_hold() -> None:
    columns: dict[str, list[object]] = {
        "uuid": ["a", "b"],
        "out.p": ["0.25", 0.5],
        "more": ['{"p": 0.75}', {"p": 0.5}],
        "at": ["1500", 2500],
        "label": ["toxic", "toxic"],
    }
    mapping = FieldMapping(
        id="uuid",
        class_scores={"ok": "out.p", "toxic": "more.p"},
        time="at",
        time_unit="milliseconds",
        constants={"model": "erm"},
    )
    chunk = Decoder([LAYOUT], "test", wire=MappedWire(mapping)).decode([RawTable(columns, "t.csv", 0)])
    (batch,) = chunk.batches
    assert batch.scores.tolist() == [[0.25, 0.75], [0.5, 0.5]]
    assert (batch.time.tolist(), batch.label.tolist()) == ([1.5, 2.5], [-1, -1])


def test_a_csv_file_with_other_names_gives_the_rows_of_the_one_with_ours(tmp_path: Path) -> None:
    rows = [(f"r{i}", 0.1 * i, "erm") for i in range(5)]
    theirs, ours = tmp_path / "theirs.csv", tmp_path / "ours.csv"
    theirs.write_text("uuid,p1,net\n" + "".join(f"{a},{b},{c}\n" for a, b, c in rows))
    ours.write_text("id,scores,model\n" + "".join(f"{a},{b},{c}\n" for a, b, c in rows))
    mapping = FieldMapping(id="uuid", scores="p1", model="net")
    batches = []
    for path, decoder in (
        (theirs, Decoder([LAYOUT], "f", wire=MappedWire(mapping))),
        (ours, Decoder([LAYOUT], "f")),
    ):
        source = FileSource(path, mapped={"uuid", "p1", "net"} if path == theirs else ())
        source.open({})
        batches.append(decoder.decode(source.read(0.0)).batches[0])
        source.close()
    np.testing.assert_array_equal(batches[0].scores, batches[1].scores)
    np.testing.assert_array_equal(batches[0].key, batches[1].key)


@pytest.mark.parametrize(
    ("mapping", "message"),
    [
        ({"id": "a..b"}, ".id: expected a path such as payload.probs, outputs[0].data"),
        ({"id": "[0].a"}, ".id: expected a path such as"),
        ({"id": "a[x]"}, ".id: expected a path such as"),
        ({"class_scores": {"ok": "a b"}}, ".class_scores.ok: expected a path such as"),
        ({"groups": {"region": "."}}, ".groups.region: expected a path such as"),
        ({"scores": "a", "class_scores": {"ok": "b"}}, ".class_scores: expected scores or class_scores, got"),
        ({"model": "m", "constants": {"model": "erm"}}, ".model: expected a path or constants.model, got"),
        ({}, ": expected the path of at least one field, got none: leave mapping out, or name them"),
        ({"id": "a", "time_zone": "UTC"}, ".time: missing; time_unit and time_zone need it"),
        ({"time": "t", "time_zone": "Berlin"}, ".time_zone: expected the name of a time zone such as Europe"),
        ({"time": "t", "time_zone": "+25:00"}, "or an offset such as +01:00, got '+25:00'"),
        ({"time": "t", "time_zone": "Europe"}, ".time_zone: expected the name of a time zone"),
        ({"time": "t", "time_unit": "ms"}, ".time_unit: expected one of seconds, milliseconds, micro"),
        (
            {"format": "kserve", "id": "a"},
            "which defines all fields: leave one out, or give id: body",
        ),
        (
            {"label": "l", "id_hex_digits": 16},
            ".id: missing; id_hex_digits needs it: give its path, or leave",
        ),
        ({"format": "kserve", "id": "body", "id_hex_digits": 16}, ".id: missing; id_hex_digits needs it"),
        ({"id": "a", "id_hex_digits": 0}, ".id_hex_digits: expected "),
        ({"format": "kserve", "time": "body"}, ".time: expected no path with format: kserve, which defines"),
        ({"format": "kserve", "class_scores": {"ok": "b"}}, ".class_scores.ok: expected no path with"),
        ({"format": "kserve", "time_zone": "UTC"}, ".time: missing; time_unit and time_zone need it"),
        ({"format": "seldon"}, ".format: expected one of kserve, sagemaker, inference_table, debezium, "),
        (
            {"format": "cloudevents"},
            ".mapping: expected the path of at least one field, got none: leave mapping",
        ),
        ({"idd": "a"}, ".idd: unknown key; did you mean 'id'?"),
        (
            {"id": "$key", "time": "t"},
            ".id: expected a path into the records, got $key: only messages of kind: kafka have it",
        ),
        ({"groups": {"eu": "$headers.eu"}}, ".groups.eu: expected a path into the records, got $headers.eu"),
        ({"id": "$key.id"}, ".id: expected $key alone, which has no fields, got '$key.id'"),
        ({"id": "$headers"}, """.id: expected $headers.NAME or $headers["a name"], got '$headers'"""),
        ({"id": "$headers.a.b"}, """.id: expected $headers.NAME or $headers["a name"], got '$headers.a.b'"""),
        ({"id": "$timestamp"}, ".id: expected another path than $timestamp, which is for time"),
        (
            {"time": "$timestamp", "time_unit": "milliseconds"},
            ".time_unit: expected none beside time: $timestamp, which needs none: leave it out",
        ),
        ({"time": "$timestamp", "time_zone": "UTC"}, ".time_zone: expected none beside time: $timestamp"),
        (
            {"id": "a", "constants": {"model": PLACEHOLDERS["model"]}},
            ".constants.model: expected the model of every record, got the placeholder '<name of the model>'"
            ": write its name here",
        ),
        (
            {"time": "t", "time_zone": PLACEHOLDERS["time_zone"]},
            ".time_zone: expected the name of a time zone such as Europe/Berlin, or an offset such as +01:00"
            ", got '<zone of times without an offset,",
        ),
    ],
)
def test_a_mapping_that_cannot_be_meant_is_refused_by_its_key(mapping: Any, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        config_from({"tasks": {"t": {}}, "sources": [{"kind": "stdin", "mapping": mapping}]})
    assert f"sources[0].mapping{message}" in str(caught.value) or message in str(caught.value)


@pytest.mark.parametrize("deep", [False, True])
def test_decimal_ids_are_those_of_hexadecimal_labels(deep: bool) -> None:
    ids = ["4151694932783368069", 255, "399dc88b74578785", "r-1", None, "", -3, "٣"]
    known = ["399dc88b74578785", "00000000000000ff", "399dc88b74578785", "r-1", "", "", "-3", "٣"]
    mapping = FieldMapping(
        id="a.id" if deep else "id", id_hex_digits=16, scores="p", constants={"model": "m"}
    )
    records = [{"a": {"id": id_}, "id": id_, "p": 0.5} for id_ in ids]
    chunk = decode(mapping, *records)
    assert chunk.batches[0].key.tolist() == id_keys([*known[:5], *known[6:]]).tolist()
    assert [each.reason.value for each in chunk.rejects] == ["bad_id"]
    table = RawTable({"id": ids[:4], "p": [0.5] * 4}, "t.csv", 0)
    flat = mapping.model_copy(update={"id": "id"})
    decoded_chunk = Decoder([LAYOUT], "test", wire=MappedWire(flat)).decode([table])
    assert decoded_chunk.batches[0].key.tolist() == id_keys(known[:4]).tolist()


def test_a_field_of_the_record_may_have_the_name_of_what_stands_beside_messages() -> None:
    mapping = {"id": '["$key"]', "model": "$id", "scores": "p"}
    (source,) = config_from({"tasks": {"t": {}}, "sources": [{"kind": "stdin", "mapping": mapping}]}).sources
    assert source.mapping is not None
    assert (dict(source.mapping.beside), source.mapping.reads_headers) == ({}, False)
    (record,) = MappedWire(source.mapping).read_lines(b'{"$key": "a", "$id": "erm", "p": [0.5, 0.5]}') or []
    assert (record.id, record.model) == ("a", "erm")


def test_a_file_is_read_as_the_source_that_brought_it() -> None:
    file = {"kind": "file", "path": "/in/p.ndjson", "mapping": {"id": "a"}}
    topic = {"kind": "kafka", "brokers": ["b:1"], "topics": ["pred"], "mapping": {"id": "b"}}
    config = Config(tasks={"t": {}}, sources=[file, topic])

    def path_of(name: str) -> str | None:
        wire = wire_for(config, name)
        return wire.mapping.id if isinstance(wire, MappedWire) else None

    assert [path_of(name) for name in ("/in/p.ndjson", "p.ndjson", "pred", "pred-3", "other")] == [
        *("a", "a", "b", "b"),
        None,
    ]
    alone = Config(tasks={"t": {}}, sources=[topic])
    wire = wire_for(alone, "any.ndjson")
    assert isinstance(wire, MappedWire)
    assert wire.mapping.id == "b"


def test_replay_writes_the_windows_of_records_with_our_names(tmp_path: Path) -> None:
    from monitor.cli.replay import replay

    def windows(folder: Path, names: dict[str, str], **source: Any) -> bytes:
        folder.mkdir()
        rng = np.random.default_rng(3)
        lines = [
            {"id": f"r{i}", "time": 1000.0 + i, "model": "erm", "scores": [1 - p, p]}
            for i, p in enumerate(rng.uniform(size=400).round(6))
        ]
        stream = folder / "in.ndjson"
        stream.write_text(
            "".join(json.dumps({names.get(k, k): v for k, v in line.items()}) + "\n" for line in lines)
        )
        config = write_configuration(
            folder, configuration(sources=[{"kind": "file", "path": "in.ndjson", **source}])
        )
        replay(str(config), [stream], folder / "out", lambda *_: None)
        return (folder / "out" / "windows.ndjson").read_bytes().replace(str(folder).encode(), b"")

    ours = windows(tmp_path / "ours", {})
    names = {"id": "uid", "time": "at0", "model": "name0", "scores": "probs0"}
    theirs = windows(tmp_path / "them", names, mapping=names)
    actual, expected = ([json.loads(x) for x in text.splitlines()] for text in (theirs, ours))
    for window in (*actual, *expected):
        window.pop("positions", None)
    assert actual == expected != []


def test_the_example_of_the_page_is_read_as_it_says() -> None:
    page = (Path(__file__).parents[3] / "docs" / "serving" / "mapping.md").read_text(encoding="utf-8")
    record = page.partition("```json\n")[2].partition("\n```")[0]
    config = config_from(
        {"tasks": {"t": {}}, **yaml.safe_load(page.partition("```yaml\n")[2].partition("```")[0])}
    )
    mapping = config.sources[0].mapping
    assert mapping is not None
    chunk = decode(mapping, record.encode())
    (batch,) = chunk.batches
    assert (batch.scores.tolist(), batch.predicted.tolist()) == ([[0.12, 0.88]], [1])
    assert (batch.time.tolist(), batch.models) == ([1763632800.12], ("erm",))
    assert batch.groups["region"][0] == ("eu",)


@pytest.mark.parametrize("others", [(), (TaskLayout("turned", ("toxic", "ok")),)])
def test_scores_by_class_are_in_the_order_of_the_task_whatever_the_order_of_the_paths(
    others: tuple[TaskLayout, ...],
) -> None:
    mapping = FieldMapping(
        id="id", class_scores={"toxic": "p.t", "ok": "p.o"}, constants={"task": "toxicity", "model": "erm"}
    )
    rows = [{"id": str(i), "p": {"o": 1 - i / 10, "t": i / 10}} for i in range(10)]
    rows[4]["p"] = {"o": 0.6}
    data = b"\n".join(json.dumps(row).encode() for row in rows)
    decoder = Decoder([LAYOUT, *others], "test", wire=MappedWire(mapping))
    chunk = decoder.decode([RawBlock(data, "p", 0)])
    kept = [i for i in range(10) if i != 4]
    assert chunk.batches[0].scores[:, 1].tolist() == [i / 10 for i in kept]
    assert [reject.reason.value for reject in chunk.rejects] == ["wrong_length"]
    assert "toxic" in chunk.rejects[0].message


@pytest.mark.parametrize(("label", "reason"), [({}, "no_scores"), ({"label": "truth"}, "no_label")])
def test_a_record_with_an_id_alone_lost_its_label_only_where_labels_are_read(
    label: dict[str, str], reason: str
) -> None:
    chunk = decode(FieldMapping(id="id", scores="p", **label), {"id": "a"})
    assert [each.reason.value for each in chunk.rejects] == [reason]


TEXT_ROW = {
    "databricks_request_id": "d",
    "response": '{"predictions": [[0.25, 0.75]]}',
    "request_metadata": '{"model_name": "erm"}',
}
TEXT_PATHS = {
    "id": "databricks_request_id",
    "model": "request_metadata|json.model_name",
    "scores": "response|json.predictions[0]",
}


def test_a_path_goes_on_inside_of_json_text() -> None:
    wire = MappedWire(FieldMapping(**TEXT_PATHS))
    lines = [json.dumps({**TEXT_ROW, "databricks_request_id": str(i)}).encode() for i in range(20)]
    assert wire.read_lines(b"\n".join(lines)) is not None  # in one call, and not record by record
    # As text, as an object, and no JSON at all.
    lines.append(json.dumps({**TEXT_ROW, "response": {"predictions": [[0.5, 0.5]]}}).encode())
    lines.append(json.dumps({**TEXT_ROW, "response": "no JSON"}).encode())
    layout = TaskLayout("toxicity", ("ok", "toxic"))
    chunk = Decoder([layout], "t", wire=wire).decode([RawBlock(b"\n".join(lines) + b"\n", "p", 0)])
    (batch,) = chunk.batches
    assert batch.scores.tolist() == [[0.25, 0.75]] * 20 + [[0.5, 0.5]]
    assert batch.models == ("erm",)
    (reject,) = chunk.rejects
    assert reject.message.endswith(
        "the mapping reads scores at response|json.predictions[0], but response is no text that is JSON"
    )


def test_rows_beside_the_one_read_inside_of_json_text_are_counted() -> None:
    wire = MappedWire(FieldMapping(**TEXT_PATHS))
    line = json.dumps({**TEXT_ROW, "response": '{"predictions": [[0.25, 0.75], [0.5, 0.5]]}'}).encode()
    layout = TaskLayout("toxicity", ("ok", "toxic"))
    chunk = Decoder([layout], "t", wire=wire).decode([RawBlock(line + b"\n", "p", 0)])
    assert chunk.rows_left == {"response|json.predictions[0]": 1}


def test_a_name_that_ends_in_the_sign_of_json_text_is_written_in_quotes() -> None:
    assert parse_field_path('["a|json"].b') == ("a|json", "b")
    assert JSON_TEXT not in parse_field_path('["a|json"]')
    assert parse_field_path("a|b") == ("a|b",)


TRANSLATED = {
    "id": "ref",
    "model": "m",
    "scores": "p",
    "label": "verdict",
    "label_values": {"1": "toxic", "0": "ok", "true": "toxic", "Hate": "toxic"},
    "id_digits": 5,
    "id_prefix": "req-",
    "id_case": "lower",
    "where": {"answer": "accept", "done": ["true", "1"]},
}


def _translated(**fields: object) -> dict[str, object]:
    return {"ref": "81", "m": "erm", "p": 0.75, "answer": "accept", "done": True, **fields}


def test_ids_and_labels_are_translated_and_other_records_are_ignored() -> None:
    records = [
        _translated(verdict=1),
        _translated(ref=82, verdict=0.0, done=1),
        _translated(ref=83.0, verdict="1.0"),
        _translated(ref="REQ-00084", verdict=True),
        _translated(ref="a-85", verdict="Hate"),
        _translated(ref="86", verdict="ok"),
        _translated(answer="reject"),
        _translated(done=False),
        _translated(done=None),
        _translated(ref="87", verdict="hate"),
    ]
    mapping = FieldMapping.model_validate(TRANSLATED)
    chunk = decode(mapping, *records)
    keys = ["req-00081", "req-00082", "req-00083", "req-00084", "req-a-85", "req-00086", "req-00087"]
    [batch] = chunk.batches
    assert batch.key.tolist() == id_keys(keys).tolist()
    assert batch.label.tolist() == [1, 0, 1, 1, 1, 0, -1]
    assert (chunk.ignored, [(r.reason.value, r.along) for r in chunk.rejects]) == (
        3,
        [("unknown_class", True)],
    )
    names = ["ref", "m", "p", "answer", "done", "verdict"]
    table = RawTable({name: [record.get(name) for record in records] for name in names}, "t", 0)
    rows = Decoder([LAYOUT], "test", wire=MappedWire(mapping)).decode([table])
    assert rows.batches[0].key.tolist() == batch.key.tolist()
    assert rows.batches[0].label.tolist() == batch.label.tolist()
    assert (rows.ignored, rows.answers) == (3, chunk.answers)
    assert [outcome for _, outcome in MappedWire(mapping).read(json.dumps(records[6]).encode())] == [None]


def test_keys_of_label_values_are_text_whatever_yaml_makes_of_them(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    mapping = (
        "{id: i, label: l, label_values: {1: toxic, true: toxic, NO: ok, ~: ok}, where: {a: [yes, 1.0]}}"
    )
    source = f"{{kind: file, path: a.ndjson, mapping: {mapping}}}"
    path.write_text(f"tasks: {{t: {{classes: [ok, toxic]}}}}\nsources: [{source}]\n")
    read = load_config(path).sources[0].mapping
    assert read is not None
    assert read.label_values == {"1": "toxic", "true": "toxic", "NO": "ok", "~": "ok"}
    assert read.where == {"a": ("yes", "1.0")}
    path.write_text(path.read_text().replace("~: ok", '"1": ok'))
    with pytest.raises(ConfigError, match="the key '1' occurs twice"):
        load_config(path)
    with pytest.raises(ValueError, match="expected each value once, got '1' twice, as text: leave one out"):
        FieldMapping.model_validate({"id": "i", "label": "l", "label_values": {1: "toxic", "1": "ok"}})
    in_memory = FieldMapping.model_validate(
        {"id": "i", "label": "l", "label_values": {True: "toxic", 0: "ok"}}
    )
    assert in_memory.label_values == {"true": "toxic", "0": "ok"}


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"id": "a", "label_values": {"1": "ok"}}, "label: missing; label_values needs it"),
        ({"label": "a", "id_prefix": "r-"}, "id: missing; id_prefix needs it"),
        ({"label": "a", "id_case": "lower"}, "id: missing; id_case needs it"),
        ({"id": "a", "where": {"a..b": "x"}}, "where: expected a path such as"),
        ({"id": "a", "where": {"$key": "x"}}, "where: expected paths into the record, got"),
        ({"format": "kserve", "where": {"a": "x"}}, "where: expected paths into the record, got"),
        ({"id": "a", "where": {"a": []}}, "where: expected a text, or a list of some, at 'a', got none"),
    ],
)
def test_a_translation_that_cannot_be_is_refused(settings: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=re.escape(problem)):
        FieldMapping.model_validate(settings)


def test_json_in_an_element_of_an_array_is_read() -> None:
    mapping = FieldMapping(id='["the id"]', model="m", scores="choices[0]|json.p", label='["a.b"]|json[1]')
    record = {"the id": "a", "m": "erm", "choices": ['{"p": [0.25, 0.75]}'], "a.b": '["x", "toxic"]'}
    chunk = decode(mapping, record, {**record, "choices": [{"p": [0.5, 0.5]}]})
    assert chunk.rejects == ()
    assert chunk.batches[0].scores.tolist() == [[0.25, 0.75], [0.5, 0.5]]
    assert chunk.batches[0].label.tolist() == [1, 1]
