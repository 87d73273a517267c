"""The parts of a stream on Spark, without Spark: batches in order, units from their states, the ledger."""

from __future__ import annotations

import json
import math
import resource
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("pyarrow")

from connectors.spark.job import ENDED_UNIT, Block, BlockKind, unpacked
from connectors.spark.ledger import (
    CheckpointLedger,
    Committed,
    Turn,
    UnitState,
    counted,
    read_state,
    write_state,
)
from connectors.spark.messages import Stream, blocks_of, pieces_of
from connectors.spark.stepping import Stepping, lines_of
from connectors.spark.streaming import SEED, Steps
from monitor.base.errors import ClusterError, ConfigError
from monitor.base.source import RawMessages
from monitor.cli.run_spark import only_source, view_of
from monitor.cli.spark_outputs import OutFolder
from monitor.cli.trial import ReferenceTrial
from monitor.config.file import load_config
from monitor.config.mapping import FieldMapping
from monitor.parallel.planning import Facts, Unit, rows_of
from monitor.reports.views import LabelOutcome
from tests.accounting import answers_account, scraped
from tests.connectors.spark.messages import Message, by_model, in_batches, messages, one_engine, stream_config
from tests.connectors.spark.routing import wanted
from tests.connectors.spark.streams import TASKS, records
from tests.daemon import command
from tests.parallel.test_partitioning import MODELS
from tests.streams import compared


def stream_of(config: Path) -> Stream:
    loaded = load_config(str(config))
    return Stream(loaded, ReferenceTrial(loaded).engine_settings(event_time=True), only_source(loaded))


def blocks_in(stream: Stream, batch: Sequence[Message], each: int) -> list[Block]:
    """Return the blocks of each partition in pieces of `each` messages, by its own task, the last partition
    first.
    """
    blocks: list[Block] = []
    for partition in sorted({message.partition for message in batch}, reverse=True):
        mine = sorted(message for message in batch if message.partition == partition)
        pieces = [
            (
                RawMessages([m.value for m in some], f"p-{partition}", [m.offset for m in some]),
                np.array([m.milliseconds for m in some]),
            )
            for some in (mine[i : i + each] for i in range(0, len(mine), each))
        ]
        blocks += blocks_of(stream, iter(pieces))
    return blocks


@pytest.mark.parametrize("beside", [False, True])
def test_messages_come_out_of_arrow_as_their_rows_say(beside: bool) -> None:
    """Beside them row by row, in pieces of one partition each; headers and keys where they are read."""
    pyarrow = pytest.importorskip("pyarrow")
    rng = np.random.default_rng(0)
    names = ["p-0"] * 5 + ["p-1"] * 3 + ["p-0"] * 2
    rows = [
        {
            "partition": name,
            "offset": 10**10 + i,
            "milliseconds": 1_700_000_000_000 - i,
            "value": None if i == 3 else rng.bytes(i),
            "headers": [{"key": "model", "value": b"erm"}] if i % 2 else None,
            "key": b"k" if i % 3 else None,
        }
        for i, name in enumerate(names)
    ]
    kinds = {
        "partition": pyarrow.string(),
        "offset": pyarrow.int64(),
        "milliseconds": pyarrow.int64(),
        "value": pyarrow.binary(),
        "headers": pyarrow.list_(pyarrow.struct({"key": pyarrow.string(), "value": pyarrow.binary()})),
        "key": pyarrow.binary(),
    }
    schema = pyarrow.schema(list(kinds.items())[: None if beside else 4])
    batches = [pyarrow.RecordBatch.from_pylist(some, schema) for some in (rows[:7], [], rows[7:])]

    pieces = list(pieces_of(iter(batches)))

    assert [(raw.partition, len(raw.values)) for raw, _ in pieces] == [
        ("p-0", 5), ("p-1", 2), ("p-1", 1), ("p-0", 2),
    ]  # fmt: skip
    assert [value for raw, _ in pieces for value in raw.values] == [row["value"] or b"" for row in rows]
    offsets = [offset for raw, _ in pieces for offset in raw.offsets]
    assert offsets == [row["offset"] for row in rows]
    assert {type(offset) for offset in offsets} == {int}, "rejects are written as JSON"
    assert [t for _, times in pieces for t in times.tolist()] == [row["milliseconds"] for row in rows]
    if beside:
        all_headers = [dict(headers) for raw, _ in pieces for headers in raw.headers or ()]
        assert [headers.get("model") for headers in all_headers] == [
            b"erm" if i % 2 else None for i in range(10)
        ]
        assert len(all_headers) == 10
    else:
        assert all(raw.headers is None for raw, _ in pieces)


