"""Warnings of `check` about features that only some faults can break."""

from __future__ import annotations

import pytest

from monitor.cli.check.features import untested_features
from tests.engine.test_covariates import flights
from tests.engine.test_features import watched
from tests.streams import reference_of

SAID = "tasks.t.features.{}, model erm: {}, so only {} break it"


@pytest.mark.parametrize(
    ("kind", "why", "what"),
    [
        ("number", "it rises or falls all along the reference", "missing values"),
        (
            "text",
            "most values of the reference's later half are not among those of its earlier half",
            "missing values and a constant",
        ),
    ],
)
def test_features_that_are_new_all_the_time_are_told(kind: str, why: str, what: str) -> None:
    settings = watched(features={"hour": "number", "carrier": "text", "order": kind})
    rows = [
        row | {"features": row["features"] | {"order": number}}
        for number, row in enumerate(flights(0, 1000, 0.3))
    ]
    known = {"t": reference_of(settings, rows)}
    assert list(untested_features({"t": settings}, known)) == [SAID.format("order", why, what)]
    assert list(untested_features({"t": settings}, {})) == []
    assert list(untested_features({"t": watched(features={})}, known)) == []
