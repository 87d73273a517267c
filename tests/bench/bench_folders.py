"""Files per second of a folder that has many, and what they cost once they were read.

    python -m tests.bench.bench_folders [--files 2000 20000 100000]

Each file has one answer: tables (CSV, Parquet) of a pattern, and NDJSON files that are followed. Files are
read and decoded in one process, without an agent. Times are processor times, so that other work on the
machine counts little; "quiet" is the share of a core over ten seconds in which nothing changes.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow
import pyarrow.parquet

from connectors.files import FileSource
from connectors.formats.decode.decoder import Decoder
from monitor.base.records import TaskLayout
from tests.harness import apart, run

FILES = (2000, 20_000, 100_000)
QUIET_SECONDS = 10.0


def fill(folder: Path, files: int, end: str) -> None:
    """Write `files` files of one answer each."""
    for number in range(files):
        if end == "parquet":
            row = {"id": [str(number)], "model": ["m"], "scores.no": [0.3], "scores.yes": [0.7]}
            pyarrow.parquet.write_table(pyarrow.table(row), folder / f"{number:06}.{end}")
            continue
        if end == "csv":
            text = f"id,model,scores.no,scores.yes\n{number},m,0.3,0.7\n"
        else:
            text = json.dumps({"id": str(number), "model": "m", "scores": [0.3, 0.7]}) + "\n"
        (folder / f"{number:06}.{end}").write_text(text)


def rates(files: int, end: str) -> tuple[float, float]:
    """Return files a second of processor time, and the share of a core afterwards."""
    with tempfile.TemporaryDirectory() as name:
        fill(Path(name), files, end)
        source = FileSource(f"{name}/*.{end}", follow=True, complete_seconds=0.0)
        decoder = Decoder([TaskLayout("t", ("no", "yes"))], "files")
        began, answers = time.process_time(), 0
        source.open({})
        while answers < files:
            answers += decoder.decode(source.read(0.2)).answers
        rate = files / (time.process_time() - began)
        began, ends = time.process_time(), time.monotonic() + QUIET_SECONDS
        while time.monotonic() < ends:
            source.read(0.2)
        quiet = (time.process_time() - began) / QUIET_SECONDS
        source.close()
    return rate, quiet


def table(files: tuple[int, ...] = FILES) -> Iterator[str]:
    """Yield files per second of processor time, by kind and number."""
    for end, what in (("csv", "tables"), ("parquet", "tables of Parquet"), ("log", "followed NDJSON files")):
        for count in files:
            rate, quiet = apart(rates, count, end)
            yield f"{count:7,} {what}: {rate:6,.0f} files/s of processor time, quiet {quiet:.1%}"


if __name__ == "__main__":
    run(table)
