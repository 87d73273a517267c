"""Fixtures of the sources' tests."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from connectors.http import spool as spool_module
from tests.connectors.cases import CASES, Case, cases
from tests.posting import Posted, posting
from tests.services.process import PATIENCE_SECONDS


@pytest.fixture
def posted(tmp_path: Path) -> Iterator[Posted]:
    with posting(tmp_path / "spool") as made:
        yield made


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Hold every sync of a spool until the yielded event is set."""
    real, leave = spool_module._sync, threading.Event()
    leave.set()

    def slow(file: int) -> None:
        leave.wait(PATIENCE_SECONDS)
        real(file)

    monkeypatch.setattr(spool_module, "_sync", slow)
    yield leave
    leave.set()


@pytest.fixture(params=cases(CASES))
def case(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Case]:
    """Yield a feed; each test that asks for one runs for each kind, or for those of its `parametrize`."""
    # Files are looked at after milliseconds.
    monkeypatch.setattr("connectors.formats.files.following._POLL_SECONDS", 0.01)
    with ExitStack() as stack:
        yield request.param(request, tmp_path, stack)
