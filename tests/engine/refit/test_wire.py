"""Refits as bytes: to the last bit there and back, and nothing else is believed."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import fields

from monitor import RankInterval
from monitor.base.codec import pack, restored, unpack
from monitor.base.results import Estimate, TooFew, Unknown
from monitor.engine.refit.fit import refit
from monitor.engine.refit.job import RefitJob
from monitor.engine.refit.wire import job_from_bytes, job_to_bytes, result_from_bytes, result_to_bytes
from monitor.reports.views import MetricEstimate
from monitor.reports.window_report import WrittenEstimate
from tests.engine.refit.jobs import job


def test_a_job_comes_back_to_the_last_bit() -> None:
    refit_job = job()
    refit_job.scores[3, 1] = np.nan
    back, memory_bytes = job_from_bytes(job_to_bytes(refit_job, 1e9))
    assert memory_bytes == 1e9
    for each in fields(RefitJob):
        left, right = getattr(refit_job, each.name), getattr(back, each.name)
        if isinstance(left, np.ndarray):
            assert left.dtype == right.dtype
            np.testing.assert_array_equal(left, right)
        else:
            assert left == right
            assert type(left) is type(right)


def test_a_result_comes_back_equal() -> None:
    done = refit(job(metrics=("accuracy", "auroc")))
    assert result_from_bytes(result_to_bytes(done)) == done


@pytest.mark.parametrize(
    "result",
    [
        Estimate(1 / 3, 0.1 + 0.2, 0.7, 0.95, 12),
        Estimate(0.0, 0.0, 0.0, 0.95, 1),
        Unknown("no labels yet"),
        TooFew("too few labels", 3),
    ],
)
def test_an_estimate_comes_back_equal(result: Estimate | Unknown) -> None:
    estimate = MetricEstimate("f1", "ssme", result)
    assert through_the_pipe(estimate) == estimate


@pytest.mark.parametrize("ranks", [(RankInterval(1, 3), None), (RankInterval(1, 3), RankInterval(2, 2))])
def test_its_ranks_come_with_it(ranks: tuple[RankInterval, RankInterval | None]) -> None:
    estimate = MetricEstimate("accuracy", "autoeval", Estimate(0.5, 0.4, 0.6, 0.95, 12), 0, *ranks)
    assert through_the_pipe(estimate) == estimate


def through_the_pipe(estimate: MetricEstimate) -> MetricEstimate:
    return restored(unpack(pack(WrittenEstimate.from_estimate(estimate))), WrittenEstimate).read()


@pytest.mark.parametrize("content", [b"", b"\xc1", b"\x80", b"hello", pack([1, 2]), pack({"job": {}})])
def test_other_bytes_are_no_job(content: bytes) -> None:
    with pytest.raises(ValueError, match=r"no job of a refit|a stored state cannot be read"):
        job_from_bytes(content)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"number": "7"}, r"Expected `int`, got `str` - at `\$.result.number`"),
        ({"more": 1}, "unknown field `more`"),
        ({"prevalence": [0.5, None]}, r"Expected `float`, got `null` - at `\$.result.prevalence\[1\]`"),
        ({"models": {"a": {"estimates": [{}], "calibration": None}}}, "missing required field `metric`"),
        (
            {"models": {"a": {"estimates": [{"metric": "f1", "estimator": "x"}], "calibration": None}}},
            "the estimate of f1 by x has neither value nor reason",
        ),
    ],
)
def test_a_result_of_another_form_is_refused_with_its_place(change: dict[str, object], message: str) -> None:
    plain = unpack(result_to_bytes(refit(job(rows=0))))["result"]
    with pytest.raises(ValueError, match=message):
        result_from_bytes(pack({"result": {**plain, **change}}))
