"""Streams of a real Redis: nothing lost, nothing twice, whatever dies, is trimmed or comes back empty."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from secrets import token_hex
from typing import Any

import numpy as np
import pytest
from redis import exceptions
from redis.client import Pipeline

from connectors import build, redis_stream
from connectors.redis_stream import RedisStream
from monitor.base.codec import pack, unpack
from monitor.base.errors import MissingExtraError, SourceError
from monitor.base.source import RawMessages, SourceCounts
from monitor.config.redis import RedisSourceConfig
from tests.accounting import assert_adds_up
from tests.daemon import DaemonProcess, configuration, read_windows
from tests.services.authority import Authority
from tests.services.process import PATIENCE_SECONDS, wait_until
from tests.services.redis_server import RedisServer
from tests.streams import answers

New = Callable[..., RedisStream]
Servers = Callable[..., RedisServer]

NOTHING: dict[str, Any] = {}


class Reader:
    """A reader of a source that keeps entries and the newest position, as a store would have it."""

    def __init__(self, source: RedisStream) -> None:
        self.source = source
        self.values: list[bytes] = []
        self.position: dict[str, Any] = {}

    def once(self, timeout_seconds: float = 0.1) -> int:
        raws = self.source.read(timeout_seconds)
        for raw in raws:
            assert isinstance(raw, RawMessages)
            self.values += raw.values
            self.position = unpack(pack({raw.partition: raw.after}))
        return len(raws)

    def until(self, count: int) -> list[bytes]:
        """Read until `count` entries came in all, and no more."""
        wait_until(lambda: self.once() >= 0 and len(self.values) >= count, f"{count} came")
        assert self.once() == 0
        assert len(self.values) == count
        return self.values

    def save(self) -> None:
        """Say that all is used and saved, and let it be acknowledged."""
        self.source.acknowledge(self.position)
        self.source.keep_alive()


def named(source: RedisStream) -> bool:
    """Keep the name that a source takes before it reads anything; False where the server is away."""
    for raw in source.read(0.0):
        assert isinstance(raw, RawMessages)
        assert not raw.values
        source.acknowledge({raw.partition: raw.after})
        return True
    return False


@pytest.fixture
def stream(request: pytest.FixtureRequest) -> str:
    return f"{request.node.name}-{token_hex(4)}"


@pytest.fixture
def new(redis_server: RedisServer, stream: str) -> Iterator[New]:
    """Yield a function that makes sources of this test's stream, open unless `at` is None; close them in
    the end.
    """
    with ExitStack() as stack:

        def make(
            at: dict[str, Any] | None = NOTHING, server: RedisServer = redis_server, **more: Any
        ) -> RedisStream:
            source = RedisStream(
                RedisSourceConfig(**{"kind": "redis", "url": server.url, "stream": stream} | more)
            )
            stack.callback(source.close)
            if at is not None:
                source.open(at)
            if at == NOTHING:
                named(source)
            return source

        yield make


def fill(server: RedisServer, stream: str, *values: Any, **more: Any) -> list[bytes]:
    """Add entries of these values; their ids."""
    with server.client() as client:
        return [client.xadd(stream, {"value": str(value), **more}) for value in values]


def pending(server: RedisServer, stream: str) -> int:
    with server.client() as client:
        return int(client.xpending(stream, "blindsight")["pending"])


def numbers(first: int, after: int) -> list[bytes]:
    return [b"%d" % i for i in range(first, after)]


# ── what is handed out ──


def test_entries_come_in_order_with_their_ids_and_are_acknowledged_once_they_are_saved(
    redis_server: RedisServer, stream: str, new: New
) -> None:
    ids = fill(redis_server, stream, *range(20))
    source = new()
    assert (source.name, source.up) == (stream, True)
    [raw] = source.read(5)
    assert isinstance(raw, RawMessages)
    assert (raw.partition, list(raw.values), raw.headers) == (stream, numbers(0, 20), None)
    assert raw.offsets == [int(ms) * 10**6 + int(n) for ms, n in (x.decode().split("-") for x in ids)]
    assert source.lag == 0
    source.keep_alive()
    assert pending(redis_server, stream) == 20, "nothing is saved yet"
    source.acknowledge({stream: raw.after})
    assert source.read(0.0) == []
    assert pending(redis_server, stream) == 0
    assert source.counts == SourceCounts()


def test_of_a_large_stream_a_read_brings_a_few_mib_and_the_lag_is_what_is_left(
    redis_server: RedisServer, stream: str, new: New, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis_stream, "MOST_ENTRIES", 40)
    fill(redis_server, stream, *["x" * 200_000] * 100)
    source = new()
    sizes, lags = [], []
    while raws := source.read(0.2):
        sizes += [len(raw.values) for raw in raws if isinstance(raw, RawMessages)]
        lags.append(source.lag)
    assert sizes == [40, 20, 20, 20]
    assert lags == [60, 40, 20, 0]


def test_a_place_is_a_number_that_an_id_of_any_size_has() -> None:
    settings = RedisSourceConfig(kind="redis", url="redis://h", stream="s")
    ids = [b"1692632086370-5", b"7-0", b"7-2000000", b"18446744073709551615-0"]
    raw = redis_stream.messages(settings, [(each, {b"value": b"{}"}) for each in ids])
    assert raw.offsets == [1692632086370000005, 7000000, 7999999, 2**63 - 1]


def test_an_entry_without_the_field_is_handed_on_to_be_rejected_and_other_fields_are_headers_of_events(
    redis_server: RedisServer, stream: str, new: New
) -> None:
    fill(redis_server, stream, 1, ce_type="a")
    plain = new(field="body", mapping={"id": "id", "scores": "p"}).read(5)[0]
    assert isinstance(plain, RawMessages)
    assert (list(plain.values), plain.headers) == ([b"no field body among value, ce_type"], None)
    kserve = {"format": "kserve", "constants": {"task": "t"}}
    for group, mapping in (("events", kserve), ("any", None)):
        events = new(group=group, mapping=mapping).read(5)[0]
        assert isinstance(events, RawMessages)
        assert (list(events.values), events.headers) == ([b"1"], [[("ce_type", b"a")]])


@pytest.mark.parametrize(("start", "count"), [("earliest", 10), ("latest", 5)])
def test_a_stream_that_no_group_has_read_begins_where_the_configuration_says(
    redis_server: RedisServer, stream: str, new: New, start: str, count: int
) -> None:
    fill(redis_server, stream, *range(5))
    reader = Reader(new(start=start))
    fill(redis_server, stream, *range(5, 10))
    assert reader.until(count) == numbers(10 - count, 10)
    assert reader.source.counts == SourceCounts()


def test_a_stream_that_is_not_there_yet_is_waited_for(
    redis_server: RedisServer, stream: str, new: New
) -> None:
    reader = Reader(new(start="latest"))
    assert (reader.once(), reader.source.up) == (0, True)
    fill(redis_server, stream, "first")
    assert reader.until(1) == [b"first"]


# ── after a restart ──


def test_what_the_store_has_used_is_left_out_and_what_it_has_not_comes_first(
    redis_server: RedisServer, stream: str, new: New
) -> None:
    fill(redis_server, stream, *range(10))
    killed = Reader(new())
    killed.until(10)
    saved = killed.position  # never acknowledged
    fill(redis_server, stream, *range(10, 20))
    killed.until(20)
    fill(redis_server, stream, *range(20, 30))
    assert pending(redis_server, stream) == 20
    again = Reader(new(saved))
    assert again.until(20) == numbers(10, 30)
    again.save()
    assert pending(redis_server, stream) == 0
    assert again.source.counts == SourceCounts()
    with redis_server.client() as client:
        names = {
            each["name"].decode().removesuffix("+claims")
            for each in client.xinfo_consumers(stream, "blindsight")
        }
    assert names == {again.source._name} == {killed.source._name}, "it goes on under its name"


def test_nothing_is_read_before_the_name_of_the_consumer_is_kept(
    redis_server: RedisServer, stream: str, new: New
) -> None:
    """Killed earlier than that, it would come back under another name, and wait for its own entries."""
    fill(redis_server, stream, *range(10))
    source = new(None)
    source.open({})
    [raw] = source.read(5)
    assert isinstance(raw, RawMessages)
    assert (list(raw.values), source.read(0.2), source.up) == ([], [], True)
    assert pending(redis_server, stream) == 0
    killed = Reader(new({stream: raw.after}))
    killed.until(10)  # and killed before any of it is saved
    assert Reader(new({stream: raw.after})).until(10) == numbers(0, 10)


def test_without_a_position_the_group_knows_what_was_acknowledged(
    redis_server: RedisServer, stream: str, new: New
) -> None:
    fill(redis_server, stream, *range(10))
    first = Reader(new())
    first.until(10)
    first.source.acknowledge(first.position)
    first.source.close()
    fill(redis_server, stream, *range(10, 15))
    assert Reader(new()).until(5) == numbers(10, 15)


def test_what_a_read_brought_that_never_arrived_comes_after_all(
    redis_server: RedisServer, stream: str, new: New, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(redis_server, stream, *range(5))
    reader = Reader(new())
    reader.until(5)
    fill(redis_server, stream, *range(5, 10))
    execute = Pipeline.execute

    def cut_off(*arguments: Any, **named: Any) -> None:
        execute(*arguments, **named)
        monkeypatch.undo()
        raise exceptions.ConnectionError("cut off")

    monkeypatch.setattr(Pipeline, "execute", cut_off)
    assert reader.once(0.0) == 0
    fill(redis_server, stream, *range(10, 15))
    assert reader.until(15) == numbers(0, 15)
    reader.save()
    reader.source.read(0.0)
    assert pending(redis_server, stream) == 0


# ── several consumers ──


def test_two_consumers_share_a_stream_and_each_entry_goes_to_one(
    redis_server: RedisServer, stream: str, new: New, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis_stream, "MOST_ENTRIES", 7)
    monkeypatch.setattr(redis_stream, "MOST_CALLS", 1)
    fill(redis_server, stream, *range(100))
    both = [Reader(new()), Reader(new())]
    while sum(len(reader.values) for reader in both) < 100:
        assert sum(reader.once() for reader in both) > 0
    assert sorted(both[0].values + both[1].values) == sorted(numbers(0, 100))
    assert min(len(reader.values) for reader in both) > 40
    assert [reader.source.counts for reader in both] == [SourceCounts()] * 2


def test_the_entries_of_a_dead_consumer_are_claimed_used_once_and_counted(
    redis_server: RedisServer, stream: str, new: New, caplog: pytest.LogCaptureFixture
) -> None:
    fill(redis_server, stream, *range(10))
    dead = Reader(new(claim_seconds=1))
    dead.until(10)
    fill(redis_server, stream, *range(10, 15))
    heir = Reader(new(claim_seconds=1))
    assert heir.until(5) == numbers(10, 15)
    saved = heir.position
    assert heir.until(15)[5:] == numbers(0, 10)
    assert heir.source.counts == SourceCounts(overlap_records=10)
    assert f"source {stream}: takes 10 entries over from {dead.source._name}" in caplog.text
    # Killed before that was saved, they come again; after it, they do not.
    again = Reader(new(saved, claim_seconds=1))
    assert again.until(10) == numbers(0, 10)
    assert Reader(new(again.position, claim_seconds=1)).once() == 0
    assert pending(redis_server, stream) == 0


def test_a_consumer_that_waits_for_its_store_is_not_dead(
    redis_server: RedisServer, stream: str, new: New
) -> None:
    fill(redis_server, stream, *range(10))
    slow, other = Reader(new(claim_seconds=1)), Reader(new(claim_seconds=1))
    slow.until(10)
    ends = time.monotonic() + 3
    while time.monotonic() < ends:
        slow.source.keep_alive()
        assert other.once(0.05) == 0
    slow.save()
    assert pending(redis_server, stream) == 0


def test_claimed_entries_are_not_claimed_from_who_waits_for_its_store(
    redis_server: RedisServer, stream: str, new: New
) -> None:
    fill(redis_server, stream, *range(10))
    Reader(new(claim_seconds=1)).until(10)
    heir = Reader(new(claim_seconds=1))
    assert heir.until(10) == numbers(0, 10)
    other, ends = Reader(new(claim_seconds=1)), time.monotonic() + 3
    while time.monotonic() < ends:
        heir.source.keep_alive()
        assert other.once(0.05) == 0


# ── gaps ──


def test_entries_trimmed_before_they_were_read_are_counted_each_time_and_named(
    redis_server: RedisServer, stream: str, new: New, caplog: pytest.LogCaptureFixture
) -> None:
    fill(redis_server, stream, *range(10))
    reader = Reader(new())
    reader.until(10)
    missed = 0
    for count in (30, 25, 12):
        fill(redis_server, stream, *range(count))
        with redis_server.client() as client:
            client.xtrim(stream, maxlen=4, approximate=False)
        seen = len(reader.values)
        assert reader.until(seen + 4)[seen:] == numbers(count - 4, count)
        missed += count - 4
        assert reader.source.counts == SourceCounts(gap_records=missed)
        assert reader.source.lag == 0
    assert (
        f"source {stream}: 26 entries were deleted before they were read; keep more (MAXLEN)" in caplog.text
    )
    # After a restart too, though Redis 7.0 itself has lost count.
    fill(redis_server, stream, *range(9))
    with redis_server.client() as client:
        client.xtrim(stream, maxlen=5, approximate=False)
    again = Reader(new(reader.position))
    again.until(5)
    assert again.source.counts == SourceCounts(gap_records=4)


def test_what_another_consumer_reads_is_no_gap(redis_server: RedisServer, stream: str, new: New) -> None:
    one, two = Reader(new()), Reader(new())
    for step in range(6):
        fill(redis_server, stream, *range(8))
        (one, two)[step % 2].until(8 * (step // 2 + 1))
        with redis_server.client() as client:
            client.xtrim(stream, maxlen=3, approximate=False)
    assert [reader.source.counts for reader in (one, two)] == [SourceCounts()] * 2


def test_entries_deleted_before_the_group_began_are_no_gap(
    redis_server: RedisServer, stream: str, new: New
) -> None:
    fill(redis_server, stream, *range(20))
    with redis_server.client() as client:
        client.xtrim(stream, maxlen=5, approximate=False)
    reader = Reader(new())
    reader.until(5)
    assert reader.source.counts == SourceCounts()


def test_an_entry_that_was_given_and_deleted_before_a_restart_is_counted(
    redis_server: RedisServer, stream: str, new: New
) -> None:
    fill(redis_server, stream, *range(10))
    killed = Reader(new())
    killed.until(10)
    saved = killed.position
    ids = fill(redis_server, stream, *range(10, 20))
    killed.until(20)
    with redis_server.client() as client:
        client.xdel(stream, *ids[:3])
    again = Reader(new(saved))
    assert again.until(7) == numbers(13, 20)
    assert again.source.counts == SourceCounts(gap_records=3)
    again.save()
    assert pending(redis_server, stream) == 0


def test_single_entries_that_someone_deletes_do_not_stop_it(
    redis_server: RedisServer, stream: str, new: New
) -> None:
    reader = Reader(new())
    for _ in range(3):
        ids = fill(redis_server, stream, *range(10))
        with redis_server.client() as client:
            client.xdel(stream, ids[2], ids[5], ids[9])
        reader.until(len(reader.values) + 7)
    assert reader.source.lag == 0


# ── the server ──


def test_a_server_that_dies_and_comes_back_loses_and_doubles_nothing(
    new_redis_server: Servers, stream: str, new: New, caplog: pytest.LogCaptureFixture
) -> None:
    server = new_redis_server()
    fill(server, stream, *range(10))
    reader = Reader(new(server=server))
    reader.until(10)
    server.kill()
    reader.source.acknowledge(reader.position)
    for _ in range(3):
        assert reader.once(0.2) == 0
        reader.source.keep_alive()
    assert (reader.source.up, reader.source.lag) == (False, None)
    assert caplog.text.count("Connection refused; trying again") == 1, "it is said once"
    server.start()
    fill(server, stream, *range(10, 20))
    assert reader.until(20) == numbers(0, 20)
    assert reader.source.up
    reader.save()
    reader.source.read(0.0)
    assert pending(server, stream) == 0
    assert reader.source.counts == SourceCounts()


def test_a_server_that_comes_later_is_waited_for(new_redis_server: Servers, stream: str, new: New) -> None:
    server = new_redis_server()
    server.kill()
    reader = Reader(new(server=server))
    assert (reader.once(), reader.source.up) == (0, False)
    server.start()
    wait_until(lambda: named(reader.source), "it is there")
    fill(server, stream, *range(3))
    assert reader.until(3) == numbers(0, 3)


def test_a_group_that_is_gone_is_made_anew_after_our_position(
    redis_server: RedisServer, stream: str, new: New, caplog: pytest.LogCaptureFixture
) -> None:
    fill(redis_server, stream, *range(10))
    reader = Reader(new())
    reader.until(10)
    with redis_server.client() as client:
        client.xgroup_destroy(stream, "blindsight")
    fill(redis_server, stream, *range(10, 15))
    assert reader.until(15) == numbers(0, 15)
    assert "NOGROUP" in caplog.text
    after = next(iter(reader.position.values()))
    reader.source.close()
    with redis_server.client() as client:
        client.xgroup_destroy(stream, "blindsight")
    fill(redis_server, stream, *range(15, 20))
    again = Reader(new(reader.position))
    assert again.until(5) == numbers(15, 20)
    assert f"source {stream}: created the group blindsight, from {after['after'].decode()} on" in caplog.text


def test_what_the_group_gives_again_is_left_out(redis_server: RedisServer, stream: str, new: New) -> None:
    """A failover to a replica that had not heard of the last reads gives them again."""
    fill(redis_server, stream, *range(10))
    reader = Reader(new())
    reader.until(10)
    reader.save()
    with redis_server.client() as client:
        client.xgroup_setid(stream, "blindsight", "0")
    fill(redis_server, stream, *range(10, 15))
    assert reader.until(15) == numbers(0, 15)
    reader.save()
    reader.source.read(0.0)
    assert pending(redis_server, stream) == 0


def add(server: RedisServer, stream: str, first: int, values: list[bytes]) -> None:
    """Add entries with ids of the sender's own, which rise from `first`-1."""
    with server.client() as client, client.pipeline(transaction=False) as pipe:
        for i, value in enumerate(values, first):
            pipe.xadd(stream, {"value": value}, id=f"{i}-1")
        pipe.execute()


