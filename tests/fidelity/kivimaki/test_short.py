"""The short form of `python -m tests.fidelity.kivimaki`: less data, seeded; and what it printed in full."""

from __future__ import annotations

import re
import sys
from functools import cache
from math import exp, pi, sqrt

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import expit

from monitor import ATC, CALIBRATORS, DoCFeat, confidence_of, labelled_calibration_error
from monitor.base.errors import MissingExtraError
from monitor.base.results import Estimate
from tests.fidelity.kivimaki import __main__ as command
from tests.fidelity.kivimaki import tables
from tests.fidelity.kivimaki.classifiers import CLASSIFIERS
from tests.fidelity.kivimaki.data import CIRCLE, HARD, LINEAR, SCENARIOS, SHIFTS, Scenario
from tests.fidelity.kivimaki.exact import best, folded_normal
from tests.fidelity.kivimaki.measure import Line, Sizes, Study, _cells, correlations, judged, lines
from tests.fidelity.kivimaki.notes import needed_share
from tests.fidelity.kivimaki.printed import CELLS, CORRELATIONS, ESTIMATORS, MEANS, MODELS, POSITIVES
from tests.harness import kept, run

SHORT = Sizes(train=5000, other=6000, trials=200)


@cache
def study(scenario: Scenario) -> Study:
    return Study.draw(scenario, SHORT, 1)


@cache
def measured(scenario: Scenario, model: str) -> list[Line]:
    return list(lines(study(scenario), judged(study(scenario), model, 1)))


@pytest.mark.parametrize("shift", SHIFTS)
def test_the_plane_s_integral_is_the_line_s(shift: int) -> None:
    """Across the line y = x the modes are normal around 2√2 and √2: one integral, by quadrature."""

    def within(mean: float) -> float:
        def inside(d: float) -> float:
            chance = expit(sqrt(2) * abs(d))
            return float(chance * exp(-0.5 * (d - mean) ** 2) / sqrt(2 * pi))

        return float(quad(inside, -10, 0)[0] + quad(inside, 0, 14)[0])

    share = HARD[shift]
    accuracy = (1 - share) * within(2 * sqrt(2)) + share * within(sqrt(2))
    assert tables.exact_figures()["linear"][shift].accuracy == pytest.approx(accuracy, abs=1e-5)
    assert tables.exact_figures()["linear"][shift].positives == pytest.approx(0.5, abs=1e-6)


def test_the_exact_figures_are_those_that_the_paper_s_formulas_give() -> None:
    """A radius of √5 would leave the share of positives where it is; one of 5 raises it as Table 8 does."""
    assert [round(100 * b.accuracy, 1) for b in tables.exact_figures()["linear"]] == [93.6, 91.1, 89.9, 88.7]
    positives = np.array([100 * b.positives for b in tables.exact_figures()["circle"]])
    assert round(positives[0], 1) == 18.9
    assert np.abs(positives - POSITIVES).max() < 1.05
    as_printed = [100 * b.positives for b in best(tables.CIRCLE_AS_PRINTED)]
    assert np.abs(np.array(as_printed) - POSITIVES).min() > 6
    assert needed_share(tables.exact_figures()["linear"], 91.7) == pytest.approx(0.353, abs=0.01)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda s: s.name)
def test_rows_drawn_agree_with_the_integrals(scenario: Scenario) -> None:
    """100,000 rows a shift; four binomial errors for accuracy and positives, drawn as labels."""
    rng, rows = np.random.default_rng(3), 100_000
    for shift, of in zip(SHIFTS, tables.exact_figures()[scenario.name], strict=True):
        sample = scenario.draw(rng, rows, shift)
        decision = sample.chance > 0.5
        for share, true in (
            (float((decision == sample.label).mean()), of.accuracy),
            (float(sample.label.mean()), of.positives),
        ):
            assert abs(share - true) <= 4 * sqrt(true * (1 - true) / rows)


def test_the_chance_calibration_error_is_what_calibrated_rows_show() -> None:
    """Twenty sets of 25,000 rows: their mean lies within four of its own errors of the exact figure."""
    rng = np.random.default_rng(4)
    errors = []
    for _ in range(20):
        sample = CIRCLE.draw(rng, 25_000, 0)
        confidence = np.maximum(sample.chance, 1 - sample.chance)
        plain = labelled_calibration_error(confidence, (sample.chance > 0.5) == sample.label).plain.result
        assert isinstance(plain, Estimate)
        errors.append(plain.value)
    error = float(np.std(errors, ddof=1)) / sqrt(len(errors))
    assert abs(np.mean(errors) - tables.exact_figures()["circle"][0].sampling_error) <= 4 * error


@pytest.mark.parametrize(
    ("scenario", "model"),
    [(s, m) for s in SCENARIOS for m in MODELS if m != "RF" and (s, m) != (LINEAR, "SVM")],  # these take long
    ids=lambda each: each if isinstance(each, str) else each.name,
)
def test_every_cell_is_near_its_limit(scenario: Scenario, model: str) -> None:
    """200 windows a cell, 24 cells a case: five standard errors. The luck of labels: 6,000 rows', four."""
    for line, of in zip(measured(scenario, model), tables.exact_figures()[scenario.name], strict=True):
        luck = 4 * sqrt(line.true_accuracy * (1 - line.true_accuracy) * (1 / 6000 + 1 / (200 * 500)))
        assert abs(line.accuracy - line.true_accuracy) <= luck
        assert line.true_accuracy <= of.accuracy + 4 * sqrt(0.08 / 6000)
        for cell, name in zip(line.cells, ESTIMATORS, strict=True):
            assert abs(cell.error - cell.limit) <= 5 * cell.standard_error + 1e-4, (line.shift, name)


