"""The redaction of a rejected record: all of it, its structure or nothing; no value slips through."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.formats.decode.decoder import Decoder
from connectors.formats.messages.redaction import Keep, redact
from connectors.formats.messages.wording import as_json, shown, without_values
from monitor.base.records import Reject, TaskLayout
from monitor.base.source import RawBlock, RawMessages, RawSkipped, RawTable
from tests.connectors.formats.test_json_rejects import WRONG
from tests.examples import examples
from tests.records import FEATURES

TASK = TaskLayout("toxicity", ("ok", "toxic"), groups=("region",), features=FEATURES)
SECRET = "alice@example.org"
NUMBER = 8675309.25


def rejects(keep: Keep, *lines: bytes) -> tuple[Reject, ...]:
    block = RawBlock(b"\n".join(lines) + b"\n", "in.ndjson", 0)
    return Decoder([TASK], "test", keep=keep).decode([block]).rejects


def values(tree: Any) -> Iterator[Any]:
    """Yield every value of a record that may be a person's."""
    if isinstance(tree, dict):
        for name, value in tree.items():
            if name not in ("task", "model"):
                yield from values(value)
    elif isinstance(tree, list):
        for value in tree:
            yield from values(value)
    elif tree is not None and not isinstance(tree, bool):
        yield tree


@pytest.mark.parametrize("record", [wrong[0] for wrong in WRONG])
def test_no_fault_there_is_quotes_a_value_once_redacted(record: Any) -> None:
    line = record if isinstance(record, bytes) else json.dumps(record).encode()
    whole, redacted = rejects("whole", line), rejects("redacted", line)
    assert [(r.reason, r.answers, r.position) for r in whole] == [
        (r.reason, r.answers, r.position) for r in redacted
    ]
    kept = redacted[0].message + redacted[0].raw.decode()
    try:
        tree = json.loads(line)
    except (ValueError, RecursionError):
        tree = None
    for value in values(tree):
        written = as_json(value)
        assert len(written) <= 3 or written not in kept  # "a" is a key of a record too


RECORD = st.fixed_dictionaries(
    {},
    optional={
        "id": st.sampled_from(["a", SECRET, NUMBER, ""]),
        "time": st.sampled_from([1.7e9, NUMBER, 1795168800123.75, SECRET, "2026-11-20T10:00:00"]),
        "task": st.sampled_from(["toxicity", None]),
        "model": st.just("erm"),
        "scores": st.sampled_from(
            [[0.5, 0.5], [NUMBER, 0.5], SECRET, {"ok": SECRET}, [0.5], [SECRET], [-NUMBER, 0.5]]
        ),
        "prediction": st.sampled_from(["ok", SECRET, [SECRET], NUMBER]),
        "label": st.sampled_from(["ok", SECRET, NUMBER]),
        "groups": st.sampled_from(
            [{"region": SECRET}, {"region": [SECRET]}, SECRET, {"region": SECRET * 40}]
        ),
        "version": st.sampled_from([SECRET, [SECRET]]),
        "correct": st.sampled_from([SECRET, True]),
        "probability": st.sampled_from([NUMBER, SECRET]),
        "draw": st.sampled_from(
            [SECRET, {"round": SECRET, "number": SECRET}, {"round": "r", "number": NUMBER}]
        ),
        "score": st.just(SECRET),
    },
)


@pytest.mark.slow
@examples(400)
@given(record=RECORD, cut=st.integers(0, 400), junk=st.sampled_from([b"", b"\xff", b"NaN", b"}"]))
def test_no_value_slips_through_whatever_is_wrong(record: dict[str, Any], cut: int, junk: bytes) -> None:
    line = json.dumps(record).encode()
    lines = [line, line[:cut].replace(b"\n", b"") + junk]
    for reject in rejects("redacted", *lines):
        kept = reject.message + reject.raw.decode()
        for secret in (SECRET, "alice", "8675309", "1795168800"):
            assert secret not in kept
    assert all((r.message, r.raw) == ("", b"") for r in rejects("none", *lines))


def test_the_structure_stays_with_lengths_and_the_names_of_task_and_model() -> None:
    record = {"id": "req-81", "task": "toxicity", "model": "erm", "x": {"y": [1, "ab", None, True]}}
    assert json.loads(redact(json.dumps(record).encode())) == {
        "id": "text of 6 characters",
        "task": "toxicity",
        "model": "erm",
        "x": {"y": ["a number", "text of 2 characters", None, "true or false"]},
    }


@pytest.mark.parametrize(
    "record", [b'{"id": "alice", ', b"\xff\xfe", b"", b"[" * 9_000, b'"' + b"x" * 20_000 + b'"']
)
def test_what_cannot_be_looked_through_is_reduced_to_its_length_and_a_hash(record: bytes) -> None:
    reduced = json.loads(redact(record))["unreadable"]
    assert reduced["bytes"] == len(record)
    assert redact(record) == redact(record), "equal records can be told"
    assert json.loads(redact(record + b" "))["unreadable"]["hash"] != reduced["hash"]


@pytest.mark.parametrize("value", ["text", 5, -1.5, [1], {"model": "a"}])
def test_a_model_that_is_no_name_and_a_record_that_is_no_object_are_replaced_too(value: Any) -> None:
    assert b"erm" not in redact(json.dumps([value, "erm"]).encode())
    if not isinstance(value, str):
        assert json.dumps(value).encode() not in redact(json.dumps({"model": value}).encode())


def test_a_reject_holds_no_more_than_2000_bytes_of_either() -> None:
    line = json.dumps({"model": "erm", "scores": [0.5] * 3_000}).encode()
    assert [len(rejects(keep, line)[0].raw) for keep in ("whole", "redacted", "none")] == [2000, 2000, 0]


@pytest.mark.parametrize("keep", ["redacted", "none"])
def test_every_way_in_redacts(keep: Keep) -> None:
    decoder = Decoder([TASK], "test", keep=keep)
    bad = json.dumps({"model": "erm", "label": SECRET, "scores": [0.5, 0.5]}).encode()
    ways = [
        RawBlock(bad, "p", 0),
        RawMessages([bad, b"[" + bad + b"]", b"\xff" + bad], "p", [0, 1, 2]),
        RawTable({"model": ["erm"], "scores": [0.5], "label": [SECRET]}, "p", 0),
        RawTable({"model": ["erm"], "scores": [SECRET]}, "p", 0),
        RawSkipped(bad, 5_000_000, "p", 0),
    ]
    for raw in ways:
        rejects = decoder.decode([raw]).rejects
        assert rejects
        assert not any(SECRET in r.message or SECRET.encode() in r.raw for r in rejects)
        assert all(r.raw == b"" for r in rejects) == (keep == "none")


def test_values_are_quoted_again_afterwards_even_after_an_error() -> None:
    with suppress(KeyError), without_values():
        assert shown("a") == "text of 1 characters"
        raise KeyError
    assert shown("a") == '"a"'


@pytest.mark.parametrize(
    ("keep", "answer"), [("whole", SECRET), ("redacted", "aaaaa@aaaaaaa.aaa"), ("none", "aaaaa@aaaaaaa.aaa")]
)
def test_ids_for_messages_are_outlines_where_no_value_may_be_quoted(keep: Keep, answer: str) -> None:
    records = [{"id": SECRET, "model": "erm", "scores": 0.5}, {"id": 42, "label": "ok"}]
    data = b"".join(json.dumps(record).encode() + b"\n" for record in records)
    chunk = Decoder([TASK], "test", keep=keep).decode([RawBlock(data, "p", 0)])
    assert chunk.ids == {"toxicity": (answer, "42" if keep == "whole" else "99")}