def recreated_message(stream: str, lost: int) -> str:
    return (
        f"source {stream}: the stream was deleted and created again; it is read from its start; of the old "
        f"one, {lost} entries are lost, as far as its end was known"
    )


@pytest.mark.parametrize("size", [1, 20, 80])
@pytest.mark.parametrize("running", [False, True])
def test_a_stream_that_was_created_again_is_read_from_its_start(
    redis_server: RedisServer,
    stream: str,
    new: New,
    caplog: pytest.LogCaptureFixture,
    size: int,
    running: bool,
) -> None:
    add(redis_server, stream, 1, numbers(0, 50))
    reader = Reader(new())
    reader.until(50)
    reader.save()
    if not running:
        reader.source.close()
    with redis_server.client() as client:
        client.delete(stream)
    add(redis_server, stream, 1, numbers(50, 50 + size))
    again = reader if running else Reader(new(reader.position))
    assert again.until(50 * running + size)[-size:] == numbers(50, 50 + size)
    assert again.source.counts == SourceCounts()
    assert caplog.text.count(recreated_message(stream, 0)) == 1
    again.source.acknowledge({stream: {**reader.position[stream], "log": "old", "after": b"999-1"}})
    again.source.keep_alive()
    assert pending(redis_server, stream) == size, "a position of the old stream acknowledges nothing"
    again.save()
    again.source.read(0.0)
    assert pending(redis_server, stream) == 0
    add(redis_server, stream, 500, [b"more"])
    assert Reader(new(again.position)).until(1) == [b"more"]
    assert caplog.text.count(recreated_message(stream, 0)) == 1


