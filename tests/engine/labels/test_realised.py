"""The realised estimates, through the whole engine: of a window, of the newest cohort, and of the horizon."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest

from monitor import Excess, WeightedCounts, hajek, weighted_counts
from monitor.base.results import Estimate
from monitor.reports.window_report import WindowReport
from tests.streams import CLASSES, Record, Rig, answers, lines, task

SETTINGS = task(
    estimators=["average_confidence", "realised", "realised_cohort", "realised_horizon"],
    window={"size": 100},
    groups=["region"],
    reference={"first_windows": 5},
    labels={"horizon_days": 600 / 86_400},
)
RIGHT, WRONG = 0.05, 0.5
"""With what probability an answer is picked for labelling."""


def stream(n: int = 1500) -> list[Record]:
    """Return answers a second apart; the label of one that is picked comes some windows later, a few come
    twice.
    """
    rng = np.random.default_rng(5)
    records: list[tuple[float, Record]] = []
    for place, answer in enumerate(answers(rng, n, groups={"region": "eu"})):
        records.append((place, answer))
        label = CLASSES[int(rng.random() < answer["scores"][1])]
        probability = RIGHT if (answer["scores"][1] > 0.5) == (label == "bad") else WRONG
        if rng.random() < 4 * probability:
            truth = {"id": answer["id"], "label": label, "probability": probability, "time": answer["time"]}
            records.append((place + rng.uniform(-50, 250), truth))
            if rng.random() < 0.2:
                records.append((place + 300, truth | {"label": CLASSES[int(rng.random() < 0.5)]}))
    return [record for _, record in sorted(records, key=lambda pair: pair[0])]


def of(report: WindowReport, estimator: str) -> dict[str, Any]:
    """Return an estimate as the report's line has it."""
    entries = msgspec.json.decode(lines([report])[0])["estimates"]
    (one,) = [entry for entry in entries if entry["estimator"] == estimator]
    return dict(one)


def known(records: list[Record], windows: set[int]) -> WeightedCounts:
    """Return the labelled rows of these windows, by a walk through the records."""
    place = {r["id"]: i for i, r in enumerate(r for r in records if "scores" in r)}
    scores = {r["id"]: r["scores"][1] for r in records if "scores" in r}
    truth: dict[str, tuple[str, float]] = {}
    for record in records:
        if "label" in record:
            first = truth.get(record["id"], (record["label"], record["probability"]))
            truth[record["id"]] = record["label"], first[1]
    rows = [
        ((scores[name] > 0.5) == (label == "bad"), 1 / np.float64(np.float32(probability)))
        for name, (label, probability) in truth.items()
        if place.get(name, -1) // 100 in windows
    ]
    return weighted_counts(np.array([row[0] for row in rows], bool), np.array([row[1] for row in rows]))


def entry_of(counts: WeightedCounts) -> dict[str, Any]:
    estimate = hajek(counts, 0.95)
    assert isinstance(estimate, Estimate)
    numbers = {name: round(getattr(estimate, name), 6) for name in ("value", "lower", "upper", "level")}
    return {**numbers, "size": estimate.n}


def cut_before_window_closes(records: list[Record], window: int) -> list[Record]:
    """Return the records up to the answer that closes this window."""
    seen = np.cumsum(["scores" in record for record in records])
    return records[: int(np.searchsorted(seen, 100 * (window + 1))) + 1]


