"""The short form of the memory benchmark: five times the records, no more than a tenth more memory."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.bench.bench_memory import FLAT, measure

pytestmark = pytest.mark.process

BOUNDS = {"max_answers": 20_000, "max_waiting": 2000, "keep_reports": 1000}
MARKS = (60_000, 300_000)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc: needs Linux")
@pytest.mark.parametrize("kind", ["run", "replay"])
def test_memory_and_the_store_do_not_grow_with_the_stream(tmp_path: Path, kind: str) -> None:
    """Every ring is full by the first mark, up to which 120 windows closed; by the second 600 have.

    The thousand windows that wait for revisions, and the lines that the store keeps, are not all there at
    either mark: a MB or two of the tolerance are for those.
    """
    first, last = measure(kind, MARKS, tmp_path, BOUNDS)
    assert last.resident <= (1 + FLAT) * first.resident, (first, last)
    if kind == "run":
        assert 0 < last.store <= 32 << 20, "the file, and its log of up to 16 MiB"
