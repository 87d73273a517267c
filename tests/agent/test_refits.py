"""Refits beside the engine: nothing waits for them, and every job is answered."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from msgspec.structs import replace

from monitor.agent.refit_process import ProcessLimits, RefitWorker
from monitor.agent.refits import Refitter
from monitor.engine.refit.fit import refit
from monitor.engine.refit.job import RefitJob, RefitResult
from tests.engine.refit.jobs import job
from tests.services.process import PATIENCE_SECONDS, wait_until


class Refitted:
    """An engine with due jobs that keeps each published result."""

    def __init__(self) -> None:
        self.due: list[RefitJob] = []
        self.published: list[tuple[RefitResult, float]] = []

    def refits(self) -> list[RefitJob]:
        due, self.due = self.due, []
        return due

    def publish(self, result: RefitResult, now: float) -> bool:
        self.published.append((result, now))
        return True


class Gated:
    """A worker that waits at its gate, and then does what it is told to."""

    def __init__(self, error: Exception | None = None) -> None:
        self.gate = threading.Event()
        self.error = error
        self.limits: list[ProcessLimits] = []
        self.closed = False

    def run(self, job: RefitJob, limits: ProcessLimits) -> RefitResult:
        self.limits.append(limits)
        assert self.gate.wait(PATIENCE_SECONDS)
        if self.error is not None:
            raise self.error
        return RefitResult(job.task, job.number, job.sequence, job.time, refused="no", seconds=2.0)

    def kill(self) -> None:
        self.gate.set()

    def close(self) -> None:
        self.closed = True


def limits_of(task: str) -> ProcessLimits:
    return ProcessLimits({"t": 30.0}.get(task, 5.0), 1e9)


@pytest.fixture
def refitted() -> Refitted:
    return Refitted()


def started(
    worker: RefitWorker | Gated, limits: Callable[[str], ProcessLimits] = limits_of
) -> Iterator[Refitter]:
    refitter = Refitter(worker, limits)
    refitter.start()
    yield refitter
    refitter.stop()


@pytest.fixture
def gated() -> Gated:
    return Gated()


@pytest.fixture
def refitter(gated: Gated) -> Iterator[Refitter]:
    yield from started(gated)


@pytest.fixture
def real() -> Iterator[tuple[Refitter, RefitWorker]]:
    worker = RefitWorker()
    patient = ProcessLimits(10 * PATIENCE_SECONDS, 1e9)  # a child on busy cores takes more than half a minute
    for refitter in started(worker, lambda task: patient):
        yield refitter, worker
    assert worker.pid is None


def until_published(refitter: Refitter, refitted: Refitted, count: int) -> None:
    def is_published() -> bool:
        refitter.step(refitted, 12.0)
        return len(refitted.published) >= count

    wait_until(is_published, f"{count} results are published")


def test_a_step_waits_for_no_refit(refitter: Refitter, gated: Gated, refitted: Refitted) -> None:
    refitted.due = [job(number=1), job(number=2, task="u")]
    refitter.step(refitted, 10.0)  # the worker waits at its gate: had the step waited, it would not return
    refitter.step(refitted, 11.0)
    assert refitted.published == []
    gated.gate.set()
    until_published(refitter, refitted, 2)
    assert [(r.task, r.number, now) for r, now in refitted.published] == [("t", 1, 12.0), ("u", 2, 12.0)]
    assert [limits.seconds for limits in gated.limits] == [30.0, 5.0]
    assert {task: (sum(d.counts), d.seconds) for task, d in refitter.durations.items()} == {
        "t": (1, 2.0),
        "u": (1, 2.0),
    }


def test_a_refusal_is_logged(
    refitter: Refitter, gated: Gated, refitted: Refitted, caplog: pytest.LogCaptureFixture
) -> None:
    gated.gate.set()
    refitted.due = [job(number=9)]
    until_published(refitter, refitted, 1)
    assert "tasks.t: refit 9 was refused, the last good one stays in use: no." in caplog.text


def test_an_error_of_our_own_is_a_refusal_and_not_the_end(
    refitter: Refitter, gated: Gated, refitted: Refitted
) -> None:
    gated.error = ZeroDivisionError("0 of 0")
    gated.gate.set()
    refitted.due = [job(number=1), job(number=2)]
    until_published(refitter, refitted, 2)
    assert [r.refused for r, _ in refitted.published] == [
        "the refit could not be run (ZeroDivisionError: 0 of 0)"
    ] * 2


def test_stopping_waits_for_no_refit_and_drops_it(gated: Gated, refitted: Refitted) -> None:
    refitter = Refitter(gated, limits_of)
    refitter.start()
    refitted.due = [job(number=1), job(number=2)]
    refitter.step(refitted, 10.0)
    wait_until(lambda: len(gated.limits) == 1, "the first job runs")
    refitter.stop()
    assert gated.closed
    refitter.step(refitted, 11.0)
    assert (refitted.published, len(gated.limits)) == ([], 1)


def test_with_a_real_worker_that_is_killed_the_next_refit_is_good(
    real: tuple[Refitter, RefitWorker], refitted: Refitted
) -> None:
    refitter, worker = real
    refitted.due = [job(rows=20_000, labelled=2_000, models=7, number=1)]
    refitter.step(refitted, 10.0)
    wait_until(lambda: worker.pid is not None, "the child runs")
    time.sleep(0.3)
    os.kill(worker.pid or 0, signal.SIGKILL)
    until_published(refitter, refitted, 1)
    refitted.due = [job(number=2)]
    until_published(refitter, refitted, 2)
    lost, good = (result for result, _ in refitted.published)
    assert str(lost.refused).startswith("the worker process was killed (signal 9")
    assert replace(good, seconds=0.0) == refit(job(number=2))


def test_stopping_ends_the_child_at_work(refitted: Refitted) -> None:
    worker = RefitWorker()
    refitter = Refitter(worker, limits_of)
    refitter.start()
    refitted.due = [job(rows=20_000, labelled=2_000, models=7)]
    refitter.step(refitted, 10.0)
    wait_until(lambda: worker.pid is not None, "the child runs")
    child = worker.pid
    refitter.stop()
    assert worker.pid is None
    with pytest.raises(ProcessLookupError):
        os.kill(child or 0, 0)
