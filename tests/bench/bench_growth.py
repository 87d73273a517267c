"""Growth of time, memory, disk and scrapes with rows, models, windows, groups and labels.

    python -m tests.bench.bench_growth [--only rows models] [--small] [--results FILE]

Each point runs in its own process: columns of random answers go through the engine in chunks of 8,192, as
from the decoder (whose time is in `bench_replay`). After every 64 chunks, changes are committed to a store.
The defaults are four models, windows of 500, one group for each row if there are groups, 5 % of the answers
labelled half a million answers later (with fewer rows: after half of them), accuracy and calibration error
with predictive intervals on a reference of 3,000 rows. Each axis changes one of these. Refits run in another
process and do not count here (`bench_refit`).

Start is the building of the engine; learning is what it does ahead while nothing comes (`Engine.learn`), or
else with a model's first window: what each reference says of its calibration's error. A scrape follows new
answers of every model: it includes the picture that it is drawn from; the one after it, of the same picture,
is "again".

The axis `many` is of an agent whose models have not filled their first window, and have no labels yet. Under
it is what a first start does with the file of the references, which tries each model's charts before it
builds the engine, and the memory that reading takes at most. The last lines are of the scrapes of models that
export all that a model can: the first, then one for which every model has new answers in its open window, one
for which none has, and one for which every model has closed a window, with other estimates, charts and
confidences. Over HTTP they are what a client of the agent's server waits for, which does nothing else
meanwhile: the text, gzip, the way.

Time is processor time in microseconds an answer, without start and learning. Memory is the peak of resident
memory beyond the imports. An exponent is the slope of the total time between the last two points, in
logarithms: 1 is proportional, 0 is flat. `--results` keeps finished points in that file and does not measure
them again, so a run can be interrupted.
"""

from __future__ import annotations

import gzip
import json
import math
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Literal
from urllib.request import Request, urlopen

import numpy as np

from connectors.formats.files.reference import read_reference
from monitor.base.collector import tune_collector
from monitor.base.records import Batch, Chunk, LabelBatch, mix
from monitor.base.results import Estimate
from monitor.cli.process import one_heap
from monitor.cli.trial import ReferenceTrial
from monitor.config.layouts import layouts
from monitor.config.root import Config, Task
from monitor.engine.engine import Engine, EngineSettings
from monitor.engine.reference import Reference, split_by_model
from monitor.export.http.app import build_app
from monitor.export.http.server import HttpServer
from monitor.export.prometheus import exposition
from monitor.export.prometheus.collector import registry
from monitor.reports.views import AgentView, EngineView, SeriesView
from monitor.reports.window_report import WindowReport
from monitor.store import Store
from tests.export.prometheus.scrape import crowd
from tests.harness import apart, resident, run
from tests.streams import CLASSES, confidences

CHUNK = 8192
COMMIT_CHUNKS = 64
LATE = 500_000
REFERENCE_ROWS = 3000
DISTINCT = 1 << 16  # scores that are drawn, then used in turn


@dataclass(frozen=True)
class Load:
    """The load that one point of an axis puts on the engine.

    Parameters
    ----------
    rows, models, window, groups : int
        `groups` is how many values the one watched group has, 0 for none.
    labelled : float
        Share of the answers.
    ahead : bool
        Whether the engine learns ahead what nothing has asked for yet.
    """

    rows: int = 2_000_000
    models: int = 4
    window: int = 500
    groups: int = 0
    labelled: float = 0.05
    ahead: bool = True


@dataclass(frozen=True)
class Cost:
    """The cost of one load: seconds of processor, bytes, and lines of windows and their revisions."""

    start: float
    learn: float
    engine: float
    store: float
    memory: int
    disk: int
    scrape: float
    again: float
    scraped: int
    lines: int
    series: int


