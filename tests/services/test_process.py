"""Waiting on a busy machine, and processes and threads that a test leaves behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from tests import limits
from tests.daemon import ROOT
from tests.services import process
from tests.services.process import children, end_of, shared, shared_children, stop, wait_until

SLEEP = [sys.executable, "-c", "import time; time.sleep(600)"]


def test_a_limit_is_longer_where_more_programs_want_a_core(monkeypatch: pytest.MonkeyPatch) -> None:
    began = time.monotonic()
    with pytest.raises(AssertionError, match="s in vain until it is so"):
        wait_until(lambda: False, "it is so", pause=0.01, seconds=0.1)
    monkeypatch.setattr(process, "programs_a_core", lambda: 1e6)
    wait_until(lambda: time.monotonic() > began + 0.5, "it is so", pause=0.01, seconds=0.1)


def test_a_process_is_waited_for_as_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "programs_a_core", lambda: 1.0)
    sleeping = subprocess.Popen(SLEEP)
    with pytest.raises(subprocess.TimeoutExpired):
        end_of(sleeping, 0.01)
    stop(sleeping, kill=True)
    monkeypatch.setattr(process, "programs_a_core", lambda: 1e6)
    with subprocess.Popen([sys.executable, "-c", "raise SystemExit(3)"]) as ending:
        assert end_of(ending, 0.001) == 3


def test_the_alarm_of_a_test_is_put_off_while_the_machine_is_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    failed: list[int] = []
    put_off: list[float] = []
    monkeypatch.setattr(limits.signal, "setitimer", lambda which, seconds: put_off.append(seconds))
    due = limits.extended(lambda number, frame: failed.append(number), 60.0)
    monkeypatch.setattr(limits, "programs_a_core", lambda: 10.0)
    due(signal.SIGALRM, None)
    assert failed == []
    assert put_off == [pytest.approx(600, abs=60)]
    monkeypatch.setattr(limits, "programs_a_core", lambda: 0.0)
    due(signal.SIGALRM, None)
    assert failed == [signal.SIGALRM]


def test_children_are_those_that_nobody_has_waited_for() -> None:
    before = children()
    with shared():
        kept = subprocess.Popen(SLEEP)
    assert children() - before == {kept.pid}
    assert kept.pid in shared_children
    kept.kill()
    wait_until(lambda: process.gone(kept.pid), "it has ended")
    assert children() - before == {kept.pid}, "nobody has asked how it ended"
    kept.wait()
    assert children() == before


def test_a_test_that_leaves_a_process_or_a_thread_behind_fails_and_not_the_next(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(
        "import tests.leftovers\ntests.leftovers._ENDS_SECONDS = 0.1\npytest_plugins = ['tests.leftovers']\n"
    )
    (tmp_path / "test_some.py").write_text(
        textwrap.dedent(
            f"""
            import subprocess
            import threading
            import pytest

            started = []
            end = threading.Event()

            @pytest.fixture(scope="module")
            def service():
                with subprocess.Popen({SLEEP!r}) as found:
                    yield found
                    found.kill()

            def test_leaves_one():
                started.append(subprocess.Popen({SLEEP!r}))

            def test_leaves_a_thread():
                threading.Thread(target=end.wait, name="forgotten").start()

            def test_has_a_service(service):
                pass

            def test_ends_what_it_starts(service):
                end.set()
                started[0].kill()
                started[0].wait()
            """
        )
    )
    words = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", "--rootdir", str(tmp_path)]
    done = subprocess.run(
        [*words, "-c", "/dev/null", str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert {"4 passed", "2 errors"} <= {*done.stdout.splitlines()[-1].partition(" in ")[0].split(", ")}, done
    assert "test_some.py::test_leaves_one leaves behind: " in done.stdout
    assert "time.sleep(600)" in done.stdout
    assert "test_some.py::test_leaves_a_thread leaves behind: thread forgotten" in done.stdout
