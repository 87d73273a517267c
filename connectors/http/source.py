"""The `http` source: a server that stores posted records in a spool, and the methods that read the spool."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Self

from connectors.formats.wires.choice import wire_of
from connectors.http.access import Quota
from connectors.http.handler import STATUSES, Posts
from connectors.http.intake import Intake
from connectors.http.spool import Spool
from monitor.base.errors import SourceError
from monitor.base.records import TaskLayout
from monitor.base.source import Raw, RawBlock, Refusals, Source, SourceCounts
from monitor.base.spool import PostSpool, Spools
from monitor.config.http import HttpSourceConfig as HttpSettings
from monitor.export.http.bounds import Bounds
from monitor.export.http.gate import Gate
from monitor.export.http.server import HttpServer
from monitor.export.http.tls import watched_context

log = logging.getLogger("blindsight")

PARTITION = "spool"
_IDLE_CONNECTIONS = 256  # open connections without a post, in addition to those with one


class HttpSource(Source[int]):
    """A source that receives posts of predictions and labels.

    A post gets status 202 when its rows are stored durably in the spool. `read` returns the rows from the
    spool. A position is the number of bytes of all lines that were ever stored. After `open` with a position,
    each row after the position is returned once. Without a position, reading starts at the acknowledged
    position that was saved last. After a crash, this position may be a second old.

    If a connection breaks before the status 202 arrives, the client does not know whether the rows are
    stored. A client that sends the rows again should give each row an `id`, so that a repeated row counts
    once.

    Rows with a fault are stored too, so that the engine counts them and the rejects sink receives them. A
    post that is refused as a whole, for example with status 401, 403 or 415, counts only in
    `refusals.requests`. If a post is refused because the spool is full or a quota is used up (status 429),
    its answers and labels also count in `refusals.shed` and `refusals.labels_shed`.

    Any thread may call `acknowledge` and read the properties.

    Parameters
    ----------
    settings : HttpSourceConfig
    layouts : sequence of TaskLayout
        The configured tasks, for the validation of rows.
    spool : PostSpool, optional
        A spool in the store's database; by default a spool in the folder that the settings name.

    Examples
    --------
    >>> import tempfile
    >>> spool = {"path": tempfile.mkdtemp()}
    >>> settings = HttpSettings(kind="http", listen="127.0.0.1:0", spool=spool)
    >>> source = HttpSource(settings, [TaskLayout("spam", ("no", "yes"))])
    >>> source.open({})
    >>> source.name, source.up, source.lag
    ('http', True, 0)
    >>> source.close()
    """

    @classmethod
    def from_settings(cls, settings: Any, tasks: Sequence[TaskLayout], spools: Spools | None = None) -> Self:
        """Return the source that a section of the configuration describes.

        If the section names no folder, the spool is in the store's database.
        """
        if settings.spool.path is not None or spools is None:
            return cls(settings, tasks)
        return cls(settings, tasks, spools(settings.label, settings.spool.max_bytes))

    @classmethod
    def sample(cls, settings: Any, records: int) -> list[Raw] | str:
        """Return the reason why posts cannot be sampled, as a sentence."""
        return "not looked at: it holds what is posted while the agent runs, and answers say what is wrong"

    def __init__(
        self, settings: HttpSettings, layouts: Sequence[TaskLayout], spool: PostSpool | None = None
    ) -> None:
        self.name = settings.label
        self._settings = settings
        self._tasks = tuple(layout.name for layout in layouts)
        self._intake = Intake(layouts, wire_of(settings))
        self._spool = spool or Spool(Path(settings.spool.path or PARTITION), settings.spool.max_bytes)
        self._posts: Posts | None = None
        self._server: HttpServer | None = None
        self._workers: ThreadPoolExecutor | None = None

    def open(self, positions: Mapping[str, int]) -> None:
        """Open the spool, read the certificates and tokens, and start to listen.

        Raises
        ------
        SourceError
            A file or the address cannot be used, the spool is damaged, another process uses the spool, or the
            spool ends before the position.
        """
        if isinstance(self._spool, Spool) and self._settings.spool.path is None:
            raise SourceError(f"{self.name}: spool.path is missing, and there is no store.postgres; give one")
        context = watched_context(self._settings.tls).current if self._settings.tls else None
        gate = Gate(self._settings.tokens)
        self._spool.open(positions.get(PARTITION))
        self._workers = ThreadPoolExecutor(1, thread_name_prefix="blindsight-decode")
        quota = Quota(self._settings.rows_per_second)
        self._posts = Posts(
            self._settings, gate, quota, self._intake, self._spool, self._workers, self._tasks
        )
        self._server = HttpServer(
            self._posts,
            self._settings.listen,
            self._bounds,
            context=context,
            key="listen",
            failure=SourceError,
            name="blindsight-posts",
        )
        try:
            self._server.start()
        except SourceError:
            self.close()
            raise
        log.info("%s: posts are taken on port %d.", self.name, self._server.port)

    @property
    def _bounds(self) -> Bounds:
        """The limits of the server.

        The time to make an answer has no limit. If a connection ended while its post waits for the disk, the
        client would send the post again, and it would be stored twice.
        """
        return Bounds(
            connections=self._settings.max_requests + _IDLE_CONNECTIONS,
            request_seconds=self._settings.read_seconds,
            made_seconds=None,
            taken_seconds=self._settings.read_seconds,
        )

    def read(self, timeout_seconds: float) -> list[Raw]:
        """Return the next stored lines: about 1 MiB, or one larger group of posts.

        If the server has failed, it is started again first.

        Raises
        ------
        SourceError
            A file of the spool is damaged, or the server cannot be started again.
        """
        if self._server is not None and not self._server.up:
            self._server.start()
        stretches = self._spool.read(timeout_seconds)
        return [RawBlock(part.lines, PARTITION, part.start, part.labels) for part in stretches]

    def acknowledge(self, positions: Mapping[str, int]) -> None:
        """Record that the agent has used all lines before the position, so that the spool can delete them."""
        if PARTITION in positions:
            self._spool.absorbed(positions[PARTITION])

    def close(self) -> None:
        """Stop the server and close the spool. The server has one more second to answer open requests."""
        if self._server is not None:
            self._server.stop()
            self._server = None
        if self._workers is not None:
            self._workers.shutdown()
            self._workers = None
        self._spool.close()

    @property
    def up(self) -> bool:
        """True if the server listens and the spool can store posts."""
        server = self._server
        return server is not None and server.up and self._spool.trouble is None

    @property
    def trouble(self) -> str | None:
        """The reason why posts cannot be stored now, a sentence without a full stop, or None."""
        return self._spool.trouble if self._server is not None else None

    @property
    def lag(self) -> int:
        """The number of rows in the spool that were not read yet."""
        return self._spool.lag

    @property
    def counts(self) -> SourceCounts | None:
        """The number of acknowledged rows that were lost together with the spool's table in the database.

        The count is None for a spool in a folder.
        """
        lost = self._spool.lost
        return None if lost is None else SourceCounts(lost)

    @property
    def refusals(self) -> Refusals:
        """The counts of shed answers and labels, refused requests, ignored events and accepted labels."""
        posts = self._posts
        if posts is None:
            return Refusals(requests={str(status): 0 for status in STATUSES})
        requests = {str(status): count for status, count in posts.refused.items()}
        return Refusals(
            posts.shed, dict(posts.labels_shed), requests, posts.ignored, dict(posts.labels_by_token)
        )

    @property
    def port(self) -> int:
        """The port of the server, or 0 if it does not run."""
        return 0 if self._server is None else self._server.port
