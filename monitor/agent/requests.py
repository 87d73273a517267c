"""Requests of commands (such as `blindsight rebaseline`) to a running agent: files in its store's folder.

The command writes the request to a file `<id>.json` (`RequestFolder.place`). The agent reads the folder once
a second (`RequestHandler`). It handles a request between two chunks, saves the effect, writes the answer to a
file `<id>.done`, and deletes the request. Files are written atomically. No port is needed. Only users who may
write to the store's folder can send requests.
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

if TYPE_CHECKING:  # a command does not need the engine
    from monitor.agent.checkpoints import OutputPolicy
    from monitor.engine.engine import Engine

FOLDER = "requests"
MOST_BYTES = 1 << 20
"""The largest size of a request; a larger one is refused."""

_ID = re.compile(r"\d{20}-[0-9a-f]{8}")
_KEPT = 100  # the number of uncollected answers to keep, and of refused files; the newest ones
_LOOK_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class OperatorRequest:
    """A request of an operator's command to the agent.

    Parameters
    ----------
    id : str
        The id. Ids increase with time, and requests are handled in the order of their ids.
    kind : str
        The name of the agent's handler, such as ``rebaseline``.
    time : float
        The time of the request, in seconds since the epoch.
    body : mapping of str to value
        The arguments for the handler.
    """

    id: str
    kind: str
    time: float
    body: Mapping[str, Any] = field(default_factory=dict)


class _Written(msgspec.Struct, forbid_unknown_fields=True):
    """The content of a request's file, as JSON."""

    kind: str
    time: float
    body: dict[str, Any]


def written_request(kind: str, body: Mapping[str, Any], now: float | None = None) -> tuple[str, bytes]:
    """Encode a new request, and return its id and its bytes.

    Parameters
    ----------
    kind : str
        The name of the agent's handler, such as ``rebaseline``.
    body : object
        The arguments for the handler.
    now : float, optional
        Seconds since the epoch; by default the present time.

    Raises
    ------
    RequestError
        The request is too long.
    """
    seconds = time.time() if now is None else now
    written = msgspec.json.encode({"kind": kind, "time": seconds, "body": dict(body)})
    if len(written) > MOST_BYTES:
        raise RequestError(f"the request has {len(written):,} bytes; at most {MOST_BYTES:,} can be asked")
    return f"{int(seconds * 1e9):020d}-{secrets.token_hex(4)}", written


def read_request(number: str, content: bytes) -> OperatorRequest:
    """Decode a request.

    Raises
    ------
    RequestError
        The content is damaged or too long.
    """
    if len(content) > MOST_BYTES:
        raise RequestError(f"request {number} is longer than {MOST_BYTES:,} bytes")
    try:
        request = msgspec.json.decode(content, type=_Written)
    except msgspec.DecodeError as error:
        raise RequestError(
            f"request {number} is damaged: {error}; ask again with the command itself"
        ) from error
    return OperatorRequest(number, request.kind, request.time, request.body)


class RequestBox(Protocol):
    """The interface by which the agent reads and answers requests. Its methods do not wait for a network."""

    @property
    def path(self) -> object:
        """The location of the requests, for messages."""

    def waiting(self) -> list[str]:
        """Return the ids of the waiting requests, oldest first."""

    def read(self, number: str) -> OperatorRequest:
        """Return the request with this id.

        Raises
        ------
        RequestError
            The request is damaged.
        """

    def answer(self, number: str, answer: Outcome) -> None:
        """Write the answer to a request. The waiting command reads it."""

    def remove(self, number: str) -> None:
        """Delete an answered request."""

    def put_aside(self, number: str) -> None:
        """Stop returning a damaged request from `waiting`. Keep its content if possible."""


