"""Every estimator that uses labels, on the SSME paper's real data: error, coverage, width, seconds.

    python -m tests.fidelity.scoreboard            # kept as tests/fidelity/SCOREBOARD.md
    python -m tests.fidelity.scoreboard --runs 2   # shorter; printed only
    python -m tests.fidelity.scoreboard --answers FOLDER   # goes on where it was stopped

civilcomments, reporting half, by the paper's protocol (`tests.fidelity.ssme.protocol`): 20, 50 or 100
labelled rows and 1,000 unlabelled ones, seven models, the truth from other rows. The runs are the same for
all estimators; `ssme_flow` is left out without its extra.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from math import sqrt
from pathlib import Path

from monitor import ESTIMATORS
from tests.fidelity.ssme import civilcomments
from tests.fidelity.ssme.compare import SHOWN, Measured
from tests.fidelity.ssme.printed import printed_error
from tests.fidelity.ssme.protocol import Pool
from tests.harness import run

KEPT = Path(__file__).parent / "SCOREBOARD.md"
RUNS = 50
LABELS = (20, 50, 100)


def table(
    runs: int, pool: Pool | None = None, chosen: Sequence[str] | None = None, kept: Path | None = None
) -> str:
    """The scoreboard as Markdown.

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
    """
    half = pool or civilcomments.pool("reporting")
    tags = [tag for tag in chosen or ESTIMATORS if tag != "ssme_flow" or find_spec("flowjax")]
    found: dict[int, dict[str, Measured]] = {count: {} for count in LABELS}
    for tag in tags:
        for count, by_tag in civilcomments.measured(half, [tag], LABELS, runs, kept).items():
            found[count].update(by_tag)
    parts = [_part(metric, found) for metric in SHOWN]
    return "\n".join([*_head(runs), *parts, _seconds(found)])


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


def _part(metric: str, found: Mapping[int, Mapping[str, Measured]]) -> str:
    """One metric: a row an estimator, the best at 20 labels first."""
    header = "| estimator |" + "".join(f" {n} labels: error | coverage | width |" for n in found)
    lines = [f"## {metric}", "", header, "|---|" + "---:|---:|---:|" * len(found)]
    first = next(iter(found.values()))
    for tag in sorted(first, key=lambda tag: _order(first[tag], metric)):
        cells = "".join(_cells(metric, tag, count, by_tag[tag]) for count, by_tag in found.items())
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
    told = f"**{100 * covered:.0f}**" if short else f"{100 * covered:.0f}"
    return f" {error:.2f}{beside} | {told} | {100 * one.mean_width(metric):.1f} |"


def _seconds(found: Mapping[int, Mapping[str, Measured]]) -> str:
    header = "| estimator |" + "".join(f" {n} labels: fit | metrics |" for n in found)
    lines = ["## seconds", "", header, "|---|" + "---:|---:|" * len(found)]
    for tag in next(iter(found.values())):
        means = [by_tag[tag].seconds.mean(axis=0) for by_tag in found.values()]
        cells = "".join(f" {fit:.2f} | {asked:.2f} |" for fit, asked in means)
        lines.append(f"| `{tag}` |{cells}")
    return "\n".join([*lines, ""])


def command(runs: int = RUNS, answers: Path | None = None) -> str:
    """The scoreboard; `answers` is a folder that keeps each run's, so that a run can go on."""
    return table(runs, kept=answers)


if __name__ == "__main__":
    run(command, path=KEPT)
