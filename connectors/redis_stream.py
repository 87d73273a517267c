"""The source of a Redis stream, which is read in a consumer group.

The position in the store determines which entries were used; the state of the group does not. An entry is
acknowledged (XACK) once the position after the entry is saved.
"""

from __future__ import annotations

import logging
import socket
import time
import zlib
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from secrets import token_hex
from typing import Any

from redis import Redis, exceptions

from monitor.base.errors import BlindsightError
from monitor.base.files import read_secret
from monitor.base.source import Raw, RawMessages, Source, SourceCounts, bytes_in
from monitor.config.redis import RedisSourceConfig

log = logging.getLogger(__name__)

MOST_ENTRIES, MOST_CALLS, MOST_CLAIMED, MOST_IN_FLIGHT = 100, 50, 1000, 1_000_000
"""The limits of entries in a request, requests in a read, entries to claim, and entries not saved yet.

A request asks for few entries, because Redis can limit only their number, and each entry may be large.
"""
ANSWER_SECONDS, POLL_SECONDS, FIRST_PAUSE, LONGEST_PAUSE = 5.0, 0.05, 0.1, 5.0
_START, _END = b"0-0", b"%d-0" % (2**64 - 1)
_ERRORS = (exceptions.RedisError, OSError)
_TEMPORARY = (exceptions.ConnectionError, exceptions.TimeoutError, exceptions.ReadOnlyError, OSError)
_AWAY = "source %s: %s; trying again"
_TOO_LARGE = b"this entry does not fit into the agent's memory"
_PROGRESS = ("_read", "_drift", "_claimed", "_log", "_added", "_passed_by", "_last", "_first", "counts")
_GAP = "source %s: %d entries were deleted before they were read; keep more (MAXLEN), or read faster"
_ENDS = "source %s: the stream ends at %s, before our %s: it has lost entries, as after a failover"
_RECREATED = (
    "source %s: the stream was deleted and created again; it is read from its start; of the old one, "
    "%d entries are lost, as far as its end was known"
)
Entry = tuple[bytes, dict[bytes, bytes] | None]  # an id and its fields; None if the entry was deleted
Position = dict[str, Any]
Mark = list[Any]


def connected(settings: RedisSourceConfig) -> Any:
    """Return a client that is connected to the server.

    The client does not retry requests: a second request would not return the entries of a lost first reply.

    Raises
    ------
    SourceError
        The file of the password cannot be read.
    redis.exceptions.RedisError, OSError
        The server cannot be reached, or refuses the login.
    """
    secret = settings.password_file and read_secret("password_file", settings.password_file)
    options = {**settings.client_options, "password": secret, "socket_timeout": ANSWER_SECONDS}
    client = Redis.from_url(settings.url, protocol=2, retry=None, **options)
    client.ping()
    return client


def messages(settings: RedisSourceConfig, entries: Sequence[Entry], after: Any = None) -> RawMessages:
    """Convert entries to messages for the decoder.

    The offset of a message is the entry's id as a number. The last six digits are the part of the id after
    the hyphen. If an entry does not have the configured field, the value is an error text, which the decoder
    rejects.

    Parameters
    ----------
    settings : RedisSourceConfig
    entries : sequence of (bytes, dict of bytes to bytes or None)
        The id and the fields of each entry.
    after : object, optional
        The position after the last entry.
    """
    key, contents = settings.field.encode(), [fields or {} for _, fields in entries]
    values = [each.get(key, b"no field %s among %s" % (key, b", ".join(each))) for each in contents]
    ids = [_order(entry) for entry, _ in entries]
    places = [min(ms * 10**6 + min(number, 10**6 - 1), 2**63 - 1) for ms, number in ids]
    beside = [[(k.decode("utf-8", "replace"), v) for k, v in each.items() if k != key] for each in contents]
    events = settings.reads_events and any(beside)
    return RawMessages(values, settings.stream, places, headers=beside if events else None, after=after)


def _mark(entry: Entry) -> Mark:
    """Return the id of an entry and a checksum of its fields, by which the entry is recognised."""
    return [entry[0], zlib.crc32(b"\0".join(part for pair in (entry[1] or {}).items() for part in pair))]


def _order(entry: bytes) -> tuple[int, ...]:
    """Return an id as two numbers, which compare like the ids."""
    return tuple(map(int, entry.split(b"-")))