class RequestFolder:
    """The folder in a store through which commands send requests, and the agent answers.

    Parameters
    ----------
    store : Path
        The store's folder. The first request creates the folder `requests` in it.

    Examples
    --------
    >>> import tempfile
    >>> folder = RequestFolder(Path(tempfile.mkdtemp()))
    >>> number = folder.place("rebaseline", {"metric": "accuracy"}, now=1.7e9)
    >>> folder.waiting() == [number], folder.read(number).body
    (True, {'metric': 'accuracy'})
    >>> folder.answer(number, Outcome(True, "Done."))
    >>> folder.remove(number)
    >>> folder.collect(number, timeout_seconds=1.0), folder.waiting()
    (Outcome(done=True, text='Done.'), [])
    """

    take_back = "remove that file"

    def __init__(self, store: Path) -> None:
        self.path = store / FOLDER

    def place(self, kind: str, body: Mapping[str, Any], now: float | None = None) -> str:
        """Write a request durably and return its id.

        Raises
        ------
        RequestError
            The request is too long, or the folder cannot be written.
        """
        number, written = written_request(kind, body, now)
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            put(self._path_of(number, "json"), written)
        except OSError as error:
            raise RequestError(
                f"{self.path} cannot be written: {error.strerror}; run this as the agent's user"
            ) from error
        return number

    def waiting(self) -> list[str]:
        """Return the ids of the waiting requests, oldest first. Rename files whose names are not ids."""
        try:
            names = [entry.name for entry in os.scandir(self.path)]
        except FileNotFoundError:
            return []
        stems = [name.removesuffix(".json") for name in names if name.endswith(".json") and name[0] != "."]
        for name in stems:
            if not _ID.fullmatch(name):
                self.put_aside(name)
        return sorted(filter(_ID.fullmatch, stems))

    def shown(self, number: str) -> str:
        """Return the location of a request, in the form that messages to the operator use."""
        return f"requests/{number}.json"

    def read(self, number: str) -> OperatorRequest:
        """Return the request with this id.

        Raises
        ------
        RequestError
            The file cannot be read, is not a plain file, is too long, or is not the JSON of a request.
        """
        try:
            # A symbolic link is not followed, and opening a pipe does not block.
            file = os.open(self._path_of(number, "json"), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
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
        """Write the answer to a request, and delete old answers that no command has collected."""
        put(self._path_of(number, "done"), msgspec.json.encode({"done": answer.done, "text": answer.text}))
        self._bound("*.done")

    def remove(self, number: str) -> None:
        """Delete a request, and wait until the deletion is on the disk."""
        with suppress(FileNotFoundError):
            self._path_of(number, "json").unlink()
        sync_folder(self.path)

    def put_aside(self, number: str) -> None:
        """Rename a damaged request to `<id>.refused`, so that a person can look at it."""
        with suppress(FileNotFoundError):
            self._path_of(number, "json").replace(self._path_of(number, "refused"))
        self._bound("*.refused")

    def collect(self, number: str, timeout_seconds: float) -> Outcome | None:
        """Wait for the answer to a request, delete the answer's file, and return the answer.

        The result is None if there is no answer within the time limit.
        """
        deadline = time.monotonic() + timeout_seconds
        while True:
            with suppress(FileNotFoundError):
                path = self._path_of(number, "done")
                answer = msgspec.json.decode(path.read_bytes(), type=Outcome)
                path.unlink()
                return answer
            if time.monotonic() >= deadline:
                return None
            time.sleep(_LOOK_SECONDS)

    def _path_of(self, number: str, ending: str) -> Path:
        return self.path / f"{number}.{ending}"

    def _bound(self, pattern: str) -> None:
        """Delete the files that match a pattern, except the `_KEPT` newest."""
        for path in sorted(self.path.glob(pattern))[:-_KEPT]:
            path.unlink(missing_ok=True)


log = logging.getLogger("blindsight")

Handler: TypeAlias = "Callable[[Engine, OperatorRequest], str]"
"""The type of a function that handles a request and returns a sentence about the effect.

The engine's thread calls the function between two chunks. Its changes of the engine are saved in one
transaction with the answer. So they happen exactly once, even if the process is killed. Other effects, such
as changes of files, may happen twice, so repeating them must do no harm. To refuse a request, a handler
raises `RequestError` before it changes anything.
"""

_FOLDER_LOOK_SECONDS = 1.0
_MOST_AT_ONCE = 50


class RequestHandler:
    """The part of the agent that handles requests. Only the engine's thread may use it.

    A request has four steps. First, its handler is called. Second, the next checkpoint saves the effect, the
    request's id and the answer. Third, the answer is written. Fourth, the request is deleted. If the process
    is killed after the second step, it continues with the third step after a restart.

    Parameters
    ----------
    folder : RequestBox
        Reads and answers requests.
    handlers : mapping of str to Handler
        The handler of each kind of request.
    clock : callable
        Returns monotonic seconds.
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
        """Handle the waiting requests, at most once a second."""
        if self._unsaved or self._clock() < self._next_look:
            return
        self._next_look = self._clock() + _FOLDER_LOOK_SECONDS
        try:
            waiting = self._folder.waiting()[:_MOST_AT_ONCE]
            self._handle(waiting, engine, delivery)
        except OSError as error:
            self._complain(f"{self._folder.path} cannot be used: {error.strerror or error}")
        else:
            self._trouble = ""

    def _handle(self, waiting: list[str], engine: Engine, delivery: OutputPolicy) -> None:
        for number in engine.answered.keys() - set(waiting):
            del engine.answered[number]  # its file is deleted, so the request cannot return
        for number in waiting:
            if number in engine.answered:  # the agent was killed after it saved the effect of the request
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
        """Call the handler of a request, log its outcome, and return the outcome."""
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
        """Answer a request, after the checkpoint with its effect is saved."""
        self._unsaved.discard(number)
        try:
            self._close(number, answer)
        except OSError as error:  # the next call of `step` tries again
            self._complain(f"{self._folder.path} cannot be used: {error.strerror or error}")

    def _close(self, number: str, answer: Outcome) -> None:
        """Write the answer of a request, and delete the request."""
        self._folder.answer(number, answer)
        self._folder.remove(number)

    def _complain(self, trouble: str) -> None:
        """Log that the folder of requests cannot be used, unless this message was logged last."""
        if trouble != self._trouble:
            log.error("%s; requests are not taken.", trouble)
        self._trouble = trouble


def _sentence(error: RequestError) -> str:
    text = str(error)
    return text if text.endswith("?") else f"{text}."


def _unknown(kind: str, kinds: list[str]) -> str:
    """Return the message for a request of a kind without a handler."""
    meant = nearest(kind, kinds)
    hint = f"did you mean {meant}?" if meant else f"known are {', '.join(sorted(kinds)) or 'none'}."
    return f"kind: {kind!r} is not known to this agent; {hint} Use the command of the agent's own version"
