"""The contract between a feed and the agent.

A source reads raw bytes and says where they stand; it does not decode. The agent gives it a place to
go on from (`open`), reads (`read`), and tells it what has been absorbed (`absorbed`). Positions always
point *after* the last record read: a source resumed from a position neither repeats nor skips one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from monitor.agent.feeder import EndOfInput
from monitor.reports.views import SourceCounts


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
    """

    data: bytes
    partition: str
    start: int
    labels: bool = False


@dataclass(frozen=True, slots=True)
class RawMessages:
    """Messages of one partition; each holds one record, an array of them, or NDJSON.

    Parameters
    ----------
    values : sequence of bytes
    partition : str
        ``topic-3``.
    offsets : sequence of int
        One a message, rising.
    headers : sequence of sequence of (str, bytes), optional
        One sequence a message; only of a source whose mapping has a `format`.
    after_others : bool
        Whether another member of the group used the messages between these and the last ones that were
        handed out of this partition.
    """

    values: Sequence[bytes]
    partition: str
    offsets: Sequence[int]
    after_others: bool = False
    headers: Sequence[Sequence[tuple[str, bytes]]] | None = None


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
    """

    columns: Mapping[str, list[object]]
    partition: str
    start: int
    broken: Mapping[int, str] = field(default_factory=dict)


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
    """

    head: bytes
    size: int
    partition: str
    start: int


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


Raw = RawBlock | RawMessages | RawTable | RawSkipped | RawDamaged


class EndOfSource(EndOfInput):
    """The source has nothing more to give, now or later."""


class Source(ABC):
    """A feed of records. Used by one thread at a time.

    No state is built in the constructor: it only keeps settings. `close` may be called at any time
    after `open`, and may never be called.

    Attributes
    ----------
    name : str
        A label in Prometheus: short, and the same after a restart.
    """

    name: str

    @abstractmethod
    def open(self, positions: Mapping[str, int]) -> None:
        """Get ready to read, from these positions where there are any.

        Raises
        ------
        SourceError
            The feed cannot be had, and waiting would not help (a file that is not there). A feed
            that may come back (a broker that is away) does not raise: it is not `up`.
        """

    @abstractmethod
    def read(self, timeout_seconds: float) -> list[Raw]:
        """Read what is there, at most a few MiB, waiting no longer than `timeout_seconds`.

        Returns an empty list where nothing came.

        Raises
        ------
        EndOfSource
            Nothing will come any more.
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
    def shed(self) -> int:
        """Answers that the source itself has refused for want of room, since it was opened."""
        return 0

    @property
    def labels_shed(self) -> Mapping[str, int]:
        """Labels that it has refused so, by task."""
        return {}

    @property
    def refused(self) -> Mapping[int, int]:
        """Posts that it has answered with an error since it was opened, by HTTP status."""
        return {}

    @property
    def ignored(self) -> int:
        """Events without answers that it has left out of what it reads since it was opened."""
        return 0

    def absorbed(self, positions: Mapping[str, int]) -> None:  # noqa: B027 - most feeds need not know
        """Hear that everything before these positions has been used."""

    def keep_alive(self) -> None:  # noqa: B027 - most feeds need not
        """Stay connected without reading: called every moment while the agent has no room for more."""
