"""A real Prometheus scrapes the running agent, and answers a query with what the reports file says."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from tests.daemon import DaemonProcess, configuration, ndjson, read_windows
from tests.services.prometheus_server import PrometheusServer
from tests.streams import answers

Prometheus = Callable[[Sequence[str]], PrometheusServer]
ACCURACY = 'task="t",model="erm",metric="accuracy"'


def test_prometheus_scrapes_the_estimate_that_is_in_the_reports_file(
    tmp_path: Path, prometheus: Prometheus
) -> None:
    config = configuration(
        sources=[{"kind": "file", "path": "in.ndjson", "follow": True}],
        reports={"path": "windows.ndjson"},
        # A first calibration from these labels would begin the chart anew, between the report and the query.
        task={"objective": {"accuracy": {"min": 0.5}}, "calibration": {"refit_labels": None}},
    )
    stream = answers(np.random.default_rng(5), 730, labelled=True)
    (tmp_path / "in.ndjson").write_bytes(ndjson([*stream[:630], b"not JSON"]))
    with DaemonProcess(tmp_path, config) as daemon:
        server = prometheus([f"127.0.0.1:{daemon.port}"])
        series = server.wait_for('blindsight_windows_closed_total{task="t",model="erm"} == 6')
        assert series[0]["metric"]["job"] == "blindsight"
        written = read_windows(tmp_path / "windows.ndjson")[-1]
        assert written["window"] == 5
        for estimate in written["estimates"]:
            assert_shown(server, estimate)
        limits = written["charts"][0]
        for line in ("center", "lower", "upper"):
            assert value(server, f"blindsight_control_{line}_ratio{{{ACCURACY}}}") == pytest.approx(
                limits[line], abs=5e-7
            )
        assert accounted(server)
        assert value(server, 'blindsight_rejected_total{source="in.ndjson",reason="malformed"}') == 1

        with (tmp_path / "in.ndjson").open("ab") as more:
            more.write(ndjson(stream[630:]))
        server.wait_for('blindsight_windows_closed_total{task="t",model="erm"} == 7')
        assert_shown(server, read_windows(tmp_path / "windows.ndjson")[-1]["estimates"][0])
        assert value(server, 'up{job="blindsight"}') == 1


def assert_shown(server: PrometheusServer, written: dict[str, object]) -> None:
    """Check that Prometheus answers an estimate of the reports file, with its interval."""
    which = f'{{{ACCURACY},estimator="{written["estimator"]}"}}'
    for name, key in (("estimate", "value"), ("estimate_lower", "lower"), ("estimate_upper", "upper")):
        assert value(server, f"blindsight_{name}_ratio{which}") == pytest.approx(written[key], abs=5e-7)


def value(server: PrometheusServer, expression: str) -> float:
    (series,) = server.query(expression)
    return float(series["value"][1])


def accounted(server: PrometheusServer) -> bool:
    """Return whether the accounting identities hold, queried as an operator would."""
    answers = (
        "sum(blindsight_answers_received_total) == sum(blindsight_predictions_total)"
        " + sum(blindsight_answers_pending) + sum(blindsight_duplicates_total)"
        " + sum(blindsight_rejected_total) + sum(blindsight_shed_total)"
    )
    labels = (
        "sum(blindsight_labels_received_total) == sum(blindsight_labels_total)"
        " + sum(blindsight_labels_waiting)"
    )
    return bool(server.query(answers)) and bool(server.query(labels))
