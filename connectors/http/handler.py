"""The handling of a post: checks of the sender, validation of the rows, their storage, and the answer.

====== ======================================================================================================
status reason
====== ======================================================================================================
202    the rows are stored durably; the answer lists faults of single rows, and counts events without answers
400    no row is usable, the body has none of the formats, or labels were posted as predictions or vice versa
401    the token is missing or unknown
403    the token may not write a task, a page of another site sends the post, or `Host` is not allowed
404    the path does not exist
405    the method is not POST
408    the body did not arrive in time
413    the body is too large, compressed or not, or has too many rows, or too many labels for the token
415    the content type is missing or unknown, or the character set or the encoding is not supported
429    the spool is full, or a quota of the task or token is used up; the rows are counted as shed
500    the program failed; the log has the error
503    too many posts are in memory, or the disk or the database does not store the rows
====== ======================================================================================================
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor
from contextlib import ExitStack, contextmanager
from dataclasses import replace

from connectors.formats.wires.observed import unknown_source
from connectors.http.access import Quota, SiteCheck
from connectors.http.body import TYPES as EVENT_TYPES
from connectors.http.body import BadBodyError, TooLargeError, Unpacker, event_lines, is_binary
from connectors.http.intake import Intake, Judgement, PostKind
from connectors.http.messages import Answer, refusal
from monitor.base.registry import FORMATS
from monitor.base.spool import PostSpool, SpoolFullError, SpoolWriteError
from monitor.config.http import HttpSourceConfig, token_names
from monitor.export.http.gate import Gate, Holder
from monitor.export.http.messages import BodyError, HttpRequest, Response

log = logging.getLogger("blindsight")

PATHS: Mapping[str, PostKind] = {"/v1/predictions": PostKind.PREDICTIONS, "/v1/labels": PostKind.LABELS}
_OBSERVE = "/v1/observe/"
_TYPES = frozenset({"application/json", "application/x-ndjson", "application/ndjson", "application/jsonl"})
STATUSES = (400, 401, 403, 404, 405, 408, 413, 415, 429, 500, 503)
"""The statuses of refusals, which `Posts.refused` counts."""

_RETRY_SECONDS = 5  # until a full spool has room: the engine uses some of its files in this time
_BUSY_SECONDS = 1
_INLINE_BYTES = 64 << 10  # decoded in the event loop, which takes less time than a change of threads
_LOG_SECONDS = 60.0
_SECONDS_A_DAY = 86_400.0


class _RefusedError(Exception):
    """Signal that ends the handling of a request with an answer."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer.status)
        self.answer = answer


