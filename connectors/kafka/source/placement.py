"""Where a partition is read on: our own position, the group's, or an end of its log; and what that skips.

A client library could do some of this itself (`auto_offset_reset`), but it would neither say how many records
retention took, nor read a partition that is new from its start where reading begins at `latest`. So its
own reset is switched off, and every position is set here.
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
"""How long the brokers may take to name a position, or to take a last commit."""

MAX_OWNERS = 50
"""How many owners of a partition, one after another, a commit names; Kafka takes notes of 4,096 bytes."""

CHECK_SECONDS = 1.0
"""How often the brokers are asked whether the topics are still the same."""

ABSENT_SECONDS = 5.0
"""How long brokers must not know a topic or a partition to be believed: one that has just started may not."""

_NOTE = re.compile(r"began=(\d+(?:,\d+)*)(?: log=([0-9a-f-]{36}).*)?", re.DOTALL)
"""What a commit notes. Behind an id, whose length is known, confluent-kafka may add what memory held."""


class _Note(NamedTuple):
    """What the commit of a position notes beside it."""

    began: tuple[int, ...] = ()
    """Where the owners that led to this commit began, the last one's at the end; empty where not known."""
    log: str = ""
    """The id of the topic whose position this is, if that is known."""


def _noted(told: CommittedPosition | None) -> _Note:
    found = _NOTE.fullmatch(told.note) if told is not None else None
    return _Note(tuple(map(int, found[1].split(","))), found[2] or "") if found else _Note()


def _used_twice(own: int, began: tuple[int, ...]) -> int:
    """What a successor of ours used again: it began at what we had committed, before our own position."""
    return own - max((position for position in began if position <= own), default=own)


def _lacks(there: Mapping[str, TopicDescription], name: str) -> bool:
    """Whether the topic of a partition is there, without the partition."""
    topic, number = partition_of(name)
    numbers = there[topic].partitions if topic in there else ()
    return bool(numbers) and number not in numbers


