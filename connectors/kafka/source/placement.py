"""The choice of the position at which a partition is read, and counts of skipped and repeated records.

Reading continues at the agent's own position, at the position that the group has committed, or at the start
or the end of the log. A client library can choose a position too (`auto_offset_reset`). But it does not
report how many records retention has deleted, and with `latest` it skips the first records of a new
partition. The library's choice is therefore switched off, and `Placement` sets every position.
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
from connectors.kafka.drivers.errors import is_transient
from connectors.kafka.source.ledger import PositionLedger
from connectors.kafka.source.pace import CheckSchedule
from monitor.base.errors import SourceError
from monitor.base.source import ShardOwner, SourceCounts

log = logging.getLogger(__name__)

Start = Literal["earliest", "latest", "none"]
"""The configured `auto_offset_reset`: the position for a partition that nobody has read."""

ASK_SECONDS = 2.0
"""The time limit of a request for positions, and of a last commit, in seconds."""

MAX_OWNERS = 50
"""The largest number of owners of a partition in one note; Kafka stores notes of up to 4,096 bytes."""

CHECK_SECONDS = 1.0
"""The shortest time between two checks of the topics, in seconds."""

ABSENT_SECONDS = 5.0
"""The time after which a topic or partition that brokers do not know counts as deleted, in seconds.

A broker that has just started may not know it yet.
"""

_NOTE = re.compile(r"began=(\d+(?:,\d+)*)(?: log=([0-9a-f-]{36}).*)?", re.DOTALL)
"""The pattern of a note. After the id, whose length is known, confluent-kafka may append garbage."""


class _Note(NamedTuple):
    """The content of the note that is stored beside a committed position."""

    began: tuple[int, ...] = ()
    """The offsets at which the owners up to this commit began, the last owner's at the end; may be empty."""
    log: str = ""
    """The id of the topic; empty if unknown."""


def _parse_note(committed: CommittedPosition | None) -> _Note:
    match = _NOTE.fullmatch(committed.note) if committed is not None else None
    return _Note(tuple(map(int, match[1].split(","))), match[2] or "") if match else _Note()


def _used_twice(own: int, began: tuple[int, ...]) -> int:
    """Return the number of records before the agent's own position that a later owner has used again.

    The later owner began at the agent's last commit, which may be lower than the agent's own position.

    Parameters
    ----------
    own : int
        The agent's own position.
    began : tuple of int
        The offsets at which the owners began, from the note of the group's position.
    """
    return own - max((position for position in began if position <= own), default=own)


def _is_removed(descriptions: Mapping[str, TopicDescription], name: str) -> bool:
    """Return whether the topic of a partition exists, but does not have the partition."""
    topic, number = partition_of(name)
    numbers = descriptions[topic].partitions if topic in descriptions else ()
    return bool(numbers) and number not in numbers


