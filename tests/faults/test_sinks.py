"""Sinks that are full, away or hanging, beside a real daemon: ingestion goes on, and everything adds up."""

from __future__ import annotations

import json
import os
import resource
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.accounting import assert_adds_up
from tests.daemon import DaemonProcess, Metrics, configuration, ndjson, read_windows
from tests.services.kafka_broker import KafkaBroker
from tests.services.kafka_topics import read_topic
from tests.services.process import stop
from tests.streams import answers

ROWS = 100
"""In each window."""


class Feed:
    """A file that a daemon follows: each piece fills one window, and brings one record that is no use."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.windows = 0
        path.touch()

    def grow(self, windows: int) -> None:
        with self.path.open("ab") as file:
            for _ in range(windows):
                rng = np.random.default_rng(self.windows)
                rows = answers(rng, ROWS, start=1.7e9 + 1000 * self.windows)
                file.write(ndjson([*rows, b"{ broken " + b"x" * 300]))
                self.windows += 1


def running(folder: Path, feed: Feed, **sections: Any) -> DaemonProcess:
    sources = [{"kind": "file", "path": str(feed.path), "follow": True}]
    return DaemonProcess(folder, configuration(sources=sources, **sections))


def goes_on(daemon: DaemonProcess, feed: Feed, windows: int = 5, pieces: int = 3) -> Metrics:
    """Feed more in several pieces: every window closes, and both identities hold at every look."""
    for _ in range(pieces):
        feed.grow(windows)

        def used() -> bool:
            metrics = daemon.metrics()
            assert_adds_up(metrics)
            return metrics.value("windows_closed_total", task="t", model="erm") == feed.windows

        daemon.until(used, f"{feed.windows} windows are closed")
    metrics = daemon.metrics()
    assert metrics.total("answers_received_total") == feed.windows * (ROWS + 1)
    assert metrics.total("rejected_total") == feed.windows
    assert daemon.get("/-/ready")[0] == daemon.get("/-/healthy")[0] == 200
    return metrics


def sink(metrics: Metrics, name: str) -> dict[str, float | None]:
    keys = ("up", "waiting", "delivered_total", "lost_total")
    return {key: metrics.value(f"sink_{key}", sink=name) for key in keys}


def numbers(path: Path) -> list[int]:
    return [window["window"] for window in read_windows(path)]


@pytest.mark.parametrize("stored", [True, False])
def test_a_full_disk_under_the_reports_stops_nothing_and_loses_nothing_within_the_bound(
    tmp_path: Path, stored: bool
) -> None:
    reports, feed = tmp_path / "windows.ndjson", Feed(tmp_path / "feed.ndjson")
    reports.symlink_to("/dev/full")
    sections: dict[str, Any] = {"reports": {"path": str(reports)}}
    if stored:
        sections["store"] = {"path": str(tmp_path / "state"), "every_seconds": 0.1}
    with running(tmp_path, feed, **sections) as daemon:
        goes_on(daemon, feed)
        daemon.until(lambda: sink(daemon.metrics(), "reports_file")["up"] == 0, "the sink is down")
        daemon.until(lambda: sink(daemon.metrics(), "reports_file")["waiting"] == 15, "all of it waits")
        metrics = daemon.metrics()
        assert sink(metrics, "reports_file")["lost_total"] == metrics.value("reports_lost_total") == 0
        assert metrics.value("sink_failing_since_timestamp_seconds", sink="reports_file") is not None
        assert "No space left on device" in daemon.get("/")[1]
        reports.unlink()  # room again, under the same name
        daemon.until(lambda: numbers(reports) == list(range(15)), "all windows are written")
        daemon.until(lambda: sink(daemon.metrics(), "reports_file")["up"] == 1, "the sink is up")
        assert daemon.metrics().value("sink_failing_since_timestamp_seconds", sink="reports_file") is None
        goes_on(daemon, feed, pieces=1)
        assert daemon.end()[0] == 0
    assert numbers(reports) == list(range(20))


def test_a_file_at_its_largest_size_stops_nothing_and_ends_whole(tmp_path: Path) -> None:
    """RLIMIT_FSIZE: a write is cut short in the middle of a line, and the next ones fail.

    What another program then leaves of a line is closed before the next window.
    """
    reports, feed = tmp_path / "windows.ndjson", Feed(tmp_path / "feed.ndjson")
    with running(tmp_path, feed, reports={"path": str(reports)}) as daemon:
        goes_on(daemon, feed, pieces=1)
        daemon.until(lambda: len(numbers(reports)) == 5, "five are written")
        size = reports.stat().st_size
        pid = daemon.process.pid
        before = resource.prlimit(pid, resource.RLIMIT_FSIZE, (size + size // 7, resource.RLIM_INFINITY))
        goes_on(daemon, feed, pieces=1)
        daemon.until(lambda: sink(daemon.metrics(), "reports_file")["up"] == 0, "the sink is down")
        whole = reports.read_bytes()
        assert whole.endswith(b"\n")
        with reports.open("ab") as other:
            other.write(b"{ cut off")
        resource.prlimit(pid, resource.RLIMIT_FSIZE, before)
        daemon.until(lambda: reports.read_bytes().count(b"\n") == 11, "all windows are written")
    assert reports.read_bytes().startswith(whole + b"{ cut off\n")
    lines = reports.read_bytes().splitlines()
    lines.remove(b"{ cut off")
    assert [json.loads(line)["window"] for line in lines] == list(range(10))


@contextmanager
def reading(pipe: Path, into: Path) -> Iterator[None]:
    """Let a program read the pipe inside the block; end it by its id."""
    with into.open("ab") as out:
        process = subprocess.Popen(["cat", str(pipe)], stdout=out)
        try:
            yield
        finally:
            stop(process)


@pytest.mark.parametrize("stored", [True, False])
def test_a_pipe_that_nobody_reads_is_down_and_its_windows_wait(tmp_path: Path, stored: bool) -> None:
    pipe, read, feed = tmp_path / "pipe", tmp_path / "read.ndjson", Feed(tmp_path / "feed.ndjson")
    os.mkfifo(pipe)
    sections: dict[str, Any] = {"reports": {"path": str(pipe)}}
    if stored:
        sections["store"] = {"path": str(tmp_path / "state"), "every_seconds": 0.1}

    def waiting(daemon: DaemonProcess, windows: int) -> None:
        daemon.until(lambda: sink(daemon.metrics(), "reports_file")["up"] == 0, "the sink is down")
        daemon.until(lambda: sink(daemon.metrics(), "reports_file")["waiting"] == windows, "all of it waits")

    with running(tmp_path, feed, **sections) as daemon:
        goes_on(daemon, feed, pieces=1)
        waiting(daemon, 5)
        assert sink(daemon.metrics(), "reports_file")["delivered_total"] == 0
        assert "no program reads this pipe; start one, or give another path" in daemon.log
        with reading(pipe, read):
            daemon.until(lambda: numbers(read) == list(range(5)), "they are read")
            daemon.until(lambda: sink(daemon.metrics(), "reports_file")["up"] == 1, "the sink is up")
            goes_on(daemon, feed, pieces=1)
            daemon.until(lambda: numbers(read) == list(range(10)), "the next are read")
        goes_on(daemon, feed, pieces=1)
        waiting(daemon, 5)
        if stored:
            assert daemon.end()[0] == 0
    if stored:
        with reading(pipe, read), running(tmp_path, feed, **sections) as daemon:
            daemon.until(lambda: numbers(read) == list(range(15)), "what waited is read after a restart")
            assert sink(daemon.metrics(), "reports_file")["lost_total"] == 0


def test_a_full_disk_under_the_rejects_drops_and_counts_what_is_past_the_queue(tmp_path: Path) -> None:
    rejects, feed = tmp_path / "rejects.ndjson", Feed(tmp_path / "feed.ndjson")
    rejects.symlink_to("/dev/full")
    with running(tmp_path, feed, rejects={"path": str(rejects)}) as daemon:
        goes_on(daemon, feed, pieces=1)
        daemon.until(lambda: sink(daemon.metrics(), "rejects_file")["up"] == 0, "the sink is down")
        with feed.path.open("ab") as file:
            file.write(b"{ broken\n" * 6000)
        daemon.until(lambda: daemon.metrics().total("rejected_total") == 6005, "all are counted")
        assert_adds_up(daemon.metrics())
        assert sink(daemon.metrics(), "rejects_file") == {
            "up": 0,
            "waiting": 5000,
            "delivered_total": 0,
            "lost_total": 1005,
        }
        rejects.unlink()
        daemon.until(lambda: sink(daemon.metrics(), "rejects_file")["waiting"] == 0, "the rest is written")
        assert len(rejects.read_bytes().splitlines()) == 5000


def test_a_broker_that_stands_still_or_dies_stops_nothing_and_loses_nothing(
    tmp_path: Path, new_kafka_broker: Callable[[], KafkaBroker]
) -> None:
    broker, feed = new_kafka_broker(), Feed(tmp_path / "feed.ndjson")
    broker.start()
    broker.create_topic("windows")
    broker.create_topic("rejects")
    topics = {
        name: {"kafka": {"brokers": [broker.address], "topic": name}} for name in ("windows", "rejects")
    }
    sections = {
        "reports": topics["windows"],
        "rejects": topics["rejects"],
        "store": {"path": str(tmp_path / "state"), "every_seconds": 0.1},
    }

    def delivered(daemon: DaemonProcess, count: int) -> None:
        for name in ("reports_topic", "rejects_topic"):
            daemon.until(
                lambda name=name: sink(daemon.metrics(), name)["delivered_total"] == count,
                f"{name} has delivered {count}",
            )

    def state(daemon: DaemonProcess, name: str) -> tuple[float | None, float | None]:
        sample = sink(daemon.metrics(), name)
        return sample["up"], sample["waiting"]

    with running(tmp_path, feed, **sections) as daemon:
        goes_on(daemon, feed, pieces=1)
        delivered(daemon, 5)
        with broker.frozen():
            goes_on(daemon, feed)
            daemon.until(lambda: state(daemon, "reports_topic") == (0, 15), "15 windows wait")
            daemon.until(lambda: state(daemon, "rejects_topic") == (0, 15), "15 records wait")
        delivered(daemon, 20)
        broker.kill()
        goes_on(daemon, feed, pieces=2)
        daemon.until(lambda: state(daemon, "reports_topic") == (0, 10), "10 windows wait")
        daemon.process.kill()  # while the broker is away: what waits is in the store
        daemon.process.wait()
    with running(tmp_path, feed, **sections) as daemon:
        goes_on(daemon, feed, pieces=1)
        broker.start()
        daemon.until(
            lambda: sink(daemon.metrics(), "reports_topic")["delivered_total"] == 15, "all are delivered"
        )
        assert state(daemon, "reports_topic") == (1, 0)
        assert sink(daemon.metrics(), "reports_topic")["lost_total"] == 0
        assert daemon.end()[0] == 0
    windows = [json.loads(each.value)["window"] for each in read_topic(broker, "windows")]
    assert windows == list(range(35))


@contextmanager
def scrapers(port: int, count: int, sent: bytes) -> Iterator[list[socket.socket]]:
    """Yield connections that say something and never read; their buffers are small."""
    with ExitStack() as stack:
        sockets = []
        for _ in range(count):
            one = stack.enter_context(closing(socket.socket()))
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            one.connect(("127.0.0.1", port))
            one.sendall(sent)
            sockets.append(one)
        yield sockets


@pytest.mark.parametrize(
    ("count", "sent"),
    [
        (1, b""),
        (20, b"GET /metrics HTTP/1.1\r\nhost: x\r\n\r\n" * 20),
        (200, b"GET /metrics HTTP/1.1\r\nhost: x\r\n"),
    ],
    ids=["connects and is silent", "twenty that never read", "two hundred that never finish asking"],
)
def test_scrapers_that_hang_stop_nothing(tmp_path: Path, count: int, sent: bytes) -> None:
    feed = Feed(tmp_path / "feed.ndjson")
    with running(tmp_path, feed) as daemon:
        goes_on(daemon, feed, pieces=1)
        before = daemon.metrics().text
        with scrapers(daemon.port, count, sent):
            goes_on(daemon, feed)
            metrics = daemon.metrics()
            waiting = metrics.value("sink_waiting", sink="metrics")
            assert waiting is not None
            assert min(count, 2) <= waiting <= 64
            assert memory(metrics.text) < memory(before) + (64 << 20)
        goes_on(daemon, feed, pieces=1)


def test_one_that_sends_a_byte_at_a_time_stops_nothing(tmp_path: Path) -> None:
    feed = Feed(tmp_path / "feed.ndjson")
    with running(tmp_path, feed) as daemon, scrapers(daemon.port, 1, b"G") as (crawling,):
        for byte in b"ET /metr":
            goes_on(daemon, feed, windows=1, pieces=1)
            crawling.sendall(bytes([byte]))
            time.sleep(0.2)


def memory(text: str) -> float:
    """Return resident bytes of a process, as it says in its scrape."""
    (line,) = [each for each in text.splitlines() if each.startswith("process_resident_memory_bytes ")]
    return float(line.split()[1])


def test_a_daemon_killed_again_and_again_writes_each_window_to_its_topic_once(
    tmp_path: Path, kafka_broker: KafkaBroker
) -> None:
    """Three partitions, four kills (moments drawn with seed 0), checkpoints ten times a second."""
    kafka_broker.create_topic("killed-windows", 3)
    feed, rng = Feed(tmp_path / "feed.ndjson"), np.random.default_rng(0)
    sections = {
        "reports": {"kafka": {"brokers": [kafka_broker.address], "topic": "killed-windows"}},
        "store": {"path": str(tmp_path / "state"), "every_seconds": 0.1},
    }
    for _ in range(4):
        with running(tmp_path, feed, **sections) as daemon:
            goes_on(daemon, feed, windows=20, pieces=1)
            time.sleep(rng.uniform(0, 0.5))
    with running(tmp_path, feed, **sections) as daemon:
        goes_on(daemon, feed, windows=20, pieces=1)
        daemon.until(lambda: len(read_topic(kafka_broker, "killed-windows")) >= 100, "all are delivered")
        assert daemon.end()[0] == 0
    windows = [json.loads(each.value)["window"] for each in read_topic(kafka_broker, "killed-windows")]
    assert sorted(windows) == list(range(100))
