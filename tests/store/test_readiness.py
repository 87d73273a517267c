"""`/-/ready` where nothing can be saved or taken, though nothing comes: it says so, and when that is over."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from secrets import token_hex

import httpx
import numpy as np
import psycopg
import pytest

from monitor.agent import checkpoints
from monitor.agent.checkpoints import CheckpointWriter
from monitor.store import Store
from tests.accounting import assert_adds_up
from tests.daemon import DaemonProcess, configuration
from tests.services.postgres_server import PostgresServer
from tests.services.process import PATIENCE_SECONDS, free_ports, wait_until
from tests.streams import Record, answers

SAYS_SECONDS = 30.0
RECORDS: list[Record] = answers(np.random.default_rng(3), 200)


@contextmanager
def standing(server: PostgresServer, schema: str) -> Iterator[None]:
    with server.frozen():
        yield


@contextmanager
def only_reading(server: PostgresServer, schema: str) -> Iterator[None]:
    """Sessions that begin inside the block only read, also after it."""
    database = "ALTER DATABASE postgres SET default_transaction_read_only"
    server.execute(f"{database} = on")
    end_sessions(server)
    try:
        yield
    finally:
        with psycopg.connect(server.dsn, autocommit=True) as connection:
            connection.execute("SET default_transaction_read_only = off")
            connection.execute(f"{database} = off")


@contextmanager
def locked(server: PostgresServer, schema: str) -> Iterator[None]:
    with server.connection() as connection:
        connection.execute(f"LOCK TABLE {schema}.spool IN ACCESS EXCLUSIVE MODE".encode())
        yield


@contextmanager
def away(server: PostgresServer, schema: str) -> Iterator[None]:
    server.execute(f"ALTER TABLE {schema}.spool RENAME TO elsewhere")
    yield
    server.execute(f"ALTER TABLE {schema}.elsewhere RENAME TO spool")


def end_sessions(server: PostgresServer) -> None:
    server.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'blindsight'"
    )


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (standing, "has not answered for|under way for"),
        (only_reading, "read-only transaction"),
        (locked, "lock timeout"),
        (away, "its tables are gone"),
    ],
    ids=lambda each: getattr(each, "__name__", "told"),
)
def test_what_keeps_a_database_from_being_written_is_told_without_traffic_and_passes(
    postgres_server: PostgresServer, tmp_path: Path, fault: object, reason: str
) -> None:
    (port,) = free_ports(1)
    schema = f"ready_{token_hex(4)}"
    config = configuration(
        sources=[{"kind": "http", "listen": f"127.0.0.1:{port}"}],
        store={"postgres": postgres_server.dsn, "prefix": schema, "every_seconds": 0.2},
        reports={"path": "windows.ndjson"},
    )

    def post(records: list[Record]) -> int:
        url = f"http://127.0.0.1:{port}/v1/predictions"
        return httpx.post(url, json=records, timeout=PATIENCE_SECONDS).status_code

    def is_ready(status: int) -> bool:
        return daemon.get("/-/ready")[0] == status

    with DaemonProcess(tmp_path, config) as daemon:
        daemon.until(lambda: is_ready(200), "it is ready")
        assert post(RECORDS[:100]) == 202
        daemon.until_used(100)
        with fault(postgres_server, schema):  # type: ignore[operator]
            began = time.monotonic()
            daemon.until(lambda: is_ready(503), "it says that it is not ready")
            assert time.monotonic() - began < SAYS_SECONDS
            daemon.until(lambda: re.search(reason, daemon.get("/-/ready")[1]), "it says why")
        daemon.until(lambda: is_ready(200), "it is ready again, by itself")
        assert post(RECORDS[100:]) == 202
        daemon.until_used(200)
        assert_adds_up(daemon, sent=200)
        assert daemon.end()[0] == 0
        assert "Traceback" not in daemon.log


@pytest.mark.parametrize("fault", [standing, locked])
def test_a_post_waits_for_a_database_that_does_not_answer_no_longer_than_its_limit(
    postgres_server: PostgresServer, tmp_path: Path, fault: object
) -> None:
    (port,) = free_ports(1)
    schema = f"limit_{token_hex(4)}"
    config = configuration(
        sources=[{"kind": "http", "listen": f"127.0.0.1:{port}"}],
        store={"postgres": postgres_server.dsn, "prefix": schema, "every_seconds": 0.2},
    )
    url = f"http://127.0.0.1:{port}/v1/predictions"
    with DaemonProcess(tmp_path, config) as daemon:
        daemon.until_value(1, "source_up", source="http")
        with fault(postgres_server, schema):  # type: ignore[operator]
            began = time.monotonic()
            answer = httpx.post(url, json=RECORDS[:100], timeout=PATIENCE_SECONDS)
            assert (answer.status_code, time.monotonic() - began < SAYS_SECONDS) == (503, True)
        # Who was refused sends the same again.
        wait_until(
            lambda: httpx.post(url, json=RECORDS[:100], timeout=PATIENCE_SECONDS).status_code == 202,
            "it is taken",
        )
        daemon.until_used(100)
        assert_adds_up(daemon, sent=100)
        assert daemon.end()[0] == 0


def test_a_renewal_that_stands_still_is_told_though_there_is_nothing_to_save(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints, "_SLOW_SECONDS", 0.05)
    store, leave = Store(tmp_path / "state"), threading.Event()
    monkeypatch.setattr(store, "renew", lambda: leave.wait(PATIENCE_SECONDS))
    monkeypatch.setattr(store, "renew_seconds", 0.02, raising=False)
    keeper = CheckpointWriter(store)
    keeper.start()
    wait_until(lambda: keeper.failing, "it is told", pause=0.01)
    assert keeper.failing == "the store has not answered for 0 s"
    leave.set()
    wait_until(lambda: keeper.failing is None, "it has answered", pause=0.01)
    keeper.close(PATIENCE_SECONDS)
