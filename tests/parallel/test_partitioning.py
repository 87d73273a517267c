"""A stream shared out by model and put together again: the same lines as from one engine."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import pytest

from connectors.formats.decode.decoder import Decoder
from monitor.base.records import Chunk
from monitor.base.source import RawBlock
from monitor.config.layouts import layouts
from monitor.config.root import Task
from monitor.engine.engine import EngineSettings
from monitor.engine.refit.recalibration import recalibrate
from monitor.engine.report_order import OrderedReport
from monitor.parallel.partitioning import Begin, Partition, Segment, StreamPartitioner, begins, joined
from monitor.parallel.planning import Unit, settings_of
from monitor.reports.window_report import to_json
from tests.engine.test_engine import reference
from tests.streams import CLASSES, Record, answers, task

DAY = 86_400.0
MODELS = ("erm", "irm", "coral")


def chunks(records: Sequence[Record], tasks: dict[str, Task], files: int, each: int) -> list[list[Chunk]]:
    """Return, by stretch, which is a file here, its chunks of `each` records."""
    decoder = Decoder(layouts(tasks), "files")
    pieces = []
    edges = np.linspace(0, len(records), files + 1).astype(int)
    for number, (start, stop) in enumerate(itertools.pairwise(edges.tolist())):
        position, of_file = 0, []
        for first in range(start, stop, each):
            lines = b"".join(
                msgspec.json.encode(r) + b"\n" if isinstance(r, dict) else r + b"\n"
                for r in records[first : min(first + each, stop)]
            )
            of_file.append(decoder.decode([RawBlock(lines, f"part-{number}.ndjson", position)]))
            position += len(lines)
        pieces.append(of_file)
    return pieces


def in_one(settings: EngineSettings, stretches: Sequence[Sequence[Chunk]]) -> list[bytes]:
    engine = settings.build()
    reports = [r for chunk in itertools.chain(*stretches) for r in engine.absorb(chunk, 0.0)]
    return [to_json(report) for report in [*reports, *engine.finish()]]


def in_shares(settings: EngineSettings, stretches: Sequence[Sequence[Chunk]], at_once: int) -> list[bytes]:
    """Compute each model's share, `at_once` chunks at a time; return the lines sorted by their places."""
    sharings = [StreamPartitioner() for _ in stretches]
    shared = [
        [sharing.share(chunk) for chunk in chunks]
        for sharing, chunks in zip(sharings, stretches, strict=True)
    ]
    places = begins([s.stretch for s in sharings], lambda number: sharings[number].times())
    parts = [
        [(share, begin) for share in of_chunk]
        for begin, of_stretch in zip(places, shared, strict=True)
        for of_chunk in of_stretch
    ]
    lines: list[OrderedReport] = []
    whole = {name for name, one in settings.tasks.items() if "" in one.shares}
    for name, model in sorted(
        {(s.task, s.model) for s, _ in itertools.chain(*parts) if s.model or s.task in whole}
    ):
        engine = settings_of(settings, Unit(name, model or None, 0)).build()
        for start in range(0, len(parts), at_once):
            some = itertools.chain(*parts[start : start + at_once])
            if own := [part for part in some if wanted(part[0], name, model)]:
                lines += engine.take(joined(own, "files"), 0.0)
        lines += engine.end()

    def place(line: OrderedReport) -> tuple[Any, ...]:
        return line.position[:2], line.position.task_number(list(settings.tasks)), line.position[2:]

    return [to_json(line.report) for line in sorted(lines, key=place)]


def wanted(share: Partition, name: str, model: str) -> bool:
    return share.task == name and (share.model == model or (not share.model and share.besides != model))


def stream(seed: int, requests: int = 1800) -> list[Any]:
    """Return requests of two tasks, some answered by several models at once; labels late, along, twice,
    wrong.
    """
    rng = np.random.default_rng(seed)
    timed: list[tuple[float, Any]] = []
    for i, one in enumerate(answers(rng, requests)):
        # From a third on the scores promise too much, so that calibrations are fitted again.
        wrong = i > requests // 3 and rng.random() < 0.25
        at, label = one["time"], CLASSES[int((rng.random() < one["scores"][1]) != wrong)]
        one |= {"task": "t", "id": f"r{i}", "model": MODELS[int(rng.integers(3))]}
        one["groups"] = {"region": ["eu", "us"][int(rng.integers(2))]}
        kind = rng.random()
        if kind < 0.2:
            one["models"] = dict.fromkeys(rng.permutation(MODELS)[:2].tolist(), one["scores"])
            del one["scores"], one["model"]
        elif kind < 0.3:
            one["task"] = "u"
        if kind > 0.9:
            one["label"] = label
        elif kind > 0.6:
            late = {"id": one["id"], "task": one["task"], "label": label, "time": at}
            timed.append((i + rng.exponential(300), late))
        if i > requests // 2 and "model" in one:
            one["version"] = "2"
        if rng.random() < 0.02:
            timed.append((i + rng.exponential(50), dict(one)))  # sent again
        if rng.random() < 0.02:
            del one["time"]
        timed.append((i, one))
        if rng.random() < 0.01:
            timed.append((i, b'{"task": "t", "scores": [0.1]'))
    return [record for _, record in sorted(timed, key=lambda pair: pair[0])]


