"""The command line that the tables share: one count to lower, and a file kept of the run in full."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path


def print_and_keep(
    doc: str | None, kept: Path, option: str, default: int, table: Callable[[int], str]
) -> None:
    """Measure, print, and keep the table where the count is the default.

    Parameters
    ----------
    doc : str or None
        The module's docstring; its first line is the command's description.
    kept : Path
        The file to keep it in. A run with another count prints only.
    option : str
        Name of the count on the command line, without dashes: trials, lives, ….
    default : int
        The count of a run in full.
    table : callable
        From the count to the text.
    """
    parser = argparse.ArgumentParser(description=doc.splitlines()[0] if doc else None)
    parser.add_argument(f"--{option}", type=int, default=default, help=f"{default:,} if absent")
    count = getattr(parser.parse_args(), option)
    text = table(count)
    print(text, end="")
    if count == default:
        kept.write_text(text, encoding="utf-8")
