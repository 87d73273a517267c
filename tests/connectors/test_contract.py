"""The contract of `monitor.base.source`, held for every kind of source of the table by the same tests."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from typing import get_args

import pytest

from monitor.base.registry import SOURCES
from monitor.base.source import SourceCounts
from monitor.config.root import KafkaSourceConfig
from tests.connectors.cases import CASES, Case, KafkaCase, Positions, Reader
from tests.services.process import PATIENCE_SECONDS, wait_until


def test_every_kind_of_the_table_has_a_case() -> None:
    assert {each.kind for each in CASES} == {*SOURCES}
    drivers = get_args(KafkaSourceConfig.model_fields["driver"].annotation)
    assert {each.driver for each in CASES if issubclass(each, KafkaCase)} == {*drivers}


def test_reading_goes_on_after_each_position_that_was_handed_out(case: Case) -> None:
    """The order of positions is that in which the source gave them: nobody else compares two."""
    first, positions = Reader(case.source()), []
    for start in (0, 10, 20):
        case.send(first.source, range(start, start + 10))
        assert first.until(start + 10) == [*range(start + 10)]
        positions.append(first.saved())
    first.source.close()
    for count, saved in zip((10, 20, 30), positions, strict=True):
        again = Reader(case.source(), saved)
        assert again.until(30 - count if case.goes_back else 0) == ([*range(count, 30)] * case.goes_back)
        assert (again.source.counts or SourceCounts()).gap_records == 0
        again.source.close()
    last = Reader(case.source(), again.saved() or positions[-1])
    case.send(last.source, range(30, 40))
    assert last.until(10) == [*range(30, 40)]


def test_after_a_restart_nothing_acknowledged_comes_again_and_nothing_else_is_lost(case: Case) -> None:
    first = Reader(case.source())
    case.send(first.source, range(10))
    first.until(10)
    saved = first.saved()
    first.source.acknowledge(saved)
    case.send(first.source, range(10, 20))
    first.until(20)
    first.source.close()
    second = Reader(case.source(), saved)
    held = [*range(10, 20)] * case.goes_back
    assert second.until(len(held)) == held
    case.send(second.source, range(20, 30))
    assert second.until(len(held) + 10) == [*held, *range(20, 30)]


def test_without_a_position_a_feed_that_remembers_goes_on_and_another_begins_anew(case: Case) -> None:
    first = Reader(case.source())
    case.send(first.source, range(10))
    first.until(10)
    first.source.acknowledge(first.saved())
    first.source.close()
    second = Reader(case.source())
    case.send(second.source, range(10, 15))
    start = 10 if case.remembers else 0
    assert second.until(15 - start) == [*range(start, 15)]


def test_a_read_waits_at_most_its_timeout_and_not_where_something_is_there(case: Case) -> None:
    reader = Reader(case.source())
    for timeout in (0.0, 0.2):
        began = time.monotonic()
        assert reader.once(timeout) == 0
        assert time.monotonic() - began < timeout + 10
    case.send(reader.source, range(3))
    began = time.monotonic()
    while len(reader.ids) < 3:
        assert reader.once(PATIENCE_SECONDS) > 0
    assert time.monotonic() - began < PATIENCE_SECONDS
    reader.source.keep_alive()


def test_closing_twice_is_fine_and_ends_what_was_up(case: Case) -> None:
    source = case.source()
    assert not source.up
    reader = Reader(source)
    case.send(source, range(3))
    reader.until(3)
    wait_until(lambda: reader.once() == 0 and source.lag in (None, 0), "nothing waits")
    assert (source.up, source.trouble) == (True, None)
    assert source.counts in (None, SourceCounts())
    refusals = source.refusals
    assert not any([*refusals.requests.values(), *refusals.labels_shed.values()])
    assert (refusals.shed, refusals.ignored) == (0, 0)
    for _ in range(2):
        source.close()
        assert not source.up
    assert source.name


@pytest.mark.slow
def test_acknowledge_and_the_properties_are_used_by_other_threads_while_it_reads(case: Case) -> None:
    reader = Reader(case.source())
    used: queue.Queue[Positions] = queue.Queue()
    ended, errors = threading.Event(), []

    def in_a_thread(step: Callable[[], object]) -> threading.Thread:
        def run() -> None:
            try:
                while not ended.is_set():
                    step()
            except Exception as error:  # noqa: BLE001 - shown below
                errors.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        return thread

    def acknowledge() -> None:
        try:
            reader.source.acknowledge(used.get(timeout=0.05))
        except queue.Empty:
            return

    def look() -> None:
        source = reader.source
        assert isinstance(source.up, bool)
        assert (source.lag or 0) >= 0
        assert (source.trouble, source.name, bool(source.refusals)) == (None, reader.source.name, True)
        assert source.counts in (None, SourceCounts())
        time.sleep(0.001)

    threads = [in_a_thread(acknowledge), in_a_thread(acknowledge), in_a_thread(look)]
    try:
        for start in range(0, 200, 20):
            case.send(reader.source, range(start, start + 20))
            reader.until(start + 20)
            used.put(reader.saved())
        wait_until(used.empty, "all is acknowledged")
    finally:
        ended.set()
        for thread in threads:
            thread.join(PATIENCE_SECONDS)
    assert errors == []
    assert sorted(reader.ids) == [*range(200)]
    reader.source.close()
    again = Reader(case.source(), reader.saved())
    case.send(again.source, [200])
    assert again.until(1) == [200]