class Posts:
    """The handler of the requests to an `http` source.

    All methods run in the event loop. Other threads may read the counters.

    Parameters
    ----------
    settings : HttpSourceConfig
    gate : Gate
        Checks the tokens.
    quota : Quota
        Limits the rows per second of each task.
    intake : Intake
        Validates the rows.
    spool : PostSpool
        Stores the rows.
    workers : Executor
        Decodes large bodies.
    tasks : sequence of str
        The configured tasks.

    Attributes
    ----------
    shed : int
        The number of answers that were refused because a quota was used up or the spool was full.
    labels_shed : dict of str to int
        The number of labels that were refused for the same reasons, by task.
    ignored : int
        The number of events without answers.
    refused : dict of int to int
        The number of refused requests by status.
    labels_by_token : dict of str to int
        The number of accepted labels by the name of the token.
    """

    def __init__(
        self,
        settings: HttpSourceConfig,
        gate: Gate,
        quota: Quota,
        intake: Intake,
        spool: PostSpool,
        workers: Executor,
        tasks: tuple[str, ...],
    ) -> None:
        self._settings = settings
        self._gate, self._quota, self._intake, self._spool = gate, quota, intake, spool
        self._workers = workers
        self._site = SiteCheck(settings.allowed_hosts, settings.is_loopback)
        # Whether events are accepted, by the name in the path /v1/observe/<name>; None for the other paths.
        self._events: dict[str | None, bool] = {None: settings.reads_events}
        self._events.update((tag, True) for tag, entry in FORMATS.items() if entry.needs_no_mapping)
        self._events.update((name, each.format is not None) for name, each in settings.observe.items())
        self._in_memory = 0
        self._proposing = False
        self._refusal_log = _RefusalLog(settings.label)
        self.shed = self.ignored = 0
        # All keys exist from the start, because another thread copies these dictionaries.
        self.labels_shed = dict.fromkeys(tasks, 0)
        self.refused = dict.fromkeys(STATUSES, 0)
        names = token_names(settings.tokens)
        self.labels_by_token = dict.fromkeys(names, 0)
        self._label_quotas = {
            name: Quota(token.labels_per_day, _SECONDS_A_DAY)
            for name, token in zip(names, settings.tokens, strict=True)
            if token.labels_per_day is not None
        }

    async def __call__(self, request: HttpRequest) -> Response:
        """Answer a request, and count and log a refusal."""
        try:
            answer = await self._answer(request)
        except _RefusedError as refused:
            answer = refused.answer
        except Exception:
            self.refused[500] += 1
            raise
        # Only an answer after validation has this count; a post refused before is usually sent again.
        ignored = answer.content.get("ignored", 0)
        self.ignored += ignored if isinstance(ignored, int) else 0
        if answer.status >= 400:
            self.refused[answer.status] += 1
            self._refusal_log.note(answer, request)
        return answer.response

    def refusal(self, status: int, sentence: str) -> Response:
        """Return the response to an error that the server detected before it called the handler."""
        return refusal(status, sentence).response

    async def _answer(self, request: HttpRequest) -> Answer:
        kind, name = self._target_of(request)
        if fault := self._site.find_fault(request.headers):
            return refusal(403, fault)
        holder = self._gate.admits(request.headers.get("authorization"))
        if holder is None:
            return refusal(
                401, "Give a token that may write here: Authorization: Bearer …", www_authenticate="Bearer"
            )
        gzipped = _check_headers(request, self._settings.max_body_bytes, self._events[name])
        with self._counted():
            pass  # refuse the post before its body is read if there is no room
        with ExitStack() as held:
            body = await self._body(request, gzipped, held)
            judgement = await self._judge(request.headers, body, kind, name)
            answer = await self._store(judgement, kind, holder)
            return await self._with_proposal(answer, judgement) if answer.status == 400 else answer

    def _target_of(self, request: HttpRequest) -> tuple[PostKind, str | None]:
        """Return the kind of records that the path accepts, and the name in ``/v1/observe/<name>`` or None.

        Raises
        ------
        _RefusedError
            The path does not exist, or the method is not POST.
        """
        name = request.path.removeprefix(_OBSERVE) if request.path.startswith(_OBSERVE) else None
        kind = PATHS.get(request.path) if name is None else PostKind.OBSERVED
        if kind is None:
            places = " or ".join((*PATHS, f"{_OBSERVE}<source>"))
            raise _RefusedError(refusal(404, f"There is nothing here; post to {places}"))
        if name not in self._events:
            known = [each for each in self._events if each is not None]
            raise _RefusedError(refusal(404, unknown_source(name or "", known)))
        if request.method != "POST":
            raise _RefusedError(refusal(405, "Send it as a POST", allow="POST"))
        return kind, name

    @contextmanager
    def _counted(self) -> Iterator[None]:
        """Count a post as one in memory, or refuse it if there are too many."""
        if self._in_memory >= self._settings.max_requests:
            sentence = f"{self._settings.max_requests} posts are being taken already; send this one again"
            raise _RefusedError(refusal(503, sentence, retry_after=str(_BUSY_SECONDS)))
        self._in_memory += 1
        try:
            yield
        finally:
            self._in_memory -= 1

    async def _body(self, request: HttpRequest, gzipped: bool, held: ExitStack) -> bytes:
        """Return the decompressed body.

        The post counts as in memory, until `held` is closed, from the moment when its body is large or
        complete. Until then a slow sender does not keep other posts out.
        """
        unpacker, counted = Unpacker(gzipped, self._settings.max_body_bytes), False
        try:
            async for part in request.body():
                unpacker.feed(part)
                if unpacker.size > _INLINE_BYTES and not counted:
                    held.enter_context(self._counted())
                    counted = True
            if not counted:
                held.enter_context(self._counted())
            return unpacker.finish()
        except BodyError as error:
            raise _RefusedError(refusal(error.status, str(error))) from None
        except TooLargeError as error:
            raise _RefusedError(_too_large(error)) from None
        except BadBodyError as error:
            sentence = f"{str(error).capitalize()}; send it as it is, or packed whole"
            raise _RefusedError(refusal(400, sentence)) from None

    async def _judge(
        self, headers: Mapping[str, str], body: bytes, kind: PostKind, name: str | None
    ) -> Judgement:
        if len(body) <= _INLINE_BYTES:
            result = self._read(headers, body, kind, name)
        else:
            loop = asyncio.get_running_loop()
            result = await loop.run_in_executor(self._workers, self._read, headers, body, kind, name)
        if isinstance(result, Answer):
            raise _RefusedError(result)
        return result

    def _read(
        self, headers: Mapping[str, str], body: bytes, kind: PostKind, name: str | None
    ) -> Judgement | Answer:
        """Return the result of the validation, or the answer to a post that has no rows to store."""
        try:
            lines = event_lines(headers, body, self._intake.wire, name)
        except TooLargeError as error:
            return _too_large(error)
        if not lines:
            return refusal(400, "The body is empty; send an object, an array of objects, or an object a line")
        judgement = self._intake.judge(lines, kind)
        if not judgement.rows:
            return Answer(202, {"accepted": 0, "rejected": 0, "ignored": judgement.ignored})
        return judgement

    async def _store(self, judgement: Judgement, kind: PostKind, holder: Holder) -> Answer:
        """Store the rows if the sender may write them and there is room, and return the answer."""
        if judgement.misplaced:
            return _misplaced(judgement, kind)
        if holder.tasks is not None and (others := sorted(judgement.tasks.keys() - holder.tasks - {""})):
            may = ", ".join(sorted(holder.tasks))
            return refusal(403, f"This token may write {may}, not {others[0]}; nothing was taken")
        if refused := self._refuse_over_quota(judgement, holder.name):
            self._count_shed(judgement)
            return refused
        try:
            # Unusable rows are stored too, so that the engine counts them and the rejects sink shows them.
            stored = self._spool.append(judgement.lines, judgement.rows, kind is PostKind.LABELS)
            if judgement.accepted:
                await asyncio.wrap_future(stored)
        except SpoolFullError:
            self._count_shed(judgement)
            if judgement.accepted:
                sentence = "There is no room until something is used; nothing was taken"
                return refusal(429, sentence, retry_after=str(_RETRY_SECONDS))
        except SpoolWriteError:
            sentence = "The rows could not be kept; send them again"
            return refusal(503, sentence, retry_after=str(_RETRY_SECONDS))
        if holder.name:
            self.labels_by_token[holder.name] += judgement.labels_accepted
        return _verdict(judgement)

    async def _with_proposal(self, answer: Answer, judgement: Judgement) -> Answer:
        """Return the answer with a proposed mapping that can read the rows, if there is one.

        Only one proposal is computed at a time; meanwhile, other answers have none.
        """
        if judgement.misplaced or self._proposing:
            return answer
        self._proposing = True
        try:
            loop = asyncio.get_running_loop()
            proposal = await loop.run_in_executor(self._workers, self._intake.proposal, judgement.lines)
        finally:
            self._proposing = False
        return replace(answer, content={**answer.content, **({"proposal": proposal} if proposal else {})})

    def _refuse_over_quota(self, judgement: Judgement, holder: str) -> Answer | None:
        """Count rows and labels against the quotas and return None, or return the refusal of the post."""
        labels, own = judgement.labels_accepted, self._label_quotas.get(holder)
        if labels and own is not None and own.rows is not None:
            if labels > own.rows:
                sentence = (
                    f"The post has {labels} labels, this token may send {own.rows} a day; send fewer at once"
                )
                return refusal(413, f"{sentence}. Nothing was taken")
            if wait := own.waiting_seconds([holder]):
                sentence = f"This token has sent its {own.rows} labels a day; nothing was taken"
                return refusal(429, sentence, retry_after=str(math.ceil(wait)))
        if wait := self._quota.take(judgement.tasks):
            sentence = (
                f"More than {self._settings.rows_per_second} rows a second of a task; nothing was taken"
            )
            return refusal(429, sentence, retry_after=str(math.ceil(wait)))
        if labels and own is not None:
            own.take({holder: labels})
        return None

    def _count_shed(self, judgement: Judgement) -> None:
        self.shed += judgement.answers
        for task, labels in judgement.labels.items():
            self.labels_shed[task] += labels


