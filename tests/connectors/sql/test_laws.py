"""The laws of reading a table, held by a source over a real SQLite against a witness that forgets nothing.

The witness keeps every version of every row for ever, and compares all of them after each look. Where the
source may keep few rows, the laws are weaker, and checked as such.
"""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from connectors.sql import progress
from connectors.sql import source as sql
from connectors.sql.source import SqlSource
from monitor.base.codec import pack, unpack
from monitor.base.records import id_keys
from monitor.base.source import RawTable
from monitor.config.sql import SqlSourceConfig
from tests.examples import examples

OVERLAP = 10
IDS = st.sampled_from("abcdefghijkl")
VALUES = st.integers(0, 60)
Version = tuple[str, Any]


class Witness:
    """Every version of a row that was there, and what has to have become of it."""

    def __init__(self) -> None:
        self.seen: set[Version] = set()
        self.handed: Counter[Version] = Counter()
        self.lost = 0
        self.high: int | None = None

    def copy(self) -> Witness:
        other = Witness()
        other.seen, other.handed = set(self.seen), Counter(self.handed)
        other.lost, other.high = self.lost, self.high
        return other

    def broke_off(self, handed: Counter[Version], shown: dict[str, Any]) -> None:
        """A look was shown a table, and ended before its end."""
        begun = set(handed) - set(self.handed)
        assert begun <= shown.items()
        self.handed.update(begun)
        self.seen |= begun
        values = [value for _, value in begun if isinstance(value, int)]
        self.high = max([*values, *([] if self.high is None else [self.high])], default=None)

    def looked(self, shown: dict[str, Any], now: dict[str, Any]) -> None:
        """A look was shown a table, and has counted late rows when it was another one."""
        low = -1 if self.high is None else self.high - OVERLAP
        usable = {(name, value) for name, value in shown.items() if isinstance(value, int)}
        new = {row for row in usable if row[1] >= low} | (set(shown.items()) - usable)
        self.handed.update(new - self.seen)
        self.seen |= new
        self.high = max([value for _, value in usable] + [-1 if self.high is None else self.high])
        late = {
            (name, value)
            for name, value in now.items()
            if isinstance(value, int) and value < self.high - OVERLAP
        } - self.seen
        self.lost += len(late)
        self.seen |= late


