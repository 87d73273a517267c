"""How a command reaches an agent whose state is in PostgreSQL: a row a request, in the table `request`.

The agent's engine must not wait for a database. So a thread looks into the table each second and writes the
answers; the engine's thread sees what it found.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from contextlib import closing
from typing import Any

import msgspec

from monitor.agent.requests import OperatorRequest, read_request, written_request
from monitor.base.errors import StoreError
from monitor.base.results import Outcome
from monitor.store.postgres import PostgresConnection, PostgresDatabase

log = logging.getLogger("blindsight")

_LOOK_SECONDS, _COLLECT_SECONDS = 1.0, 0.1
_MOST_AT_ONCE = 50
_KEPT = 100  # answers that nobody collected: so many stay, the newest
_WAITING = "SELECT id, body FROM request WHERE answer IS NULL ORDER BY id LIMIT ?"
_BOUND = (
    "DELETE FROM request WHERE answer IS NOT NULL AND id NOT IN "
    "(SELECT id FROM request WHERE answer IS NOT NULL ORDER BY id DESC LIMIT ?)"
)


class RequestTable:
    """The table, as a command sees it that asks.

    Parameters
    ----------
    database : PostgresDatabase
    """

    take_back = "delete that row"

    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database

    def place(self, kind: str, body: Mapping[str, Any]) -> str:
        """Write a request; return its id.

        Raises
        ------
        RequestError
            It is too long.
        StoreError
            It cannot be written.
        """
        number, written = written_request(kind, body)
        with (
            self._database.convert_errors("be written"),
            closing(PostgresConnection(self._database)) as connection,
        ):
            connection.execute("INSERT INTO request VALUES (?, ?, NULL)", (number, written))
        return number

    def collect(self, number: str, timeout_seconds: float) -> Outcome | None:
        """Wait for an answer and take it away; None where none came in time."""
        deadline = time.monotonic() + timeout_seconds
        query = "SELECT answer FROM request WHERE id = ? AND answer IS NOT NULL"
        with (
            self._database.convert_errors("be read"),
            closing(PostgresConnection(self._database)) as connection,
        ):
            while True:
                found = connection.execute(query, (number,)).fetchone()
                if found is not None:
                    connection.execute("DELETE FROM request WHERE id = ?", (number,))
                    return msgspec.json.decode(found[0], type=Outcome)
                if time.monotonic() >= deadline:
                    return None
                time.sleep(_COLLECT_SECONDS)

    def shown(self, number: str) -> str:
        """Where a request waits, for people."""
        return f"row {number} of its table request"


class PolledRequests:
    """The table, as the agent sees it: a `RequestBox`.

    Parameters
    ----------
    database : PostgresDatabase

    Raises
    ------
    StoreError
        It cannot be read.
    """

    def __init__(self, database: PostgresDatabase) -> None:
        self.path = database.name
        self._database = database
        with database.convert_errors("be read"):
            self._connection = PostgresConnection(database)
        self._answers: dict[str, Outcome] = {}
        self._there: dict[str, bytes] = {}
        self._lock = threading.Lock()
        self._ended = threading.Event()
        # Before anything acts: an answered request that is still there must not be taken for gone.
        self._look()
        self._thread = threading.Thread(target=self._run, name="requests", daemon=True)
        self._thread.start()

    def waiting(self) -> list[str]:
        """As of the last look; what is answered stays until the answer is written."""
        with self._lock:
            return sorted(self._there)

    def read(self, number: str) -> OperatorRequest:
        """The request of this id; raises `RequestError` where it is none."""
        with self._lock:
            content = self._there.get(number, b"")
        return read_request(number, content)

    def answer(self, number: str, answer: Outcome) -> None:
        """Have the answer written."""
        with self._lock:
            self._answers[number] = answer

    def remove(self, number: str) -> None:
        """What has an answer waits no more."""

    def put_aside(self, number: str) -> None:
        """It has the answer that it was refused."""

    def close(self, timeout_seconds: float) -> None:
        """Write the answers that wait, and let go of the database."""
        self._ended.set()
        self._thread.join(timeout_seconds)
        if not self._thread.is_alive():
            self._connection.close()

    def _run(self) -> None:
        while not self._ended.wait(_LOOK_SECONDS):
            self._try()
        self._try()

    def _try(self) -> None:
        try:
            self._look()
        except StoreError as error:  # the store says that its database is away
            log.debug("Requests are not seen: %s.", error)

    def _look(self) -> None:
        with self._lock:
            answers = dict(self._answers)
        with self._database.convert_errors("be used for requests"):
            for number, answer in answers.items():
                written = msgspec.json.encode({"done": answer.done, "text": answer.text})
                self._connection.execute("UPDATE request SET answer = ? WHERE id = ?", (written, number))
            if answers:
                self._connection.execute(_BOUND, (_KEPT,))
            found = dict(self._connection.execute(_WAITING, (_MOST_AT_ONCE,)).fetchall())
        with self._lock:
            self._there = found
            for number in answers:
                self._answers.pop(number, None)
