"""The interface of a source, which is the adapter of a feed of records, and the raw data that it reads.

A source reads raw bytes and their positions; it does not decode them. The agent passes it the positions to
start from (`open`), calls `read`, and reports which positions have been used and saved (`acknowledge`).

A **position** says where reading of one partition continues. Only the source interprets it: it is a number,
a text, or a mapping of plain values that a store can hold. The engine keeps the newest position of each
partition, the store saves it, and the source receives it after a restart. A position points *after* the last
record read, so that a source that continues at the position neither repeats nor skips a record.

The **place** of a record (`Reject.position`, the ranges of a window) is a whole number that identifies the
record within its partition: a byte, a row, an offset, an id.
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
    """Whole lines of a file.

    Parameters
    ----------
    data : bytes
        Lines that end in a newline, except perhaps the last line of a file.
    partition : str
        The name of the file in reports.
    start : int
        Byte offset of `data` in the (uncompressed) file.
    labels : bool
        Whether the lines were sent as labels. A line without fields of an answer is then a label, even if
        fields of a label are missing.
    position : object, optional
        Position after the last line; by default the byte after it.
    """

    data: bytes
    partition: str
    start: int
    labels: bool = False
    position: Any = None

    @property
    def after(self) -> Any:
        """Position after the last line."""
        return self.start + len(self.data) if self.position is None else self.position


@dataclass(frozen=True, slots=True)
class RawMessages:
    """Messages of one partition; each holds one record, an array of records, or NDJSON.

    Parameters
    ----------
    values : sequence of bytes
    partition : str
    offsets : sequence of int
        The place of each message.
    headers : sequence of sequence of (str, bytes or None), optional
        The headers of each message, if the mapping of the source reads headers.
    after_others : bool
        Whether another member of the group used messages of this partition between the previous read and this
        read.
    after : object, optional
        Position after the last message; by default the place after it.
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
        For each row that could not be read, its index within `columns` and the reason.
    position : object, optional
        Position after the last row; by default the number of the row after it.
    size : int, optional
        Approximate size of the cells in bytes; by default eight for each cell.
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
        """Position after the last row."""
        return self.start + len(self) if self.position is None else self.position


@dataclass(frozen=True, slots=True)
class RawSkipped:
    """A line that was too long to read; it is counted as rejected.

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
        Position after the line; by default the byte after it.
    """

    head: bytes
    size: int
    partition: str
    start: int
    position: Any = None

    @property
    def after(self) -> Any:
        """Position after the line."""
        return self.start + self.size if self.position is None else self.position


@dataclass(frozen=True, slots=True)
class RawDamaged:
    """The unreadable rest of a file, reported once and counted as one rejected record.

    Parameters
    ----------
    why : str
        The problem with the file, as a sentence without its full stop.
    head : bytes
        The readable part of the record in which the damage begins, at most 2,000 bytes.
    partition : str
    start : int
        The place where this record begins; reading continues there after the file is repaired.
    """

    why: str
    head: bytes
    partition: str
    start: int

    @property
    def after(self) -> int:
        """Position of the damaged record."""
        return self.start


