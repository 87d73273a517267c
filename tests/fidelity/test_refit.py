"""The short form of `tests.fidelity.refit`: simulated drift over 60,000 rows; and what it printed in full."""

from __future__ import annotations

import re
from pathlib import Path

from tests.fidelity.refit import DRAWS, simulated, table
from tests.harness import kept


def printed() -> dict[str, list[float]]:
    rows = re.findall(r"^(\w+) +[\d,]+ +[\d,]+ +([\d. ]+)$", kept(table), re.MULTILINE)
    return {name: [float(cell) for cell in cells.split()] for name, cells in rows}


def test_where_calibration_has_drifted_ssme_is_closer(tmp_path: Path) -> None:
    """Without drift the labels' own noise costs little; in full see the output."""
    drifted = simulated(tmp_path, rows=60_000, shrink=0.3, seed=1)
    assert drifted.labels > 500
    # Some 600 labels of a drift that goes on: it is followed late, and in part.
    assert all(ssme < 0.95 * isotonic for isotonic, ssme in zip(drifted.isotonic, drifted.ssme, strict=True))


def test_the_full_run_had_ssme_closer_wherever_calibration_had_drifted() -> None:
    """Windows, means over 20 of them, root mean square: the reference's and those of `ssme`, in turn."""
    figures = printed()
    draws = {f"flights_{draw}" for draw in DRAWS}
    assert set(figures) == {"simulated", "steady", "flights", *draws}
    for name in ("simulated", "flights"):
        assert all(ssme < isotonic for isotonic, ssme in pairs(figures[name])), name
    means = [pairs(figures[name])[1] for name in draws]
    assert all(ssme < isotonic for isotonic, ssme in means), "the lasting error, in every draw of labels"
    assert all(ssme < isotonic + 0.15 for isotonic, ssme in pairs(figures["steady"])), "where nothing drifted"


def pairs(cells: list[float]) -> list[tuple[float, float]]:
    return list(zip(cells[::2], cells[1::2], strict=True))
