"""The contract of a source: what the agent asks of a feed of records, and what a read of it brings.

A source reads raw bytes and says where they stand; it does not decode. The agent gives it the positions to
go on from (`open`), reads (`read`), and tells it what has been used and saved (`acknowledge`).

A **position** says where reading of one partition goes on. It is the source's own: a number, a text, a
mapping of plain values that a store can hold. Nobody else looks into one, adds to it or compares two: the
engine keeps the newest of each partition, the store saves it, and the source gets it back. It points *after*
the last record read, so that a source which is resumed from it neither repeats nor skips one.

The **place** of a record (`Reject.position`, the ranges of a window) is a whole number that tells the
records of a partition apart: a byte, a row, an offset, an id.
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
        Lines, each ending in a newline, but perhaps the last of a file.
    partition : str
        The file, as it is named in reports.
    start : int
        Byte offset of `data` in the (uncompressed) file.
    labels : bool
        Whether they were sent as labels: then one that says nothing of an answer is a label, whatever it
        lacks.
    position : object, optional
        Position after the last line; the byte behind it where left out.
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
    """Messages of one partition; each holds one record, an array of them, or NDJSON.

    Parameters
    ----------
    values : sequence of bytes
    partition : str
    offsets : sequence of int
        The place of each message.
    headers : sequence of sequence of (str, bytes or None), optional
        What stands beside each message, by name; only of a source whose mapping reads it.
    after_others : bool
        Whether another member of the group used the messages between these and the last ones that were
        handed out of this partition.
    after : object, optional
        Position after the last message; the place behind the last where left out.
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
    """Rows of a table (CSV, Parquet), a column a name.

    Parameters
    ----------
    columns : mapping of str to list
        `id`, `time`, `task`, `model`, `label`, `groups.<name>`, `scores.<class>` or `scores`, …;
        None where a row has no value.
    partition : str
    start : int
        Number of the first row, counted from 0.
    broken : mapping of int to str, optional
        Rows, counted within `columns`, that could not be read, and why.
    position : object, optional
        Position after the last row; the number of the row behind it where left out.
    size: int, optional
        About how many bytes its cells have; eight a cell where left out.
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
    """A line too long to be held: it was passed over, and is handed on to be counted.

    Parameters
    ----------
    head : bytes
        Its first bytes, at most 2,000.
    size : int
        Bytes of the whole line with its newline.
    partition : str
    start : int
        Byte offset of the line.
    position : object, optional
        Position after the line; the byte behind it where left out.
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
    """The rest of a file that cannot be read: handed on once, to be counted as one record.

    Parameters
    ----------
    why : str
        What is wrong with the file, as a sentence without its full stop.
    head : bytes
        What came of the record within which it ends, at most 2,000 bytes.
    partition : str
    start : int
        Where that record begins. Reading goes on there once the file is mended.
    """

    why: str
    head: bytes
    partition: str
    start: int

    @property
    def after(self) -> int:
        """Position of the record."""
        return self.start


@dataclass(frozen=True, slots=True)
class RawPosition:
    """A position alone, without a record.

    Parameters
    ----------
    partition : str
    after : object
        Where reading goes on; None where the partition has ended, so that nobody keeps its position.
    """

    partition: str
    after: Any


Raw = RawBlock | RawMessages | RawTable | RawSkipped | RawDamaged | RawPosition


def records_in(raw: Raw) -> int:
    """How many records were read, as a feed counts those that wait: lines, messages or rows.

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
    """Estimate how many bytes were read, of lines, of messages or of the cells of a table.

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
    """The source has nothing more to give, now or later."""


@dataclass(frozen=True, slots=True)
class SourceCounts:
    """What a feed that is shared, or that forgets, has missed or used twice, since it was opened.

    Parameters
    ----------
    gap_records : int
        Deleted by the feed's retention before they were read; for files 1 for each gap, as its length is not
        known.
    taken_over_records : int
        Used by another member of the group, between our own position and where reading went on.
    overlap_records : int
        Used here, and by another member too as far as the group knew.
    rebuilds : int
        Times that the client was made anew because it had stopped delivering.
    """

    gap_records: int = 0
    taken_over_records: int = 0
    overlap_records: int = 0
    rebuilds: int = 0


@dataclass(frozen=True, slots=True)
class Refusals:
    """What a source to which records are sent has not taken, or left out, and of whom it took labels.

    All counts begin as it is opened.

    Parameters
    ----------
    shed : int
        Answers refused for want of room.
    labels_shed : mapping of str to int
        Labels refused so, by task.
    requests : mapping of str to int
        Requests answered with an error, by the answer's code; complete from the start.
    ignored : int
        Events without answers that it has left out.
    labels_by_token : mapping of str to int
        Labels taken, by the name of the token of who sent them; empty where no token is asked for.
    """

    shed: int = 0
    labels_shed: Mapping[str, int] = field(default_factory=dict)
    requests: Mapping[str, int] = field(default_factory=dict)
    ignored: int = 0
    labels_by_token: Mapping[str, int] = field(default_factory=dict)


