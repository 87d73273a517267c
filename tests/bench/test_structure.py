"""The figures of the house are counted as they are said to be."""

from __future__ import annotations

import ast
from graphlib import CycleError

import pytest

from tests.bench.structure import code_lines, longest_chain, module_of, twice

CODE = '''"""What it is,
in two lines."""

# why
NAME = """a text
that is code"""


def two() -> int:
    """One line."""
    return 2  # it is
'''


def test_lines_of_code_are_no_docstrings_comments_or_blanks() -> None:
    assert code_lines([CODE]) == 4


def test_the_longest_chain_follows_imports_at_the_top() -> None:
    modules = {
        "a": ast.parse("import b\nfrom c import d\ndef later():\n    import e"),
        "b": ast.parse("import json"),
        "c": ast.parse(""),
        "c.d": ast.parse("from b import some_name"),
        "e": ast.parse("import a"),
    }
    assert longest_chain(modules) == ["e", "a", "c.d", "b"]
    with pytest.raises(CycleError):
        longest_chain({"a": ast.parse("import b"), "b": ast.parse("import a")})


def test_a_name_stands_twice_in_two_modules_and_may_where_it_is_private() -> None:
    one, other = (ast.parse(f"class A: pass\nclass _B: pass\nclass {name}: pass") for name in "CD")
    assert twice({"x": one, "y": other}) == ["A"]


def test_a_package_is_named_by_its_folder() -> None:
    assert [module_of(name) for name in ("monitor/__init__.py", "monitor/base/source.py")] == [
        "monitor",
        "monitor.base.source",
    ]
