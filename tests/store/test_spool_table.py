"""Posts in the store's database: acknowledged once committed, by the owner of the lease alone."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress

import psycopg
import pytest

from monitor.base.errors import InUseError, LeaseLostError, StoreAwayError, StoreError
from monitor.base.spool import SpoolWriteError
from monitor.base.state_changes import Changes
from monitor.store.postgres import PostgresDatabase, PostgresStore
from monitor.store.spool_table import SpoolTable, has_posts_before, newest_post
from tests.base.test_spool import all_of, put
from tests.faults.test_take_overs import awaited, cutting
from tests.services.postgres_server import PostgresServer
from tests.services.process import PATIENCE_SECONDS, wait_until

ROOM = 1_000_000


@contextmanager
def opened(store: PostgresStore, position: int | None = None) -> Iterator[SpoolTable]:
    spool = SpoolTable(store, "http", ROOM)
    spool.open(position)
    with closing(spool):
        yield spool


def rows_of(server: PostgresServer, schema: str) -> list[tuple[int, bytes]]:
    with server.connection() as connection:
        return connection.execute(f"SELECT start, lines FROM {schema}.spool ORDER BY start").fetchall()


def test_who_lost_the_lease_acknowledges_nothing_and_the_successor_has_the_rest(
    postgres_server: PostgresServer,
) -> None:
    database = PostgresDatabase(postgres_server.dsn, "posts_fenced")
    first = PostgresStore(database, lease_seconds=1)
    with opened(first) as spool:
        assert put(spool, b"one\n", b"two\n") == 8
        with closing(awaited(database)) as second:
            kept = spool.append(b"three\n", 1)
            assert isinstance(kept.exception(PATIENCE_SECONDS), SpoolWriteError)
            assert "the lease is lost; no posts are taken any more" in str(kept.exception())
            with pytest.raises(LeaseLostError):
                SpoolTable(first, "http", ROOM).open(None)
            with opened(second, 4) as other:
                assert other.lag == 1
                assert put(other, b"four\n") == 13
                assert all_of(other) == b"two\nfour\n"
    first.close()


def test_a_take_over_waits_for_a_post_that_is_being_kept(postgres_server: PostgresServer) -> None:
    database = PostgresDatabase(postgres_server.dsn, "posts_race")
    first = PostgresStore(database, lease_seconds=2)
    spool = SpoolTable(first, "http", ROOM)
    spool._still_seconds = 600  # else the server ends what stands still
    spool._look_seconds = 600  # a look in another thread would end the transaction below
    spool.open(None)
    wait_until(lambda: spool._removed == 0 and spool._busy_since is None, "its thread has nothing to do")
    with closing(spool), ThreadPoolExecutor(1) as thread, spool._fenced() as run:
        run.execute("INSERT INTO spool VALUES ('http', 0, 4, 1, false, 'one\n')")
        wait_until(lambda: not database.is_held(), "the lease has ended")
        taking = thread.submit(awaited, database, lease_seconds=60)  # else it ends what stands still for 2 s
        waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        wait_until(
            lambda: taking.done() or counted(postgres_server, waits) == 1, "who takes over waits for the row"
        )
        assert not taking.done()
    second = taking.result(PATIENCE_SECONDS)
    with opened(second) as other:
        assert all_of(other) == b"one\n"
    second.close()
    first.close()


def counted(server: PostgresServer, query: str) -> int:
    with server.connection() as connection:
        return connection.execute(query).fetchone()[0]


def test_posts_wait_for_no_checkpoint(postgres_server: PostgresServer) -> None:
    store = PostgresStore(PostgresDatabase(postgres_server.dsn, "posts_beside"))
    with opened(store) as spool:
        with store._transaction():
            assert put(spool, b"one\n") == 4
        store.commit(Changes())
    store.close()


@pytest.mark.parametrize("arrives", [True, False])
def test_a_post_whose_commit_got_lost_is_refused_and_not_used(
    postgres_server: PostgresServer, arrives: bool
) -> None:
    """The server may have committed a post that got a 503: its sender repeats it, and it must not count
    twice.
    """
    schema = f"posts_lost_{arrives}".lower()
    with cutting(postgres_server.port, b"COMMIT", arrives) as (port, cut, _):
        address = f"host=127.0.0.1 port={port} user=owner dbname=postgres"
        store = PostgresStore(PostgresDatabase(address, schema), lease_seconds=60)
        with opened(store) as spool:
            put(spool, b"one\n")
            cut.set()
            lost = spool.append(b"two\n", 1)
            assert isinstance(lost.exception(PATIENCE_SECONDS), SpoolWriteError)
            cut.clear()
            assert [start for start, _ in rows_of(postgres_server, schema)] == ([0, 4] if arrives else [0])
            assert (all_of(spool), spool.lag, spool.size) == (b"one\n", 0, 104)
            wait_until(lambda: kept(spool, b"again\n"), "the database is there again")
            assert all_of(spool) == b"again\n"
            assert rows_of(postgres_server, schema) == [(0, b"one\n"), (4, b"again\n")]
        store.close()


def kept(spool: SpoolTable, lines: bytes) -> bool:
    return spool.append(lines, 1).exception(PATIENCE_SECONDS) is None


def test_rows_go_after_the_checkpoint_that_used_them(postgres_server: PostgresServer) -> None:
    database = PostgresDatabase(postgres_server.dsn, "posts_used")
    store = PostgresStore(database)
    assert newest_post(database, "http") == 0
    with opened(store) as spool:
        put(spool, b"one\n", b"two\n")
        assert all_of(spool) == b"one\ntwo\n"
        assert newest_post(database, "http") == 8
        assert has_posts_before(database, "http", 8)
        spool.absorbed(4)
        wait_until(lambda: rows_of(postgres_server, "posts_used") == [(4, b"two\n")], "what is used goes")
        assert spool.size == 208, "it is given back as it was handed out"
        spool.absorbed(8)
        wait_until(lambda: not has_posts_before(database, "http", 8), "all of it is gone")
        assert spool.size == 0
    store.close()


def test_a_database_that_is_away_refuses_posts_at_once_and_keeps_them_again(
    postgres_server: PostgresServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    store = PostgresStore(PostgresDatabase(postgres_server.dsn, "posts_away"))
    with opened(store) as spool:
        put(spool, b"one\n")
        postgres_server.halt()
        try:
            for _ in range(20):
                assert isinstance(spool.append(b"two\n", 1).exception(PATIENCE_SECONDS), SpoolWriteError)
            assert spool.read(0.0) == [], "what was kept is read later"
        finally:
            postgres_server.start()
        wait_until(lambda: kept(spool, b"three\n"), "it is there again")
        wait_until(lambda: all_of(spool) == b"one\nthree\n", "all is read")
        assert spool.size == 210
    assert caplog.text.count("They are answered 503.") == 1
    assert caplog.text.count("http: posts are kept again.") == 1
    store.close()


def test_a_session_that_has_ended_costs_no_post(postgres_server: PostgresServer) -> None:
    """A session ends with a restart of the server, or still only reads: a new one takes the posts."""
    store = PostgresStore(PostgresDatabase(postgres_server.dsn, "posts_session"))
    with opened(store) as spool:
        expected = b""
        for number in range(5):
            spool._connections[0].execute("SET default_transaction_read_only = on")
            put(spool, b"read-only %d\n" % number)
            postgres_server.execute(
                "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity "
                "WHERE application_name = 'blindsight' AND query NOT LIKE '%lease%'"
            )
            put(spool, b"ended %d\n" % number)
            expected += b"read-only %d\nended %d\n" % (number, number)
        assert spool.trouble is None
        wait_until(lambda: all_of(spool) == expected, "all is read")
        assert b"".join(lines for _, lines in rows_of(postgres_server, "posts_session")) == expected
    store.close()


def test_a_row_that_is_gone_is_told(postgres_server: PostgresServer) -> None:
    store = PostgresStore(PostgresDatabase(postgres_server.dsn, "posts_gone"))
    with opened(store) as spool:
        put(spool, b"one\n")
        put(spool, b"two\n")
        postgres_server.execute("DELETE FROM posts_gone.spool WHERE start = 0")
        with pytest.raises(
            Exception, match="the spool of http has no record at 0; restore a backup, or empty"
        ):
            spool.read(0.0)
    store.close()


@pytest.mark.parametrize(
    ("statement", "lost", "left"),
    [
        ("DROP TABLE posts_lost.spool", 3, b""),
        ("TRUNCATE posts_lost.spool", 3, b""),
        ("DELETE FROM posts_lost.spool WHERE start = 4", 2, b"four\n"),
        ("DELETE FROM posts_lost.spool WHERE start = 0", 0, b"two\nthree\nfour\n"),
    ],
)
def test_acknowledged_records_that_somebody_deleted_are_counted_once_as_lost(
    postgres_server: PostgresServer,
    caplog: pytest.LogCaptureFixture,
    statement: str,
    lost: int,
    left: bytes,
) -> None:
    """The first record was used; three in two rows were not."""
    store = PostgresStore(PostgresDatabase(postgres_server.dsn, "posts_lost"))
    with opened(store) as spool:
        for lines in (b"one\n", b"two\nthree\n", b"four\n"):
            put(spool, lines)
        assert spool.lost == 0
    postgres_server.execute(statement)
    with opened(store, 4) as spool:
        assert spool.lost == lost
        assert all_of(spool) == left
        put(spool, b"five\n")
        assert all_of(spool) == b"five\n"
    message = (
        f"{lost} records of http that were acknowledged are lost: the table spool was dropped or emptied"
    )
    assert (message in caplog.text) == (lost > 0)
    caplog.clear()
    with opened(store, spool._end) as spool:
        assert spool.lost == 0
    assert "are lost" not in caplog.text
    store.close()
    postgres_server.execute("DROP SCHEMA posts_lost CASCADE")


def test_loading_for_longer_than_a_lease_keeps_it(postgres_server: PostgresServer) -> None:
    """Ten thousand models may take that long; two agents would take over from each other for ever."""
    database = PostgresDatabase(postgres_server.dsn, "loads_long")
    store = PostgresStore(database, lease_seconds=1)
    with postgres_server.connection() as other, ThreadPoolExecutor(1) as thread:
        other.execute("LOCK TABLE loads_long.part IN ACCESS EXCLUSIVE MODE")
        with store.holding():
            loading = thread.submit(store.load)
            expires = "SELECT extract(epoch FROM expires - clock_timestamp())::float8 FROM loads_long.lease"
            query = "SELECT extract(epoch FROM expires)::float8 FROM loads_long.lease"
            first = counted(postgres_server, query)
            wait_until(lambda: counted(postgres_server, query) > first + 2, "two leases have passed")
            assert counted(postgres_server, expires) > 0
            with pytest.raises(InUseError):
                PostgresStore(database)
            assert not loading.done()
            other.rollback()
            assert loading.result(PATIENCE_SECONDS).parts == {}
    store.commit(Changes())
    store.close()


def test_a_database_whose_default_isolation_is_stricter_is_used_as_others_are(
    postgres_server: PostgresServer,
) -> None:
    postgres_server.execute("CREATE ROLE strict LOGIN SUPERUSER")
    postgres_server.execute("ALTER ROLE strict SET default_transaction_isolation = 'repeatable read'")
    address = f"host=127.0.0.1 port={postgres_server.port} user=strict dbname=postgres"
    store = PostgresStore(PostgresDatabase(address, "strict"))
    assert store._connection.execute("SHOW transaction_isolation").fetchone()[0] == "read committed"
    store.close()


def test_of_several_servers_the_one_is_used_that_can_be_written(postgres_server: PostgresServer) -> None:
    """After a fail-over the replica is the primary, under another name."""
    with postgres_server.replica() as replica:
        ports, last = f"{replica.port},{postgres_server.port}", "user=owner dbname=postgres"
        both = PostgresDatabase(f"host=127.0.0.1,127.0.0.1 port={ports} {last}", "several")
        store = PostgresStore(both)
        store.commit(Changes())
        store.close()
        with pytest.raises(StoreAwayError, match="hot standby mode"):
            PostgresStore(PostgresDatabase(replica.dsn, "several"))


def test_a_transaction_whose_failure_was_passed_over_does_not_count(postgres_server: PostgresServer) -> None:
    """The server answers its COMMIT with ROLLBACK, and no error."""
    store = PostgresStore(PostgresDatabase(postgres_server.dsn, "passed_over"))
    failure = pytest.raises(
        StoreError, match="has taken a checkpoint back, as one of its statements had failed"
    )
    with failure, store._transaction(), suppress(psycopg.Error):
        store._connection.execute("SELECT 1 / 0")
    store.commit(Changes())
    store.close()


def test_a_server_that_is_gone_is_told_again_without_growing(postgres_server: PostgresServer) -> None:
    """Each post that is refused meanwhile is told the same error."""
    store = PostgresStore(PostgresDatabase(postgres_server.dsn, "refusals"))
    postgres_server.halt()
    try:
        depths = []
        for _ in range(50):
            with pytest.raises(StoreAwayError) as refused:
                store.renew()
            cause, depth = refused.value.__cause__, 0
            trace = cause.__traceback__ if cause else None
            while trace is not None:
                trace, depth = trace.tb_next, depth + 1
            depths.append(depth)
    finally:
        postgres_server.start()
    assert max(depths) < 12
    wait_until(lambda: renewed(store), "it is there again")
    store.close()


def renewed(store: PostgresStore) -> bool:
    try:
        store.renew()
    except StoreAwayError:
        return False
    return True
