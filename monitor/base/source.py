"""The interface of a source, the adapter of a feed of records, and the raw data that it reads.

A source reads raw bytes and their positions. It does not decode the bytes. The agent calls `open` with the
positions at which reading starts, then `read` repeatedly. It calls `acknowledge` with the positions before
which all records are used and saved.

A **position** is the place at which the reading of one partition continues. It is a number, a text, or a
mapping of plain values. Only the source interprets it. The engine keeps the newest position of each
partition, the store saves it, and the source gets it after a restart. A position lies *after* the last record
that was read. So a source that continues there neither repeats nor skips a record.

The **place** of a record (`Reject.position`, the ranges of a window) is an integer that identifies the record
within its partition: a byte, a row, an offset, an id.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, Self, TypeVar

from monitor.base.errors import BlindsightError
from monitor.base.records import Chunk, Keys, TaskLayout
from monitor.base.spool import Spools

Position = TypeVar("Position")


@dataclass(frozen=True, slots=True)
class RawBlock:
    """Whole lines of a file, as bytes.

    Parameters
    ----------
    data : bytes
        Lines that end in a newline, except perhaps the last line of a file.
    partition : str
        The name of the file in reports.
    start : int
        Byte offset of `data` in the (uncompressed) file.
    labels : bool
        Whether the lines were sent as labels. If so, a line without the fields of an answer is a label, even
        if fields of a label are missing.
    position : object, optional
        Position after the last line; by default the offset of the next byte.
    """

    data: bytes
    partition: str
    start: int
    labels: bool = False
    position: Any = None

    @property
    def after(self) -> Any:
        """The position after the last line, at which reading continues."""
        return self.start + len(self.data) if self.position is None else self.position


@dataclass(frozen=True, slots=True)
class RawMessages:
    """Messages of one partition, each with one record, an array of records, or NDJSON.

    Parameters
    ----------
    values : sequence of bytes
    partition : str
    offsets : sequence of int
        The place of each message.
    headers : sequence of sequence of (str, bytes or None), optional
        The headers of each message, if the mapping of the source reads headers.
    after_others : bool
        Whether another member of the consumer group has used messages of this partition since the previous
        read.
    after : object, optional
        Position after the last message; by default the next place.
    """

    values: Sequence[bytes]
    partition: str
    offsets: Sequence[int]
    after_others: bool = False
    headers: Sequence[Sequence[tuple[str, bytes | None]]] | None = None
    after: Any = None

    def __post_init__(self) -> None:
        if self.after is None:
            object.__setattr__(self, "after", self.offsets[-1] + 1 if self.offsets else 0)


@dataclass(frozen=True, slots=True)
class RawTable:
    """Rows of a table (CSV, Parquet, SQL) as named columns.

    Parameters
    ----------
    columns : mapping of str to list
        The cells of each column, None for a missing value. Columns are `id`, `time`, `task`, `model`,
        `label`, `groups.<name>`, `scores.<class>` or `scores`, and so on.
    partition : str
    start : int
        Number of the first row, from 0.
    broken : mapping of int to str, optional
        The reasons why rows could not be read, by the index of the row within `columns`.
    position : object, optional
        Position after the last row; by default the number of the next row.
    size : int, optional
        Approximate size of the cells in bytes; by default eight bytes for each cell.
    """

    columns: Mapping[str, list[object]]
    partition: str
    start: int
    broken: Mapping[int, str] = field(default_factory=dict)
    position: Any = None
    size: int | None = None

    def __len__(self) -> int:
        return max(map(len, self.columns.values()), default=0)

    @property
    def after(self) -> Any:
        """The position after the last row, at which reading continues."""
        return self.start + len(self) if self.position is None else self.position


@dataclass(frozen=True, slots=True)
class RawSkipped:
    """A line that was too long to read. It is counted as rejected.

    Parameters
    ----------
    head : bytes
        The first bytes of the line, at most 2,000.
    size : int
        Size of the whole line with its newline, in bytes.
    partition : str
    start : int
        Byte offset of the line.
    position : object, optional
        Position after the line; by default the offset of the next byte.
    """

    head: bytes
    size: int
    partition: str
    start: int
    position: Any = None

    @property
    def after(self) -> Any:
        """The position after the line, at which reading continues."""
        return self.start + self.size if self.position is None else self.position


@dataclass(frozen=True, slots=True)
class RawDamaged:
    """The unreadable rest of a file. It is reported once, and counted as one rejected record.

    Parameters
    ----------
    why : str
        The problem with the file, as a sentence without a full stop.
    head : bytes
        The readable part of the damaged record, at most 2,000 bytes.
    partition : str
    start : int
        The place where the damaged record begins. After the file is repaired, reading continues there.
    """

    why: str
    head: bytes
    partition: str
    start: int

    @property
    def after(self) -> int:
        """The position of the damaged record, at which reading continues after the file is repaired."""
        return self.start


@dataclass(frozen=True, slots=True)
class RawPosition:
    """A new position of a partition, without a record.

    Parameters
    ----------
    partition : str
    after : object
        Position at which reading continues. None if the partition has ended; its saved position may then be
        deleted.
    """

    partition: str
    after: Any


Raw = RawBlock | RawMessages | RawTable | RawSkipped | RawDamaged | RawPosition


def records_in(raw: Raw) -> int:
    """Return the number of lines, messages or rows that were read, in the unit of `Source.lag`.

    Examples
    --------
    >>> records_in(RawBlock(b"{}\\n{}", "p.ndjson", 0)), records_in(RawPosition("p.ndjson", None))
    (2, 0)
    """
    if isinstance(raw, RawBlock):
        return raw.data.count(b"\n") + (not raw.data.endswith(b"\n"))
    if isinstance(raw, RawMessages):
        return len(raw.offsets)
    if isinstance(raw, RawTable):
        return len(raw)
    return int(not isinstance(raw, RawPosition))


_CELL_BYTES = 8


def bytes_in(raw: Raw) -> int:
    """Estimate the size in bytes of the lines, messages or cells that were read.

    Examples
    --------
    >>> bytes_in(RawMessages([b"{}", b"[]"], "p", [0, 1])), bytes_in(RawTable({"id": ["a", "b"]}, "p", 0))
    (4, 16)
    """
    if isinstance(raw, RawBlock):
        return len(raw.data)
    if isinstance(raw, RawMessages):
        return sum(map(len, raw.values))
    if isinstance(raw, RawTable):
        return _CELL_BYTES * len(raw) * len(raw.columns) if raw.size is None else raw.size
    return 0


class EndOfSource(Exception):  # noqa: N818 - it is a signal, not an error
    """The source has ended and will have no more records."""


@dataclass(frozen=True, slots=True)
class SourceCounts:
    """Numbers of records that were lost, or used by several agents, since the source was opened.

    Parameters
    ----------
    gap_records : int
        Records that the feed's retention deleted before they were read. For files, each gap counts as 1,
        because its length is not known.
    taken_over_records : int
        Records between this agent's saved position and the position at which reading continued. Another
        member of the consumer group used them.
    overlap_records : int
        Records that this agent and another member used. The position of the consumer group shows that the
        other member had used them before.
    rebuilds : int
        The number of times that the client was replaced because it had stopped delivering records.
    """

    gap_records: int = 0
    taken_over_records: int = 0
    overlap_records: int = 0
    rebuilds: int = 0


@dataclass(frozen=True, slots=True)
class Refusals:
    """Numbers of refused and ignored records, and of accepted labels, since the source was opened.

    Only sources to which clients send records have such numbers.

    Parameters
    ----------
    shed : int
        Answers refused because the source was full.
    labels_shed : mapping of str to int
        Labels refused because the source was full, by task.
    requests : mapping of str to int
        Requests answered with an error, by HTTP status code. All possible codes are present from the start.
    ignored : int
        Events that the source ignored because they contain no answer.
    labels_by_token : mapping of str to int
        Labels accepted, by the name of the sender's token; empty if no token is required.
    """

    shed: int = 0
    labels_shed: Mapping[str, int] = field(default_factory=dict)
    requests: Mapping[str, int] = field(default_factory=dict)
    ignored: int = 0
    labels_by_token: Mapping[str, int] = field(default_factory=dict)


class ShardOwner(Protocol):
    """The owner of the state of partitions that move between agents.

    Partitions with the same number, even of different topics, have one common state, a shard. If this agent
    does not hold the state of a partition, it drops the partition's records. The reading thread calls `take`.
    Any thread may call the other methods.
    """

    def take(self, partition: str, number: int) -> tuple[object, Mapping[str, Any]] | None:
        """Open the state of a partition that was assigned to this agent.

        Returns
        -------
        (object, mapping of str to position) or None
            A token, which is new each time the shard is opened, and the positions at which the reading of its
            partitions continues. None while another agent still holds the shard. In this case, call the
            method again later.
        """

    def held(self) -> set[str]:
        """Return the partitions whose state this agent holds."""

    def give_up(self, partitions: Collection[str]) -> None:
        """Start to save the states of these partitions for the last time and to release them."""

    def given_up(self, partitions: Collection[str]) -> bool:
        """Return whether the states of these partitions are released, so that another agent may open them."""

    @property
    def waiting(self) -> str | None:
        """The reason why the state of an assigned partition is not open yet, without a full stop.

        None if the states of all assigned partitions are open.
        """


class Source(ABC, Generic[Position]):
    """A feed of records. Only one thread at a time may read it.

    Any thread may call `acknowledge` and read the properties. The constructor only stores settings. `close`
    may be called at any time after `open`, and may never be called.

    Attributes
    ----------
    name : str
        A short name that stays the same after a restart. It is the value of a Prometheus label.
    """

    name: str

    @classmethod
    def from_settings(cls, settings: Any, tasks: Sequence[TaskLayout], spools: Spools | None = None) -> Self:
        """Return a source with the settings of its section in the configuration.

        Parameters
        ----------
        settings : monitor.config.sources.SourceSection
        tasks : sequence of TaskLayout
            The configured tasks, for a source that validates records before it accepts them.
        spools : Spools, optional
            A function that makes a spool in the store's database, for a source to which records are posted.
        """
        return cls(settings)  # type: ignore[call-arg]

    @classmethod
    def sample(cls, settings: Any, records: int) -> list[Raw] | str:
        """Return some records of the feed that a configuration section describes, without consuming them.

        Parameters
        ----------
        settings : monitor.config.sources.SourceSection
        records : int
            The largest number of records. However, at least one record of each partition is returned, if it
            has records.

        Returns
        -------
        list of Raw, or str
            The records, or the reason why the feed cannot be sampled. The list is empty if the feed has no
            records.

        Raises
        ------
        SourceError
            The feed cannot be opened, or cannot be reached now.
        """
        return f"not looked at: a source of kind {settings.kind} can be read by its agent alone"

    @classmethod
    def sample_every_column(cls, settings: Any, records: int) -> list[Raw]:
        """Return the first rows of a table with all columns, even if the mapping does not use them.

        The list is empty if the feed is not a table. Parameters and errors are the same as for `sample`.
        """
        return []

    @abstractmethod
    def open(self, positions: Mapping[str, Position]) -> None:
        """Prepare to read. The reading of a partition starts at its position in `positions`.

        Raises
        ------
        SourceError
            The feed cannot be opened and waiting would not help, for example because a file is missing. If
            waiting may help, for example because a server is down, `open` does not raise and `up` is False.
        """

    @abstractmethod
    def read(self, timeout_seconds: float) -> list[Raw]:
        """Return the available records in order, at most a few MiB.

        Wait for at most `timeout_seconds`. The list is empty if there are no records. It may contain a
        `RawMessages` without messages, which has only a position. Some sources need the acknowledgement of
        this position before they continue.

        Raises
        ------
        EndOfSource
            The feed has ended: there will be no more records.
        SourceError
            The feed cannot be read; `read` may be called again.
        """

    @abstractmethod
    def close(self) -> None:
        """Close files and sockets."""

    @property
    @abstractmethod
    def up(self) -> bool:
        """True if the feed is connected, so that `read` will return new records."""

    @property
    def lag(self) -> int | None:
        """The number of records that wait to be read; None if it is not known."""
        return None

    @property
    def trouble(self) -> str | None:
        """The reason why a connected feed is not `up`, without a full stop; None if there is no reason."""
        return None

    @property
    def counts(self) -> SourceCounts | None:
        """The counts of lost and overlapping records; None if the feed cannot lose records."""
        return None

    @property
    def refusals(self) -> Refusals:
        """The counts of refused records and requests. Only sources to which records are sent have them."""
        return Refusals()

    def acknowledge(self, positions: Mapping[str, Position]) -> None:
        """Record that all records before these positions are used and saved.

        The positions are positions that `read` returned.
        """

    def forget(self, keys: Keys) -> None:
        """Remove these record ids from every position that `read` returns from now on.

        Parameters
        ----------
        keys : (n,) uint64
            See `monitor.base.records.id_keys`.
        """

    @classmethod
    def without(cls, position: Position, keys: Keys) -> Position:
        """Return a saved position without these record ids. Positions of most sources contain no ids."""
        return position

    def share(self, shards: ShardOwner) -> None:
        """Make `shards` the owner of the state of this source's partitions. Call this method before `open`.

        When a partition is assigned, the source opens its state with `shards.take`, which returns the
        position at which reading continues.

        Raises
        ------
        NotImplementedError
            The partitions of this source do not move between agents.
        """
        raise NotImplementedError

    def keep_alive(self) -> None:
        """Keep the connection alive without reading.

        While the agent's queue is full, the agent calls this method repeatedly.
        """


def open_source(source: Source[Any], positions: Mapping[str, Any]) -> None:
    """Open a source. Convert errors of its client library to a BlindsightError.

    Raises
    ------
    SourceError
        The feed cannot be opened and waiting would not help; see `Source.open`.
    BlindsightError
        The library raised another error. A later start may succeed.
    """
    try:
        source.open(positions)
    except Exception as error:
        source.close()
        if isinstance(error, BlindsightError):
            raise
        why = f"{type(error).__name__}: {error}".rstrip(": .")
        raise BlindsightError(f"The source {source.name} could not be opened: {why}; start again") from error


Decode = Callable[[Sequence[Raw]], Chunk]


@dataclass(frozen=True, slots=True)
class Input:
    """A source with its decoder. `reads_events` is True if records may be events without an answer."""

    feed: Source[Any]
    decode: Decode
    reads_events: bool = False
