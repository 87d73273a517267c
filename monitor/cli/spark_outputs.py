"""The outputs of a stream on Spark: a file of windows for each batch, a topic, or both."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from connectors.build import build_reports_topic
from monitor.base.errors import ConfigError, SinkError
from monitor.base.files import place, put
from monitor.config.root import Config
from monitor.export.sinks.destination import FollowedDestination, Mark, Row
from monitor.export.sinks.line_file import cannot_write
from monitor.export.sinks.rejects_file import reject_line
from monitor.reports.views import SinkView

if TYPE_CHECKING:
    from connectors.spark.ledger import CheckpointLedger
    from connectors.spark.streaming import MicroBatch

log = logging.getLogger("blindsight")

_AT_ONCE = 500
_RETRY_SECONDS = 1.0
_CLOSE_SECONDS = 1.0


class OutFolder:
    """A folder with a file of windows and a file of rejected records for each batch.

    Parameters
    ----------
    folder : Path
    config : Config
    begins : bool
        True if no batch is committed yet.

    Raises
    ------
    ConfigError
        The folder cannot be created, or has windows although no batch is committed.
    """

    def __init__(self, folder: Path, config: Config, begins: bool) -> None:
        self._folder, self._rejects = folder, config.rejects is not None
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"--out: {cannot_write(str(folder), error)}") from error
        # The first batch may have been written and not committed; it is then written again.
        if begins and any(path.name != name_of(0) for path in folder.glob("windows-*.parquet")):
            raise ConfigError(f"--out: {folder} has windows of another checkpoint; give an empty folder")

    def write(self, batch: MicroBatch) -> None:
        """Write the files of a batch, each atomically. A batch without windows has no file of windows.

        Raises
        ------
        SinkError
            The disk did not accept the files.
        """
        from connectors.spark.tables import WindowTable

        path = self._folder / name_of(batch.number, batch.turn)
        try:
            if batch.lines:
                aside = path.with_name(f".{path.name}.unfinished")
                with WindowTable(aside) as table:
                    for line in batch.lines:
                        table.add(line)
                with aside.open("rb") as file:
                    os.fsync(file.fileno())
                place(aside, path)
            if self._rejects and batch.rejects:
                lines = b"".join(reject_line(one) for one in batch.rejects)
                put(self._folder / f"rejects-{batch.number:09d}.ndjson", lines)
        except OSError as error:
            raise SinkError(cannot_write(str(path), error)) from error


def name_of(batch: int, turn: int = 0) -> str:
    """Return the name of the file with the windows of a batch.

    With `turn`, the file holds the windows that closed by age after the batch.

    Examples
    --------
    >>> sorted([name_of(7), name_of(7, 1), name_of(8)])
    ['windows-000000007.parquet', 'windows-000000007_000001.parquet', 'windows-000000008.parquet']
    """
    return f"windows-{batch:09d}{f'_{turn:06d}' if turn else ''}.parquet"


class OutTopic:
    """A topic with the windows of all batches as messages, each exactly once even after a crash.

    Each message has the identity of the stream and the number of its line. After a crash, the writer reads
    from the topic which messages of the batch are already there, and sends only the other messages. Therefore
    a consumer needs no transactions and no check for duplicates. If the brokers cannot be reached, the stream
    waits.

    Parameters
    ----------
    topic : FollowedDestination
    saved : mapping of str to (int, int)
        The positions in the topic (`marks` of the destination) at the last commit.
    stopping : threading.Event
        An event that ends a wait for the brokers.
    """

    def __init__(
        self, topic: FollowedDestination, saved: Mapping[str, Mark], stopping: threading.Event
    ) -> None:
        self._topic, self._saved, self._stopping = topic, saved, stopping
        self._resumed = False
        self._waiting = self._delivered = 0
        self._trouble: str | None = None
        self._since: float | None = None

    def open(self) -> None:
        """Check the topic's certificates. Raise `SinkError` if they cannot be read."""
        self._topic.open()

    @property
    def view(self) -> SinkView:
        """The numbers of waiting, sent and refused messages, and the present failure, if there is one."""
        refused = self._topic.refused
        return SinkView(
            name=self._topic.name,
            waiting=self._waiting,
            delivered=self._delivered - refused,
            lost=refused,
            trouble=self._trouble,
            failing_since=self._since,
        )

    def write(self, batch: MicroBatch) -> Mapping[str, Mark]:
        """Send the windows of a batch that are missing from the topic, and wait until the brokers have them.

        Return the positions in the topic, for the next commit.

        Raises
        ------
        SinkError
            The stream must stop, and the brokers do not answer.
        """
        rows = list(enumerate(batch.lines, batch.first))
        while rows:
            self._waiting = len(rows)
            done = self._deliver(rows[:_AT_ONCE])
            self._delivered += done
            rows = rows[done:]
        self._waiting = 0
        return self._topic.marks if self._resumed else self._saved

    def _deliver(self, rows: Sequence[Row]) -> int:
        """Deliver rows, with retries until some of them succeed, and return the number of delivered rows."""
        while True:
            try:
                if not self._resumed:
                    self._topic.resume(self._saved, lambda last, most: [])
                    self._resumed = True
                done = self._topic.deliver(rows)
            except SinkError as error:
                self._fails(str(error))
                if self._stopping.wait(_RETRY_SECONDS):
                    raise
            else:
                self._works()
                return done

    def interrupt(self) -> None:
        """End a wait in `write`, from another thread."""
        self._topic.interrupt()

    def close(self) -> None:
        """Close the producer."""
        self._topic.close(_CLOSE_SECONDS)

    def _fails(self, why: str) -> None:
        if self._trouble is None:
            self._since = time.time()
            log.error("%s: %s. It is tried again; the stream waits for it.", self._topic.setting, why)
        self._trouble = why

    def _works(self) -> None:
        if self._trouble is not None:
            log.info("%s: %s takes windows again.", self._topic.setting, self._topic.where)
        self._trouble = self._since = None


