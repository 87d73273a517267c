"""A replay's processor time with labels and with all metrics, beside bare decoding of the same file.

    python -m tests.bench.bench_everything [--records 1000000] [--rounds 3] [--against DIR]

Four models, windows of 500, a reference of 5,000 rows a model. `plain` estimates accuracy and calibration
error; `5 % labelled` and `20 % labelled` are the same with the default recalibration on the labels that so
many of the answers bring, and `5 % late` with labels that come 4,000 answers later, two windows of a model;
`eight metrics` adds precision, recall, specificity, F1, AUROC and average precision, without labels.
`regression` has predicted numbers with one feature instead of scores, and estimates the share within a
tolerance and the calibration error; `binary, feature` is its pair, a classifier of two classes with the same
feature. `regression, errors` adds `mae`, `rmse` and `bias`, so 500 times the difference of the two is what
these metrics cost a window. `whole` is the processor time of all threads of
`blindsight replay`, `system` the system's part of it. `beyond the start` is what an answer takes after the
first 100,000: the difference of two replays. `bare decoding` calls msgspec on the blocks of the same file, in
this process; its time is the unit of the last column, and `beyond the start` of the first row that of the
column before. With another checkout, both take turns. Figures are
medians.
"""

from __future__ import annotations

import math
import resource
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np

from tests.bench.bench_replay import CONFIG, MODELS, bare, write_inputs
from tests.bench.bench_start import Checkout
from tests.harness import ROOT, apart, run

WARM = 100_000
"""Answers before the counted ones: 50 windows of each of four models, so that every chart has its limits."""

EIGHT = "accuracy, ece, precision, recall, specificity, f1, auroc, average_precision"


_FEATURED = """\
    window: {size: 500, max_age_seconds: 1000000}
    reference: {path: reference.ndjson}
    features: {x: number}
"""
BINARY = f"""\
tasks:
  delay:
    classes: [ok, toxic]
    metrics: [accuracy, ece]
    objective: {{accuracy: {{min: 0.7}}}}
{_FEATURED}"""
NUMBERS = """\
tasks:
  delay:
    kind: regression
    tolerance: 1.5
    objective: {{within_tolerance: {{min: 0.7}}}}
    error_metrics: [{}]
""" + _FEATURED.replace("{", "{{").replace("}", "}}")


@dataclass(frozen=True)
class Load:
    """A stream to replay, and its configuration."""

    metrics: str = "accuracy, ece"
    labelled_every: int = 0
    late: int = 0
    task: str = ""
    """The configuration of the task of `write_featured`; empty for that of `bench_replay`."""

    def write(self, folder: Path, records: int) -> None:
        if self.task:
            write_featured(folder, records, self.task)
            return
        write_inputs(folder, records, labelled_every=self.labelled_every, late=self.late)
        config = CONFIG.replace("accuracy, ece", self.metrics)
        (folder / "config.yaml").write_text(config, encoding="utf-8")


LOADS: Mapping[str, Load] = {
    "plain": Load(),
    "5 % labelled": Load(labelled_every=20),
    "5 % late": Load(labelled_every=20, late=4000),
    "20 % labelled": Load(labelled_every=5),
    "eight metrics": Load(EIGHT),
    "binary, feature": Load(task=BINARY),
    "regression": Load(task=NUMBERS.format("")),
    "regression, errors": Load(task=NUMBERS.format("mae, rmse, bias")),
}


