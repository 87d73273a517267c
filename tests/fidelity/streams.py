"""The corrected accuracy beside labels alone and a constant, on drifting streams.

    python -m tests.fidelity.streams [flights] [draws] [levels] [late] [groups] [rain] [simulated]

`flights`: the demo's models of "arrives more than 15 minutes late" on April to December 2013, calibrated on
the held-out days of January to March. Labels of a share of the flights come three hours after landing. A
window is judged as it closes, with the labels of its own rows by then, and again one window later, with its
own late labels. `draws`: the same windows at their close with twelve other draws of the labelled flights,
whose labels come three hours after landing, or at landing: the mean and the standard deviation between
draws. One draw of windows of 2,000 cannot tell a coverage of 93.5 % from one of 95 %: all models have the
same flights. `levels`: its intervals at other levels. `late`: labels that come 1, 10, 100 and 1,000 windows
after their window closed (`python -m tests.bench.bench_corrected` has the cost).

`groups`: the flights of each airport and carrier through the engine, which recalibrates on labels; windows
of 500 flights of the group, as they close. Groups with fewer than ten windows count together.

`rain`: will it rain within three hours at this airport? Hourly weather of the same package, a logistic
regression on the first 6,500 rows, a reference of the next 5,000, labels 72 rows late. Hypotheses, prior
and factors were not chosen on it; that an interval ends at whole counts, and how chance widens it, was
mended after a look at its windows without any wrong answer.

`simulated`: the streams of `tests.fidelity.predictive` with a reference of 5,000 rows, labels one window
late.

*Labels alone*: Wilson's interval of the window's own labels, for the finite window. *Constant*: the
reference's accuracy, with an interval for a window of independent rows. All but the constant know only
labels that have come. The score is Winkler's: width, plus 2/(1 − level) times the distance by which the
truth is missed. Everything is in percentage points, means over windows.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator
from math import sqrt
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from monitor import CALIBRATORS
from monitor.base.records import Floats, Ints
from monitor.base.results import Estimate
from monitor.cli.demo.flights import Flights, data_folder, read_flights
from monitor.cli.demo.stream import LABEL_LAG_SECONDS
from monitor.cli.demo.training import MODELS, Scored, train_and_score
from monitor.engine.refit.recalibration import recalibrate
from monitor.reports.window_view import leading_estimate
from monitor.stats.calibration.base import confidence_of, cross_fit_in_time
from monitor.stats.estimate.corrected import Correction
from tests.fidelity.predictive import simulated as simulated_life
from tests.harness import run
from tests.streams import CLASSES, Record, Rig, reference_of, task

LEVELS = (0.8, 0.9, 0.95, 0.99)
LATE = (1, 10, 100, 1000)
SHARES = (0.01, 0.05, 0.2)
LAGS = (3, 0)
"""Hours from a flight's landing to its label."""

FEWEST_WINDOWS = 10
"""The fewest windows, in each draw and model, of a group that has a row of its own."""

_CHUNK = 2000  # events that the engine gets at once
_WIDTHS = ("8.2f", "8.2f", "9.1f", "8.2f")
_NONE = np.zeros(0), np.zeros(0, dtype=np.bool_)
_TRAINED, _REFERENCE, _RAIN_LAG = 6500, 5000, 72
_WAITED = 3  # hours until which rain counts


class Stream(NamedTuple):
    """A calibrated stream in order, with what its reference says.

    Parameters
    ----------
    confidence, right : (rows,)
        Of the rows after the reference.
    crossed, held : (reference,)
        Confidences of the reference, each by the other folds, and whether they were right.
    """

    confidence: Floats
    right: NDArray[np.bool_]
    crossed: Floats
    held: NDArray[np.bool_]


class Judged(NamedTuple):
    """Means over windows, in points."""

    error: float
    width: float
    covered: float
    score: float


def calibrated(scores: Floats, predicted: Ints, labels: Ints, reference: int) -> Stream:
    """Return the stream after the first rows, by an isotonic calibration on them."""
    old, right = slice(0, reference), labels == (0 if scores.shape[1] == 1 else predicted)
    rows = scores[old], predicted[old], labels[old]
    calibrator = CALIBRATORS["isotonic"]()
    confidence = confidence_of(calibrator.fit(*rows).apply(scores), predicted)
    crossed = confidence_of(cross_fit_in_time(calibrator, *rows, folds=5), rows[1])
    return Stream(confidence[reference:], right[reference:], crossed, right[old])


