"""The English of docstrings and names, package by package (CONTRIBUTING.md, "English")."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES: tuple[str, ...] = (
    "connectors",
    "monitor/agent",
    "monitor/base",
    "monitor/cli",
    "monitor/config",
    "monitor/engine",
    "monitor/export",
    "monitor/notebook",
    "monitor/reports",
    "monitor/stats",
    "monitor/store",
    "monitor/testing",
    "tests",
)
"""The folders of the product, and its tests."""

FIRST_WORDS = re.compile(r"(Of|By|As|That|Those|What|Whose|Which|With|Whether|How|Where|When|If|So)\b")
"""No summary of a class, function or module begins with one of these."""

WORDS = re.compile(
    r"\b(anew|afresh|so many|by itself|whoever|what is|what was"
    r"|tells? (more|less|as much|nothing|that|what|of))\b",
    re.IGNORECASE,
)
"""No docstring holds one of these words or phrases."""

NAMES = {
    "found",
    "told",
    "anew",
    "afresh",
    "drawn",
    "placed",
    "took",
    "taken",
    "given",
    "its",
    "asked",
    "said",
    "so",
}
"""No variable, argument, field or function has one of these names."""


@cache
def written(folder: str) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Return the docstrings and the bound names of the modules of a folder, each with its place."""
    docstrings, bound = [], []
    for path in sorted((ROOT / folder).rglob("*.py")):
        file = path.relative_to(ROOT)
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                docstrings.append((f"{file}:{getattr(node, 'lineno', 1)}", ast.get_docstring(node) or ""))
            bound += [(f"{file}:{node.lineno}", name) for name in names(node)]
    return docstrings, bound


def names(node: ast.AST) -> Iterator[str]:
    """Yield the names that a node binds."""
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        yield node.id
    elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
        yield node.attr
    elif isinstance(node, ast.arg):
        yield node.arg
    elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield node.name


@pytest.mark.parametrize("folder", PACKAGES)
def test_no_summary_begins_with_a_word_that_refers_to_another_sentence(folder: str) -> None:
    docstrings, _ = written(folder)
    assert [(place, text.splitlines()[0]) for place, text in docstrings if FIRST_WORDS.match(text)] == []


@pytest.mark.parametrize("folder", PACKAGES)
def test_docstrings_use_no_word_that_stands_for_another(folder: str) -> None:
    docstrings, _ = written(folder)
    assert [(place, word[0]) for place, text in docstrings if (word := WORDS.search(text))] == []


@pytest.mark.parametrize("folder", PACKAGES)
def test_names_say_what_they_hold(folder: str) -> None:
    _, bound = written(folder)
    assert [(place, name) for place, name in bound if name.strip("_") in NAMES] == []
