"""Rotates a file that a real daemon follows, while it is down or stopped, and counts what came of each line.

    python -m tests.faults.rotations [cases] [kills] [--kills 100] [--kills-a-file 20] [--seed 0]

`cases` are the rotations that an agent may meet. In `kills` a writer adds lines all the while and rotates the
file in one way or another, some of them two at once; the daemon is killed (SIGKILL) or stopped (SIGSTOP) and
goes on, over and over. Each line must be used once, and no gap counted.
"""

from __future__ import annotations

import gzip
import json
import os
import random
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import reduce
from operator import add
from pathlib import Path
from typing import Any

from tests.accounting import Accounts, accounts, assert_adds_up
from tests.daemon import DaemonProcess, configuration
from tests.harness import run


@dataclass(frozen=True, slots=True)
class Found:
    """The account of the lines of a file."""

    sent: int
    used: int
    duplicates: int
    gaps: int
    metrics: Accounts

    def row(self, name: str) -> str:
        """Return a line of the table."""
        return f"{name:<52}{self.sent:>9,}{self.used:>9,}{self.duplicates:>12,}{self.gaps:>6,}"


_HEAD = f"{'':<52}{'lines':>9}{'used':>9}{'duplicate':>12}{'gaps':>6}"


class Log:
    """A file of records that a model writes and something rotates.

    Parameters
    ----------
    folder : Path
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / "p.ndjson"
        self.path.touch()
        self.sent = 0

    def write(self, count: int) -> None:
        """Add `count` lines."""
        with self.path.open("ab") as file:
            file.write(b"".join(map(_line, range(self.sent, self.sent + count))))
        self.sent += count

    def rename(self) -> None:
        """Rename the file, as logrotate's `create` does."""
        time.sleep(0.01)  # the clock of a file system moves in steps of some milliseconds
        self._make_room()
        self.path.rename(f"{self.path}.1")
        self.path.touch()

    def copy_and_cut(self) -> None:
        """Copy the file and cut it, as logrotate's `copytruncate` does."""
        time.sleep(0.01)  # the clock of a file system moves in steps of some milliseconds
        self._make_room()
        shutil.copyfile(self.path, f"{self.path}.1")
        os.truncate(self.path, 0)

    def rename_and_compress(self) -> None:
        """Rename the file and compress it, as logrotate's `create` with `compress` does."""
        self.rename()
        plain = Path(f"{self.path}.1")
        now = plain.stat()
        packed = Path(f"{plain}.gz")
        packed.write_bytes(gzip.compress(plain.read_bytes(), 1))
        os.utime(packed, ns=(now.st_atime_ns, now.st_mtime_ns))
        plain.unlink()

    def _make_room(self) -> None:
        by_number = {}
        for name in os.listdir(self.path.parent):
            number = name.removeprefix(f"{self.path.name}.").removesuffix(".gz")
            if name != number and number.isdigit():
                by_number[int(number)] = name
        for number in sorted(by_number, reverse=True):
            old = self.path.parent / by_number[number]
            old.rename(f"{self.path}.{number + 1}{old.suffix if old.suffix == '.gz' else ''}")


def _line(number: int) -> bytes:
    score = 0.5 + 0.49 * ((number * 7919) % 1000) / 1000
    scores = [round(1 - score, 4), round(score, 4)]
    return json.dumps({"id": f"r{number}", "model": "erm", "scores": scores}).encode() + b"\n"


def _config(log: Log) -> dict[str, Any]:
    return configuration(
        sources=[{"kind": "file", "path": str(log.path), "follow": True}],
        store={"path": "store", "every_seconds": 0.05},
    )


def _used(counted: Accounts) -> int:
    return counted.answers.parts["used"] + counted.answers.parts["pending"]


def _until_used(daemon: DaemonProcess, count: int) -> None:
    try:
        daemon.until(lambda: _used(accounts(daemon.metrics())) >= count, f"{count} lines are used", pause=0.1)
    except AssertionError as error:
        raise AssertionError(f"{error}\n{accounts(daemon.metrics())}") from None


def _finished(daemon: DaemonProcess, sent: int, used: int) -> Found:
    """Return the account once `used` lines were used, and nothing more came for a while."""
    _until_used(daemon, used)
    time.sleep(1.5)
    scrape = assert_adds_up(daemon)
    counted, gaps = accounts(scrape), int(scrape.total("source_gap_records_total"))
    return Found(sent, _used(counted), counted.answers.parts["duplicate"], gaps, counted)


Rotated = Callable[[Log], int]
"""Writes and rotates while the daemon does not read; how many lines are gone for good."""


def _rotated_once(log: Log) -> int:
    log.write(2600)
    log.rename()
    log.write(2100)
    return 0


def _copied_and_cut(log: Log) -> int:
    log.write(1400)
    log.copy_and_cut()
    log.write(1100)
    return 0


