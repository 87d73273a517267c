"""Failures at the edge of a source, tested in the same way for every kind that can have them.

A library raises what it should not; a peer stands still; a log loses records. In each case nothing is lost
without a count, each wait has a limit, and the source says that it is not up.
"""

from __future__ import annotations

import importlib
import inspect
import itertools
import re
import time
from collections.abc import Callable
from functools import partial
from unittest.mock import patch

from monitor.base.errors import BlindsightError
from monitor.base.source import SourceCounts
from tests.connectors.cases import CASES, Call, Case, Loss, Positions, Reader, case_losses, cases_with
from tests.services.process import wait_until

SAYS_SECONDS = 30.0
"""A source whose peer stands still must say so within this time."""

FOREIGN = (
    ValueError("a foreign value"),
    KeyError("a foreign key"),
    OverflowError("date value out of range"),
    UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"),
    MemoryError("no room"),
    RuntimeError("a foreign state"),
    AttributeError("'NoneType' object has no attribute 'foreign'"),
    TypeError("a foreign type"),
    AssertionError(),
    EOFError("the end of a foreign file"),
    TimeoutError("a foreign wait"),
    OSError(5, "Input/output error"),
)
"""What no library should raise here, and each has raised somewhere."""


class Raising:
    """A stand-in for a call: it raises each exception once, and then calls."""

    def __init__(self, call: Call, errors: list[Exception]) -> None:
        self.errors, self.real = errors, getattr(call.owner, call.name)

    def __get__(self, owner: object, kind: type | None = None) -> Callable[..., object]:
        """Bind to an instance like a method of the class."""
        return partial(self._called, self.real.__get__(owner, kind))

    def __call__(self, *rest: object, **more: object) -> object:
        return self._called(self.real, *rest, **more)

    def _called(self, real: Callable[..., object], *rest: object, **more: object) -> object:
        if self.errors:
            raise self.errors.pop(0)
        return real(*rest, **more)

    def done(self) -> bool:
        """Return whether each exception was raised."""
        return not self.errors


HOOKS = ("calls", "still", "losses", "memory", "many")


def test_every_kind_has_each_hook_or_says_why_not() -> None:
    """`test_contract.py` has a case for each kind of the table, so that a new one cannot be forgotten."""
    for case in CASES:
        for hook in HOOKS:
            assert case.has(hook) != bool(case.lacks.get(hook)), f"{case.__name__}: {hook}"
        assert case.lacks.keys() <= {*HOOKS}, case


def test_each_kind_names_the_tests_that_hold_its_memory_within_a_bound() -> None:
    for case in CASES:
        for name in case.memory:
            module, _, function = name.rpartition(".")
            test_module = importlib.import_module(f"tests.connectors.{module}")
            assert callable(getattr(test_module, function)), f"{case.__name__}: {name}"
            assert re.search("RLIMIT_AS|reading_within", inspect.getsource(test_module)), (
                f"{case.__name__}: {name}"
            )


def test_each_kind_names_the_tests_of_a_hundred_thousand() -> None:
    for case in CASES:
        for name in case.many:
            module, _, function = name.rpartition(".")
            test_module = importlib.import_module(f"tests.connectors.{module}")
            assert "MANY" in inspect.getsource(getattr(test_module, function)), f"{case.__name__}: {name}"


def step(reader: Reader, done: Callable[[], bool]) -> bool:
    """Return whether it is done after one more read, whose records are used at once."""
    reader.once()
    reader.source.acknowledge(reader.saved())
    return done()


def has_come(reader: Reader, count: int) -> bool:
    """Return whether `count` records came."""
    return len(reader.ids) >= count