class Placement:
    """The positions at which partitions are read, and counts of records missed or used twice.

    A placement is kept when a consumer is replaced. Each commit has a note with the offsets at which owners
    of the partition began to read (``began=400,900``). The last offset belongs to the present owner. The list
    starts with the last owner that did not continue at its predecessor's last commit. From the note, an owner
    that returns after a crash learns which records were used twice: the records from a later owner's
    beginning up to its own position.

    Positions contain the id of their topic. A topic that was deleted and created again has a new id. The new
    topic is read from its start, whatever `start` is. Between two checks of the ids, records of the new log
    may be mistaken for records of the old log. Such records are read twice, and none is skipped. Positions of
    partitions that the new topic does not have are dropped.

    Brokers before 2.8 have no ids of topics. For such brokers, a position contains the epoch and the
    timestamp of the record before it. After a start, or after a pause of a second, the placement reads this
    record again before any later message is handed out. If the record has changed, the topic was created
    again.

    Only the reading thread may use a placement, except for `counts` and `marks`, which any thread may call.

    Parameters
    ----------
    source : str
        The name of the source, for the log.
    ledger : PositionLedger
        The agent's own positions.
    start : {"earliest", "latest", "none"}
        The position for a partition that nobody has read.
    shards : ShardOwner, optional
        The owner of the partitions' states, if states move between agents together with positions. Then a
        committed position is used only for a partition without a state.
    """

    def __init__(
        self, source: str, ledger: PositionLedger, start: Start, shards: ShardOwner | None = None
    ) -> None:
        self._source = source
        self._ledger = ledger
        self._start = start
        self._shards = shards
        self._tokens: dict[str, object] = {}
        self._known_partitions: dict[str, set[int]] = {}
        self._began: dict[str, tuple[int, ...]] = {}
        self._ids: dict[str, str] = {}
        self._absent_since: dict[str, float] = {}  # monotonic times of the first check without a topic
        self._removed_since: dict[str, float] = {}  # monotonic times of the first check without a partition
        self._dropped: list[str] = []
        self._checks = CheckSchedule(CHECK_SECONDS)
        self._handed_out_at: dict[str, float] = {}
        self._rereading: set[str] = set()
        self._after_others: set[str] = set()
        self._gap = self._used_by_others = self._overlap = 0

    def counts(self, rebuilds: int) -> SourceCounts:
        """Return the numbers of records that were missed, used by other members, or used twice so far.

        Parameters
        ----------
        rebuilds : int
            The number of consumers that were replaced because they were stuck.
        """
        return SourceCounts(self._gap, self._used_by_others, self._overlap, rebuilds)

    def pop_after_others(self, name: str) -> bool:
        """Return whether another member has used records of a partition since this source last read it.

        True is returned only once: the next call returns False, unless another member has used records of the
        partition again.
        """
        if name in self._after_others:
            self._after_others.discard(name)
            return True
        return False

    def marks(self, positions: Mapping[str, int]) -> dict[str, CommittedPosition]:
        """Return these positions with their notes, in the form in which they are committed.

        A note contains the offsets at which owners began to read the partition, and the id of the topic.
        """
        return {
            name: CommittedPosition(position, self._format_note(name)) for name, position in positions.items()
        }

    def _format_note(self, name: str) -> str:
        began, log = self._began.get(name, ()), self._ledger.position_in_log(name).log
        return f"began={','.join(map(str, began))}{' log=' if log else ''}{log}" if began else ""

    def record_topics(self, driver: Driver, topics: Sequence[str]) -> None:
        """Record the topics and partitions that exist at the first call. Later partitions count as new.

        Raises
        ------
        KafkaTimeoutError
            The brokers did not report the ids of the topics in time; try again.
        SourceError
            State moves with partitions, and the topics have different numbers of partitions.
        """
        if self._shards is not None:
            self._check_equal_counts({topic: len(driver.partitions_of(topic)) for topic in topics})
        self._update_ids(driver.describe(topics, ASK_SECONDS))
        for topic in topics:
            self._known_partitions.setdefault(topic, driver.partitions_of(topic))

    def _check_equal_counts(self, counts: Mapping[str, int]) -> None:
        """Raise SourceError if the topics have different numbers of partitions.

        One agent must own all partitions with the same number, because these partitions share one state.
        """
        existing = {topic: count for topic, count in counts.items() if count}
        if len(set(existing.values())) > 1:
            shown = ", ".join(f"{topic} {count}" for topic, count in existing.items())
            raise SourceError(
                f"source {self._source}: with store.by_partition all topics need equally many partitions, "
                f"got {shown}; add partitions to the topic that has fewer"
            )

    def check_topics(self, driver: Driver, topics: Sequence[str], positioned: Collection[str]) -> None:
        """Check, at most once a second, whether topics or partitions have been deleted or created again.

        Parameters
        ----------
        driver : Driver
        topics : sequence of str
        positioned : collection of str
            The partitions that have positions.

        Raises
        ------
        NoOffsetForPartitionError
            A topic was created again, and `start` is none.
        """
        if self._checks.is_due:
            with self._checks.run():
                self._check(driver, topics, positioned)

    def _check(self, driver: Driver, topics: Sequence[str], positioned: Collection[str]) -> None:
        # These ends are read before the request, so that each end belongs to the log in the answer.
        ends = {name: driver.highwater(name) for name in positioned}
        try:
            descriptions = driver.describe(topics, CHECK_SECONDS)
        except Exception as error:
            if not is_transient(error):
                raise
        else:
            self._update_ids(descriptions)
            self._note_absent({*topics} - descriptions.keys())
            self._drop_removed(descriptions, ends.keys())
            for name, end in ends.items():
                if name in self._removed_since:
                    continue
                if self._is_other_log(name):
                    self._continue_in_new_log(driver, name)
                elif self._topic_id(name):  # otherwise the end may belong to another log
                    self._ledger.record_log(name, self._topic_id(name), end or 0)

    def _update_ids(self, descriptions: Mapping[str, TopicDescription]) -> None:
        for topic, (current, _) in descriptions.items():
            if current:
                if self._ids.get(topic, current) != current:
                    self._known_partitions[topic] = set()  # after the topic was created again, all are new
                self._ids[topic] = current

    def _note_absent(self, absent: Collection[str]) -> None:
        now = time.monotonic()
        read = self._ledger.topics() if absent else ()
        self._absent_since = {topic: self._absent_since.get(topic, now) for topic in absent if topic in read}

    def _drop_removed(
        self, descriptions: Mapping[str, TopicDescription], positioned: Collection[str]
    ) -> None:
        """Drop the positions of partitions that their topic no longer has, and count their unread records.

        The number of partitions of a topic never decreases, so the topic was created again with fewer
        partitions.
        """
        now = time.monotonic()
        self._removed_since = {
            name: self._removed_since.get(name, now)
            for name in self._ledger.names()
            if _is_removed(descriptions, name)
        }
        for name in [name for name, since in self._removed_since.items() if now - since >= ABSENT_SECONDS]:
            if name in positioned:  # still assigned by the group, which does not know of the removal yet
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
            self._known_partitions.get(partition_of(name).topic, set()).discard(partition_of(name).partition)
            self._dropped.append(name)

    def pop_dropped(self) -> list[str]:
        """Return the partitions whose positions were dropped since the last call."""
        dropped, self._dropped = self._dropped, []
        return dropped

    @property
    def absent(self) -> set[str]:
        """The topics that were read, and that the brokers did not know at the last check."""
        return {*self._absent_since}

    @property
    def deleted(self) -> set[str]:
        """The topics that were read, and that the brokers have not known for `ABSENT_SECONDS`."""
        before = time.monotonic() - ABSENT_SECONDS
        return {topic for topic, since in self._absent_since.items() if since <= before}

    def check_log(self, driver: Driver, polled: Polled) -> Polled | None:
        """Return the messages of a poll that may be handed out, or None if there are none.

        Brokers without ids of topics do not show that a topic was created again. After a pause, the method
        therefore seeks to the last record before the position, and returns None. The next poll returns this
        record first. If its stamp is the known one, the method returns the messages after it. If the stamp
        differs, reading continues in the new log, and the result is None.

        Raises
        ------
        NoOffsetForPartitionError
            The topic was created again, and `start` is none.
        """
        name, now = polled.partition, time.monotonic()
        known = self._ledger.position_in_log(name)
        paused = now - self._handed_out_at.get(name, -math.inf) >= CHECK_SECONDS
        was_reread = name in self._rereading
        self._rereading.discard(name)
        if known.stamp != NO_STAMP and polled.offsets[0] == known.at - 1:
            if known.stamp.differs(polled.first):
                self._continue_in_new_log(driver, name)
                return None
            polled = polled.after_first()
        elif known.stamp != NO_STAMP and paused and not was_reread:
            self._rereading.add(name)
            driver.seek(name, known.at - 1)
            return None
        self._handed_out_at[name] = now
        if not self._topic_id(name):
            self._ledger.record_log(name, "", driver.highwater(name) or 0)
        return polled if polled.offsets else None

    def place(self, driver: Driver, names: Collection[str]) -> Iterator[str]:
        """Set newly assigned partitions to the larger of the agent's own position and the group's position.

        The method asks the brokers about all partitions at once, and waits a few seconds at most.

        Yields
        ------
        str
            Each partition that has a position now. Call the method again for each other partition: either it
            was never read and the brokers did not report the end of its log in time, or another agent still
            has its state.

        Raises
        ------
        KafkaTimeoutError
            The brokers did not report the group's positions in time; try again.
        NoOffsetForPartitionError
            Nobody has read a partition, and `start` is none.
        """
        restored = [name for name in names if self._restore(name)]
        committed = driver.committed_positions(restored, ASK_SECONDS) if restored else {}
        unread = [
            name
            for name in restored
            if name not in committed
            and self._ledger.resume_position(name) is None
            and not self._is_other_log(name)
        ]
        beginnings = self._beginnings(driver, unread)
        for name in restored:
            if self._place(driver, name, committed.get(name), beginnings.get(name)):
                yield name

    def _place(
        self, driver: Driver, name: str, committed: CommittedPosition | None, beginning: int | None
    ) -> bool:
        """Set the position of a partition, and return whether it has a position now.

        Parameters
        ----------
        driver : Driver
        name : str
            The partition.
        committed : CommittedPosition or None
            The group's position; None if the group has committed none.
        beginning : int or None
            The position for a partition that nobody has read; None if it is not known yet.
        """
        own = self._ledger.resume_position(name)
        current, note = self._topic_id(name), _parse_note(committed)
        stale = bool(current) and note.log not in ("", current)
        if self._is_other_log(name) or (own is None and stale):
            self._continue_in_new_log(
                driver, name, committed.position if committed is not None and note.log == current else 0
            )
            return True
        committed = None if stale or (self._shards is not None and own is not None) else committed
        position = self._larger_position(name, own, committed, note.began)
        if position is None:
            if self._start == "none" and not self._is_new(name):
                raise NoOffsetForPartitionError(partition_of(name))
            if beginning is None:
                return False
            position = beginning
            if self._is_new(name):
                log.info("source %s: %s is new; it is read from its start", self._source, name)
            self._ledger.record_start(name, position)
        self._ledger.record_log(name, current)
        self._seek(driver, name, position)
        if committed is not None:
            began = note.began
            # If our own position is larger than the group's, we continue in the range of the last owner.
            if position == committed.position and began[-1:] != (position,):
                began = (*began, position)[-MAX_OWNERS:]
            self._began[name] = began or (position,)
        return True

    def _restore(self, name: str) -> bool:
        """Return whether this agent has the state of a partition, and record the position in this state.

        If states do not move between agents, return True.
        """
        if self._shards is None:
            return True
        shard = self._shards.take(name, partition_of(name).partition)
        if shard is None:
            return False
        token, positions = shard
        if self._tokens.get(name) is not token:
            self._tokens[name] = token
            self._ledger.restore(name, positions.get(name))
        return True

    def repair(self, driver: Driver, error: PositionGoneError) -> None:
        """Set new positions for partitions if the brokers have no records at their positions.

        If retention deleted records before they were read, reading continues at the start of the log,
        whatever `start` is, and the deleted records are counted. The log may also end before the position,
        because the topic was created again, or because another broker with fewer records leads the partition.
        Then reading continues at the offset from which the logs differ. If the brokers do not know this
        offset, reading continues at the start or the end of the log, as `start` says.

        Raises
        ------
        PositionGoneError
            `start` is none, so that the operator must decide.
        KafkaTimeoutError
            The brokers did not answer in time; try again.
        """
        if self._start == "none":
            raise error
        self._update_ids(driver.describe({partition_of(name).topic for name in error.places}, ASK_SECONDS))
        assigned = driver.assignment()
        gone = {
            name: at
            for name in error.places
            if name in assigned and (at := driver.position(name)) is not None
        }
        for name in [name for name in gone if self._is_other_log(name)]:
            self._continue_in_new_log(driver, name)
            del gone[name]
        first = driver.ends(gone, "earliest", ASK_SECONDS) if gone else {}
        for name in [name for name in first if gone[name] < first[name]]:
            self._skip_gap(driver, name, gone.pop(name), first[name])
        behind = {name: at for name, at in gone.items() if name in first}
        last = driver.ends(behind, "latest", ASK_SECONDS) if behind else {}
        for name in last:
            at = gone.pop(name)
            if not error.truncated and self._topic_id(name) and at <= last[name]:
                driver.seek(name, at)  # the error is about the former log under the same name
            else:
                start = first[name] if self._start == "earliest" else last[name]
                self._continue_in_shorter_log(driver, name, at, error.places[name], start)
        if gone:
            raise KafkaTimeoutError(
                f"the leaders of {len(gone)} partitions did not name the ends of their logs"
            )

    def _skip_gap(self, driver: Driver, name: str, at: int, first: int) -> None:
        """Continue at the first record that retention has left, and count the deleted records as a gap."""
        known = self._ledger.position_in_log(name).at
        if name in self._rereading and first <= known:
            driver.seek(name, known)  # only the record to compare is deleted
            return
        self._count_gap(name, known if name in self._rereading else at, first)
        self._ledger.record_start(name, first)
        self._seek(driver, name, first)

    def _continue_in_shorter_log(
        self, driver: Driver, name: str, at: int, divergence: int | None, start: int
    ) -> None:
        """Continue in a log that ends before the agent's position.

        Parameters
        ----------
        driver : Driver
        name : str
            The partition.
        at : int
            The agent's position.
        divergence : int or None
            The offset from which the logs differ, where reading continues; None if the brokers do not know
            it.
        start : int
            The position that is used without a `divergence`.
        """
        log.warning(
            "source %s: topic %s, partition %d: position %d is beyond the end of the log: the "
            "topic was created again, or its brokers lost records; reading continues at %s",
            self._source,
            *partition_of(name),
            at,
            self._start if divergence is None else divergence,
        )
        position = start if divergence is None else divergence
        self._ledger.record_start(name, position)
        self._seek(driver, name, position)

    def _larger_position(
        self, name: str, own: int | None, committed: CommittedPosition | None, began: tuple[int, ...]
    ) -> int | None:
        """Return the larger of the agent's position and the group's, and count the records between them."""
        group = None if committed is None else committed.position
        if own is None or group is None:
            return own if group is None else group
        if group > own:
            twice = _used_twice(own, began)
            self._used_by_others += group - own
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
            self._ledger.record_takeover(name, group)
            self._after_others.add(name)
            return group
        if began:  # otherwise a tool has reset the group's offsets, and nobody has read from there
            self._overlap += own - group
        return own

    def _beginnings(self, driver: Driver, names: Collection[str]) -> dict[str, int]:
        """Return the positions for partitions that nobody has read, for all leaders that answer in time.

        A leader that is unreachable must not delay the partitions of other leaders.
        """
        wanted: dict[End, list[str]] = {"earliest": [], "latest": []}
        for name in names:
            if self._is_new(name):
                wanted["earliest"].append(name)
            elif self._start != "none":
                wanted[self._start].append(name)
        offsets: dict[str, int] = {}
        for end, part in wanted.items():
            if part:
                offsets |= driver.ends(part, end, ASK_SECONDS)
        return offsets

    def _is_new(self, name: str) -> bool:
        """Return whether the partition was added to its topic since the topic was first read."""
        tp = partition_of(name)
        known = self._known_partitions.get(tp.topic)
        return known is not None and tp.partition not in known

    def _topic_id(self, name: str) -> str:
        return self._ids.get(partition_of(name).topic, "")

    def _is_other_log(self, name: str) -> bool:
        """Return whether the agent's position belongs to a topic that was deleted and created again."""
        ours, current = self._ledger.position_in_log(name).log, self._topic_id(name)
        return bool(ours and current) and ours != current

    def _count_unread(self, name: str) -> int:
        """Count the unread records of a deleted log as a gap, and return their number."""
        old = self._ledger.position_in_log(name)
        lost = max(old.end - old.at, 0)
        self._gap += lost
        return lost

    def _continue_in_new_log(self, driver: Driver, name: str, position: int = 0) -> None:
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
        self._ledger.record_start(name, position, self._topic_id(name))
        self._seek(driver, name, position)

    def _count_gap(self, name: str, at: int, first: int) -> None:
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

    def _seek(self, driver: Driver, name: str, position: int) -> None:
        self._began[name] = (position,)
        driver.seek(name, position)
