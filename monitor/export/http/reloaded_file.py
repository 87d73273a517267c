"""Values read from files, such as certificates and tokens, and read again when the files change."""

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
"""The longest time until a change of a file takes effect."""


class ReloadedFile(Generic[T]):
    """A value made from files, which are read again when they change.

    If changed files cannot be used, the old value stays valid, and one line is logged.

    Parameters
    ----------
    paths : sequence of str
    load : callable
        A function that reads the files and returns the value. It raises `BlindsightError` if the files cannot
        be used.
    clock : callable
        A monotonic clock in seconds.

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
        """Return the value. The files were checked for changes at most a second ago."""
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
            # The state stays the old one, because perhaps only one file of a pair has been replaced yet.
            if str(error) != self._complaint:
                log.warning("%s. The old one stays in use.", str(error).rstrip("."))
            self._complaint = str(error)
            return
        self._state, self._complaint = state, ""
        log.info("Read again: %s.", ", ".join(self._paths))

    def _look(self) -> tuple[object, ...]:
        states: list[object] = []
        for path in self._paths:
            try:
                status = os.stat(path)
            except OSError:
                states.append(None)
            else:
                states.append((status.st_mtime_ns, status.st_size, status.st_ino))
        return tuple(states)