@cases_with("calls")
def test_an_exception_at_any_call_of_a_library_loses_nothing_and_is_told(case: Case) -> None:
    """Each call raises one exception that its library knows, and one that it does not."""
    reader = Reader(case.source())
    start, foreign = 0, itertools.cycle(FOREIGN)
    for call in case.calls():
        errors = [*call.raises, next(foreign), next(foreign)]
        raising = Raising(call, list(errors))
        where = f"{call.owner!r}.{call.name} raises {errors}"
        with patch.object(call.owner, call.name, raising):
            case.send(reader.source, range(start, start + 5))
            wait_until(partial(step, reader, raising.done), f"it was called: {where}", pause=0.001)
        start += 5
        # Used at once: a client that gives partitions up waits until what it has handed out is used.
        wait_until(partial(step, reader, partial(has_come, reader, start)), f"{start} came", pause=0.001)
        wait_until(lambda: reader.once() == 0 and reader.source.up, f"it is up again after {where}")
        assert sorted(reader.ids) == [*range(start)], where
        assert gap(reader) == 0, where


@cases_with("calls")
def test_an_exception_while_a_source_opens_is_told_or_tried_again_and_loses_nothing(case: Case) -> None:
    foreign, start, saved = itertools.cycle(FOREIGN), 0, {}
    for call in case.calls():
        for error in (*call.raises, next(foreign)):
            where = f"{call.owner!r}.{call.name} raises {error!r}"
            with patch.object(call.owner, call.name, Raising(call, [error])):
                reader = opened(case, saved)
            reader = reader or Reader(case.source(), saved)
            case.send(reader.source, range(start, start + 5))
            assert reader.until(5) == [*range(start, start + 5)], where
            saved, start = reader.saved(), start + 5
            reader.source.acknowledge(saved)
            wait_until(partial(is_quiet, reader), "nothing waits", pause=0.001)
            assert gap(reader) == 0, where
            reader.source.close()


def opened(case: Case, saved: Positions) -> Reader | None:
    """Open a source; return None if it says that it cannot be opened."""
    try:
        return Reader(case.source(), saved)
    except BlindsightError:
        return None


def gap(reader: Reader) -> int:
    """Return how many records the source has counted as lost."""
    return (reader.source.counts or SourceCounts()).gap_records


def is_quiet(reader: Reader) -> bool:
    """Return whether all is read and nothing waits."""
    return reader.once(0.01) == 0 and reader.source.lag in (None, 0)


@cases_with("still")
def test_a_peer_that_stands_still_is_not_waited_for_and_is_told_within_30_s(case: Case) -> None:
    reader = Reader(case.source())
    case.send(reader.source, range(5))
    reader.until(5)
    with case.still(reader.source):
        began = time.monotonic()
        while reader.source.up and reader.source.trouble is None:
            before = time.monotonic()
            reader.once(0.2)
            assert time.monotonic() - before < SAYS_SECONDS / 2, "a single read"
            assert time.monotonic() - began < SAYS_SECONDS, "nothing is told of a peer that stands still"
        before = time.monotonic()
        reader.source.keep_alive()
        assert time.monotonic() - before < SAYS_SECONDS / 2
    case.send(reader.source, range(5, 10))
    assert reader.until(10) == [*range(10)]
    wait_until(lambda: reader.once() == 0 and reader.source.up, "it is up again")
    assert gap(reader) == 0


@case_losses()
def test_what_a_log_has_lost_is_counted_and_the_rest_is_read(case: Case, loss: str) -> None:
    first = Reader(case.source())
    case.send(first.source, range(10))
    first.until(10)
    saved = first.saved()
    first.source.acknowledge(saved)
    wait_until(lambda: first.once(0.01) == 0 and first.source.lag in (None, 0), "nothing waits")
    first.source.close()
    case.send(None, range(10, 20))
    lost: Loss = getattr(case, loss)()
    again = Reader(case.source(), saved)
    assert again.until(len(lost.ids)) == sorted(lost.ids)
    # One partition may be placed later than another.
    wait_until(lambda: again.once(0.01) == 0 and gap(again) >= lost.gap, "the gap is counted")
    assert gap(again) == lost.gap
    again.source.acknowledge(again.saved())
    case.send(again.source, range(30, 35))
    assert again.until(len(lost.ids) + 5) == sorted([*lost.ids, *range(30, 35)])
    again.source.close()
    assert gap(again) == lost.gap, "no count falls at a clean stop"
