"""The worker process: real children, killed, hung, hungry, babbling; whatever it is, a job is answered."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from msgspec.structs import replace

from monitor.agent import refit_process
from monitor.agent.refit_child import NICENESS
from monitor.agent.refit_process import ProcessLimits, RefitWorker
from monitor.engine.refit.fit import refit
from tests.daemon import ROOT
from tests.engine.refit.jobs import job
from tests.services.process import PATIENCE_SECONDS, gone, shared, wait_until

PLENTY = ProcessLimits(PATIENCE_SECONDS, 1e9)
LONG = job(rows=20_000, labelled=2_000, models=7, metrics=("accuracy", "ece", "auroc"))
"""Takes many seconds."""


@pytest.fixture(scope="module")
def worker_of_module() -> Iterator[RefitWorker]:
    with RefitWorker() as worker:
        yield worker
    assert worker.pid is None


@pytest.fixture
def worker(worker_of_module: RefitWorker) -> Iterator[RefitWorker]:
    """One for the module: what a test does to its child, the next must not notice."""
    with shared():
        yield worker_of_module


def reapable(pid: int) -> bool:
    """Return whether a process is dead with all its threads, later than a zombie: only then its parent can
    tell.
    """
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def test_it_answers_what_the_fit_answers_here(worker: RefitWorker) -> None:
    result = worker.run(job(), PLENTY)
    assert result.seconds > 0
    assert replace(result, seconds=0.0) == refit(job())


def test_the_child_stays_between_jobs_and_yields_to_others(worker: RefitWorker) -> None:
    worker.run(job(rows=0), PLENTY)
    pid = worker.pid
    assert pid is not None
    assert os.getpriority(os.PRIO_PROCESS, pid) == min(os.getpriority(os.PRIO_PROCESS, 0) + NICENESS, 19)
    environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    assert {b"OPENBLAS_NUM_THREADS=1", b"NPROC=1"} <= set(environment)
    worker.run(job(rows=0), PLENTY)
    assert worker.pid == pid


def test_a_child_that_died_between_two_jobs_costs_nobody_anything(worker: RefitWorker) -> None:
    worker.run(job(rows=0), PLENTY)
    before = worker.pid
    assert before is not None
    os.kill(before, signal.SIGKILL)
    wait_until(lambda: reapable(before), "it is dead")
    assert worker.run(job(rows=0), PLENTY).refused == "ssme: no rows"
    assert worker.pid != before


def test_a_child_killed_at_work_is_a_refusal_and_the_next_job_gets_another(worker: RefitWorker) -> None:
    worker.run(job(rows=0), PLENTY)
    before = worker.pid
    assert before is not None
    killer = threading.Timer(0.5, os.kill, (before, signal.SIGKILL))
    killer.start()
    result = worker.run(LONG, PLENTY)
    killer.join()
    assert result.refused == (
        "the worker process was killed (signal 9: by hand, or by the system for want of memory)"
    )
    assert (result.task, result.number, result.rows, result.labelled) == ("t", 7, 20_000, 2_000)
    assert worker.run(job(rows=0), PLENTY).refused == "ssme: no rows"
    assert worker.pid != before


def test_a_refit_beyond_its_time_is_refused_and_its_child_ended(worker: RefitWorker) -> None:
    worker.run(job(rows=0), PLENTY)
    before = worker.pid
    assert before is not None
    result = worker.run(LONG, ProcessLimits(0.5, 1e9))
    assert result.refused == (
        "the refit took longer than the 0.5 s that ssme.seconds allows; raise it, or lower ssme.max_rows"
    )
    assert worker.pid is None
    assert gone(before)
    assert worker.run(job(rows=0), PLENTY).refused == "ssme: no rows"


def test_a_child_that_is_stopped_counts_as_one_that_hangs(worker: RefitWorker) -> None:
    worker.run(job(rows=0), PLENTY)
    before = worker.pid
    assert before is not None
    os.kill(before, signal.SIGSTOP)
    assert "took longer than the 0.3 s" in str(worker.run(LONG, ProcessLimits(0.3, 1e9)).refused)
    assert gone(before)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the limit counts from what /proc says")
def test_a_refit_beyond_its_memory_is_refused_by_the_child_itself(worker: RefitWorker) -> None:
    worker.run(job(rows=0), PLENTY)
    before = worker.pid
    result = worker.run(LONG, ProcessLimits(PATIENCE_SECONDS, 2e6))
    assert result.refused == (
        "the refit needed more than the 2,000,000 bytes of memory that ssme.memory_bytes allows; raise it, "
        "or lower ssme.max_rows"
    )
    assert worker.run(job(), PLENTY).refused is None, "the limit is each job's own"
    assert worker.pid == before


WITHIN_100_MB = """
import mmap
import numpy as np
from monitor.agent import refit_process
from monitor.agent.refit_child import limit_memory

with limit_memory(100e6):
    held = mmap.mmap(-1, 1 << 30, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, mmap.PROT_READ)
    np.zeros(80_000_000, dtype=np.int8)
    try:
        np.zeros(120_000_000, dtype=np.int8)
    except MemoryError:
        print("refused")
