"""The parts that benches and tables share: command line, kept text, work in a process apart.

    if __name__ == "__main__":
        run(table)

`table(trials: int = 1000, answers: Path | None = None)` gets the options `--trials` and `--answers`, and the
docstring of its module as help. It returns its text, or gives it a line at a time, printed as it comes. The
text of a run in full, where no option changes it, is kept: that of `tests.fidelity.arl` is
`tests/fidelity/output/arl.txt`, that of `tests.bench.bench_http` `tests/bench/output/http.txt`. `--keep`
keeps that of any run. Timings are of one machine and are kept with `--keep` alone: `run(table, keep=False)`.
With `--check` nothing is kept: it says how the text differs from the kept one, and ends with 1 if it does.

A command of several tables takes them by name, `run({"models": models, "speed": speed})`, and prints those
that are named, all if none is; each is kept in a file of its own, as `ssme_models.txt`.
"""

from __future__ import annotations

import argparse
import difflib
import inspect
import os
import re
import resource
import sys
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from time import perf_counter, process_time
from types import NoneType
from typing import Any, Literal, ParamSpec, TypeVar, get_args, get_origin, get_type_hints

from monitor.cli.process import one_thread_for_matrices
from tests.fidelity.ssme import scores_file

ROOT = Path(__file__).parents[1]

Given = ParamSpec("Given")
Found = TypeVar("Found")
Table = Callable[..., "str | Iterable[str]"]


def run(
    tables: Table | Mapping[str, Table], *, keep: bool = True, path: Path | None = None, data: bool = False
) -> None:
    """Do what the command line asks.

    Parameters
    ----------
    tables : callable, or mapping of callables
        Each parameter has a default, and is annotated as bool, a type that is made of a word (int, Path, ...)
        or a Literal of words, any but bool as a sequence too, and `| None`.
    keep : bool
        A run in full is kept, without `--keep` too.
    path : Path, optional
        Where it is kept, if elsewhere.
    data : bool
        The command reads the scores of civilcomments, and takes `--data FILE`.
    """
    parts = tables if isinstance(tables, Mapping) else {"": tables}
    parser = _parser(parts)
    if data:
        where = f"{scores_file.FILE}, or its folder; {scores_file.VARIABLE} if absent"
        parser.add_argument("--data", metavar="FILE", help=where)
    arguments = vars(parser.parse_args())
    if data and arguments["data"]:
        os.environ[scores_file.VARIABLE] = arguments["data"]  # the processes that it starts read it too
    values = {name: tuple(value) if isinstance(value, list) else value for name, value in arguments.items()}
    differ = False
    for part in values.get("parts") or parts:
        table = parts[part]
        options = {name: values[name] for name in inspect.signature(table).parameters if name in values}
        text, file = _printed(table(**options)), path or output(table, part)
        if values["check"]:
            differ |= _differs(file, text)
        elif values["keep"] or (keep and _in_full(table, options)):
            file.write_text(text, encoding="utf-8")
    if differ:
        raise SystemExit(1)


def output(table: Table, part: str = "") -> Path:
    """Return the file that keeps the text of a run in full."""
    spec = sys.modules[table.__module__].__spec__
    assert spec is not None, "run it by python -m"
    *folders, name = spec.name.removesuffix(".__main__").split(".")
    file = "_".join(filter(None, (name.removeprefix("bench_"), part)))
    return ROOT.joinpath(*folders) / "output" / f"{file}.txt"


def kept(table: Table, part: str = "") -> str:
    """Return the text of the last run in full."""
    return output(table, part).read_text(encoding="utf-8")


def apart(work: Callable[Given, Found], *arguments: Given.args, **named: Given.kwargs) -> Found:
    """Return the result of a module's function in a fresh Python, with matrices on one thread."""
    one_thread_for_matrices()
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        return pool.submit(work, *arguments, **named).result()


def best(work: Callable[[], object], repeats: int = 1, rounds: int = 7) -> float:
    """Return seconds a call in the quickest round: other work on the machine only makes rounds slower."""
    work()
    times = []
    for _ in range(rounds):
        start = perf_counter()
        for _ in range(repeats):
            work()
        times.append((perf_counter() - start) / repeats)
    return min(times)


