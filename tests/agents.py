"""An agent of real parts in this process, and parts that do as a test says."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from connectors.formats.decode.decoder import Decoder
from connectors.formats.wires.wire import PLAIN, Wire
from monitor.agent.agent import Agent
from monitor.base.records import Chunk
from monitor.base.source import Input, Raw, Source
from monitor.config.layouts import layouts
from monitor.engine.engine import Engine, EngineSettings
from monitor.reports.window_report import WindowReport
from monitor.testing import HandClock, ListSinks, ListSource
from tests.services.process import PATIENCE_SECONDS, wait_until
from tests.streams import answers, task

TASKS = {"t": task(window={"max_age_seconds": 60})}


def records(n: int, seed: int = 1, **more: Any) -> list[dict[str, Any]]:
    return answers(np.random.default_rng(seed), n, **more)


def until(done: Callable[[], bool], what: str) -> None:
    wait_until(done, what, pause=0.005)


class Rigged:
    """An agent of real parts around lists."""

    def __init__(
        self, *sources: Source, engine: Engine | None = None, sinks: Any = None, wire: Wire = PLAIN
    ) -> None:
        self.sinks = sinks or ListSinks()
        self.clock = HandClock(1.7e9)
        known = layouts(TASKS)
        inputs = [Input(source, Decoder(known, source.name, wire=wire).decode) for source in sources]
        self.engine = engine or EngineSettings(TASKS).build()
        self.agent = Agent(self.engine, inputs, self.sinks, self.clock)

    def finish(self) -> None:
        assert self.agent.wait(PATIENCE_SECONDS), "the agent did not end"

    @property
    def sizes(self) -> list[tuple[int, str]]:
        return [(window.size, window.closed_by) for window in self.sinks.windows]


class Gated(Engine):
    """An engine that waits at its gate before it takes a chunk."""

    def __init__(self) -> None:
        super().__init__(EngineSettings(TASKS))
        self.gate = threading.Event()

    def absorb(self, chunk: Chunk, now: float) -> list[WindowReport]:
        assert self.gate.wait(PATIENCE_SECONDS)
        return super().absorb(chunk, now)


class Broken(Engine):
    """An engine that cannot take a chunk."""

    def __init__(self) -> None:
        super().__init__(EngineSettings(TASKS))

    def absorb(self, chunk: Chunk, now: float) -> list[WindowReport]:
        raise ZeroDivisionError("0 of 0")


class Counting(ListSource):
    """A source that counts the reads that brought rows, and the calls of `keep_alive`."""

    reads = kept_alive = 0

    def read(self, timeout_seconds: float) -> list[Raw]:
        raws = super().read(timeout_seconds)
        self.reads += bool(raws)
        return raws

    def keep_alive(self) -> None:
        self.kept_alive += 1


class Stumbling(ListSource):
    """A source that fails at its first reads."""

    def __init__(self, failures: Sequence[Exception], *rest: Any, **more: Any) -> None:
        super().__init__(*rest, **more)
        self.failures = list(failures)

    def read(self, timeout_seconds: float) -> list[Raw]:
        if self.failures:
            raise self.failures.pop(0)
        return super().read(timeout_seconds)
