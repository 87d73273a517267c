"""The cap on exported series: whole models and groups are left out, counted and named."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry

from monitor.export.prometheus.collector import BlindsightCollector
from tests.export.prometheus.scrape import RICH, Samples, crowd, samples, samples_of, value


def whom(samples: Samples) -> dict[tuple[str | None, str | None], int]:
    """Count the samples of each model (and group)."""
    counted: dict[tuple[str | None, str | None], int] = {}
    for _, labels in samples:
        who = dict(labels)
        if "model" in who:
            key = (who["model"], who.get("group"))
            counted[key] = counted.get(key, 0) + 1
    return counted


@pytest.mark.parametrize("cap", [160, 240, 335, 500, 1000])
def test_the_cap_is_kept_and_whole_models_and_groups_are_cut(cap: int) -> None:
    everyone = whom(samples(crowd(5, 4)))
    scraped = samples(crowd(5, 4), cap)
    kept = whom(scraped)
    assert len(scraped) <= cap
    assert kept == {who: everyone[who] for who in kept}, "a series was cut in the middle"
    dropped = value(scraped, "blindsight_series_dropped_total")
    assert dropped == RICH.engine.series_dropped + len(everyone) - len(kept)


def test_models_are_kept_before_groups_and_the_first_before_the_last() -> None:
    kept = list(whom(samples(crowd(5, 4), 1200)))
    order = [(f"m{m}", None) for m in range(5)] + [
        (f"m{m}", f"region={g}") for m in range(5) for g in range(4)
    ]
    assert sorted(kept, key=order.index) == order[: len(kept)]
    assert 5 < len(kept) < 25


def test_nothing_is_cut_at_exactly_the_cap() -> None:
    everything = samples(crowd(3, 1))
    assert samples(crowd(3, 1), len(everything)) == everything
    assert len(whom(samples(crowd(3, 1), len(everything) - 1))) == 5


def test_the_count_of_dropped_series_never_falls() -> None:
    views = [crowd(5, 4), crowd(5, 1), crowd(7, 4)]
    now = [views[0]]
    registry = CollectorRegistry()
    registry.register(BlindsightCollector(lambda: now[0], 400))
    counts = []
    for view in views:
        now[0] = view
        counts.append(value(samples_of(registry), "blindsight_series_dropped_total"))
    assert counts[0] == counts[1]
    assert counts[2] is not None
    assert counts[2] > (counts[0] or 0)


def test_who_is_left_out_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    now = [crowd(5, 4)]
    registry = CollectorRegistry()
    registry.register(BlindsightCollector(lambda: now[0], 335))
    for _ in range(3):
        left_out = 25 - len(whom(samples_of(registry)))
    [line] = [record.getMessage() for record in caplog.records]
    assert line.startswith(
        "export.max_series: 335 series are too few for every model and group; left out of "
    )
    assert line.endswith(f" and {left_out - 5} more. Raise it, or watch fewer groups.")
    assert line.count("toxicity m") == 5
    now[0] = crowd(40, 4)
    samples_of(registry)
    assert len(caplog.records) == 2, "again once it has become twice as many"


def test_nothing_is_logged_while_nothing_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    samples(crowd(3, 1))
    assert caplog.records == []