@dataclass(frozen=True, slots=True)
class RawPosition:
    """A position without a record.

    Parameters
    ----------
    partition : str
    after : object
        Position at which reading continues; None if the partition has ended and its position may be deleted.
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
    """Signal of a source that has no more records and never will have."""


@dataclass(frozen=True, slots=True)
class SourceCounts:
    """Counts of records that a feed lost, or that were used twice or elsewhere, since it was opened.

    Parameters
    ----------
    gap_records : int
        Records that the feed's retention deleted before they were read. For files, each gap counts as 1,
        because its length is not known.
    taken_over_records : int
        Records between our saved position and the position at which reading continued; another member of the
        group used these records.
    overlap_records : int
        Records that we used although, according to the position of the group, another member used them too.
    rebuilds : int
        The number of times the client was replaced because it had stopped delivering.
    """

    gap_records: int = 0
    taken_over_records: int = 0
    overlap_records: int = 0
    rebuilds: int = 0


@dataclass(frozen=True, slots=True)
class Refusals:
    """Counts of refused records and requests, and of labels by token, since the source was opened.

    Only a source to which records are sent has such counts.

    Parameters
    ----------
    shed : int
        Answers refused because the source was full.
    labels_shed : mapping of str to int
        Labels refused because the source was full, by task.
    requests : mapping of str to int
        Requests answered with an error, by status code; all possible codes are present from the start.
    ignored : int
        Events that the source ignored because they hold no answer.
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

    Partitions with the same number, also of different topics, share one state, a shard. Records of a
    partition that is not held are dropped. `take` is called by the reading thread, the other methods by any
    thread.
    """

    def take(self, partition: str, number: int) -> tuple[object, Mapping[str, Any]] | None:
        """Open the state of a partition that was assigned to this agent.

        Returns
        -------
        (object, mapping of str to position) or None
            A token of the shard, which is new each time the shard is opened, and the positions at which
            reading of its partitions continues. None while another agent still holds the shard; call again.
        """

    def held(self) -> set[str]:
        """Return the partitions whose state this agent holds."""

    def give_up(self, partitions: Collection[str]) -> None:
        """Begin to save the shards of these partitions a last time and to release them."""

    def given_up(self, partitions: Collection[str]) -> bool:
        """Return whether the shards of these partitions are released, so that another agent may take them."""

    @property
    def waiting(self) -> str | None:
        """The reason why the state of an assigned partition is not open yet, without a full stop, or None."""


class Source(ABC, Generic[Position]):
    """A feed of records, used by one thread at a time.

    Any thread may call `acknowledge` and read the properties. The constructor only stores settings. `close`
    may be called at any time after `open`, or never.

    Attributes
    ----------
    name : str
        The value of a Prometheus label: a short name that is the same after a restart.
    """

    name: str

    @classmethod
    def from_settings(cls, settings: Any, tasks: Sequence[TaskLayout], spools: Spools | None = None) -> Self:
        """Return a source with the settings of its section of the configuration.

        Parameters
        ----------
        settings : monitor.config.sources.SourceSection
        tasks : sequence of TaskLayout
            The configured tasks, for a source that validates records before it accepts them.
        spools : Spools, optional
            A function that makes a spool in the store's database, for a source that acknowledges posts.
        """
        return cls(settings)  # type: ignore[call-arg]

    @classmethod
    def sample(cls, settings: Any, records: int) -> list[Raw] | str:
        """Return some records of the feed that a section describes, without consuming them.

        Parameters
        ----------
        settings : monitor.config.sources.SourceSection
        records : int
            The largest number of records; a partition with records nevertheless returns at least one.

        Returns
        -------
        list of Raw, or str
            The records (an empty list if the feed has none), or the reason why the feed cannot be sampled.

        Raises
        ------
        SourceError
            The feed cannot be opened, or cannot be reached at present.
        """
        return f"not looked at: a source of kind {settings.kind} can be read by its agent alone"

    @classmethod
    def sample_every_column(cls, settings: Any, records: int) -> list[Raw]:
        """Return the first rows of a table with all columns, including those that no mapping names.

        The list is empty if the feed is not a table. Parameters and errors are the same as for `sample`.
        """
        return []

    @abstractmethod
    def open(self, positions: Mapping[str, Position]) -> None:
        """Prepare to read; a partition in `positions` is read from its position on.

        Raises
        ------
        SourceError
            The feed cannot be opened and waiting would not help, for example because a file is missing. If
            waiting may help, for example because a server is down, `open` does not raise and `up` is False.
        """

    @abstractmethod
    def read(self, timeout_seconds: float) -> list[Raw]:
        """Return the available records in order, at most a few MiB, after at most `timeout_seconds`.

        The list is empty if there are no records. A `RawMessages` without messages has only a position; some
        sources need its acknowledgement before they continue.

        Raises
        ------
        EndOfSource
            There will be no more records.
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
        """The number of records that wait to be read; None if the feed does not report it."""
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
        """The counts of refused records and requests, for a source to which records are sent."""
        return Refusals()

    def acknowledge(self, positions: Mapping[str, Position]) -> None:
        """Note that all records before these positions, which `read` returned, are used and saved."""

    def forget(self, keys: Keys) -> None:
        """Remove records with these ids from every position that `read` returns from now on.

        Parameters
        ----------
        keys : (n,) uint64
            See `monitor.base.records.id_keys`.
        """

    @classmethod
    def without(cls, position: Position, keys: Keys) -> Position:
        """Return a saved position without these ids; most sources have no ids in their positions."""
        return position

    def share(self, shards: ShardOwner) -> None:
        """Make `shards` the owner of the state; call this method before `open`.

        When a partition is assigned, the source opens its state with `shards.take`, which returns its
        position.

        Raises
        ------
        NotImplementedError
            The partitions of this source do not move between agents.
        """
        raise NotImplementedError

    def keep_alive(self) -> None:
        """Keep the connection alive without reading; called repeatedly while the agent's queue is full."""


def open_source(source: Source[Any], positions: Mapping[str, Any]) -> None:
    """Open a source, and convert any error of its library to one of ours.

    Raises
    ------
    SourceError
        The feed cannot be opened and waiting would not help; see `Source.open`.
    BlindsightError
        The library raised another error; another start may succeed.
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
    """A source with its decoder; if `reads_events` is True, records may be events without an answer."""

    feed: Source[Any]
    decode: Decode
    reads_events: bool = False