AXES: Mapping[str, Sequence[Load]] = {
    "rows": [Load(rows=rows) for rows in (1_000_000, 5_000_000, 20_000_000)],
    "models": [Load(models=models) for models in (1, 10, 100, 1000)],
    "many": [Load(rows=200 * models, models=models, labelled=0.0, ahead=False) for models in (1000, 10_000)],
    "window": [Load(rows=1_000_000, window=window) for window in (100, 1000, 10_000, 100_000)],
    "groups": [Load(rows=400_000, models=1, groups=groups) for groups in (1, 10, 100, 500)],
    "labelled": [Load(rows=400_000, labelled=share) for share in (0.0, 0.01, 0.05, 0.2, 1.0)],
}
Axis = Literal[tuple(AXES)]  # type: ignore[valid-type]
_FLAT = 0.1
"""An exponent below this is taken for none."""
_FAR = 1000
"""Times the largest point: beyond it nothing can be said."""

SMALL: Mapping[str, Sequence[Load]] = {
    "rows": [Load(rows=rows, labelled=0.2) for rows in (20_000, 60_000)],
    "groups": [Load(rows=20_000, models=1, window=100, groups=groups) for groups in (2, 8)],
}
WALLS = {
    "engine": ("one core keeps up with 100,000 answers/s", 10e-6),
    "memory": ("resident memory reaches 1 GiB", float(1 << 30)),
    "scrape": ("a scrape takes Prometheus's 10 s", 10.0),
    "disk": ("the store takes 10 GB", 10e9),
}


def task(load: Load) -> Task:
    """Return the task of a point."""
    return Task(
        classes=CLASSES,
        window={"size": load.window, "min_size": min(load.window, 50), "max_age_seconds": 1e9},
        metrics=["accuracy", "ece"],
        models={f"m{model}": {} for model in range(load.models)},
        groups=["region"] if load.groups else [],
        max_series=100_000,
    )


def references(load: Load) -> dict[str, Reference]:
    """Return the references of each model and each of its groups, sampled from the scores themselves."""
    rng = np.random.default_rng(1)
    references = {}
    for model in range(load.models):
        score = confidences(rng, REFERENCE_ROWS)
        truth = (rng.random(REFERENCE_ROWS) < score).astype(np.int64)
        both = np.stack([1 - score, score], axis=1)
        rows = np.arange(REFERENCE_ROWS)
        groups = {f"region={g}": rows[rows % load.groups == g] for g in range(load.groups)}
        references[f"m{model}"] = Reference(both, both.argmax(axis=1), truth, rows.astype(float), "", groups)
    return references


