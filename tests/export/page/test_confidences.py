"""A model's confidences on the page: the table, the picture of the curve, and the omissions."""

from __future__ import annotations

import dataclasses
import re

import numpy as np
import pytest

from monitor.export.page import render_page
from monitor.reports.views import SeriesView
from monitor.stats.histograms import CalibrationCurve, ConfidenceHistogram, Distributions
from tests.export.page.test_page import MODEL, of, read

SPREAD = ConfidenceHistogram((0, 0, 0, 100, 0, 0, 400, 500, 0, 8000), 8500.0)
CURVE = CalibrationCurve(
    (0, 0, 0, 10, 0, 0, 40, 0, 0, 500),
    (0, 0, 0, 5, 0, 0, 30, 0, 0, 499),
    (0.0, 0.0, 0.0, 5.5, 0.0, 0.0, 34.0, 0.0, 0.0, 499.5),
)


def model(*, spread: ConfidenceHistogram = SPREAD, current: CalibrationCurve = CURVE) -> SeriesView:
    return dataclasses.replace(MODEL, distributions=Distributions(spread, CURVE, current))


def test_each_bin_is_a_row_with_its_answers_and_its_labels() -> None:
    text = read(of(model())).text
    assert "\nConfidences of erm: 9,000 answers, 550 labelled" in text
    assert "|50 to 60 %|100| 1.1 %|10|55.0 %|50.0 % (23.7 to 76.3)" in text
    assert "|80 to 90 %|400| 4.4 %|40|85.0 %|75.0 % (59.8 to 85.8)" in text  # Wilson's interval
    assert "|90 to 95 %|500| 5.6 %|||" in text, "no labels there"
    assert text.count("0.0 %|||") >= 5
    assert "the model is overconfident" in text


def test_the_picture_has_a_point_a_bin_and_says_so_in_words() -> None:
    page = render_page(of(model()))
    [picture] = re.findall(r'<svg class="curve".*?</svg>', page)
    circles = re.findall(r'<circle cx="([\d.]+)" cy="([\d.]+)"', picture)
    assert len(circles) == 3
    # From 20 % (below the lowest end of an interval) to 100 %, on a square of 220 pixels at (44, 12).
    expected = [(44 + 220 * (x - 0.2) / 0.8, 12 + 220 * (1 - y) / 0.8) for x, y in POINTS]
    assert np.allclose(np.array(circles, dtype=float), expected, atol=0.06)
    words = "Calibration curve of erm: confidence 55.0 %, right 50.0 %; confidence 85.0 %, right 75.0 %; "
    assert f'role="img" aria-label="{words}confidence 99.9 %, right 99.8 %"' in picture


POINTS = [(0.55, 0.5), (0.85, 0.75), (0.999, 0.998)]


def test_no_point_lies_outside_of_the_picture() -> None:
    worst = CalibrationCurve((3, *[0] * 9), (0,) * 10, (0.0,) * 10)
    best = CalibrationCurve((*[0] * 9, 4000), (*[0] * 9, 4000), (*[0.0] * 9, 4000.0))
    for curve in (worst, best):
        [picture] = re.findall(r'<svg class="curve".*?</svg>', render_page(of(model(current=curve))))
        circles = re.findall(r'cx="([\d.-]+)" cy="([\d.-]+)"', picture)
        whiskers = re.findall(r'd="M([\d.-]+) ([\d.-]+)V([\d.-]+)"', picture)
        numbers = [(float(x), float(y)) for x, *ys in circles + whiskers for y in ys]
        assert len(numbers) == 3
        assert all(44 <= x <= 264 and 12 <= y <= 232 for x, y in numbers)


def test_a_calibration_without_labels_yet_says_that_there_were_some_before() -> None:
    fresh = model(current=CalibrationCurve())
    text = read(of(fresh)).text
    assert "Confidences of erm: 9,000 answersConfidences" in text, "and then the table"
    assert "No answer with the present calibration has a label yet (550 of an earlier" in text
    assert '<svg class="curve"' not in render_page(of(fresh))


@pytest.mark.parametrize("one", [MODEL, model(spread=ConfidenceHistogram())])
def test_nothing_is_shown_of_groups_and_before_the_first_window(one: SeriesView) -> None:
    assert "Confidences of" not in read(of(one)).text


def beside(newest: ConfidenceHistogram, reference: CalibrationCurve, current: CalibrationCurve) -> SeriesView:
    spread = Distributions(SPREAD, CURVE, current, newest, reference)
    return dataclasses.replace(MODEL, distributions=spread)


REFERENCE = CalibrationCurve(
    (0, 0, 0, 0, 100, 0, 0, 0, 0, 300),
    (0, 0, 0, 0, 60, 0, 0, 0, 0, 297),
    (0.0, 0.0, 0.0, 0.0, 65.0, 0.0, 0.0, 0.0, 0.0, 298.5),
)


def test_the_points_of_the_reference_are_hollow_beside_those_of_the_labels() -> None:
    newest = ConfidenceHistogram((0, 0, 0, 25, 0, 0, 0, 0, 0, 75), 90.0)
    page = render_page(of(beside(newest, REFERENCE, CURVE)))
    curve, spread = re.findall(r'<svg class="curve".*?</svg>', page)
    assert curve.count('fill="#0072b2"') == 3
    assert curve.count('fill="#ffffff"') == 2
    assert "; reference: confidence 65.0 %, right 60.0 %; confidence 99.5 %, right 99.0 %" in curve
    assert "100 rows of the reference" in curve
    assert "from 50 %: 25.0 %, reference 0.0 %" in spread
    assert "from 99 %: 75.0 %, reference 75.0 %" in spread
    filled = [float(height) for height in re.findall(r'v-([\d.]+)h14v[\d.]+" fill="#0072b2"', spread)]
    hollow = [float(height) for height in re.findall(r'v-([\d.]+)h14v[\d.]+" fill="none"', spread)]
    assert filled == [0, 0, 0, 40, 0, 0, 0, 0, 0, 120]
    assert hollow == [0, 0, 0, 0, 40, 0, 0, 0, 0, 120]
    assert "fits on its other rows, 400 rows." in read(of(beside(newest, REFERENCE, CURVE))).text


def test_without_labels_the_curve_is_that_of_the_reference_and_without_a_window_it_has_no_neighbour() -> None:
    page = render_page(of(beside(ConfidenceHistogram(), REFERENCE, CalibrationCurve())))
    [curve] = re.findall(r'<svg class="curve".*?</svg>', page)
    assert curve.count("<circle") == 2
    assert "Calibration curve of erm: reference: confidence 65.0 %" in curve


def test_names_cannot_break_out() -> None:
    evil = dataclasses.replace(model(), model='"><script>x</script>')
    page = render_page(of(evil))
    assert "<script>x" not in page
    assert read(of(evil)).text.count("Confidences of ") >= 1


def test_the_accuracy_that_labels_correct_comes_first_and_beside_it_the_one_at_the_close() -> None:
    [first, second] = MODEL.estimates
    corrected = dataclasses.replace(
        first,
        estimator="corrected",
        result=dataclasses.replace(first.result, value=0.871, lower=0.85, upper=0.89),
        labels=1310,
    )
    text = read(of(dataclasses.replace(MODEL, estimates=(first, corrected, second)))).text
    assert "corrected: 87.1 % (85.0 to 89.0) by 1,310 labels\nrealised:" in text
    revised = dataclasses.replace(corrected, at_close=first.result)
    text = read(of(dataclasses.replace(MODEL, estimates=(first, revised, second)))).text
    assert "by 1,310 labels; at the close 91.3 % (88.8 to 93.6)\nrealised:" in text
