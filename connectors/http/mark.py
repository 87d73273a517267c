"""Remembers in a small file how far a spool is used, for a start without a position."""

from __future__ import annotations

import logging
import os
import time
from pathlib import Path

log = logging.getLogger("blindsight")

_EVERY_SECONDS = 1.0


class SpoolPosition:
    """A position in a file. It is not synced: an older one only has more read again."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._written_at = 0.0

    def read(self) -> int:
        """The position, 0 where none is written."""
        try:
            return int(self._path.read_text())
        except (FileNotFoundError, ValueError):
            return 0

    def write(self, position: int, at_once: bool = False) -> None:
        """Note a position, at most once a second unless `at_once`. A disk that does not take it is logged."""
        now = time.monotonic()
        if not at_once and now - self._written_at < _EVERY_SECONDS:
            return
        self._written_at = now
        draft = self._path.with_suffix(".new")
        try:
            draft.write_text(f"{position}\n")
            os.replace(draft, self._path)
        except OSError as error:
            log.warning("%s cannot be written: %s.", self._path, error.strerror or error)
