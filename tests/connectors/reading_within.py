"""Reads a feed to its end within a bound of memory: a program that `test_edges_memory.py` starts.

Its words are a section of the configuration as JSON, how many records come, and how many MiB of address space
it may take beyond what it has once the source is open; then, where posts rest in a database, the address of
that and a schema. It prints the port of a source that is posted to, and
in the end, as JSON, how many records came and how many MiB it needed at most beyond those at the start.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from pathlib import Path

from connectors.build import build_source
from monitor.base.errors import BlindsightError
from monitor.base.registry import SOURCES, load
from monitor.base.source import EndOfSource, records_in
from monitor.base.spool import Spools
from monitor.store.postgres import PostgresDatabase, PostgresStore
from monitor.store.spool_table import SpoolTable
from tests.connectors.cases import LAYOUT

_MIB = 1 << 20
_SECONDS = 300  # then it prints what has come, for the test to say what is missing


def status(name: str) -> int:
    """Return a line of the system's status of this process, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(f"{name}:"))


def spool_in(dsn: str, schema: str) -> Spools:
    """Keep posts in a database."""
    store = PostgresStore(PostgresDatabase(dsn, schema), lease_seconds=_SECONDS)
    return lambda name, max_bytes: SpoolTable(store, name, max_bytes)


def main(section: str, count: str, mib: str, *database: str) -> None:
    """Read."""
    settings = json.loads(section)
    spool = spool_in(*database) if database else None
    source = build_source(load(SOURCES[settings["kind"]].section)(**settings), [LAYOUT], spool)
    source.open({})
    room = status("VmSize") + int(mib) * _MIB
    resource.setrlimit(resource.RLIMIT_AS, (room, room))
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    before, records_read, errors = status("VmRSS"), 0, []
    while not source.up:
        records_read += sum(
            map(records_in, source.read(0.2))
        )  # the read that shows it to be up may bring records
    print(getattr(source, "port", 0), flush=True)
    deadline = time.monotonic() + _SECONDS
    while records_read < int(count) and time.monotonic() < deadline:
        try:
            for raw in source.read(0.2):
                records_read += records_in(raw)
                source.acknowledge({raw.partition: raw.after})
        except EndOfSource:
            break
        except BlindsightError as error:
            errors.append(str(error))
    peak = (status("VmHWM") - before) / _MIB
    print(json.dumps({"records": records_read, "peak": peak, "errors": errors[:3]}), flush=True)
    source.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
