"""Print the tables of the estimators that use labels.

    python -m tests.fidelity.ssme                          # everything, about an hour; kept under output/
    python -m tests.fidelity.ssme civilcomments --runs 10  # one part, shorter; printed only
    python -m tests.fidelity.ssme suite --split development --estimators ssme ensemble --tasks 2c-5m 3c-3m

Parts: `civilcomments` (the paper's protocol), `models` (its Tables S8 to S11), `effective` (sample sizes,
its appendix B.4), `epochs` (50 or 1,000 of them), `alone` (SSME-KDE-M: each model by itself),
`semisynthetic` (its Figures 4 and S1 to S3 on simulated people; real flights beside), `suite` (simulated
and scikit-learn tasks), `speed`. The paper's other tables are of data that are not here: 2 (subgroups of
patients), S6 and S7 (more than two classes), all rows but toxicity's of 1 and S3 to S5. Settings are chosen
on `--split development`; the kept tables come from `reporting`, on which nothing was tuned.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from pathlib import Path

from monitor.stats.labelled import ESTIMATORS, METRICS
from tests.fidelity.ssme import (
    alone,
    civilcomments,
    effective,
    epochs,
    per_model,
    semisynthetic,
    speed,
    suite,
    suite_table,
)
from tests.fidelity.ssme.compare import FLOOR, SHOWN

OUTPUT = Path(__file__).parents[1] / "output"
RUNS = 50
SUITE_RUNS = 20
SETS = 500


def _default_estimators() -> list[str]:
    return [tag for tag in ("ssme", "ssme_paper", "ensemble", "labelled") if tag in ESTIMATORS]


def _civilcomments(options: argparse.Namespace) -> str:
    runs = options.runs or RUNS
    half = civilcomments.pool(options.split)
    tags = [*options.estimators, FLOOR]
    found = civilcomments.measured(half, tags, options.labels, runs, options.answers)
    tables = civilcomments.error_table(found, runs), civilcomments.interval_table(found, METRICS)
    return f"Rows of the {options.split} half.\n" + "\n".join(tables)


def _suite(options: argparse.Namespace) -> str:
    runs = options.runs or SUITE_RUNS
    tasks = [task for task in suite.tasks(options.split) if not options.tasks or task.name in options.tasks]
    found = suite_table.lines(tasks, options.estimators, options.labels, runs, options.processes)
    parts = [suite_table.summary_table(found), suite_table.coverage_table(found, METRICS)]
    rivals = [tag for tag in ("ensemble", "labelled") if tag in options.estimators]
    if "ssme" in options.estimators and rivals:
        parts.append(suite_table.losses(found, "ssme", rivals))
    parts += [suite_table.task_table(found, metric, runs) for metric in SHOWN]
    return f"{len(tasks)} tasks of the {options.split} split.\n" + "\n".join(parts)


def _models(options: argparse.Namespace) -> str:
    half = civilcomments.pool(options.split)
    return per_model.table(half, options.runs or RUNS, options.answers)


def _effective(options: argparse.Namespace) -> str:
    half = civilcomments.pool(options.split)
    return effective.table(half, options.runs or RUNS, options.answers)


def _epochs(options: argparse.Namespace) -> str:
    return epochs.table(civilcomments.pool(options.split), options.runs or RUNS)


def _alone(options: argparse.Namespace) -> str:
    return alone.table(civilcomments.pool(options.split), options.runs or RUNS)


def _semisynthetic(options: argparse.Namespace) -> str:
    return semisynthetic.table(options.runs or SETS, options.answers, options.processes)


def _speed(options: argparse.Namespace) -> str:
    return speed.table(options.estimators)


PARTS: Mapping[str, Callable[[argparse.Namespace], str]] = {
    "civilcomments": _civilcomments,
    "models": _models,
    "effective": _effective,
    "epochs": _epochs,
    "alone": _alone,
    "semisynthetic": _semisynthetic,
    "suite": _suite,
    "speed": _speed,
}


def main() -> None:
    """Measure, print, and keep what came from a whole run."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.fidelity.ssme", description="Tables of the estimators that use labels."
    )
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"{', '.join(PARTS)}; all if absent")
    parser.add_argument(
        "--runs", type=int, default=0, help=f"{RUNS} on civilcomments, {SUITE_RUNS} on the suite, {SETS} sets"
    )
    parser.add_argument("--labels", type=int, nargs="+", default=list(civilcomments.LABELS))
    parser.add_argument("--estimators", nargs="+", choices=sorted(ESTIMATORS), default=_default_estimators())
    parser.add_argument("--split", choices=("development", "reporting"), default="reporting")
    parser.add_argument("--tasks", nargs="+", default=[])
    parser.add_argument("--processes", type=int, default=1, help="that share the suite's tasks, or the sets")
    parser.add_argument(
        "--keep", action="store_true", help="write the tables even of a run that is not whole"
    )
    parser.add_argument(
        "--answers", type=Path, help="a folder that keeps each run's answers, so that a run can go on"
    )
    options = parser.parse_args()
    if unknown := [part for part in options.parts if part not in PARTS]:
        parser.error(f"PART must be one of {', '.join(PARTS)}, got {unknown[0]!r}")
    whole = (options.runs, options.tasks, options.split) == (0, [], "reporting")
    for part in options.parts or PARTS:
        text = PARTS[part](options)
        print(text)
        if options.keep or (whole and tuple(options.labels) == civilcomments.LABELS):
            (OUTPUT / f"ssme_{part}.txt").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
