"""`blindsight forget`, and then a search of all that the agent has written, for every kind of source."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql

from monitor.base.records import id_keys
from monitor.cli.daemon import Daemon
from monitor.cli.forgetting import forget_ids
from monitor.config.file import config_from
from tests.connectors.cases import Case, SqlCase, TableCase
from tests.daemon import configuration, ndjson, write_configuration
from tests.services.process import PATIENCE_SECONDS, wait_until

GONE, GONE_LATER, KEPT = 8_200_417_732, 8_200_417_733, 8_200_417_737

HASHES: tuple[Callable[[bytes], bytes], ...] = (
    lambda data: hashlib.md5(data, usedforsecurity=False).digest(),
    lambda data: hashlib.sha1(data, usedforsecurity=False).digest(),
    lambda data: hashlib.sha256(data).digest(),
    lambda data: hashlib.blake2b(data).digest(),
    lambda data: hashlib.blake2b(data, digest_size=8).digest(),
    lambda data: hashlib.blake2b(data, digest_size=16).digest(),
)


def traces(number: int) -> Iterator[bytes]:
    """Yield the id as text and as a number, its key, and unsalted digests of it, or eight bytes of them."""
    text = str(number)
    yield text.encode()
    for value in (number, int(id_keys([text])[0])):
        yield from (value.to_bytes(8, "little"), value.to_bytes(8, "big"))
    for spelt in {text.encode(), repr(text).encode(), json.dumps(text).encode()}:
        for digest in (made(spelt) for made in HASHES):
            yield from (digest[:8], digest[:8][::-1], digest.hex()[:16].encode())


def schema_of(case: Case) -> str:
    return case.name.replace("-", "_") + "_forget"


def written(case: Case, folder: Path) -> Iterator[bytes]:
    """Yield everything that the agent keeps: files, and the tables of its database."""
    yield from (path.read_bytes() for path in folder.rglob("*") if path.is_file())
    spool = case.folder / "spool"
    if spool.is_dir():
        yield from (path.read_bytes() for path in spool.iterdir())
    if isinstance(case, TableCase):
        with psycopg.connect(case.server.dsn) as connection:
            query = "SELECT table_name FROM information_schema.tables WHERE table_schema = %s"
            for (name,) in connection.execute(query, [schema_of(case)]).fetchall():
                table = sql.Identifier(schema_of(case), name)
                for row in connection.execute(sql.SQL("SELECT * FROM {}").format(table)):
                    yield from (bytes(each) for each in row if isinstance(each, bytes))
                    yield from (each.encode() for each in row if isinstance(each, str))


@pytest.mark.slow
def test_after_forget_no_id_and_no_digest_of_one_is_found_anywhere(case: Case, tmp_path: Path) -> None:
    """A running agent forgets an answer of classes, a stopped one a predicted number.

    The owner of a table deletes its rows: else they are read again.
    """
    folder = tmp_path / "agent"
    folder.mkdir()
    store: dict[str, Any] = {"path": str(folder / "state")}
    if isinstance(case, TableCase):
        store = {"postgres": case.server.dsn, "prefix": schema_of(case)}
    settings = configuration(
        task={"classes": ["no", "yes"]},
        sources=[{"kind": case.kind, **case.section}],
        store=store | {"every_seconds": 0.1},
        reports={"path": str(folder / "windows.ndjson")},
        rejects={"path": str(folder / "rejects.ndjson")},
    )
    reference = [{"id": f"k{i}", "model": "m", "prediction": i, "label": i + i % 3} for i in range(300)]
    (tmp_path / "reference.ndjson").write_bytes(ndjson(reference))
    known = {"path": str(tmp_path / "reference.ndjson")}
    numeric = {"kind": "regression", "tolerance": 1.5, "reference": known}
    settings["tasks"]["n"] = numeric | {"window": {"size": 30, "min_size": 20}}
    path = str(write_configuration(tmp_path, settings))

    def has(number: int) -> bool:
        needles = [*traces(number)]
        return any(needle in data for data in written(case, folder) for needle in needles)

    daemon = Daemon(config_from(settings))
    feed = daemon.agent._feeders[0]._feed
    case.adapt(feed)
    with daemon.running() as agent:
        wait_until(lambda: agent.view().ready, "it is ready", pause=0.01)
        case.send(feed, [5, GONE, GONE_LATER, KEPT, 6])
        wait_until(lambda: all(map(has, (GONE, GONE_LATER, KEPT))), "all are saved", pause=0.05)
        wait_until(lambda: feed.lag in (None, 0), "all is used", pause=0.01)
        if isinstance(case, SqlCase):
            case.delete(GONE)
            case.delete(GONE_LATER)
        sentences = [*forget_ids(path, [str(GONE)], wait_seconds=PATIENCE_SECONDS)]
        assert sentences[0].startswith("store: "), sentences
        wait_until(lambda: not has(GONE), "the first one is gone", pause=0.05)
    sentences = [*forget_ids(path, [str(GONE_LATER)], wait_seconds=PATIENCE_SECONDS)]
    assert sentences[0].startswith("store: "), sentences
    assert [has(GONE), has(GONE_LATER), has(KEPT)] == [False, False, True]
