"""The drift of features without a change, and the split of a change whose cause is known.

    python -m tests.fidelity.features [drift budget split alarm errors]

`drift`: windows of a feature of 10, 13 or 34 cells that has not changed, beside a reference of 5,000 rows.
The table gives the shares of windows whose p-value is below 1 %, whose distances exceed their thresholds at
1 %, and whose PSI exceeds 0.1.

`budget`: windows of a feature that has not changed, beside a reference whose rows set the bins. The table
gives the number of false alarms with `chart.features`, and the number that its budget allows.

`split`: each stream has a reference of 5,000 rows and a model that is fixed: a logistic function of four
numbers and two texts. Its weights are random, and its logits have noise that no feature shows. Two numbers
are correlated with the first one, `cause`; the model does not use `echo`, one of the two. A window of 500
rows comes in which one thing has changed:

* unit: `cause` comes in degrees Celsius instead of Fahrenheit;
* minutes: `cause` is 60 times as large;
* scale: `cause` is 1.8 times as large and lower by two standard deviations;
* missing: 30 % of rows lack `cause`, and the model reads a low value;
* category: in 30 % of rows a text has a category that the reference lacks, which the model takes for a weak
  one;
* shift: the population of `cause` moves by one standard deviation, and the correlated numbers with it;
* far: the same by three standard deviations, where the reference has hardly any rows;
* two: the shift, and other shares of the text's categories;
* release: the logits of all rows are smaller;
* none: nothing.

The table counts the windows whose mean confidence changed by five points or more ("alarms"), among these the
windows whose first named part is the cause (for `two`, both causes come first), those that name `echo`, and
those whose rows with all features are not split. Of the windows without a change it counts those that name
any part. Half the width of a 95 % interval stands beside each share.

`alarm`: the same windows as records through the engine, with a labelled reference, the default calibration
and chart. The table counts the windows whose chart alarms with a change of five points or more, and their
shares by what the report of the window names.

`errors`: predicted numbers as records through the engine, whose errors grow with a feature, the hour. Each
stream has a reference of 4,000 labelled rows and one window of 500 rows without labels, in which the hour has
moved by half a standard deviation ("half"), by one ("shift"), or has 1.8 times the deviation ("scale"); in
which predictions and errors are half as large again for the same features ("longer"); or in which nothing has
changed. The table counts the windows whose `mae` or `rmse` is reported as changed, among these the windows
whose first named part is the cause, and those that name `echo`, a feature with a correlation of 0.8 with the
hour.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from scipy.special import expit

from monitor.base.records import FeatureKind, Floats
from monitor.config.chart import FeatureAlarms, feature_alarm_level
from monitor.reports.attribution import FeatureChanges
from monitor.stats.features.drift import drift
from monitor.stats.features.split import FeatureSplit, SplitReference
from monitor.stats.features.tables import WIDTH, FeatureTable
from tests.harness import run
from tests.numbers import delays, reference_of_numbers, regression
from tests.streams import CLASSES, Record, Rig, reference_of, task

CAUSES = ("unit", "minutes", "scale", "missing", "category", "shift", "far", "two", "release", "none")
NAMES = ("cause", "echo", "friend", "other", "segment", "carrier")
KINDS: tuple[FeatureKind, ...] = ("number", "number", "number", "number", "text", "text")
CAUSE, ECHO, SEGMENT = 0, 1, 4
REMAINDER = len(NAMES)
FIRST = {"category": {SEGMENT}, "two": {CAUSE, SEGMENT}, "release": {REMAINDER}}
MOVED = {"shift": 1.0, "two": 1.0, "far": 3.0}
REFERENCE_ROWS, WINDOW_ROWS = 5000, 500
LEAST_CHANGE = 0.05
FIRST_REPORTED = 1000  # the first seed of the table; constants were chosen on seeds 0 to 99


@dataclass
class World:
    """A model and a population.

    Parameters
    ----------
    seed : int
    correlation : float
        Of `cause` with `echo` and with `friend`.
    """

    seed: int
    correlation: float

    def __post_init__(self) -> None:
        self.rng = rng = np.random.default_rng(self.seed)
        self.weights = np.array([rng.uniform(1.2, 2.0), 0.0, rng.uniform(-0.5, 0.5), rng.uniform(-0.8, 0.8)])
        self.intercept = rng.uniform(2.5, 3.5)
        self.segments = np.array([1.5, 0.7, 0.0, -0.5, -1.5]) + rng.normal(0, 0.2, 5)
        self.carriers = rng.normal(0, 0.5, 8)

    def features(self, n: int, moved: float = 0.0, shares: Floats | None = None) -> Floats:
        """Draw n rows; `cause` is lower by `moved` standard deviations."""
        rng, r = self.rng, self.correlation
        cause = rng.normal(size=n) - moved
        echo, friend = (r * cause + np.sqrt(1 - r * r) * rng.normal(size=n) for _ in range(2))
        segment = rng.choice(5, n, p=np.array([0.3, 0.3, 0.2, 0.1, 0.1]) if shares is None else shares)
        return np.column_stack([cause, echo, friend, rng.normal(size=n), segment, rng.integers(0, 8, n)])

    def confidence(self, features: Floats, release: float = 1.0) -> Floats:
        """Return the confidences of the model for features as they come."""
        numbers = np.where(np.isfinite(features[:, :4]), features[:, :4], -2.0)
        segment, carrier = features[:, 4].astype(np.int64), features[:, 5].astype(np.int64)
        effect = np.append(self.segments, -3.0)[np.minimum(segment, 5)]
        logit = self.intercept + numbers @ self.weights + effect + self.carriers[carrier]
        logit += self.rng.normal(0, 0.5, len(logit))
        score = expit(release * logit)
        return np.maximum(score, 1 - score)

    def incident(self, cause: str) -> FeatureSplit:
        """Return the split of a window in which one thing has changed."""
        reference = self.features(REFERENCE_ROWS)
        before = self.confidence(reference)
        window, now = self.window(cause)
        return SplitReference.from_rows(reference, KINDS, NAMES).fit(window).split(before, now)

    def window(self, cause: str) -> tuple[Floats, Floats]:
        """Return the features and confidences of a window in which one thing has changed."""
        shares = np.array([0.05, 0.05, 0.2, 0.3, 0.4]) if cause == "two" else None
        window = self.features(WINDOW_ROWS, MOVED.get(cause, 0.0), shares)
        hit = self.rng.random(WINDOW_ROWS) < 0.3
        if cause == "unit":
            window[:, CAUSE] = window[:, CAUSE] / 1.8 - 2.96
        elif cause == "minutes":
            window[:, CAUSE] = 60.0 * window[:, CAUSE] - 60.0
        elif cause == "scale":
            window[:, CAUSE] = 1.8 * window[:, CAUSE] - 2.0
        elif cause == "missing":
            window[hit, CAUSE] = np.nan
        elif cause == "category":
            window[hit, SEGMENT] = 99.0
        return window, self.confidence(window, 0.45 if cause == "release" else 1.0)


class WatchedWorld:
    """A world whose answers are watched by an engine with a labelled reference.

    Parameters
    ----------
    world : World
    """

    def __init__(self, world: World) -> None:
        self._world = world
        settings = task(
            window={"size": WINDOW_ROWS},
            features=dict(zip(NAMES, KINDS, strict=True)),
            reference={"path": "reference.ndjson"},
            interval="poisson_binomial",  # the alarm does not depend on it, and it is quicker
        )
        features = world.features(REFERENCE_ROWS)
        labelled = self._records(features, world.confidence(features), labelled=True)
        self._rig = Rig(settings, {"t": reference_of(settings, labelled)})
        self._start = self._rig.engine.snapshot()

    def _records(self, features: Floats, confidence: Floats, labelled: bool = False) -> list[Record]:
        rng = self._world.rng
        predicted = rng.integers(0, 2, len(features)).tolist()
        right = (rng.random(len(features)) < confidence).tolist()
        records = []
        for i, (row, p) in enumerate(zip(features.tolist(), confidence.tolist(), strict=True)):
            values = [
                value if kind == "number" else f"{value:.0f}" for value, kind in zip(row, KINDS, strict=True)
            ]
            record: Record = {
                "time": 1.6e9 + i,
                "model": "m",
                "scores": [1 - p, p] if predicted[i] else [p, 1 - p],
                "features": {
                    name: value
                    for name, value, number in zip(NAMES, values, row, strict=True)
                    if math.isfinite(number)
                },
            }
            if labelled:
                record["label"] = CLASSES[predicted[i] if right[i] else 1 - predicted[i]]
            records.append(record)
        return records

    def incident(self, cause: str) -> FeatureChanges | None:
        """Return the split in the report of a window in which one thing has changed; None without alarm."""
        self._rig.engine = self._rig.settings.build(self._start)
        [report] = self._rig.feed(self._records(*self._world.window(cause)))
        return report.attributions[0].features if report.attributions else None


def named(split: FeatureChanges) -> list[int]:
    """Return what a report names, the largest part in the direction of the change first."""
    causes = [(part.change, NAMES.index(part.feature)) for part in split.parts]
    if split.remainder_named:
        causes.append((split.remainder, REMAINDER))
    return [cause for _, cause in sorted(causes, key=lambda each: -each[0] * np.sign(split.change))]


@dataclass
class Counts:
    """Verdicts on the windows of one cause."""

    alarms: int = 0
    first: int = 0
    echo: int = 0
    refused: int = 0
    named: int = 0
    inexact: float = 0.0

    def add(self, cause: str, split: FeatureSplit) -> None:
        """Count a window."""
        named = split.named
        self.named += bool(named)
        self.inexact = max(self.inexact, abs(float(split.parts.sum()) + split.remainder - split.change))
        if abs(split.change) >= LEAST_CHANGE:
            right = FIRST.get(cause, {CAUSE})
            self.alarms += 1
            self.first += set(named[: len(right)]) == right
            self.echo += ECHO in named
            self.refused += split.reason is not None


def counted(cause: str, streams: int, seed: int, correlation: float) -> Counts:
    """Count the windows of streams with these seeds."""
    counts = Counts()
    for k in range(streams):
        counts.add(cause, World(seed + k, correlation).incident(cause))
    return counts


def drifts(windows: int = 4000) -> Iterator[str]:
    """Shares of windows without drift."""
    yield f"{windows:,} windows without drift, percent (python -m tests.fidelity.features drift)"
    yield f"{'cells':>5s}{'rows':>7s}{'p-value':>9s}{'PSI':>7s}{'distance':>10s}{'PSI > 0.1':>11s}"
    rng = np.random.default_rng(FIRST_REPORTED)
    for cells in (10, 13, 34):
        shares = np.ones(cells)
        if cells > 10:  # finer tails, and a cell that is nearly empty
            shares[[0, 1, -3, -2, -1]] = 0.01 * cells, 0.02 * cells, 0.02 * cells, 0.01 * cells, 0.0001
        shares /= shares.sum()
        for rows in (100, 200, 500, 2000):
            beyond = np.zeros(4)
            for _ in range(windows):
                one = drift(rng.multinomial(REFERENCE_ROWS, shares), rng.multinomial(rows, shares))
                beyond += (
                    one.p_value < 0.01,
                    one.psi > one.psi_threshold,
                    one.distance > one.distance_threshold,
                    one.psi > 0.1,
                )
            each = 100 * beyond / windows
            yield f"{cells:5d}{rows:7,}{each[0]:9.1f}{each[1]:7.1f}{each[2]:10.1f}{each[3]:11.1f}"


FREQUENCIES = {
    "number": np.ones(0),
    "text, 5 values": np.array([0.9, 0.06, 0.03, 0.008, 0.002]),
    "text, 300, rarer and rarer": 1 / np.arange(1, 301) ** 1.2,
    "text, 300, all alike": np.ones(300),
}
"""How frequent the values of a text are, in any unit."""


def false_alarms(values: str, reference: int, rows: int, windows: int, level: float, seed: int) -> int:
    """Count the windows without drift whose p-value is below a level; every hundred have a new reference."""
    rng = np.random.default_rng(seed)
    shares = FREQUENCIES[values] / max(FREQUENCIES[values].sum(), 1.0)
    count = 0
    for _ in range(windows // 100):
        if values == "number":
            table = FeatureTable.from_values("number", rng.random(reference))
            inside = np.diff(table.values.clip(0, 1))  # of uniform numbers
            cells = np.append(inside, np.zeros(WIDTH - len(inside)))
        else:
            codes = rng.choice(len(shares), reference, p=shares).astype(np.float64)
            table = FeatureTable.from_values("text", codes)
            places = table.places(np.arange(len(shares), dtype=np.float64))
            cells = np.bincount(places, weights=shares, minlength=WIDTH)
        known = table.unbiased(table.counts)
        for counts in rng.multinomial(rows, cells / cells.sum(), 100):
            count += drift(known, table.unbiased(counts)).p_value < level
    return count


def budgets(windows: int = 20_000, level: float = 1e-3) -> Iterator[str]:
    """False alarms of drift."""
    allowed = windows * feature_alarm_level(FeatureAlarms(false_alarms_per_week=1), 1) ** -1 * level
    yield (
        f"simulation: {windows:,} windows without drift, {allowed:g} false alarms allowed "
        "(python -m tests.fidelity.features budget)"
    )
    yield f"{'feature':<28s}{'reference':>10s}{'rows':>7s}{'false alarms':>14s}"
    for values in FREQUENCIES:
        for reference, rows in ((400, 500), (5000, 50), (5000, 500), (10_000, 5000)):
            seen = false_alarms(values, reference, rows, windows, level, FIRST_REPORTED)
            yield f"{values:<28s}{reference:10,}{rows:7,}{seen:14,}"


def share(count: int, of: int) -> str:
    """Return a share in percent, with half the width of its 95 % interval."""
    if not of:
        return "-"
    ratio = count / of
    return f"{100 * ratio:.1f} ± {196 * math.sqrt(max(ratio * (1 - ratio), 1 / of / 4) / of):.1f}"


def table(streams: int = 200, seed: int = FIRST_REPORTED, correlation: float = 0.7) -> Iterator[str]:
    """Shares of windows."""
    yield (
        f"{streams} streams of each cause, correlation {correlation:g}, seeds from {seed} "
        "(python -m tests.fidelity.features split)"
    )
    yield f"{'cause':<10s}{'alarms':>7s}{'cause first, %':>16s}{'echo named, %':>15s}{'not split, %':>14s}"
    inexact = 0.0
    for cause in CAUSES:
        counts = counted(cause, streams, seed, correlation)
        inexact = max(inexact, counts.inexact)
        if cause == "none":
            yield f"no change: a part is named in {share(counts.named, streams)} % of windows"
        else:
            cells = (share(each, counts.alarms) for each in (counts.first, counts.echo, counts.refused))
            yield f"{cause:<10s}{counts.alarms:7d}" + "".join(
                f"{cell:>{width}s}" for cell, width in zip(cells, (16, 15, 14), strict=True)
            )
    yield f"largest difference of the change and the sum of its parts: {inexact:.0e}"


def alarms(streams: int = 60, seed: int = FIRST_REPORTED, correlation: float = 0.7) -> Iterator[str]:
    """Shares of alarms of an engine."""
    yield (
        f"simulation: {streams} streams of one window each through the engine, correlation {correlation:g}, "
        f"seeds from {seed} (python -m tests.fidelity.features alarm)"
    )
    yield f"{'cause':<10s}{'alarms':>7s}{'cause first, %':>16s}{'echo named, %':>15s}"
    worlds = [WatchedWorld(World(seed + k, correlation)) for k in range(streams)]
    for cause in CAUSES:
        counts = counted_alarms(cause, worlds)
        cells = (share(each, counts.alarms) for each in (counts.first, counts.echo))
        yield f"{cause:<10s}{counts.alarms:7d}" + "".join(
            f"{cell:>{width}s}" for cell, width in zip(cells, (16, 15), strict=True)
        )


ERROR_CAUSES: Mapping[str, Mapping[str, float]] = {
    "half": {"later": 2.0},
    "shift": {"later": 4.0},
    "scale": {"wider": 1.8},
    "longer": {"longer": 1.5},
    "none": {},
}


def errors(streams: int = 60, seed: int = FIRST_REPORTED) -> Iterator[str]:
    """Shares of changed errors."""
    yield (
        f"simulation: {streams} streams of one window each through the engine, seeds from {seed} "
        "(python -m tests.fidelity.features errors)"
    )
    yield f"{'cause':<10s}{'metric':<8s}{'changed':>8s}{'cause first, %':>16s}{'echo named, %':>15s}"
    task = regression(unit="minutes", window={"size": 500}, features={"hour": "number", "echo": "number"})
    counts = {(cause, metric): Counts() for cause in ERROR_CAUSES for metric in ("mae", "rmse")}
    for k in range(seed, seed + streams):
        known = reference_of_numbers(task, delays(k, 4000, start=1.6e9, labelled=True))
        for cause, changed in ERROR_CAUSES.items():
            [report] = Rig({"t": task}, {"t": known}).feed(delays(k + streams, 500, **changed))
            for each in report.attributions:
                if each.features is not None and (own := counts.get((cause, each.metric))) is not None:
                    names = [part.feature for part in each.features.parts]
                    first = names[:1] == ["hour"]
                    own.alarms += 1
                    own.first += not names and each.features.remainder_named if cause == "longer" else first
                    own.echo += "echo" in names
    for (cause, metric), own in counts.items():
        cells = (share(each, own.alarms) for each in (own.first, own.echo))
        yield f"{cause:<10s}{metric:<8s}{own.alarms:8d}" + "".join(
            f"{cell:>{width}s}" for cell, width in zip(cells, (16, 15), strict=True)
        )


def counted_alarms(cause: str, worlds: list[WatchedWorld]) -> Counts:
    """Count one window of each world."""
    counts = Counts()
    right = FIRST.get(cause, {CAUSE})
    for world in worlds:
        split = world.incident(cause)
        if split is not None and abs(split.change) >= LEAST_CHANGE:
            names = named(split)
            counts.alarms += 1
            counts.first += set(names[: len(right)]) == right
            counts.echo += ECHO in names
    return counts


if __name__ == "__main__":
    run({"drift": drifts, "budget": budgets, "split": table, "alarm": alarms, "errors": errors})
