"""The promises of every spool, in a folder and in the database of the store."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Protocol

import pytest

from connectors.http.erase import erase, idle_spool
from connectors.http.spool import Spool
from monitor.base.spool import PostSpool, SpoolFullError
from monitor.store.postgres import PostgresDatabase, PostgresStore
from monitor.store.spool_table import SpoolTable, has_posts_before
from tests.services.postgres_server import PostgresServer
from tests.services.process import PATIENCE_SECONDS, wait_until

ROOM = 1_000_000


class Place(Protocol):
    """Somewhere to keep posts."""

    def new(self, room: int = ROOM, name: str = "http") -> PostSpool:
        """Return the spool of a source, not open yet; what it kept before is there."""

    def again(self) -> None:
        """Another process comes in the place of the one before."""

    def erase(self, is_gone: Callable[[bytes], bool]) -> int:
        """Overwrite lines while nobody uses the spool."""

    def close(self) -> None:
        """Let go."""


class FolderPlace:
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def new(self, room: int = ROOM, name: str = "http") -> PostSpool:
        return Spool(self._folder / name, room)

    def again(self) -> None:
        """The lock ends with its holder."""

    def erase(self, is_gone: Callable[[bytes], bool]) -> int:
        with idle_spool(self._folder / "http") as idle:
            assert idle
            return erase(self._folder / "http", is_gone)

    def close(self) -> None:
        """Nothing is held."""


class TablePlace:
    _numbers = itertools.count()

    def __init__(self, server: PostgresServer) -> None:
        self.database = PostgresDatabase(server.dsn, f"spools{next(self._numbers)}")
        self._store = PostgresStore(self.database)

    def new(self, room: int = ROOM, name: str = "http") -> PostSpool:
        return SpoolTable(self._store, name, room)

    def again(self) -> None:
        self._store.close()
        self._store = PostgresStore(self.database)

    def erase(self, is_gone: Callable[[bytes], bool]) -> int:
        return SpoolTable(self._store, "http", ROOM).erase(is_gone)

    def close(self) -> None:
        self._store.close()


@pytest.fixture(params=["folder", pytest.param("table", marks=pytest.mark.postgres)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    folder = request.param == "folder"
    spool_place: Place = (
        FolderPlace(tmp_path) if folder else TablePlace(request.getfixturevalue("postgres_server"))
    )
    yield spool_place
    spool_place.close()


@pytest.fixture
def spool(place: Place) -> Iterator[PostSpool]:
    made = place.new()
    made.open(None)
    yield made
    made.close()


def put(spool: PostSpool, *lines: bytes) -> int:
    return [spool.append(line, line.count(b"\n")).result(PATIENCE_SECONDS) for line in lines][-1]


def all_of(spool: PostSpool) -> bytes:
    lines = b""
    while parts := spool.read(0.0):
        lines += b"".join(part.lines for part in parts)
    return lines


def resumed(place: Place, position: int | None, room: int = ROOM) -> PostSpool:
    """Return the spool of the process after this one."""
    place.again()
    made = place.new(room)
    made.open(position)
    return made


def test_offsets_count_the_lines_bytes_alone(spool: PostSpool) -> None:
    assert put(spool, b"one\n", b"two\nthree\n") == 14
    assert spool.lag == 3
    assert spool.read(0.0) == [(b"one\ntwo\nthree\n", 0, False)]
    assert spool.read(0.0) == []
    assert (put(spool, b"four\n"), spool.lag) == (19, 1)
    assert spool.read(0.0) == [(b"four\n", 14, False)]


def test_labels_are_told_from_predictions_also_after_a_start(place: Place, spool: PostSpool) -> None:
    kinds = [False, False, True, True, False, True]
    kept = [spool.append(b"%d\n" % i, 1, labels) for i, labels in enumerate(kinds)]
    assert [each.result(PATIENCE_SECONDS) for each in kept][-1] == 12
    expected = [(b"0\n1\n", 0, False), (b"2\n3\n", 4, True), (b"4\n", 8, False), (b"5\n", 10, True)]
    assert spool.read(0.0) == expected
    spool.close()
    with closing(resumed(place, 4)) as resumed_spool:
        assert resumed_spool.read(0.0) == expected[1:]


@pytest.mark.parametrize("position", [0, 4, 8, 14])
def test_reading_goes_on_where_it_is_told(place: Place, spool: PostSpool, position: int) -> None:
    put(spool, b"one\ntwo\n", b"three\n")
    spool.close()
    with closing(resumed(place, position)) as resumed_spool:
        put(resumed_spool, b"four\n")
        assert resumed_spool.lag == {0: 4, 4: 4, 8: 2, 14: 1}[position], "a frame that was begun counts whole"
        assert all_of(resumed_spool) == b"one\ntwo\nthree\nfour\n"[position:]
        assert resumed_spool.lag == 0


def test_without_a_position_nothing_was_used(place: Place, spool: PostSpool) -> None:
    put(spool, b"one\n", b"two\n")
    spool.close()
    with closing(resumed(place, None)) as resumed_spool:
        assert (resumed_spool.lag, all_of(resumed_spool)) == (2, b"one\ntwo\n")


def test_a_new_empty_spool_begins_at_the_position_of_the_state(place: Place) -> None:
    with closing(place.new()) as spool:
        spool.open(5000)
        assert put(spool, b"one\n") == 5004
        assert spool.read(0.0) == [(b"one\n", 5000, False)]


def test_a_state_older_than_the_spool_goes_on_with_a_warning(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    first = place.new()
    first.open(5000)
    put(first, b"one\n")
    first.close()
    with closing(resumed(place, 100)) as spool:
        assert spool.read(0.0) == [(b"one\n", 5000, False)]
    assert "begins at 5000, past the position 100" in caplog.text


def test_offsets_go_on_after_all_was_used_and_deleted(place: Place, spool: PostSpool) -> None:
    line = b"x" * 99_999 + b"\n"
    for i in range(1, 40):
        assert put(spool, line) == i * 100_000
        assert spool.read(0.0) == [(line, (i - 1) * 100_000, False)]
        spool.absorbed(i * 100_000)
    assert spool.size <= 3 * 100_300
    spool.close()
    with closing(resumed(place, 3_900_000)) as resumed_spool:
        assert resumed_spool.lag == 0
        assert put(resumed_spool, b"next\n") == 3_900_005
        assert all_of(resumed_spool) == b"next\n"


def test_what_does_not_fit_is_refused_until_something_is_used(place: Place, spool: PostSpool) -> None:
    line = b"x" * 99_999 + b"\n"
    for _ in range(9):
        put(spool, line)
    with pytest.raises(SpoolFullError, match="holds its 1000000 bytes"):
        spool.append(line, 1)
    assert spool.size <= ROOM
    spool.close()
    with closing(resumed(place, 0)) as resumed_spool:
        with pytest.raises(SpoolFullError):
            resumed_spool.append(line, 1)
        assert all_of(resumed_spool) == 9 * line
        resumed_spool.absorbed(9 * len(line))
        wait_until(lambda: resumed_spool.size < 100_000, "there is room again")
        assert put(resumed_spool, line) == 10 * len(line)


def test_one_post_larger_than_a_read_is_read_whole(place: Place) -> None:
    with closing(place.new(20_000_000)) as spool:
        spool.open(None)
        line = b"x" * 3_000_000 + b"\n"
        put(spool, b"one\n", line, b"two\n")
        assert all_of(spool) == b"one\n" + line + b"two\n"


def test_what_waits_when_it_is_closed_is_kept(place: Place, spool: PostSpool) -> None:
    futures = [spool.append(b"%d\n" % i, 1) for i in range(50)]
    spool.close()
    assert [each.result(0) for each in futures][-1] == 140
    with pytest.raises(SpoolFullError, match="closed"):
        spool.append(b"x\n", 1)
    with closing(resumed(place, 0)) as resumed_spool:
        assert all_of(resumed_spool) == b"".join(b"%d\n" % i for i in range(50))


def test_what_is_used_goes_also_when_it_is_closed_at_once(postgres_server: PostgresServer) -> None:
    place = TablePlace(postgres_server)
    spool = place.new()
    spool.open(None)
    put(spool, b"one\n", b"two\n")
    assert all_of(spool) == b"one\ntwo\n"
    spool.absorbed(8)
    spool.close()
    assert not has_posts_before(place.database, "http", 8)
    place.close()


def test_spools_of_two_sources_are_apart(place: Place, spool: PostSpool) -> None:
    with closing(place.new(name="other")) as other:
        other.open(None)
        put(spool, b"mine\n")
        put(other, b"yours\n")
        assert all_of(other) == b"yours\n"
        other.absorbed(6)
        assert all_of(spool) == b"mine\n"


def test_lines_are_erased_where_they_are(place: Place, spool: PostSpool) -> None:
    put(spool, b"one\ntwo\n", b"three\n")
    spool.close()
    place.again()
    assert place.erase(lambda line: line in (b"two", b"three")) == 2
    assert place.erase(lambda line: line in (b"two", b"three")) == 0
    with closing(resumed(place, 0)) as resumed_spool:
        assert all_of(resumed_spool) == b"one\n   \n     \n"


@pytest.mark.parametrize("seed", range(8))
def test_every_line_comes_out_once_in_order_over_any_restarts(place: Place, seed: int) -> None:
    """The test puts, reads and uses lines; a process may end after any step and lose its unused lines."""
    rng, now = random.Random(seed), place.new()
    now.open(None)
    expected, used, state = b"", b"", None
    for number in range(40):
        line = b"%d" % number + b"x" * rng.randint(0, 30_000) + b"\n"
        put(now, line) if rng.random() < 0.5 else now.append(line, 1, True).result(PATIENCE_SECONDS)
        expected += line
        then = rng.choice(["wait", "use", "save", "end"])
        if then in ("use", "save"):
            used += all_of(now)
        if then == "save":
            state = len(used)
            now.absorbed(state)
        if then == "end":
            now.close()
            now, used = resumed(place, state), used[: state or 0]
    used += all_of(now)
    now.close()
    assert used == expected