class Reading(RuleBasedStateMachine):
    """A table that changes, and a source that looks at it, is killed, and goes on from its saved state."""

    bounds: dict[str, int] = {}  # noqa: RUF012 - of a subclass

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="blindsight-laws-"))
        self.path = self.folder / "labels.db"
        self.writer = sqlite3.connect(self.path, isolation_level=None)
        self.writer.execute("PRAGMA journal_mode = WAL")
        self.writer.execute("PRAGMA synchronous = OFF")
        self.writer.execute("CREATE TABLE labels (id TEXT PRIMARY KEY, label TEXT, updated)")
        self.witness, self.handed = Witness(), Counter[Version]()
        self.gap_before = 0
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(sql, "COUNT_SECONDS", 0.0)
        self.patch.setattr(sql, "log", self)
        self.replacements = 0
        for name, bound in self.bounds.items():
            self.patch.setattr(progress, name, bound)
        self.source: SqlSource | None = None
        self.position: dict[str, Any] = {}
        self.saved: tuple[Any, ...] = ({}, Counter(), 0, self.witness.copy())
        self.shown: dict[str, Any] = {}

    @initialize(batch=st.integers(1, 5))
    def begin(self, batch: int) -> None:
        place = {"driver": "sqlite3", "dsn": str(self.path), "table": "labels", "cursor": "updated"}
        self.settings = SqlSourceConfig(
            kind="sql", **place, overlap_seconds=OVERLAP, batch_rows=batch, poll_seconds=3600
        )
        self.open({})

    def warning(self, text: str, *_: Any) -> None:
        """Hear what the source logs: where all rows are gone, it counts one whose number nobody knows."""
        self.replacements += text in (sql._GONE, sql._TIED)

    def open(self, position: dict[str, Any]) -> None:
        self.source = SqlSource(self.settings)
        self.source.open({"labels": unpack(pack(position))} if position else {})

    @property
    def gap(self) -> int:
        assert self.source is not None
        return self.gap_before + self.source.counts.gap_records

    @property
    def table(self) -> dict[str, Any]:
        return dict(self.writer.execute("SELECT id, updated FROM labels"))

    @property
    def is_looking(self) -> bool:
        return self.source is not None and self.source._poll is not None

    @rule(name=IDS, value=VALUES)
    def put(self, name: str, value: int) -> None:
        """Insert a row, or change one; an unusable one is looked at last, and stays as before till then."""
        if self.is_looking and not isinstance(self.table.get(name, 0), int):
            return
        self.writer.execute("INSERT OR REPLACE INTO labels VALUES (?, 'yes', ?)", (name, value))

    @rule(names=st.sets(IDS, min_size=2), value=VALUES)
    def put_many(self, names: set[str], value: int) -> None:
        """Put several rows as one transaction with one time does."""
        for name in names:
            self.put(name, value)

    @rule(by=st.integers(1, 30))
    def raise_all(self, by: int) -> None:
        self.writer.execute(
            "UPDATE labels SET updated = updated + ? WHERE typeof(updated) = 'integer'", (by,)
        )

    @precondition(lambda self: not self.is_looking)
    @rule(name=IDS, value=st.sampled_from([None, "soon"]))
    def put_unusable(self, name: str, value: str | None) -> None:
        self.writer.execute("INSERT OR REPLACE INTO labels VALUES (?, 'yes', ?)", (name, value))

    @rule(name=IDS)
    def delete(self, name: str) -> None:
        self.writer.execute("DELETE FROM labels WHERE id = ? AND typeof(updated) = 'integer'", (name,))

    @rule()
    def empty(self) -> None:
        self.writer.execute("DELETE FROM labels WHERE typeof(updated) = 'integer'")

    @rule(steps=st.integers(1, 4))
    def read(self, steps: int) -> None:
        """Go on with a look, or begin one; the table may change before it goes on."""
        for _ in range(steps):
            self.step()
            if not self.is_looking:
                return

    @rule()
    def look(self) -> None:
        """Read one look to its end."""
        self.step()
        while self.is_looking:
            self.step()

    def step(self) -> None:
        assert self.source is not None
        if not self.is_looking:
            self.shown, self.source._next_poll = self.table, 0.0
        for raw in self.source.read(0.0):
            if isinstance(raw, RawTable):
                rows = zip(raw.columns["id"], raw.columns["updated"], strict=True)
                self.handed.update((str(name), value) for name, value in rows)
            self.position = raw.after
        if not self.is_looking:
            self.witness.looked(self.shown, self.table)
            self.check()

    @precondition(lambda self: not self.is_looking)
    @rule()
    def save(self) -> None:
        self.saved = (self.position, Counter(self.handed), self.gap, self.witness.copy())

    @rule()
    def kill(self) -> None:
        """The state goes back to the saved one, and the position with it."""
        assert self.source is not None
        self.source.close()
        self.position, handed, self.gap_before, witness = self.saved
        self.handed, self.witness = Counter(handed), witness.copy()
        self.open(self.position)

    @rule()
    def fail(self) -> None:
        """The driver raises any error: rows handed out stay, and the look begins again."""
        assert self.source is not None
        with pytest.raises(Exception, match="whatever"):
            self.source._run_guarded(lambda: _raise("whatever"))
        self.witness.broke_off(self.handed, self.shown)

    def check(self) -> None:
        assert self.handed == self.witness.handed
        assert self.gap == self.witness.lost

    @invariant()
    def no_version_is_handed_out_twice(self) -> None:
        assert not [row for row, times in self.handed.items() if times > 1]

    def teardown(self) -> None:
        if self.source is not None:
            self.source.close()
        self.writer.close()
        self.patch.undo()
        shutil.rmtree(self.folder)


class ReadingWithinBounds(Reading):
    """The same with room for few rows: some late rows are not counted, but none is that was used."""

    bounds = {"MOST_KNOWN": 6, "MOST_COUNTED": 3, "TIED": 2, "MOST_UNUSABLE": 4}  # noqa: RUF012

    def __init__(self) -> None:
        super().__init__()
        self.unread: set[Version] = set()

    def check(self) -> None:
        assert self.source is not None
        now = self.source._progress
        assert len(now._rows) <= 6
        assert len(now._unusable) <= 4
        low = -1 if now.high is None else now.high - OVERLAP
        late = {row for row in self.table.items() if isinstance(row[1], int) and row[1] < low}
        self.unread |= late - set(self.handed)
        assert self.gap <= len(self.unread) + self.replacements, "a row that was used counts as lost"


class _WhateverError(Exception):
    """An exception that no driver documents."""


def _raise(text: str) -> None:
    raise _WhateverError(text)


TestLaws = Reading.TestCase
TestLaws.settings = settings(examples(80), stateful_step_count=25)
TestLawsWithinBounds = ReadingWithinBounds.TestCase
TestLawsWithinBounds.settings = settings(examples(80), stateful_step_count=25)


def test_ids_stand_in_no_position(tmp_path: Path) -> None:
    now = progress.Progress("updated", "id", 10, {})
    for number in range(30):
        now.add_row(now.hash_ids([f"patient-{number}"])[0], number, f"patient-{number}", -1.0)
    saved = pack(now.snapshot())
    keys = id_keys([f"patient-{number}" for number in range(30)])
    assert b"patient" not in saved
    assert not [key for key in keys if key.tobytes() in saved]
