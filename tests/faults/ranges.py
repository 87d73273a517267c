"""Says of windows whether each answer is in exactly one, by the positions that the windows recorded.

The sent messages are known one by one; the used ones are known only from the reports file and, for
windows that are still open, from the store. A range of positions also covers records of no use to the window:
other models' answers, labels, rubbish, repetitions of an answer. So a window's size must lie between the
answers in its ranges that were sent once and all of its series that were sent there.
"""

from __future__ import annotations

import sqlite3
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from monitor.base.codec import unpack
from monitor.store.store import FILE
from tests.daemon import read_windows

Series = tuple[str, str]
"""Model and group; ``""`` for the whole model."""


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer that was sent: its id, and the series that it belongs to."""

    id: str
    series: tuple[Series, ...]


Sent = Mapping[str, Sequence[Answer | None]]
"""By partition, what each offset holds; None for what is no answer."""


@dataclass(frozen=True, slots=True)
class Window:
    """A window, closed or still open, of one agent.

    Parameters
    ----------
    agent : str
    series : Series
    number : int
    size : int
    positions : mapping of str to sequence of int
        By partition, the first and the last position of each stretch, in turn.
    """

    agent: str
    series: Series
    number: int
    size: int
    positions: Mapping[str, Sequence[int]]

    def stretches(self) -> Iterable[tuple[str, int, int]]:
        """Return partition, first and last position of each."""
        for partition, ends in self.positions.items():
            assert len(ends) % 2 == 0, f"{self}: a stretch has two ends"
            for first, last in zip(ends[::2], ends[1::2], strict=True):
                yield partition, first, last


@dataclass(frozen=True, slots=True)
class Account:
    """The account of the answers.

    Parameters
    ----------
    windows : int
        Closed and open.
    answers : int
        Different answers sent, counted in each series that they belong to.
    used : int
        The sum of the windows' sizes.
    lost, doubled : int
        Answers sent once that are in no window's ranges, or in those of several.
    """

    windows: int
    answers: int
    used: int
    lost: int
    doubled: int

    @property
    def exact(self) -> bool:
        """True if every answer is in exactly one window."""
        return (self.used, self.lost, self.doubled) == (self.answers, 0, 0)


def windows_of(agent: str, reports: Path, store: Path) -> list[Window]:
    """Return the closed windows of a reports file, and the open ones of the store of an agent that has
    ended.
    """
    closed = [
        Window(agent, (line["model"], line["group"]), line["window"], line["size"], line["positions"])
        for line in read_windows(reports)
        if not line["revision"]
    ]
    still_open = []
    for name, state in parts_of(store).items():
        if name.startswith("series/"):
            model, group, series = state
            windows = series["windows"]
            if windows["scores"] is not None:
                size = len(windows["time"])
                still_open.append(
                    Window(agent, (model, group), windows["number"], size, windows["positions"])
                )
    return closed + still_open


def parts_of(store: Path) -> dict[str, Any]:
    """Return the pieces of state in a store, as of its last checkpoint; none where there is no store yet."""
    if not (store / FILE).is_file():
        return {}
    connection = sqlite3.connect(store / FILE)
    try:
        if not connection.execute("SELECT count(*) FROM sqlite_master WHERE name = 'part'").fetchone()[0]:
            return {}
        return {name: unpack(state) for name, state in connection.execute("SELECT name, state FROM part")}
    finally:
        connection.close()


def account(sent: Sent, windows: Sequence[Window]) -> Account:
    """Compare windows with the sent messages.

    Raises
    ------
    AssertionError
        The windows of a series do not count on from 0, an agent's ranges of a series overlap or run
        backwards, or a window holds more or fewer answers than its ranges can explain.
    """
    check_numbers(windows)
    check_order(windows)
    times = Counter(
        (answer.id, series) for rows in sent.values() for answer in rows if answer for series in answer.series
    )
    covered: Counter[tuple[str, int, Series]] = Counter()
    for window in windows:
        least = most = 0
        for place, answer in _inside(sent, window):
            covered[*place, window.series] += 1
            most += 1
            least += times[answer.id, window.series] == 1
        assert least <= window.size <= most, f"{window} has {least} to {most} answers in its ranges"
    counts = [
        covered[partition, offset, series]
        for partition, rows in sent.items()
        for offset, answer in enumerate(rows)
        for series in (answer.series if answer else ())
        if answer and times[answer.id, series] == 1
    ]
    return Account(
        windows=len(windows),
        answers=len(times),
        used=sum(window.size for window in windows),
        lost=counts.count(0),
        doubled=sum(count > 1 for count in counts),
    )


def check_numbers(windows: Sequence[Window]) -> None:
    """Check that each agent's windows of a series count from 0, each number once."""
    numbers = defaultdict(list)
    for window in windows:
        numbers[window.agent, window.series].append(window.number)
    for series, numbers_of_series in numbers.items():
        assert sorted(numbers_of_series) == list(range(len(numbers_of_series))), (
            f"{series}: windows {sorted(numbers_of_series)}"
        )


def check_order(windows: Sequence[Window]) -> None:
    """Check that stretches within an agent, a series and a partition follow each other without overlap."""
    after: dict[tuple[str, Series, str], int] = {}
    for window in sorted(windows, key=lambda w: (w.agent, w.series, w.number)):
        for partition, first, last in window.stretches():
            where = (window.agent, window.series, partition)
            assert after.get(where, -1) < first <= last, f"{window} goes back before {after.get(where)}"
            after[where] = last


def _inside(sent: Sent, window: Window) -> Iterable[tuple[tuple[str, int], Answer]]:
    """Return the answers of a window's series that lie in its ranges, with their places."""
    for partition, first, last in window.stretches():
        for offset in range(first, last + 1):
            answer = sent[partition][offset]
            if answer is not None and window.series in answer.series:
                yield (partition, offset), answer
