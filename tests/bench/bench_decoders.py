"""`run` with processes that decode beside `run` without: answers a second, and what they cost.

    python -m tests.bench.bench_decoders [--records 600000] [--rounds 3] [--streams plain labelled kserve]

Streams: `plain`, as that of `tests/bench/bench_replay.py`: four models in turn, windows of 500; `labelled`,
with a label beside each twentieth answer; `kserve`, the plain answers as events of KServe's logger, one a
line, which take longer to decode. The agent reads each from a file. The clock begins once it is set up and
its processes are ready, and ends with the file. All take turns, each in a fresh Python; the figures are
medians. Processor time is that of the agent's process, and of it and its decoders together. The windows of
all must be the same bytes.
"""

from __future__ import annotations

import json
import logging
import os
import resource
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Literal

from monitor.agent.decoders import Decoders
from monitor.base.collector import tune_collector
from monitor.cli.daemon import Daemon
from monitor.cli.process import one_heap
from monitor.config.file import load_config
from tests.bench.bench_replay import CONFIG, DAEMON, write_inputs
from tests.harness import apart, run
from tests.records import kserve_event
from tests.services.process import wait_until

Stream = Literal["plain", "labelled", "kserve"]
DECODERS = (0, 1, 2)
LABELLED_EVERY = 20


def write_stream(folder: Path, stream: Stream, records: int) -> None:
    """Write the input of one stream."""
    write_inputs(folder, records, labelled_every=LABELLED_EVERY if stream == "labelled" else 0)
    if stream == "kserve":
        path = folder / "stream.ndjson"
        with path.open(encoding="utf-8") as file:
            events = [json.dumps(kserve_event(json.loads(line))) for line in file]
        path.write_text("\n".join(events) + "\n", encoding="utf-8")


def one(folder: Path, decoders: int) -> dict[str, float]:
    """Return one run, alone in its process."""
    one_heap()
    tune_collector()
    logging.disable()
    config, reports = folder / f"{decoders}.yaml", folder / f"{decoders}.ndjson"
    reports.unlink(missing_ok=True)
    source = "{kind: file, path: stream.ndjson}"
    text = CONFIG + DAEMON.format(source=source, reports=reports.name) + f"decoders: {decoders}\n"
    config.write_text(text, encoding="utf-8")
    daemon = Daemon(load_config(str(config)))
    before = _ready(daemon.agent._decoders)
    began, used = time.perf_counter(), time.process_time()
    with daemon.running() as agent:
        agent.wait()
        seconds, own = time.perf_counter() - began, time.process_time() - used
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    others = ended.ru_utime + ended.ru_stime - before
    with reports.open("rb") as file:
        answers = sum(json.loads(line)["size"] for line in file if b'"revision":0' in line)
    megabytes = ended.ru_maxrss / 1024
    return {"answers": answers, "seconds": seconds, "own": own, "all": own + others, "megabytes": megabytes}


def _ready(decoders: Decoders | None) -> float:
    """Wait until every process is; the seconds of the processor that they have taken so far."""
    if decoders is None:
        return 0.0
    decoders.start()
    free = []
    while len(free) < len(decoders.pids):
        wait_until(
            lambda: free.extend(filter(None, [decoders.give("stream.ndjson", [])])) or free, "it is ready"
        )
    for each in free:
        decoders.take(each)
    return sum(map(_used, decoders.pids))


def _used(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def table(
    records: int = 600_000, rounds: int = 3, streams: tuple[Stream, ...] = ("plain", "labelled", "kserve")
) -> Iterator[str]:
    """Yield rates and processor time."""
    yield f"{records:,} predictions of 4 models, windows of 500, {rounds} rounds in turn"
    for stream in streams:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            write_stream(folder, stream, records)
            turns = [{count: apart(one, folder, count) for count in DECODERS} for _ in range(rounds)]
            written = {(folder / f"{count}.ndjson").read_bytes() for count in DECODERS}
        assert len(written) == 1, "the windows differ"
        yield f"{stream}:"
        rate = {count: median(t[count]["answers"] / t[count]["seconds"] for t in turns) for count in DECODERS}
        most = max(turn[count]["megabytes"] for turn in turns for count in DECODERS if count)
        for count in DECODERS:
            own, whole = (
                median(1e6 * turn[count][key] / turn[count]["answers"] for turn in turns)
                for key in ("own", "all")
            )
            yield (
                f"  decoders: {count} {rate[count]:9,.0f} answers/s, {rate[count] / rate[0]:.2f} times "
                f"as many; {own:.2f} µs of the agent's processor an answer, {whole:.2f} of all"
            )
        yield f"  a process that decodes was resident with at most {most:.0f} MB"


if __name__ == "__main__":
    run(table, keep=False)
