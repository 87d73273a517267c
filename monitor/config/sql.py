"""The section of a `sql` source: a table or a query of a database, and its rising column (`cursor`)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Literal, Self

from pydantic import Field, model_validator

from monitor.base.errors import SourceError
from monitor.config.mapping import MAPPING, FieldMapping
from monitor.config.section import Problem, demand, holds_password, sane
from monitor.config.sinks import OptionValue
from monitor.config.sources import SourceSection

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_HINTS = {
    "password authentication failed": "check the user in dsn, and password_file",
    "no password supplied": "give password_file",
    "does not exist": "correct table, query, cursor or id",
    "no such": "correct table, query, cursor or id",
    "syntax error": "correct query",
    "permission denied": "grant the user SELECT",
    "unable to open database file": "correct dsn",
    "read-only": "a query may only read",
    "readonly": "a query may only read",
}
"""The remedy for an error, by a text that the driver's message contains."""


class SqlSourceConfig(SourceSection):
    """Rows of a table or query, which is polled for rows with a greater value in the column `cursor`."""

    files = ("password_file",)

    kind: Literal["sql"] = Field(description="A table or a query of a database.")
    driver: str = Field(
        default="psycopg",
        min_length=1,
        description="A Python module with DB-API 2.0: psycopg (the extra postgres), sqlite3, or another that "
        "is installed.",
        examples=["psycopg"],
    )
    # The address may hold a password. Validation refuses it; until then it must not be printed.
    dsn: str | None = Field(
        default=None,
        min_length=1,
        repr=False,
        description="The text that the driver's function connect takes, without a password; for SQLite "
        "the path of the file.",
        examples=["host=db.example dbname=reviews user=reader"],
    )
    password_file: str | None = Field(
        default=None,
        min_length=1,
        description="A file with the password, which the driver gets as password; read for each connection.",
        examples=["/run/secrets/reviews"],
    )
    # Options may hold passwords, so a printed configuration must not contain them.
    options: dict[str, OptionValue] = Field(
        default={},
        repr=False,
        description="Further options of the driver's connect.",
        examples=[{"sslmode": "verify-full"}],
    )
    table: str | None = Field(
        default=None,
        description="The table or view, which is read with all its columns; or give query.",
        examples=["reviews"],
    )
    query: str | None = Field(
        default=None,
        min_length=1,
        description="A SELECT that yields the records, without ORDER BY; or give table.",
        examples=["SELECT id, verdict, updated_at FROM reviews"],
    )
    cursor: str = Field(
        description="A column of times or numbers that only increases: each new or changed row has a "
        "greater value. It should have an index.",
        examples=["updated_at"],
    )
    id: str = Field(
        default="id",
        description="The column that identifies a row when it is read again.",
        examples=["review_id"],
    )
    poll_seconds: float = Field(
        default=5.0, ge=0.05, le=86_400, description="Pause between two polls of the database.", examples=[30]
    )
    overlap_seconds: float = Field(
        default=300.0,
        ge=0,
        le=2_678_400,
        description="Each poll starts this far below the greatest value that was read, to read rows that "
        "were committed late. It must be longer than the longest transaction. For a column of "
        "numbers, it is a difference in the column's unit.",
        examples=[600],
    )
    batch_rows: int = Field(
        default=5000,
        ge=1,
        le=100_000,
        description="The largest number of rows in one batch.",
        examples=[1000],
    )
    batch_bytes: int = Field(
        default=4 << 20,
        ge=1 << 16,
        le=1 << 28,
        description="The memory for one batch. A batch ends with the row that reaches this size.",
        examples=[1048576],
    )
    timeout_seconds: float = Field(
        default=60.0,
        ge=1,
        le=86_400,
        description="Longest wait for the database, such as for the first row of a poll. Then the agent "
        "connects again. After 15 seconds of waiting, the agent is not ready.",
        examples=[300],
    )
    name: str | None = Field(
        default=None,
        min_length=1,
        max_length=200,
        description="Name of the source in metrics; the table's name if absent, of a query sql.",
        examples=["reviews"],
    )
    mapping: FieldMapping | None = MAPPING

    @property
    def label(self) -> str:
        """The source's name in metrics."""
        return self.name or self.table or "sql"

    def resolve(self, folder: str) -> Self:
        """Return the section with relative paths, including that of a SQLite file, resolved from `folder`."""
        resolved = super().resolve(folder)
        if self.driver.partition(".")[0] != "sqlite3" or self.dsn is None:
            return resolved
        return resolved.model_copy(update={"dsn": str(Path(folder) / self.dsn)})

    def to_source_error(self, error: Exception) -> SourceError:
        """Return a SourceError with the text of the driver's error and a remedy."""
        text = "; ".join(line.strip() for line in str(error).splitlines() if line.strip()).rstrip(".")
        hint = next((f"; {hint}" for sign, hint in _HINTS.items() if sign in text), "")
        what = "query" if self.table is None else f"table {self.table}"
        return SourceError(f"Database by {self.driver}, {what}: {text or type(error).__name__}{hint}")

    @model_validator(mode="after")
    def _fits(self) -> Self:
        demand(self._problems())
        return self

    def _problems(self) -> Iterable[Problem | None]:
        if (self.table is None) == (self.query is None):
            yield "table", "expected one of table and query: name a table, or write a query"
        named = [("cursor", self.cursor), ("id", self.id)]
        if self.table is not None:
            yield sane("table", [self.table])
            named += [("table", part) for part in self.table.split(".")]
        problem = (
            "expected a name of letters, digits and _, got {!r}; for another, rename it by AS in a query"
        )
        yield from ((key, problem.format(name[:60])) for key, name in named if not _NAME.fullmatch(name))
        if self.dsn is None and not self.options:
            yield "dsn", "missing: where the database is"
        if self.dsn is not None and holds_password(self.dsn):  # the message leaves out the address
            yield "dsn", "expected no password in it, got one; give it as password_file"
