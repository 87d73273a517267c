"""The short form of `python -m tests.fidelity.scoreboard`, and the kept table."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from monitor import ESTIMATORS
from tests.fidelity import scoreboard
from tests.fidelity.ssme.compare import SHOWN, measure
from tests.fidelity.ssme.printed import printed_error
from tests.fidelity.ssme.suite import tasks


def test_the_scoreboard_prints_what_was_measured_with_the_papers_figure_beside_it() -> None:
    pool = next(task.pool for task in tasks("reporting") if task.name == "2c-3m-independent")
    text = scoreboard.table(2, pool, ["labelled", "majority_vote", "ensemble"])
    found = measure(pool, ["majority_vote"], 50, 2)["majority_vote"]
    part = text.split("## class_ece")[1].split("##")[0]
    [row] = [line for line in part.splitlines() if line.startswith("| `majority_vote` |")]
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert len(cells) == 1 + 3 * len(scoreboard.LABELS)
    assert cells[4] == f"{100 * found.mean_error('class_ece').mean():.2f} (3.99)"
    assert found.coverage("class_ece") < 0.4  # far below 95 %, whatever two runs may do
    assert cells[5] == f"**{100 * found.coverage('class_ece'):.0f}**"
    assert cells[6] == f"{100 * found.mean_width('class_ece'):.1f}"
    assert text.count("| `ensemble` |") == len(SHOWN) + 1


def test_dawid_and_skene_and_the_vote_are_as_wrong_as_the_paper_says() -> None:
    """The kept table; the mean of a few runs lies within a third of the paper's mean, on another half."""
    text = scoreboard.KEPT.read_text(encoding="utf-8")
    for metric in SHOWN:
        part = text.split(f"## {metric}\n")[1].split("##")[0]
        for tag in ("dawid_skene", "majority_vote"):
            [row] = [line for line in part.splitlines() if line.startswith(f"| `{tag}` |")]
            ours = [float(error) for error in re.findall(r"([\d.]+) \([\d.]+\)", row)]
            papers = [printed_error(metric, tag, count) for count in scoreboard.LABELS]
            np.testing.assert_allclose(ours, papers, rtol=0.33)


def kept_rows(metric: str) -> dict[str, list[str]]:
    """The cells of one metric in the kept table, by estimator."""
    part = scoreboard.KEPT.read_text(encoding="utf-8").split(f"## {metric}\n")[1].split("##")[0]
    rows = [line.strip("|").split("|") for line in part.splitlines() if line.startswith("| `")]
    return {row[0].strip(" `"): [cell.strip() for cell in row[1:]] for row in rows}


def test_every_estimator_has_a_row_for_every_metric_and_its_seconds() -> None:
    for metric in (*SHOWN, "seconds"):
        assert set(kept_rows(metric)) == set(ESTIMATORS), metric


def test_ssme_is_the_nearest_on_every_metric_at_every_number_of_labels() -> None:
    for metric in SHOWN:
        for at in range(0, 9, 3):
            known = {t: float(row[at].split()[0]) for t, row in kept_rows(metric).items() if row[at] != "–"}
            assert min(known, key=known.__getitem__) == "ssme", (metric, at, known)


def test_intervals_that_assume_a_random_sample_and_no_more_hold_the_accuracy() -> None:
    rows = kept_rows("accuracy")
    for tag in ("ssme", "labelled", "autoeval", "rectified", "active_testing"):
        assert not any("**" in cell for cell in rows[tag]), tag


def test_what_is_told_of_the_flow_is_what_the_table_says() -> None:
    errors = [float(kept_rows("accuracy")["ssme_flow"][at]) for at in (0, 3, 6)]
    told = re.search(
        r"they are ([\d.]+), ([\d.]+) and ([\d.]+) points", ESTIMATORS["ssme_flow"].__doc__ or ""
    )
    assert told is not None
    assert [float(each) for each in told.groups()] == [round(error, 1) for error in errors]
    page = (Path(__file__).parents[2] / "docs" / "estimators.md").read_text(encoding="utf-8")
    assert f"it is {round(errors[0], 1)} points off with 20 labels" in page