def in_turns(*works: Callable[[], object], repeats: int = 50, rounds: int = 15) -> list[float]:
    """Return seconds of the processor a call of each, in its quickest round; the rounds of all take turns."""
    times: list[list[float]] = [[] for _ in works]
    for _ in range(1 + rounds):
        for work, durations in zip(works, times, strict=True):
            start = process_time()
            for _ in range(repeats):
                work()
            durations.append((process_time() - start) / repeats)
    return [min(durations[1:]) for durations in times]


def processor_of_children() -> float:
    """Return seconds of the processor that ended processes took which this one started, and those that
    they did.
    """
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def processor_seconds(pid: int, with_ended: bool = False) -> float:
    """User and system time of a process: fields 14 and 15 in `man 5 proc`, counted after the name.

    Parameters
    ----------
    pid : int
    with_ended : bool
        Whether that of its children which have ended, fields 16 and 17, is added. Then 0 of a process that
        has ended itself, since its parent counts it.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    except OSError:
        if with_ended:
            return 0.0
        raise
    return sum(map(int, fields[11 : 15 if with_ended else 13])) / os.sysconf("SC_CLK_TCK")


def resident(pid: int | Literal["self"] = "self", most: bool = False) -> int:
    """Return bytes of memory that a process holds, or ever held at most; 0 where it has ended."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    except OSError:
        return 0
    match = re.search(rf"{'VmHWM' if most else 'VmRSS'}:\s+(\d+) kB", status)
    return int(match[1]) * 1024 if match else 0


def _parser(parts: Mapping[str, Table]) -> argparse.ArgumentParser:
    module = inspect.getmodule(next(iter(parts.values())))
    parser = argparse.ArgumentParser(
        description=module.__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    if "" not in parts:
        help_text = f"{', '.join(parts)}; all if absent"
        parser.add_argument("parts", nargs="*", metavar="PART", choices=[*parts, []], help=help_text)
    defaults: dict[str, dict[str, None]] = {}
    hints: dict[str, Any] = {}
    for table in parts.values():
        hints |= get_type_hints(table)
        for name, parameter in inspect.signature(table).parameters.items():
            defaults.setdefault(name, {})[_default_words(parameter.default)] = None
    for name, texts in defaults.items():
        settings = {
            "default": argparse.SUPPRESS,
            "help": f"{' or '.join(texts)} if absent".replace("%", "%%"),
            **_kind(hints[name]),
        }
        parser.add_argument(f"--{name.replace('_', '-')}", **settings)
    parser.add_argument("--keep", action="store_true", help="keep the text")
    parser.add_argument("--check", action="store_true", help="compare the text with the kept one")
    return parser


def _printed(text: str | Iterable[str]) -> str:
    """Print a text as it comes; the whole of it."""
    lines = []
    for line in [text] if isinstance(text, str) else text:
        lines.append(line.removesuffix("\n") + "\n")
        print(lines[-1], end="", flush=True)
    return "".join(lines)


def _in_full(table: Table, options: Mapping[str, Any]) -> bool:
    """Return whether no option changes the text; a folder for answers does not."""
    own = inspect.signature(table).parameters
    return all(value == own[name].default or isinstance(value, Path) for name, value in options.items())


def _differs(file: Path, text: str) -> bool:
    """Print how a text differs from what a file holds."""
    before, now = (each.splitlines() for each in (file.read_text(encoding="utf-8"), text))
    lines = list(difflib.unified_diff(before, now, f"kept in {file.name}", "now", n=0, lineterm=""))
    print("\n".join(lines or [f"as kept in {file.name}"]))
    return bool(lines)


def _kind(hint: Any) -> dict[str, Any]:
    """Return argparse's keywords for an annotation."""
    if hint is bool:
        return {"action": "store_true"}
    own = [each for each in get_args(hint) if each is not NoneType]
    if get_origin(hint) is Literal:
        return {"choices": own}
    if NoneType in get_args(hint):
        return _kind(own[0])
    return {"type": hint} if not own else {**_kind(own[0]), "nargs": "+"}


def _default_words(default: Any) -> str:
    """Return a default as it would be written."""
    if isinstance(default, tuple):
        return " ".join(map(_default_words, default))
    return f"{default:,}" if isinstance(default, int) else str(default)
