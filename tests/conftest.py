"""Fixtures for the real services, and the rule that in CI none of them may be missing."""

from __future__ import annotations

import gc
import importlib.util
import os
import re
import shutil
import ssl
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar
from unittest.mock import patch

import httpx
import pytest
from _pytest.doctest import DoctestModule
from httpx._transports import default as httpx_transports
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadFileScheduling

from monitor.cli.process import one_thread_for_matrices

with warnings.catch_warnings():
    # As in the commands, and before numpy is imported. Where tests keep all cores busy, two threads that wait
    # for each other take ten times the processor time of one.
    one_thread_for_matrices()
    # Where Python is told to keep no bytecode, each program that a test starts compiles all that it imports.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False
    # kafka-python 3.0 reads its schemas by a function that Python 3.11 deprecated and 3.13 took back.
    warnings.filterwarnings("ignore", "(read|open)_text is deprecated", DeprecationWarning)
    from connectors.kafka import KafkaSource
    from tests.services.kafka_broker import KafkaBroker, OldKafkaBroker
    from tests.services.kafka_reading import DRIVERS, Driver, make_source
from monitor.agent.refit_process import RefitWorker
from tests.daemon import DaemonProcess, command, run_module
from tests.services import fork_server
from tests.services.alertmanager_server import AlertmanagerServer
from tests.services.authority import OPENSSL, Authority
from tests.services.browser import Browser
from tests.services.fork_server import ForkedProcess
from tests.services.guarded_broker import GuardedBroker
from tests.services.postgres_server import PostgresServer
from tests.services.process import ServiceUnavailable, in_ci
from tests.services.prometheus_server import PrometheusServer
from tests.services.redis_server import RedisServer
from tests.services.spark_cluster import check_spark, one_java, short_lived
from tests.services.webhook import Webhook

Service = TypeVar("Service")

if importlib.util.find_spec("blindsight") is None:  # not installed, or by a version that had no such door
    sys.modules["blindsight"] = importlib.import_module("monitor.notebook.blindsight")

