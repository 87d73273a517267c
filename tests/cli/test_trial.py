"""A trial of references: the forecast of `check` and the engine come from the same series."""

from __future__ import annotations

from pathlib import Path

from monitor.cli.check.check import check
from monitor.cli.trial import ReferenceTrial
from monitor.cli.tried import Tried
from tests.cli.test_tried import ROWS, config, good, write


def test_the_forecast_uses_the_spread_of_the_engine_s_series(tmp_path: Path) -> None:
    write(tmp_path / "reference.ndjson", good)
    settings = config(tmp_path, chart={"min_change": 0.02}, models={"erm": {}})

    trial = ReferenceTrial(settings)

    [series] = [one for one in trial.engine_settings().build().series["t"] if not one.settings.group]
    sds = {"t": {"erm": series.window_sds()}}
    windows = {"t": {"erm": ROWS // 100}}
    assert sds["t"]["erm"]["accuracy"] > 0
    assert trial.report == check(settings, windows, sds)
    rates = [chart.false_alarms_per_window for chart in trial.report.charts]
    bounds = [chart.false_alarms_per_window for chart in check(settings, windows).charts]
    assert all(rate < bound for rate, bound in zip(rates, bounds, strict=True))


def test_a_task_that_passed_earlier_gets_the_upper_bound(tmp_path: Path) -> None:
    write(tmp_path / "reference.ndjson", good)
    (tmp_path / "state").mkdir()
    settings = config(tmp_path, chart={"min_change": 0.02}, models={"erm": {}})
    tried = Tried(settings)
    first = ReferenceTrial(settings, tried)
    tried.save()
    second = ReferenceTrial(settings, Tried(settings))
    assert second.report == check(settings, {"t": {"erm": ROWS // 100}})
    assert first.report != second.report
