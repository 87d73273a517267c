"""The part that an alarm names, where its cause is known: ``python -m tests.fidelity.attribution``.

Each world has two groups (three to six regions, two to four devices, which go with the regions), two to five
classes, which go with the regions too, a model whose confidences differ by region and class, and a labelled
reference of 6,000 answers. The engine fits its calibration and draws its chart around it, with the default
settings. One window comes as before, then one in which one thing has changed:

* a region with low confidences has a larger share of the answers;
* the confidences of one region fall;
* the confidences of one predicted class fall;
* all confidences fall alike.

Of the windows that raise the chart's alarm with a change of five points or more, the table counts those
whose first part is the one that was changed; of the last kind, those in which no group and no class is said
to stand out. Half the width of a 95 % interval of the share stands behind it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from monitor.reports.attribution import Attribution
from tests.harness import run
from tests.streams import Record, Rig, reference_of, task

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

SHARE, REGION, CLASS, ALL = (
    "a region with low confidences grows",
    "the confidences of a region fall",
    "the confidences of a class fall",
    "all confidences fall alike",
)
CAUSES = (SHARE, REGION, CLASS, ALL)

REFERENCE_ROWS = 6000
LEAST_CHANGE = 0.05


@dataclass
class World:
    """A source of answers with groups and classes.

    Parameters
    ----------
    rng : Generator
    size : int
        Rows of a window.
    weakest : bool
        Whether one region has far lower confidences than the others.
    """

    rng: np.random.Generator
    size: int
    weakest: bool
    rig: Rig = field(init=False)

    def __post_init__(self) -> None:
        rng = self.rng
        regions, devices, classes = (int(rng.integers(*ends)) for ends in ((3, 7), (2, 5), (2, 6)))
        self.regions = rng.dirichlet(np.full(regions, 4.0))
        self.devices = rng.dirichlet(np.full(devices, 2.0), regions)
        self.classes = rng.dirichlet(np.full(classes, 2.0), regions)
        self.level = 0.9 + rng.normal(0, 0.02, (regions, 1)) + rng.normal(0, 0.02, (1, classes))
        if self.weakest:
            self.level[int(rng.integers(regions))] -= 0.25
        names = [f"c{k}" for k in range(classes)]
        settings = task(
            classes=names,
            window={"size": self.size, "min_size": 50},
            groups=["region", "device"],
            interval="poisson_binomial",  # the chart does not depend on it, and it is quicker
        )
        labelled = self.records(REFERENCE_ROWS, self.regions, np.zeros_like(self.level), labelled=True)
        self.rig = Rig(settings, {"t": reference_of(settings, labelled)})
        self.rig.feed(self.records(self.size, self.regions, np.zeros_like(self.level)))
        self.start = self.rig.engine.snapshot()

    def records(self, n: int, regions: Floats, fall: Floats, labelled: bool = False) -> list[Record]:
        """Return answers; the confidences of each region and class are lower by `fall`."""
        rng = self.rng
        region = rng.choice(len(regions), n, p=regions)
        device, predicted = (draw_classes(rng, shares[region]) for shares in (self.devices, self.classes))
        classes = self.classes.shape[1]
        mean = np.clip(self.level - fall, 0.05, 0.98)[region, predicted]
        confidence = rng.beta(12 * mean, 12 * (1 - mean)).clip(0.001, 0.999)
        others = (1 - confidence) / (classes - 1)
        right = rng.random(n) < confidence
        wrong = (predicted + rng.integers(1, classes, n)) % classes
        records = []
        for i in range(n):
            scores = [float(others[i])] * classes
            scores[predicted[i]] = float(confidence[i])
            record: Record = {
                "time": 1.6e9 + i,
                "model": "m",
                "scores": scores,
                "prediction": f"c{predicted[i]}",
                "groups": {"region": f"r{region[i]}", "device": f"d{device[i]}"},
            }
            if labelled:
                record["label"] = f"c{predicted[i] if right[i] else wrong[i]}"
            records.append(record)
        return records

    def incident(self, cause: str) -> tuple[str, Attribution | None]:
        """Return the changed part, and the attribution of an alarm of five points or more; None without
        one.
        """
        rng, regions, fall = self.rng, self.regions, np.zeros_like(self.level)
        named = ""
        if cause == SHARE:
            weak = int(self.level.mean(axis=1).argmin())
            grown = min(regions[weak] + rng.uniform(0.15, 0.6), 0.95)
            regions = regions * (1 - grown) / (1 - regions[weak])
            regions[weak] = grown
            named = f"region=r{weak}"
        elif cause == REGION:
            fallen = int(rng.integers(len(regions)))
            fall[fallen] = rng.uniform(0.08, 0.45)
            named = f"region=r{fallen}"
        elif cause == CLASS:
            fallen = int(rng.integers(fall.shape[1]))
            fall[:, fallen] = rng.uniform(0.08, 0.45)
            named = f"class=c{fallen}"
        else:
            fall += rng.uniform(0.05, 0.2)
        return named, self.said_of(self.records(self.size, regions, fall))

    def said_of(self, records: list[Record]) -> Attribution | None:
        """Return the attribution of a window behind the reference, if it raises an alarm of five points or
        more.
        """
        self.rig.engine = self.rig.settings.build(self.start)
        [report] = [each for each in self.rig.feed(records) if not each.group]
        if not report.attributions or report.attributions[0].change > -LEAST_CHANGE:
            return None
        return report.attributions[0]


def draw_classes(rng: np.random.Generator, shares: Floats) -> Ints:
    """Return (n,) one of K for each row of (n, K) probabilities."""
    classes: Ints = (rng.random((len(shares), 1)) > shares.cumsum(axis=1)).sum(axis=1)
    return classes.clip(max=shares.shape[1] - 1)


@dataclass
class Counts:
    """Alarms of one cause."""

    alarms: int = 0
    first: int = 0
    mentioned: int = 0


def counted(cause: str, size: int, worlds: int, each: int, seed: int = 0) -> Counts:
    """Count the alarms that name their cause.

    Parameters
    ----------
    cause : str
        One of `CAUSES`.
    size : int
        Rows of a window.
    worlds, each : int
        And windows in each world.
    seed : int
    """
    rng = np.random.default_rng([seed, CAUSES.index(cause), size])
    counts = Counts()
    for _ in range(worlds):
        world = World(rng, size, weakest=cause == SHARE)
        for _ in range(each):
            named, attribution = world.incident(cause)
            if attribution is None:
                continue
            parts = [] if attribution.alike else [part.part for part in attribution.parts]
            counts.alarms += 1
            counts.first += parts[:1] == [named] if named else not parts
            counts.mentioned += named in parts[:2] if named else not parts
    return counts


def half_width(share: float, n: int) -> float:
    """Return half the width of a 95 % interval of a share, by the normal."""
    return 1.96 * math.sqrt(share * (1 - share) / n)


def table(worlds: int = 60, each: int = 20) -> Iterator[str]:
    """Yield the counts by cause and size of the window."""
    yield f"{worlds} worlds of {each} windows a line, reference of {REFERENCE_ROWS:,} answers"
    yield f"{'cause':38} {'rows':>5} {'alarms':>7}  {'named first':>16}  {'among two':>9}"
    for cause in CAUSES:
        for size in (200, 500, 1000):
            counts = counted(cause, size, worlds, each)
            first, mentioned = counts.first / counts.alarms, counts.mentioned / counts.alarms
            error = half_width(first, counts.alarms)
            named = f"{100 * first:7.1f} % ± {100 * error:3.1f}  {100 * mentioned:7.1f} %"
            yield f"{cause:38} {size:5} {counts.alarms:7}  {named}"


if __name__ == "__main__":
    run(table)
