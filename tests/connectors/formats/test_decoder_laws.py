"""Laws of the decoder, over inputs that hypothesis and the mutator of the fuzzing benchmark draw."""

from __future__ import annotations

import datetime
import json
import random
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.formats.decode.decoder import Decoder
from connectors.formats.files.joining import join_batches
from monitor.base.records import NO_ID, Batch, LabelBatch, TaskLayout, id_keys
from monitor.base.source import RawBlock, RawMessages
from tests.bench.fuzz_decoder import LAYOUTS, as_raw, check_chunk, counts_of, one_by_one, reads
from tests.examples import examples

CLASSES = ("ok", "toxic", "other")
LAYOUT = TaskLayout("toxicity", CLASSES, groups=("region",))

LAST_SECONDS = 1e11  # a larger number is taken for milliseconds

names = st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=12)
moments = st.datetimes(
    datetime.datetime(1970, 1, 2),  # what is earlier is rejected
    datetime.datetime(9999, 12, 30),
    timezones=st.integers(-1439, 1439).map(lambda m: datetime.timezone(datetime.timedelta(minutes=m))),
)


@st.composite
def predictions(draw):
    """Return a good prediction, in any of the forms, and the row that it must become."""
    raw = np.array(draw(st.lists(st.floats(0, 1), min_size=3, max_size=3))) + 1e-6
    scores = (raw / raw.sum()).tolist()
    moment = draw(moments)
    times = [moment.isoformat()]
    if moment.timestamp() < LAST_SECONDS:
        times.append(moment.timestamp())
    record = {
        "id": draw(st.none() | names | st.integers()),
        "time": draw(st.sampled_from(times)),
        "model": draw(names),
        "scores": draw(st.sampled_from([scores, dict(zip(CLASSES, scores, strict=True))])),
        "version": draw(st.none() | names),
        "label": draw(st.none() | st.sampled_from(CLASSES)),
        "probability": draw(st.none() | st.floats(0.001, 1)),
        "prediction": draw(st.none() | st.sampled_from(CLASSES)),
        "groups": draw(st.none() | st.fixed_dictionaries({"region": names})),
        "unknown": draw(st.none() | names),
    }
    return {name: value for name, value in record.items() if value is not None}, scores, moment.timestamp()


def lines_of(records) -> bytes:
    return b"".join(json.dumps(record).encode() + b"\n" for record in records)


@examples(150)
@given(st.lists(predictions(), min_size=1, max_size=8), st.booleans())
def test_what_is_sent_is_what_is_read(generated, as_messages):
    records = [record for record, _, _ in generated]
    data = lines_of(records)
    raw = RawMessages([data], "t-0", [0]) if as_messages else RawBlock(data, "p", 0)
    chunk = Decoder([LAYOUT], "test").decode([raw])
    check_chunk(chunk)
    assert chunk.rejects == ()
    [batch] = chunk.batches
    np.testing.assert_array_equal(batch.scores, np.array([scores for _, scores, _ in generated]))
    np.testing.assert_allclose(batch.time, [time for _, _, time in generated], rtol=0, atol=1e-5)
    assert [batch.models[i] for i in batch.model] == [r["model"] for r in records]
    assert [batch.versions[i] for i in batch.version] == [r.get("version", "") for r in records]
    acted = [r.get("prediction", CLASSES[int(np.argmax(s))]) for r, s, _ in generated]
    assert [CLASSES[i] for i in batch.predicted] == acted
    assert [CLASSES[i] if i >= 0 else None for i in batch.label] == [r.get("label") for r in records]
    assert batch.key.tolist() == id_keys([str(r.get("id", "")) for r in records]).tolist()
    values, code = batch.groups["region"]
    assert [values[i] if i >= 0 else None for i in code] == [
        r.get("groups", {}).get("region") for r in records
    ]


@examples(400)
@given(st.binary(max_size=300), st.booleans())
def test_any_bytes_are_accounted_for(data, as_messages):
    raw = RawMessages([data], "t-0", [0]) if as_messages else RawBlock(data, "p", 0)
    check_chunk(Decoder(LAYOUTS, "test").decode([raw]))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=6,
)
answers_of_a_record = st.lists(st.booleans(), min_size=1, max_size=4)


