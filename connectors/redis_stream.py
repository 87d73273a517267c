"""A stream of Redis, read in a consumer group: what our store has used counts, and XACK follows it."""

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
"""Entries asked for at once: few, as Redis counts no bytes, and they may be larger than any before."""
ANSWER_SECONDS, POLL_SECONDS, FIRST_PAUSE, LONGEST_PAUSE = 5.0, 0.05, 0.1, 5.0
_START, _END = b"0-0", b"%d-0" % (2**64 - 1)
_ERRORS = (exceptions.RedisError, OSError)
_PASSING = (exceptions.ConnectionError, exceptions.TimeoutError, exceptions.ReadOnlyError, OSError)
_AWAY = "source %s: %s; trying again"
_TOO_LARGE = b"this entry does not fit into the agent's memory"
_PROGRESS = ("_read", "_drift", "_claimed", "_log", "_added", "_passed_by", "_last", "_first", "counts")
_GAP = "source %s: %d entries were deleted before they were read; keep more (MAXLEN), or read faster"
_ENDS = "source %s: the stream ends at %s, before our %s: it has lost entries, as after a failover"
_ANEW = (
    "source %s: the stream was deleted and created again; it is read from its start; of the old one, "
    "%d entries are lost, as far as its end was known"
)
Entry = tuple[bytes, dict[bytes, bytes] | None]  # an id and fields, none where it was deleted
Position = dict[str, Any]
Mark = list[Any]


def connected(settings: RedisSourceConfig) -> Any:
    """A client of the server, which tries nothing twice: what the first try brought would be lost."""
    secret = settings.password_file and read_secret("password_file", settings.password_file)
    options = {**settings.client_options, "password": secret, "socket_timeout": ANSWER_SECONDS}
    client = Redis.from_url(settings.url, protocol=2, retry=None, **options)
    client.ping()
    return client


def messages(settings: RedisSourceConfig, entries: Sequence[Entry], after: Any = None) -> RawMessages:
    """Entries as messages; the last six digits of a place are what stands behind the hyphen of an id."""
    key, found = settings.field.encode(), [fields or {} for _, fields in entries]
    values = [each.get(key, b"no field %s among %s" % (key, b", ".join(each))) for each in found]
    ids = [_order(entry) for entry, _ in entries]
    places = [min(ms * 10**6 + min(number, 10**6 - 1), 2**63 - 1) for ms, number in ids]
    beside = [[(k.decode("utf-8", "replace"), v) for k, v in each.items() if k != key] for each in found]
    events = settings.reads_events and any(beside)
    return RawMessages(values, settings.stream, places, headers=beside if events else None, after=after)


def _mark(entry: Entry) -> Mark:
    """What an entry is known by again: its id, and a checksum of its fields."""
    return [entry[0], zlib.crc32(b"\0".join(part for pair in (entry[1] or {}).items() for part in pair))]


def _order(entry: bytes) -> tuple[int, ...]:
    return tuple(map(int, entry.split(b"-")))


def _passes(error: Exception) -> bool:
    """Return whether waiting helps, or `_begin` creates again what is missing."""
    gone = "NOGROUP" in str(error) or "no such key" in str(error)
    return gone or (isinstance(error, _PASSING) and not isinstance(error, exceptions.AuthenticationError))


