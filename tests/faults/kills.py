"""Kills a real daemon at random moments and compares its reports with those of one that was left alone.

    python -m tests.faults.kills [--kills 200] [--records 300000] [--seed 0] [--max-bytes N] [--decoders N]
        [--kind regression]

The stream holds answers of four models with ids, late and early labels, duplicates and broken lines. The
daemon reads it from a file; it is killed with SIGKILL after a random time and started again on the same
store, until the stream is used up. The reports file must be equal, byte for byte; with `--max-bytes` that of
the killed daemon is renamed at that size, and all its files together must be equal to the one. What its
metrics count at the end must add up, and be the lines of the stream. With `--decoders` that many processes
decode for the killed daemon, and none for the other. With `--kind regression`, the answers and labels are
numbers.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from pathlib import Path

from monitor.export.sinks.line_file import files_of
from tests.accounting import Accounts, accounts, assert_adds_up
from tests.daemon import DaemonProcess
from tests.services.process import end_of

MODELS = ("a", "b", "c", "d")

_CLASSIFICATION = """\
    classes: [ok, bad]
    reference: {{first_windows: 10}}
    metrics: [accuracy]
    objective: {{accuracy: {{min: 0.8}}}}
"""
_REGRESSION = """\
    kind: regression
    tolerance: 1.5
    reference: {{path: reference.ndjson}}
    objective: {{within_tolerance: {{min: 0.8}}}}
"""
_REST = """\
    window: {{size: 500, min_size: 50, max_age_seconds: 1000000}}
    calibration: {{refit_labels: null}}   # a fit is taken over when it is ready, at no fixed record
    groups: [region]
sources:
  - {{kind: file, path: stream.ndjson}}
  - {{kind: stdin}}   # while it is open, the daemon can be asked for its metrics
reports: {{path: {name}.ndjson, max_bytes: {max_bytes}, keep: 1000}}
store: {{path: {name}, every_seconds: {every}}}
export: {{listen: "127.0.0.1:0"}}
"""
CONFIGS = {
    kind: f"tasks:\n  t:\n{own}{_REST}"
    for kind, own in (("classification", _CLASSIFICATION), ("regression", _REGRESSION))
}
CONFIG = CONFIGS["classification"]


@dataclass(frozen=True, slots=True)
class Result:
    """The result of the kills."""

    kills: int
    windows: int
    revisions: int
    files: int
    equal: bool
    metrics: Accounts


def predicted(i: int) -> float:
    """Return the predicted number of answer `ri`, from 0 to 10."""
    return i * 7919 % 1000 / 100


def reference(seed: int) -> Iterator[str]:
    """Yield the lines of a reference of predicted numbers."""
    rng = random.Random(seed)
    for i in range(3000 * len(MODELS)):
        number = predicted(i)
        answer = {"model": MODELS[i % len(MODELS)], "prediction": number, "label": number + rng.gauss()}
        yield json.dumps(answer)


def stream(
    records: int, seed: int, models: Sequence[str] = MODELS, kind: str = "classification"
) -> Iterator[str]:
    """Yield lines of answers, labels, duplicates and rubbish; answer `ri` is of model i, counted over and
    over.
    """
    rng = random.Random(seed)
    for i in range(records):
        score = round(rng.betavariate(8, 1) if i < records // 2 else rng.betavariate(5, 2), 6)
        answer = {
            "id": f"r{i}",
            "time": 1.7e9 + i / 10,
            "model": models[i % len(models)],
            **({"scores": [round(1 - score, 6), score]} if kind == "classification" else {}),
            **({"prediction": predicted(i), "sigma": 2 - score} if kind == "regression" else {}),
            "groups": {"region": "eu" if i % 3 else "us"},
        }
        yield json.dumps(answer)
        if rng.random() < 0.1:
            at = max(0, i + rng.randint(-5000, 50))
            label: str | float = "bad" if rng.random() < 0.9 else "ok"
            if kind == "regression":
                label = predicted(at) + rng.gauss()
            yield json.dumps({"id": f"r{at}", "label": label, "time": 1.7e9 + i / 10})
        if rng.random() < 0.01:
            yield json.dumps(answer)
        if rng.random() < 0.001:
            yield "{ broken"


def run_with_kills(folder: Path, config: str, kills: int, seed: int, longest_seconds: float) -> int:
    """Kill and restart until the stream is used up or that is enough; how often it was killed."""
    rng = random.Random(seed)
    for killed in range(kills):
        with DaemonProcess(folder, config) as daemon:  # leaving it kills it
            try:
                daemon.process.wait(rng.uniform(0.3, longest_seconds))
            except subprocess.TimeoutExpired:
                continue
            return killed
    return kills


def finish(folder: Path, config: str, lines: int) -> Accounts:
    """Run the daemon to the end of the stream; return its metrics' accounts of these lines."""
    with DaemonProcess(folder, config, stdin=subprocess.PIPE) as daemon:
        balance = accounts(assert_adds_up(daemon, sent=lines))
        assert daemon.process.stdin is not None
        daemon.process.stdin.close()
        code = end_of(daemon.process)
        assert code == 0, f"it ended with {code}: {daemon.log}"
    return balance


