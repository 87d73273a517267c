"""What a post is answered: who may, whether there is room, what it holds, and that it is kept.

====== ========================================================================================
status when
====== ========================================================================================
202    the rows are kept for sure; what was wrong with some of them is listed, events without answers counted
400    no row can be used, or the body is none of the formats, or rows belong to the other path
401    no known token
403    the token may not write a task, or a page of another site sends it, or `Host` is not ours
404    another path
405    another method than POST
408    the body did not come in time
413    the body is too large, packed or unpacked, has too many rows, or more labels than the token has a day
415    another content type or none, another character set or encoding
429    the spool is full, or the task or the token over its quota: the rows are shed, and counted
500    it failed here; the log says why
503    too many posts at once, or the disk or the database does not take the rows
====== ========================================================================================
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
"""Of the answers that take nothing: what `Posts.refused` counts."""

_RETRY_SECONDS = 5  # for room in the spool: as long as the engine needs for some files of it
_BUSY_SECONDS = 1
_INLINE_BYTES = 64 << 10  # decoded at once: less time than a change of threads
_SAY_SECONDS = 60.0
_SECONDS_A_DAY = 86_400.0


class _RefusedError(Exception):
    """Ends the handling of a request with an answer."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer.status)
        self.answer = answer


class Posts:
    """Answers requests. All but the counters is used by the event loop alone.

    Parameters
    ----------
    settings : HttpSourceConfig
    gate, quota, intake, spool
        What it asks, in this order.
    workers : Executor
        Where large bodies are decoded.
    tasks : sequence of str
        Known tasks, for the counters.
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
        # What may be posted to, and whether events are read there; None is our own two paths.
        self._events: dict[str | None, bool] = {None: settings.reads_events}
        self._events.update((tag, True) for tag, entry in FORMATS.items() if entry.needs_no_mapping)
        self._events.update((name, each.format is not None) for name, each in settings.observe.items())
        self._in_memory = 0
        self._proposing = False
        self._sayings = _Sayings(settings.label)
        self.shed = self.ignored = 0
        # Complete from the start: another thread copies them, and must not meet them growing.
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
        """Answer one request."""
        try:
            answer = await self._answer(request)
        except _RefusedError as refused:
            answer = refused.answer
        except Exception:
            self.refused[500] += 1
            raise
        # Only what was judged says so; what is refused unread is sent again, and counted then.
        ignored = answer.content.get("ignored", 0)
        self.ignored += ignored if isinstance(ignored, int) else 0
        if answer.status >= 400:
            self.refused[answer.status] += 1
            self._sayings.note(answer, request)
        return answer.response

    def refusal(self, status: int, sentence: str) -> Response:
        """What the server itself answers."""
        return refusal(status, sentence).response

    async def _answer(self, request: HttpRequest) -> Answer:
        kind, name = self._place_of(request)
        if fault := self._site.fault(request.headers):
            return refusal(403, fault)
        holder = self._gate.admits(request.headers.get("authorization"))
        if holder is None:
            return refusal(
                401, "Give a token that may write here: Authorization: Bearer …", www_authenticate="Bearer"
            )
        gzipped = _check_headers(request, self._settings.max_body_bytes, self._events[name])
        with self._counted():
            pass  # whether there is room, before anything is read
        with ExitStack() as held:
            body = await self._body(request, gzipped, held)
            found = await self._judge(request.headers, body, kind, name)
            answer = await self._take(found, kind, holder)
            return await self._with_proposal(answer, found) if answer.status == 400 else answer

    def _place_of(self, request: HttpRequest) -> tuple[PostKind, str | None]:
        """What the path takes, and the name of what is observed."""
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
        """Count a post as one in memory."""
        if self._in_memory >= self._settings.max_requests:
            sentence = f"{self._settings.max_requests} posts are being taken already; send this one again"
            raise _RefusedError(refusal(503, sentence, retry_after=str(_BUSY_SECONDS)))
        self._in_memory += 1
        try:
            yield
        finally:
            self._in_memory -= 1

    async def _body(self, request: HttpRequest, gzipped: bool, held: ExitStack) -> bytes:
        """The body unpacked. It counts once it is large or whole: who sends it slowly keeps nobody out."""
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
            found = self._read(headers, body, kind, name)
        else:
            loop = asyncio.get_running_loop()
            found = await loop.run_in_executor(self._workers, self._read, headers, body, kind, name)
        if isinstance(found, Answer):
            raise _RefusedError(found)
        return found

    def _read(
        self, headers: Mapping[str, str], body: bytes, kind: PostKind, name: str | None
    ) -> Judgement | Answer:
        try:
            lines = event_lines(headers, body, self._intake.wire, name)
        except TooLargeError as error:
            return _too_large(error)
        if not lines:
            return refusal(400, "The body is empty; send an object, an array of objects, or an object a line")
        found = self._intake.judge(lines, kind)
        if not found.rows:
            return Answer(202, {"accepted": 0, "rejected": 0, "ignored": found.ignored})
        return found

    async def _take(self, found: Judgement, kind: PostKind, holder: Holder) -> Answer:
        if found.misplaced:
            return _misplaced(found, kind)
        if holder.tasks is not None and (others := sorted(found.tasks.keys() - holder.tasks - {""})):
            may = ", ".join(sorted(holder.tasks))
            return refusal(403, f"This token may write {may}, not {others[0]}; nothing was taken")
        if over := self._over_quota(found, holder.name):
            self._shed(found)
            return over
        try:
            # Also where no row is good: that they came is counted, and the rejects sink shows them.
            kept = self._spool.append(found.lines, found.rows, kind is PostKind.LABELS)
            if found.accepted:
                await asyncio.wrap_future(kept)
        except SpoolFullError:
            self._shed(found)
            if found.accepted:
                sentence = "There is no room until something is used; nothing was taken"
                return refusal(429, sentence, retry_after=str(_RETRY_SECONDS))
        except SpoolWriteError:
            sentence = "The rows could not be kept; send them again"
            return refusal(503, sentence, retry_after=str(_RETRY_SECONDS))
        if holder.name:
            self.labels_by_token[holder.name] += found.labels_accepted
        return _verdict(found)

    async def _with_proposal(self, answer: Answer, found: Judgement) -> Answer:
        """An answer with a mapping that would read the rows, if one is found; one is looked for at a time."""
        if found.misplaced or self._proposing:
            return answer
        self._proposing = True
        try:
            loop = asyncio.get_running_loop()
            proposal = await loop.run_in_executor(self._workers, self._intake.proposal, found.lines)
        finally:
            self._proposing = False
        return replace(answer, content={**answer.content, **({"proposal": proposal} if proposal else {})})

    def _over_quota(self, found: Judgement, holder: str) -> Answer | None:
        """Take room for the rows of a post and for its labels; the answer to one for which there is none."""
        labels, own = found.labels_accepted, self._label_quotas.get(holder)
        if labels and own is not None and own.rows is not None:
            if labels > own.rows:
                sentence = (
                    f"The post has {labels} labels, this token may send {own.rows} a day; send fewer at once"
                )
                return refusal(413, f"{sentence}. Nothing was taken")
            if wait := own.wait([holder]):
                sentence = f"This token has sent its {own.rows} labels a day; nothing was taken"
                return refusal(429, sentence, retry_after=str(math.ceil(wait)))
        if wait := self._quota.take(found.tasks):
            sentence = (
                f"More than {self._settings.rows_per_second} rows a second of a task; nothing was taken"
            )
            return refusal(429, sentence, retry_after=str(math.ceil(wait)))
        if labels and own is not None:
            own.take({holder: labels})
        return None

    def _shed(self, found: Judgement) -> None:
        self.shed += found.answers
        for task, labels in found.labels.items():
            self.labels_shed[task] += labels


def _check_headers(request: HttpRequest, most_bytes: int, events: bool) -> bool:
    """Whether the body is gzip; refuses what cannot be read before any of it is."""
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


def _misplaced(found: Judgement, kind: PostKind) -> Answer:
    other = PostKind.PREDICTIONS if kind is PostKind.LABELS else PostKind.LABELS
    if kind is PostKind.PREDICTIONS and found.scored:
        return refusal(
            400,
            f"{found.misplaced} of {found.rows} rows have no scores where they are looked for, so they are "
            "labels, but scores under another name: name their fields in the source's mapping, which "
            "`blindsight doctor --sample FILE` proposes. If they are the truth, post them to /v1/labels. "
            "Nothing was taken",
        )
    return refusal(
        400,
        f"{found.misplaced} of {found.rows} rows are {other.value}; post those to /v1/{other.value}, "
        f"and only {kind.value} here. Nothing was taken",
    )


def _verdict(found: Judgement) -> Answer:
    content: dict[str, object] = {"accepted": found.accepted, "rejected": found.rejected}
    if found.ignored:
        content["ignored"] = found.ignored
    if found.errors:
        content["errors"] = found.errors
    if found.errors_omitted:
        content["errors_omitted"] = found.errors_omitted
    if found.accepted:
        return Answer(202, content)
    return Answer(400, {"error": "None of the rows can be used", **content})


class _Sayings:
    """Logs refusals: of each status the first, then at most one a minute with the number of others."""

    def __init__(self, source: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._source, self._clock = source, clock
        self._said: dict[int, tuple[float, int]] = {}

    def note(self, answer: Answer, request: HttpRequest) -> None:
        """Have a refusal logged, now or with the next."""
        at, others = self._said.get(answer.status, (-math.inf, 0))
        if self._clock() - at < _SAY_SECONDS:
            self._said[answer.status] = (at, others + 1)
            return
        self._said[answer.status] = (self._clock(), 0)
        more = f" So were {others} others in the minutes before." if others else ""
        log.warning(
            "%s: a request of %s was answered %d: %s.%s",
            self._source,
            request.peer,
            answer.status,
            answer.content["error"],
            more,
        )
