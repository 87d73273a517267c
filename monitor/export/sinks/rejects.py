"""Records that could not be used, written beside the reason, so that their sender can be told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from monitor.base.records import Reject
from monitor.export.sinks.line_file import LineFile
from monitor.export.sinks.queued import QueuedSink
from monitor.reports.window_report import rfc3339

_encode = msgspec.json.Encoder().encode

Rejected = tuple[Reject, str]
"""A record that could not be used, and the name of its source."""

QUEUED_REJECTS = 5_000
"""Rejected records that may wait for a sink, at most 2 kB each."""


class RejectWriter(QueuedSink[Rejected]):
    """Appends rejected records to a file, one JSON object a line, in bounded space.

    A line holds `reason`, `message`, `source`, `partition`, `position` and `raw`, what the decoder kept
    of the record; bytes in it that are no UTF-8 are written as ``\\xff``. A flood of rejects costs the
    caller no more than a place in the queue: lines are made in the writer's thread, and what does not fit
    is dropped and counted in `lost`. The counts in the metrics stay whole.

    Parameters
    ----------
    path : str
    max_bytes : int
        Past this the file is renamed to `<path>.1` and begun anew: the two together bound the space.
    capacity : int
        Records that may wait, at most 2 kB each; a further one is dropped and counted.
    clock : callable, optional
        Seconds since the epoch: each line begins with the `time` at which it was written. Without one,
        as in a replay, lines have none, and `RejectsRetention` does not know their age.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> from monitor.base.records import RejectReason
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "rejects.ndjson")
    ...     writer = RejectWriter(str(path), max_bytes=1_000_000)
    ...     writer.start()
    ...     taken = writer.write((Reject(RejectReason.ENCODING, "no UTF-8", b"\\xff", "t-3", 7), "kafka"))
    ...     drained = writer.close(timeout=5)
    ...     print(path.read_text(), end="")
    {"reason":"encoding","message":"no UTF-8","source":"kafka","partition":"t-3","position":7,"raw":"\\\\xff"}
    """

    def __init__(
        self,
        path: str,
        max_bytes: int,
        capacity: int = QUEUED_REJECTS,
        clock: Callable[[], float] | None = None,
    ) -> None:
        # Not for everyone's eyes: rejected records may hold what their sender would not publish.
        file = LineFile[Rejected](
            path,
            name="rejects_file",
            setting="rejects.path",
            encode=reject_line if clock is None else lambda item: reject_line(item, clock()),
            max_bytes=max_bytes,
            mode=0o640,
        )
        super().__init__(file, capacity)


def reject_line(item: Rejected, written_time: float | None = None) -> bytes:
    """The line of a rejected record, ending in a newline: see `RejectWriter`."""
    reject, source = item
    line: dict[str, Any] = {} if written_time is None else {"time": rfc3339(written_time)}
    line |= {
        "reason": reject.reason.value,
        "message": _utf8(reject.message),
        "source": _utf8(source),
        "partition": _utf8(reject.partition),
        "position": reject.position,
        "raw": reject.raw.decode("utf-8", errors="backslashreplace"),
    }
    return _encode(line) + b"\n"


def _utf8(text: str) -> str:
    """File names may hold bytes that are no UTF-8, which Python keeps as lone surrogates."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()
