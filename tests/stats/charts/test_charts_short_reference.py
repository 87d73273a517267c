"""The sentences about short references, for every chart."""

from __future__ import annotations

import pytest

from monitor import CHARTS
from monitor.base.errors import ConfigError
from tests.stats.charts.test_charts_contract import KINDS, reference


@KINDS
@pytest.mark.parametrize("settings", [{}, {"sigmas": 3.0}])
def test_a_short_reference_is_a_sentence(kind: str, settings: dict[str, float]) -> None:
    for m in (0, 1, 4):
        with pytest.raises(ConfigError, match=f"reference: got {m} windows for a control chart"):
            CHARTS[kind](**settings).build(reference(m))
    if kind == "laney" and not settings:
        with pytest.raises(
            ConfigError, match=r"^arl0: got 370.*with 5 reference windows.*take more reference"
        ):
            CHARTS[kind]().build(reference(5))
        CHARTS[kind]().build(reference(8))
    else:
        CHARTS[kind](**settings).build(reference(5))


@pytest.mark.parametrize(("kind", "shift"), [("cusum", 0.5), ("cusum", 0.75), ("ewma", 0.5)])
def test_a_promise_that_so_short_a_reference_cannot_carry_is_a_sentence(kind: str, shift: float) -> None:
    with pytest.raises(ConfigError) as error:
        CHARTS[kind](arl0=50_000, shift=shift).build(reference(8))
    assert str(error.value).startswith(
        f"arl0: got 50000, but with 8 reference windows the {kind} chart reaches at most "
    )
    assert str(error.value).endswith(
        "windows, because so few windows tell centre and sigma too badly; lower arl0, take more reference "
        "windows, tune the chart to a larger shift, or give sigmas"
    )