def _check_headers(request: HttpRequest, most_bytes: int, events: bool) -> bool:
    """Return whether the body is compressed with gzip.

    Raises
    ------
    _RefusedError
        The headers show that the body cannot be read.
    """
    content_type, _, parameters = request.headers.get("content-type", "").partition(";")
    known = _TYPES | EVENT_TYPES if events else _TYPES
    if content_type.strip().lower() not in known and not (events and is_binary(request.headers)):
        raise _RefusedError(refusal(415, _wrong_type(content_type.strip(), events)))
    charset = parameters.lower().partition("charset=")[2].partition(";")[0].strip(' "')
    if charset not in ("", "utf-8", "utf8", "us-ascii"):
        raise _RefusedError(refusal(415, f"Send UTF-8, not {charset[:60]}"))
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("gzip", "x-gzip", "identity", ""):
        raise _RefusedError(
            refusal(415, f"Send Content-Encoding: gzip or none, not {encoding[:60]}", accept_encoding="gzip")
        )
    length = request.headers.get("content-length", "0")
    if len(length) > 18 or int(length) > most_bytes:
        raise _RefusedError(_too_large(TooLargeError(f"more than {most_bytes} bytes")))
    return encoding in ("gzip", "x-gzip")


def _wrong_type(content_type: str, events: bool) -> str:
    got = repr(content_type[:60]) if content_type else "none"
    event = ", of events also application/cloudevents+json" if events else ""
    return (
        f"Content-Type: got {got}, expected application/json or application/x-ndjson{event}; send this "
        "header with each post"
    )


