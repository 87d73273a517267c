"""The kept table of backtests: drops of the flights' accuracy are detected as `measured.md` says."""

from __future__ import annotations

import doctest
import re

from tests.fidelity.backtest import INCIDENT, flights, incident, quiet
from tests.harness import ROOT, kept
from tests.recipes.page import blocks


def test_the_kept_drops_that_the_model_knows_are_detected_soon_and_the_others_with_few_labels() -> None:
    text = kept(flights, "flights")
    soon = {
        (known, labels): int(detected) / int(of)
        for known, labels, detected, of in re.findall(
            r"^model (knows|does not know), (.*?): (\d+) of (\d+) within 2 windows", text, re.MULTILINE
        )
    }
    assert soon.keys() == {("knows", "no labels"), ("knows", "5 % labels"), ("does not know", "5 % labels")}
    assert soon["knows", "no labels"] >= 0.8
    assert soon["knows", "5 % labels"] >= 0.5
    (ratio,) = re.findall(r"^model does not know.*: (\d+\.\d+)$", text, re.MULTILINE)
    assert 1 <= float(ratio) <= 1.75


def test_the_kept_signals_of_streams_without_a_change_are_as_many_as_check_predicts() -> None:
    text = kept(quiet, "quiet")
    ratios = re.findall(r"^ARL0 (\d+), .*: ([\d.]+) ± ([\d.]+)$", text, re.MULTILINE)
    assert [int(arl0) for arl0, _, _ in ratios] == [100, 370]
    for arl0, ratio, error in ratios:
        assert 1 / 1.5 <= float(ratio) <= 1.5, arl0
        assert float(error) < 0.2, arl0


def test_the_page_shows_the_kept_output_for_the_incident_of_the_demo() -> None:
    page = ROOT / "docs" / "reading-the-chart.md"
    (shown,) = (block.text for block in blocks(page) if block.text.startswith("$ blindsight"))
    command, _, output = shown.partition("\n")
    assert command.endswith(f"--incident {' '.join(INCIDENT)}")
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    assert doctest.OutputChecker().check_output(output, kept(incident, "incident"), flags)
