"""Posted records as a source: a server before a spool, and the reading of that spool."""

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
_IDLE_CONNECTIONS = 256  # held beside those that a post may be coming in on


class HttpSource(Source[int]):
    """Takes posts of predictions and labels.

    A post is answered 202 once its rows are kept for sure, in the spool; from there they are read. The
    position counts bytes of all lines ever kept. What was acknowledged is handed out once after each
    `open`, from the position that it is given; without one, from what was acknowledged last, as far as
    that was noted (at most a second before a crash). A post that was cut off before its 202 may be in
    the spool or not: whoever sends it again should give the rows an `id`, by which the double is seen.

    Rows with a fault are kept beside the good ones, so that the engine counts them, and the rejects
    sink has them. A post that is refused as a whole (401, 403, 413, 415, rows for the other path)
    counts in `refusals.requests` alone, as its rows are not known; what is refused for want of room (429)
    is `shed`.

    `acknowledge` and the properties may be used from any thread.

    Parameters
    ----------
    settings : HttpSourceConfig
    layouts : sequence of TaskLayout
        The configured tasks, for the judgement of what is posted.
    spool : PostSpool, optional
        That of the store's database; without it there is one in the folder that the section names.

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
        """The source of a section: it judges posts by the tasks."""
        if settings.spool.path is not None or spools is None:
            return cls(settings, tasks)
        return cls(settings, tasks, spools(settings.label, settings.spool.max_bytes))

    @classmethod
    def sample(cls, settings: Any, records: int) -> list[Raw] | str:
        """Why posts are not looked at."""
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
        """Recover the spool, read the certificates and tokens, and listen.

        Raises
        ------
        SourceError
            A file or the address cannot be had, or the spool is damaged, used by another process, or
            older than the position.
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
        """None on making: a post that waits for the disk and is cut would be sent again, and kept twice."""
        return Bounds(
            connections=self._settings.max_requests + _IDLE_CONNECTIONS,
            request_seconds=self._settings.read_seconds,
            made_seconds=None,
            taken_seconds=self._settings.read_seconds,
        )

    def read(self, timeout_seconds: float) -> list[Raw]:
        """Lines that rest on the disk: about 1 MiB, or a single larger group of posts.

        Raises
        ------
        SourceError
            A file of the spool is damaged, or the server has failed; it is started again by the next.
        """
        if self._server is not None and not self._server.up:
            self._server.start()
        found = self._spool.read(timeout_seconds)
        return [RawBlock(part.lines, PARTITION, part.start, part.labels) for part in found]

    def acknowledge(self, positions: Mapping[str, int]) -> None:
        """Hear that everything before the position is used: what of the spool is so is deleted."""
        if PARTITION in positions:
            self._spool.absorbed(positions[PARTITION])

    def close(self) -> None:
        """Stop listening; posts in flight have a second to be answered."""
        if self._server is not None:
            self._server.stop()
            self._server = None
        if self._workers is not None:
            self._workers.shutdown()
            self._workers = None
        self._spool.close()

    @property
    def up(self) -> bool:
        """Return whether the source listens, and can keep what is posted."""
        server = self._server
        return server is not None and server.up and self._spool.trouble is None

    @property
    def trouble(self) -> str | None:
        """Return why the source cannot keep what is posted."""
        return self._spool.trouble if self._server is not None else None

    @property
    def lag(self) -> int:
        """Rows in the spool that were not read yet."""
        return self._spool.lag

    @property
    def counts(self) -> SourceCounts | None:
        """Rows that were acknowledged, and that a table that was dropped or emptied has lost."""
        lost = self._spool.lost
        return None if lost is None else SourceCounts(lost)

    @property
    def refusals(self) -> Refusals:
        """What it has answered with an error since the start, by status, and what it has left out."""
        posts = self._posts
        if posts is None:
            return Refusals(requests={str(status): 0 for status in STATUSES})
        requests = {str(status): count for status, count in posts.refused.items()}
        return Refusals(
            posts.shed, dict(posts.labels_shed), requests, posts.ignored, dict(posts.labels_by_token)
        )

    @property
    def port(self) -> int:
        """The port in use, once open."""
        return 0 if self._server is None else self._server.port
