"""The classes of a model on its page: the expected confusion matrix, and the metrics of each class."""

from __future__ import annotations

import dataclasses
from typing import Any

from monitor.base.results import Estimate, Reason, Unknown
from monitor.export.page.classes import classes
from monitor.reports.views import ClassEstimate, ConfusionView, SeriesState, SeriesView
from tests.export.page.page_reading import reading
from tests.export.page.test_page import MODEL


def estimate(value: float, lower: float, upper: float, n: int) -> Estimate:
    return Estimate(value, lower, upper, 0.95, n)


NEVER = Unknown(Reason.NONE_PREDICTED)
TWO = ConfusionView(
    ("ok", "toxic"),
    (
        (estimate(0.9, 0.85, 0.95, 80), estimate(0.3, 0.1, 0.5, 20)),
        (estimate(0.1, 0.05, 0.15, 80), estimate(0.7, 0.5, 0.9, 20)),
    ),
)


def text_of(confusion: ConfusionView | None, **more: Any) -> str:
    one: SeriesView = dataclasses.replace(MODEL, confusion=confusion, windows_closed=18, **more)
    return reading(f"<html>{classes(one)}</html>").text


def test_the_matrix_counts_answers_by_true_and_predicted_class() -> None:
    text = text_of(TWO)
    assert "Expected confusion matrix of window 17" in text
    assert "|True class|predicted ok|predicted toxic|All" in text
    assert "|ok|72 (68 to 76)|6 (2 to 10)|78" in text
    assert "|toxic|8 (4 to 12)|14 (10 to 18)|22" in text
    assert "|All|80|20|100" in text


def test_each_class_has_its_metrics_and_its_shares() -> None:
    text = text_of(TWO)
    recall, f1 = 100 * 14 / 22, 100 * 28 / 42
    assert f"|toxic|70.0 % (50.0 to 90.0)|{recall:.1f} %|{f1:.1f} %|20.0 %|22.0 %" in text
    own = ClassEstimate("recall", "average_confidence", "toxic", estimate(0.6364, 0.5, 0.8, 100))
    assert "|63.6 % (50.0 to 80.0)|" in text_of(TWO, classes=(own,))


def test_a_class_that_was_never_predicted_has_no_precision() -> None:
    shares = (estimate(0.9, 0.85, 0.95, 80), NEVER), (estimate(0.1, 0.05, 0.15, 80), NEVER)
    text = text_of(ConfusionView(("ok", "toxic"), shares))
    assert "|toxic|8 (4 to 12)|0|8" in text
    assert "|toxic|unknown|0.0 %|0.0 %|0.0 %|10.0 %" in text


def test_an_untrusted_model_has_a_warning() -> None:
    assert "These figures are not meaningful until labels agree again." in text_of(
        TWO, state=SeriesState.UNTRUSTED
    )
    assert "not meaningful" not in text_of(TWO)


def test_nothing_is_shown_without_a_matrix() -> None:
    assert text_of(None) == ""