def test_what_was_not_read_of_the_old_stream_is_counted(
    redis_server: RedisServer, stream: str, new: New, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis_stream, "MOST_ENTRIES", 30)
    monkeypatch.setattr(redis_stream, "MOST_CALLS", 1)
    fill(redis_server, stream, *range(100))
    reader = Reader(new())
    reader.once()
    reader.source.close()
    with redis_server.client() as client:
        client.delete(stream)
    fill(redis_server, stream, *range(100, 160))
    again = Reader(new(reader.position))
    assert again.until(60) == numbers(100, 160)
    assert again.source.counts == SourceCounts(gap_records=70)


def test_a_stream_whose_group_another_member_made_again_goes_on_where_that_one_stands(
    redis_server: RedisServer, stream: str, new: New
) -> None:
    add(redis_server, stream, 1, numbers(0, 50))
    back = Reader(new())
    back.until(50)
    back.source.close()
    with redis_server.client() as client:
        client.delete(stream)
    add(redis_server, stream, 1, numbers(50, 130))
    other = Reader(new())
    other.until(80)
    add(redis_server, stream, 81, numbers(130, 140))
    assert Reader(new(back.position)).until(10) == numbers(130, 140)


def test_a_stream_that_only_lost_its_end_is_not_read_again(
    redis_server: RedisServer, stream: str, new: New, caplog: pytest.LogCaptureFixture
) -> None:
    """A failover to a replica that had not heard of the last entries loses them."""
    add(redis_server, stream, 1, numbers(0, 10))
    reader = Reader(new())
    reader.until(10)
    reader.source.close()
    with redis_server.client() as client:
        client.delete(stream)
    add(redis_server, stream, 1, numbers(0, 8))
    again = Reader(new(reader.position))
    assert again.once() == 0
    add(redis_server, stream, 9, [b"new"])
    assert again.until(1) == [b"new"]
    text = "the stream ends at 8-1, before our 10-1: it has lost entries, as after a failover"
    assert f"source {stream}: {text}" in caplog.text