def test_units_from_state_to_state_give_the_windows_of_one_engine(tmp_path: Path) -> None:
    """However a partition is cut into pieces, and whichever comes first."""
    stream = stream_of(config := stream_config(tmp_path, "broker:9092"))
    sent = messages(records(requests=900), partitions=3)
    ends = [{0: 150, 1: 90, 2: 200}, {0: 10**6, 1: 10**6, 2: 10**6}]
    batches = in_batches(sent, ends)
    expected = one_engine(config, batches, "p")
    for each in (7, 10**6):
        assert by_model(in_units(stream, batches, each, tmp_path / f"{each}")) == expected
    assert sum(map(len, expected.values())) > 20
    assert one_engine(config, [sorted(batch) for batch in batches], "p") != expected, "the order matters"


def in_units(stream: Stream, batches: Sequence[Sequence[Message]], each: int, states: Path) -> list[Any]:
    """Return the lines of units that go from state to state, partitions in pieces of `each` messages."""
    states.mkdir()
    units = (
        Unit("s", None, 0),
        Unit("duel", None, 0),
        *(Unit(t, m, 0) for t in "tun" for m in ("erm", "irm", "coral")),
    )
    begins: dict[int, str] = {}
    lines: list[Any] = []
    for number, batch in enumerate(batches):
        blocks = blocks_in(stream, batch, each)
        stepping = Stepping(number, units, dict(begins), str(states))
        for i, unit in enumerate(units):
            parts = [unpacked(block.data) for block in blocks if wanted(block, unit)]
            for row in lines_of(stream, stepping, i, parts) if parts else ():
                if row.stage == ENDED_UNIT:
                    begins[i] = unpacked(row.line).state
                else:
                    lines.append(json.loads(row.line))
    return lines


def test_a_label_before_its_model_waits_in_the_seed(tmp_path: Path) -> None:
    stream = stream_of(config := stream_config(tmp_path, "broker:9092"))
    labels = [{"id": f"a{i}", "task": "t", "label": "ok", "time": 1.7e9} for i in range(100)]
    scores = {"task": "t", "model": "new", "scores": [0.9, 0.1]}
    answers = [scores | {"id": f"a{i}", "time": 1.7e9 + i} for i in range(101)]
    first, second = messages(labels, 1), messages([*labels, *answers], 1)[100:]
    seed, new = Unit("t", SEED, 0), Unit("t", "new", 0)
    begins: dict[int, str] = {}
    lines: list[Any] = []
    for number, (unit, batch) in enumerate([(seed, first), (new, second)]):
        parts = [unpacked(b.data) for b in blocks_in(stream, batch, 50) if wanted(b, unit)]
        for row in lines_of(stream, Stepping(number, (unit,), begins, str(tmp_path)), 0, parts):
            if row.stage == ENDED_UNIT:
                begins = {0: unpacked(row.line).state}
            else:
                lines.append(json.loads(row.line))
    assert by_model(lines) == one_engine(config, [first, second], "p")
    (realised,) = [
        each
        for each in lines[-1]["estimates"]
        if (each["metric"], each["estimator"]) == ("accuracy", "realised")
    ]
    assert realised["value"] == 1.0, "without its labels it is unknown"


def test_a_batch_counts_once_and_only_after_the_one_before(tmp_path: Path) -> None:
    config = load_config(str(stream_config(tmp_path, "broker:9092")))
    ledger = CheckpointLedger(tmp_path / "state", config)
    name = write_state(ledger.states, Unit("t", "erm", 0), "0-0", {"a": 1})
    (ledger.states / ".unfinished-x").write_bytes(b"half")
    new = replace(ledger.committed, batch=0, units=[UnitState("t", "erm", name)])
    assert not ledger.is_done(0)
    ledger.commit(new)

    again = CheckpointLedger(tmp_path / "state", config)
    assert again.committed == new
    assert again.is_done(0)
    assert not again.is_done(1)
    assert [path.name for path in again.states.iterdir()] == [name]
    assert read_state(again.states, name) == {"a": 1}
    with pytest.raises(ClusterError, match=r"Spark gives batch 2, but committed.json in .* is of batch 0"):
        again.is_done(2)
    with pytest.raises(ClusterError, match=r"the state of t irm .*must be on a disk that driver and exec"):
        again.commit(replace(new, batch=1, units=[UnitState("t", "irm", "absent")]))
    with pytest.raises(ClusterError, match=r"the state .*absent cannot be read"):
        read_state(again.states, "absent")


