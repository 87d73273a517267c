"""Reads dumps of Kafka topics, printed by `kafka-console-consumer.sh` with partitions and offsets."""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterator
from io import BufferedReader
from pathlib import Path

from monitor.base.errors import SourceError
from monitor.base.source import RawMessages

_READ_BYTES = 1 << 20
_HEAD = re.compile(
    rb"(?:(?:CreateTime|LogAppendTime):-?\d+\t|NoTimestampType\t)?(?:Partition:(\d+)\t)?Offset:(\d+)\t"
)


def is_console_dump(path: Path) -> bool:
    """Return whether the beginning of a file looks like a dump; False if the file cannot be read."""
    try:
        with _open(path) as file:
            return _HEAD.match(file.readline(_READ_BYTES)) is not None
    except OSError:
        return False


def read_console_dump(path: Path, name: str) -> Iterator[list[RawMessages]]:
    """Yield the messages of a dump, about 1 MiB at a time.

    This command makes a dump. It may also have `print.timestamp=true`, but must not print keys or headers::

        kafka-console-consumer.sh --bootstrap-server HOST:9092 --topic predictions --from-beginning \\
            --timeout-ms 10000 --property print.partition=true --property print.offset=true > dump.txt

    A message may have several lines: a line without a beginning such as ``Partition:3<tab>Offset:17<tab>``
    continues the message before it.

    Parameters
    ----------
    path : Path
        A text file, or a gzip file if its name ends in ``.gz``.
    name : str
        The topic; or, for a dump without partitions, the partition in the form ``topic-3``.

    Yields
    ------
    list of RawMessages
        The messages of each partition, in the order of the first message of the partitions.

    Raises
    ------
    SourceError
        The file cannot be read, or is no dump.
    """
    by_partition: dict[str, tuple[list[bytes], list[int]]] = {}
    last: list[bytes] | None = None
    size = 0
    try:
        with _open(path) as file:
            for line in file:
                head = _HEAD.match(line)
                if head is None and last is None:
                    raise SourceError(
                        f"{path} is not a dump of a topic: its first line does not begin with Partition:…, "
                        "Offset:…; make it with print.partition=true and print.offset=true"
                    )
                if head is None:
                    assert last is not None
                    last[-1] += line
                    continue
                if size > _READ_BYTES:
                    yield _messages(by_partition)
                    by_partition, size = {}, 0
                partition = name if head[1] is None else f"{name}-{int(head[1])}"
                last, offsets = by_partition.setdefault(partition, ([], []))
                last.append(line[head.end() :])
                offsets.append(int(head[2]))
                size += len(line)
    except OSError as error:
        raise SourceError(f"{path} cannot be read: {error.strerror or error}") from error
    if by_partition:
        yield _messages(by_partition)


def _messages(by_partition: dict[str, tuple[list[bytes], list[int]]]) -> list[RawMessages]:
    return [
        RawMessages([value.removesuffix(b"\n") for value in values], partition, offsets)
        for partition, (values, offsets) in by_partition.items()
    ]


def _open(path: Path) -> BufferedReader | gzip.GzipFile:
    return gzip.GzipFile(path, "rb") if path.suffix == ".gz" else path.open("rb")
