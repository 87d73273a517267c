"""Replacing the engine of a running agent: the old one holds until the new one does, and says which."""

from __future__ import annotations

import json
import logging
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from connectors.formats.decode.decoder import Decoder
from monitor.agent.agent import Agent
from monitor.base.errors import BlindsightError
from monitor.base.records import Chunk
from monitor.base.source import Input
from monitor.cli import daemon as daemon_module
from monitor.cli.daemon import Daemon
from monitor.config.file import load_config
from monitor.config.layouts import layouts
from monitor.engine.engine import Engine, EngineSettings
from monitor.reports.window_report import WindowReport
from monitor.testing import HandClock, ListSinks, ListSource
from tests.daemon import configuration, ndjson, write_configuration
from tests.services.process import PATIENCE_SECONDS, wait_until
from tests.streams import Record, answers, task


def records(n: int, seed: int = 1, **more: Any) -> list[Record]:
    return answers(np.random.default_rng(seed), n, **more)


def until(done: Callable[[], bool], what: str) -> None:
    wait_until(done, what, pause=0.005)


class Gate:
    """A gate that holds the engine's thread in a chunk for as long as it is shut."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.open = threading.Event()
        self.reached = threading.Event()
        absorb = Engine.absorb

        def gated(engine: Engine, chunk: Chunk, now: float) -> list[WindowReport]:
            self.reached.set()
            assert self.open.wait(PATIENCE_SECONDS)
            return absorb(engine, chunk, now)

        monkeypatch.setattr(Engine, "absorb", gated)


class Rigged:
    """An agent on a list that may grow."""

    def __init__(self, stream: list[Record]) -> None:
        tasks = {"t": task()}
        self.sinks = ListSinks()
        source = ListSource(stream)
        decode = Decoder(layouts(tasks), source.name).decode
        self.engine = EngineSettings(tasks).build()
        self.agent = Agent(self.engine, [Input(source, decode)], self.sinks, HandClock(1.7e9))

    @property
    def received(self) -> int:
        return self.agent.view().engine.received.get("list", 0)


@pytest.fixture(autouse=True)
def lively(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let agents look for records, requests and their end after milliseconds."""
    monkeypatch.setattr("monitor.agent.agent._VIEW_SECONDS", 0.02)
    monkeypatch.setattr("monitor.agent.feeder._READ_SECONDS", 0.02)


@pytest.fixture
def rigged() -> Iterator[Callable[[list[Record]], Rigged]]:
    made: list[Rigged] = []

    def new(stream: list[Record]) -> Rigged:
        made.append(Rigged(stream))
        made[-1].agent.start()
        return made[-1]

    yield new
    for each in made:
        each.agent.stop()
        assert each.agent.wait(PATIENCE_SECONDS)


New = Callable[[list[Record]], Rigged]


def unchanged(engine: Engine) -> tuple[Engine, list[WindowReport]]:
    return engine, []


def broken(engine: Engine) -> tuple[Engine, list[WindowReport]]:
    raise ZeroDivisionError("0 of 0")


def test_a_swap_that_raises_leaves_the_old_engine_at_work(
    rigged: New, caplog: pytest.LogCaptureFixture
) -> None:
    stream = records(150)
    rig = rigged(stream)
    until(lambda: rig.received == 150, "the answers are used")
    outcome = rig.agent.reconfigure(broken)
    with pytest.raises(ZeroDivisionError):
        outcome.result(PATIENCE_SECONDS)
    stream += records(50, seed=2, start=1.7e9 + 150)
    until(lambda: rig.received == 200, "the old engine goes on")
    assert [window.size for window in rig.sinks.windows] == [100, 100]
    assert rig.agent.view().healthy
    [error] = [record for record in caplog.records if record.levelno == logging.ERROR]
    expected = "The engine was not replaced, the old one continues: ZeroDivisionError('0 of 0')"
    assert (error.getMessage(), error.exc_info) == (expected, None)


def test_swaps_after_one_that_raised_are_made(rigged: New) -> None:
    rig = rigged(records(50))
    until(lambda: rig.received == 50, "the answers are used")
    bad = rig.agent.reconfigure(broken)
    new = EngineSettings({"t": task(window={"size": 40})})
    good = rig.agent.reconfigure(lambda engine: engine.reconfigured(new, {"t"}))
    assert good.result(PATIENCE_SECONDS) is None
    assert isinstance(bad.exception(PATIENCE_SECONDS), ZeroDivisionError)
    assert [(window.size, window.closed_by) for window in rig.sinks.windows] == [(50, "end")]