def stepped(stream: Stream, stepping: Stepping, parts: list[Any], unit: int = 0) -> tuple[list[Any], Any]:
    """Return lines of a unit, and where it stands."""
    rows = list(lines_of(stream, stepping, unit, parts))
    assert rows[-1].stage == ENDED_UNIT
    return [json.loads(row.line) for row in rows[:-1]], unpacked(rows[-1].line)


def test_windows_grow_old_by_the_times_of_other_models(tmp_path: Path) -> None:
    stream = stream_of(stream_config(tmp_path, "broker:9092", tasks=TASKS, rejects=None))
    age = TASKS["u"]["window"]["max_age_seconds"]
    sent = [
        {"id": f"{i}", "task": "u", "model": "erm", "scores": [0.9, 0.1], "time": 1e9 + i} for i in range(30)
    ]
    units = (Unit("u", "erm", 30),)
    parts = [unpacked(b.data) for b in blocks_in(stream, messages(sent, 1), 100) if wanted(b, units[0])]
    begun = Stepping(0, units, {}, str(tmp_path), clock=1e9 + 29)
    lines, first = stepped(stream, begun, parts)
    assert lines == []
    assert first.due == 1e9 + age
    early = Stepping(0, units, {0: first.state}, str(tmp_path), clock=first.due, turn=1)
    assert stepped(stream, early, [])[0] == [], "not yet"
    turn = replace(early, clock=first.due + 1)
    lines, second = stepped(stream, turn, [])
    assert [(line["closed_by"], line["size"]) for line in lines] == [("age", 30)]
    assert second.due == first.due + 1 + age, "whether it is silent"
    assert stepped(stream, turn, []) == (lines, second), "again after a crash"
    silent = replace(turn, begins={0: second.state}, clock=1e9 + 30 + 3 * age, turn=2)
    lines, third = stepped(stream, silent, [])
    assert lines == []
    assert third.due == math.inf
    assert {one.state for one in third.view.series} == {"silent"}


def test_an_arenas_window_grows_old_and_its_state_goes_on(tmp_path: Path) -> None:
    stream = stream_of(stream_config(tmp_path, "broker:9092", tasks=TASKS, rejects=None))
    age, units = TASKS["duel"]["window"]["max_age_seconds"], (Unit("duel", None, 30),)
    sent = messages(({**one, "task": "duel"} for one in compared(np.random.default_rng(0), 50)), 1)
    begun = Stepping(0, units, {}, str(tmp_path), clock=1.7e9 + 29)
    blocks = [blocks_in(stream, some, 10) for some in (sent[:30], sent[30:])]
    first, second = ([unpacked(b.data) for b in of if wanted(b, units[0])] for of in blocks)
    lines, state = stepped(stream, begun, first)
    assert (lines, state.due) == ([], 1.7e9 + age)
    turn = replace(begun, begins={0: state.state}, clock=state.due + 1, turn=1)
    lines, state = stepped(stream, turn, [])
    assert [(line["closed_by"], line["size"]) for line in lines] == [("age", 30)]
    assert state.due == math.inf, "its window is empty"
    lines, state = stepped(stream, replace(turn, batch=1, begins={0: state.state}, turn=0), second)
    assert (lines, state.due) == ([], turn.clock + age)
    lines, _ = stepped(stream, replace(turn, begins={0: state.state}, clock=state.due + 1), [])
    assert [(line["window"], line["pooled"]) for line in lines] == [(1, 50)]


def test_a_time_that_is_an_error_moves_no_other_model(tmp_path: Path) -> None:
    stream = stream_of(stream_config(tmp_path, "broker:9092"))
    answer = {"task": "u", "model": "erm", "scores": [0.9, 0.1]}
    sent = messages([answer | {"id": "a", "time": 1e9}], 1)
    sent += [Message(0, 1, int(1e12), json.dumps(answer | {"id": "b", "time": 4e9}).encode())]
    (facts,) = [unpacked(b.data) for b in blocks_in(stream, sent, 10) if b.kind == BlockKind.FACTS]
    assert facts.newest == 1e9 + 86_400


