"""The fixtures of all tests: the real services, each started when the first test needs it."""

from __future__ import annotations

import gc
import os
import ssl
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar
from unittest.mock import patch

import httpx
import pytest
from httpx._config import DEFAULT_TIMEOUT_CONFIG
from httpx._transports import default as httpx_transports

from connectors.kafka import KafkaSource
from tests.fidelity.ssme import scores_file
from tests.services.alertmanager_server import AlertmanagerServer
from tests.services.authority import OPENSSL, Authority
from tests.services.browser import Browser
from tests.services.guarded_broker import GuardedBroker
from tests.services.kafka_broker import KafkaBroker, OldKafkaBroker
from tests.services.kafka_reading import make_source
from tests.services.postgres_server import PostgresServer
from tests.services.process import DRIVERS, NO_DRIVER, PATIENCE_SECONDS, Driver, ServiceUnavailable
from tests.services.prometheus_server import PrometheusServer
from tests.services.redis_server import RedisServer
from tests.services.spark_cluster import check_spark, one_java, short_lived
from tests.services.webhook import Webhook

Service = TypeVar("Service")


@cache
def _usual_authorities(*_: str | None) -> ssl.SSLContext:
    return httpx.create_ssl_context()


def _authorities(verify: Any = True, cert: Any = None, trust_env: bool = True) -> ssl.SSLContext:
    """Return all authorities of the world, read once: a client of httpx reads them even for plain HTTP."""
    if verify is True and cert is None and trust_env:
        return _usual_authorities(os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR"))
    return httpx.create_ssl_context(verify, cert, trust_env)


httpx_transports.create_ssl_context = _authorities
for _waits_for in ("connect", "read", "write", "pool"):  # five seconds, where a test says nothing else
    setattr(DEFAULT_TIMEOUT_CONFIG, _waits_for, PATIENCE_SECONDS)


@pytest.fixture(scope="session", params=DRIVERS)
def kafka_driver(request: pytest.FixtureRequest) -> Driver:
    """Return the client library that a test's Kafka sources read by; each such test runs with both."""
    driver: Driver = request.param
    return driver


@pytest.fixture(scope="session")
def kafka_brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[Driver], KafkaBroker]]:
    """Yield a broker for the tests of each driver, started when the first asks."""
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
    """Return one Kafka broker for all tests of a driver; each takes topics and groups of its own."""
    driver = NO_DRIVER
    if "kafka_driver" in request.fixturenames:
        driver = request.getfixturevalue("kafka_driver")
    return kafka_brokers(driver)


@pytest.fixture
def guarded_broker(kafka_broker: KafkaBroker) -> GuardedBroker:
    """Return the same broker, for tests of its listeners that let in only known clients."""
    if not isinstance(kafka_broker, GuardedBroker):
        pytest.skip("the openssl command is missing: it makes certificates")
    return kafka_broker


@pytest.fixture(scope="module")
def old_kafka_broker() -> Iterator[OldKafkaBroker]:
    """Yield a Kafka broker whose topics have no ids."""
    with _or_skip(OldKafkaBroker) as broker:
        yield broker


@pytest.fixture
def new_kafka_broker() -> Iterator[Callable[[], KafkaBroker]]:
    """Yield a function that makes brokers, not started yet, for one test to start and kill; then remove
    them.
    """
    with ExitStack() as stack:

        def new() -> KafkaBroker:
            broker = _or_skip(KafkaBroker)
            stack.callback(broker.close)
            return broker

        yield new


@pytest.fixture
def kafka_source(kafka_driver: Driver) -> Iterator[Callable[..., KafkaSource]]:
    """Yield a function that makes Kafka sources over either library, not open yet; close them after the
    test.
    """
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
    """Yield one Redis for all tests that take streams of their own."""
    with _or_skip(RedisServer) as server:
        yield server


@pytest.fixture
def new_redis_server() -> Iterator[Callable[..., RedisServer]]:
    """Yield a function that starts Redis servers with these settings, for one test to kill; then remove
    them.
    """
    with ExitStack() as stack:

        def new(*words: str, **more: Any) -> RedisServer:
            return stack.enter_context(_or_skip(lambda: RedisServer(*words, **more)))

        yield new


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """Yield one PostgreSQL for all tests of a worker that take tables of their own."""
    with _or_skip(PostgresServer) as server:
        yield server


@pytest.fixture
def prometheus() -> Iterator[Callable[..., PrometheusServer]]:
    """Yield a function that starts Prometheus servers that scrape the given targets; stop them after the
    test.
    """
    with ExitStack() as stack:

        def new(targets: Sequence[str], **settings: Any) -> PrometheusServer:
            return stack.enter_context(_or_skip(lambda: PrometheusServer(targets, **settings)))

        yield new


@pytest.fixture
def alertmanager() -> Iterator[Callable[..., AlertmanagerServer]]:
    """Yield a function that starts Alertmanagers with the given arguments; stop them after the test."""
    with ExitStack() as stack:

        def new(config: str, **guarded: Any) -> AlertmanagerServer:
            return stack.enter_context(_or_skip(lambda: AlertmanagerServer(config, **guarded)))

        yield new


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Yield one Chromium for all tests of a worker; each opens tabs of its own."""
    with _or_skip(Browser) as started:
        yield started


@pytest.fixture(scope="session")
def spark_java() -> Iterator[None]:
    """Yield one Java for all Sparks that the tests of a worker start in its own process."""
    _or_skip(check_spark)
    with patch.dict(os.environ, short_lived()), one_java():
        yield


@pytest.fixture
def spark(spark_java: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Prepare the start of Spark; the garbage collector collects the sockets that it leaves."""
    monkeypatch.setattr("connectors.spark.session.end_java", lambda gateway: None)
    yield
    gc.collect()


@pytest.fixture
def webhook() -> Iterator[Webhook]:
    """Yield a server that takes notifications."""
    with Webhook() as receiver:
        yield receiver


@pytest.fixture(scope="session")
def ppi() -> ModuleType:
    """Return `ppi_py`, as plain Python: numba takes eight seconds to compile a function called once."""
    with pytest.MonkeyPatch.context() as patched, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # importing it silences every warning of the process
        numba = pytest.importorskip("numba", reason="install the extra test")
        patched.setattr(numba.config, "DISABLE_JIT", True)
        module: ModuleType = pytest.importorskip("ppi_py", reason="install the extra test")
        return module


@pytest.fixture(scope="session")
def civilcomments_file() -> Path:
    """Return the scores of civilcomments (`tests.fidelity.ssme.scores_file`)."""
    if scores_file.VARIABLE not in os.environ:
        pytest.skip(scores_file.MISSING)
    return scores_file.find_file()


def _or_skip(make: Callable[[], Service]) -> Service:
    try:
        return make()
    except ServiceUnavailable as missing:
        pytest.skip(str(missing))