def settings(**more: Any) -> EngineSettings:
    defaults = {"reference": {"path": "r.ndjson"}, "calibration": {"method": "isotonic", "refit_labels": 50}}
    tasks = {
        "u": task(window={"size": 40}, estimators=["average_confidence", "realised"]),
        "t": task(
            groups=["region"],
            metrics=["accuracy", "ece"],
            estimators=["average_confidence", "realised"],
            **(defaults | more),
        ),
    }
    known = reference(tasks["t"], 1000, seed=5)["t"]
    references = {"t": {name: next(iter(known.values())) for name in MODELS}}
    return EngineSettings(tasks, references, True, None, recalibrate)


@pytest.mark.slow
@pytest.mark.parametrize(("files", "each", "at_once"), [(1, 500, 1), (4, 170, 3), (3, 2000, 100)])
def test_the_shares_of_a_stream_give_its_lines_in_its_order(files: int, each: int, at_once: int) -> None:
    engine_settings, records = settings(), stream(1)
    stretches = chunks(records, engine_settings.tasks, files, each)

    expected = in_one(engine_settings, stretches)

    assert in_shares(engine_settings, stretches, at_once) == expected
    assert sum(b'"revision":0' in line for line in expected) > 40
    assert sum(b'"revision":0' not in line for line in expected) > 40
    assert any(b'"version":2' in line for line in expected), "no calibration was fitted again"


@pytest.mark.slow
@pytest.mark.parametrize("at_once", [1, 2, 100])
def test_labels_that_name_a_model_make_records_wait_in_joined_pieces_as_in_single_ones(at_once: int) -> None:
    """A worker that is late gets several pieces at once; each brings the model's name again."""
    engine_settings, records = settings(), stream(1)
    models = {one["id"]: one["model"] for one in records if isinstance(one, dict) and "model" in one}
    for one in records:
        if isinstance(one, dict) and "label" in one and one.keys().isdisjoint({"scores", "models"}):
            one |= {"model": models[one["id"]]} if one["id"] in models else {}
    stretches = chunks(records, engine_settings.tasks, 1, 500)

    assert in_shares(engine_settings, stretches, at_once) == in_one(engine_settings, stretches)


@pytest.mark.slow
def test_windows_that_age_by_the_clock_of_the_whole_stream_close_where_they_did() -> None:
    rng = np.random.default_rng(2)
    engine_settings = settings(window={"max_age_seconds": 120.0, "min_size": 5})
    records = stream(2, 1000)
    for i in rng.choice(len(records), 40, replace=False):
        if isinstance(records[i], dict):
            records[i]["time"] = 1.7e9 + float(rng.choice([-40 * DAY, 30 * DAY, 30.5 * DAY, 900.0]))
    stretches = chunks(records, engine_settings.tasks, 5, 200)

    expected = in_one(engine_settings, stretches)

    assert in_shares(engine_settings, stretches, 2) == expected
    assert sum(b'"closed_by":"age"' in line for line in expected) > 20


@pytest.mark.slow
def test_labels_that_name_a_model_reach_that_model_alone() -> None:
    """A task without classes: right or wrong is a fact of one model's answer."""
    rng = np.random.default_rng(5)
    task_settings = task(window={"size": 40}, classes=[], estimators=["average_confidence", "realised"])
    records: list[Record] = []
    for i in range(900):
        one = {"id": f"c{i // 3}", "model": MODELS[i % 3], "time": 1.7e9 + i}
        records.append(one | {"confidence": round(float(rng.random()), 4)})
        if rng.random() < 0.2:
            records[-1]["correct"] = bool(rng.random() < 0.7)
        if rng.random() < 0.3:
            at = int(rng.integers(i + 1))
            label = {"id": f"c{at // 3}", "model": MODELS[at % 3], "correct": bool(rng.random() < 0.7)}
            records.append(label | {"time": 1.7e9 + i})
    settings = EngineSettings({"c": task_settings}, {}, True, None, recalibrate)
    stretches = chunks(records, settings.tasks, 3, 100)

    expected = in_one(settings, stretches)

    assert in_shares(settings, stretches, 2) == expected
    assert sum(b'"revision":0' not in line for line in expected) > 20


def test_a_stretch_that_leaps_is_read_record_by_record_and_others_are_not() -> None:
    calm, leaping = Segment(3, 10.0, 12.0, 12.0), Segment(3, 40 * DAY, 41 * DAY, 41 * DAY)
    read_numbers = []

    def times(number: int) -> tuple[np.ndarray, np.ndarray]:
        read_numbers.append(number)
        return np.array([0, 1, 2]), np.array([40 * DAY, 13.0, 41 * DAY])

    starts = begins([calm, leaping, calm], times)

    assert read_numbers == [1]
    assert [(begin.sequence, begin.clock) for begin in starts] == [(0, -np.inf), (3, 12.0), (6, 13.0)]


def test_the_times_of_the_whole_stream_are_those_of_its_clock() -> None:
    exact = Begin(100, 5.0, (np.array([2, 4]), np.array([7.0, 9.0])))
    tasks = settings().tasks
    share = StreamPartitioner().share(
        chunks(answers(np.random.default_rng(3), 6, task="u"), tasks, 1, 100)[0][0]
    )[0]

    assert exact.clock_at(share).tolist() == [5.0, 5.0, 7.0, 7.0, 9.0, 9.0]


def test_what_cannot_be_shared_out_is_refused() -> None:
    with pytest.raises(ValueError, match="a stretch is of one partition, got a, b"):
        StreamPartitioner().share(Chunk("files", partitions=("a", "b")))
    with pytest.raises(ValueError, match="shares: expected one or more, got none"):
        joined([], "files")
