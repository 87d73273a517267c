"""The short form of `tests.fidelity.refit`: simulated drift over 20,000 rows; and what it printed in full."""

from __future__ import annotations

import re
from pathlib import Path

from tests.fidelity.refit import OUTPUT, simulated


def printed() -> dict[str, list[float]]:
    rows = re.findall(r"^(\w+) +[\d,]+ +[\d,]+ +([\d. ]+)$", OUTPUT.read_text(encoding="utf-8"), re.MULTILINE)
    return {name: [float(cell) for cell in cells.split()] for name, cells in rows}


def test_where_calibration_has_drifted_ssme_is_closer(tmp_path: Path) -> None:
    """Without drift the labels' own noise costs little; in full see the output."""
    drifted = simulated(tmp_path, rows=20_000, shrink=0.4, seed=1)
    assert drifted.labels > 150
    assert drifted.ssme[0] < 0.75 * drifted.isotonic[0]
    assert drifted.ssme[1] < 0.75 * drifted.isotonic[1]


def test_the_full_run_had_ssme_closer_wherever_calibration_had_drifted() -> None:
    found = printed()
    assert set(found) == {"simulated", "steady", "flights"}
    for name in ("simulated", "flights"):
        _, _, isotonic_means, ssme_means, isotonic_square, ssme_square = found[name]
        assert ssme_means < isotonic_means, name  # the lasting error
        assert ssme_square < isotonic_square, name
    assert found["simulated"][1] < found["simulated"][0]
    assert found["steady"][1] < found["steady"][0] + 0.5, "what refits cost where nothing has drifted"
