"""The short form of `tests.bench.fuzz_http`, and what it has found."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from connectors.http.messages import Answer
from tests.bench.fuzz_http import PATHS, into_handler, over_the_socket


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_no_body_gets_a_500_and_what_was_accepted_is_kept(tmp_path: Path, seed: int) -> None:
    tally = into_handler(tmp_path, bodies=800, seed=seed)
    assert {202, 400, 413, 415} <= tally.statuses.keys()
    assert tally.accepted[PATHS[0]] > 50


@pytest.mark.slow
def test_no_request_on_a_socket_gets_a_500_and_the_agent_stays_whole(tmp_path: Path) -> None:
    tally = over_the_socket(tmp_path, requests=150, seed=3)
    assert sum(tally.statuses.values()) == 150
    assert {202, 400, 405} <= tally.statuses.keys()


def test_a_fault_that_quotes_a_lone_surrogate_is_told_all_the_same() -> None:
    content = {"error": "None of the rows can be used", "errors": ({"message": "got '\ud800'"},)}
    body = Answer(400, content).body
    assert rb"\ud800" in body
    assert json.loads(body)["errors"][0]["message"] == "got '\ud800'"
