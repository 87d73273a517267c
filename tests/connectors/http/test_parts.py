"""The parts behind the HTTP source: bodies, judgement of rows, tokens, quota, files that change."""

from __future__ import annotations

import gzip
import json
import os
import tracemalloc
import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.formats.decode.decoder import Decoder
from connectors.formats.wires.mapped import MappedWire
from connectors.formats.wires.sagemaker import SagemakerWire
from connectors.http import body as body_module
from connectors.http.access import Quota
from connectors.http.body import BadBodyError, TooLargeError, Unpacker, lines_of
from connectors.http.intake import MOST_ERRORS, Intake, PostKind
from monitor.base.errors import SourceError
from monitor.base.source import RawBlock, RawMessages
from monitor.config.mapping import FieldMapping
from monitor.config.root import HttpToken
from monitor.export.http.gate import Gate
from monitor.export.http.reloaded_file import ReloadedFile
from monitor.testing import HandClock
from tests.examples import examples
from tests.posting import HAM, SECRET, SPAM, label, ndjson, row

# --- bodies ---------------------------------------------------------------------------------------------


def unpack(data: bytes, most: int = 1000, gzipped: bool = True, part: int = 7) -> bytes:
    unpacker = Unpacker(gzipped, most)
    for i in range(0, len(data), part):
        unpacker.feed(data[i : i + part])
    return unpacker.finish()


@pytest.mark.parametrize("part", [1, 7, 10_000])
def test_gzip_in_any_parts_and_several_members(part: int) -> None:
    assert unpack(gzip.compress(b"one") + gzip.compress(b"") + gzip.compress(b"two"), part=part) == b"onetwo"


@pytest.mark.parametrize(("size", "fits"), [(1000, True), (1001, False)])
@pytest.mark.parametrize("gzipped", [True, False])
def test_the_bound_is_exact(size: int, fits: bool, gzipped: bool) -> None:
    data = b"x" * size
    packed = gzip.compress(data) if gzipped else data
    if fits:
        assert unpack(packed, gzipped=gzipped) == data
    else:
        with pytest.raises(TooLargeError, match="more than 1000 bytes"):
            unpack(packed, gzipped=gzipped)


@pytest.mark.slow
def test_a_bomb_is_not_unpacked() -> None:
    packer = zlib.compressobj(9, wbits=31)
    bomb = b"".join(packer.compress(bytes(1 << 20)) for _ in range(64)) + packer.flush()
    assert len(bomb) < 70_000
    unpacker = Unpacker(True, 100_000)
    with pytest.raises(TooLargeError, match="more than 100000 bytes once unpacked"):
        unpacker.feed(bomb)
    assert unpacker.size <= 100_000


@pytest.mark.slow
def test_tiny_parts_take_no_more_than_their_bytes() -> None:
    unpacker = Unpacker(gzipped=False, most_bytes=200_000)
    tracemalloc.start()
    for i in range(100_000):
        unpacker.feed(b"%02d" % (i % 100))
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(unpacker.finish()) == 200_000
    assert most < 1_000_000, "a list of the parts took 4 MB"


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"{}", "not gzip"),
        (gzip.compress(b"one", mtime=0)[:-3], "its end is missing"),
        (gzip.compress(b"one", mtime=0) + b"two", "not gzip"),
        (b"", "its end is missing"),
    ],
)
def test_what_is_no_gzip(data: bytes, why: str) -> None:
    with pytest.raises(BadBodyError, match=why):
        unpack(data)


def test_rows_beyond_the_most_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(body_module, "MOST_ROWS", 3)
    assert len(lines_of(b"[1, 2, 3]")) == 3
    with pytest.raises(TooLargeError, match="4 rows; at most 3 are allowed in one post"):
        lines_of(b"1\n2\n3\n4")


BODIES = st.one_of(
    st.binary(max_size=200),
    st.recursive(
        st.none() | st.integers() | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=4),
        max_leaves=8,
    ).map(lambda value: json.dumps(value, indent=1).encode()),
    st.lists(st.sampled_from([row(1), label(2), {"id": 3}, {}, 5]), max_size=5).map(
        lambda rows: json.dumps(rows, indent=2).encode()
    ),
    st.lists(
        st.sampled_from([b'{"id": 1}', b"{", b"\xff", b"\xef\xbb\xbf{}", b"", b"  ", b"[1]", b"no", b"\x00"]),
        max_size=6,
    ).map(b"\r\n".join),
)


