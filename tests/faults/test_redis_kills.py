"""The short form of the kills over Redis, and one whose entries another agent of the group takes over."""

from __future__ import annotations

import itertools
import random
import signal
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from monitor.base.records import id_keys
from monitor.engine.labels.columns import answer_keys, model_code
from monitor.store import Store
from tests.accounting import accounts, assert_adds_up
from tests.daemon import DaemonProcess
from tests.faults.kills import stream
from tests.faults.ranges import windows_of
from tests.faults.redis_kills import RedisFeed, compare, fill
from tests.services.redis_server import RedisServer


@pytest.mark.parametrize("kind", ["classification", "regression"])
def test_a_daemon_killed_over_a_stream_writes_what_one_left_alone_writes(
    redis_server: RedisServer, tmp_path: Path, kind: str
) -> None:
    result = compare(redis_server, tmp_path, f"kills-{kind}", records=20_000, kills=4, seed=0, kind=kind)
    assert result.kills >= 1
    assert result.account.windows > 250


def used(feed: RedisFeed, store: Path) -> set[str]:
    """Return the ids of the answers that a store holds."""
    opened = Store(store)
    try:
        kept = opened.load().rings["answers/t"].keys
    finally:
        opened.close()
    models = {row.id: model_code(row.series[0][0]) for row in feed.rows if row}
    keys = answer_keys(id_keys(list(models)), np.array(list(models.values())))
    return {each for each, there in zip(models, np.isin(keys, kept), strict=True) if there}


def test_what_a_killed_daemon_held_is_used_once_by_another_of_its_group_that_is_killed_too(
    redis_server: RedisServer, tmp_path: Path
) -> None:
    name = "kills-claimed"
    lines = iter(stream(20_000, 5))
    feed = fill(redis_server, name, itertools.islice(lines, 2_000))
    config = feed.config("group", 0.05, claim_seconds=1)
    folders = {each: tmp_path / each for each in ("dead", "heir")}
    stores = {each: folder / "group" for each, folder in folders.items()}
    for folder in folders.values():
        folder.mkdir()

    def ahead_of(held: Sequence[int]) -> set[str]:
        saved = place(feed.saved(stores["dead"]))
        return {row.id for row in feed.rows[: saved + 1] if row} & ids_at(feed, held)

    with DaemonProcess(folders["dead"], config) as daemon:  # leaving it kills it
        daemon.until(lambda: feed.saved(stores["dead"]), "it has saved something")

        def is_caught() -> bool:
            """Return whether it stands still over entries that it has not saved, with some acknowledged
            before.
            """
            feed.add(itertools.islice(lines, 200))
            daemon.send(signal.SIGSTOP)
            held = pending(redis_server, name)
            if min(held, default=0) > 1 and len(held) > len(ahead_of(held)):
                return True
            daemon.send(signal.SIGCONT)
            return False

        daemon.until(is_caught, "it holds entries that it has not saved", pause=0.02)
    feed.add(lines)
    held = pending(redis_server, name)
    ahead = ahead_of(held)
    assert len(held) > len(ahead), "it was killed over something that it had not saved"
    twice = sum(each <= place(feed.saved(stores["dead"])) for each in held)

    def all_used() -> bool:
        return feed.used_up(stores["heir"]) and not pending(redis_server, name)

    for seed in range(3):  # while it reads what is new, and what it claims
        with DaemonProcess(folders["heir"], config) as daemon:
            daemon.until(lambda daemon=daemon: "Running" in daemon.log, "it runs")  # type: ignore[misc]
            time.sleep(random.Random(seed).uniform(0.5, 1.5))
    with DaemonProcess(folders["heir"], config) as daemon:
        daemon.until(lambda: "Running" in daemon.log, "it runs, and a signal ends it in order")
        daemon.until(all_used, "all is used and acknowledged")
        counted = accounts(assert_adds_up(daemon))
        assert daemon.end()[0] == 0
    with DaemonProcess(
        folders["dead"], config
    ) as daemon:  # it writes what it had saved, and is given nothing
        daemon.until_value(1, "source_up", source=name)
        counted += accounts(assert_adds_up(daemon))
        assert daemon.end()[0] == 0

    by_dead, by_heir = (used(feed, store) for store in stores.values())
    assert by_dead | by_heir == {row.id for row in feed.rows if row}, "nothing is lost"
    assert counted.received == feed.messages + twice, "the metrics tell the same"
    assert by_dead & by_heir == ahead, "only what was saved and not yet acknowledged is used by both"
    for each, ids in (("dead", by_dead), ("heir", by_heir)):
        windows = windows_of(each, folders[each] / "group.ndjson", stores[each])
        sizes = [window.size for window in windows if not window.series[1]]
        assert sum(sizes) == len(ids), f"{each}: each of its answers is in one window"


def place(position: Mapping[str, Any]) -> int:
    """Return the number of the last entry before a position."""
    return int(position.get("after", b"0-0").split(b"-")[1])


def pending(server: RedisServer, name: str) -> list[int]:
    """Return the numbers of the entries that were given to a consumer and not acknowledged."""
    with server.client() as client:
        entries = client.xpending_range(name, "group", "-", "+", 100_000)
    return [int(each["message_id"].split(b"-")[1]) for each in entries]


def ids_at(feed: RedisFeed, places: Sequence[int]) -> set[str]:
    """Return the ids of the answers that stand there."""
    return {row.id for row in map(feed.rows.__getitem__, places) if row}
