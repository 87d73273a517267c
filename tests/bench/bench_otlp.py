"""Metrics over OTLP in a real Prometheus 3, beside the scrape of the same agent; and what a post takes.

    python -m tests.bench.bench_otlp real --program PATH
    python -m tests.bench.bench_otlp cost

`real` starts the Prometheus at PATH (version 3: Debian's takes no OTLP), lets an agent post to it, and
compares each sample of the agent's own scrape with what Prometheus answers for the same name and labels.
"""

from __future__ import annotations

import json
import tempfile
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from prometheus_client.parser import text_string_to_metric_families

from monitor.config.otlp import Otlp
from monitor.export.prometheus.exposition import text
from monitor.export.push.otlp import OtlpPusher
from tests.daemon import DaemonProcess, configuration, ndjson
from tests.export.prometheus.scrape import crowd, exposed
from tests.harness import best, run
from tests.services.otlp_collector import OtlpCollector
from tests.services.process import wait_until
from tests.services.prometheus_server import PrometheusServer
from tests.streams import answers

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


class _TakesOtlp(PrometheusServer):
    """A Prometheus of version 3 that scrapes nothing."""

    def __init__(self, program: Path) -> None:
        super().__init__([], config='{"scrape_configs": []}')
        self._program = str(program)

    def _command(self) -> list[str]:
        return [*super()._command(), "--web.enable-otlp-receiver"]

    def series(self) -> Samples:
        """Return every series by name and labels, without those of the resource."""
        query = urllib.parse.urlencode({"query": '{__name__=~"blindsight_.+"}'})
        with urllib.request.urlopen(f"{self.url}/api/v1/query?{query}") as answer:
            series: list[dict[str, Any]] = json.load(answer)["data"]["result"]
        return {(one["metric"]["__name__"], _labels(one["metric"])): float(one["value"][1]) for one in series}


def _labels(metric: dict[str, str]) -> frozenset[tuple[str, str]]:
    """Return the labels as Prometheus 3 writes them: without empty ones, `le` as a float."""
    return frozenset(
        (key, str(float(value)) if key == "le" else value)
        for key, value in metric.items()
        if value and key not in ("__name__", "job", "instance")
    )


def _scraped(daemon: DaemonProcess) -> Samples:
    return {
        (sample.name, _labels(sample.labels)): sample.value
        for family in text_string_to_metric_families(daemon.metrics().text)
        for sample in family.samples
        if sample.name.startswith("blindsight_")
    }


def real(program: Path | None = None) -> Iterator[str]:
    """Yield samples of a scrape, and how many of them Prometheus has got by OTLP."""
    if program is None:
        yield "--program is missing: the path of a Prometheus of version 3"
        return
    with _TakesOtlp(program) as server, tempfile.TemporaryDirectory() as name:
        config = configuration(sources=[{"kind": "file", "path": "in.ndjson", "follow": True}])
        config["export"]["otlp"] = {"url": f"{server.url}/api/v1/otlp/v1/metrics", "interval_seconds": 1}
        stream = answers(np.random.default_rng(5), 730, labelled=True)
        Path(name, "in.ndjson").write_bytes(ndjson([*stream, b"not JSON"]))
        with DaemonProcess(Path(name), config) as daemon:
            daemon.until_value(7, "windows_closed_total", task="t", model="erm")
            closed = ("blindsight_windows_closed_total", frozenset({("task", "t"), ("model", "erm")}))
            wait_until(lambda: server.series().get(closed) == 7, "Prometheus has the last window")
            scraped, pushed = _scraped(daemon), server.series()
            both = scraped.keys() & pushed.keys()
            # Those of the sinks change with each post.
            steady = [key for key in both if not key[0].startswith("blindsight_sink")]
            same = sum(pushed[key] == scraped[key] for key in steady)
            yield f"samples of the scrape: {len(scraped):,}; by name and labels in Prometheus: {len(both):,}"
            yield f"series in Prometheus with another name or other labels: {len(pushed.keys() - both):,}"
            yield f"equal values: {same:,} of {len(steady):,} (without those of sinks)"


def cost(models: int = 500) -> Iterator[str]:
    """Yield milliseconds a post, beside a scrape's text."""
    view = crowd(models, groups=0)
    metrics = exposed(view, 1_000_000)
    with OtlpCollector() as collector:
        push = OtlpPusher(Otlp(url=collector.url), metrics, "host:9109")
        push.push(time.time())
        points = push.view.delivered
        collector.requests.clear()
        posted = best(lambda: push.push(time.time()), rounds=5)
        scraped = best(lambda: text(metrics), rounds=5)
    yield f"{models:,} models, {points:,} data points: a post {posted * 1e3:,.0f} ms with the collector's own"
    yield f"reading, a scrape's text {scraped * 1e3:,.0f} ms; {posted / scraped:.1f} times."


if __name__ == "__main__":
    run({"real": real, "cost": cost}, keep=False)
