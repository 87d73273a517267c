"""What is read from files, and read again when they change: certificates, tokens."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from monitor.base.errors import BlindsightError

log = logging.getLogger("blindsight")

T = TypeVar("T")

LOOK_SECONDS = 1.0
"""How long a change may go unseen."""


class ReloadedFile(Generic[T]):
    """A value made from files. Where they can no longer be used the old one holds, and the log says so once.

    Parameters
    ----------
    paths : sequence of str
    load : callable
        Reads them; raises `BlindsightError` where they cannot be used.
    clock : callable
        Seconds that never go back.

    Raises
    ------
    BlindsightError
        The files cannot be used now.
    """

    def __init__(
        self, paths: Sequence[str], load: Callable[[], T], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._paths, self._load, self._clock = tuple(paths), load, clock
        self._looked_at = clock()
        self._state = self._look()
        self._complaint = ""
        self._value = load()

    def current(self) -> T:
        """The value as of the files of at most a second ago."""
        now = self._clock()
        if now - self._looked_at >= LOOK_SECONDS:
            self._looked_at = now
            if (state := self._look()) != self._state:
                self._reload(state)
        return self._value

    def _reload(self, state: tuple[object, ...]) -> None:
        try:
            self._value = self._load()
        except BlindsightError as error:
            # The state stays the old one: half of a pair of files may have been put there so far.
            if str(error) != self._complaint:
                log.warning("%s. The old one stays in use.", str(error).rstrip("."))
            self._complaint = str(error)
            return
        self._state, self._complaint = state, ""
        log.info("Read again: %s.", ", ".join(self._paths))

    def _look(self) -> tuple[object, ...]:
        found: list[object] = []
        for path in self._paths:
            try:
                seen = os.stat(path)
            except OSError:
                found.append(None)
            else:
                found.append((seen.st_mtime_ns, seen.st_size, seen.st_ino))
        return tuple(found)
