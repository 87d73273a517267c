"""Every estimator on the SSME paper's real data: error, coverage, width, seconds; the intervals of all.

    python -m tests.fidelity.scoreboard            # kept as tests/fidelity/SCOREBOARD.md
    python -m tests.fidelity.scoreboard --runs 2   # shorter; printed only
    python -m tests.fidelity.scoreboard --answers FOLDER   # goes on where it was stopped

civilcomments, reporting half, by the paper's protocol (`tests.fidelity.ssme.protocol`): 20, 50 or 100
labelled rows and 1,000 unlabelled ones, seven models, the truth from other rows. The runs are the same for
all estimators; `ssme_flow` is left out without its extra.

Estimators of windows (`average_confidence` and its rivals, `realised…`) are asked in the engine: in each
trial a reference and a window are drawn, and some of the window's labels are told.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from math import nan, sqrt
from pathlib import Path

import numpy as np

from monitor import ESTIMATORS
from monitor.base import registry
from monitor.base.names import CORRECTED
from monitor.base.records import Ints
from monitor.base.results import Estimate
from monitor.reports.views import MetricEstimate
from tests.fidelity.metrics_coverage import realised_values
from tests.fidelity.ssme import civilcomments
from tests.fidelity.ssme.compare import SHOWN, Measured
from tests.fidelity.ssme.printed import printed_error
from tests.fidelity.ssme.protocol import Pool
from tests.harness import run
from tests.streams import CLASSES, Record, Rig, reference_of, task

KEPT = Path(__file__).parent / "SCOREBOARD.md"
RUNS = 50
LABELS = (20, 50, 100)
WINDOWS = 1000
REFERENCE_ROWS, WINDOW_ROWS, WINDOW_LABELS = 3000, 1000, 250
SHORT = 0.9
"""Where the measured coverage of 95 % intervals is lower, the docstring and `docs/estimators.md` say so."""

Coverages = Mapping[str, Mapping[str, float]]
"""Estimator by estimator, the share of intervals of each metric that held the truth; NaN without any."""


def table(
    runs: int,
    pool: Pool | None = None,
    chosen: Sequence[str] | None = None,
    kept: Path | None = None,
    windows: int = WINDOWS,
) -> str:
    """Return the scoreboard as Markdown.

    Parameters
    ----------
    runs : int
        For each number of labels.
    pool : Pool, optional
        civilcomments' reporting half if absent.
    chosen : sequence of str, optional
        Estimators; all if absent.
    kept : Path, optional
        A folder of answers; see `tests.fidelity.ssme.compare.measure`.
    windows : int
        Trials of estimators of windows.
    """
    half = pool or civilcomments.pool("reporting")
    tags = [tag for tag in chosen or ESTIMATORS if tag != "ssme_flow" or find_spec("flowjax")]
    by_count: dict[int, dict[str, Measured]] = {count: {} for count in LABELS}
    for tag in tags:
        for count, by_tag in civilcomments.measured(half, [tag], LABELS, runs, kept).items():
            by_count[count].update(by_tag)
    parts = [_part(metric, by_count) for metric in SHOWN]
    lowest = {**of_windows(half, windows), **_lowest(by_count)}
    return "\n".join([*_head(runs), *parts, intervals(lowest, windows), _seconds(by_count)])


def _head(runs: int) -> list[str]:
    error = 100 * sqrt(0.95 * 0.05 / runs)
    return [
        "# Estimators that use labels, on real data",
        "",
        f"`python -m tests.fidelity.scoreboard`: civilcomments, {civilcomments.MODELS} models, 1,000 "
        f"unlabelled rows, {runs} runs. Mean absolute error in points, in brackets what "
        "Shanmugam et al. print for it on these data (50 runs, another half); coverage of 95 % "
        "intervals in % and their mean width in points; over runs and models. A dash: the estimator does not "
        "define the metric.",
        "",
        f"The models of a run share its labels, so that the binomial error of a coverage is that of {runs} "
        f"trials: {error:.1f} points at 95 %. A coverage three of them or more below 95 % is **bold**: "
        "on these data such intervals hold less than they say.",
        "",
        "`active_testing` draws its own labels, as many, anew for each model, by the error that the mean of "
        "the models expects of it. Seconds: the fit and all metrics of all models with their intervals, on "
        "one of two shared cores; other work ran beside it, most beside `ssme_flow` and `spe`, which take 7 "
        "and 2 seconds alone.",
        "",
    ]


def _part(metric: str, by_count: Mapping[int, Mapping[str, Measured]]) -> str:
    """Return one metric: a row an estimator, the best at 20 labels first."""
    header = "| estimator |" + "".join(f" {n} labels: error | coverage | width |" for n in by_count)
    lines = [f"## {metric}", "", header, "|---|" + "---:|---:|---:|" * len(by_count)]
    first = next(iter(by_count.values()))
    for tag in sorted(first, key=lambda tag: _order(first[tag], metric)):
        cells = "".join(_cells(metric, tag, count, by_tag[tag]) for count, by_tag in by_count.items())
        lines.append(f"| `{tag}` |{cells}")
    return "\n".join([*lines, ""])


def _order(one: Measured, metric: str) -> float:
    return 2.0 if one.unknown(metric) == 1.0 else float(one.mean_error(metric).mean())


def _cells(metric: str, tag: str, count: int, one: Measured) -> str:
    if one.unknown(metric) == 1.0:
        return " – | – | – |"
    paper = printed_error(metric, tag, count)
    beside = "" if paper is None else f" ({paper:.2f})"
    error, covered = 100 * one.mean_error(metric).mean(), one.coverage(metric)
    short = covered < 0.95 - 3 * sqrt(0.95 * 0.05 / len(one.error))
    coverage = f"**{100 * covered:.0f}**" if short else f"{100 * covered:.0f}"
    return f" {error:.2f}{beside} | {coverage} | {100 * one.mean_width(metric):.1f} |"


def _lowest(by_count: Mapping[int, Mapping[str, Measured]]) -> Coverages:
    """Return the lowest coverage over the numbers of labels."""
    return {
        tag: {metric: min(by_tag[tag].coverage(metric) for by_tag in by_count.values()) for metric in SHOWN}
        for tag in next(iter(by_count.values()))
    }


def intervals(lowest: Coverages, windows: int) -> str:
    """Return a row an estimator of the registry that was measured."""
    error = 100 * sqrt(0.95 * 0.05 / windows)
    lines = [
        "## intervals",
        "",
        "Coverage of 95 % intervals in %, of every estimator of `monitor.base.registry`. Below 90 it is "
        "**bold**, and its docstring and `docs/estimators.md` say so. Of estimators that are refitted, the "
        f"lowest of the tables above. Of the others, over {windows:,} windows of {WINDOW_ROWS:,} rows "
        f"(binomial error {error:.1f} points at 95 %), each with a reference of {REFERENCE_ROWS:,} rows of "
        f"its own and {WINDOW_LABELS} labels, the models in turn: how often the window's realised metric lay "
        "in the interval; for those computed from labels, but for `corrected`, the accuracy over the other "
        "half. `cbpe_sem` is three standard errors either way.",
        "",
        "| estimator | computed from |" + "".join(f" {metric} |" for metric in SHOWN),
        "|---|---|" + "---:|" * len(SHOWN),
    ]
    for tag, entry in registry.ESTIMATORS.items():
        if tag in lowest:
            cells = "".join(f" {_share(lowest[tag].get(metric, nan))} |" for metric in SHOWN)
            lines.append(f"| `{tag}` | {entry.needs} |{cells}")
    return "\n".join([*lines, ""])


def _share(covered: float) -> str:
    if np.isnan(covered):
        return "–"
    return f"**{100 * covered:.0f}**" if covered < SHORT else f"{100 * covered:.0f}"


def of_windows(pool: Pool, windows: int) -> Coverages:
    """Return coverage of the estimators that the engine computes for each window."""
    tags = [tag for tag, entry in registry.ESTIMATORS.items() if entry.needs != "refit"]
    metrics = ("accuracy", "auroc", "average_precision")
    settings = task(
        window={"size": WINDOW_ROWS},
        metrics=[*metrics],
        estimators=[tag for tag in tags if tag != CORRECTED],  # average_confidence brings it
        reference={"path": "reference"},
        calibration={"method": "isotonic"},
    )
    inside: dict[str, dict[str, list[bool]]] = {tag: {} for tag in tags}
    for trial in range(windows):
        rng, model = np.random.default_rng(trial), trial % pool.scores.shape[1]
        rows = rng.choice(pool.half, REFERENCE_ROWS + WINDOW_ROWS, replace=False)
        known, window = rows[:REFERENCE_ROWS], rows[REFERENCE_ROWS:]
        rig = Rig(settings, {"t": reference_of(settings, _records(pool, model, known, len(known), 1.6e9))})
        [report] = rig.feed(_records(pool, model, window, WINDOW_LABELS, 1.7e9))
        truth = _realised(pool, model, window)
        lasting = float(pool.truth[0, model])
        for each in report.estimates:
            if isinstance(each, MetricEstimate) and isinstance(each.result, Estimate):
                by_labels = registry.ESTIMATORS[each.estimator].needs == "labels"
                by_labels &= each.estimator != CORRECTED  # of the window's own rows
                value = lasting if by_labels else truth[each.metric]
                holds = each.result.lower - 1e-9 <= value <= each.result.upper + 1e-9
                inside[each.estimator].setdefault(each.metric, []).append(holds)
    return {
        tag: {m: float(np.mean(held)) for m, held in by_metric.items()} for tag, by_metric in inside.items()
    }


def _records(pool: Pool, model: int, rows: Ints, labelled: int, start: float) -> list[Record]:
    """Return answers of one model, a second apart, the first of them with their labels."""
    records: list[Record] = [
        {"id": f"r{i}", "time": start + i, "model": "m", "scores": scores}
        for i, scores in enumerate(pool.scores[rows, model].tolist())
    ]
    for record, label in zip(records[:labelled], pool.labels[rows].tolist(), strict=False):
        record["label"] = CLASSES[label]
    return records


def _realised(pool: Pool, model: int, rows: Ints) -> Mapping[str, float]:
    """Return the metrics of a window all of whose labels are known."""
    scores = pool.scores[rows, model]
    values = realised_values(scores, scores.argmax(axis=1), np.eye(2)[pool.labels[rows]])
    return {metric: nan if value is None else value for metric, value in values.items()}


def _seconds(by_count: Mapping[int, Mapping[str, Measured]]) -> str:
    header = "| estimator |" + "".join(f" {n} labels: fit | metrics |" for n in by_count)
    lines = ["## seconds", "", header, "|---|" + "---:|---:|" * len(by_count)]
    for tag in next(iter(by_count.values())):
        means = [by_tag[tag].seconds.mean(axis=0) for by_tag in by_count.values()]
        cells = "".join(f" {fit:.2f} | {evaluation:.2f} |" for fit, evaluation in means)
        lines.append(f"| `{tag}` |{cells}")
    return "\n".join([*lines, ""])


def command(runs: int = RUNS, answers: Path | None = None) -> str:
    """Return the scoreboard; `answers` is a folder that keeps each run's, so that a run can go on."""
    return table(runs, kept=answers)


if __name__ == "__main__":
    run(command, path=KEPT, data=True)