def written(folder: Path) -> bytes:
    """Return the lines that the killed daemon wrote, in all its files."""
    files = files_of(str(folder / "killed.ndjson"), 1000)
    return b"".join(file.read_bytes() for file in reversed(files))


def compare(
    folder: Path,
    records: int,
    kills: int,
    seed: int,
    longest_seconds: float,
    every: float,
    max_bytes: int | None = None,
    decoders: int = 0,
    kind: str = "classification",
) -> Result:
    """Run the same stream with and without kills."""
    lines = list(stream(records, seed, kind=kind))
    (folder / "stream.ndjson").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (folder / "reference.ndjson").write_text("\n".join(reference(seed)) + "\n", encoding="utf-8")
    template = CONFIGS[kind]
    finish(folder, template.format(name="alone", every=every, max_bytes="null"), len(lines))
    config = template.format(name="killed", every=every, max_bytes=max_bytes or "null")
    config += f"decoders: {decoders}\n"
    killed = run_with_kills(folder, config, kills, seed, longest_seconds)
    counted = finish(folder, config, len(lines))
    expected = (folder / "alone.ndjson").read_bytes()
    current = written(folder)
    # On a busy machine the second that a sink has at the end is too short: the next start delivers the rest.
    while current != expected and expected.startswith(current):
        finish(folder, config, len(lines))
        before, current = current, written(folder)
        if current == before:
            break
    files = files_of(str(folder / "killed.ndjson"), 1000)
    windows = expected.count(b'"revision":0,')
    revisions = expected.count(b"\n") - windows
    return Result(killed, windows, revisions, len(files), current == expected, counted)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--records", type=int, default=300_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--longest-seconds", type=float, default=2.0)
    parser.add_argument("--max-bytes", type=int, default=None)
    parser.add_argument("--decoders", type=int, default=0)
    parser.add_argument("--kind", choices=[*CONFIGS], default="classification")
    options = parser.parse_args()
    began = time.monotonic()
    kills = windows = revisions = files = rounds = 0
    counted: list[Accounts] = []
    while kills < options.kills:
        with tempfile.TemporaryDirectory() as name:
            comparison = compare(
                Path(name), options.records, options.kills - kills, options.seed + rounds,
                options.longest_seconds, every=0.05, max_bytes=options.max_bytes,
                decoders=options.decoders, kind=options.kind,
            )  # fmt: skip
        if not comparison.equal:
            raise SystemExit(
                f"seed {options.seed + rounds}: the reports differ after {comparison.kills} kills"
            )
        kills, windows, rounds = kills + comparison.kills, windows + comparison.windows, rounds + 1
        revisions, files = revisions + comparison.revisions, files + comparison.files
        counted.append(comparison.metrics)
    seconds = time.monotonic() - began
    print(f"{kills} kills over {rounds} streams: {windows:,} windows, each once, byte for byte,")
    print(f"and {revisions:,} revisions of them, as late labels came")
    print(f"in {files:,} files; in {seconds:.0f} s")
    print(reduce(add, counted))


if __name__ == "__main__":
    main()
