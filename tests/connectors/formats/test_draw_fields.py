"""Labels that say how their rows were drawn, in every format that can carry them."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from connectors.formats.decode.draws import DRAW_FIELDS
from monitor.base.records import DRAW, id_keys
from monitor.config.mapping import FieldMapping
from monitor.engine.labels.matching import merged
from tests.connectors.formats.test_mapping import decode as decode_mapped
from tests.connectors.formats.test_tables import LAYOUT, chunks_of
from tests.records import answer, decode, message_chunk

DRAWN = {"round": "3f9a61c2-0", "number": 17, "pool": 8123, "probability": 0.00031}
LABEL = {"id": "a", "task": "toxicity", "label": "ok", "probability": 0.0063}
ROUND = int(id_keys(["3f9a61c2-0"])[0])


def test_a_label_brings_its_draw_and_another_none() -> None:
    chunk = decode(LABEL | {"draw": DRAWN}, LABEL | {"id": "b"}, LABEL | {"id": "c", "draw": None})
    [labels] = chunk.labels
    assert labels.draw.dtype == DRAW
    assert labels.draw.tolist() == [(ROUND, 17, 8123, 0.00031), (0, 0, 0, 0.0), (0, 0, 0, 0.0)]


def test_a_round_may_be_named_by_a_number_and_is_another_than_none() -> None:
    [labels] = decode(*(LABEL | {"id": str(n), "draw": DRAWN | {"round": n}} for n in (7, 7.0))).labels
    assert labels.draw["round"].tolist() == [int(id_keys(["7"])[0])] * 2  # a gap makes floats of a column


def test_a_message_brings_it_as_a_line_does() -> None:
    chunk = message_chunk(json.dumps([LABEL | {"draw": DRAWN}]).encode())
    assert chunk.labels[0].draw["number"].tolist() == [17]


def test_beside_an_answer_it_is_passed_over() -> None:
    chunk = decode(answer(label="ok", probability=0.05, draw="whatever"), answer(draw=DRAWN))
    assert chunk.rejects == ()
    assert len(chunk.batches[0]) == 2


def test_labels_keep_their_draws_where_batches_become_one() -> None:
    first, second = (decode(LABEL | {"draw": DRAWN | {"number": m}}).labels[0] for m in (3, 4))
    assert merged(first, second).draw["number"].tolist() == [3, 4]


WRONG: list[tuple[dict[str, Any], str, str]] = [
    ({"draw": 3}, "wrong_type",
     "$.draw: expected an object with round, number, pool, probability, got 3"),
    ({"draw": {"number": 3}}, "wrong_type",
     "$.draw.round: expected text of 1 to 512 characters, got nothing"),
    ({"draw": DRAWN | {"round": ""}}, "out_of_range",
     '$.draw.round: expected text of 1 to 512 characters, got ""'),
    ({"draw": DRAWN | {"round": 1.5}}, "wrong_type",
     "$.draw.round: expected text of 1 to 512 characters, got 1.5"),
    ({"draw": DRAWN | {"number": None}}, "wrong_type",
     "$.draw.number: expected a whole number from 1, got nothing"),
    ({"draw": DRAWN | {"number": 0}}, "out_of_range",
     "$.draw.number: expected a whole number from 1, got 0"),
    ({"draw": DRAWN | {"number": True}}, "wrong_type",
     "$.draw.number: expected a whole number from 1, got true"),
    ({"draw": DRAWN | {"number": 10**400}}, "out_of_range",
     f"$.draw.number: expected a whole number from 1, got 1{'0' * 59}…"),
    ({"draw": DRAWN | {"pool": 16}}, "out_of_range",
     "$.draw.pool: expected a whole number, at least the number of the draw, got 16"),
    ({"draw": DRAWN | {"pool": "many"}}, "wrong_type",
     '$.draw.pool: expected a whole number, at least the number of the draw, got "many"'),
    ({"draw": DRAWN | {"probability": 0}}, "out_of_range",
     "$.draw.probability: expected a number above 0 and at most 1, got 0"),
    ({"draw": DRAWN | {"probability": 1.5}}, "out_of_range",
     "$.draw.probability: expected a number above 0 and at most 1, got 1.5"),
    ({"draw": DRAWN, "probability": None}, "out_of_range",
     "$.probability: expected a number above 0 and at most 1 beside draw, got nothing; send the one that "
     "came with the draw"),
]  # fmt: skip


@pytest.mark.parametrize(("changed", "reason", "message"), WRONG)
def test_a_wrong_draw_is_told_and_counts_as_a_label(
    changed: dict[str, Any], reason: str, message: str
) -> None:
    chunk = decode(LABEL | {"id": "before"}, LABEL | changed, LABEL | {"id": "after", "draw": DRAWN})
    assert [(r.reason.value, r.message, r.answers) for r in chunk.rejects] == [(reason, message, 0)]
    assert chunk.labels_received == 3
    assert chunk.labels[0].draw["number"].tolist() == [0, 17]


ROWS: list[dict[str, Any]] = [
    LABEL | {f"draw.{field}": DRAWN[field] for field in DRAW_FIELDS},
    LABEL | {"id": "b"} | {f"draw.{field}": None for field in DRAW_FIELDS},
]


def test_csv_and_parquet_have_a_column_a_field(tmp_path: Path) -> None:
    with (tmp_path / "l.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(ROWS[0]))
        writer.writeheader()
        writer.writerows(ROWS)
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(ROWS), tmp_path / "l.parquet")
    for name in ("l.csv", "l.parquet"):
        [chunk] = chunks_of(tmp_path / name, layout=LAYOUT)
        assert chunk.rejects == (), name
        assert chunk.labels[0].draw.tolist() == [(ROUND, 17, 8123, 0.00031), (0, 0, 0, 0.0)], name


def test_parquet_may_hold_it_as_a_struct_and_csv_as_json(tmp_path: Path) -> None:
    nothing = dict.fromkeys(DRAW_FIELDS)
    rows = [LABEL | {"draw": DRAWN}, LABEL | {"id": "b", "draw": nothing}, LABEL | {"id": "c", "draw": None}]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "l.parquet")
    [chunk] = chunks_of(tmp_path / "l.parquet", layout=LAYOUT)
    assert chunk.rejects == ()
    assert chunk.labels[0].draw["number"].tolist() == [17, 0, 0]
    with (tmp_path / "l.csv").open("w", newline="") as file:
        csv.writer(file).writerows([[*LABEL, "draw"], [*LABEL.values(), json.dumps(DRAWN)]])
    [chunk] = chunks_of(tmp_path / "l.csv", layout=LAYOUT)
    assert chunk.labels[0].draw["number"].tolist() == [17]


def test_a_mapping_names_where_it_stands() -> None:
    mapping = FieldMapping(id="uuid", label="truth", probability="how.chance", draw="how.turn")
    record = {"uuid": "a", "truth": "ok", "how": {"chance": 0.05, "turn": DRAWN}}
    wrong = {"uuid": "b", "truth": "ok", "how": {"chance": 0.05, "turn": DRAWN | {"number": -1}}}
    chunk = decode_mapped(mapping, record, wrong)
    assert chunk.labels[0].draw["number"].tolist() == [17]
    assert [r.message for r in chunk.rejects] == [
        "$.draw.number: expected a whole number from 1, got -1; the mapping reads draw.number at how.turn"
    ]