# The same examples in every run, and none fails because the machine was busy.
settings.register_profile(
    "seeded", derandomize=True, database=None, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("seeded")


@cache
def _usual_authorities(*_: str | None) -> ssl.SSLContext:
    return httpx.create_ssl_context()


def _authorities(verify: Any = True, cert: Any = None, trust_env: bool = True) -> ssl.SSLContext:
    """All authorities of the world, read once: a client of httpx reads them even for plain HTTP."""
    if verify is True and cert is None and trust_env:
        return _usual_authorities(os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR"))
    return httpx.create_ssl_context(verify, cert, trust_env)


httpx_transports.create_ssl_context = _authorities

NEEDS = {
    "browser": {"browser"},
    "kafka": {"kafka_broker", "new_kafka_broker", "guarded_broker", "old_kafka_broker"},
    "postgres": {"postgres_server"},
    "prometheus": {"prometheus", "alertmanager"},
    "redis": {"redis_server", "new_redis_server"},
    "shared_data": {"shared_data"},
    "spark": {"spark"},
}
"""Marker by marker, the fixtures that bring it: who uses one need not write the marker."""


PROGRAMS = {*NEEDS, "process"} - {"shared_data"}
"""Markers of tests that start programs or need services."""

PROGRAMS_END = 0.8
"""The part of a run in which files begin whose tests start programs: they take longer than the others."""

SHARING = ("tests/cli/demo/",)
"""Folders whose session fixtures take seconds: the flights of a year and the models trained on them."""

NO_DRIVER: Driver = "confluent"
"""Whose broker tests of Kafka take that read by no driver of ours."""

STARTERS = (subprocess, Authority, DaemonProcess, ForkedProcess, RefitWorker, command, run_module)
"""Who has one of these in a module starts programs; tests that do so in another way are marked `process`."""
FIGURES = Path(__file__).with_name("fidelity")
"""The tests of this folder are the short forms of its commands: simulations."""

_running: pytest.Item | None = None


def _keep_unit_tests_alone(event: str, details: tuple[Any, ...]) -> None:
    if event not in ("subprocess.Popen", "os.fork", "os.posix_spawn") or _running is None:
        return
    asks_for_cores = event == "subprocess.Popen" and details[0] == "lscpu"  # scikit-learn, as it trains
    if not _has_any(_running, PROGRAMS) and not asks_for_cores:
        pytest.fail(f"{_running.nodeid} starts a program: mark it with pytest.mark.process")


sys.addaudithook(_keep_unit_tests_alone)


def pytest_configure(config: pytest.Config) -> None:
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


def pytest_unconfigure() -> None:
    fork_server.end_server()


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """One a core, and one for each queue of a service, as it mostly waits; none for files that are named.

    Unit tests wait less, for files to settle and clients to be cut: one for them all.
    """
    if all(Path(each.split("::")[0]).is_file() for each in config.args):
        return 0  # workers take longer to start than most files to run
    waiting = 1 if config.getoption("markexpr") == "unit" else len({"spark", *DRIVERS})
    return (os.cpu_count() or 1) + waiting


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is imported and collected stays: nothing looks for garbage in it, now or between tests."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """No simulation is a unit test: their modules, and what these import, cost a worker a second."""
    return True if collection_path == FIGURES and config.getoption("markexpr") == "unit" else None


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(file_path: Path) -> Generator[None, list[pytest.Collector], list[pytest.Collector]]:
    """Of the tests' modules, only those with an example are searched for examples."""
    found = yield
    if any(isinstance(each, DoctestModule) for each in found) and ">>>" not in file_path.read_text("utf-8"):
        return [each for each in found if not isinstance(each, DoctestModule)]
    return found


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        for marker, fixtures in NEEDS.items():
            if fixtures & set(getattr(item, "fixturenames", ())):
                item.add_marker(marker)
        if item.get_closest_marker("kafka"):
            # On a busy machine kafka-python 3.0 also forgets connections that a rebalance or its end cuts.
            item.add_marker(pytest.mark.filterwarnings("ignore:unclosed <socket.socket:ResourceWarning"))
        if _starts_programs(_module_of(item)):
            item.add_marker("process")
        if FIGURES in item.path.parents:
            item.add_marker("simulation")
        if not _has_any(item, {*PROGRAMS, "simulation"}):
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
    """The service for which a test waits in line: its tests run in one worker, which starts it once."""
    file = nodeid.split("::")[0]
    if file.startswith("tests/connectors/spark/"):
        return "spark"
    for driver in DRIVERS:
        if re.search(rf"[\[-]{driver}[\]-]", nodeid):
            return driver
    return NO_DRIVER if _has_broker(file) else None


@cache
def _has_broker(file: str) -> bool:
    text = Path(__file__).parents[1].joinpath(file).read_text(encoding="utf-8")
    return any(fixture in text for fixture in NEEDS["kafka"])


class QueueScheduling(LoadFileScheduling):
    """Gives each queue of a service, each folder whose files share what is dear, and each other file to one
    worker."""

    def _split_scope(self, nodeid: str) -> str:
        shared = next((folder for folder in SHARING if nodeid.startswith(folder)), None)
        return _queue(nodeid) or shared or super()._split_scope(nodeid)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> QueueScheduling | None:
    return QueueScheduling(config, log) if config.getvalue("dist") == "loadfile" else None


def _has_any(item: pytest.Item, markers: Iterable[str]) -> bool:
    return not set(markers).isdisjoint(marker.name for marker in item.iter_markers())


def _module_of(item: pytest.Item) -> str:
    """The name of the module of a test, or of a docstring's examples."""
    if isinstance(item, pytest.Function):
        return item.module.__name__
    names: Mapping[str, object] = getattr(getattr(item, "dtest", None), "globs", {})
    return str(names.get("__name__", ""))


@cache
def _starts_programs(module: str) -> bool:
    names = vars(sys.modules[module]) if module in sys.modules else {}
    return any(value is starter for value in names.values() for starter in STARTERS)


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
    """Where `CI=true`, a test that skips because its service is missing has failed."""
    report = yield
    if report.skipped and in_ci() and any(item.get_closest_marker(marker) for marker in NEEDS):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        report.outcome = "failed"
        report.longrepr = f"{reason} (CI=true: what the services need must be there)"
    return report


@pytest.fixture(scope="session", params=DRIVERS)
def kafka_driver(request: pytest.FixtureRequest) -> Driver:
    """The client library that a test's Kafka sources read by; each such test runs with both."""
    driver: Driver = request.param
    return driver


@pytest.fixture(scope="session")
def kafka_brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[Driver], KafkaBroker]]:
    """A broker for the tests of each driver, started when the first asks."""
    with ExitStack() as stack:

        @cache
        def broker(driver: Driver) -> KafkaBroker:
            if OPENSSL is None:
                return stack.enter_context(_or_skip(KafkaBroker))
            authority = Authority(tmp_path_factory.mktemp("kafka") / "ca")
            return stack.enter_context(_or_skip(lambda: GuardedBroker(authority)))

        yield broker


@pytest.fixture
def kafka_broker(
    request: pytest.FixtureRequest, kafka_brokers: Callable[[Driver], KafkaBroker]
) -> KafkaBroker:
    """One Kafka broker for all tests of a driver; each takes topics and groups of its own."""
    driver = NO_DRIVER
    if "kafka_driver" in request.fixturenames:
        driver = request.getfixturevalue("kafka_driver")
    return kafka_brokers(driver)


