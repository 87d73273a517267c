"""A backtest that a signal ends leaves no process behind, and no folder that the next one does not remove."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest

from monitor.cli.backtest.scratch import scratch_folder
from tests.daemon import configuration, ndjson, write_configuration
from tests.services.process import PATIENCE_SECONDS, descendants, stop, wait_until
from tests.streams import answers

TINY_DROPS = [word for tenths in range(1, 9) for word in ("--drop", f"0.{tenths}")]
"""Drops that no chart detects soon, so that each injected replay reads the file to its end."""


@pytest.mark.parametrize("ended_by", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_a_signal_ends_every_process_of_a_backtest(
    tmp_path: Path, ended_by: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = answers(np.random.default_rng(5), 40_000, start=1.7e9, labelled=True)
    (tmp_path / "in.ndjson").write_bytes(ndjson(rows))
    write_configuration(tmp_path, configuration())
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    words = ["backtest", "config.yaml", "in.ndjson", "--processes", "2", *TINY_DROPS]
    process = subprocess.Popen(
        [sys.executable, "-m", "monitor.cli", *words],
        cwd=tmp_path,
        env={**os.environ, "TMPDIR": str(temporary), "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    try:
        # The main process, the servers of forks and of shared resources, and two processes that replay.
        wait_until(lambda: len(descendants(process.pid)) == 5 or process.poll() is not None, "both replay")
        process.send_signal(ended_by)
        output, _ = process.communicate(timeout=PATIENCE_SECONDS)  # until every process has closed its output
    finally:
        stop(process, kill=True)
    expected = {signal.SIGTERM: 143, signal.SIGINT: 130, signal.SIGKILL: -9}
    assert process.returncode == expected[ended_by], output.decode()

    def left() -> list[Path]:
        return sorted(temporary.glob("blindsight-backtest-*"))

    assert len(left()) == (ended_by == signal.SIGKILL)
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    with scratch_folder() as first, scratch_folder() as second:
        assert left() == sorted([first, second]), "the folder of a killed backtest is removed"
    assert not left()