np.zeros(120_000_000, dtype=np.int8)
print("allowed again")
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the limit counts from what /proc says")
def test_the_limit_counts_memory_that_is_written_to_not_what_is_mapped_or_reserved() -> None:
    """jax maps and reserves some four times what it fills: by address space it had no fit within 1 GB."""
    done = subprocess.run(
        [sys.executable, "-c", WITHIN_100_MB], capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert done.stdout.split("\n") == ["refused", "allowed again", ""], done.stderr


SAYING = "import sys, time\nsay = lambda b: (sys.stdout.buffer.write(b), sys.stdout.flush())\n"


@pytest.mark.parametrize(
    ("program", "refused"),
    [
        ("import sys; sys.exit(3)", "the worker process ended with exit code 3 before it answered"),
        ("import os; os.abort()", "the worker process ended by signal 6 before it answered"),
        (
            SAYING + "say(b'Traceback, of all things'); sys.stdin.read()",
            "the worker's answer is not a result (6,",
        ),
        (
            SAYING + "say(bytes(7) + b'\\x03abc'); sys.stdin.read()",
            "the worker's answer is not a result (a stored state cannot be read",
        ),
        (
            SAYING + "say(bytes(7) + b'\\x01\\x80'); sys.stdin.read()",
            "the worker's answer is not a result (this is no result of a refit: Object missing",
        ),
        (
            SAYING + "while True: say(bytes(1)), time.sleep(0.1)",
            "the refit took longer than the 0.3 s",
        ),
    ],
    ids=["exits", "aborts", "prints", "babbles", "empty", "drips"],
)
def test_a_child_that_is_no_worker_is_a_refusal(program: str, refused: str) -> None:
    with RefitWorker(("-c", program)) as worker:
        limits = ProcessLimits(0.3 if "took longer" in refused else PATIENCE_SECONDS, 1e9)
        refusal = str(worker.run(job(), limits).refused)
        assert refusal.startswith(refused)
        assert worker.pid is None


def test_the_answer_to_another_job_is_no_answer() -> None:
    program = (
        "import sys; from monitor.agent.refit_child import *\n"
        "from monitor.engine.refit.job import RefitResult\n"
        "read_frame(sys.stdin.buffer)\n"
        "write_frame(sys.stdout.buffer, result_to_bytes(RefitResult('t', 6, 0, 0.0)))\n"
        "sys.stdin.read()"
    )
    with RefitWorker(("-c", program)) as worker:
        refusal = worker.run(job(), PLENTY).refused
    assert refusal == "the worker answered refit 6 of t, asked for refit 7 of t"


def test_a_process_that_cannot_be_started_is_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with RefitWorker() as worker:
        refusal = str(worker.run(job(), PLENTY).refused)
    assert refusal.startswith("the worker process could not be started ([Errno 2]")


@pytest.mark.filterwarnings("ignore:subprocess .* is still running:ResourceWarning")
def test_a_child_that_takes_long_to_end_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine a killed process may wait seconds for a core."""
    monkeypatch.setattr(refit_process, "_ENDS_SECONDS", 0.0)
    with RefitWorker() as worker:
        worker.run(job(rows=0), PLENTY)
        pid = worker.pid
        assert pid is not None
    assert worker.pid is None
    wait_until(lambda: gone(pid), "it has ended")
    with suppress(ChildProcessError):
        os.waitpid(pid, 0)  # as the next start of a process would


def test_what_a_library_prints_does_not_stand_between_two_answers() -> None:
    program = (
        "import monitor.agent.refit_child as c\nfit = c.answer\n"
        "c.answer = lambda j: (print('hello'), fit(j))[1]\nc.main()"
    )
    with RefitWorker(("-c", program)) as worker:
        assert worker.run(job(rows=0), PLENTY).refused == "ssme: no rows"
        assert worker.run(job(rows=1, labelled=0), PLENTY).refused == "ssme: too few rows"


def test_the_child_ends_when_the_agent_is_killed() -> None:
    program = (
        "from monitor.agent.refit_process import *\n"
        "from tests.agent.test_refit_process import LONG, PLENTY, job\n"
        "w = RefitWorker(); w.run(job(rows=0), PLENTY); print(w.pid, flush=True); w.run(LONG, PLENTY)"
    )
    agent = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, cwd=ROOT)
    try:
        assert agent.stdout is not None
        child = int(agent.stdout.readline())
        time.sleep(0.5)  # in the midst of the long job
        assert not gone(child)
    finally:
        agent.kill()
        agent.communicate()
    wait_until(lambda: gone(child), "the child has noticed")


def test_the_child_lets_the_agent_hear_of_ctrl_c(worker: RefitWorker) -> None:
    worker.run(job(rows=0), PLENTY)
    before = worker.pid
    assert before is not None
    os.kill(before, signal.SIGINT)
    assert worker.run(job(rows=0), PLENTY).refused == "ssme: no rows"
    assert worker.pid == before
