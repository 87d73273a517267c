"""The script that keeps the cores busy: it spins, hands the exit code on, and leaves nothing behind."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from tests.bench.busy import busy, main
from tests.bench.paced_daemon import processor_seconds
from tests.daemon import ROOT
from tests.services.process import wait_until
from tests.services.spark_cluster import words_of


def test_workers_spin_inside_the_block_and_are_gone_outside() -> None:
    with busy(2) as spinning:
        wait_until(lambda: all(processor_seconds(each.pid) > 0.2 for each in spinning), "both spin")
    assert [each.returncode for each in spinning] == [-signal.SIGTERM] * 2


def test_the_commands_exit_code_is_handed_on() -> None:
    assert main(["--workers", "1", "--", sys.executable, "-c", "raise SystemExit(3)"]) == 3


def test_workers_end_by_themselves_where_the_script_is_killed() -> None:
    words = [sys.executable, "-m", "tests.bench.busy", "--workers", "1", "--", "sleep", "600"]
    with subprocess.Popen(words, cwd=ROOT) as script:
        children = Path(f"/proc/{script.pid}/task/{script.pid}/children")
        wait_until(lambda: len(children.read_text().split()) == 2, "the worker and the command run")
        worker, command = map(int, children.read_text().split())
        script.kill()
    wait_until(lambda: not words_of(worker), "the worker has ended")
    subprocess.run(["kill", str(command)], check=True)