@pytest.mark.slow
@pytest.mark.parametrize("window", [0, 5, 14])
def test_a_report_says_what_was_known_when_its_window_closed(window: int) -> None:
    records = stream()
    reports = [r for r in Rig(SETTINGS).feed(records) if not r.group and not r.revision]
    past = cut_before_window_closes(records, window)
    horizon = {w for w in range(window + 1) if w >= window - 6}  # ends are 100 seconds apart
    head = {"metric": "accuracy", "estimator": "realised_horizon"}
    assert of(reports[window], "realised_horizon") == head | entry_of(known(past, horizon))
    cohort = next(
        (set(range(first, window + 1)) for first in range(window, -1, -1)
         if known(past, set(range(first, window + 1))).n >= 200),
        None,
    )  # fmt: skip
    head["estimator"] = "realised_cohort"
    if cohort is None:
        few = {"unknown": "too few labels", "size": known(past, set(range(window + 1))).n}
        assert of(reports[window], "realised_cohort") == head | few
    else:
        assert of(reports[window], "realised_cohort") == head | entry_of(known(past, cohort))
    assert (cohort is None) == (window < 14)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_cuts_and_restarts_change_nothing(seed: int) -> None:
    records = stream()
    whole, pieces = Rig(SETTINGS), Rig(SETTINGS)
    expected = whole.feed(records)
    reports = []
    cuts = np.sort(np.random.default_rng(seed).integers(0, len(records), size=6)).tolist()
    for start, stop in zip([0, *cuts], [*cuts, len(records)], strict=True):
        reports += pieces.feed(records[start:stop])
        pieces.restart()
    assert lines(reports) == lines(expected)
    assert pieces.engine.view() == whole.engine.view()
    weighted = whole.engine.labelled()["t", "erm", ""]
    assert all(counts.excess != Excess() for counts in weighted.values())


def test_the_view_says_what_is_known_now() -> None:
    rig = Rig(SETTINGS)
    before = [r for r in rig.feed(stream()) if not r.group and not r.revision][-1]
    (shown,) = [s for s in rig.engine.view().series if not s.group]
    estimates = {e.estimator: e.result for e in shown.estimates}
    assert estimates["realised_horizon"] == hajek(known(stream(), set(range(8, 15))), 0.95)
    assert of(before, "realised_horizon")["size"] < estimates["realised_horizon"].n
    assert [e.estimator for e in shown.estimates if e.estimator != "corrected"] == list(SETTINGS.estimators)


def ways_to_send(labels: list[Record]) -> dict[str, list[Record]]:
    """Return the same answers and labels: along, along without ids, before their answers, and with others
    after.
    """
    along = [r for r in labels if "scores" in r]
    truths = {r["id"]: r for r in labels if "label" in r}
    whole = [
        answer | {name: truths[answer["id"]][name] for name in ("label", "probability")}
        if answer["id"] in truths
        else answer
        for answer in along
    ]
    own: list[Record] = []
    for answer in along:
        own += [truths[answer["id"]], answer] if answer["id"] in truths else [answer]
    return {
        "along": whole,
        "without ids": [{name: value for name, value in r.items() if name != "id"} for r in whole],
        "own": own,
        "mixed": own[:700]
        + [r for r in whole if r["id"] not in {o["id"] for o in own[:700] if "scores" in o}],
    }


@pytest.mark.slow
@pytest.mark.parametrize("way", ["along", "without ids", "mixed"])
def test_labels_along_and_labels_of_their_own_make_the_same_estimates(way: str) -> None:
    ways = ways_to_send(stream())
    expected, actual = Rig(SETTINGS), Rig(SETTINGS)
    reports = [r for r in expected.feed(ways["own"]) if not r.revision]
    same = [r for r in actual.feed_in_pieces(ways[way], [150, 777]) if not r.revision]
    for estimator in ("realised", "realised_cohort", "realised_horizon"):
        assert [of(r, estimator) for r in same] == [of(r, estimator) for r in reports]
    weighted = actual.engine.labelled()["t", "erm", ""]
    assert weighted == expected.engine.labelled()["t", "erm", ""]
    assert len(weighted) == 15
    assert all(counts.excess != Excess() for counts in weighted.values())


def test_a_label_along_without_a_probability_counts_once() -> None:
    records = [
        {name: value for name, value in r.items() if name != "probability"}
        for r in ways_to_send(stream())["along"]
    ]
    rig = Rig(SETTINGS)
    rig.feed(records)
    assert all(c.excess == Excess() for c in rig.engine.labelled()["t", "erm", ""].values())
