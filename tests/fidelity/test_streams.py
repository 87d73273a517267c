"""The corrected accuracy, on a small part of its streams."""

from __future__ import annotations

import re
from math import sqrt

import numpy as np
import pytest

from tests.fidelity.predictive import simulated as simulated_life
from tests.fidelity.streams import (
    Stream,
    alone,
    calibrated,
    constant,
    corrected,
    draws,
    groups,
    judged,
    mean_of,
)
from tests.harness import kept

pytestmark = pytest.mark.simulation

N = 500


def streams(kind: str, lives: int) -> list[Stream]:
    every = [simulated_life(kind, 5000, 9000 + i) for i in range(lives)]
    return [calibrated(one.scores, one.predicted, one.labels, one.reference) for one in every]


def labels_of(stream: Stream, share: float, windows_late: int = 1) -> tuple[np.ndarray, np.ndarray]:
    picked = np.flatnonzero(np.random.default_rng(5).random(len(stream.right)) < share)
    return picked, picked // N + windows_late


def test_on_drift_it_scores_better_than_labels_alone_and_on_a_stable_stream_it_is_narrow() -> None:
    by_case = {}
    for name, method in (("alone", alone), ("corrected", corrected)):
        for kind in ("OU drift", "stable"):
            each = [judged(one, N, method(one, N, *labels_of(one, 0.2))) for one in streams(kind, 3)]
            by_case[name, kind] = mean_of(each)
    assert by_case["corrected", "OU drift"].score < by_case["alone", "OU drift"].score
    assert by_case["corrected", "stable"].width < 5.3, (
        "4.8 points before labels were used at all, and a tenth"
    )
    # 120 windows: three binomial errors of 95 % are six points.
    assert by_case["corrected", "stable"].covered > 89
    assert by_case["corrected", "OU drift"].covered > 85


def test_a_revision_is_narrower_than_the_window_at_its_close() -> None:
    [stream] = streams("OU drift", 1)
    picked, known = labels_of(stream, 0.4)
    close = judged(stream, N, corrected(stream, N, picked, known))
    later = judged(stream, N, corrected(stream, N, picked, known, revised=True))
    assert later.width < 0.9 * close.width


def test_the_score_is_winklers_and_the_constant_stays() -> None:
    [stream] = streams("stable", 1)
    truth = stream.right[: 2 * N].reshape(2, N).mean(axis=1)
    held = np.stack([truth, truth - 0.01, truth + 0.02], axis=1)
    assert judged(stream, N, held) == pytest.approx((0.0, 3.0, 100.0, 3.0))
    missed = held + np.array([0.0, 0.02, 0.02])
    assert judged(stream, N, missed) == pytest.approx((0.0, 3.0, 0.0, 3.0 + 40 * 1.0))
    none = np.zeros(0, dtype=np.int64)
    assert np.ptp(constant(stream, N, none, none)[:, 0]) == 0
    assert (alone(stream, N, none, none)[:, 1:] == [0.0, 1.0]).all()


def test_the_kept_table_of_draws_holds_its_level_and_is_better_where_labels_come_sooner() -> None:
    """From 94 to 98 %; flights, models and draws are not independent, so that no error is taken off."""
    rows = re.findall(
        r"^([\d,]+) +(\d) +[\d.]+ ± [\d.]+ +([\d.]+) ± [\d.]+ +([\d.]+) ± [\d.]+ +([\d.]+) ± [\d.]+$",
        kept(draws, "draws"),
        re.MULTILINE,
    )
    assert [row[:2] for row in rows] == [("500", "3"), ("500", "0"), ("2,000", "3"), ("2,000", "0")]
    assert all(94 <= float(covered) <= 98 for *_, covered, _ in rows)
    for later, sooner in (rows[:2], rows[2:]):
        assert all(float(a) < float(b) for a, b in zip(sooner[2::2], later[2::2], strict=True)), later[0]


def test_the_kept_table_of_groups_holds_its_level_for_each_airport_and_carrier() -> None:
    """Two binomial errors of the windows of one draw are allowed, because all draws have the same flights."""
    text = kept(groups, "groups")
    match = re.search(r"(\d+) draws$", text, re.MULTILINE)
    assert match is not None
    rows = re.findall(
        r"^((?:origin|carrier)=\w+) +([\d,]+) +[\d.]+ +[\d.]+ +([\d.]+) +[\d.]+$", text, re.MULTILINE
    )
    assert len(rows) == 12
    for group, windows, covered in rows:
        n = int(windows.replace(",", "")) / int(match[1])
        assert float(covered) >= 95 - 200 * sqrt(0.95 * 0.05 / n), group
    means = re.findall(r"^(origin|carrier): mean +[\d.]+ +[\d.]+ +([\d.]+) ", text, re.MULTILINE)
    assert [name for name, _ in means] == ["origin", "carrier"]
    assert all(float(covered) >= 94 for _, covered in means)
