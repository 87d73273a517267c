"""The share of right alarms: charts of the accuracy and of the calibration error, and healthy objectives.

    python -m tests.fidelity.alarms [accuracy] [choice] [ece] [healthy]

`accuracy` and `ece`: the demo's flights, four models of "arrives more than 15 minutes late" in windows of 500
with labels of 20 %, replayed as the demo does; the truth is that of all flights. Truths are pooled over the
window and the four before. A *drop* is a stretch of windows whose pooled accuracy lies below the reference's
mean by more than three standard deviations of five pooled windows of the reference; stretches less than five
windows apart are one. An alarm is right if the pooled truth lies below the band in its first window or in one
of the four after it, and an improvement if it lies above the mean there. A drop is found if the alarm is on
in one of its windows; what improvements find are stretches above the band.

Where labels decide on the alarm of the accuracy (`monitor.engine.label_alarm`), as they do there from the
second window on, it follows the corrected accuracy.

`choice`: by which probability that the accuracy lies below the band an alarm by labels begins, for streams
that were used to choose (the first half of the flights with three samples of labels, rain, simulated streams)
and for the second half of the flights, which was not. The alarm is as in the agent, the calibration is that
of the reference throughout, and drops are counted within each half.

The calibration error is charted by the calibration in force (`in force`); likewise, with a baseline that
restarts at each recalibration and takes 5 or 20 windows (`restarted`); and, as the agent does, by the
reference's calibration, whatever recalibrations there were (`of the reference`). A window is truly bad if its
error by all labels, pooled likewise, lies above the reference's mean by more than three standard deviations.
`fresh` is the share of onsets in the first two windows of a new calibration, `bad | on` that of truly bad
windows among those of alarms, r the correlation of charted and true errors, over windows, of the models.

`healthy`: 40 simulated models whose confidences are right (Kivimäki et al., Table 2), each with a labelled
reference of 4,000 rows, an isotonic calibration, windows of 500 and a floor one to three points below the
accuracy of its reference; after 10 windows each objective is read, without any label. *Before* is the rule
that an interval which merely reaches the floor is at risk.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit

from monitor.base.records import Floats, Ints
from monitor.base.results import Estimate
from monitor.cli.demo.calibration import _by_window, turned_out_calibration
from monitor.cli.demo.stream import TASK, WINDOW_SIZE, DemoData, prepare
from monitor.cli.demo.summary import turned_out
from monitor.cli.replay import replay
from monitor.config.root import ChartConfig
from monitor.engine.baselines import Point, baseline
from monitor.engine.charting import chart_for
from monitor.engine.label_alarm import LabelAlarm, LabelAlarmState, LabelBaseline
from monitor.engine.labels.correcting import Correcting
from monitor.reports.reader import from_json
from monitor.reports.views import ObjectiveState
from monitor.reports.window_report import WindowReport
from monitor.stats.charts.base import Verdict
from monitor.stats.charts.latch import Latch
from monitor.stats.estimate.corrected import Correction, block_rows, block_starts
from tests.fidelity.predictive import simulated as simulated_life
from tests.fidelity.simulated import ORIGINAL, confidences
from tests.fidelity.streams import _RAIN_LAG, Stream, _picked, calibrated, flight_streams, rain_stream
from tests.harness import run
from tests.streams import Rig, reference_of, task

POOLED = 5
_BAND = 3.0
_FRESH = 2  # windows from a new calibration on
RESTARTS = (5, 20)
SURES = (0.501, 0.6, 0.7, 0.75, 0.8, 0.9, 0.975)
_REFERENCE_ROWS = 5000  # of simulated streams
_CALM = Verdict(center=0.5, lower=0.0, upper=1.0, rules=(), out_of_control=False)

HEALTHY = 40
SLACKS = (0.01, 0.015, 0.02, 0.03)
_REFERENCE, _SIZE, _WINDOWS = 4000, 500, 10

Flags = NDArray[np.bool_]
_HEAD = f"{'':44s}{'alarms':>7s}{'right':>7s}{'found':>14s}{'on':>11s}"


class Flown(NamedTuple):
    """The reports of a replay of the flights, by model, and the data."""

    data: DemoData
    reports: dict[str, list[WindowReport]]


@cache
def flown() -> Flown:
    """Return the flights replayed."""
    with TemporaryDirectory() as place:
        data = prepare(Path(place) / "flights")
        return Flown(data, _replayed(data, Path(place) / "out"))


def _replayed(data: DemoData, out: Path) -> dict[str, list[WindowReport]]:
    replay(str(data.config), [data.stream], out, lambda path, size: None)
    by_model: dict[str, list[WindowReport]] = {model: [] for model in data.models}
    for line in (out / "windows.ndjson").read_bytes().splitlines():
        report = from_json(line)
        if report.task == TASK and not report.revision and report.size == WINDOW_SIZE:
            by_model[report.model].append(report)
    return by_model


def pooled(values: Floats) -> Floats:
    """Return the mean of each window and the four before, or of as many as there are; NaN counts for
    nothing.
    """
    known = np.isfinite(values)
    sums, counts = (np.cumsum(each) for each in (np.where(known, values, 0.0), known))
    before = np.r_[np.zeros(POOLED), sums[:-POOLED]], np.r_[np.zeros(POOLED), counts[:-POOLED]]
    shares: Floats = (sums - before[0]) / np.maximum(counts - before[1], 1)
    return shares


def onsets(on: Flags) -> list[int]:
    """Return the windows with which stretches begin."""
    return [at for at, (before, now) in enumerate(pairwise([False, *on.tolist()])) if now and not before]


def stretches(on: Flags) -> list[tuple[int, int]]:
    """Return first and last window of each stretch; those less than five windows apart are one."""
    spans: list[tuple[int, int]] = []
    for at in np.flatnonzero(on).tolist():
        if spans and at - spans[-1][1] <= POOLED:
            spans[-1] = spans[-1][0], at
        else:
            spans.append((at, at))
    return spans


class Signal(NamedTuple):
    """The counts of a signal: its alarms, the right ones of them, and the caught drops of all drops."""

    alarms: int
    right: int
    caught: int
    drops: int
    windows: float

    @classmethod
    def of(cls, on: Flags, bad: Flags, before: Flags | None = None) -> Signal:
        """Return a signal against the truth; `before`: drops are those stretches, if not those of `bad`."""
        began = onsets(on)
        drops = stretches(bad if before is None else before)
        right = sum(bool(bad[at : at + POOLED].any()) for at in began)
        caught = sum(bool(on[first : last + 1].any()) for first, last in drops)
        return cls(len(began), right, caught, len(drops), float(on.sum()))


def _row(name: str, signals: Sequence[Signal], windows: int) -> str:
    alarms, right, drops, of, on = (sum(column) for column in zip(*signals, strict=True))
    share = f"{100 * right / alarms:5.0f} %" if alarms else f"{'–':>7s}"
    return f"{name:44s}{alarms:7.0f}{share}{drops:8.0f} of {of:<3.0f}{100 * on / windows:9.1f} %"


def _latched(reports: Sequence[WindowReport], metric: str, kind: str = "out_of_control") -> Flags:
    charts = [{chart.metric: chart.verdict for chart in report.charts} for report in reports]
    return np.array([metric in each and getattr(each[metric], kind, False) for each in charts])


def accuracy() -> Iterator[str]:
    """Print the alarms of the accuracy."""
    data, reports = flown()
    names = ("the alarm", "its improvements")
    rows: dict[str, list[Signal]] = {name: [] for name in names}
    below, windows = [], 0
    for column, model in enumerate(data.models):
        own = reports[model]
        truth = pooled(turned_out(data, column, len(own)))
        center, spread = _reference_accuracy(data, column)
        bad, good = truth < center - _BAND * spread, truth > center
        rows[names[0]].append(Signal.of(_latched(own, "accuracy"), bad))
        rows[names[1]].append(
            Signal.of(_latched(own, "accuracy", "improved"), good, truth > center + _BAND * spread)
        )
        below.append(bad)
        windows += len(own)
    yield "Alarms of the accuracy on the demo's flights (python -m tests.fidelity.alarms accuracy)\n"
    share = 100 * np.concatenate(below).mean()
    yield f"{windows} windows of {len(data.models)} models; the truth lies below the band in {share:.1f} %\n"
    yield f"{_HEAD}\n"
    for name in names:
        yield _row(name, rows[name], windows) + "\n"


class _Watched(NamedTuple):
    """A stream with its labels, and where the alarm by labels was on, by how sure it must be."""

    truth: Floats
    band: tuple[float, float]
    on: dict[float, Flags]


def _watched(stream: Stream, n: int, picked: Ints, known: Ints) -> _Watched:
    many = len(stream.right) // n
    held = stream.held[: len(stream.held) // n * n].reshape(-1, n).mean(axis=1)
    state = LabelAlarmState(LabelBaseline.from_windows(held.tolist(), [n] * len(held)))
    least = ChartConfig().least_change("accuracy")
    alarms = {sure: LabelAlarm(least, len(held), state, sure) for sure in SURES}
    correcting = Correcting(
        lambda: Correction.from_reference(stream.crossed, stream.held, n), block_rows(n), 0
    )
    on: dict[float, list[bool]] = {sure: [] for sure in SURES}
    blocks = block_starts(np.arange(many * n), np.arange(many * n) // n * n, block_rows(n))
    for k in range(many):
        correcting.close(k, stream.confidence[k * n : (k + 1) * n])
        fresh = picked[known == k]
        correcting.add(blocks[fresh], stream.confidence[fresh], stream.right[fresh])
        for sure, alarm in alarms.items():
            on[sure].append(alarm.judge(_CALM, correcting, k)[0].out_of_control)
    truth = pooled(stream.right[: many * n].reshape(many, n).mean(axis=1))
    return _Watched(truth, _of_reference(held), {sure: np.array(states) for sure, states in on.items()})


def choice(models: int = 4, lives: int = 12) -> Iterator[str]:
    """Print what alarms by labels that are more or less sure find."""
    rows: dict[str, list[tuple[_Watched, slice]]] = {}
    streams, come, made = flight_streams(models)
    for share, seed in ((0.2, 11), (0.2, 12), (0.05, 13)):
        picked, known = _picked(come, made, WINDOW_SIZE, share, seed)
        for one in streams:
            watch = _watched(one, WINDOW_SIZE, picked, known)
            middle = len(watch.truth) // 2
            rows.setdefault("flights, first half", []).append((watch, slice(middle)))
            rows.setdefault("flights, second half", []).append((watch, slice(middle, None)))
    stream = rain_stream()
    for n, share in ((250, 0.2), (250, 0.05), (500, 0.2), (500, 0.05)):
        picked = np.flatnonzero(np.random.default_rng(13).random(len(stream.right)) < share)
        known = -(-(picked + 1 + _RAIN_LAG) // n) - 1
        rows.setdefault("rain", []).append((_watched(stream, n, picked, known), slice(None)))
    for kind in ("stable", "OU drift", "jump"):
        for i in range(lives):
            life = simulated_life(kind, _REFERENCE_ROWS, 77_000 + i)
            one = calibrated(life.scores, life.predicted, life.labels, life.reference)
            for share in (0.2, 0.05):
                picked = np.flatnonzero(np.random.default_rng([i, 141]).random(len(one.right)) < share)
                watch = _watched(one, WINDOW_SIZE, picked, picked // WINDOW_SIZE + 1)
                rows.setdefault(f"simulated, {kind}", []).append((watch, slice(None)))
    yield "By which probability an alarm by labels begins (python -m tests.fidelity.alarms choice)\n"
    yield f"{_HEAD}\n"
    for name, watched in rows.items():
        for sure in SURES:
            signals = []
            for watch, part in watched:
                center, spread = watch.band
                bad = watch.truth[part] < center - _BAND * spread
                signals.append(Signal.of(watch.on[sure][part], bad))
            windows = sum(len(watch.truth[part]) for watch, part in watched)
            yield _row(f"{name}, {100 * sure:.0f} %", signals, windows) + "\n"


def _reference_accuracy(data: DemoData, column: int) -> tuple[float, float]:
    """Return mean and standard deviation of five pooled windows of the reference."""
    right = (data.reference_scores[:, column] > 0.5) == (data.reference_late == 1)
    return _of_reference(
        right[: len(right) // WINDOW_SIZE * WINDOW_SIZE].reshape(-1, WINDOW_SIZE).mean(axis=1)
    )


def _of_reference(values: Floats) -> tuple[float, float]:
    return float(values.mean()), float(values.std(ddof=1)) / POOLED**0.5


def ece() -> Iterator[str]:
    """Print the alarms of the calibration error."""
    data, reports = flown()
    kinds = ["in force", *(f"restarted, {many} windows" for many in RESTARTS), "of the reference"]
    rows: dict[str, list[Signal]] = {kind: [] for kind in kinds}
    tallies: dict[str, Counter[str]] = {kind: Counter() for kind in kinds}
    correlations: dict[str, list[float]] = {kind: [] for kind in kinds}
    windows = 0
    for column, model in enumerate(data.models):
        own = reports[model]
        single = turned_out_calibration(data, column, len(own))
        truth = pooled(single)
        reference = _by_window(data.reference_scores[:, column], data.reference_late)
        center, spread = _of_reference(reference[np.isfinite(reference)])
        bad, fresh = truth > center + _BAND * spread, _fresh(own)
        signals = {"in force": in_force(own), "of the reference": _latched(own, "ece")}
        signals |= {f"restarted, {many} windows": restarted(own, many) for many in RESTARTS}
        for kind, on in signals.items():
            rows[kind].append(Signal.of(on, bad))
            began = onsets(on)
            tallies[kind] += Counter(
                onsets=len(began), fresh=int(fresh[began].sum()), bad=int((on & bad).sum())
            )
            value = _values(own) - (_moved(own) if kind == "of the reference" else 0.0)
            known = np.isfinite(value) & np.isfinite(single)
            correlations[kind].append(float(np.corrcoef(value[known], single[known])[0, 1]))
        windows += len(own)
        tallies["in force"] += Counter(chance=int(fresh.sum()), truly=int(bad.sum()))
    yield "Alarms of the calibration error on the demo's flights (python -m tests.fidelity.alarms ece)\n"
    chance, truly = (tallies["in force"][name] / windows for name in ("chance", "truly"))
    of_all = (
        f"{100 * truly:.0f} % are truly bad, {100 * chance:.0f} % are among the first two of a calibration"
    )
    yield f"{windows} windows; {of_all}\n"
    yield f"{_HEAD}{'fresh':>9s}{'bad | on':>10s}{'r':>12s}\n"
    for kind in kinds:
        on, tally = sum(each.windows for each in rows[kind]), tallies[kind]
        late = f"{100 * tally['fresh'] / tally['onsets']:7.0f} %" if tally["onsets"] else f"{'–':>9s}"
        truth_told = f"{100 * tally['bad'] / on:8.0f} %" if on else f"{'–':>10s}"
        low, high = min(correlations[kind]), max(correlations[kind])
        yield _row(kind, rows[kind], windows) + f"{late}{truth_told}{low:7.2f}–{high:.2f}\n"


def in_force(reports: Sequence[WindowReport]) -> Flags:
    """Return where the alarm of a chart of the shown estimates would be on, by the limits of the first
    windows.
    """
    verdicts = [_verdict(report) for report in reports]
    upper, latch = next(one.upper for one in verdicts if one is not None), Latch()
    states = []
    for value, verdict in zip(_values(reports).tolist(), verdicts, strict=True):
        states.append(latch.on if verdict is None else latch.update(value > upper))
    return np.array(states)


def _moved(reports: Sequence[WindowReport]) -> Floats:
    """Return by how much the calibration in force moves the error of each window; NaN where it is unknown."""
    centers = np.array([np.nan if (one := _verdict(report)) is None else one.center for report in reports])
    moved: Floats = centers - centers[np.isfinite(centers)][0]
    return moved


def _verdict(report: WindowReport) -> Verdict | None:
    return next((chart.verdict for chart in report.charts if chart.metric == "ece"), None)


def _values(reports: Sequence[WindowReport]) -> Floats:
    """Return the estimated error of each window; NaN where it is unknown."""
    results = [[e.result for e in one.estimates if e.metric == "ece"] for one in reports]
    return np.array([e[0].value if e and isinstance(e[0], Estimate) else np.nan for e in results])


def _fresh(reports: Sequence[WindowReport]) -> Flags:
    """Return whether each window is one of the first two with its calibration."""
    fresh, since = [], _FRESH
    for before, report in pairwise([reports[0], *reports]):
        since = 0 if report.calibration.version != before.calibration.version else since + 1
        fresh.append(since < _FRESH)
    return np.array(fresh)


def restarted(reports: Sequence[WindowReport], windows: int) -> Flags:
    """Return where the alarm is on of a chart whose baseline is the first windows of each calibration."""
    settings, states = chart_for(ChartConfig(), "ece"), []
    points: list[Point] = []
    logic, version = None, reports[0].calibration.version
    for report, value in zip(reports, _values(reports).tolist(), strict=True):
        if report.calibration.version != version:
            version, points, logic = report.calibration.version, [], None
        on = False
        if logic is not None and value == value:
            on = logic.update(value, report.size).out_of_control
        elif value == value:
            points.append(Point(value, report.size, 0.0))
            logic = settings.build(baseline(points)) if len(points) == windows else None
        states.append(on)
    return np.array(states)


def healthy(models: int = HEALTHY) -> Iterator[str]:
    """Print how many healthy models are at risk."""
    yield f"Objectives of {models} healthy models (python -m tests.fidelity.alarms healthy)\n"
    yield (
        f"{'floor below the reference':30s}"
        + "".join(f"{state.value:>12s}" for state in ObjectiveState)
        + "\n"
    )
    for slack in SLACKS:
        before, after = Counter[str](), Counter[str]()
        for seed in range(models):
            report, floor = _life(seed, slack)
            [objective] = report.objectives
            assert objective.pooled is not None
            assert objective.state is not None
            lower, upper = objective.pooled
            before["met" if lower >= floor else "breached" if upper < floor else "at_risk"] += 1
            after[objective.state.value] += 1
        for name, counts in (("before", before), ("after", after)):
            head = f"{100 * slack:.1f} points, {name}"
            yield f"{head:30s}" + "".join(f"{counts[state.value]:12d}" for state in ObjectiveState) + "\n"


def _life(seed: int, slack: float) -> tuple[WindowReport, float]:
    """Return the last window of a healthy model, and its floor."""
    rng = np.random.default_rng([seed, 36])
    rows = _REFERENCE + _WINDOWS * _SIZE
    chance = np.clip(confidences(rng, ORIGINAL, (rows,)), 1e-9, 1 - 1e-9)
    score, right = expit(1.5 * logit(chance)), rng.random(rows) < np.maximum(chance, 1 - chance)
    records = [
        {"id": f"a{i}", "time": 1.7e9 + i, "model": "m", "scores": [one, 1 - one]}
        for i, one in enumerate(score.tolist())
    ]
    floor = round(float(right[:_REFERENCE].mean()) - slack, 3)
    settings = task(
        window={"size": _SIZE},
        reference={"path": "r.ndjson"},
        estimators=["average_confidence"],
        objective={"accuracy": {"min": floor}},
    )
    known = [
        one | {"label": settings.classes[int((score[i] < 0.5) == right[i])]}
        for i, one in enumerate(records[:_REFERENCE])
    ]
    reports = Rig(settings, {"t": reference_of(settings, known)}).feed(records[_REFERENCE:])
    return [report for report in reports if not report.revision][-1], floor


if __name__ == "__main__":
    run({"accuracy": accuracy, "choice": choice, "ece": ece, "healthy": healthy})
