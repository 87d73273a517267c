"""Requests of commands to an agent whose state is in PostgreSQL: rows of the table `request`.

The engine's thread must not wait for a database. So a separate thread reads the requests once a second, and
writes the answers. The engine's thread uses copies of the requests in memory.
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
_KEPT = 100  # the number of uncollected answers to keep, the newest ones
_WAITING = "SELECT id, body FROM request WHERE answer IS NULL ORDER BY id LIMIT ?"
_BOUND = (
    "DELETE FROM request WHERE answer IS NOT NULL AND id NOT IN "
    "(SELECT id FROM request WHERE answer IS NOT NULL ORDER BY id DESC LIMIT ?)"
)


class RequestTable:
    """A command's access to the table of requests. The command inserts a request and collects the answer.

    Parameters
    ----------
    database : PostgresDatabase
        The database of the agent's store.
    """

    take_back = "delete that row"

    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database

    def place(self, kind: str, body: Mapping[str, Any]) -> str:
        """Insert a request and return its id.

        Raises
        ------
        RequestError
            The request is too long.
        StoreError
            The database cannot be written.
        """
        number, written = written_request(kind, body)
        with (
            self._database.convert_errors("be written"),
            closing(PostgresConnection(self._database)) as connection,
        ):
            connection.execute("INSERT INTO request VALUES (?, ?, NULL)", (number, written))
        return number

    def collect(self, number: str, timeout_seconds: float) -> Outcome | None:
        """Wait for the answer to a request, delete the request's row, and return the answer.

        The result is None if there is no answer within the time limit.
        """
        deadline = time.monotonic() + timeout_seconds
        query = "SELECT answer FROM request WHERE id = ? AND answer IS NOT NULL"
        with (
            self._database.convert_errors("be read"),
            closing(PostgresConnection(self._database)) as connection,
        ):
            while True:
                row = connection.execute(query, (number,)).fetchone()
                if row is not None:
                    connection.execute("DELETE FROM request WHERE id = ?", (number,))
                    return msgspec.json.decode(row[0], type=Outcome)
                if time.monotonic() >= deadline:
                    return None
                time.sleep(_COLLECT_SECONDS)

    def shown(self, number: str) -> str:
        """Return the location of a request, in the form that messages to the operator use."""
        return f"row {number} of its table request"


class PolledRequests:
    """The agent's access to the table of requests. A separate thread uses the table.

    Parameters
    ----------
    database : PostgresDatabase
        The database of the agent's store.

    Raises
    ------
    StoreError
        The table cannot be read.
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
        # The first reading is before the engine's first step, which must see all requests in the table.
        self._look()
        self._thread = threading.Thread(target=self._run, name="requests", daemon=True)
        self._thread.start()

    def waiting(self) -> list[str]:
        """Return the ids of the requests without an answer, from the last reading of the table."""
        with self._lock:
            return sorted(self._there)

    def read(self, number: str) -> OperatorRequest:
        """Return the request with this id.

        Raises
        ------
        RequestError
            The request is damaged.
        """
        with self._lock:
            content = self._there.get(number, b"")
        return read_request(number, content)

    def answer(self, number: str, answer: Outcome) -> None:
        """Pass an answer to the separate thread, which writes the answer to the table."""
        with self._lock:
            self._answers[number] = answer

    def remove(self, number: str) -> None:
        """Do nothing, because the table no longer returns requests that have an answer."""

    def put_aside(self, number: str) -> None:
        """Do nothing, because a refused request gets an answer, and the table no longer returns it."""

    def close(self, timeout_seconds: float) -> None:
        """Write the waiting answers and close the connection."""
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
        except StoreError as error:  # the store logs that its database cannot be reached
            log.debug("Requests are not seen: %s.", error)

    def _look(self) -> None:
        """Write the waiting answers, and read the unanswered requests."""
        with self._lock:
            answers = dict(self._answers)
        with self._database.convert_errors("be used for requests"):
            for number, answer in answers.items():
                written = msgspec.json.encode({"done": answer.done, "text": answer.text})
                self._connection.execute("UPDATE request SET answer = ? WHERE id = ?", (written, number))
            if answers:
                self._connection.execute(_BOUND, (_KEPT,))
            waiting = dict(self._connection.execute(_WAITING, (_MOST_AT_ONCE,)).fetchall())
        with self._lock:
            self._there = waiting
            for number in answers:
                self._answers.pop(number, None)
