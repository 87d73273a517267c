"""The effect of labels on the intervals of a stream: width and coverage with labels and without.

    python -m tests.fidelity.labels_help [models] [groups] [trust] [--streams 200] [--lives 1000]

Simulated answers (Kivimäki et al., Table 2) with distorted scores: a labelled reference of 4,000 rows with an
isotonic calibration, then 20,000 answers in windows of 1,000, through the engine with recalibration on labels
(`refit_labels: 50`). Labels of 2 % of the answers come 2,000 answers late. Each stream runs with its labels
and without them; width and coverage of a stream are means over its windows, so that the standard errors are
those of independent streams. In `jump` the confidences are five points too high from the 8,000th answer on.

`groups`: the same of five groups with equal shares of 40,000 answers, in windows of 1,000 of each group; the
labels of 2 % are 20 a window. In `differ` the groups' logits are off by a normal deviate each, of 0.4; in
`one` those of one group are five points too high from its 3,000th answer on, and only its windows count.

`trust`: the labels of one group until they contradict its confidences, where all of these are alike and too
high, from its first label on or from its 500th; beside them those of the ideal test, which knows the
accuracy that will be found (ln 20 nats, divided by the Kullback–Leibler divergence of a label). The group is
tested as in the agent: ε is that of a reference of 4,000 rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import log, sqrt
from typing import Any, NamedTuple

import numpy as np
from scipy.special import expit, logit

from monitor.base.records import Floats
from monitor.base.results import Estimate
from monitor.engine.labels.trust import TrustTest, add_together, epsilon_of
from monitor.engine.refit.recalibration import recalibrate
from monitor.reports.window_report import WindowReport
from monitor.reports.window_view import leading_estimate
from tests.fidelity.simulated import ORIGINAL, confidences
from tests.fidelity.trust import shift_of
from tests.harness import run
from tests.streams import CLASSES, Record, Rig, reference_of, task

STREAMS = 200
REFERENCE = 4000
WINDOWS, SIZE = 20, 1000
SHARE = 0.02
LAG = 2000
JUMP_AT = 8000
DROPS = ((0.9, 0.85), (0.9, 0.8), (0.9, 0.75), (0.95, 0.85), (0.8, 0.7), (0.8, 0.6), (0.7, 0.55))
"""Estimated and true accuracy of a group."""

LIVES = 1000
LIFE = 2500
LATE = 500


class Life(NamedTuple):
    """Means over the windows of one stream.

    Parameters
    ----------
    plain, labelled : float
        Width without labels and with them, in points.
    plain_held, labelled_held : float
        Share of windows whose accuracy the interval held.
    """

    plain: float
    labelled: float
    plain_held: float
    labelled_held: float


def life(seed: int, jump: bool = False) -> Life:
    """Return one stream, with its labels and without."""
    rng = np.random.default_rng([seed, 18])
    rows = REFERENCE + WINDOWS * SIZE
    chance = np.clip(confidences(rng, ORIGINAL, (rows,)), 1e-9, 1 - 1e-9)
    late = jump * (np.arange(rows) >= REFERENCE + JUMP_AT)
    sure = expit(np.abs(logit(chance)) - shift_of(0.05) * late)
    score = expit(1.5 * logit(chance))
    right = rng.random(rows) < sure
    records = _answers(score)
    settings = task(
        window={"size": SIZE},
        reference={"path": "r.ndjson"},
        estimators=["average_confidence"],
        chart={"sigmas": 3},
    )
    known = [one | {"label": _label(one, hit)} for one, hit in zip(records, right[:REFERENCE], strict=False)]
    references = {"t": reference_of(settings, known)}
    stream, hits = records[REFERENCE:], right[REFERENCE:]
    picked = np.flatnonzero(rng.random(len(stream)) < SHARE)
    truth = hits.reshape(WINDOWS, SIZE).mean(axis=1)
    measured = []
    for labels in (picked[:0], picked):
        reports = Rig(settings, references, recalibrate=recalibrate).feed(_with_labels(stream, hits, labels))
        measured.append(_measured(reports, truth))
    (plain, plain_held), (labelled, labelled_held) = measured
    return Life(plain, labelled, plain_held, labelled_held)


def _answers(confidence: Floats) -> list[Record]:
    """Return answers of the first class; the score is its confidence, below a half too."""
    return [
        {"id": f"a{i}", "time": 1.7e9 + i, "model": "m", "scores": [one, 1 - one]}
        for i, one in enumerate(confidence.tolist())
    ]


def _label(answer: Record, right: Any) -> str:
    acted = int(answer["scores"][1] > answer["scores"][0])
    return CLASSES[acted if right else 1 - acted]


def _with_labels(stream: list[Record], right: Any, picked: Any) -> Iterator[Record]:
    """Yield the answers, each followed by the label of the one `LAG` before, if that was picked."""
    known = set(picked.tolist())
    for i, answer in enumerate(stream):
        yield answer
        if i - LAG in known:
            old = stream[i - LAG]
            yield {"id": old["id"], "time": answer["time"], "label": _label(old, right[i - LAG])}


def _measured(reports: list[WindowReport], truth: Floats) -> tuple[float, float]:
    """Return mean width in points, share held."""
    leading = [leading_estimate(one.estimates, "accuracy") for one in reports if not one.revision]
    estimates = [e.result for e in leading if e is not None and isinstance(e.result, Estimate)]
    ends = np.array([[e.lower, e.upper] for e in estimates])
    held = (ends[:, 0] - 1e-9 <= truth) & (truth <= ends[:, 1] + 1e-9)
    return 100 * float((ends[:, 1] - ends[:, 0]).mean()), float(held.mean())


def lives(streams: int, jump: bool = False, seed: int = 0) -> list[Life]:
    """Return the lives of `streams` streams."""
    return [life(1000 * seed + i, jump) for i in range(streams)]


def widening(lives: list[Life]) -> tuple[float, float]:
    """Return how much wider intervals are with labels than without, in points, and its standard error."""
    wider = np.array([one.labelled - one.plain for one in lives])
    return float(wider.mean()), float(wider.std(ddof=1)) / sqrt(len(wider))


def table(streams: int = STREAMS) -> Iterator[str]:
    """Yield all of it, a line at a time."""
    yield "Intervals of 95 % with labels and without (python -m tests.fidelity.labels_help models)"
    yield (
        f"streams of {WINDOWS} windows of {SIZE:,}, labels of {100 * SHARE:g} %, reference of {REFERENCE:,} "
        "rows; ± one standard error over streams"
    )
    yield _heads()
    for jump, many in ((False, streams), (True, max(streams // 4, 2))):
        yield _row("jump" if jump else "stable", lives(many, jump))


def _heads() -> str:
    heads = f"{'width without':>15s}{'with':>7s}{'wider by':>18s}{'held without, %':>18s}{'with':>14s}"
    return f"{'streams':14s}{heads}"


def _row(case: str, lives: list[Life]) -> str:
    by, error = widening(lives)
    plain, labelled = (np.array([getattr(one, name) for one in lives]) for name in ("plain", "labelled"))
    cells = []
    for name in ("plain_held", "labelled_held"):
        held = 100 * np.array([getattr(one, name) for one in lives])
        cells.append(f"{held.mean():6.1f} ± {held.std(ddof=1) / sqrt(len(lives)):.1f}")
    widths = f"{plain.mean():15.2f}{labelled.mean():7.2f}{by:+10.3f} ± {error:.3f}"
    return f"{len(lives):5d} {case:8s}{widths}{cells[0]:>18s}{cells[1]:>14s}"


def labels_until_lost(
    estimated: float, true: float, lives: int, labels: int, late: int = 0, step: int = 1, seed: int = 0
) -> Floats:
    """Return (lives,) labels of a group until its trust was lost, counted from the `late`-th on; infinite:
    never.

    Parameters
    ----------
    estimated, true : float
        Of all its answers; up to the `late`-th label the estimate is right.
    step : int
        Labels at once.
    """
    rng = np.random.default_rng([seed, round(1e6 * estimated), round(1e6 * true)])
    epsilon = epsilon_of(np.full(REFERENCE, estimated))
    tests, of = [TrustTest(epsilon) for _ in range(lives)], np.repeat(np.arange(lives), step)
    needed = np.full(lives, np.inf)
    for start in range(0, late + labels, step):
        right = rng.random(lives * step) < (true if start >= late else estimated)
        cost = add_together(tests, of, of * 0, np.full(len(of), estimated), right)
        needed[cost] = np.minimum(needed[cost], start + step - late)
    return needed


def ideal(estimated: float, true: float) -> float:
    """Return ln 20 / the divergence, in nats, that one label brings on average of the true from the
    estimated.
    """
    wrong = (1 - true) * log((1 - true) / (1 - estimated))
    return log(20) / (true * log(true / estimated) + wrong)


GROUPS, GROUP_WINDOWS = 5, 8


def life_of_groups(seed: int, case: str = "alike") -> Life:
    """Return one stream of a model with groups, with its labels and without; `case`: alike, differ or one."""
    rng = np.random.default_rng([seed, 19])
    many = GROUPS * GROUP_WINDOWS * SIZE
    chance = np.clip(confidences(rng, ORIGINAL, (REFERENCE + many,)), 1e-9, 1 - 1e-9)
    of = np.arange(REFERENCE + many) % GROUPS
    off = {
        "alike": np.zeros(len(of)),
        "differ": rng.normal(0.0, 0.4, GROUPS)[of],
        "one": np.where((of == 0) & (np.arange(len(of)) >= REFERENCE + GROUPS * 3000), -shift_of(0.05), 0.0),
    }[case]
    off[:REFERENCE] = 0.0
    sure = expit(np.abs(logit(chance)) + off)
    right = rng.random(len(of)) < sure
    records = [
        one | {"groups": {"region": f"r{group}"}}
        for one, group in zip(_answers(expit(1.5 * logit(chance))), of.tolist(), strict=True)
    ]
    settings = task(
        window={"size": SIZE},
        reference={"path": "r.ndjson"},
        estimators=["average_confidence"],
        chart={"sigmas": 3},
        groups=["region"],
    )
    known = [one | {"label": _label(one, hit)} for one, hit in zip(records, right[:REFERENCE], strict=False)]
    references = {"t": reference_of(settings, known)}
    stream, hits = records[REFERENCE:], right[REFERENCE:]
    picked = np.flatnonzero(rng.random(many) < SHARE)
    measured = []
    for labels in (picked[:0], picked):
        reports = Rig(settings, references, recalibrate=recalibrate).feed(_with_labels(stream, hits, labels))
        measures = []
        for group in range(1 if case == "one" else GROUPS):
            truth = hits[group::GROUPS].reshape(GROUP_WINDOWS, SIZE).mean(axis=1)
            measures.append(_measured([one for one in reports if one.group == f"region=r{group}"], truth))
        measured.append(np.mean(measures, axis=0))
    (plain, plain_held), (labelled, labelled_held) = measured
    return Life(float(plain), float(labelled), float(plain_held), float(labelled_held))


def groups(streams: int = STREAMS) -> Iterator[str]:
    """Yield the intervals of groups, a line at a time."""
    yield "Intervals of groups of 95 % with labels and without (python -m tests.fidelity.labels_help groups)"
    yield (
        f"{GROUPS} groups, {GROUP_WINDOWS} windows of {SIZE:,} each, labels of {100 * SHARE:g} %, "
        f"reference of {REFERENCE:,} rows; ± one standard error over streams"
    )
    yield _heads()
    for case, share in (("alike", 1), ("differ", 4), ("one", 4)):
        yield _row(case, [life_of_groups(i, case) for i in range(max(streams // share, 2))])


def trust(lives: int = LIVES) -> Iterator[str]:
    """Yield labels until a group's trust is lost, a line at a time."""
    yield "Labels of a group until its trust is lost (python -m tests.fidelity.labels_help trust)"
    yield (
        f"{lives:,} lives; ideal: ln 20 / Kullback-Leibler divergence; false alarms: lives of {LIFE:,} "
        "labels with a right estimate that lose trust"
    )
    heads = f"{'ideal':>7s}{'median':>8s}{'ratio':>7s}{f'from label {LATE} on':>20s}{'false alarms, %':>18s}"
    yield f"{'accuracy':12s}{heads}"
    for estimated, true in DROPS:
        best = ideal(estimated, true)
        many = round(12 * best)
        median = float(np.median(labels_until_lost(estimated, true, lives, many)))
        figures = labels_until_lost(estimated, true, lives, many, LATE, step=5)
        late = float(np.median(figures[figures > 0]))
        false = float(np.isfinite(labels_until_lost(estimated, estimated, lives, LIFE, step=10)).mean())
        figures = f"{best:8.1f}{median:8.0f}{median / best:7.2f}{late:20.0f}{100 * false:18.1f}"
        yield f"{estimated:.2f} → {true:.2f}{figures}"


if __name__ == "__main__":
    run({"models": table, "groups": groups, "trust": trust})
