"""The suite's tasks: which estimator is best in how many, and how far off the best the others are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tests.fidelity.ssme.compare import SHOWN, Measured, known_mean, measure, shared_out
from tests.fidelity.ssme.suite import Split, Task
from tests.fidelity.ssme.suite import tasks as suite_tasks


@dataclass(frozen=True)
class Line:
    """One task at one number of labels."""

    task: Task
    labels: int
    by_tag: Mapping[str, Measured]

    def error(self, tag: str, metric: str) -> float:
        """Return mean absolute error over runs and models, 0 to 1."""
        return float(known_mean(self.by_tag[tag].mean_error(metric), axis=None))

    def worse(self, tag: str, than: str, metric: str) -> float:
        """Return how much larger the error of `tag` is, in standard errors of the paired runs."""
        gap = self.by_tag[tag].mean_error(metric) - self.by_tag[than].mean_error(metric)
        gap = gap[~np.isnan(gap)]
        if len(gap) < 2:
            return float("nan")
        spread = float(gap.std(ddof=1)) / len(gap) ** 0.5
        return float(gap.mean()) / spread if spread > 0 else 0.0


def lines(
    tasks: Sequence[Task], tags: Sequence[str], labels: Sequence[int], runs: int, processes: int = 1
) -> list[Line]:
    """Measure every task at every number of labels, tasks spread over processes."""
    jobs = [(task.split, task.name, tuple(tags), tuple(labels), runs) for task in tasks]
    results = shared_out(_measured, jobs, processes)
    return [
        Line(task, count, one)
        for task, by_count in zip(tasks, results, strict=True)
        for count, one in zip(labels, by_count, strict=True)
    ]


def _measured(
    split: Split, name: str, tags: tuple[str, ...], labels: tuple[int, ...], runs: int
) -> list[Mapping[str, Measured]]:
    """Return one task, found again by its name: its maker cannot be sent to another process."""
    task = next(task for task in suite_tasks(split) if task.name == name)
    return [measure(task.pool, tags, count, runs) for count in labels]


def task_table(lines: Sequence[Line], metric: str, runs: int) -> str:
    """Return one line a task: mean absolute error in points of each estimator, the best one marked."""
    tags = list(lines[0].by_tag)
    counts = sorted({line.labels for line in lines})
    head = "".join(f"{f'{tag} {count}':>16s}" for count in counts for tag in tags)
    out = [f"Suite, {metric}: mean absolute error in points over {runs} runs (* best)", f"{'task':24s}{head}"]
    for name in dict.fromkeys(line.task.name for line in lines):
        cells = ""
        for line in (x for x in lines if x.task.name == name):
            errors = [100 * line.error(tag, metric) for tag in tags]
            best = float(np.nanmin(errors))
            cells += "".join(f"{e:15.2f}{'*' if e == best else ' '}" for e in errors)
        out.append(f"{name:24s}{cells}")
    return "\n".join(out) + "\n"


def summary_table(lines: Sequence[Line]) -> str:
    """For each metric and number of labels: mean error, how often best, and how far off when not."""
    tags = list(lines[0].by_tag)
    out = [
        "Suite in short: mean error in points; tasks in which it is best; points off the best where it is "
        "not, mean and worst",
        f"{'metric':18s}{'labels':>6s}  {'estimator':14s}"
        f"{'error':>8s}{'best':>8s}{'off':>8s}{'worst':>8s}  worst task",
    ]
    for metric in SHOWN:
        for count in sorted({line.labels for line in lines}):
            chosen = [line for line in lines if line.labels == count]
            table = np.array([[100 * line.error(tag, metric) for tag in tags] for line in chosen])
            off = table - np.nanmin(table, axis=1, keepdims=True)
            for at, tag in enumerate(tags):
                lost = off[:, at] > 0
                mean = off[lost, at].mean() if lost.any() else 0.0
                worst = int(np.nanargmax(off[:, at]))
                out.append(
                    f"{metric:18s}{count:6d}  {tag:14s}{np.nanmean(table[:, at]):8.2f}"
                    f"{int((off[:, at] == 0).sum()):5d}/{len(chosen):2d}{mean:8.2f}{off[worst, at]:8.2f}  "
                    f"{chosen[worst].task.name}"
                )
    return "\n".join(out) + "\n"


def losses(lines: Sequence[Line], tag: str, rivals: Sequence[str], errors: float = 3.0) -> str:
    """Return tasks in which a rival is better by more than some standard errors of the paired runs."""
    names = " or ".join(rivals)
    out = [f"Where {tag} is worse than {names} by more than {errors:.0f} standard errors of the runs"]
    for line in lines:
        for metric in SHOWN:
            for rival in rivals:
                by = line.worse(tag, rival, metric)
                if by > errors:
                    mine, theirs = (100 * line.error(x, metric) for x in (tag, rival))
                    where = f"{line.task.name:24s}{line.labels:5d} {metric:18s}"
                    out.append(f"{where}{mine:7.2f} against {rival} {theirs:.2f}")
    return "\n".join(out if len(out) > 1 else [*out, "nowhere"]) + "\n"


def coverage_table(lines: Sequence[Line], metrics: Sequence[str]) -> str:
    """Return coverage in % and width in points over the tasks, their median and their lowest coverage."""
    tags = list(lines[0].by_tag)
    out = [
        "Suite: coverage in % of 95 % intervals over tasks: mean (lowest task) / mean width in points",
        f"{'labels':>6s} {'estimator':14s}" + "".join(f"{name:>22s}" for name in metrics),
    ]
    for count in sorted({line.labels for line in lines}):
        chosen = [line for line in lines if line.labels == count]
        for tag in tags:
            cells = ""
            for metric in metrics:
                covered = np.array([100 * line.by_tag[tag].coverage(metric) for line in chosen])
                width = np.array([100 * line.by_tag[tag].mean_width(metric) for line in chosen])
                cells += f"{np.nanmean(covered):8.0f} ({np.nanmin(covered):3.0f}) / {np.nanmean(width):5.1f}"
            out.append(f"{count:6d} {tag:14s}{cells}")
    return "\n".join(out) + "\n"
