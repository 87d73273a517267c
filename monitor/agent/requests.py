"""How a command reaches the running agent: one small file a request, in the folder of its store.

The command writes `<id>.json` (`RequestFolder.place`); the agent looks each second, acts between two
chunks, and once that is saved answers with `<id>.done` and removes the request
(`RequestHandler`). Files are written whole: under another name first, synced, then renamed.
Whoever may write in the store's folder may ask; nobody else can, and nothing listens on a port.
"""

from __future__ import annotations

import logging
import os
import re
import secrets
import stat
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import msgspec

from monitor.base.errors import RequestError
from monitor.base.files import put, sync_folder
from monitor.base.results import Outcome
from monitor.config.messages import nearest

if TYPE_CHECKING:  # a command that asks needs no engine
    from monitor.agent.checkpoints import OutputPolicy
    from monitor.engine.engine import Engine

FOLDER = "requests"
MOST_BYTES = 1 << 20
"""Of one request: what is longer is refused."""

_ID = re.compile(r"\d{20}-[0-9a-f]{8}")
_KEPT = 100  # answers that nobody collected, and refused files: so many of each stay, the newest
_LOOK_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class OperatorRequest:
    """What a command asks of the agent.

    Parameters
    ----------
    id : str
        Ids rise with time: requests are acted on in their order.
    kind : str
        Names its handler: ``rebaseline``.
    time : float
        When it was asked, seconds since the epoch.
    body : mapping of str to value
        Whatever the handler needs.
    """

    id: str
    kind: str
    time: float
    body: Mapping[str, Any] = field(default_factory=dict)


class _Written(msgspec.Struct, forbid_unknown_fields=True):
    """A request as its file holds it."""

    kind: str
    time: float
    body: dict[str, Any]


def written_request(kind: str, body: Mapping[str, Any], now: float | None = None) -> tuple[str, bytes]:
    """A new request's id, and its bytes.

    Raises
    ------
    RequestError
        It is too long.
    """
    asked = time.time() if now is None else now
    written = msgspec.json.encode({"kind": kind, "time": asked, "body": dict(body)})
    if len(written) > MOST_BYTES:
        raise RequestError(f"the request has {len(written):,} bytes; at most {MOST_BYTES:,} can be asked")
    return f"{int(asked * 1e9):020d}-{secrets.token_hex(4)}", written


def read_request(number: str, content: bytes) -> OperatorRequest:
    """A request from its bytes.

    Raises
    ------
    RequestError
        They are none, or too many.
    """
    if len(content) > MOST_BYTES:
        raise RequestError(f"request {number} is longer than {MOST_BYTES:,} bytes")
    try:
        found = msgspec.json.decode(content, type=_Written)
    except msgspec.DecodeError as error:
        raise RequestError(
            f"request {number} is damaged: {error}; ask again with the command itself"
        ) from error
    return OperatorRequest(number, found.kind, found.time, found.body)


class RequestBox(Protocol):
    """Where requests wait, as the agent sees it. No method waits for anything but a disk."""

    @property
    def path(self) -> object:
        """For messages."""

    def waiting(self) -> list[str]:
        """Ids of the requests that are there, oldest first."""

    def read(self, number: str) -> OperatorRequest:
        """The request of this id; raises `RequestError` where it is none."""

    def answer(self, number: str, answer: Outcome) -> None:
        """Leave an answer for the command that waits."""

    def remove(self, number: str) -> None:
        """Take an answered request away for good."""

    def put_aside(self, number: str) -> None:
        """Take one away that cannot be read."""


