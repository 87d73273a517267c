"""The short form of the kills over PostgreSQL, one with transactions that commit late, and its restart."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path
from secrets import token_hex
from typing import Any

import numpy as np
import psycopg
import pytest

from tests.accounting import accounts, assert_adds_up
from tests.daemon import DaemonProcess, configuration, ndjson
from tests.faults.sql_kills import compare
from tests.services.postgres_server import PostgresServer
from tests.services.process import wait_until
from tests.streams import answers

ANSWERS = answers(np.random.default_rng(1), 600, start=time.time() // 1 - 1000)


@pytest.mark.parametrize("kind", ["classification", "regression"])
def test_a_daemon_killed_over_a_table_writes_what_one_left_alone_writes(
    postgres_server: PostgresServer, tmp_path: Path, kind: str
) -> None:
    name = f"kills_{token_hex(4)}"
    result = compare(postgres_server, tmp_path, name, records=6_000, kills=2, seed=0, kind=kind)
    assert result.kills >= 1
    assert result.account.windows > 80


def config(folder: Path, server: PostgresServer, name: str) -> dict[str, Any]:
    """Return answers from a file, and their labels from a new table."""
    (folder / "answers.ndjson").write_bytes(ndjson(ANSWERS))
    columns = "id text, label text, updated_at timestamptz DEFAULT now()"
    server.execute(f"CREATE TABLE {name} ({columns})")
    rest = {"cursor": "updated_at", "poll_seconds": 0.05}
    return configuration(
        sources=[
            {"kind": "file", "path": "answers.ndjson", "follow": True},
            {"kind": "sql", "dsn": server.dsn, "table": name, **rest},
        ],
        store={"path": "state", "every_seconds": 0.02},
        reports={"path": "windows.ndjson"},
    )


def label(connection: psycopg.Connection[Any], name: str, ids: Iterator[str], count: int) -> None:
    """Insert labels of the next ids, without committing them."""
    for _ in range(count):
        row = (next(ids), "ok")
        connection.execute(f"INSERT INTO {name} (id, label) VALUES (%s, %s)".encode(), row)


def test_labels_that_commit_out_of_order_are_joined_once_over_kills(
    postgres_server: PostgresServer, tmp_path: Path
) -> None:
    name = f"late_{token_hex(4)}"
    settings = config(tmp_path, postgres_server, name)
    ids = (str(record["id"]) for record in ANSWERS)
    moments = random.Random(3)
    with postgres_server.connection() as slow, postgres_server.connection() as quick:
        for _ in range(2):
            label(slow, name, ids, 50)  # its time is that of its first statement
            with DaemonProcess(tmp_path, settings) as daemon:  # leaving it kills it
                daemon.until(lambda daemon=daemon: "Running" in daemon.log, "it runs")  # type: ignore[misc]
                for _ in range(5):
                    label(quick, name, ids, 20)
                    quick.commit()
                    time.sleep(moments.uniform(0.0, 0.1))
                slow.commit()
                time.sleep(moments.uniform(0.0, 0.2))
    with DaemonProcess(tmp_path, settings) as daemon:
        daemon.until_value(300, "labels_total", task="t", outcome="matched")
        daemon.until_value(0, "labels_waiting", task="t")
        balance = accounts(assert_adds_up(daemon))
        assert daemon.metrics().value("labels_received_total", source=name) == 300, "none twice"
        assert daemon.metrics().value("source_gap_records_total", source=name) == 0
        assert balance.received == len(ANSWERS) + 300
        assert daemon.end()[0] == 0


def test_a_database_that_restarts_makes_the_agent_unready_and_loses_no_label(
    postgres_server: PostgresServer, tmp_path: Path
) -> None:
    name = f"restart_{token_hex(4)}"
    settings = config(tmp_path, postgres_server, name)
    ids = (str(record["id"]) for record in ANSWERS)
    with postgres_server.connection() as connection:
        label(connection, name, ids, 30)
    with DaemonProcess(tmp_path, settings) as daemon:
        daemon.until_value(30, "labels_total", task="t", outcome="matched")
        postgres_server.halt()
        try:
            daemon.until_value(0, "source_up", source=name)
            wait_until(lambda: daemon.get("/-/ready")[0] == 503, "it is not ready")
            reason = daemon.get("/-/ready")[1]
            assert f"Source {name} is not connected: Database by psycopg, table {name}: " in reason
        finally:
            postgres_server.start()
        with postgres_server.connection() as connection:
            label(connection, name, ids, 40)
        daemon.until_value(70, "labels_total", task="t", outcome="matched")
        daemon.until_value(1, "source_up", source=name)
        assert_adds_up(daemon)
        assert daemon.end()[0] == 0
