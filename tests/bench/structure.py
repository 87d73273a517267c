"""The size of the code: lines, files, modules of each package, names used twice, chains of imports.

    python -m tests.bench.structure [--against DIR]

It counts the tracked Python files of monitor, connectors and tests. A line of code has more than a docstring
or a comment. A name is used twice if two modules define a public class with it. The chain of imports follows
the imports at the top of modules; a longer chain means more to read before its end is clear. `DIR` is another
checkout; its figures come first.
"""

from __future__ import annotations

import ast
import io
import subprocess
import tokenize
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from graphlib import TopologicalSorter
from pathlib import Path

from tests.harness import ROOT, run

PRODUCT = ("monitor", "connectors")


@dataclass(frozen=True)
class Tree:
    """The Python files of one checkout."""

    root: Path

    @cached_property
    def files(self) -> dict[str, str]:
        """Path by path, the text."""
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--", *(f"{top}/**.py" for top in (*PRODUCT, "tests"))],
            cwd=self.root, capture_output=True, check=True,
        )  # fmt: skip
        names = [name for name in listed.stdout.decode().split("\0") if name]
        return {name: (self.root / name).read_text(encoding="utf-8") for name in names}

    def of(self, *tops: str) -> dict[str, str]:
        """Return the files below these folders."""
        return {name: text for name, text in self.files.items() if name.split("/")[0] in tops}

    @cached_property
    def modules(self) -> dict[str, ast.Module]:
        """Module by module of the product, what it says."""
        return {module_of(name): ast.parse(text) for name, text in self.of(*PRODUCT).items()}


def module_of(name: str) -> str:
    """Return the module of a path: `monitor.base.source` of `monitor/base/source.py`; a package of its
    `__init__`.
    """
    return name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def lines(texts: Iterable[str]) -> int:
    """Return all lines."""
    return sum(text.count("\n") for text in texts)


def code_lines(texts: Iterable[str]) -> int:
    """Return lines that hold a token which is neither a comment nor a string that stands alone."""
    return sum(len(_held(text)) for text in texts)


def _held(text: str) -> set[int]:
    empty = {
        tokenize.COMMENT,
        tokenize.NL,
        tokenize.NEWLINE,
        tokenize.INDENT,
        tokenize.DEDENT,
        tokenize.ENCODING,
    }
    held: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in empty | {tokenize.ENDMARKER}:
            held.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        if (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        ):
            held.difference_update(range(node.lineno, (node.end_lineno or 0) + 1))
    return held


def statements(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield every statement of a tree, however deep. Expressions hold no definition and no import."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        for block in ("body", "handlers", "orelse", "finalbody", "cases"):
            inside = getattr(node, block, [])
            yield from inside
            waiting += inside


def twice(modules: Mapping[str, ast.Module]) -> list[str]:
    """Return public class names that two modules define."""
    names = Counter(
        node.name
        for tree in modules.values()
        for node in statements(tree)
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    return sorted(name for name, count in names.items() if count > 1)


def longest_chain(modules: Mapping[str, ast.Module]) -> list[str]:
    """Return modules each of which imports the next at its top, as many as there are in a row.

    Raises
    ------
    graphlib.CycleError
        Two import one another.
    """
    needs = {name: set(_imports(tree, modules)) - {name} for name, tree in modules.items()}
    best: dict[str, list[str]] = {}
    for name in TopologicalSorter(needs).static_order():
        best[name] = [name, *max((best[needed] for needed in sorted(needs[name])), key=len, default=[])]
    return max(best.values(), key=len)


def _imports(tree: ast.Module, modules: Mapping[str, ast.Module]) -> Iterator[str]:
    for node in tree.body:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in modules)
        elif isinstance(node, ast.ImportFrom) and node.module is not None and node.module in modules:
            whole = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from (name if name in modules else node.module for name in whole)


def figures(tree: Tree) -> dict[str, str]:
    """Return the figures of a checkout, by name."""
    product, tests, chain = tree.of(*PRODUCT), tree.of("tests"), longest_chain(tree.modules)
    packages = Counter(".".join(name.split("/")[:2]) for name in product if name.count("/") > 1)
    counts = {
        "product: files": len(product),
        "product: lines": lines(product.values()),
        "product: lines of code": code_lines(product.values()),
        "tests: files": len(tests),
        "tests: lines": lines(tests.values()),
        "tests: lines of code": code_lines(tests.values()),
        "modules directly in monitor": sum(name.count("/") == 1 for name in tree.of("monitor")),
        "modules of the largest package": max(packages.values()),
        "public class names used twice": len(twice(tree.modules)),
        "longest chain of imports": len(chain),
    }
    return {name: f"{count:,}" for name, count in counts.items()}


def table(against: Path | None = None) -> Iterator[str]:
    """Yield the figures, a line each."""
    trees = [Tree(root) for root in (against, ROOT) if root is not None]
    columns = [figures(tree) for tree in trees]
    for name in columns[0]:
        yield f"{name:<40}" + "".join(f"{column[name]:>12}" for column in columns)
    yield "the chain: " + " > ".join(longest_chain(trees[-1].modules))


if __name__ == "__main__":
    run(table, keep=False)
