"""Cost of the durable store: the same stream through the daemon with it and without.

    python -m tests.bench.bench_store [fast] [paced] [outage] [--records 1000000] [--rounds 3] [--rate 10000]
        [--seconds 30]

A run is `blindsight run`: reading, decoding, windows, charts, the label join, the reports file. The kinds
take turns; it counts the processor time of all threads.

* `fast`: a file, as fast as it can be read, without a store and with one in a folder.
* `paced`: a pipe, `--rate` answers a second of which 5 % are labelled ten seconds later, and a checkpoint
each
  second, without a store, with one in a folder and with one in a real PostgreSQL on this machine.
* `outage`: the memory that ten minutes without the database fill, and the checkpoint after them.
"""

from __future__ import annotations

import gc
import itertools
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from statistics import median
from types import FunctionType, ModuleType

import numpy as np

from monitor.agent.checkpoints import _MOST_REPORTS
from monitor.reports.window_report import WindowReport
from monitor.store.postgres import PostgresDatabase, PostgresStore
from tests.bench.bench_replay import CONFIG, write_inputs
from tests.daemon import DaemonProcess, configuration
from tests.harness import processor_of_children, processor_seconds, run
from tests.services.postgres_server import PostgresServer
from tests.streams import Rig, answers, task

MODELS = ("a", "b", "c", "d")
REST = """\
sources: [{{kind: file, path: stream.ndjson}}]
reports: {{path: {name}.ndjson}}
export: {{listen: "127.0.0.1:0"}}
{store}
"""


def seconds_of(folder: Path, name: str, round_: int) -> float:
    """Return processor seconds of one run."""
    for left in folder.glob(f"{name}.ndjson"):
        left.unlink()
    store = f"store: {{path: state{round_}}}" if name == "with" else ""
    (folder / f"{name}.yaml").write_text(CONFIG + REST.format(name=name, store=store), encoding="utf-8")
    before = processor_of_children()
    command = [sys.executable, "-m", "monitor.cli", "run", str(folder / f"{name}.yaml")]
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
    return processor_of_children() - before


def start_up(folder: Path) -> float:
    """Return processor seconds of a run over an empty stream: imports, the reference."""
    stream = folder / "stream.ndjson"
    held = stream.rename(folder / "held")
    stream.write_bytes(b"")
    seconds = seconds_of(folder, "without", 0)
    stream.unlink()
    held.rename(stream)
    return seconds


def fast(records: int = 1_000_000, rounds: int = 3) -> Iterator[str]:
    """Yield both rates, and the bytes on the disk."""
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


def blocks_of(rate: int, seconds: int) -> list[bytes]:
    """Return the lines of each tenth of a second."""
    rng = np.random.default_rng(0)
    tenth, later = rate // 10, 10 * rate
    scores = np.round(rng.beta(8, 2, rate * seconds), 4)
    lines = [
        f'{{"id":"r{i}","time":{1.7e9 + i / rate},"model":"m{i % 4}","scores":[{1 - score:.4f},{score}]}}\n'
        + (
            f'{{"id":"r{i - later}","label":"ok","time":{1.7e9 + i / rate}}}\n'
            if i >= later and i % 20 == 0
            else ""
        )
        for i, score in enumerate(scores.tolist())
    ]
    return ["".join(lines[start : start + tenth]).encode() for start in range(0, len(lines), tenth)]


def paced_seconds(folder: Path, name: str, store: dict[str, object] | None, blocks: list[bytes]) -> float:
    """Return processor seconds of one run, from its first line to its last checkpoint."""
    config = configuration(
        task={"window": {"size": 500}, "calibration": {"refit_labels": None}},
        sources=[{"kind": "stdin"}],
        reports={"path": f"{name}.ndjson"},
        **({"store": store} if store else {}),
    )
    (folder / name).mkdir()
    with DaemonProcess(folder / name, config, stdin=subprocess.PIPE) as daemon:
        pipe = daemon.process.stdin
        assert daemon.port
        assert pipe is not None
        before = processor_seconds(daemon.process.pid)
        began = time.perf_counter()
        for number, block in enumerate(blocks):
            time.sleep(max(began + number / 10 - time.perf_counter(), 0.0))
            pipe.write(block)
            pipe.flush()
        daemon.until_used(sum(block.count(b"scores") for block in blocks))
        time.sleep(1.5)
        return processor_seconds(daemon.process.pid) - before


