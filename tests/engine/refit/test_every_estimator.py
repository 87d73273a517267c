"""Every estimator that uses labels in one real daemon: refitted on a stream, and read off /metrics."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from monitor import ESTIMATORS
from monitor.stats.labelled.inputs import Bools
from tests.daemon import DaemonProcess, Metrics, configuration, ndjson
from tests.streams import CLASSES, Record

MODELS = ("a", "b")
ROWS, LABELLED, WINDOW = 300, 120, 100
PATIENCE_SECONDS = 600.0
"""All fits together take some 25 processor seconds, most of them `ssme_flow`'s and `spe`'s."""
BELIEVE_AGREEMENT = {"dawid_skene", "majority_vote"}
"""Both models see the same noise: those who take errors for independent say too much, as their pages do."""


def requests(first: int, count: int, labelled: int) -> tuple[list[Record], Bools]:
    """Return two models' scores of the same requests, as bold as they should be; which of them are right."""
    rng = np.random.default_rng(first)
    logit = rng.normal(0.0, 2.5, count)
    bad = rng.random(count) < 1 / (1 + np.exp(-logit))
    scores = (1 / (1 + np.exp(-(logit[:, None] + rng.normal(0.0, 0.4, (count, 2)))))).round(6)
    records: list[Record] = [
        {
            "id": f"r{first + i}",
            "time": 1.7e9 + first + i,
            "models": {model: [1 - score, score] for model, score in zip(MODELS, row, strict=True)},
        }
        for i, row in enumerate(scores.tolist())
    ]
    chosen = rng.permutation(count - 1)[:labelled]
    labels: list[Record] = [
        {
            "id": f"r{first + i}",
            "label": CLASSES[int(bad[i])],
            "time": 1.7e9 + first + count,
            "probability": labelled / count,
            "draw": {"round": f"of-{first}", "number": m + 1, "pool": count, "probability": 1 / (count - m)},
        }
        for m, i in enumerate(chosen.tolist())
    ]
    # The last request closes the windows and so begins the refit: the labels are there by then.
    return [*records[:-1], *labels, records[-1]], (scores > 0.5) == bad[:, None]


def config(folder: Path) -> dict[str, Any]:
    task = {
        "models": {model: {} for model in MODELS},
        "estimators": ["average_confidence", *ESTIMATORS],
        "ssme": {
            "every_windows": len(MODELS) * ROWS // WINDOW,
            "every_labels": 10_000,
            "seconds": PATIENCE_SECONDS,
        },
    }
    return configuration(
        task=task, sources=[{"kind": "file", "path": str(folder / "in.ndjson"), "follow": True}]
    )


def append(folder: Path, records: list[Record]) -> None:
    with (folder / "in.ndjson").open("ab") as file:
        file.write(ndjson(records))


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Metrics, tuple[float, float], str]]:
    """Yield the scrape after a refit has ended and the next window has closed, and when the refit ended."""
    folder = tmp_path_factory.mktemp("every_estimator")
    append(folder, requests(0, ROWS, LABELLED)[0])
    began = time.time()
    with DaemonProcess(folder, config(folder)) as daemon:
        daemon.until(lambda: daemon.metrics().value("refit_rows", task="t") == ROWS, "a refit", 0.5)
        ended = time.time()
        append(folder, requests(ROWS, WINDOW, 0)[0])
        daemon.until(
            lambda: daemon.metrics().total("windows_closed_total") == len(MODELS) * (ROWS + WINDOW) / WINDOW,
            "the next windows",
        )
        yield daemon.metrics(), (began, ended), daemon.log


def test_one_refit_of_all_estimators_ended_and_says_when(
    seen: tuple[Metrics, tuple[float, float], str],
) -> None:
    metrics, (began, ended), log = seen
    assert began < (metrics.value("refit_last_success_timestamp_seconds", task="t") or 0.0) < ended
    assert metrics.value("refit_failures_total", task="t") == 0
    assert metrics.value("refit_labelled_rows", task="t") == LABELLED
    assert "failed in refit" not in log


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("tag", ESTIMATORS)
def test_each_serves_its_estimate_with_an_interval(
    seen: tuple[Metrics, tuple[float, float], str], tag: str, model: str
) -> None:
    """The labels' own error allows 0.11: three binomial standard errors of 120 of them."""
    labels = {"task": "t", "model": model, "metric": "accuracy", "estimator": tag}
    metrics = seen[0]
    assert metrics.all("unknown", **labels) == {}
    ends = ("estimate_lower_ratio", "estimate_ratio", "estimate_upper_ratio")
    lower, value, upper = (metrics.value(name, **labels) for name in ends)
    assert lower is not None
    assert value is not None
    assert upper is not None
    assert 0.0 <= lower < value < upper <= 1.0
    right = requests(0, ROWS, LABELLED)[1][:, MODELS.index(model)].mean()
    if tag in BELIEVE_AGREEMENT:
        assert lower > right
    else:
        assert abs(value - right) < 0.11