def _renamed_twice(log: Log) -> int:
    for count in (1000, 1000):
        log.write(count)
        log.rename()
    log.write(400)
    return 0


def _compressed(log: Log) -> int:
    log.write(900)
    log.rename_and_compress()
    log.write(100)
    return 0


def _deleted(log: Log) -> int:
    log.write(900)
    log.rename()
    log.write(100)
    Path(f"{log.path}.1").unlink()
    return 900


def _cut(log: Log) -> int:
    log.write(900)
    os.truncate(log.path, 0)
    log.write(100)
    return 900


CASES: dict[str, tuple[int, bool, Rotated]] = {
    "rotated while the agent is down": (4400, True, _rotated_once),
    "copied and cut in a stall": (3100, False, _copied_and_cut),
    "renamed twice in a stall": (4600, False, _renamed_twice),
    "rotated and compressed while the agent is down": (1000, True, _compressed),
    "copied and cut while the agent is down": (1000, True, _copied_and_cut),
    "cut without a copy in a stall": (1000, False, _cut),
    "rotated and deleted while the agent is down": (1000, True, _deleted),
}
"""By name: lines used before, whether the daemon is killed or only stopped, and what happens then."""


def case(folder: Path, name: str) -> Found:
    """Return one rotation; what the daemon counted."""
    first, is_down, rotate = CASES[name]
    log = Log(folder)
    log.write(first)
    with DaemonProcess(folder, _config(log)) as daemon:
        _until_used(daemon, first)
        daemon.until(lambda: (folder / "store").exists(), "there is a store")
        if is_down:
            assert daemon.end()[0] == 0, daemon.log
        else:
            daemon.send(signal.SIGSTOP)
        gone = rotate(log)
        if not is_down:
            daemon.send(signal.SIGCONT)
            return _finished(daemon, log.sent, log.sent - gone)
    with DaemonProcess(folder, _config(log)) as daemon:
        return _finished(daemon, log.sent, log.sent - gone)


def killed(folder: Path, kills: int, seed: int) -> Found:
    """Return kills and stalls while lines come and the file is rotated."""
    moments = random.Random(seed)
    log = Log(folder)
    log.write(100)
    with DaemonProcess(folder, _config(log)) as daemon:  # a first start knows nothing of rotated files
        _until_used(daemon, log.sent)
        assert daemon.end()[0] == 0, daemon.log
    ended = threading.Event()
    writer = threading.Thread(target=write_and_rotate, args=(log, ended, random.Random(seed + 1)))
    writer.start()
    try:
        for _ in range(kills):
            with DaemonProcess(folder, _config(log)) as daemon:  # leaving it kills it
                if moments.random() < 0.8:
                    daemon.until(lambda daemon=daemon: "Running" in daemon.log, "it runs")  # type: ignore[misc]
                if moments.random() < 0.3:
                    daemon.send(signal.SIGSTOP)
                    time.sleep(moments.uniform(0.0, 0.5))
                    daemon.send(signal.SIGCONT)
                time.sleep(moments.uniform(0.0, 1.0))
    finally:
        ended.set()
        writer.join()
    with DaemonProcess(folder, _config(log)) as daemon:
        return _finished(daemon, log.sent, log.sent)


def write_and_rotate(
    log: Log, ended: threading.Event, choices: random.Random, longest_pause: float = 0.1
) -> None:
    """Add lines and rotate in one way or another until told to stop."""
    ways = (log.rename, log.copy_and_cut, log.rename_and_compress)
    while not ended.is_set():
        for _ in range(choices.choice((0, 0, 0, 0, 1, 1, 2))):
            log.write(choices.randint(0, 300))
            choices.choice(ways)()
        log.write(choices.randint(0, 100))
        time.sleep(choices.uniform(0.0, longest_pause))


def cases() -> Iterator[str]:
    """Yield the rotations one by one."""
    yield _HEAD
    counted = []
    for name in CASES:
        with tempfile.TemporaryDirectory() as folder:
            result = case(Path(folder), name)
        counted.append(result.metrics)
        yield result.row(name)
    yield str(reduce(add, counted))


def kills(kills: int = 100, kills_a_file: int = 20, seed: int = 0) -> Iterator[str]:
    """Yield rotations at random moments; a new file after some kills, as no rotated one is removed."""
    yield _HEAD
    counted = []
    for first in range(0, kills, kills_a_file):
        count = min(kills_a_file, kills - first)
        with tempfile.TemporaryDirectory() as folder:
            result = killed(Path(folder), count, seed + first)
        counted.append(result.metrics)
        yield result.row(f"{count} kills, rotated all the while")
    yield str(reduce(add, counted))


if __name__ == "__main__":
    run({"cases": cases, "kills": kills})
