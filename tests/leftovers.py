"""The check that no test leaves a process or a thread behind: it would take the cores from those that follow,
its `ResourceWarning` would fail one of them, and Hypothesis fails where a thread draws random numbers beside
it."""

from __future__ import annotations

import gc
import multiprocessing
import sys
import threading
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from tests.services.process import children, shared, shared_children, shared_threads

_SERVERS = (
    ("multiprocessing.forkserver", "_forkserver", "_forkserver_pid"),
    ("multiprocessing.resource_tracker", "_resource_tracker", "_pid"),
)
"""What `multiprocessing` starts once and keeps."""

_STAYING = ("asyncio_", "blindsight-render", "fsspecIO", "heap")
"""How the names of threads begin that wait for work without end: of pools that end once they are collected,
of fsspec, and of commands, which end with their process."""

_ENDS_SECONDS = 60.0
"""For a thread that waits for the end of a process that it has killed."""

_before: pytest.StashKey[set[int]] = pytest.StashKey()
_threads_before: pytest.StashKey[set[threading.Thread]] = pytest.StashKey()


def _kept() -> set[int]:
    servers = (getattr(getattr(sys.modules.get(name), of, None), pid, None) for name, of, pid in _SERVERS)
    return shared_children | {pid for pid in servers if pid is not None}


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[Any]) -> Generator[None, object, object]:
    if fixturedef.scope == "function":
        return (yield)
    with shared():
        return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, object, object]:
    item.stash[_before] = children()
    item.stash[_threads_before] = set(threading.enumerate())
    return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, object, object]:
    """Fail the test that leaves a process behind, once its fixtures have ended theirs."""
    result = yield
    if item.get_closest_marker("kafka"):
        gc.collect()  # what kafka-python forgot, while this test's filters hold
    deadline = time.monotonic() + _ENDS_SECONDS
    while (left := _left(item)) and time.monotonic() < deadline:
        time.sleep(0.05)
    if left:
        pytest.fail(f"{item.nodeid} leaves behind: {', '.join(left)}", pytrace=False)
    return result


def _left(item: pytest.Item) -> list[str]:
    multiprocessing.active_children()  # waits for those that have ended
    processes = children() - item.stash[_before] - _kept()
    threads = set(threading.enumerate()) - item.stash[_threads_before] - shared_threads
    names = sorted(each.name for each in threads if not each.name.startswith(_STAYING))
    return [*map(_words, sorted(processes)), *(f"thread {name}" for name in names)]


def _words(pid: int) -> str:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        words = ""
    return f"{pid} ({words[:200].strip() or 'ended, and not waited for'})"
