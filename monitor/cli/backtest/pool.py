"""The processes of a backtest, which share its replays and end with the main process."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import active_children, get_all_start_methods, get_context, parent_process
from pathlib import Path
from typing import Any, TypeVar

from monitor.base.collector import tune_collector
from monitor.base.errors import ClusterError, ConfigError
from monitor.cli.process import cores, one_heap

_BYTES_WORTH_PROCESSES = 4 << 20

_Job = TypeVar("_Job")
_Result = TypeVar("_Result")


def processes_for(files: Sequence[Path], requested: int | None) -> int:
    """Return the number of processes: the requested one, or by default the cores, and one for small files.

    Raises
    ------
    ConfigError
        The requested number is out of range.
    """
    if requested is not None:
        if not 1 <= requested <= 1024:
            raise ConfigError(
                f"--processes: expected 1 to 1024, got {requested}; leave it out for as many as there are "
                "cores"
            )
        return requested
    return cores() if sum(path.stat().st_size for path in files) >= _BYTES_WORTH_PROCESSES else 1


def run_jobs(function: Callable[[_Job], _Result], jobs: Sequence[_Job], processes: int) -> list[_Result]:
    """Return the result of each job, in the order of the jobs, computed in this process or in several.

    Parameters
    ----------
    function : callable
        A function of a module, which other processes can import.
    jobs : sequence
    processes : int

    Raises
    ------
    ClusterError
        A process ended before its work was complete.
    """
    if processes == 1 or len(jobs) <= 1:
        return [function(job) for job in jobs]
    method = "forkserver" if "forkserver" in get_all_start_methods() else "spawn"
    context: Any = get_context(method)
    with ProcessPoolExecutor(min(processes, len(jobs)), context, _begin_process) as pool:
        try:
            return list(pool.map(function, jobs))
        except BrokenProcessPool as error:
            raise ClusterError(
                "a process of the backtest ended before its work was complete; perhaps it needed too much "
                "memory: run it again with --processes 1"
            ) from error
        except BaseException:
            for process in active_children():  # the executor would wait for the end of their replays
                process.kill()
            raise


def _begin_process() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes; the main one ends this one
    threading.Thread(target=_end_with_parent, daemon=True).start()
    one_heap()
    tune_collector()


def _end_with_parent() -> None:
    """End this process when the main one was killed. Its queue would not say so, as all workers hold it."""
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
