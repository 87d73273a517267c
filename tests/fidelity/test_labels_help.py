"""The short form of `tests.fidelity.labels_help`: twelve streams, seeded; and what it printed in full."""

from __future__ import annotations

import re

from tests.fidelity.labels_help import lives, table, widening
from tests.harness import kept

STREAMS = 12


def test_labels_cost_a_stream_without_change_no_width() -> None:
    """Two standard errors of the mean over streams, and a tenth of a point for single suspicious streams."""
    wider, error = widening(lives(STREAMS, seed=7))
    assert wider <= 2 * error + 0.1


def test_the_kept_table_says_so_of_two_hundred_streams() -> None:
    found = re.search(
        r"^ +200 stable +[\d.]+ +[\d.]+ +([+-][\d.]+) ± ([\d.]+) +([\d.]+) ± ([\d.]+) +([\d.]+) ± ([\d.]+)$",
        kept(table),
        re.MULTILINE,
    )
    assert found is not None
    wider, error, plain, _, told, error_held = map(float, found.groups())
    assert wider <= 2 * error
    assert told >= min(plain, 95) - 2 * error_held


def test_the_kept_table_says_that_labels_find_a_jump() -> None:
    found = re.search(r"^ +50 jump .* ([\d.]+) ± [\d.]+ +([\d.]+) ± [\d.]+$", kept(table), re.MULTILINE)
    assert found is not None
    assert float(found[2]) > float(found[1])
