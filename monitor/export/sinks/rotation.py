"""A file that is full takes another name, so that what is written stays in bounded space."""

from __future__ import annotations

import os
from pathlib import Path


def rotate(path: str, keep: int) -> None:
    """Give a file the name `<path>.1`, its predecessors the next number each; the oldest past `keep` goes.

    Each step is a renaming. A process killed between two leaves a number free; the next rotation fills it
    before it takes a file away.

    Parameters
    ----------
    path : str
        Of the file that is full.
    keep : int
        Predecessors that stay, at least 1.

    Raises
    ------
    OSError
        A file cannot be renamed; those before it have been.

    Examples
    --------
    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> for text in ("a", "b", "c", "d"):
    ...     _ = (folder / "w").write_text(text)
    ...     rotate(str(folder / "w"), keep=2)
    >>> sorted((file.name, file.read_text()) for file in folder.iterdir())
    [('w.1', 'd'), ('w.2', 'c')]
    """
    names = [path, *(f"{path}.{number}" for number in range(1, keep + 1))]
    free = next((at for at, name in enumerate(names) if not os.path.lexists(name)), keep)
    for at in range(free, 0, -1):
        os.replace(names[at - 1], names[at])


def files_of(path: str, keep: int) -> list[Path]:
    """The file, which may be a device, and those of its predecessors that there are, the newest first.

    Examples
    --------
    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> for name in ("w", "w.2", "w.3"):
    ...     _ = (folder / name).write_text("")
    >>> [file.name for file in files_of(str(folder / "w"), keep=2)]
    ['w', 'w.2']
    """
    older = (Path(f"{path}.{number}") for number in range(1, keep + 1))
    return [Path(path), *(file for file in older if file.is_file())]
