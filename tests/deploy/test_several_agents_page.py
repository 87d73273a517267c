"""The queries of docs/several-agents.md, asked of the real promtool."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.services.process import PATIENCE_SECONDS, ServiceUnavailable
from tests.services.prometheus_server import binary

PAGE = Path(__file__).parents[2] / "docs" / "several-agents.md"
SERIES = {
    # A model that went from `old` to `new`; the old owner goes on showing its last window.
    'blindsight_estimate_ratio{instance="old",task="t",model="m",metric="accuracy"}': "0.70+0x60",
    'blindsight_estimate_ratio{instance="new",task="t",model="m",metric="accuracy"}': "0.90+0x60",
    'blindsight_window_end_timestamp_seconds{instance="old",task="t",model="m"}': "1000+0x60",
    'blindsight_window_end_timestamp_seconds{instance="new",task="t",model="m"}': "2000+60x60",
    'blindsight_predictions_total{instance="old",task="t",model="m"}': "500+0x60",
    'blindsight_predictions_total{instance="new",task="t",model="m"}': "0+600x60",
    'blindsight_source_lag_records{instance="old",source="kafka"}': "3+0x60",
    'blindsight_source_lag_records{instance="new",source="kafka"}': "4+0x60",
    'blindsight_source_overlap_records_total{instance="old",source="kafka"}': "20+0x60",
    'blindsight_source_overlap_records_total{instance="new",source="kafka"}': "0+0x60",
    'up{job="blindsight",instance="old"}': "0+0x60",
    'up{job="blindsight",instance="new"}': "1+0x60",
}
EXPECTED = {
    "a model's estimate": [
        ('blindsight_estimate_ratio{instance="new",task="t",model="m",metric="accuracy"}', 0.9)
    ],
    "how many answers": [('{task="t",model="m"}', 10)],
    "what waits": [("{}", 7)],
    "what may have been used twice": [("{}", 20)],
    "whether all agents run": [("{}", 1)],
}


def queries() -> dict[str, str]:
    """Return the query of each row of the table, by the row's text."""
    table = PAGE.read_text(encoding="utf-8").partition("| to see | ask for |")[2].partition("\n\n")[0]
    return dict(re.findall(r"^\| (.+?) \| `(.+)` \|$", table, re.MULTILINE))


@pytest.mark.prometheus
def test_each_query_says_what_its_row_says(tmp_path: Path) -> None:
    try:
        promtool = binary("promtool")
    except ServiceUnavailable as missing:
        pytest.skip(str(missing))
    by_row = queries()
    assert len(by_row) == len(EXPECTED)
    expressions = []
    for begins, samples in EXPECTED.items():
        (query,) = [query for row, query in by_row.items() if row.startswith(begins)]
        exp = [{"labels": labels, "value": value} for labels, value in samples]
        expressions.append({"expr": query, "eval_time": "30m", "exp_samples": exp})
    series = [{"series": name, "values": values} for name, values in SERIES.items()]
    tests = [{"interval": "1m", "input_series": series, "promql_expr_test": expressions}]
    path = tmp_path / "queries.yaml"
    path.write_text(yaml.safe_dump({"rule_files": [], "evaluation_interval": "1m", "tests": tests}))
    done = subprocess.run(
        [promtool, "test", "rules", str(path)],
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
