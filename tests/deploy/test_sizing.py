"""The needs of an agent: the command that measures them, in short, and the pages that quote its output."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from deploy.helm import render
from tests.bench.bench_sizing import line, measure, table
from tests.harness import kept

ROOT = Path(__file__).parents[2]
MIB = 2**20


@pytest.mark.process
def test_a_short_run_measures_a_daemon_at_work() -> None:
    need = measure(models=2, rate=200, seconds=1.0, fill=4000)
    assert 0.0 < need.cores < 5.0
    assert need.resident > 50e6
    assert need.store > 10_000
    assert need.scrape > 5_000
    assert line(need).split()[:2] == ["2", "200"]


def test_the_page_quotes_the_kept_output_and_the_chart_stays_above_it() -> None:
    text = kept(table)
    assert text.strip() in (ROOT / "docs" / "scale.md").read_text(encoding="utf-8")
    [row] = [line.split() for line in text.splitlines() if line.split()[:2] == ["10", "1,000"]]
    cores, resident, store = float(row[2]), float(row[3]) * 1e6, float(row[4]) * 1e6
    objects = render.rendered(render.values(render.EXAMPLES / "standalone-values.yaml"))
    [workload] = [each for each in objects if each["kind"] == "StatefulSet"]
    resources = workload["spec"]["template"]["spec"]["containers"][0]["resources"]
    assert int(re.sub(r"m$", "", resources["requests"]["cpu"])) / 1000 >= 2 * cores
    assert resources["requests"]["memory"] == "512Mi"
    assert resources["limits"] == {"memory": "1Gi"}
    assert 1.5 * resident <= 512 * MIB
    [claim] = workload["spec"]["volumeClaimTemplates"]
    # Beside the store as it was: 100,000 lines of 2 kB, and rejects with their file before.
    assert claim["spec"]["resources"]["requests"]["storage"] == "2Gi"
    assert store + 200e6 + 200e6 < 2048 * MIB
