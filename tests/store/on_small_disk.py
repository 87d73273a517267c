"""A store, or a reports file, on a file system of its own in a mount namespace: really full or read-only.

    unshare -rm python -m tests.store.on_small_disk FOLDER full|read_only|reports|queued_reports

Prints what happened, as JSON.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np

from monitor.base.errors import SinkError, StoreError
from monitor.base.state_changes import assemble
from monitor.export.sinks.destination import Destination, Item, Row
from monitor.export.sinks.line_file import LineFile
from monitor.export.sinks.reports_file import ReportsFile
from monitor.store import Store
from tests.streams import Rig, answers

BYTES = 6 << 20
FILLER = 4 << 20
PAGE = os.sysconf("SC_PAGE_SIZE")
STUMP = b"{" + b"x" * (PAGE - 1)  # its newline needs a page of its own
LINES = [b'{"window":%d,"x":"%s"}\n' % (number, b"x" * (PAGE * 2 // 3)) for number in range(6)]
ROWS: list[Row] = [(number, line.rstrip()) for number, line in enumerate(LINES, start=1)]


def commit(store: Store, rig: Rig, step: int) -> str:
    """Commit one checkpoint; return the error where it failed."""
    reports = rig.feed(answers(np.random.default_rng(step), 2000, start=1.7e9 + 1e5 * step))
    try:
        store.commit(rig.engine.changes(), reports)
    except StoreError as error:
        rig.engine.retract()
        return str(error)
    rig.engine.confirm()
    return ""


def mount(folder: Path, *words: str) -> None:
    subprocess.run(["mount", *words, str(folder)], check=True, capture_output=True)


def full(store: Store, rig: Rig, folder: Path) -> list[str]:
    """Checkpoints until there is no room; one more once there is."""
    filler = folder / "filler"
    filler.write_bytes(bytes(FILLER))
    messages = [commit(store, rig, step) for step in range(40)]
    filler.unlink()
    mount(folder, "-o", "remount,size=64m")
    messages.append(commit(store, rig, 40))
    store.close()
    return messages


def read_only(store: Store, rig: Rig, folder: Path) -> list[str]:
    """Return a checkpoint; a start on the same file system once it is mounted read-only, and a checkpoint
    after.
    """
    messages = [commit(store, rig, 0)]
    store.close()
    mount(folder, "-o", "remount,ro")
    try:
        Store(folder / "state")
    except StoreError as error:
        messages.append(str(error))
    mount(folder, "-o", "remount,rw")
    store = Store(folder / "state")
    messages.append(commit(store, rig, 1))
    store.close()
    return messages


def deliver(file: Destination[Item], rows: Sequence[Item]) -> str:
    """Append all rows; return the error where some could not be written."""
    done = 0
    try:
        while done < len(rows):
            done += file.deliver(rows[done:])
    except SinkError as error:
        return f"{done}: {error}"
    return ""


def append(file: Destination[Item], rows: Sequence[Item], folder: Path) -> list[str]:
    """Behind a partial line on a full device: no room, room for a window and a half, enough."""
    path = folder / "windows.ndjson"
    path.write_bytes(STUMP)
    with (folder / "filler").open("wb", buffering=0) as filler, suppress(OSError):
        while filler.write(bytes(PAGE)):
            pass
    file.open()
    messages = [deliver(file, rows)]
    assert path.read_bytes() == STUMP, "not even its newline had room"
    os.truncate(folder / "filler", (folder / "filler").stat().st_size - PAGE)
    messages.append(deliver(file, rows))
    assert path.read_bytes().endswith(b"\n"), "what was cut short is gone"
    done = path.read_bytes().count(b"\n") - 1
    (folder / "filler").unlink()
    messages.append(deliver(file, rows[done:]))
    file.close(0.0)
    assert path.read_bytes() == STUMP + b"\n" + b"".join(LINES), "each once, and the partial line ends"
    return messages


def reports(store: Store, rig: Rig, folder: Path) -> list[str]:
    """Return the file that follows the store."""
    store.close()
    return append(ReportsFile(str(folder / "windows.ndjson")), ROWS, folder)


def queued_reports(store: Store, rig: Rig, folder: Path) -> list[str]:
    """Return the file of an agent without a store."""
    store.close()
    path = str(folder / "windows.ndjson")
    file = LineFile[bytes](path, name="reports_file", setting="reports.path", encode=bytes)
    return append(file, LINES, folder)


def main() -> None:
    folder, how = Path(sys.argv[1]), sys.argv[2]
    mount(folder, "-t", "tmpfs", "-o", f"size={BYTES}", "tmpfs")
    rig, store = Rig(), Store(folder / "state")
    case = {"full": full, "read_only": read_only, "reports": reports, "queued_reports": queued_reports}[how]
    messages = case(store, rig, folder)
    again = Store(folder / "state")
    saved = again.load()
    whole = rig.settings.build(assemble(saved.parts, saved.rings)).view() == rig.engine.view()
    again.close()
    print(json.dumps({"said": messages, "whole": whole}))


if __name__ == "__main__":
    main()
