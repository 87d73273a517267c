"""The raw input of `blindsight verify`: the files, matched to the partitions that the reports name."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path

from connectors.files import FileSource, why_not_a_file
from connectors.formats.decode.decoder import Decoder
from connectors.formats.wires.console_dump import is_console_dump, read_console_dump
from connectors.formats.wires.wire import PLAIN, Wire
from monitor.base.errors import ConfigError
from monitor.base.records import Chunk, TaskLayout
from monitor.base.source import EndOfSource, Raw, RawMessages

_SHOWN = 5
_READ_SECONDS = 0.2  # the longest wait for a pipe; a file is always ready
_PACKED = (".gz", ".zst")


class Reader:
    """A file that is read once from its start.

    Parameters
    ----------
    raws : iterator of list of Raw
    decoder : Decoder
    name : str
        Name of the partition, or of a topic with several partitions.
    whole : bool
        True if the file is one partition from position 0 on; False for a dump, which may begin at any
        position.
    """

    def __init__(self, raws: Iterator[Sequence[Raw]], decoder: Decoder, name: str, whole: bool) -> None:
        self._raws = raws
        self._decoder = decoder
        self.name = name
        self._whole = whole
        self.begins: dict[str, int] = {name: 0} if whole else {}
        self.reached: dict[str, int] = {}
        self.ended = False

    def may_hold(self, partition: str) -> bool:
        """Return whether the file may hold records of a partition."""
        if partition == self.name:
            return True
        return not self._whole and re.fullmatch(rf"{re.escape(self.name)}-\d+", partition) is not None

    def read(self) -> Chunk | None:
        """Return the next chunk, or None at the end."""
        raws = next(self._raws, None)
        if raws is None:
            self.ended = True
            return None
        for raw in raws:
            if isinstance(raw, RawMessages):
                self.begins.setdefault(raw.partition, raw.offsets[0])
        chunk = self._decoder.decode(raws)
        self.reached.update({raw.partition: raw.after for raw in raws})
        return chunk


class Inputs:
    """The input files of a `Verifier`, which yields records of a partition from whichever files hold them.

    Parameters
    ----------
    readers : sequence of Reader
        A reader for each file.
    """

    def __init__(self, readers: Sequence[Reader]) -> None:
        self._readers = readers

    def until(self, partition: str, position: int) -> Iterator[Chunk]:
        """Read files until a partition has been read up to and including a position, and yield the chunks.

        Chunks that were yielded before are not yielded again, and a chunk may hold other partitions too. If
        there are several dumps of a topic, dumps that are known to contain the partition are read first.
        """
        while not self._passed(partition, position):
            waiting = [r for r in self._readers if not r.ended and r.may_hold(partition)]
            if not waiting:
                return
            reader = min(waiting, key=lambda r: (partition not in r.reached, len(r.reached)))
            chunk = reader.read()
            if chunk is not None:
                yield chunk

    def missing(self, partition: str, first: int, last: int) -> str:
        """Return the reason why the files lack positions of a partition; ``""`` if they lack none."""
        begins = [r.begins[partition] for r in self._readers if partition in r.begins]
        if not begins:
            return f"{partition}: no file given"
        if first < min(begins):
            return f"{partition}: before the first record of its file, position {min(begins)}"
        return "" if self._passed(partition, last) else f"{partition}: after the end of its file"

    def _passed(self, partition: str, position: int) -> bool:
        return any(r.reached.get(partition, -1) > position for r in self._readers)


def open_inputs(
    files: Sequence[Path],
    named: Sequence[str],
    partitions: Collection[str],
    layouts: Sequence[TaskLayout],
    wire_of: Callable[[str], Wire] = lambda _: PLAIN,
) -> Inputs:
    """Open the files, and match them to the partitions that reports name.

    Parameters
    ----------
    files : sequence of Path
        Input files under their original path or name, with or without ``.gz`` or ``.zst``.
    named : sequence of str
        Texts ``NAME=FILE``: a partition and its file, or a topic and a dump of the topic.
    partitions : collection of str
        The partitions in the reports.
    layouts : sequence of TaskLayout

    Raises
    ------
    ConfigError
        A file cannot be read, or cannot be matched to one partition.
    """
    pairs = [(_partition_of(path, partitions), path) for path in files]
    for each in named:
        name, equals, file = each.partition("=")
        if not equals or not name or not file:
            raise ConfigError(f"--partition: expected NAME=FILE, got {each!r}")
        pairs.append((_known(name, partitions), Path(file)))
    readers = []
    for name, path in pairs:
        problem = why_not_a_file(path)
        if problem is not None:
            raise ConfigError(problem)
        wire = wire_of(name)
        decoder = Decoder(layouts, name, wire=wire)
        dump = is_console_dump(path)
        raws = read_console_dump(path, name) if dump else read_file(path, name, wire.columns)
        readers.append(Reader(raws, decoder, name, whole=not dump))
    return Inputs(readers)


def read_file(path: Path, partition: str, mapped: Collection[str]) -> Iterator[Sequence[Raw]]:
    """Yield the contents of a file from its start to its end. See `FileSource` for `mapped`."""
    source = FileSource(path, mapped=mapped)
    source.partition = partition
    source.open({})
    try:
        while True:
            yield source.read(_READ_SECONDS)
    except EndOfSource:
        return
    finally:
        source.close()


def _partition_of(path: Path, partitions: Collection[str]) -> str:
    for name in (str(path), str(path.absolute()), str(path.resolve())):
        if name in partitions:
            return name
    names = {path.name, path.stem} if path.suffix in _PACKED else {path.name}
    alike = sorted(each for each in partitions if Path(each).name in names)
    if len(alike) == 1:
        return alike[0]
    what = f"several have its name: {', '.join(alike)}" if alike else f"there are {_listed(partitions)}"
    raise ConfigError(
        f"{path}: no window names this file, {what}; name its partition, --partition NAME={path}, or omit "
        "it if it has labels alone"
    )


def _known(name: str, partitions: Collection[str]) -> str:
    if name in partitions or any(re.fullmatch(rf"{re.escape(name)}-\d+", each) for each in partitions):
        return name
    raise ConfigError(
        f"--partition: no window names {name!r}, there are {_listed(partitions)}; of a Kafka topic give its "
        "name, or that of a partition"
    )


def _listed(partitions: Collection[str]) -> str:
    shown = sorted(partitions)
    more = f" and {len(shown) - _SHOWN} more" if len(shown) > _SHOWN else ""
    return ", ".join(shown[:_SHOWN]) + more if shown else "none"
