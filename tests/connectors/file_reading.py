"""Helpers of the file source's tests: a source that is open, and all that it gives."""

from __future__ import annotations

import contextlib
import gzip

import zstandard

from connectors.files import FileSource
from monitor.base.records import TaskLayout
from monitor.base.source import EndOfSource, Raw, RawBlock, RawPosition

LAYOUT = TaskLayout("toxicity", ("ok", "toxic"))


def line(number: int) -> bytes:
    return b'{"id": "r%05d", "model": "erm", "scores": [0.25, 0.75]}\n' % number


def lines(first: int, last: int) -> bytes:
    return b"".join(map(line, range(first, last)))


@contextlib.contextmanager
def opened(path, positions=None, **settings):
    source = FileSource(path, **settings)
    source.open(positions or {})
    try:
        yield source
    finally:
        source.close()


def read_all(source: FileSource) -> list[Raw]:
    raws: list[Raw] = []
    with contextlib.suppress(EndOfSource):
        drain(source, raws)
    return raws


def drain(source: FileSource, raws: list[Raw]) -> None:
    """Read until an error comes."""
    while True:
        raws += source.read(0.0)


def text(raws: list[Raw]) -> bytes:
    """Return the lines of blocks; positions alone hold none."""
    assert all(isinstance(raw, RawBlock | RawPosition) for raw in raws), raws
    return b"".join(raw.data for raw in raws if isinstance(raw, RawBlock))


def compressed(kind: str, data: bytes) -> bytes:
    if kind == ".gz":
        return gzip.compress(data)
    return zstandard.ZstdCompressor().compress(data) if kind == ".zst" else data