def _too_large(error: TooLargeError) -> Answer:
    return refusal(413, f"The body has {error}; send it in parts")


def _misplaced(judgement: Judgement, kind: PostKind) -> Answer:
    """Return the refusal of a post with rows that belong to the other path."""
    other = PostKind.PREDICTIONS if kind is PostKind.LABELS else PostKind.LABELS
    if kind is PostKind.PREDICTIONS and judgement.scored:
        return refusal(
            400,
            f"{judgement.misplaced} of {judgement.rows} rows have no scores where they are looked for, so "
            "they are labels, but scores under another name: name their fields in the source's mapping, "
            "which `blindsight doctor --sample FILE` proposes. If they are the truth, post them to "
            "/v1/labels. Nothing was taken",
        )
    return refusal(
        400,
        f"{judgement.misplaced} of {judgement.rows} rows are {other.value}; post those to /v1/{other.value}, "
        f"and only {kind.value} here. Nothing was taken",
    )


def _verdict(judgement: Judgement) -> Answer:
    """Return the answer to a post that was handled: status 202, or 400 if no row is usable."""
    content: dict[str, object] = {"accepted": judgement.accepted, "rejected": judgement.rejected}
    if judgement.ignored:
        content["ignored"] = judgement.ignored
    if judgement.errors:
        content["errors"] = judgement.errors
    if judgement.errors_omitted:
        content["errors_omitted"] = judgement.errors_omitted
    if judgement.accepted:
        return Answer(202, content)
    return Answer(400, {"error": "None of the rows can be used", **content})


class _RefusalLog:
    """A log of refusals, with at most one line a minute for each status.

    A line includes the number of refusals of this status that were not logged since the line before.
    """

    def __init__(self, source: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._source, self._clock = source, clock
        self._logged: dict[int, tuple[float, int]] = {}

    def note(self, answer: Answer, request: HttpRequest) -> None:
        """Log a refusal, or count it for the next line of its status."""
        at, others = self._logged.get(answer.status, (-math.inf, 0))
        if self._clock() - at < _LOG_SECONDS:
            self._logged[answer.status] = (at, others + 1)
            return
        self._logged[answer.status] = (self._clock(), 0)
        more = f" So were {others} others in the minutes before." if others else ""
        log.warning(
            "%s: a request of %s was answered %d: %s.%s",
            self._source,
            request.peer,
            answer.status,
            answer.content["error"],
            more,
        )
