"""The choice of unit tests and of their workers, and the rule that in CI no service may be missing."""

from __future__ import annotations

import gc
import os
import re
import shutil
import signal
import sys
import tempfile
import warnings
from collections.abc import Generator, Iterable
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from _pytest.doctest import DoctestModule
from xdist.scheduler import LoadFileScheduling

from monitor.cli.process import one_thread_for_matrices
from tests.services import fork_server
from tests.services.process import DRIVERS, NO_DRIVER, in_ci

# As in the commands, and before numpy is imported. Where tests keep all cores busy, two threads that wait
# for each other take ten times the processor time of one.
one_thread_for_matrices()
# Where Python is told to keep no bytecode, each program that a test starts compiles all that it imports.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
# A shell that runs a job in the background has it ignore SIGINT, and so would all programs that tests start.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

NEEDS = {
    "browser": {"browser"},
    "kafka": {"kafka_broker", "new_kafka_broker", "guarded_broker", "old_kafka_broker"},
    "postgres": {"postgres_server"},
    "prometheus": {"prometheus", "alertmanager"},
    "redis": {"redis_server", "new_redis_server"},
    "civilcomments": {"civilcomments_file"},
    "spark": {"spark"},
}
"""Marker by marker, the fixtures that bring it: who uses one need not write the marker."""


EXCUSED = {"civilcomments"} | ({"spark"} if sys.version_info >= (3, 14) else set())
"""Markers of tests that may skip in CI: the scores are not part of this repository, and pyspark 4.0 needs a
pyarrow that has no wheel for Python 3.14."""

PROGRAMS = {*NEEDS, "process"} - {"civilcomments"}
"""Markers of tests that start programs or need services."""

UNIT_PARTS = ("unit", "unit or slow")
"""What `-m` selects of tests that start nothing: all that are quick, or all."""

PROGRAMS_END = 0.8
"""The part of a run in which files begin whose tests start programs: they take longer than the others."""

SHARING = ("tests/cli/demo/",)
"""Folders whose session fixtures take seconds: the flights of a year and the models trained on them."""

STARTERS = {
    "monitor.agent.refit_process": {"RefitWorker"},
    "tests.daemon": {"DaemonProcess", "command", "run_module"},
    "tests.services.authority": {"Authority"},
    "tests.services.fork_server": {"ForkedProcess"},
}
"""A module that imports one of these, or `subprocess`, starts programs; tests that do so in another way are
marked `process`."""

MEMORY = Path("/dev/shm")
MOST_FILES_BYTES = 2 << 30
"""Ten times what all unit tests leave."""

_IMPORTS = re.compile(
    rf"^(?:import subprocess$|from ({'|'.join(map(re.escape, STARTERS))}) import (\([^)]*\)|.*))",
    re.MULTILINE,
)
_MARKED = re.compile(
    rf"^pytestmark = pytest\.mark\.({'|'.join((*sorted(PROGRAMS), 'simulation'))})$", re.MULTILINE
)
TESTS = Path(__file__).parent
FIGURES = TESTS / "fidelity"
"""The tests of this folder are the short forms of its commands: simulations."""

_running: pytest.Item | None = None


def _keep_unit_tests_alone(event: str, details: tuple[Any, ...]) -> None:
    if event not in ("subprocess.Popen", "os.fork", "os.posix_spawn") or _running is None:
        return
    asks_for_cores = event == "subprocess.Popen" and details[0] == "lscpu"  # scikit-learn, as it trains
    if not _has_any(_running, PROGRAMS) and not asks_for_cores:
        pytest.fail(f"{_running.nodeid} starts a program: mark it with pytest.mark.process")