def _is_temporary(error: Exception) -> bool:
    """Return whether waiting helps, or `_begin` can create the missing stream or group."""
    gone = "NOGROUP" in str(error) or "no such key" in str(error)
    return gone or (isinstance(error, _TEMPORARY) and not isinstance(error, exceptions.AuthenticationError))


class RedisStream(Source[Position]):
    """A source of one Redis stream, which is read in a consumer group; see docs/kafka.md.

    If one store saves the positions of the source, each entry is used once.

    The source has two consumers in the group. New entries are delivered to the first consumer. The second
    consumer, `NAME+claims`, holds entries that were claimed from dead consumers. After a start, the source
    reads the unacknowledged entries of both consumers again, and skips entries before the position, which
    were used.

    Parameters
    ----------
    settings : RedisSourceConfig

    Attributes
    ----------
    up : bool
        True if the last request to the server succeeded.
    lag : int or None
        The number of entries that the group has not delivered yet; None if unknown.
    counts : SourceCounts
        The numbers of entries that were deleted before they were read, and of claimed entries.
    trouble : str or None
        A description of the error if the client library itself has failed; None for errors of Redis or of the
        network.
    """

    up = False
    lag: int | None = None
    counts = SourceCounts()
    trouble: str | None = None

    def __init__(self, settings: RedisSourceConfig) -> None:
        self.name, self._settings = settings.label, settings
        self._stream, self._group = settings.stream, settings.group
        self._name = f"{socket.gethostname()}-{token_hex(4)}"  # or the name in a saved position
        self._client: Any = None
        self._saved: Position | None = None
        self._read, self._drift, self._most = b"", 0, MOST_ENTRIES
        # The ids up to which entries that our two consumers hold were read again; b"" after the last one.
        self._history, self._held = b"", b""
        self._has_more = False  # whether the last reply was full, so that another request follows at once
        self._too_large = ""  # the consumer that holds an entry that does not fit into memory
        # These values show whether the key still has the same stream: a random name that we gave it, the
        # numbers of entries ever added to it, at the last read and up to our position, the entry at our
        # position, and the first entry.
        self._log, self._added, self._passed_by = token_hex(8), 0, 0
        self._last: Mark | None = None
        self._first: Mark | None = None
        self._in_flight: deque[bytes] = deque()
        self._claimed: list[bytes] = []  # ids of the second consumer, in no order
        self._away_logged, self._name_sent, self._pause = False, False, FIRST_PAUSE
        self._next_try = self._next_claim = 0.0

    def open(self, positions: Mapping[str, Position]) -> None:
        """Restore the position, connect, and create the group if it does not exist.

        If the server is not available, `read` tries again.

        Raises
        ------
        SourceError
            The server refuses a request, for example the login.
        """
        if (position := positions.get(self._stream)) is not None:
            self._saved, self._name, self._claimed = position, position["consumer"], position["claimed"]
            self._read, self._drift = position["after"], position["drift"]
            self._log = position.get("log", self._log)  # positions of older versions lack these keys
            self._added, self._passed_by = position.get("added", 0), position.get("passed", 0)
            self._last, self._first = position.get("last"), position.get("first")
        self._try(self._settle)

    def read(self, timeout_seconds: float) -> list[Raw]:
        """Wait about `timeout_seconds` at most for entries, and return about `batch_bytes` of entries.

        The list is empty if there are no entries within this time, or if the server is not available.

        Raises
        ------
        SourceError
            The server refuses a request, for example the login.
        """
        deadline = time.monotonic() + timeout_seconds
        raws: list[Raw] = []
        size = 0
        self._try(self._settle)
        while len(raws) < MOST_CALLS and 2 * size < self._settings.batch_bytes:
            raw = self._try(self._next)
            if raw is not None:
                raws.append(raw)
                size += bytes_in(raw)
            left = deadline - time.monotonic()
            if left <= 0 or (raws and not self._has_more):
                break
            if not self._has_more:
                time.sleep(min(left, POLL_SECONDS))
                self._try(self._settle)
        return raws

    def keep_alive(self) -> None:
        """Acknowledge saved entries, and show the group that both consumers are alive. Read no entries."""
        self._try(self._settle)

    @classmethod
    def sample(cls, settings: Any, records: int) -> list[Raw] | str:
        """Return the newest entries, at most `records`, without using the group.

        Raises
        ------
        SourceError
            The server cannot be reached, or refuses a request.
        """
        try:
            with connected(settings) as client:
                entries = client.xrevrange(settings.stream, count=records)
        except _ERRORS as error:
            raise settings.to_source_error(error) from error
        return [messages(settings, entries[::-1])] if entries else []

    def acknowledge(self, positions: Mapping[str, Position]) -> None:
        """Record a saved position, so that the next request acknowledges the entries before it.

        A position in a stream that has since been deleted and created again is ignored.
        """
        position = positions.get(self._stream)
        if position is not None and position.get("log", self._log) == self._log:
            self._saved = position

    def close(self) -> None:
        """Acknowledge saved entries, and close the connection."""
        if self._client is not None:
            self._try(self._settle)
        self._drop()

    def _drop(self) -> None:
        client, self._client, self.up, self.lag = self._client, None, False, None
        if client is not None:
            with suppress(Exception):
                client.close()

    def _try(self, step: Callable[[], RawMessages | None]) -> RawMessages | None:
        """Return the result of a step, or None if the server is not available.

        After a failure, the result is None for a moment without another attempt. A failed step leaves our
        state unchanged: entries that it read are pending in the group, and are read again.

        Raises
        ------
        SourceError
            The step failed in a way that waiting does not correct.
        """
        if time.monotonic() < self._next_try:
            return None
        progress = {name: getattr(self, name) for name in _PROGRESS}
        try:
            if self._client is None:
                self._client = connected(self._settings)
                self._begin()
            raw = step()
            self.up, self._away_logged, self._pause, self.trouble = True, False, FIRST_PAUSE, None
            return raw
        except Exception as error:
            vars(self).update(progress)
            self._has_more = False
            if isinstance(error, BlindsightError):
                raise
            self._failed(error)
            return None

    def _failed(self, error: Exception) -> None:
        """Close the connection and log the reason; raise SourceError if waiting does not help."""
        self._drop()
        self._next_try, self._pause = time.monotonic() + self._pause, min(2 * self._pause, LONGEST_PAUSE)
        if isinstance(error, MemoryError):
            self._most = max(self._most // 8, 1)
        failure = self._settings.to_source_error(error)
        if not isinstance(error, _ERRORS):
            self.trouble = str(failure)
        elif not _is_temporary(error):
            raise failure from error
        log.log(logging.DEBUG if self._away_logged else logging.WARNING, _AWAY, self.name, failure)
        self._away_logged = True

    def _begin(self) -> None:
        """Prepare to read in a new connection.

        The group is created if it does not exist, at our position or where `start` says. If the stream is
        another one, reading starts again. If the stream has lost its end, the position moves to its last
        entry.
        """
        info = self._info()
        lost = bool(info) and self._read > b"" and _order(self._read) > _order(info["last-generated-id"])
        if self._is_other(info):
            self._start_again()
        elif lost:
            log.warning(_ENDS, self.name, info["last-generated-id"].decode(), self._read.decode())
            self._read = info["last-generated-id"]
        at = self._read or {"earliest": b"0", "latest": b"$"}[self._settings.start]
        try:
            self._client.xgroup_create(self._stream, self._group, at, mkstream=True)
            log.warning("source %s: created the group %s, from %s on", self.name, self._group, at.decode())
        except exceptions.ResponseError as error:
            if "BUSYGROUP" not in str(error):
                raise
            if lost and self._read != _START:
                self._client.xgroup_setid(self._stream, self._group, self._read)
        self._read = self._read or self._progress_of(self._client.xinfo_groups(self._stream))[0]
        self._history, self._held, self._in_flight = _START, _START, deque()

    def _info(self) -> dict[str, Any]:
        """Return the result of XINFO STREAM, or an empty dict if there is no stream."""
        try:
            info: dict[str, Any] = self._client.xinfo_stream(self._stream)
        except exceptions.ResponseError as error:
            if "no such key" not in str(error):
                raise
            return {}
        if "entries-added" not in info:
            raise exceptions.InvalidResponse("this server is older than version 7, which is needed")
        return info

    def _is_other(self, info: Mapping[str, Any]) -> bool:
        """Return whether the stream of our position was deleted, and perhaps another one created."""
        read = self._read
        if not info or read in (b"", _START):
            return not info and read not in (b"", _START)
        if _order(read) > _order(info["last-generated-id"]) or info["entries-added"] < self._added:
            return not self._has_entry(self._first)  # otherwise the stream is the same and has lost its end
        first = info["first-entry"]
        if first is None or _order(first[0]) > _order(read):
            return bool(info["entries-added"] < self._passed_by + info["length"])
        if self._client.xrange(self._stream, read, read):
            return self._last is not None and not self._has_entry(self._last)
        return _order(info["max-deleted-entry-id"]) < _order(read)  # otherwise our entry was deleted

    def _has_entry(self, mark: Mark | None) -> bool:
        """Return whether the stream has the entry of a mark, with the same fields."""
        return mark is not None and mark in map(_mark, self._client.xrange(self._stream, mark[0], mark[0]))

    def _start_again(self) -> None:
        """Restart at the beginning of a new stream, and count known unread entries of the old one as lost."""
        lost = max(self._added - self._passed_by, 0)
        log.warning(_RECREATED, self.name, lost)
        counts = self.counts
        self.counts = replace(counts, gap_records=counts.gap_records + lost)
        self._read, self._drift, self._claimed, self._log = _START, 0, [], token_hex(8)
        self._added, self._passed_by, self._last, self._first = 0, 0, None, None
        self._saved = self._saved and self._position()

    def _settle(self) -> None:
        """Acknowledge entries whose use is saved, and show the group that our consumers live."""
        if (saved := self._saved) is not None:
            done = [entry for entry in self._claimed if entry in saved["claimed"]]
            while self._in_flight and _order(self._in_flight[0]) <= _order(saved["after"]):
                done.append(self._in_flight.popleft())
            if done:
                self._client.xack(self._stream, self._group, *done)
            self._claimed = [entry for entry in self._claimed if entry not in saved["claimed"]]
        for name in (self._name, self._name + "+claims") if self._claimed else (self._name,):
            self._read_held(name, _END, 1)

    def _next(self) -> RawMessages | None:
        """Return some entries, or None if there are none.

        First come entries that the group delivered before and that were not used, then entries of dead
        consumers, and then new entries.
        """
        self._has_more = False
        # Read nothing before the store has saved our consumer's name. After a crash we would otherwise come
        # back under another name, and not know which entries of the group are ours.
        if self._saved is None:
            sent, self._name_sent = self._name_sent, True
            return None if sent else messages(self._settings, [], self._position())
        if len(self._in_flight) >= MOST_IN_FLIGHT:
            return None
        if self._history:
            entries = self._read_again(self._name, self._history)
            self._history, self._has_more = entries[-1][0] if entries else b"", True
            return self._hand_out(entries)
        if not self._held and not self._claimed and time.monotonic() >= self._next_claim:
            self._next_claim = time.monotonic() + self._settings.claim_seconds / 4
            self._claim_of_the_dead()
        if self._held:
            entries = self._read_again(self._name + "+claims", self._held)
            self._held, self._has_more = entries[-1][0] if entries else b"", True
            return self._hand_out(entries, claimed=True)
        return self._read_new()

    def _read_again(self, consumer: str, after: bytes) -> list[Entry]:
        """Return the next entries that one of our consumers holds, after an id.

        If the next entry does not fit into memory, an error text stands in for its record.
        """
        if self._too_large != consumer:
            try:
                return self._read_held(consumer, after, self._most)
            except MemoryError:
                self._too_large = consumer if self._most == 1 else ""
                raise
        beyond = "(" + after.decode()
        if consumer == self._name and (old := self._ids(consumer, beyond, self._read.decode(), MOST_CLAIMED)):
            return [(entry, None) for entry in old]  # entries that were handed out before
        self._too_large = ""
        held = self._ids(consumer, beyond, "+", len(self._claimed) + 1)
        new = next((entry for entry in held if entry not in self._claimed), None)
        return [] if new is None else [(new, {self._settings.field.encode(): _TOO_LARGE})]

    def _ids(self, consumer: str, first: str, last: str, most: int) -> list[bytes]:
        """Return the ids of at most `most` entries that one of our consumers holds, between two ids."""
        held = self._client.xpending_range(self._stream, self._group, first, last, most, consumer)
        return [each["message_id"] for each in held]

    def _claim_of_the_dead(self) -> None:
        """Claim the entries of one consumer that has made no request for `claim_seconds`."""
        stream, group, idle = self._stream, self._group, int(1000 * self._settings.claim_seconds)
        ours = self._name.encode()
        for other in self._client.xinfo_consumers(stream, group):
            who: bytes = other["name"]  # other clients may use any bytes as a name
            if other["idle"] >= idle and other["pending"] and who.removesuffix(b"+claims") != ours:
                held = self._client.xpending_range(stream, group, "-", "+", MOST_CLAIMED, who)
                shown = who.decode("utf-8", "backslashreplace")
                log.warning("source %s: takes %d entries over from %s", self.name, len(held), shown)
                ids = [each["message_id"] for each in held]
                self._client.xclaim(stream, group, self._name + "+claims", idle, ids, justid=True)
                self._held = _START  # read them from the second consumer
                return

    def _read_new(self) -> RawMessages | None:
        """Return entries that the group has delivered to nobody, and count entries deleted before them.

        Redis counts the entries that the group has passed, but version 7.0 leaves out deleted entries.
        `_drift` is the number of entries that are missing in its count.
        """
        pipe = self._client.pipeline(transaction=True)
        pipe.xinfo_stream(self._stream).xinfo_groups(self._stream)
        pipe.xreadgroup(self._group, self._name, {self._stream: ">"}, count=self._most)
        info, before, reply, after = pipe.xinfo_groups(self._stream).execute()
        entries: list[Entry] = reply[0][1] if reply else []
        if info["entries-added"] < self._added:
            self._begin()  # these entries are pending now, and are read again
            return None
        (start, was), (_, now) = self._progress_of(before), self._progress_of(after)
        added, missed, passed = info["entries-added"], 0, (now or 0) + self._drift
        # Redis counts nothing after an XDEL; then use our own count, if we have read anything.
        passed_before = was + self._drift if was is not None else self._passed_by or None
        if entries and entries[0][0] == info["first-entry"][0]:
            passed = added - info["length"] + len(entries)
            missed = 0 if was is None or start == _START else passed - len(entries) - was - self._drift
        elif not entries and start != _START and passed_before is not None:
            missed = added - passed_before  # all entries after our position were deleted
        self._has_more = len(entries) == self._most
        passed = passed if self._has_more else added
        self._drift = passed - now if now is not None else self._drift
        self.lag = max(min(added - passed, info["length"]), 0)
        if entries or missed > 0:
            first = info["first-entry"]
            self._added, self._passed_by, self._first = added, passed, None if first is None else _mark(first)
        return self._hand_out(entries, missed)

    def _hand_out(self, entries: list[Entry], missed: int = 0, claimed: bool = False) -> RawMessages | None:
        """Return the entries that were not handed out before, and count deleted entries.

        Parameters
        ----------
        entries : list of Entry
            Entries from the group.
        missed : int, default 0
            The number of entries that were deleted before these.
        claimed : bool, default False
            Whether the second consumer holds the entries.
        """
        if claimed:
            new = [each for each in entries if each[0] not in self._claimed]
            self._claimed = self._claimed + [entry for entry, _ in new]
        else:
            new = [each for each in entries if _order(each[0]) > _order(self._read)]
            self._in_flight.extend(entry for entry, _ in entries)
            if new:
                self._read, self._last = new[-1][0], _mark(new[-1])
        here = [each for each in new if each[1]]
        missed = max(missed, 0) + len(new) - len(here)
        if missed:
            log.warning(_GAP, self.name, missed)
        gap, overlap = self.counts.gap_records + missed, self.counts.overlap_records + claimed * len(here)
        self.counts = SourceCounts(gap_records=gap, overlap_records=overlap)
        if not here:  # save the position, so that a restart does not count them again
            return messages(self._settings, [], self._position()) if missed else None
        raw = messages(self._settings, here, self._position())
        mean = max(bytes_in(raw) // len(here), 1)
        self._most = max(1, min(MOST_ENTRIES, self._settings.batch_bytes // mean))
        return raw

    def _position(self) -> Position:
        """Return the position after the entries that were handed out."""
        position = {
            "after": self._read,
            "drift": self._drift,
            "consumer": self._name,
            "claimed": self._claimed,
        }
        known = {"added": self._added, "passed": self._passed_by, "last": self._last, "first": self._first}
        return {**position, **known, "log": self._log}

    def _read_held(self, consumer: str, after: bytes, count: int) -> list[Entry]:
        """Return at most `count` entries that one of our consumers holds, after an id."""
        reply = self._client.xreadgroup(self._group, consumer, {self._stream: after}, count=count)
        return reply[0][1] if reply else []

    def _progress_of(self, groups: list[dict[str, Any]]) -> tuple[bytes, int | None]:
        """Return the last id that the group has delivered, and the number of entries up to it, if known."""
        ours = next(group for group in groups if group["name"] == self._group.encode())
        return ours["last-delivered-id"], ours["entries-read"]
