"""The short form of `python -m tests.fidelity.scoreboard`, and the kept table."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from monitor import ESTIMATORS
from monitor.base import registry
from tests.fidelity import scoreboard
from tests.fidelity.ssme.compare import SHOWN, measure
from tests.fidelity.ssme.printed import printed_error
from tests.fidelity.ssme.suite import tasks


def test_the_scoreboard_prints_what_was_measured_with_the_papers_figure_beside_it() -> None:
    pool = next(task.pool for task in tasks("reporting") if task.name == "2c-3m-independent")
    text = scoreboard.table(2, pool, ["labelled", "majority_vote", "ensemble"], windows=2)
    measured = measure(pool, ["majority_vote"], 50, 2)["majority_vote"]
    part = text.split("## class_ece")[1].split("##")[0]
    [row] = [line for line in part.splitlines() if line.startswith("| `majority_vote` |")]
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert len(cells) == 1 + 3 * len(scoreboard.LABELS)
    assert cells[4] == f"{100 * measured.mean_error('class_ece').mean():.2f} (3.99)"
    assert measured.coverage("class_ece") < 0.4  # far below 95 %, whatever two runs may do
    assert cells[5] == f"**{100 * measured.coverage('class_ece'):.0f}**"
    assert cells[6] == f"{100 * measured.mean_width('class_ece'):.1f}"
    assert text.count("| `ensemble` |") == len(SHOWN) + 2
    of_all = text.split("## intervals")[1].split("##")[0]
    assert re.search(r"^\| `majority_vote` \| refit \| \*\*\d+\*\* \|", of_all, re.MULTILINE)
    for tag in ("average_confidence", "atc", "realised_horizon"):
        assert re.search(rf"^\| `{tag}` \| [a-z]+ \| \**\d+\** \|", of_all, re.MULTILINE), tag


def test_windows_hold_their_realised_metrics_about_as_often_as_intervals_say() -> None:
    """30 windows of calibrated models: three binomial errors at 95 % are 12 points."""
    pool = next(task.pool for task in tasks("reporting") if task.name == "2c-3m-independent")
    coverages = scoreboard.of_windows(pool, 30)
    assert set(coverages) == {tag for tag, entry in registry.ESTIMATORS.items() if entry.needs != "refit"}
    for tag in ("average_confidence", "cbpe_sem", "doc", "realised", "realised_horizon"):
        assert coverages[tag]["accuracy"] >= 0.95 - 0.12, tag
    assert set(coverages["average_confidence"]) == {"accuracy", "auroc", "average_precision"}


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
    """Return the cells of one metric in the kept table, by estimator."""
    part = scoreboard.KEPT.read_text(encoding="utf-8").split(f"## {metric}\n")[1].split("##")[0]
    rows = [line.strip("|").split("|") for line in part.splitlines() if line.startswith("| `")]
    return {row[0].strip(" `"): [cell.strip() for cell in row[1:]] for row in rows}


def test_every_estimator_has_a_row_for_every_metric_and_its_seconds() -> None:
    for metric in (*SHOWN, "seconds"):
        assert set(kept_rows(metric)) == set(ESTIMATORS), metric


def test_no_estimators_intervals_are_forgotten() -> None:
    assert list(kept_rows("intervals")) == list(registry.ESTIMATORS)
    for at, metric in enumerate(SHOWN):
        for tag, row in kept_rows(metric).items():
            covered = [int(cell.strip("*")) for cell in row[1::3] if cell != "–"]
            lowest = kept_rows("intervals")[tag][1 + at].strip("*")
            assert lowest == (str(min(covered)) if covered else "–"), (metric, tag)


def shortfalls(tag: str) -> str:
    """Return the metrics of which an estimator's intervals hold less than 90 %, with the figures."""
    cells = zip(SHOWN, kept_rows("intervals")[tag][1:], strict=True)
    return ", ".join(f"{metric} {cell.strip('*')} %" for metric, cell in cells if "**" in cell)


@pytest.mark.parametrize("tag", registry.ESTIMATORS)
def test_intervals_that_hold_too_little_say_so_in_the_docstring_and_on_the_page(tag: str) -> None:
    shortfall, text = shortfalls(tag), registry.load(registry.ESTIMATORS[tag].path).__doc__ or ""
    page = (Path(__file__).parents[2] / "docs" / "estimators.md").read_text(encoding="utf-8")
    on_the_page = re.findall(rf"^\| `{tag}` \| (accuracy \d.*|\w+ \d+ %.*) \|$", page, re.MULTILINE)
    assert on_the_page == ([shortfall] if shortfall else [])
    begin = r"Lowest coverage of its 95 % intervals on real classifiers \(`tests/fidelity/SCOREBOARD\.md`\): "
    sentences = re.findall(begin + r"([^.]*)\.", " ".join(text.split()))
    assert sentences == ([shortfall] if shortfall else [])


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
    match = re.search(
        r"they are ([\d.]+), ([\d.]+) and ([\d.]+) points", ESTIMATORS["ssme_flow"].__doc__ or ""
    )
    assert match is not None
    assert [float(each) for each in match.groups()] == [round(error, 1) for error in errors]
    page = (Path(__file__).parents[2] / "docs" / "estimators.md").read_text(encoding="utf-8")
    assert f"it is {round(errors[0], 1)} points off with 20 labels" in page
