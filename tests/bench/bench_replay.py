"""`replay` and `run` of a million predictions, compared with bare msgspec decoding of the same file.

    python -m tests.bench.bench_replay [--records 1000000] [--rounds 3] [--labelled-every 0]

Bare decoding reads blocks of 1 MiB and calls `decode_lines` into the Struct with all fields of SPEC section
3. The replay does everything: it reads configuration and reference, fits the calibration, looks for
duplicates, keeps answers for their labels, closes windows of 500 with intervals, calibration error, charts
and an objective, writes reports and draws pictures. `run` is the daemon over the same file, and over standard
input, until its end: it draws no pictures, but serves metrics. All take turns, each in its own process. It
counts the processor time of all threads, which hardly depends on other load. The ratio is of the medians. The
bare loop runs with Python's own setting of the garbage collector, and once more with the commands' setting.
"""

from __future__ import annotations

import json
import logging
import resource
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median

import msgspec
import numpy as np

from connectors.files import FileSource
from connectors.formats.decode.decoder import Decoder
from connectors.formats.decode.structs import Record
from monitor.base.collector import tune_collector
from monitor.base.source import EndOfSource
from monitor.cli import daemon as daemon_command
from monitor.cli.replay import replay
from monitor.cli.trial import ReferenceTrial
from monitor.config.file import load_config
from monitor.config.layouts import layouts
from monitor.reports.window_report import to_json
from tests.harness import apart, run
from tests.streams import confidences

MODELS = ("m0", "m1", "m2", "m3")
REFERENCE_ROWS = 20_000
BLOCK = 1 << 20

CONFIG = """\
tasks:
  toxicity:
    classes: [ok, toxic]
    window: {size: 500, max_age_seconds: 1000000}
    reference: {path: reference.ndjson}
    metrics: [accuracy, ece]
    objective: {accuracy: {min: 0.85}}
"""


DAEMON = """\
sources: [{source}]
reports: {{path: {reports}}}
export: {{listen: "127.0.0.1:0"}}
"""
SOURCES = {"run": "{kind: file, path: stream.ndjson}", "run stdin": "{kind: stdin}"}


def write_inputs(
    folder: Path, records: int, answering: Sequence[str] = MODELS, labelled_every: int = 0, late: int = 0
) -> None:
    """Write the stream, a reference of 5,000 rows a model, and the configuration.

    Models answer in turn, as often as each stands in `answering`. One in `labelled_every` answers brings its
    label, or gets it `late` answers later; one in 20 of all is one in five of the first of four models.
    """
    rng = np.random.default_rng(0)
    waiting = deque([""] * late)
    with (folder / "stream.ndjson").open("w", encoding="utf-8") as file:
        for start in range(0, records, 50_000):
            scores = confidences(rng, min(50_000, records - start)).tolist()
            for i, score in enumerate(scores, start):
                line = _line(i, score, answering)
                label = bool(labelled_every) and i % labelled_every == 0
                if late:
                    waiting.append(_label(i, score, rng) if label else "")
                    file.write(f"{line}\n{waiting.popleft()}")
                else:
                    file.write((_labelled(line, score, rng) if label else line) + "\n")
    with (folder / "reference.ndjson").open("w", encoding="utf-8") as file:
        for i, score in enumerate(confidences(rng, REFERENCE_ROWS).tolist()):
            file.write(_labelled(_line(i, score), score, rng) + "\n")
    (folder / "config.yaml").write_text(CONFIG, encoding="utf-8")


def _labelled(line: str, score: float, rng: np.random.Generator) -> str:
    return f'{line[:-1]}, "label": "{_draw_label(score, rng)}"}}'


def _label(i: int, score: float, rng: np.random.Generator) -> str:
    return f'{{"id": "req-{i:08d}", "task": "toxicity", "label": "{_draw_label(score, rng)}"}}\n'


def _draw_label(score: float, rng: np.random.Generator) -> str:
    return "toxic" if rng.random() < score else "ok"


def _line(i: int, score: float, answering: Sequence[str] = MODELS) -> str:
    minute, millis = divmod(i * 20, 60_000)
    stamp = f"2026-11-{1 + minute // 1440:02d}T{minute // 60 % 24:02d}:{minute % 60:02d}"
    return (
        f'{{"id": "req-{i:08d}", "time": "{stamp}:{millis / 1000:06.3f}Z", "task": "toxicity", '
        f'"model": "{answering[i % len(answering)]}", "scores": [{1 - score:.6f}, {score:.6f}]}}'
    )


def bare(folder: Path) -> dict[str, float]:
    """Decode the file and do nothing with it."""
    decode = msgspec.json.Decoder(Record).decode_lines
    began = time.process_time()
    records, rest = 0, b""
    with (folder / "stream.ndjson").open("rb") as file:
        while block := file.read(BLOCK):
            block = rest + block
            cut = block.rfind(b"\n") + 1
            rest = block[cut:]
            records += len(decode(block[:cut]))
    return _result(records, time.process_time() - began)


