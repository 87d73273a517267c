"""Reads a table within a limit of memory, in a process of its own.

    python -m tests.connectors.sql.reading_within SECTION ROWS MIB

SECTION is the section of the source as JSON. MIB of addresses are added to those that the process has after
its imports and its first connection. It prints as JSON how many rows came, how many of them were broken, and
the peak of its resident memory above the start, in MiB.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from pathlib import Path

from connectors.formats.decode.decoder import Decoder
from connectors.formats.wires.choice import wire_of
from connectors.sql.source import SqlSource
from monitor.base.records import TaskLayout
from monitor.base.source import RawTable
from monitor.config.sql import SqlSourceConfig


def memory(name: str) -> int:
    """Return a figure of the process, in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name):
            return int(line.split()[1]) << 10
    raise ValueError(name)


def main() -> None:
    section, rows, mib = sys.argv[1:]
    settings = SqlSourceConfig(**json.loads(section))
    decode = Decoder([TaskLayout("t", ("no", "yes"))], "labels", wire=wire_of(settings)).decode
    warm = SqlSource(settings)
    warm.open({})
    warm._database.connect()  # type: ignore[union-attr]
    warm.close()
    limit = memory("VmSize") + (int(mib) << 20)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    before = memory("VmRSS")
    source = SqlSource(settings)
    source.open({})
    rows_read = broken = 0
    deadline = time.monotonic() + 120
    while rows_read < int(rows) and time.monotonic() < deadline:
        for raw in source.read(1.0):
            assert isinstance(raw, RawTable)
            decode([raw])
            rows_read, broken = rows_read + len(raw), broken + len(raw.broken)
    source.close()
    print(json.dumps({"rows": rows_read, "broken": broken, "peak": (memory("VmHWM") - before) >> 20}))


if __name__ == "__main__":
    main()