def windows_of(come: Floats, picked: Ints, ends: Floats) -> Ints:
    """Return the window at whose close each picked row's label is known first; their number for never."""
    windows: Ints = np.searchsorted(ends, come[picked])
    return windows


def corrected(
    stream: Stream,
    n: int,
    picked: Ints,
    known: Ints,
    level: float = 0.95,
    revised: bool = False,
    settings: Correction | None = None,
    pooled: int = 1,
) -> Floats:
    """Return (windows, 3) value and ends of each window at its close, or one window later.

    Parameters
    ----------
    stream : Stream
    n : int
        Rows of a window.
    picked, known : (labels,) int64
        Rows whose labels come, and the window at whose close each has come.
    level : float
    revised : bool
    settings : Correction, optional
        By default those of the stream's reference.
    pooled : int
        The number of windows also estimated together at each close, before, as the engine does.
    """
    logic = (settings or Correction.from_reference(stream.crossed, stream.held, n)).build()
    many, estimates = len(stream.right) // n, []
    blocks = np.empty(many * n, dtype=np.int64)
    for k in range(many):
        rows = slice(k * n, (k + 1) * n)
        blocks[rows] = logic.close(k, stream.confidence[rows])
        fresh = picked[known == k]
        logic.push(blocks[fresh], stream.confidence[fresh], stream.right[fresh])
        if pooled > 1:
            logic.estimate(k, level, min(k + 1, pooled))
        if k >= revised:
            estimates.append(logic.estimate(k - revised, level))
    return np.array([[one.value, one.lower, one.upper] for one in estimates if isinstance(one, Estimate)])