def paced(rate: int = 10_000, seconds: int = 30, rounds: int = 3) -> Iterator[str]:
    """Yield the cost of each kind of store, and what the server writes."""
    blocks = blocks_of(rate, seconds)
    by_store: dict[str, list[float]] = {"none": [], "folder": [], "postgres": []}
    with tempfile.TemporaryDirectory() as name, PostgresServer() as server:
        folder, before = Path(name), processor_seconds(server.pid, with_ended=True)
        logged = written_to_log(server)
        for round_ in range(rounds):
            stores = {
                "none": None,
                "folder": {"path": "state"},
                "postgres": {"postgres": server.dsn, "prefix": f"round{round_}"},
            }
            for kind, store in stores.items():
                by_store[kind].append(paced_seconds(folder, f"{kind}{round_}", store, blocks))
        logged = written_to_log(server) - logged
        served = processor_seconds(server.pid, with_ended=True) - before
    without, kept, database = (median(each) for each in by_store.values())
    yield f"{rate:,} answers/s for {seconds} s, 5 % labelled; processor seconds of the agent, {rounds} rounds"
    yield f"without a store   {without:8.2f}"
    yield f"with a folder     {kept:8.2f}: {kept / without - 1:.0%} more"
    yield f"with PostgreSQL   {database:8.2f}: {database / kept:.2f} times the folder's"
    yield f"the server's own  {served / rounds:8.2f}"
    yield f"its log           {logged / rounds / (rate * seconds):8.0f} MB a million answers"


def outage(rate: int = 10_000, size: int = 500, minutes: int = 10, windows: int = 200) -> Iterator[str]:
    """Yield the memory of closed windows that wait for a database, and the checkpoint that saves them all.

    `windows` windows are made; where more wait, they are held several times over.
    """
    rig, rng = Rig(task(window={"size": size})), np.random.default_rng(0)
    reports: list[WindowReport] = []
    for number in range(windows):
        reports += rig.feed(answers(rng, size, MODELS[number % 4], start=1.7e9 + 1000 * number))
    waiting = rate * 60 * minutes // size
    held = deep_size(reports) / len(reports)
    many = list(itertools.islice(itertools.cycle(reports), min(waiting, _MOST_REPORTS)))
    with PostgresServer() as server, closing(PostgresStore(PostgresDatabase(server.dsn, "outage"))) as store:
        before = time.process_time(), time.monotonic()
        store.commit(rig.engine.changes(), many)
        busy, elapsed = time.process_time() - before[0], time.monotonic() - before[1]
    full, megabytes = _MOST_REPORTS * size / rate / 60, held * _MOST_REPORTS / 1e6
    yield f"{rate:,} answers/s in windows of {size}: {waiting:,} windows close in {minutes} minutes"
    yield f"one of them in memory   {held / 1e3:8.1f} kB, one metric"
    yield f"the sources wait after  {full:8.1f} minutes: {_MOST_REPORTS:,} take {megabytes:.0f} MB"
    yield f"saved in one checkpoint {busy:8.2f} s of the agent's processor, {elapsed:.1f} s by the clock"


def deep_size(*roots: object) -> int:
    """Return bytes of objects and all that they hold, each counted once; not of types and modules."""
    seen, left, total = set[int](), list(roots), 0
    while left:
        one = left.pop()
        if id(one) in seen or isinstance(one, type | ModuleType | FunctionType):
            continue
        seen.add(id(one))
        total += sys.getsizeof(one)
        left += gc.get_referents(one)
    return total


def written_to_log(server: PostgresServer) -> int:
    """Return bytes of the server's write-ahead log since it was made."""
    with server.connection() as connection:
        row = connection.execute("SELECT pg_current_wal_lsn() - '0/0'::pg_lsn").fetchone()
    assert row is not None
    return int(row[0])


if __name__ == "__main__":
    run({"fast": fast, "paced": paced, "outage": outage}, keep=False)