@pytest.mark.slow
@examples(300)
@given(body=BODIES)
def test_a_body_is_read_as_a_message_with_the_same_bytes_is(body: bytes) -> None:
    """Kafka and HTTP share one rule for object, array and NDJSON; the judged bytes are those read later."""
    lines = lines_of(body)
    assert all(line and b"\n" not in line for line in lines)
    decoder = Decoder([SPAM, HAM], "x")
    while body.strip(b" \t\r\n").startswith(b"\xef\xbb\xbf"):
        body = body.strip(b" \t\r\n")[3:]
    message = decoder.decode([RawMessages([body], "p", [0])])
    block = decoder.decode([RawBlock(b"".join(line + b"\n" for line in lines), "p", 1)])
    assert (block.answers, block.labels_received) == (message.answers, message.labels_received)
    assert [each.reason for each in block.rejects] == [each.reason for each in message.rejects]
    if lines:
        judged = Intake([SPAM, HAM]).judge(lines, PostKind.PREDICTIONS)
        assert judged.lines == b"".join(line + b"\n" for line in lines)
        assert judged.answers == block.answers
        assert judged.accepted == sum(map(len, block.batches))
        assert judged.misplaced == block.labels_received


# --- judgement ------------------------------------------------------------------------------------------


def judge(rows: list[dict], kind: PostKind = PostKind.PREDICTIONS):
    return Intake([SPAM, HAM]).judge(lines_of(ndjson(rows)), kind)


def test_each_fault_is_told_by_its_row() -> None:
    judged = judge([row(1), row(2, scores=[0.5, 1.5]), row(3), row(4, task="eggs"), row(5, model=None)])
    assert (judged.rows, judged.accepted, judged.rejected) == (5, 2, 3)
    assert [(each["row"], each["reason"]) for each in judged.errors] == [
        (1, "out_of_range"),
        (3, "unknown_task"),
        (4, "no_model"),
    ]
    assert judged.errors[0]["message"] == "$.scores[1]: expected a number from 0 to 1, got 1.5"
    assert judged.tasks == {"spam": 4, "": 1}


def test_several_models_in_a_row_count_as_several_answers() -> None:
    several = {"id": "1", "task": "ham", "models": {"a": [0.5, 0.5], "b": [0.5, 0.7], "c": [1, 0]}}
    judged = judge([several])
    assert (judged.rows, judged.accepted, judged.rejected, judged.answers) == (1, 2, 1, 3)
    assert judged.tasks == {"ham": 3}


def test_more_faults_than_an_answer_names_are_counted() -> None:
    judged = judge([row(i, scores=[2, 2]) for i in range(MOST_ERRORS + 7)])
    assert (len(judged.errors), judged.errors_omitted) == (MOST_ERRORS, 7)
    assert judged.errors[-1]["row"] == MOST_ERRORS - 1


def test_rows_for_the_other_path_are_seen() -> None:
    assert judge([row(1), label(2), label(3, label="eggs")]).misplaced == 2
    assert judge([row(1), label(2)], PostKind.LABELS).misplaced == 1
    judged = judge([label(2), label(3), label(4, task="ham"), label(5, label="eggs")], PostKind.LABELS)
    assert (judged.misplaced, judged.accepted, judged.rejected, judged.answers) == (0, 3, 1, 0)
    assert judged.labels == {"spam": 3, "ham": 1}


def test_a_label_without_a_label_is_told_so() -> None:
    judged = judge(
        [{"id": "1", "task": "spam"}, {"id": "2", "task": "spam", "model": "erm"}], PostKind.LABELS
    )
    message = "$.label: missing; give the true class, or `model` with `correct`: true or false"
    assert [(each["reason"], each["message"]) for each in judged.errors] == [("no_label", message)] * 2
    assert (judged.labels, judged.answers, judged.misplaced) == ({"spam": 2}, 0, 0)


def test_a_label_under_another_name_is_told_where_it_was_looked_for() -> None:
    (error,) = judge([{"id": "1", "task": "spam", "labels": "eggs"}], PostKind.LABELS).errors
    assert str(error["message"]).endswith('; "labels" is no field: did you mean label?')
    wire = MappedWire(FieldMapping(id="id", scores="p"))
    (error,) = Intake([SPAM], wire).judge([b'{"id": "1", "label": "eggs"}'], PostKind.LABELS).errors
    assert str(error["message"]).endswith("; the mapping names no path of label: give one")
    wire = MappedWire(FieldMapping(id="id", scores="p", label="truth"))
    (error,) = Intake([SPAM], wire).judge([b'{"id": "1", "label": "eggs"}'], PostKind.LABELS).errors
    assert "; the mapping reads label at truth, but the record has only id, label" in str(error["message"])


def test_a_response_without_rows_is_kept_beside_a_capture_without_output() -> None:
    captures = [{}, {"endpointOutput": {"data": '{"predictions": []}', "encoding": "JSON"}}]
    lines = [json.dumps({"captureData": each, "eventMetadata": {}}).encode() for each in captures]
    judged = Intake([SPAM], SagemakerWire(FieldMapping(format="sagemaker"))).judge(lines, PostKind.OBSERVED)
    assert (judged.lines, judged.ignored, judged.answers) == (lines[1] + b"\n", 1, 0)


