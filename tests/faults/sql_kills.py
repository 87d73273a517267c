"""Kills a real daemon that reads a table of a real PostgreSQL, at random moments, and counts what came of it.

    python -m tests.faults.sql_kills [--kills 200] [--records 100000] [--seed 0] [--kind regression]

The stream is that of `tests.faults.kills`, a row a record; every hundred rows have one value of the rising
column. The reports must equal, byte for byte, those of a daemon that was left alone, and every answer must be
in exactly one window.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.daemon import configuration
from tests.faults.kafka_kills import (
    TASKS,
    Result,
    answer_of,
    compared,
    decoded,
    kill_until_enough,
    parser_of_kills,
    saved_positions,
    write_reference,
)
from tests.faults.kills import stream
from tests.faults.ranges import Answer
from tests.services.postgres_server import PostgresServer

TIES = 100
"""Rows of one value of the rising column."""
_COLUMNS = {
    "classification": "scores json, label text",
    "regression": "prediction float8, sigma float8, label float8",
}
"""The columns of answers and labels of each kind."""
_TABLE = "number bigint, place bigint, id text, time float8, model text, region text, "
_QUERY = 'SELECT number, place, id, time, model, region AS "groups.region", {} FROM {}'


def columns(kind: str) -> list[str]:
    """Return the names of the columns of answers and labels."""
    return [column.split()[0] for column in _COLUMNS[kind].split(", ")]


@dataclass(frozen=True, slots=True)
class SqlFeed:
    """A table that was filled, and what each of its rows holds.

    Parameters
    ----------
    server : PostgresServer
    name : str
        The table.
    rows : sequence
        In the order of the rising column.
    kind : str
        The kind of the task.
    """

    server: PostgresServer
    name: str
    rows: list[Answer | None]
    kind: str = "classification"

    @property
    def sent(self) -> dict[str, Sequence[Answer | None]]:
        return {self.name: self.rows}

    @property
    def messages(self) -> int:
        return len(self.rows)

    def config(self, name: str, every_seconds: float, **more: Any) -> dict[str, Any]:
        """Return the configuration of a daemon with its own store and reports file."""
        source = {
            "kind": "sql",
            "dsn": self.server.dsn,
            "query": _QUERY.format(", ".join(columns(self.kind)), self.name),
            "cursor": "place",
            "id": "number",
            "name": self.name,
            "poll_seconds": 0.05,
            "overlap_seconds": 20,
            "batch_rows": 130,
        }
        return configuration(
            sources=[source | more],
            reports={"path": f"{name}.ndjson"},
            store={"path": name, "every_seconds": every_seconds},
            task=TASKS[self.kind],
        )

    def used_up(self, store: Path) -> bool:
        """Return whether the last checkpoint holds the last row."""
        position = saved_positions(store).get(self.name, {})
        return bool(position.get("place") == len(self.rows))


def fill(server: PostgresServer, name: str, lines: Iterable[str], kind: str = "classification") -> SqlFeed:
    """Make a table of these records; a line that is no record becomes a row without an id."""
    feed = SqlFeed(server, name, [], kind)
    with server.connection() as connection:
        connection.execute(f"CREATE TABLE {name} ({_TABLE}{_COLUMNS[kind]})".encode())
        with connection.cursor().copy(f"COPY {name} FROM STDIN".encode()) as copy:
            for line in lines:
                record, number = decoded(line), len(feed.rows)
                fields = [record.get(key) for key in ("id", "time", "model")]
                fields += [record.get("groups", {}).get("region"), *map(record.get, columns(kind))]
                cells = [json.dumps(each) if isinstance(each, list) else each for each in fields]
                copy.write_row((number, number // TIES, *cells))
                feed.rows.append(answer_of(record))
        connection.execute(f"CREATE INDEX ON {name} (place, number)".encode())
    return feed


def compare(
    server: PostgresServer,
    folder: Path,
    name: str,
    records: int,
    kills: int,
    seed: int,
    kind: str = "classification",
) -> Result:
    """Compare as `compared` does, over one table."""
    write_reference(folder, kind)
    return compared(folder, fill(server, name, stream(records, seed, kind=kind), kind), kills, seed)


def main() -> None:
    options = parser_of_kills(__doc__).parse_args()
    with PostgresServer() as server:
        kill_until_enough(
            options,
            lambda folder, name, kills, seed: compare(
                server, folder, name, options.records, kills, seed, options.kind
            ),
            "PostgreSQL, reports equal byte for byte",
        )


if __name__ == "__main__":
    main()
