"""Decides where reading of a partition continues, and counts the records that this skips or repeats.

It continues at the agent's own position, at the group's, or at an end of the log. A client library could do
some of this (`auto_offset_reset`). But it would not say how many records retention deleted, and with `latest`
it would not read a new partition from its start. So the library's own reset is switched off, and every
position is set here.
"""

from __future__ import annotations

import logging
import math
import re
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

from kafka.errors import KafkaTimeoutError, NoOffsetForPartitionError

from connectors.kafka.drivers.base import (
    NO_STAMP,
    CommittedPosition,
    Driver,
    End,
    Polled,
    PositionGoneError,
    TopicDescription,
    partition_of,
)
from connectors.kafka.drivers.errors import passes
from connectors.kafka.source.ledger import PositionLedger
from connectors.kafka.source.pace import Looks
from monitor.base.errors import SourceError
from monitor.base.source import ShardOwner, SourceCounts

log = logging.getLogger(__name__)

Start = Literal["earliest", "latest", "none"]

ASK_SECONDS = 2.0
"""The longest time for the brokers to name a position, or to store a last commit."""

MAX_OWNERS = 50
"""The largest number of successive owners of a partition in one note; Kafka stores notes of 4,096 bytes."""

CHECK_SECONDS = 1.0
"""The time between two checks whether the topics are still the same."""

ABSENT_SECONDS = 5.0
"""The time after which a topic or partition that brokers do not know is regarded as deleted.

A broker that has just started may not know it yet.
"""

_NOTE = re.compile(r"began=(\d+(?:,\d+)*)(?: log=([0-9a-f-]{36}).*)?", re.DOTALL)
"""The pattern of a note. After an id, whose length is known, confluent-kafka may add bytes from memory."""


class _Note(NamedTuple):
    """The note that is stored beside a committed position."""

    began: tuple[int, ...] = ()
    """The positions where the owners up to this commit began, the last owner's at the end; may be empty."""
    log: str = ""
    """The id of the topic of this position, if it is known."""


def _noted(told: CommittedPosition | None) -> _Note:
    found = _NOTE.fullmatch(told.note) if told is not None else None
    return _Note(tuple(map(int, found[1].split(","))), found[2] or "") if found else _Note()


def _used_twice(own: int, began: tuple[int, ...]) -> int:
    """Return the number of records before our position that a later owner used again.

    It began at our last commit, which was before our own position.
    """
    return own - max((position for position in began if position <= own), default=own)


def _lacks(there: Mapping[str, TopicDescription], name: str) -> bool:
    """Return whether the topic of a partition exists without the partition."""
    topic, number = partition_of(name)
    numbers = there[topic].partitions if topic in there else ()
    return bool(numbers) and number not in numbers