@pytest.mark.parametrize("step", ["trimmed", "deleted", "emptied", "older"])
def test_a_stream_that_lost_the_entry_at_our_position_is_the_same(
    redis_server: RedisServer, stream: str, new: New, caplog: pytest.LogCaptureFixture, step: str
) -> None:
    add(redis_server, stream, 1, numbers(0, 50))
    reader = Reader(new())
    reader.until(50)
    reader.source.close()
    position = reader.position[stream]
    add(redis_server, stream, 51, numbers(50, 60))
    with redis_server.client() as client:
        if step == "deleted":
            client.xdel(stream, "50-1")
        elif step == "older":
            position = {key: position[key] for key in ("after", "drift", "consumer", "claimed")}
        else:
            client.xtrim(stream, maxlen=10 if step == "trimmed" else 0, approximate=False)
    add(redis_server, stream, 61, [b"last"])
    again = Reader(new({stream: position}))
    assert again.until(1 if step == "emptied" else 11)[-1] == b"last"
    assert "created again" not in caplog.text
    assert again.source.counts.gap_records == (10 if step == "emptied" else 0)


def test_while_nothing_can_be_saved_no_more_is_read_than_memory_is_meant_for(
    redis_server: RedisServer, stream: str, new: New, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis_stream, "MOST_ENTRIES", 10)
    monkeypatch.setattr(redis_stream, "MOST_IN_FLIGHT", 30)
    fill(redis_server, stream, *range(100))
    reader = Reader(new())
    reader.until(30)
    assert reader.once() == 0
    assert len(reader.values) == 30
    reader.save()
    reader.until(60)
    assert reader.once() == 0
    assert len(reader.values) == 60


