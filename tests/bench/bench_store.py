"""Cost of the durable store: the same stream through the daemon with it and without.

    python -m tests.bench.bench_store [--records 1000000] [--rounds 3]

A run is `blindsight run` on a file: reading, decoding, windows, charts, the label join, the reports file. The
two take turns; it counts the processor time of all threads.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from tests.bench.bench_replay import CONFIG, write_inputs
from tests.harness import processor_of_children, run

REST = """\
sources: [{{kind: file, path: stream.ndjson}}]
reports: {{path: {name}.ndjson}}
export: {{listen: "127.0.0.1:0"}}
{store}
"""


def seconds_of(folder: Path, name: str, round_: int) -> float:
    """Processor seconds of one run."""
    for left in folder.glob(f"{name}.ndjson"):
        left.unlink()
    store = f"store: {{path: state{round_}}}" if name == "with" else ""
    (folder / f"{name}.yaml").write_text(CONFIG + REST.format(name=name, store=store), encoding="utf-8")
    before = processor_of_children()
    command = [sys.executable, "-m", "monitor.cli", "run", str(folder / f"{name}.yaml")]
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
    return processor_of_children() - before


def start_up(folder: Path) -> float:
    """Processor seconds of a run over an empty stream: imports, the reference."""
    stream = folder / "stream.ndjson"
    held = stream.rename(folder / "held")
    stream.write_bytes(b"")
    seconds = seconds_of(folder, "without", 0)
    stream.unlink()
    held.rename(stream)
    return seconds


def table(records: int = 1_000_000, rounds: int = 3) -> Iterator[str]:
    """Both rates, and what is on the disk."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_inputs(folder, records)
        fixed = start_up(folder)
        turns = [{kind: seconds_of(folder, kind, i) for kind in ("without", "with")} for i in range(rounds)]
        same = (folder / "with.ndjson").read_bytes() == (folder / "without.ndjson").read_bytes()
        size = sum(file.stat().st_size for file in (folder / "state0").iterdir())
    without, kept = (median(turn[kind] for turn in turns) - fixed for kind in ("without", "with"))
    yield f"{records:,} predictions with ids of 4 models, {rounds} rounds, start-up taken off"
    yield f"without a store   {records / without:10,.0f} records/s of one core"
    yield f"with a store      {records / kept:10,.0f} records/s: {kept / without - 1:.0%} more time"
    alike = "the same" if same else "DIFFERENT"
    yield f"store on disk     {size / 1e6:10.0f} MB; the reports are {alike}"


if __name__ == "__main__":
    run(table, keep=False)