class Placement:
    """Sets the positions of partitions, and counts the records that were missed or used twice.

    It outlives consumers. The note of a commit says where the consumer began to read the partition, and where
    the owners before it began, as far as each continued at the commit of the one before (``began=400,900``).
    So an owner that returns after a crash knows which records a later owner has used again: those from where
    that owner began up to its own position. It knows this even if the partition has moved on since.

    Positions name the id of their topic. A topic that was deleted and created again has another id, and is
    read from its start, whatever `start` is. Between two checks of the ids, records of the new log may be
    regarded as the old one's: then they are read twice, and none is skipped. The positions of partitions that
    the new topic does not have are dropped.

    Brokers before 2.8 have no ids. For them positions hold the epoch and the time of the record before them.
    After a start, or after a pause of a second, this record is read once more before any later message is
    handed out. If it is another record, the topic was created again.

    Only the reading thread may use it, except for `counts` and `marks`, which any thread may call.

    Parameters
    ----------
    source : str
        The name of the source, for the log.
    ledger : PositionLedger
        The agent's own positions.
    start : {"earliest", "latest", "none"}
        Where a partition begins that nobody has read.
    shards : ShardOwner, optional
        The state of partitions that move between agents, with their positions. A committed position then
        counts only for a partition without a state.
    """

    def __init__(
        self, source: str, ledger: PositionLedger, start: Start, shards: ShardOwner | None = None
    ) -> None:
        self._source = source
        self._ledger = ledger
        self._start = start
        self._shards = shards
        self._tokens: dict[str, object] = {}
        self._known: dict[str, set[int]] = {}
        self._began: dict[str, tuple[int, ...]] = {}
        self._ids: dict[str, str] = {}
        self._absent: dict[str, float] = {}  # since when, monotonic
        self._removed: dict[str, float] = {}  # partitions, likewise
        self._dropped: list[str] = []
        self._checks = Looks(CHECK_SECONDS)
        self._handed_out: dict[str, float] = {}
        self._looked_back: set[str] = set()
        self._after_others: set[str] = set()
        self._gap = self._taken_over = self._overlap = 0

    def counts(self, rebuilds: int) -> SourceCounts:
        """Return the numbers of records so far that were missed, used by others, or used twice.

        Parameters
        ----------
        rebuilds : int
            The number of consumers that were replaced because they were stuck.
        """
        return SourceCounts(self._gap, self._taken_over, self._overlap, rebuilds)

    def after_others(self, name: str) -> bool:
        """Return whether another member used records just before the ones that are handed out now.

        Call it once for each read of a partition.
        """
        if name in self._after_others:
            self._after_others.discard(name)
            return True
        return False

    def marks(self, positions: Mapping[str, int]) -> dict[str, CommittedPosition]:
        """Return positions with their notes, ready to commit.

        A note says where reading of the partition began, and in which log.
        """
        return {name: CommittedPosition(position, self._note(name)) for name, position in positions.items()}

    def _note(self, name: str) -> str:
        began, log = self._began.get(name, ()), self._ledger.known(name).log
        return f"began={','.join(map(str, began))}{' log=' if log else ''}{log}" if began else ""

    def meet(self, driver: Driver, topics: Sequence[str]) -> None:
        """Remember which topics and partitions exist at the first reading: all others are new ones.

        Raises
        ------
        KafkaTimeoutError
            The brokers did not name the topics' ids in time; try again.
        SourceError
            State moves with partitions, and the topics do not have equally many.
        """
        if self._shards is not None:
            self._refuse_uneven({topic: len(driver.partitions_of(topic)) for topic in topics})
        self._hear(driver.describe(topics, ASK_SECONDS))
        for topic in topics:
            self._known.setdefault(topic, driver.partitions_of(topic))

    def _refuse_uneven(self, counts: Mapping[str, int]) -> None:
        """Raise a SourceError if topics have different numbers of partitions.

        One agent must own all partitions of one number, because they have one state.
        """
        there = {topic: count for topic, count in counts.items() if count}
        if len(set(there.values())) > 1:
            shown = ", ".join(f"{topic} {count}" for topic, count in there.items())
            raise SourceError(
                f"source {self._source}: with store.by_partition all topics need equally many partitions, "
                f"got {shown}; add partitions to the topic that has fewer"
            )

    def check(self, driver: Driver, topics: Sequence[str], placed: Collection[str]) -> None:
        """Check, at most once a second, whether the topics and their partitions are still the same.

        Parameters
        ----------
        driver : Driver
        topics : sequence of str
        placed : collection of str
            The partitions that have positions.

        Raises
        ------
        NoOffsetForPartitionError
            A topic was created again, and `start` is none.
        """
        if self._checks.due:
            with self._checks.one():
                self._check(driver, topics, placed)

    def _check(self, driver: Driver, topics: Sequence[str], placed: Collection[str]) -> None:
        # Seen before the brokers are asked: then an end is one of the log that they name.
        ends = {name: driver.highwater(name) for name in placed}
        try:
            there = driver.describe(topics, CHECK_SECONDS)
        except Exception as error:
            if not passes(error):
                raise
        else:
            self._hear(there)
            self._note_absent({*topics} - there.keys())
            self._drop_removed(there, ends.keys())
            for name, end in ends.items():
                if name in self._removed:
                    continue
                if self._is_other(name):
                    self._go_on_in(driver, name)
                elif self._id(name):  # else the end may be one of another log
                    self._ledger.told(name, self._id(name), end or 0)

    def _hear(self, there: Mapping[str, TopicDescription]) -> None:
        for topic, (current, _) in there.items():
            if current:
                if self._ids.get(topic, current) != current:
                    self._known[topic] = set()  # all partitions of the topic that was created again are new
                self._ids[topic] = current

    def _note_absent(self, absent: Collection[str]) -> None:
        now = time.monotonic()
        read = self._ledger.topics() if absent else ()
        self._absent = {topic: self._absent.get(topic, now) for topic in absent if topic in read}

    def _drop_removed(self, there: Mapping[str, TopicDescription], placed: Collection[str]) -> None:
        """Count the lost records of partitions that their topic no longer has, and drop their positions.

        The number of a topic's partitions never falls, so the topic was created again with fewer.
        """
        now = time.monotonic()
        self._removed = {
            name: self._removed.get(name, now) for name in self._ledger.names() if _lacks(there, name)
        }
        for name in [name for name, since in self._removed.items() if now - since >= ABSENT_SECONDS]:
            if name in placed:  # until the group has heard of it
                continue
            lost = self._count_unread(name)
            log.warning(
                "source %s: topic %s was deleted and created again without partition %d: of the old topic, "
                "%d records are lost, as far as its end was known",
                self._source,
                *partition_of(name),
                lost,
            )
            self._ledger.drop(name)
            self._known.get(partition_of(name).topic, set()).discard(partition_of(name).partition)
            self._dropped.append(name)

    def dropped(self) -> list[str]:
        """Return the partitions whose positions were dropped since the last call."""
        dropped, self._dropped = self._dropped, []
        return dropped

    @property
    def absent(self) -> set[str]:
        """The topics that were read, and that the brokers did not know when they were last asked."""
        return {*self._absent}

    @property
    def deleted(self) -> set[str]:
        """The topics that were read, and that the brokers have not known for `ABSENT_SECONDS`."""
        before = time.monotonic() - ABSENT_SECONDS
        return {topic for topic, since in self._absent.items() if since <= before}

    def checked(self, driver: Driver, polled: Polled) -> Polled | None:
        """Return the messages that may be handed out, or None if the log before them must be checked first.

        Raises
        ------
        NoOffsetForPartitionError
            It is the log of another topic, and `start` is none.
        """
        name, now = polled.partition, time.monotonic()
        known = self._ledger.known(name)
        paused = now - self._handed_out.get(name, -math.inf) >= CHECK_SECONDS
        looked_back = name in self._looked_back
        self._looked_back.discard(name)
        if known.stamp != NO_STAMP and polled.offsets[0] == known.at - 1:
            if known.stamp.differs(polled.first):
                self._go_on_in(driver, name)
                return None
            polled = polled.after_first()
        elif known.stamp != NO_STAMP and paused and not looked_back:
            self._looked_back.add(name)
            driver.seek(name, known.at - 1)
            return None
        self._handed_out[name] = now
        if not self._id(name):
            self._ledger.told(name, "", driver.highwater(name) or 0)
        return polled if polled.offsets else None

    def place(self, driver: Driver, names: Collection[str]) -> Iterator[str]:
        """Set newly assigned partitions to the larger of the agent's own position and the group's.

        The brokers are asked for all partitions at once, for a few seconds at most.

        Yields
        ------
        str
            Each partition that has its position now. The others must be tried again: nobody has read the
            partition and its brokers did not name an end of its log in time, or another agent still has its
            state.

        Raises
        ------
        KafkaTimeoutError
            The brokers did not name the group's positions in time; try again.
        NoOffsetForPartitionError
            Nobody has read a partition, and `start` is none.
        """
        restored = [name for name in names if self._restored(name)]
        told = driver.told(restored, ASK_SECONDS) if restored else {}
        unread = [
            name
            for name in restored
            if name not in told and self._ledger.resume(name) is None and not self._is_other(name)
        ]
        beginnings = self._beginnings(driver, unread)
        for name in restored:
            if self._place(driver, name, told.get(name), beginnings.get(name)):
                yield name

    def _place(
        self, driver: Driver, name: str, told: CommittedPosition | None, beginning: int | None
    ) -> bool:
        """Set the position of a partition, and return whether it has one.

        `beginning` is the position for a partition that nobody has read, or None if it is not known yet.
        """
        own = self._ledger.resume(name)
        current, note = self._id(name), _noted(told)
        stale = bool(current) and note.log not in ("", current)
        if self._is_other(name) or (own is None and stale):
            self._go_on_in(driver, name, told.position if told is not None and note.log == current else 0)
            return True
        told = None if stale or (self._shards is not None and own is not None) else told
        position = self._larger(name, own, told, note.began)
        if position is None:
            if self._start == "none" and not self._is_new(name):
                raise NoOffsetForPartitionError(partition_of(name))
            if beginning is None:
                return False
            position = beginning
            if self._is_new(name):
                log.info("source %s: %s is new; it is read from its start", self._source, name)
            self._ledger.begun(name, position)
        self._ledger.told(name, current)
        self._go(driver, name, position)
        if told is not None:
            began = note.began
            # Where we have used more than the group was told, the stretch goes on that the last commit began.
            if position == told.position and began[-1:] != (position,):
                began = (*began, position)[-MAX_OWNERS:]
            self._began[name] = began or (position,)
        return True

    def _restored(self, name: str) -> bool:
        """Return whether the state of the partition is here, and put its position into the ledger.

        It is True if states do not move between agents.
        """
        if self._shards is None:
            return True
        taken = self._shards.take(name, partition_of(name).partition)
        if taken is None:
            return False
        token, positions = taken
        if self._tokens.get(name) is not token:
            self._tokens[name] = token
            self._ledger.restore(name, positions.get(name))
        return True

    def mend(self, driver: Driver, error: PositionGoneError) -> None:
        """Set positions where there are records, after the brokers have said that there are none at ours.

        If retention deleted records before they were read, the position is the log's start, whatever `start`
        is, and the deleted records are counted. If the log ends before our position, because the topic was
        created again or another broker with fewer records leads it, the position is the point from which the
        logs differ. If the brokers do not know this point, it is the end of the log that `start` names.

        Raises
        ------
        PositionGoneError
            `start` is none: the operator wants to decide this.
        KafkaTimeoutError
            The brokers did not answer in time; try again.
        """
        if self._start == "none":
            raise error
        self._hear(driver.describe({partition_of(name).topic for name in error.places}, ASK_SECONDS))
        here = driver.assigned()
        gone = {
            name: at for name in error.places if name in here and (at := driver.position(name)) is not None
        }
        for name in [name for name in gone if self._is_other(name)]:
            self._go_on_in(driver, name)
            del gone[name]
        first = driver.ends(gone, "earliest", ASK_SECONDS) if gone else {}
        for name in [name for name in first if gone[name] < first[name]]:
            self._go_behind_gap(driver, name, gone.pop(name), first[name])
        behind = {name: at for name, at in gone.items() if name in first}
        last = driver.ends(behind, "latest", ASK_SECONDS) if behind else {}
        for name in last:
            at = gone.pop(name)
            if not error.truncated and self._id(name) and at <= last[name]:
                driver.seek(name, at)  # the word is of the log before, which had this topic's name
            else:
                start = first[name] if self._start == "earliest" else last[name]
                self._go_back(driver, name, at, error.places[name], start)
        if gone:
            raise KafkaTimeoutError(
                f"the leaders of {len(gone)} partitions did not name the ends of their logs"
            )

    def _go_behind_gap(self, driver: Driver, name: str, at: int, first: int) -> None:
        """Continue at the first record that retention has left, and count the deleted records before it."""
        known = self._ledger.known(name).at
        if name in self._looked_back and first <= known:
            driver.seek(name, known)  # the record to be looked at is deleted: nothing else is missing
            return
        self._fell_behind(name, known if name in self._looked_back else at, first)
        self._ledger.begun(name, first)
        self._go(driver, name, first)

    def _go_back(self, driver: Driver, name: str, at: int, divergence: int | None, start: int) -> None:
        """Continue in a log that ends before our position: where the logs differ, or else at `start`."""
        log.warning(
            "source %s: topic %s, partition %d: position %d is beyond the end of the log: the "
            "topic was created again, or its brokers lost records; reading continues at %s",
            self._source,
            *partition_of(name),
            at,
            self._start if divergence is None else divergence,
        )
        position = start if divergence is None else divergence
        self._ledger.begun(name, position)
        self._go(driver, name, position)

    def _larger(
        self, name: str, own: int | None, told: CommittedPosition | None, began: tuple[int, ...]
    ) -> int | None:
        group = None if told is None else told.position
        if own is None or group is None:
            return own if group is None else group
        if group > own:
            twice = _used_twice(own, began)
            self._taken_over += group - own
            self._overlap += twice
            log.info(
                "source %s: %s continues at the group's position %d, not at our %d; another member also "
                "used %d records before ours",
                self._source,
                name,
                group,
                own,
                twice,
            )
            self._ledger.overtaken(name, group)
            self._after_others.add(name)
            return group
        if began:  # else a tool has reset the offsets of the group: nobody has read from there
            self._overlap += own - group
        return own

    def _beginnings(self, driver: Driver, names: Collection[str]) -> dict[str, int]:
        """Return where partitions begin that nobody has read, as far as their leaders answer in time.

        A leader that is away must not delay the other partitions.
        """
        wanted: dict[End, list[str]] = {"earliest": [], "latest": []}
        for name in names:
            if self._is_new(name):
                wanted["earliest"].append(name)
            elif self._start != "none":
                wanted[self._start].append(name)
        found: dict[str, int] = {}
        for end, part in wanted.items():
            if part:
                found |= driver.ends(part, end, ASK_SECONDS)
        return found

    def _is_new(self, name: str) -> bool:
        """Return whether the partition was added to its topic since the topic was first read."""
        tp = partition_of(name)
        known = self._known.get(tp.topic)
        return known is not None and tp.partition not in known

    def _id(self, name: str) -> str:
        return self._ids.get(partition_of(name).topic, "")

    def _is_other(self, name: str) -> bool:
        """Return whether our position belongs to a topic that has been deleted and created again."""
        ours, current = self._ledger.known(name).log, self._id(name)
        return bool(ours and current) and ours != current

    def _count_unread(self, name: str) -> int:
        """Count the records of a deleted log that were not read as a gap, and return their number."""
        old = self._ledger.known(name)
        lost = max(old.end - old.at, 0)
        self._gap += lost
        return lost

    def _go_on_in(self, driver: Driver, name: str, position: int = 0) -> None:
        """Read the log of a topic that was created again, from its start or the group's position."""
        if self._start == "none":
            raise NoOffsetForPartitionError(partition_of(name))
        lost = self._count_unread(name)
        log.warning(
            "source %s: topic %s, partition %d: the topic was deleted and created again; reading continues "
            "at %d; of the old topic, %d records are lost, as far as its end was known",
            self._source,
            *partition_of(name),
            position,
            lost,
        )
        self._ledger.begun(name, position, self._id(name))
        self._go(driver, name, position)

    def _fell_behind(self, name: str, at: int, first: int) -> None:
        self._gap += first - at
        log.warning(
            "source %s: topic %s, partition %d: %d records (%d to %d) were deleted by retention before the "
            "agent read them; reading continues at %d. Keep records longer (retention.ms, "
            "retention.bytes), or read "
            "faster",
            self._source,
            *partition_of(name),
            first - at,
            at,
            first - 1,
            first,
        )

    def _go(self, driver: Driver, name: str, position: int) -> None:
        self._began[name] = (position,)
        driver.seek(name, position)