def test_what_the_header_says_of_lr_doc_and_atc() -> None:
    """Calibration errors: those of 6,000 rows, √(25,000 / 6,000) times as large, and 8,000 to train on."""
    for line, of in zip(measured(LINEAR, "LR"), tables.exact_figures()["linear"], strict=True):
        assert line.raw_error < 2 * of.sampling_error * sqrt(25_000 / 6000)
        ac, doc, atc = (line.cells[k].error for k in (0, 2, 4))
        assert ac < 1.5 * of.average_confidence_error
        assert doc < 2 * of.average_confidence_error
        if line.shift == 3:
            assert atc > 2 * ac
    first = measured(LINEAR, "NB")[0]
    assert first.cells[0].error > 2 * first.cells[2].error  # AC has the bias that DoC-Feat takes off
    assert abs(first.cells[2].error - first.cells[3].error) < 0.003


def test_calibrated_estimates_err_as_the_calibration_does() -> None:
    """Table 6, without a linear classifier where the boundary is a circle nothing would correlate."""
    lines = [line for model in ("NB", "LR", "KNN") for line in measured(CIRCLE, model)]
    assert correlations(lines)[1] > 0.95
    assert correlations(lines)[3] > 0.95


def test_cells_are_what_estimate_says_of_each_window() -> None:
    """The slow way, window by window."""
    whole = study(CIRCLE)
    trained = judged(whole, "KNN", 1)
    teaching, test, rows = trained.calibration, trained.tests[2], whole.windows[2][:20]
    fitted = CALIBRATORS["isotonic"]().fit(teaching.scores, teaching.predicted, teaching.sample.label)
    reference = confidence_of(fitted.apply(trained.reference.scores), trained.reference.predicted)
    confidence = confidence_of(fitted.apply(test.scores), test.predicted)
    doc, atc = (each.fit(reference, trained.reference.right) for each in (DoCFeat, ATC))
    assert isinstance(doc, DoCFeat)
    assert isinstance(atc, ATC)
    for cell, estimator in zip(_cells(confidence, test.right, rows, doc, atc)[1:], (doc, atc), strict=True):
        answers = [estimator.estimate(confidence[row]) for row in rows]
        values = np.array([answer.value for answer in answers if isinstance(answer, Estimate)])
        slow = np.abs(values - test.right[rows].mean(axis=1)).mean()
        assert cell.error == pytest.approx(slow, abs=1e-12)


@pytest.mark.parametrize(("mean", "sd"), [(0.0, 0.01), (0.03, 0.01), (-0.02, 0.05), (0.04, 0.0)])
def test_folded_normal_is_the_mean_of_its_draws(mean: float, sd: float) -> None:
    draws = np.abs(np.random.default_rng(5).normal(mean, sd, 100_000))
    assert abs(folded_normal(mean, sd) - draws.mean()) <= 4 * draws.std() / sqrt(100_000) + 1e-12


def test_the_printed_cells_have_the_printed_means_and_correlations() -> None:
    """Rounded to 0.05 each way in cells and means."""
    for name, cells in CELLS.items():
        assert np.abs(cells.reshape(28, 9).mean(axis=0) - MEANS[name]).max() <= 0.1
        computed = [tables.printed_correlation(name, at) for at in range(6)]
        assert np.abs(np.array(computed) - CORRELATIONS[name]).max() < 0.01


@pytest.mark.parametrize(("model", "module"), [("XGB", "xgboost"), ("LGBM", "lightgbm")])
def test_without_the_extra_the_command_says_what_to_install(
    model: str, module: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tests.fidelity.kivimaki.classifiers.find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"pip install 'blindsight\[fidelity\]'"):
        CLASSIFIERS[model](0)
    monkeypatch.setattr(sys, "argv", ["kivimaki", "--rows", "400", "--trials", "2", "--models", model])
    with pytest.raises(SystemExit) as left:
        run(command.table)
    assert left.value.code == 2
    assert "The table of seven classifiers needs an optional package" in capsys.readouterr().err


def test_a_short_run_prints_every_table_and_keeps_none(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = kept(command.table)
    monkeypatch.setattr(sys, "argv", ["kivimaki", "--rows", "2000", "--trials", "20", "--models", "NB", "LR"])
    run(command.table)
    text = capsys.readouterr().out
    for table in (4, 5, 6, 7, 8):
        assert re.search(rf"^Table {table}: ", text, re.MULTILINE)
    assert "93.56 / 91.7" in text
    assert kept(command.table) == before


def test_the_kept_tables_say_so_too() -> None:
    """Ours lies within four binomial errors of 25,000 rows of the true chance, in each of 56 rows."""
    text = kept(command.table)
    rows = re.findall(r"^ +([0-3]) ([A-Z]+) +([\d.]+) +([\d.]+) /([\d.]+)", text, re.MULTILINE)
    assert len(rows) == 56
    for _, model, true, ours, _ in rows:
        assert model in MODELS
        assert abs(float(true) - float(ours)) <= 100 * 4 * sqrt(0.25 / 25_000)
