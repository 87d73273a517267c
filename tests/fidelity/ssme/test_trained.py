"""Sets of trained classifiers: their draws, the rows of the table, and what the kept table shows."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin

from monitor.stats.labelled.metrics import METRICS
from tests.fidelity.ssme import __main__ as command
from tests.fidelity.ssme import trained, trained_sets
from tests.fidelity.ssme.compare import SHOWN
from tests.fidelity.ssme.trained import TAGS, Row
from tests.fidelity.ssme.trained_sets import BOTH, ESTIMATED, JUDGED_ON, SETS, Data
from tests.fidelity.ssme.trained_sets import trained as maker
from tests.harness import kept

MEAN = "mean of these rows"


class Rows(ClassifierMixin, BaseEstimator):
    """A classifier that only notes which rows it learns from and which it is asked about."""

    def fit(self, x, y):
        self.learnt = x[:, 0].astype(int)
        self.classes_ = np.unique(y)
        return self

    def predict_proba(self, x):
        self.inputs = x[:, 0].astype(int)
        return np.full((len(x), len(self.classes_)), 1.0 / len(self.classes_))


@pytest.mark.parametrize("learn", ["part", "same", "own"])
def test_no_row_is_both_learnt_from_and_asked_about(learn):
    n, models = 20_000, [Rows(), Rows(), Rows()]
    data = Data(np.arange(n)[:, None], np.arange(n) % 2, np.arange(1, n + 1) / n)
    sample = maker(lambda rng: data, lambda rng: models, 500, learn, voiceless=1)(np.random.default_rng(0))
    assert sample.scores.shape == (ESTIMATED, 4, 2)
    inputs = models[0].inputs
    assert len(inputs) == len(set(inputs)) == ESTIMATED + JUDGED_ON
    np.testing.assert_array_equal(sample.labels, data.y[inputs[:ESTIMATED]])
    learnt = [set(model.learnt) for model in models]
    assert all(len(one) == 500 and not one & set(inputs) for one in learnt)
    if learn == "same":
        assert learnt[0] == learnt[1] == learnt[2]
    else:
        assert not learnt[0] & learnt[1]
        assert not learnt[1] & learnt[2]
    if learn == "part":
        assert max(learnt[0]) < min(learnt[1]) < max(learnt[1]) < min(learnt[2])
    np.testing.assert_allclose(sample.scores.sum(axis=2), 1.0)
    assert sample.scores[:, 3].std() > 0.1  # the model without a voice answers at random


def test_the_splits_share_no_draw_and_half_of_the_other_sets_each():
    assert len({(one.name, one.splits) for one in SETS}) == len(SETS)
    alone = {
        split: {one.name for one in SETS if one.splits == (split,)} - {"civilcomments, 7"} for split in BOTH
    }
    assert len(alone["development"]) >= 6
    assert len(alone["reporting"]) >= 6
    assert not alone["development"] & alone["reporting"]
    people = next(one for one in SETS if one.name == "people, 3")
    first, second = (people.draw(split, 0) for split in BOTH)
    assert not np.isin(first.scores[:, 0, 1], second.scores[:, 0, 1]).any()
    np.testing.assert_array_equal(people.draw("reporting", 0).scores, second.scores)
    assert not np.isin(people.draw("reporting", 1).scores[:, 0, 1], second.scores[:, 0, 1]).any()
    assert second.truth[0] == pytest.approx(
        (second.scores.argmax(axis=2) == second.labels[:, None]).mean(axis=0), abs=0.05
    )


def test_sets_of_files_are_drawn_without_a_row_in_both_parts(tmp_path, monkeypatch):
    """A file whose scores tell the row: 1,100 for the estimates, the other 400 for the truth."""
    rng = np.random.default_rng(1)
    first = (np.arange(1500) + 1) / 3000
    score = np.stack([first, 1 - first], axis=1)[:, None, :]
    label = rng.integers(0, 2, 1500)
    (tmp_path / "sets").mkdir()
    np.savez(tmp_path / "sets" / "movies-kinds.npz", score=score, label=label)
    monkeypatch.setattr(trained_sets.scores_file, "find_file", lambda: tmp_path / "scores.npz")
    trained_sets._of_file.cache_clear()
    one = next(each for each in SETS if each.name == "movies-kinds")
    sample = one.draw("files", 0)
    trained_sets._of_file.cache_clear()
    shown = np.rint(sample.scores[:, 0, 0] * 3000).astype(int) - 1
    assert len(set(shown.tolist())) == ESTIMATED
    np.testing.assert_array_equal(sample.labels, label[shown])
    rest = np.setdiff1d(np.arange(1500), shown)
    right = (score[rest, 0].argmax(axis=1) == label[rest]).mean()
    assert sample.truth[METRICS.index("accuracy"), 0] == pytest.approx(right)
    with pytest.raises(
        FileNotFoundError, match=r"movies-strong\.npz: no such file; the split files needs it"
    ):
        next(each for each in SETS if each.name == "movies-strong").draw("files", 0)


def test_a_row_compares_with_the_better_simple_answer():
    """Two draws of one model; `ssme` is off by 2 and 4 points, the mean by 1, the labels by 5 and 1."""
    truth = np.full((2, len(SHOWN), 1), 0.5)
    estimates = np.full((2, len(TAGS), len(SHOWN), 1, 3), np.nan)
    for draw, values in enumerate([(0.52, 0.51, 0.55), (0.46, 0.49, 0.51)]):
        for tag, value in enumerate(values):
            estimates[draw, tag, :, 0] = [value, value - 0.03, value + 0.03]
    row = Row("one", False, 20, estimates, truth)
    assert row.error("accuracy") == pytest.approx([3.0, 1.0, 3.0])
    assert row.over("accuracy") == pytest.approx((2.0, 1.0))  # 1 and 3 points, each draw
    assert row.allowed("accuracy") == 0.2
    assert row.allowed("average_precision") == pytest.approx(2.5)  # 5 % of 0.5
    assert [row.coverage(tag, "auroc") for tag in TAGS] == [50.0, 100.0, 50.0]
    assert row.width("labelled", "class_ece") == pytest.approx(6.0)
    text = trained.table([row], 2)
    assert text.count("+2.00 ± 1.00!") == 3  # not of average precision
    assert "mean of these rows" in text


def test_draws_that_are_kept_or_shared_are_the_same(tmp_path: Path):
    people = [one for one in SETS if one.name == "people, 3"]
    [alone] = trained.measured(people, "development", [20], 2)
    for processes in (1, 2):
        [again] = trained.measured(people, "development", [20], 2, tmp_path, processes)
        np.testing.assert_array_equal(again.estimates, alone.estimates)
        np.testing.assert_array_equal(again.truth, alone.truth)
    assert len(list(tmp_path.iterdir())) == 2
    assert alone.error("accuracy")[0] < alone.error("accuracy")[2]


def kept_rows() -> Mapping[tuple[str, bool, str, int], list[float]]:
    """Return the kept table, by metric, whether special, set and labels: errors, over, its error, spans."""
    rows, metric, special = {}, "", False
    for line in kept(command.of_trained, "trained").splitlines():
        if line.split(",")[0] in SHOWN:
            metric, special = line.split(",")[0], "without a voice" in line
        elif metric and "/" in line and line[44:51].strip().isdigit():
            cells = line[51:].replace("±", " ").replace("!", " ").replace("/", " ").split()
            rows[metric, special, line[:44].strip(), int(line[44:51])] = [float(cell) for cell in cells]
    return rows


def test_the_kept_table_has_every_set_of_the_reporting_split() -> None:
    rows = kept_rows()
    names = {(one.special, one.name) for one in SETS if "reporting" in one.splits}
    for metric in SHOWN:
        for count in trained.LABELS:
            assert {(special, name) for m, special, name, n in rows if (m, n) == (metric, count)} == names | {
                (special, MEAN) for special in (False, True)
            }


BEHIND = {
    ("accuracy", "10 digits, 5 kinds", 20),
    ("accuracy", "10 digits, 5 kinds", 50),
    ("auroc", "10 digits, 5 kinds", 20),
    ("auroc", "10 digits, 5 kinds", 50),
    ("average_precision", "10 digits, 5 kinds", 20),
    *(("auroc", "5 ratings, 4 networks", count) for count in trained.LABELS),
}
"""Where a simple answer is nearer by more than the aim and two standard errors: accurate models of many
classes, whose mean claims far too few right answers, and networks that learnt the same noise."""


def test_ssme_is_ahead_of_both_simple_answers_on_average_and_behind_where_it_is_said() -> None:
    """The kept table, 50 draws a row: what `docs/estimators.md` and `tests/measured.md` say."""
    behind = set()
    for (metric, special, name, count), cells in kept_rows().items():
        ours, mean, labelled = cells[:3]
        if name == MEAN:
            assert ours < min(mean, labelled), (metric, special, count)
        elif not special:
            over, error = cells[3:5]
            allowed = 3.0 if metric == "average_precision" else trained.AIMS[metric]
            if over > allowed + 2 * error:
                behind.add((metric, name, count))
    assert behind == BEHIND


def test_the_intervals_hold_on_average_and_nearly_so_in_every_row() -> None:
    """95 %, each row of 50 draws, whose binomial error is 3 points; two of them below 93 % are 86."""
    low = set()
    for (metric, special, name, count), cells in kept_rows().items():
        coverage = cells[-4]
        if name == MEAN and not special:
            assert 93.0 <= coverage <= 99.0 or (metric == "auroc" and coverage > 90.0), (metric, count)
        elif not special and coverage < 85.8:
            low.add((metric, name))
    assert low == {
        ("auroc", "10 carriers, 4 kinds"),
        ("auroc", "5 ratings, 4 networks"),
        ("auroc", "flights, 3"),
        ("auroc", "3 classes: visits, 3"),
        ("average_precision", "rain (7 %), 5 kinds"),
        ("average_precision", "5 ratings, 4 networks"),
    }
