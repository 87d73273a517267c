"""How a command reaches the running agent: one small file a request, in the folder of its store.

The command writes `<id>.json` (`RequestFolder.place`); the agent looks each second, acts between two
chunks, and once that is saved answers with `<id>.done` and removes the request
(`monitor.agent.request_handler`). Files are written whole: under another name first, synced, then renamed.
Whoever may write in the store's folder may ask; nobody else can, and nothing listens on a port.
"""

from __future__ import annotations

import os
import re
import secrets
import stat
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from monitor.base.errors import RequestError
from monitor.base.files import put, sync_folder
from monitor.base.results import Outcome

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

    def __init__(self, store: Path) -> None:
        self.path = store / FOLDER

    def place(self, kind: str, body: Mapping[str, Any], now: float | None = None) -> str:
        """Write a request durably; return its id.

        Raises
        ------
        RequestError
            It is too long, or the folder cannot be written.
        """
        asked = time.time() if now is None else now
        written = msgspec.json.encode({"kind": kind, "time": asked, "body": dict(body)})
        if len(written) > MOST_BYTES:
            raise RequestError(f"the request has {len(written):,} bytes; at most {MOST_BYTES:,} can be asked")
        number = f"{int(asked * 1e9):020d}-{secrets.token_hex(4)}"
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
        if len(content) > MOST_BYTES:
            raise RequestError(f"request {number} is longer than {MOST_BYTES:,} bytes")
        try:
            found = msgspec.json.decode(content, type=_Written)
        except msgspec.DecodeError as error:
            raise RequestError(
                f"request {number} is damaged: {error}; ask again with the command itself"
            ) from error
        return OperatorRequest(number, found.kind, found.time, found.body)

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
