"""The agent's time under wall clocks that jump, stand and run wrong."""

from __future__ import annotations

import time

import numpy as np
import pytest

from connectors.formats.decode.decoder import Decoder
from monitor.agent import agent as agent_module
from monitor.agent.agent import Agent
from monitor.agent.clock import SteadyClock
from monitor.base.source import Input
from monitor.config.layouts import layouts
from monitor.engine.engine import EngineSettings
from monitor.testing import HandClock, ListSinks, ListSource
from tests.services.process import PATIENCE_SECONDS, wait_until
from tests.streams import answers, task

START = 1.7e9


class Clocks:
    """A steady clock on two clocks that are moved by hand."""

    def __init__(self) -> None:
        self.wall = HandClock(START)
        self.monotonic = HandClock(12345.0)
        self.read = SteadyClock(self.wall, self.monotonic)

    def pass_seconds(self, seconds: float, wall: bool = True) -> list[float]:
        """Let real time pass, reading once a second; the readings after the start."""
        times = []
        for _ in range(int(seconds)):
            self.monotonic.advance(1)
            if wall:
                self.wall.advance(1)
            times.append(self.read() - START)
        return times


def test_it_is_the_wall_clock_where_that_runs_as_it_should() -> None:
    assert Clocks().pass_seconds(100) == [float(i) for i in range(1, 101)]


def test_a_wrong_reading_ahead_moves_nothing() -> None:
    clocks = Clocks()
    clocks.pass_seconds(10)
    clocks.wall.advance(86_400)
    assert clocks.pass_seconds(30)[-1] == 40.0
    clocks.wall.advance(-86_400)
    assert clocks.pass_seconds(1000)[-1] == 1040.0


def test_a_jump_ahead_that_lasts_a_minute_is_believed() -> None:
    clocks = Clocks()
    clocks.wall.advance(3600)
    times = clocks.pass_seconds(70)
    assert times[59] == 60.0
    assert times[60] == 3661.0
    assert times[69] == 3670.0


def test_two_short_jumps_do_not_add_up_to_a_long_one() -> None:
    clocks = Clocks()
    for _ in range(5):
        clocks.wall.advance(3600)
        clocks.pass_seconds(40)
        clocks.wall.advance(-3600)
        clocks.pass_seconds(5)
    assert clocks.read() - START == 225.0


@pytest.mark.parametrize("seconds", [1.0, 60.0])
def test_a_small_step_ahead_is_taken_at_once(seconds: float) -> None:
    clocks = Clocks()
    clocks.wall.advance(seconds)
    assert clocks.pass_seconds(1) == [seconds + 1]


def test_a_clock_set_back_slows_the_time_until_it_has_caught_up() -> None:
    clocks = Clocks()
    clocks.wall.advance(-30)
    times = clocks.pass_seconds(301)
    assert times[:3] == pytest.approx([0.9, 1.8, 2.7])
    assert times[298] == pytest.approx(269.1)
    assert times[299:] == pytest.approx([270.0, 271.0])
    assert clocks.wall() - START == 271.0


def test_after_a_jump_that_was_believed_and_taken_back_windows_age_on() -> None:
    clocks = Clocks()
    clocks.wall.advance(86_400)
    before = clocks.pass_seconds(100)[-1]
    clocks.wall.advance(-86_400)
    after = clocks.pass_seconds(900)[-1]
    assert before == 86_500.0
    assert after - before == pytest.approx(810.0), "nine tenths of a quarter of an hour, and not none"


def test_a_wall_clock_that_stands_still_does_not_stop_the_time() -> None:
    clocks = Clocks()
    assert clocks.pass_seconds(100, wall=False)[-1] == pytest.approx(90.0)


def test_a_machine_that_slept_is_back_within_a_minute() -> None:
    clocks = Clocks()
    clocks.wall.advance(8 * 3600)  # the monotonic clock slept too
    assert clocks.pass_seconds(61)[-1] == 8 * 3600 + 61


def test_it_never_falls_and_never_stands_still_whatever_the_wall_clock_does() -> None:
    for seed in range(20):
        rng = np.random.default_rng(seed)
        clocks = Clocks()
        now = clocks.read()
        for _ in range(500):
            elapsed = float(rng.exponential(5.0))
            clocks.monotonic.advance(elapsed)
            clocks.wall.advance(
                elapsed + (float(rng.normal(0, 10 ** rng.uniform(0, 6))) if rng.random() < 0.3 else 0)
            )
            later = clocks.read()
            assert later - now >= 0.9 * elapsed - 1e-6, "1e-6: the resolution of a double at this time"
            now = later


def test_by_default_it_is_the_time() -> None:
    before = time.time()
    clock = SteadyClock()
    assert before - 1 <= clock() <= time.time() + 1


def test_an_agent_ages_its_windows_on_after_a_jump_of_the_wall_clock_that_was_taken_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(agent_module, "_TICK_SECONDS", 0.02)
    monkeypatch.setattr(agent_module, "_VIEW_SECONDS", 0.01)
    clocks, sinks, tasks = Clocks(), ListSinks(), {"t": task(window={"max_age_seconds": 60})}
    source = ListSource(answers(np.random.default_rng(1), 30))
    decode = Decoder(layouts(tasks), source.name).decode
    agent = Agent(EngineSettings(tasks).build(), [Input(source, decode)], sinks, clocks.read)
    agent.start()
    try:
        wait_until(lambda: sum(s.pending for s in agent.view().engine.series) == 30, "30 answers wait")
        clocks.wall.advance(1e6)
        time.sleep(0.2)
        clocks.wall.advance(-1e6)
        clocks.wall.advance(59)
        clocks.monotonic.advance(59)
        time.sleep(0.2)
        assert sinks.windows == [], "no older for the jump"
        clocks.wall.advance(2)
        clocks.monotonic.advance(2)
        wait_until(lambda: len(sinks.windows) == 1, "the window closed")
    finally:
        agent.stop()
        assert agent.wait(PATIENCE_SECONDS)
    assert (sinks.windows[0].size, sinks.windows[0].closed_by) == (30, "age")


def test_an_agent_has_a_steady_clock_where_it_is_given_none() -> None:
    assert isinstance(Agent(EngineSettings({"t": task()}).build(), [], ListSinks())._clock, SteadyClock)
