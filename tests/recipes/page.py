"""A stack's section of the page of stacks: its blocks run with free ports in place of those that it names."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from tests.harness import ROOT

STACKS_PAGE = ROOT / "docs" / "serving" / "stacks.md"
MARK = "# monitoring"
"""Ends the lines of a service that are there for monitoring: without them it is the service as it was."""
_ID, _SCORE, _REST, _CLASS = "r-1", "0.88", "0.12", "toxic"
"""What a page's call and label name: replaced for each request."""
_BLOCK = re.compile(r"^```(\w+)(?: ([\w.-]+))?\n(.*?)^```$", flags=re.MULTILINE | re.DOTALL)
_PORT = re.compile(r"(?:127\.0\.0\.1:|--(?:\w+-)*port[= ])(\d{4,5})\b|\b\w*port(?:\"?: |\()(\d{4,5})\b")


class Block(NamedTuple):
    """A fenced block: its language, its name (empty if it has none) and its text."""

    language: str
    name: str
    text: str


def blocks(path: Path) -> list[Block]:
    """Return the blocks of a page of Markdown, in their order."""
    return _blocks_of(path.read_text(encoding="utf-8"))


def _blocks_of(text: str) -> list[Block]:
    return [Block(*groups) for groups in _BLOCK.findall(text)]


def _named(stack: str) -> list[Block]:
    """Return the named blocks of a stack: of the top of the page, of its section, and of its own file here,
    which has what no reader needs.
    """
    top, *sections = re.split(r"^## (.+)\n", STACKS_PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    by_title = dict(zip(sections[::2], sections[1::2], strict=True))
    [section] = [text for title, text in by_title.items() if title.lower().replace(" ", "-") == stack]
    own = Path(__file__).with_name(f"{stack}.md")
    further = own.read_text(encoding="utf-8") if own.exists() else ""
    return [block for text in (top, section, further) for block in _blocks_of(text) if block.name]


@dataclass(frozen=True)
class Call:
    """One request: what `curl` on a page would send."""

    path: str
    headers: dict[str, str]
    body: str


class Page:
    """The blocks of a stack that have a name, the ports in them replaced.

    The blocks at the top of the page stand for those that the stack's section does not show.

    Parameters
    ----------
    stack : str
    ports : mapping of str to int
        The ports in place of those of the page.

    Examples
    --------
    >>> page = Page("fastapi")
    >>> page.call("r-7", 0.5).headers["x-request-id"]
    'r-7'
    """

    def __init__(self, stack: str, ports: dict[str, int] | None = None) -> None:
        named = _named(stack)
        self.blocks = {block.name: block.text for block in named}
        self.languages = {block.name: block.language for block in named}
        texts = self.blocks.values()
        self.ports = sorted(
            {port for each in texts for groups in _PORT.findall(each) for port in groups if port}
        )
        for written_port, port in (ports or {}).items():
            self.blocks = {k: re.sub(rf"\b{written_port}\b", str(port), v) for k, v in self.blocks.items()}

    @property
    def files(self) -> dict[str, str]:
        """The files that it shows, by their names."""
        return {name: content for name, content in self.blocks.items() if "." in name}

    def text(self, name: str, monitored: bool = True) -> str:
        """Return a block; without monitoring, without the lines that end in the mark."""
        lines = self.blocks[name].splitlines()
        return "\n".join(line for line in lines if monitored or not _is_marked(line)) + "\n"

    def write(self, folder: Path, monitored: bool = True) -> None:
        """Write the files, with monitoring or without."""
        folder.mkdir(parents=True, exist_ok=True)
        for name in self.files:
            (folder / name).write_text(self.text(name, monitored), encoding="utf-8")

    def lines(self, own: Sequence[str]) -> tuple[int, int]:
        """Return lines that one writes for monitoring: in files of its own, and in the service."""
        count = sum(bool(line.strip()) for name in own for line in self.files[name].splitlines())
        others = [content for name, content in self.blocks.items() if name not in own]
        return count, sum(_is_marked(line) for content in others for line in content.splitlines())

    @property
    def address(self) -> str:
        """Host and port of the service that is asked."""
        return self.blocks["ask"].split("http://", 1)[1].split("/", 1)[0]

    def call(self, name: str, score: float) -> Call | None:
        """Return one request to the service; None where the page shows no `curl` for it."""
        words = shlex.split(_filled(self.blocks["ask"], name, score).replace("\\\n", " "))
        if words[0] != "curl":
            return None
        headers = dict(words[i + 1].split(": ", 1) for i, word in enumerate(words) if word == "-H")
        (url,) = [word for word in words if word.startswith("http://")]
        return Call("/" + url.split("/", 3)[3], headers, words[words.index("-d") + 1])

    def script(self, name: str, rows: Sequence[tuple[str, float, str]]) -> str:
        """Return the block of a call, its line with the id once for each of these ids, scores and classes."""
        lines = []
        for line in self.blocks[name].replace("\\\n", " ").splitlines():
            each = rows if _ID in line else rows[:1]
            lines += [_filled(line, *row) for row in each]
        return "\n".join(lines) + "\n"


def _is_marked(line: str) -> bool:
    return line.rstrip().endswith(MARK)


def _filled(text: str, name: str, score: float, label: str = _CLASS) -> str:
    values = {_ID: name, _SCORE: f"{score:.4f}", _REST: f"{1 - score:.4f}", _CLASS: label}
    words = "|".join(rf"\b{re.escape(word)}\b" for word in values)
    return re.sub(words, lambda match: values[match[0]], text)