# --- tokens and quota -----------------------------------------------------------------------------------


def test_a_token_given_twice_may_write_the_tasks_of_both() -> None:
    gate = Gate([HttpToken(token=SECRET, tasks=["spam"]), HttpToken(token=SECRET, tasks=["ham"])])
    assert gate.admits(f"Bearer {SECRET}") == ("1", frozenset({"spam", "ham"}))
    gate = Gate([HttpToken(token=SECRET, tasks=["spam"]), HttpToken(token=SECRET)])
    assert gate.admits(f"bearer  {SECRET} ") == ("1", None)


@pytest.mark.parametrize(
    "authorization",
    [None, "", "Bearer", "Bearer ", f"Basic {SECRET}", SECRET, f"Bearer {SECRET}x", f"Bearer {SECRET[:-1]}"],
)
def test_all_else_is_not_admitted(authorization: str | None) -> None:
    assert Gate([HttpToken(token=SECRET)]).admits(authorization) is None


def test_without_tokens_all_are_admitted() -> None:
    assert Gate([]).admits(None) == ("", None)


def test_a_token_file_is_read_again_when_it_changes(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path, clock = tmp_path / "token", HandClock()
    path.write_text(f"{SECRET}\n")
    gate = Gate([HttpToken(token_file=str(path))], clock)
    assert gate.admits(f"Bearer {SECRET}")
    path.write_text("another-token-0123456789")
    assert gate.admits(f"Bearer {SECRET}"), "it is looked at once a second"
    clock.advance(1.0)
    assert not gate.admits(f"Bearer {SECRET}")
    assert gate.admits("Bearer another-token-0123456789")
    for content in ("short", None):
        if content is None:
            path.unlink()
        else:
            path.write_text(content)
        clock.advance(1.0)
        assert gate.admits("Bearer another-token-0123456789"), "a broken file must not lock everyone out"
    assert "expected at least 16 characters, got 5" in caplog.text
    assert (
        "No such file or directory; correct token_file, or create it. The old one stays in use."
        in caplog.text
    )
    assert "another-token" not in caplog.text


@pytest.mark.parametrize("content", [b"short", b"", b"\xff" * 20, b"with spaces in the middle of it"])
def test_a_token_file_that_holds_none_is_told_without_showing_it(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "token"
    path.write_bytes(content)
    with pytest.raises(SourceError, match=r"The token file .*/token: expected ") as caught:
        Gate([HttpToken(token_file=str(path))])
    assert "spaces" not in str(caught.value)


def test_the_quota_holds_on_the_average_and_for_each_task() -> None:
    clock = HandClock(50.0)
    quota = Quota(100, clock=clock)
    accepted = 0
    for _ in range(1000):
        clock.advance(0.01)
        accepted += 30 if quota.take({"spam": 30}) == 0.0 else 0
    assert 1000 <= accepted <= 1000 + 100 + 30
    assert quota.take({"ham": 1}) == 0.0


def test_nothing_is_taken_where_one_task_is_over_its_quota() -> None:
    clock = HandClock()
    quota = Quota(10, clock=clock)
    assert quota.take({"spam": 30}) == 0.0
    assert quota.take({"spam": 1, "ham": 500}) == quota.waiting_seconds(["spam"]) == pytest.approx(2.0)
    assert quota.take({"ham": 1}) == 0.0
    clock.advance(2.0)
    assert quota.take({"spam": 1}) == 0.0


def test_a_quota_of_a_day_is_paid_off_within_a_day() -> None:
    clock = HandClock()
    quota = Quota(100, seconds=86_400.0, clock=clock)
    assert quota.take({"annotators": 150}) == 0.0
    assert quota.take({"annotators": 1}) == pytest.approx(43_200.0)
    clock.advance(43_200.0)
    assert quota.take({"annotators": 1}) == 0.0


# --- files that change ----------------------------------------------------------------------------------


def test_a_pair_of_files_changed_one_after_the_other_is_tried_until_it_fits(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first, second, clock = tmp_path / "a", tmp_path / "b", HandClock()

    def load() -> str:
        if first.read_text() != second.read_text():
            raise SourceError("They do not fit.")
        return first.read_text()

    for path in (first, second):
        path.write_text("old")
    watched = ReloadedFile([str(first), str(second)], load, clock)
    os.utime(first, (1, 1))
    first.write_text("new")
    for _ in range(5):
        clock.advance(1.0)
        assert watched.current() == "old"
    assert caplog.text.count("They do not fit. The old one stays in use.") == 1
    second.write_text("new")
    clock.advance(1.0)
    assert watched.current() == "new"