sys.addaudithook(_keep_unit_tests_alone)


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    _keep_files_in_memory(config)
    if config.pluginmanager.hasplugin("dsession"):
        return  # it hands the tests to workers, and needs nothing of what they import
    config.pluginmanager.import_plugin("tests.fixtures")
    config.pluginmanager.import_plugin("tests.leftovers")
    config.pluginmanager.import_plugin("tests.limits")
    from tests import examples

    examples.begin(unit=_is_unit_part(config))
    # What jax has compiled for one fit serves the next, here and in the programs that tests start. A folder
    # for each worker: jax writes into it without a lock.
    compiled = tempfile.mkdtemp(prefix="blindsight-jax-")
    config.add_cleanup(lambda: shutil.rmtree(compiled, ignore_errors=True))
    os.environ["JAX_COMPILATION_CACHE_DIR"] = compiled
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
    os.environ["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "-1"
    os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "1"  # compiling small fits takes longer than they do
    fork_server.enabled = hasattr(os, "pidfd_open")  # Linux
    # kafka-python 3.0 leaves sockets that could not connect, or shake hands, to the garbage collector.
    for unclosed in (r"<socket.socket .*laddr=\('0.0.0.0'", "<ssl.SSLSocket "):
        config.addinivalue_line("filterwarnings", f"ignore:unclosed {unclosed}:ResourceWarning")
        # pytest collects a last time once all tests are done, when only filters of this moment hold.
        warnings.filterwarnings("ignore", f"unclosed {unclosed}", ResourceWarning)


def _is_unit_part(config: pytest.Config) -> bool:
    return config.getoption("markexpr") in UNIT_PARTS


def _keep_files_in_memory(config: pytest.Config) -> None:
    """Keep the files of unit tests in memory where it has room, until the run ends; they sync thousands,
    and none needs to outlive a power cut. `--basetemp FOLDER` keeps them elsewhere, and for longer.
    """
    if not _is_unit_part(config) or config.getoption("basetemp"):
        return  # so in each worker
    if MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > MOST_FILES_BYTES:
        folder = tempfile.mkdtemp(prefix="blindsight-unit-", dir=MEMORY)
        config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
        os.environ["PYTEST_DEBUG_TEMPROOT"] = folder


def pytest_unconfigure() -> None:
    fork_server.end_server()


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Return one worker a core, and one for each queue of a service; none for files that are named.

    Unit tests wait less, for files to settle and clients to be cut: one for them all.
    """
    if all(Path(each.split("::")[0]).is_file() for each in config.args):
        return 0  # workers take longer to start than most files to run
    waiting = 1 if _is_unit_part(config) else len({"spark", *DRIVERS})
    return (os.cpu_count() or 1) + waiting


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Freeze the imported and collected objects: the garbage collector ignores them now and between tests."""
    gc.disable()
    try:
        _import_own_share(session.config)
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def _import_own_share(config: pytest.Config) -> None:
    """Import a worker's own share of the modules first: in a fresh clone all workers would compile the
    same one at the same moment.
    """
    worker: dict[str, Any] | None = getattr(config, "workerinput", None)
    if worker is None or {Path(each).name for each in config.args} != {*config.getini("testpaths")}:
        return
    first, count = int(worker["workerid"].removeprefix("gw")), worker["workercount"]
    for path in sorted(TESTS.rglob("test_*.py"))[first::count]:
        if not pytest_ignore_collect(path, config):
            with suppress(Exception, pytest.skip.Exception):  # it is told where the module is collected
                import_module(".".join(path.relative_to(TESTS.parent).with_suffix("").parts))


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Ignore modules without a unit test, whose imports would cost each worker seconds."""
    if not _is_unit_part(config):
        return None
    if FIGURES in (collection_path, *collection_path.parents):
        return True
    return True if collection_path.suffix == ".py" and _none_is_unit(collection_path) else None


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(file_path: Path) -> Generator[None, list[pytest.Collector], list[pytest.Collector]]:
    """Search only those test modules for examples that have one."""
    collectors = yield
    if any(isinstance(each, DoctestModule) for each in collectors) and ">>>" not in _text(file_path):
        return [each for each in collectors if not isinstance(each, DoctestModule)]
    return collectors


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        for marker, fixtures in NEEDS.items():
            if fixtures & set(getattr(item, "fixturenames", ())):
                item.add_marker(marker)
        if item.get_closest_marker("kafka"):
            # On a busy machine kafka-python 3.0 also forgets connections that a rebalance or its end cuts.
            item.add_marker(pytest.mark.filterwarnings("ignore:unclosed <socket.socket:ResourceWarning"))
        if _starts_programs(item.path):
            item.add_marker("process")
        if FIGURES in item.path.parents:
            item.add_marker("simulation")
        if not _has_any(item, {*PROGRAMS, "simulation", "slow"}):
            item.add_marker("unit")
    _mix(items)


def _mix(items: list[pytest.Item]) -> None:
    """Order the tests: queues of services first, then files that start programs beside files that compute."""
    files: dict[bool, dict[Path, None]] = {True: {}, False: {}}
    for item in items:
        files[_has_any(item, PROGRAMS)][item.path] = None
    place = {
        path: number / len(of_kind) * (PROGRAMS_END if starts else 1)
        for starts, of_kind in files.items()
        for number, path in enumerate(of_kind)
    }
    items.sort(key=lambda item: -1 if _queue(item.nodeid) else place[item.path])


def _queue(nodeid: str) -> str | None:
    """Return the service for which a test waits in line: its tests run in one worker, which starts it
    once.
    """
    file = nodeid.split("::")[0]
    if file.startswith("tests/connectors/spark/"):
        return "spark"
    for driver in DRIVERS:
        if re.search(rf"[\[-]{driver}[\]-]", nodeid):
            return driver
    return NO_DRIVER if _has_broker(file) else None


@cache
def _has_broker(file: str) -> bool:
    text = _text(TESTS.parent / file)
    return any(word in text for word in (*NEEDS["kafka"], "tests.connectors.cases"))


class QueueScheduling(LoadFileScheduling):
    """A scheduler by queue: a queue of a service, a folder with a costly fixture, or another file is one
    worker's.
    """

    def _split_scope(self, nodeid: str) -> str:
        shared = next((folder for folder in SHARING if nodeid.startswith(folder)), None)
        return _queue(nodeid) or shared or super()._split_scope(nodeid)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> QueueScheduling | None:
    return QueueScheduling(config, log) if config.getvalue("dist") == "loadfile" else None


def _has_any(item: pytest.Item, markers: Iterable[str]) -> bool:
    return not set(markers).isdisjoint(marker.name for marker in item.iter_markers())


@cache
def _starts_programs(module: Path) -> bool:
    imports = _IMPORTS.finditer(_text(module))
    return any(
        each[1] is None or STARTERS[each[1]].intersection(re.findall(r"\w+", each[2])) for each in imports
    )


def _none_is_unit(module: Path) -> bool:
    return _starts_programs(module) or _MARKED.search(_text(module)) is not None


@cache
def _text(module: Path) -> str:
    return module.read_text(encoding="utf-8")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    global _running
    _running = item
    try:
        return (yield)
    finally:
        _running = None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Fail a test that skips because its service is missing, where `CI=true`."""
    report = yield
    if report.skipped and in_ci() and _has_any(item, NEEDS.keys() - EXCUSED):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        report.outcome = "failed"
        report.longrepr = f"{reason} (CI=true: what the services need must be there)"
    return report