class Outputs:
    """All outputs of a stream's windows.

    Parameters
    ----------
    out : Path or None
        The folder; None if the only output is a topic.
    config : Config
    ledger : CheckpointLedger
    stopping : threading.Event

    Raises
    ------
    ConfigError
        There is no output, or the folder cannot be used, or a folder is missing for rejects.
    SinkError
        The topic's certificates cannot be read.
    """

    def __init__(
        self, out: Path | None, config: Config, ledger: CheckpointLedger, stopping: threading.Event
    ) -> None:
        refuse_nowhere(out, config)
        settings = config.reports.kafka if config.reports else None
        begins = ledger.committed.batch < 0
        self._folder = None if out is None else OutFolder(out, config, begins)
        self._topic: OutTopic | None = None
        if settings is not None:
            topic = build_reports_topic(settings, ledger.committed.stream)
            self._topic = OutTopic(topic, ledger.committed.marks, stopping)
            self._topic.open()

    @property
    def views(self) -> tuple[SinkView, ...]:
        """The view of the topic for the page and the metrics; empty without a topic."""
        return () if self._topic is None else (self._topic.view,)

    def write(self, batch: MicroBatch) -> Mapping[str, Mark]:
        """Write the windows of a batch to every output, and return the positions in the topic to commit.

        Raises
        ------
        SinkError
            An output did not accept the windows.
        """
        if self._folder is not None:
            self._folder.write(batch)
        return {} if self._topic is None else self._topic.write(batch)

    def interrupt(self) -> None:
        """End a wait for brokers in `write`, from another thread."""
        if self._topic is not None:
            self._topic.interrupt()

    def close(self) -> None:
        """Close the producer of the topic, if there is one."""
        if self._topic is not None:
            self._topic.close()


def refuse_nowhere(out: Path | None, config: Config) -> None:
    """Raise `ConfigError` if windows or rejects have no output."""
    if out is None and (config.reports is None or config.reports.kafka is None):
        raise ConfigError("--engine spark needs --out FOLDER or a topic in reports.kafka for its windows")
    if out is None and config.rejects is not None:
        raise ConfigError("--engine spark needs --out FOLDER for rejects; give it, or leave rejects out")