@examples(200)
@given(st.lists(st.tuples(answers_of_a_record, st.booleans(), st.sampled_from((None, *CLASSES))), max_size=6))
def test_a_label_stands_on_the_first_kept_answer_of_its_record_and_without_an_id_on_each(generated):
    records, expected = [], []
    for number, (good, with_id, label) in enumerate(generated):
        models = {f"m{i}": [0.2, 0.3, 0.5] if fine else [9, 9, 9] for i, fine in enumerate(good)}
        record = {"id": f"r{number % 2}" if with_id else None, "models": models, "label": label}
        records.append({name: value for name, value in record.items() if value is not None})
        code = -1 if label is None else CLASSES.index(label)
        expected += [code if i == 0 or not with_id else -1 for i in range(sum(good))]
    chunk = Decoder([LAYOUT], "test").decode([RawBlock(lines_of(records), "p", 0)])
    check_chunk(chunk)
    assert [label for batch in chunk.batches for label in batch.label.tolist()] == expected
    assert chunk.labels_received == 0


fields = ("id", "time", "task", "model", "scores", "models", "confidence", "prediction", "version")


@examples(400)
@given(
    st.dictionaries(
        st.sampled_from((*fields, "groups", "label", "correct", "probability", "draw")), json_values
    )
)
def test_any_json_in_any_field_is_accounted_for(record):
    data = json.dumps(record).encode() + b"\n"
    chunk = Decoder(LAYOUTS, "test").decode([RawBlock(data, "p", 0)])
    check_chunk(chunk)
    assert chunk.answers + chunk.labels_received >= 1


@pytest.mark.parametrize("seed", range(20))
def test_mutated_records_are_accounted_for_and_read_alike_one_by_one(seed):
    decoder = Decoder(LAYOUTS, "test")
    for number, values in enumerate(reads(random.Random(seed), 400, each=100)):
        raw = as_raw(number, values)
        chunk = decoder.decode([raw])
        check_chunk(chunk)
        pieces = [decoder.decode([piece]) for piece in one_by_one(raw)]
        assert counts_of(pieces) == counts_of([chunk])
        assert [r for piece in pieces for r in piece.rejects] == list(chunk.rejects)


def assert_same_rows(one: Batch, other: Batch) -> None:
    for name in (
        "scores",
        "predicted",
        "model",
        "version",
        "time",
        "key",
        "label",
        "position",
        "probability",
    ):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)
    assert (one.models, one.versions) == (other.models, other.versions)
    for name, (values, code) in one.groups.items():
        assert values == other.groups[name][0]
        np.testing.assert_array_equal(code, other.groups[name][1])


@examples(60)
@given(st.lists(predictions(), min_size=2, max_size=12), st.data())
def test_a_file_cut_at_any_line_gives_the_same_rows(generated, data):
    lines = [lines_of([record]) for record, _, _ in generated]
    whole = b"".join(lines)
    cuts = sorted(data.draw(st.sets(st.integers(1, len(lines) - 1))))
    decoder = Decoder([LAYOUT], "test")
    expected = join_batches(decoder.decode([RawBlock(whole, "p", 0)]).batches)
    batches, start = [], 0
    for a, b in zip([0, *cuts], [*cuts, len(lines)], strict=True):
        part = b"".join(lines[a:b])
        chunk = decoder.decode([RawBlock(part, "p", start)])
        batches.extend(chunk.batches)
        start += len(part)
        assert chunk.positions == {"p": start}
    assert_same_rows(join_batches(batches), expected)


def test_records_are_not_changed_by_bad_neighbours():
    records = [{"id": str(i), "model": "m", "scores": [0.2, 0.3, 0.5], "time": i} for i in range(100)]
    good = lines_of(records)
    spoiled = b"".join(
        lines_of([r]) + (b'{"model": "z", "scores": [2, 3, 4]}\n{broken\n' if i % 7 == 0 else b"")
        for i, r in enumerate(records)
    )
    decoder = Decoder([LAYOUT], "test")
    expected = decoder.decode([RawBlock(good, "p", 0)]).batches[0]
    chunk = decoder.decode([RawBlock(spoiled, "p", 0)])
    [batch] = chunk.batches
    assert len(chunk.rejects) == 30
    np.testing.assert_array_equal(batch.key, expected.key)
    np.testing.assert_array_equal(batch.time, expected.time)
    assert batch.models == ("m",)