def whole(folder: Path) -> dict[str, float]:
    """Return the replay as the command runs it."""
    began = time.process_time()
    done = replay(str(folder / "config.yaml"), [folder / "stream.ndjson"], folder / "out", lambda *_: None)
    seconds = time.process_time() - began
    records = sum(done.view.received.values())
    assert done.windows == records // 500, (done.windows, records)
    return _result(records, seconds)


def daemon(folder: Path, job: str) -> dict[str, float]:
    """Return the daemon as the command runs it, until its source ends."""
    config, reports = folder / f"{job}.yaml", folder / f"{job}.ndjson"
    reports.unlink(missing_ok=True)
    config.write_text(CONFIG + DAEMON.format(source=SOURCES[job], reports=reports.name), encoding="utf-8")
    logging.disable()
    began = time.process_time()
    code = daemon_command.run(str(config))
    seconds = time.process_time() - began
    assert code == 0, code
    with reports.open("rb") as file:
        return _result(sum(json.loads(line)["size"] for line in file), seconds)


def stages(folder: Path) -> dict[str, float]:
    """Return the microseconds a record that each stage of a replay takes."""
    config = load_config(folder / "config.yaml")
    spent = dict.fromkeys(("set up", "read", "decode", "engine", "reports"), 0.0)
    began = time.process_time()
    engine = ReferenceTrial(config).engine_settings(event_time=True).build()
    source = FileSource(folder / "stream.ndjson")
    decoder = Decoder(layouts(config.tasks), source.name)
    source.open({})
    last = time.process_time()
    spent["set up"] = last - began
    records = 0

    def lap(stage: str) -> None:
        nonlocal last
        now = time.process_time()
        spent[stage] += now - last
        last = now

    while True:
        try:
            raws = source.read(0.0)
        except EndOfSource:
            break
        lap("read")
        chunk = decoder.decode(raws)
        lap("decode")
        reports = engine.absorb(chunk, 0.0)
        lap("engine")
        for report in reports:
            to_json(report)
        lap("reports")
        records += chunk.answers
    return {stage: 1e6 * seconds / records for stage, seconds in spent.items()}


WORK = {"bare": bare, "bare tuned": bare, "whole": whole, "stages": stages}
JOBS = ("bare", "bare tuned", "whole", *SOURCES)


def _result(records: int, seconds: float) -> dict[str, float]:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"records": records, "rate": records / seconds, "megabytes": peak}


def one(job: str, folder: Path) -> dict[str, float]:
    """Return one of `JOBS`, alone in its process."""
    if job != "bare":
        tune_collector()  # as the commands do
    if job in WORK:
        return WORK[job](folder)
    with (folder / "stream.ndjson").open(encoding="utf-8") as sys.stdin:
        return daemon(folder, job)


def table(records: int = 1_000_000, rounds: int = 3, labelled_every: int = 0) -> Iterator[str]:
    """Yield rates, memory, and where the time goes."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_inputs(folder, records, labelled_every=labelled_every)
        turns = [{job: apart(one, job, folder) for job in JOBS} for _ in range(rounds)]
        spent = apart(one, "stages", folder)
    assert all(turn[job]["records"] == turn["bare"]["records"] for turn in turns for job in SOURCES)
    yield f"{records:,} predictions of 4 models, windows of 500, {rounds} rounds in turn"
    yield from rate_lines({job: median(turn[job]["rate"] for turn in turns) for job in JOBS})
    peak = max(turn["whole"]["megabytes"] for turn in turns)
    yield f"the replay was resident with at most {peak:12,.0f} MB (less than 300)"
    yield "where the time of the replay goes, microseconds a record:"
    for stage, micros in spent.items():
        yield f"  {stage:11} {micros:6.2f}"


def rate_lines(rates: Mapping[str, float]) -> Iterator[str]:
    """Yield rates beside that of bare decoding."""
    bare_rate, tuned = rates["bare"], rates["bare tuned"]
    yield f"bare decode_lines                    {bare_rate:12,.0f} records/s of one core"
    yield f"  with the commands' collector       {tuned:12,.0f}"
    yield f"blindsight replay                    {rates['whole']:12,.0f}"
    yield f"  beside bare decode_lines           {rates['whole'] / bare_rate:12.2f} (at least 0.35)"
    yield f"  beside that with the collector set {rates['whole'] / tuned:12.2f}"
    for job, name in (("run", "over the file"), ("run stdin", "by standard input")):
        yield f"blindsight run, {name:20} {rates[job]:12,.0f}"
        yield f"  beside bare decode_lines           {rates[job] / bare_rate:12.2f} (at least 0.35)"


if __name__ == "__main__":
    run(table, keep=False)