def test_the_outcome_is_known_once_the_engine_is_replaced_and_not_before(
    rigged: New, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(monkeypatch)
    rig = rigged(records(50))
    assert gate.reached.wait(PATIENCE_SECONDS)
    outcome = rig.agent.reconfigure(unchanged)
    assert not outcome.done()
    gate.open.set()
    assert outcome.result(PATIENCE_SECONDS) is None


def test_a_swap_that_was_given_up_is_not_made(rigged: New, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate(monkeypatch)
    rig = rigged(records(50))
    assert gate.reached.wait(PATIENCE_SECONDS)
    made: list[str] = []

    def swap(engine: Engine, name: str) -> tuple[Engine, list[WindowReport]]:
        made.append(name)
        return engine, []

    first = rig.agent.reconfigure(lambda engine: swap(engine, "first"))
    second = rig.agent.reconfigure(lambda engine: swap(engine, "second"))
    assert first.cancel()
    gate.open.set()
    second.result(PATIENCE_SECONDS)
    assert made == ["second"]
    with pytest.raises(CancelledError):
        first.result()


def test_an_agent_that_has_ended_replaces_nothing_and_says_so(
    rigged: New, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(monkeypatch)
    rig = rigged(records(50))
    assert gate.reached.wait(PATIENCE_SECONDS)
    rig.agent.stop()
    gate.open.set()
    assert rig.agent.wait(PATIENCE_SECONDS)
    late = rig.agent.reconfigure(unchanged)
    with pytest.raises(BlindsightError, match="the agent has ended"):
        late.result(PATIENCE_SECONDS)


def test_a_swap_that_waits_when_the_engine_fails_is_not_waited_for_in_vain(
    rigged: New, monkeypatch: pytest.MonkeyPatch
) -> None:
    reached, fail = threading.Event(), threading.Event()

    def failing(engine: Engine, chunk: Chunk, now: float) -> list[WindowReport]:
        reached.set()
        assert fail.wait(PATIENCE_SECONDS)
        raise ZeroDivisionError("0 of 0")

    monkeypatch.setattr(Engine, "absorb", failing)
    rig = rigged(records(50))
    assert reached.wait(PATIENCE_SECONDS)
    outcome = rig.agent.reconfigure(unchanged)
    fail.set()
    assert isinstance(outcome.exception(PATIENCE_SECONDS), BlindsightError)


class House:
    """A daemon in this process, on a growing file."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.folder = folder
        self.stream = folder / "in.ndjson"
        self.stream.write_bytes(b"")
        self.fed = 0
        self.write(**settings)
        self.windows: list[WindowReport] = []
        self.daemon = Daemon(load_config(str(self.path)), self.windows.extend)

    def write(self, **settings: Any) -> None:
        sources = [{"kind": "file", "path": str(self.stream), "follow": True}]
        self.path = write_configuration(self.folder, configuration(task=settings, sources=sources))

    def write_reference(self, seed: int, n: int = 1000) -> str:
        path = self.folder / "reference.ndjson"
        path.write_bytes(ndjson(records(n, seed, start=1.6e9 + seed, labelled=True)))
        return str(path)

    def give(self, n: int) -> None:
        with self.stream.open("ab") as file:
            file.write(ndjson(records(n, self.fed, start=1.7e9 + self.fed)))
        self.fed += n
        until(lambda: sum(self.view.engine.received.values()) == self.fed, "the answers are used")

    def reload(self) -> None:
        self.daemon.reload(str(self.path))

    @property
    def view(self) -> Any:
        return self.daemon.agent.view()

    @property
    def sizes(self) -> list[tuple[int, str]]:
        return [(window.size, window.closed_by) for window in self.windows]


@pytest.fixture
def house(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> Iterator[House]:
    caplog.set_level(logging.INFO, "blindsight")
    built = House(tmp_path)
    with built.daemon.running():
        yield built


def test_a_reload_that_the_engine_could_not_take_over_leaves_everything_as_it_was(
    house: House, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    house.give(130)
    before = house.daemon.config
    house.write(level=0.8)
    with monkeypatch.context() as patch:
        patch.setattr(Engine, "reconfigured", lambda engine, settings, fresh: broken(engine))
        house.reload()
    assert house.daemon.config is before
    assert not house.view.reload_successful
    assert "The configuration was not reloaded, the old one stays in use." in caplog.text
    house.give(70)
    assert house.view.healthy
    house.reload()
    assert house.view.reload_successful
    assert house.daemon.config.tasks["t"].level == 0.8
    assert "The configuration was reloaded: tasks.t.level." in caplog.text, "it is a change still"
    house.give(100)
    assert [window.estimates[0].result.level for window in house.windows] == [0.95, 0.95, 0.8]


def test_a_reload_waits_for_a_busy_engine_only_so_long_and_is_not_made_later(
    house: House, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(daemon_module, "_SWAP_SECONDS", 0.05)
    house.write(level=0.8)
    with monkeypatch.context() as patch:
        gate = Gate(patch)
        with house.stream.open("ab") as file:
            file.write(ndjson(records(100)))
        assert gate.reached.wait(PATIENCE_SECONDS)
        house.reload()
        gate.open.set()
    assert (
        "the old one stays in use: the engine was busy for 0 s; reload again when it has caught up"
        in caplog.text
    )
    assert not house.view.reload_successful
    until(lambda: len(house.windows) == 1, "the engine goes on")
    house.fed = 100
    house.give(100)
    assert [window.estimates[0].result.level for window in house.windows] == [0.95, 0.95]
    monkeypatch.setattr(daemon_module, "_SWAP_SECONDS", PATIENCE_SECONDS)
    house.reload()
    assert house.view.reload_successful


def test_a_reload_that_has_begun_and_does_not_end_is_not_called_done(
    house: House, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(daemon_module, "_SWAP_SECONDS", 0.5)  # the engine's thread looks four times a second
    release = threading.Event()
    reconfigured = Engine.reconfigured

    def slow(engine: Engine, *rest: Any) -> tuple[Engine, list[WindowReport]]:
        assert release.wait(PATIENCE_SECONDS)
        return reconfigured(engine, *rest)

    house.write(level=0.8)
    with monkeypatch.context() as patch:
        patch.setattr(Engine, "reconfigured", slow)
        house.reload()
        release.set()
    expected = "the engine has not taken it over within 1 s, though it may yet; reload again to be sure"
    assert f"the old one stays in use: {expected}" in caplog.text
    assert not house.view.reload_successful
    assert house.daemon.config.tasks["t"].level == 0.95


def referenced(house: House, seed: int) -> None:
    """Set a house up on a reference file, with 130 answers used."""
    house.write_reference(seed)
    house.write(reference={"path": "reference.ndjson"})
    house.reload()
    assert house.view.reload_successful
    house.give(130)


def fitted(house: House) -> float:
    """Return the time of the newest row of the reference that the calibration of the series was fitted on."""
    [series] = house.view.engine.series
    return float(series.calibration.fitted_time)


def test_a_reference_file_that_has_changed_is_read_again_and_begins_a_new_baseline(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    referenced(house, seed=1)
    first = fitted(house)
    path = house.write_reference(seed=2)
    house.reload()
    until(lambda: fitted(house) != first, "the calibration is fitted anew")
    assert (first, fitted(house)) == (1.6e9 + 1000, 1.6e9 + 1001)
    assert house.sizes == [(100, "size"), (30, "end")]
    message = f"The configuration was reloaded: tasks.t.reference (its file {path} has changed)."
    assert caplog.text.count(message) == 1
    house.reload()
    assert "The configuration was reloaded: no change." in caplog.text


def test_a_reference_file_of_the_same_size_written_later_has_changed(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    referenced(house, seed=1)
    path = house.folder / "reference.ndjson"
    status = path.stat()
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns + 1))
    house.reload()
    assert "has changed)." in caplog.text
    assert house.sizes[-1] == (30, "end")


def test_a_change_beside_a_reference_that_is_as_it_was_begins_no_new_baseline(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    referenced(house, seed=1)
    house.write(reference={"path": "reference.ndjson"}, level=0.8)
    house.reload()
    assert "The configuration was reloaded: tasks.t.level." in caplog.text
    house.give(70)
    assert house.sizes == [(100, "size"), (100, "size")]


def test_a_changed_reference_beside_another_change_is_told_with_it(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    referenced(house, seed=1)
    path = house.write_reference(seed=2)
    house.write(reference={"path": "reference.ndjson"}, level=0.8)
    house.reload()
    assert f"reloaded: tasks.t.level, tasks.t.reference (its file {path} has changed)." in caplog.text


@pytest.mark.parametrize("spoil", [lambda path: path.unlink(), lambda path: path.write_text('{"label": ')])
def test_a_reference_file_that_can_no_longer_be_used_changes_nothing(
    house: House, caplog: pytest.LogCaptureFixture, spoil: Callable[[Path], Any]
) -> None:
    referenced(house, seed=1)
    spoil(house.folder / "reference.ndjson")
    for _ in range(2):
        house.reload()
        assert not house.view.reload_successful
    assert "The configuration was not reloaded, the old one stays in use" in caplog.text
    assert "Traceback" not in caplog.text
    house.give(70)
    assert house.sizes == [(100, "size"), (100, "size")]
    house.write_reference(seed=1)
    house.reload()
    assert house.view.reload_successful


def test_another_path_is_told_as_a_change_of_the_configuration(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    referenced(house, seed=1)
    (house.folder / "reference.ndjson").rename(house.folder / "other.ndjson")
    house.write(reference={"path": "other.ndjson"})
    house.reload()
    assert "The configuration was reloaded: tasks.t.reference.path.\n" in caplog.text
    assert json.loads(house.path.read_text())["tasks"]["t"]["reference"] == {"path": "other.ndjson"}
