"""Kills a real daemon that reads a stream of a real Redis, at random moments, and counts what came of it.

    python -m tests.faults.redis_kills [--kills 200] [--records 100000] [--seed 0] [--kind regression]

The stream is that of `tests.faults.kills`. The reports must equal, byte for byte, those of a daemon in a
group of its own that was left alone, and every answer must be in exactly one window.
"""

from __future__ import annotations

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
from tests.services.redis_server import RedisServer


@dataclass(frozen=True, slots=True)
class RedisFeed:
    """A stream that was filled, and what each of its entries holds.

    Parameters
    ----------
    server : RedisServer
    name : str
        The key of the stream.
    rows : sequence
        By place: the id of entry n is ``0-n``, so that its place is n; at place 0 there is none.
    kind : str
        The kind of the task.
    """

    server: RedisServer
    name: str
    rows: list[Answer | None]
    kind: str = "classification"

    @property
    def sent(self) -> dict[str, Sequence[Answer | None]]:
        return {self.name: self.rows}

    @property
    def messages(self) -> int:
        return len(self.rows) - 1

    def config(self, name: str, every_seconds: float, **more: Any) -> dict[str, Any]:
        """Return the configuration of a daemon in a group of its own, with its own store and reports file."""
        source = {"kind": "redis", "url": self.server.url, "stream": self.name, "group": name, **more}
        return configuration(
            sources=[source],
            reports={"path": f"{name}.ndjson"},
            store={"path": name, "every_seconds": every_seconds},
            task=TASKS[self.kind],
        )

    def add(self, lines: Iterable[str]) -> None:
        """Add records at the end of the stream, an entry each."""
        with self.server.client() as client, client.pipeline(transaction=False) as pipe:
            for line in lines:
                pipe.xadd(self.name, {"value": line}, id=f"0-{len(self.rows)}")
                self.rows.append(answer_of(decoded(line)))
                if len(pipe) == 5_000:
                    pipe.execute()
            pipe.execute()

    def used_up(self, store: Path) -> bool:
        """Return whether the last checkpoint holds the end of the stream."""
        return self.saved(store).get("after") == b"0-%d" % (len(self.rows) - 1)

    def saved(self, store: Path) -> dict[str, Any]:
        """Return the position of the last checkpoint; empty before the first."""
        return dict(saved_positions(store).get(self.name, {}))


def fill(server: RedisServer, name: str, lines: Iterable[str], kind: str = "classification") -> RedisFeed:
    """Make a stream of these records, an entry each."""
    with server.client() as client:
        client.delete(name)
    feed = RedisFeed(server, name, [None], kind)
    feed.add(lines)
    return feed


def compare(
    server: RedisServer,
    folder: Path,
    name: str,
    records: int,
    kills: int,
    seed: int,
    kind: str = "classification",
) -> Result:
    """Compare as `compared` does, over one stream none of whose entries stays pending."""
    write_reference(folder, kind)
    comparison = compared(folder, fill(server, name, stream(records, seed, kind=kind), kind), kills, seed)
    with server.client() as client:
        assert client.xpending(name, "killed")["pending"] == 0, "what is saved is acknowledged"
    return comparison


def main() -> None:
    options = parser_of_kills(__doc__).parse_args()
    with RedisServer() as server:
        kill_until_enough(
            options,
            lambda folder, name, kills, seed: compare(
                server, folder, name, options.records, kills, seed, options.kind
            ),
            "Redis, reports equal byte for byte",
        )


if __name__ == "__main__":
    main()
