"""Every estimator that uses labels, on the SSME paper's real data: error, coverage, width, seconds.

    python -m tests.fidelity.scoreboard            # kept as tests/fidelity/SCOREBOARD.md
    python -m tests.fidelity.scoreboard --runs 2   # shorter; printed only

civilcomments, reporting half, by the paper's protocol (`tests.fidelity.ssme.protocol`): 20, 50 or 100
labelled rows and 1,000 unlabelled ones, seven models, the truth from other rows. The runs are the same for
all estimators.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from monitor.labels import ESTIMATORS
from tests.fidelity.command import print_and_keep
from tests.fidelity.ssme import civilcomments
from tests.fidelity.ssme.compare import SHOWN, Measured
from tests.fidelity.ssme.printed import printed_error
from tests.fidelity.ssme.protocol import Pool

KEPT = Path(__file__).parent / "SCOREBOARD.md"
RUNS = 3
LABELS = (20, 50, 100)
SEPARATE = ("ssme_flow",)
"""A minute a fit and an extra: measured by itself."""


def tags() -> list[str]:
    """Every estimator that there is, but those that are measured by themselves."""
    return [tag for tag in ESTIMATORS if tag not in SEPARATE]


def table(runs: int, pool: Pool | None = None, chosen: Sequence[str] | None = None) -> str:
    """The scoreboard as Markdown.

    Parameters
    ----------
    runs : int
        For each number of labels.
    pool : Pool, optional
        civilcomments' reporting half if absent.
    chosen : sequence of str, optional
        Estimators; all if absent.
    """
    found = civilcomments.measured(pool or civilcomments.pool("reporting"), chosen or tags(), LABELS, runs)
    head = [
        "# Estimators that use labels, on real data",
        "",
        f"`python -m tests.fidelity.scoreboard`: civilcomments, {civilcomments.MODELS} models, 1,000 "
        f"unlabelled rows, {runs} runs. Mean absolute error in points, in brackets what Shanmugam et al. "
        "print for it on these data (50 runs, another half); coverage of 95 % intervals in % and their mean "
        "width in points; over runs and models. A dash: the estimator does not define the metric. Seconds: "
        "the fit and all metrics of all models with their intervals, on two shared cores.",
    ]
    parts = [_part(metric, found) for metric in SHOWN]
    return "\n".join([*head, "", *parts, _seconds(found)])


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
    error = 100 * one.mean_error(metric).mean()
    return f" {error:.2f}{beside} | {100 * one.coverage(metric):.0f} | {100 * one.mean_width(metric):.1f} |"


def _seconds(found: Mapping[int, Mapping[str, Measured]]) -> str:
    header = "| estimator |" + "".join(f" {n} labels: fit | metrics |" for n in found)
    lines = ["## seconds", "", header, "|---|" + "---:|---:|" * len(found)]
    for tag in next(iter(found.values())):
        means = [by_tag[tag].seconds.mean(axis=0) for by_tag in found.values()]
        cells = "".join(f" {fit:.2f} | {asked:.2f} |" for fit, asked in means)
        lines.append(f"| `{tag}` |{cells}")
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    print_and_keep(__doc__, KEPT, "runs", RUNS, table)