ODD_ONES = [
    {"label": "ok"},
    {"groups": {"region": "eu"}, "more": 3},
    {"version": 7, "prediction": "other"},
    {"models": {"a": [0.2, 0.3, 0.5], "b": [1, 0, 0]}, "model": None, "scores": None},
    {"label": "toxic", "model": None, "scores": None},
    {"time": "2026-11-20T10:00:00.5+01:00"},
    {"scores": {"ok": 0.5, "toxic": 0.25, "other": 0.25}},
    {"winner": "a", "judge_b": {}},
    {"label": 5},
    {"scores": "none"},
]


@pytest.mark.parametrize("odd", ODD_ONES, ids=lambda fields: "-".join(fields))
@pytest.mark.parametrize("place", [0, 150, 299])
def test_a_record_of_another_shape_than_its_many_neighbours_is_read_as_if_alone(odd, place):
    # More than 8 KiB, where the first record's fields are tried for all.
    records = [{"id": f"r{i}", "model": "m", "scores": [0.2, 0.3, 0.5], "time": i} for i in range(300)]
    records[place] = {k: v for k, v in (records[place] | odd).items() if v is not None}
    decoder = Decoder([LAYOUT], "test")
    raw = RawBlock(lines_of(records), "p", 0)
    chunk, pieces = decoder.decode([raw]), [decoder.decode([piece]) for piece in one_by_one(raw)]
    check_chunk(chunk)
    for kind in ("batches", "labels"):
        whole = [row for batch in getattr(chunk, kind) for row in rows_of(batch)]
        assert whole == [row for piece in pieces for batch in getattr(piece, kind) for row in rows_of(batch)]
    assert [r for piece in pieces for r in piece.rejects] == list(chunk.rejects)
    assert chunk.answers + chunk.labels_received >= 300


def rows_of(batch: Batch | LabelBatch) -> list[tuple[object, ...]]:
    """Return each row as plain values, names in the place of codes."""
    models = [(*batch.models, None)[i] for i in batch.model]  # -1 for none
    columns = [batch.key, batch.label, models, batch.time]
    if isinstance(batch, Batch):
        versions = [batch.versions[i] for i in batch.version]
        values, code = batch.groups["region"]
        groups = [values[i] if i >= 0 else None for i in code.tolist()]
        columns += [map(tuple, batch.scores.tolist()), batch.predicted, batch.position, versions, groups]
    return list(zip(*columns, strict=True))


@examples(200)
@given(st.lists(st.text(max_size=40), max_size=20))
def test_a_key_depends_on_the_id_alone(ids):
    together = id_keys(ids)
    assert together.tolist() == [int(id_keys([x])[0]) for x in ids]
    assert [key == NO_ID for key in together] == [x == "" for x in ids]
    assert len(set(together.tolist())) == len(set(ids))


def test_keys_tell_apart_ids_that_differ_in_trailing_nulls_or_one_character_anywhere():
    ids = ["a", "a\0", "a\0\0", "\0", "\0\0", "ü", "u\u0308", *(f"req-{i:012d}-é" for i in range(2000))]
    ids += [f"req-{i:012d}" for i in range(2000)] + ["x" * n for n in range(1, 200)]
    assert len(set(id_keys(ids).tolist())) == len(ids)


def test_keys_spread_evenly_over_their_low_and_high_bits():
    keys = id_keys([f"req-{i:08d}" for i in range(1 << 16)])
    # Poisson with mean 256 a cell: 6 standard deviations at 256 cells are passed once in a million runs.
    for shift in (0, 28, 56):
        cells = np.bincount(((keys >> np.uint64(shift)) & np.uint64(255)).astype(np.int64), minlength=256)
        assert np.abs(cells - 256).max() < 6 * 16


def test_keys_are_the_same_in_another_process():
    code = "from monitor.base.records import id_keys; print(id_keys(['req-81', 'ü', 'x' * 100]).tolist())"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.strip() == str(id_keys(["req-81", "ü", "x" * 100]).tolist())


def test_keys_on_disk_keep_their_meaning():
    # Written down on the day the function was made: a change would cut all labels from their predictions.
    expected = [8564003275869974156, 16479292900148742190, 4499539015577509751]
    assert id_keys(["req-81", "ü", "x" * 100]).tolist() == expected