class ShardOwner(Protocol):
    """Who has the state of partitions that move between agents, by their numbers.

    Partitions with one number belong together, whatever their topics: their state is one shard. What is read
    of a partition that is not held is dropped. `take` is called by the reading thread, the others by any.
    """

    def take(self, partition: str, number: int) -> tuple[object, Mapping[str, Any]] | None:
        """Have the state of a partition that was assigned to this agent.

        Returns
        -------
        (object, mapping of str to position) or None
            A token of this shard, and where its partitions are to be read on; the token is another one each
            time that the shard is opened. None where another agent has it still: to be tried again.
        """

    def held(self) -> set[str]:
        """The partitions whose state is here."""

    def give_up(self, partitions: Collection[str]) -> None:
        """Begin to save the shards of these partitions a last time, and to give them up."""

    def given_up(self, partitions: Collection[str]) -> bool:
        """Whether that is done: another agent may have them."""

    @property
    def waiting(self) -> str | None:
        """Why the state of an assigned partition is not here yet: a sentence without its full stop."""


class Source(ABC, Generic[Position]):
    """A feed of records. Used by one thread at a time; `acknowledge` and the properties by any.

    No state is built in the constructor: it only keeps settings. `close` may be called at any time
    after `open`, and may never be called.

    Attributes
    ----------
    name : str
        A label in Prometheus: short, and the same after a restart.
    """

    name: str

    @classmethod
    def configured(cls, settings: Any, tasks: Sequence[TaskLayout], spools: Spools | None = None) -> Self:
        """The source that its section of the configuration describes.

        Parameters
        ----------
        settings : monitor.config.sources.SourceSection
        tasks : sequence of TaskLayout
            The configured tasks, for a source that judges what it takes.
        spools : Spools, optional
            Where the store's database can keep what a source acknowledges.
        """
        return cls(settings)  # type: ignore[call-arg]

    @classmethod
    def sample(cls, settings: Any, records: int) -> list[Raw] | str:
        """Some records of the feed that a section describes; none of them is taken from whoever reads it.

        Parameters
        ----------
        settings : monitor.config.sources.SourceSection
        records : int
            At most so many, and at least one a partition that holds any.

        Returns
        -------
        list of Raw, or str
            Nothing in the list where nothing is there; or why the feed cannot be looked at.

        Raises
        ------
        SourceError
            As for `open`; and where the feed is away.
        """
        return f"not looked at: a source of kind {settings.kind} can be read by its agent alone"

    @classmethod
    def sample_every_column(cls, settings: Any, records: int) -> list[Raw]:
        """Return the first rows of a table with all columns, also those that a mapping would have to name.

        An empty list if the feed is no table; parameters and errors are those of `sample`.
        """
        return []

    @abstractmethod
    def open(self, positions: Mapping[str, Position]) -> None:
        """Get ready to read, from these positions where there are any, by partition.

        Raises
        ------
        SourceError
            The feed cannot be had, and waiting would not help (a file that is not there). A feed
            that may come back (a server that is away) does not raise: it is not `up`.
        """

    @abstractmethod
    def read(self, timeout_seconds: float) -> list[Raw]:
        """Read what is there, at most a few MiB, waiting no longer than `timeout_seconds`.

        Returns an empty list where nothing came. What is handed out is used in this order. A `RawMessages`
        without a message hands out a position alone, for a source that reads once it is acknowledged.

        Raises
        ------
        EndOfSource
            Nothing will come any more.
        SourceError
            As for `open`; it may be called again.
        """

    @abstractmethod
    def close(self) -> None:
        """Let go of files and sockets."""

    @property
    @abstractmethod
    def up(self) -> bool:
        """Whether the feed is connected, so that what is sent will be seen."""

    @property
    def lag(self) -> int | None:
        """Records that wait to be read, where the feed can tell, else None."""
        return None

    @property
    def trouble(self) -> str | None:
        """Why it is not `up`, where it is connected: a sentence without its full stop."""
        return None

    @property
    def counts(self) -> SourceCounts | None:
        """What was missed or used twice, where that can happen to the feed, else None."""
        return None

    @property
    def refusals(self) -> Refusals:
        """What it has not taken, where records are sent to it."""
        return Refusals()

    def acknowledge(self, positions: Mapping[str, Position]) -> None:
        """Hear that everything before these positions is used and saved; each is one that `read` gave."""

    def forget(self, keys: Keys) -> None:
        """Drop records with these ids from every position that is handed out from now on.

        Parameters
        ----------
        keys : (n,) uint64
            See `monitor.base.records.id_keys`.
        """

    @classmethod
    def without(cls, position: Position, keys: Keys) -> Position:
        """Return a saved position without records with these ids; most kinds never hold any."""
        return position

    def share(self, shards: ShardOwner) -> None:
        """From `open` on, have the state of each partition, and its position, from there as it is assigned.

        Raises
        ------
        NotImplementedError
            Its partitions do not move between agents.
        """
        raise NotImplementedError

    def keep_alive(self) -> None:
        """Stay connected without reading: called every moment while the agent has no room for more."""


def open_source(source: Source[Any], positions: Mapping[str, Any]) -> None:
    """Open a source as `Source.open` does; whatever its library raises becomes an error of ours.

    Raises
    ------
    SourceError
        As for `Source.open`.
    BlindsightError
        The library failed otherwise; another start may succeed.
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
    """A source and the decoder of what it reads; with `reads_events` some of it may hold no answer."""

    feed: Source[Any]
    decode: Decode
    reads_events: bool = False
