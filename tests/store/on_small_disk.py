"""A store on a file system of its own, within a mount namespace: really full, really read-only.

    unshare -rm python -m tests.store.on_small_disk FOLDER full|read_only

Prints what happened, as JSON.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np

from monitor.base.errors import StoreError
from monitor.base.state_changes import assembled
from monitor.store import Store
from tests.streams import Rig, answers

BYTES = 6 << 20
FILLER = 4 << 20


def commit(store: Store, rig: Rig, step: int) -> str:
    """One checkpoint; what was said where it failed."""
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
    said = [commit(store, rig, step) for step in range(40)]
    filler.unlink()
    mount(folder, "-o", "remount,size=64m")
    said.append(commit(store, rig, 40))
    store.close()
    return said


def read_only(store: Store, rig: Rig, folder: Path) -> list[str]:
    """A checkpoint; a start on the same file system once it is mounted read-only, and a checkpoint after."""
    said = [commit(store, rig, 0)]
    store.close()
    mount(folder, "-o", "remount,ro")
    try:
        Store(folder / "state")
    except StoreError as error:
        said.append(str(error))
    mount(folder, "-o", "remount,rw")
    store = Store(folder / "state")
    said.append(commit(store, rig, 1))
    store.close()
    return said


def main() -> None:
    folder, how = Path(sys.argv[1]), sys.argv[2]
    mount(folder, "-t", "tmpfs", "-o", f"size={BYTES}", "tmpfs")
    rig, store = Rig(), Store(folder / "state")
    said = {"full": full, "read_only": read_only}[how](store, rig, folder)
    again = Store(folder / "state")
    saved = again.load()
    whole = rig.settings.build(assembled(saved.parts, saved.rings)).view() == rig.engine.view()
    again.close()
    print(json.dumps({"said": said, "whole": whole}))


if __name__ == "__main__":
    main()