def test_a_turn_is_written_down_before_anything_rests_on_it(tmp_path: Path) -> None:
    config = load_config(str(stream_config(tmp_path, "broker:9092")))
    ledger = CheckpointLedger(tmp_path / "state", config)
    ledger.commit(replace(ledger.committed, batch=4, clock=10.0))
    assert ledger.intended() is None
    turn = ledger.intend(25.0)
    assert CheckpointLedger(tmp_path / "state", config).intended() == turn == Turn(4, 1, 25.0)
    ledger.commit(replace(ledger.committed, turn=1, clock=25.0))
    assert ledger.intended() is None, "it is done"
    ledger.intend(30.0)
    ledger.commit(replace(ledger.committed, batch=5, turn=0))
    assert ledger.intended() is None, "a batch came first"
    (tmp_path / "state" / "turn.json").write_bytes(b"{")
    with pytest.raises(ConfigError, match=r"turn.json cannot be used: .*; give another folder"):
        ledger.intended()


@contextmanager
def full_disk(size: int) -> Iterator[None]:
    """Let no file of this process grow beyond this size."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_leaves_what_is_committed_whole(tmp_path: Path) -> None:
    config = load_config(str(stream_config(tmp_path, "broker:9092")))
    ledger = CheckpointLedger(tmp_path / "state", config)
    unit = Unit("t", "erm", 0)
    name = write_state(ledger.states, unit, "0-0", {"a": 1})
    ledger.commit(replace(ledger.committed, batch=0, units=[UnitState("t", "erm", name)]))
    before = ledger.committed
    message = (
        r"--checkpoint: cannot write .*: File too large; make room .*Everything committed is whole: the next"
    )
    with full_disk(100), pytest.raises(ClusterError, match=message):
        write_state(ledger.states, unit, "1-0", {"a": list(range(1000))})
    with full_disk(100), pytest.raises(ClusterError, match=message):
        ledger.commit(replace(before, batch=1))
    again = CheckpointLedger(tmp_path / "state", config)
    assert again.committed == before
    assert read_state(again.states, name) == {"a": 1}
    assert sorted(path.name for path in (tmp_path / "state").iterdir()) == ["committed.json", "state"]
    again.commit(replace(before, batch=1))
    assert again.is_done(1)


def test_what_is_served_is_of_all_units_but_the_seed(tmp_path: Path) -> None:
    stream = stream_of(config := stream_config(tmp_path, "broker:9092"))
    sent = messages(records(requests=600), partitions=2)
    ledger = CheckpointLedger(tmp_path / "state", load_config(str(config)))
    whole = {"s", "duel"}
    units = (
        *(Unit(task, None, 0) for task in sorted(whole)),
        Unit("t", "irm", 0),
        Unit("t", "erm", 0),
        Unit("t", SEED, 0),
    )
    stepping = Stepping(0, units, {}, str(ledger.states), clock=1.7e9)
    blocks = blocks_in(stream, sent, 100)
    facts = [unpacked(block.data) for block in blocks if block.kind == BlockKind.FACTS]
    states = []
    for i, unit in enumerate(units):
        parts = [unpacked(block.data) for block in blocks if wanted(block, unit)]
        states.append(UnitState(unit.task, unit.model, stepped(stream, stepping, parts, i)[1].state))
    shed = {
        name: n for name, n in rows_of(facts).items() if name[0] not in whole and Unit(*name, 0) not in units
    }
    new = replace(ledger.committed, batch=0, units=states, time=7.0, dropped=[("t", "x")], ignored=5)
    ledger.commit(replace(new, **counted(new, facts), shed=sum(shed.values())))

    steps = Steps(
        stream, CheckpointLedger(ledger.folder, stream.config), lambda batch: {}, lambda batch: None
    )
    view = view_of(steps, 12, up=True)

    shown = {(one.task, one.model) for one in view.engine.series}
    assert shown == {("s", model) for model in MODELS} | {("t", "erm"), ("t", "irm")}
    assert set(view.engine.labels_waiting) == whole, "each model of t sees all labels of t"
    assert {task for task, _ in view.engine.labels} <= {*whole, "t", ""}
    assert view.engine.labels["s", LabelOutcome.MATCHED] > 0
    committed = steps.ledger.committed
    assert view.engine.received == {"kafka": committed.received}
    assert view.engine.labels_received == {"kafka": committed.labels_received}
    account = answers_account(scraped(view))
    account.assert_adds_up()
    assert account.parts["shed"] > sum(shed.values()), "those beyond the arena's max_models too"
    assert account.parts["duplicate"] > 0
    assert view.engine.answers_forgotten.keys() == {*whole, "t"}
    assert view.engine.labels_unrevised.keys() == {"s", "t"}
    [arena] = view.engine.tasks
    assert (arena.task, arena.windows_closed, arena.standing is not None) == ("duel", 2, True)
    assert account.parts["compared before"] > 0
    verdicts = sum(count for (task, _), count in view.engine.labels.items() if task == "duel")
    assert verdicts + view.engine.labels_waiting["duel"] == sum(each.labels["duel"] for each in facts) > 100
    assert view.engine.rejected == {("kafka", "malformed"): committed.rejected["malformed"]}
    assert view.engine.series_dropped == 2
    assert (view.sources[0].lag, view.sources[0].up, view.sources[0].reads_events) == (12, True, True)
    assert (view.ready, view.reasons, view.checkpoint_time) == (True, (), 7.0)
    ended = view_of(steps, None, up=False)
    assert (ended.ready, ended.healthy, ended.reasons) == (False, False, ("The stream has ended.",))
    events = replace(
        stream, source=stream.source.model_copy(update={"mapping": FieldMapping(format="kserve")})
    )
    read = view_of(replace_stream(steps, events), 0, up=True)
    assert (read.sources[0].reads_events, read.engine.ignored) == (True, {"kafka": 5})
    paths = replace(
        stream, source=stream.source.model_copy(update={"mapping": FieldMapping(id="id", scores="p")})
    )
    assert not view_of(replace_stream(steps, paths), 0, up=True).sources[0].reads_events


def test_long_names_in_the_states_go_on_and_new_ones_are_rejected(tmp_path: Path) -> None:
    def sent(model: str) -> list[Message]:
        answer = {"task": "t", "model": model, "scores": [0.9, 0.1]}
        return messages([answer | {"id": f"a{i}", "time": 1.7e9 + i} for i in range(20)], 1)

    def shares(stream: Stream, model: str) -> list[Any]:
        blocks = blocks_in(stream, sent(model), 7)
        return [unpacked(block.data) for block in blocks if wanted(block, Unit("t", model, 0))]

    stream, name = stream_of(stream_config(tmp_path, "broker:9092")), "x" * 201
    assert shares(stream, name) == []
    ledger = CheckpointLedger(tmp_path / "state", stream.config)
    older = replace(stream, long_names=frozenset({name}))  # names had no such bound
    stepping = Stepping(0, (Unit("t", name, 0),), {}, str(ledger.states))
    state = stepped(older, stepping, shares(older, name), 0)[1].state
    ledger.commit(replace(ledger.committed, batch=0, units=[UnitState("t", name, state)]))

    again = CheckpointLedger(ledger.folder, stream.config)
    steps = Steps(stream, again, lambda batch: {}, lambda batch: None)
    assert sum(len(part) for part in shares(steps.stream, name)) == 20
    assert shares(steps.stream, "y" * 201) == []


def replace_stream(steps: Steps, stream: Stream) -> Steps:
    return Steps(stream, steps.ledger, steps.deliver, steps.done)


def test_states_of_another_configuration_are_refused(tmp_path: Path) -> None:
    config = load_config(str(stream_config(tmp_path, "broker:9092")))
    other = load_config(str(stream_config(tmp_path, "broker:9092", "other")))
    CheckpointLedger(tmp_path / "state", other)  # of which nothing came
    ledger = CheckpointLedger(tmp_path / "state", config)
    ledger.commit(replace(ledger.committed, batch=0))
    with pytest.raises(ConfigError, match="belongs to other tasks or topics"):
        CheckpointLedger(tmp_path / "state", other)
    kafka = {"kind": "kafka", "brokers": ["new:9092"], "topics": ["p"], "options": {"fetch_min_bytes": 2}}
    moved = load_config(str(stream_config(tmp_path, "broker:9092", sources=[kafka])))
    assert CheckpointLedger(tmp_path / "state", moved).committed.batch == 0, (
        "where brokers are is no other stream"
    )
    (tmp_path / "state" / "committed.json").write_bytes(b"{")
    with pytest.raises(ConfigError, match=r"--checkpoint: .* cannot be used: .*; give another folder"):
        CheckpointLedger(tmp_path / "state", config)
    (tmp_path / "state" / "committed.json").unlink()
    commits = tmp_path / "state" / "spark" / "commits"
    commits.mkdir(parents=True)
    CheckpointLedger(tmp_path / "state", config)  # one that was killed in its first batch goes on
    (tmp_path / "state" / "committed.json").unlink()
    (commits / "0").touch()
    with pytest.raises(ConfigError, match=r"has Spark's log but no committed.json; give an empty folder"):
        CheckpointLedger(tmp_path / "state", config)


def test_answers_and_labels_are_counted_on(tmp_path: Path) -> None:
    stream = stream_of(stream_config(tmp_path, "broker:9092"))
    sent = messages(records(requests=300), partitions=1)
    facts = [unpacked(b.data) for b in blocks_in(stream, sent, 100) if b.kind == BlockKind.FACTS]
    once = counted(Committed(), facts)
    assert once["received"] > 300
    assert once["labels_received"] > 50
    assert once["rejected"]["malformed"] > 0
    twice = counted(Committed(received=1, labels_received=2, rejected={"malformed": 3}), facts)
    assert twice["received"] == once["received"] + 1
    assert twice["labels_received"] == once["labels_received"] + 2
    assert twice["rejected"]["malformed"] == once["rejected"]["malformed"] + 3
    assert counted(Committed(), [Facts()]) == {
        "received": 0,
        "labels_received": 0,
        "rejected": {},
        "labels_rejected": {},
        "ignored": 0,
        "rows_left": 0,
    }


def test_right_or_wrong_along_with_answers_without_classes_are_labels_received(tmp_path: Path) -> None:
    task = {"window": {"size": 10}, "reference": {"first_windows": 5}}
    config = stream_config(tmp_path, "broker:9092", tasks={"v": task})
    sent: list[dict[str, Any]] = [{"id": f"{i}", "model": "m", "confidence": 0.9} for i in range(60)]
    along = [one | {"correct": i % 9 > 0} for i, one in enumerate(sent[:50])]
    late = [{"id": "55", "model": "m", "correct": True}]
    blocks = blocks_in(stream_of(config), messages([*along, *sent[50:], *late], partitions=1), 100)
    facts = [unpacked(block.data) for block in blocks if block.kind == BlockKind.FACTS]
    counts = counted(Committed(), facts)
    assert (counts["received"], counts["labels_received"]) == (60, 51)
    assert sum(each.labels["v"] for each in facts) == 1, "no other model needs what came along"


def test_what_cannot_be_done_on_spark_is_a_sentence(tmp_path: Path) -> None:
    path = stream_config(tmp_path, "b:1", sources=[{"kind": "stdin"}])
    with pytest.raises(ConfigError, match="sources: on Spark expected one of kind kafka, got stdin"):
        only_source(load_config(str(path)))
    (tmp_path / "windows-000000004.parquet").touch()
    config = load_config(str(path))
    with pytest.raises(ConfigError, match="has windows of another checkpoint; give an empty folder"):
        OutFolder(tmp_path, config, begins=True)


def test_flags_that_do_not_go_together_are_refused(tmp_path: Path) -> None:
    path = stream_config(tmp_path, "b:1")
    done = command("run", path, "--engine", "spark")
    assert done.returncode == 2
    assert "--engine spark needs --checkpoint FOLDER, for its state" in done.stderr
    words = ("--engine", "spark", "--checkpoint", str(tmp_path / "state"))
    done = command("run", path, *words)
    assert done.returncode == 2
    assert "--engine spark needs --out FOLDER or a topic in reports.kafka for its windows" in done.stderr
    reports = {"kafka": {"brokers": ["b:1"], "topic": "w"}}
    done = command("run", stream_config(tmp_path, "b:1", reports=reports), *words)
    assert done.returncode == 2
    assert "--engine spark needs --out FOLDER for rejects; give it, or leave rejects out" in done.stderr
    done = command("run", path, "--once")
    assert done.returncode == 2
    assert "--once are Spark's; add --engine spark" in done.stderr
