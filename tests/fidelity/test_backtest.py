"""The kept table of backtests: drops of the flights' accuracy are detected as `measured.md` says."""

from __future__ import annotations

import doctest
import re

from tests.fidelity.backtest import INCIDENT, flights, incident, mixed, quiet
from tests.harness import ROOT, kept
from tests.recipes.page import blocks

WAYS = [("knows", "no labels"), ("knows", "5 % labels"), ("does not know", "5 % labels")]
_WAY = re.compile(r"^model (knows|does not know), (.*?): (\d+) of (\d+) within 2 windows", re.MULTILINE)


def soon(text: str) -> dict[tuple[str, str], float]:
    """Return the share of drops detected within two windows, by what the model and the agent know."""
    return {(knows, labels): int(detected) / int(of) for knows, labels, detected, of in _WAY.findall(text)}


def labels_beside_the_ideal(text: str) -> float:
    (ratio,) = re.findall(r"^model does not know.*: (\d+\.\d+)$", text, re.MULTILINE)
    return float(ratio)


def test_the_kept_drops_that_the_model_knows_are_detected_soon_and_the_others_with_few_labels() -> None:
    text = kept(flights, "flights")
    shares = soon(text)
    assert list(shares) == WAYS
    assert shares["knows", "no labels"] >= 0.8
    assert shares["knows", "5 % labels"] >= 0.5
    assert 1 <= labels_beside_the_ideal(text) <= 1.75
    within = [int(share) for share in re.findall(r"show the drop within 2 windows in (\d+) %", text)]
    assert len(within) == 4
    assert max(within) <= 10, "the flights' own movement hides a drop from the best limits"


def test_the_kept_drops_of_flights_in_random_order_are_all_detected_soon_by_the_chart_of_the_accuracy() -> (
    None
):
    text = kept(mixed, "mixed")
    shares = soon(text)
    assert list(shares) == WAYS
    assert shares["knows", "no labels"] >= 0.95
    assert shares["knows", "5 % labels"] >= 0.8
    (first,) = re.findall(
        r"^model knows, no labels: (\d+) of .*; first: chart of accuracy \1", text, re.MULTILINE
    )
    assert int(first) == 38
    assert 2 <= labels_beside_the_ideal(text) <= 3


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
