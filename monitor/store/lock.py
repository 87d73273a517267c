"""The file lock of a store's folder. It ensures that only one agent uses the store.

The operating system releases the lock when the process dies.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from monitor.base.errors import InUseError


class FolderLock:
    """An exclusive lock on a folder. It is held until `release` is called or the process ends.

    Raises
    ------
    InUseError
        Another process holds the lock. The message contains the id of this process.
    """

    def __init__(self, folder: Path) -> None:
        path = folder / "lock"
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.read(self._file, 20).decode(errors="replace").strip() or "unknown"
            os.close(self._file)
            raise InUseError(
                f"store.path: {folder} is in use by another agent (process {holder}); stop it, or give "
                "this agent another path"
            ) from error
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, f"{os.getpid()}\n".encode(), 0)

    @staticmethod
    def is_held(folder: Path) -> bool:
        """Return whether a process holds the lock on a folder."""
        try:
            file = os.open(folder / "lock", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return True
        finally:
            os.close(file)
        return False

    def release(self) -> None:
        """Release the lock."""
        os.close(self._file)