class RedisStream(Source[Position]):
    """Each entry is handed out once to this store, and acknowledged once its use is saved: docs/redis.md."""

    up = False
    lag: int | None = None
    counts = SourceCounts()
    trouble: str | None = None

    def __init__(self, settings: RedisSourceConfig) -> None:
        self.name, self._settings = settings.label, settings
        self._stream, self._group = settings.stream, settings.group
        self._name = f"{socket.gethostname()}-{token_hex(4)}"  # of the consumer, unless a position has one
        self._client: Any = None
        self._saved: Position | None = None
        self._read, self._drift, self._most = b"", 0, MOST_ENTRIES
        # Up to where the entries that our consumers hold were read again; b"" once they all were.
        self._history, self._held = b"", b""
        self._goes_on = False
        self._too_large = ""  # the consumer that holds an entry that does not fit into memory
        # What tells our stream from another under its key: a name of ours, how many entries it had had at
        # the last read, and up to our position; the entry at our position, and its first.
        self._log, self._added, self._passed_by = token_hex(8), 0, 0
        self._last: Mark | None = None
        self._first: Mark | None = None
        self._in_flight: deque[bytes] = deque()
        self._claimed: list[bytes] = []  # by a second consumer of ours, +claims: they come in no order
        self._said_away, self._said_name, self._pause = False, False, FIRST_PAUSE
        self._next_try = self._next_claim = 0.0

    def open(self, positions: Mapping[str, Position]) -> None:
        if (position := positions.get(self._stream)) is not None:
            self._saved, self._name, self._claimed = position, position["consumer"], position["claimed"]
            self._read, self._drift = position["after"], position["drift"]
            self._log = position.get("log", self._log)  # older versions kept none of these
            self._added, self._passed_by = position.get("added", 0), position.get("passed", 0)
            self._last, self._first = position.get("last"), position.get("first")
        self._try(self._settle)

    def read(self, timeout_seconds: float) -> list[Raw]:
        deadline = time.monotonic() + timeout_seconds
        found: list[Raw] = []
        size = 0
        self._try(self._settle)
        while len(found) < MOST_CALLS and 2 * size < self._settings.batch_bytes:
            raw = self._try(self._next)
            if raw is not None:
                found.append(raw)
                size += bytes_in(raw)
            left = deadline - time.monotonic()
            if left <= 0 or (found and not self._goes_on):
                break
            if not self._goes_on:
                time.sleep(min(left, POLL_SECONDS))
                self._try(self._settle)
        return found

    def keep_alive(self) -> None:
        self._try(self._settle)

    @classmethod
    def sample(cls, settings: Any, records: int) -> list[Raw] | str:
        try:
            with connected(settings) as client:
                entries = client.xrevrange(settings.stream, count=records)
        except _ERRORS as error:
            raise settings.to_source_error(error) from error
        return [messages(settings, entries[::-1])] if entries else []

    def acknowledge(self, positions: Mapping[str, Position]) -> None:
        position = positions.get(self._stream)
        if position is not None and position.get("log", self._log) == self._log:
            self._saved = position

    def close(self) -> None:
        if self._client is not None:
            self._try(self._settle)
        self._drop()

    def _drop(self) -> None:
        client, self._client, self.up, self.lag = self._client, None, False, None
        if client is not None:
            with suppress(Exception):
                client.close()

    def _try(self, step: Callable[[], RawMessages | None]) -> RawMessages | None:
        """Return the result of a step; None if the server is away, or was a moment ago.

        A step that fails changes nothing: what it had read is pending in the group, and is read again.
        """
        if time.monotonic() < self._next_try:
            return None
        progress = {name: getattr(self, name) for name in _PROGRESS}
        try:
            if self._client is None:
                self._client = connected(self._settings)
                self._begin()
            found = step()
            self.up, self._said_away, self._pause, self.trouble = True, False, FIRST_PAUSE, None
            return found
        except Exception as error:
            vars(self).update(progress)
            self._goes_on = False
            if isinstance(error, BlindsightError):
                raise
            self._failed(error)
            return None

    def _failed(self, error: Exception) -> None:
        """Close the connection and log the reason; raise a `SourceError` where somebody must act."""
        self._drop()
        self._next_try, self._pause = time.monotonic() + self._pause, min(2 * self._pause, LONGEST_PAUSE)
        if isinstance(error, MemoryError):
            self._most = max(self._most // 8, 1)
        failure = self._settings.to_source_error(error)
        if not isinstance(error, _ERRORS):
            self.trouble = str(failure)
        elif not _passes(error):
            raise failure from error
        log.log(logging.DEBUG if self._said_away else logging.WARNING, _AWAY, self.name, failure)
        self._said_away = True

    def _begin(self) -> None:
        """Have a group, at our position, or at the end of the stream that `start` names."""
        info = self._info()
        lost = bool(info) and self._read > b"" and _order(self._read) > _order(info["last-generated-id"])
        if self._is_other(info):
            self._start_anew()
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
        self._read = self._read or self._passed(self._client.xinfo_groups(self._stream))[0]
        self._history, self._held, self._in_flight = _START, _START, deque()

    def _info(self) -> dict[str, Any]:
        """What the server tells of the stream; nothing where there is none."""
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
        """Whether the stream is not that of our position, but one created after that was deleted."""
        read = self._read
        if not info or read in (b"", _START):
            return not info and read not in (b"", _START)
        if _order(read) > _order(info["last-generated-id"]) or info["entries-added"] < self._added:
            return not self._holds(self._first)  # else it is ours, and has lost its end
        first = info["first-entry"]
        if first is None or _order(first[0]) > _order(read):
            return bool(info["entries-added"] < self._passed_by + info["length"])
        if self._client.xrange(self._stream, read, read):
            return self._last is not None and not self._holds(self._last)
        return _order(info["max-deleted-entry-id"]) < _order(read)  # nobody deleted it

    def _holds(self, mark: Mark | None) -> bool:
        return mark is not None and mark in map(_mark, self._client.xrange(self._stream, mark[0], mark[0]))

    def _start_anew(self) -> None:
        """Forget the old stream, and count what we know that it held behind our position."""
        lost = max(self._added - self._passed_by, 0)
        log.warning(_ANEW, self.name, lost)
        counts = self.counts
        self.counts = replace(counts, gap_records=counts.gap_records + lost)
        self._read, self._drift, self._claimed, self._log = _START, 0, [], token_hex(8)
        self._added, self._passed_by, self._last, self._first = 0, 0, None, None
        self._saved = self._saved and self._after()

    def _settle(self) -> None:
        """Acknowledge what is used and saved, and show the group that our consumers live."""
        if (saved := self._saved) is not None:
            done = [entry for entry in self._claimed if entry in saved["claimed"]]
            while self._in_flight and _order(self._in_flight[0]) <= _order(saved["after"]):
                done.append(self._in_flight.popleft())
            if done:
                self._client.xack(self._stream, self._group, *done)
            self._claimed = [entry for entry in self._claimed if entry not in saved["claimed"]]
        for name in (self._name, self._name + "+claims") if self._claimed else (self._name,):
            self._given(name, _END, 1)

    def _next(self) -> RawMessages | None:
        """What the group gave before and was not used; then what the dead held; then what is new."""
        self._goes_on = False
        if self._saved is None:  # killed before our name is kept, we would not know what of the group is ours
            said, self._said_name = self._said_name, True
            return None if said else messages(self._settings, [], self._after())
        if len(self._in_flight) >= MOST_IN_FLIGHT:
            return None
        if self._history:
            given = self._again(self._name, self._history)
            self._history, self._goes_on = given[-1][0] if given else b"", True
            return self._hand_out(given)
        if not self._held and not self._claimed and time.monotonic() >= self._next_claim:
            self._next_claim = time.monotonic() + self._settings.claim_seconds / 4
            self._claim_of_the_dead()
        if self._held:
            given = self._again(self._name + "+claims", self._held)
            self._held, self._goes_on = given[-1][0] if given else b"", True
            return self._hand_out(given, claimed=True)
        return self._new()

    def _again(self, consumer: str, after: bytes) -> list[Entry]:
        """Return entries that a consumer of ours holds; only the id of one that does not fit into memory."""
        if self._too_large != consumer:
            try:
                return self._given(consumer, after, self._most)
            except MemoryError:
                self._too_large = consumer if self._most == 1 else ""
                raise
        beyond = "(" + after.decode()
        if consumer == self._name and (old := self._ids(consumer, beyond, self._read.decode(), MOST_CLAIMED)):
            return [(entry, None) for entry in old]  # they were handed out before
        self._too_large = ""
        held = self._ids(consumer, beyond, "+", len(self._claimed) + 1)
        new = next((entry for entry in held if entry not in self._claimed), None)
        return [] if new is None else [(new, {self._settings.field.encode(): _TOO_LARGE})]

    def _ids(self, consumer: str, first: str, last: str, most: int) -> list[bytes]:
        """Return the ids of entries that a consumer of ours holds."""
        held = self._client.xpending_range(self._stream, self._group, first, last, most, consumer)
        return [each["message_id"] for each in held]

    def _claim_of_the_dead(self) -> None:
        """Claim from a consumer that has not asked for long; of one that is only slow, nothing."""
        stream, group, idle = self._stream, self._group, int(1000 * self._settings.claim_seconds)
        ours = self._name.encode()
        for other in self._client.xinfo_consumers(stream, group):
            who: bytes = other["name"]  # another client may have given it any bytes
            if other["idle"] >= idle and other["pending"] and who.removesuffix(b"+claims") != ours:
                held = self._client.xpending_range(stream, group, "-", "+", MOST_CLAIMED, who)
                shown = who.decode("utf-8", "backslashreplace")
                log.warning("source %s: takes %d entries over from %s", self.name, len(held), shown)
                ids = [each["message_id"] for each in held]
                self._client.xclaim(stream, group, self._name + "+claims", idle, ids, justid=True)
                self._held = _START  # there they are read
                return

    def _new(self) -> RawMessages | None:
        """What the group has given to nobody, and how many entries were deleted before these.

        Redis counts what the group has passed, but in version 7.0 not a gap: `drift` is what that lacks.
        """
        pipe = self._client.pipeline(transaction=True)
        pipe.xinfo_stream(self._stream).xinfo_groups(self._stream)
        pipe.xreadgroup(self._group, self._name, {self._stream: ">"}, count=self._most)
        info, before, reply, after = pipe.xinfo_groups(self._stream).execute()
        given: list[Entry] = reply[0][1] if reply else []
        if info["entries-added"] < self._added:
            self._begin()  # what was given comes again as what it was given before
            return None
        (start, was), (_, now) = self._passed(before), self._passed(after)
        added, missed, passed = info["entries-added"], 0, (now or 0) + self._drift
        # None after an XDEL: then what we know ourselves, if we have read anything.
        passed_before = was + self._drift if was is not None else self._passed_by or None
        if given and given[0][0] == info["first-entry"][0]:
            passed = added - info["length"] + len(given)
            missed = 0 if was is None or start == _START else passed - len(given) - was - self._drift
        elif not given and start != _START and passed_before is not None:
            missed = added - passed_before  # whatever was behind our position has gone
        self._goes_on = len(given) == self._most
        passed = passed if self._goes_on else added
        self._drift = passed - now if now is not None else self._drift
        self.lag = max(min(added - passed, info["length"]), 0)
        if given or missed > 0:
            first = info["first-entry"]
            self._added, self._passed_by, self._first = added, passed, None if first is None else _mark(first)
        return self._hand_out(given, missed)

    def _hand_out(self, given: list[Entry], missed: int = 0, claimed: bool = False) -> RawMessages | None:
        """Those that were not handed out before; who was deleted is counted."""
        if claimed:
            new = [each for each in given if each[0] not in self._claimed]
            self._claimed = self._claimed + [entry for entry, _ in new]
        else:
            new = [each for each in given if _order(each[0]) > _order(self._read)]
            self._in_flight.extend(entry for entry, _ in given)
            if new:
                self._read, self._last = new[-1][0], _mark(new[-1])
        here = [each for each in new if each[1]]
        missed = max(missed, 0) + len(new) - len(here)
        if missed:
            log.warning(_GAP, self.name, missed)
        gap, overlap = self.counts.gap_records + missed, self.counts.overlap_records + claimed * len(here)
        self.counts = SourceCounts(gap_records=gap, overlap_records=overlap)
        if not here:  # the position tells a restart what was counted
            return messages(self._settings, [], self._after()) if missed else None
        raw = messages(self._settings, here, self._after())
        mean = max(bytes_in(raw) // len(here), 1)
        self._most = max(1, min(MOST_ENTRIES, self._settings.batch_bytes // mean))
        return raw

    def _after(self) -> Position:
        position = {
            "after": self._read,
            "drift": self._drift,
            "consumer": self._name,
            "claimed": self._claimed,
        }
        known = {"added": self._added, "passed": self._passed_by, "last": self._last, "first": self._first}
        return {**position, **known, "log": self._log}

    def _given(self, consumer: str, after: bytes, count: int) -> list[Entry]:
        reply = self._client.xreadgroup(self._group, consumer, {self._stream: after}, count=count)
        return reply[0][1] if reply else []

    def _passed(self, groups: list[dict[str, Any]]) -> tuple[bytes, int | None]:
        ours = next(group for group in groups if group["name"] == self._group.encode())
        return ours["last-delivered-id"], ours["entries-read"]