# ── what is refused ──


def error_of(source: RedisStream) -> str:
    with pytest.raises(SourceError) as caught:
        source.open({})
    assert not source.up
    return str(caught.value)


def test_a_key_that_is_no_stream_is_told(redis_server: RedisServer, stream: str, new: New) -> None:
    with redis_server.client() as client:
        client.set(stream, "text")
        assert error_of(new(None)) == (
            f"Redis at {redis_server.url}, stream {stream}: WRONGTYPE Operation against a key holding the "
            "wrong kind of value; name the key of a stream"
        )
        client.delete(stream)


def test_a_login_is_read_from_a_file_and_what_is_refused_is_told_without_the_password(
    new_redis_server: Servers, stream: str, new: New, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    server = new_redis_server("--requirepass", "hidden-word")
    at = f"Redis at {server.url}, stream {stream}: "
    assert error_of(new(None, server)) == f"{at}Authentication required; check username and password_file"
    (tmp_path / "password").write_text("wrong-word\n")
    login = {"password_file": str(tmp_path / "password")}
    source = new(None, server, **login)
    refused = "invalid username-password pair or user is disabled; check username and password_file"
    assert error_of(source) == at + refused
    (tmp_path / "password").write_text("hidden-word\n")
    wait_until(lambda: source.read(0.1) == [] and source.up, "the file is read again")
    assert new({}, server, username="default", **login).up
    (tmp_path / "password").unlink()
    assert error_of(new(None, server, **login)) == (
        f"password_file: {tmp_path}/password cannot be used: No such file or directory; "
        "give a file that holds it"
    )
    assert "hidden-word" not in caplog.text + repr(source._settings)
    assert "wrong-word" not in caplog.text


def test_a_user_who_may_not_read_is_told_what_to_allow(
    redis_server: RedisServer, stream: str, new: New, tmp_path: Path
) -> None:
    (tmp_path / "password").write_text("word")
    with redis_server.client() as client:
        client.acl_setuser("reader", enabled=True, passwords=["+word"], keys=["other"], commands=["+ping"])
        login = {"username": "reader", "password_file": str(tmp_path / "password")}
        assert "; allow the user +@stream, +@transaction, +@connection and the key of the stream" in error_of(
            new(None, **login)
        )
        allowed = ["+@stream", "+@transaction", "+@connection"]
        client.acl_setuser("reader", enabled=True, keys=[stream], categories=allowed)
    fill(redis_server, stream, 1)
    assert Reader(new({}, **login)).until(1) == [b"1"]


def test_tls_with_certificates_of_both_sides(
    new_redis_server: Servers, stream: str, new: New, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ours = Authority(tmp_path / "ca")
    cert, key = ours.sign("server")
    words = ("--tls-cert-file", cert, "--tls-key-file", key, "--tls-ca-cert-file", ours.cert)
    server = new_redis_server(*map(str, words), tls=True)
    tls_url = server.url.replace("redis://", "rediss://").replace(str(server.port), str(server.tls_port))
    fill(server, stream, 1)
    own = dict(zip(("cert", "key"), map(str, ours.sign("client")), strict=True))
    source = new({}, server, url=tls_url, tls={"ca": str(ours.cert), **own})
    assert Reader(source).until(1) == [b"1"]
    stranger = Authority(tmp_path / "other")
    for url, tls, hint in (
        (tls_url, {"ca": str(stranger.cert), **own}, "see tls.ca"),
        (tls_url, {"ca": str(tmp_path / "none")}, "see the files of tls, or the path of the socket"),
        (
            server.url.replace("redis:", "rediss:"),
            None,
            "see that it can be reached; without TLS its address",
        ),
        (tls_url.replace("rediss:", "redis:"), None, "with TLS its address begins with rediss://"),
    ):
        caplog.clear()
        assert not new({}, server, url=url, tls=tls).up
        assert f"; {hint}" in caplog.text


def test_without_the_client_library_the_pip_line_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [*sys.modules]:
        if name == "redis" or name.startswith("redis.") or name == "connectors.redis_stream":
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.delattr("connectors.redis_stream")
    monkeypatch.setitem(sys.modules, "redis", None)
    settings = RedisSourceConfig(kind="redis", url="redis://h", stream="s")
    with pytest.raises(MissingExtraError) as caught:
        build.build_source(settings, [])
    assert str(caught.value).startswith(
        "A source of kind redis needs an optional package: pip install 'blindsight[redis]'"
    )


# ── the agent ──


def test_the_agent_uses_each_entry_once_up_to_scrape_report_and_acknowledgement(
    redis_server: RedisServer, stream: str, tmp_path: Path
) -> None:
    rows = answers(np.random.default_rng(8), 5_000)
    labels = [{"id": row["id"], "label": "ok", "time": row["time"] + 3600} for row in rows[:50]]
    source = {"kind": "redis", "url": redis_server.url, "stream": stream, "name": "predictions"}
    config = configuration(
        sources=[source],
        reports={"path": "windows.ndjson"},
        rejects={"path": "rejects.ndjson"},
        store={"path": "state", "every_seconds": 0.1},
    )
    with redis_server.client() as client, client.pipeline(transaction=False) as pipe:
        for record in [*rows[:3_000], *labels]:
            pipe.xadd(stream, {"value": json.dumps(record)})
        pipe.xadd(stream, {"value": "not JSON"})
        pipe.xadd(stream, {"body": "under another name"})
        pipe.execute()
        with DaemonProcess(tmp_path, config) as daemon:
            daemon.until_value(3_002, "answers_received_total", source="predictions")  # with what is rejected
            for record in rows[3_000:]:  # while it runs
                pipe.xadd(stream, {"value": json.dumps(record)})
            pipe.execute()
            daemon.until_value(5_000, "predictions_total", task="t", model="erm")
            daemon.until(lambda: pending(redis_server, stream) == 0, "all is acknowledged")
            daemon.until_value(0, "source_lag_records", source="predictions")
            scrape = assert_adds_up(daemon)
            assert daemon.get("/-/ready")[0] == 200
            assert daemon.end()[0] == 0
    assert scrape.value("source_up", source="predictions") == 1
    assert scrape.value("labels_total", task="t", outcome="matched") == len(labels)
    assert scrape.total("rejected_total") == 2
    for name in ("source_gap_records_total", "source_overlap_records_total"):
        assert scrape.value(name, source="predictions") == 0
    windows = read_windows(tmp_path / "windows.ndjson")
    assert [window["size"] for window in windows] == [100] * 50
    ends = [window["positions"][stream] for window in windows]
    assert ends == sorted(ends)
    rejected = read_windows(tmp_path / "rejects.ndjson")
    assert [(line["source"], line["partition"]) for line in rejected] == [("predictions", stream)] * 2


# ── edges ──


def test_what_was_trimmed_to_nothing_is_counted_once_and_over_a_restart(
    redis_server: RedisServer, stream: str, new: New
) -> None:
    fill(redis_server, stream, *range(10))
    reader = Reader(new())
    reader.until(10)
    reader.save()
    fill(redis_server, stream, *range(10, 30))
    with redis_server.client() as client:
        client.xtrim(stream, maxlen=0, approximate=False)
    wait_until(lambda: reader.once() >= 0 and reader.source.counts.gap_records == 20, "the gap is counted")
    fill(redis_server, stream, *range(30, 33))
    reader.until(13)
    assert reader.source.counts == SourceCounts(gap_records=20)
    reader.save()
    reader.source.close()
    fill(redis_server, stream, *range(33, 40))
    with redis_server.client() as client:
        newest = client.xinfo_stream(stream)["last-generated-id"]
        client.xtrim(stream, minid=f"{int(newest.split(b'-')[0]) + 1}-0", approximate=False)
    again = Reader(new(reader.position))
    wait_until(
        lambda: again.once() >= 0 and again.source.counts.gap_records == 7, "the second gap is counted"
    )
    third = Reader(new(again.position))
    fill(redis_server, stream, 40)
    third.until(1)
    assert third.source.counts == SourceCounts(), "the position tells that it was counted"


def test_a_group_that_begins_at_the_end_of_an_empty_stream_misses_nothing(
    redis_server: RedisServer, stream: str, new: New
) -> None:
    fill(redis_server, stream, *range(10))
    with redis_server.client() as client:
        client.xtrim(stream, maxlen=0, approximate=False)
    for start in ("latest", "earliest"):
        reader = Reader(new(start=start, group=start))
        for _ in range(3):
            reader.once(0.01)
        assert reader.source.counts == SourceCounts(), start


def test_a_consumer_may_have_any_name(redis_server: RedisServer, stream: str, new: New) -> None:
    name = b"\xff\xfe"
    fill(redis_server, stream, *range(5))
    reader = Reader(new(claim_seconds=1.0))
    with redis_server.client() as client:
        client.xreadgroup("blindsight", name, {stream: ">"}, count=3)
    assert sorted(reader.until(5)) == numbers(0, 5)
    assert reader.source.counts == SourceCounts(overlap_records=3)


def test_large_entries_after_small_ones_are_read_few_at_a_time(
    redis_server: RedisServer, stream: str, new: New
) -> None:
    fill(redis_server, stream, *range(300))
    source = new(batch_bytes=1 << 20)
    reader = Reader(source)
    reader.until(300)
    fill(redis_server, stream, *["x" * 100_000] * 200)
    sizes = []
    while raws := source.read(0.2):
        sizes.append(sum(len(value) for raw in raws if isinstance(raw, RawMessages) for value in raw.values))
    assert sum(sizes) == 200 * 100_000
    assert sizes[0] == 100 * 100_000, "nobody could know"
    assert max(sizes[1:]) <= 2 << 20


@pytest.mark.process
def test_a_stream_of_large_entries_is_read_in_bounded_memory(
    redis_server: RedisServer, stream: str, tmp_path: Path
) -> None:
    """600 MB that wait, and one of 40 MB, behind small ones, in an address space of 800 MB."""
    with redis_server.client() as client:
        pipe = client.pipeline(transaction=False)
        for number in range(500):
            pipe.xadd(stream, {"value": str(number)})
        pipe.execute()
        for _ in range(40):
            pipe = client.pipeline(transaction=False)
            for _ in range(50):
                pipe.xadd(stream, {"value": "x" * 300_000})
            pipe.execute()
        client.xadd(stream, {"value": "x" * 40_000_000})
        client.xadd(stream, {"value": "last"})
    script = (
        "import resource, sys\n"
        "from connectors.redis_stream import RedisStream\n"
        "from monitor.config.redis import RedisSourceConfig\n"
        "from tests.harness import resident\n"
        "resource.setrlimit(resource.RLIMIT_AS, (800 << 20, resource.RLIM_INFINITY))\n"
        "source = RedisStream(RedisSourceConfig(kind='redis', url=sys.argv[1], stream=sys.argv[2]))\n"
        "source.open({})\n"
        "count, last = 0, b''\n"
        "while last != b'last':\n"
        "    for raw in source.read(1.0):\n"
        "        source.acknowledge({raw.partition: raw.after})\n"
        "        count, last = count + len(raw.values), raw.values[-1] if raw.values else last\n"
        "print(count, source.counts.gap_records, resident(most=True) >> 20)\n"
    )
    command = [sys.executable, "-c", script, redis_server.url, stream]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)
    assert done.returncode == 0, done.stderr
    count, gap, peak = map(int, done.stdout.split())
    assert (count, gap) == (2502, 0)
    assert peak < 500, "MiB"


def test_an_entry_that_does_not_fit_into_memory_costs_that_entry_alone(
    redis_server: RedisServer, stream: str, new: New, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(redis_server, stream, "before", "large", "after")
    real = redis_stream.Redis.parse_response

    def parsed(self: Any, *arguments: Any, **options: Any) -> Any:
        reply = real(self, *arguments, **options)
        if arguments[1] == "XREADGROUP" and b"large" in str(reply).encode():
            raise MemoryError
        return reply

    source = new()
    monkeypatch.setattr(redis_stream.Redis, "parse_response", parsed)
    monkeypatch.setattr(redis_stream, "LONGEST_PAUSE", 0.1)
    real_execute = Pipeline.execute

    def execute(self: Any, *arguments: Any) -> Any:
        reply = real_execute(self, *arguments)
        if b"large" in str(reply[2]).encode():
            raise MemoryError
        return reply

    monkeypatch.setattr(Pipeline, "execute", execute)
    reader = Reader(source)
    assert reader.until(3) == [b"before", b"this entry does not fit into the agent's memory", b"after"]
    reader.save()
    assert (pending(redis_server, stream), source.up) == (0, True)


def test_a_server_that_stands_still_is_told(redis_server: RedisServer, new: New) -> None:
    source = new()
    with redis_server.frozen():
        began = time.monotonic()
        wait_until(lambda: source.read(0.2) == [] and not source.up, "it is told")
        assert time.monotonic() - began < 30
    wait_until(lambda: source.read(0.2) == [] and source.up, "it is up again")
