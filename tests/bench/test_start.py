"""The bench of the start: one small sidecar, started twice, and what is told of several."""

from __future__ import annotations

from pathlib import Path

from tests.bench.bench_start import WINDOW, seconds_to_data, sidecar, told
from tests.daemon import read_windows

MODELS = 2


def test_the_clock_stops_at_the_first_estimates_and_a_second_start_finds_the_store(tmp_path: Path) -> None:
    config = sidecar(tmp_path, MODELS, reference_rows=6 * WINDOW)
    fresh = seconds_to_data(tmp_path, config, MODELS)
    closed = read_windows(tmp_path / "windows.ndjson")
    assert {window["model"]: window["size"] for window in closed} == {"m0": WINDOW, "m1": WINDOW}
    again = seconds_to_data(tmp_path, config, MODELS)
    assert read_windows(tmp_path / "windows.ndjson") == closed, "the store has them: nothing is read again"
    assert min(*fresh, *again) > 0


def test_a_row_tells_the_median_its_spread_and_the_ratio_to_the_bare_command() -> None:
    found = [(3.0, 2.0), (1.0, 1.0), (2.0, 9.0)]
    assert told(found, 0.5) == "2.0 s (1.0 to 3.0), 4.0 times that; 2.0 s of processor"
