"""The two texts: byte for byte those of prometheus_client, whatever is registered."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, Summary
from prometheus_client.core import Exemplar, Metric, Timestamp
from prometheus_client.exposition import generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.registry import Collector

from monitor.export.prometheus.collector import registry
from monitor.export.prometheus.exposition import openmetrics, text
from monitor.export.prometheus.families import importance
from monitor.reports.views import AgentView
from monitor.stats.histograms import ConfidenceHistogram, Distributions
from tests.export.prometheus.scrape import GROUP, RICH, WATCHED, crowd, exposed


class Given(Collector):
    def __init__(self, *metrics: Metric) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        return iter(self._metrics)


def registered(*metrics: Metric) -> CollectorRegistry:
    registry = CollectorRegistry()
    registry.register(Given(*metrics))
    return registry


def same(registry: CollectorRegistry) -> bytes:
    assert text(registry) == generate_latest(registry)
    assert openmetrics(registry) == generate_openmetrics(registry)
    return text(registry)


@pytest.mark.parametrize("view", [RICH, AgentView(), crowd(3, 2)], ids=["rich", "empty", "crowd"])
def test_every_family_of_ours_is_the_clients_text(view: AgentView) -> None:
    same(exposed(view))


@pytest.mark.slow
def test_a_later_scrape_is_the_clients_text_too_whatever_has_changed_since() -> None:
    """The text of a series is kept for as long as its view is the same object."""
    views = [crowd(4, 2)]
    collectors = registry(lambda: views[-1], 10_000)
    same_but_process(collectors)
    one, two, *rest = views[-1].engine.series
    changed = replace(two, pending=two.pending + 1, version="another", coverage=None)
    spread = replace(changed, distributions=Distributions(ConfidenceHistogram().plus(np.array([0.2, 0.9]))))
    for series in ((one, changed, *rest), (spread, *rest), (one, two, *rest)):
        views.append(replace(views[0], engine=replace(views[0].engine, series=series)))
        same_but_process(collectors)
    assert len({text(registry(lambda view=view: view, 10_000)) for view in views[1:]}) == 3


def test_a_percent_sign_is_no_place_for_a_number() -> None:
    """Lines that models share are a template, whose places are written so."""
    [of_class, *_], odd = WATCHED.classes, "50%s %% %(x)d"
    watched = replace(WATCHED, task=odd, classes=(replace(of_class, of_class=odd),), version=odd)
    series = replace(watched, model="m"), replace(watched, model=odd), replace(GROUP, group=odd)
    written = same(exposed(replace(RICH, engine=replace(RICH.engine, series=series))))
    labels = f'class="{odd}",estimator="average_confidence",metric="recall",model="{odd}",task="{odd}"'
    assert labels.encode() in written


def same_but_process(registry: CollectorRegistry) -> None:
    def ours(written: bytes) -> list[bytes]:
        return [
            line for line in written.split(b"\n") if b" process_" not in line[:20] and line[:8] != b"process_"
        ]

    assert ours(text(registry)) == ours(generate_latest(registry)) == ours(text(registry))
    assert ours(openmetrics(registry)) == ours(generate_openmetrics(registry))


def test_the_rich_view_has_every_escape() -> None:
    assert rb'model="a \"b\" \\ c\nd ' + "é".encode() in same(exposed(RICH))


@given(
    labels=st.dictionaries(st.sampled_from(["b", "a", "le", "_x", "A"]), st.text()),
    value=st.one_of(st.floats(), st.integers(-(2**60), 2**60)),
    described=st.text(),
)
def test_any_label_value_number_and_help(labels: dict[str, str], value: float, described: str) -> None:
    metric = Metric("m", described, "gauge", "")
    metric.add_sample("m", labels, value)
    metric.add_sample("m", dict(labels), -0.0)
    same(registered(metric))


@pytest.mark.parametrize("kind", ["counter", "gauge", "info", "histogram", "unknown", "summary", "stateset"])
def test_every_kind_with_a_unit_and_without(kind: str) -> None:
    for unit in ("", "seconds"):
        metric = Metric("m", 'back \\ slash\nand "quotes"', kind, unit)
        metric.add_sample(metric.name, {"b": "2", "a": "1"}, 1e21)
        assert b'{a="1",b="2"} 1e+21' in same(registered(metric))


def test_what_is_not_plain_is_still_the_clients_text() -> None:
    dated, shown = Metric("dated", "", "gauge"), Metric("shown", "", "counter")
    dated.add_sample("dated", {}, 1.0, timestamp=Timestamp(1795000000, 5))
    shown.add_sample("shown_total", {"a": "b"}, 2.0, exemplar=Exemplar({"trace": "x"}, 0.5))
    shown.add_sample("shown_created", {"a": "b"}, 3.0)
    odd = Metric("odd", "", "gauge")
    odd.add_sample("odd.name", {"la.bel": "v"}, 4.0)
    registry = registered(dated, shown, odd)
    assert b"dated 1.0 1795000000000" in same(registry)
    assert b'# {trace="x"} 0.5' in openmetrics(registry)


def test_a_timestamp_of_zero_is_one() -> None:
    metric = Metric("m", "", "gauge")
    metric.add_sample("m", {}, 1.0, timestamp=0)
    assert same(registered(metric)).endswith(b"m 1.0 0\n")


def test_the_clients_own_instruments() -> None:
    registry = CollectorRegistry()
    Counter("c", "h", ["a"], registry=registry).labels(a='"').inc()
    Gauge("g", "h", registry=registry).set(float("nan"))
    Histogram("h", "h", registry=registry).observe(2.0)
    Summary("s", "h", registry=registry).observe(2.0)
    Info("i", "h", registry=registry).info({"v": "1\n2"})
    assert b"# TYPE c_created gauge" in same(registry)


def test_labels_made_for_one_sample_and_dropped_are_not_mistaken_for_the_next() -> None:
    class Fleeting(Collector):
        def collect(self) -> Iterable[Metric]:
            for number in range(200):
                metric = Metric(f"m{number}", "", "gauge")
                metric.add_sample(metric.name, {"n": str(number)}, 1.0)
                yield metric
                metric.samples.clear()

    registry = CollectorRegistry()
    registry.register(Fleeting())
    lines = same(registry).decode().splitlines()
    assert [line for line in lines if line[0] != "#"] == [f'm{n}{{n="{n}"}} 1.0' for n in range(200)]


def families(body: bytes) -> list[str]:
    return [line.split()[2].decode() for line in body.splitlines() if line.startswith(b"# TYPE ")]


@pytest.mark.parametrize("render", [text, openmetrics])
def test_no_more_bytes_than_allowed_and_what_stays_is_unchanged(render: Callable[..., bytes]) -> None:
    registry = exposed(crowd(5, 4))
    everything = render(registry)
    assert render(registry, len(everything)) == everything
    lines = set(everything.splitlines())
    before = families(everything)
    for most in range(len(everything) - 1, 20_000, -len(everything) // 12):
        body = render(registry, most)
        assert len(body) <= most
        assert body.endswith(b"# EOF\n") == (render is openmetrics)
        left_out = f"blindsight_families_left_out {len(before) - len(families(body))}.0".encode()
        assert set(body.splitlines()) - lines == {left_out}
        kept = families(body)
        assert kept == [name for name in before if name in kept], "in the order of the whole"


def test_groups_go_first_then_models_and_the_estimates_and_the_agent_stay() -> None:
    registry = exposed(crowd(5, 4))
    everything = families(openmetrics(registry))
    left_out: list[str] = []
    for most in range(len(openmetrics(registry)), 20_000, -8000):
        now = set(everything) - set(families(openmetrics(registry, most)))
        left_out += sorted(now - set(left_out), key=importance, reverse=True)
    assert left_out == sorted(left_out, key=importance, reverse=True), "always in the same order"
    groups = [name for name in everything if name.startswith("blindsight_group_")]
    assert set(left_out[: len(groups)]) == set(groups)
    assert len(left_out) > len(groups) + 20, "models too"
    kept = set(everything) - set(left_out)
    assert {"blindsight_estimate_ratio", "blindsight_source_up", "blindsight_rejected"} <= kept