class RequestFolder:
    """The folder through which requests and answers pass.

    Parameters
    ----------
    store : Path
        The store's folder; `requests` in it is made when a request is placed.

    Examples
    --------
    >>> import tempfile
    >>> folder = RequestFolder(Path(tempfile.mkdtemp()))
    >>> asked = folder.place("rebaseline", {"metric": "accuracy"}, now=1.7e9)
    >>> folder.waiting() == [asked], folder.read(asked).body
    (True, {'metric': 'accuracy'})
    >>> folder.answer(asked, Outcome(True, "Done."))
    >>> folder.remove(asked)
    >>> folder.collect(asked, timeout_seconds=1.0), folder.waiting()
    (Outcome(done=True, text='Done.'), [])
    """

    take_back = "remove that file"

    def __init__(self, store: Path) -> None:
        self.path = store / FOLDER

    def place(self, kind: str, body: Mapping[str, Any], now: float | None = None) -> str:
        """Write a request durably; return its id.

        Raises
        ------
        RequestError
            It is too long, or the folder cannot be written.
        """
        number, written = written_request(kind, body, now)
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            put(self._of(number, "json"), written)
        except OSError as error:
            raise RequestError(
                f"{self.path} cannot be written: {error.strerror}; run this as the agent's user"
            ) from error
        return number

    def waiting(self) -> list[str]:
        """Ids of the requests that are there, oldest first. What has no such name is put aside."""
        try:
            names = [entry.name for entry in os.scandir(self.path)]
        except FileNotFoundError:
            return []
        asked = [name.removesuffix(".json") for name in names if name.endswith(".json") and name[0] != "."]
        for name in asked:
            if not _ID.fullmatch(name):
                self.put_aside(name)
        return sorted(filter(_ID.fullmatch, asked))

    def shown(self, number: str) -> str:
        """Where a request waits, for people."""
        return f"requests/{number}.json"

    def read(self, number: str) -> OperatorRequest:
        """The request of this id.

        Raises
        ------
        RequestError
            The file is none: it cannot be read, is no JSON object of a request, or is too long.
        """
        try:
            # Neither a link to another file nor a pipe, which would hold the agent, is followed.
            file = os.open(self._of(number, "json"), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            with os.fdopen(file, "rb") as opened:
                if not stat.S_ISREG(os.fstat(file).st_mode):
                    raise RequestError(f"request {number} is not a plain file")
                content = opened.read(MOST_BYTES + 1)
        except OSError as error:
            raise RequestError(
                f"request {number} cannot be read: {error.strerror}; ask as the agent's user"
            ) from error
        return read_request(number, content)

    def answer(self, number: str, answer: Outcome) -> None:
        """Leave an answer for the command that waits, and drop answers that nobody came for."""
        put(self._of(number, "done"), msgspec.json.encode({"done": answer.done, "text": answer.text}))
        self._bound("*.done")

    def remove(self, number: str) -> None:
        """Take a request away for good."""
        with suppress(FileNotFoundError):
            self._of(number, "json").unlink()
        sync_folder(self.path)

    def put_aside(self, number: str) -> None:
        """Rename a request that is none to `….refused`, for whoever wants to look."""
        with suppress(FileNotFoundError):
            self._of(number, "json").replace(self._of(number, "refused"))
        self._bound("*.refused")

    def collect(self, number: str, timeout_seconds: float) -> Outcome | None:
        """Wait for an answer and take it away; None where none came in time."""
        deadline = time.monotonic() + timeout_seconds
        while True:
            with suppress(FileNotFoundError):
                path = self._of(number, "done")
                found = msgspec.json.decode(path.read_bytes(), type=Outcome)
                path.unlink()
                return found
            if time.monotonic() >= deadline:
                return None
            time.sleep(_LOOK_SECONDS)

    def _of(self, number: str, ending: str) -> Path:
        return self.path / f"{number}.{ending}"

    def _bound(self, pattern: str) -> None:
        for path in sorted(self.path.glob(pattern))[:-_KEPT]:
            path.unlink(missing_ok=True)


log = logging.getLogger("blindsight")

Handler: TypeAlias = "Callable[[Engine, OperatorRequest], str]"
"""Acts on a request, in the engine's thread between two chunks, and says in one sentence what it did.

What it changes of the engine is saved in one transaction with the fact that it did, so that it is done
once whatever is killed when. What it does elsewhere (a file, say) may be done twice, so it must bear that.
It raises `RequestError`, before it has changed anything, to refuse.
"""

_FOLDER_LOOK_SECONDS = 1.0
_MOST_AT_ONCE = 50


class RequestHandler:
    """Takes requests from a folder; used by the engine's thread alone.

    A request goes through four steps, in this order: acted on; saved with the next checkpoint, its id and
    its answer along; answered in a file; removed. A process killed after any of them goes on with the next
    when it is started again.

    Parameters
    ----------
    folder : RequestBox
    handlers : mapping of str to Handler
        By kind.
    clock : callable
        Monotonic seconds.
    """

    def __init__(
        self,
        folder: RequestBox,
        handlers: Mapping[str, Handler],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._folder = folder
        self._handlers = handlers
        self._clock = clock
        self._next_look = -float("inf")
        self._unsaved: set[str] = set()
        self._trouble = ""

    def step(self, engine: Engine, delivery: OutputPolicy) -> None:
        """Look for requests where a second has passed, and take those that are there."""
        if self._unsaved or self._clock() < self._next_look:
            return
        self._next_look = self._clock() + _FOLDER_LOOK_SECONDS
        try:
            waiting = self._folder.waiting()[:_MOST_AT_ONCE]
            self._take(waiting, engine, delivery)
        except OSError as error:
            self._complain(f"{self._folder.path} cannot be used: {error.strerror or error}")
        else:
            self._trouble = ""

    def _take(self, waiting: list[str], engine: Engine, delivery: OutputPolicy) -> None:
        for number in engine.answered.keys() - set(waiting):
            del engine.answered[number]  # its file is gone: it cannot come again
        for number in waiting:
            if number in engine.answered:  # saved, but the agent was killed before it could answer
                self._close(number, engine.answered[number])
                continue
            try:
                request = self._folder.read(number)
            except RequestError as error:
                log.warning("A request was refused: %s", _sentence(error))
                self._folder.answer(number, Outcome(False, _sentence(error)))
                self._folder.put_aside(number)
                continue
            engine.answered[number] = self._act(engine, request)
            self._unsaved.add(number)
            delivery.after_save(partial(self._saved, number, engine.answered[number]))

    def _act(self, engine: Engine, request: OperatorRequest) -> Outcome:
        try:
            handler = self._handlers.get(request.kind)
            if handler is None:
                raise RequestError(_unknown(request.kind, list(self._handlers)))
            answer = Outcome(True, handler(engine, request))
        except RequestError as error:
            answer = Outcome(False, _sentence(error))
        except Exception as error:  # a request must not end the agent
            log.exception("Request %s (%s) has failed.", request.id, request.kind)
            answer = Outcome(False, f"It failed with {error!r}; the agent's log has the details.")
        if answer.done:
            log.info("Asked for %s: %s", request.kind, answer.text)
        else:
            log.warning("Asked for %s, refused: %s", request.kind, answer.text)
        return answer

    def _saved(self, number: str, answer: Outcome) -> None:
        self._unsaved.discard(number)
        try:
            self._close(number, answer)
        except OSError as error:  # the next look tries again
            self._complain(f"{self._folder.path} cannot be used: {error.strerror or error}")

    def _close(self, number: str, answer: Outcome) -> None:
        self._folder.answer(number, answer)
        self._folder.remove(number)

    def _complain(self, trouble: str) -> None:
        if trouble != self._trouble:  # once, not every second for as long as it lasts
            log.error("%s; requests are not taken.", trouble)
        self._trouble = trouble


def _sentence(error: RequestError) -> str:
    text = str(error)
    return text if text.endswith("?") else f"{text}."


def _unknown(kind: str, kinds: list[str]) -> str:
    meant = nearest(kind, kinds)
    hint = f"did you mean {meant}?" if meant else f"known are {', '.join(sorted(kinds)) or 'none'}."
    return f"kind: {kind!r} is not known to this agent; {hint} Use the command of the agent's own version"