@pytest.fixture
def guarded_broker(kafka_broker: KafkaBroker) -> GuardedBroker:
    """The same broker, for tests of its listeners that let in only whom they know."""
    if not isinstance(kafka_broker, GuardedBroker):
        pytest.skip("the openssl command is missing: it makes certificates")
    return kafka_broker


@pytest.fixture(scope="module")
def old_kafka_broker() -> Iterator[OldKafkaBroker]:
    """A Kafka broker whose topics have no ids."""
    with _or_skip(OldKafkaBroker) as broker:
        yield broker


@pytest.fixture
def new_kafka_broker() -> Iterator[Callable[[], KafkaBroker]]:
    """Makes brokers, not started yet, for one test to start late, kill and start again; then removes them."""
    with ExitStack() as stack:

        def new() -> KafkaBroker:
            broker = _or_skip(KafkaBroker)
            stack.callback(broker.close)
            return broker

        yield new


@pytest.fixture
def kafka_source(kafka_driver: Driver) -> Iterator[Callable[..., KafkaSource]]:
    """Makes Kafka sources over either library, not open yet, and closes them whatever the test comes to."""
    with ExitStack() as stack:

        def new(
            broker: str,
            *topics: str,
            driver: Driver = kafka_driver,
            group: str = "blindsight",
            **options: Any,
        ) -> KafkaSource:
            source = make_source(broker, *topics, driver=driver, group=group, **options)
            stack.callback(source.close)
            return source

        yield new


@pytest.fixture(scope="session")
def redis_server() -> Iterator[RedisServer]:
    """One Redis for all tests that take streams of their own."""
    with _or_skip(RedisServer) as server:
        yield server


@pytest.fixture
def new_redis_server() -> Iterator[Callable[..., RedisServer]]:
    """Starts Redis servers with these settings, for one test to kill and start again; then removes them."""
    with ExitStack() as stack:

        def new(*words: str, **more: Any) -> RedisServer:
            return stack.enter_context(_or_skip(lambda: RedisServer(*words, **more)))

        yield new


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """One PostgreSQL for all tests of a worker that take tables of their own."""
    with _or_skip(PostgresServer) as server:
        yield server


@pytest.fixture
def prometheus() -> Iterator[Callable[..., PrometheusServer]]:
    """Starts Prometheus servers that scrape the given targets, and stops them after the test."""
    with ExitStack() as stack:

        def new(targets: Sequence[str], **settings: Any) -> PrometheusServer:
            return stack.enter_context(_or_skip(lambda: PrometheusServer(targets, **settings)))

        yield new


@pytest.fixture
def alertmanager() -> Iterator[Callable[..., AlertmanagerServer]]:
    """Starts Alertmanagers with the given arguments, and stops them after the test."""
    with ExitStack() as stack:

        def new(config: str, **guarded: Any) -> AlertmanagerServer:
            return stack.enter_context(_or_skip(lambda: AlertmanagerServer(config, **guarded)))

        yield new


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """One Chromium for all tests of a worker; each opens tabs of its own."""
    with _or_skip(Browser) as started:
        yield started


@pytest.fixture(scope="session")
def spark_java() -> Iterator[None]:
    """One Java for all Sparks that the tests of a worker start in its own process."""
    _or_skip(check_spark)
    with patch.dict(os.environ, short_lived()), one_java():
        yield


@pytest.fixture
def spark(spark_java: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Spark can be started here; the sockets that it leaves to the garbage collector are collected."""
    monkeypatch.setattr("connectors.spark.session.end_java", lambda gateway: None)
    yield
    gc.collect()


@pytest.fixture
def webhook() -> Iterator[Webhook]:
    """Takes notifications."""
    with Webhook() as found:
        yield found


@pytest.fixture(scope="session")
def ppi() -> ModuleType:
    """`ppi_py`, as plain Python: numba takes eight seconds to compile what is called once."""
    with pytest.MonkeyPatch.context() as patched, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # importing it silences every warning of the process
        numba = pytest.importorskip("numba", reason="install the extra test")
        patched.setattr(numba.config, "DISABLE_JIT", True)
        found: ModuleType = pytest.importorskip("ppi_py", reason="install the extra test")
        return found


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of public data sets beside the repository."""
    folder = Path(__file__).resolve().parents[2] / "shared" / "data"
    if not folder.is_dir():
        pytest.skip("the data folder ../shared/data is not there")
    return folder


def _or_skip(make: Callable[[], Service]) -> Service:
    try:
        return make()
    except ServiceUnavailable as missing:
        pytest.skip(str(missing))
