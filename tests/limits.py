"""The limit of a test's time on a busy machine: as much longer as the cores have other work."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Generator
from types import FrameType
from typing import Any

import pytest

from tests.services.process import programs_a_core

Handler = Callable[[int, FrameType | None], Any]


def extended(fail: Handler, seconds: float) -> Handler:
    """Return a handler of the alarm after `seconds` that sets another one while the machine was busy."""
    began = time.monotonic()

    def due(number: int, frame: FrameType | None) -> None:
        left = seconds * programs_a_core() - (time.monotonic() - began)
        if left > 0:
            signal.setitimer(signal.ITIMER_REAL, left)
        else:
            fail(number, frame)

    return due


@pytest.hookimpl(wrapper=True, optionalhook=True)
def pytest_timeout_set_timer(settings: Any) -> Generator[None, object, object]:
    result = yield
    fail = signal.getsignal(signal.SIGALRM)
    if settings.method == "signal" and callable(fail):
        signal.signal(signal.SIGALRM, extended(fail, settings.timeout))
    return result
