"""The hints on records and tables that name a field otherwise than we do, or are packed in another way."""

from __future__ import annotations

import gzip
import random

import pyarrow
import pyarrow.parquet
import pytest
import zstandard

from connectors.files import FileSource
from connectors.formats.decode.decoder import Decoder
from connectors.formats.files.reference import read_reference
from monitor.base.errors import ConfigError, SourceError
from monitor.base.records import RejectReason, TaskLayout
from monitor.base.source import EndOfSource, Raw, RawDamaged
from tests.bench.fuzz_decoder import check_chunk
from tests.connectors.file_reading import drain
from tests.records import answer, decode

LAYOUT = TaskLayout("toxicity", ("ok", "toxic"))
HEADER = "id,model,label,scores.ok,scores.toxic\n"


def only_message(path, layout=LAYOUT) -> str:
    source = FileSource(path)
    source.open({})
    chunk = Decoder([layout], "file").decode(source.read(0.0))
    check_chunk(chunk)
    source.close()
    [reject] = chunk.rejects
    return reject.message


@pytest.mark.parametrize(
    ("record", "clause"),
    [
        ({"score": [0.5, 0.5]}, '; "score" is no field: did you mean scores?'),
        ({"Scores": [0.5, 0.5]}, '; "Scores" is no field: did you mean scores?'),
        ({"labels": "toxic"}, '; "labels" is no field: did you mean label?'),
        ({"colour": 1}, ""),
        ({"probabilities": [0.5, 0.5]}, ""),
    ],
)
def test_a_misspelt_field_is_named_beside_the_nearest(record, clause):
    [reject] = decode(answer(scores=None, **record)).rejects
    assert reject.reason is RejectReason.NO_SCORES
    expected = f"$.scores: expected a probability for each class (ok, toxic), got none{clause}"
    assert reject.message == expected


def test_a_misspelt_field_beside_all_that_is_needed_is_passed_over():
    assert decode(answer(score=1, labels="ok")).rejects == ()


def test_a_misspelt_model_and_id_are_named():
    [reject] = decode(answer(model=None, modle="erm")).rejects
    assert (reject.reason, reject.message.partition(";")[2]) == (
        RejectReason.NO_MODEL,
        ' "modle" is no field: did you mean model?',
    )
    [reject] = decode({"ID": "a", "label": "ok"}).rejects
    assert (reject.reason, reject.message.partition(";")[2]) == (
        RejectReason.NO_ID,
        ' "ID" is no field: did you mean id?',
    )


def test_columns_that_bear_the_name_of_a_class_alone(tmp_path):
    (tmp_path / "p.csv").write_text("id,model,ok,toxic\na,erm,0.5,0.5\n")
    assert only_message(tmp_path / "p.csv") == (
        "$.scores: expected a probability for each class (ok, toxic), got none; "
        "name the columns scores.ok, scores.toxic instead of ok, toxic"
    )


def test_columns_of_a_parquet_file_that_bear_the_name_of_a_class_alone(tmp_path):
    table = pyarrow.table({"model": ["erm"], "ok": [0.5], "toxic": [0.5]})
    pyarrow.parquet.write_table(table, tmp_path / "p.parquet")
    assert "; name the columns scores.ok, scores.toxic instead of" in only_message(tmp_path / "p.parquet")


@pytest.mark.parametrize(
    ("header", "why"),
    [
        ("id;model;scores.ok;scores.toxic", "it has semicolons between them; put commas, there and in every"),
        ("id\tmodel\tscores.ok", "it has tabs between them; put commas"),
        (
            "a,b,c",
            "none of them is known; known are confidence, correct, .*scores.<class>, groups.<name>, features.<name>, quantiles.<level>, draw.round, ",  # noqa: E501
        ),
    ],
)
def test_a_first_line_in_which_no_column_is_known(tmp_path, header, why):
    (tmp_path / "p.csv").write_text(f"{header}\n1;2;3\n")
    expected = f"p.csv: the first line of a CSV file must name its columns, but {why}"
    with pytest.raises(SourceError, match=expected):
        only_message(tmp_path / "p.csv")


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.ZstdCompressor().compress])
@pytest.mark.parametrize("plain", [False, True])
def test_a_compressed_table_gives_the_rows_of_the_plain_one(tmp_path, pack, plain):
    text = (HEADER + "".join(f"r{i},erm,ok,0.75,0.25\n" for i in range(20_000))).encode()
    path = tmp_path / ("p.csv" if plain else "p.csv.gz" if pack is gzip.compress else "p.csv.zst")
    path.write_bytes(text if plain else pack(text))
    source = FileSource(path)
    source.open({str(path): 10})
    raws: list[Raw] = []
    with pytest.raises(EndOfSource):
        drain(source, raws)
    chunk = Decoder([LAYOUT], "f").decode(raws)
    assert (len(chunk.batches[0]), chunk.positions) == (19_990, {str(path): 20_000})


def test_every_whole_row_before_the_damage_is_used(tmp_path):
    draw = random.Random(5)
    rows = "".join(f"{draw.getrandbits(256):x},erm,ok,0.75,0.25\n" for _ in range(20_000))
    whole = gzip.compress((HEADER + rows).encode())
    path = tmp_path / "p.csv.gz"
    path.write_bytes(whole[: len(whole) // 2])
    source = FileSource(path)
    source.open({})
    tables: list[Raw] = []
    with pytest.raises(SourceError) as caught:
        drain(source, tables)
    *tables, damaged = tables
    assert isinstance(damaged, RawDamaged)
    used = sum(len(raw.columns["id"]) for raw in tables)
    assert 8_000 < used < 12_000
    assert str(caught.value).startswith(f"{path} is damaged after row {used}: ")


def test_a_compressed_parquet_file_is_refused(tmp_path):
    (tmp_path / "p.parquet.gz").write_bytes(gzip.compress(b"PAR1"))
    with pytest.raises(SourceError, match=r"Parquet is compressed within; unpack the \.gz around it"):
        FileSource(tmp_path / "p.parquet.gz").open({})


def test_a_reference_whose_labels_have_another_name(tmp_path):
    (tmp_path / "r.csv").write_text("model,labels,scores.ok,scores.toxic\nerm,ok,0.5,0.5\n")
    with pytest.raises(ConfigError, match=r'on every line; "labels" is no field: did you mean label\?$'):
        read_reference(tmp_path / "r.csv", LAYOUT)


def test_a_byte_order_mark_within_a_file_has_a_sentence_of_its_own():
    good = b'{"id": "a", "model": "erm", "scores": [0.5, 0.5]}'
    [reject] = decode(good, b"\xef\xbb\xbf" + good).rejects
    assert (reject.reason, reject.message) == (
        RejectReason.MALFORMED,
        "$: a byte order mark stands before the record; only the first line of a file may have one, "
        "so leave it out where files are joined",
    )
