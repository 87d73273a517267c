"""Explains why Kafka messages that are not text cannot be read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from connectors.formats.wires.tensors import read_body
from monitor.base.source import Raw, RawMessages

_REGISTRY_BYTES = 5  # a zero byte and four bytes of a schema id

_SENTENCES = {
    "response": "are inference responses as protobuf, or with binary tensors: mapping: {format: kserve} "
    "reads them",
    "registry": "begin with a schema registry's header, so they are Avro, or protobuf of a schema of its "
    "own: neither is read; have them written as JSON",
    "gzip": "are packed by gzip, by their producer and not by Kafka: they are not read so; have the producer "
    "set compression_type instead",
    "bytes": "are bytes of a kind that is not known, encrypted perhaps: JSON is read; have them written so",
}


def odd_payloads(raws: Sequence[Raw]) -> Iterable[str]:
    """Return an explanation of each kind of message that is not text, the most frequent kind first.

    Examples
    --------
    >>> avro = RawMessages([bytes([0, 0, 0, 0, 7, 200]), b"{}"], "p-0", [0, 1])
    >>> [sentence[:54] for sentence in odd_payloads([avro])]
    ["1 messages begin with a schema registry's header, so t"]
    """
    values = [value for raw in raws if isinstance(raw, RawMessages) for value in raw.values if value]
    often = Counter(kind for value in values if (kind := _kind(value)))
    return [f"{times} messages {_SENTENCES[kind]}" for kind, times in often.most_common()]


def _kind(value: bytes) -> str:
    """Return the key in `_SENTENCES` of a message, or "" for text."""
    if value.startswith(b"\x1f\x8b"):
        return "gzip"
    try:
        if "".join(value.decode().split()).isprintable():
            return ""
    except UnicodeDecodeError:
        pass
    try:
        read_body(value)
    except (ValueError, RecursionError):
        return "registry" if value[0] == 0 and len(value) > _REGISTRY_BYTES else "bytes"
    return "response"
