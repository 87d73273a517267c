"""Run a command while every core has other work: a test that waits for a time, not for a condition, fails.

    python -m tests.bench.busy [--workers N] -- COMMAND …

Each worker spins in a process of its own, by default two for each core. They are stopped by their process
ids when the command has ended, and end by themselves where this process is killed. Its exit code is the
command's.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from tests.services.process import stop

_SPIN = "import os, sys\nwhile os.getppid() == int(sys.argv[1]): sum(range(1000))"


@contextmanager
def busy(workers: int) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Let `workers` processes spin inside the block."""
    spinning: list[subprocess.Popen[bytes]] = []
    try:
        words = [sys.executable, "-c", _SPIN, str(os.getpid())]
        spinning += (subprocess.Popen(words) for _ in range(workers))
        yield spinning
    finally:
        for process in spinning:
            stop(process)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; its exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--workers", type=int, default=2 * (os.cpu_count() or 1))
    parser.add_argument("command", nargs="+")
    options = parser.parse_args(arguments)
    with busy(options.workers):
        return subprocess.run(options.command, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