class Placement:
    """Sets positions, and counts what was missed or used twice on the way. Outlives consumers.

    A commit carries where its writer began to read the partition, and where the owners before it did, as
    far as each went on from the commit of the one before (``began=400,900``). So an owner that comes back
    after a crash knows which records its successor had used again, also if that one has handed the
    partition on since: those from where the successor began up to its own position.

    Positions name the id of their topic. One that was deleted and created again has another id, and is read
    from its start, whatever `start` says. Between two looks at the ids, records of the new log may be taken
    for the old one's: then they are read twice, and none is skipped. The positions of partitions that the new
    topic does not have are dropped.

    Brokers before 2.8 have no ids. There positions hold the epoch and the time of the record before them, and
    what comes after a start or a pause of a second is handed out only after this record has been read once
    more. Where it is another one, the topic was created again.

    Belongs to the reading thread; `counts` and `marks` may be used from any.

    Parameters
    ----------
    source : str
        For the log.
    ledger : PositionLedger
        Our own positions.
    start : {"earliest", "latest", "none"}
        Where a partition begins that nobody has read.
    shards : ShardOwner, optional
        Has the state of partitions that move, with their positions: what the group has committed counts only
        for a partition that is not in it yet.
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
        """What was missed, used elsewhere or used twice so far."""
        return SourceCounts(self._gap, self._taken_over, self._overlap, rebuilds)

    def after_others(self, name: str) -> bool:
        """Whether another member used what lies before the records handed out now; asked once for each."""
        if name in self._after_others:
            self._after_others.discard(name)
            return True
        return False

    def marks(self, positions: Mapping[str, int]) -> dict[str, CommittedPosition]:
        """Positions as they are committed: each says where reading of its partition began, and its log."""
        return {name: CommittedPosition(position, self._note(name)) for name, position in positions.items()}

    def _note(self, name: str) -> str:
        began, log = self._began.get(name, ()), self._ledger.known(name).log
        return f"began={','.join(map(str, began))}{' log=' if log else ''}{log}" if began else ""

    def meet(self, driver: Driver, topics: Sequence[str]) -> None:
        """Keep which topics and partitions there are when they are first read: all others are new ones.

        Raises
        ------
        KafkaTimeoutError
            The brokers did not name the topics' ids in time; to be tried again.
        SourceError
            State moves with partitions, and the topics have not equally many.
        """
        if self._shards is not None:
            self._refuse_uneven({topic: len(driver.partitions_of(topic)) for topic in topics})
        self._hear(driver.describe(topics, ASK_SECONDS))
        for topic in topics:
            self._known.setdefault(topic, driver.partitions_of(topic))

    def _refuse_uneven(self, counts: Mapping[str, int]) -> None:
        """Partitions of one number must all be one agent's: those that have one state."""
        there = {topic: count for topic, count in counts.items() if count}
        if len(set(there.values())) > 1:
            shown = ", ".join(f"{topic} {count}" for topic, count in there.items())
            raise SourceError(
                f"source {self._source}: with store.by_partition all topics need equally many partitions, "
                f"got {shown}; add partitions to the topic that has fewer"
            )

    def check(self, driver: Driver, topics: Sequence[str], placed: Collection[str]) -> None:
        """See, once a second, whether the topics are there, and the partitions still those of the same ones.

        Raises
        ------
        NoOffsetForPartitionError
            One is not, and `start` is none.
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
        """Count what is lost of partitions that their topic no longer has, and drop their positions.

        The number of a topic's partitions never falls, so the topic was created again with fewer.
        """
        now = time.monotonic()
        self._removed = {
            name: self._removed.get(name, now) for name in self._ledger.names() if _lacks(there, name)
        }
        for name in [name for name, since in self._removed.items() if now - since >= ABSENT_SECONDS]:
            if name in placed:  # until the group has heard of it
                continue
            old = self._ledger.known(name)
            lost = max(old.end - old.at, 0)
            self._gap += lost
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
        """Topics that were read, and that the brokers did not know when they were asked last."""
        return {*self._absent}

    @property
    def deleted(self) -> set[str]:
        """Topics that were read, and that the brokers have not known for `ABSENT_SECONDS`."""
        before = time.monotonic() - ABSENT_SECONDS
        return {topic for topic, since in self._absent.items() if since <= before}

    def checked(self, driver: Driver, polled: Polled) -> Polled | None:
        """What may be handed out of what was polled: None where the log before it must be looked at.

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
        """Set newly assigned partitions to the larger of our own position and the group's.

        The brokers are asked for all at once, a few seconds at most.

        Yields
        ------
        str
            Each that is placed. Others are to be tried again: nobody has read the partition and its brokers
            did not name an end of its log in time, or another agent has its state still.

        Raises
        ------
        KafkaTimeoutError
            The brokers did not name the group's positions in time; to be tried again.
        NoOffsetForPartitionError
            Nobody has read one, and `start` is none.
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
        """Return whether the partition has a position; `beginning` is for one that nobody has read."""
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
        """Whether the state of the partition is here, where it moves; then its position is in the ledger."""
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
        """Go on where there are records, after the brokers said that there are none at our position.

        Where retention deleted what had not been read, that is the log's start, whatever `start` says, and
        the records between are counted. Where the log ends before our position (the topic was made anew,
        or a leader came up that had less), it is the point of divergence if the brokers know it, else the
        end of the log that `start` names.

        Raises
        ------
        PositionGoneError
            `start` is none: whoever runs us wants to decide this.
        KafkaTimeoutError
            The brokers did not answer in time; to be tried again.
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
        """Go on at the first record that retention has left, and count those before it."""
        known = self._ledger.known(name).at
        if name in self._looked_back and first <= known:
            driver.seek(name, known)  # the record to be looked at is deleted: nothing else is missing
            return
        self._fell_behind(name, known if name in self._looked_back else at, first)
        self._ledger.begun(name, first)
        self._go(driver, name, first)

    def _go_back(self, driver: Driver, name: str, at: int, divergence: int | None, start: int) -> None:
        """Go on where our log and theirs part, which ends before our position; else at `start`."""
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
        """Where partitions begin that nobody has read, as far as their leaders say so in time.

        A leader that is away must not keep the other partitions waiting.
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
        """Return whether the partition was added to its topic since it was first read."""
        tp = partition_of(name)
        known = self._known.get(tp.topic)
        return known is not None and tp.partition not in known

    def _id(self, name: str) -> str:
        return self._ids.get(partition_of(name).topic, "")

    def _is_other(self, name: str) -> bool:
        """Whether our position is one of a topic that has been deleted and created again."""
        ours, current = self._ledger.known(name).log, self._id(name)
        return bool(ours and current) and ours != current

    def _go_on_in(self, driver: Driver, name: str, position: int = 0) -> None:
        """Read the log of a topic that was created again: from its start, or where the group stands in it."""
        if self._start == "none":
            raise NoOffsetForPartitionError(partition_of(name))
        old = self._ledger.known(name)
        lost = max(old.end - old.at, 0)
        self._gap += lost
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