def write_featured(folder: Path, records: int, task: str) -> None:
    """Write a stream with one feature, a reference of 5,000 rows a model, and the configuration.

    Answers are numbers, or scores of two classes if the task has classes. The score is the probability that
    the error of the number is within 1.5.
    """
    is_binary = "classes" in task
    for name, seed, rows, label in (("stream", 0, records, False), ("reference", 1, 20_000, True)):
        rng = np.random.default_rng(seed)
        x = rng.standard_normal(rows)
        error = np.exp(0.5 * x) * rng.standard_normal(rows)
        with (folder / f"{name}.ndjson").open("w", encoding="utf-8") as file:
            for i in range(rows):
                number, labelled = 10 + 3 * x[i], ""
                answer = f'"prediction": {number:.4f}'
                if is_binary:
                    score = math.erf(1.5 * math.exp(-0.5 * x[i]) / math.sqrt(2.0))
                    answer = f'"scores": [{1 - score:.6f}, {score:.6f}]'
                if label and is_binary:
                    labelled = f', "label": "{"toxic" if abs(error[i]) <= 1.5 else "ok"}"'
                elif label:
                    labelled = f', "label": {number + error[i]:.4f}'
                file.write(
                    f'{{"id": "req-{i:08d}", "time": {1.7e9 + i * 0.02:.2f}, "task": "delay", '
                    f'"model": "{MODELS[i % len(MODELS)]}", {answer}, '
                    f'"features": {{"x": {x[i]:.4f}}}{labelled}}}\n'
                )
    (folder / "config.yaml").write_text(task, encoding="utf-8")


@dataclass(frozen=True)
class Cost:
    """Processor seconds of a replay, and the system's part."""

    seconds: float
    system: float


def replayed(checkout: Checkout, folder: Path) -> Cost:
    """Return the cost of all threads of a replay of the stream in a folder."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    words = checkout.words("replay", "config.yaml", "stream.ndjson", "--out", "out")
    subprocess.run(words, check=True, capture_output=True, cwd=folder)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    system = after.ru_stime - before.ru_stime
    return Cost(after.ru_utime - before.ru_utime + system, system)


def turns(
    load: Load, checkouts: list[Checkout], records: int, rounds: int
) -> list[list[tuple[Cost, Cost, float]]]:
    """Return, by round and checkout, the costs of a short replay and the whole one, and seconds of bare
    decoding.
    """
    with tempfile.TemporaryDirectory() as short, tempfile.TemporaryDirectory() as whole:
        load.write(Path(short), WARM)
        load.write(Path(whole), WARM + records)
        turns = []
        for _ in range(rounds):
            decoding = apart(bare, Path(whole))
            seconds = decoding["records"] / decoding["rate"]
            turns.append(
                [(replayed(each, Path(short)), replayed(each, Path(whole)), seconds) for each in checkouts]
            )
    return turns


def table(
    records: int = 1_000_000, rounds: int = 3, against: Path = ROOT, loads: tuple[str, ...] = tuple(LOADS)
) -> Iterator[str]:
    """Yield a line a load and checkout."""
    roots = {"before": against, "now": ROOT} if against.resolve() != ROOT else {"now": ROOT}
    checkouts = [Checkout(root.resolve()) for root in roots.values()]
    for checkout in checkouts:
        checkout.check_path()
    yield f"{WARM + records:,} answers of 4 models, windows of 500; processor time, {rounds} rounds' medians"
    yield (
        f"{'':24}{'whole s':>9}{'system s':>9}{'us an answer beyond the start':>31}{'of first':>9}"
        f"{'of bare decoding':>17}"
    )
    plain = [0.0] * len(checkouts)
    for name in loads:
        rows = turns(LOADS[name], checkouts, records, rounds)
        for i, who in enumerate(roots):
            each = [row[i] for row in rows]
            beyond = median((whole.seconds - short.seconds) / records for short, whole, _ in each)
            decoding = median(seconds / (WARM + records) for _, _, seconds in each)
            plain[i] = plain[i] or beyond
            yield (
                f"{f'{name}, {who}':24}{median(whole.seconds for _, whole, _ in each):9.1f}"
                f"{median(whole.system for _, whole, _ in each):9.1f}{1e6 * beyond:31.2f}"
                f"{beyond / plain[i]:9.2f}{beyond / decoding:17.2f}"
            )


if __name__ == "__main__":
    run(table, keep=False)