def alone(stream: Stream, n: int, picked: Ints, known: Ints, level: float = 0.95) -> Floats:
    """Return the same for the window's own labels at its close."""
    z, intervals = float(norm.ppf((1 + level) / 2)), []
    for k in range(len(stream.right) // n):
        own = picked[(picked // n == k) & (known <= k)]
        m = len(own)
        if not m:
            intervals.append([0.5, 0.0, 1.0])
            continue
        p = float(stream.right[own].mean())
        middle = (p + z * z / (2 * m)) / (1 + z * z / m)
        half = z * sqrt(p * (1 - p) / m + z * z / (4 * m * m)) / (1 + z * z / m)
        finite = sqrt(1 - m / n)  # an end at 0 or 1 stays there
        intervals.append([p, *(p + finite * (end - p) for end in (middle - half, middle + half))])
    return np.array(intervals)


def constant(stream: Stream, n: int, picked: Ints, known: Ints, level: float = 0.95) -> Floats:
    """Return the same for the reference's accuracy, always."""
    p = float(stream.held.mean())
    half = float(norm.ppf((1 + level) / 2)) * sqrt(p * (1 - p) * (1 / n + 1 / len(stream.held)))
    return np.tile([p, p - half, p + half], (len(stream.right) // n, 1))


METHODS: dict[str, Callable[[Stream, int, Ints, Ints, float], Floats]] = {
    "corrected": corrected,
    "labels alone": alone,
    "constant": constant,
}


def judged(stream: Stream, n: int, intervals: Floats, level: float = 0.95) -> Judged:
    """Judge the ends, (windows, 3), of the first windows."""
    truth = stream.right[: len(intervals) * n].reshape(-1, n).mean(axis=1)
    value, low, high = intervals.T
    missed = np.maximum(low - truth, 0) + np.maximum(truth - high, 0)
    within = missed <= 1e-9
    score = high - low + 2 / (1 - level) * missed * ~within
    cells = np.abs(value - truth), high - low, within, score
    return Judged(*(100 * float(each.mean()) for each in cells))


def mean_of(judgements: list[Judged]) -> Judged:
    """Return the mean over several streams."""
    return Judged(*np.mean(judgements, axis=0).tolist())


def flights(models: int = 4, share: float = 0.2, sizes: tuple[int, ...] = (500, 2000)) -> Iterator[str]:
    """Yield the demo's flights, a line at a time."""
    streams, come, made = flight_streams(models)
    yield f"Flights, {models} models, labels of {100 * share:g} % (python -m tests.fidelity.streams flights)"
    yield _heads("windows")
    for n in sizes:
        picked, known = _picked(come, made, n, share)
        for name, method in METHODS.items():
            cells = [judged(one, n, method(one, n, picked, known, 0.95)) for one in streams]
            yield _row(f"{n:,}", name, mean_of(cells))
        later = [judged(one, n, corrected(one, n, picked, known, revised=True)) for one in streams]
        yield _row(f"{n:,}", "corrected, revised", mean_of(later))


def flight_streams(models: int) -> tuple[list[Stream], Floats, Floats]:
    """Return the models' streams, and when each flight's label comes and when it left, in seconds."""
    data = read_flights()
    scored = train_and_score(data, seed=0)
    known = data.late[scored.stream_rows] >= 0
    rows = scored.stream_rows[known]
    late = np.r_[data.late[scored.reference_rows], data.late[rows]]
    streams = []
    for column in range(models):
        score = np.r_[scored.reference_scores[:, column], scored.stream_scores[known, column]]
        both, predicted = np.stack([1 - score, score], axis=1), (score > 0.5).astype(np.int64)
        streams.append(calibrated(both, predicted, late, len(scored.reference_rows)))
    assert len(streams) <= len(MODELS)
    return streams, data.landed[rows] + LABEL_LAG_SECONDS, data.departed[rows]


def _picked(come: Floats, made: Floats, n: int, share: float, seed: int = 11) -> tuple[Ints, Ints]:
    many = len(made) // n
    picked = np.flatnonzero(np.random.default_rng(seed).random(many * n) < share)
    return picked, windows_of(come, picked, made[n - 1 : many * n : n])


def draws(
    models: int = 4, share: float = 0.2, sizes: tuple[int, ...] = (500, 2000), draws: int = 12
) -> Iterator[str]:
    """Yield the demo's flights with several draws of the labelled ones, a line at a time."""
    streams, come, made = flight_streams(models)
    yield f"Flights, {models} models, labels of {100 * share:g} %: mean of {draws} draws ± standard deviation"
    yield "between draws (python -m tests.fidelity.streams draws)"
    yield f"{'windows':9s}{'hours late':>10s}{'error':>14s}{'width':>14s}{'covered':>14s}{'score':>14s}"
    for n in sizes:
        for hours in LAGS:
            at = come - LABEL_LAG_SECONDS + 3600.0 * hours
            cells = np.empty((draws, 4))
            for draw in range(draws):
                picked, known = _picked(at, made, n, share, seed=100 + draw)
                each = [judged(one, n, corrected(one, n, picked, known)) for one in streams]
                cells[draw] = mean_of(each)
            columns = zip(cells.mean(axis=0), cells.std(axis=0, ddof=1), strict=True)
            printed = "".join(f"{mean:8.2f} ± {deviation:.2f}".rjust(14) for mean, deviation in columns)
            yield f"{n:<9,d}{hours:10d}{printed}"


def groups(models: int = 1, share: float = 0.2, n: int = 500, draws: int = 6) -> Iterator[str]:
    """Yield the flights of groups through the engine, a line at a time."""
    data = read_flights()
    scored = train_and_score(data, seed=0)
    yield f"Groups of flights, {models} models, windows of {n:,}, labels of {100 * share:g} %, {draws} draws"
    yield "of the labels (python -m tests.fidelity.streams groups)"
    yield f"{'group':18s}{'windows':>8s}{'error':>8s}{'width':>8s}{'covered':>9s}{'score':>8s}"
    by_group: dict[str, list[Judged]] = {}
    for draw in range(draws):
        for group, one in _judged_groups(data, scored, models, share, n, seed=200 + draw):
            by_group.setdefault(group, []).append(one)
    large = {group: each for group, each in by_group.items() if len(each) >= FEWEST_WINDOWS * models * draws}
    small = [one for group, each in by_group.items() if group not in large for one in each]
    for group, each in [*sorted(large.items()), *([("smaller carriers", small)] if small else [])]:
        mean = "".join(f"{cell:{width}}" for cell, width in zip(mean_of(each), _WIDTHS, strict=True))
        yield f"{group or 'all':18s}{len(each):8,d}{mean}"
    for name in ("origin", "carrier"):
        means = [mean_of(each) for group, each in large.items() if group.startswith(name)]
        mean = "".join(f"{cell:{width}}" for cell, width in zip(mean_of(means), _WIDTHS, strict=True))
        yield f"{f'{name}: mean':18s}{'':8s}{mean}   worst covered {min(one.covered for one in means):.1f}"


def _judged_groups(
    data: Flights, scored: Scored, models: int, share: float, n: int, seed: int
) -> Iterator[tuple[str, Judged]]:
    """Yield the group and the judgement of each window, of one draw of the labels."""
    known = data.late[scored.stream_rows] >= 0
    rows, scores = scored.stream_rows[known], scored.stream_scores[known]
    settings = task(
        window={"size": n},
        reference={"path": "r.ndjson"},
        estimators=["average_confidence"],
        chart={"sigmas": 3},
        groups=["origin", "carrier"],
    )
    reference = [
        answer | {"label": CLASSES[data.late[row]]}
        for row, each in zip(scored.reference_rows.tolist(), scored.reference_scores, strict=True)
        for answer in _answers(data, row, each[:models])
    ]
    rig = Rig(settings, {"t": reference_of(settings, reference)}, recalibrate=recalibrate)
    come, made = data.landed[rows] + LABEL_LAG_SECONDS, data.departed[rows]
    picked = np.flatnonzero(np.random.default_rng(seed).random(len(rows)) < share)
    events = np.argsort(np.r_[made, come[picked]], kind="stable")
    reports = []
    for some in np.array_split(events, -(-len(events) // _CHUNK)):
        records: list[Record] = []
        for event in some.tolist():
            if event < len(rows):
                records += _answers(data, int(rows[event]), scores[event, :models])
            else:
                at = picked[event - len(rows)]
                row = int(rows[at])
                records.append({"id": f"f{row}", "time": float(come[at]), "label": CLASSES[data.late[row]]})
        reports += rig.feed(records)
    right = (scores > 0.5) == data.late[rows][:, None]
    codes = {f"origin={code}": data.origin[rows] == k for k, code in enumerate(data.origins)}
    codes |= {f"carrier={code}": data.carrier[rows] == k for k, code in enumerate(data.carriers)}
    members = {group: np.flatnonzero(mask) for group, mask in codes.items()} | {"": np.arange(len(rows))}
    for report in reports:
        leading = leading_estimate(report.estimates, "accuracy")
        if report.revision or leading is None or not isinstance(one := leading.result, Estimate):
            continue
        own = members[report.group][report.window * n : (report.window + 1) * n]
        stream = Stream(own.astype(np.float64), right[own, MODELS.index(report.model)], *_NONE)
        yield report.group, judged(stream, n, np.array([[one.value, one.lower, one.upper]]))


def _answers(data: Flights, row: int, scores: Floats) -> list[Record]:
    """Return the answers of the first models about a flight."""
    origin, carrier = data.origins[data.origin[row]], data.carriers[data.carrier[row]]
    answer: Record = {"id": f"f{row}", "time": float(data.departed[row])}
    answer["groups"] = {"origin": origin, "carrier": carrier}
    named = zip(MODELS, scores.tolist(), strict=False)
    return [answer | {"model": model, "scores": [1 - score, score]} for model, score in named]


def levels(models: int = 2, share: float = 0.2, n: int = 500) -> Iterator[str]:
    """Yield coverage at other levels, on flights."""
    streams, come, made = flight_streams(models)
    picked, known = _picked(come, made, n, share)
    yield f"Flights, {models} models, windows of {n:,} (python -m tests.fidelity.streams levels)"
    yield _heads("level, %")
    for level in LEVELS:
        cells = [judged(one, n, corrected(one, n, picked, known, level), level) for one in streams]
        yield _row(f"{100 * level:g}", "corrected", mean_of(cells))


def late(models: int = 1, share: float = 0.2, n: int = 200) -> Iterator[str]:
    """Yield labels that come long after their window closed, on flights."""
    streams, _, made = flight_streams(models)
    yield f"Flights, {models} models, windows of {n:,} (python -m tests.fidelity.streams late)"
    yield _heads("windows late")
    for lag in LATE:
        picked = np.flatnonzero(np.random.default_rng(12).random(len(made) // n * n) < share)
        known = picked // n + lag
        cells = [judged(one, n, corrected(one, n, picked, known)) for one in streams]
        yield _row(f"{lag:,}", "corrected", mean_of(cells))


def rain(share: float = 0.2, sizes: tuple[int, ...] = (250, 500)) -> Iterator[str]:
    """Yield the weather, a line at a time."""
    stream = rain_stream()
    yield f"Rain, labels of {100 * share:g} % and 2 % (python -m tests.fidelity.streams rain)"
    yield _heads("windows, labels")
    for n in sizes:
        for some in (share, 0.02):
            picked = np.flatnonzero(np.random.default_rng(13).random(len(stream.right)) < some)
            known = -(-(picked + 1 + _RAIN_LAG) // n) - 1
            for name, method in METHODS.items():
                intervals = method(stream, n, picked, known, 0.95)
                yield _row(f"{n:,}, {100 * some:g} %", name, judged(stream, n, intervals))


def rain_stream() -> Stream:
    """Return hours of three airports in order of time: the answers of a logistic regression."""
    from sklearn.linear_model import LogisticRegression

    with (data_folder() / "weather.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    airport = np.array([row["origin"] for row in rows])
    names = ("hour", "temp", "dewp", "humid", "wind_speed", "precip", "pressure", "visib")
    table = np.array([[_number(row[name]) for name in names] for row in rows])
    time = np.array([row["time_hour"] for row in rows])
    wet = np.nan_to_num(table[:, names.index("precip")]) > 0
    soon = np.zeros(len(rows), dtype=bool)
    for one in np.unique(airport):
        at = np.flatnonzero(airport == one)
        at = at[np.argsort(time[at], kind="stable")]
        for ahead in range(1, _WAITED + 1):
            soon[at[:-ahead]] |= wet[at[ahead:]]
    order = np.argsort(time, kind="stable")
    table, soon = table[order], soon[order].astype(np.int64)
    usual = np.nanmedian(table[:_TRAINED], axis=0)
    table = np.where(np.isnan(table), usual, table)
    table = (table - table[:_TRAINED].mean(axis=0)) / np.maximum(table[:_TRAINED].std(axis=0), 1e-9)
    score = (
        LogisticRegression(max_iter=500)
        .fit(table[:_TRAINED], soon[:_TRAINED])
        .predict_proba(table)[_TRAINED:]
    )
    return calibrated(score, (score[:, 1] > 0.5).astype(np.int64), soon[_TRAINED:], _REFERENCE)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return float("nan")


def simulated(lives: int = 8, n: int = 500, seed: int = 3) -> Iterator[str]:
    """Yield simulated streams, a line at a time."""
    yield f"Simulated, {lives} lives, windows of {n:,} (python -m tests.fidelity.streams simulated)"
    yield _heads("stream, labels")
    for kind in ("stable", "OU drift", "jump"):
        streams = []
        for i in range(lives):
            life = simulated_life(kind, _REFERENCE, 1000 * seed + i)
            streams.append(calibrated(life.scores, life.predicted, life.labels, life.reference))
        for share in SHARES:
            cells = []
            for i, one in enumerate(streams):
                picked = np.flatnonzero(np.random.default_rng([i, 14]).random(len(one.right)) < share)
                cells.append(judged(one, n, corrected(one, n, picked, picked // n + 1)))
            yield _row(f"{kind}, {100 * share:g} %", "corrected", mean_of(cells))


def _heads(first: str) -> str:
    return f"{first:18s}{'':20s}{'error':>8s}{'width':>8s}{'covered':>9s}{'score':>8s}"


def _row(first: str, name: str, cell: Judged) -> str:
    return f"{first:18s}{name:20s}{cell.error:8.2f}{cell.width:8.2f}{cell.covered:9.1f}{cell.score:8.2f}"


if __name__ == "__main__":
    parts = {"flights": flights, "draws": draws, "levels": levels, "late": late}
    run({**parts, "groups": groups, "rain": rain, "simulated": simulated})
