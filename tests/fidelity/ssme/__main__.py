"""Print the tables of the estimators that use labels.

    python -m tests.fidelity.ssme                          # everything, about an hour; kept under output/
    python -m tests.fidelity.ssme civilcomments --runs 10  # one part, shorter; printed only
    python -m tests.fidelity.ssme suite --split development --estimators ssme ensemble --tasks 2c-5m 3c-3m

Parts: `civilcomments` (the paper's protocol), `models` (its Tables S8 to S11), `effective` (sample sizes,
its appendix B.4), `epochs` (50 or 1,000 of them), `alone` (SSME-KDE-M: each model alone),
`semisynthetic` (its Figures 4 and S1 to S3 on simulated people), `trained` (sets of
trained classifiers: is it ever worse than the simple answers?), `suite` (simulated and scikit-learn tasks),
`speed`. The paper's other tables are of data that are not here: 2 (subgroups of
patients), S6 and S7 (more than two classes), all rows but toxicity's of 1 and S3 to S5. Settings are chosen
on `--split development`; the kept tables come from `reporting`, on which nothing was tuned. `--runs` counts
the semisynthetic sets too. `--answers FOLDER` keeps each run's answers, so that a run can go on;
`--processes` processes share the suite's tasks, or the sets.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Literal

from monitor import ESTIMATORS, METRICS
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
    trained,
    trained_sets,
)
from tests.fidelity.ssme.compare import FLOOR, SHOWN
from tests.fidelity.ssme.protocol import Pool
from tests.harness import run

RUNS = 50
SUITE_RUNS = 20
SETS = 500
COMPARED = tuple(tag for tag in ("ssme", "ssme_paper", "ensemble", "labelled") if tag in ESTIMATORS)

Split = Literal["development", "reporting"]
Tag = Literal[tuple(sorted(ESTIMATORS))]  # type: ignore[valid-type]


def of_civilcomments(
    runs: int = RUNS,
    labels: tuple[int, ...] = civilcomments.LABELS,
    estimators: tuple[Tag, ...] = COMPARED,
    split: Split = "reporting",
    answers: Path | None = None,
) -> str:
    by_count = civilcomments.measured(civilcomments.pool(split), [*estimators, FLOOR], labels, runs, answers)
    tables = civilcomments.error_table(by_count, runs), civilcomments.interval_table(by_count, METRICS)
    return f"Rows of the {split} half.\n" + "\n".join(tables)


def of_the_suite(
    runs: int = SUITE_RUNS,
    labels: tuple[int, ...] = civilcomments.LABELS,
    estimators: tuple[Tag, ...] = COMPARED,
    split: Split = "reporting",
    tasks: tuple[str, ...] = (),
    processes: int = 1,
) -> str:
    chosen = [task for task in suite.tasks(split) if not tasks or task.name in tasks]
    lines = suite_table.lines(chosen, estimators, labels, runs, processes)
    parts = [suite_table.summary_table(lines), suite_table.coverage_table(lines, METRICS)]
    rivals = [tag for tag in ("ensemble", "labelled") if tag in estimators]
    if "ssme" in estimators and rivals:
        parts.append(suite_table.losses(lines, "ssme", rivals))
    parts += [suite_table.task_table(lines, metric, runs) for metric in SHOWN]
    return f"{len(chosen)} tasks of the {split} split.\n" + "\n".join(parts)


def of_pool(table: Callable[[Pool, int], str]) -> Callable[..., str]:
    def part(runs: int = RUNS, split: Split = "reporting") -> str:
        return table(civilcomments.pool(split), runs)

    return part


def going_on(table: Callable[[Pool, int, Path | None], str]) -> Callable[..., str]:
    def part(runs: int = RUNS, split: Split = "reporting", answers: Path | None = None) -> str:
        return table(civilcomments.pool(split), runs, answers)

    return part


def of_sets(runs: int = SETS, answers: Path | None = None, processes: int = 1) -> str:
    return semisynthetic.table(runs, answers, processes)


def of_trained(
    runs: int = RUNS,
    labels: tuple[int, ...] = trained.LABELS,
    split: Split = "reporting",
    sets: tuple[str, ...] = (),
    files: bool = False,
    answers: Path | None = None,
    processes: int = 1,
) -> str:
    chosen_split: trained_sets.Split = "files" if files else split
    chosen = [
        one for one in trained_sets.SETS if chosen_split in one.splits and (not sets or one.name in sets)
    ]
    rows = trained.measured(chosen, chosen_split, labels, runs, answers, processes)
    return f"{len(chosen)} sets of the {chosen_split} split.\n{trained.table(rows, runs)}"


def of_speed(estimators: tuple[Tag, ...] = COMPARED) -> str:
    return speed.table(estimators)


if __name__ == "__main__":
    run(
        {
            "civilcomments": of_civilcomments,
            "models": going_on(per_model.table),
            "effective": going_on(effective.table),
            "epochs": of_pool(epochs.table),
            "alone": of_pool(alone.table),
            "semisynthetic": of_sets,
            "trained": of_trained,
            "suite": of_the_suite,
            "speed": of_speed,
        },
        data=True,
    )