def chunks(load: Load) -> Iterator[Chunk]:
    """Yield the stream; labels come in the chunk in which they are due, behind its answers."""
    score = confidences(np.random.default_rng(0), DISTINCT)
    late = min(LATE, load.rows // 2) // CHUNK * CHUNK
    models = tuple(f"m{model}" for model in range(load.models))
    values = tuple(str(group) for group in range(load.groups))
    for first in range(0, load.rows, CHUNK):
        number = np.arange(first, min(first + CHUNK, load.rows))
        n, zeros = len(number), np.zeros(len(number), dtype=np.int64)
        own = score[number % DISTINCT]
        both = np.stack([1 - own, own], axis=1)
        request = number // load.models
        batch = Batch(
            "t", both, both.argmax(axis=1), number % load.models, models, zeros, ("",),
            1.7e9 + number / 1e4, mix((request + 1).astype(np.uint64)), np.full(n, -1),
            {"region": (values, request % load.groups)} if load.groups else {},
            np.arange(n), zeros, number,
        )  # fmt: skip
        labels = _labels(load, number - late, score, n) if first >= late and load.labelled else None
        label_columns = () if labels is None else (labels,)
        count = 0 if labels is None else len(labels)
        yield Chunk("bench", (batch,), label_columns, (), ("p",), {"p": first + n}, n, count)


def _labels(load: Load, number: np.ndarray, score: np.ndarray, order: int) -> LabelBatch | None:
    """Return a label a request, which reaches every model's answer; drawn by the score of the first."""
    request = np.unique(number // load.models)
    request = request[mix(request.astype(np.uint64) ^ np.uint64(1 << 60)) % 1000 < 1000 * load.labelled]
    if not len(request):
        return None
    chance = score[request * load.models % DISTINCT]
    truth = (mix(request.astype(np.uint64) + np.uint64(7)) % 10_000 < 10_000 * chance).astype(np.int64)
    n = len(request)
    key = mix((request + 1).astype(np.uint64))
    every = np.full(n, np.nan)
    return LabelBatch("t", key, truth, np.full(n, -1), (), every, every, order + np.arange(n))


def measure(load: Load, folder: Path) -> Cost:
    """Run one point in this process."""
    bare = resident(most=True)
    settings = EngineSettings({"t": task(load)}, {"t": references(load)})
    began = time.process_time()
    engine = settings.build()
    built = time.process_time()
    while load.ahead and engine.learn():
        pass
    start, learn = built - began, time.process_time() - built
    spent, stored = 0.0, 0.0
    store, reports = Store(folder / "state"), []
    lines = 0
    pictures: list[EngineView] = []
    metrics = registry(lambda: AgentView(engine=pictures[0], ready=True), 10_000_000)
    last, turn = (load.rows - 1) // CHUNK, -(-load.models // CHUNK)  # chunks in which every model answers
    times, text = [], b""
    for number, chunk in enumerate(chunks(load)):
        before = time.process_time()
        reports += engine.absorb(chunk, 1.7e9 + number)
        after = time.process_time()
        spent += after - before
        if number % COMMIT_CHUNKS == COMMIT_CHUNKS - 1:
            lines += len(reports)
            stored += _commit(store, engine, reports)
        if (last - number) % turn == 0 and last - number < 3 * turn:
            before = time.process_time()
            pictures[:] = [engine.view()]
            text = exposition.text(metrics)
            after = time.process_time()
            exposition.text(metrics)
            times.append((after - before, time.process_time() - after))
    lines += len(reports)
    stored += _commit(store, engine, reports)
    store.close()
    disk = sum(path.stat().st_size for path in (folder / "state").iterdir())
    memory, series = resident(most=True) - bare, len(pictures[0].series)
    return Cost(start, learn, spent, stored, memory, disk, *min(times), len(text), lines, series)


def _commit(store: Store, engine: Engine, reports: list[WindowReport]) -> float:
    """Save what changed, forget the reports; the processor's seconds."""
    before = time.process_time()
    store.commit(engine.changes(), reports)
    engine.confirm()
    reports.clear()
    return time.process_time() - before


def reading(models: int) -> str:
    """Return the processor time of a first start on a reference file of `models` models, and its memory."""
    one_heap()
    tune_collector()
    tasks = {"t": task(Load(models=models))}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "reference.ndjson"
        _write_reference(path, models)
        bare, marks = resident(), [time.process_time()]
        batch = read_reference(path, *layouts(tasks))
        marks.append(time.process_time())
        known = {"t": split_by_model(batch)}
        rows, peak = len(batch), resident(most=True) - bare
        marks.append(time.process_time())
    del batch
    settings = ReferenceTrial(Config(tasks=tasks), references=known).engine_settings()
    marks.append(time.process_time())
    settings.build()
    marks.append(time.process_time())
    read, split, tried, built = np.diff(marks).tolist()
    return (
        f"    {models:,} models, a reference file of {rows:,} rows; s of a first start: read {read:.2f}, "
        f"by model {split:.2f}, tried {tried:.2f}, built {built:.2f}; at most {peak / rows:.0f} bytes a row"
    )


def _write_reference(path: Path, models: int) -> None:
    """Write a reference in which all models have the same rows."""
    one = references(Load(models=1))["m0"]
    columns = one.scores.tolist(), one.labels.tolist(), one.time.tolist()
    rows = [
        f'"time":{time},"scores":{scores},"label":"{CLASSES[label]}"}}\n'
        for scores, label, time in zip(*columns, strict=True)
    ]
    with path.open("w", encoding="utf-8") as file:
        for model in range(models):
            file.writelines([f'{{"model":"m{model}",{row}' for row in rows])


def full_scrapes(models: int) -> list[str]:
    """Return scrapes of models that export everything: processor time of each text, and what a client
    waits for.
    """
    one_heap()
    tune_collector()
    began = crowd(models, 0)
    series = began.engine.series
    answered = replace(began.engine, series=tuple(replace(one, pending=one.pending + 1) for one in series))
    closed = replace(began.engine, series=tuple(map(_closed, series)))
    engines = {
        "first": began.engine,
        "new answers": answered,
        "nothing new": answered,
        "new windows": closed,
    }
    turns = {name: replace(began, engine=engine) for name, engine in engines.items()}
    return [f"    {models:,} models, {_written(turns)}", f"    over HTTP with gzip, {_scraped(turns)}"]


def _written(turns: Mapping[str, AgentView]) -> str:
    """Return size and processor time of the text of each, and of packing the last one."""
    views, times, text = iter(turns.values()), [], b""
    metrics = registry(lambda: next(views), 10_000_000)
    for name in turns:
        before = time.process_time()
        text = exposition.text(metrics)
        times.append(f"{name} {time.process_time() - before:.2f}")
    before = time.process_time()
    packed = gzip.compress(text, 4)
    times.append(f"gzip {time.process_time() - before:.2f}")
    lines = sum(line[:1] != b"#" for line in text.splitlines())
    size = f"{len(text) / 1e6:.0f} MB, {len(packed) / 1e6:.1f} with gzip"
    return f"{lines:,} series, {size}; s a scrape: {', '.join(times)}"


def _scraped(turns: Mapping[str, AgentView]) -> str:
    """Return how long a client of the agent's HTTP server waits for each scrape; it takes gzip."""
    views, times = iter(turns.values()), []
    metrics = registry(lambda: next(views), 10_000_000)
    server = HttpServer(build_app(AgentView, metrics, lambda view, query: ""), "127.0.0.1:0")
    server.start()
    request = Request(f"http://127.0.0.1:{server.port}/metrics", headers={"Accept-Encoding": "gzip"})
    for name in turns:
        before, used = time.perf_counter(), time.process_time()
        with urlopen(request, timeout=60) as answer:
            answer.read()
        elapsed, used = time.perf_counter() - before, time.process_time() - used
        times.append(f"{name} {elapsed:.2f} / {used:.2f}")
    server.stop()
    return f"s that a client waits / of the processor: {', '.join(times)}"


def _closed(one: SeriesView) -> SeriesView:
    """Return the view after another window, in which every estimate, chart and confidence has changed."""
    assert one.distributions is not None
    spread = replace(one.distributions, confidence=one.distributions.confidence.plus(np.full(500, 0.97)))
    return replace(
        one,
        windows_closed=one.windows_closed + 1,
        predictions=one.predictions + 500,
        estimates=tuple(
            replace(e, result=replace(e.result, value=0.9 * e.result.value))
            if isinstance(e.result, Estimate)
            else e
            for e in one.estimates
        ),
        charts=tuple(replace(c, verdict=replace(c.verdict, upper=0.99)) for c in one.charts),
        violations={of: count + 1 for of, count in one.violations.items()},
        distributions=spread,
    )


def exponent(before: float, after: float, from_: float, to: float) -> float:
    """Return the exponent of a cost over its cause; NaN where a cause or a cost is 0."""
    if min(before, after, from_, to) <= 0:
        return math.nan
    return math.log(after / before) / math.log(to / from_)


def table(axis: str, points: Sequence[tuple[Load, Cost]]) -> list[str]:
    """Return the points of one axis, the exponents of their last step, and where the first wall stands."""
    name = {"labelled": "labels", "many": "models"}.get(axis, axis)
    axis = {"many": "models"}.get(axis, axis)
    head = (
        f"{name:>12}  start s  learn s  us/answer  store us  memory MB  store MB"
        "  scrape ms  again ms  scrape KB     lines"
    )
    lines = [head]
    for load, cost in points:
        value = getattr(load, axis)
        at = f"{value:12.0%}" if axis == "labelled" else f"{value:12,}"
        lines.append(
            f"{at} {cost.start:8.2f} {cost.learn:8.2f} {1e6 * cost.engine / load.rows:10.2f}"
            f" {1e6 * cost.store / load.rows:9.2f}"
            f" {cost.memory / 1e6:10,.0f} {cost.disk / 1e6:9,.0f} {1e3 * cost.scrape:10.1f}"
            f" {1e3 * cost.again:9.1f} {cost.scraped / 1e3:10,.1f} {cost.lines:9,}"
        )
    (before, was), (after, now) = points[-2:]
    causes = getattr(before, axis), getattr(after, axis)
    kinds = {
        "start": "start",
        "learning": "learn",
        "time": "engine",
        "memory": "memory",
        "store": "disk",
        "scrape": "scrape",
    }
    slopes = {kind: exponent(getattr(was, of), getattr(now, of), *causes) for kind, of in kinds.items()}
    exponents = ", ".join(f"{kind} {slope:.2f}" for kind, slope in slopes.items() if not math.isnan(slope))
    return [*lines, f"    exponents of the last step: {exponents}", *_walls(axis, points)]


def _walls(axis: str, points: Sequence[tuple[Load, Cost]]) -> list[str]:
    """Name the limit that is reached first if the cost grows as in the last step."""
    (before, was), (after, now) = points[-2:]
    low, high = float(getattr(before, axis)), float(getattr(after, axis))
    reached = []
    for of, (what, limit) in WALLS.items():
        each = [(getattr(was, of), before), (getattr(now, of), after)]
        one, other = (cost / load.rows if of == "engine" else cost for cost, load in each)
        slope = exponent(one, other, low, high)
        place = high * (limit / other) ** (1 / slope) if slope > _FLAT else math.inf
        most = 1.0 if axis == "labelled" else _FAR * high
        if one >= limit:
            reached.append((low, f"{what}: at {low:,g} or before"))
        elif place <= most:
            reached.append((place, f"{what}: at about {float(f'{place:.2g}'):,.0f}"))
    first = min(reached, default=(0.0, "none in sight"))
    return [f"    first wall: {first[1]}"]


def run_point(load: Load) -> Cost:
    """Measure a point, alone in its process."""
    one_heap()
    tune_collector()
    with tempfile.TemporaryDirectory() as folder:
        return measure(load, Path(folder))


def report(
    only: tuple[Axis, ...] = tuple(AXES), small: bool = False, results: Path | None = None
) -> Iterator[str]:
    """Yield every axis in turn; small: a few seconds, does it run, and grow?"""
    axes = SMALL if small else AXES
    known = known_in(results)
    for axis in only:
        points = []
        for load in axes.get(axis, ()):
            key = json.dumps(asdict(load))
            if key not in known:
                known[key] = apart(run_point, load)
                if results is not None:
                    with results.open("a", encoding="utf-8") as file:
                        file.write(json.dumps([asdict(load), asdict(known[key])]) + "\n")
            points.append((load, known[key]))
        if points:
            yield from table(axis, points)
            if axis == "many":
                yield apart(reading, points[0][0].models)
                yield from apart(full_scrapes, points[-1][0].models)
            yield ""


def known_in(kept: Path | None) -> dict[str, Cost]:
    """Return the costs of an earlier run that a file holds."""
    known: dict[str, Cost] = {}
    if kept is not None and kept.exists():
        for line in kept.read_text(encoding="utf-8").splitlines():
            load, cost = json.loads(line)
            known[json.dumps(load)] = Cost(**cost)
    return known


if __name__ == "__main__":
    run(report, keep=False)
