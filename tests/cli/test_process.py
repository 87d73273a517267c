"""The settings of the process that the commands make: what it holds, and what it gives back."""

from __future__ import annotations

import io
import subprocess
import sys

import pytest

from monitor.cli.process import print_any_text
from tests.daemon import ROOT
from tests.services.process import PATIENCE_SECONDS

RESIDENT = """
import time
from pathlib import Path
from monitor.cli.process import one_heap, trim_heap

def resident():
    words = Path("/proc/self/statm").read_text().split()
    return int(words[1]) * 4096
"""

BURST = """
one_heap()
# Blocks of the heap, each fourth of them kept: what is free lies between used ones, and none is at the end.
blocks = [bytes(16_000) for _ in range(8_000)]
full = resident()
blocks = blocks[::4]
freed = resident()
started = trim_heap(0.05) if TRIM else False
deadline = time.monotonic() + 300
while started and resident() > full / 2 and time.monotonic() < deadline:
    time.sleep(0.05)
print(int(started), full, freed, resident())
"""

LARGE = """
one_heap()
import numpy as np
kept = []
before = resident()
for i in range(40):
    array = np.ones(3 << 17)  # 3 MiB; in the heap the small one after it would hold its place for good
    kept.append(bytes(100_000))
    del array
print(before, resident(), len(kept) * 100_000)
"""


def printed(code: str) -> list[int]:
    done = subprocess.run(
        [sys.executable, "-c", RESIDENT + code],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=PATIENCE_SECONDS,
        check=True,
    )
    return [int(word) for word in done.stdout.split()]


needs_linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc: needs Linux")


@needs_linux
def test_free_pages_amid_used_ones_go_back_to_the_system() -> None:
    started, full, freed, trimmed = printed(BURST.replace("TRIM", "True"))
    if not started:
        pytest.skip("this C library has no malloc_trim")
    assert freed > 0.8 * full, "without it they stay: this test has something to see"
    assert trimmed < full / 2


@needs_linux
def test_large_arrays_leave_no_holes_in_the_heap() -> None:
    before, after, kept = printed(LARGE)
    assert after - before < kept + (8 << 20)


UNDRAINED = """
import sys, threading
from types import SimpleNamespace
import numpy as np
from scipy import fft
from monitor.cli import main as cli
from monitor.cli.daemon import Daemon

busy = threading.Event()

def compute():
    rows = np.random.default_rng(0).random((200, 2000))
    while True:
        fft.rfft(rows, axis=1)
        busy.set()

def command():
    threading.Thread(target=compute, daemon=True).start()
    busy.wait()
    agent = SimpleNamespace(stop=lambda: None, wait=lambda seconds: False)
    Daemon._drain(SimpleNamespace(agent=agent))
    print("said", end="")
    sys.exit(CODE)

cli.app = command
cli.main()
"""


@pytest.mark.parametrize(("code", "ends"), [("3", 3), ("None", 0), ("'text'", 1)])
def test_an_agent_that_still_computes_as_it_must_end_is_no_crash(code: str, ends: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", UNDRAINED.replace("CODE", code)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert (done.returncode, done.stdout) == (ends, "said")
    assert "terminate" not in done.stderr


def test_what_scipy_asks_numpy_for_and_does_not_use_is_imported_when_used() -> None:
    code = """
import sys
from monitor.cli.process import put_off_imports
put_off_imports()
import numpy, scipy.special
assert abs(scipy.special.ndtr(0.0) - 0.5) < 1e-12
assert "numpy.f2py.crackfortran" not in sys.modules and "unittest" not in sys.modules
numpy.testing.assert_allclose(1.0, 1.0)
assert "unittest" in sys.modules
assert numpy.f2py.get_include() and "numpy.f2py.crackfortran" in sys.modules
put_off_imports()
"""
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT, timeout=PATIENCE_SECONDS)


def test_text_that_an_encoding_lacks_is_printed_escaped(monkeypatch):
    for encoding, text, wanted in (("utf-8", "gr\udcf6", b"gr\\udcf6"), ("ascii", "a\u2013b", b"a\\u2013b")):
        stream = io.TextIOWrapper(io.BytesIO(), encoding)
        monkeypatch.setattr(sys, "stdout", stream)
        print_any_text()
        print(text, end="", flush=True)
        assert stream.buffer.getvalue() == wanted
